//! Attributes of the messages as attributes of the IR.

use super::{
    Importer,
    types::{Place, read_type},
};
use std::{collections::HashMap, rc::Rc, sync::Arc};
use trtc_ir::{Attr, Attrs, Diag, Tensor};
use trtc_onnx::{AttributeProto, AttributeType, Message, NodeProto, TensorData};

/// Attributes that a call gives to a function: what `ref_attr_name` inside of it stands for.
pub(super) type Bound<'a> = Rc<HashMap<&'a str, &'a AttributeProto>>;

impl<'a> Importer<'a> {
    /// The attributes of a node as literals: references to attributes of the function around it are looked up, and left out
    /// when the call did not give them.
    pub(super) fn literals(&self, proto: &'a NodeProto) -> Vec<(&'a str, &'a AttributeProto)> {
        let bound = self.frames.last().map(|frame| &frame.bound);
        let literal = |attr: &'a AttributeProto| {
            let name = attr.name.as_deref().unwrap_or("");
            match attr.ref_attr_name.as_deref() {
                None | Some("") => Some((name, attr)),
                Some(reference) => bound.and_then(|bound| bound.get(reference)).map(|&attr| (name, attr)),
            }
        };
        proto.attribute.iter().filter_map(literal).collect()
    }

    /// Reads attributes; subgraphs are imported under the path `label`.
    pub(super) fn attrs(
        &mut self,
        literals: &[(&'a str, &'a AttributeProto)],
        label: &str,
    ) -> Result<Attrs, Diag> {
        let mut attrs = Attrs::new();
        for &(name, attr) in literals {
            if attrs.get(name).is_some() {
                return Err(Diag::invalid("the attribute is given twice").slot(name));
            }
            let value = self.attr(name, attr, label).map_err(|why| Diag::invalid(why).slot(name))?;
            attrs.set(name, value);
        }
        Ok(attrs)
    }

    fn attr(&mut self, name: &str, attr: &'a AttributeProto, label: &str) -> Result<Attr, String> {
        let kind = attr.kind().ok_or_else(|| match attr.r#type {
            None | Some(0) => "the attribute has no value".to_owned(),
            Some(number) => format!("attribute type {number} is not one that ONNX defines"),
        })?;
        let lacks = |field: &str| format!("the attribute says it is {kind:?}, but field `{field}` is absent");
        Ok(match kind {
            // Proto3 writers leave out a field that holds its default.
            AttributeType::Float => Attr::Float(attr.f.unwrap_or_default()),
            AttributeType::Int => Attr::Int(attr.i.unwrap_or_default()),
            AttributeType::String => Attr::Str(attr.s.clone().unwrap_or_default()),
            AttributeType::Floats => Attr::Floats(attr.floats.clone()),
            AttributeType::Ints => Attr::Ints(attr.ints.clone()),
            AttributeType::Strings => Attr::Strs(attr.strings.clone()),
            AttributeType::Tensor => Attr::Tensor(self.tensor(attr.t.as_deref().ok_or_else(|| lacks("t"))?)?),
            AttributeType::Tensors => Attr::Tensors(
                attr.tensors.iter().map(|tensor| self.tensor(tensor)).collect::<Result<_, _>>()?,
            ),
            AttributeType::Graph => {
                let graph = attr.g.as_deref().ok_or_else(|| lacks("g"))?;
                Attr::Graph(Box::new(self.subgraph(graph, format!("{label}/{name}"))))
            }
            AttributeType::Graphs => Attr::Graphs(
                attr.graphs.iter().map(|graph| self.subgraph(graph, format!("{label}/{name}"))).collect(),
            ),
            AttributeType::TypeProto => {
                Attr::Type(read_type(attr.tp.as_deref(), &mut self.symbols, Place::Inner)?)
            }
            AttributeType::SparseTensor | AttributeType::SparseTensors | AttributeType::TypeProtos => {
                Attr::Opaque(attr.encode_to_vec().into())
            }
            AttributeType::Undefined => return Err("the attribute has no value".to_owned()),
        })
    }

    /// The elements of a tensor, in place in the file.
    pub(super) fn tensor(&self, proto: &trtc_onnx::TensorProto) -> Result<Tensor, String> {
        let tensor = self.file.tensor(proto).map_err(|error| error.to_string())?;
        ir_tensor(tensor)
    }
}

/// The IR's view of a tensor, over the same bytes.
pub(super) fn ir_tensor(tensor: trtc_onnx::Tensor) -> Result<Tensor, String> {
    let shown = format!("{} {:?}", tensor.dtype, tensor.dims);
    match tensor.data {
        TensorData::Bytes(bytes) => Tensor::new(tensor.dtype, tensor.dims, bytes),
        TensorData::Strings(strings) => Tensor::strings(tensor.dims, Arc::from(strings)),
    }
    .ok_or_else(|| format!("data does not fit {shown}"))
}

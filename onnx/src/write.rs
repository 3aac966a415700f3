//! Building and encoding models.
//!
//! ```
//! use trtc_bundle::DType;
//! use trtc_onnx::Dimension;
//! use trtc_onnx::write::{attr_i, encode, graph, model, node, value_info};
//!
//! let softmax = node("Softmax", &["x"], &["y"], [attr_i("axis", -1)]);
//! let x = value_info("x", DType::F32, [Dimension::from("N"), 10.into()]);
//! let y = value_info("y", DType::F32, [Dimension::from("N"), 10.into()]);
//! let bytes = encode(&model(21, graph("g", [softmax], [x], [y], [])))?;
//! # Ok::<(), trtc_onnx::Error>(())
//! ```

use crate::{
    AttributeProto, AttributeType, DimValue, Dimension, Error, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, Result, TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue,
    ValueInfoProto,
};
use bytes::Bytes;
use prost::Message;
use trtc_bundle::DType;

/// IR version that [`model`] writes: what ONNX Runtime 1.23 and later read, and new enough for every type of opset 21.
pub const IR_VERSION: i64 = 10;

/// Encodes a model.
///
/// # Errors
/// Its encoded size is 2 GiB or more.
pub fn encode(model: &ModelProto) -> Result<Bytes> {
    match model.encoded_len() {
        bytes if bytes > i32::MAX as usize => Err(Error::TooLarge { bytes }),
        _ => Ok(model.encode_to_vec().into()),
    }
}

/// A model of one graph that imports ai.onnx at version `opset`.
pub fn model(opset: i64, graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: Some("trtc".to_owned()),
        opset_import: vec![opset_import("", opset)],
        graph: Some(graph),
        ..ModelProto::default()
    }
}

/// An operator set; `""` stands for ai.onnx.
pub fn opset_import(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: Some(domain.to_owned()), version: Some(version) }
}

/// A graph; `nodes` in topological order.
pub fn graph(
    name: &str,
    nodes: impl IntoIterator<Item = NodeProto>,
    inputs: impl IntoIterator<Item = ValueInfoProto>,
    outputs: impl IntoIterator<Item = ValueInfoProto>,
    initializers: impl IntoIterator<Item = TensorProto>,
) -> GraphProto {
    GraphProto {
        name: Some(name.to_owned()),
        node: Vec::from_iter(nodes),
        input: Vec::from_iter(inputs),
        output: Vec::from_iter(outputs),
        initializer: Vec::from_iter(initializers),
        ..GraphProto::default()
    }
}

/// A node of ai.onnx, or of `domain` when `op_type` is written `domain::Op`. An empty name stands for an omitted input or output.
pub fn node(
    op_type: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: impl IntoIterator<Item = AttributeProto>,
) -> NodeProto {
    let (domain, op_type) = match op_type.rsplit_once("::") {
        Some((domain, op_type)) => (Some(domain.to_owned()), op_type),
        None => (None, op_type),
    };
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    NodeProto {
        op_type: Some(op_type.to_owned()),
        domain,
        input: owned(inputs),
        output: owned(outputs),
        attribute: Vec::from_iter(attributes),
        ..NodeProto::default()
    }
}

impl NodeProto {
    /// The same node with a name.
    #[must_use]
    pub fn named(mut self, name: &str) -> NodeProto {
        self.name = Some(name.to_owned());
        self
    }
}

fn attr(name: &str, kind: AttributeType, value: AttributeProto) -> AttributeProto {
    AttributeProto { name: Some(name.to_owned()), r#type: Some(kind as i32), ..value }
}

/// A float attribute.
pub fn attr_f(name: &str, value: f32) -> AttributeProto {
    attr(name, AttributeType::Float, AttributeProto { f: Some(value), ..Default::default() })
}

/// An integer attribute.
pub fn attr_i(name: &str, value: i64) -> AttributeProto {
    attr(name, AttributeType::Int, AttributeProto { i: Some(value), ..Default::default() })
}

/// A string attribute.
pub fn attr_s(name: &str, value: impl AsRef<[u8]>) -> AttributeProto {
    let s = Some(Bytes::copy_from_slice(value.as_ref()));
    attr(name, AttributeType::String, AttributeProto { s, ..Default::default() })
}

/// A tensor attribute.
pub fn attr_t(name: &str, value: TensorProto) -> AttributeProto {
    attr(name, AttributeType::Tensor, AttributeProto { t: Some(Box::new(value)), ..Default::default() })
}

/// A graph attribute.
pub fn attr_g(name: &str, value: GraphProto) -> AttributeProto {
    attr(name, AttributeType::Graph, AttributeProto { g: Some(Box::new(value)), ..Default::default() })
}

/// A type attribute.
pub fn attr_tp(name: &str, value: TypeProto) -> AttributeProto {
    attr(name, AttributeType::TypeProto, AttributeProto { tp: Some(Box::new(value)), ..Default::default() })
}

/// An attribute of floats.
pub fn attr_floats(name: &str, values: &[f32]) -> AttributeProto {
    attr(name, AttributeType::Floats, AttributeProto { floats: values.to_vec(), ..Default::default() })
}

/// An attribute of integers.
pub fn attr_ints(name: &str, values: &[i64]) -> AttributeProto {
    attr(name, AttributeType::Ints, AttributeProto { ints: values.to_vec(), ..Default::default() })
}

/// An attribute of strings.
pub fn attr_strings<S: AsRef<[u8]>>(name: &str, values: &[S]) -> AttributeProto {
    let strings = values.iter().map(|value| Bytes::copy_from_slice(value.as_ref())).collect();
    attr(name, AttributeType::Strings, AttributeProto { strings, ..Default::default() })
}

/// The attribute of a function's node that takes its value from the attribute `of` of the function.
pub fn attr_ref(name: &str, kind: AttributeType, of: &str) -> AttributeProto {
    attr(name, kind, AttributeProto { ref_attr_name: Some(of.to_owned()), ..Default::default() })
}

impl From<i64> for Dimension {
    fn from(size: i64) -> Dimension {
        Dimension { value: Some(DimValue::Value(size)), denotation: None }
    }
}

impl From<i32> for Dimension {
    fn from(size: i32) -> Dimension {
        i64::from(size).into()
    }
}

/// A symbol; an empty one makes an unknown dimension.
impl From<&str> for Dimension {
    fn from(symbol: &str) -> Dimension {
        let value = (!symbol.is_empty()).then(|| DimValue::Param(symbol.to_owned()));
        Dimension { value, denotation: None }
    }
}

/// The type of a dense tensor; `None` for a shape of unknown rank.
pub fn tensor_type<D: Into<Dimension>>(dtype: DType, dims: Option<impl IntoIterator<Item = D>>) -> TypeProto {
    let shape = dims.map(|dims| TensorShapeProto { dim: dims.into_iter().map(Into::into).collect() });
    let tensor = TensorType { elem_type: Some(dtype.onnx()), shape };
    TypeProto { value: Some(TypeValue::Tensor(tensor)), denotation: None }
}

/// A named dense tensor: sizes, symbols, or `Dimension`s of both.
pub fn value_info<D: Into<Dimension>>(
    name: &str,
    dtype: DType,
    dims: impl IntoIterator<Item = D>,
) -> ValueInfoProto {
    typed_value(name, tensor_type(dtype, Some(dims)))
}

/// A named value of any type.
pub fn typed_value(name: &str, r#type: TypeProto) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.to_owned()), r#type: Some(r#type), ..ValueInfoProto::default() }
}

macro_rules! elements {
    ($($name:ident $type:ty, $dtype:ident;)*) => {$(
        #[doc = concat!("An initializer of `", stringify!($type), "`.")]
        pub fn $name(name: &str, dims: &[i64], values: &[$type]) -> TensorProto {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            TensorProto::raw(name, DType::$dtype, dims, bytes)
        }
    )*};
}

elements! {
    tensor_f32 f32, F32;
    tensor_f64 f64, F64;
    tensor_i64 i64, I64;
    tensor_i32 i32, I32;
    tensor_u8 u8, U8;
    tensor_i8 i8, I8;
}

/// An initializer of bools.
pub fn tensor_bool(name: &str, dims: &[i64], values: &[bool]) -> TensorProto {
    TensorProto::raw(
        name,
        DType::Bool,
        dims,
        values.iter().map(|&value| u8::from(value)).collect::<Vec<u8>>(),
    )
}

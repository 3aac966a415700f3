//! Constant nodes: every form of the value becomes a tensor.

use super::{Importer, attrs::ir_tensor};
use std::sync::Arc;
use trtc_bundle::DType;
use trtc_ir::{Diag, Tensor};
use trtc_onnx::{AttributeProto, AttributeType, SparseTensorProto};

/// Largest dense size that a sparse constant is unpacked to, in bytes.
const DENSE_LIMIT: usize = 1 << 30;

impl<'a> Importer<'a> {
    /// The tensor that a Constant node with these attributes makes.
    pub(super) fn constant(&self, attrs: &[(&'a str, &'a AttributeProto)]) -> Result<Tensor, Diag> {
        let known = |name: &str| {
            matches!(
                name,
                "value"
                    | "sparse_value"
                    | "value_float"
                    | "value_floats"
                    | "value_int"
                    | "value_ints"
                    | "value_string"
                    | "value_strings"
            )
        };
        let mut given = attrs.iter().filter(|(name, _)| known(name));
        let (Some(&(name, attr)), None) = (given.next(), given.next()) else {
            return Err(Diag::invalid(
                "exactly one of the attributes value, sparse_value, value_float(s), value_int(s), value_string(s) must be given",
            ));
        };
        self.constant_value(name, attr).map_err(|why| Diag::invalid(why).slot(name))
    }

    fn constant_value(&self, name: &str, attr: &AttributeProto) -> Result<Tensor, String> {
        let (want, name_of) = match name {
            "value" => (AttributeType::Tensor, "a tensor"),
            "sparse_value" => (AttributeType::SparseTensor, "a sparse tensor"),
            "value_float" => (AttributeType::Float, "a float"),
            "value_floats" => (AttributeType::Floats, "floats"),
            "value_int" => (AttributeType::Int, "an integer"),
            "value_ints" => (AttributeType::Ints, "integers"),
            "value_string" => (AttributeType::String, "a string"),
            _ => (AttributeType::Strings, "strings"),
        };
        if name == "value" && attr.kind() == Some(AttributeType::SparseTensor) {
            return self.dense(attr.sparse_tensor.as_deref().ok_or("the attribute must be a tensor")?);
        }
        // An empty list without a type is indistinguishable from nothing.
        if attr.kind().is_some_and(|kind| kind != want) {
            return Err(format!("the attribute must be {name_of}"));
        }
        let none = || format!("the attribute must be {name_of}");
        let floats = |dims, values: &[f32]| Tensor::from_f32s(dims, values);
        match want {
            AttributeType::Tensor => return self.tensor(attr.t.as_deref().ok_or_else(none)?),
            AttributeType::SparseTensor => {
                return self.dense(attr.sparse_tensor.as_deref().ok_or_else(none)?);
            }
            AttributeType::Float => floats(Vec::new(), &[attr.f.unwrap_or_default()]),
            AttributeType::Floats => floats(vec![attr.floats.len() as i64], &attr.floats),
            AttributeType::Int => Some(Tensor::scalar_i64(attr.i.unwrap_or_default())),
            AttributeType::Ints => Some(Tensor::from_i64s(&attr.ints)),
            AttributeType::String => {
                Tensor::strings(Vec::new(), Arc::from([attr.s.clone().unwrap_or_default()]))
            }
            _ => Tensor::strings(vec![attr.strings.len() as i64], Arc::from(attr.strings.as_slice())),
        }
        .ok_or_else(none)
    }

    /// The dense form of a sparse tensor that is not too large for it.
    pub(super) fn dense(&self, proto: &SparseTensorProto) -> Result<Tensor, String> {
        let dtype = proto.values.as_ref().and_then(|values| values.dtype().ok());
        let count = trtc_onnx::element_count(&proto.dims).map_err(|fault| fault.to_string())?;
        let bytes = match dtype {
            Some(DType::Str) | None => Some(count),
            Some(dtype) => dtype.bytes_for(count),
        };
        if bytes.is_none_or(|bytes| bytes > DENSE_LIMIT) {
            return Err(format!("a sparse constant of shape {:?} is too large to unpack", proto.dims));
        }
        let dense = proto.to_dense(|tensor| self.file.tensor(tensor)).map_err(|error| error.to_string())?;
        ir_tensor(dense)
    }
}

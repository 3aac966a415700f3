//! Types and attributes of the IR as messages.

use trtc_bundle::DType;
use trtc_ir::{Attr, Dim, Symbols, Tensor, TensorData, Type};
use trtc_onnx::{
    AttributeProto, AttributeType, DimValue, Dimension, MapType, Message, OptionalType, SequenceType,
    TensorProto, TensorShapeProto, TypeProto, TypeValue, ValueInfoProto,
};

/// A value with its type; the type is left out when it is not known.
pub(super) fn value_info(name: &str, ty: &Type, symbols: Option<&Symbols>) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.to_owned()), r#type: type_proto(ty, symbols), ..Default::default() }
}

/// A type; `None` when its element type is not known. Shapes are written when `symbols` are given.
pub(super) fn type_proto(ty: &Type, symbols: Option<&Symbols>) -> Option<TypeProto> {
    let boxed = |ty: &Type| type_proto(ty, symbols).map(Box::new);
    let value = match ty {
        Type::Unknown => return None,
        Type::Tensor(tensor) => TypeValue::Tensor(tensor_type(tensor, symbols)?),
        Type::SparseTensor(tensor) => TypeValue::SparseTensor(tensor_type(tensor, symbols)?),
        Type::Sequence(element) => {
            TypeValue::Sequence(Box::new(SequenceType { elem_type: Some(boxed(element)?) }))
        }
        Type::Optional(element) => {
            TypeValue::Optional(Box::new(OptionalType { elem_type: Some(boxed(element)?) }))
        }
        Type::Map(key, value) => {
            TypeValue::Map(Box::new(MapType { key_type: Some(key.onnx()), value_type: Some(boxed(value)?) }))
        }
    };
    Some(TypeProto { value: Some(value), denotation: None })
}

fn tensor_type(tensor: &trtc_ir::TensorType, symbols: Option<&Symbols>) -> Option<trtc_onnx::TensorType> {
    let shape = symbols.and_then(|symbols| {
        let dims = tensor.shape.as_ref()?.iter().map(|dim| dimension(dim, symbols));
        Some(TensorShapeProto { dim: dims.collect() })
    });
    Some(trtc_onnx::TensorType { elem_type: Some(tensor.dtype?.onnx()), shape })
}

/// A dim. One that only the run decides gets no name: ONNX Runtime takes equal names for equal sizes.
fn dimension(dim: &Dim, symbols: &Symbols) -> Dimension {
    let mut backed = true;
    dim.for_each_symbol(&mut |symbol| backed &= symbols.info(symbol).is_some_and(|info| !info.unbacked));
    let value = match dim {
        Dim::Known(size) => Some(DimValue::Value(*size)),
        Dim::Expr(_) if backed => Some(DimValue::Param(symbols.show(dim))),
        _ => None,
    };
    Dimension { value, denotation: None }
}

/// An attribute that is no subgraph.
pub(super) fn attribute(name: &str, attr: &Attr) -> AttributeProto {
    let mut proto = AttributeProto { name: Some(name.to_owned()), ..Default::default() };
    let kind = match attr {
        Attr::Int(value) => {
            proto.i = Some(*value);
            AttributeType::Int
        }
        Attr::Float(value) => {
            proto.f = Some(*value);
            AttributeType::Float
        }
        Attr::Str(value) => {
            proto.s = Some(value.clone());
            AttributeType::String
        }
        Attr::Tensor(tensor) => {
            proto.t = Some(Box::new(inline("", tensor)));
            AttributeType::Tensor
        }
        Attr::Ints(values) => {
            proto.ints = values.clone();
            AttributeType::Ints
        }
        Attr::Floats(values) => {
            proto.floats = values.clone();
            AttributeType::Floats
        }
        Attr::Strs(values) => {
            proto.strings = values.clone();
            AttributeType::Strings
        }
        Attr::Tensors(tensors) => {
            proto.tensors = tensors.iter().map(|tensor| inline("", tensor)).collect();
            AttributeType::Tensors
        }
        Attr::Type(ty) => {
            proto.tp = Some(Box::new(type_proto(ty, None).unwrap_or_default()));
            AttributeType::TypeProto
        }
        Attr::Opaque(bytes) => return AttributeProto::decode(bytes.clone()).unwrap_or(proto),
        Attr::Graph(_) => AttributeType::Graph,
        Attr::Graphs(_) => AttributeType::Graphs,
    };
    proto.r#type = Some(kind as i32);
    proto
}

/// A tensor with its elements in the message.
pub(super) fn inline(name: &str, tensor: &Tensor) -> TensorProto {
    match tensor.data() {
        TensorData::Bytes(bytes) => TensorProto::raw(name, tensor.dtype(), tensor.dims(), bytes.clone()),
        TensorData::Strings(strings) => TensorProto::strings(name, tensor.dims(), strings.to_vec()),
    }
}

/// Bytes of a tensor, strings included.
pub(super) fn byte_count(tensor: &Tensor) -> usize {
    match tensor.data() {
        TensorData::Bytes(bytes) => bytes.len(),
        TensorData::Strings(strings) => strings.iter().map(bytes::Bytes::len).sum(),
    }
}

/// Whether a tensor may be a shape, axes, or the like.
pub(super) fn is_shape_like(tensor: &Tensor) -> bool {
    matches!(tensor.dtype(), DType::I64 | DType::I32) && tensor.dims().len() <= 1
}

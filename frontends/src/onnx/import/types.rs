//! Types of the messages as types of the IR.

use trtc_bundle::DType;
use trtc_ir::{Dim, Interval, Symbols, TensorType, Type};
use trtc_onnx::{DimValue, Dimension, TypeProto, TypeValue};

/// Whose type is read, which decides what an unnamed dim and a new symbol mean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// An input of the model with this name: each of its dims is known, or a symbol.
    Input(&'a str),
    /// Another value of the model's graph: a symbol that no input has is one that only the run decides.
    Value,
    /// Inside of a subgraph or function, where a name may mean another size in each call: only symbols of inputs count.
    Inner,
}

/// Reads a type.
///
/// # Errors
/// What is wrong, when an element type is not one that ONNX defines.
pub(super) fn read_type(
    proto: Option<&TypeProto>,
    symbols: &mut Symbols,
    place: Place<'_>,
) -> Result<Type, String> {
    let Some(value) = proto.and_then(|proto| proto.value.as_ref()) else { return Ok(Type::Unknown) };
    // The length of a sequence's elements is no size of the model's.
    let element = match place {
        Place::Input(_) => Place::Value,
        other => other,
    };
    Ok(match value {
        TypeValue::Tensor(tensor) => Type::Tensor(read_tensor(tensor, symbols, place)?),
        TypeValue::SparseTensor(tensor) => Type::SparseTensor(read_tensor(tensor, symbols, place)?),
        TypeValue::Sequence(sequence) => {
            Type::Sequence(Box::new(read_type(sequence.elem_type.as_deref(), symbols, element)?))
        }
        TypeValue::Optional(optional) => {
            Type::Optional(Box::new(read_type(optional.elem_type.as_deref(), symbols, element)?))
        }
        TypeValue::Map(map) => {
            let key = read_dtype(map.key_type)?.ok_or("its map has no key type")?;
            Type::Map(key, Box::new(read_type(map.value_type.as_deref(), symbols, element)?))
        }
        TypeValue::Opaque(_) => Type::Unknown,
    })
}

fn read_dtype(number: Option<i32>) -> Result<Option<DType>, String> {
    match number {
        None | Some(0) => Ok(None),
        Some(number) => DType::from_onnx(number)
            .map(Some)
            .ok_or_else(|| format!("element type {number} is not one that ONNX defines")),
    }
}

fn read_tensor(
    tensor: &trtc_onnx::TensorType,
    symbols: &mut Symbols,
    place: Place<'_>,
) -> Result<TensorType, String> {
    let shape = tensor.shape.as_ref().map(|shape| {
        shape.dim.iter().enumerate().map(|(axis, dim)| read_dim(dim, axis, symbols, place)).collect()
    });
    Ok(TensorType { dtype: read_dtype(tensor.elem_type)?, shape })
}

fn read_dim(dim: &Dimension, axis: usize, symbols: &mut Symbols, place: Place<'_>) -> Dim {
    const ANY_SIZE: Interval = Interval { min: Some(0), max: None };
    let name = match &dim.value {
        Some(DimValue::Value(size)) if *size >= 0 => return Dim::Known(*size),
        // Some writers put a number into the name.
        Some(DimValue::Param(name)) => match name.trim() {
            "" | "?" | "-1" | "None" | "unk" => None,
            name => match name.parse::<i64>() {
                Ok(size) if size >= 0 => return Dim::Known(size),
                _ => Some(name),
            },
        },
        _ => None,
    };
    match (name, place) {
        (Some(name), Place::Input(_)) => Dim::symbol(symbols.named(name)),
        (None, Place::Input(value)) => {
            Dim::symbol(symbols.fresh(&format!("{value}.{axis}"), ANY_SIZE, false))
        }
        (Some(name), _) => match symbols.find(name) {
            Some(symbol) => Dim::symbol(symbol),
            None if place == Place::Value => Dim::symbol(symbols.fresh(name, ANY_SIZE, true)),
            None => Dim::Unknown,
        },
        (None, _) => Dim::Unknown,
    }
}

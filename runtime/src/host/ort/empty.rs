//! Empty sequences, which the C API cannot make: a graph of one node does.

use super::{Shared, dtype, graph::OrtGraph, value::OrtVal};
use crate::{
    host::{GraphOptions, HostError, HostGraph as _, HostOutput, ModelSource},
    value::Value,
};
use std::sync::Arc;
use trtc_bundle::DType;

/// A sequence without tensors of `dtype`.
pub(super) fn empty_sequence(shared: &Arc<Shared>, dtype: DType) -> Result<OrtVal, HostError> {
    if dtype::to_ort(dtype).is_none() {
        return Err(HostError::Unsupported(format!("sequences of {dtype}")));
    }
    let model = model(dtype);
    let source = ModelSource::Bytes { model: &model, folder: None };
    let graph = OrtGraph::with(shared, source, &GraphOptions::default())?;
    let mut made = [HostOutput::New(Value::Nothing)];
    graph.run(&[], &mut made)?;
    let value = match &made {
        [HostOutput::New(Value::Opaque(value))] => value.downcast::<OrtVal>().cloned(),
        _ => None,
    };
    value.ok_or_else(|| HostError::Run("an empty sequence is missing".into()))
}

/// The encoded model (IR version 8, opset 15) of one SequenceEmpty.
fn model(dtype: DType) -> Vec<u8> {
    let number_of_dtype = dtype.onnx().unsigned_abs();
    let attribute = [message(1, b"dtype"), number(3, number_of_dtype), number(20, 2)].concat();
    let node = [message(2, b"y"), message(4, b"SequenceEmpty"), message(5, &attribute)].concat();
    let element = message(1, &number(1, number_of_dtype));
    let kind = message(4, &message(1, &element));
    let output = [message(1, b"y"), message(2, &kind)].concat();
    let graph = [message(1, &node), message(2, b"empty"), message(12, &output)].concat();
    [number(1, 8), message(7, &graph), message(8, &number(2, 15))].concat()
}

/// A field of protobuf's wire format that has a length.
fn message(field: u32, content: &[u8]) -> Vec<u8> {
    [&varint(field << 3 | 2), &varint(content.len() as u32), content].concat()
}

/// A field that is a number.
fn number(field: u32, value: u32) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn varint(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

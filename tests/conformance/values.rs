//! Values of cases: messages of tensors, sequences, optionals and maps as values of a session.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use trtc_onnx::{Message, TensorData, TensorProto, TypeValue, ValueInfoProto};
use trtc_runtime::{StringTensor, Tensor, Value};

/// onnx-data.proto's `SequenceProto`.
#[derive(Clone, PartialEq, prost::Message)]
struct SequenceProto {
    #[prost(message, repeated, tag = "3")]
    tensors: Vec<TensorProto>,
    #[prost(message, repeated, tag = "5")]
    sequences: Vec<SequenceProto>,
    #[prost(message, repeated, tag = "6")]
    maps: Vec<MapProto>,
}

/// onnx-data.proto's `MapProto`.
#[derive(Clone, PartialEq, prost::Message)]
struct MapProto {
    #[prost(int64, repeated, tag = "3")]
    keys: Vec<i64>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    string_keys: Vec<Bytes>,
    #[prost(message, optional, boxed, tag = "5")]
    values: Option<Box<SequenceProto>>,
}

/// onnx-data.proto's `OptionalProto`.
#[derive(Clone, PartialEq, prost::Message)]
struct OptionalProto {
    #[prost(message, optional, tag = "3")]
    tensor: Option<TensorProto>,
    #[prost(message, optional, tag = "5")]
    sequence: Option<SequenceProto>,
}

/// Reads a value of the type of `info`.
pub fn decode(bytes: &[u8], info: &ValueInfoProto) -> Result<Value> {
    let kind = info.r#type.as_ref().and_then(|kind| kind.value.as_ref()).context("a value without a type")?;
    Ok(match kind {
        TypeValue::Tensor(_) => tensor(&TensorProto::decode(bytes)?)?,
        TypeValue::Sequence(_) => sequence(&SequenceProto::decode(bytes)?)?,
        TypeValue::Optional(_) => {
            let optional = OptionalProto::decode(bytes)?;
            match (&optional.tensor, &optional.sequence) {
                (Some(value), _) => tensor(value)?,
                (None, Some(value)) => sequence(value)?,
                (None, None) => Value::Nothing,
            }
        }
        TypeValue::Map(_) => map(&MapProto::decode(bytes)?)?,
        other => bail!("{other:?}"),
    })
}

fn tensor(proto: &TensorProto) -> Result<Value> {
    let read = proto.to_tensor()?;
    let dims = read.dims.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>()?;
    Ok(match &read.data {
        TensorData::Bytes(bytes) => Value::Tensor(Tensor::from_bytes(read.dtype, &dims, bytes)?),
        TensorData::Strings(list) => Value::Strings(StringTensor { dims, strings: strings(list) }),
    })
}

fn strings(list: &[Bytes]) -> Vec<String> {
    list.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
}

fn sequence(proto: &SequenceProto) -> Result<Value> {
    let tensors = proto.tensors.iter().map(tensor);
    let values = tensors.chain(proto.sequences.iter().map(sequence)).chain(proto.maps.iter().map(map));
    Ok(Value::Sequence(values.collect::<Result<_>>()?))
}

fn map(proto: &MapProto) -> Result<Value> {
    let keys = if proto.string_keys.is_empty() {
        Value::Tensor(Tensor::from_slice(&[proto.keys.len()], &proto.keys)?)
    } else {
        let strings = strings(&proto.string_keys);
        Value::Strings(StringTensor { dims: vec![strings.len()], strings })
    };
    let values = sequence(proto.values.as_deref().context("a map without values")?)?;
    Ok(Value::Map(Box::new((keys, values))))
}

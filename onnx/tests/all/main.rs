//! Tests of the ONNX messages against bytes written by hand after the protobuf and ONNX texts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod read;
mod schema;
mod tensor;

/// A protobuf field of bytes: tag, length (below 128), content.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2, u8::try_from(content.len()).unwrap()];
    out.extend_from_slice(content);
    out
}

//! The ONNX messages: read over a mapped file, and written.
//!
//! [`OnnxFile`] opens a model without copying a weight; [`Tensor`] gives a tensor's elements in one layout whatever field or file
//! they stand in; the functions of [`mod@write`] build models. [`schema`] knows every version of every operator, [`kernels`] which of them ONNX
//! Runtime runs on the CPU.

mod error;
pub mod kernels;
mod proto;
mod read;
pub mod schema;
mod tensor;
mod tensor_proto;
pub mod write;

pub use error::{Error, ExternalFault, Result, TensorFault};
pub use prost::Message;
pub use proto::*;
pub use read::{OnnxFile, opsets};
pub use tensor::{Tensor, TensorData, element_count};
pub use tensor_proto::{EXTERNAL, Packed, Segment, TensorProto};

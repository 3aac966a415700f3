//! TensorRT networks as plain data.
//!
//! A [`Network`] says everything that the builder needs to know and holds no pointer: it can be sent to a worker
//! process, stored in a bundle, printed, and raised back to ONNX (feature `raise`). Weights are named by
//! [`WeightsId`]; their bytes travel beside the network ([`Lowered::weights`]), so that a mapped model file is
//! never copied.
//!
//! * [`layer::Layer`] is the one place where TensorRT's layers are described; the shim, the printer and the raiser
//!   match on it exhaustively.
//! * [`NetworkBuilder`] makes networks. It computes the dtype and the dims of every tensor as TensorRT does, so that
//!   the shim can compare each layer with what TensorRT itself infers.

mod builder;
mod float;
mod infer;
pub mod layer;
mod network;
#[cfg(feature = "raise")]
pub mod raise;
mod text;

pub use builder::NetworkBuilder;
pub use layer::{Layer, LayerEntry, Region};
pub use network::{
    Fault, Input, InputProfile, Lowered, Network, Output, TensorId, TensorInfo, WeightsId, WeightsInfo,
};

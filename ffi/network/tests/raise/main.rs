//! Each TensorRT layer, raised to ONNX and run by ONNX Runtime, against its description in `NvInfer.h` written as loops.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::cloned_ref_to_slice_refs, reason = "one form for one input and for several")]

mod control;
mod elementwise;
mod harness;
mod index;
mod matrix;
mod model;
mod quantize;
mod shape;
mod spatial;

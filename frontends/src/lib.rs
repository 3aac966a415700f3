//! Front ends: model bytes to IR, and IR to ONNX for host segments.
//!
//! * [`onnx::load`] reads an ONNX file, inlines its functions and brings every operator to one schema version.
//! * [`onnx::export`] writes nodes of the IR as an ONNX model again, at an opset that ONNX Runtime has kernels for.

pub mod onnx;

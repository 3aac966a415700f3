//! IR to ONNX.

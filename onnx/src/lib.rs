//! The ONNX messages: read over a mapped file, and written.

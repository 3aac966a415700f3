//! Ahead-of-time model compiler with a TensorRT backend.

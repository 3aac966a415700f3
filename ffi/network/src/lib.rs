//! TensorRT networks as plain data.

//! Converters: one operator a file, from IR nodes to TensorRT layers.

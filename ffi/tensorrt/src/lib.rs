//! Safe TensorRT: Library, Builder, Runtime, Engine, Context.

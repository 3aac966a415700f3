//! TensorRT layers back to ONNX, to run a network without TensorRT.

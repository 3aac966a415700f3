//! The program that runs `detector.onnx` would stand here.

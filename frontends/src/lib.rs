//! Front ends: model bytes to IR, and IR to ONNX for host segments.

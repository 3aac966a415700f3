//! Raw TensorRT bindings: bindgen enums and constants, a cxx bridge, one C++ shim for both products.

//! Raw TensorRT bindings: bindgen enums and constants, a cxx bridge, one C++ shim for both products.
//!
//! TensorRT and TensorRT-RTX share their class names and differ in their class layouts, so `cpp/shim.cpp` is compiled
//! twice, each time against one product's headers in a namespace of its own, behind the same abstract classes
//! (`cpp/shim.h`). No library is linked: [`ffi::open`] loads one at run time and keeps it loaded.
//!
//! Numbers of enums come from [`rtx`] and [`enterprise`], generated from the headers at build time. The safe layer is
//! the crate `trtc-tensorrt`; nothing else should depend on this one.
#![allow(unsafe_code)]

mod bridge;
mod callbacks;

pub use bridge::ffi;
pub use callbacks::{OutputSink, Sink};

/// "No tensor" where a tensor is optional.
pub const NO_TENSOR: u32 = u32::MAX;

/// Enums and version numbers of TensorRT-RTX.
pub mod rtx {
    #[allow(warnings, clippy::all, clippy::pedantic, missing_docs, reason = "generated")]
    mod generated {
        include!(concat!(env!("OUT_DIR"), "/rtx.rs"));
    }
    pub use generated::root::nvinfer1::*;
    pub use generated::root::{NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR};
}

/// Enums and version numbers of TensorRT.
pub mod enterprise {
    #[allow(warnings, clippy::all, clippy::pedantic, missing_docs, reason = "generated")]
    mod generated {
        include!(concat!(env!("OUT_DIR"), "/enterprise.rs"));
    }
    pub use generated::root::nvinfer1::*;
    pub use generated::root::{NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR};
}

#[cfg(test)]
mod tests {
    /// The headers are TensorRT 11.4's, and its oldest library in use is 11.3: a method that the headers append is a call
    /// past the end of the older library's table. These are the ones they mark as added in 11.3 and 11.4, and
    /// `addSqueezeV2`, which they do not mark (it stands behind the `addSqueeze` that takes a pointer).
    #[test]
    fn the_shim_calls_no_method_newer_than_the_oldest_library() {
        let sources = [
            include_str!("../cpp/network.h"),
            include_str!("../cpp/runtime.h"),
            include_str!("../cpp/shim.cpp"),
            include_str!("../cpp/support.h"),
        ];
        let newer = [
            "setDLAWorkspaceAllocationStrategy",
            "getDLAWorkspaceAllocationStrategy",
            "releaseRefitResources",
            "setProfileStream",
            "getProfileStream",
            "addSqueezeV2",
            "addSqueeze(tensor(x), &",
        ];
        for name in newer {
            assert!(sources.iter().all(|source| !source.contains(name)), "{name}");
        }
    }

    #[test]
    fn the_headers_are_those_of_two_products() {
        assert_eq!((super::rtx::NV_TENSORRT_MAJOR, super::enterprise::NV_TENSORRT_MAJOR), (1, 11));
    }
}

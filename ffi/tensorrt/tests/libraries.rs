//! Opening real libraries: TensorRT-RTX and TensorRT's lean runtime.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use trtc_bundle::{Product, Target};
use trtc_network::Network;
use trtc_tensorrt::{BuildError, BuildOptions, Library, OpenError, RuntimeError, Version, cuda_devices};

/// What a runtime is worth here: without a driver it is refused, with one it must refuse garbage in words.
fn check_runtime(library: &Library) {
    match library.runtime() {
        Err(error) => {
            assert_eq!(cuda_devices(), 0, "{error}");
            assert_eq!(error, RuntimeError::NoDriver);
            assert_eq!(error.to_string(), "no CUDA driver with a device on this machine");
        }
        Ok(runtime) => {
            assert!(cuda_devices() > 0);
            let error = runtime.deserialize(&[0; 64]).err().unwrap();
            assert!(matches!(error, RuntimeError::Failed { .. }), "{error}");
        }
    }
}

#[test]
fn the_lean_library_says_its_version_and_builds_nothing() {
    let Some(path) = common::sdk_file("libnvinfer_lean.so.11") else { return };
    let library = Library::open(Product::TensorRt, &path).unwrap();
    assert_eq!(library.version(), Version { major: 11, minor: 3, patch: 0 });
    assert_eq!(library.version().to_string(), "11.3.0");
    assert!(!library.has_builder());
    let target: Target = "tensorrt-11.3:sm90".parse().unwrap();
    let built = library.builder().build(&Network::default(), &[], &target, &BuildOptions::default());
    assert_eq!(built.err(), Some(BuildError::NoBuilder));
    check_runtime(&library);
}

#[test]
fn the_rtx_library_says_its_version_and_builds_for_its_own_targets_only() {
    let Some(library) = common::rtx() else { return };
    assert_eq!((library.version().major, library.version().minor), (1, 7));
    assert!(library.has_builder());
    let target: Target = "tensorrt-11.3:sm90".parse().unwrap();
    let built = library.builder().build(&Network::default(), &[], &target, &BuildOptions::default());
    let error = built.expect_err("another product's target");
    assert_eq!(error.to_string(), "a TensorRT-RTX library cannot build for tensorrt-11.3:sm90");
    check_runtime(&library);
}

#[test]
fn what_is_not_the_library_is_named() {
    let Some(path) = common::sdk_file("libtensorrt_rtx.so.1") else { return };
    let error = Library::open(Product::TensorRt, &path).unwrap_err();
    assert!(error.to_string().ends_with("is TensorRT 1.7.1; 11.x is needed"), "{error}");

    let own = std::env::current_exe().unwrap().with_extension("d");
    for path in [own.as_path(), std::path::Path::new("/nowhere/libnvinfer.so.11")] {
        let error = Library::open(Product::TensorRt, path).unwrap_err();
        assert!(matches!(error, OpenError::Load { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    assert!(matches!(Library::open(Product::Host, &path), Err(OpenError::Host)));
}

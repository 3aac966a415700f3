//! What the tests with the real libraries share.
#![allow(dead_code, reason = "not every test needs everything")]

use std::path::PathBuf;
use trtc_bundle::{DType, Product, Target};
use trtc_network::{InputProfile, Lowered, NetworkBuilder, TensorId};
use trtc_tensorrt::{BuildError, BuildOptions, Library, Use, locate};

/// The TensorRT-RTX library; `None` (and a line that says so) where `make sdk` has not run.
pub fn rtx() -> Option<Library> {
    match locate(Product::Rtx, Use::Build, None) {
        Ok(path) => Some(Library::open(Product::Rtx, &path).expect("the library opens")),
        Err(missing) => {
            println!("skipped: {missing} (run `make sdk`)");
            None
        }
    }
}

/// A file in `.sdk/lib`.
pub fn sdk_file(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.sdk/lib").join(name);
    if !path.is_file() {
        println!("skipped: no {} (run `make sdk`)", path.display());
        return None;
    }
    Some(path)
}

/// Builds for sm89 on a thread with the stack that the builder needs; the engine's length.
pub fn build(library: &Library, lowered: &Lowered) -> Result<usize, BuildError> {
    std::thread::scope(|scope| {
        let body = || {
            let target: Target = "rtx-1.7:sm89".parse().unwrap();
            let weights: Vec<&[u8]> = lowered.weights.iter().map(|bytes| &bytes[..]).collect();
            let engine =
                library.builder().build(&lowered.network, &weights, &target, &BuildOptions::default())?;
            Ok(engine.len())
        };
        let thread = std::thread::Builder::new().stack_size(512 << 20);
        thread.spawn_scoped(scope, body).unwrap().join().unwrap()
    })
}

/// A network from a closure.
pub fn network(name: &str, fill: impl FnOnce(&mut NetworkBuilder)) -> Lowered {
    let mut b = NetworkBuilder::new(name);
    b.begin_node(name);
    fill(&mut b);
    b.finish().unwrap_or_else(|fault| panic!("{name}: {fault}"))
}

/// A constant of small positive values.
pub fn floats(b: &mut NetworkBuilder, dims: &[i64]) -> TensorId {
    let count: i64 = dims.iter().product();
    let bytes: Vec<u8> = (0..count).flat_map(|k| (0.25 + (k % 7) as f32 * 0.125).to_le_bytes()).collect();
    b.constant(DType::F32, dims.to_vec(), bytes.into())
}

/// The input `x`, whose dims of -1 go from 1 to 4.
pub fn dynamic(b: &mut NetworkBuilder, dims: &[i64]) -> TensorId {
    let x = b.add_input("x", DType::F32, dims.to_vec());
    let at = |n: i64| dims.iter().map(|&d| if d < 0 { n } else { d }).collect::<Vec<_>>();
    b.add_profile(InputProfile { name: "x".to_owned(), dims: Some([at(1), at(2), at(4)]), values: None });
    x
}

//! The build worker, through the real executable and the real TensorRT-RTX library.
#![cfg(all(feature = "tensorrt", debug_assertions))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use bytes::Bytes;
use std::{
    io::Write,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use trtc::worker::{BuildOptions, BuildRequest, Inject, Worker, WorkerFailure, WorkerPool, build};
use trtc_bundle::{DType, MappedFile, Product, Target};
use trtc_network::{Layer, Lowered, NetworkBuilder, layer::*};
use trtc_tensorrt::{Use, locate};

/// Where the library is; `None` (and a line that says so) where `make sdk` has not run.
fn library() -> Option<PathBuf> {
    locate(Product::Rtx, Use::Build, None)
        .map_err(|missing| println!("skipped: {missing} (run `make sdk`)"))
        .ok()
}

fn options(library: &Path) -> BuildOptions {
    let mut options = BuildOptions::new(library);
    options.executable = Some(env!("CARGO_BIN_EXE_trtc").into());
    options
}

fn target() -> Target {
    "rtx-1.7:sm89".parse().unwrap()
}

/// Kernel and bias of [`convolution`], as bytes.
fn weights() -> (Vec<u8>, Vec<u8>) {
    let floats = |count: usize| -> Vec<u8> {
        (0..count).flat_map(|k| (((k * 37) % 101) as f32 / 50.0 - 1.0).to_le_bytes()).collect()
    };
    (floats(8 * 3 * 3 * 3), floats(8))
}

/// relu(conv(x) + bias), with a computed constant at the end.
fn convolution(kernel: Bytes, bias: Bytes) -> Lowered {
    let mut b = NetworkBuilder::new("convolution");
    b.begin_node("conv");
    let x = b.add_input("x", DType::F32, vec![1, 3, 8, 8]);
    let kernel = b.constant(DType::F32, vec![8, 3, 3, 3], kernel);
    let bias = Some(b.constant(DType::F32, vec![8], bias));
    let window = Window {
        kernel: vec![3, 3],
        stride: vec![1, 1],
        pre_padding: vec![1, 1],
        post_padding: vec![1, 1],
        dilation: vec![1, 1],
    };
    let y = b.one(Layer::Convolution { x, kernel, bias, window, groups: 1 });
    b.begin_node("relu");
    let y = b.activation(y, ActivationKind::Relu, 0.0, 0.0);
    b.begin_node("scale");
    let factor = b.scalar(DType::F32, 4, 2.0);
    let y = b.elementwise(y, factor, ElementWiseOp::Prod);
    b.mark_output(y, "y");
    b.finish().unwrap()
}

fn chain(layers: usize) -> Lowered {
    let mut b = NetworkBuilder::new("chain");
    let mut y = b.add_input("x", DType::F32, vec![1, 16]);
    for k in 0..layers {
        b.begin_node(&format!("node{k}"));
        let kind = if k % 2 == 0 { ActivationKind::Sigmoid } else { ActivationKind::Tanh };
        y = b.activation(y, kind, 0.0, 0.0);
    }
    b.mark_output(y, "y");
    b.finish().unwrap()
}

#[test]
fn weights_build_from_any_offset_of_a_file() {
    let Some(library) = library() else { return };
    let (kernel, bias) = weights();
    let mut engines = Vec::new();
    for offset in [0, 1, 2, 3] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![0xAA; offset]).unwrap();
        file.write_all(&kernel).unwrap();
        file.write_all(&bias).unwrap();
        let map = MappedFile::open(file.path()).unwrap();
        let bytes = map.bytes();
        let lowered = convolution(
            bytes.slice(offset..offset + kernel.len()),
            bytes.slice(offset + kernel.len()..offset + kernel.len() + bias.len()),
        );
        let request = BuildRequest { lowered: &lowered, target: &target() };
        let output = build(request, &[map], &options(&library)).unwrap();
        assert!(output.build_s > 0.0 && output.peak_rss_bytes > 1 << 20, "{output:?}");
        assert!(output.library_version.starts_with("1.7."), "{}", output.library_version);
        engines.push(output.engine.bytes());
    }
    // And with everything gathered in one memfd.
    let lowered = convolution(kernel.into(), bias.into());
    let request = BuildRequest { lowered: &lowered, target: &target() };
    engines.push(build(request, &[], &options(&library)).unwrap().engine.bytes());
    assert!(engines.windows(2).all(|pair| pair[0] == pair[1]), "the place of weights changes the engine");
}

#[test]
fn one_worker_serves_requests_and_outlives_refusals() {
    let Some(library) = library() else { return };
    let mut worker = Worker::new(options(&library));
    let (kernel, bias) = weights();
    let good = convolution(kernel.into(), bias.into());
    let mut b = NetworkBuilder::new("refused");
    b.begin_node("find");
    let x = b.add_input("x", DType::Bool, vec![4]);
    let y = b.one(Layer::NonZero { x, to: DType::I64 });
    b.mark_output(y, "y");
    let refused = b.finish().unwrap();

    for _ in 0..2 {
        worker.build(BuildRequest { lowered: &good, target: &target() }, &[]).unwrap();
        let failure = worker.build(BuildRequest { lowered: &refused, target: &target() }, &[]).unwrap_err();
        let WorkerFailure::Refused { words, nodes } = failure else { panic!("{failure}") };
        assert_eq!(nodes, ["find"]);
        assert!(words.iter().any(|line| line.contains("has no runners that implement it")), "{words:?}");
    }
}

#[test]
fn a_layer_that_tensorrt_sees_otherwise_is_a_fault_with_its_node() {
    let Some(library) = library() else { return };
    let mut lowered = chain(3);
    lowered.network.tensors[2].dims = vec![1, 17];
    let request = BuildRequest { lowered: &lowered, target: &target() };
    let failure = build(request, &[], &options(&library)).unwrap_err();
    let WorkerFailure::Fault(fault) = failure else { panic!("{failure}") };
    assert_eq!(fault.node, "node1");
    assert_eq!(fault.what, "Activation: TensorRT makes f32 [1, 16] of it, the network says f32 [1, 17]");
}

#[test]
fn crashes_end_the_worker_and_not_the_parent() {
    let Some(library) = library() else { return };
    let mut worker = Worker::new(options(&library));
    let lowered = chain(2);
    let target = target();
    let request = BuildRequest { lowered: &lowered, target: &target };

    worker.set_inject(Some(Inject::Abort));
    let failure = worker.build(request, &[]).unwrap_err();
    let expected =
        WorkerFailure::Crashed { how: "signal 6, SIGABRT".to_owned(), log: "injected: Abort".to_owned() };
    assert_eq!(failure, expected);

    worker.set_inject(Some(Inject::Panic));
    let failure = worker.build(request, &[]).unwrap_err();
    assert_eq!(failure, WorkerFailure::Protocol("the worker panicked".to_owned()));

    worker.set_inject(None);
    worker.build(request, &[]).unwrap();
}

#[test]
fn a_stack_that_is_too_small_is_a_crash_and_the_default_holds_a_long_chain() {
    let Some(library) = library() else { return };
    let mut small = options(&library);
    small.stack_bytes = 1 << 20;
    let (lowered, target) = (chain(3000), target());
    let request = BuildRequest { lowered: &lowered, target: &target };
    let failure = build(request, &[], &small).unwrap_err();
    assert!(matches!(failure, WorkerFailure::Crashed { .. }), "{failure}");
    build(request, &[], &options(&library)).unwrap();
}

#[test]
fn the_time_limit_ends_a_build() {
    let Some(library) = library() else { return };
    let mut options = options(&library);
    options.time_limit = Duration::from_millis(300);
    let mut worker = Worker::new(options);
    worker.set_inject(Some(Inject::Hang));
    let lowered = chain(1);
    let start = Instant::now();
    let failure = worker.build(BuildRequest { lowered: &lowered, target: &target() }, &[]).unwrap_err();
    assert_eq!(failure, WorkerFailure::TimedOut { limit: Duration::from_millis(300) });
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_missing_or_wrong_library_is_named() {
    let lowered = chain(1);
    let nowhere = Path::new("/nowhere/libtensorrt_rtx.so.1");
    let request = BuildRequest { lowered: &lowered, target: &target() };
    let failure = build(request, &[], &options(nowhere)).unwrap_err();
    let WorkerFailure::Missing { library: named, why } = failure else { panic!("{failure}") };
    assert_eq!(named, nowhere);
    assert!(why.contains("/nowhere/libtensorrt_rtx.so.1"), "{why}");

    let Some(library) = library() else { return };
    let other = "tensorrt-11.3:sm90".parse().unwrap();
    let request = BuildRequest { lowered: &lowered, target: &other };
    let failure = build(request, &[], &options(&library)).unwrap_err();
    let WorkerFailure::Missing { why, .. } = failure else { panic!("{failure}") };
    assert!(why.contains("11.x is needed"), "{why}");
}

#[test]
fn a_pool_builds_on_several_threads() {
    let Some(library) = library() else { return };
    let pool = WorkerPool::new(options(&library));
    let (lowered, target) = (chain(2), target());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| pool.build(BuildRequest { lowered: &lowered, target: &target }, &[]).unwrap());
        }
    });
}

/// A worker whose stdin is one end of a socket; the other end.
fn bare_worker() -> (std::process::Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trtc"));
    command.arg("build-worker").stdin(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::null());
    (command.spawn().unwrap(), ours)
}

#[test]
fn a_worker_ends_when_its_parent_does() {
    let (mut child, socket) = bare_worker();
    drop(socket);
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let (mut child, mut socket) = bare_worker();
    let request = serde_json::json!({
        "library": "/nowhere", "target": "rtx-1.7:sm89", "workspace_bytes": null, "max_threads": null, "tf32": false,
        "network": chain(1).network, "blobs": [], "inject": [{ "nodes": [], "how": "Hang" }],
    });
    let json = request.to_string();
    socket.write_all(&(json.len() as u64).to_le_bytes()).unwrap();
    socket.write_all(&0u64.to_le_bytes()).unwrap();
    socket.write_all(json.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the worker is busy");
    drop(socket);
    // Killed by itself, because it was busy.
    assert!(!child.wait().unwrap().success());
}

#[test]
fn a_worker_wants_a_parent() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_trtc")).arg("build-worker").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("started by trtc itself"));
}

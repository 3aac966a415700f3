//! Placement seen from outside: shapes that only the run decides lie on segment boundaries with their upper bounds, and nodes
//! that are computed in several segments give the model's answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::{path::Path, process::Command};
use trtc::{Bundle, Options, Quiet};
use trtc_bundle::{DType, SegmentKind};
use trtc_onnx::{ModelProto, write::*};

/// Elements of `relu(x)` that are not zero, each times a row of 64: `NonZero` runs on the host under TensorRT-RTX, the
/// rest in engines before and after it.
fn model_of_nonzero() -> ModelProto {
    let weights: Vec<f32> = (0..64).map(|k| k as f32 / 64.0 - 0.5).collect();
    let square: Vec<f32> = (0..256).map(|k| ((k * 7) % 13) as f32 / 13.0 - 0.5).collect();
    model(
        17,
        graph(
            "selected",
            [
                node("MatMul", &["x", "s"], &["m"], []).named("project"),
                node("Relu", &["m"], &["r"], []).named("relu"),
                node("NonZero", &["r"], &["n"], []).named("nonzero"),
                node("Transpose", &["n"], &["i"], [attr_ints("perm", &[1, 0])]).named("indices"),
                node("GatherND", &["r", "i"], &["g"], []).named("gather"),
                node("Unsqueeze", &["g", "axes"], &["u"], []).named("column"),
                node("MatMul", &["u", "w"], &["y"], []).named("expand"),
            ],
            [value_info("x", DType::F32, [8, 16])],
            [value_info("y", DType::F32, [trtc_onnx::Dimension::from("k"), 64.into()])],
            [
                tensor_f32("s", &[16, 16], &square),
                tensor_f32("w", &[1, 64], &weights),
                tensor_i64("axes", &[1], &[1]),
            ],
        ),
    )
}

/// What `trtc doctor` finds here.
fn found(what: &str) -> bool {
    let report: serde_json::Value = serde_json::from_str(&trtc(&["doctor", "--format", "json"]).1).unwrap();
    let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == what);
    check.unwrap_or_else(|| panic!("no check {what}"))["found"].as_bool().unwrap()
}

fn trtc(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_trtc")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("ended by a signal"), text(output.stdout), text(output.stderr))
}

#[test]
fn the_engine_after_a_nonzero_has_a_profile() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (folder.path().join("m.onnx"), folder.path().join("m.trtc"));
    std::fs::write(&model, encode(&model_of_nonzero()).unwrap()).unwrap();
    let built = found("build test");
    if !built {
        println!("engines are deferred: the library that builds them is not here");
    }
    let options = Options::default()
        .target("rtx-1.7:sm89".parse().unwrap())
        .build_engines(built)
        .worker(Path::new(env!("CARGO_BIN_EXE_trtc")));
    let report = trtc::compile(&model, &out, &options, &Quiet).unwrap();
    assert_eq!(trtc::testing::host_nodes(&report), ["nonzero (NonZero) E0502"]);
    // What crosses from the host has the upper bound in its symbol's range: 8 x 16 elements may all be positive.
    let bundle = Bundle::open(&out).unwrap();
    let plan = &bundle.manifest().targets[0];
    let engines: Vec<_> = plan.segments.iter().filter(|s| s.kind == SegmentKind::Engine).collect();
    assert_eq!(engines.len(), 2);
    let lowered = trtc::network(&bundle, engines[1].network.as_ref().unwrap()).unwrap();
    let profile = lowered.network.profile.iter().find(|p| p.name == "n").expect("the indices have a profile");
    let [min, opt, max] = profile.dims.clone().unwrap();
    assert_eq!((min.clone(), max), (vec![2, 0], vec![2, 128]), "{profile:?}");
    assert!((min[1]..=128).contains(&opt[1]), "{profile:?}");
    if built {
        assert!(engines.iter().all(|engine| engine.engine.is_some()));
    }
}

/// Compiles the model without building, and verifies its segments and its networks with ONNX Runtime.
fn verify(proto: &ModelProto) {
    if !found("ONNX Runtime") {
        println!("skipped: ONNX Runtime is not here (run `make sdk`)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (folder.path().join("m.onnx"), folder.path().join("m.trtc"));
    std::fs::write(&model, encode(proto).unwrap()).unwrap();
    let options = Options::default().target("rtx-1.7:sm89".parse().unwrap()).build_engines(false);
    trtc::compile(&model, &out, &options, &Quiet).unwrap();
    let (model, out) = (model.to_str().unwrap(), out.to_str().unwrap());
    for way in ["--segments", "--networks"] {
        let (code, stdout, stderr) = trtc(&["verify", out, "--model", model, "--random", "3", way]);
        assert_eq!(code, 0, "{way}: {stdout}{stderr}");
    }
}

#[test]
fn segments_around_a_nonzero_give_the_models_answer() {
    verify(&model_of_nonzero());
}

/// Weights `t` that depend on constants only are wanted by a MatMul in an engine and by the host after it (engines have no
/// f64): they are computed on both sides rather than shipped.
fn model_of_a_copy() -> ModelProto {
    let cast = |name: &str, from: &str, to: &str, dtype: DType| {
        node("Cast", &[from], &[to], [attr_i("to", i64::from(dtype.onnx()))]).named(name)
    };
    let weights: Vec<f32> = (0..1024).map(|k| ((k * 11) % 255) as f32 / 64.0 - 2.0).collect();
    model(
        17,
        graph(
            "copy",
            [
                node("Sigmoid", &["w"], &["t"], []).named("weights"),
                node("MatMul", &["x", "t"], &["c"], []).named("matmul"),
                cast("widen_c", "c", "c64", DType::F64),
                cast("widen_t", "t", "t64", DType::F64),
                node("Add", &["c64", "t64"], &["y"], []).named("add"),
            ],
            [value_info("x", DType::F32, [32, 32])],
            [value_info("y", DType::F64, [32, 32])],
            [tensor_f32("w", &[32, 32], &weights)],
        ),
    )
}

#[test]
fn a_copied_node_stands_once_in_the_report_and_in_two_segments() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.onnx");
    std::fs::write(&model, encode(&model_of_a_copy()).unwrap()).unwrap();
    let options = Options::default().target("rtx-1.7:sm89".parse().unwrap());
    let report = trtc::partition(&model, &options).unwrap();
    let target = &report.targets[0];
    assert_eq!(target.nodes.iter().filter(|row| row.name == "weights").count(), 1);
    let holders: Vec<&str> = target
        .segments
        .iter()
        .filter(|segment| segment.nodes.iter().any(|name| name == "weights"))
        .map(|segment| segment.id.as_str())
        .collect();
    assert_eq!(holders, ["engine_0", "host_0"], "{report}");
    // Nobody ships it.
    assert!(target.crossings.iter().all(|value| value.value != "t"), "{report}");
    verify(&model_of_a_copy());
}

#[test]
fn a_model_without_engines_takes_any_size() {
    if !found("ONNX Runtime") {
        println!("skipped: ONNX Runtime is not here (run `make sdk`)");
        return;
    }
    let open = |name: &str| value_info(name, DType::F64, [trtc_onnx::Dimension::from("n")]);
    let proto = model(17, graph("host", [node("Sin", &["x"], &["y"], [])], [open("x")], [open("y")], []));
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (folder.path().join("m.onnx"), folder.path().join("m.trtc"));
    std::fs::write(&path, encode(&proto).unwrap()).unwrap();
    let options = Options::default().target("rtx-1.7:sm89".parse().unwrap()).build_engines(false);
    trtc::compile(&path, &out, &options.shape("n=2..4"), &Quiet).unwrap();
    let bundle = Bundle::open(&out).unwrap();
    let session = trtc_runtime::Session::new(&bundle, &Default::default()).unwrap();
    for n in [0usize, 3, 9] {
        let x = trtc_runtime::Tensor::from_slice(&[n], &vec![0.0f64; n]).unwrap();
        let outputs = session.run(&[("x", (&x).into())]).unwrap();
        assert_eq!(outputs.tensor("y").unwrap().dims(), [n]);
    }
}

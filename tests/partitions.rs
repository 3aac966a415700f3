//! How models of a few nodes partition, as snapshots: a change that moves a node shows up here.
#![allow(clippy::unwrap_used, reason = "tests")]

use trtc::{Options, testing::snapshot};
use trtc_bundle::DType;
use trtc_onnx::{
    Dimension, NodeProto, TensorProto, ValueInfoProto,
    write::{attr_i, attr_ints, encode, graph, model, node, tensor_f32, value_info},
};

/// The partition of a model of opset 18, for the targets named, by its text form for tests.
fn partition(
    nodes: impl IntoIterator<Item = NodeProto>,
    inputs: impl IntoIterator<Item = ValueInfoProto>,
    outputs: impl IntoIterator<Item = ValueInfoProto>,
    weights: impl IntoIterator<Item = TensorProto>,
    targets: &[&str],
) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let model = model(18, graph("g", nodes, inputs, outputs, weights));
    std::fs::write(&path, encode(&model).unwrap()).unwrap();
    let options =
        targets.iter().fold(Options::default(), |options, target| options.target(target.parse().unwrap()));
    let report = trtc::partition(&path, &options).unwrap();
    // The report itself is the same bytes every time, and so is its JSON.
    let again = trtc::partition(&path, &options).unwrap();
    assert_eq!(serde_json::to_string(&report).unwrap(), serde_json::to_string(&again).unwrap());
    assert_eq!(report.to_string(), again.to_string());
    snapshot(&report)
}

fn image(name: &str, channels: i64) -> ValueInfoProto {
    let dims: [Dimension; 4] = [Dimension::from("N"), channels.into(), 8.into(), 8.into()];
    value_info(name, DType::F32, dims)
}

#[test]
fn a_small_network_is_one_engine() {
    let text = partition(
        [
            node("Conv", &["x", "w"], &["c"], [attr_ints("pads", &[1, 1, 1, 1])]).named("conv"),
            node("Relu", &["c"], &["r"], []).named("relu"),
            node("Add", &["r", "x"], &["y"], []).named("add"),
        ],
        [image("x", 3)],
        [image("y", 3)],
        [tensor_f32("w", &[3, 3, 3, 3], &[0.1; 81])],
        &["rtx-1.7:sm86,sm89,sm120"],
    );
    insta::assert_snapshot!(text);
}

#[test]
fn nonzero_is_a_host_node_on_rtx_and_none_on_tensorrt() {
    let x = || value_info("x", DType::F32, [16.into(), Dimension::from(16)]);
    let y = || value_info("y", DType::I64, [Dimension::from(2), Dimension::from("found")]);
    let nodes = || {
        [node("Relu", &["x"], &["r"], []).named("relu"), node("NonZero", &["r"], &["y"], []).named("where")]
    };
    let text = partition(nodes(), [x()], [y()], [], &["rtx-1.7:sm89", "tensorrt-11.3:sm89"]);
    insta::assert_snapshot!(text);
}

#[test]
fn an_operator_that_no_engine_runs_divides_a_network() {
    // Which elements are dropped is random.
    let dropout = node("Dropout", &["q", "ratio", "training"], &["n"], []).named("drop");
    let text = partition(
        [
            node("Conv", &["x", "w"], &["c"], [attr_ints("pads", &[1, 1, 1, 1])]).named("before"),
            node("Cast", &["c"], &["q"], [attr_i("to", DType::F16.onnx().into())]).named("half"),
            dropout,
            node("Cast", &["n"], &["f"], [attr_i("to", DType::F32.onnx().into())]).named("back"),
            node("Conv", &["f", "w"], &["y"], [attr_ints("pads", &[1, 1, 1, 1])]).named("after"),
        ],
        [image("x", 3)],
        [image("y", 3)],
        [
            tensor_f32("w", &[3, 3, 3, 3], &[0.1; 81]),
            tensor_f32("ratio", &[], &[0.5]),
            TensorProto::raw("training", DType::Bool, &[], vec![1]),
        ],
        &["rtx-1.7:sm89"],
    );
    insta::assert_snapshot!(text);
}

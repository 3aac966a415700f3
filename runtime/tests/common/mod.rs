//! Small models and bundles, made on the spot.
#![allow(dead_code)] // Each test binary uses a part of it.

use bytes::Bytes;
use std::path::{Path, PathBuf};
use trtc_bundle::{
    BundleWriter, DType, Dim, Hash, LOCATION, Manifest, ModelInfo, Segment, SegmentId, SegmentKind, Step,
    Symbol, Target, TargetPlan, ValueId, ValueInfo, WeightsRef,
};
use trtc_onnx::{
    Dimension, EXTERNAL, NodeProto, StringStringEntryProto, TensorProto, ValueInfoProto,
    write::{encode, graph, model, node, value_info},
};

/// Side of the square weights.
pub const SIDE: usize = 32;

/// `[n, SIDE]` of f32, where `n` may be a number or a symbol.
pub fn rows(name: &str, n: impl Into<Dimension>) -> ValueInfoProto {
    value_info(name, DType::F32, [n.into(), Dimension::from(SIDE as i64)])
}

pub fn onnx(
    nodes: impl IntoIterator<Item = NodeProto>,
    inputs: impl IntoIterator<Item = ValueInfoProto>,
    outputs: impl IntoIterator<Item = ValueInfoProto>,
    initializers: impl IntoIterator<Item = TensorProto>,
) -> Vec<u8> {
    encode(&model(21, graph("g", nodes, inputs, outputs, initializers))).unwrap().to_vec()
}

/// Weights with `factor` on the diagonal: 4 KiB.
pub fn diagonal(factor: f32) -> Bytes {
    let mut weights = vec![0.0f32; SIDE * SIDE];
    weights.iter_mut().step_by(SIDE + 1).for_each(|weight| *weight = factor);
    weights.iter().flat_map(|weight| weight.to_le_bytes()).collect()
}

/// The initializer that stands for weights in the bundle.
pub fn external(name: &str, place: WeightsRef) -> TensorProto {
    let entry =
        |key: &str, value: String| StringStringEntryProto { key: Some(key.into()), value: Some(value) };
    TensorProto {
        name: Some(name.into()),
        data_type: Some(DType::F32.onnx()),
        dims: vec![SIDE as i64; 2],
        data_location: Some(EXTERNAL),
        external_data: vec![
            entry("location", LOCATION.into()),
            entry("offset", place.offset.to_string()),
            entry("length", place.len.to_string()),
        ],
        ..TensorProto::default()
    }
}

pub fn value(name: &str, dims: Vec<Dim>) -> ValueInfo {
    ValueInfo::tensor(name, DType::F32, Some(dims))
}

pub fn segment(id: &str, kind: SegmentKind, inputs: &[u32], outputs: &[u32]) -> Segment {
    let mut segment = Segment::new(id, kind);
    segment.inputs = inputs.iter().copied().map(ValueId).collect();
    segment.outputs = outputs.iter().copied().map(ValueId).collect();
    segment
}

pub fn runs(segments: &[u32]) -> Vec<Step> {
    segments.iter().map(|&segment| Step::Run { segment: SegmentId(segment) }).collect()
}

pub fn manifest(inputs: Vec<ValueInfo>, outputs: Vec<ValueInfo>) -> Manifest {
    let mut manifest = Manifest::new("trtc test", ModelInfo::new("m.onnx", "onnx", Hash::of(b"m")));
    (manifest.inputs, manifest.outputs) = (inputs, outputs);
    manifest
}

/// y = relu(x) · diag(3) + 1, whole and in three segments (host, engine, host); n rows, or any number from 1 to 8.
///
/// Values: 0 x, 1 r, 2 p, 3 y, 4 one (constant).
pub fn chain(path: &Path, n: Option<u64>) {
    let mut writer = BundleWriter::create(path).unwrap();
    let place = writer.add_weights(&diagonal(3.0)).unwrap();
    let one = writer.add_weights(&Bytes::from_iter(1.0f32.to_le_bytes())).unwrap();
    let (dim, symbol) = match n {
        Some(n) => (Dim::Known(n), Dimension::from(n as i64)),
        None => (Dim::Text("n".into()), Dimension::from("n")),
    };
    let row = |name: &str| rows(name, symbol.clone());
    let relu = node("Relu", &["x"], &["r"], []);
    let dot = node("MatMul", &["r", "w"], &["p"], []);
    let add = node("Add", &["p", "one"], &["y"], []);
    let whole = onnx(
        [relu.clone(), dot.clone(), add.clone()],
        [row("x")],
        [row("y")],
        [external("w", place), trtc_onnx::write::tensor_f32("one", &[1], &[1.0])],
    );
    let parts = [
        onnx([relu], [row("x")], [row("r")], []),
        onnx([dot], [row("r")], [row("p")], [external("w", place)]),
        onnx([add], [row("p"), value_info("one", DType::F32, [1])], [row("y")], []),
    ];
    let mut plan = TargetPlan::new(Target::default_target());
    let dims = vec![dim, Dim::Known(SIDE as u64)];
    plan.values = ["x", "r", "p", "y"].map(|name| value(name, dims.clone())).to_vec();
    plan.values.push(value("one", vec![Dim::Known(1)]));
    (plan.inputs, plan.outputs) = (vec![ValueId(0)], vec![ValueId(3)]);
    plan.segments = vec![
        segment("h0", SegmentKind::Host, &[0], &[1]),
        segment("e0", SegmentKind::Engine, &[1], &[2]),
        segment("h1", SegmentKind::Host, &[2, 4], &[3]),
        segment("c0", SegmentKind::Constant, &[], &[4]),
    ];
    for (segment, part) in plan.segments.iter_mut().zip(&parts) {
        segment.graph = Some(writer.add_graph(part).unwrap());
    }
    plan.segments[1].engine = Some(writer.add_engine(b"not run here").unwrap());
    plan.segments[3].constants = vec![one.id];
    plan.schedule = runs(&[3, 0, 1, 2]);
    let mut manifest = manifest(vec![value("x", dims.clone())], vec![value("y", dims)]);
    manifest.symbols = vec![Symbol::new("n", 1, 4, 8)];
    manifest.whole_model = Some(writer.add_graph(&whole).unwrap());
    manifest.targets = vec![plan];
    writer.finish(manifest).unwrap();
}

/// A folder with the bundle of [`chain`] in it.
pub fn chained(n: Option<u64>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chain.trtc");
    chain(&path, n);
    (folder, path)
}

/// What [`chain`] makes of `x`.
pub fn chain_by_hand(x: &[f32]) -> Vec<f32> {
    x.iter().map(|x| x.max(0.0) * 3.0 + 1.0).collect()
}

/// Some numbers, of both signs.
pub fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|k| ((k * 7 + seed * 13) % 31) as f32 - 15.0).collect()
}

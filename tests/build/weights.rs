//! Weights that the model stores in bytes stay bytes in the engine, where its kernels read them so.

use crate::support::{Place, can_build, options};
use trtc::Bundle;
use trtc_bundle::DType;
use trtc_onnx::{ModelProto, NodeProto, write::*};

/// More than the passes fold by themselves.
const SIDE: i64 = 1024;

/// `y = x · f(w)` over x f32 [64, SIDE] and w i8 [SIDE, SIDE]; `between` makes `from` of "c", the cast of w.
fn product(between: Vec<NodeProto>, from: &str) -> ModelProto {
    let mut nodes =
        vec![node("Cast", &["w"], &["c"], [attr_i("to", DType::F32.onnx().into())]).named("cast")];
    nodes.extend(between);
    nodes.push(node("MatMul", &["x", from], &["y"], []).named("product"));
    let tensor = |name| value_info(name, DType::F32, [64, SIDE]);
    let w: Vec<i8> = (0..SIDE * SIDE).map(|k| (k * 37 % 256 - 128) as i8).collect();
    let scale: Vec<f32> = (0..SIDE).map(|k| (1 + k % 7) as f32 / 2048.0).collect();
    let weights = [
        tensor_i8("w", &[SIDE, SIDE], &w),
        tensor_f32("scale", &[1, SIDE], &scale),
        tensor_f32("zero", &[], &[3.0]),
    ];
    model(17, graph("product", nodes, [tensor("x")], [tensor("y")], weights))
}

/// Bytes of the engine, and of the weights that the bundle holds beside it.
fn bytes(place: &Place) -> (u64, u64) {
    let report = place.compile(&options());
    let totals = &report.targets[0].totals;
    assert_eq!((totals.engines, totals.host_nodes), (1, 0));
    let bundle = Bundle::open(place.bundle()).unwrap();
    let weights = bundle.manifest().weights.iter().map(|entry| entry.len).sum();
    (report.targets[0].segments[0].engine_bytes.unwrap(), weights)
}

#[test]
fn an_engine_holds_bytes_that_a_product_reads() {
    if !can_build() {
        return;
    }
    let count = (SIDE * SIDE) as u64;
    let scaled = |x: &str| node("Mul", &[x, "scale"], &["f"], []).named("scaled");
    let place = Place::of(&product(vec![scaled("c")], "f"));
    let (engine, weights) = bytes(&place);
    // The network and the host graphs share what the bundle holds.
    assert!(engine < 2 * count && weights < 2 * count, "{engine} {weights}");
    place.agrees(0);
    // Without a scale, or where a zero point is subtracted, each run would cast all of them: folded into floats instead.
    let moved = node("Sub", &["c", "zero"], &["m"], []).named("moved");
    for (between, from) in [(Vec::new(), "c"), (vec![moved, scaled("m")], "f")] {
        let place = Place::of(&product(between, from));
        assert!(bytes(&place).0 > 4 * count);
        place.agrees(0);
    }
}

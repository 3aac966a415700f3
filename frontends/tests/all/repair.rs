//! Nodes that stand for one that ONNX Runtime computes otherwise than ONNX says.

use super::{
    downgrade::{exported, show},
    model,
};
use trtc_bundle::DType;
use trtc_onnx::{
    NodeProto, ValueInfoProto,
    write::{attr_i, attr_ints, node, value_info},
};

fn shown(opset: i64, made: NodeProto, inputs: Vec<ValueInfoProto>, outputs: &[&str]) -> Vec<String> {
    show(&exported(&model(opset, vec![made], inputs, outputs, vec![]), None).unwrap())
}

#[test]
fn zero_points_of_channels() {
    let of = |zeros: &[i64]| {
        let inputs = vec![
            value_info("x", DType::U8, [1, 1, 3, 3]),
            value_info("w", DType::U8, [2, 1, 2, 2]),
            value_info("a", DType::U8, [0i64; 0]),
            value_info("z", DType::U8, zeros.iter().copied()),
        ];
        let made = node("ConvInteger", &["x", "w", "a", "z"], &["y"], [attr_ints("pads", &[1, 1, 1, 1])]);
        shown(10, made, inputs, &["y"])
    };
    assert_eq!(of(&[]), ["ConvInteger(x, w, a, z) {pads=[1, 1, 1, 1]}"]);
    let nodes = of(&[2]);
    assert_eq!(
        nodes[..2],
        ["ConvInteger(x, w, a) {pads=[1, 1, 1, 1]}", "ConvInteger(x, u8[2, 1, 2, 2], a) {pads=[1, 1, 1, 1]}"]
    );
    let names: Vec<&str> = nodes[2..].iter().map(|line| line.split('(').next().unwrap()).collect();
    assert_eq!(names, ["Cast", "Reshape", "Mul", "Sub"]);
    assert!(nodes[3].contains("[1, 2, 1, 1]"), "{}", nodes[3]);
}

#[test]
fn masks_shorter_than_the_keys() {
    let of = |mask: i64, dtype: DType| {
        let inputs = vec![
            value_info("q", DType::F32, [1, 2, 3, 8]),
            value_info("k", DType::F32, [1, 2, 6, 8]),
            value_info("v", DType::F32, [1, 2, 6, 8]),
            value_info("m", dtype, [3, mask]),
            value_info("n", DType::I64, [1]),
        ];
        shown(24, node("Attention", &["q", "k", "v", "m", "", "", "n"], &["y"], []), inputs, &["y"])
    };
    assert_eq!(of(6, DType::F32).len(), 1);
    let hidden = format!("{:?}", [f32::NEG_INFINITY; 6]);
    assert_eq!(of(4, DType::F32)[0], format!("Concat(m, {hidden}) {{axis=-1}}"));
    assert_eq!(of(5, DType::Bool)[0], "Concat(m, bool[3, 1]) {axis=-1}");
}

#[test]
fn hidden_scores_are_infinite() {
    let of = |mode: i64| {
        let inputs = vec![
            value_info("q", DType::F32, [1, 2, 3, 8]),
            value_info("k", DType::F32, [1, 2, 6, 8]),
            value_info("v", DType::F32, [1, 2, 6, 8]),
        ];
        let attrs = [attr_i("is_causal", 1), attr_i("qk_matmul_output_mode", mode)];
        let nodes =
            shown(23, node("Attention", &["q", "k", "v"], &["y", "", "", "s"], attrs), inputs, &["y", "s"]);
        nodes.iter().map(|line| line.split('(').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of(0), ["Attention"]);
    assert_eq!(of(2), ["Attention", "Less", "Where"]);
    assert_eq!(of(3), ["Attention"]);
}

#[test]
fn unpooled_into_more_than_the_window_gives() {
    let inputs = vec![
        value_info("x", DType::F32, [1, 1, 2, 2]),
        value_info("i", DType::I64, [1, 1, 2, 2]),
        value_info("s", DType::I64, [4]),
    ];
    let kernel = attr_ints("kernel_shape", &[2, 2]);
    let nodes = shown(11, node("MaxUnpool", &["x", "i", "s"], &["y"], [kernel]), inputs, &["y"]);
    let names: Vec<&str> = nodes.iter().map(|line| line.split('(').next().unwrap()).collect();
    assert_eq!(names, ["MaxUnpool", "Shape", "Sub", "Concat", "Pad"]);
    assert_eq!(nodes[0], "MaxUnpool(x, i) {kernel_shape=[2, 2]}");
}

/// Neither side samples volumes so.
#[test]
fn cubic_volumes_have_no_kernel() {
    let of = |dims: &[i64], places: &[i64]| {
        let inputs = vec![
            value_info("x", DType::F32, dims.iter().copied()),
            value_info("g", DType::F32, places.iter().copied()),
        ];
        let mode = trtc_onnx::write::attr_s("mode", "cubic");
        exported(
            &model(20, vec![node("GridSample", &["x", "g"], &["y"], [mode])], inputs, &["y"], vec![]),
            None,
        )
    };
    assert!(of(&[1, 1, 3, 3], &[1, 2, 2, 2]).is_ok());
    assert!(of(&[1, 1, 3, 3, 3], &[1, 2, 2, 2, 3]).is_err());
}

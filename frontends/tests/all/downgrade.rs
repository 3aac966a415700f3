//! Canonical forms become older ones: at a fixed opset, read back from the messages.

use super::{imported, model};
use trtc_bundle::DType;
use trtc_frontends::onnx::export::{ExportError, ExportRequest, Exported, WeightPlacement, export};
use trtc_onnx::{
    AttributeProto, ModelProto, NodeProto, TensorProto,
    write::{attr_f, attr_i, attr_ints, attr_s, node, tensor_f32, tensor_i64, value_info},
};

pub(super) fn exported(proto: &ModelProto, opset: Option<u32>) -> Result<Exported, ExportError> {
    let module = imported(proto).module;
    export(ExportRequest {
        name: "out",
        graph: &module.graph,
        symbols: &module.symbols,
        nodes: None,
        inputs: module.graph.inputs(),
        outputs: module.graph.outputs(),
        opset,
        opsets: &module.opsets,
        weights: &mut |_, _| WeightPlacement::Inline,
    })
}

/// Nodes of a message: `Squeeze(x) {axes=[0]}`.
pub(super) fn show(exported: &Exported) -> Vec<String> {
    let graph = exported.model.graph.as_ref().unwrap();
    let value = |name: &String| match graph.initializer.iter().find(|tensor| tensor.name() == name) {
        None => name.clone(),
        Some(tensor) => {
            let tensor = tensor.to_tensor().unwrap();
            let bytes = tensor.bytes().unwrap();
            match tensor.dtype {
                DType::I64 => format!(
                    "{:?}",
                    bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect::<Vec<_>>()
                ),
                DType::F32 => format!(
                    "{:?}",
                    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<_>>()
                ),
                other => format!("{other}{:?}", tensor.dims),
            }
        }
    };
    let line = |node: &NodeProto| {
        let inputs: Vec<String> = node.input.iter().map(value).collect();
        let attrs: Vec<String> = node.attribute.iter().map(show_attr).collect();
        format!("{}({}) {{{}}}", node.op_type.as_deref().unwrap(), inputs.join(", "), attrs.join(" "))
    };
    graph.node.iter().map(line).collect()
}

fn show_attr(attr: &AttributeProto) -> String {
    let name = attr.name.as_deref().unwrap();
    match (attr.i, attr.f, &attr.s) {
        (Some(value), ..) => format!("{name}={value}"),
        (_, Some(value), _) => format!("{name}={value:?}"),
        (_, _, Some(value)) => format!("{name}={}", String::from_utf8_lossy(value)),
        _ if !attr.ints.is_empty() => format!("{name}={:?}", attr.ints),
        _ => format!("{name}=…"),
    }
}

fn down_with(opset: u32, made: NodeProto, initializers: Vec<TensorProto>) -> String {
    let inputs = vec![
        value_info("x", DType::F32, [2, 3, 4, 6]),
        value_info("k", DType::I64, [1]),
        value_info("b", DType::F32, [3]),
    ];
    match exported(&model(21, vec![made], inputs, &["y"], initializers), Some(opset)) {
        Ok(exported) => {
            assert_eq!(exported.opset, opset);
            show(&exported).join("; ")
        }
        Err(ExportError::Conflict { .. }) => "no".to_owned(),
        Err(error) => panic!("{error}"),
    }
}

fn down(
    opset: u32,
    op: &str,
    inputs: &[&str],
    attrs: impl IntoIterator<Item = AttributeProto>,
    numbers: &[i64],
) -> String {
    let list = tensor_i64("n", &[numbers.len() as i64], numbers);
    down_with(opset, node(op, inputs, &["y"], attrs), vec![list])
}

#[test]
fn inputs_become_attributes_again() {
    assert_eq!(down(13, "Squeeze", &["x", "n"], [], &[0]), "Squeeze(x, [0]) {}");
    assert_eq!(down(11, "Squeeze", &["x", "n"], [], &[0]), "Squeeze(x) {axes=[0]}");
    assert_eq!(down(10, "Squeeze", &["x", "n"], [], &[-1]), "no");
    assert_eq!(down(12, "Squeeze", &["x", "k"], [], &[0]), "no");
    assert_eq!(down(17, "ReduceMean", &["x", "n"], [], &[2]), "ReduceMean(x) {axes=[2]}");
    assert_eq!(down(17, "ReduceMean", &["x"], [attr_i("noop_with_empty_axes", 1)], &[]), "no");
    assert_eq!(down(17, "ReduceMean", &["x"], [], &[]), "ReduceMean(x) {}");
    assert_eq!(
        down(12, "Pad", &["x", "n"], [], &[0, 0, 1, 1, 0, 0, 1, 1]),
        "Pad(x, [0, 0, 1, 1, 0, 0, 1, 1]) {}"
    );
    assert_eq!(
        down(10, "Pad", &["x", "n"], [], &[0, 0, 1, 1, 0, 0, 1, 1]),
        "Pad(x) {pads=[0, 0, 1, 1, 0, 0, 1, 1]}"
    );
    assert_eq!(down(18, "Pad", &["x", "n"], [attr_s("mode", "wrap")], &[0; 8]), "no");
    let limits = vec![tensor_f32("low", &[], &[-1.0]), tensor_f32("high", &[], &[1.0])];
    let clip = node("Clip", &["x", "low", "high"], &["y"], []);
    assert_eq!(down_with(10, clip.clone(), limits.clone()), "Clip(x) {max=1.0 min=-1.0}");
    assert_eq!(down_with(12, clip, limits), "Clip(x, [-1.0], [1.0]) {}");
}

#[test]
fn splits_say_their_number_only_since_eighteen() {
    let split = |outputs: &[&str], attrs: Vec<AttributeProto>| node("Split", &["x"], outputs, attrs);
    let two = || vec![attr_i("num_outputs", 2), attr_i("axis", 3)];
    assert_eq!(down_with(18, split(&["y", "z"], two()), vec![]), "Split(x) {axis=3 num_outputs=2}");
    assert_eq!(down_with(13, split(&["y", "z"], two()), vec![]), "Split(x) {axis=3}");
    // 4 is not a multiple of 3: only 18 has a smaller last part.
    let three = vec![attr_i("num_outputs", 3), attr_i("axis", 2)];
    assert_eq!(down_with(13, split(&["y", "z", "w"], three), vec![]), "no");
}

#[test]
fn attributes_at_their_default_may_go() {
    let pool = |opset, attrs: Vec<AttributeProto>| {
        let kernel = attr_ints("kernel_shape", &[2, 2]);
        down(opset, "AveragePool", &["x"], std::iter::once(kernel).chain(attrs), &[])
    };
    assert_eq!(pool(11, vec![attr_ints("dilations", &[1, 1])]), "AveragePool(x) {kernel_shape=[2, 2]}");
    assert_eq!(pool(11, vec![attr_ints("dilations", &[2, 1])]), "no");
    assert_eq!(pool(7, vec![attr_i("ceil_mode", 0)]), "AveragePool(x) {kernel_shape=[2, 2]}");
    assert_eq!(pool(7, vec![attr_i("ceil_mode", 1)]), "no");
    assert_eq!(down(13, "Shape", &["x"], [attr_i("start", 0)], &[]), "Shape(x) {}");
    assert_eq!(down(13, "Shape", &["x"], [attr_i("start", 1)], &[]), "no");
    assert_eq!(down(11, "ArgMax", &["x"], [attr_i("select_last_index", 0)], &[]), "ArgMax(x) {}");
    assert_eq!(down(11, "ArgMax", &["x"], [attr_i("select_last_index", 1)], &[]), "no");
}

#[test]
fn softmax_goes_down_along_the_last_axis_only() {
    assert_eq!(down(12, "Softmax", &["x"], [attr_i("axis", -1)], &[]), "Softmax(x) {axis=3}");
    assert_eq!(down(12, "Softmax", &["x"], [attr_i("axis", 1)], &[]), "no");
    assert_eq!(down(13, "Softmax", &["x"], [attr_i("axis", 1)], &[]), "Softmax(x) {axis=1}");
}

#[test]
fn resizing_goes_down_to_ten() {
    let scales = || vec![tensor_f32("s", &[4], &[1.0, 1.0, 2.0, 2.0])];
    let resize = |attrs: Vec<AttributeProto>| node("Resize", &["x", "", "s"], &["y"], attrs);
    let asymmetric = || attr_s("coordinate_transformation_mode", "asymmetric");
    let floor = || attr_s("nearest_mode", "floor");
    assert_eq!(
        down_with(13, resize(vec![asymmetric(), floor()]), scales()),
        "Resize(x, , [1.0, 1.0, 2.0, 2.0]) {coordinate_transformation_mode=asymmetric nearest_mode=floor}"
    );
    assert_eq!(
        down_with(11, resize(vec![asymmetric(), floor()]), scales()),
        "Resize(x, [], [1.0, 1.0, 2.0, 2.0]) {coordinate_transformation_mode=asymmetric nearest_mode=floor}"
    );
    assert_eq!(
        down_with(10, resize(vec![asymmetric(), floor()]), scales()),
        "Resize(x, [1.0, 1.0, 2.0, 2.0]) {}"
    );
    assert_eq!(down_with(10, resize(vec![floor()]), scales()), "no");
    assert_eq!(down_with(17, resize(vec![attr_i("antialias", 1), attr_s("mode", "linear")]), scales()), "no");
}

#[test]
fn names_and_places_go_back() {
    assert_eq!(
        down(16, "GridSample", &["x", "x"], [attr_s("mode", "cubic")], &[]),
        "GridSample(x, x) {mode=bicubic}"
    );
    assert_eq!(down(19, "DFT", &["x", "", "n"], [], &[2]), "DFT(x) {axis=2}");
    assert_eq!(down(11, "Dropout", &["x"], [], &[]), "Dropout(x) {}");
    assert_eq!(down(11, "ScatterElements", &["x", "k", "x"], [attr_s("reduction", "add")], &[]), "no");
    assert_eq!(
        down(11, "ScatterElements", &["x", "k", "x"], [attr_s("reduction", "none")], &[]),
        "ScatterElements(x, k, x) {}"
    );
    assert_eq!(down(16, "ScatterElements", &["x", "k", "x"], [attr_s("reduction", "max")], &[]), "no");
    // RoiAlign-10 means output_half_pixel; what 16 does by default it cannot say.
    let roi = |mode: Option<&str>| {
        let attrs = mode.map(|mode| attr_s("coordinate_transformation_mode", mode));
        down(11, "RoiAlign", &["x", "x", "k"], attrs, &[])
    };
    assert_eq!(roi(Some("output_half_pixel")), "RoiAlign(x, x, k) {}");
    assert_eq!(roi(None), "no");
    assert_eq!(down(18, "Add", &["x", "x"], [], &[]), "Add(x, x) {}");
    assert_eq!(down(9, "LeakyRelu", &["x"], [attr_f("alpha", 0.5)], &[]), "LeakyRelu(x) {alpha=0.5}");
}

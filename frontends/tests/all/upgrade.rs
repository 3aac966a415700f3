//! Old forms of operators become the newest, as ONNX's changelog describes them.

use super::{imported, model, show};
use trtc_bundle::DType;
use trtc_onnx::{
    AttributeProto, NodeProto, TensorProto, ValueInfoProto,
    write::{
        attr_f, attr_floats, attr_g, attr_i, attr_ints, attr_s, graph, node, tensor_f32, tensor_i64,
        value_info,
    },
};

/// Imports nodes over x [2,3,4,5] f32, h (f16, same shape), b [3] f32, and m [2,3] f32.
fn upgraded_with(opset: i64, nodes: Vec<NodeProto>, initializers: Vec<TensorProto>) -> Vec<String> {
    show(&imported(&model(opset, nodes, inputs(), &["y"], initializers)).module.graph)
}

fn inputs() -> Vec<ValueInfoProto> {
    vec![
        value_info("x", DType::F32, [2, 3, 4, 5]),
        value_info("h", DType::F16, [2, 3, 4, 5]),
        value_info("b", DType::F32, [3]),
        value_info("m", DType::F32, [2, 3]),
    ]
}

fn upgraded(opset: i64, nodes: Vec<NodeProto>) -> Vec<String> {
    upgraded_with(opset, nodes, vec![])
}

fn one(opset: i64, op: &str, inputs: &[&str], attrs: impl IntoIterator<Item = AttributeProto>) -> String {
    upgraded(opset, vec![node(op, inputs, &["y"], attrs)]).join("; ")
}

#[test]
fn versions_that_only_gained_types_are_renumbered() {
    assert_eq!(one(7, "Add", &["x", "x"], []), "y = Add-14(x, x)");
    assert_eq!(one(1, "Relu", &["x"], [attr_ints("consumed_inputs", &[0])]), "y = Relu-14(x)");
    assert_eq!(one(8, "Tanh", &["x"], []), "y = Tanh-13(x)");
    assert_eq!(one(16, "LeakyRelu", &["x"], []), "y = LeakyRelu-16(x)");
    assert_eq!(
        one(11, "Transpose", &["x"], [attr_ints("perm", &[0, 1, 3, 2])]),
        "y = Transpose-25(x) {perm=[0, 1, 3, 2]}"
    );
}

#[test]
fn defaults_that_changed_are_written_out() {
    // Selu-1 rounds its constants; Concat-1 names its default in its text only.
    assert_eq!(one(1, "Selu", &["x"], []), "y = Selu-22(x) {alpha=1.6732 gamma=1.0507}");
    assert_eq!(one(6, "Selu", &["x"], []), "y = Selu-22(x)");
    assert_eq!(one(1, "Concat", &["x", "x"], [attr_i("axis", 2)]), "y = Concat-13(x, x) {axis=2}");
    assert_eq!(one(1, "Concat", &["x", "x"], []), "y = Concat-13(x, x) {axis=1}");
}

#[test]
fn axes_move_to_an_input() {
    assert_eq!(one(11, "Squeeze", &["x"], [attr_ints("axes", &[0])]), "y = Squeeze-25(x, [0])");
    assert_eq!(one(1, "Squeeze", &["x"], []), "y = Squeeze-25(x)");
    assert_eq!(one(11, "Unsqueeze", &["x"], [attr_ints("axes", &[0, 5])]), "y = Unsqueeze-25(x, [0, 5])");
    let keepdims = || attr_i("keepdims", 0);
    assert_eq!(
        one(11, "ReduceSum", &["x"], [attr_ints("axes", &[-1]), keepdims()]),
        "y = ReduceSum-13(x, [-1]) {keepdims=0}"
    );
    assert_eq!(one(17, "ReduceMean", &["x"], [attr_ints("axes", &[2, 3])]), "y = ReduceMean-18(x, [2, 3])");
    assert_eq!(one(17, "ReduceMax", &["x"], [attr_ints("axes", &[])]), "y = ReduceMax-20(x)");
}

#[test]
fn slices_and_splits_take_their_numbers_as_inputs() {
    assert_eq!(
        one(
            9,
            "Slice",
            &["x"],
            [attr_ints("starts", &[1]), attr_ints("ends", &[-1]), attr_ints("axes", &[2])]
        ),
        "y = Slice-13(x, [1], [-1], [2])"
    );
    let split = |opset, attrs: Vec<AttributeProto>| {
        upgraded(opset, vec![node("Split", &["x"], &["y", "z"], attrs)]).join("; ")
    };
    assert_eq!(
        split(11, vec![attr_ints("split", &[1, 2]), attr_i("axis", 1)]),
        "y, z = Split-18(x, [1, 2]) {axis=1}"
    );
    assert_eq!(split(13, vec![attr_i("axis", 2)]), "y, z = Split-18(x) {axis=2 num_outputs=2}");
    assert_eq!(
        upgraded(13, vec![node("Split", &["x"], &["y", ""], [])]),
        ["y = Split-18(x) {num_outputs=2}"]
    );
}

#[test]
fn topk_takes_k_as_input() {
    assert_eq!(
        upgraded(9, vec![node("TopK", &["x"], &["y", "i"], [attr_i("k", 2), attr_i("axis", 1)])]),
        ["y, i = TopK-24(x, [2]) {axis=1}"]
    );
}

#[test]
fn pads_and_limits_take_the_dtype_of_the_data() {
    let pads = || attr_ints("pads", &[0, 0, 1, 1, 0, 0, 1, 1]);
    assert_eq!(
        one(2, "Pad", &["x"], [pads(), attr_f("value", 0.5)]),
        "y = Pad-25(x, [0, 0, 1, 1, 0, 0, 1, 1], 0.5)"
    );
    assert_eq!(
        one(10, "Pad", &["x"], [pads(), attr_s("mode", "reflect")]),
        "y = Pad-25(x, [0, 0, 1, 1, 0, 0, 1, 1]) {mode=reflect}"
    );
    assert_eq!(
        one(1, "Pad", &["x"], [attr_ints("paddings", &[0, 0, 0, 0, 0, 0, 0, 1])]),
        "y = Pad-25(x, [0, 0, 0, 0, 0, 0, 0, 1])"
    );
    assert_eq!(one(6, "Clip", &["x"], [attr_f("min", 0.0), attr_f("max", 6.0)]), "y = Clip-13(x, 0.0, 6.0)");
    assert_eq!(one(6, "Clip", &["x"], [attr_f("max", 6.0)]), "y = Clip-13(x, _, 6.0)");
    assert_eq!(one(6, "Clip", &["x"], []), "y = Clip-13(x)");
    let half = imported(&model(
        6,
        vec![node("Clip", &["h"], &["y"], [attr_f("max", 6.0)])],
        inputs(),
        &["y"],
        vec![],
    ));
    let limit = half.module.graph.value_ids().find_map(|id| half.module.graph[id].constant.clone()).unwrap();
    assert_eq!((limit.dtype(), limit.to_f64s()), (DType::F16, Some(vec![6.0])));
}

#[test]
fn a_limit_for_unknown_dtypes_is_cast() {
    let foreign = ["com.microsoft::Anything"];
    let nodes =
        vec![node(foreign[0], &["x"], &["u"], []), node("Clip", &["u"], &["y"], [attr_f("min", -1.0)])];
    let mut proto = model(6, nodes, inputs(), &["y"], vec![]);
    proto.opset_import.push(trtc_onnx::write::opset_import("com.microsoft", 1));
    let import = imported(&proto);
    assert_eq!(
        show(&import.module.graph),
        [
            "u = com.microsoft.Anything-1(x)",
            "Clip_1/CastLike = CastLike-25(-1.0, u)",
            "y = Clip-13(u, Clip_1/CastLike)"
        ]
    );
    assert_eq!(import.sources[1].nodes, ["Clip_1", "Clip_1/CastLike"]);
}

#[test]
fn softmax_over_rows_of_a_matrix() {
    // Along the last axis both mean the same.
    assert_eq!(one(11, "Softmax", &["m"], []), "y = Softmax-13(m) {axis=-1}");
    assert_eq!(one(11, "Softmax", &["x"], [attr_i("axis", 3)]), "y = Softmax-13(x) {axis=-1}");
    assert_eq!(one(12, "LogSoftmax", &["x"], [attr_i("axis", -1)]), "y = LogSoftmax-13(x) {axis=-1}");
    assert_eq!(one(13, "Softmax", &["x"], []), "y = Softmax-13(x)");
    // The default of 11 is axis 1: rows of 60.
    let import =
        imported(&model(11, vec![node("Hardmax", &["x"], &["y"], []).named("n")], inputs(), &["y"], vec![]));
    assert_eq!(
        show(&import.module.graph),
        [
            "n/Flatten = Flatten-25(x) {axis=1}",
            "n/Shape = Shape-25(x)",
            "n/Hardmax = Hardmax-13(n/Flatten) {axis=-1}",
            "y = Reshape-25(n/Hardmax, n/Shape) {allowzero=1}",
        ]
    );
    // The node that does the work keeps the name.
    assert_eq!(import.sources[0].nodes, ["n", "n/Flatten", "n/Shape", "n/Reshape"]);
}

#[test]
fn the_rank_is_found_through_usual_operators() {
    let nodes = vec![
        node("Conv", &["x", "w"], &["a"], []),
        node("Relu", &["a"], &["c"], []),
        node("Flatten", &["c"], &["d"], []),
        node("Softmax", &["d"], &["y"], []),
    ];
    let lines = upgraded_with(9, nodes, vec![tensor_f32("w", &[1, 3, 1, 1], &[0.0; 3])]);
    assert_eq!(lines[3], "y = Softmax-13(d) {axis=-1}");
}

#[test]
fn broadcasting_before_seven_aligns_at_an_axis() {
    let broadcast = || attr_i("broadcast", 1);
    assert_eq!(
        upgraded(6, vec![node("Add", &["x", "b"], &["y"], [broadcast(), attr_i("axis", 1)])]),
        ["Add_0/Unsqueeze = Unsqueeze-25(b, [1, 2])", "y = Add-14(x, Add_0/Unsqueeze)"]
    );
    assert_eq!(
        upgraded_with(
            6,
            vec![node("Mul", &["x", "w"], &["y"], [broadcast(), attr_i("axis", 0)])],
            vec![tensor_f32("w", &[2], &[1.0, 2.0])]
        ),
        ["y = Mul-14(x, [1.0, 2.0])"]
    );
    assert_eq!(one(6, "Add", &["x", "x"], [broadcast()]), "y = Add-14(x, x)");
    assert_eq!(
        upgraded(6, vec![node("PRelu", &["x", "b"], &["y"], [])]),
        ["PRelu_0/Unsqueeze = Unsqueeze-25(b, [1, 2])", "y = PRelu-16(x, PRelu_0/Unsqueeze)"]
    );
    assert_eq!(one(9, "PRelu", &["x", "b"], []), "y = PRelu-16(x, b)");
    assert_eq!(one(6, "Gemm", &["m", "m", "b"], [broadcast()]), "y = Gemm-13(m, m, b)");
}

#[test]
fn quantising_halves_before_23_divides_in_f32() {
    let quantised = |opset: i64| {
        let scale = node("Cast", &["b"], &["s"], [attr_i("to", 10)]);
        let quantise = node("QuantizeLinear", &["h", "s"], &["y"], [attr_i("axis", 1)]);
        upgraded(opset, vec![scale, quantise])[1].clone()
    };
    assert!(quantised(19).contains("precision=1"), "{}", quantised(19));
    assert!(!quantised(23).contains("precision"), "{}", quantised(23));
    assert!(!one(19, "QuantizeLinear", &["x", "b"], [attr_i("axis", 1)]).contains("precision"));
}

#[test]
fn upsampling_becomes_resizing() {
    let resize = |scales: &str, nearest: &str| {
        format!(
            "y = Resize-19(x, _, {scales}) {{coordinate_transformation_mode=asymmetric mode=nearest{nearest}}}"
        )
    };
    let up = "[1.0, 1.0, 2.0, 2.0]";
    assert_eq!(
        one(7, "Upsample", &["x"], [attr_floats("scales", &[1.0, 1.0, 2.0, 2.0])]),
        resize(up, " nearest_mode=floor")
    );
    let sides = [attr_f("height_scale", 2.0), attr_f("width_scale", 2.0)];
    assert_eq!(one(1, "Upsample", &["x"], sides), resize(up, " nearest_mode=floor"));
    assert_eq!(
        one(9, "Upsample", &["x", "b"], [attr_s("mode", "linear")]),
        "y = Resize-19(x, _, b) {coordinate_transformation_mode=asymmetric mode=linear}"
    );
    let scaled = |scales: &[f32]| {
        let tensor = tensor_f32("s", &[scales.len() as i64], scales);
        upgraded_with(10, vec![node("Resize", &["x", "s"], &["y"], [])], vec![tensor]).join("; ")
    };
    assert_eq!(scaled(&[1.0, 1.0, 2.0, 2.0]), resize(up, " nearest_mode=floor"));
    assert_eq!(scaled(&[1.0, 1.0, 0.5, 0.5]), resize("[1.0, 1.0, 0.5, 0.5]", " nearest_mode=ceil"));
    // Rounding differs by axis, or is not known: the node stays as it is.
    assert_eq!(scaled(&[1.0, 1.0, 2.0, 0.5]), "y = Resize-10(x, [1.0, 1.0, 2.0, 0.5])");
    assert_eq!(one(10, "Resize", &["x", "b"], []), "y = Resize-10(x, b)");
}

#[test]
fn resizing_omits_what_is_empty() {
    let nodes =
        vec![node("Resize", &["x", "roi", "scales", "sizes"], &["y"], [attr_s("nearest_mode", "ceil")])];
    let empty = |name: &str| tensor_f32(name, &[0], &[]);
    let lines = upgraded_with(
        11,
        nodes,
        vec![empty("roi"), empty("scales"), tensor_i64("sizes", &[4], &[2, 3, 8, 8])],
    );
    assert_eq!(lines, ["y = Resize-19(x, _, _, [2, 3, 8, 8]) {nearest_mode=ceil}"]);
    let half = attr_s("coordinate_transformation_mode", "tf_half_pixel_for_nn");
    let nodes = vec![node("Resize", &["x", "roi", "scales"], &["y"], [half])];
    let lines =
        upgraded_with(11, nodes, vec![empty("roi"), tensor_f32("scales", &[4], &[1.0, 1.0, 2.0, 2.0])]);
    assert!(lines[0].starts_with("y = Resize-11("), "{}", lines[0]);
}

#[test]
fn training_forms() {
    let bn = |opset, outputs: &[&str], attrs: Vec<AttributeProto>| {
        upgraded(opset, vec![node("BatchNormalization", &["x", "b", "b", "b", "b"], outputs, attrs)])
            .join("; ")
    };
    assert_eq!(bn(9, &["y"], vec![]), "y = BatchNormalization-15(x, b, b, b, b)");
    assert_eq!(bn(7, &["y"], vec![attr_i("spatial", 1)]), "y = BatchNormalization-15(x, b, b, b, b)");
    assert_eq!(bn(6, &["y"], vec![attr_i("is_test", 1)]), "y = BatchNormalization-15(x, b, b, b, b)");
    assert_eq!(bn(9, &["y", "", "", "", ""], vec![]), "y = BatchNormalization-15(x, b, b, b, b)");
    assert_eq!(
        bn(7, &["y"], vec![attr_i("spatial", 0)]),
        "y = BatchNormalization-7(x, b, b, b, b) {spatial=0}"
    );
    assert_eq!(bn(9, &["y", "p", "q"], vec![]), "y, p, q = BatchNormalization-9(x, b, b, b, b)");
    assert_eq!(one(7, "Dropout", &["x"], [attr_f("ratio", 0.25)]), "y = Dropout-22(x, 0.25)");
    assert_eq!(one(6, "Dropout", &["x"], [attr_i("is_test", 1)]), "y = Dropout-22(x)");
    assert_eq!(one(12, "Dropout", &["x"], []), "y = Dropout-22(x)");
    assert_eq!(upgraded(7, vec![node("Dropout", &["x"], &["y", "mask"], [])]), ["y, mask = Dropout-7(x)"]);
}

#[test]
fn attributes_of_shape_operators() {
    assert_eq!(one(1, "Reshape", &["x"], [attr_ints("shape", &[6, -1])]), "y = Reshape-25(x, [6, -1])");
    assert_eq!(one(1, "Cast", &["x"], [attr_s("to", "INT64")]), "y = Cast-28(x) {to=7}");
    let tile = vec![node("Tile", &["x", "t", "a"], &["y"], [])];
    let numbers = vec![tensor_f32("t", &[1], &[3.0]), tensor_f32("a", &[1], &[2.0])];
    assert_eq!(upgraded_with(1, tile, numbers), ["y = Tile-13(x, [1, 1, 3, 1])"]);
    assert_eq!(
        one(9, "Scatter", &["x", "x", "x"], [attr_i("axis", 1)]),
        "y = ScatterElements-18(x, x, x) {axis=1}"
    );
}

#[test]
fn modes_and_axes_that_changed_names() {
    assert_eq!(one(16, "GridSample", &["x", "x"], []), "y = GridSample-22(x, x) {mode=linear}");
    assert_eq!(
        one(16, "GridSample", &["x", "x"], [attr_s("mode", "bicubic")]),
        "y = GridSample-22(x, x) {mode=cubic}"
    );
    assert_eq!(one(20, "GridSample", &["x", "x"], []), "y = GridSample-22(x, x)");
    assert_eq!(
        one(10, "RoiAlign", &["x", "m", "b"], []),
        "y = RoiAlign-22(x, m, b) {coordinate_transformation_mode=output_half_pixel}"
    );
    assert_eq!(one(16, "RoiAlign", &["x", "m", "b"], []), "y = RoiAlign-22(x, m, b)");
    assert_eq!(one(17, "DFT", &["x"], []), "y = DFT-20(x, _, 1)");
    assert_eq!(one(17, "DFT", &["x"], [attr_i("axis", 2)]), "y = DFT-20(x, _, 2)");
    assert_eq!(one(1, "GlobalLpPool", &["x"], [attr_f("p", 2.0)]), "y = GlobalLpPool-22(x) {p=2}");
    assert_eq!(
        upgraded(
            1,
            vec![node(
                "LSTM",
                &["x", "x", "x"],
                &["y"],
                [attr_i("output_sequence", 1), attr_i("hidden_size", 4)]
            )]
        ),
        ["y = LSTM-22(x, x, x) {hidden_size=4}"]
    );
}

#[test]
fn recurrent_layers_have_the_sequence_first() {
    let layout = || vec![attr_i("hidden_size", 4), attr_i("layout", 1)];
    assert_eq!(
        upgraded(14, vec![node("LSTM", &["x", "x", "x", "", "", "h"], &["y", "", "c"], layout()).named("n")]),
        [
            "n/Transpose = Transpose-25(x) {perm=[1, 0, 2]}",
            "n/Transpose_2 = Transpose-25(h) {perm=[1, 0, 2]}",
            "n/Transpose_3, _, n/Transpose_4 = LSTM-22(n/Transpose, x, x, _, _, n/Transpose_2) {hidden_size=4}",
            "y = Transpose-25(n/Transpose_3) {perm=[2, 0, 1, 3]}",
            "c = Transpose-25(n/Transpose_4) {perm=[1, 0, 2]}",
        ]
    );
}

#[test]
fn groups_of_scales_are_repeated_to_channels() {
    let lines = upgraded(
        18,
        vec![node("GroupNormalization", &["x", "b", "b"], &["y"], [attr_i("num_groups", 3)]).named("n")],
    );
    assert_eq!(
        lines,
        [
            "n/Shape = Shape-25(x) {end=2 start=1}",
            "n/Div = Div-14(n/Shape, [3])",
            "n/Concat = Concat-13([3], n/Div) {axis=0}",
            "n/Unsqueeze = Unsqueeze-25(b, [1])",
            "n/Expand = Expand-13(n/Unsqueeze, n/Concat)",
            "n/Reshape = Reshape-25(n/Expand, [-1])",
            "n/Unsqueeze_2 = Unsqueeze-25(b, [1])",
            "n/Expand_2 = Expand-13(n/Unsqueeze_2, n/Concat)",
            "n/Reshape_2 = Reshape-25(n/Expand_2, [-1])",
            "y = GroupNormalization-21(x, n/Reshape, n/Reshape_2) {num_groups=3}",
        ]
    );
}

#[test]
fn unknown_operators_keep_the_version_of_the_import() {
    let mut proto =
        model(17, vec![node("my.domain::Thing", &["x"], &["y"], [attr_i("k", 1)])], inputs(), &["y"], vec![]);
    proto.opset_import.push(trtc_onnx::write::opset_import("my.domain", 3));
    assert_eq!(show(&imported(&proto).module.graph), ["y = my.domain.Thing-3(x) {k=1}"]);
    assert_eq!(one(7, "ImageScaler", &["x"], [attr_f("scale", 0.5)]), "y = ImageScaler-1(x) {scale=0.5}");
    assert_eq!(one(7, "ATen", &["x"], []), "y = ATen-7(x)");
    assert_eq!(one(14, "LayerNormalization", &["x", "b"], []), "y = LayerNormalization-17(x, b)");
    let mut bare =
        model(17, vec![node("com.microsoft::FastGelu", &["x"], &["y"], [])], inputs(), &["y"], vec![]);
    bare.opset_import.truncate(1);
    assert_eq!(show(&imported(&bare).module.graph), ["y = com.microsoft.FastGelu-1(x)"]);
}

#[test]
fn a_batch_of_scans_is_a_scan_of_scans() {
    let body = |captured: &str| {
        let nodes =
            [node("Add", &["sum_in", "next"], &["sum"], []), node("Add", &["sum", captured], &["shown"], [])];
        let untyped = |name: &str| ValueInfoProto { name: Some(name.into()), ..ValueInfoProto::default() };
        graph("body", nodes, ["sum_in", "next"].map(untyped), ["sum", "shown"].map(untyped), [])
    };
    let scan = |lengths: &str, captured: &str| {
        let attrs =
            [attr_g("body", body(captured)), attr_i("num_scan_inputs", 1), attr_ints("directions", &[1])];
        upgraded(8, vec![node("Scan", &[lengths, "m", "x"], &["last", "y"], attrs)]).join("; ")
    };
    let inner = "sum/row_0, shown/row_1 = Scan-25(sum_in/row, next/row) {body=[sum = Add-14(sum_in, next); \
                 shown = Add-14(sum, b)] num_scan_inputs=1 scan_input_directions=[1]}";
    assert_eq!(scan("", "b"), format!("last, y = Scan-25(m, x) {{body=[{inner}] num_scan_inputs=2}}"));
    // Sequences of several lengths keep the old form.
    assert!(scan("b", "b").starts_with("last, y = Scan-8(b, m, x)"));
}

//! Sequences that a model makes and takes apart itself: nothing is left of them, and engines hold the tensors.

use crate::control_flow::{
    ROWS, SIDE, body, branch, check, flag, if_node, in_engines, loop_node, op, place_of, scalar, tensor,
    untyped, with, x,
};
use trtc::Report;
use trtc_bundle::DType;
use trtc_onnx::{NodeProto, write::*};

/// One engine, and every source node accounted for.
#[track_caller]
fn whole(report: &Report) {
    let totals = &report.targets[0].totals;
    assert_eq!((totals.engines, totals.host_nodes, totals.schedule_nodes), (1, 0, 0), "{report}");
    assert_eq!(totals.nodes, totals.engine_nodes + totals.folded + totals.removed, "{report}");
    assert_eq!(totals.nodes, report.model.nodes, "{report}");
}

fn halves() -> NodeProto {
    with("SplitToSequence", &["x", "half"], &["parts"], vec![attr_i("axis", 0)])
}

#[test]
fn a_map_over_parts() {
    let nodes = vec![op("MatMul", &["e", "v"], "f"), op("Add", &["f", "g"], "o"), op("Relu", &["f"], "r")];
    let inner = body(nodes, vec![untyped("e"), untyped("g")], &["o", "r"]);
    let nodes = vec![
        op("MatMul", &["x", "w"], "a"),
        with("SplitToSequence", &["a", "half"], &["parts"], vec![attr_i("axis", 0)]),
        with("SequenceMap", &["parts", "bias"], &["sums", "others"], vec![attr_g("body", inner)]),
        with("ConcatFromSequence", &["sums"], &["y"], vec![attr_i("axis", 0)]),
        op("SequenceAt", &["others", "zero"], "first_other"),
        op("MatMul", &["first_other", "w"], "z"),
    ];
    let inputs = vec![tensor("x"), value_info("bias", DType::F32, [1i64, SIDE])];
    let place = place_of(nodes, inputs, vec![tensor("y"), value_info("z", DType::F32, [ROWS / 2, SIDE])]);
    let bias = |seed| crate::control_flow::numbers(&[1, SIDE as usize], seed);
    let report = check(&place, &[vec![("x", x(0)), ("bias", bias(3))], vec![("x", x(2)), ("bias", bias(1))]]);
    whole(&report);
}

#[test]
fn a_loop_that_fills_a_sequence() {
    let nodes = vec![
        op("SequenceAt", &["parts", "i"], "e"),
        op("MatMul", &["e", "w"], "f"),
        op("SequenceInsert", &["s", "f"], "more"),
        op("Neg", &["h"], "next"),
        op("Identity", &["go"], "go_on"),
    ];
    let inputs = vec![scalar("i", DType::I64), scalar("go", DType::Bool), untyped("s"), untyped("h")];
    let sequence = with("SequenceEmpty", &[], &["none"], vec![attr_i("dtype", 1)]);
    let mut inner = body(nodes, inputs, &["go_on", "more", "next", "next"]);
    inner.input[2] = sequence_info("s");
    inner.output[1] = sequence_info("more");
    let nodes = vec![
        halves(),
        op("SequenceLength", &["parts"], "count"),
        sequence,
        loop_node("count", "yes", &["none", "x"], inner, &["filled", "last", "stack"]),
        with("ConcatFromSequence", &["filled"], &["y"], vec![attr_i("axis", 0), attr_i("new_axis", 1)]),
    ];
    let outputs = vec![
        value_info("y", DType::F32, [2, ROWS / 2, SIDE]),
        tensor("last"),
        value_info("stack", DType::F32, [2, ROWS, SIDE]),
    ];
    let report = check(&place_of(nodes, vec![tensor("x")], outputs), &[vec![("x", x(0))], vec![("x", x(4))]]);
    whole(&report);
}

#[test]
fn branches_that_give_sequences() {
    let make = |a: &str, name: &str| {
        vec![
            op("MatMul", &["x", a], &format!("{name}_0")),
            op("SequenceConstruct", &[&format!("{name}_0"), "x"], name),
        ]
    };
    let sequences = |name: &str| {
        let mut graph = branch(make(if name == "t" { "w" } else { "v" }, name), name);
        graph.output[0] = sequence_info(name);
        graph
    };
    let nodes = vec![
        if_node("c", sequences("t"), sequences("e"), "s"),
        op("SequenceAt", &["s", "zero"], "a"),
        op("Relu", &["a"], "y"),
    ];
    let place = place_of(nodes, vec![tensor("x"), scalar("c", DType::Bool)], vec![tensor("y")]);
    let report = check(&place, &[true, false].map(|c| vec![("x", x(1)), ("c", flag(c))]));
    whole(&report);
    assert_eq!(in_engines(&report, "If"), 1, "{report}");
}

fn sequence_info(name: &str) -> trtc_onnx::ValueInfoProto {
    let element = trtc_onnx::TypeProto {
        value: value_info(
            name,
            DType::F32,
            [trtc_onnx::Dimension::from("a"), trtc_onnx::Dimension::from("b")],
        )
        .r#type
        .and_then(|kind| kind.value),
        ..trtc_onnx::TypeProto::default()
    };
    let sequence = trtc_onnx::TypeValue::Sequence(Box::new(trtc_onnx::SequenceType {
        elem_type: Some(Box::new(element)),
    }));
    trtc_onnx::ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(trtc_onnx::TypeProto { value: Some(sequence), ..trtc_onnx::TypeProto::default() }),
        ..trtc_onnx::ValueInfoProto::default()
    }
}

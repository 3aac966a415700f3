//! Control flow that no engine holds: the schedule runs it, what its bodies compute is in engines, and the answers are
//! those of ONNX Runtime on the model as it was.

use crate::support::{Place, options};
use std::collections::BTreeMap;
use trtc::{Bundle, Report};
use trtc_bundle::DType;
use trtc_onnx::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, write::*};
use trtc_partitioner::PlacementName;
use trtc_runtime::{Input, Mode, Session, SessionOptions, Tensor, Value, host::ModelSource};

pub(crate) const ROWS: i64 = 16;
pub(crate) const SIDE: i64 = 128;

pub(crate) fn tensor(name: &str) -> ValueInfoProto {
    value_info(name, DType::F32, [ROWS, SIDE])
}

pub(crate) fn scalar(name: &str, dtype: DType) -> ValueInfoProto {
    value_info(name, dtype, [0i64; 0])
}

pub(crate) fn untyped(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), ..ValueInfoProto::default() }
}

fn weights(name: &str, seed: usize) -> TensorProto {
    let values = (0..SIDE * SIDE).map(|k| ((k as usize * (37 + seed) % 101) as f32 / 50.0 - 1.0) / 6.0);
    tensor_f32(name, &[SIDE, SIDE], &values.collect::<Vec<f32>>())
}

pub(crate) fn body(nodes: Vec<NodeProto>, inputs: Vec<ValueInfoProto>, outputs: &[&str]) -> GraphProto {
    graph("body", nodes, inputs, outputs.iter().map(|name| untyped(name)), [])
}

pub(crate) fn op(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    node(op, inputs, &[output], []).named(&format!("{op}_{output}"))
}

pub(crate) fn with(op: &str, inputs: &[&str], outputs: &[&str], attrs: Vec<AttributeProto>) -> NodeProto {
    node(op, inputs, outputs, attrs).named(&format!("{op}_{}", outputs[0]))
}

/// `y = -x` by way of f64, which no engine has.
fn on_host(x: &str, y: &str) -> Vec<NodeProto> {
    let [wide, neg] = ["wide", "neg"].map(|word| format!("{y}_{word}"));
    let cast = |from: &str, to: &str, dtype: DType| {
        with("Cast", &[from], &[to], vec![attr_i("to", i64::from(dtype.onnx()))])
    };
    vec![cast(x, &wide, DType::F64), op("Neg", &[&wide], &neg), cast(&neg, y, DType::F32)]
}

pub(crate) fn place_of(
    nodes: Vec<NodeProto>,
    inputs: Vec<ValueInfoProto>,
    outputs: Vec<ValueInfoProto>,
) -> Place {
    let constants = [
        weights("w", 0),
        weights("v", 8),
        tensor_i64("three", &[], &[3]),
        tensor_i64("zero", &[], &[0]),
        tensor_bool("yes", &[], &[true]),
        tensor_f32("limit", &[], &[30.0]),
        tensor_i64("half", &[1], &[ROWS / 2]),
        tensor_i64("first", &[1], &[0]),
    ];
    Place::of(&model(17, graph("g", nodes, inputs, outputs, constants)))
}

pub(crate) fn numbers(dims: &[usize], seed: usize) -> Tensor {
    let elements: Vec<f32> =
        (0..dims.iter().product::<usize>()).map(|k| (k * 13 % (17 + seed)) as f32 / 9.0 - 0.8).collect();
    Tensor::from_slice(dims, &elements).unwrap()
}

pub(crate) fn x(seed: usize) -> Tensor {
    numbers(&[ROWS as usize, SIDE as usize], seed)
}

pub(crate) fn flag(value: bool) -> Tensor {
    Tensor::from_bools(&[], &[value]).unwrap()
}

fn close(expected: &Value, got: &Value) {
    let (a, b) = (expected.as_tensor().unwrap(), got.as_tensor().unwrap());
    assert_eq!((a.dtype(), a.dims()), (b.dtype(), b.dims()));
    match (a.as_slice::<f32>(), b.as_slice::<f32>()) {
        (Some(a), Some(b)) => {
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() <= 1e-4 * (1.0 + a.abs()), "{a} and {b}");
            }
        }
        _ => assert_eq!(a.bytes(), b.bytes()),
    }
}

/// Compiles, and compares with the model: host graphs of segments, then networks raised to ONNX, each run in one session
/// with all inputs twice over, so that what one run leaves behind meets the next.
#[track_caller]
pub(crate) fn check(place: &Place, runs: &[Vec<(&str, Tensor)>]) -> Report {
    let report = place.compile(&options().build_engines(crate::support::can_build()));
    let plain = SessionOptions::default().optimize(false);
    let original = match Session::of_model(ModelSource::File(&place.model), &plain) {
        Ok(session) => session,
        Err(why) => {
            println!("numbers are not compared: {why}");
            return report;
        }
    };
    let bundle = Bundle::open(place.bundle()).unwrap();
    for networks in [false, true] {
        let mut options = plain.clone().mode(Mode::Segments);
        if networks {
            for (id, model) in trtc::raised_networks(&bundle, 0).unwrap() {
                options = options.twin_override(id, model);
            }
        }
        let session = Session::new(&bundle, &options).unwrap();
        for inputs in runs.iter().chain(runs) {
            let inputs: Vec<(&str, Input<'_>)> = inputs.iter().map(|(name, x)| (*name, x.into())).collect();
            let expected = original.run(&inputs).unwrap();
            let got = session.run(&inputs).unwrap();
            for ((name, expected), (_, got)) in expected.iter().zip(got.iter()) {
                println!("{name}, networks: {networks}");
                close(expected, got);
            }
        }
    }
    report
}

/// Operators by where they run.
fn placed(report: &Report, placement: PlacementName) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    let rows = report.targets[0].nodes.iter().filter(|row| row.placement == placement);
    rows.for_each(|row| *counts.entry(row.op.as_str()).or_default() += 1);
    counts
}

pub(crate) fn in_engines(report: &Report, op: &str) -> usize {
    placed(report, PlacementName::Engine).get(op).copied().unwrap_or(0)
}

#[track_caller]
fn counts(report: &Report, schedule: &[(&str, usize)], products: usize) {
    assert_eq!(placed(report, PlacementName::Schedule), schedule.iter().copied().collect(), "{report}");
    assert_eq!(in_engines(report, "MatMul"), products, "{report}");
    let t = &report.targets[0].totals;
    assert_eq!(t.nodes, t.engine_nodes + t.host_nodes + t.schedule_nodes + t.folded + t.removed);
    assert_eq!(t.nodes, report.model.nodes);
}

pub(crate) fn branch(nodes: Vec<NodeProto>, output: &str) -> GraphProto {
    body(nodes, Vec::new(), &[output])
}

pub(crate) fn if_node(condition: &str, then: GraphProto, other: GraphProto, output: &str) -> NodeProto {
    let attrs = vec![attr_g("then_branch", then), attr_g("else_branch", other)];
    with("If", &[condition], &[output], attrs)
}

/// `v` of a branch: product, host, product.
fn mixed(x: &str, y: &str) -> Vec<NodeProto> {
    let [a, b] = ["a", "b"].map(|word| format!("{y}_{word}"));
    let mut nodes = vec![op("MatMul", &[x, "w"], &a)];
    nodes.extend(on_host(&a, &b));
    nodes.push(op("MatMul", &[&b, "v"], y));
    nodes
}

#[test]
fn a_host_node_in_one_branch() {
    let then = branch(mixed("x", "t"), "t");
    let other = branch(vec![op("MatMul", &["x", "v"], "e")], "e");
    let nodes = vec![if_node("c", then, other, "y")];
    let place = place_of(nodes, vec![tensor("x"), scalar("c", DType::Bool)], vec![tensor("y")]);
    let runs = [true, false].map(|c| vec![("x", x(0)), ("c", flag(c))]);
    let report = check(&place, &runs);
    counts(&report, &[("If", 1)], 3);
    assert_eq!(report.targets[0].totals.engines, 3);
    let ids: Vec<&str> = report.targets[0].segments.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "If_y/else_branch/engine_0",
            "If_y/then_branch/engine_0",
            "If_y/then_branch/host_0",
            "If_y/then_branch/engine_1"
        ]
    );
    let bundle = Bundle::open(place.bundle()).unwrap();
    let stored: Vec<&str> =
        bundle.manifest().targets[0].segments.iter().map(|segment| segment.id.as_str()).collect();
    assert_eq!(ids, stored);
    // The same report from a dry run.
    let dry = trtc::partition(&place.model, &options()).unwrap();
    assert_eq!(dry.targets[0].nodes, report.targets[0].nodes);
    assert_eq!(dry.targets[0].crossings, report.targets[0].crossings);
}

#[test]
fn branches_of_branches_with_what_is_captured_from_outside() {
    // Captured from two levels up: `a`, made by an engine, and `x`; a branch that hands one through.
    let inner = if_node("d", branch(mixed("a", "t"), "t"), branch(Vec::new(), "a"), "i");
    let outer_then = branch(vec![inner, op("Add", &["i", "x"], "o")], "o");
    let mut deeper = vec![op("MatMul", &["a", "v"], "p")];
    deeper.extend(mixed("p", "q"));
    let outer_else = branch(deeper, "q");
    let nodes = vec![
        op("MatMul", &["x", "w"], "a"),
        if_node("c", outer_then, outer_else, "b"),
        op("Relu", &["b"], "y"),
    ];
    let inputs = vec![tensor("x"), scalar("c", DType::Bool), scalar("d", DType::Bool)];
    let place = place_of(nodes, inputs, vec![tensor("y")]);
    let runs: Vec<_> =
        (0..4).map(|k| vec![("x", x(k)), ("c", flag(k % 2 == 0)), ("d", flag(k / 2 == 0))]).collect();
    let report = check(&place, &runs);
    counts(&report, &[("If", 2)], 6);
}

pub(crate) fn loop_node(
    count: &str,
    condition: &str,
    states: &[&str],
    inner: GraphProto,
    outputs: &[&str],
) -> NodeProto {
    let inputs: Vec<&str> = [count, condition].iter().chain(states).copied().collect();
    with("Loop", &inputs, outputs, vec![attr_g("body", inner)])
}

/// Turns of `s = -(s w) v`, ended by the size of what NonZero finds or by the count; stacks the largest element.
fn turns() -> GraphProto {
    let mut nodes = mixed("s", "t");
    nodes.extend([
        op("NonZero", &["t"], "found"),
        op("Size", &["found"], "size"),
        op("Cast", &["go"], "unused"),
        with("ReduceMax", &["t"], &["largest"], vec![attr_i("keepdims", 0)]),
        op("Less", &["largest", "limit"], "go_on"),
    ]);
    nodes.retain(|node| node.op_type() != "Cast" || node.output[0] != "unused");
    let inputs = vec![scalar("i", DType::I64), scalar("go", DType::Bool), tensor("s")];
    body(nodes, inputs, &["go_on", "t", "largest", "size"])
}

#[test]
fn loops_with_early_exit_scan_outputs_and_no_turn() {
    let nodes = vec![loop_node("count", "go_in", &["x"], turns(), &["y", "stack", "sizes"])];
    let inputs = vec![tensor("x"), scalar("count", DType::I64), scalar("go_in", DType::Bool)];
    let outputs = vec![
        tensor("y"),
        value_info("stack", DType::F32, [trtc_onnx::Dimension::from("n")]),
        value_info("sizes", DType::I64, [trtc_onnx::Dimension::from("n")]),
    ];
    let place = place_of(nodes, inputs, outputs);
    let run = |count: i64, go: bool, seed: usize| {
        vec![("x", x(seed)), ("count", Tensor::from_slice(&[], &[count]).unwrap()), ("go_in", flag(go))]
    };
    let report = check(&place, &[run(3, true, 0), run(0, true, 0), run(50, true, 1), run(2, false, 2)]);
    counts(&report, &[("Loop", 1)], 2);
    assert_eq!(placed(&report, PlacementName::Host).get("NonZero"), Some(&1));
}

#[test]
fn a_branch_in_a_loop() {
    let choice =
        if_node("even", branch(mixed("s", "t"), "t"), branch(vec![op("MatMul", &["s", "v"], "e")], "e"), "n");
    let nodes = vec![
        with("Mod", &["i", "two"], &["rest"], Vec::new()),
        op("Equal", &["rest", "zero"], "even"),
        choice,
        op("Identity", &["go"], "go_on"),
    ];
    let mut inner = body(
        nodes,
        vec![scalar("i", DType::I64), scalar("go", DType::Bool), tensor("s"), tensor("old")],
        // The states change places from turn to turn.
        &["go_on", "n", "s"],
    );
    inner.initializer.push(tensor_i64("two", &[], &[2]));
    let nodes = vec![loop_node("three", "", &["x", "x"], inner, &["y", "before"])];
    let place = place_of(nodes, vec![tensor("x")], vec![tensor("y"), tensor("before")]);
    let report = check(&place, &[vec![("x", x(0))], vec![("x", x(3))]]);
    counts(&report, &[("If", 1), ("Loop", 1)], 3);
}

#[test]
fn states_that_change_places() {
    let mut nodes = mixed("a", "t");
    nodes.push(op("Identity", &["go"], "go_on"));
    let inputs =
        vec![scalar("i", DType::I64), scalar("go", DType::Bool), tensor("a"), tensor("b"), tensor("c")];
    // Each state is what another one was: nothing may be overwritten before it is read.
    let inner = body(nodes, inputs, &["go_on", "c", "a", "b", "t"]);
    let nodes = vec![
        op("Relu", &["x"], "r"),
        loop_node("count", "", &["x", "r", "z"], inner, &["y", "y2", "y3", "all"]),
    ];
    let inputs = vec![tensor("x"), tensor("z"), scalar("count", DType::I64)];
    let outputs = vec![tensor("y"), tensor("y2"), tensor("y3"), untyped("all")];
    let place = place_of(nodes, inputs, outputs);
    let run =
        |count: i64| vec![("x", x(0)), ("z", x(1)), ("count", Tensor::from_slice(&[], &[count]).unwrap())];
    let report = check(&place, &[run(4), run(1), run(0)]);
    counts(&report, &[("Loop", 1)], 2);
}

#[test]
fn scans_forwards_and_backwards() {
    for (axis, input_reversed, output_reversed) in [(0, 0, 0), (0, 1, 1), (1, 1, 0), (-2, 0, 1)] {
        // state [1, SIDE] = -((state + part) w) v; each is stacked.
        let mut nodes = vec![op("Add", &["s", "part"], "sum")];
        nodes.extend(mixed("sum", "t"));
        nodes.push(op("Relu", &["t"], "shown"));
        let row = |name: &str| value_info(name, DType::F32, [1, SIDE]);
        let inner = body(nodes, vec![row("s"), row("part")], &["t", "shown"]);
        let attrs = vec![
            attr_g("body", inner),
            attr_i("num_scan_inputs", 1),
            attr_ints("scan_input_axes", &[axis]),
            attr_ints("scan_input_directions", &[input_reversed]),
            attr_ints("scan_output_axes", &[axis]),
            attr_ints("scan_output_directions", &[output_reversed]),
        ];
        let nodes = vec![with("Scan", &["first_state", "parts"], &["y", "all"], attrs)];
        let dims = if axis == 1 {
            vec![1, 5, SIDE]
        } else if axis == 0 {
            vec![5, 1, SIDE]
        } else {
            vec![1, 5, SIDE]
        };
        let inputs = vec![row("first_state"), value_info("parts", DType::F32, dims.clone())];
        let place = place_of(nodes, inputs, vec![row("y"), value_info("all", DType::F32, dims.clone())]);
        let dims: Vec<usize> = dims.into_iter().map(|dim| dim as usize).collect();
        let run = |seed: usize| {
            vec![("first_state", numbers(&[1, SIDE as usize], seed)), ("parts", numbers(&dims, seed + 1))]
        };
        let report = check(&place, &[run(0), run(5)]);
        counts(&report, &[("Scan", 1)], 2);
    }
}

#[test]
fn branches_of_different_shapes() {
    let slice = with("Slice", &["x", "first", "half", "first"], &["top"], Vec::new());
    let mut other = vec![slice];
    other.extend(mixed("top", "e"));
    let choice = if_node("c", branch(vec![op("MatMul", &["x", "w"], "t")], "t"), branch(other, "e"), "z");
    let nodes = vec![choice, op("MatMul", &["z", "v"], "y")];
    let rows = value_info("y", DType::F32, [trtc_onnx::Dimension::from("rows"), SIDE.into()]);
    let place = place_of(nodes, vec![tensor("x"), scalar("c", DType::Bool)], vec![rows]);
    let runs = [true, false].map(|c| vec![("x", x(0)), ("c", flag(c))]);
    let report = check(&place, &runs);
    // The product behind it is in an engine: its rows are between the branches' ones.
    counts(&report, &[("If", 1)], 4);
}

#[test]
fn a_loop_whose_condition_comes_from_a_branch() {
    // TensorRT-RTX builds no such loop.
    let yes = branch(vec![op("Less", &["largest", "limit"], "less")], "less");
    let no = branch(vec![op("Identity", &["go"], "same")], "same");
    let nodes = vec![
        op("MatMul", &["s", "w"], "t"),
        with("ReduceMax", &["t"], &["largest"], vec![attr_i("keepdims", 0)]),
        op("Less", &["i", "three"], "early"),
        if_node("early", yes, no, "go_on"),
    ];
    let inputs = vec![scalar("i", DType::I64), scalar("go", DType::Bool), tensor("s")];
    let inner = body(nodes, inputs, &["go_on", "t"]);
    let place = place_of(
        vec![loop_node("three", "yes", &["x"], inner, &["y"])],
        vec![tensor("x")],
        vec![tensor("y")],
    );
    let report = check(&place, &[vec![("x", x(0))], vec![("x", x(2))]]);
    assert_eq!(in_engines(&report, "MatMul"), 1, "{report}");
    assert_eq!(placed(&report, PlacementName::Schedule).get("Loop"), Some(&1), "{report}");
}

#[test]
fn what_is_not_worth_an_engine_stays_one_host_node() {
    let small = |name: &str| value_info(name, DType::F32, [2i64]);
    let mut then = vec![op("Relu", &["x"], "r")];
    then.extend(on_host("r", "t"));
    let nodes = vec![if_node("c", branch(then, "t"), branch(vec![op("Abs", &["x"], "e")], "e"), "y")];
    let place =
        Place::of(&model(17, graph("g", nodes, [small("x"), scalar("c", DType::Bool)], [small("y")], [])));
    let runs = [true, false].map(|c| vec![("x", numbers(&[2], 0)), ("c", flag(c))]);
    let report = check(&place, &runs);
    counts(&report, &[], 0);
    assert_eq!(report.targets[0].totals.host_segments, 1);
}

/// A model whose control flow is nested as deep as `depth`.
fn nested(depth: usize) -> ModelProto {
    let mut innermost = branch(mixed("x", "t"), "t");
    for level in 0..depth {
        let output = format!("o{level}");
        let other = branch(vec![op("Relu", &["x"], &format!("r{level}"))], &format!("r{level}"));
        innermost = branch(vec![if_node("c", innermost, other, &output)], &output);
    }
    let nodes = innermost.node;
    let output = format!("o{}", depth - 1);
    model(
        17,
        graph(
            "g",
            nodes,
            [tensor("x"), scalar("c", DType::Bool)],
            [tensor(&output)],
            [weights("w", 0), weights("v", 8)],
        ),
    )
}

#[test]
fn nested_deep() {
    // As deep as models can be read: what is too deep for a schedule stays with the node around it.
    let place = Place::of(&nested(31));
    let runs = [true, false].map(|c| vec![("x", x(0)), ("c", flag(c))]);
    let report = check(&place, &runs);
    counts(&report, &[], 0);
    let place = Place::of(&nested(20));
    let runs = [true, false].map(|c| vec![("x", x(0)), ("c", flag(c))]);
    let report = check(&place, &runs);
    counts(&report, &[("If", 20)], 2);
}

fn sizes(name: &str, dims: &[&str]) -> ValueInfoProto {
    let dim = |text: &&str| match text.parse::<i64>() {
        Ok(size) => trtc_onnx::Dimension::from(size),
        Err(_) => trtc_onnx::Dimension::from(*text),
    };
    value_info(name, DType::F32, dims.iter().map(dim).collect::<Vec<_>>())
}

/// A state that meets two things which are scanned, of one open size that is never 1: that all sizes are the same has to
/// be said to the builder, which else looks for the reason without end.
#[test]
fn open_sizes_that_are_the_same_in_a_scan() {
    if !crate::support::can_build() {
        return;
    }
    let nodes = vec![
        op("Mul", &["s", "decay"], "kept"),
        op("Mul", &["k", "v"], "new"),
        op("Add", &["kept", "new"], "t"),
    ];
    let inputs = ["s", "decay", "k", "v"].map(untyped).to_vec();
    let mut shown = nodes.clone();
    shown.push(op("Neg", &["t"], "shown"));
    let inner = body(shown, inputs, &["t", "shown"]);
    let scan = with(
        "Scan",
        &["s0", "d", "ks", "vs"],
        &["y", "all"],
        vec![attr_g("body", inner), attr_i("num_scan_inputs", 3)],
    );
    let place = place_of(
        vec![scan],
        vec![
            sizes("s0", &["B", "8", "8"]),
            sizes("d", &["L", "B", "8", "1"]),
            sizes("ks", &["L", "B", "8", "1"]),
            sizes("vs", &["L", "B", "1", "8"]),
        ],
        vec![untyped("y"), untyped("all")],
    );
    for range in ["B=2..2..4", "B=1..2..4"] {
        let report = place.compile(&options().shape(range).build_engines(true));
        assert_eq!(in_engines(&report, "Scan"), 1, "{range}: {report}");
        assert_eq!(report.targets[0].totals.host_nodes, 0, "{range}: {report}");
    }
}

/// What sizes a Slice in a branch is the shape of an input that nothing reads: the builder would recurse without end.
#[test]
fn a_size_of_what_is_not_read() {
    if !crate::support::can_build() {
        return;
    }
    let rows = with("Shape", &["z"], &["rows"], vec![attr_i("start", 0), attr_i("end", 1)]);
    let top = op("Slice", &["x", "first", "rows", "first"], "top");
    let choice = if_node("c", branch(vec![op("Neg", &["x"], "t")], "t"), branch(vec![rows, top], "top"), "y");
    let inputs = vec![sizes("x", &["N", "3"]), sizes("z", &["M", "3"]), scalar("c", DType::Bool)];
    let place = place_of(vec![choice], inputs, vec![untyped("y")]);
    let report = place.compile(&options().build_engines(true));
    let row = report.targets[0].nodes.iter().find(|row| row.op == "If").unwrap();
    assert_eq!(row.code.as_deref(), Some("E0503"), "{report}");
    assert!(
        report.targets[0].nodes.iter().all(|row| !row.code.as_deref().unwrap_or("").starts_with("E9")),
        "{report}"
    );
}

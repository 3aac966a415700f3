//! Subgraphs and what they capture.

use super::{imported, model, show, try_import, type_of, value};
use trtc_bundle::DType;
use trtc_onnx::{
    GraphProto, NodeProto, ValueInfoProto,
    write::{attr_g, graph, node, tensor_f32, tensor_type, typed_value, value_info},
};

fn scalar(name: &str, dtype: DType) -> ValueInfoProto {
    typed_value(name, tensor_type(dtype, Some([0i64; 0])))
}

fn branch(nodes: Vec<NodeProto>, output: &str) -> GraphProto {
    graph("b", nodes, [], [value_info(output, DType::F32, [2])], [])
}

fn if_node(then: GraphProto, other: GraphProto, output: &str) -> NodeProto {
    node("If", &["c"], &[output], [attr_g("then_branch", then), attr_g("else_branch", other)])
}

#[test]
fn captures_pass_through_every_level() {
    let deep = branch(vec![node("Add", &["x", "w"], &["r"], [])], "r");
    let shallow = branch(vec![node("Neg", &["x"], &["r"], [])], "r");
    let middle = branch(vec![if_node(deep, shallow.clone(), "m")], "m");
    let import = imported(&model(
        21,
        vec![if_node(middle, shallow, "y")],
        vec![scalar("c", DType::Bool), value_info("x", DType::F32, [2])],
        &["y"],
        vec![tensor_f32("w", &[2], &[1.0, 2.0])],
    ));
    let top = &import.module.graph;
    let outer = &top[top.node_ids().next().unwrap()];
    let names = |ids: &[trtc_ir::ValueId]| -> Vec<String> {
        ids.iter().map(|&id| top[id].name.to_string()).collect()
    };
    assert_eq!(names(outer.captured()), ["c", "x", "w"]);
    let middle = outer.attrs.graph("then_branch").unwrap();
    assert_eq!(middle.captures.len(), 3);
    assert_eq!(type_of(middle, &import.module.symbols, "x"), "f32[2]");
    let deep = middle[middle.node_ids().next().unwrap()].attrs.graph("then_branch").unwrap();
    assert_eq!(show(deep), ["r = Add-14(x, w)"]);
    // A captured constant is known inside.
    assert!(deep[value(deep, "w")].constant.is_some());
    let sources: Vec<&str> = import.sources.iter().map(|source| source.name.as_str()).collect();
    let expected = [
        "If_0",
        "If_0/then_branch/If_0",
        "If_0/then_branch/If_0/then_branch/Add_0",
        "If_0/then_branch/If_0/else_branch/Neg_0",
        "If_0/else_branch/Neg_0",
    ];
    assert_eq!(sources, expected);
}

#[test]
fn inner_names_hide_outer_ones() {
    let hiding = branch(vec![node("Neg", &["x"], &["t"], []), node("Relu", &["t"], &["r"], [])], "r");
    let using = branch(vec![node("Neg", &["t"], &["r"], [])], "r");
    let import = imported(&model(
        21,
        vec![node("Abs", &["x"], &["t"], []), if_node(hiding, using, "y")],
        vec![scalar("c", DType::Bool), value_info("x", DType::F32, [2])],
        &["y"],
        vec![],
    ));
    let graph = &import.module.graph;
    let owner = graph.node_ids().nth(1).unwrap();
    let captured = |attr: &str| -> Vec<String> {
        let body = graph[owner].attrs.graph(attr).unwrap();
        body.captures.iter().map(|capture| graph[capture.outer].name.to_string()).collect()
    };
    assert_eq!(captured("then_branch"), ["x"]);
    assert_eq!(captured("else_branch"), ["t"]);
}

#[test]
fn order_respects_what_subgraphs_use() {
    let using = || branch(vec![node("Neg", &["t"], &["r"], [])], "r");
    let import = imported(&model(
        21,
        vec![if_node(using(), using(), "y"), node("Abs", &["x"], &["t"], [])],
        vec![scalar("c", DType::Bool), value_info("x", DType::F32, [2])],
        &["y"],
        vec![],
    ));
    let graph = &import.module.graph;
    let first = graph.topo_order().unwrap()[0];
    assert_eq!(&*graph[first].op.op_type, "Abs");
}

#[test]
fn loops_have_inputs_and_carried_values() {
    let body = graph(
        "body",
        [node("Add", &["carried", "x"], &["next"], []), node("Identity", &["going"], &["going_out"], [])],
        [scalar("i", DType::I64), scalar("going", DType::Bool), value_info("carried", DType::F32, [2])],
        [
            scalar("going_out", DType::Bool),
            value_info("next", DType::F32, [2]),
            value_info("next", DType::F32, [2]),
        ],
        [],
    );
    let import = imported(&model(
        13,
        vec![node("Loop", &["n", "", "x"], &["last", "y"], [attr_g("body", body)])],
        vec![scalar("n", DType::I64), value_info("x", DType::F32, [2])],
        &["y"],
        vec![],
    ));
    assert_eq!(
        show(&import.module.graph),
        ["last, y = Loop-25(n, _, x) {body=[next = Add-14(carried, x); going_out = Identity-25(going)]}"]
    );
    let owner = import.module.graph.node_ids().next().unwrap();
    let body = import.module.graph[owner].attrs.graph("body").unwrap();
    assert_eq!((body.inputs().len(), body.outputs().len()), (3, 3));
}

#[test]
fn faults_inside_name_their_path() {
    let broken = branch(vec![node("Add", &["x", "nothing"], &["r"], [])], "r");
    let fine = branch(vec![node("Neg", &["x"], &["r"], [])], "other");
    let diags = try_import(&model(
        21,
        vec![if_node(broken, fine, "y").named("choice")],
        vec![scalar("c", DType::Bool), value_info("x", DType::F32, [2])],
        &["y"],
        vec![],
    ))
    .unwrap_err();
    let lines: Vec<String> = diags.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "node `choice/then_branch/Add_0` (Add): input 1 `nothing` is made by nothing",
            "subgraph `choice/else_branch`: graph output `other` is made by nothing",
        ]
    );
}

//! Local functions, inlined.

use super::{imported, model, show, try_import};
use trtc_bundle::DType;
use trtc_onnx::{
    AttributeType, FunctionProto, ModelProto, NodeProto,
    write::{attr_f, attr_g, attr_ref, graph, node, opset_import, value_info},
};

fn function(name: &str, inputs: &[&str], outputs: &[&str], nodes: Vec<NodeProto>) -> FunctionProto {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    FunctionProto {
        name: Some(name.to_owned()),
        domain: Some("local".to_owned()),
        input: owned(inputs),
        output: owned(outputs),
        node: nodes,
        opset_import: vec![opset_import("", 11), opset_import("local", 1)],
        ..Default::default()
    }
}

fn calls(nodes: Vec<NodeProto>, functions: Vec<FunctionProto>) -> ModelProto {
    let mut proto = model(21, nodes, vec![value_info("x", DType::F32, [2, 3])], &["y"], vec![]);
    proto.opset_import.push(opset_import("local", 1));
    proto.functions = functions;
    proto
}

#[test]
fn calls_nest_and_attributes_are_bound() {
    let mut inner = function(
        "Leaky",
        &["a"],
        &["b"],
        vec![node("LeakyRelu", &["a"], &["b"], [attr_ref("alpha", AttributeType::Float, "slope")])],
    );
    inner.attribute_proto = vec![attr_f("slope", 0.25)];
    let mut outer = function(
        "Twice",
        &["a"],
        &["c"],
        vec![
            node("local::Leaky", &["a"], &["b"], [attr_ref("slope", AttributeType::Float, "first")]),
            node("local::Leaky", &["b"], &["c"], []),
        ],
    );
    outer.attribute = vec!["first".to_owned()];
    let import = imported(&calls(
        vec![node("local::Twice", &["x"], &["y"], [attr_f("first", 0.5)]).named("call")],
        vec![inner, outer],
    ));
    assert_eq!(
        show(&import.module.graph),
        ["call/b = LeakyRelu-16(x) {alpha=0.5}", "y = LeakyRelu-16(call/b) {alpha=0.25}"]
    );
    let names: Vec<&str> = import.sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["call/Leaky_0/LeakyRelu_0", "call/Leaky_1/LeakyRelu_0"]);
}

#[test]
fn the_function_has_its_own_opset_and_names() {
    // Opset 11 of the function: axis 1 of a matrix means its rows.
    let body = vec![node("Softmax", &["a"], &["x"], []), node("Neg", &["x"], &["b"], [])];
    let import = imported(&calls(
        vec![node("local::F", &["x"], &["y"], [])],
        vec![function("F", &["a"], &["b"], body)],
    ));
    assert_eq!(show(&import.module.graph), ["F_0/x = Softmax-13(x) {axis=-1}", "y = Neg-13(F_0/x)"]);
}

#[test]
fn omitted_inputs_and_outputs_stay_omitted() {
    let body = vec![node("Clip", &["a", "low", "high"], &["b"], []), node("Neg", &["b"], &["c"], [])];
    let import = imported(&calls(
        vec![node("local::F", &["x", "", "x"], &["y"], [])],
        vec![function("F", &["a", "low", "high"], &["b", "c"], body)],
    ));
    assert_eq!(show(&import.module.graph), ["y = Clip-13(x, _, x)", "F_0/c = Neg-13(y)"]);
}

#[test]
fn an_input_handed_through_is_copied() {
    let import = imported(&calls(
        vec![node("local::F", &["x"], &["y"], [])],
        vec![function("F", &["a"], &["a"], vec![])],
    ));
    assert_eq!(show(&import.module.graph), ["y = Identity-25(x)"]);
}

#[test]
fn subgraphs_of_functions_see_its_names_and_attributes() {
    let branch = |name: &str, op: &str, attrs: Vec<_>| {
        attr_g(
            name,
            graph(name, [node(op, &["t"], &["r"], attrs)], [], [value_info("r", DType::F32, [2, 3])], []),
        )
    };
    let leaky = vec![attr_ref("alpha", AttributeType::Float, "slope")];
    let mut proto = function(
        "F",
        &["a", "c"],
        &["b"],
        vec![
            node("Neg", &["a"], &["t"], []),
            node(
                "If",
                &["c"],
                &["b"],
                [branch("then_branch", "LeakyRelu", leaky), branch("else_branch", "Relu", vec![])],
            ),
        ],
    );
    proto.attribute = vec!["slope".to_owned()];
    let mut whole =
        calls(vec![node("local::F", &["x", "c"], &["y"], [attr_f("slope", 0.5)]).named("f")], vec![proto]);
    super::graph_of(&mut whole).input.push(trtc_onnx::write::typed_value(
        "c",
        trtc_onnx::write::tensor_type(DType::Bool, Some([0i64; 0])),
    ));
    assert_eq!(
        show(&imported(&whole).module.graph),
        [
            "f/t = Neg-13(x)",
            "y = If-25(c) {else_branch=[r = Relu-14(f/t)] then_branch=[r = LeakyRelu-16(f/t) {alpha=0.5}]}"
        ]
    );
}

#[test]
fn recursion_and_wrong_calls_are_errors() {
    let said = |proto: &ModelProto| try_import(proto).unwrap_err()[0].to_string();
    let call = |name: &str| vec![node(&format!("local::{name}"), &["a"], &["b"], [])];
    let circle = calls(
        vec![node("local::F", &["x"], &["y"], [])],
        vec![function("F", &["a"], &["b"], call("G")), function("G", &["a"], &["b"], call("F"))],
    );
    assert_eq!(
        said(&circle),
        "node `F_0/G_0/F_0` (local.F): functions call themselves: `local.F` -> `local.G` -> `local.F`"
    );
    let extra = calls(
        vec![node("local::F", &["x", "x"], &["y"], [])],
        vec![function("F", &["a"], &["b"], vec![node("Relu", &["a"], &["b"], [])])],
    );
    assert_eq!(said(&extra), "node `F_0` (local.F): 2 inputs are given, function `local.F` has 1");
    let unknown = calls(
        vec![node("local::F", &["x"], &["y"], [attr_f("k", 1.0)])],
        vec![function("F", &["a"], &["b"], vec![node("Relu", &["a"], &["b"], [])])],
    );
    assert_eq!(said(&unknown), "node `F_0` (local.F): k: function `local.F` has no such attribute");
    let outside = calls(
        vec![node("Neg", &["x"], &["z"], []), node("local::F", &["x"], &["y"], [])],
        vec![function("F", &["a"], &["b"], vec![node("Add", &["a", "z"], &["b"], [])])],
    );
    assert_eq!(said(&outside), "node `F_1/Add_0` (Add): input 1 `z` is made by nothing");
    // Functions that double at each level make more nodes than anyone can hold.
    let doubling = |k: usize| {
        let next = format!("local::D{}", k + 1);
        let nodes = vec![node(&next, &["a"], &["t"], []), node(&next, &["t"], &["b"], [])];
        function(&format!("D{k}"), &["a"], &["b"], nodes)
    };
    let bomb = calls(vec![node("local::D0", &["x"], &["y"], [])], (0..120).map(doubling).collect());
    assert!(said(&bomb).ends_with("functions call each other more than 100 deep"));
}

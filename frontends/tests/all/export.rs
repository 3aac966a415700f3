//! Exported models: opsets, names, initializers, subgraphs, widening, errors.

use super::{
    downgrade::{exported, show},
    imported, model, value,
};
use trtc_bundle::DType;
use trtc_frontends::onnx::export::{
    ExportError, ExportRequest, Exported, WeightPlacement, export, opset_groups,
};
use trtc_ir::{Attrs, Dim, Graph, Module, Node, NodeId, OpKey, Symbols, Tensor, Type, ValueId};
use trtc_onnx::{
    DimValue, ModelProto, NodeProto, TensorProto, TypeValue, ValueInfoProto,
    write::{attr_g, attr_i, attr_ints, graph, node, tensor_f32, tensor_type, typed_value, value_info},
};

fn segment(
    module: &Module,
    nodes: &[NodeId],
    inputs: &[&str],
    outputs: &[&str],
) -> Result<Exported, ExportError> {
    let ids = |names: &[&str]| names.iter().map(|name| value(&module.graph, name)).collect::<Vec<_>>();
    export(ExportRequest {
        name: "segment",
        graph: &module.graph,
        symbols: &module.symbols,
        nodes: Some(nodes),
        inputs: &ids(inputs),
        outputs: &ids(outputs),
        opset: None,
        opsets: &module.opsets,
        weights: &mut |tensor, name| {
            assert_eq!((name, tensor.count()), ("big", 400));
            WeightPlacement::External { location: "file".into(), offset: 64, length: 1600 }
        },
    })
}

fn dims(info: &ValueInfoProto) -> String {
    let Some(TypeValue::Tensor(tensor)) = info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) else {
        return "?".to_owned();
    };
    let Some(shape) = &tensor.shape else { return "..".to_owned() };
    let dims: Vec<String> = shape
        .dim
        .iter()
        .map(|dim| match &dim.value {
            Some(DimValue::Value(size)) => size.to_string(),
            Some(DimValue::Param(name)) => name.clone(),
            None => "?".to_owned(),
        })
        .collect();
    dims.join(" ")
}

fn scalar(name: &str, dtype: DType) -> ValueInfoProto {
    typed_value(name, tensor_type(dtype, Some([0i64; 0])))
}

#[test]
fn a_segment_has_its_inputs_outputs_and_weights() {
    let big = tensor_f32("big", &[20, 20], &[0.5; 400]);
    let small = tensor_f32("small", &[20], &[1.0; 20]);
    let unused = tensor_f32("unused", &[400], &[0.0; 400]);
    let module = imported(&model(
        13,
        vec![
            node("Relu", &["x"], &["a"], []),
            node("MatMul", &["a", "big"], &["b"], []),
            node("Add", &["b", "small"], &["c"], []),
            node("Neg", &["c"], &["y"], []),
        ],
        vec![value_info("x", DType::F32, ["N", "20"])],
        &["y"],
        vec![big, small, unused],
    ))
    .module;
    let ids: Vec<NodeId> = module.graph.node_ids().collect();
    let out = segment(&module, &[ids[2], ids[1]], &["a"], &["c", "b"]).unwrap();
    assert_eq!(out.opset, 21);
    assert_eq!((out.inputs, out.outputs), (vec!["a".to_owned()], vec!["c".to_owned(), "b".to_owned()]));
    let graph = out.model.graph.unwrap();
    let ops: Vec<&str> = graph.node.iter().map(|node| node.op_type.as_deref().unwrap()).collect();
    assert_eq!(ops, ["MatMul", "Add"]);
    let initializers: Vec<(&str, bool)> =
        graph.initializer.iter().map(|t| (t.name(), t.is_external())).collect();
    assert_eq!(initializers, [("big", true), ("small", false)]);
    assert_eq!(graph.initializer[0], TensorProto::external("big", DType::F32, &[20, 20], "file", 64, 1600));
    assert_eq!(out.model.ir_version, Some(10));
}

#[test]
fn dims_keep_the_symbols_of_inputs() {
    let nodes = vec![node("NonZero", &["x"], &["n"], []), node("Neg", &["x"], &["y"], [])];
    let mut proto = model(21, nodes, vec![value_info("x", DType::F32, ["N", "3"])], &["y", "n"], vec![]);
    super::graph_of(&mut proto).output[1] = value_info("n", DType::I64, ["2", "found"]);
    let graph = exported(&proto, None).unwrap().model.graph.unwrap();
    assert_eq!(dims(&graph.input[0]), "N 3");
    // ONNX Runtime takes equal names for equal sizes; of one that only the run decides nothing is promised.
    assert_eq!(dims(&graph.output[1]), "2 ?");
}

#[test]
fn kernels_choose_the_opset() {
    let inputs = || {
        vec![
            value_info("x", DType::F32, [1, 2, 8, 8]),
            value_info("r", DType::F32, [1, 4]),
            value_info("k", DType::I64, [1]),
        ]
    };
    // ONNX Runtime has RoiAlign for 10 to 15 and for 16, not for 22.
    let roi = || node("RoiAlign", &["x", "r", "k"], &["a"], []);
    let out =
        exported(&model(22, vec![roi(), node("Relu", &["a"], &["y"], [])], inputs(), &["y"], vec![]), None)
            .unwrap();
    assert_eq!(out.opset, 21);
    // An operator of 23 lifts the others to it.
    let norm = node("RMSNormalization", &["x", "s"], &["y"], []);
    let scale = tensor_f32("s", &[8], &[1.0; 8]);
    let out = exported(&model(23, vec![norm.clone()], inputs(), &["y"], vec![scale.clone()]), None).unwrap();
    assert_eq!(out.opset, 23);
    // Both together have none.
    let module = imported(&model(23, vec![roi(), norm], inputs(), &["a", "y"], vec![scale])).module;
    let ids: Vec<NodeId> = module.graph.node_ids().collect();
    match segment(&module, &ids, &["x", "r", "k"], &["a", "y"]).unwrap_err() {
        ExportError::Conflict { nodes, names } => {
            assert_eq!(nodes, ids);
            assert_eq!(names, ["RoiAlign_0", "RMSNormalization_1"]);
        }
        other => panic!("{other}"),
    }
}

/// Of a type of 16 bits, ONNX Runtime divides in f32 before 23, and in that type from 23 on.
#[test]
fn quantising_halves_stays_on_its_side_of_23() {
    let of = |opset: i64| {
        let inputs = vec![value_info("x", DType::F16, [4]), value_info("s", DType::F16, [1])];
        let made = node("QuantizeLinear", &["x", "s"], &["y"], []);
        exported(&model(opset, vec![made], inputs, &["y"], vec![]), None).unwrap()
    };
    assert_eq!((of(22).opset, of(23).opset), (20, 23));
    let written = of(22).model.graph.unwrap().node[0].attribute.len();
    assert_eq!(written, 0);
}

#[test]
fn bodies_of_opset_18_bring_it_along() {
    let inputs = vec![value_info("x", DType::I64, [4]), value_info("s", DType::I64, [4])];
    let made = node("PRelu", &["x", "s"], &["y"], []);
    assert_eq!(exported(&model(22, vec![made], inputs, &["y"], vec![]), None).unwrap().opset, 18);
    let inputs = vec![value_info("x", DType::F64, [4])];
    let made = node("Softplus", &["x"], &["y"], []);
    assert_eq!(exported(&model(22, vec![made], inputs, &["y"], vec![]), None).unwrap().opset, 18);
}

#[test]
fn halves_that_only_come_out_are_rounded_by_a_cast() {
    let of = |made: NodeProto, inputs: Vec<ValueInfoProto>| {
        let out = exported(&model(22, vec![made], inputs, &["y"], vec![]), None).unwrap();
        (out.opset, show(&out))
    };
    let x = vec![value_info("x", DType::I64, [2, 2])];
    let half = attr_i("dtype", DType::F16.onnx().into());
    let (_, eye) = of(node("EyeLike", &["x"], &["y"], [half]), x);
    assert_eq!(eye, ["EyeLike(x) {dtype=1}", "Cast(y/unrounded) {to=10}"]);
    let size = || vec![value_info("n", DType::I64, [0i64; 0])];
    let of_type = |dtype: DType| attr_i("output_datatype", dtype.onnx().into());
    let (opset, _) = of(node("HannWindow", &["n"], &["y"], [of_type(DType::F16)]), size());
    assert_eq!(opset, 18);
    let (_, window) = of(node("HannWindow", &["n"], &["y"], [of_type(DType::Bf16)]), size());
    assert_eq!(window, ["HannWindow(n) {output_datatype=1}", "Cast(y/unrounded) {to=16}"]);
}

#[test]
fn nodes_without_a_kernel_are_named() {
    let inputs = vec![value_info("x", DType::F64, [1, 1, 4, 4]), value_info("w", DType::F64, [1, 1, 2, 2])];
    let error =
        exported(&model(21, vec![node("Conv", &["x", "w"], &["y"], [])], inputs, &["y"], vec![]), None)
            .unwrap_err();
    assert_eq!(
        error.to_string(),
        "node `Conv_0` (Conv): ONNX Runtime has no CPU kernel for it with f64, f64"
    );
}

#[test]
fn what_is_missing_is_named() {
    let module = imported(&model(
        21,
        vec![node("Relu", &["x"], &["a"], []), node("Neg", &["a"], &["y"], [])],
        vec![value_info("x", DType::F32, [2])],
        &["y"],
        vec![],
    ))
    .module;
    let ids: Vec<NodeId> = module.graph.node_ids().collect();
    let error = segment(&module, &ids[1..], &["x"], &["y"]).unwrap_err();
    assert_eq!(error.to_string(), "node `Neg_1` uses `a`, which is neither an input nor made inside");
}

#[test]
fn bf16_is_computed_in_f32_between_casts() {
    let out = exported(
        &model(
            21,
            vec![
                node("Add", &["x", "x"], &["a"], []),
                node("Transpose", &["a"], &["t"], []),
                node("Sigmoid", &["a"], &["y"], []),
            ],
            vec![value_info("x", DType::Bf16, [2])],
            &["y", "t"],
            vec![],
        ),
        None,
    )
    .unwrap();
    assert!(out.widened.contains(&"Add_0".to_owned()) && out.widened.contains(&"Sigmoid_2".to_owned()));
    let lines = show(&out);
    assert_eq!(lines[0], "Cast(x) {to=1}");
    assert_eq!(lines[1], "Add(x/f32, x/f32) {}");
    // Rounded to bf16 before the next operator reads it.
    assert_eq!(lines[2], "Cast(a/unrounded) {to=16}");
    assert!(lines.contains(&"Cast(a) {to=1}".to_owned()), "{lines:?}");
    assert!(lines.contains(&"Sigmoid(a/f32) {}".to_owned()), "{lines:?}");
}

#[test]
fn subgraphs_keep_names_apart() {
    let body = graph(
        "body",
        [node("Add", &["v", "x"], &["t"], []), node("Identity", &["c"], &["c2"], [])],
        [scalar("i", DType::I64), scalar("c", DType::Bool), value_info("v", DType::F32, [2])],
        [scalar("c2", DType::Bool), value_info("t", DType::F32, [2]), value_info("x", DType::F32, [2])],
        [],
    );
    let proto = model(
        21,
        vec![
            node("Neg", &["x"], &["t"], []),
            node("Loop", &["n", "", "t"], &["y", "z"], [attr_g("body", body)]),
        ],
        vec![scalar("n", DType::I64), value_info("x", DType::F32, [2])],
        &["y", "z"],
        vec![],
    );
    let out = exported(&proto, None).unwrap();
    let graph = out.model.graph.unwrap();
    let body = graph.node[1].attribute[0].g.as_ref().unwrap();
    let inputs: Vec<&str> = body.input.iter().map(|info| info.name.as_deref().unwrap()).collect();
    assert_eq!(inputs, ["i", "c", "v"]);
    // The outer graph has a `t` of its own, and a captured value is no output of a subgraph.
    assert_eq!(body.node[0].input, ["v", "x"]);
    assert_eq!(body.node[0].output, ["t_2"]);
    let outputs: Vec<&str> = body.output.iter().map(|info| info.name.as_deref().unwrap()).collect();
    assert_eq!(outputs, ["c2", "t_2", "x/copy"]);
    // Counter and condition have a shape; what is carried may change its own; what is collected may not.
    assert_eq!((dims(&body.input[0]), dims(&body.input[2])), (String::new(), "..".to_owned()));
    assert_eq!((dims(&body.output[1]), dims(&body.output[2])), ("..".to_owned(), "2".to_owned()));
}

#[test]
fn outputs_that_are_inputs_constants_or_doubled_are_copied() {
    let module = imported(&model(
        21,
        vec![node("Neg", &["x"], &["y"], [])],
        vec![value_info("x", DType::F32, [1])],
        &["y"],
        vec![tensor_f32("w", &[1], &[1.0])],
    ))
    .module;
    let ids: Vec<NodeId> = module.graph.node_ids().collect();
    let out = segment(&module, &ids, &["x"], &["y", "y", "x", "w"]).unwrap();
    assert_eq!(out.outputs, ["y", "y/copy", "x/copy", "w"]);
    assert_eq!(show(&out)[1..], ["Identity(y) {}", "Identity(x) {}", "Identity([1.0]) {}"]);
}

#[test]
fn other_domains_bring_their_opset() {
    let mut proto = model(
        17,
        vec![node("com.microsoft::FastGelu", &["x"], &["a"], []), node("my::Op", &["a"], &["y"], [])],
        vec![value_info("x", DType::F32, [2])],
        &["y"],
        vec![],
    );
    proto.opset_import.push(trtc_onnx::write::opset_import("my", 4));
    let imports = |model: &ModelProto| trtc_onnx::opsets(&model.opset_import).into_iter().collect::<Vec<_>>();
    let out = exported(&proto, None).unwrap();
    let expected =
        [("", 21), ("com.microsoft", 1), ("my", 4)].map(|(domain, version)| (domain.to_owned(), version));
    assert_eq!(imports(&out.model), expected);
}

/// What was omitted at the end of a list of outputs is a part all the same.
#[test]
fn parts_that_nobody_wants_are_written() {
    let proto = model(
        21,
        vec![
            node("Split", &["x"], &["y", ""], [attr_i("num_outputs", 2)]),
            node("TopK", &["x", "k"], &["t", ""], []),
        ],
        vec![value_info("x", DType::F32, [4]), value_info("k", DType::I64, [1])],
        &["y", "t"],
        vec![],
    );
    let graph = exported(&proto, None).unwrap().model.graph.unwrap();
    assert_eq!(graph.node[0].output, ["y", "Split_0/unused"]);
    assert_eq!(graph.node[1].output, ["t", "TopK_1/unused"]);
}

#[test]
fn a_whole_model_comes_back_the_same() {
    let proto = model(
        9,
        vec![
            node("Conv", &["x", "w"], &["a"], [attr_ints("pads", &[1, 1, 1, 1])]),
            node("Clip", &["a"], &["b"], [trtc_onnx::write::attr_f("min", 0.0)]),
            node("Softmax", &["b"], &["y"], []),
        ],
        vec![value_info("x", DType::F32, ["N", "3", "8", "8"])],
        &["y"],
        vec![tensor_f32("w", &[2, 3, 3, 3], &[0.1; 54])],
    );
    let once = exported(&proto, None).unwrap();
    let twice = exported(&once.model, None).unwrap();
    assert_eq!(once.model, twice.model);
}

/// Relu, Affine (which only operator sets of old have), Neg, RMSNormalization (which only new ones have), Abs.
fn old_and_new() -> Graph {
    let tensor = || Type::tensor(DType::F32, vec![Dim::Known(2), Dim::Known(4)]);
    let mut graph = Graph::new("g");
    let mut before = graph.add_input("x", tensor());
    let scale = graph.add_constant("scale", Tensor::from_f32s(vec![4], &[1.0; 4]).unwrap());
    for (k, (op, since)) in [("Relu", 14), ("Affine", 10), ("Neg", 13), ("RMSNormalization", 23), ("Abs", 13)]
        .into_iter()
        .enumerate()
    {
        let output = graph.add_value(&format!("v{k}"), tensor());
        let inputs: Vec<Option<ValueId>> = match op {
            "RMSNormalization" => vec![Some(before), Some(scale)],
            _ => vec![Some(before)],
        };
        let node =
            Node::new(&format!("n{k}"), OpKey::new("", op), since, Attrs::new(), inputs, [Some(output)]);
        graph.add_node(node);
        before = output;
    }
    graph.add_output(before);
    graph
}

#[test]
fn nodes_that_no_opset_suits_together_are_grouped() {
    let graph = old_and_new();
    let ids: Vec<NodeId> = graph.topo_order().unwrap();
    let groups = opset_groups(&graph, &ids, &[]).unwrap();
    assert_eq!(groups, [ids[..3].to_vec(), ids[3..].to_vec()]);
    // Each group is one, and can be exported.
    assert_eq!(opset_groups(&graph, &ids[..3], &[]), None);
    assert_eq!(opset_groups(&graph, &ids[3..], &[]), None);
    let symbols = Symbols::default();
    let try_export = |nodes: &[NodeId], input: ValueId, output: ValueId| {
        export(ExportRequest {
            name: "group",
            graph: &graph,
            symbols: &symbols,
            nodes: Some(nodes),
            inputs: &[input],
            outputs: &[output],
            opset: None,
            opsets: &[],
            weights: &mut |_, _| WeightPlacement::Inline,
        })
    };
    let made = |k: usize| graph[ids[k]].outputs()[0].unwrap();
    let whole = try_export(&ids, graph.inputs()[0], made(4)).unwrap_err();
    assert!(matches!(whole, ExportError::Conflict { .. }), "{whole}");
    assert!(try_export(&ids[..3], graph.inputs()[0], made(2)).unwrap().opset <= 10);
    assert_eq!(try_export(&ids[3..], made(2), made(4)).unwrap().opset, 23);
}

#[test]
fn an_operator_that_onnx_does_not_have_is_named() {
    let proto = |domain: &str| {
        let mut own = node("Mystery", &["x"], &["y"], []).named("m");
        own.domain = Some(domain.to_owned());
        let mut proto = model(21, vec![own], vec![value_info("x", DType::F32, [2])], &["y"], vec![]);
        proto.opset_import.push(trtc_onnx::write::opset_import("their.domain", 1));
        proto
    };
    let error = exported(&proto(""), None).unwrap_err().to_string();
    assert_eq!(error, "node `m` (Mystery): ONNX Runtime has no CPU kernel for it with f32");
    // Another domain is that of whoever registers it.
    assert!(exported(&proto("their.domain"), None).is_ok());
}

/// ONNX Runtime's kernel forgets the past where nobody wants the presents.
#[test]
fn presents_of_a_past_are_written() {
    let attention = |past: &[&str]| {
        let inputs: Vec<&str> = ["x", "x", "x", "", "", ""].iter().chain(past).copied().collect();
        let made = node("com.microsoft::MultiHeadAttention", &inputs, &["y"], [attr_i("num_heads", 1)]);
        let inputs = vec![value_info("x", DType::F32, [1, 2, 4]), value_info("p", DType::F32, [1, 1, 3, 4])];
        let out = exported(&model(21, vec![made], inputs, &["y"], vec![]), None).unwrap();
        out.model.graph.unwrap().node[0].output.len()
    };
    let plain = node("Attention", &["q", "q", "q", "", "q", "q"], &["y"], []);
    let inputs = vec![value_info("q", DType::F32, [1, 1, 3, 4])];
    let out = exported(&model(23, vec![plain], inputs, &["y"], vec![]), None).unwrap();
    assert_eq!(out.model.graph.unwrap().node[0].output.len(), 3);
    assert_eq!(attention(&["p", "p"]), 3);
    assert_eq!(attention(&[]), 1);
}

#[test]
fn masks_that_may_be_shorter_than_the_keys_need_opset_25() {
    let opset = |keys: &str| {
        let made = node("Attention", &["x", "x", "x", "m"], &["y"], []);
        let inputs =
            vec![value_info("x", DType::F32, ["1", "1", "S", "4"]), value_info("m", DType::F32, ["3", keys])];
        exported(&model(24, vec![made], inputs, &["y"], vec![]), None).unwrap().opset
    };
    assert_eq!(opset("S"), 23);
    assert_eq!(opset("M"), 25);
}

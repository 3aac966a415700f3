//! Models that are wrong: one clear line each.

use super::{graph_of, model, try_import};
use trtc_bundle::DType;
use trtc_frontends::onnx::load;
use trtc_onnx::{
    AttributeProto, ModelProto, NodeProto, OnnxFile,
    write::{
        attr_f, attr_g, attr_i, attr_ints, attr_s, encode, graph, node, opset_import, tensor_f32, value_info,
    },
};

fn complaint(model: &ModelProto) -> String {
    match try_import(model) {
        Ok(_) => panic!("imported"),
        Err(diags) => {
            assert_eq!(diags.len(), 1, "{diags:?}");
            diags[0].to_string()
        }
    }
}

fn one(opset: i64, nodes: Vec<NodeProto>) -> ModelProto {
    model(opset, nodes, vec![value_info("x", DType::F32, [2, 3])], &["y"], vec![])
}

#[test]
fn values_must_be_made_once_and_before_use() {
    let missing = one(21, vec![node("Add", &["x", "foo"], &["y"], []).named("sum")]);
    assert_eq!(complaint(&missing), "node `sum` (Add): input 1 `foo` is made by nothing");

    let twice = one(21, vec![node("Relu", &["x"], &["y"], []), node("Neg", &["x"], &["y"], []).named("n")]);
    assert_eq!(complaint(&twice), "value `y` is made twice: by node `Relu_0` (Relu) and by node `n` (Neg)");

    let input = one(21, vec![node("Relu", &["x"], &["x"], []), node("Neg", &["x"], &["y"], [])]);
    assert_eq!(
        complaint(&input),
        "value `x` is made by node `Relu_0` (Relu), but it is an input or initializer too"
    );

    let cycle = one(21, vec![node("Add", &["x", "y"], &["a"], []), node("Neg", &["a"], &["y"], [])]);
    assert_eq!(complaint(&cycle), "the graph has a cycle: `Neg_1` -> `Add_0` -> `Neg_1`");

    let output = model(21, vec![], vec![value_info("x", DType::F32, [2])], &["y"], vec![]);
    assert_eq!(complaint(&output), "graph output `y` is made by nothing");

    let mut inputs = one(21, vec![node("Relu", &["x"], &["y"], [])]);
    graph_of(&mut inputs).input.push(value_info("x", DType::F32, [1]));
    assert_eq!(complaint(&inputs), "graph input `x` stands twice");
}

#[test]
fn initializers_must_fit_and_be_unique() {
    let mut short = one(21, vec![node("Add", &["x", "w"], &["y"], [])]);
    graph_of(&mut short).initializer.push(tensor_f32("w", &[4], &[1.0; 3]));
    assert_eq!(complaint(&short), "tensor `w`: f32 [4] needs 16 bytes, raw_data has 12");

    let mut negative = one(21, vec![node("Add", &["x", "w"], &["y"], [])]);
    graph_of(&mut negative).initializer.push(tensor_f32("w", &[-3], &[1.0; 3]));
    assert_eq!(complaint(&negative), "tensor `w`: shape [-3] has a negative dimension");

    let mut huge = one(21, vec![node("Add", &["x", "w"], &["y"], [])]);
    graph_of(&mut huge).initializer.push(tensor_f32("w", &[i64::MAX, 8], &[]));
    assert_eq!(
        complaint(&huge),
        "tensor `w`: shape [9223372036854775807, 8] has more elements than this machine can address"
    );

    let mut twice = one(21, vec![node("Add", &["x", "w"], &["y"], [])]);
    graph_of(&mut twice).initializer.extend([tensor_f32("w", &[1], &[1.0]), tensor_f32("w", &[1], &[2.0])]);
    assert_eq!(complaint(&twice), "initializer `w` stands twice, with different content");
    graph_of(&mut twice).initializer.pop();
    graph_of(&mut twice).initializer.push(tensor_f32("w", &[1], &[1.0]));
    assert!(try_import(&twice).is_ok());
}

#[test]
fn opsets_must_be_known() {
    let relu = || vec![node("Relu", &["x"], &["y"], [])];
    assert_eq!(
        complaint(&one(29, relu())),
        "the model imports opset 29 of ai.onnx, which is newer than the newest known one, 28"
    );
    assert_eq!(complaint(&one(0, relu())), "the model imports version 0 of ai.onnx; versions start at 1");
    let foreign = one(21, vec![node("my.domain::Thing", &["x"], &["y"], [])]);
    assert_eq!(
        complaint(&foreign),
        "operator my.domain.Thing is used, but no operator set of domain `my.domain` is imported"
    );
    let early = one(19, vec![node("Gelu", &["x"], &["y"], [])]);
    assert_eq!(
        complaint(&early),
        "node `Gelu_0` (Gelu): the operator exists since opset 20, the model imports opset 19"
    );
    // The last of repeated imports counts.
    let mut repeated = one(9, relu());
    repeated.opset_import.push(opset_import("ai.onnx", 13));
    assert_eq!(try_import(&repeated).unwrap().module.opsets, [(String::new(), 13)]);
}

#[test]
fn nodes_must_follow_their_schema() {
    let check = |nodes: Vec<NodeProto>, expected: &str| assert_eq!(complaint(&one(21, nodes)), expected);
    check(vec![node("Add", &["x"], &["y"], [])], "node `Add_0` (Add): it has 1 inputs, Add-14 takes 2");
    check(
        vec![node("Relu", &["x", "x"], &["y"], [])],
        "node `Relu_0` (Relu): it has 2 inputs, Relu-14 takes 1",
    );
    check(
        vec![node("Relu", &["x"], &["y", "z"], [])],
        "node `Relu_0` (Relu): it has 2 outputs, Relu-14 takes 1",
    );
    check(
        vec![node("Add", &["", "x"], &["y"], [])],
        "node `Add_0` (Add): A: input 0 is required by Add-14, but omitted",
    );
    check(
        vec![node("Concat", &["x"], &["y"], [])],
        "node `Concat_0` (Concat): axis: the attribute is required by Concat-13",
    );
    check(
        vec![node("Concat", &["x"], &["y"], [attr_f("axis", 1.0)])],
        "node `Concat_0` (Concat): axis: the attribute is Float, Concat-13 takes Int",
    );
    check(
        vec![node("Relu", &["x"], &["y"], [attr_i("alpha", 1)])],
        "node `Relu_0` (Relu): alpha: Relu-14 has no such attribute",
    );
    check(
        vec![node("Transpose", &["x"], &["y"], [attr_ints("perm", &[1, 0]), attr_ints("perm", &[1, 0])])],
        "node `Transpose_0` (Transpose): perm: the attribute is given twice",
    );
    let nothing = AttributeProto { name: Some("axis".into()), ..Default::default() };
    check(
        vec![node("Flatten", &["x"], &["y"], [nothing])],
        "node `Flatten_0` (Flatten): axis: the attribute has no value",
    );
    let strange = AttributeProto { name: Some("axis".into()), r#type: Some(99), ..Default::default() };
    check(
        vec![node("Flatten", &["x"], &["y"], [strange])],
        "node `Flatten_0` (Flatten): axis: attribute type 99 is not one that ONNX defines",
    );
    let unnamed = NodeProto { op_type: None, ..node("Relu", &["x"], &["y"], []) };
    check(vec![unnamed], "node `node_0` (): the node has no operator (op_type)");
    check(
        vec![node("Constant", &[], &["y"], [])],
        "node `Constant_0` (Constant): exactly one of the attributes value, sparse_value, value_float(s), value_int(s), value_string(s) must be given",
    );
    let cast = model(
        4,
        vec![node("Cast", &["x"], &["y"], [attr_s("to", "WIDE")])],
        vec![value_info("x", DType::F32, [2])],
        &["y"],
        vec![],
    );
    assert_eq!(complaint(&cast), "node `Cast_0` (Cast): to: `WIDE` is not an element type");
}

#[test]
fn everything_wrong_is_told_at_once() {
    let nodes = vec![
        node("Add", &["x", "foo"], &["a"], []),
        node("Add", &["x", "bar"], &["b"], []),
        node("Concat", &["a", "b"], &["y"], []),
    ];
    let diags = try_import(&one(21, nodes)).unwrap_err();
    let slots: Vec<&str> = diags.iter().map(|diag| diag.node.as_str()).collect();
    assert_eq!(slots, ["Add_0", "Add_1", "Concat_2"]);
}

#[test]
fn types_must_be_those_of_onnx() {
    let mut wrong = one(21, vec![node("Relu", &["x"], &["y"], [])]);
    if let Some(trtc_onnx::TypeValue::Tensor(tensor)) =
        graph_of(&mut wrong).input[0].r#type.as_mut().and_then(|ty| ty.value.as_mut())
    {
        tensor.elem_type = Some(77);
    }
    assert_eq!(complaint(&wrong), "graph input `x`: element type 77 is not one that ONNX defines");
}

#[test]
fn files_that_are_no_models_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = encode(&one(21, vec![node("Relu", &["x"], &["y"], [])])).unwrap();
    let path = folder.path().join("cut.onnx");
    std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    let said = load(&path).unwrap_err().to_string();
    assert!(said.contains("cut.onnx: not an ONNX model") && said.contains("cut off or damaged"), "{said}");
    std::fs::write(&path, b"").unwrap();
    assert!(load(&path).unwrap_err().to_string().ends_with("the file is empty"));
    assert!(load(folder.path().join("absent.onnx")).is_err());
}

/// Damaged models end in an error or a module, never in a panic.
#[test]
fn damage_never_panics() {
    let bytes =
        encode(&one(9, vec![node("Softmax", &["x"], &["a"], []), node("Clip", &["a"], &["y"], [])])).unwrap();
    for at in 0..bytes.len() {
        for change in [0u8, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = bytes.to_vec();
            damaged[at] = change;
            if let Ok(file) = OnnxFile::from_bytes(damaged, None) {
                let _ = trtc_frontends::onnx::import(&file);
            }
        }
        if let Ok(file) = OnnxFile::from_bytes(bytes.slice(..at), None) {
            let _ = trtc_frontends::onnx::import(&file);
        }
    }
}

#[test]
fn branches_take_no_inputs() {
    let value = |name: &str| value_info(name, DType::F32, [2, 3]);
    let branch = |inputs: Vec<trtc_onnx::ValueInfoProto>| {
        graph("branch", [node("Relu", &["x"], &["made"], [])], inputs, [value("made")], [])
    };
    let branches = [attr_g("then_branch", branch(vec![])), attr_g("else_branch", branch(vec![value("x")]))];
    let mut fed = one(21, vec![node("If", &["c"], &["y"], branches).named("if")]);
    graph_of(&mut fed).input.push(value_info("c", DType::Bool, Vec::<i64>::new()));
    assert_eq!(complaint(&fed), "node `if` (If): else_branch: a branch takes no inputs, this one has 1");
}

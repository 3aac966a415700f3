//! Values, types, names and constants.

use super::{graph_of, imported, model, show, type_of, value};
use trtc_bundle::DType;
use trtc_ir::{Dim, Type};
use trtc_onnx::{
    DimValue, Dimension, MapType, OnnxFile, SequenceType, SparseTensorProto, StringStringEntryProto,
    TensorProto, TypeProto, TypeValue,
    write::{
        attr_f, attr_floats, attr_i, attr_ints, attr_s, attr_strings, attr_t, encode, node, tensor_f32,
        tensor_i64, tensor_type, typed_value, value_info,
    },
};

#[test]
fn dims_become_numbers_and_symbols() {
    let negative = Dimension { value: Some(DimValue::Value(-1)), denotation: None };
    let dims: [Dimension; 6] = ["N".into(), 3.into(), "?".into(), "".into(), negative, 0.into()];
    let mut proto = model(
        21,
        vec![node("Relu", &["x"], &["y"], []), node("NonZero", &["x"], &["z"], [])],
        vec![value_info("x", DType::F32, dims), value_info("w", DType::F32, ["N", "H"])],
        &["y"],
        vec![],
    );
    let graph = graph_of(&mut proto);
    graph.value_info.push(value_info("z", DType::I64, [Dimension::from(6), "found".into()]));
    graph.output[0] = value_info("y", DType::F32, ["N", "", "", "", "", ""]);
    let module = imported(&proto).module;
    let show = |name: &str| type_of(&module.graph, &module.symbols, name);
    assert_eq!(show("x"), "f32[N x 3 x x.2 x x.3 x x.4 x 0]");
    assert_eq!(show("w"), "f32[N x H]");
    assert_eq!(show("y"), "f32[N x ? x ? x ? x ? x ?]");
    // A symbol that no input has is one that only the run decides.
    assert_eq!(show("z"), "i64[6 x found]");
    let info = |name: &str| module.symbols.info(module.symbols.find(name).unwrap()).unwrap();
    assert!(!info("N").unbacked && !info("x.2").unbacked && info("found").unbacked);
    assert_eq!(info("N").range.min, Some(0));
}

#[test]
fn types_besides_tensors_are_kept() {
    let tensor = |dtype| tensor_type(dtype, Some(["N"]));
    let of = |value: TypeValue| TypeProto { value: Some(value), denotation: None };
    let boxed = |ty: TypeProto| Some(Box::new(ty));
    let sequence = of(TypeValue::Sequence(Box::new(SequenceType { elem_type: boxed(tensor(DType::F32)) })));
    let map = of(TypeValue::Map(Box::new(MapType {
        key_type: Some(DType::I64.onnx()),
        value_type: boxed(tensor_type(DType::F32, None::<[i64; 0]>)),
    })));
    let optional =
        of(TypeValue::Optional(Box::new(trtc_onnx::OptionalType { elem_type: boxed(sequence.clone()) })));
    let module = imported(&model(
        21,
        vec![node("SequenceLength", &["s"], &["y"], [])],
        vec![typed_value("s", sequence), typed_value("m", map), typed_value("o", optional)],
        &["y"],
        vec![],
    ))
    .module;
    let show = |name: &str| type_of(&module.graph, &module.symbols, name);
    assert_eq!(show("s"), "seq(f32[N])");
    assert_eq!(show("m"), "map(i64, f32[..])");
    assert_eq!(show("o"), "opt(seq(f32[N]))");
}

#[test]
fn constant_nodes_become_constants_in_every_form() {
    let sparse = SparseTensorProto {
        values: Some(tensor_f32("", &[2], &[5.0, 7.0])),
        indices: Some(tensor_i64("", &[2], &[0, 3])),
        dims: vec![2, 2],
    };
    let sparse = trtc_onnx::AttributeProto {
        name: Some("sparse_value".into()),
        r#type: Some(11),
        sparse_tensor: Some(Box::new(sparse)),
        ..Default::default()
    };
    let attrs = [
        attr_t("value", tensor_i64("", &[2], &[4, -5])),
        attr_f("value_float", 1.5),
        attr_floats("value_floats", &[1.5, 2.5]),
        attr_i("value_int", -3),
        attr_ints("value_ints", &[1, 2, 3]),
        attr_s("value_string", "a"),
        attr_strings("value_strings", &["a", "b"]),
        sparse,
    ];
    let nodes =
        attrs.into_iter().enumerate().map(|(k, attr)| node("Constant", &[], &[&format!("c{k}")], [attr]));
    let import = imported(&model(21, nodes.collect(), vec![], &["c0"], vec![]));
    assert!(import.sources.iter().all(|source| source.nodes.is_empty() && source.op == "Constant"));
    assert_eq!(import.sources[3].name, "Constant_3");
    let graph = &import.module.graph;
    assert_eq!(graph.node_count(), 0);
    let constant = |k: usize| graph[value(graph, &format!("c{k}"))].constant.clone().unwrap();
    let shapes: Vec<(DType, Vec<i64>)> =
        (0..8).map(|k| (constant(k).dtype(), constant(k).dims().to_vec())).collect();
    let expected = [
        (DType::I64, vec![2]),
        (DType::F32, vec![]),
        (DType::F32, vec![2]),
        (DType::I64, vec![]),
        (DType::I64, vec![3]),
        (DType::Str, vec![]),
        (DType::Str, vec![2]),
        (DType::F32, vec![2, 2]),
    ];
    assert_eq!(shapes, expected);
    assert_eq!(constant(0).to_i64s().unwrap(), [4, -5]);
    assert_eq!(constant(7).to_f64s().unwrap(), [5.0, 0.0, 0.0, 7.0]);
}

#[test]
fn an_input_with_an_initializer_is_a_constant() {
    let module = imported(&model(
        8,
        vec![node("Add", &["x", "w"], &["y"], [])],
        vec![value_info("x", DType::F32, [2]), value_info("w", DType::F32, [2])],
        &["y"],
        vec![tensor_f32("w", &[2], &[1.0, 2.0])],
    ))
    .module;
    assert_eq!(module.graph.inputs().len(), 1);
    assert_eq!(show(&module.graph), ["y = Add-14(x, [1.0, 2.0])"]);
}

#[test]
fn weights_stay_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(folder.path().join("w.bin"), [0u8; 64]).unwrap();
    let inside = tensor_f32("a", &[8], &[0.5; 8]);
    let outside = TensorProto::external("b", DType::F32, &[8], "w.bin", 16, 32);
    let proto = model(
        21,
        vec![node("Add", &["a", "b"], &["c"], []), node("Add", &["x", "c"], &["y"], [])],
        vec![value_info("x", DType::F32, [8])],
        &["y"],
        vec![inside, outside],
    );
    std::fs::write(&path, encode(&proto).unwrap()).unwrap();
    let file = OnnxFile::open(&path).unwrap();
    let graph = trtc_frontends::onnx::import(&file).unwrap().module.graph;
    let place = |name: &str| {
        let tensor = graph[value(&graph, name)].constant.clone().unwrap();
        file.locate(tensor.bytes().unwrap()).unwrap()
    };
    assert_eq!(place("a").0.path(), path);
    let (file, range) = place("b");
    assert_eq!((file.path().file_name().unwrap().to_str(), range), (Some("w.bin"), 16..48));
}

#[test]
fn names_are_unique_and_given_ones_kept() {
    let nodes = vec![
        node("Relu", &["x"], &["a"], []),
        node("Relu", &["a"], &["b"], []).named("same"),
        node("Relu", &["b"], &["c"], []).named("same"),
        node("Relu", &["c"], &["y"], []).named("Relu_0"),
    ];
    let import = imported(&model(21, nodes, vec![value_info("x", DType::F32, [1])], &["y"], vec![]));
    let names: Vec<&str> = import.sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["Relu_0_2", "same", "same_2", "Relu_0"]);
}

#[test]
fn order_need_not_be_topological() {
    let nodes = vec![node("Neg", &["a"], &["y"], []), node("Relu", &["x"], &["a"], [])];
    let import = imported(&model(21, nodes, vec![value_info("x", DType::F32, [1])], &["y"], vec![]));
    assert_eq!(show(&import.module.graph), ["a = Relu-14(x)", "y = Neg-13(a)"]);
}

#[test]
fn metadata_and_origin_are_kept() {
    let mut proto = model(
        21,
        vec![node("Relu", &["x"], &["y"], [])],
        vec![value_info("x", DType::F32, [1])],
        &["y"],
        vec![],
    );
    proto.metadata_props.push(StringStringEntryProto { key: Some("k".into()), value: Some("v".into()) });
    let module = imported(&proto).module;
    assert_eq!(module.metadata, [("k".to_owned(), "v".to_owned())]);
    assert!(module.origin.contains(&("ir_version".to_owned(), "10".to_owned())));
    let y = value(&module.graph, "y");
    assert_eq!(module.graph[y].ty, Type::tensor(DType::F32, vec![Dim::Unknown]));
}

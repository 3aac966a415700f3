//! Schemas against ONNX's changelog, kernels against what ONNX Runtime said about each node.

use trtc_bundle::DType::{self, *};
use trtc_onnx::{
    AttributeType,
    kernels::{self, Support},
    schema::{self, DefaultValue, MAX_OPSET, ParamKind, Schema},
};

#[test]
fn versions_are_those_of_the_changelog() {
    assert_eq!(schema::history("", "Squeeze"), [1, 11, 13, 21, 23, 24, 25]);
    assert_eq!(schema::history("ai.onnx", "Relu"), [1, 6, 13, 14]);
    assert_eq!(schema::history("ai.onnx.ml", "TreeEnsembleRegressor"), [1, 3, 5]);
    assert!(schema::history("", "NoSuchOperator").is_empty());
    for (op_type, opset, since) in
        [("Squeeze", 12, Some(11)), ("Squeeze", 13, Some(13)), ("Relu", 28, Some(14)), ("Gelu", 19, None)]
    {
        assert_eq!(schema::since_version("", op_type, opset), since, "{op_type} {opset}");
    }
    let newest = schema::operators()
        .into_iter()
        .filter(|(domain, _)| domain.is_empty())
        .flat_map(|(domain, op_type)| schema::history(domain, op_type).last());
    assert_eq!(newest.max(), Some(&MAX_OPSET));
}

#[test]
fn forms_are_those_of_the_specification() {
    let find = |op_type, since| schema::lookup("", op_type, since).unwrap();
    assert!(find("Upsample", 10).deprecated && !find("Upsample", 9).deprecated);
    assert!(schema::lookup("", "Upsample", 8).is_none());
    assert!(find("Gelu", 20).function && !find("Conv", 11).function);

    // LeakyRelu: alpha defaults to 0.01. Concat: axis is required since 4.
    let alpha = find("LeakyRelu", 16).attribute("alpha").unwrap();
    assert_eq!((alpha.kind, alpha.required), (AttributeType::Float, false));
    assert_eq!(alpha.default, Some(DefaultValue::Float(0.01)));
    let axis = find("Concat", 13).attribute("axis").unwrap();
    assert_eq!((axis.kind, axis.required, &axis.default), (AttributeType::Int, true, &None));
    assert!(!find("Concat", 1).attribute("axis").unwrap().required);
    let activations = find("RNN", 14).attribute("activations").unwrap();
    assert_eq!(activations.default, Some(DefaultValue::Strings(vec!["Tanh", "Tanh"])));

    // Clip took min and max as attributes until 11, then as optional inputs.
    assert!(find("Clip", 6).attribute("min").is_some() && find("Clip", 6).max_inputs == 1);
    assert!(find("Clip", 11).attribute("min").is_none());
    assert_eq!(find("Clip", 11).input(2).unwrap().kind, ParamKind::Optional);
    let concat = find("Concat", 13);
    assert_eq!((concat.min_inputs, concat.max_inputs), (1, usize::MAX));
    assert_eq!(concat.input(9), concat.input(0));
    assert_eq!(find("Conv", 11).input(3), None);
}

#[test]
fn types_gate_versions() {
    // Relu takes integers since 14 only.
    let allows =
        |since, dtype| schema::lookup("", "Relu", since).unwrap().allows(&[Some(dtype)], &[Some(dtype)]);
    assert!(allows(13, F32) && !allows(13, I8) && allows(14, I8));
    let gather = schema::lookup("", "Gather", 13).unwrap();
    assert!(gather.allows(&[Some(Str), Some(I32)], &[None]));
    assert!(!gather.allows(&[Some(F32), Some(F32)], &[]));
    assert!(!gather.allows(&[Some(F32)], &[]), "too few inputs");
    assert!(!gather.allows(&[Some(F32), Some(I64), None], &[]), "too many inputs");
    assert_eq!(gather.bound("Tind", &[Some(F32), Some(I64)], &[]), Some(I64));
    assert_eq!(gather.bound("indices", &[Some(F32), Some(I64)], &[]), Some(I64));
    let sequence = schema::lookup("", "SplitToSequence", 11).unwrap();
    let set = sequence.types.iter().find(|(name, _)| *name == "S").unwrap().1;
    assert!(set.has_sequence(F32) && !set.has(F32) && !set.has_other());
}

fn row_types(column: &str) -> Vec<Option<DType>> {
    column.split(',').filter(|name| !name.is_empty()).map(DType::from_name).collect()
}

fn support(schema: &Schema, inputs: &[Option<DType>], outputs: &[Option<DType>]) -> Support {
    let type_of = |name: &str| schema.bound(name, inputs, outputs);
    kernels::support(schema.domain, schema.op_type, schema.since_version, &type_of)
}

#[test]
fn kernels_are_those_that_onnx_runtime_finds() {
    let table = include_str!("cpu_sessions.tsv");
    let (mut rows, mut wrong) = (0, Vec::new());
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let columns: Vec<&str> = row.split('\t').collect();
        let [domain, op_type, since, inputs, outputs, runs] = columns[..] else { panic!("{row}") };
        let schema = schema::lookup(domain, op_type, since.parse().unwrap()).expect(row);
        let (inputs, outputs) = (row_types(inputs), row_types(outputs));
        if (support(schema, &inputs, &outputs) != Support::None) != (runs == "yes") {
            wrong.push(row);
        }
        assert!(schema.allows(&inputs, &outputs), "{row}");
        rows += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(rows > 600);
}

#[test]
fn functions_expand_where_onnx_runtime_expands_them() {
    let table = include_str!("function_sessions.tsv");
    let (mut rows, mut wrong) = (0, Vec::new());
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let columns: Vec<&str> = row.split('\t').collect();
        let [op_type, since, dtype, measured] = columns[..] else { panic!("{row}") };
        let since = since.parse().unwrap();
        let dtype = DType::from_name(dtype).unwrap();
        let schema = schema::lookup("", op_type, since).expect(row);
        let mut formals = schema.inputs.iter().chain(&schema.outputs).map(|param| param.type_name);
        let first = formals.find(|name| schema.types.iter().any(|(ty, _)| ty == name)).unwrap();
        let first_port = schema.inputs.iter().chain(&schema.outputs).find(|p| p.type_name == first).unwrap();
        // Other parameters are what the script took.
        let type_of = |name: &str| {
            if name == first || name == first_port.name {
                return Some(dtype);
            }
            let set = schema.types.iter().find(|(ty, _)| *ty == name)?.1;
            let own = Some(dtype).filter(|dtype| dtype.is_float());
            own.into_iter().chain([I64, F32]).find(|&dtype| set.has(dtype))
        };
        let ours = kernels::form_opsets("", op_type, since, &type_of);
        let ours: Vec<String> = ours.iter().filter(|n| (7..=27).contains(n)).map(|n| n.to_string()).collect();
        let ours = if ours.is_empty() { "-".to_owned() } else { ours.join(",") };
        if ours != measured {
            wrong.push(format!("{row}, not {ours}"));
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(rows > 300);
}

#[test]
fn segments_go_down_to_where_kernels_are() {
    let f32s = |_: &str| Some(F32);
    // Version 22 has no kernel: the opsets of version 16 are 16 to 21.
    let versions = || schema::history("", "RoiAlign").iter().copied();
    let opsets = kernels::host_opsets("", "RoiAlign", versions(), &|name| (name == "T1").then_some(F32));
    assert_eq!(opsets.iter().collect::<Vec<_>>(), (10..=21).collect::<Vec<_>>());
    assert!(kernels::host_opsets("", "ImageDecoder", [20], &|_| None).is_empty());
    assert!(kernels::host_opsets("my.domain", "MyOp", [1], &f32s).contains(21));
    assert!(kernels::cpu_kernel("", "Constant", 13, &f32s));
    let one = |op_type, since, dtype| {
        support(schema::lookup("", op_type, since).unwrap(), &[Some(dtype), Some(dtype)], &[Some(dtype)])
    };
    assert_eq!(one("Add", 14, F32), Support::Kernel);
    assert_eq!(one("Add", 14, F16), Support::WidenedHalf);
    assert_eq!(one("Add", 14, Bf16), Support::None);
    assert_eq!(one("Conv", 11, F64), Support::None);
    assert_eq!(one("Swish", 24, F32), Support::Function);
    assert_eq!(one("Softmax", 13, Bf16), Support::None);
}

#[test]
fn bodies_of_opset_18_are_expanded_up_to_it() {
    let opsets = |op_type, dtype| {
        let versions = schema::history("", op_type).iter().copied();
        let found = kernels::host_opsets("", op_type, versions, &|name| (name == "T").then_some(dtype));
        found.iter().collect::<Vec<_>>()
    };
    assert_eq!(opsets("PRelu", I64), [16, 17, 18]);
    assert_eq!(opsets("Mish", F64), [18]);
    let half = |name: &str| (name == "T2").then_some(F16);
    assert_eq!(kernels::host_opsets("", "HannWindow", [17], &half).iter().collect::<Vec<_>>(), [17, 18]);
    assert!(opsets("PRelu", F32).contains(&21) && opsets("Relu", I32).contains(&21));
}

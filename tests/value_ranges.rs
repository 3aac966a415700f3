//! Sizes that are elements of an integer input with a range (`--value`): engines are built with a profile of the values, and
//! run at several of them with ONNX Runtime's results; what lies outside is refused before the run.
#![cfg(feature = "tensorrt")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::path::{Path, PathBuf};
use trtc::{Bundle, Options, Quiet, Report};
use trtc_bundle::DType;
use trtc_onnx::{ModelProto, NodeProto, TensorProto, write::*};
use trtc_runtime::{
    Input, Mode, Session, SessionOptions, Tensor, Value,
    host::{ModelSource, OrtBackend, OrtOptions},
};

type Dims = &'static [&'static str];
/// Sizes of symbols, and values of inputs.
type Given = (Vec<(&'static str, i64)>, Vec<Vec<i64>>);

/// A model of a few nodes that make `y`, and what it is given.
struct Case {
    name: &'static str,
    opset: i64,
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
    /// Inputs of f32.
    data: Vec<(&'static str, Dims)>,
    /// Inputs of sizes, with the number of their elements; none for a scalar.
    sizes: Vec<(&'static str, DType, Option<i64>)>,
    options: Vec<(&'static str, &'static str)>,
    /// Whether all of it runs in an engine.
    engine: bool,
    outputs: Vec<(&'static str, DType)>,
    /// For each run: sizes of the symbols in `data`, values of `sizes`.
    runs: Vec<Given>,
}

impl Case {
    fn new(name: &'static str, nodes: Vec<NodeProto>) -> Case {
        Case {
            name,
            opset: 18,
            nodes,
            constants: Vec::new(),
            data: Vec::new(),
            sizes: Vec::new(),
            options: Vec::new(),
            engine: true,
            outputs: vec![("y", DType::F32)],
            runs: Vec::new(),
        }
    }

    fn of(
        op: &'static str,
        inputs: &[&str],
        attrs: impl IntoIterator<Item = trtc_onnx::AttributeProto>,
    ) -> Case {
        Case::new(op, vec![node(op, inputs, &["y"], attrs)])
    }

    fn named(mut self, name: &'static str) -> Case {
        self.name = name;
        self
    }

    fn x(mut self, dims: Dims) -> Case {
        self.data.push(("x", dims));
        self
    }

    fn list(mut self, name: &str, values: &[i64]) -> Case {
        self.constants.push(tensor_i64(name, &[values.len() as i64], values));
        self
    }

    fn scalar(mut self, name: &str, value: i64) -> Case {
        self.constants.push(tensor_i64(name, &[], &[value]));
        self
    }

    /// An input of `n` elements with its option.
    fn sizes(mut self, name: &'static str, n: i64, value: &'static str) -> Case {
        self.sizes.push((name, DType::I64, Some(n)));
        self.options.push(("value", value));
        self
    }

    fn size(mut self, name: &'static str, value: &'static str) -> Case {
        self.sizes.push((name, DType::I64, None));
        self.options.push(("value", value));
        self
    }

    fn shape(mut self, shape: &'static str) -> Case {
        self.options.push(("shape", shape));
        self
    }

    fn on_host(mut self) -> Case {
        self.engine = false;
        self
    }

    fn output(mut self, dtype: DType) -> Case {
        self.outputs[0].1 = dtype;
        self
    }

    fn opset(mut self, opset: i64) -> Case {
        self.opset = opset;
        self
    }

    fn run<const N: usize>(self, values: [&[i64]; N]) -> Case {
        self.run_at([], values)
    }

    fn run_at<const S: usize, const N: usize>(
        mut self,
        symbols: [(&'static str, i64); S],
        values: [&[i64]; N],
    ) -> Case {
        self.runs.push((symbols.to_vec(), values.iter().map(|list| list.to_vec()).collect()));
        self
    }
}

fn cases() -> Vec<Case> {
    let s = |name: &str| node("Shape", &["x"], &[name], []);
    vec![
        Case::of("Reshape", &["x", "to"], [])
            .x(&["12", "4"])
            .sizes("to", 2, "to=2..4..12,-1")
            .run([&[2, -1]])
            .run([&[4, -1]])
            .run([&[12, -1]]),
        Case::of("Reshape", &["x", "to"], [])
            .named("Reshape that follows a dim")
            .x(&["N", "6"])
            .shape("x=1..2..4x6")
            .sizes("to", 2, "to=2..4..8,3")
            .run_at([("N", 1)], [&[2, 3]])
            .run_at([("N", 4)], [&[8, 3]]),
        Case::of("Reshape", &["x", "to"], [])
            .named("Reshape with two sizes of the run")
            .x(&["N", "M"])
            .shape("x=1..2..4x2..3..5")
            .sizes("to", 3, "to=2..3..5,1,1..2..4")
            .run_at([("N", 1), ("M", 2)], [&[2, 1, 1]])
            .run_at([("N", 4), ("M", 5)], [&[5, 1, 4]]),
        Case::of("Reshape", &["x", "to"], [])
            .named("Reshape left to the model")
            .x(&["N", "6"])
            .shape("x=1..2..4x6")
            .sizes("to", 2, "to=?,3")
            .run_at([("N", 1)], [&[2, 3]])
            .run_at([("N", 3)], [&[6, 3]]),
        Case::of("Expand", &["x", "to"], [])
            .x(&["3", "1"])
            .sizes("to", 3, "to=2..3..5,3,1..4..8")
            .run([&[2, 3, 1]])
            .run([&[5, 3, 8]]),
        Case::of("Tile", &["x", "repeats"], [])
            .x(&["2", "3"])
            .sizes("repeats", 2, "repeats=1,1..2..5")
            .run([&[1, 1]])
            .run([&[1, 4]]),
        Case::of("Slice", &["x", "starts", "ends", "axes"], [])
            .x(&["8", "6"])
            .list("axes", &[0])
            .sizes("starts", 1, "starts=0..1..3")
            .sizes("ends", 1, "ends=4..5..8")
            .run([&[0], &[4]])
            .run([&[3], &[8]])
            .run([&[2], &[7]]),
        Case::of("Slice", &["x", "starts", "ends"], [])
            .named("Slice from the end")
            .x(&["8", "6"])
            .list("starts", &[-2, 0])
            .sizes("ends", 2, "ends=100,2..3..6")
            .run([&[100, 2]])
            .run([&[100, 6]]),
        Case::of("Slice", &["x", "starts", "ends"], [])
            .named("Slice beyond the end")
            .x(&["8"])
            .list("starts", &[2])
            .sizes("ends", 1, "ends=3..9..20")
            .run([&[3]])
            .run([&[8]])
            .run([&[20]]),
        Case::of("Pad", &["x", "pads"], [])
            .x(&["4", "5"])
            .sizes("pads", 4, "pads=0..1..3,0,0..2..4,1")
            .run([&[0, 0, 0, 1]])
            .run([&[3, 0, 4, 1]])
            .run([&[1, 0, 2, 1]]),
        Case::of("Pad", &["x", "pads"], [attr_s("mode", "reflect")])
            .named("Pad reflect")
            .x(&["4", "5"])
            .sizes("pads", 4, "pads=0..1..3,0,1,0..2..4")
            .run([&[0, 0, 1, 0]])
            .run([&[3, 0, 1, 4]]),
        Case::of("Resize", &["x", "", "", "sizes"], [attr_s("mode", "nearest")])
            .x(&["1", "3", "8", "8"])
            .sizes("sizes", 4, "sizes=1,3,4..16..32,4..8..20")
            .run([&[1, 3, 4, 4]])
            .run([&[1, 3, 13, 20]]),
        Case::of("Resize", &["x", "", "", "sizes"], [attr_s("mode", "linear")])
            .named("Resize linear")
            .x(&["1", "3", "8", "8"])
            .sizes("sizes", 4, "sizes=1,3,4..16..32,4..8..20")
            .run([&[1, 3, 4, 4]])
            .run([&[1, 3, 13, 20]]),
        Case::new("TopK", vec![node("TopK", &["x", "k"], &["y", "at"], [])])
            .x(&["3", "9"])
            .sizes("k", 1, "k=1..3..6")
            .run([&[1]])
            .run([&[6]]),
        Case::of("Range", &["start", "k", "delta"], [])
            .scalar("start", 0)
            .scalar("delta", 2)
            .size("k", "k=2..5..9")
            .output(DType::I64)
            .run([&[2]])
            .run([&[9]]),
        Case::of("ConstantOfShape", &["to"], [attr_t("value", tensor_f32("v", &[1], &[1.5]))])
            .sizes("to", 2, "to=1..2..4,3")
            .run([&[1, 3]])
            .run([&[4, 3]]),
        Case::new(
            "OneHot",
            vec![
                node("ArgMax", &["x"], &["at"], [attr_i("axis", 1), attr_i("keepdims", 0)]),
                node("OneHot", &["at", "k", "values"], &["y"], []),
            ],
        )
        .x(&["4", "3"])
        .list("values", &[2, 7])
        .size("k", "k=3..5..9")
        .output(DType::I64)
        .run([&[3]])
        .run([&[8]]),
        Case {
            outputs: vec![("y", DType::F32), ("z", DType::F32)],
            ..Case::new("Split", vec![node("Split", &["x", "parts"], &["y", "z"], [])])
        }
        .x(&["N", "2"])
        .shape("x=4..5..7x2")
        .sizes("parts", 2, "parts=1..2..4,3")
        .run_at([("N", 4)], [&[1, 3]])
        .run_at([("N", 7)], [&[4, 3]]),
        Case::of("CenterCropPad", &["x", "to"], [])
            .x(&["5", "6"])
            .sizes("to", 2, "to=2..4..9,3..5..8")
            .run([&[2, 3]])
            .run([&[9, 8]])
            .run([&[4, 7]]),
        Case::of("AffineGrid", &["x", "size"], [])
            .opset(20)
            .x(&["1", "2", "3"])
            .sizes("size", 4, "size=1,1,2..3..5,4")
            .on_host()
            .run([&[1, 1, 2, 4]])
            .run([&[1, 1, 5, 4]]),
        Case::of("HannWindow", &["size"], []).size("size", "size=3..5..9").on_host().run([&[3]]).run([&[8]]),
        Case::new(
            "arithmetic of sizes",
            vec![
                s("own"),
                node("Slice", &["own", "zero", "one"], &["rows"], []),
                node("Mul", &["k", "two"], &["twice"], []),
                node("Concat", &["twice", "rows", "minus"], &["to"], [attr_i("axis", 0)]),
                node("Expand", &["x", "wide"], &["e"], []),
                node("Add", &["e", "e"], &["f"], []),
                node("Concat", &["twice", "own"], &["wide"], [attr_i("axis", 0)]),
                node("Reshape", &["f", "to"], &["y"], []),
            ],
        )
        .x(&["N", "6"])
        .shape("x=1..2..4x6")
        .list("zero", &[0])
        .list("one", &[1])
        .list("two", &[2])
        .list("minus", &[-1])
        .sizes("k", 1, "k=1..2..3")
        .run_at([("N", 1)], [&[3]])
        .run_at([("N", 4)], [&[2]]),
        Case {
            sizes: vec![("k", DType::I32, None)],
            options: vec![("value", "k=1..4..8"), ("shape", "x=2x1..4..8")],
            ..Case::new(
                "a mask of a length",
                vec![
                    node("Cast", &["k"], &["wide"], [attr_i("to", 7)]),
                    node("Range", &["zero", "wide", "one"], &["line"], []),
                    node("Cast", &["line"], &["float"], [attr_i("to", 1)]),
                    node("Add", &["x", "float"], &["y"], []),
                ],
            )
        }
        .x(&["2", "N"])
        .scalar("zero", 0)
        .scalar("one", 1)
        .run_at([("N", 1)], [&[1]])
        .run_at([("N", 7)], [&[7]]),
    ]
}

fn model_of(case: &Case) -> ModelProto {
    let dim = |dim: &&str| dim.parse::<i64>().map_or_else(|_| (*dim).into(), trtc_onnx::Dimension::from);
    let mut inputs: Vec<_> = case
        .data
        .iter()
        .map(|(name, dims)| value_info(name, DType::F32, dims.iter().map(dim).collect::<Vec<_>>()))
        .collect();
    for (name, dtype, count) in &case.sizes {
        inputs.push(value_info(name, *dtype, count.iter().copied().collect::<Vec<i64>>()));
    }
    let mut outputs = Vec::new();
    for (name, dtype) in &case.outputs {
        outputs.push(typed_value(name, tensor_type(*dtype, None::<Vec<i64>>)));
    }
    let nodes = in_order(case.nodes.clone());
    model(case.opset, graph("g", nodes, inputs, outputs, case.constants.clone()))
}

/// Nodes before their users.
fn in_order(mut nodes: Vec<NodeProto>) -> Vec<NodeProto> {
    let mut sorted: Vec<NodeProto> = Vec::new();
    while !nodes.is_empty() {
        let made = |name: &String, left: &[NodeProto]| !left.iter().any(|node| node.output.contains(name));
        let at = (0..nodes.len()).find(|&k| nodes[k].input.iter().all(|name| made(name, &nodes))).unwrap();
        sorted.push(nodes.remove(at));
    }
    sorted
}

fn floats(dims: &[usize]) -> Tensor {
    let values: Vec<f32> =
        (0..dims.iter().product()).map(|k: usize| ((k * 7) % 11) as f32 * 0.25 - 1.0).collect();
    Tensor::from_slice(dims, &values).unwrap()
}

fn given(case: &Case, run: &Given) -> Vec<(String, Value)> {
    let (symbols, lists) = run;
    let dim = |dim: &&str| {
        let symbol = || symbols.iter().find(|(name, _)| name == dim).map(|(_, size)| *size);
        dim.parse::<i64>().ok().or_else(symbol).unwrap() as usize
    };
    let mut values = Vec::new();
    for (name, dims) in &case.data {
        let dims: Vec<usize> = dims.iter().map(dim).collect();
        values.push((name.to_string(), Value::Tensor(floats(&dims))));
    }
    for ((name, dtype, count), list) in case.sizes.iter().zip(lists) {
        let dims: Vec<usize> = count.iter().map(|&n| n as usize).collect();
        let tensor = match dtype {
            DType::I64 => Tensor::from_slice(&dims, list).unwrap(),
            _ => Tensor::from_slice(&dims, &list.iter().map(|&v| v as i32).collect::<Vec<_>>()).unwrap(),
        };
        values.push((name.to_string(), Value::Tensor(tensor)));
    }
    values
}

fn run(session: &Session, values: &[(String, Value)]) -> Result<Vec<Tensor>, String> {
    let inputs: Vec<(&str, Input<'_>)> =
        values.iter().map(|(name, value)| (name.as_str(), value.into())).collect();
    let outputs = session.run(&inputs).map_err(|error| error.to_string())?;
    Ok(outputs.iter().map(|(_, value)| value.as_tensor().unwrap().clone()).collect())
}

fn same(a: &Tensor, b: &Tensor) -> bool {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5;
    (a.dtype(), a.dims()) == (b.dtype(), b.dims())
        && match (a.as_slice::<f32>(), b.as_slice::<f32>()) {
            (Some(a), Some(b)) => a.iter().zip(b).all(near),
            _ => a.bytes() == b.bytes(),
        }
}

fn compiled(
    folder: &Path,
    model: &ModelProto,
    options: &[(&str, &str)],
) -> Result<(PathBuf, Report), String> {
    let (path, out) = (folder.join("m.onnx"), folder.join("m.trtc"));
    std::fs::write(&path, encode(model).unwrap()).unwrap();
    let mut made =
        Options::default().target("rtx-1.7:sm89".parse().unwrap()).worker(env!("CARGO_BIN_EXE_trtc"));
    for &(kind, text) in options {
        made = if kind == "value" { made.value(text) } else { made.shape(text) };
    }
    let report = trtc::compile(&path, &out, &made, &Quiet).map_err(|error| error.to_string())?;
    Ok((out, report))
}

fn sessions(out: &Path) -> Result<Vec<(Session, &'static str)>, String> {
    let bundle = Bundle::open(out).unwrap();
    let segments = || SessionOptions::default().optimize(false).mode(Mode::Segments);
    let raised = trtc::raised_networks(&bundle, 0).map_err(|error| error.to_string())?;
    let networks =
        raised.into_iter().fold(segments(), |options, (id, model)| options.twin_override(id, model));
    let whole = SessionOptions::default().mode(Mode::WholeModel);
    [(segments(), "segments"), (networks, "networks"), (whole, "whole model")]
        .into_iter()
        .map(|(options, how)| Session::new(&bundle, &options).map(|session| (session, how)))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

fn check(case: &Case, folder: &Path) -> Result<(), String> {
    let proto = model_of(case);
    let bytes = encode(&proto).unwrap();
    let plain = SessionOptions::default().optimize(false);
    let reference = Session::of_model(ModelSource::Bytes { model: &bytes, folder: None }, &plain)
        .map_err(|error| format!("reference: {error}"))?;
    let (out, report) = compiled(folder, &proto, &case.options)?;
    let target = &report.targets[0];
    if !target.failures.is_empty() {
        return Err(format!("the builder refused: {:?}", target.failures));
    }
    if (target.totals.host_nodes == 0) != case.engine {
        let rows =
            target.nodes.iter().map(|row| format!("{} {:?} {:?}", row.name, row.placement, row.reason));
        return Err(format!("placed otherwise: {}", rows.collect::<Vec<_>>().join("; ")));
    }
    for (session, how) in sessions(&out)? {
        for given_run in &case.runs {
            let values = given(case, given_run);
            let expected = run(&reference, &values).map_err(|error| format!("reference: {error}"))?;
            let got = run(&session, &values).map_err(|error| format!("{how} at {given_run:?}: {error}"))?;
            if expected.len() != got.len() || !expected.iter().zip(&got).all(|(a, b)| same(a, b)) {
                return Err(format!("{how} at {given_run:?}: {got:?} instead of {expected:?}"));
            }
        }
    }
    Ok(())
}

fn is_here() -> bool {
    let here = OrtBackend::load(&OrtOptions::default()).is_ok();
    if !here {
        println!("skipped: ONNX Runtime is not here (run `make sdk`)");
    }
    here
}

#[test]
fn sizes_of_inputs_are_right_at_several_values() {
    if !is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let wrong: Vec<String> = cases()
        .iter()
        .filter_map(|case| check(case, folder.path()).err().map(|why| format!("{}: {why}", case.name)))
        .collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn values_outside_of_the_range_are_refused_before_the_run() {
    if !is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let case = Case::of("Expand", &["x", "to"], []).x(&["3", "1"]).sizes("to", 2, "to=3,1..4..8");
    let (out, report) = compiled(folder.path(), &model_of(&case), &case.options).unwrap();
    assert_eq!(report.ranges, ["to[1]: 1..4..8 (user)"]);
    for (session, _) in sessions(&out).unwrap() {
        let said =
            |list: &[i64]| run(&session, &given(&case, &(Vec::new(), vec![list.to_vec()]))).unwrap_err();
        assert_eq!(said(&[3, 9]), "input `to` has 9 as element 1, but 1..8 is wanted");
        assert_eq!(said(&[3, -1]), "input `to` has -1 as element 1, but 1..8 is wanted");
        assert_eq!(said(&[1, 4]), "input `to` has 1 as element 0, but 3 is wanted");
    }
}

#[test]
fn ranges_that_the_model_cannot_take_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let said = |case: Case| compiled(folder.path(), &model_of(&case), &case.options).unwrap_err();
    let reshape = || Case::of("Reshape", &["x", "to"], []).x(&["12", "4"]);
    let zero = said(reshape().sizes("to", 2, "to=0..4..12,-1"));
    assert!(zero.contains("to[0] = 0 is asked for, but") && zero.contains("to[0] ≥ 1"), "{zero}");
    let odd = said(reshape().sizes("to", 2, "to=2..5..12,-1"));
    assert!(odd.contains("to[0] = 5 is asked for"), "{odd}");
    let cut = Case::of("Slice", &["x", "starts", "ends"], []).x(&["8"]).list("starts", &[2]);
    let cut = said(cut.sizes("ends", 1, "ends=1..4..8"));
    assert!(cut.contains("ends[0] = 1 is asked for"), "{cut}");
    let float = Case::of("Upsample", &["x", "scales"], []).opset(9).x(&["1", "1", "2", "2"]);
    let float = Case { sizes: vec![("scales", DType::F32, Some(4))], ..float };
    let float = said(Case { options: vec![("value", "scales=1,1,1..2..3,2")], ..float });
    assert!(float.contains("only those of i32 and i64"), "{float}");
}

/// What a model that declares its result says at its word, and where it breaks it.
fn check_declared(
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
    declared: &[i64],
    word: &[i64],
    other: &[i64],
) {
    let folder = tempfile::tempdir().unwrap();
    let name = nodes[0].op_type.clone().unwrap();
    let inputs =
        [value_info("x", DType::F32, vec![4i64, 6, 1]), value_info("k", DType::I64, vec![word.len() as i64])];
    let outputs = [value_info("y", DType::F32, declared.to_vec())];
    let mut proto = model(18, graph("g", nodes, inputs, outputs, constants));
    proto.graph.as_mut().unwrap().value_info = vec![value_info("inner", DType::F32, vec![4i64, 6, 5])];
    let bytes = encode(&proto).unwrap();
    let plain = SessionOptions::default().optimize(false);
    let reference = Session::of_model(ModelSource::Bytes { model: &bytes, folder: None }, &plain).unwrap();
    let (out, report) = compiled(folder.path(), &proto, &[]).unwrap();
    assert!(report.targets[0].failures.is_empty(), "{name}: {:?}", report.targets[0].failures);
    assert!(report.targets[0].totals.engine_nodes > 0, "{name}: nothing in an engine");
    let values = |list: &[i64]| {
        let list = Tensor::from_slice(&[list.len()], list).unwrap();
        vec![("x".to_owned(), Value::Tensor(floats(&[4, 6, 1]))), ("k".to_owned(), Value::Tensor(list))]
    };
    for (session, how) in sessions(&out).unwrap() {
        let (kept, broken) = (run(&session, &values(word)), run(&session, &values(other)));
        let (kept_right, broken_right) =
            (run(&reference, &values(word)).unwrap(), run(&reference, &values(other)).unwrap());
        assert!(same(&kept.unwrap()[0], &kept_right[0]), "{name}, {how}");
        match broken {
            Ok(broken) => {
                assert!(how == "whole model" && same(&broken[0], &broken_right[0]), "{name}, {how}")
            }
            Err(why) => {
                let said =
                    why.starts_with("the model declares `") && why.contains(&format!("with `k` = {other:?}"));
                assert!(how != "whole model" && said, "{name}, {how}: {why}");
            }
        }
    }
}

#[test]
fn models_that_break_their_declared_sizes_are_told_so() {
    if !is_here() {
        return;
    }
    let one = |op: &str, inputs: &[&str]| vec![node(op, inputs, &["y"], [])];
    let list = |name: &str, values: &[i64]| tensor_i64(name, &[values.len() as i64], values);
    check_declared(one("Reshape", &["x", "k"]), vec![], &[4, 6], &[4, 6], &[3, 8]);
    check_declared(one("Expand", &["x", "k"]), vec![], &[4, 6, 5], &[1, 1, 5], &[1, 1, 3]);
    check_declared(one("Tile", &["x", "k"]), vec![], &[4, 12, 1], &[1, 2, 1], &[2, 1, 1]);
    check_declared(one("ReduceSum", &["x", "k"]), vec![], &[4, 1, 1], &[1], &[0]);
    check_declared(one("Slice", &["x", "k", "ends"]), vec![list("ends", &[3])], &[2, 6, 1], &[1], &[2]);
    check_declared(one("ConstantOfShape", &["k"]), vec![], &[2, 6], &[2, 6], &[3, 5]);
    // The operand is computed in the engine.
    let inner =
        vec![node("Add", &["k", "one"], &["ends"], []), node("Slice", &["x", "zero", "ends"], &["y"], [])];
    check_declared(inner, vec![list("one", &[1]), list("zero", &[0])], &[3, 6, 1], &[2], &[0]);
    // What follows from a declared size was folded; here the size is that of a value inside.
    let folded = vec![
        node("Expand", &["x", "k"], &["inner"], []),
        node("Shape", &["inner"], &["s"], []),
        node("Cast", &["s"], &["f"], [attr_i("to", 1)]),
        node("ReduceMax", &["x"], &["m"], [attr_i("keepdims", 0)]),
        node("Mul", &["f", "m"], &["y"], []),
    ];
    check_declared(folded, vec![], &[3], &[1, 1, 5], &[1, 1, 3]);
}

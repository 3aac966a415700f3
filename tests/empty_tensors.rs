//! A grid of empty tensors: operators of shape, slicing, selection, concatenation, gathering, reduction and products, times
//! element types, times the axis that is 0, as an input and as made inside of the model. Results are ONNX Runtime's, and no
//! network reshapes or squeezes anything empty.
#![cfg(feature = "tensorrt")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::path::Path;
use trtc::{Bundle, ErrorKind, Options, Quiet};
use trtc_bundle::DType;
use trtc_network::{Layer, LayerEntry, Network, TensorId};
use trtc_onnx::{GraphProto, ModelProto, NodeProto, TensorProto, write::*};
use trtc_runtime::{
    Input, Mode, Session, SessionOptions, Tensor, Value,
    host::{ModelSource, OrtBackend, OrtOptions},
};

const DTYPES: [DType; 4] = [DType::F32, DType::F16, DType::I64, DType::Bool];
const FULL: [i64; 3] = [2, 3, 4];

/// Nodes that make `y` of `x`, constants, and further inputs.
struct Cell {
    name: String,
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
    others: Vec<(&'static str, DType, Vec<i64>)>,
    outputs: Vec<&'static str>,
}

impl Cell {
    fn new(name: &str, nodes: Vec<NodeProto>) -> Cell {
        let (constants, others, outputs) = (Vec::new(), Vec::new(), vec!["y"]);
        Cell { name: name.to_owned(), nodes, constants, others, outputs }
    }

    fn of(op: &str, inputs: &[&str], attrs: impl IntoIterator<Item = trtc_onnx::AttributeProto>) -> Cell {
        Cell::new(op, vec![node(op, inputs, &["y"], attrs)])
    }

    fn named(mut self, how: &str) -> Cell {
        self.name = format!("{} {how}", self.name);
        self
    }

    fn list(mut self, name: &str, values: &[i64]) -> Cell {
        self.constants.push(tensor_i64(name, &[values.len() as i64], values));
        self
    }

    fn constant(mut self, tensor: TensorProto) -> Cell {
        self.constants.push(tensor);
        self
    }

    fn input(mut self, name: &'static str, dtype: DType, dims: &[i64]) -> Cell {
        self.others.push((name, dtype, dims.to_vec()));
        self
    }
}

/// Every operator over `x` of dims `d`, whose axis `p` is 0.
fn cells(dtype: DType, d: [i64; 3], p: usize) -> Vec<Cell> {
    let q = (p + 1) % 3;
    let (along, other) = (p as i64, q as i64);
    let [a, b, c] = d;
    let mut full = d;
    full[p] = FULL[p];
    let mut cells = vec![
        Cell::of("Shape", &["x"], []),
        Cell::of("Size", &["x"], []),
        Cell::of("Identity", &["x"], []),
        Cell::of("Flatten", &["x"], [attr_i("axis", 1)]),
        Cell::of("Transpose", &["x"], [attr_ints("perm", &[2, 0, 1])]),
        Cell::of("Reshape", &["x", "to"], [attr_i("allowzero", 1)]).list("to", &[c, b, a]),
        Cell::of("Reshape", &["x", "to"], []).list("to", &[0, 0, 0]).named("copies"),
        Cell::of("Unsqueeze", &["x", "axes"], []).list("axes", &[0, 4]),
        Cell::new(
            "Squeeze",
            vec![node("Unsqueeze", &["x", "axes"], &["u"], []), node("Squeeze", &["u", "axes"], &["y"], [])],
        )
        .list("axes", &[1, 3]),
        Cell::of("Expand", &["x", "to"], []).list("to", &[3, a, b, c]),
        Cell::of("Tile", &["x", "repeats"], []).list("repeats", &[1, 2, 3]),
        Cell::of("Slice", &["x", "starts", "ends", "axes", "steps"], [])
            .list("starts", &[-1])
            .list("ends", &[-100])
            .list("axes", &[other])
            .list("steps", &[-1]),
        Cell::of("Slice", &["x", "starts", "ends", "axes"], [])
            .list("starts", &[0])
            .list("ends", &[100])
            .list("axes", &[along])
            .named("along"),
        Cell {
            outputs: vec!["y", "z"],
            ..Cell::new("Split", vec![node("Split", &["x", "parts"], &["y", "z"], [attr_i("axis", other)])])
        }
        .list("parts", &[1, d[q] - 1]),
        Cell {
            outputs: vec!["y", "z"],
            ..Cell::new(
                "Split along",
                vec![node("Split", &["x", "parts"], &["y", "z"], [attr_i("axis", along)])],
            )
        }
        .list("parts", &[0, 0]),
        Cell::of("Pad", &["x", "pads", "", "axes"], []).list("pads", &[1, 2]).list("axes", &[other]),
        Cell::of("Pad", &["x", "pads", "", "axes"], [])
            .list("pads", &[1, 2])
            .list("axes", &[along])
            .named("along"),
        Cell::of("Where", &["if", "x", "other"], []).input("if", DType::Bool, &d).input("other", dtype, &d),
        Cell::of("Compress", &["x", "keep"], [attr_i("axis", other)]).constant(tensor_bool(
            "keep",
            &[2],
            &[true, false],
        )),
        Cell::of("Concat", &["x", "other"], [attr_i("axis", along)]).input("other", dtype, &full),
        Cell::of("Concat", &["x", "x"], [attr_i("axis", other)]).named("across"),
        Cell::of("Gather", &["x", "at"], [attr_i("axis", other)]).list("at", &[1, 0, -1]),
        Cell::of("Gather", &["x", "at"], [attr_i("axis", along)]).list("at", &[]).named("nothing"),
        Cell::of("Gather", &["full", "x64"], [attr_i("axis", 1)])
            .named("at nothing")
            .input("full", dtype, &FULL)
            .input("x64", DType::I64, &d),
        Cell::of("GatherElements", &["x", "at"], [attr_i("axis", other)]).input("at", DType::I64, &d),
        Cell::of("GatherND", &["x", "at"], []).constant(tensor_i64("at", &[0, 1], &[])),
        Cell::of("ScatterElements", &["x", "at", "new"], [attr_i("axis", other)])
            .input("at", DType::I64, &d)
            .input("new", dtype, &d),
        Cell::of("ScatterND", &["x", "at", "new"], []).constant(tensor_i64("at", &[0, 1], &[])).input(
            "new",
            dtype,
            &[0, b, c],
        ),
        Cell::of("ArgMax", &["x"], [attr_i("axis", other)]),
        Cell::of("CumSum", &["x", "axis"], []).constant(tensor_i64("axis", &[], &[other])),
        Cell::of("Softmax", &["x"], [attr_i("axis", other)]),
        Cell::of("Add", &["x", "x"], []),
        Cell::of("Add", &["x", "other"], []).input("other", dtype, &[d[2]]).named("broadcast"),
        Cell::of("Equal", &["x", "x"], []),
        Cell::of("Not", &["x"], []),
        Cell::of("Cast", &["x"], [attr_i("to", DType::F32.onnx().into())]),
        Cell::of("MatMul", &["x", "w"], []).input("w", dtype, &[c, 5]),
        Cell::of("MatMul", &["w", "x"], []).input("w", dtype, &[a, 5, b]).named("left"),
        Cell::of("Einsum", &["x", "w"], [attr_s("equation", "abc,cd->abd")]).input("w", dtype, &[c, 5]),
        Cell::new(
            "Gemm",
            vec![
                node("Reshape", &["x", "to"], &["m"], [attr_i("allowzero", 1)]),
                node("Gemm", &["m", "w", "bias"], &["y"], []),
            ],
        )
        .list("to", &[a * b, c])
        .input("w", dtype, &[c, 5])
        .input("bias", dtype, &[5]),
    ];
    for op in [
        "ReduceSum",
        "ReduceProd",
        "ReduceMax",
        "ReduceMin",
        "ReduceMean",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp",
    ] {
        for (how, axes) in [("along", vec![along]), ("across", vec![other]), ("both", vec![along, other])] {
            for keep in [0, 1] {
                let cell = Cell::of(op, &["x", "axes"], [attr_i("keepdims", keep)]).list("axes", &axes);
                cells.push(cell.named(&format!("{how} keepdims={keep}")));
            }
        }
        cells.push(Cell::of(op, &["x"], [attr_i("keepdims", 0)]).named("all"));
    }
    cells
}

/// The model of a cell: `x` is fed, or cut from something that is not empty.
fn model_of(
    cell: &Cell,
    dtype: DType,
    d: [i64; 3],
    p: usize,
    inner: bool,
) -> (ModelProto, Vec<(String, Value)>) {
    let mut nodes = cell.nodes.clone();
    let mut constants = cell.constants.clone();
    let uses = |name: &str| cell.nodes.iter().any(|node| node.input.iter().any(|input| input == name));
    let mut feeds: Vec<(&str, DType, Vec<i64>)> = Vec::new();
    if uses("x") {
        if inner {
            let cut = ["full_x", "cut_from", "cut_to", "cut_axis"];
            nodes.insert(0, node("Slice", &cut, &["x"], []));
            for (name, value) in [("cut_from", 1), ("cut_to", 1), ("cut_axis", p as i64)] {
                constants.push(tensor_i64(name, &[1], &[value]));
            }
            feeds.push(("full_x", dtype, FULL.to_vec()));
        } else {
            feeds.push(("x", dtype, d.to_vec()));
        }
    }
    feeds.extend(cell.others.iter().filter(|(name, ..)| uses(name)).cloned());
    let inputs = feeds.iter().map(|(name, dtype, dims)| value_info(name, *dtype, dims.clone()));
    let outputs = cell.outputs.iter().map(|name| {
        let mut info = value_info(name, DType::F32, Vec::<i64>::new());
        info.r#type = None;
        info
    });
    let graph: GraphProto = graph("cell", nodes, inputs, outputs, constants);
    let values = feeds.iter().enumerate().map(|(k, (name, dtype, dims))| {
        ((*name).to_owned(), Value::Tensor(numbers(*dtype, dims, k as i64 + i64::from(uses("x64")))))
    });
    (model(20, graph), values.collect())
}

/// Small numbers; as indices they are valid everywhere.
fn numbers(dtype: DType, dims: &[i64], seed: i64) -> Tensor {
    let dims: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
    let count = dims.iter().product::<usize>() as i64;
    let values = (0..count).map(|k| (k * 5 + seed) % 3 - 1);
    let bytes: Vec<u8> = match dtype {
        DType::F32 => values.flat_map(|v| (v as f32 * 0.5).to_le_bytes()).collect(),
        DType::F16 => values.flat_map(|v| half::f16::from_f32(v as f32 * 0.5).to_le_bytes()).collect(),
        DType::I64 => values.flat_map(i64::to_le_bytes).collect(),
        _ => values.map(|v| u8::from(v > 0)).collect(),
    };
    Tensor::from_bytes(dtype, &dims, &bytes).unwrap()
}

fn run(session: &Session, values: &[(String, Value)]) -> Result<Vec<(String, Value)>, String> {
    let inputs: Vec<(&str, Input<'_>)> =
        values.iter().map(|(name, value)| (name.as_str(), value.into())).collect();
    let outputs = session.run(&inputs).map_err(|error| error.to_string())?;
    Ok(outputs.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
}

/// Results of a few sums of small numbers: exact but for the last bits of f16.
fn same(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_tensor(), b.as_tensor()) else { return false };
    let floats = |tensor: &Tensor| -> Option<Vec<f32>> {
        Some(match tensor.dtype() {
            DType::F32 => tensor.as_slice::<f32>()?.to_vec(),
            DType::F16 => {
                let halves = tensor.bytes().chunks_exact(2);
                halves.map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
            }
            _ => return None,
        })
    };
    let near = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 2e-3;
    (a.dtype(), a.dims()) == (b.dtype(), b.dims())
        && match (floats(a), floats(b)) {
            (Some(a), Some(b)) => a.iter().zip(&b).all(near),
            _ => a.bytes() == b.bytes(),
        }
}

/// Layers that reshape or squeeze something empty.
fn empty_moves(network: &Network, layers: &[LayerEntry], found: &mut Vec<String>) {
    let empty = |id: TensorId| network.tensor(id).is_some_and(|tensor| tensor.dims.contains(&0));
    for entry in layers {
        match &entry.layer {
            Layer::Shuffle { x, .. } | Layer::Squeeze { x, .. } | Layer::Unsqueeze { x, .. }
                if empty(*x) || entry.outputs.iter().any(|&y| empty(y)) =>
            {
                found.push(format!("{} of {:?}", entry.layer.name(), network.tensor(*x)));
            }
            Layer::If { then_branch, else_branch, .. } => {
                empty_moves(network, &then_branch.layers, found);
                empty_moves(network, &else_branch.layers, found);
            }
            Layer::Loop { body, .. } => empty_moves(network, body, found),
            _ => {}
        }
    }
}

/// What is wrong with a cell; whether ONNX Runtime says what is right.
fn check(
    cell: &Cell,
    folder: &Path,
    (dtype, d, p): (DType, [i64; 3], usize),
    inner: bool,
) -> Result<bool, String> {
    let (proto, values) = model_of(cell, dtype, d, p, inner);
    let bytes = encode(&proto).unwrap();
    let plain = SessionOptions::default().optimize(false);
    let session = Session::of_model(ModelSource::Bytes { model: &bytes, folder: None }, &plain);
    let expected = session.ok().and_then(|session| run(&session, &values).ok());
    let (path, out) = (folder.join("m.onnx"), folder.join("m.trtc"));
    std::fs::write(&path, &bytes).unwrap();
    let options = Options::default().target("rtx-1.7:sm89".parse().unwrap()).build_engines(false);
    if let Err(error) = trtc::compile(&path, &out, &options, &Quiet) {
        return match (expected, error.kind()) {
            (None, ErrorKind::Input) => Ok(false),
            _ => Err(format!("compile: {error}")),
        };
    }
    let bundle = Bundle::open(&out).unwrap();
    for segment in &bundle.manifest().targets[0].segments {
        if let Some(reference) = &segment.network {
            let lowered = trtc::network(&bundle, reference).unwrap();
            let mut found = Vec::new();
            empty_moves(&lowered.network, &lowered.network.layers, &mut found);
            if !found.is_empty() {
                return Err(found.join(", "));
            }
        }
    }
    let Some(expected) = expected else { return Ok(false) };
    let segments = || SessionOptions::default().optimize(false).mode(Mode::Segments);
    let raised = trtc::raised_networks(&bundle, 0).map_err(|error| error.to_string())?;
    let networks =
        raised.into_iter().fold(segments(), |options, (id, model)| options.twin_override(id, model));
    for (options, how) in [(segments(), "segments"), (networks, "networks")] {
        let session = Session::new(&bundle, &options).map_err(|error| format!("{how}: {error}"))?;
        let got = run(&session, &values).map_err(|error| format!("{how}: {error}"))?;
        for ((name, got), (_, expected)) in got.iter().zip(&expected) {
            if !same(got, expected) {
                return Err(format!("{how}: {name} is {got:?} instead of {expected:?}"));
            }
        }
    }
    Ok(true)
}

#[test]
fn empty_tensors_are_right_everywhere() {
    if OrtBackend::load(&OrtOptions::default()).is_err() {
        println!("skipped: ONNX Runtime is not here (run `make sdk`)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut compared, mut alone, mut wrong) = (0, 0, Vec::new());
    for dtype in DTYPES {
        for p in 0..3 {
            let mut d = FULL;
            d[p] = 0;
            for cell in cells(dtype, d, p) {
                for inner in [false, true] {
                    match check(&cell, folder.path(), (dtype, d, p), inner) {
                        Ok(true) => compared += 1,
                        Ok(false) => alone += 1,
                        Err(why) => wrong.push(format!("{} {dtype} {d:?} inner={inner}: {why}", cell.name)),
                    }
                }
            }
        }
    }
    println!("{compared} compared, {alone} that ONNX Runtime does not run");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 1500, "{compared} compared");
}

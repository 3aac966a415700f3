//! The same case with symbols for sizes, and with ranges for sizes that are elements of an input: which may change is found
//! by asking ONNX Runtime.

use crate::{
    cases::{DataSet, Facts},
    execute::{compile, networks, raised, run, soundness},
    result::Status,
};
use std::{collections::BTreeSet, path::Path};
use trtc_bundle::DType;
use trtc_onnx::{
    Dimension, ModelProto, TypeValue, ValueInfoProto,
    write::{encode, value_info},
};
use trtc_runtime::{Input, Mode, Session, SessionOptions, Tensor, Value, host::ModelSource};

/// A larger size gives larger sums; results are compared with ONNX Runtime's own, in another order of summation.
const OTHER_SIZE: Facts = Facts { plain: false, rtol: 2e-3, atol: 1e-5 };

/// Compiles the case with symbols, then with ranges of values, and runs it at its own and at another size.
pub fn run_dynamic(
    model: &ModelProto,
    sets: &[DataSet],
    facts: Facts,
    folder: &Path,
    worker: &Path,
) -> Status {
    let dims = run_dims(model, sets, facts, folder, worker);
    if !matches!(dims, Status::Right | Status::Skipped(_)) {
        return dims;
    }
    match sets.first().and_then(|set| other_values(model, set)) {
        None => dims,
        Some((bytes, other, values)) => {
            let path = folder.join("values.onnx");
            if let Err(error) = std::fs::write(&path, &bytes) {
                return Status::wrong("setup", error);
            }
            let with = values.join(" ");
            let options = |options| values.iter().cloned().fold(options, trtc::Options::value);
            let made = match compile(&path, folder, worker, options) {
                Ok((report, bundle)) => match soundness(&report) {
                    Status::Wrong(kind, text) => Status::Wrong(kind, text),
                    _ => runs_right(&report, &bundle, [(&sets[0], facts), (&other, OTHER_SIZE)], facts),
                },
                Err(status) => status,
            };
            match made {
                Status::Wrong(kind, text) => Status::Wrong(kind, format!("--value {with}: {text}")),
                status => status,
            }
        }
    }
}

fn run_dims(model: &ModelProto, sets: &[DataSet], facts: Facts, folder: &Path, worker: &Path) -> Status {
    let Some(set) = sets.first() else { return Status::Skipped("no data".into()) };
    let sizes = sizes(set);
    if sizes.is_empty() {
        return Status::Skipped("no size to change".into());
    }
    let Some((symbolic, other, ranges)) = find_other(model, set, &sizes) else {
        return Status::Skipped("ONNX Runtime runs it at no other size".into());
    };
    let path = folder.join("dynamic.onnx");
    if let Err(error) = std::fs::write(&path, &symbolic) {
        return Status::wrong("setup", error);
    }
    // The ranges that the compiler chooses, then those of this case.
    let (mut compiled, mut with) = (None, "ranges by default");
    for shapes in [&[][..], &ranges] {
        let options = |options| shapes.iter().cloned().fold(options, trtc::Options::shape);
        let (report, bundle) = match compile(&path, folder, worker, options) {
            Ok(compiled) => compiled,
            Err(Status::Wrong(kind, text)) => return Status::Wrong(kind, format!("{with}: {text}")),
            Err(status) => return status,
        };
        if let Status::Wrong(kind, text) = soundness(&report) {
            return Status::Wrong(kind, format!("{with}: {text}"));
        }
        compiled = Some((report, bundle));
        with = "ranges as given";
    }
    let Some((report, bundle)) = compiled else { return Status::wrong("setup", "not compiled") };
    runs_right(&report, &bundle, [(set, facts), (&other, OTHER_SIZE)], facts)
}

/// Runs a data set at the case's size, and one at another.
fn runs_right(
    report: &trtc::Report,
    bundle: &trtc::Bundle,
    [(set, own), (other, at_other)]: [(&DataSet, Facts); 2],
    facts: Facts,
) -> Status {
    let segments = SessionOptions::default().optimize(false).mode(Mode::Segments);
    let mut all = vec![(segments, "segments")];
    if report.targets.iter().any(|target| target.totals.engines > 0) {
        match networks(bundle) {
            Ok(options) => all.push((options, "networks")),
            Err(status) => return status,
        }
    }
    for (options, name) in all {
        let given = if name == "networks" { raised(facts) } else { own };
        for (set, facts, which) in [(set, given, "the case's size"), (other, at_other, "another size")] {
            if let Status::Wrong(kind, text) = run(bundle, &options, std::slice::from_ref(set), facts) {
                return Status::Wrong(kind, format!("{name}, at {which}: {text}"));
            }
        }
    }
    Status::Right
}

/// How a size grows.
#[derive(Clone, Copy)]
enum Step {
    One,
    Twice,
}

fn grown(size: usize, step: Step) -> usize {
    match step {
        Step::One => size + 1,
        Step::Twice => size * 2,
    }
}

/// Whether the dims of a value are sizes that may be changed. A list of integers may well be one of sizes, axes and the
/// like: its length is changed along with the others (`lists`) only where the model runs with that, as it does with labels.
fn has_sizes(tensor: &Tensor, lists: bool) -> bool {
    tensor.dims().len() > 1 || (tensor.dims().len() == 1 && (lists || tensor.dtype().is_float()))
}

/// The sizes above 1 that occur in inputs (a 1 may mean a broadcast).
fn sizes(set: &DataSet) -> BTreeSet<usize> {
    let tensors = set.inputs.iter().filter_map(|(_, value)| value.as_tensor());
    tensors
        .filter(|tensor| has_sizes(tensor, false))
        .flat_map(|tensor| tensor.dims().to_vec())
        .filter(|&dim| dim > 1)
        .collect()
}

/// The encoded model with symbols for as many sizes as ONNX Runtime can run with other values, a data set of such, and the
/// ranges that hold both.
fn find_other(
    model: &ModelProto,
    set: &DataSet,
    sizes: &BTreeSet<usize>,
) -> Option<(Vec<u8>, DataSet, Vec<String>)> {
    let attempt = |chosen: &BTreeSet<usize>, step: Step, lists: bool| {
        let symbolic = with_symbols(model, set, chosen, lists)?;
        let inputs = resized(set, chosen, step, lists)?;
        // The case's own size must run too: some models only work because their shapes are static.
        reference(&symbolic, &set.inputs)?;
        let outputs = reference(&symbolic, &inputs)?;
        let range = |&size: &usize| format!("s{size}={size}..{size}..{}", grown(size, step));
        Some((symbolic, DataSet { inputs, outputs }, chosen.iter().map(range).collect()))
    };
    let attempt = |chosen: &BTreeSet<usize>| {
        let ways = [(Step::One, true), (Step::Twice, true), (Step::One, false), (Step::Twice, false)];
        ways.into_iter().find_map(|(step, lists)| attempt(chosen, step, lists))
    };
    if let Some(found) = attempt(sizes) {
        return Some(found);
    }
    let single: BTreeSet<usize> =
        sizes.iter().copied().filter(|&size| attempt(&BTreeSet::from([size])).is_some()).collect();
    let first = single.iter().copied().next()?;
    attempt(&single).or_else(|| attempt(&BTreeSet::from([first])))
}

/// Most elements of an input that are changed.
const MOST_ELEMENTS: usize = 8;

/// The encoded model without the shapes of its results, other values for the elements of integer inputs on which these
/// shapes depend, and the ranges that hold both: all other values are larger, or all are smaller, so that both ends of all
/// ranges together are values that the model takes.
fn other_values(model: &ModelProto, set: &DataSet) -> Option<(Vec<u8>, DataSet, Vec<String>)> {
    let bytes = with_symbols(model, set, &BTreeSet::new(), false)?;
    // A Reshape reads 0 in a way of its own.
    let nodes = model.graph.iter().flat_map(|graph| &graph.node);
    let least = i64::from(nodes.into_iter().any(|node| node.op_type() == "Reshape"));
    let larger: &[fn(i64) -> i64] = &[|own| own.saturating_mul(2), |own| own.saturating_add(1)];
    let smaller: &[fn(i64) -> i64] = &[|own| own.saturating_sub(1)];
    let found = [larger, smaller].into_iter().find_map(|steps| stepped(&bytes, set, steps, least));
    let (inputs, outputs) = found?;
    let ranges = set.inputs.iter().zip(&inputs).filter_map(|((name, own), (_, other))| {
        let (own, other) = (integers(own)?, integers(other)?);
        let element = |(a, b): (&i64, &i64)| match a == b {
            true => a.to_string(),
            false => format!("{}..{a}..{}", a.min(b), a.max(b)),
        };
        let elements = || own.iter().zip(&other).map(element).collect::<Vec<_>>().join(",");
        (own != other).then(|| format!("{name}={}", elements()))
    });
    let ranges = ranges.collect();
    Some((bytes, DataSet { inputs, outputs }, ranges))
}

/// Inputs or outputs by name.
type Named = Vec<(String, Value)>;

/// Inputs with as many elements changed as ONNX Runtime takes and the shapes of the outputs follow from, and the outputs.
fn stepped(model: &[u8], set: &DataSet, steps: &[fn(i64) -> i64], least: i64) -> Option<(Named, Named)> {
    let shapes = |outputs: &[(String, Value)]| -> Option<Vec<Vec<usize>>> {
        outputs.iter().map(|(_, value)| Some(value.as_tensor()?.dims().to_vec())).collect()
    };
    let is_empty = |shapes: &[Vec<usize>]| shapes.iter().flatten().any(|&dim| dim == 0);
    let mut outputs = reference(model, &set.inputs)?;
    let mut inputs = set.inputs.clone();
    let mut changed = false;
    for at in 0..inputs.len() {
        let list = integers(&inputs[at].1).filter(|list| list.len() <= MOST_ELEMENTS).unwrap_or_default();
        for (k, &own) in list.iter().enumerate() {
            for other in steps.iter().map(|step| step(own)) {
                if own.min(other) < least || other == own {
                    continue;
                }
                let mut trial = inputs.clone();
                trial[at].1 = replaced(&trial[at].1, k, other)?;
                let Some(found) = reference(model, &trial) else { continue };
                let (before, after) = (shapes(&outputs)?, shapes(&found)?);
                if before != after && !is_empty(&before) && !is_empty(&after) {
                    (inputs, outputs, changed) = (trial, found, true);
                    break;
                }
            }
        }
    }
    changed.then_some((inputs, outputs))
}

/// Elements of an integer tensor of rank 0 or 1.
fn integers(value: &Value) -> Option<Vec<i64>> {
    let tensor = value.as_tensor().filter(|tensor| tensor.dims().len() <= 1)?;
    match tensor.dtype() {
        DType::I64 => Some(tensor.as_slice::<i64>()?.to_vec()),
        DType::I32 => Some(tensor.as_slice::<i32>()?.iter().map(|&v| v.into()).collect()),
        _ => None,
    }
}

fn replaced(value: &Value, k: usize, element: i64) -> Option<Value> {
    let tensor = value.as_tensor()?;
    let mut list = integers(value)?;
    list[k] = element;
    let changed = match tensor.dtype() {
        DType::I64 => Tensor::from_slice(tensor.dims(), &list),
        _ => Tensor::from_slice(tensor.dims(), &list.iter().map(|&v| v as i32).collect::<Vec<_>>()),
    };
    changed.ok().map(Value::Tensor)
}

/// The model with the symbol `s<size>` for each chosen size of an input; shapes of other values are left open.
fn with_symbols(model: &ModelProto, set: &DataSet, chosen: &BTreeSet<usize>, lists: bool) -> Option<Vec<u8>> {
    let mut model = model.clone();
    let graph = model.graph.as_mut()?;
    for info in &mut graph.input {
        let value = set.inputs.iter().find(|(name, _)| info.name.as_ref() == Some(name));
        let Some((name, Value::Tensor(tensor))) = value else { continue };
        if !has_sizes(tensor, lists) {
            continue;
        }
        let dims = tensor.dims().iter().map(|&dim| match chosen.contains(&dim) {
            true => Dimension::from(format!("s{dim}").as_str()),
            false => Dimension::from(dim as i64),
        });
        *info = value_info(name, tensor.dtype(), dims.collect::<Vec<_>>());
    }
    graph.value_info.clear();
    graph.output.iter_mut().for_each(open_shape);
    encode(&model).ok().map(|bytes| bytes.to_vec())
}

fn open_shape(info: &mut ValueInfoProto) {
    if let Some(TypeValue::Tensor(tensor)) = info.r#type.as_mut().and_then(|kind| kind.value.as_mut()) {
        tensor.shape = None;
    }
}

/// Inputs whose chosen sizes have grown: elements repeat, so that they stay in their range.
fn resized(set: &DataSet, chosen: &BTreeSet<usize>, step: Step, lists: bool) -> Option<Vec<(String, Value)>> {
    let mut inputs = Vec::new();
    for (name, value) in &set.inputs {
        let value = match value {
            Value::Tensor(tensor) if has_sizes(tensor, lists) => {
                let other = |&dim: &usize| if chosen.contains(&dim) { grown(dim, step) } else { dim };
                let dims: Vec<usize> = tensor.dims().iter().map(other).collect();
                Value::Tensor(repeated(tensor, &dims)?)
            }
            other => other.clone(),
        };
        inputs.push((name.clone(), value));
    }
    Some(inputs)
}

/// A tensor of other dims, filled with the elements of `tensor` in turn.
fn repeated(tensor: &Tensor, dims: &[usize]) -> Option<Tensor> {
    let width = match tensor.dtype() {
        DType::Str => return None,
        dtype if dtype.bits() % 8 == 0 => dtype.bits() / 8,
        _ => return None,
    };
    if tensor.bytes().is_empty() {
        return None;
    }
    let mut grown = Tensor::zeros(tensor.dtype(), dims).ok()?;
    let mut source = tensor.bytes().chunks_exact(width).cycle();
    for element in grown.bytes_mut().chunks_exact_mut(width) {
        element.copy_from_slice(source.next()?);
    }
    Some(grown)
}

/// What ONNX Runtime makes of the model itself.
fn reference(model: &[u8], inputs: &[(String, Value)]) -> Option<Vec<(String, Value)>> {
    let source = ModelSource::Bytes { model, folder: None };
    let session = Session::of_model(source, &SessionOptions::default().optimize(false)).ok()?;
    let inputs: Vec<(&str, Input<'_>)> =
        inputs.iter().map(|(name, value)| (name.as_str(), value.into())).collect();
    let outputs = session.run(&inputs).ok()?;
    Some(outputs.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
}

//! Numbers: what ONNX Runtime computes from the original node, and from the network raised to ONNX.

use super::{Built, Case, Tolerance, sdk};
use std::sync::{Arc, OnceLock};
use trtc_bundle::DType;
use trtc_frontends::onnx::export::{ExportError, ExportRequest, WeightPlacement, export};
use trtc_ir::Tensor;
use trtc_network::{
    Lowered,
    raise::{RaiseOptions, raise},
};
use trtc_onnx::{ModelProto, write::encode};
use trtc_runtime::{
    Input, Value,
    host::{
        GraphOptions, HostBackend, HostError, HostGraph, HostOutput, ModelSource, OrtBackend, OrtOptions,
        carrying,
    },
};

/// ONNX Runtime of the SDK; `None` where nobody fetched it.
pub(super) fn onnxruntime() -> Option<&'static OrtBackend> {
    static BACKEND: OnceLock<Option<OrtBackend>> = OnceLock::new();
    let open = || {
        let folder = sdk()?.join("lib");
        Some(OrtBackend::load(&OrtOptions::default().library(folder).threads(1)).expect("ONNX Runtime loads"))
    };
    BACKEND.get_or_init(open).as_ref()
}

pub(super) fn load(backend: &OrtBackend, model: &ModelProto) -> Result<Arc<dyn HostGraph>, HostError> {
    let bytes = encode(model).expect("a small model");
    let source = ModelSource::Bytes { model: &bytes, folder: None };
    backend.load(source, &GraphOptions::default().optimize(false))
}

fn run(graph: &dyn HostGraph, inputs: &[(String, Tensor)]) -> Vec<Tensor> {
    let fed: Vec<trtc_runtime::Tensor> = graph
        .inputs()
        .iter()
        .map(|info| {
            let tensor = &inputs.iter().find(|(name, _)| *name == info.name).expect("an input of the case").1;
            let dims: Vec<usize> = tensor.dims().iter().map(|&d| d as usize).collect();
            trtc_runtime::Tensor::from_bytes(tensor.dtype(), &dims, tensor.bytes().unwrap()).unwrap()
        })
        .collect();
    let fed: Vec<Input<'_>> = fed.iter().map(Input::from).collect();
    let mut outputs: Vec<HostOutput<'_>> =
        graph.outputs().iter().map(|_| HostOutput::New(Value::default())).collect();
    graph.run(&fed, &mut outputs).unwrap_or_else(|error| panic!("{error}"));
    let tensor = |output: HostOutput<'_>| {
        let HostOutput::New(Value::Tensor(tensor)) = output else { panic!("an output that is no tensor") };
        let dims = tensor.dims().iter().map(|&d| d as i64).collect();
        Tensor::new(tensor.dtype(), dims, tensor.bytes().to_vec().into()).unwrap()
    };
    outputs.into_iter().map(tensor).collect()
}

/// The node as a model of its own.
fn model(built: &Built) -> Result<ModelProto, ExportError> {
    let graph = &built.module.graph;
    let exported = export(ExportRequest {
        name: "original",
        graph,
        symbols: &built.module.symbols,
        nodes: None,
        inputs: graph.inputs(),
        outputs: graph.outputs(),
        opset: None,
        opsets: &built.module.opsets,
        weights: &mut |_, _| WeightPlacement::Inline,
    })?;
    Ok(exported.model)
}

/// What ONNX Runtime runs as the original, and the change of dtypes that it needed: ONNX Runtime lacks kernels of some
/// dtypes; the same numbers in a wider dtype say as much.
fn original(backend: &OrtBackend, case: &Case) -> (Arc<dyn HostGraph>, Widen) {
    let mut errors = Vec::new();
    for widen in [Widen::No, Widen::Floats, Widen::Carried, Widen::All] {
        let model = match model(&case.widened(widen).built()) {
            Ok(model) => model,
            Err(error) => {
                errors.push(error.to_string());
                continue;
            }
        };
        match load(backend, &model) {
            Ok(graph) => return (graph, widen),
            Err(error) => errors.push(error.to_string()),
        }
    }
    panic!("{}", errors.join("\n"))
}

/// Change of dtypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Widen {
    No,
    /// Floats of 16 bits to f32.
    Floats,
    /// Integers that TensorRT does not have to those that carry them.
    Carried,
    /// Floats of 16 bits and integers to f32.
    All,
}

impl Widen {
    pub fn apply(self, tensor: &Tensor) -> Tensor {
        let dtype = tensor.dtype();
        if self == Widen::Carried {
            let carrier = dtype.carrier().filter(|&carrier| dtype.is_int() && carrier != dtype);
            let wide = carrier.and_then(|_| trtc_bundle::widened(dtype, tensor.count(), tensor.bytes()?));
            let wide = wide.and_then(|bytes| Tensor::new(carrier?, tensor.dims().to_vec(), bytes.into()));
            return wide.unwrap_or_else(|| tensor.clone());
        }
        let change = match self {
            Widen::No | Widen::Carried => false,
            Widen::Floats => is_narrow(dtype),
            Widen::All => is_narrow(dtype) || dtype.is_int(),
        };
        match tensor.to_f64s().filter(|_| change) {
            Some(values) => {
                let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
                Tensor::from_f32s(tensor.dims().to_vec(), &values).unwrap()
            }
            None => tensor.clone(),
        }
    }
}

/// The raised network, with the values' own dtypes at its ports.
#[track_caller]
fn raised(backend: &OrtBackend, case: &Case, lowered: &Lowered) -> Arc<dyn HostGraph> {
    let raised = raise(lowered, &RaiseOptions::new()).unwrap_or_else(|error| panic!("{error}"));
    let raised = load(backend, &raised).unwrap_or_else(|error| panic!("{error}\n{}", lowered.network));
    let graph = case.built().module.graph;
    let ports: Vec<(String, Option<DType>)> = graph
        .inputs()
        .iter()
        .chain(graph.outputs())
        .map(|&id| (graph[id].name.to_string(), graph[id].ty.dtype()))
        .collect();
    carrying(raised, &|name| ports.iter().find(|port| port.0 == name)?.1)
}

/// Runs both and compares, at the given sizes and with every symbol larger by one.
#[track_caller]
pub(super) fn compare(case: &Case, lowered: &Lowered, tolerance: Tolerance) {
    let Some(backend) = onnxruntime() else { return };
    let raised = raised(backend, case, lowered);
    let (original, widen) = original(backend, case);
    let dynamic = case.slots.iter().flatten().any(|slot| slot.dims.is_some());
    for grown in 0..=i64::from(dynamic) {
        let inputs = case.tensors(grown);
        let fed: Vec<(String, Tensor)> =
            inputs.into_iter().map(|(k, tensor)| (format!("x{k}"), tensor)).collect();
        let reference: Vec<(String, Tensor)> =
            fed.iter().map(|(name, tensor)| (name.clone(), widen.apply(tensor))).collect();
        let (ours, theirs) = (run(&*raised, &fed), run(&*original, &reference));
        assert_eq!(ours.len(), theirs.len(), "outputs of {}", case.op);
        for (slot, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(ours.dims(), theirs.dims(), "{} output {slot} with {fed:?}", case.op);
            assert!(widen != Widen::No || ours.dtype() == theirs.dtype(), "{} output {slot}", case.op);
            let place = format!("{} output {slot}", case.op);
            close(ours, theirs, tolerance, &place, &lowered.network.to_string());
        }
    }
}

/// Runs the network on the given tensors and compares with values from elsewhere.
#[track_caller]
pub(super) fn compare_with(case: &Case, lowered: &Lowered, tolerance: Tolerance, expected: &[Tensor]) {
    let Some(backend) = onnxruntime() else { return };
    let raised = raised(backend, case, lowered);
    let fed: Vec<(String, Tensor)> =
        case.tensors(0).into_iter().map(|(k, tensor)| (format!("x{k}"), tensor)).collect();
    let ours = run(&*raised, &fed);
    assert_eq!(ours.len(), expected.len(), "outputs of {}", case.op);
    for (slot, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        let place = format!("{} output {slot}", case.op);
        assert_eq!((ours.dtype(), ours.dims()), (expected.dtype(), expected.dims()), "{place}");
        close(ours, expected, tolerance, &place, &lowered.network.to_string());
    }
}

#[track_caller]
fn close(ours: &Tensor, theirs: &Tensor, tolerance: Tolerance, place: &str, network: &str) {
    // f64 holds not every i64.
    if let (Some(ours), Some(theirs)) = (ours.to_i64s(), theirs.to_i64s()) {
        assert!(
            tolerance != Tolerance::Exact || ours == theirs,
            "{place}: {ours:?}, not {theirs:?}\n{network}"
        );
    }
    let (a, b) = (numbers(ours), numbers(theirs));
    for (k, (&a, &b)) in a.iter().zip(&b).enumerate() {
        let same = (a.is_nan() && b.is_nan()) || a == b;
        let near = match tolerance {
            Tolerance::Exact => false,
            Tolerance::Near { rtol, atol } => (a - b).abs() <= atol + rtol * b.abs(),
        };
        assert!(same || near, "{place}, element {k}: {a}, not {b}\n{network}\nours {a:?}\ntheirs {b:?}");
    }
}

/// The elements; of types that are no numbers here, their bytes.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    let bytes = || tensor.bytes().map(|bytes| bytes.iter().map(|&b| b.into()).collect());
    let carried = || {
        let wide = trtc_bundle::widened(tensor.dtype(), tensor.count(), tensor.bytes()?)?;
        Tensor::new(tensor.dtype().carrier()?, tensor.dims().to_vec(), wide.into())?.to_f64s()
    };
    let numbers = tensor.to_f64s().or_else(carried).or_else(bytes);
    numbers.unwrap_or_else(|| panic!("elements of {}", tensor.dtype()))
}

/// Whether the dtype is a float narrower than f32.
fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16)
}

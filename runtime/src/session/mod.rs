//! Sessions: a bundle (or a plain model) made ready to run, from any number of threads.

mod arena;
mod check;
mod control;
mod exec;
mod program;
mod sizes;

use crate::{
    device::Devices,
    error::RunError,
    host::{GraphOptions, HostBackend, HostGraph, ModelSource, OrtBackend, OrtOptions, carrying},
    tensor::{AlignedBytes, Tensor},
    value::{Input, Value},
};
use check::{Bound, InputCheck};
use exec::Frame;
use program::{Parts, Program};
use sizes::SizeCheck;
use smallvec::SmallVec;
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};
use trtc_bundle::{
    Bundle, DType, Segment, SegmentId, SegmentKind, Step, Target, TargetPlan, ValueId, ValueInfo,
};

/// What of a bundle is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The whole-model graph when there is no device to run engines on (and the bundle has one), else the segments.
    #[default]
    Auto,
    /// The whole model as one host graph.
    WholeModel,
    /// The partitioned schedule. Engines that cannot run are replaced by their host twins.
    Segments,
}

/// Where engines are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// On a GPU where this program can use one, else on the CPU.
    #[default]
    Auto,
    /// On the CPU. The driver is not even looked for.
    Cpu,
    /// On the GPU of this number.
    Cuda(u32),
}

/// How a session is made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SessionOptions {
    /// What of the bundle is run.
    pub mode: Mode,
    /// Where engines are run.
    pub device: Device,
    /// Whose plan is run in segments; the bundle's first when `None`.
    pub target: Option<Target>,
    /// The host backend; ONNX Runtime, loaded as `onnxruntime` says, when `None`.
    pub backend: Option<Arc<dyn HostBackend>>,
    /// How ONNX Runtime is loaded, if it is not yet.
    pub onnxruntime: OrtOptions,
    /// How host graphs are made ready.
    pub graphs: GraphOptions,
    /// ONNX models that run in place of engines, by segment. Their inputs and outputs have the names of the engine's
    /// bindings, and their external weights, if any, are in the bundle ([`trtc_bundle::LOCATION`]).
    pub twin_overrides: HashMap<String, Vec<u8>>,
    /// Measure the time of each segment ([`Session::timings`]).
    pub timing: bool,
}

impl SessionOptions {
    /// As given, with a mode.
    pub fn mode(mut self, mode: Mode) -> SessionOptions {
        self.mode = mode;
        self
    }

    /// As given, with a device.
    pub fn device(mut self, device: Device) -> SessionOptions {
        self.device = device;
        self
    }

    /// As given, with the target whose plan is run in segments.
    pub fn target(mut self, target: Target) -> SessionOptions {
        self.target = Some(target);
        self
    }

    /// As given, with a host backend.
    pub fn backend(mut self, backend: Arc<dyn HostBackend>) -> SessionOptions {
        self.backend = Some(backend);
        self
    }

    /// As given, with ONNX Runtime's library, or its folder.
    pub fn library(mut self, path: impl Into<PathBuf>) -> SessionOptions {
        self.onnxruntime.library = Some(path.into());
        self
    }

    /// As given, with or without the backend's own optimisations of host graphs.
    pub fn optimize(mut self, optimize: bool) -> SessionOptions {
        self.graphs.optimize = optimize;
        self
    }

    /// As given, with an ONNX model in place of the engine of `segment`.
    pub fn twin_override(mut self, segment: impl Into<String>, model: Vec<u8>) -> SessionOptions {
        self.twin_overrides.insert(segment.into(), model);
        self
    }

    /// As given, with or without times for each segment.
    pub fn timing(mut self, timing: bool) -> SessionOptions {
        self.timing = timing;
        self
    }

    fn host(&self) -> Result<Arc<dyn HostBackend>, RunError> {
        match &self.backend {
            Some(backend) => Ok(backend.clone()),
            None => Ok(Arc::new(OrtBackend::load(&self.onnxruntime)?)),
        }
    }
}

/// The time that one segment took.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentTiming {
    /// The segment, as in the report; `model` for a whole model.
    pub id: String,
    /// Its kind.
    pub kind: SegmentKind,
    /// How often it was run.
    pub runs: u64,
    /// The time of all runs together.
    pub total: Duration,
}

/// The outputs of a run, by name and in the model's order.
#[derive(Clone, Debug)]
pub struct Outputs {
    ports: Arc<[ValueInfo]>,
    values: Vec<Value>,
}

impl Outputs {
    /// The output of that name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// The output of that name, when it is a tensor.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.get(name)?.as_tensor()
    }

    /// Names and values, in the model's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.ports.iter().map(|port| &port.name[..]).zip(&self.values)
    }

    /// The values, in the model's order.
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }
}

/// A bundle or a model, ready to run.
///
/// A session may be run from several threads at once: each run takes a context (memory for the values between segments)
/// from a pool, which grows to as many as were ever needed at once.
pub struct Session {
    program: Program,
    check: InputCheck,
    /// What the model declares and the plan takes for granted.
    sizes: Option<SizeCheck>,
    inputs: Arc<[ValueInfo]>,
    outputs: Arc<[ValueInfo]>,
    backend: Arc<dyn HostBackend>,
    mode: Mode,
    timing: bool,
    contexts: Mutex<Vec<Context>>,
}

/// Memory of one run, used again by later ones.
struct Context {
    arena: AlignedBytes,
    values: Vec<Value>,
    bound: Vec<Bound>,
}

impl Session {
    /// Makes a bundle ready to run.
    ///
    /// # Errors
    /// [`RunError`]: a library or device is missing, the bundle is damaged or contradicts itself, or the backend refuses a
    /// graph.
    pub fn new(bundle: &Bundle, options: &SessionOptions) -> Result<Session, RunError> {
        if let Device::Cuda(index) = options.device {
            Devices::probe()?.gpu(index)?;
            return Err(RunError::NoEngineRunner { index });
        }
        let manifest = bundle.manifest();
        let mode = match options.mode {
            Mode::Auto if manifest.whole_model.is_some() && options.twin_overrides.is_empty() => {
                Mode::WholeModel
            }
            Mode::Auto => Mode::Segments,
            mode => mode,
        };
        let backend = options.host()?;
        let loader = Loader { bundle, backend: &*backend, options };
        bundle.check_in_place()?;
        let program = if mode == Mode::WholeModel {
            let graph =
                loader.graph("model", &bundle.graph(manifest.whole_model.ok_or(RunError::NoWholeModel)?)?)?;
            whole(&manifest.inputs, &manifest.outputs, graph)?
        } else {
            let plan = loader.plan()?;
            Program::new(plan, loader.parts(plan)?)?
        };
        let sizes = match &manifest.declared {
            Some(declared) if mode != Mode::WholeModel => {
                let graph = loader.graph("sizes", &bundle.graph(declared.graph)?)?;
                Some(SizeCheck::new(graph, declared, &manifest.inputs)?)
            }
            _ => None,
        };
        // The backend has opened the file by its path: it must have been this one.
        bundle.check_in_place()?;
        let check = InputCheck::new(&manifest.inputs, &manifest.symbols);
        let ports = (manifest.inputs.as_slice().into(), manifest.outputs.as_slice().into());
        Ok(Session { sizes, ..Session::ready(program, check, ports, backend, mode, options.timing) })
    }

    /// Makes any ONNX model ready to run as one graph.
    ///
    /// # Errors
    /// [`RunError::Host`]: ONNX Runtime is missing, or refuses the model.
    pub fn of_model(model: ModelSource<'_>, options: &SessionOptions) -> Result<Session, RunError> {
        let backend = options.host()?;
        let graph = backend.load(model, &options.graphs)?;
        let (inputs, outputs) = (graph.inputs().to_vec(), graph.outputs().to_vec());
        let program = whole(&inputs, &outputs, graph)?;
        let check = InputCheck::new(&inputs, &[]);
        let ports = (inputs.into(), outputs.into());
        Ok(Session::ready(program, check, ports, backend, Mode::WholeModel, options.timing))
    }

    fn ready(
        program: Program,
        check: InputCheck,
        (inputs, outputs): (Arc<[ValueInfo]>, Arc<[ValueInfo]>),
        backend: Arc<dyn HostBackend>,
        mode: Mode,
        timing: bool,
    ) -> Session {
        Session {
            program,
            check,
            sizes: None,
            inputs,
            outputs,
            backend,
            mode,
            timing,
            contexts: Mutex::default(),
        }
    }

    /// The model's inputs, in its order.
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    /// The model's outputs, in its order.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    /// What is run: never [`Mode::Auto`].
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The host backend: name, version, file.
    pub fn backend(&self) -> String {
        self.backend.describe()
    }

    /// Length in bytes of the memory that each context has for values between segments.
    pub fn arena_bytes(&self) -> usize {
        self.program.arena_len
    }

    /// Runs once, inputs by name in any order.
    ///
    /// # Errors
    /// [`RunError`]: an input is missing, unknown or not what the model takes, or a segment fails.
    pub fn run(&self, inputs: &[(&str, Input<'_>)]) -> Result<Outputs, RunError> {
        let known =
            || self.inputs.iter().map(|input| format!("`{}`", input.name)).collect::<Vec<_>>().join(", ");
        for (k, (name, _)) in inputs.iter().enumerate() {
            let twice = inputs[..k].iter().any(|(before, _)| before == name);
            if twice || !self.inputs.iter().any(|input| input.name == *name) {
                return Err(RunError::UnknownInput { name: (*name).to_owned(), twice, known: known() });
            }
        }
        let find = |port: &ValueInfo| {
            let input = inputs.iter().find(|(name, _)| *name == port.name).map(|(_, input)| *input);
            input.ok_or_else(|| RunError::MissingInput { name: port.name.clone(), known: known() })
        };
        let ordered: SmallVec<[Input<'_>; 16]> = self.inputs.iter().map(find).collect::<Result<_, _>>()?;
        let mut values = vec![Value::Nothing; self.outputs.len()];
        self.run_into(&ordered, &mut values)?;
        Ok(Outputs { ports: self.outputs.clone(), values })
    }

    /// Runs once, inputs and outputs by position.
    ///
    /// A tensor that stands in `outputs` and has the type and the dims of a static output is written in place, so a caller
    /// that hands in the outputs of an earlier run causes no allocation here when all dims are known. After an error the
    /// outputs are of no use.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into(&self, inputs: &[Input<'_>], outputs: &mut [Value]) -> Result<(), RunError> {
        if outputs.len() != self.outputs.len() {
            let (given, expected) = (outputs.len(), self.outputs.len());
            return Err(RunError::Count { what: "outputs", given, expected });
        }
        let contexts = || self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        let pooled = contexts().pop();
        let mut context = pooled.unwrap_or_else(|| Context {
            arena: AlignedBytes::zeroed(self.program.arena_len),
            values: vec![Value::Nothing; self.program.slots.len()],
            bound: vec![None; self.check.symbols()],
        });
        let checked = self.check.check(inputs, &mut context.bound);
        let checked = checked.and_then(|()| self.sizes.as_ref().map_or(Ok(()), |sizes| sizes.check(inputs)));
        let result = checked.and_then(|()| {
            let Context { arena, values, .. } = &mut context;
            self.program.run(&mut Frame { inputs, outputs, arena, values, timing: self.timing })
        });
        // What the backend allocated must not outlive the run.
        self.program.clear(&mut context.values);
        contexts().push(context);
        match result {
            // There is but one: nothing is gained by naming it.
            Err(RunError::Segment { source, .. }) if self.mode == Mode::WholeModel => Err(source.into()),
            result => result,
        }
    }

    /// The time of each segment that was run so far, in the plan's order; empty unless [`SessionOptions::timing`] is set.
    pub fn timings(&self) -> Vec<SegmentTiming> {
        let timed = self.program.segments.iter().filter(|segment| segment.runs.load(Relaxed) > 0);
        let timing = |segment: &program::Runnable| SegmentTiming {
            id: segment.id.clone(),
            kind: segment.kind,
            runs: segment.runs.load(Relaxed),
            total: Duration::from_nanos(segment.nanos.load(Relaxed)),
        };
        timed.map(timing).collect()
    }

    /// Begins to measure anew.
    pub fn reset_timings(&self) {
        for segment in &self.program.segments {
            segment.runs.store(0, Relaxed);
            segment.nanos.store(0, Relaxed);
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("mode", &self.mode)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

/// A plan of one segment.
fn whole(
    inputs: &[ValueInfo],
    outputs: &[ValueInfo],
    graph: Arc<dyn HostGraph>,
) -> Result<Program, RunError> {
    let mut plan = TargetPlan::new(Target::host());
    plan.values = inputs.iter().chain(outputs).cloned().collect();
    // In the graph an output that is an input too has a name of its own.
    if graph.outputs().len() == outputs.len() {
        for (value, port) in plan.values.iter_mut().skip(inputs.len()).zip(graph.outputs()) {
            value.name.clone_from(&port.name);
        }
    }
    let ids: Vec<ValueId> = (0u32..).map(ValueId).take(plan.values.len()).collect();
    (plan.inputs, plan.outputs) = (ids[..inputs.len()].to_vec(), ids[inputs.len()..].to_vec());
    let mut segment = Segment::new("model", SegmentKind::Host);
    (segment.inputs, segment.outputs) = (plan.inputs.clone(), plan.outputs.clone());
    plan.segments = vec![segment];
    plan.schedule = vec![Step::Run { segment: SegmentId(0) }];
    Program::new(&plan, Parts { graphs: vec![Some(graph)], constants: vec![Vec::new()] })
}

/// The dtype of the value behind an engine's binding that holds it in another.
fn carried(plan: &TargetPlan, segment: &Segment, name: &str) -> Option<DType> {
    let values = segment.carried.iter().map(|carried| &plan.values[carried.value.index()]);
    values.into_iter().find(|value| value.name == name).map(|value| value.dtype)
}

struct Loader<'a> {
    bundle: &'a Bundle,
    backend: &'a dyn HostBackend,
    options: &'a SessionOptions,
}

impl Loader<'_> {
    fn graph(&self, segment: &str, model: &[u8]) -> Result<Arc<dyn HostGraph>, RunError> {
        let folder = self.bundle.folder();
        let source = ModelSource::Bytes { model, folder: Some(&folder) };
        self.backend.load(source, &self.options.graphs).map_err(|source| {
            let segment = segment.to_owned();
            RunError::Segment { segment, source }
        })
    }

    fn plan(&self) -> Result<&TargetPlan, RunError> {
        let targets = &self.bundle.manifest().targets;
        match &self.options.target {
            None => targets.first().ok_or_else(|| RunError::Plan("it has no plan for any target".into())),
            Some(wanted) => targets.iter().find(|plan| plan.target == *wanted).ok_or_else(|| {
                let present: Vec<String> = targets.iter().map(|plan| plan.target.to_string()).collect();
                RunError::NoTarget { wanted: wanted.clone(), present: present.join("; ") }
            }),
        }
    }

    fn parts(&self, plan: &TargetPlan) -> Result<Parts, RunError> {
        let overrides = &self.options.twin_overrides;
        let engine =
            |id: &str| plan.segments.iter().any(|part| part.id == id && part.kind == SegmentKind::Engine);
        if let Some(segment) = overrides.keys().find(|id| !engine(id)) {
            return Err(RunError::NoSuchSegment { segment: segment.clone() });
        }
        let mut parts = Parts { graphs: Vec::new(), constants: Vec::new() };
        for segment in &plan.segments {
            let replaced = overrides.get(&segment.id).filter(|_| segment.kind == SegmentKind::Engine);
            let graph = match (replaced, segment.graph) {
                _ if segment.kind == SegmentKind::Constant => None,
                (Some(model), _) => {
                    let graph = self.graph(&segment.id, &self.bundle.locate(model.clone()))?;
                    Some(carrying(graph, &|name| carried(plan, segment, name)))
                }
                (None, Some(graph)) => Some(self.graph(&segment.id, &self.bundle.graph(graph)?)?),
                (None, None) => return Err(RunError::NoTwin { segment: segment.id.clone() }),
            };
            parts.graphs.push(graph);
            parts.constants.push(self.constants(plan, segment)?);
        }
        Ok(parts)
    }

    fn constants(&self, plan: &TargetPlan, segment: &Segment) -> Result<Vec<Value>, RunError> {
        let constant = |(output, weights): (&ValueId, &trtc_bundle::WeightsId)| {
            let value = &plan.values[output.index()];
            let dims = value
                .static_dims()
                .ok_or_else(|| RunError::Plan(format!("`{}` is no constant", value.name)))?;
            Ok(Value::Tensor(Tensor::foreign(value.dtype, dims, self.bundle.weights(*weights)?)?))
        };
        segment.outputs.iter().zip(&segment.constants).map(constant).collect()
    }
}

//! One case through its runners: in a process of its own, so that nothing it does ends the others.

use crate::{
    cases::{Case, DataSet, Facts, ports},
    compare::{Comparison, Tolerances, compare},
    dynamic, evaluator, folder, lists, readback,
    result::{CaseResult, HostNode, Placement, Runner, Status},
};
use anyhow::Result;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use trtc::{Bundle, CostModel, ErrorKind, Options, Quiet, Report};
use trtc_bundle::DType;
use trtc_onnx::{DimValue, Dimension, ModelProto, NodeProto, TypeValue, ValueInfoProto};
use trtc_partitioner::{PlacementName, SegmentStatus};
use trtc_runtime::{Input, Mode, Session, SessionOptions, Value, host::ModelSource};

/// What every case is compiled for.
pub const TARGET: &str = "rtx-1.7:sm89";

/// A build of a case that takes longer is not waited for.
const BUILD_LIMIT: Duration = Duration::from_secs(120);

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the words of a panic instead of printing them.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|info| LAST_PANIC.set(info.to_string().replace('\n', " "))));
}

/// Runs `f`; a panic in it becomes a status.
pub fn guarded(f: impl FnOnce() -> Status) -> Status {
    catch_unwind(AssertUnwindSafe(f))
        .unwrap_or_else(|_| Status::wrong("panic", LAST_PANIC.with_borrow(String::clone)))
}

/// Tolerances of an output: what the case says for f32 and f64, the defaults of `trtc verify` for narrower floats.
fn tolerances(facts: Facts, expected: &Value) -> Tolerances {
    match expected {
        Value::Tensor(tensor) if !matches!(tensor.dtype(), DType::F32 | DType::F64) => Tolerances::default(),
        _ => Tolerances { rtol: Some(facts.rtol), atol: Some(facts.atol) },
    }
}

/// The first difference of outputs from expected ones.
pub fn difference(got: &trtc_runtime::Outputs, expected: &[(String, Value)], facts: Facts) -> Option<String> {
    for (name, expected) in expected {
        let Some(actual) = got.get(name) else { return Some(format!("no output `{name}`")) };
        for (part, comparison) in compare(actual, expected, tolerances(facts, expected)) {
            if comparison.is_equal() {
                continue;
            }
            return Some(match comparison {
                Comparison::Unlike(how) => format!("{name}{part}: {how}"),
                Comparison::Elements(found) => {
                    let count: usize = found.dims.iter().product();
                    let worst = found.worst.map_or(String::new(), |worst| {
                        format!(", at {:?} {} instead of {}", worst.index, worst.actual, worst.expected)
                    });
                    format!("{name}{part}: {} of {count} elements differ{worst}", found.differ)
                }
            });
        }
    }
    None
}

/// A session over the bundle with its engines as layers.
pub fn networks(bundle: &Bundle) -> Result<SessionOptions, Status> {
    let models = trtc::raised_networks(bundle, 0).map_err(|error| Status::wrong("raise", error))?;
    let options = SessionOptions::default().optimize(false).mode(Mode::Segments);
    Ok(models.into_iter().fold(options, |options, (id, model)| options.twin_override(id, model)))
}

/// Runs data sets and compares.
pub fn run(bundle: &Bundle, options: &SessionOptions, sets: &[DataSet], facts: Facts) -> Status {
    let session = match Session::new(bundle, options) {
        Ok(session) => session,
        Err(error) => return Status::wrong("session", error),
    };
    for set in sets {
        let inputs: Vec<(&str, Input<'_>)> =
            set.inputs.iter().map(|(name, value)| (name.as_str(), value.into())).collect();
        let status = compare_outputs(&session, &inputs, &set.outputs, facts);
        if status != Status::Right {
            return status;
        }
    }
    Status::Right
}

/// Runs once and compares.
pub fn compare_outputs(
    session: &Session,
    inputs: &[(&str, Input<'_>)],
    expected: &[(String, Value)],
    facts: Facts,
) -> Status {
    match session.run(inputs) {
        Err(error) => Status::wrong("run", error),
        Ok(got) => match difference(&got, expected, facts) {
            Some(difference) => Status::wrong("differs", difference),
            None => Status::Right,
        },
    }
}

/// Compiles a model into `folder`.
pub fn compile(
    model: &Path,
    folder: &Path,
    worker: &Path,
    options: impl FnOnce(Options) -> Options,
) -> Result<(Report, Bundle), Status> {
    let base = Options::default().build_time_limit(BUILD_LIMIT).worker(worker);
    let base = match std::env::var_os("TRTC_CONFORMANCE_COST") {
        Some(cost) if cost == "off" => base.cost_model(CostModel::maximal_clusters()),
        _ => base,
    };
    let Ok(target) = TARGET.parse() else { return Err(Status::wrong("compile", "no such target")) };
    let out = folder.join("case.trtc");
    let report = trtc::compile(model, &out, &options(base.target(target)), &Quiet).map_err(|error| {
        Status::wrong(if error.kind() == ErrorKind::Bug { "bug" } else { "compile" }, error)
    })?;
    Ok((report, Bundle::open(&out).map_err(|error| Status::wrong("open", error))?))
}

/// Nodes with a code E9…: admitted, and yet not built.
pub fn soundness(report: &Report) -> Status {
    let rows = report.targets.iter().flat_map(|target| &target.nodes);
    let broken: Vec<String> = rows
        .filter(|row| row.code.as_deref().is_some_and(|code| code.starts_with("E9")))
        .map(|row| {
            let code = row.code.as_deref().unwrap_or_default();
            format!("{} {code}: {}", row.op, row.reason.as_deref().unwrap_or_default())
        })
        .collect();
    if broken.is_empty() { Status::Right } else { Status::wrong("unsound", broken.join(" | ")) }
}

fn builder(report: &Report) -> Status {
    let engines: Vec<_> = report
        .targets
        .iter()
        .flat_map(|target| &target.segments)
        .filter(|segment| segment.kind == "engine")
        .collect();
    match engines.iter().find(|segment| segment.status != SegmentStatus::Built) {
        _ if engines.is_empty() => Status::Skipped("no engine".into()),
        Some(segment) => Status::wrong("build", format!("{} is {:?}", segment.id, segment.status)),
        None => Status::Right,
    }
}

/// Ranges that hold the sizes of the data, for the model's own symbols.
fn shapes(model: &ModelProto, sets: &[DataSet]) -> Vec<String> {
    let mut sizes: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let (inputs, _) = ports(model);
    for info in &inputs {
        let values =
            sets.iter().flat_map(|set| &set.inputs).filter(|(name, _)| info.name.as_ref() == Some(name));
        let Some(TypeValue::Tensor(tensor)) = info.r#type.as_ref().and_then(|kind| kind.value.as_ref())
        else {
            continue;
        };
        let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
        for value in values.filter_map(|(_, value)| value.as_tensor()) {
            for (dim, &size) in dims.clone().zip(value.dims()) {
                if let Some(DimValue::Param(symbol)) = &dim.value {
                    let range = sizes.entry(symbol.clone()).or_insert((size, size));
                    *range = (range.0.min(size), range.1.max(size));
                }
            }
        }
    }
    // Symbols have no range that holds 0.
    let ranges = sizes.into_iter().filter(|(_, (min, _))| *min > 0);
    ranges.map(|(symbol, (min, max))| format!("{symbol}={min}..{}", max.max(min + 1))).collect()
}

/// The sizes of the first data set for inputs that say less: for a model whose dims have no names, or cannot vary.
fn exact_shapes(model: &ModelProto, sets: &[DataSet]) -> Vec<String> {
    let open = |info: &ValueInfoProto| match info.r#type.as_ref().and_then(|kind| kind.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => {
            let known = |dim: &Dimension| matches!(dim.value, Some(DimValue::Value(_)));
            tensor.shape.as_ref().is_none_or(|shape| !shape.dim.iter().all(known))
        }
        _ => false,
    };
    let given = |name: &str| sets.first()?.inputs.iter().find(|(given, _)| given == name)?.1.as_tensor();
    let shape = |info: &ValueInfoProto| {
        let name = info.name.as_deref()?;
        let dims: Vec<String> = given(name)?.dims().iter().map(usize::to_string).collect();
        (!dims.is_empty()).then(|| format!("{name}={}", dims.join("x")))
    };
    ports(model).0.iter().filter(|info| open(info)).filter_map(shape).collect()
}

/// Whether every dim that is no number has a name.
fn has_names(model: &ModelProto) -> bool {
    let dims = |info: &ValueInfoProto| match info.r#type.as_ref().and_then(|kind| kind.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => tensor.shape.clone().unwrap_or_default().dim,
        _ => Vec::new(),
    };
    ports(model).0.iter().flat_map(dims).all(|dim| dim.value.is_some())
}

/// Where the nodes went, and which stay on the host.
fn placement(report: &Report, result: &mut CaseResult) {
    let Some(target) = report.targets.first() else { return };
    let totals = &target.totals;
    result.engines = totals.engines;
    result.placement = match (totals.engine_nodes, totals.host_nodes + totals.schedule_nodes) {
        (_, 0) => Placement::Engine,
        (0, _) => Placement::Host,
        _ => Placement::Mixed,
    };
    let host = target
        .nodes
        .iter()
        .filter(|row| matches!(row.placement, PlacementName::Host | PlacementName::Schedule))
        .map(|row| HostNode {
            op: row.op.clone(),
            code: row.code.clone().unwrap_or_default(),
            reason: row.reason.clone().unwrap_or_default(),
        });
    result.host = host.collect();
}

/// Runs a case.
pub fn execute(id: &str, runners: &[Runner], worker: &Path) -> CaseResult {
    let start = Instant::now();
    let case = Case::find(id);
    let mut result = CaseResult { case: id.to_owned(), ..CaseResult::default() };
    let loaded = case.facts().and_then(|mut facts| {
        if let Some(tolerance) = lists::tolerances()?.iter().find(|tolerance| tolerance.is_for(id)) {
            (facts.rtol, facts.atol) = (tolerance.rtol, tolerance.atol);
        }
        Ok((facts, case.load()?))
    });
    // To look at what was made of a case: its models and its bundle stay in the folder that this names.
    let keep = std::env::var_os("TRTC_CONFORMANCE_KEEP");
    let made = match &keep {
        Some(root) => std::fs::create_dir_all(root)
            .and_then(|()| tempfile::Builder::new().disable_cleanup(true).tempdir_in(root)),
        None => tempfile::Builder::new().prefix("trtc-conformance-").tempdir(),
    };
    let place = match made {
        Ok(place) => place,
        Err(error) => return CaseResult::lost(id, runners, "setup", &error.to_string()),
    };
    let (facts, (model, sets)) = match loaded {
        Ok(loaded) => loaded,
        Err(error) if folder::get().is_some() && !loads(&case.model_path) => {
            let skipped = Status::Skipped(format!("refused, by ONNX Runtime too: {error:#}"));
            result.status = runners.iter().map(|&runner| (runner, skipped.clone())).collect();
            return result;
        }
        Err(error) => return CaseResult::lost(id, runners, "setup", &format!("{error:#}")),
    };
    result.plain = facts.plain;
    result.ops = operators(&model);
    let bare = sets.is_empty();
    let mut compiled = Err(Status::Right);
    let outcome = guarded(|| {
        let mut attempts = vec![shapes(&model, &sets), exact_shapes(&model, &sets)];
        if !has_names(&model) {
            attempts.swap(0, 1);
        }
        for shapes in attempts {
            let options = |options| shapes.into_iter().fold(options, Options::shape);
            compiled = compile(&case.model_path, place.path(), worker, options);
            match &compiled {
                Err(Status::Wrong(_, text)) if text.contains("asked for") || text.contains("--shape") => {}
                _ => break,
            }
        }
        Status::Right
    });
    if outcome != Status::Right {
        compiled = Err(outcome);
    }
    // Nothing says that a model without data is valid.
    if let (true, Err(Status::Wrong(kind, text))) = (bare, &compiled)
        && kind == "compile"
    {
        compiled = Err(Status::Skipped(format!("refused: {text}")));
    }
    if let Ok((report, _)) = &compiled {
        placement(report, &mut result);
    }
    for &runner in runners {
        let status = match (&compiled, runner) {
            (_, Runner::Dynamic) => guarded(|| {
                let folder = subfolder(place.path(), "dynamic");
                dynamic::run_dynamic(&model, &sets, facts, &folder, worker)
            }),
            (_, Runner::Readback) => guarded(|| readback::run_readback(&case, &sets, facts, place.path())),
            (Err(status), Runner::Hybrid) => status.clone(),
            // It is told once.
            (Err(_), _) => Status::Skipped("not compiled".into()),
            (Ok((report, _)), Runner::Builder) => builder(report),
            (Ok((report, _)), Runner::Soundness) => soundness(report),
            (Ok((_, bundle)), Runner::Whole) => guarded(|| {
                let options = SessionOptions::default().optimize(false).mode(Mode::WholeModel);
                run(bundle, &options, &sets, facts)
            }),
            (Ok((_, bundle)), Runner::Hybrid) => guarded(|| {
                let options = SessionOptions::default().optimize(false).mode(Mode::Segments);
                run(bundle, &options, &sets, facts)
            }),
            (Ok((_, bundle)), Runner::Evaluator) => {
                guarded(|| evaluator::run_evaluator(bundle, &sets, facts))
            }
            (Ok(_), Runner::Networks) if result.engines == 0 => Status::Skipped("no engine".into()),
            (Ok((_, bundle)), Runner::Networks) => guarded(|| match networks(bundle) {
                Ok(options) => run(bundle, &options, &sets, raised(facts)),
                Err(status) => status,
            }),
        };
        let status = match status {
            Status::Wrong(kind, text) if bare && kind == "session" && !loads(&case.model_path) => {
                Status::Skipped(format!("ONNX Runtime does not load the model either: {text}"))
            }
            status => status,
        };
        result.status.insert(runner, status);
    }
    result.seconds = start.elapsed().as_secs_f64();
    result
}

/// Operators of the model's own nodes, each once.
fn operators(model: &ModelProto) -> Vec<String> {
    let nodes = model.graph.iter().flat_map(|graph| &graph.node);
    let name = |node: &NodeProto| {
        let op = node.op_type.clone().unwrap_or_default();
        match node.domain.as_deref() {
            None | Some("" | "ai.onnx") => op,
            Some(domain) => format!("{domain}.{op}"),
        }
    };
    nodes.map(name).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether ONNX Runtime takes the model itself.
fn loads(model: &Path) -> bool {
    let options = SessionOptions::default().optimize(false);
    Session::of_model(ModelSource::File(model), &options).is_ok()
}

/// A decomposition rounds at other places than the operator: next to zero, where only the absolute tolerance counts,
/// a few roundings of values around one.
pub fn raised(facts: Facts) -> Facts {
    Facts { atol: facts.atol.max(2e-6), ..facts }
}

fn subfolder(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    // A failure shows when something is written there.
    std::fs::create_dir_all(&path).ok();
    path
}

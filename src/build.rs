//! Segments of one target: lowered, built, or placed on the host after all.

use crate::{Error, Events, Options, prepare::Prepared};
use bytes::Bytes;
use std::{collections::HashMap, time::Instant};
use trtc_bundle::{MappedFile, Product, Target};
use trtc_converters::{LowerError, Registry, SegmentIo, lower};
use trtc_ir::{Code, Graph, NodeId, Refusal, Tensor};
use trtc_network::Lowered;
use trtc_partitioner::{Forced, Partition, Segment, SegmentKind, partition_with};

/// What has become of a segment.
#[derive(Debug)]
pub(crate) enum BuiltSegment {
    /// An engine segment; without an engine it is deferred.
    Engine { lowered: Lowered, engine: Option<Engine> },
    /// A host segment.
    Host,
    /// A host segment whose outputs are known now.
    Constant(Vec<Tensor>),
}

/// A built engine.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub bytes: Bytes,
    pub seconds: f64,
}

/// A target's partition, built as far as this machine can.
#[derive(Debug)]
pub(crate) struct BuiltTarget {
    pub target: Target,
    pub partition: Partition,
    pub segments: Vec<BuiltSegment>,
}

/// Seconds that went where.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub partition_s: f64,
    pub convert_s: f64,
    pub build_s: f64,
}

/// How many times a failing node is taken out of a segment before the whole segment goes to the host.
const SINGLE_NODE_ROUNDS: usize = 4;

/// Partitions and builds for one target. A failed build sends nodes to the host and partitions again; it never ends the
/// compile.
pub(crate) fn build_target(
    prepared: &Prepared,
    files: &[MappedFile],
    target: &Target,
    options: &Options,
    events: &dyn Events,
    spent: &mut Spent,
) -> Result<BuiltTarget, Error> {
    let (graph, symbols) = (&prepared.module.graph, &prepared.module.symbols);
    let mut builder = Builder::new(target, graph, options, files);
    let mut forced = Forced::new();
    let mut rounds = 0;
    // Engines by the nodes that they hold: a new partition keeps most segments as they were.
    let mut engines: HashMap<Vec<NodeId>, (Lowered, Option<Engine>)> = HashMap::new();
    loop {
        let start = Instant::now();
        let partition = partition_with(graph, symbols, target, Registry::get(), &forced, &options.cost)
            .map_err(|_| Error::bug("a cycle after the passes"))?;
        spent.partition_s += start.elapsed().as_secs_f64();
        let mut failed = false;
        for segment in partition.segments.iter().filter(|segment| segment.kind == SegmentKind::Engine) {
            if engines.contains_key(&segment.nodes) {
                continue;
            }
            let start = Instant::now();
            let lowered = convert(prepared, segment, target);
            spent.convert_s += start.elapsed().as_secs_f64();
            let result = match lowered {
                Ok(lowered) => {
                    let start = Instant::now();
                    let result = builder.build(&lowered, segment, events);
                    spent.build_s += start.elapsed().as_secs_f64();
                    result.map(|engine| (lowered, engine))?
                }
                Err((node, refusal)) => (Lowered::default(), Outcome::Failed(Failure { node, refusal })),
            };
            match result {
                (lowered, Outcome::Engine(engine)) => {
                    engines.insert(segment.nodes.clone(), (lowered, Some(engine)));
                }
                (lowered, Outcome::Deferred) => {
                    engines.insert(segment.nodes.clone(), (lowered, None));
                }
                (lowered, Outcome::Failed(failure)) => {
                    failed = true;
                    rounds += 1;
                    events.warning(&format!("{}: {}", segment.id, failure.refusal));
                    keep_failure(options, segment, &lowered, &failure);
                    take_out(segment, failure, rounds, &mut forced);
                }
            }
        }
        if !failed {
            let segments = partition
                .segments
                .iter()
                .map(|segment| match engines.remove(&segment.nodes) {
                    Some((lowered, engine)) if segment.kind == SegmentKind::Engine => {
                        BuiltSegment::Engine { lowered, engine }
                    }
                    _ => BuiltSegment::Host,
                })
                .collect();
            return Ok(BuiltTarget { target: target.clone(), partition, segments });
        }
    }
}

fn convert(
    prepared: &Prepared,
    segment: &Segment,
    target: &Target,
) -> Result<Lowered, (Option<NodeId>, Refusal)> {
    let io = SegmentIo {
        name: &segment.id,
        nodes: &segment.nodes,
        inputs: &segment.inputs,
        outputs: &segment.outputs,
    };
    lower(&prepared.module.graph, &prepared.module.symbols, io, target).map_err(|error| match error {
        LowerError::Refused { node, refusal, .. } => (Some(node), refusal),
        LowerError::Boundary { refusal, .. } => (None, refusal),
        LowerError::Fault(fault) => {
            let node =
                segment.nodes.iter().copied().find(|&id| *prepared.module.graph[id].name == *fault.node);
            (node, Refusal::new(Code::LOWERING, format!("a fault of ours: {}", fault.what)))
        }
    })
}

/// Sends the node that the failure names to the host; the whole segment when it names none, or too often.
fn take_out(segment: &Segment, failure: Failure, rounds: usize, forced: &mut Forced) {
    match failure.node.filter(|node| rounds <= SINGLE_NODE_ROUNDS && segment.nodes.contains(node)) {
        Some(node) => {
            forced.insert(node, failure.refusal);
        }
        None => {
            forced.extend(segment.nodes.iter().map(|&node| (node, failure.refusal.clone())));
        }
    }
}

fn keep_failure(options: &Options, segment: &Segment, lowered: &Lowered, failure: &Failure) {
    let Some(folder) = &options.keep_failures else { return };
    let text = format!("# {}\n{}", failure.refusal, lowered.network);
    let path = folder.join(format!("{}.network.txt", segment.id));
    if let Err(error) = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text)) {
        tracing::warn!("{}: {error}", path.display());
    }
}

/// Why a segment has no engine.
#[derive(Debug)]
struct Failure {
    node: Option<NodeId>,
    refusal: Refusal,
}

enum Outcome {
    Engine(Engine),
    Deferred,
    Failed(Failure),
}

/// Builds engines for one target, or defers them.
#[cfg(feature = "tensorrt")]
struct Builder<'a> {
    target: &'a Target,
    graph: &'a Graph,
    options: &'a Options,
    files: &'a [MappedFile],
    /// Started with the first engine: a model without engines needs no library.
    worker: Option<crate::worker::Worker>,
    /// Opened with the worker.
    cache: Option<crate::cache::Cache>,
}

/// Stands in for the builder, which this executable was compiled without.
#[cfg(not(feature = "tensorrt"))]
struct Builder<'a> {
    target: &'a Target,
    options: &'a Options,
}

#[cfg(feature = "tensorrt")]
impl<'a> Builder<'a> {
    fn new(
        target: &'a Target,
        graph: &'a Graph,
        options: &'a Options,
        files: &'a [MappedFile],
    ) -> Builder<'a> {
        Builder { target, graph, options, files, worker: None, cache: None }
    }

    fn worker(&mut self) -> Result<&mut crate::worker::Worker, Error> {
        use crate::worker::{BuildOptions, Worker};
        if self.worker.is_none() {
            let explicit = self.options.rtx_library.as_deref();
            let library =
                trtc_tensorrt::locate(Product::Rtx, trtc_tensorrt::Use::Build, explicit).map_err(|e| {
                    Error::missing(e.to_string())
                        .help("`make sdk` fetches it; `trtc doctor` shows what is found")
                })?;
            let cached = self.options.cache_dir.as_deref();
            self.cache = cached.map(|folder| crate::cache::Cache::new(folder, &library));
            let mut build = BuildOptions::new(library);
            build.time_limit = self.options.build_time_limit.unwrap_or(build.time_limit);
            build.executable = self.options.worker.clone();
            self.worker = Some(Worker::new(build));
        }
        self.worker.as_mut().ok_or_else(|| Error::bug("no worker"))
    }

    fn build(&mut self, lowered: &Lowered, segment: &Segment, events: &dyn Events) -> Result<Outcome, Error> {
        use crate::worker::{BuildRequest, WorkerFailure};
        if self.options.defer || self.target.product() != Product::Rtx {
            return Ok(Outcome::Deferred);
        }
        events.build_started(self.target, &segment.id, segment.nodes.len());
        let start = Instant::now();
        self.worker()?;
        let key = self.cache.as_ref().and_then(|cache| cache.key(lowered, self.target));
        if let Some(bytes) = self.cache.as_ref().zip(key).and_then(|(cache, key)| cache.get(key)) {
            let seconds = start.elapsed().as_secs_f64();
            events.build_ended(self.target, &segment.id, seconds, Ok(bytes.len() as u64));
            return Ok(Outcome::Engine(Engine { bytes, seconds }));
        }
        let request = BuildRequest { lowered, target: self.target };
        let files = self.files;
        let result = self.worker()?.build(request, files);
        let seconds = start.elapsed().as_secs_f64();
        let (code, words, nodes) = match result {
            Ok(output) => {
                events.build_ended(self.target, &segment.id, seconds, Ok(output.engine.len()));
                if let Some((cache, key)) = self.cache.as_ref().zip(key) {
                    cache.put(key, &output.engine.bytes());
                }
                let engine = Engine { bytes: output.engine.bytes(), seconds: output.build_s };
                return Ok(Outcome::Engine(engine));
            }
            Err(error @ WorkerFailure::Missing { .. }) => return Err(Error::missing(error.to_string())),
            Err(WorkerFailure::Refused { words, nodes }) => {
                (Code::BUILD_REFUSED, format!("the builder refused: {}", words.join("; ")), nodes)
            }
            Err(error @ WorkerFailure::TimedOut { .. }) => {
                (Code::BUILD_TIMED_OUT, error.to_string(), Vec::new())
            }
            Err(error @ WorkerFailure::Fault(_)) => (Code::LOWERING, error.to_string(), Vec::new()),
            Err(error) => (Code::BUILD_CRASHED, error.to_string(), Vec::new()),
        };
        events.build_ended(self.target, &segment.id, seconds, Err(&words));
        let named = |id: &&NodeId| nodes.iter().any(|name| **name == *self.graph[**id].name);
        let node = segment.nodes.iter().find(named).copied();
        Ok(Outcome::Failed(Failure { node, refusal: Refusal::new(code, words) }))
    }
}

#[cfg(not(feature = "tensorrt"))]
impl<'a> Builder<'a> {
    fn new(target: &'a Target, _: &'a Graph, options: &'a Options, _: &'a [MappedFile]) -> Builder<'a> {
        Builder { target, options }
    }

    fn build(&mut self, _: &Lowered, _: &Segment, _: &dyn Events) -> Result<Outcome, Error> {
        match self.target.product() {
            Product::Rtx if !self.options.defer => {
                Err(Error::missing("this trtc was compiled without its builder")
                    .help("compile it with the feature `tensorrt`, or the model with --target host"))
            }
            _ => Ok(Outcome::Deferred),
        }
    }
}

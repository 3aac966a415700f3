//! Segments of every target: lowered, built, or placed on the host after all.
//!
//! Targets and the engines of each are built at the same time, as many as there are cores and memory for ([`permits`]);
//! what comes out does not depend on who is ready first. A network that cannot be built is looked into ([`recover`]), the
//! nodes to blame go to the host, and the rest is partitioned and built again.

mod backend;
#[cfg_attr(not(feature = "tensorrt"), path = "no_builder.rs")]
mod builder;
mod cache;
mod checked;
mod deferred;
mod failures;
mod fold;
mod hashing;
mod lowering;
mod permits;
mod recover;
mod search;

pub use cache::{CacheUse, cache_use};
pub use deferred::{FinishedTarget, build_deferred};

use crate::{
    Error, Events, Options,
    plan::{Cuts, plan},
    prepare::Prepared,
};
use backend::{Backend, Outcome};
use checked::Checked;
use lowering::lower_nodes;
use recover::{Budget, Recovery, Scene, recover};
use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};
use trtc_bundle::{MappedFile, Target};
use trtc_ir::{NodeId, Tensor, ValueId};
use trtc_network::Lowered;
use trtc_partitioner::{FailureRow, Forced, GraphPath, Part, Partition, Segment, SegmentKind};

pub(crate) use backend::Engine;

/// What has become of a segment.
#[derive(Debug)]
pub(crate) enum BuiltSegment {
    /// An engine segment; without an engine it is deferred.
    Engine { lowered: Box<Lowered>, engine: Option<Engine> },
    /// A host segment.
    Host,
    /// A host segment whose outputs are known now.
    Constant(Vec<Tensor>),
}

/// A target's partition, built as far as this machine can.
#[derive(Debug)]
pub(crate) struct BuiltTarget {
    pub target: Target,
    pub partition: Partition,
    /// In the order of [`Partition::parts`].
    pub segments: Vec<BuiltSegment>,
    /// What could not be built, and what was done about it.
    pub failures: Vec<FailureRow>,
    spent: Spent,
}

/// Seconds that went where. Partitioning, lowering and recovering are summed over targets and engines; building is the
/// time during which anything was built.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub partition_s: f64,
    pub convert_s: f64,
    pub build_s: f64,
    pub recover_s: f64,
}

/// Partitions and builds for all targets, in their order. A failed build never ends the compile.
///
/// # Errors
/// Something is missing on this machine.
pub(crate) fn build_targets(
    prepared: &Prepared,
    files: &[MappedFile],
    options: &Options,
    events: &dyn Events,
) -> Result<(Vec<BuiltTarget>, Spent), Error> {
    let backend = Backend::new(options, files, events);
    let targets = options.targets_or_default();
    let folder = fold::Folder::new(options);
    let one = |target: &Target| {
        let mut built = build_target(prepared, &backend, target, options, events)?;
        folder.fold(prepared, &mut built);
        Ok(built)
    };
    let built = in_parallel(targets.len(), &targets, one).into_iter().collect::<Result<Vec<_>, Error>>()?;
    let mut spent = Spent { build_s: backend.busy_s(), ..Spent::default() };
    for target in &built {
        spent.partition_s += target.spent.partition_s;
        spent.convert_s += target.spent.convert_s;
        spent.recover_s += target.spent.recover_s;
    }
    Ok((built, spent))
}

/// An engine segment, known by what it holds: a new partition keeps most segments as they were.
type Key = (GraphPath, Vec<NodeId>, Vec<ValueId>, Vec<ValueId>);

fn key(Part { partition, segment, .. }: &Part<'_>) -> Key {
    (partition.graph.clone(), segment.nodes.clone(), segment.inputs.clone(), segment.outputs.clone())
}

/// What an attempt at a segment gave.
enum Attempt {
    Done(Box<(Lowered, Option<Engine>)>),
    Failed(Box<Recovery>),
}

fn build_target(
    prepared: &Prepared,
    backend: &Backend<'_>,
    target: &Target,
    options: &Options,
    events: &dyn Events,
) -> Result<BuiltTarget, Error> {
    let budget = Budget::new(options, backend.time_limit());
    let (mut forced, mut cuts) = (Forced::new(), Cuts::new());
    let mut engines: HashMap<Key, (Lowered, Option<Engine>)> = HashMap::new();
    // Engines of trial builds, whose networks have another name.
    let mut trials: HashMap<Key, (Lowered, Engine)> = HashMap::new();
    let checked = Checked::default();
    let mut failures = Vec::new();
    let mut spent = Spent::default();
    loop {
        let start = Instant::now();
        let partition = plan(prepared, target, &forced, &cuts, options, &checked)?;
        spent.partition_s += start.elapsed().as_secs_f64();
        let parts = partition.parts(&prepared.module.graph);
        checked.keep_only(&parts);
        let is_engine = |part: &&Part<'_>| part.segment.kind == SegmentKind::Engine;
        for part in parts.iter().filter(is_engine) {
            if let Some((mut lowered, engine)) = trials.remove(&key(part)) {
                lowered.network.name.clone_from(&part.segment.id);
                backend.keep(&lowered, target, &engine);
                engines.insert(key(part), (lowered, Some(engine)));
            }
        }
        let todo: Vec<Part<'_>> = parts
            .iter()
            .filter(is_engine)
            .filter(|part| !engines.contains_key(&key(part)))
            .copied()
            .collect();
        let scene = |part: &_| Scene { prepared, backend, options, target, part: *part, budget: &budget };
        let attempts =
            in_parallel(backend.cores(), &todo, |part| attempt(&scene(part), checked.take(part), events));
        let mut failed = false;
        for (part, result) in todo.into_iter().zip(attempts) {
            let (attempt, convert_s) = result?;
            spent.convert_s += convert_s;
            match attempt {
                Attempt::Done(done) => {
                    engines.insert(key(&part), *done);
                }
                Attempt::Failed(recovery) => {
                    failed = true;
                    spent.recover_s += recovery.seconds;
                    tell(events, target, part.segment, &recovery);
                    let Recovery { host, cuts: places, engines: made, rows, .. } = *recovery;
                    let path = &part.partition.graph;
                    forced.extend(host.into_iter().map(|(node, refusal)| ((path.clone(), node), refusal)));
                    cuts.extend(places.into_iter().map(|node| (path.clone(), node)));
                    failures.extend(rows);
                    for (nodes, lowered, engine) in made {
                        let (inputs, outputs) = trtc_partitioner::boundary(part.graph, &nodes);
                        trials.insert((path.clone(), nodes, inputs, outputs), (lowered, engine));
                    }
                }
            }
        }
        if !failed {
            let segments = parts
                .iter()
                .map(|part| match engines.remove(&key(part)) {
                    Some((lowered, engine)) if part.segment.kind == SegmentKind::Engine => {
                        BuiltSegment::Engine { lowered: Box::new(lowered), engine }
                    }
                    _ => BuiltSegment::Host,
                })
                .collect();
            return Ok(BuiltTarget { target: target.clone(), partition, segments, failures, spent });
        }
    }
}

/// Lowers, unless its check did, and builds one segment; also the seconds that lowering took.
fn attempt(
    scene: &Scene<'_>,
    lowered: Option<Lowered>,
    events: &dyn Events,
) -> Result<(Attempt, f64), Error> {
    let Scene { prepared, backend, target, part: Part { graph, segment, .. }, .. } = *scene;
    let symbols = &prepared.module.symbols;
    let start = Instant::now();
    let Segment { id, nodes, inputs, outputs, .. } = segment;
    let lowered = match lowered {
        Some(lowered) => Ok(lowered),
        None => lower_nodes(graph, symbols, id, nodes, inputs, outputs, target),
    };
    let convert_s = start.elapsed().as_secs_f64();
    let lowered = match lowered {
        Ok(lowered) => lowered,
        Err((nodes, refusal)) => {
            let recovery = Recovery::of_lowering(scene, nodes, refusal);
            return Ok((Attempt::Failed(Box::new(recovery)), convert_s));
        }
    };
    if !backend.builds(target) {
        return Ok((Attempt::Done(Box::new((lowered, None))), convert_s));
    }
    events.build_started(target, &segment.id, segment.nodes.len());
    let start = Instant::now();
    let outcome = backend.build(&lowered, target)?;
    let seconds = start.elapsed().as_secs_f64();
    let attempt = match outcome {
        Outcome::Engine(engine) => {
            events.build_ended(target, &segment.id, seconds, Ok(engine.bytes.len() as u64));
            Attempt::Done(Box::new((lowered, Some(engine))))
        }
        Outcome::Failed(failure) => {
            events.build_ended(target, &segment.id, seconds, Err(&failure.words));
            Attempt::Failed(Box::new(recover(scene, &lowered, failure, seconds)?))
        }
    };
    Ok((attempt, convert_s))
}

/// Says what a segment failed with and what is done about it.
fn tell(events: &dyn Events, target: &Target, segment: &Segment, recovery: &Recovery) {
    let hosted: Vec<&str> = recovery.rows.iter().flat_map(|row| &row.nodes).map(String::as_str).collect();
    events.recovered(target, &segment.id, recovery.seconds, &hosted);
    for row in &recovery.rows {
        let what = match (&row.nodes[..], &row.split_at) {
            (_, Some(node)) => format!("it is split at `{node}`"),
            ([only], _) => format!("`{only}` goes to the host"),
            (nodes, _) if nodes.len() == segment.nodes.len() => "all of it goes to the host".to_owned(),
            (nodes, _) => format!("`{}` and {} more nodes go to the host", nodes[0], nodes.len() - 1),
        };
        let builds = match recovery.builds {
            0 => String::new(),
            n => format!(" ({n} trial builds, {:.1} s)", recovery.seconds),
        };
        events.warning(&format!("{} for {target}: {}; {what}{builds}", segment.id, row.words));
    }
}

/// Maps `f` over `items` on up to `threads` threads; results stand in the order of the items.
fn in_parallel<T: Sync, R: Send>(threads: usize, items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    /// Graphs are nested as deep as the model says.
    const STACK_BYTES: usize = 64 << 20;
    if threads < 2 || items.len() < 2 {
        return items.iter().map(f).collect();
    }
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((item, slot)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).zip(slots.get(at))
        } {
            let result = f(item);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            let thread = std::thread::Builder::new().name("build".to_owned()).stack_size(STACK_BYTES);
            // Without another thread this one does all the work.
            thread.spawn_scoped(scope, work).ok();
        }
        work();
    });
    let done = slots.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
    done.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::in_parallel;

    #[test]
    fn results_stand_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        let slow = |&n: &u64| {
            std::thread::sleep(std::time::Duration::from_millis((50 - n) / 10));
            n * n
        };
        let expected: Vec<u64> = (0..50).map(|n| n * n).collect();
        for threads in [0, 1, 2, 8, 100] {
            assert_eq!(in_parallel(threads, &items, slow), expected);
        }
        assert!(in_parallel(4, &[] as &[u64], slow).is_empty());
    }
}

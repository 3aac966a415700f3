//! What to do about a network that cannot be built: find the nodes to blame by trial builds.

use super::{
    backend::{Backend, Engine, Failure, Outcome},
    cache::Blamed,
    failures,
    lowering::lower_nodes,
    search::{Finding, Trials, Verdict, search},
};
use crate::{Error, Options, prepare::Prepared};
use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::{Duration, Instant},
};
use trtc_bundle::Target;
use trtc_ir::{Code, NodeId, Refusal, infer::node_path};
use trtc_network::Lowered;
use trtc_partitioner::{FailureRow, Part, boundary};

/// Wall-clock time that a target's failures may take to be looked into; shared by its segments.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Mutex<Duration>,
}

impl Budget {
    /// As long as one build may take, unless the user sets another limit.
    pub fn new(options: &Options, time_limit: Duration) -> Budget {
        Budget { left: Mutex::new(options.recovery_time_limit.unwrap_or(time_limit)) }
    }

    fn left(&self) -> Duration {
        *self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn take(&self, spent: Duration) {
        let mut left = self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *left = left.saturating_sub(spent);
    }
}

/// How a failed segment is got over.
pub(crate) struct Recovery {
    /// Nodes that go to the host, and why.
    pub host: Vec<(NodeId, Refusal)>,
    /// Nodes before which an engine ends.
    pub cuts: Vec<NodeId>,
    /// Engines that trial builds made on the way.
    pub engines: Vec<(Vec<NodeId>, Lowered, Engine)>,
    /// For the report.
    pub rows: Vec<FailureRow>,
    pub builds: usize,
    pub seconds: f64,
}

impl Recovery {
    /// Nodes that could not be lowered after all.
    pub fn of_lowering(scene: &Scene<'_>, nodes: Vec<NodeId>, refusal: Refusal) -> Recovery {
        let row = FailureRow {
            segment: scene.part.segment.id.clone(),
            code: refusal.code.to_string(),
            words: refusal.why.clone(),
            nodes: nodes.iter().map(|&id| scene.name(id)).collect(),
            split_at: None,
            trial_builds: 0,
            recover_s: 0.0,
        };
        Recovery {
            host: nodes.into_iter().map(|node| (node, refusal.clone())).collect(),
            cuts: Vec::new(),
            engines: Vec::new(),
            rows: vec![row],
            builds: 0,
            seconds: 0.0,
        }
    }
}

/// Where a failure happened.
pub(crate) struct Scene<'a> {
    pub prepared: &'a Prepared,
    pub backend: &'a Backend<'a>,
    pub options: &'a Options,
    pub target: &'a Target,
    /// The segment, with its graph.
    pub part: Part<'a>,
    pub budget: &'a Budget,
}

impl Scene<'_> {
    /// Path of a node of the segment.
    fn name(&self, id: NodeId) -> String {
        node_path(&self.part.partition.path, &self.part.graph[id].name)
    }
}

/// Finds out what to do about `failure` of the segment's network, which took so many seconds to fail.
///
/// # Errors
/// Something is missing on this machine.
pub(crate) fn recover(
    scene: &Scene<'_>,
    lowered: &Lowered,
    failure: Failure,
    failed_s: f64,
) -> Result<Recovery, Error> {
    let start = Instant::now();
    let graph = scene.part.graph;
    let segment = scene.part.segment;
    let nodes = &segment.nodes;
    let refusal = Refusal::new(failure.code, failure.words.clone());
    if let Some(folder) = &scene.options.keep_failures {
        failures::keep(folder, &scene.part.segment.id, scene.target, &refusal, lowered);
    }
    let is_named = |id: &&NodeId| failure.nodes.iter().any(|name| **name == *graph[**id].name);
    let hints: Vec<NodeId> = nodes.iter().filter(is_named).copied().collect();
    let mut trials = Builds {
        scene,
        code: failure.code,
        deadline: start + scene.budget.left(),
        engines: Vec::new(),
        failed: HashMap::new(),
        builds: 0,
        unsure: false,
        error: None,
    };
    // A broken promise of ours names its node; no trial is needed, nor of what an earlier compile found.
    let known = found_before(scene, &failure.blamed);
    let is_known = known.is_some();
    let found = match (known, hints.first()) {
        (Some(found), _) => found,
        (_, Some(&node)) if failure.code == Code::LOWERING => vec![Finding::Nodes(vec![node], refusal)],
        _ if failure.code == Code::LOWERING => vec![Finding::Nodes(nodes.clone(), refusal)],
        _ => search(nodes, refusal, &hints, failure.by_size, &mut trials),
    };
    let is_complete = !trials.unsure && !trials.spent();
    let Builds { engines, mut failed, builds, error, .. } = trials;
    if let Some(error) = error {
        return Err(error);
    }
    if !is_known && is_complete {
        scene.backend.blame(lowered, scene.target, &failure, blamed(scene, &found));
    }
    scene.budget.take(start.elapsed());
    let seconds = failed_s + start.elapsed().as_secs_f64();
    let names = |ids: &[NodeId]| ids.iter().map(|&id| scene.name(id)).collect::<Vec<String>>();
    let mut recovery =
        Recovery { host: Vec::new(), cuts: Vec::new(), engines, rows: Vec::new(), builds, seconds };
    for finding in found {
        let (nodes, cut, refusal) = match finding {
            Finding::Nodes(nodes, refusal) => (nodes, None, refusal),
            Finding::Cut(node, refusal) => (Vec::new(), Some(node), refusal),
        };
        let mut smallest = || failed.remove(&nodes).or_else(|| part(scene, &nodes).filter(|_| is_known));
        if let (Some(folder), false) = (&scene.options.keep_failures, nodes.is_empty())
            && let Some(smallest) = smallest()
        {
            let stem =
                format!("{}-{}", scene.part.segment.id, nodes.first().map_or("", |&id| &graph[id].name));
            failures::keep(folder, &stem, scene.target, &refusal, &smallest);
        }
        recovery.rows.push(FailureRow {
            segment: scene.part.segment.id.clone(),
            code: refusal.code.to_string(),
            words: refusal.why.clone(),
            nodes: names(&nodes),
            split_at: cut.map(|node| scene.name(node)),
            trial_builds: builds,
            recover_s: seconds,
        });
        recovery.cuts.extend(cut);
        recovery.host.extend(nodes.into_iter().map(|node| (node, refusal.clone())));
    }
    Ok(recovery)
}

/// The network of some nodes of the segment, where they can stand alone.
fn part(scene: &Scene<'_>, nodes: &[NodeId]) -> Option<Lowered> {
    let (graph, symbols) = (scene.part.graph, &scene.prepared.module.symbols);
    let (inputs, outputs) = boundary(graph, nodes);
    lower_nodes(graph, symbols, "part", nodes, &inputs, &outputs, scene.target).ok()
}

/// What was found, by names.
fn blamed(scene: &Scene<'_>, found: &[Finding<Refusal>]) -> Vec<Blamed> {
    let graph = scene.part.graph;
    let one = |finding: &Finding<Refusal>| {
        let (nodes, cut, refusal) = match finding {
            Finding::Nodes(nodes, refusal) => (&nodes[..], false, refusal),
            Finding::Cut(node, refusal) => (std::slice::from_ref(node), true, refusal),
        };
        let nodes = nodes.iter().map(|&id| graph[id].name.to_string()).collect();
        Blamed { nodes, cut, code: refusal.code.0, words: refusal.why.clone() }
    };
    found.iter().map(one).collect()
}

/// What an earlier compile found of the same network; `None` when there is nothing, or its names are not all here.
fn found_before(scene: &Scene<'_>, blamed: &[Blamed]) -> Option<Vec<Finding<Refusal>>> {
    let graph = scene.part.graph;
    let id = |name: &String| scene.part.segment.nodes.iter().copied().find(|&id| *graph[id].name == **name);
    let one = |Blamed { nodes, cut, code, words }: &Blamed| {
        let nodes: Vec<NodeId> = nodes.iter().map(id).collect::<Option<_>>()?;
        let refusal = Refusal::new(Code(*code), words.clone());
        match (cut, nodes.first()) {
            (_, None) => None,
            (true, Some(&node)) => Some(Finding::Cut(node, refusal)),
            (false, _) => Some(Finding::Nodes(nodes, refusal)),
        }
    };
    let found: Vec<_> = blamed.iter().map(one).collect::<Option<_>>()?;
    (!found.is_empty()).then_some(found)
}

/// Trial builds of parts of a segment.
struct Builds<'a> {
    scene: &'a Scene<'a>,
    /// What the whole failed with; a part that fails otherwise says nothing.
    code: Code,
    deadline: Instant,
    engines: Vec<(Vec<NodeId>, Lowered, Engine)>,
    /// Networks that failed, to be kept as reproducers.
    failed: HashMap<Vec<NodeId>, Lowered>,
    builds: usize,
    /// Some trial ran out of time or memory: another compile may find something else.
    unsure: bool,
    error: Option<Error>,
}

impl Builds<'_> {
    /// A part's share of the time limit, so that halving a network that hangs takes about as long as its first build.
    fn limit(&self, nodes: usize) -> Duration {
        const LEAST: Duration = Duration::from_secs(10);
        let whole = self.scene.backend.time_limit();
        let share = whole.mul_f64(nodes as f64 / self.scene.part.segment.nodes.len().max(1) as f64);
        share.max(LEAST).min(whole)
    }
}

impl Trials for Builds<'_> {
    type Failure = Refusal;

    fn build(&mut self, nodes: &[NodeId]) -> Verdict<Refusal> {
        let Scene { backend, target, .. } = *self.scene;
        let Some(lowered) = part(self.scene, nodes) else { return Verdict::Unresolved };
        self.builds += 1;
        match backend.build_now(&lowered, target, self.limit(nodes.len())) {
            Ok(Outcome::Engine(engine)) => {
                self.engines.push((nodes.to_vec(), lowered, engine));
                Verdict::Builds
            }
            Ok(Outcome::Failed(failure)) if failure.code == self.code => {
                if self.scene.options.keep_failures.is_some() {
                    self.failed.insert(nodes.to_vec(), lowered);
                }
                Verdict::Fails(Refusal::new(failure.code, failure.words))
            }
            Ok(Outcome::Failed(failure)) => {
                self.unsure |= failure.by_size;
                Verdict::Unresolved
            }
            Err(error) => {
                self.error.get_or_insert(error);
                Verdict::Unresolved
            }
        }
    }

    fn spent(&self) -> bool {
        self.error.is_some() || Instant::now() >= self.deadline
    }

    fn between(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let graph = self.scene.part.graph;
        let (Some(&first), Some(&last)) = (nodes.first(), nodes.last()) else { return Vec::new() };
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let reached = |from: NodeId, forward: bool| {
            let mut reached = HashSet::from([from]);
            let mut queue = vec![from];
            while let Some(id) = queue.pop() {
                let next: Vec<NodeId> = match forward {
                    true => graph.successors(id).collect(),
                    false => graph.predecessors(id).collect(),
                };
                queue.extend(next.into_iter().filter(|next| inside.contains(next) && reached.insert(*next)));
            }
            reached
        };
        let (after, before) = (reached(first, true), reached(last, false));
        let on_path =
            |id: &NodeId| *id == first || *id == last || (after.contains(id) && before.contains(id));
        nodes.iter().copied().filter(on_path).collect()
    }
}

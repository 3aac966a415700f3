//! From admission to segments.

use crate::{
    choose::{Choice, Estimate, Request, choose},
    cost::{Constants, CostModel, Estimator, HOST},
    layout::Layout,
    refine::Moved,
    schedule::{self, Scheduled},
    segments::segments,
};
use std::collections::{HashMap, HashSet};
use trtc_bundle::Target;
use trtc_ir::{Code, Graph, NodeId, NodeView, Oracle, Refusal, Symbols, ValueId, oracle::SegmentRefusal};

/// Where a node runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// In the engine of this segment (index into [`Partition::segments`]).
    Engine(usize),
    /// On the host, in this segment, for this reason.
    Host(usize, Refusal),
    /// Control flow that the schedule runs: the step of this number. The reason says why no engine holds it.
    Schedule(usize, Refusal),
}

impl Placement {
    /// The segment that the node is at home in.
    pub fn segment(&self) -> usize {
        let (Placement::Engine(k) | Placement::Host(k, _) | Placement::Schedule(k, _)) = self;
        *k
    }

    pub(crate) fn segment_mut(&mut self) -> &mut usize {
        let (Placement::Engine(k) | Placement::Host(k, _) | Placement::Schedule(k, _)) = self;
        k
    }
}

/// Kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SegmentKind {
    /// A TensorRT network.
    Engine,
    /// Run by the host backend.
    Host,
    /// One control flow node, run by the schedule.
    Schedule,
}

/// Nodes that run together.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Name, unique in the partition: `engine_0`, `host_1`; in a body with the path of the body before it
    /// (`if_3/then_branch/engine_0`). Of control flow, the path of its node.
    pub id: String,
    /// Kind.
    pub kind: SegmentKind,
    /// Nodes in topological order. A node may stand in several segments: [`Partition::placement`] names the one that
    /// makes its outputs for others, the rest compute it for themselves.
    pub nodes: Vec<NodeId>,
    /// Values made outside, in order of first use. No constants.
    pub inputs: Vec<ValueId>,
    /// Values wanted outside, in order of making.
    pub outputs: Vec<ValueId>,
    /// Bytes of the inputs at the optimum of the ranges; `None` when one cannot be told.
    pub bytes_in: Option<u64>,
    /// Bytes of the outputs, likewise.
    pub bytes_out: Option<u64>,
    /// Of control flow: the partitions of its subgraphs.
    pub bodies: Vec<Body>,
}

/// A subgraph of a node that the schedule runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// The attribute that holds it: `then_branch`, `else_branch`, `body`.
    pub attr: String,
    /// Its partition.
    pub partition: Partition,
}

/// Which graph of a module: the nodes that hold it, outermost first, each with the number of its subgraph. Empty for the
/// model's own graph.
pub type GraphPath = Vec<(NodeId, usize)>;

/// A partition: segments in an order in which they can run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Partition {
    /// The graph.
    pub graph: GraphPath,
    /// The graph by names (`if_3/then_branch`); empty for the model's own.
    pub path: String,
    /// Segments in schedule order.
    pub segments: Vec<Segment>,
    /// Placement of every node of the graph. Nodes of subgraphs go with the node that holds them, unless the schedule
    /// runs it: then the partitions of its bodies place them.
    pub placement: HashMap<NodeId, Placement>,
    /// What it is estimated to take.
    pub estimate: Estimate,
    /// What each node on the host is estimated to take in nanoseconds: its work and the copies of what it reads from
    /// engines or makes for them. A copy that several nodes need counts at each.
    pub host_ns: HashMap<NodeId, u64>,
}

/// Nodes that no engine takes whatever the oracle says, with the reason: what a failed build found.
pub type Forced = HashMap<(GraphPath, NodeId), Refusal>;

/// Partitions a graph for a target by the default cost model; see [`partition_with`].
///
/// # Errors
/// The nodes of a cycle.
pub fn partition(
    graph: &Graph,
    symbols: &Symbols,
    target: &Target,
    oracle: &dyn Oracle,
    forced: &Forced,
) -> Result<Partition, Vec<NodeId>> {
    partition_with(graph, symbols, target, oracle, forced, &CostModel::default())
}

/// Partitions a graph for a target.
///
/// A control flow node that no engine holds is run by the schedule when something in its bodies is worth an engine: the
/// bodies are then partitioned in turn, to any depth. Admission and clustering are linear; each node that a boundary
/// check expels costs one more round over the segments that changed.
///
/// # Errors
/// The nodes of a cycle.
pub fn partition_with(
    graph: &Graph,
    symbols: &Symbols,
    target: &Target,
    oracle: &dyn Oracle,
    forced: &Forced,
    cost: &CostModel,
) -> Result<Partition, Vec<NodeId>> {
    // Constants that make no sense were refused when they were read.
    let constants = cost.constants(target).ok();
    let places = cost.places();
    Partitioner { symbols, target, oracle, forced, constants, places }.graph(graph, Vec::new(), String::new())
}

/// What is the same for all graphs of a module.
pub(crate) struct Partitioner<'a> {
    pub symbols: &'a Symbols,
    target: &'a Target,
    oracle: &'a dyn Oracle,
    forced: &'a Forced,
    pub constants: Option<Constants>,
    /// Whether cost decides.
    pub places: bool,
}

impl Partitioner<'_> {
    /// Partitions one graph.
    pub fn graph(&self, graph: &Graph, path: GraphPath, name: String) -> Result<Partition, Vec<NodeId>> {
        let Partitioner { symbols, target, oracle, .. } = *self;
        let order = graph.topo_order()?;
        let forced = self.forced.iter().filter(|((at, _), _)| *at == path);
        let mut refusals: HashMap<NodeId, Refusal> =
            forced.map(|((_, node), refusal)| (*node, refusal.clone())).collect();
        for &id in &order {
            if !refusals.contains_key(&id)
                && let Err(refusal) = oracle.admit(NodeView::new(graph, symbols, id), target)
            {
                refusals.insert(id, refusal);
            }
        }
        let mut partition = Partition { graph: path, path: name, ..Partition::default() };
        let mut estimator =
            self.constants.as_ref().map(|constants| Estimator::new(graph, symbols, &order, constants));
        let mut scheduled: HashMap<NodeId, Scheduled> = HashMap::new();
        let mut looked_at: HashSet<NodeId> = HashSet::new();
        // What the schedule saves over control flow on the host.
        let mut saved = 0;
        let mut checked: HashSet<Vec<NodeId>> = HashSet::new();
        loop {
            for &id in order.iter().filter(|id| refusals.contains_key(id)) {
                if schedule::is_control_flow(graph, id)
                    && looked_at.insert(id)
                    && let Some(found) = schedule::bodies(self, graph, &partition, id, estimator.as_ref())
                {
                    if let Some(estimator) = &mut estimator {
                        saved += estimator.work(id)[HOST].saturating_sub(found.host_ns);
                        estimator.set_host_work(id, found.host_ns);
                    }
                    scheduled.insert(id, found);
                }
            }
            let request = Request {
                graph,
                symbols,
                order: &order,
                admitted: &|id| !refusals.contains_key(&id),
                scheduled: &|id| scheduled.contains_key(&id),
                whole: partition.graph.is_empty(),
            };
            let choice = choose(&request, estimator.as_ref(), self.places);
            let Choice { layout, mut estimate, moved } = choice;
            let segments = segments(graph, symbols, &order, &layout, &partition.path);
            let mut expelled = Vec::new();
            for segment in segments.iter().filter(|segment| segment.kind == SegmentKind::Engine) {
                if checked.contains(&segment.nodes) {
                    continue;
                }
                match oracle.check_segment(
                    graph,
                    symbols,
                    &segment.nodes,
                    &segment.inputs,
                    &segment.outputs,
                    target,
                ) {
                    Ok(()) => {
                        checked.insert(segment.nodes.clone());
                    }
                    Err(refusal) => expelled.extend(expel(graph, symbols, segment, refusal)),
                }
            }
            if !expelled.is_empty() {
                refusals.extend(expelled);
                continue;
            }
            for (&node, moved) in &moved {
                refusals.entry(node).or_insert_with(|| for_cost(moved));
            }
            place(&mut partition, &order, &layout, segments, refusals);
            if let Some(estimator) = &estimator {
                partition.host_ns = host_ns(graph, &layout, estimator, &partition.placement);
                estimate.maximal_ns += saved;
                estimate.host_ns += saved;
            }
            partition.estimate = estimate;
            schedule::set_apart(graph, symbols, &mut partition, &mut scheduled);
            if let Some(constants) = self.constants.as_ref().filter(|_| !scheduled_none(&partition)) {
                partition.estimate.total_ns = crate::cost::total(graph, symbols, constants, &partition);
            }
            return Ok(partition);
        }
    }
}

fn scheduled_none(partition: &Partition) -> bool {
    partition.segments.iter().all(|segment| segment.kind != SegmentKind::Schedule)
}

/// Why a node that an engine would take is on the host.
fn for_cost(moved: &Moved) -> Refusal {
    let us = |ns: u64| format!("{:.1} us", ns as f64 / 1000.0);
    let (before, after) = (us(moved.before), us(moved.after));
    let what = match moved.nodes {
        1 => String::new(),
        n => format!(" for the {n} nodes that moved together"),
    };
    Refusal::new(
        Code::COST,
        format!("placed on the host for cost: {after} there, {before} in an engine with launch and copies{what}"),
    )
    .help("an engine takes it where the host nodes around it move to an engine, or copies are cheaper (`--cost-model`)")
}

/// The nodes that leave a segment for a refusal; never none, so that the fixpoint ends.
fn expel(
    graph: &Graph,
    symbols: &Symbols,
    segment: &Segment,
    refusal: SegmentRefusal,
) -> Vec<(NodeId, Refusal)> {
    match refusal {
        SegmentRefusal::Node(node, refusal) => vec![(node, refusal)],
        SegmentRefusal::Value(value, refusal) => {
            let refusal = refusal.slot(graph[value].name.to_string());
            let inside: HashSet<NodeId> = segment.nodes.iter().copied().collect();
            let mut nodes: Vec<NodeId> =
                graph[value].users().iter().copied().filter(|user| inside.contains(user)).collect();
            nodes.extend(
                graph[value].producer().map(|(maker, _)| maker).filter(|maker| inside.contains(maker)),
            );
            if is_unbounded(graph, symbols, value) {
                // What these nodes make of an unbounded size is unbounded in most cases, would enter the engine next, and
                // be refused in turn: a long chain leaves at once, not node by node.
                let mut seen: HashSet<NodeId> = nodes.iter().copied().collect();
                let mut k = 0;
                while let Some(&node) = nodes.get(k) {
                    k += 1;
                    let outputs = graph[node].outputs().iter().flatten();
                    for &output in outputs.filter(|&&output| is_unbounded(graph, symbols, output)) {
                        let users = graph[output].users().iter().copied();
                        nodes.extend(users.filter(|&user| inside.contains(&user) && seen.insert(user)));
                    }
                }
            }
            nodes.sort_unstable();
            nodes.dedup();
            if nodes.is_empty() {
                nodes = segment.nodes.clone();
            }
            nodes.into_iter().map(|node| (node, refusal.clone())).collect()
        }
    }
}

/// Whether a dim of the value has no upper bound.
fn is_unbounded(graph: &Graph, symbols: &Symbols, value: ValueId) -> bool {
    let shape = graph[value].ty.shape().unwrap_or_default();
    shape.iter().any(|dim| symbols.interval(dim).max.is_none())
}

fn place(
    partition: &mut Partition,
    order: &[NodeId],
    layout: &Layout,
    segments: Vec<Segment>,
    mut refusals: HashMap<NodeId, Refusal>,
) {
    let mut index: HashMap<u32, usize> = HashMap::new();
    let mut numbers: Vec<u32> = order.iter().flat_map(|&id| layout.places(id)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    index.extend(numbers.into_iter().enumerate().map(|(k, at)| (at, k)));
    let mut placement = HashMap::with_capacity(order.len());
    for &node in order {
        let at = layout.at(node);
        let k = index.get(&at).copied().unwrap_or_default();
        let place = match Layout::is_engine(at) {
            true => Placement::Engine(k),
            false => {
                let refusal = refusals
                    .remove(&node)
                    .unwrap_or_else(|| Refusal::new(Code::LOWERING, "placed on the host without a reason"));
                Placement::Host(k, refusal)
            }
        };
        placement.insert(node, place);
    }
    partition.segments = segments;
    partition.placement = placement;
}

fn host_ns(
    graph: &Graph,
    layout: &Layout,
    estimator: &Estimator,
    placement: &HashMap<NodeId, Placement>,
) -> HashMap<NodeId, u64> {
    let on_host = placement.iter().filter(|(_, place)| matches!(place, Placement::Host(..)));
    let cost = |id: NodeId| {
        let made_there = |value: &ValueId| {
            graph[*value].producer().is_some_and(|(maker, _)| {
                Layout::is_engine(layout.at(maker)) && !layout.has(maker, layout.at(id))
            })
        };
        let wanted_there = |value: &ValueId| {
            let mut users = graph[*value].users().iter().flat_map(|&user| layout.places(user));
            users.any(|at| Layout::is_engine(at) && !layout.has(id, at))
        };
        let mut read: Vec<ValueId> = graph[id].uses().filter(made_there).collect();
        read.sort_unstable();
        read.dedup();
        let made = graph[id].outputs().iter().flatten().copied().filter(wanted_there);
        let down: u64 = read.into_iter().map(|value| estimator.crossing(value).to_host).sum();
        let up: u64 = made.map(|value| estimator.crossing(value).to_device).sum();
        estimator.work(id)[HOST] + down + up
    };
    on_host.map(|(&id, _)| (id, cost(id))).collect()
}

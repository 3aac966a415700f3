//! Control flow that the schedule runs: its bodies are partitioned in turn, so that one node that no engine takes does
//! not keep everything around it out of engines.

use crate::{
    cost::{Estimator, HOST, body_share},
    partition::{Body, Partition, Partitioner, Placement, SegmentKind},
    resegment::split_into,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use trtc_ir::{Graph, Node, NodeId, Symbols, Type, ValueId, infer::node_path};

/// A node that the schedule runs, with its bodies.
pub(crate) struct Scheduled {
    pub bodies: Vec<Body>,
    /// Nanoseconds: the bodies, and a call of the host backend where the node may cut a host segment in two.
    pub host_ns: u64,
}

/// How deep the schedule nests control flow; what is deeper stays with the node around it. JSON readers stop at 128 levels,
/// and a body takes four.
const DEPTH: usize = 28;

/// Whether a node is one that the schedule can run.
pub(crate) fn is_control_flow(graph: &Graph, id: NodeId) -> bool {
    let node = &graph[id];
    node.op.domain.is_empty() && matches!(&*node.op.op_type, "If" | "Loop" | "Scan")
}

/// The bodies of a node, partitioned; `None` when nothing in them goes to an engine, when the host alone is cheaper, and
/// when the schedule cannot run it.
pub(crate) fn bodies(
    cx: &Partitioner<'_>,
    graph: &Graph,
    around: &Partition,
    id: NodeId,
    estimator: Option<&Estimator>,
) -> Option<Scheduled> {
    let node = &graph[id];
    if around.graph.len() >= DEPTH || !is_well_formed(graph, node) {
        return None;
    }
    let label = node_path(&around.path, &node.name);
    let mut bodies = Vec::new();
    for (k, (attr, body)) in node.attrs.graphs().enumerate() {
        let path = around.graph.iter().copied().chain([(id, k)]).collect();
        let partition = cx.graph(body, path, format!("{label}/{attr}")).ok()?;
        // A host graph has to declare what it is given.
        let crossing =
            partition.segments.iter().flat_map(|segment| segment.inputs.iter().chain(&segment.outputs));
        let outer = body.inputs().iter().chain(body.outputs());
        if !crossing.chain(outer).all(|&value| is_typed(&body[value].ty)) {
            return None;
        }
        bodies.push(Body { attr: attr.to_owned(), partition });
    }
    if !bodies.iter().any(|body| has_engine(&body.partition)) {
        return None;
    }
    let (Some(estimator), Some(constants)) = (estimator, &cx.constants) else {
        return Some(Scheduled { bodies, host_ns: 0 });
    };
    let inside: u64 = bodies.iter().map(|body| body.partition.estimate.total_ns).sum();
    let mut host_ns = body_share(&node.op.op_type, bodies.len(), inside, constants);
    // What stands before it and behind it on the host is one call less if the host runs it too.
    if graph.predecessors(id).next().is_some() && graph.successors(id).next().is_some() {
        host_ns = host_ns.saturating_add(estimator.host_run);
    }
    (!cx.places || host_ns < estimator.work(id)[HOST]).then_some(Scheduled { bodies, host_ns })
}

fn has_engine(partition: &Partition) -> bool {
    partition.segments.iter().any(|segment| {
        segment.kind == SegmentKind::Engine || segment.bodies.iter().any(|body| has_engine(&body.partition))
    })
}

fn is_typed(ty: &Type) -> bool {
    match ty {
        Type::Tensor(tensor) => tensor.dtype.is_some(),
        Type::Sequence(inner) | Type::Optional(inner) => is_typed(inner),
        _ => false,
    }
}

/// Whether inputs, outputs and bodies fit together, and what is stacked can be.
fn is_well_formed(graph: &Graph, node: &Node) -> bool {
    let body = |name: &str| node.attrs.graph(name);
    let present = |from: usize| node.inputs().iter().skip(from).all(Option::is_some);
    let outputs_typed = node.outputs().iter().flatten().all(|&value| is_typed(&graph[value].ty));
    let wanted = node.outputs().len();
    outputs_typed
        && match &*node.op.op_type {
            "If" => {
                let fits =
                    |branch: Option<&Graph>| branch.is_some_and(|branch| branch.outputs().len() >= wanted);
                node.input(0).is_some() && fits(body("then_branch")) && fits(body("else_branch"))
            }
            "Loop" => body("body").is_some_and(|body| {
                let states = node.inputs().len().saturating_sub(2);
                let stacked = body.outputs().get(1 + states..);
                present(2)
                    && body.inputs().len() == states + 2
                    && wanted < body.outputs().len()
                    && stacked.is_some_and(|stacked| stacked.iter().all(|&value| can_stack(body, value)))
            }),
            _ => body("body").is_some_and(|body| {
                let all = node.inputs().len();
                let scanned = node.attrs.int("num_scan_inputs").and_then(|n| usize::try_from(n).ok());
                let states = scanned.filter(|&n| n > 0).and_then(|n| all.checked_sub(n));
                let stacked = states.and_then(|states| body.outputs().get(states..));
                let known = |value: &Option<ValueId>| {
                    value.is_some_and(|value| can_stack(graph, value) && graph[value].ty.shape().is_some())
                };
                node.since_version >= 9
                    && present(0)
                    && body.inputs().len() == all
                    && wanted <= body.outputs().len()
                    && states.is_some_and(|states| node.inputs()[states..].iter().all(known))
                    && stacked.is_some_and(|stacked| {
                        stacked
                            .iter()
                            .all(|&value| can_stack(body, value) && body[value].ty.shape().is_some())
                    })
            }),
        }
}

/// Whether parts of such a tensor can be put one behind the other: whole bytes, no strings.
fn can_stack(graph: &Graph, value: ValueId) -> bool {
    let ty = &graph[value].ty;
    ty.as_tensor()
        .and_then(|tensor| tensor.dtype)
        .is_some_and(|dtype| dtype.bits() > 0 && dtype.bits() % 8 == 0)
}

/// Gives each scheduled node, which stands among host nodes, a step of its own.
pub(crate) fn set_apart(
    graph: &Graph,
    symbols: &Symbols,
    partition: &mut Partition,
    scheduled: &mut HashMap<NodeId, Scheduled>,
) {
    if scheduled.is_empty() {
        return;
    }
    split_into(graph, symbols, partition, &|_, segment| {
        let is_one = |id: &NodeId| scheduled.contains_key(id);
        let here = segment.kind == SegmentKind::Host && segment.nodes.iter().any(is_one);
        here.then(|| groups(graph, &segment.nodes, &is_one))
    });
    for (k, segment) in partition.segments.iter_mut().enumerate() {
        let Some(&node) = segment.nodes.first().filter(|_| segment.kind == SegmentKind::Schedule) else {
            continue;
        };
        segment.bodies = scheduled.remove(&node).map(|found| found.bodies).unwrap_or_default();
        if let Some(place) = partition.placement.get_mut(&node)
            && let Placement::Host(_, refusal) = place
        {
            *place = Placement::Schedule(k, refusal.clone());
        }
    }
}

/// Groups of a host segment's nodes in an order in which they can run: each scheduled node alone, as few others as its
/// place among them allows. O(nodes + edges).
fn groups(
    graph: &Graph,
    nodes: &[NodeId],
    is_scheduled: &dyn Fn(&NodeId) -> bool,
) -> Vec<(SegmentKind, Vec<NodeId>)> {
    let inside: HashSet<NodeId> = nodes.iter().copied().collect();
    // Host nodes on even levels, scheduled ones on odd levels; no edge goes down, and none between scheduled nodes of one.
    let mut levels: HashMap<NodeId, u32> = HashMap::new();
    let mut members: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    for &id in nodes {
        let mine = is_scheduled(&id);
        let mut level = u32::from(mine);
        for before in graph.predecessors(id).filter(|before| inside.contains(before)) {
            let at = levels.get(&before).copied().unwrap_or_default();
            level = level.max(match (at % 2 == 1, mine) {
                (false, false) => at,
                (true, true) => at + 2,
                _ => at + 1,
            });
        }
        levels.insert(id, level);
        members.entry(level).or_default().push(id);
    }
    let mut groups = Vec::new();
    for (level, nodes) in members {
        match level % 2 {
            0 => groups.push((SegmentKind::Host, nodes)),
            _ => groups.extend(nodes.into_iter().map(|id| (SegmentKind::Schedule, vec![id]))),
        }
    }
    groups
}

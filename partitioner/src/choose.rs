//! Which of several layouts is cheapest.

use crate::{
    cluster,
    cost::{self, CostModel, Estimator},
    duplicate::duplicate,
    layout::Layout,
    partition::Partition,
    refine::{Moved, shrink},
    sizes::value_bytes,
};
use std::collections::HashMap;
use trtc_bundle::Target;
use trtc_ir::{Graph, NodeId, Symbols, ValueId};

/// What a partition is estimated to take, against the two that need no thought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Nanoseconds of the partition.
    pub total_ns: u64,
    /// Nanoseconds with everything that an engine takes in maximal clusters.
    pub maximal_ns: u64,
    /// Engines of the maximal clusters.
    pub maximal_engines: usize,
    /// Nanoseconds with everything on the host.
    pub host_ns: u64,
}

/// A layout and what it is chosen for.
pub(crate) struct Choice {
    pub layout: Layout,
    pub estimate: Estimate,
    /// Nodes on the host that an engine would take.
    pub moved: HashMap<NodeId, Moved>,
}

/// Most rounds of shrinking and clustering anew.
const ROUNDS: usize = 4;

/// What a layout is chosen for.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub graph: &'a Graph,
    pub symbols: &'a Symbols,
    /// Nodes in topological order.
    pub order: &'a [NodeId],
    /// What an engine takes.
    pub admitted: &'a dyn Fn(NodeId) -> bool,
    /// What the schedule runs, of what no engine takes.
    pub scheduled: &'a dyn Fn(NodeId) -> bool,
    /// Whether a graph that fits an engine goes there whatever the estimate says.
    pub whole: bool,
}

/// The cheapest layout that is found; without an estimator, or where cost does not place nodes, maximal clusters. Never dearer than maximal clusters, nor,
/// where any node must be on the host, than everything there. O(nodes + edges), but for a sort.
///
/// What the schedule runs stands with the host nodes here: it reads and writes host memory, as they do.
pub(crate) fn choose(request: &Request<'_>, estimator: Option<&Estimator>, places: bool) -> Choice {
    let Request { graph, symbols, order, admitted, .. } = *request;
    let bytes = |value: ValueId| value_bytes(graph, symbols, value).unwrap_or(u64::from(u32::MAX));
    let mut engine = vec![false; graph.node_bound()];
    for &id in order {
        engine[id.index()] = admitted(id);
    }
    let cluster = |engine: &[bool]| {
        let mut levels = cluster::levels(graph, order, engine);
        cluster::sink(graph, order, engine, &mut levels, &bytes);
        Layout::new(order, &levels)
    };
    let maximal = cluster(&engine);
    let Some(estimator) = estimator else {
        return Choice { layout: maximal, estimate: Estimate::default(), moved: HashMap::new() };
    };
    let total = |layout: &Layout| estimator.total(graph, order, layout);
    let mut engines: Vec<u32> =
        order.iter().map(|&id| maximal.at(id)).filter(|&at| Layout::is_engine(at)).collect();
    engines.sort_unstable();
    engines.dedup();
    let host = Layout::all_host(graph);
    let (maximal_ns, host_ns) = (total(&maximal), total(&host));
    let mut best = Choice {
        layout: maximal,
        estimate: Estimate { total_ns: maximal_ns, maximal_ns, maximal_engines: engines.len(), host_ns },
        moved: HashMap::new(),
    };
    if !places || request.whole && order.iter().all(|&id| admitted(id)) {
        return best;
    }
    for _ in 0..ROUNDS {
        let (mut layout, mut moved) = (best.layout.clone(), best.moved.clone());
        if !shrink(graph, order, estimator, &mut layout, &mut moved) {
            break;
        }
        moved.keys().for_each(|id| engine[id.index()] = false);
        let anew = cluster(&engine);
        let (shrunk_ns, anew_ns) = (total(&layout), total(&anew));
        let (layout, total_ns) = if anew_ns <= shrunk_ns { (anew, anew_ns) } else { (layout, shrunk_ns) };
        debug_assert!(shrunk_ns < best.estimate.total_ns, "a move that costs");
        if total_ns >= best.estimate.total_ns {
            break;
        }
        best = Choice { layout, estimate: Estimate { total_ns, ..best.estimate }, moved };
    }
    let (mut layout, mut moved) = (best.layout.clone(), best.moved.clone());
    duplicate(request, estimator, &mut layout, &mut moved);
    let total_ns = total(&layout);
    if total_ns < best.estimate.total_ns {
        best = Choice { layout, estimate: Estimate { total_ns, ..best.estimate }, moved };
    }
    if host_ns < best.estimate.total_ns {
        let moving: Vec<NodeId> = order.iter().copied().filter(|&id| admitted(id)).collect();
        let all = Moved { before: best.estimate.total_ns, after: host_ns, nodes: moving.len() };
        let moved = moving.into_iter().map(|id| (id, all)).collect();
        best = Choice { layout: host, estimate: Estimate { total_ns: host_ns, ..best.estimate }, moved };
    }
    best
}

/// Estimates a partition anew after its segments were split; those of its bodies are settled.
pub fn settle_estimate(
    graph: &Graph,
    symbols: &Symbols,
    target: &Target,
    cost: &CostModel,
    partition: &mut Partition,
) {
    if let Ok(constants) = cost.constants(target) {
        partition.estimate.total_ns = cost::total(graph, symbols, &constants, partition);
    }
}

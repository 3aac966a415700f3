//! The partition of a prepared module for a target: the same in a dry run and in a compile.

use crate::{Error, Options, prepare::Prepared};
use std::collections::{HashMap, HashSet};
use trtc_bundle::Target;
use trtc_frontends::onnx::export::opset_groups;
use trtc_ir::{Graph, Node, NodeId, Oracle, Symbols};
use trtc_partitioner::{
    Forced, GraphPath, Partition, Placement, Segment, SegmentKind, partition_with, settle_estimate,
    split_long_runs, split_segments, value_bytes,
};

/// Nodes before which an engine ends, by their graphs.
pub(crate) type Cuts = HashSet<(GraphPath, NodeId)>;

/// Partitions, and splits segments that are too long to build or that no one opset suits. `forced` and `cuts` are what
/// failed builds found: nodes for the host, and nodes before which an engine ends. `oracle` answers for the converters.
pub(crate) fn plan(
    prepared: &Prepared,
    target: &Target,
    forced: &Forced,
    cuts: &Cuts,
    options: &Options,
    oracle: &dyn Oracle,
) -> Result<Partition, Error> {
    let module = &prepared.module;
    let symbols = &module.symbols;
    let mut plan = partition_with(&module.graph, symbols, target, oracle, forced, &options.cost)
        .map_err(|_| Error::bug("a cycle after the passes"))?;
    plan.each_graph(&module.graph, &mut |graph, plan| {
        split_long_runs(graph, symbols, target, oracle, plan);
        cut(graph, symbols, cuts, plan);
        let opsets = |_: usize, segment: &Segment| match segment.kind {
            SegmentKind::Schedule => None,
            _ => opset_groups(graph, &segment.nodes, &module.opsets),
        };
        split_segments(graph, symbols, plan, &opsets);
        set_constants_apart(graph, symbols, plan);
        settle_estimate(graph, symbols, target, &options.cost, plan);
    });
    Ok(plan)
}

fn cut(graph: &Graph, symbols: &Symbols, cuts: &Cuts, plan: &mut Partition) {
    let here: HashSet<NodeId> =
        cuts.iter().filter(|(at, _)| *at == plan.graph).map(|(_, node)| *node).collect();
    if here.is_empty() {
        return;
    }
    let pieces = |segment: &Segment| {
        let mut pieces: Vec<Vec<NodeId>> = Vec::new();
        for &node in &segment.nodes {
            match pieces.last_mut() {
                Some(piece) if !here.contains(&node) => piece.push(node),
                _ => pieces.push(vec![node]),
            }
        }
        pieces
    };
    split_segments(graph, symbols, plan, &|_, segment| {
        (segment.kind == SegmentKind::Engine).then(|| pieces(segment))
    });
}

/// Constants that only the host can compute get segments of their own, which ONNX Runtime folds at compile time.
fn set_constants_apart(graph: &Graph, symbols: &Symbols, plan: &mut Partition) {
    let mut groups: HashMap<usize, Vec<Vec<NodeId>>> = HashMap::new();
    for (k, segment) in plan.segments.iter().enumerate() {
        let at_home =
            |id: &NodeId| matches!(plan.placement.get(id), Some(Placement::Host(home, _)) if *home == k);
        if segment.kind == SegmentKind::Host
            && !segment.inputs.is_empty()
            && let Some(constants) = constants(graph, symbols, segment, &at_home)
        {
            let rest = segment.nodes.iter().copied().filter(|id| !constants.contains(id)).collect();
            let constants = segment.nodes.iter().copied().filter(|id| constants.contains(id)).collect();
            groups.insert(k, vec![constants, rest]);
        }
    }
    if !groups.is_empty() {
        split_segments(graph, symbols, plan, &|k, _| groups.get(&k).cloned());
    }
}

/// The nodes of a host segment that depend on constants only, if they are worth to be computed once.
fn constants(
    graph: &Graph,
    symbols: &Symbols,
    segment: &Segment,
    at_home: &dyn Fn(&NodeId) -> bool,
) -> Option<HashSet<NodeId>> {
    let mut found: HashSet<NodeId> = HashSet::new();
    for &id in &segment.nodes {
        let known = graph[id].uses().all(|value| {
            let value = &graph[value];
            value.constant.is_some() || value.producer().is_some_and(|(maker, _)| found.contains(&maker))
        });
        if known && at_home(&id) && is_pure(&graph[id]) {
            found.insert(id);
        }
    }
    let nodes: Vec<NodeId> = segment.nodes.iter().copied().filter(|id| found.contains(id)).collect();
    (!nodes.is_empty() && nodes.len() < segment.nodes.len() && is_worth_folding(graph, symbols, &nodes))
        .then_some(found)
}

/// Whether what leaves these nodes is of known size and not much larger than what they are made of: an expanded weight
/// costs more memory than it saves time.
pub(crate) fn is_worth_folding(graph: &Graph, symbols: &Symbols, nodes: &[NodeId]) -> bool {
    const SMALL_BYTES: u64 = 64 << 10;
    let (_, outputs) = trtc_partitioner::boundary(graph, nodes);
    let is_static = |&value: &trtc_ir::ValueId| {
        graph[value].ty.shape().is_some_and(|shape| shape.iter().all(|dim| dim.known().is_some()))
    };
    if !outputs.iter().all(is_static) {
        return false;
    }
    let made = outputs.iter().map(|&value| value_bytes(graph, symbols, value)).sum::<Option<u64>>();
    let used: HashSet<_> = nodes.iter().flat_map(|&id| graph[id].uses()).collect();
    let of_constant = |value: trtc_ir::ValueId| {
        graph[value].constant.as_ref().and_then(|tensor| tensor.bytes()).map_or(0, |bytes| bytes.len() as u64)
    };
    let read: u64 = used.into_iter().map(of_constant).sum();
    made.is_some_and(|made| made <= SMALL_BYTES.max(read))
}

/// Whether a node computes the same each time: a known operator that draws no random numbers, with such nodes in its
/// bodies.
pub(crate) fn is_pure(node: &Node) -> bool {
    let random = [
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
        "Dropout",
    ];
    let known = matches!(&*node.op.domain, "" | "ai.onnx.ml");
    let mut bodies = node.attrs.graphs();
    known
        && !random.contains(&&*node.op.op_type)
        && bodies.all(|(_, body)| body.node_ids().all(|id| is_pure(&body[id])))
}

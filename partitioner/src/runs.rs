//! Long runs of fusible layers are split over engines.
//!
//! The builder fuses what stands between two matrix products, and its time over such a run grows faster than linear
//! (TensorRT-RTX 1.7: 1,000 activations in a row 0.7 s, 4,000 21 s, 20,000 168 s; wide graphs of as many nodes and low
//! depth take a second). What counts is therefore the longest path through nodes that can be fused. The rule looks at
//! the graph only, so a partition is the same with and without a builder.

use crate::{
    partition::{Partition, Segment, SegmentKind},
    resegment::split_segments,
    sizes::value_bytes,
};
use std::collections::{HashMap, HashSet};
use trtc_bundle::{DType, Target};
use trtc_ir::{Graph, NodeId, Oracle, Symbols, ValueId};

/// A path up to this weight stays in one engine.
const LIMIT: u32 = 1000;
/// A heavier one is split into parts of about this weight, which together build faster than parts of [`LIMIT`].
const PART: u32 = 500;
/// A node that reduces makes the nodes before it be computed anew for each element after it, or stored.
const REDUCTION: u32 = 8;

/// Splits each engine segment with a path of fusible nodes heavier than 1,000, where few and small values cross. A
/// segment whose parts could not stand alone stays whole.
pub fn split_long_runs(
    graph: &Graph,
    symbols: &Symbols,
    target: &Target,
    oracle: &dyn Oracle,
    partition: &mut Partition,
) {
    let mut groups: HashMap<usize, Vec<Vec<NodeId>>> = HashMap::new();
    for (k, segment) in partition.segments.iter().enumerate() {
        if segment.kind == SegmentKind::Engine
            && let Some(pieces) = pieces(graph, symbols, &segment.nodes)
        {
            groups.insert(k, pieces);
        }
    }
    while !groups.is_empty() {
        let mut split = partition.clone();
        split_segments(graph, symbols, &mut split, &|k, _| groups.get(&k).cloned());
        let stands = |segment: &Segment| {
            let Segment { nodes, inputs, outputs, .. } = segment;
            oracle.check_segment(graph, symbols, nodes, inputs, outputs, target).is_ok()
        };
        // New segments stand in the order of the old ones.
        let mut new = split.segments.iter();
        let mut failed = Vec::new();
        for k in 0..partition.segments.len() {
            let parts = groups.get(&k).map_or(1, Vec::len);
            // All of them are taken from the iterator, whatever the first says.
            let good = new.by_ref().take(parts).filter(|segment| parts == 1 || stands(segment)).count();
            if good < parts {
                failed.push(k);
            }
        }
        if failed.is_empty() {
            *partition = split;
            return;
        }
        failed.iter().for_each(|k| drop(groups.remove(k)));
    }
}

/// Weight of a node in a run; `None` for one that ends it, because it is a kernel of its own.
fn weight(op_type: &str) -> Option<u32> {
    match op_type {
        "Conv" | "ConvTranspose" | "ConvInteger" | "QLinearConv" | "DeformConv" | "Gemm" | "MatMul"
        | "MatMulInteger" | "QLinearMatMul" | "Einsum" | "LSTM" | "GRU" | "RNN" | "Attention" | "TopK"
        | "NonZero" | "NonMaxSuppression" | "If" | "Loop" | "Scan" => None,
        "Softmax"
        | "LogSoftmax"
        | "LayerNormalization"
        | "RMSNormalization"
        | "InstanceNormalization"
        | "GroupNormalization"
        | "MeanVarianceNormalization"
        | "LpNormalization"
        | "ArgMax"
        | "ArgMin"
        | "CumSum"
        | "CumProd" => Some(REDUCTION),
        op if op.starts_with("Reduce") => Some(REDUCTION),
        _ => Some(1),
    }
}

/// The parts of a segment; `None` when no run in it is too long. O(nodes + edges).
fn pieces(graph: &Graph, symbols: &Symbols, nodes: &[NodeId]) -> Option<Vec<Vec<NodeId>>> {
    let position: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(at, &id)| (id, at)).collect();
    let weights: Vec<Option<u32>> = nodes.iter().map(|&id| weight(&graph[id].op.op_type)).collect();
    // Weight of the heaviest path that ends in each node, within the part that begins at `start`.
    let mut paths = vec![0u32; nodes.len()];
    let path_to = |paths: &[u32], at: usize, start: usize| {
        let own = weights[at]?;
        let before = graph.predecessors(nodes[at]).filter_map(|id| position.get(&id));
        let longest = before.filter(|&&before| before >= start).map(|&before| paths[before]).max();
        Some(own + longest.unwrap_or(0))
    };
    let mut heaviest = 0;
    for at in 0..nodes.len() {
        paths[at] = path_to(&paths, at, 0).unwrap_or(0);
        heaviest = heaviest.max(paths[at]);
    }
    if heaviest <= LIMIT {
        return None;
    }
    // Parts of equal weight, with an eighth more to choose the place.
    let even = heaviest.div_ceil(heaviest.div_ceil(PART));
    let most = even + even / 8;
    let crossing = crossing(graph, symbols, nodes, &position);
    let (mut parts, mut start) = (Vec::new(), 0);
    while start < nodes.len() {
        // A part ends where least crosses, among the places past the half of what it may hold.
        let (mut best, mut heaviest, mut end) = (None, 0, nodes.len());
        for at in start..nodes.len() {
            paths[at] = path_to(&paths, at, start).unwrap_or(0);
            heaviest = heaviest.max(paths[at]);
            if heaviest > most {
                end = best.map_or(at.max(start + 1), |(_, at)| at);
                break;
            }
            let bytes = crossing[at + 1];
            let better = best.is_none_or(|(least, _)| bytes < least || bytes == least && heaviest <= even);
            if heaviest >= most / 2 && better {
                best = Some((bytes, at + 1));
            }
        }
        parts.push(nodes[start..end].to_vec());
        start = end;
    }
    Some(parts)
}

/// Bytes that cross when a segment is cut before position `at`, for each `at`: values made before it and used from it
/// on. A value that can hardly leave an engine counts as very large.
fn crossing(
    graph: &Graph,
    symbols: &Symbols,
    nodes: &[NodeId],
    position: &HashMap<NodeId, usize>,
) -> Vec<u64> {
    let mut change = vec![0i128; nodes.len() + 2];
    for (at, &id) in nodes.iter().enumerate() {
        for &value in graph[id].outputs().iter().flatten() {
            let users: HashSet<usize> =
                graph[value].users().iter().filter_map(|user| position.get(user).copied()).collect();
            if let Some(last) = users.into_iter().max() {
                let bytes = i128::from(burden(graph, symbols, value));
                change[at + 1] += bytes;
                change[last + 1] -= bytes;
            }
        }
    }
    let mut sum = 0i128;
    let total = change.into_iter().map(|change| {
        sum += change;
        u64::try_from(sum).unwrap_or(u64::MAX)
    });
    total.collect()
}

fn burden(graph: &Graph, symbols: &Symbols, value: ValueId) -> u64 {
    const HARD: u64 = 1 << 40;
    let ty = &graph[value].ty;
    let crosses = matches!(
        ty.dtype(),
        Some(DType::F32 | DType::F16 | DType::Bf16 | DType::I32 | DType::I64 | DType::Bool)
    );
    // Sizes are wanted at build time; across a boundary they need ranges.
    let is_size = graph[value].elements.is_some();
    match value_bytes(graph, symbols, value) {
        Some(bytes) if crosses && !is_size => bytes,
        bytes => bytes.unwrap_or(0).saturating_add(HARD),
    }
}

//! From a layout to segments with names and boundaries.

use crate::{
    layout::Layout,
    partition::{Segment, SegmentKind},
    sizes::value_bytes,
};
use std::collections::{BTreeMap, HashSet};
use trtc_ir::{Graph, NodeId, Symbols, ValueId};

/// Segments of a layout in the order in which they run. O(nodes + edges).
pub(crate) fn segments(
    graph: &Graph,
    symbols: &Symbols,
    order: &[NodeId],
    layout: &Layout,
    path: &str,
) -> Vec<Segment> {
    let mut members: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    for &id in order {
        for at in layout.places(id) {
            members.entry(at).or_default().push(id);
        }
    }
    let graph_outputs: HashSet<ValueId> = graph.outputs().iter().copied().collect();
    let (mut engines, mut hosts) = (0, 0);
    let mut segments = Vec::with_capacity(members.len());
    for (at, nodes) in members {
        let (kind, word, k) = match Layout::is_engine(at) {
            true => (SegmentKind::Engine, "engine", &mut engines),
            false => (SegmentKind::Host, "host", &mut hosts),
        };
        let id = trtc_ir::infer::node_path(path, &format!("{word}_{k}"));
        *k += 1;
        let (mut inputs, mut outputs, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for &node in &nodes {
            for value in graph[node].uses() {
                let outside = graph[value].producer().is_none_or(|(maker, _)| !layout.has(maker, at));
                if outside && graph[value].constant.is_none() && seen.insert(value) {
                    inputs.push(value);
                }
            }
            // A copy works for its own segment only.
            if layout.at(node) == at {
                let wanted = |value: &ValueId| {
                    let mut users = graph[*value].users().iter().flat_map(|&user| layout.places(user));
                    graph_outputs.contains(value) || users.any(|place| !layout.has(node, place))
                };
                outputs.extend(graph[node].outputs().iter().flatten().copied().filter(wanted));
            }
        }
        let total =
            |list: &[ValueId]| list.iter().map(|&v| value_bytes(graph, symbols, v)).sum::<Option<u64>>();
        let (bytes_in, bytes_out) = (total(&inputs), total(&outputs));
        let bodies = Vec::new();
        segments.push(Segment { id, kind, nodes, inputs, outputs, bytes_in, bytes_out, bodies });
    }
    segments
}

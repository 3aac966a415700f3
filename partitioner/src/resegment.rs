//! Splitting segments of a finished partition.

use crate::{
    partition::{Partition, Placement, Segment, SegmentKind},
    sizes::value_bytes,
};
use std::collections::{HashMap, HashSet};
use trtc_ir::{Graph, NodeId, Symbols, ValueId};

/// What enters and leaves a set of nodes given in topological order, if it runs on its own: values made outside (no
/// constants) in order of first use, and values wanted outside in order of making.
pub fn boundary(graph: &Graph, nodes: &[NodeId]) -> (Vec<ValueId>, Vec<ValueId>) {
    let inside: HashSet<NodeId> = nodes.iter().copied().collect();
    let graph_outputs: HashSet<ValueId> = graph.outputs().iter().copied().collect();
    let inputs = inputs(graph, nodes, &|node| inside.contains(&node));
    let mut outputs = Vec::new();
    for &node in nodes {
        let wanted = |value: &ValueId| {
            graph_outputs.contains(value) || graph[*value].users().iter().any(|user| !inside.contains(user))
        };
        outputs.extend(graph[node].outputs().iter().flatten().copied().filter(wanted));
    }
    (inputs, outputs)
}

fn inputs(graph: &Graph, nodes: &[NodeId], is_inside: &dyn Fn(NodeId) -> bool) -> Vec<ValueId> {
    let (mut inputs, mut seen) = (Vec::new(), HashSet::new());
    for &node in nodes {
        for value in graph[node].uses() {
            let outside = graph[value].producer().is_none_or(|(maker, _)| !is_inside(maker));
            if outside && graph[value].constant.is_none() && seen.insert(value) {
                inputs.push(value);
            }
        }
    }
    inputs
}

/// Groups of nodes that a segment, given with its index, is split into.
pub type Pieces<'a> = dyn Fn(usize, &Segment) -> Option<Vec<Vec<NodeId>>> + 'a;

/// Splits the segments for which `pieces` (given index and segment) returns groups of its nodes: each group in
/// topological order, groups in an order in which they can run. A node that works for its segment only goes with each
/// group that needs it. Segments are named anew. Whether anything was split.
pub fn split_segments(
    graph: &Graph,
    symbols: &Symbols,
    partition: &mut Partition,
    pieces: &Pieces<'_>,
) -> bool {
    let mut parts: Vec<(SegmentKind, usize, Vec<NodeId>)> = Vec::with_capacity(partition.segments.len());
    for (k, segment) in partition.segments.iter().enumerate() {
        match pieces(k, segment).filter(|groups| groups.len() > 1) {
            None => parts.push((segment.kind, k, segment.nodes.clone())),
            Some(groups) => {
                let groups = with_copies(graph, partition, k, segment, groups);
                parts.extend(groups.into_iter().map(|nodes| (segment.kind, k, nodes)));
            }
        }
    }
    if parts.len() == partition.segments.len() {
        return false;
    }
    // Where each node is at home, and all places where it stands.
    let mut places: HashMap<NodeId, Vec<usize>> = HashMap::new();
    for (at, (_, old, nodes)) in parts.iter().enumerate() {
        for node in nodes {
            places.entry(*node).or_default().push(at);
            if let Some(place) = partition.placement.get_mut(node) {
                match place {
                    Placement::Engine(home) | Placement::Host(home, _) if *home == *old => *home = at | NEW,
                    _ => {}
                }
            }
        }
    }
    for place in partition.placement.values_mut() {
        let (Placement::Engine(home) | Placement::Host(home, _)) = place;
        *home &= !NEW;
    }
    let graph_outputs: HashSet<ValueId> = graph.outputs().iter().copied().collect();
    let stands = |node: NodeId| places.get(&node).map(Vec::as_slice).unwrap_or_default();
    let (mut engines, mut hosts) = (0, 0);
    let mut segments = Vec::with_capacity(parts.len());
    for (at, (kind, _, nodes)) in parts.iter().enumerate() {
        let (word, k) = match kind {
            SegmentKind::Engine => ("engine", &mut engines),
            SegmentKind::Host => ("host", &mut hosts),
        };
        let id = format!("{word}_{k}");
        *k += 1;
        let inputs = inputs(graph, nodes, &|node| stands(node).contains(&at));
        let mut outputs = Vec::new();
        for &node in nodes {
            if partition.placement.get(&node).map(home) != Some(at) {
                continue;
            }
            let wanted = |value: &ValueId| {
                let mut users = graph[*value].users().iter().flat_map(|&user| stands(user));
                graph_outputs.contains(value) || users.any(|place| !stands(node).contains(place))
            };
            outputs.extend(graph[node].outputs().iter().flatten().copied().filter(wanted));
        }
        let total =
            |list: &[ValueId]| list.iter().map(|&v| value_bytes(graph, symbols, v)).sum::<Option<u64>>();
        let (bytes_in, bytes_out) = (total(&inputs), total(&outputs));
        segments.push(Segment {
            id,
            kind: *kind,
            nodes: nodes.clone(),
            inputs,
            outputs,
            bytes_in,
            bytes_out,
        });
    }
    partition.segments = segments;
    true
}

/// Marks indices of new segments among those of old ones.
const NEW: usize = 1 << (usize::BITS - 1);

fn home(place: &Placement) -> usize {
    let (Placement::Engine(k) | Placement::Host(k, _)) = place;
    *k
}

/// The groups with the segment's copies of nodes of other segments, in each group that needs them.
fn with_copies(
    graph: &Graph,
    partition: &Partition,
    k: usize,
    segment: &Segment,
    groups: Vec<Vec<NodeId>>,
) -> Vec<Vec<NodeId>> {
    let order: HashMap<NodeId, usize> = segment.nodes.iter().enumerate().map(|(at, &id)| (id, at)).collect();
    let is_copy = |node: NodeId| partition.placement.get(&node).map(home) != Some(k);
    let complete = |group: Vec<NodeId>| {
        let mut nodes: Vec<NodeId> = group.into_iter().filter(|&node| !is_copy(node)).collect();
        let mut inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let mut at = 0;
        while let Some(&node) = nodes.get(at) {
            at += 1;
            for value in graph[node].uses() {
                let maker = graph[value].producer().map(|(maker, _)| maker);
                if let Some(maker) = maker.filter(|&maker| order.contains_key(&maker) && is_copy(maker))
                    && inside.insert(maker)
                {
                    nodes.push(maker);
                }
            }
        }
        nodes.sort_by_key(|node| order.get(node).copied());
        nodes
    };
    groups.into_iter().map(complete).filter(|group| !group.is_empty()).collect()
}

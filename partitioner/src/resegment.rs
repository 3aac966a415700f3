//! Splitting segments of a finished partition.

use crate::{
    partition::{Body, Partition, Placement, Segment, SegmentKind},
    sizes::value_bytes,
};
use std::collections::{HashMap, HashSet};
use trtc_ir::{Graph, NodeId, Symbols, ValueId, infer::node_path};

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
    split_into(graph, symbols, partition, &|k, segment| {
        let groups = pieces(k, segment)?;
        Some(groups.into_iter().map(|nodes| (segment.kind, nodes)).collect())
    })
}

/// A part of a segment: its kind, the segment's index, its nodes, and the bodies of control flow.
struct Piece {
    kind: SegmentKind,
    of: usize,
    nodes: Vec<NodeId>,
    bodies: Vec<Body>,
}

/// Groups of nodes with their kinds.
type Groups = Vec<(SegmentKind, Vec<NodeId>)>;

/// [`split_segments`] into groups of other kinds than the segment's.
pub(crate) fn split_into(
    graph: &Graph,
    symbols: &Symbols,
    partition: &mut Partition,
    pieces: &dyn Fn(usize, &Segment) -> Option<Groups>,
) -> bool {
    let mut parts: Vec<Piece> = Vec::with_capacity(partition.segments.len());
    let mut changed = false;
    let segments = std::mem::take(&mut partition.segments);
    for (k, segment) in segments.iter().enumerate() {
        let groups = pieces(k, segment);
        match groups.filter(|groups| groups.len() > 1 || groups.iter().any(|group| group.0 != segment.kind)) {
            None => {
                let (nodes, bodies) = (segment.nodes.clone(), segment.bodies.clone());
                parts.push(Piece { kind: segment.kind, of: k, nodes, bodies });
            }
            Some(groups) => {
                changed = true;
                let groups = with_copies(graph, partition, k, segment, groups);
                let piece = |(kind, nodes)| Piece { kind, of: k, nodes, bodies: Vec::new() };
                parts.extend(groups.into_iter().map(piece));
            }
        }
    }
    if !changed {
        partition.segments = segments;
        return false;
    }
    // Where each node is at home, and all places where it stands.
    let mut places: HashMap<NodeId, Vec<usize>> = HashMap::new();
    for (at, Piece { of, nodes, .. }) in parts.iter().enumerate() {
        for node in nodes {
            places.entry(*node).or_default().push(at);
            if let Some(place) = partition.placement.get_mut(node) {
                let home = place.segment_mut();
                if *home == *of {
                    *home = at | NEW;
                }
            }
        }
    }
    for place in partition.placement.values_mut() {
        *place.segment_mut() &= !NEW;
    }
    let graph_outputs: HashSet<ValueId> = graph.outputs().iter().copied().collect();
    let stands = |node: NodeId| places.get(&node).map(Vec::as_slice).unwrap_or_default();
    let (mut engines, mut hosts) = (0, 0);
    let mut segments = Vec::with_capacity(parts.len());
    let homes = &partition.placement;
    for (at, Piece { kind, nodes, bodies, .. }) in parts.iter_mut().enumerate() {
        let number = |word: &str, k: &mut usize| {
            *k += 1;
            format!("{word}_{}", *k - 1)
        };
        let name = match (*kind, nodes.first()) {
            (SegmentKind::Engine, _) => number("engine", &mut engines),
            (SegmentKind::Schedule, Some(&node)) => graph[node].name.to_string(),
            _ => number("host", &mut hosts),
        };
        let (id, nodes) = (node_path(&partition.path, &name), std::mem::take(nodes));
        let inputs = inputs(graph, &nodes, &|node| stands(node).contains(&at));
        let mut outputs = Vec::new();
        for &node in &nodes {
            if homes.get(&node).map(Placement::segment) != Some(at) {
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
            nodes,
            inputs,
            outputs,
            bytes_in,
            bytes_out,
            bodies: std::mem::take(bodies),
        });
    }
    partition.segments = segments;
    true
}

/// Marks indices of new segments among those of old ones.
const NEW: usize = 1 << (usize::BITS - 1);

/// The groups with the segment's copies of nodes of other segments, in each group that needs them.
fn with_copies(graph: &Graph, partition: &Partition, k: usize, segment: &Segment, groups: Groups) -> Groups {
    let order: HashMap<NodeId, usize> = segment.nodes.iter().enumerate().map(|(at, &id)| (id, at)).collect();
    let is_copy = |node: NodeId| partition.placement.get(&node).map(Placement::segment) != Some(k);
    let complete = |(kind, group): (SegmentKind, Vec<NodeId>)| {
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
        (kind, nodes)
    };
    groups.into_iter().map(complete).filter(|(_, nodes)| !nodes.is_empty()).collect()
}

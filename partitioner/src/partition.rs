//! From admission to segments.

use crate::{cluster, sizes::value_bytes};
use std::collections::{BTreeMap, HashMap, HashSet};
use trtc_bundle::Target;
use trtc_ir::{Code, Graph, NodeId, NodeView, Oracle, Refusal, Symbols, ValueId, oracle::SegmentRefusal};

/// Where a node runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// In the engine of this segment (index into [`Partition::segments`]).
    Engine(usize),
    /// On the host, in this segment, for this reason.
    Host(usize, Refusal),
}

/// Kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// A TensorRT network.
    Engine,
    /// Run by the host backend.
    Host,
}

/// Nodes that run together.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Name, unique in the partition: `engine_0`, `host_1`.
    pub id: String,
    /// Kind.
    pub kind: SegmentKind,
    /// Nodes in topological order.
    pub nodes: Vec<NodeId>,
    /// Values made outside, in order of first use. No constants.
    pub inputs: Vec<ValueId>,
    /// Values wanted outside, in order of making.
    pub outputs: Vec<ValueId>,
    /// Bytes of the inputs at the optimum of the ranges; `None` when one cannot be told.
    pub bytes_in: Option<u64>,
    /// Bytes of the outputs, likewise.
    pub bytes_out: Option<u64>,
}

/// A partition: segments in an order in which they can run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Partition {
    /// Segments in schedule order.
    pub segments: Vec<Segment>,
    /// Placement of every node of the graph (nodes of subgraphs go with the node that holds them).
    pub placement: HashMap<NodeId, Placement>,
}

/// Nodes that must go to the host whatever the oracle says, with the reason: what a failed build found.
pub type Forced = HashMap<NodeId, Refusal>;

/// Partitions a graph for a target.
///
/// Admission and clustering are linear; each node that a boundary check expels costs one more round over the segments
/// that changed.
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
    let order = graph.topo_order()?;
    let mut refusals: HashMap<NodeId, Refusal> = forced.clone();
    for &id in &order {
        if !refusals.contains_key(&id)
            && let Err(refusal) = oracle.admit(NodeView::new(graph, symbols, id), target)
        {
            refusals.insert(id, refusal);
        }
    }
    let mut checked: HashSet<Vec<NodeId>> = HashSet::new();
    loop {
        let segments = cluster_into_segments(graph, symbols, &order, &refusals);
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
                Err(refusal) => expelled.extend(expel(graph, segment, refusal)),
            }
        }
        if expelled.is_empty() {
            return Ok(finish(segments, refusals));
        }
        refusals.extend(expelled);
    }
}

/// The nodes that leave a segment for a refusal; never none, so that the fixpoint ends.
fn expel(graph: &Graph, segment: &Segment, refusal: SegmentRefusal) -> Vec<(NodeId, Refusal)> {
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
            nodes.sort_unstable();
            nodes.dedup();
            if nodes.is_empty() {
                nodes = segment.nodes.clone();
            }
            nodes.into_iter().map(|node| (node, refusal.clone())).collect()
        }
    }
}

fn cluster_into_segments(
    graph: &Graph,
    symbols: &Symbols,
    order: &[NodeId],
    refusals: &HashMap<NodeId, Refusal>,
) -> Vec<Segment> {
    let mut engine = vec![false; graph.node_bound()];
    for &id in order {
        engine[id.index()] = !refusals.contains_key(&id);
    }
    let bytes = |value: ValueId| value_bytes(graph, symbols, value).unwrap_or(u64::from(u32::MAX));
    let mut levels = cluster::levels(graph, order, &engine);
    cluster::sink(graph, order, &engine, &mut levels, &bytes);

    let mut members: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    for &id in order {
        members.entry(levels[id.index()]).or_default().push(id);
    }
    let graph_outputs: HashSet<ValueId> = graph.outputs().iter().copied().collect();
    let (mut engines, mut hosts) = (0, 0);
    let mut segments = Vec::with_capacity(members.len());
    for (level, nodes) in members {
        let kind = if level % 2 == 0 { SegmentKind::Engine } else { SegmentKind::Host };
        let id = match kind {
            SegmentKind::Engine => {
                engines += 1;
                format!("engine_{}", engines - 1)
            }
            SegmentKind::Host => {
                hosts += 1;
                format!("host_{}", hosts - 1)
            }
        };
        let is_inside = |node: NodeId| levels[node.index()] == level;
        let mut inputs = Vec::new();
        let mut seen = HashSet::new();
        let mut outputs = Vec::new();
        for &node in &nodes {
            for value in graph[node].uses() {
                let outside = graph[value].producer().is_none_or(|(maker, _)| !is_inside(maker));
                if outside && graph[value].constant.is_none() && seen.insert(value) {
                    inputs.push(value);
                }
            }
            for output in graph[node].outputs().iter().flatten().copied() {
                let wanted = graph[output].users().iter().any(|&user| !is_inside(user));
                if wanted || graph_outputs.contains(&output) {
                    outputs.push(output);
                }
            }
        }
        let total =
            |list: &[ValueId]| list.iter().map(|&v| value_bytes(graph, symbols, v)).sum::<Option<u64>>();
        let (bytes_in, bytes_out) = (total(&inputs), total(&outputs));
        segments.push(Segment { id, kind, nodes, inputs, outputs, bytes_in, bytes_out });
    }
    segments
}

fn finish(segments: Vec<Segment>, mut refusals: HashMap<NodeId, Refusal>) -> Partition {
    let mut placement = HashMap::new();
    for (k, segment) in segments.iter().enumerate() {
        for &node in &segment.nodes {
            let place = match segment.kind {
                SegmentKind::Engine => Placement::Engine(k),
                SegmentKind::Host => {
                    let refusal = refusals.remove(&node).unwrap_or_else(|| {
                        Refusal::new(Code::LOWERING, "placed on the host without a reason")
                    });
                    Placement::Host(k, refusal)
                }
            };
            placement.insert(node, place);
        }
    }
    Partition { segments, placement }
}

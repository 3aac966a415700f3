//! A walk over the segments of a partition and of all bodies that the schedule runs.

use crate::partition::{Partition, Segment, SegmentKind};
use trtc_ir::{Graph, NodeId};

/// An engine or host segment, with the graph that its nodes and values belong to.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The graph's partition.
    pub partition: &'a Partition,
    /// Place of the segment among the partition's.
    pub index: usize,
    /// The segment.
    pub segment: &'a Segment,
}

/// The subgraph of a node that stands in the attribute `attr`.
pub fn body_graph<'a>(graph: &'a Graph, node: NodeId, attr: &str) -> Option<&'a Graph> {
    graph[node].attrs.graphs().find(|(name, _)| *name == attr).map(|(_, body)| body)
}

impl Partition {
    /// Engine and host segments of `graph` and, at the places of the control flow that the schedule runs, of its bodies.
    pub fn parts<'a>(&'a self, graph: &'a Graph) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        self.collect(graph, &mut parts);
        parts
    }

    fn collect<'a>(&'a self, graph: &'a Graph, parts: &mut Vec<Part<'a>>) {
        for (index, segment) in self.segments.iter().enumerate() {
            if segment.kind != SegmentKind::Schedule {
                parts.push(Part { graph, partition: self, index, segment });
            }
            for body in &segment.bodies {
                let inner = segment.nodes.first().and_then(|&node| body_graph(graph, node, &body.attr));
                if let Some(inner) = inner {
                    body.partition.collect(inner, parts);
                }
            }
        }
    }

    /// Calls `f` with each graph that is partitioned and its partition, the innermost first.
    pub fn each_graph(&mut self, graph: &Graph, f: &mut dyn FnMut(&Graph, &mut Partition)) {
        for segment in &mut self.segments {
            let Some(&node) = segment.nodes.first() else { continue };
            for body in &mut segment.bodies {
                if let Some(inner) = body_graph(graph, node, &body.attr) {
                    body.partition.each_graph(inner, f);
                }
            }
        }
        f(graph, self);
    }
}

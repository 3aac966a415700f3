//! Rows of a report, from the partitions of a graph and of the bodies that the schedule runs.

use crate::{
    partition::{Partition, Placement, Segment, SegmentKind},
    parts::body_graph,
    report::{CrossingRow, NodeRow, PlacementName, SegmentRow, SegmentStatus},
    sizes::value_bytes,
};
use std::collections::{HashMap, HashSet};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Graph, NodeId, NodeView, Oracle, Refusal, Symbols, ValueId, infer::node_path};

/// Rows of one partition.
#[derive(Default)]
pub(crate) struct Rows {
    pub nodes: Vec<NodeRow>,
    pub segments: Vec<SegmentRow>,
    /// Values that enter segments or leave the graph, by the order of their makers.
    pub crossings: Vec<CrossingRow>,
    /// Bytes of every value that leaves one segment and enters another, once for each that it enters.
    pub boundary_bytes: u64,
    /// Dtype conversions at boundaries: a network holds what TensorRT does not have in wider dtypes, and the host computes in
    /// f32 what it has no kernels for.
    pub boundary_casts: usize,
}

/// Rows of a partition and of its bodies, in schedule order.
pub(crate) fn rows(
    graph: &Graph,
    symbols: &Symbols,
    target: &Target,
    partition: &Partition,
    oracle: &dyn Oracle,
) -> Rows {
    let mut writer = Writer {
        symbols,
        target,
        oracle,
        rows: Rows::default(),
        host_reads: Vec::new(),
        by_engine: HashSet::new(),
    };
    let mut known = Known::new();
    let outputs: HashSet<ValueId> = graph.outputs().iter().copied().collect();
    for &value in graph.inputs() {
        writer.crossing(graph, "", value, None, outputs.contains(&value), &mut known);
    }
    writer.graph(graph, partition, &outputs, known);
    let Writer { mut rows, host_reads, by_engine, .. } = writer;
    rows.boundary_casts += host_reads.iter().filter(|row| by_engine.contains(row)).count();
    rows
}

/// The row of each value of a graph that has one.
type Known = HashMap<ValueId, usize>;

struct Writer<'a> {
    symbols: &'a Symbols,
    target: &'a Target,
    oracle: &'a dyn Oracle,
    rows: Rows,
    /// Values (by their rows) that host segments read or write in a type that the host computes in f32.
    host_reads: Vec<usize>,
    /// Values (by their rows) that enter or leave engines.
    by_engine: HashSet<usize>,
}

impl Writer<'_> {
    fn graph(
        &mut self,
        graph: &Graph,
        partition: &Partition,
        outputs: &HashSet<ValueId>,
        mut known: Known,
    ) -> Known {
        for (k, segment) in partition.segments.iter().enumerate() {
            self.nodes_of(graph, partition, k);
            if segment.kind == SegmentKind::Schedule {
                self.control_flow(graph, segment, &mut known);
            } else {
                self.segment(graph, partition, segment, &mut known);
            }
            for &value in &segment.outputs {
                let from = Some(segment.id.as_str());
                self.crossing(graph, &partition.path, value, from, outputs.contains(&value), &mut known);
            }
            if segment.kind != SegmentKind::Schedule {
                segment.outputs.iter().for_each(|value| self.touch(graph, segment.kind, *value, &known));
            }
        }
        known
    }

    fn crossing(
        &mut self,
        graph: &Graph,
        path: &str,
        value: ValueId,
        from: Option<&str>,
        output: bool,
        known: &mut Known,
    ) {
        known.insert(value, self.rows.crossings.len());
        self.rows.crossings.push(CrossingRow {
            value: node_path(path, &graph[value].name),
            ty: graph[value].ty.show(self.symbols),
            bytes: value_bytes(graph, self.symbols, value),
            from: from.map(str::to_owned),
            to: Vec::new(),
            output,
        });
    }

    fn enters(&mut self, to: &str, value: ValueId, known: &Known) {
        if let Some(row) = known.get(&value).and_then(|&k| self.rows.crossings.get_mut(k)) {
            row.to.push(to.to_owned());
        }
    }

    /// Counts the conversion that a crossing needs.
    fn touch(&mut self, graph: &Graph, kind: SegmentKind, value: ValueId, known: &Known) {
        let Some(&row) = known.get(&value) else { return };
        let dtype = graph[value].ty.dtype();
        if kind == SegmentKind::Engine {
            self.by_engine.insert(row);
            self.rows.boundary_casts += usize::from(dtype.is_some_and(|d| d.carrier() != Some(d)));
        } else if dtype.is_some_and(|d| d.is_float() && !matches!(d, DType::F16 | DType::F32 | DType::F64)) {
            self.host_reads.push(row);
        }
    }

    fn segment(&mut self, graph: &Graph, partition: &Partition, segment: &Segment, known: &mut Known) {
        let is_engine = segment.kind == SegmentKind::Engine;
        for &value in &segment.inputs {
            self.enters(&segment.id, value, known);
            self.touch(graph, segment.kind, value, known);
            let made = known.get(&value).and_then(|&k| self.rows.crossings.get(k));
            if let Some(bytes) = made.filter(|row| row.from.is_some()).and_then(|row| row.bytes) {
                self.rows.boundary_bytes += bytes;
            }
        }
        let name_of = |&value: &ValueId| graph[value].name.to_string();
        let node_name = |&id: &NodeId| node_path(&partition.path, &graph[id].name);
        self.rows.segments.push(SegmentRow {
            id: segment.id.clone(),
            kind: if is_engine { "engine" } else { "host" }.to_owned(),
            nodes: segment.nodes.iter().map(node_name).collect(),
            inputs: segment.inputs.iter().map(name_of).collect(),
            outputs: segment.outputs.iter().map(name_of).collect(),
            bytes_in: segment.bytes_in,
            bytes_out: segment.bytes_out,
            status: if is_engine { SegmentStatus::Planned } else { SegmentStatus::Host },
            build_s: None,
            engine_bytes: None,
            cached: false,
        });
    }

    /// What a control flow node reads itself, and its bodies.
    fn control_flow(&mut self, graph: &Graph, segment: &Segment, known: &mut Known) {
        let Some(&node) = segment.nodes.first() else { return };
        let mut seen = HashSet::new();
        for value in graph[node].inputs().iter().flatten().filter(|value| seen.insert(**value)) {
            self.enters(&segment.id, *value, known);
        }
        for body in &segment.bodies {
            let Some(inner) = body_graph(graph, node, &body.attr) else { continue };
            let path = &body.partition.path;
            let mut values = Known::new();
            for capture in &inner.captures {
                if let Some(&row) = known.get(&capture.outer) {
                    values.insert(capture.inner, row);
                }
            }
            for &value in inner.inputs() {
                self.crossing(inner, path, value, Some(&segment.id), false, &mut values);
            }
            let values = self.graph(inner, &body.partition, &HashSet::new(), values);
            for &value in inner.outputs() {
                self.enters(&segment.id, value, &values);
            }
        }
    }

    fn nodes_of(&mut self, graph: &Graph, partition: &Partition, k: usize) {
        let segment = &partition.segments[k];
        for &id in &segment.nodes {
            // Copies in further segments are no nodes of the model.
            let Some(place) = partition.placement.get(&id).filter(|place| place.segment() == k) else {
                continue;
            };
            let node = &graph[id];
            let (placement, refusal) = match place {
                Placement::Engine(_) => (PlacementName::Engine, None),
                Placement::Host(_, refusal) => (PlacementName::Host, Some(refusal)),
                Placement::Schedule(_, refusal) => (PlacementName::Schedule, Some(refusal)),
            };
            let name = node_path(&partition.path, &node.name);
            let at = (placement != PlacementName::Schedule).then_some(segment.id.as_str());
            let host_ns = partition.host_ns.get(&id).copied().filter(|_| placement == PlacementName::Host);
            self.rows
                .nodes
                .push(NodeRow { host_ns, ..row(&name, &node.op.to_string(), placement, at, refusal) });
            if placement != PlacementName::Schedule {
                for (attr, body) in node.attrs.graphs() {
                    self.nested(body, &format!("{name}/{attr}"), placement, &segment.id);
                }
            }
        }
    }

    /// Nodes of a subgraph that goes with the node around it.
    fn nested(&mut self, graph: &Graph, path: &str, placement: PlacementName, segment: &str) {
        for id in graph.node_ids() {
            let node = &graph[id];
            let name = format!("{path}/{}", node.name);
            let refusal = (placement == PlacementName::Host).then(|| {
                let own = self.oracle.admit(NodeView::new(graph, self.symbols, id), self.target).err();
                own.unwrap_or_else(|| Refusal::new(Code::BODY, "runs with the control flow around it"))
            });
            self.rows.nodes.push(row(
                &name,
                &node.op.to_string(),
                placement,
                Some(segment),
                refusal.as_ref(),
            ));
            for (attr, body) in node.attrs.graphs() {
                self.nested(body, &format!("{name}/{attr}"), placement, segment);
            }
        }
    }
}

fn row(
    name: &str,
    op: &str,
    placement: PlacementName,
    segment: Option<&str>,
    refusal: Option<&Refusal>,
) -> NodeRow {
    NodeRow {
        name: name.to_owned(),
        op: op.to_owned(),
        placement,
        segment: segment.map(str::to_owned),
        code: refusal.map(|refusal| refusal.code.to_string()),
        reason: refusal.map(Refusal::to_string),
        help: refusal.and_then(|refusal| refusal.help.clone()),
        host_ns: None,
    }
}

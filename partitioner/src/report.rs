//! The report: stable keys, one row a source node.

use crate::{
    partition::{Partition, Placement, Segment, SegmentKind},
    sizes::value_bytes,
};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use trtc_bundle::Target;
use trtc_ir::{Code, Graph, NodeId, NodeView, Oracle, Refusal, Symbols, ValueId};

/// A partition report, of one model for one or several targets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of this layout; 1.
    pub schema_version: u32,
    /// The model.
    pub model: ModelInfo,
    /// Ranges of the model's symbols, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<String>,
    /// One entry a target, in the order asked for.
    pub targets: Vec<TargetReport>,
    /// Seconds of each stage; compile only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// Wall-clock seconds of the stages of a compile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Mapping and importing the model.
    pub open_s: f64,
    /// Inference, ranges, passes.
    pub passes_s: f64,
    /// Admission, clustering, boundary checks.
    pub partition_s: f64,
    /// Networks and host graphs.
    pub convert_s: f64,
    /// The builder: starting workers, loading the library, building.
    pub build_s: f64,
    /// Writing the bundle.
    pub write_s: f64,
    /// Finding out which nodes make builds fail, first builds included; summed over engines.
    #[serde(default)]
    pub recover_s: f64,
}

/// The model of a report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Path as given.
    pub path: String,
    /// `onnx`, `pt2`, `fx`.
    pub format: String,
    /// Source nodes, nested ones included.
    pub nodes: usize,
}

/// The partition for one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetReport {
    /// The target.
    pub target: Target,
    /// Sums.
    pub totals: Totals,
    /// Segments in schedule order.
    pub segments: Vec<SegmentRow>,
    /// Source nodes.
    pub nodes: Vec<NodeRow>,
    /// Values that leave a segment or the graph's inputs for a segment, in schedule order.
    #[serde(default)]
    pub crossings: Vec<CrossingRow>,
    /// What the partition is estimated to take, against maximal clusters and the host alone.
    #[serde(default)]
    pub estimate: EstimateRow,
    /// What the builder could not build, and what was done about it; compile only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureRow>,
}

/// Estimates in nanoseconds; docs/partitioning.md says how they are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EstimateRow {
    /// This partition.
    pub total_ns: u64,
    /// Everything that an engine takes in engines, in maximal clusters.
    pub maximal_ns: u64,
    /// Engines of the maximal clusters.
    pub maximal_engines: usize,
    /// Everything on the host.
    pub host_ns: u64,
}

/// A value that crosses between segments, or between one and the graph's inputs and outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrossingRow {
    /// Name of the value.
    pub value: String,
    /// Its type: `f32[N x 3 x 224 x 224]`.
    #[serde(rename = "type")]
    pub ty: String,
    /// Bytes at the optimum of the ranges; absent when they cannot be told.
    pub bytes: Option<u64>,
    /// Segment that makes it; absent for an input of the graph.
    pub from: Option<String>,
    /// Segments that read it.
    pub to: Vec<String>,
    /// Whether it is an output of the graph.
    pub output: bool,
}

/// A network that could not be built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureRow {
    /// Segment, as it was called then.
    pub segment: String,
    /// Code: E9001 refused, E9002 crashed, E9003 ran out of time, E9004 a fault of ours.
    pub code: String,
    /// The builder's own words.
    pub words: String,
    /// The smallest set of nodes found that fails: it went to the host.
    pub nodes: Vec<String>,
    /// The node before which the network was cut in two instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_at: Option<String>,
    /// Builds that it took to find out.
    pub trial_builds: usize,
    /// Seconds that it took, the first build included.
    pub recover_s: f64,
}

/// Sums over a partition: `nodes = engine + host + schedule + folded + removed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Source nodes.
    pub nodes: usize,
    /// Evaluated at compile time.
    pub folded: usize,
    /// Without effect on any output.
    pub removed: usize,
    /// In engines.
    pub engine_nodes: usize,
    /// On the host.
    pub host_nodes: usize,
    /// Control flow run by the schedule.
    pub schedule_nodes: usize,
    /// Engine segments.
    pub engines: usize,
    /// Host segments.
    pub host_segments: usize,
    /// Bytes that cross between segments, at the optimum of the ranges.
    pub boundary_bytes: u64,
    /// Dtype conversions that crossings need.
    pub boundary_casts: usize,
}

/// One segment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SegmentRow {
    /// Name.
    pub id: String,
    /// `engine` or `host`.
    pub kind: String,
    /// Names of its nodes.
    pub nodes: Vec<String>,
    /// Names of the values that enter.
    pub inputs: Vec<String>,
    /// Names of the values that leave.
    pub outputs: Vec<String>,
    /// Bytes that enter; absent when a size cannot be told.
    pub bytes_in: Option<u64>,
    /// Bytes that leave.
    pub bytes_out: Option<u64>,
    /// What has become of it.
    pub status: SegmentStatus,
    /// Seconds that the builder took; compile only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_s: Option<f64>,
    /// Bytes of the engine; compile only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_bytes: Option<u64>,
    /// Whether the engine comes from the engine cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
}

/// What has become of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentStatus {
    /// The engine is in the bundle.
    Built,
    /// Its network is in the bundle, to be built on the target's machine.
    Deferred,
    /// A dry run.
    Planned,
    /// The builder refused.
    Failed,
    /// Runs on the host.
    Host,
    /// Folded to constants at compile time.
    Constant,
}

/// One source node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Path through subgraphs.
    pub name: String,
    /// Operator.
    pub op: String,
    /// Where it runs.
    pub placement: PlacementName,
    /// Segment; absent for folded and removed nodes.
    pub segment: Option<String>,
    /// Code of the refusal; host nodes only.
    pub code: Option<String>,
    /// Why it is there.
    pub reason: Option<String>,
    /// What would move it to an engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Estimate in nanoseconds of a host node: its work and the copies that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ns: Option<u64>,
}

/// Where a source node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementName {
    /// In an engine.
    Engine,
    /// On the host.
    Host,
    /// Control flow run by the schedule.
    Schedule,
    /// Evaluated at compile time.
    Folded,
    /// Without effect.
    Removed,
}

impl PlacementName {
    /// The word of the JSON report.
    pub fn word(self) -> &'static str {
        match self {
            PlacementName::Engine => "engine",
            PlacementName::Host => "host",
            PlacementName::Schedule => "schedule",
            PlacementName::Folded => "folded",
            PlacementName::Removed => "removed",
        }
    }
}

/// A node of the source model and the IR nodes that stand for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNode {
    /// Path through subgraphs; unique.
    pub name: String,
    /// Operator as the model writes it.
    pub op: String,
    /// Paths of the IR nodes that stand for it, the one that does the work first.
    pub nodes: Vec<String>,
    /// What became of it when none of these is left: [`PlacementName::Folded`] or [`PlacementName::Removed`].
    pub otherwise: PlacementName,
}

/// Reports one partition, a row for each of `sources`. IR nodes that stand for no source node get rows of their own.
pub fn target_report(
    graph: &Graph,
    symbols: &Symbols,
    target: &Target,
    partition: &Partition,
    oracle: &dyn Oracle,
    sources: &[SourceNode],
) -> TargetReport {
    let mut nodes = Vec::new();
    for (k, segment) in partition.segments.iter().enumerate() {
        for &id in &segment.nodes {
            // Copies in further segments are no nodes of the model.
            let home = partition.placement.get(&id).filter(|placement| placement.segment() == k);
            if let Some(placement) = home {
                node_rows(
                    graph,
                    symbols,
                    target,
                    oracle,
                    id,
                    placement,
                    &segment.id,
                    partition.host_ns.get(&id).copied(),
                    &mut nodes,
                );
            }
        }
    }
    let nodes = by_source(nodes, sources);
    let count = |placement| nodes.iter().filter(|row| row.placement == placement).count();
    let kind = |kind| partition.segments.iter().filter(|segment| segment.kind == kind).count();
    let totals = Totals {
        nodes: nodes.len(),
        folded: count(PlacementName::Folded),
        removed: count(PlacementName::Removed),
        engine_nodes: count(PlacementName::Engine),
        host_nodes: count(PlacementName::Host),
        schedule_nodes: count(PlacementName::Schedule),
        engines: kind(SegmentKind::Engine),
        host_segments: kind(SegmentKind::Host),
        boundary_bytes: boundary_bytes(graph, symbols, partition),
        boundary_casts: boundary_casts(graph, partition),
    };
    let name_of = |&value: &ValueId| graph[value].name.to_string();
    let segments = partition
        .segments
        .iter()
        .map(|segment| SegmentRow {
            id: segment.id.clone(),
            kind: if segment.kind == SegmentKind::Engine { "engine" } else { "host" }.to_owned(),
            nodes: segment.nodes.iter().map(|&id| graph[id].name.to_string()).collect(),
            inputs: segment.inputs.iter().map(name_of).collect(),
            outputs: segment.outputs.iter().map(name_of).collect(),
            bytes_in: segment.bytes_in,
            bytes_out: segment.bytes_out,
            status: if segment.kind == SegmentKind::Engine {
                SegmentStatus::Planned
            } else {
                SegmentStatus::Host
            },
            build_s: None,
            engine_bytes: None,
            cached: false,
        })
        .collect();
    let e = partition.estimate;
    let estimate = EstimateRow {
        total_ns: e.total_ns,
        maximal_ns: e.maximal_ns,
        maximal_engines: e.maximal_engines,
        host_ns: e.host_ns,
    };
    let crossings = crossings(graph, symbols, partition);
    TargetReport {
        target: target.clone(),
        totals,
        segments,
        nodes,
        crossings,
        estimate,
        failures: Vec::new(),
    }
}

/// Rows of IR nodes as rows of source nodes. A source node stands on the host when one of its IR nodes does.
fn by_source(rows: Vec<NodeRow>, sources: &[SourceNode]) -> Vec<NodeRow> {
    let index: HashMap<&str, usize> =
        rows.iter().enumerate().map(|(k, row)| (row.name.as_str(), k)).collect();
    let mut used = vec![false; rows.len()];
    let mut result = Vec::with_capacity(sources.len());
    for source in sources {
        let mine: Vec<usize> =
            source.nodes.iter().filter_map(|name| index.get(name.as_str()).copied()).collect();
        mine.iter().for_each(|&k| used[k] = true);
        let on_host = mine.iter().find(|&&k| rows[k].placement == PlacementName::Host);
        let row = match on_host.or(mine.first()) {
            Some(&k) => NodeRow { name: source.name.clone(), op: source.op.clone(), ..rows[k].clone() },
            None => NodeRow {
                name: source.name.clone(),
                op: source.op.clone(),
                placement: source.otherwise,
                segment: None,
                code: None,
                reason: None,
                help: None,
                host_ns: None,
            },
        };
        result.push(row);
    }
    result.extend(rows.into_iter().zip(used).filter(|(_, used)| !used).map(|(row, _)| row));
    result
}

/// Bytes of every value that leaves one segment and enters another, once for each that it enters.
fn boundary_bytes(graph: &Graph, symbols: &Symbols, partition: &Partition) -> u64 {
    let inputs = partition.segments.iter().flat_map(|segment| &segment.inputs);
    let crossing = inputs.filter(|&&value| graph[value].producer().is_some());
    crossing.filter_map(|&value| value_bytes(graph, symbols, value)).sum()
}

/// Values that enter segments or leave the graph, by the order of their makers.
fn crossings(graph: &Graph, symbols: &Symbols, partition: &Partition) -> Vec<CrossingRow> {
    let mut rows: Vec<CrossingRow> = Vec::new();
    let mut index: HashMap<ValueId, usize> = HashMap::new();
    let outputs: HashSet<ValueId> = graph.outputs().iter().copied().collect();
    let mut row = |value: ValueId, from: Option<&str>| {
        index.insert(value, rows.len());
        rows.push(CrossingRow {
            value: graph[value].name.to_string(),
            ty: graph[value].ty.show(symbols),
            bytes: value_bytes(graph, symbols, value),
            from: from.map(str::to_owned),
            to: Vec::new(),
            output: outputs.contains(&value),
        });
    };
    graph.inputs().iter().for_each(|&value| row(value, None));
    for segment in &partition.segments {
        segment.outputs.iter().for_each(|&value| row(value, Some(&segment.id)));
    }
    for segment in &partition.segments {
        for value in &segment.inputs {
            if let Some(&k) = index.get(value) {
                rows[k].to.push(segment.id.clone());
            }
        }
    }
    rows
}

/// Dtype conversions at boundaries: a network holds what TensorRT does not have in wider dtypes, and the host computes in
/// f32 what it has no kernels for.
fn boundary_casts(graph: &Graph, partition: &Partition) -> usize {
    use trtc_bundle::DType;
    let mut by_engine: HashSet<ValueId> = HashSet::new();
    for segment in partition.segments.iter().filter(|segment| segment.kind == SegmentKind::Engine) {
        by_engine.extend(segment.inputs.iter().chain(&segment.outputs));
    }
    let casts = |segment: &Segment, value: &ValueId| {
        let dtype = graph[*value].ty.dtype();
        match segment.kind {
            SegmentKind::Engine => dtype.is_some_and(|dtype| dtype.carrier() != Some(dtype)),
            SegmentKind::Host => {
                by_engine.contains(value)
                    && dtype.is_some_and(|dtype| {
                        dtype.is_float() && !matches!(dtype, DType::F16 | DType::F32 | DType::F64)
                    })
            }
        }
    };
    let of = |segment: &Segment| {
        segment.inputs.iter().chain(&segment.outputs).filter(|value| casts(segment, value)).count()
    };
    partition.segments.iter().map(of).sum()
}

#[expect(clippy::too_many_arguments, reason = "one recursion over what the report is made of")]
fn node_rows(
    graph: &Graph,
    symbols: &Symbols,
    target: &Target,
    oracle: &dyn Oracle,
    id: NodeId,
    placement: &Placement,
    segment: &str,
    host_ns: Option<u64>,
    rows: &mut Vec<NodeRow>,
) {
    let node = &graph[id];
    let (name, refusal) = match placement {
        Placement::Engine(_) => (PlacementName::Engine, None),
        Placement::Host(_, refusal) => (PlacementName::Host, Some(refusal)),
    };
    rows.push(NodeRow { host_ns, ..row(&node.name, &node.op.to_string(), name, segment, refusal) });
    for (attr, body) in node.attrs.graphs() {
        let path = format!("{}/{attr}", node.name);
        nested(body, symbols, target, oracle, &path, name, segment, rows);
    }
}

#[expect(clippy::too_many_arguments, reason = "one recursion over what the report is made of")]
fn nested(
    graph: &Graph,
    symbols: &Symbols,
    target: &Target,
    oracle: &dyn Oracle,
    path: &str,
    placement: PlacementName,
    segment: &str,
    rows: &mut Vec<NodeRow>,
) {
    for id in graph.node_ids() {
        let node = &graph[id];
        let name = format!("{path}/{}", node.name);
        let refusal = (placement == PlacementName::Host).then(|| {
            let own = oracle.admit(NodeView::new(graph, symbols, id), target).err();
            own.unwrap_or_else(|| Refusal::new(Code::BODY, "runs with the control flow around it"))
        });
        rows.push(row(&name, &node.op.to_string(), placement, segment, refusal.as_ref()));
        for (attr, body) in node.attrs.graphs() {
            nested(body, symbols, target, oracle, &format!("{name}/{attr}"), placement, segment, rows);
        }
    }
}

fn row(name: &str, op: &str, placement: PlacementName, segment: &str, refusal: Option<&Refusal>) -> NodeRow {
    NodeRow {
        name: name.to_owned(),
        op: op.to_owned(),
        placement,
        segment: Some(segment.to_owned()),
        code: refusal.map(|refusal| refusal.code.to_string()),
        reason: refusal.map(Refusal::to_string),
        help: refusal.and_then(|refusal| refusal.help.clone()),
        host_ns: None,
    }
}

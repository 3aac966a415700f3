//! The report: stable keys, one row a source node.

use crate::{
    partition::Partition,
    rows::{Rows, rows},
};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};
use trtc_bundle::Target;
use trtc_ir::{Graph, Oracle, Symbols};

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
    /// Admission, clustering, boundary checks, which lower segments to networks.
    pub partition_s: f64,
    /// Networks that no boundary check made.
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
    /// Whether engines may round the operands of f32 products to TF32.
    #[serde(default)]
    pub tf32: bool,
    /// Sums.
    pub totals: Totals,
    /// Segments in schedule order; those of bodies stand where the control flow does.
    pub segments: Vec<SegmentRow>,
    /// Source nodes.
    pub nodes: Vec<NodeRow>,
    /// Values that leave a segment, control flow or the graph's inputs for another, in schedule order.
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

/// A value that crosses between segments, or between one and the graph's inputs and outputs. Those inside of bodies have
/// the body's path before their names; what a body reads from outside keeps its one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrossingRow {
    /// Name of the value.
    pub value: String,
    /// Its type: `f32[N x 3 x 224 x 224]`.
    #[serde(rename = "type")]
    pub ty: String,
    /// Bytes at the optimum of the ranges; absent when they cannot be told.
    pub bytes: Option<u64>,
    /// Segment, or control flow node run by the schedule, that makes it; absent for an input of the model.
    pub from: Option<String>,
    /// Segments, and control flow nodes run by the schedule, that read it.
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
    /// Segment; absent for folded and removed nodes, and for control flow that the schedule runs.
    pub segment: Option<String>,
    /// Code of the refusal; nodes on the host, and control flow run by the schedule.
    pub code: Option<String>,
    /// Why no engine has it.
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
    let Rows { nodes, segments, crossings, boundary_bytes, boundary_casts } =
        rows(graph, symbols, target, partition, oracle);
    let nodes = by_source(nodes, sources);
    let count = |placement| nodes.iter().filter(|row| row.placement == placement).count();
    let kind = |kind| segments.iter().filter(|segment| segment.kind == kind).count();
    let totals = Totals {
        nodes: nodes.len(),
        folded: count(PlacementName::Folded),
        removed: count(PlacementName::Removed),
        engine_nodes: count(PlacementName::Engine),
        host_nodes: count(PlacementName::Host),
        schedule_nodes: count(PlacementName::Schedule),
        engines: kind("engine"),
        host_segments: kind("host"),
        boundary_bytes,
        boundary_casts,
    };
    let e = partition.estimate;
    let estimate = EstimateRow {
        total_ns: e.total_ns,
        maximal_ns: e.maximal_ns,
        maximal_engines: e.maximal_engines,
        host_ns: e.host_ns,
    };
    TargetReport {
        target: target.clone(),
        tf32: false,
        totals,
        segments,
        nodes,
        crossings,
        estimate,
        failures: Vec::new(),
    }
}

/// The path of the node that another one was made for. Passes name it after that one, with `#` and more behind; a node
/// that is called `#…` was put between a node and what is in its body.
fn origin(name: &str) -> Cow<'_, str> {
    if !name.contains('#') {
        return Cow::Borrowed(name);
    }
    let mut own = Vec::new();
    let mut parts = name.split('/');
    while let Some(part) = parts.next() {
        match part.split_once('#') {
            Some(("", _)) => {
                if parts.next().is_none() {
                    own.pop();
                }
            }
            Some((part, _)) => own.push(part),
            None => own.push(part),
        }
    }
    Cow::Owned(own.join("/"))
}

/// Rows of IR nodes as rows of source nodes. A source node stands on the host when one of its IR nodes does, and else with
/// the schedule when one does.
fn by_source(rows: Vec<NodeRow>, sources: &[SourceNode]) -> Vec<NodeRow> {
    let known: HashSet<&str> = sources.iter().flat_map(|source| &source.nodes).map(String::as_str).collect();
    let mut index: HashMap<Cow<'_, str>, Vec<usize>> = HashMap::new();
    for (k, row) in rows.iter().enumerate() {
        let name = row.name.as_str();
        let origin = if known.contains(name) { Cow::Borrowed(name) } else { origin(name) };
        index.entry(origin).or_default().push(k);
    }
    let mut used = vec![false; rows.len()];
    let mut result = Vec::with_capacity(sources.len());
    for source in sources {
        let mine: Vec<usize> =
            source.nodes.iter().filter_map(|name| index.get(name.as_str())).flatten().copied().collect();
        mine.iter().for_each(|&k| used[k] = true);
        let at = |placement| mine.iter().find(|&&k| rows[k].placement == placement);
        let row = match at(PlacementName::Host).or(at(PlacementName::Schedule)).or(mine.first()) {
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

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn nodes_that_passes_make_belong_to_those_that_they_are_named_after() {
        assert_eq!(origin("loop/body/add"), "loop/body/add");
        assert_eq!(origin("loop/body/add#2"), "loop/body/add");
        assert_eq!(origin("loop/body/if#3/then_branch/add"), "loop/body/if/then_branch/add");
        assert_eq!(origin("scan/body/#sequence/body/add"), "scan/body/add");
        assert_eq!(origin("scan/body/#sequence"), "scan");
    }
}

//! For the tests of programs that compile models: partitions as text that changes only when the placement does.
//!
//! ```no_run
//! # fn main() -> Result<(), trtc::Error> {
//! let options = trtc::Options::default().target("rtx-1.7:sm89".parse().expect("a target"));
//! let report = trtc::partition("model.onnx".as_ref(), &options)?;
//! // With insta: insta::assert_snapshot!(trtc::testing::snapshot(&report));
//! assert_eq!(trtc::testing::host_nodes(&report), ["/nms/NonZero (NonZero) E0502"]);
//! # Ok(())
//! # }
//! ```

use std::{collections::BTreeMap, fmt::Write, path::Path};
use trtc_partitioner::{PlacementName, Report, SegmentRow, TargetReport};

/// A report as text for a snapshot test: what is on the host and why, how many nodes of each operator are in engines,
/// what crosses.
///
/// It names nodes and values and numbers nothing, it is sorted, and it leaves out sizes in bytes, estimates, times and
/// folders: two machines give the same text, and so does a change of the model or of trtc that moves nothing.
pub fn snapshot(report: &Report) -> String {
    let name = Path::new(&report.model.path).file_name().map(|name| name.to_string_lossy().into_owned());
    let mut text = format!("model {}\n", name.unwrap_or_else(|| report.model.path.clone()));
    for target in &report.targets {
        of_target(target, &mut text);
    }
    text
}

/// Nodes on the host of any target, sorted, as `name (operator) code`.
pub fn host_nodes(report: &Report) -> Vec<String> {
    let mut nodes: Vec<String> = report.targets.iter().flat_map(on_host).map(|(node, _)| node).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

fn on_host(target: &TargetReport) -> Vec<(String, String)> {
    let rows = target.nodes.iter().filter(|row| row.placement == PlacementName::Host);
    let line = rows.map(|row| {
        let code = row.code.as_deref().unwrap_or("-");
        let reason = row.reason.as_deref().unwrap_or_default();
        // Figures of an estimate are no part of the placement.
        let reason = if code == "E0901" { reason.split(':').next().unwrap_or_default() } else { reason };
        (format!("{} ({}) {code}", row.name, row.op), reason.to_owned())
    });
    let mut lines: Vec<(String, String)> = line.collect();
    lines.sort();
    lines
}

fn of_target(target: &TargetReport, text: &mut String) {
    let mut put = |line: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    };
    let t = &target.totals;
    put(format_args!("\ntarget {}", target.target));
    put(format_args!("engines {}, host segments {}", t.engines, t.host_segments));
    for (placement, title) in
        [(PlacementName::Engine, "in engines"), (PlacementName::Schedule, "by the schedule")]
    {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let rows = target.nodes.iter().filter(|row| row.placement == placement);
        rows.for_each(|row| *counts.entry(&row.op).or_default() += 1);
        if !counts.is_empty() {
            let list: Vec<String> = counts.iter().map(|(op, count)| format!("{op} {count}")).collect();
            put(format_args!("{title}: {}", list.join(", ")));
        }
    }
    let host = on_host(target);
    if !host.is_empty() {
        put(format_args!("on the host:"));
        host.iter().for_each(|(node, reason)| put(format_args!("  {node}: {reason}")));
    }
    let kinds: BTreeMap<&str, &str> =
        target.segments.iter().map(|SegmentRow { id, kind, .. }| (id.as_str(), kind.as_str())).collect();
    let mut crossings: Vec<String> = Vec::new();
    for value in &target.crossings {
        let Some(from) = value.from.as_deref().and_then(|from| kinds.get(from)) else { continue };
        let mut to: Vec<&str> = value.to.iter().filter_map(|to| kinds.get(to.as_str()).copied()).collect();
        to.sort_unstable();
        to.dedup();
        crossings.extend(to.iter().map(|to| format!("  {} {}: {from} -> {to}", value.value, value.ty)));
    }
    crossings.sort();
    if !crossings.is_empty() {
        put(format_args!("crossing:"));
        crossings.iter().for_each(|line| put(format_args!("{line}")));
    }
}

#[cfg(test)]
mod tests {
    use super::{host_nodes, snapshot};
    use serde_json::json;
    use trtc_partitioner::Report;

    fn report(folder: &str, first: &str, bytes: u64, figure: &str) -> Report {
        let row = |name: &str,
                   op: &str,
                   placement: &str,
                   segment: &str,
                   code: Option<&str>,
                   reason: Option<String>| {
            json!({"name": name, "op": op, "placement": placement, "segment": segment, "code": code, "reason": reason})
        };
        let segment = |id: &str, kind: &str| {
            json!({"id": id, "kind": kind, "nodes": [], "inputs": [], "outputs": [], "bytes_in": bytes,
                "bytes_out": bytes, "status": "planned"})
        };
        let target = json!({
            "target": "rtx-1.7:sm89",
            "totals": {"nodes": 4, "folded": 0, "removed": 0, "engine_nodes": 2, "host_nodes": 2, "schedule_nodes": 0,
                "engines": 1, "host_segments": 1, "boundary_bytes": bytes, "boundary_casts": 0},
            "segments": [segment(first, "engine"), segment("host_0", "host")],
            "nodes": [
                row("/b/Conv", "Conv", "engine", first, None, None),
                row("/a/Conv", "Conv", "engine", first, None, None),
                row("/r", "Reshape", "host", "host_0", Some("E0901"), Some(format!("placed on the host for cost: {figure}"))),
                row("/nz", "NonZero", "host", "host_0", Some("E0502"), Some("no kernel".to_owned())),
            ],
            "crossings": [
                {"value": "x", "type": "f32[N]", "bytes": bytes, "from": null, "to": [first], "output": false},
                {"value": "c", "type": "f32[N x 4]", "bytes": bytes, "from": first, "to": ["host_0"], "output": false},
            ],
        });
        let model = json!({"path": format!("{folder}/m.onnx"), "format": "onnx", "nodes": 4});
        serde_json::from_value(json!({"schema_version": 1, "model": model, "targets": [target]})).unwrap()
    }

    #[test]
    fn a_snapshot_holds_names_and_reasons() {
        let expected = "model m.onnx\n\ntarget rtx-1.7:sm89\nengines 1, host segments 1\nin engines: Conv 2\n\
                        on the host:\n  /nz (NonZero) E0502: no kernel\n  /r (Reshape) E0901: placed on the host for cost\n\
                        crossing:\n  c f32[N x 4]: engine -> host\n";
        assert_eq!(snapshot(&report("/home/me", "engine_0", 16, "1 us there")), expected);
        assert_eq!(
            host_nodes(&report("", "engine_0", 16, "")),
            ["/nz (NonZero) E0502", "/r (Reshape) E0901"]
        );
    }

    #[test]
    fn what_moves_nothing_changes_nothing() {
        let one = snapshot(&report("/home/me", "engine_0", 16, "1 us there, 9 us in an engine"));
        assert_eq!(one, snapshot(&report("C:/models", "engine_7", 4096, "2 us there, 8 us in an engine")));
    }
}

//! What changed between two reports: nodes that moved, new refusals, sums.

use crate::Error;
use std::{collections::HashMap, fmt, path::Path};
use trtc_bundle::{Bundle, Target};
use trtc_partitioner::{ModelInfo, NodeRow, PlacementName, Report, TargetReport};

/// The difference of two reports. Empty when no node is placed otherwise and no sum is another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diff {
    /// Targets that only the first report has.
    pub gone_targets: Vec<Target>,
    /// Targets that only the second one has.
    pub new_targets: Vec<Target>,
    /// Targets of both that differ.
    pub targets: Vec<TargetDiff>,
    /// Whether there is more than one target, so that each has its head when printed.
    several: bool,
}

/// The difference for one target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetDiff {
    /// The target.
    pub target: Target,
    /// Nodes that only the first report has.
    pub gone: Vec<NodeRow>,
    /// Nodes that only the second one has.
    pub new: Vec<NodeRow>,
    /// Nodes that are placed otherwise, or for another reason (by its code): before and now.
    pub moved: Vec<(NodeRow, NodeRow)>,
    /// Sums that changed, and whether TF32 is allowed (0 or 1): name, before, now.
    pub sums: Vec<(&'static str, u64, u64)>,
}

/// Compares two reports.
pub fn diff(before: &Report, now: &Report) -> Diff {
    let missing = |a: &Report, b: &Report| -> Vec<Target> {
        let absent = a.targets.iter().filter(|t| !b.targets.iter().any(|other| other.target == t.target));
        absent.map(|target| target.target.clone()).collect()
    };
    let mut targets = Vec::new();
    for new in &now.targets {
        let old = before.targets.iter().find(|old| old.target == new.target);
        targets.extend(old.map(|old| of_target(old, new)).filter(|diff| !diff.is_empty()));
    }
    Diff {
        gone_targets: missing(before, now),
        new_targets: missing(now, before),
        targets,
        several: now.targets.len() > 1,
    }
}

fn of_target(old: &TargetReport, new: &TargetReport) -> TargetDiff {
    let by_name = |report: &'_ TargetReport| -> HashMap<String, NodeRow> {
        report.nodes.iter().map(|row| (row.name.clone(), row.clone())).collect()
    };
    let (before, now) = (by_name(old), by_name(new));
    let moved = new.nodes.iter().filter_map(|row| {
        let was = before.get(&row.name)?;
        ((was.placement, &was.code) != (row.placement, &row.code)).then(|| (was.clone(), row.clone()))
    });
    let (a, b) = (&old.totals, &new.totals);
    let sums = [
        ("engine nodes", a.engine_nodes as u64, b.engine_nodes as u64),
        ("host nodes", a.host_nodes as u64, b.host_nodes as u64),
        ("schedule nodes", a.schedule_nodes as u64, b.schedule_nodes as u64),
        ("engines", a.engines as u64, b.engines as u64),
        ("host segments", a.host_segments as u64, b.host_segments as u64),
        ("boundary bytes", a.boundary_bytes, b.boundary_bytes),
        ("boundary casts", a.boundary_casts as u64, b.boundary_casts as u64),
        ("tf32", u64::from(old.tf32), u64::from(new.tf32)),
    ];
    TargetDiff {
        target: new.target.clone(),
        gone: old.nodes.iter().filter(|row| !now.contains_key(&row.name)).cloned().collect(),
        new: new.nodes.iter().filter(|row| !before.contains_key(&row.name)).cloned().collect(),
        moved: moved.collect(),
        sums: sums.into_iter().filter(|(_, old, new)| old != new).collect(),
    }
}

impl Diff {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.gone_targets.is_empty() && self.new_targets.is_empty() && self.targets.is_empty()
    }
}

impl TargetDiff {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.new.is_empty() && self.moved.is_empty() && self.sums.is_empty()
    }

    /// Nodes that were not on the host and are now, or are for another reason.
    pub fn new_refusals(&self) -> impl Iterator<Item = &NodeRow> {
        let moved = self.moved.iter().map(|(_, now)| now);
        moved.chain(&self.new).filter(|row| row.placement == PlacementName::Host)
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for target in &self.gone_targets {
            writeln!(f, "target {target} is gone")?;
        }
        for target in &self.new_targets {
            writeln!(f, "target {target} is new")?;
        }
        for diff in &self.targets {
            if self.several {
                writeln!(f, "target {}", diff.target)?;
            }
            write!(f, "{diff}")?;
        }
        Ok(())
    }
}

/// Nodes of one kind of change that are printed.
const PRINTED: usize = 40;

impl fmt::Display for TargetDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |row: &NodeRow| format!("`{}` ({})", row.name, row.op);
        list(f, &self.moved, |(was, now)| {
            format!("node {}: {} -> {}", named(now), was.placement.word(), placed(now))
        })?;
        list(f, &self.new, |row| format!("node {} is new: {}", named(row), placed(row)))?;
        list(f, &self.gone, |row| format!("node {} is gone; it was: {}", named(row), row.placement.word()))?;
        for (name, before, now) in &self.sums {
            writeln!(f, "{name}: {before} -> {now}")?;
        }
        Ok(())
    }
}

fn list<T>(f: &mut fmt::Formatter<'_>, items: &[T], line: impl Fn(&T) -> String) -> fmt::Result {
    for item in items.iter().take(PRINTED) {
        writeln!(f, "{}", line(item))?;
    }
    match items.len().saturating_sub(PRINTED) {
        0 => Ok(()),
        more => writeln!(f, "and {more} more like these"),
    }
}

fn placed(row: &NodeRow) -> String {
    let mut text = row.placement.word().to_owned();
    if let Some(code) = &row.code {
        text.push_str(&format!(" [{code}]"));
    }
    if let Some(reason) = &row.reason {
        text.push_str(&format!(": {reason}"));
    }
    text
}

/// Reads a report: JSON of `trtc partition` or `trtc compile --report`, or the reports within a bundle.
///
/// # Errors
/// [`crate::ErrorKind::Input`] for a file that is neither, or is damaged.
pub fn read_report(path: &Path) -> Result<Report, Error> {
    let refuse = |why: &dyn fmt::Display| Error::input(format!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| refuse(&error))?;
    if text.trim_ascii_start().first() == Some(&b'{') {
        return serde_json::from_slice(&text).map_err(|error| refuse(&format!("no report: {error}")));
    }
    drop(text);
    let bundle = Bundle::open(path).map_err(|error| {
        let text = error.to_string();
        // Some errors name the file themselves.
        let named = text.contains(&path.display().to_string());
        let error = if named { Error::input(text) } else { refuse(&text) };
        error.help("a report in JSON or a bundle is wanted")
    })?;
    let manifest = bundle.manifest();
    let mut targets: Vec<TargetReport> = Vec::new();
    for plan in &manifest.targets {
        let Some(section) = plan.report else { continue };
        let json = bundle.report(section).map_err(|error| refuse(&error))?;
        targets.push(serde_json::from_slice(&json).map_err(|error| refuse(&error))?);
    }
    let model = ModelInfo {
        path: manifest.model.name.clone(),
        format: manifest.model.format.clone(),
        nodes: targets.iter().map(|target| target.nodes.len()).max().unwrap_or_default(),
    };
    Ok(Report { schema_version: 1, model, ranges: Vec::new(), targets, timings: None })
}

#[cfg(test)]
mod tests {
    use super::diff;
    use serde_json::{Value, json};
    use trtc_partitioner::Report;

    fn report(target: &str, nodes: &[(&str, &str, Option<&str>)], bytes: u64) -> Report {
        let rows: Vec<Value> = nodes
            .iter()
            .map(|(name, placement, code)| {
                json!({"name": name, "op": "Conv", "placement": placement, "segment": null, "code": code,
                    "reason": code.map(|_| "why")})
            })
            .collect();
        let host = nodes.iter().filter(|node| node.1 == "host").count();
        let totals = json!({"nodes": nodes.len(), "folded": 0, "removed": 0, "engine_nodes": nodes.len() - host,
            "host_nodes": host, "schedule_nodes": 0, "engines": 1, "host_segments": 0, "boundary_bytes": bytes,
            "boundary_casts": 0});
        let target = json!({"target": target, "totals": totals, "segments": [], "nodes": rows});
        let model = json!({"path": "m.onnx", "format": "onnx", "nodes": nodes.len()});
        serde_json::from_value(json!({"schema_version": 1, "model": model, "targets": [target]})).unwrap()
    }

    #[test]
    fn equal_reports_have_no_difference() {
        let a = report("host", &[("a", "host", Some("E0004"))], 5);
        assert!(diff(&a, &a).is_empty());
        assert_eq!(diff(&a, &a).to_string(), "");
    }

    #[test]
    fn what_moved_comes_with_its_reason() {
        let a =
            report("host", &[("a", "engine", None), ("b", "host", Some("E0001")), ("c", "engine", None)], 5);
        let b = report(
            "host",
            &[("a", "host", Some("E0502")), ("b", "host", Some("E0201")), ("d", "engine", None)],
            9,
        );
        let found = diff(&a, &b);
        assert_eq!(
            found.to_string(),
            "node `a` (Conv): engine -> host [E0502]: why\nnode `b` (Conv): host -> host [E0201]: why\n\
             node `d` (Conv) is new: engine\nnode `c` (Conv) is gone; it was: engine\n\
             engine nodes: 2 -> 1\nhost nodes: 1 -> 2\nboundary bytes: 5 -> 9\n"
        );
        let refusals: Vec<_> = found.targets[0].new_refusals().map(|row| row.name.as_str()).collect();
        assert_eq!(refusals, ["a", "b"]);
    }

    #[test]
    fn another_precision_is_a_change() {
        let a = report("rtx-1.7:sm89", &[("a", "engine", None)], 0);
        let mut b = a.clone();
        b.targets[0].tf32 = true;
        assert_eq!(diff(&a, &b).to_string(), "tf32: 0 -> 1\n");
    }

    #[test]
    fn targets_come_and_go() {
        let (a, b) = (report("host", &[], 0), report("rtx-1.7:sm89", &[], 0));
        assert_eq!(diff(&a, &b).to_string(), "target host is gone\ntarget rtx-1.7:sm89 is new\n");
    }
}

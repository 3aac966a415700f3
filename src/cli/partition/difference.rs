//! What changed between two partitions, for whoever reads a failed check.

use std::collections::BTreeMap;
use trtc::Report;
use trtc_partitioner::{NodeRow, PlacementName, TargetReport};

/// Moved, new and vanished nodes, then changed sums, a line each. Empty when the difference lies elsewhere.
pub fn changes(before: &Report, now: &Report) -> Vec<String> {
    let mut changes = Vec::new();
    for old in &before.targets {
        if !now.targets.iter().any(|new| new.target == old.target) {
            changes.push(format!("target {} is gone", old.target));
        }
    }
    for new in &now.targets {
        match before.targets.iter().find(|old| old.target == new.target) {
            None => changes.push(format!("target {} is new", new.target)),
            Some(old) => {
                let lines = of_target(old, new);
                if !lines.is_empty() && now.targets.len() > 1 {
                    changes.push(format!("target {}", new.target));
                }
                changes.extend(lines);
            }
        }
    }
    changes
}

fn of_target(old: &TargetReport, new: &TargetReport) -> Vec<String> {
    let by_name = |report: &TargetReport| -> BTreeMap<String, NodeRow> {
        report.nodes.iter().map(|row| (row.name.clone(), row.clone())).collect()
    };
    let (before, now) = (by_name(old), by_name(new));
    let mut lines = Vec::new();
    for row in &new.nodes {
        match before.get(&row.name) {
            None => lines.push(format!("node {} is new: {}", named(row), placed(row))),
            Some(was) if (was.placement, &was.code) != (row.placement, &row.code) => {
                lines.push(format!("node {}: {} -> {}", named(row), word(was.placement), placed(row)));
            }
            Some(_) => {}
        }
    }
    let gone = old.nodes.iter().filter(|row| !now.contains_key(&row.name));
    lines.extend(gone.map(|row| format!("node {} is gone; it was: {}", named(row), word(row.placement))));
    let (a, b) = (&old.totals, &new.totals);
    let sums = [
        ("engine nodes", a.engine_nodes as u64, b.engine_nodes as u64),
        ("host nodes", a.host_nodes as u64, b.host_nodes as u64),
        ("schedule nodes", a.schedule_nodes as u64, b.schedule_nodes as u64),
        ("engines", a.engines as u64, b.engines as u64),
        ("host segments", a.host_segments as u64, b.host_segments as u64),
        ("boundary bytes", a.boundary_bytes, b.boundary_bytes),
        ("boundary casts", a.boundary_casts as u64, b.boundary_casts as u64),
    ];
    let changed = sums.into_iter().filter(|(_, old, new)| old != new);
    lines.extend(changed.map(|(name, old, new)| format!("{name}: {old} -> {new}")));
    lines
}

fn named(row: &NodeRow) -> String {
    format!("`{}` ({})", row.name, row.op)
}

fn placed(row: &NodeRow) -> String {
    let mut text = word(row.placement).to_owned();
    if let Some(code) = &row.code {
        text.push_str(&format!(" [{code}]"));
    }
    if let Some(reason) = &row.reason {
        text.push_str(&format!(": {reason}"));
    }
    text
}

fn word(placement: PlacementName) -> &'static str {
    match placement {
        PlacementName::Engine => "engine",
        PlacementName::Host => "host",
        PlacementName::Schedule => "schedule",
        PlacementName::Folded => "folded",
        PlacementName::Removed => "removed",
    }
}

/// The lines that differ, with a few around them.
pub fn lines(before: &str, now: &str) -> String {
    similar::TextDiff::from_lines(before, now)
        .unified_diff()
        .context_radius(2)
        .header("before", "now")
        .to_string()
}

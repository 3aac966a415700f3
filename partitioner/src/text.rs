//! The report as a table for people.

use crate::report::{NodeRow, PlacementName, Report, TargetReport};
use std::collections::BTreeMap;
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model    {} ({}, {} nodes)", self.model.path, self.model.format, self.model.nodes)?;
        for (k, line) in self.ranges.iter().enumerate() {
            writeln!(f, "{:<8} {line}", if k == 0 { "ranges" } else { "" })?;
        }
        for target in &self.targets {
            writeln!(f)?;
            write!(f, "{target}")?;
        }
        if let Some(t) = &self.timings {
            writeln!(f)?;
            writeln!(
                f,
                "seconds  open {:.3}, passes {:.3}, partition {:.3}, convert {:.3}, build {:.3}, write {:.3}",
                t.open_s, t.passes_s, t.partition_s, t.convert_s, t.build_s, t.write_s
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for TargetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.totals;
        writeln!(f, "target   {}", self.target)?;
        writeln!(
            f,
            "nodes    {}: {} in {} engine{}, {} on the host in {} segment{}, {} folded, {} removed",
            t.nodes,
            t.engine_nodes,
            t.engines,
            plural(t.engines),
            t.host_nodes,
            t.host_segments,
            plural(t.host_segments),
            t.folded,
            t.removed
        )?;
        if t.schedule_nodes > 0 {
            writeln!(f, "         {} control flow nodes run by the schedule", t.schedule_nodes)?;
        }
        writeln!(f, "boundary {}", bytes(t.boundary_bytes))?;
        writeln!(f)?;
        writeln!(
            f,
            "  {:<12} {:>6} {:>10} {:>10}  {:<9} {:>8} {:>10}",
            "segment", "nodes", "in", "out", "status", "build", "engine"
        )?;
        for segment in &self.segments {
            let size = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), bytes);
            let status = format!("{:?}", segment.status).to_lowercase();
            let build = segment.build_s.map_or_else(String::new, |s| format!("{s:.2} s"));
            let engine = segment.engine_bytes.map_or_else(String::new, bytes);
            let line = format!(
                "  {:<12} {:>6} {:>10} {:>10}  {:<9} {:>8} {:>10}",
                segment.id,
                segment.nodes.len(),
                size(segment.bytes_in),
                size(segment.bytes_out),
                status,
                build,
                engine
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        reasons(&self.nodes, f)
    }
}

/// Host nodes grouped by operator and reason: a model has few reasons and many nodes.
fn reasons(rows: &[NodeRow], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.placement == PlacementName::Host) {
        let key = (row.code.as_deref().unwrap_or(""), row.op.as_str(), row.reason.as_deref().unwrap_or(""));
        groups.entry(key).or_default().push(&row.name);
    }
    if groups.is_empty() {
        return Ok(());
    }
    writeln!(f)?;
    writeln!(f, "  on the host, and why")?;
    for ((code, op, reason), names) in groups {
        let more = names.len().saturating_sub(3);
        let mut list = names.iter().take(3).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        if more > 0 {
            list.push_str(&format!(" and {more} more"));
        }
        writeln!(f, "  {code} {op} x{}: {reason}", names.len())?;
        writeln!(f, "        {list}")?;
    }
    Ok(())
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Bytes for people: `512 B`, `1.5 KiB`, `98.2 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", units[unit]) }
}

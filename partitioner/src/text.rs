//! The report as a table for people.

use crate::report::{NodeRow, PlacementName, Report, SegmentRow, TargetReport};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// Most segments that the table lists; the JSON report holds all.
const SEGMENTS: usize = 24;
/// Most groups of host nodes that are listed.
const GROUPS: usize = 40;

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
            if t.recover_s > 0.0 {
                writeln!(f, "         recover {:.3} (looking for what cannot be built)", t.recover_s)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for TargetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.totals;
        writeln!(f, "target   {}", self.target)?;
        if self.tf32 {
            writeln!(f, "tf32     products of f32 may round their operands to 10 bits of mantissa")?;
        }
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
            let n = t.schedule_nodes;
            writeln!(f, "         {n} control flow node{} run by the schedule", plural(n))?;
        }
        write!(f, "boundary {}", bytes(t.boundary_bytes))?;
        match t.boundary_casts {
            0 => writeln!(f)?,
            n => writeln!(f, ", {n} cast{}", plural(n))?,
        }
        let e = &self.estimate;
        if e.total_ns > 0 && t.engines + t.host_segments > 1 || e.total_ns != e.maximal_ns {
            writeln!(
                f,
                "estimate {}; {} with maximal clusters ({} engine{}), {} on the host alone",
                time(e.total_ns),
                time(e.maximal_ns),
                e.maximal_engines,
                plural(e.maximal_engines),
                time(e.host_ns)
            )?;
        }
        writeln!(f)?;
        segments(&self.segments, f)?;
        reasons(&self.nodes, f)
    }
}

fn segments(segments: &[SegmentRow], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let shown = || segments.iter().take(SEGMENTS).map(|segment| shortened(&segment.id));
    let width = shown().map(|id| id.chars().count()).max().unwrap_or(0).max(12);
    writeln!(
        f,
        "  {:<width$} {:>6} {:>10} {:>10}  {:<9} {:>8} {:>10}",
        "segment", "nodes", "in", "out", "status", "build", "engine"
    )?;
    for (segment, id) in segments.iter().zip(shown()) {
        let size = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), bytes);
        let status = format!("{:?}", segment.status).to_lowercase();
        let build = match segment.build_s {
            _ if segment.cached => "cached".to_owned(),
            seconds => seconds.map_or_else(String::new, |s| format!("{s:.2} s")),
        };
        let engine = segment.engine_bytes.map_or_else(String::new, bytes);
        let line = format!(
            "  {:<width$} {:>6} {:>10} {:>10}  {:<9} {:>8} {:>10}",
            id,
            segment.nodes.len(),
            size(segment.bytes_in),
            size(segment.bytes_out),
            status,
            build,
            engine
        );
        writeln!(f, "{}", line.trim_end())?;
    }
    if segments.len() > SEGMENTS {
        writeln!(
            f,
            "  and {} more (`--format json` and `--format html` have all)",
            segments.len() - SEGMENTS
        )?;
    }
    Ok(())
}

/// Host nodes grouped by operator and reason, the largest groups first: a model has few reasons and many nodes.
fn reasons(rows: &[NodeRow], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&NodeRow>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.placement == PlacementName::Host) {
        let key = (row.code.as_deref().unwrap_or(""), row.op.as_str(), without_figures(row));
        groups.entry(key).or_default().push(row);
    }
    if groups.is_empty() {
        return Ok(());
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    writeln!(f)?;
    writeln!(f, "  on the host, and why")?;
    let mut told = HashSet::new();
    for ((code, op, reason), rows) in groups.iter().take(GROUPS) {
        let reason = match rows.as_slice() {
            [row] => row.reason.as_deref().unwrap_or(reason),
            _ => reason,
        };
        writeln!(f, "  {code} {op} x{}: {reason}", rows.len())?;
        let help = rows.first().and_then(|row| row.help.as_deref());
        // The same advice for several groups is given once.
        if let Some(help) = help.filter(|help| told.insert(*help)) {
            writeln!(f, "        help: {help}")?;
        }
        let more = rows.len().saturating_sub(3);
        let names: Vec<_> = rows.iter().take(3).map(|row| format!("`{}`", shortened(&row.name))).collect();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let cost: u64 = rows.iter().filter_map(|row| row.host_ns).sum();
        let cost = if cost > 0 { format!("; {}", time(cost)) } else { String::new() };
        writeln!(f, "        {}{more}{cost}", names.join(", "))?;
    }
    if groups.len() > GROUPS {
        let rest: usize = groups.iter().skip(GROUPS).map(|(_, rows)| rows.len()).sum();
        writeln!(f, "  and {rest} more nodes with {} other reasons", groups.len() - GROUPS)?;
    }
    Ok(())
}

/// The reason of a node up to its figures: those of placement by cost differ from node to node.
pub(crate) fn without_figures(row: &NodeRow) -> &str {
    let reason = row.reason.as_deref().unwrap_or("");
    match row.code.as_deref() {
        Some("E0901") => reason.split(':').next().unwrap_or(reason),
        _ => reason,
    }
}

/// The end of a long name: nodes of nested bodies differ there.
fn shortened(name: &str) -> String {
    const KEPT: usize = 60;
    match name.char_indices().rev().nth(KEPT) {
        Some((at, last)) => format!("…{}", &name[at + last.len_utf8()..]),
        None => name.to_owned(),
    }
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Time for people: `12 us`, `3.4 ms`, `1.20 s`.
pub(crate) fn time(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    match us {
        us if us < 10.0 => format!("{us:.1} us"),
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
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

//! The partition as a Graphviz graph: a box for each segment, an edge for each value between two.

use std::{collections::HashMap, fmt::Write};
use trtc::Report;
use trtc_partitioner::{SegmentRow, TargetReport};

pub fn draw(report: &Report) -> String {
    let mut text = String::from("digraph partition {\n  rankdir=TB;\n  node [shape=box, style=filled];\n");
    for (number, target) in report.targets.iter().enumerate() {
        let label = quoted(&format!("{}\n{}", report.model.path, target.target));
        put(&mut text, format_args!("  subgraph cluster_{number} {{\n    label={label};\n"));
        of_target(number, target, &mut text);
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    text
}

fn of_target(number: usize, target: &TargetReport, text: &mut String) {
    let mut producers: HashMap<&str, String> = HashMap::new();
    for segment in &target.segments {
        let id = quoted(&format!("{number}/{}", segment.id));
        let colour = if segment.kind == "engine" { "palegreen" } else { "lightgrey" };
        let label = quoted(&format!("{}\n{}", segment.id, operators(segment, target)));
        put(text, format_args!("    {id} [label={label}, fillcolor={colour}];\n"));
        producers.extend(segment.outputs.iter().map(|value| (value.as_str(), id.clone())));
    }
    for segment in &target.segments {
        let id = quoted(&format!("{number}/{}", segment.id));
        for value in &segment.inputs {
            let label = quoted(value);
            match producers.get(value.as_str()) {
                Some(from) if *from != id => put(text, format_args!("    {from} -> {id} [label={label}];\n")),
                Some(_) => {}
                None => {
                    let from = quoted(&format!("{number}/input {value}"));
                    put(text, format_args!("    {from} [label={label}, shape=ellipse, fillcolor=white];\n"));
                    put(text, format_args!("    {from} -> {id};\n"));
                }
            }
        }
    }
}

/// The operators of a segment, the most frequent first: `12 Conv, 12 Relu, …`.
fn operators(segment: &SegmentRow, target: &TargetReport) -> String {
    const SHOWN: usize = 4;
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mine = target.nodes.iter().filter(|row| row.segment.as_deref() == Some(&segment.id));
    mine.for_each(|row| *counts.entry(&row.op).or_default() += 1);
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let mut names: Vec<String> =
        counts.iter().take(SHOWN).map(|(op, count)| format!("{count} {op}")).collect();
    if counts.len() > SHOWN {
        names.push("…".to_owned());
    }
    names.join(", ")
}

/// Writing to a string cannot fail.
fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(what);
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn names_cannot_leave_their_quotes() {
        assert_eq!(quoted("a\"b\\c\nd"), r#""a\"b\\c\nd""#);
    }
}

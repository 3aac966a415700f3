//! The report as a Graphviz graph: a box for each segment, an arrow for each value between two.

use crate::{
    operators::operators,
    report::{Report, TargetReport},
    text::bytes,
};
use std::{collections::BTreeSet, fmt::Write};

impl Report {
    /// The report in Graphviz' language. The same report gives the same bytes.
    pub fn to_dot(&self) -> String {
        let mut text =
            String::from("digraph partition {\n  rankdir=TB;\n  node [shape=box, style=filled];\n");
        for (number, target) in self.targets.iter().enumerate() {
            let label = quoted(&format!("{}\n{}", self.model.path, target.target));
            put(&mut text, format_args!("  subgraph cluster_{number} {{\n    label={label};\n"));
            of_target(number, target, &mut text);
            text.push_str("  }\n");
        }
        text.push_str("}\n");
        text
    }
}

fn of_target(number: usize, target: &TargetReport, text: &mut String) {
    let operators = operators(target);
    for segment in &target.segments {
        let id = quoted(&format!("{number}/{}", segment.id));
        let colour = if segment.kind == "engine" { "palegreen" } else { "moccasin" };
        let list = operators.get(segment.id.as_str()).map(String::as_str).unwrap_or_default();
        let label = quoted(&format!("{} ({} nodes)\n{list}", segment.id, segment.nodes.len()));
        put(text, format_args!("    {id} [label={label}, fillcolor={colour}];\n"));
    }
    // Control flow that the schedule runs.
    let segments: BTreeSet<&str> = target.segments.iter().map(|segment| segment.id.as_str()).collect();
    let ends =
        target.crossings.iter().flat_map(|value| value.from.iter().chain(&value.to)).map(String::as_str);
    for node in ends.filter(|end| !segments.contains(end)).collect::<BTreeSet<&str>>() {
        let id = quoted(&format!("{number}/{node}"));
        let label = quoted(node);
        put(text, format_args!("    {id} [label={label}, shape=diamond, fillcolor=lightblue];\n"));
    }
    for value in &target.crossings {
        let size = value.bytes.map_or_else(|| "?".to_owned(), bytes);
        let label = quoted(&format!("{}\n{}, {size}", value.value, value.ty));
        let from = match &value.from {
            Some(from) => quoted(&format!("{number}/{from}")),
            None => {
                let id = quoted(&format!("{number}/input {}", value.value));
                let name = quoted(&value.value);
                put(text, format_args!("    {id} [label={name}, shape=ellipse, fillcolor=white];\n"));
                id
            }
        };
        for to in &value.to {
            let to = quoted(&format!("{number}/{to}"));
            put(text, format_args!("    {from} -> {to} [label={label}];\n"));
        }
        if value.output {
            let id = quoted(&format!("{number}/output {}", value.value));
            let name = quoted(&value.value);
            put(text, format_args!("    {id} [label={name}, shape=ellipse, fillcolor=white];\n"));
            put(text, format_args!("    {from} -> {id} [label={label}];\n"));
        }
    }
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

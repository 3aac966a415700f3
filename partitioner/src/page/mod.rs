//! The report as one page that needs nothing else: no network, no library. The segments are drawn here; the table of
//! nodes is filtered and scrolled by a small script, which holds only the rows in view.

mod drawing;

use crate::report::{Report, TargetReport};
use serde_json::{Value, json};
use std::collections::HashMap;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

impl Report {
    /// The report as an HTML page. The same report gives the same bytes.
    pub fn to_html(&self) -> String {
        let title = escaped(&self.model.path);
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'\">\n<title>{title} - partition</title>\n<style>\n{STYLE}</style></head>\n<body>\n\
             <h1>{title}</h1>\n<p>{}, {} nodes</p>\n",
            escaped(&self.model.format),
            self.model.nodes
        );
        if !self.ranges.is_empty() {
            let lines: String = self.ranges.iter().map(|line| escaped(line) + "\n").collect();
            page += &format!("<details><summary>Ranges of dims</summary><pre>{lines}</pre></details>\n");
        }
        for (k, target) in self.targets.iter().enumerate() {
            page += &section(k, target);
        }
        page += &format!("<script>\n{SCRIPT}</script>\n</body></html>\n");
        page
    }
}

fn section(k: usize, target: &TargetReport) -> String {
    let mut section =
        format!("<section id=\"target-{k}\">\n<h2>{}</h2>\n", escaped(&target.target.to_string()));
    section += "<table class=\"sums\"><tr>";
    let t = &target.totals;
    let e = &target.estimate;
    let sums = [
        ("nodes", t.nodes.to_string()),
        ("in engines", t.engine_nodes.to_string()),
        ("on the host", t.host_nodes.to_string()),
        ("by the schedule", t.schedule_nodes.to_string()),
        ("folded", t.folded.to_string()),
        ("removed", t.removed.to_string()),
        ("engines", t.engines.to_string()),
        ("host segments", t.host_segments.to_string()),
        ("cross", crate::text::bytes(t.boundary_bytes)),
        ("casts", t.boundary_casts.to_string()),
        ("estimate", crate::text::time(e.total_ns)),
        ("maximal clusters", crate::text::time(e.maximal_ns)),
        ("their engines", e.maximal_engines.to_string()),
        ("host alone", crate::text::time(e.host_ns)),
    ];
    sums.iter().for_each(|(name, _)| section += &format!("<th>{name}</th>"));
    section += "</tr><tr>";
    sums.iter().for_each(|(_, sum)| section += &format!("<td>{}</td>", escaped(sum)));
    section += "</tr></table>\n";
    section += &drawing::svg(target);
    section += "<div class=\"filters\"></div><div class=\"table\" tabindex=\"0\"></div><div class=\"detail\"></div>\n";
    // `<` would end the script element early; JSON spells it otherwise.
    let data = rows(target).to_string().replace('<', "\\u003c");
    section += &format!("<script type=\"application/json\">{data}</script>\n</section>\n");
    section
}

/// Texts that repeat from row to row, each written once.
#[derive(Default)]
struct Texts<'a> {
    list: Vec<&'a str>,
    index: HashMap<&'a str, usize>,
}

impl<'a> Texts<'a> {
    fn number(&mut self, text: Option<&'a str>) -> Option<usize> {
        let text = text?;
        Some(*self.index.entry(text).or_insert_with(|| {
            self.list.push(text);
            self.list.len() - 1
        }))
    }
}

/// Rows for the script.
fn rows(target: &TargetReport) -> Value {
    let mut texts = Texts::default();
    let mut rows: Vec<Value> = Vec::with_capacity(target.nodes.len());
    for row in &target.nodes {
        let [op, runs, segment, code, reason, help] = [
            Some(row.op.as_str()),
            Some(row.placement.word()),
            row.segment.as_deref(),
            row.code.as_deref(),
            row.reason.as_deref(),
            row.help.as_deref(),
        ]
        .map(|text| texts.number(text));
        rows.push(json!([row.name, op, runs, segment, code, reason, help, row.host_ns]));
    }
    json!({ "texts": texts.list, "rows": rows })
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn names_cannot_become_markup() {
        assert_eq!(escaped("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}

//! The partition as one page that needs nothing else.

use std::fmt::Write;
use trtc::Report;
use trtc_partitioner::{PlacementName, TargetReport};

const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}\
td,th{border:1px solid #ccc;padding:2px 8px;text-align:left}td.n{text-align:right}\
.engine{background:#e3f6e3}.host{background:#f6e9d9}.schedule{background:#e3ecf8}.folded,.removed{color:#777}";

pub fn page(report: &Report) -> String {
    let title = escaped(&report.model.path);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{}, {} nodes</p>\n",
        escaped(&report.model.format),
        report.model.nodes
    );
    if !report.ranges.is_empty() {
        let items: String = report.ranges.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
        put(&mut page, format_args!("<h2>Ranges</h2>\n<ul>{items}</ul>\n"));
    }
    report.targets.iter().for_each(|target| of_target(target, &mut page));
    page.push_str("</body></html>\n");
    page
}

fn of_target(target: &TargetReport, page: &mut String) {
    let t = &target.totals;
    put(
        page,
        format_args!(
            "<h2>{}</h2>\n<p>{} of {} nodes in {} engines, {} on the host in {} segments, {} run by the schedule, {} folded, {} removed; {} bytes cross</p>\n",
            escaped(&target.target.to_string()),
            t.engine_nodes,
            t.nodes,
            t.engines,
            t.host_nodes,
            t.host_segments,
            t.schedule_nodes,
            t.folded,
            t.removed,
            t.boundary_bytes
        ),
    );
    page.push_str("<table><tr><th>segment</th><th>kind</th><th>nodes</th><th>inputs</th><th>outputs</th><th>bytes in</th><th>bytes out</th></tr>\n");
    for segment in &target.segments {
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), |bytes| bytes.to_string());
        put(
            page,
            format_args!(
                "<tr class=\"{kind}\"><td>{}</td><td>{kind}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
                escaped(&segment.id),
                segment.nodes.len(),
                escaped(&segment.inputs.join(", ")),
                escaped(&segment.outputs.join(", ")),
                bytes(segment.bytes_in),
                bytes(segment.bytes_out),
                kind = escaped(&segment.kind),
            ),
        );
    }
    page.push_str("</table>\n<table><tr><th>node</th><th>operator</th><th>runs</th><th>segment</th><th>code</th><th>why</th></tr>\n");
    for row in &target.nodes {
        let class = match row.placement {
            PlacementName::Engine => "engine",
            PlacementName::Host => "host",
            PlacementName::Schedule => "schedule",
            PlacementName::Folded => "folded",
            PlacementName::Removed => "removed",
        };
        let cell = |text: &Option<String>| escaped(text.as_deref().unwrap_or_default());
        put(
            page,
            format_args!(
                "<tr class=\"{class}\"><td>{}</td><td>{}</td><td>{class}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                escaped(&row.name),
                escaped(&row.op),
                cell(&row.segment),
                cell(&row.code),
                cell(&row.reason),
            ),
        );
    }
    page.push_str("</table>\n");
}

/// Writing to a string cannot fail.
fn put(page: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = page.write_fmt(what);
}

fn escaped(text: &str) -> String {
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

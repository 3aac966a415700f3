//! The HTML report in a real browser: it renders, filters, draws, and holds 5,000 nodes without freezing.
//!
//! The browser is headless Chromium: `CHROMIUM`, or `chromium` and the like on the path. Without one these tests say so
//! and do nothing, unless `TRTC_REQUIRE_CHROMIUM` is set.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Command,
};
use trtc_partitioner::Report;

fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || {
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))).find(|file| file.is_file())
    };
    let found = std::env::var_os("CHROMIUM").map(PathBuf::from).or_else(on_path);
    if found.is_none() {
        assert!(std::env::var_os("TRTC_REQUIRE_CHROMIUM").is_none(), "no Chromium found");
        println!("skipped: no Chromium found; CHROMIUM=/path/to/chromium names one");
    }
    found
}

/// A report of `count` nodes in three segments, some of them folded; names and reasons hold markup.
fn report(count: usize) -> Report {
    let row = |k: usize| -> Value {
        let (op, placement, segment) = match k % 10 {
            0 => ("NonZero", "host", Some("host_0")),
            1 => ("Constant", "folded", None),
            2..6 => ("Conv", "engine", Some("engine_0")),
            _ => ("Relu", "engine", Some("engine_1")),
        };
        let host = placement == "host";
        json!({
            "name": format!("/layers.{k}/<b>{op}</b>"), "op": op, "placement": placement, "segment": segment,
            "code": host.then_some("E0502"), "reason": host.then(|| "no kernel for </script> on RTX".to_owned()),
            "help": host.then_some("use tensorrt-11.3"), "host_ns": host.then_some(12_500 * k),
        })
    };
    let names = |segment: &str| -> Vec<Value> {
        let rows = (0..count).map(row).filter(|row| row["segment"] == segment);
        rows.map(|row| row["name"].clone()).collect()
    };
    let segment = |id: &str, kind: &str, input: &str, output: &str| {
        json!({
            "id": id, "kind": kind, "nodes": names(id), "inputs": [input], "outputs": [output],
            "bytes_in": 4096, "bytes_out": 1536, "status": if kind == "host" { "host" } else { "planned" },
        })
    };
    let crossing = |value: &str, from: Option<&str>, to: &[&str], output: bool| json!({"value": value, "type": "f32[N x 384]", "bytes": 1536, "from": from, "to": to, "output": output});
    let host = (0..count).filter(|k| k % 10 == 0).count();
    let folded = (0..count).filter(|k| k % 10 == 1).count();
    let report = json!({
        "schema_version": 1,
        "model": {"path": "<i>m</i>.onnx", "format": "onnx", "nodes": count},
        "targets": [{
            "target": "rtx-1.7:sm86",
            "totals": {"nodes": count, "folded": folded, "removed": 0, "engine_nodes": count - host - folded,
                "host_nodes": host, "schedule_nodes": 0, "engines": 2, "host_segments": 1,
                "boundary_bytes": 3072, "boundary_casts": 0},
            "segments": [segment("engine_0", "engine", "x", "a"), segment("host_0", "host", "a", "b"),
                segment("engine_1", "engine", "b", "y")],
            "nodes": (0..count).map(row).collect::<Vec<_>>(),
            "crossings": [crossing("x", None, &["engine_0"], false),
                crossing("a", Some("engine_0"), &["host_0", "engine_1"], false),
                crossing("b", Some("host_0"), &["engine_1"], false),
                crossing("y", Some("engine_1"), &[], true)],
        }],
    });
    serde_json::from_value(report).expect("a report")
}

/// The page's document after its scripts ran, with `script` run at the end of them.
fn load(browser: &Path, report: &Report, hash: &str, script: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("report.html");
    let page = report.to_html().replace("</body>", &format!("<script>{script}</script></body>"));
    std::fs::write(&file, page).expect("written");
    let profile = folder.path().join("profile");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--window-size=1200,1600", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("file://{}{hash}", file.display()))
        .output()
        .expect("the browser starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

/// The text of an attribute or element between two marks.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).map_or_else(|| panic!("no {before}"), |(_, rest)| rest);
    rest.split_once(after).map_or(rest, |(found, _)| found)
}

#[test]
fn the_page_draws_segments_and_lists_nodes() {
    let Some(browser) = browser() else { return };
    let dom = load(&browser, &report(30), "", "");
    assert_eq!(count(&dom, "class=\"segment\""), 3);
    // x; a to two segments; b; y.
    assert_eq!(count(&dom, "class=\"edge"), 5);
    assert_eq!(count(&dom, ">1.5 KiB</text>"), 5);
    assert!(dom.contains("30 of 30 nodes"));
    assert_eq!(count(&dom, "class=\"row host\""), 3);
    // Markup in names is text.
    assert!(dom.contains("&lt;b&gt;Conv&lt;/b&gt;") && !dom.contains("<b>") && !dom.contains("<i>"));
}

/// An `If_0` that the schedule runs, with an engine in each branch, one of them behind an inner loop.
fn report_of_control_flow() -> Report {
    let segment = |id: &str, input: &str, output: &str| {
        json!({"id": id, "kind": "engine", "nodes": [], "inputs": [input], "outputs": [output],
            "bytes_in": 1536, "bytes_out": 1536, "status": "planned"})
    };
    let flow = |name: &str, op: &str| json!({"name": name, "op": op, "placement": "schedule", "segment": null, "code": "E0701", "reason": "a NonZero in it"});
    let crossing = |value: &str, from: Option<&str>, to: &[&str], output: bool| json!({"value": value, "type": "f32[384]", "bytes": 1536, "from": from, "to": to, "output": output});
    let (then, otherwise, inner) =
        ("If_0/then_branch/engine_0", "If_0/else_branch/engine_0", "If_0/else_branch/Loop_0/body/engine_0");
    let report = json!({
        "schema_version": 1,
        "model": {"path": "m.onnx", "format": "onnx", "nodes": 2},
        "targets": [{
            "target": "rtx-1.7:sm86",
            "totals": {"nodes": 2, "folded": 0, "removed": 0, "engine_nodes": 0, "host_nodes": 0, "schedule_nodes": 2,
                "engines": 3, "host_segments": 0, "boundary_bytes": 0, "boundary_casts": 0},
            "segments": [segment(otherwise, "x", "a"), segment(inner, "a", "b"), segment(then, "x", "c")],
            "nodes": [flow("If_0", "If"), flow("If_0/else_branch/Loop_0", "Loop")],
            "crossings": [crossing("x", None, &[otherwise, then], false),
                crossing("a", Some(otherwise), &[inner], false),
                crossing("b", Some(inner), &["If_0/else_branch/Loop_0"], false),
                crossing("d", Some("If_0/else_branch/Loop_0"), &["If_0"], false),
                crossing("c", Some(then), &["If_0"], false),
                crossing("y", Some("If_0"), &[], true)],
        }],
    });
    serde_json::from_value(report).expect("a report")
}

#[test]
fn control_flow_of_the_schedule_is_drawn_behind_its_bodies() {
    let page = report_of_control_flow().to_html();
    let y = |mark: &str| -> usize {
        between(between(&page, mark, "</g>"), " y=\"", "\"").parse().expect("a number")
    };
    let order =
        ["else_branch/engine_0", "body/engine_0", "else_branch/Loop_0", "then_branch/engine_0", "If_0"];
    let heights = order.map(|end| {
        let name = if end == "If_0" { "\"If_0".to_owned() } else { end.to_owned() };
        let kind = if end.contains("engine") { "segment" } else { "node" };
        let line = page
            .lines()
            .find(|line| line.contains(&format!("data-{kind}=")) && line.contains(&format!("{name}\"")));
        y(line.expect("a box"))
    });
    assert!(heights.is_sorted_by(|a, b| a < b), "{heights:?}");
    // x to both branches; a, b, d, c; y.
    assert_eq!(count(&page, "<g class=\"edge"), 7);

    let Some(browser) = browser() else { return };
    let script =
        "document.querySelector('.flow rect').dispatchEvent(new MouseEvent('click', {bubbles: true}));";
    let dom = load(&browser, &report_of_control_flow(), "", script);
    assert_eq!(between(&dom, "class=\"count\">", "<"), "1 of 2 nodes");
}

#[test]
fn nothing_is_fetched() {
    let page = report(5).to_html();
    let scheme = page.replace("http://www.w3.org/2000/svg", "");
    assert!(
        !scheme.contains("http:")
            && !scheme.contains("https:")
            && !scheme.contains("src=")
            && !scheme.contains("@import")
    );
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn filters_leave_the_rows_that_fit() {
    let Some(browser) = browser() else { return };
    let report = report(1000);
    let shown = |hash: &str, script: &str| {
        between(&load(&browser, &report, hash, script), "class=\"count\">", "<").to_owned()
    };
    assert_eq!(shown("#runs=host", ""), "100 of 1000 nodes");
    assert_eq!(shown("#op=Relu&text=layers.99", ""), "5 of 1000 nodes");
    assert_eq!(shown("#segment=engine_0", ""), "400 of 1000 nodes");
    // As a user does it: a choice in a list, then text.
    let script = "const f = (name, value, event) => { const box = document.querySelector(`[data-filter=${name}]`); \
                  box.value = value; box.dispatchEvent(new Event(event)); }; \
                  f('why', 'no kernel for <' + '/script> on RTX', 'change'); f('text', 'LAYERS.98', 'input');";
    assert_eq!(shown("", script), "1 of 1000 nodes");
    // A click on a segment filters by it; one on a row tells what would help.
    let script = "document.querySelector('[data-segment=host_0] rect').dispatchEvent(new MouseEvent('click', {bubbles: true})); \
                  document.querySelector('.row').click();";
    let dom = load(&browser, &report, "", script);
    assert_eq!(between(&dom, "class=\"count\">", "<"), "100 of 1000 nodes");
    assert!(
        between(&dom, "class=\"detail\">", "</div>").contains("To move it to an engine: use tensorrt-11.3")
    );
    assert!(dom.contains("class=\"segment chosen\""));
}

#[test]
fn five_thousand_nodes_do_not_freeze_it() {
    let Some(browser) = browser() else { return };
    // Filters twenty times and scrolls to the end, with the clock running.
    let script = "const begun = performance.now(); const box = document.querySelector('[data-filter=text]'); \
                  for (let k = 0; k < 20; k++) { box.value = 'layers.' + k; box.dispatchEvent(new Event('input')); } \
                  box.value = ''; box.dispatchEvent(new Event('input')); \
                  document.body.dataset.work = Math.ceil(performance.now() - begun); \
                  const table = document.querySelector('.table'); table.scrollTop = table.scrollHeight;";
    let dom = load(&browser, &report(5000), "", script);
    assert!(dom.contains("5000 of 5000 nodes"));
    let number = |before: &str| between(&dom, before, "\"").parse::<u64>().expect("a number");
    let (render, work) = (number("data-ms=\""), number("data-work=\""));
    println!("first render {render} ms, 21 filters {work} ms");
    assert!(render < 1000 && work < 2000, "render {render} ms, filters {work} ms");
    // Only the rows in view exist, the last one among them.
    let rows = count(&dom, "class=\"row ");
    assert!((10..100).contains(&rows), "{rows} rows");
    assert!(dom.contains("data-row=\"4999\""));
}

//! `trtc partition`: formats, and snapshots that are checked and blessed.

use crate::support::{Folder, small_model, trtc, trtc_in};
use trtc_bundle::DType;
use trtc_onnx::write::{graph, model, node, value_info};

#[test]
fn every_node_has_a_line_and_a_reason() {
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(false));
    let said = trtc(&["partition", &model, "--format", "json"]).code(0);
    let report: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let target = &report["targets"][0];
    assert_eq!(target["target"], "rtx-1.7:sm86,sm89,sm120");
    let totals = &target["totals"];
    let sum: u64 = ["engine_nodes", "host_nodes", "schedule_nodes", "folded", "removed"]
        .iter()
        .map(|key| totals[key].as_u64().unwrap())
        .sum();
    assert_eq!((totals["nodes"].as_u64(), sum), (Some(2), 2));
    let last = target["nodes"].as_array().unwrap().iter().find(|row| row["name"] == "last").unwrap();
    assert_eq!((last["placement"].as_str(), last["code"].as_str()), (Some("host"), Some("E0001")));
    assert!(last["reason"].as_str().unwrap().contains("Unheard"), "{last}");
}

#[test]
fn the_partition_is_the_same_bytes_each_time() {
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(false));
    for format in ["text", "json", "dot", "html"] {
        let run = || trtc(&["partition", &model, "--format", format]).code(0).stdout;
        let first = run();
        assert!(first.ends_with('\n') && first == run(), "{format}");
    }
}

#[test]
fn several_targets_have_an_entry_each() {
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(true));
    let arguments = ["partition", &model, "--target", "rtx-1.7:sm89", "--target", "host", "--format", "json"];
    let report: serde_json::Value = serde_json::from_str(&trtc(&arguments).code(0).stdout).unwrap();
    let targets: Vec<&serde_json::Value> =
        report["targets"].as_array().unwrap().iter().map(|target| &target["target"]).collect();
    assert_eq!(targets, ["rtx-1.7:sm89", "host"]);
    assert_eq!(report["targets"][1]["totals"]["host_nodes"], 2);
}

#[test]
fn a_snapshot_is_blessed_and_checked() {
    let folder = Folder::new();
    folder.model("m.onnx", &small_model(true));
    let here = folder.path("");
    for snapshot in ["snap.txt", "snap.json"] {
        folder.model("m.onnx", &small_model(true));
        let missing = trtc_in(&here, &["partition", "m.onnx", "--check", snapshot]).code(2);
        assert!(
            missing.stderr.contains(snapshot) && missing.stderr.contains("--bless"),
            "{}",
            missing.stderr
        );
        let blessed = trtc_in(&here, &["partition", "m.onnx", "--bless", snapshot]).code(0);
        assert_eq!(blessed.stdout, "");
        trtc_in(&here, &["partition", "m.onnx", "--check", snapshot]).code(0);
        // From another folder the model has another path, and is the same.
        let (model, file) = (folder.path("m.onnx"), folder.path(snapshot));
        trtc(&["partition", model.to_str().unwrap(), "--check", file.to_str().unwrap()]).code(0);
        // The last node leaves the GPU.
        folder.model("m.onnx", &small_model(false));
        let changed = trtc_in(&here, &["partition", "m.onnx", "--check", snapshot]).code(1);
        assert!(changed.stdout.contains("Unheard") && changed.stdout.contains("E0001"), "{}", changed.stdout);
        assert!(
            changed.stderr.contains("has changed") && changed.stderr.contains("--bless"),
            "{}",
            changed.stderr
        );
    }
    let changed = trtc_in(&here, &["partition", "m.onnx", "--check", "snap.json"]).code(1);
    assert!(changed.stdout.contains("node `last`"), "{}", changed.stdout);
}

#[test]
fn reports_and_bundles_are_compared() {
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(false));
    let (a, b) = (folder.path("a.json"), folder.path("b.trtc"));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    trtc(&["compile", &model, "-o", b, "--target", "host", "--report", a]).code(0);
    assert_eq!(trtc(&["diff", a, b]).code(0).stdout, "");
    let other = folder.model("n.onnx", &small_model(true));
    let report = |model: &str| trtc(&["partition", model, "--format", "json"]).code(0).stdout;
    let (b, c) = (folder.file("b.json", report(&model)), folder.file("c.json", report(&other)));
    let said = trtc(&["diff", &b, &c]).code(1);
    assert!(said.stdout.contains("node `last`") && said.stderr.contains("differ"), "{}", said.stdout);
    let said = trtc(&["diff", a, &model]).code(2);
    assert!(said.stderr.contains("m.onnx"), "{}", said.stderr);
    assert!(trtc(&["diff", a, "/no/such/file"]).code(2).stderr.contains("/no/such/file"));
    assert!(trtc(&["diff", a, &folder.file("d.json", "{\"a\": 1}")]).code(2).stderr.contains("no report"));
}

#[test]
fn a_dry_run_keeps_to_a_policy() {
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(false));
    let said = trtc(&["partition", &model, "--strict"]).code(1);
    assert!(said.stdout.contains("Unheard") && said.stderr.contains("`last`"), "{}", said.stderr);
    let policy =
        folder.file("p.toml", "[policy]\nallow = [{ op = \"*Unheard\", reason = \"nobody knows it\" }]");
    trtc(&["partition", &model, "--strict", "--policy", &policy]).code(0);
    let policy = folder.file("q.toml", "[policy]\nmax_host_nodes = 0");
    let said = trtc(&["partition", &model, "--strict", "--policy", &policy]).code(1);
    assert!(said.stderr.contains("allows 0"), "{}", said.stderr);
}

#[test]
fn a_cost_model_is_read_from_a_file() {
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(false));
    let engines = |cost: &[&str]| {
        let said = trtc(&[&["partition", &model, "--format", "json"], cost].concat()).code(0);
        let report: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
        report["targets"][0]["totals"]["engines"].as_u64().unwrap()
    };
    // One addition before a host node is not worth an engine, unless the host is slow.
    assert_eq!(engines(&[]), 0);
    assert_eq!(engines(&["--cost-model", "off"]), 1);
    let slow = folder.file("slow.toml", "[base.host.node_us]\nelementwise = 5000");
    assert_eq!(engines(&["--cost-model", &slow]), 1);
    let bad = folder.file("bad.toml", "[base]\ncopies = 1");
    let said = trtc(&["partition", &model, "--cost-model", &bad]).code(2);
    assert!(said.stderr.contains("bad.toml") && said.stderr.contains("copies"), "{}", said.stderr);
}

#[test]
fn an_input_that_always_has_one_value_is_a_constant() {
    let folder = Folder::new();
    let top = node("TopK", &["x", "k"], &["y", ""], []).named("top");
    let inputs = [value_info("x", DType::F32, [2, 6]), value_info("k", DType::I64, [1])];
    let dims = [2.into(), trtc_onnx::Dimension::from("found")];
    let outputs = [value_info("y", DType::F32, dims)];
    let model = folder.model("m.onnx", &model(17, graph("top", [top], inputs, outputs, [])));
    let placed = |arguments: &[&str]| -> serde_json::Value {
        let arguments = [&["partition", &model, "--format", "json"], arguments].concat();
        let report: serde_json::Value = serde_json::from_str(&trtc(&arguments).code(0).stdout).unwrap();
        report["targets"][0]["nodes"][0].clone()
    };
    let open = placed(&[]);
    assert_eq!((open["placement"].as_str(), open["code"].as_str()), (Some("host"), Some("E0402")), "{open}");
    let help = open["help"].as_str().unwrap();
    assert_eq!(
        help,
        "--value k=N makes it a constant; where it is a size, --value k=MIN..MAX gives its range"
    );
    assert_eq!(placed(&["--value", "k=3"])["placement"], "engine");
    let bundle = folder.path("m.trtc").to_str().unwrap().to_owned();
    trtc(&["compile", &model, "--value", "k=3", "--target", "host", "-o", &bundle]).code(0);
    let said = trtc(&["inspect", &bundle]).code(0);
    assert!(!said.stdout.contains("input    k") && said.stdout.contains("f32[2 x 3]"), "{}", said.stdout);
    assert!(said.stdout.contains("constant k  i64[1], an input of the model"), "{}", said.stdout);
    let wrong = trtc(&["partition", &model, "--value", "k=1,2"]).code(2);
    assert!(wrong.stderr.contains("--value k=1,2: 2 elements"), "{}", wrong.stderr);
    let stranger = trtc(&["partition", &model, "--value", "j=1"]).code(2);
    assert!(stranger.stderr.contains("the inputs are x, k"), "{}", stranger.stderr);
}

#[test]
fn a_size_that_is_the_value_of_an_input_has_a_range() {
    let folder = Folder::new();
    let top = node("TopK", &["x", "k"], &["y", ""], []).named("top");
    let inputs = [value_info("x", DType::F32, [2, 6]), value_info("k", DType::I64, [1])];
    let dims = [2.into(), trtc_onnx::Dimension::from("found")];
    let outputs = [value_info("y", DType::F32, dims)];
    let model = folder.model("m.onnx", &model(17, graph("top", [top], inputs, outputs, [])));
    let said = trtc(&["partition", &model, "--value", "k=1..3..6"]).code(0);
    assert!(said.stdout.contains("k[0]: 1..3..6 (user)"), "{}", said.stdout);
    assert!(said.stdout.contains("1 engine"), "{}", said.stdout);
    let bundle = folder.path("m.trtc").to_str().unwrap().to_owned();
    trtc(&["compile", &model, "--value", "k=1..3..6", "--target", "host", "-o", &bundle]).code(0);
    let said = trtc(&["inspect", &bundle]).code(0);
    assert!(said.stdout.contains("input    k  i64[1] = [k[0]]"), "{}", said.stdout);
    assert!(said.stdout.contains("range    k[0] = 1..3..6"), "{}", said.stdout);
    let wrong = trtc(&["partition", &model, "--value", "k=0..3..6"]).code(2);
    assert!(wrong.stderr.contains("k[0] = 0 is asked for, but"), "{}", wrong.stderr);
}

//! Standard output carries the result and nothing else; everything else goes to standard error.

use crate::support::{Folder, command, said, small_model, trtc};
use std::{
    io::Write,
    process::{Command, Stdio},
};

#[test]
fn help_and_version_go_to_standard_output() {
    let version = trtc(&["--version"]).code(0);
    assert!(version.stdout.starts_with(concat!("trtc ", env!("CARGO_PKG_VERSION"))), "{}", version.stdout);
    assert_eq!((version.stdout.lines().count(), version.stderr.as_str()), (1, ""));
    let help = trtc(&["--help"]).code(0);
    assert!(help.stdout.contains("Usage: trtc") && help.stderr.is_empty());
    assert!(!help.stdout.contains("build-worker"));
}

#[test]
fn bad_usage_goes_to_standard_error_with_exit_code_2() {
    for arguments in [
        &["no-such-command"][..],
        &["partition"],
        &["partition", "m.onnx", "--target", "rtx-1.7:sm90"],
        &["partition", "m.onnx", "--format", "yaml"],
        &["partition", "m.onnx", "--check", "a", "--bless", "b"],
        &["ops", "--no-such-flag"],
    ] {
        let said = trtc(arguments).code(2);
        assert!(said.stdout.is_empty() && said.stderr.contains("--help"), "{arguments:?}: {}", said.stderr);
    }
}

#[test]
fn without_a_command_the_help_is_an_error() {
    let said = trtc(&[]).code(2);
    assert!(said.stdout.is_empty() && said.stderr.contains("Usage"), "{}", said.stderr);
}

#[test]
fn results_are_alone_on_standard_output() {
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(false));
    let json = trtc(&["partition", &model, "--format", "json"]).code(0);
    serde_json::from_str::<serde_json::Value>(&json.stdout).unwrap();
    assert_eq!(json.stderr, "");
    let ops = trtc(&["ops", "--format", "json"]).code(0);
    let rows: serde_json::Value = serde_json::from_str(&ops.stdout).unwrap();
    let relu = rows.as_array().unwrap().iter().find(|row| row["op"] == "Relu").unwrap();
    assert!(relu["dtypes"].as_array().unwrap().contains(&"f32".into()), "{relu}");
    // A log goes to standard error even when it says a lot.
    let mut logged = command(&["partition", &model, "--format", "json"]);
    assert_eq!(said(logged.env("TRTC_LOG", "trace").output().unwrap()).code(0).stdout, json.stdout);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = command(&["ops"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = said(child.wait_with_output().unwrap()).code(0);
    assert_eq!(ended.stderr, "");
}

#[test]
fn a_full_disk_is_told() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = said(command(&["ops"]).stdout(full).output().unwrap()).code(3);
    assert!(ended.stderr.contains("standard output"), "{}", ended.stderr);
}

#[test]
fn on_a_terminal_messages_are_drawn() {
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(true));
    let bad = folder.file("bad.onnx", "no model");
    let out = folder.path("m.trtc").to_str().unwrap().to_owned();
    let on_terminal = |arguments: &[&str]| {
        let line = [&[env!("CARGO_BIN_EXE_trtc")], arguments].concat().join(" ");
        let run = Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output();
        run.map(said).map_err(|error| println!("skipped: no terminal without script(1): {error}"))
    };
    let Ok(compiled) = on_terminal(&["compile", &model, "-o", &out, "--target", "host"]) else { return };
    assert!(compiled.code(0).stdout.contains("m.trtc"));
    let refused = on_terminal(&["partition", &bad]).unwrap().code(2).stdout;
    assert!(refused.contains("not an ONNX model"), "{refused}");
}

#[test]
fn a_model_may_come_from_standard_input() {
    let model = trtc_onnx::write::encode(&small_model(true)).unwrap();
    let mut child = command(&["partition", "-", "--format", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&model).unwrap();
    let ended = said(child.wait_with_output().unwrap()).code(0);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["model"]["nodes"], 2);
}

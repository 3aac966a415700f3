//! `examples/partition-snapshots` says what is so: its snapshots and its policy hold, and the commands of its CI job end
//! well. `TRTC_BLESS=1` writes the snapshots anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};
use trtc::{Options, testing};

const SHAPE: &str = "image=1..4..16x3x64x64";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/partition-snapshots")
}

fn trtc(arguments: &[&str]) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_trtc")).args(arguments).current_dir(folder()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn its_check_passes() {
    if std::env::var_os("TRTC_BLESS").is_some() {
        trtc(&["partition", "detector.onnx", "--shape", SHAPE, "--bless", "detector.json"]);
    }
    let arguments = ["partition", "detector.onnx", "--shape", SHAPE, "--strict", "--policy", "policy.toml"];
    trtc(&[&arguments[..], &["--check", "detector.json"]].concat());
    let job = std::fs::read_to_string(folder().join(".github/workflows/partition.yml")).unwrap();
    assert!(job.contains(&format!("trtc {} --check detector.json", arguments.join(" "))));
}

#[test]
fn its_insta_snapshot_holds() {
    let options = Options::default().target("rtx-1.7:sm86,sm89,sm120".parse().unwrap()).shape(SHAPE);
    let report = trtc::partition(&folder().join("detector.onnx"), &options).unwrap();
    let file = folder().join("tests/snapshots/partition__the_partition_is_as_agreed.snap");
    let head = "---\nsource: tests/partition.rs\nexpression: testing::snapshot(&partition())\n---\n";
    let now = format!("{head}{}", testing::snapshot(&report));
    if std::env::var_os("TRTC_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &now).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), now, "{}", file.display());
    assert!(testing::host_nodes(&report).iter().all(|node| node.starts_with("/select/")));
}

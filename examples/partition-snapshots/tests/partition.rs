//! The detector's partition is what was agreed on: `cargo insta review` accepts another.

use std::path::Path;
use trtc::{Options, Report, testing};

fn partition() -> Report {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("detector.onnx");
    let options = Options::default()
        .target("rtx-1.7:sm86,sm89,sm120".parse().expect("a target"))
        .shape("image=1..4..16x3x64x64");
    trtc::partition(&model, &options).expect("the model is partitioned")
}

#[test]
fn the_partition_is_as_agreed() {
    insta::assert_snapshot!(testing::snapshot(&partition()));
}

#[test]
fn the_backbone_is_on_the_gpu() {
    let host = testing::host_nodes(&partition());
    assert!(host.iter().all(|node| node.starts_with("/select/")), "{host:?}");
}

#[test]
fn the_policy_holds() {
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("policy.toml");
    trtc::check_policy(&partition(), Some(&policy)).expect("within the policy");
}

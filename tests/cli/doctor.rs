//! `trtc doctor`: findings, and the exit code that says whether a compile is possible.

use crate::support::{command, said, trtc};

#[test]
fn findings_have_a_version_or_a_fix() {
    let run = trtc(&["doctor", "--format", "json"]);
    let findings: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let can_compile = findings["can_compile"].as_bool().unwrap();
    assert_eq!(run.code, if can_compile { 0 } else { 3 });
    let checks = findings["checks"].as_array().unwrap();
    for check in checks {
        let found = check["found"].as_bool().unwrap();
        assert!(found || check["fix"].is_string(), "{check}");
    }
    let text = trtc(&["doctor"]);
    for check in checks {
        assert!(text.stdout.contains(check["name"].as_str().unwrap()), "{check}: {}", text.stdout);
    }
}

#[test]
fn what_is_missing_is_told_with_a_fix() {
    let mut doctor = command(&["doctor"]);
    doctor.env("TRTC_TENSORRT_RTX_LIB", "/no/such/lib.so").env("TRTC_ORT_LIB", "/no/such/ort.so");
    let said = said(doctor.output().unwrap()).code(3);
    assert!(
        said.stdout.contains("can compile") && said.stdout.contains("/no/such/ort.so"),
        "{}",
        said.stdout
    );
    assert!(said.stderr.starts_with("error: ") && said.stderr.contains("help: "), "{}", said.stderr);
    if cfg!(feature = "tensorrt") {
        assert!(
            said.stdout.contains("/no/such/lib.so") && said.stdout.contains("make sdk"),
            "{}",
            said.stdout
        );
    }
}

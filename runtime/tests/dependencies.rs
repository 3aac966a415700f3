//! The runtime is for other programs: it must not drag the compiler along.
#![allow(clippy::unwrap_used)] // A test ends there.

use std::process::Command;

#[test]
fn the_runtime_depends_on_no_part_of_the_compiler() {
    let tree = |features: &[&str]| {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let output = Command::new(cargo)
            .args(["tree", "-p", "trtc-runtime", "-e", "normal", "--prefix", "none", "--offline", "--locked"])
            .args(features)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect::<Vec<_>>()
    };
    for features in [&[][..], &["--features", "cuda"]] {
        let names = tree(features);
        assert!(names.iter().any(|name| name == "trtc-bundle"), "{names:?}");
        for absent in [
            "trtc",
            "trtc-ir",
            "trtc-onnx",
            "trtc-frontends",
            "trtc-partitioner",
            "trtc-converters",
            "trtc-network",
            "petgraph",
            "prost",
            "clap",
            "protobuf",
        ] {
            assert!(!names.iter().any(|name| name == absent), "trtc-runtime depends on {absent}");
        }
    }
}

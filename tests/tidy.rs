//! What the code must look like, as a test: heads of files, sizes, edges between crates, generated files, refusals that are
//! tested.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

const SOURCE_FOLDERS: &[&str] = &[
    "src",
    "onnx",
    "frontends",
    "ir",
    "partitioner",
    "converters",
    "ffi",
    "runtime",
    "xtask",
    "tests",
    "examples",
    "benches",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = SOURCE_FOLDERS.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn every_file_says_what_it_is() {
    let bad: Vec<String> = rust_files()
        .iter()
        .filter(|path| !std::fs::read_to_string(path).expect("readable").starts_with("//!"))
        .map(|path| shown(path))
        .collect();
    assert!(bad.is_empty(), "no `//!` line at the top: {bad:?}");
}

#[test]
fn no_file_is_too_long() {
    // A reader holds about this much; a longer file has two subjects.
    const LIMIT: usize = 700;
    let long: Vec<String> = rust_files()
        .iter()
        .map(|path| (path, std::fs::read_to_string(path).expect("readable").lines().count()))
        .filter(|(_, lines)| *lines > LIMIT)
        .map(|(path, lines)| format!("{} ({lines})", shown(path)))
        .collect();
    assert!(long.is_empty(), "longer than {LIMIT} lines: {long:?}");
}

/// Crates of the project that a crate depends on, as its manifest says (dev-dependencies do not count).
fn edges() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut edges = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let list = package["dependencies"].as_array().expect("dependencies");
        let names = list
            .iter()
            .filter(|dependency| dependency["kind"] != "dev" && !dependency["path"].is_null())
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect();
        edges.insert(package["name"].as_str().expect("a name").to_owned(), names);
    }
    edges
}

#[test]
fn data_flows_one_way() {
    // What each crate may depend on; what is not named here is forbidden.
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("trtc-bundle", &[] as &[&str]),
        ("trtc-onnx", &["trtc-bundle"]),
        ("trtc-ir", &["trtc-bundle"]),
        ("trtc-frontends", &["trtc-ir", "trtc-onnx", "trtc-bundle"]),
        ("trtc-partitioner", &["trtc-ir", "trtc-bundle"]),
        ("trtc-network", &["trtc-bundle", "trtc-onnx"]),
        ("trtc-converters", &["trtc-ir", "trtc-network", "trtc-bundle"]),
        ("trtc-tensorrt-sys", &[]),
        ("trtc-tensorrt", &["trtc-network", "trtc-tensorrt-sys", "trtc-bundle"]),
        ("trtc-runtime", &["trtc-bundle", "trtc-tensorrt"]),
    ]);
    for (name, list) in edges() {
        let Some(allowed) = allowed.get(name.as_str()) else { continue };
        for edge in list {
            assert!(allowed.contains(&edge.as_str()), "{name} must not depend on {edge}");
        }
    }
}

#[test]
fn generated_files_are_fresh() {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--package", "xtask", "--", "gen", "--check"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Refusals of the shared gates on dtype, rank and emptiness: `Case::gates` tries all of them.
const GATES: &[&str] = &[
    "DTYPE_UNREPRESENTABLE",
    "DTYPE_KERNEL",
    "DTYPE_UNKNOWN",
    "RANK_UNKNOWN",
    "RANK",
    "SHAPE",
    "COMPUTE_CAPABILITY",
    "INVALID",
];

/// Refusals of the gate on one operand: `samples::refused_dtypes` tries all of them.
const OPERAND: &[&str] =
    &["DTYPE_UNREPRESENTABLE", "DTYPE_KERNEL", "DTYPE_UNKNOWN", "RANK_UNKNOWN", "COMPUTE_CAPABILITY"];

#[test]
fn operators_test_every_refusal_that_they_declare() {
    let mut missing = Vec::new();
    for path in rust_files().iter().filter(|path| shown(path).starts_with("converters/src/ops/")) {
        let text = std::fs::read_to_string(path).expect("readable");
        let Some((code, tests)) = text.split_once("#[cfg(test)]") else {
            if text.contains("refusals: &[") {
                missing.push(format!("{}: no tests", shown(path)));
            }
            continue;
        };
        let declared = code.split("refusals: &[").skip(1).filter_map(|rest| rest.split(']').next());
        for list in declared {
            for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                let name = name.trim_start_matches("trtc_ir::");
                let bare = name.trim_start_matches("Code::");
                let gates = [".gates(", ".gates_of_f32("].iter().any(|call| tests.contains(call));
                let covered = (GATES.contains(&bare) && gates)
                    || (OPERAND.contains(&bare) && tests.contains("refused_dtypes("));
                if !tests.contains(name) && !covered {
                    missing.push(format!("{}: {name}", shown(path)));
                }
            }
        }
    }
    assert!(missing.is_empty(), "refusals without a test: {missing:#?}");
}

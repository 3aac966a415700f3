//! Imports every model below the given paths and says what it found: a line a model.
//!
//! `cargo run -p trtc-frontends --example imports -- models/`

use std::path::{Path, PathBuf};

fn collect(path: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            collect(&entry?.path(), found)?;
        }
    } else if path.extension().is_some_and(|ext| ext == "onnx") {
        found.push(path.to_owned());
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "the result of the example")]
fn main() -> std::io::Result<()> {
    let mut found = Vec::new();
    for path in std::env::args_os().skip(1) {
        collect(Path::new(&path), &mut found)?;
    }
    found.sort();
    for path in &found {
        match trtc_frontends::onnx::load(path) {
            Ok(loaded) => println!(
                "ok   {} {} nodes, {} sources, opsets {:?}",
                path.display(),
                loaded.module.graph.node_count(),
                loaded.sources.len(),
                loaded.module.opsets
            ),
            Err(error) => println!("fail {} {error}", path.display()),
        }
    }
    Ok(())
}

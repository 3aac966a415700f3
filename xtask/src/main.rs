//! Development tasks. `cargo xtask gen` writes committed generated files; `cargo xtask gen --check` says which are stale.

mod operators;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["gen"] => generate(false),
        ["gen", "--check"] => generate(true),
        _ => bail!("usage: cargo xtask gen [--check]"),
    }
}

fn generate(check: bool) -> Result<()> {
    let root = root()?;
    let mut stale = Vec::new();
    for (path, text) in [operators::registry(&root)?, operators::page()] {
        let path = root.join(path);
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        if old == text {
            continue;
        }
        if check {
            stale.push(path.display().to_string());
        } else {
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    if !stale.is_empty() {
        bail!("stale, run `cargo xtask gen`: {}", stale.join(", "));
    }
    Ok(())
}

fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask stands in the workspace")?.to_path_buf())
}

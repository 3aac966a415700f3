//! Stamps the version and the commit: `TRTC_VERSION` is `0.1.0 (1a2b3c4d5e6f)`, or `0.1.0` when git does not tell.

use std::{path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TRTC_COMMIT");
    let version = env("CARGO_PKG_VERSION").unwrap_or_default();
    let stamped = match env("TRTC_COMMIT").or_else(commit) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=TRTC_VERSION={stamped}");
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn commit() -> Option<String> {
    // Sources unpacked inside somebody else's repository must not take its commit.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    let root = Path::new(&env("CARGO_MANIFEST_DIR")?).canonicalize().ok()?;
    if Path::new(&top).canonicalize().ok()? != root {
        return None;
    }
    // HEAD names a branch, whose file changes with each commit (or is packed).
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

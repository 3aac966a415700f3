//! Reproducers of failed builds: networks without weights, with the builder's words.

use serde::Serialize;
use std::path::Path;
use trtc_bundle::Target;
use trtc_ir::Refusal;
use trtc_network::{Lowered, Network};

/// A network that could not be built, as JSON. Its weights are named by dtype and count only.
#[derive(Serialize)]
struct Reproducer<'a> {
    target: String,
    code: String,
    words: &'a str,
    /// Source nodes in it.
    nodes: &'a [String],
    network: &'a Network,
}

/// Writes `STEM.network.txt` and `STEM.network.json` into `folder`. `stem` need not be a file name.
pub(crate) fn keep(folder: &Path, stem: &str, target: &Target, refusal: &Refusal, lowered: &Lowered) {
    let network = &lowered.network;
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' };
    let stem: String = format!("{target}-{stem}").chars().map(plain).collect();
    let code = refusal.code.to_string();
    let words = refusal.why.lines().map(|line| format!("# {line}\n")).collect::<String>();
    let text = format!("# {target}\n# {code}\n{words}{network}");
    let reproducer =
        Reproducer { target: target.to_string(), code, words: &refusal.why, nodes: &network.nodes, network };
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(format!("{stem}.network.txt")), text)?;
        let json = serde_json::to_vec_pretty(&reproducer)?;
        std::fs::write(folder.join(format!("{stem}.network.json")), json)
    };
    if let Err(error) = write() {
        tracing::warn!("{}: {error}", folder.display());
    }
}

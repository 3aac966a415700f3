//! What the builder refused, and which nodes were to blame, kept across compiles as engines are.
//!
//! An entry has the name that the engine would have: what changes anything about the build asks the builder again. Only
//! what the network itself is to blame for is kept, never that time or memory ran out. An entry decides where nodes are
//! placed and nothing else, so it is plain JSON; one that cannot be read is thrown away.

use super::Cache;
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
    time::SystemTime,
};
use trtc_bundle::Hash;

/// Entries that are kept; those that were not used for longest go first.
const MOST: usize = 4096;

/// A network that cannot be built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// Number of the code that it failed with.
    pub code: u16,
    /// The builder's words.
    pub words: String,
    /// Source nodes that the words name.
    pub nodes: Vec<String>,
    /// What a search found.
    pub blamed: Vec<Blamed>,
}

/// Nodes that make a network fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Blamed {
    /// Their names; of a cut, the node before which the engine ends.
    pub nodes: Vec<String>,
    /// Whether the network is too much at once, and ends before the node.
    pub cut: bool,
    /// Number of the code of the smallest network that fails.
    pub code: u16,
    /// What the builder says of it.
    pub words: String,
}

impl Cache {
    /// What is known of the network of that name.
    pub fn verdict(&self, key: Hash) -> Option<Verdict> {
        let path = self.verdict_path(key);
        let bytes = std::fs::read(&path).ok()?;
        match serde_json::from_slice(&bytes) {
            Ok(verdict) => {
                let touch = File::options().append(true).open(&path);
                touch.and_then(|file| file.set_modified(SystemTime::now())).ok();
                Some(verdict)
            }
            Err(error) => {
                tracing::warn!("engine cache: {} is damaged and thrown away: {error}", path.display());
                std::fs::remove_file(&path).ok();
                None
            }
        }
    }

    /// Keeps what was found out of a network.
    pub fn put_verdict(&self, key: Hash, verdict: &Verdict) {
        let write = || -> io::Result<()> {
            let folder = self.root.join("refusals");
            let mut file = tempfile::NamedTempFile::new_in(&folder)?;
            file.write_all(&serde_json::to_vec_pretty(verdict)?)?;
            file.persist(self.verdict_path(key)).map_err(|error| error.error)?;
            self.forget_old(&folder)
        };
        if let Err(error) = write() {
            tracing::warn!("engine cache {}: {error}", self.root.display());
        }
    }

    fn forget_old(&self, folder: &std::path::Path) -> io::Result<()> {
        let mut entries: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(folder)?
            .flatten()
            .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())))
            .collect();
        if entries.len() > MOST {
            entries.sort();
            for (_, path) in &entries[..entries.len() - MOST] {
                std::fs::remove_file(path).ok();
            }
        }
        Ok(())
    }

    fn verdict_path(&self, key: Hash) -> PathBuf {
        self.root.join("refusals").join(format!("{key}.json"))
    }
}

//! What can go wrong with a bundle file.

use std::{io, path::PathBuf};

/// Why a bundle could not be written, opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The system refused an operation on the file.
    #[error("{path}: cannot {action}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: `open`, `write`, `rename`.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The first bytes are not those of a bundle.
    #[error("not a bundle: the file does not begin with the mark of a .trtc file")]
    NotABundle,
    /// The mark was altered by a transfer in text mode.
    #[error("a bundle damaged by a transfer in text mode: copy it again in binary mode")]
    TextMode,
    /// The file was written for a later version.
    #[error(
        "the bundle was written by {producer} and needs a reader of format version {needs}; this one knows up to {known}: update trtc, or compile the model again"
    )]
    TooNew {
        /// Version of the program that wrote it, as it calls itself.
        producer: String,
        /// Format version that a reader must know.
        needs: u32,
        /// Highest format version known here.
        known: u32,
    },
    /// The file is shorter or longer than its header says.
    #[error("the bundle is {actual} bytes long but its header says {expected}: {}", if .actual < .expected { "it is cut short" } else { "something was appended to it" })]
    Length {
        /// Length in the header; the header's own length when not even that is there.
        expected: u64,
        /// Length of the file.
        actual: u64,
    },
    /// A part does not match its hash, or says what cannot be.
    #[error("the bundle is damaged: {0}")]
    Damaged(String),
    /// The manifest is larger than a reader accepts.
    #[error("the bundle's manifest is {len} bytes long; at most {limit} are read")]
    ManifestTooLarge {
        /// Its length in bytes.
        len: u64,
        /// Greatest length in bytes.
        limit: u64,
    },
    /// The manifest handed to the writer, or found in a file, contradicts itself.
    #[error("the bundle's manifest is wrong: {0}")]
    Manifest(String),
    /// The file has a name that host graphs cannot refer to.
    #[error("the bundle's file name is {0}; rename the file")]
    FileName(&'static str),
    /// The path no longer leads to the file that was opened.
    #[error("{}: another file has taken the place of the open bundle: open it again", .0.display())]
    Replaced(PathBuf),
    /// The signature is missing or does not fit.
    #[error("signature: {0}")]
    Signature(&'static str),
}

impl BundleError {
    pub(crate) fn io(
        path: impl Into<PathBuf>,
        action: &'static str,
    ) -> impl FnOnce(io::Error) -> BundleError {
        let path = path.into();
        move |source| BundleError::Io { path, action, source }
    }

    /// Whether the caller's file is at fault (bad input), not the machine.
    pub fn is_bad_input(&self) -> bool {
        !matches!(self, BundleError::Io { .. })
    }
}

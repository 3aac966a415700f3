//! ONNX: import into the IR, and export of host segments.
//!
//! ```text
//! OnnxFile ─ import ─▶ ir::Module ─ … ─ export ─▶ ModelProto
//!                └─ ops: upgrade          └─ ops: downgrade
//! ```
//!
//! Each operator has one *canonical* version: the newest that the schema tables know. `ops/` holds, one file an operator
//! family, how older forms become it and how it becomes an older form again. A node whose old form cannot be written in the
//! canonical one keeps its old `since_version`; converters refuse it and the host runs it as it is.

mod draft;
pub mod export;
mod facts;
mod import;
mod ops;

use trtc_bundle::MappedFile;
use trtc_ir::{Diag, Module};
use trtc_onnx::OnnxFile;

pub use import::{Imported, Source, import};

/// A model as IR, with the files that its weights lie in.
#[derive(Debug)]
pub struct Loaded {
    /// The model.
    pub module: Module,
    /// What became of each node of the model.
    pub sources: Vec<Source>,
    /// The mapped files: the model itself, then its external data.
    pub files: Vec<MappedFile>,
}

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read, or is no ONNX model.
    #[error(transparent)]
    File(#[from] trtc_onnx::Error),
    /// It is an ONNX model, but not a valid one.
    #[error("{}", summary(.0))]
    Invalid(Vec<Diag>),
}

fn summary(diags: &[Diag]) -> String {
    match diags {
        [] => "the model is not valid".to_owned(),
        [only] => only.to_string(),
        [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
    }
}

/// Maps and imports an ONNX file; external data is looked for in its folder.
///
/// # Errors
/// The file cannot be read or is no ONNX model; or it is not valid, with everything that was found wrong.
pub fn load(path: impl AsRef<std::path::Path>) -> Result<Loaded, LoadError> {
    load_file(&OnnxFile::open(path)?)
}

/// Imports a file that is open already (standard input kept in a memfd).
///
/// # Errors
/// As [`load`].
pub fn load_file(file: &OnnxFile) -> Result<Loaded, LoadError> {
    let Imported { module, sources } = import(file).map_err(LoadError::Invalid)?;
    Ok(Loaded { module, sources, files: file.files() })
}

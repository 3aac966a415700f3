//! The host backend: what runs ONNX graphs on the CPU.
//!
//! [`HostBackend`] is the seam; [`OrtBackend`] is ONNX Runtime, loaded when it is first needed.

mod carry;
mod find;
mod ort;

pub use carry::carrying;
pub use find::{Library, Via, find_library, find_onnxruntime};
pub use ort::{OrtBackend, OrtOptions};

use crate::{
    tensor::TensorError,
    value::{Input, Value},
};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use trtc_bundle::{DType, ValueInfo};

/// Runs ONNX models on the host.
pub trait HostBackend: Send + Sync + fmt::Debug {
    /// Its name and version, and where it was loaded from.
    fn describe(&self) -> String;

    /// Makes a model ready to run.
    ///
    /// # Errors
    /// [`HostError::Load`]: what the backend says about the model.
    fn load(&self, model: ModelSource<'_>, options: &GraphOptions) -> Result<Arc<dyn HostGraph>, HostError>;
}

/// Where a model comes from.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ModelSource<'a> {
    /// A file; its external data lies beside it.
    File(&'a Path),
    /// Encoded bytes, and the folder that its external data is relative to.
    Bytes {
        /// The encoded model.
        model: &'a [u8],
        /// Folder of external data; `None` when the model has none.
        folder: Option<&'a Path>,
    },
}

/// How a graph is made ready.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GraphOptions {
    /// Let the backend rewrite the graph. Optimised and plain graphs differ by rounding (usually at most 1e-5, far more
    /// for some quantised models).
    pub optimize: bool,
}

impl Default for GraphOptions {
    fn default() -> GraphOptions {
        GraphOptions { optimize: true }
    }
}

impl GraphOptions {
    /// As given, with `optimize` set.
    pub fn optimize(mut self, optimize: bool) -> GraphOptions {
        self.optimize = optimize;
        self
    }
}

/// A model that is ready to run, any number of times at once.
pub trait HostGraph: Send + Sync {
    /// Its inputs in order, without those that have a default. Dims are `None` for an unknown rank, and for a scalar where
    /// the backend cannot tell the two apart (ONNX Runtime's C API before 1.24).
    fn inputs(&self) -> &[ValueInfo];

    /// Its outputs in order.
    fn outputs(&self) -> &[ValueInfo];

    /// Runs once. `inputs` and `outputs` stand in the graph's order.
    ///
    /// # Errors
    /// [`HostError::Run`]: what the backend says; [`HostError::Unsupported`] for a value that it cannot be given.
    fn run(&self, inputs: &[Input<'_>], outputs: &mut [HostOutput<'_>]) -> Result<(), HostError>;
}

/// Where an output goes.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostOutput<'a> {
    /// Memory of the caller, for a tensor of exactly this type and these dims.
    Into {
        /// Element type.
        dtype: DType,
        /// Dims.
        dims: &'a [usize],
        /// Its bytes.
        bytes: &'a mut [u8],
    },
    /// Memory of the backend: put here by the run. Tensors of fixed width come as [`Value::Tensor`], read in place; all
    /// else comes as [`Value::Opaque`].
    New(Value),
}

/// What can go wrong on the host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No library was found.
    #[error("ONNX Runtime was not found; looked at: {}. Run `make sdk`, set TRTC_ORT_LIB to the file, or `pip install onnxruntime` in an active virtual environment", list(.searched))]
    NotFound {
        /// Files and folders looked at, in order.
        searched: Vec<PathBuf>,
    },
    /// A library was found, but is not usable.
    #[error("{}: {why}", .path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The backend refused a model.
    #[error("ONNX Runtime cannot load the graph: {0}")]
    Load(String),
    /// The backend failed in a run.
    #[error("ONNX Runtime: {0}")]
    Run(String),
    /// A value that the backend cannot be given or cannot give.
    #[error("ONNX Runtime cannot take or give {0}")]
    Unsupported(String),
    /// A tensor's length does not fit its dims.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

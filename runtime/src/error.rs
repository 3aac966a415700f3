//! What can go wrong when a session is made or run.

use crate::{device::NoDevice, host::HostError, tensor::TensorError};
use trtc_bundle::{BundleError, DType, Target};

/// Why a session could not be made, or a run not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The bundle cannot be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The host backend is missing, or refuses something.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The host backend refuses a segment.
    #[error("segment {segment}: {source}")]
    Segment {
        /// The segment.
        segment: String,
        /// What the backend says.
        source: HostError,
    },
    /// The GPU that was asked for is not there.
    #[error(transparent)]
    Device(#[from] NoDevice),
    /// Nothing in this program runs engines on a GPU.
    #[error("engines are not run on a GPU by this version (asked for cuda:{index}); use `--device cpu`")]
    NoEngineRunner {
        /// The GPU that was asked for.
        index: u32,
    },
    /// The bundle has no plan for the target that was asked for.
    #[error("the bundle has no plan for {wanted}; it has: {present}")]
    NoTarget {
        /// The target.
        wanted: Target,
        /// Targets of the bundle.
        present: String,
    },
    /// The bundle holds no whole-model graph.
    #[error("the bundle has no graph of the whole model; run its segments")]
    NoWholeModel,
    /// An engine's host twin is missing.
    #[error("segment {segment} has an engine but no host graph, so it needs a GPU")]
    NoTwin {
        /// The segment.
        segment: String,
    },
    /// A replacement for a segment that is not there.
    #[error("there is no engine segment {segment} to be replaced")]
    NoSuchSegment {
        /// The segment.
        segment: String,
    },
    /// The plan and a graph in the bundle do not fit together.
    #[error("the bundle contradicts itself: {0}")]
    Plan(String),
    /// An input is missing.
    #[error("input `{name}` is missing; the inputs are {known}")]
    MissingInput {
        /// Its name.
        name: String,
        /// All inputs.
        known: String,
    },
    /// A name that is no input, or one that was given twice.
    #[error("there is no input `{name}`{}; the inputs are {known}", if *.twice { " (it was given twice)" } else { "" })]
    UnknownInput {
        /// The name.
        name: String,
        /// Whether it is an input that was given before.
        twice: bool,
        /// All inputs.
        known: String,
    },
    /// Inputs or outputs by position, but not as many as there are.
    #[error("{given} {what} for a model with {expected}")]
    Count {
        /// `inputs` or `outputs`.
        what: &'static str,
        /// How many were given.
        given: usize,
        /// How many there are.
        expected: usize,
    },
    /// An input of another kind: a sequence where a tensor is wanted.
    #[error("input `{name}` is {given}, but {expected} is wanted")]
    Kind {
        /// The input.
        name: String,
        /// What was given.
        given: &'static str,
        /// What is wanted.
        expected: &'static str,
    },
    /// An input of another element type.
    #[error("input `{name}` has the element type {given}, but {expected} is wanted")]
    DType {
        /// The input.
        name: String,
        /// What was given.
        given: DType,
        /// What is wanted.
        expected: DType,
    },
    /// An input whose dims the model does not take.
    #[error("input `{name}` has the dims {given:?}, but {expected} is wanted: {why}")]
    Dims {
        /// The input.
        name: String,
        /// What was given.
        given: Vec<usize>,
        /// What is wanted: `[batch, 3, 224, 224]`.
        expected: String,
        /// What is wrong.
        why: String,
    },
    /// An element of an input's value that engines were not built for.
    #[error("input `{name}` has {given} as element {element}, but {expected} is wanted")]
    Element {
        /// The input.
        name: String,
        /// Which element.
        element: usize,
        /// What was given.
        given: i64,
        /// What is wanted: a number, or a range.
        expected: String,
    },
    /// A value has other dims than the model declares, which the plan takes for granted.
    #[error(
        "the model declares `{value}` as {declared}, but {because} it is {given:?}; the bundle runs with the declared dims only, or as the whole model"
    )]
    Declared {
        /// The value.
        value: String,
        /// Dims that the model declares: `[2, 3, ?]`.
        declared: String,
        /// What of the inputs makes the difference: `with ends = [7]`.
        because: String,
        /// Dims that these inputs give.
        given: Vec<i64>,
    },
    /// A tensor could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A value in a schedule is not what control flow needs.
    #[error("`{value}` should be {expected}")]
    ControlFlow {
        /// The value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

/// Whose matter an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's: bad usage or bad input.
    Input,
    /// The machine's: a library or a GPU is missing.
    Missing,
    /// Ours.
    Internal,
}

impl RunError {
    /// Whose matter it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            RunError::Device(_)
            | RunError::NoEngineRunner { .. }
            | RunError::NoTwin { .. }
            | RunError::Host(HostError::NotFound { .. } | HostError::Library { .. }) => ErrorKind::Missing,
            // A host graph that does not load was written by the compiler.
            RunError::Segment { source: HostError::Load(_), .. } => ErrorKind::Internal,
            _ => ErrorKind::Input,
        }
    }
}

//! What can be wrong with an ONNX file, said so that its owner can act on it.

use std::{io, path::PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened or mapped.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes are something else, cut off, or damaged.
    #[error("{origin}: not an ONNX model: {why}")]
    NotOnnx {
        /// Path of the file, or what stands for it.
        origin: String,
        /// What was found instead.
        why: String,
    },
    /// It decodes, but something without which it means nothing is missing.
    #[error("{origin}: incomplete ONNX model: {why}")]
    Incomplete {
        /// Path of the file, or what stands for it.
        origin: String,
        /// What is missing.
        why: String,
    },
    /// A tensor's data does not fit its type and shape.
    #[error("tensor `{name}`: {fault}")]
    Tensor {
        /// Name of the tensor; empty for one without a name (an attribute's).
        name: String,
        /// What is wrong.
        fault: TensorFault,
    },
    /// A tensor's external data cannot be used.
    #[error("tensor `{name}`: external data in `{location}`: {fault}")]
    External {
        /// Name of the tensor.
        name: String,
        /// File that the model names.
        location: String,
        /// What is wrong.
        fault: ExternalFault,
    },
    /// Protobuf cannot hold a message of 2 GiB or more.
    #[error(
        "the model takes {bytes} bytes, more than the 2 GiB that a protobuf file can hold; keep its weights in external data"
    )]
    TooLarge {
        /// Encoded size.
        bytes: usize,
    },
}

/// What can be wrong with a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFault {
    /// `data_type` is absent or 0.
    #[error("has no element type (data_type)")]
    NoType,
    /// A number that ONNX does not define.
    #[error("element type {0} is not one that ONNX defines")]
    UnknownType(i32),
    /// A negative dimension.
    #[error("shape {dims:?} has a negative dimension")]
    NegativeDim {
        /// Shape.
        dims: Vec<i64>,
    },
    /// More elements than memory can address.
    #[error("shape {dims:?} has more elements than this machine can address")]
    TooManyElements {
        /// Shape.
        dims: Vec<i64>,
    },
    /// Data of a different size than type and shape need.
    #[error("{dtype} {dims:?} needs {expected} {unit}, {field} has {found}")]
    WrongSize {
        /// Name of the element type.
        dtype: &'static str,
        /// Shape.
        dims: Vec<i64>,
        /// What type and shape need.
        expected: usize,
        /// What there is.
        found: usize,
        /// `bytes`, `entries`, `strings`.
        unit: &'static str,
        /// Field that holds the data.
        field: &'static str,
    },
    /// A packed field that does not consist of whole numbers.
    #[error("{field} is damaged: {why}")]
    Damaged {
        /// Field.
        field: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Strings can stand in `string_data` only.
    #[error("strings cannot be in {0}, only in string_data")]
    StringsElsewhere(&'static str),
    /// The tensor is one of several pieces.
    #[error("is stored in segments, which are not supported")]
    Segment,
    /// Indices of a sparse tensor that do not fit its shape.
    #[error("sparse indices: {0}")]
    Sparse(String),
}

/// What can be wrong with external data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExternalFault {
    /// `location` is missing or empty.
    #[error("no `location` is given")]
    NoLocation,
    /// Absolute, or with `..`.
    #[error("the location must be a path below the model's folder, without `..`")]
    OutsidePath,
    /// A symbolic link leads out of the model's folder.
    #[error("it leads out of the model's folder, to {}", .0.display())]
    OutsideLink(PathBuf),
    /// The model came as bytes and nobody said from which folder.
    #[error("the model was not read from a file, so its folder is not known")]
    NoFolder,
    /// `offset` or `length` is not a number.
    #[error("{key} `{value}` is not a number of bytes")]
    NotANumber {
        /// `offset` or `length`.
        key: &'static str,
        /// What stands there.
        value: String,
    },
    /// The range is not inside the file.
    #[error("bytes {offset}..{end} are wanted, the file has {size}")]
    OutOfFile {
        /// First byte.
        offset: u64,
        /// One past the last byte; saturates.
        end: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// The file cannot be opened or mapped.
    #[error(transparent)]
    Io(#[from] io::Error),
}

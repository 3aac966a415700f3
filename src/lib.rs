//! Ahead-of-time model compiler with a TensorRT backend.
//!
//! ```text
//! file ─ frontends ─▶ ir ─ passes ─▶ partitioner ─▶ converters ─▶ network ─ worker ─▶ engine ─▶ bundle ─▶ runtime
//! ```

mod assemble;
mod build;
mod driver;
mod error;
mod networks;
mod options;
mod prepare;
#[cfg(feature = "tensorrt")]
#[doc(hidden)]
pub mod worker;

pub use driver::{compile, partition};
pub use error::{Error, ErrorKind};
pub use networks::{network, raised_networks};
pub use options::{Events, Options, Quiet};
pub use trtc_bundle::{Bundle, Target};
pub use trtc_partitioner::Report;

/// Program and version, as bundles name their producer.
pub(crate) const PRODUCER: &str = concat!("trtc ", env!("CARGO_PKG_VERSION"));

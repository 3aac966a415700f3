//! Ahead-of-time model compiler with a TensorRT backend.
//!
//! ```text
//! file ─ frontends ─▶ ir ─ passes ─▶ partitioner ─▶ converters ─▶ network ─ worker ─▶ engine ─▶ bundle ─▶ runtime
//! ```

mod driver;
mod error;
mod options;
mod prepare;
#[cfg(feature = "tensorrt")]
#[doc(hidden)]
pub mod worker;

pub use driver::partition;
pub use error::{Error, ErrorKind};
pub use options::{Events, Options, Quiet};
pub use trtc_bundle::{Bundle, Target};
pub use trtc_partitioner::Report;

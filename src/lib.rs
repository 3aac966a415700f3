//! Ahead-of-time model compiler with a TensorRT backend.
//!
//! ```text
//! file ─ frontends ─▶ ir ─ passes ─▶ partitioner ─▶ converters ─▶ network ─ worker ─▶ engine ─▶ bundle ─▶ runtime
//! ```

mod assemble;
mod build;
mod declared;
mod diff;
mod driver;
mod error;
mod networks;
mod options;
mod plan;
mod policy;
mod prepare;
pub mod testing;
#[cfg(feature = "tensorrt")]
#[doc(hidden)]
pub mod worker;

pub use build::{CacheUse, FinishedTarget, build_deferred as build, cache_use};
pub use diff::{Diff, TargetDiff, diff, read_report};
pub use driver::{compile, model_hash, partition};
pub use error::{Error, ErrorKind};
pub use networks::{network, raised_networks};
pub use options::{Events, Options, Quiet};
pub use policy::check_policy;
pub use trtc_bundle::{Bundle, Target};
pub use trtc_partitioner::{CostModel, Report};

/// Program, version and commit, as bundles name their producer.
pub(crate) const PRODUCER: &str = concat!("trtc ", env!("TRTC_VERSION"));

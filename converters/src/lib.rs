//! Converters: from IR nodes to TensorRT layers. One operator (or one family that differs by an enum) a file in `ops/`.
//!
//! *Planning is capability validation.* [`Converter::plan`] either refuses with data ([`trtc_ir::Refusal`]) or returns
//! everything that [`Converter::emit`] needs; `emit` has no way to refuse. The partitioner admits a node exactly when
//! `plan` succeeds, so no guard can hide inside a conversion.
//!
//! * [`ctx`] holds what several operators share: dtype gates, extents, broadcasting.
//! * [`mod@lower`] makes a network of a set of nodes.
//! * [`registry`] finds converters, and implements the traits by which inference and the partitioner reach them.
//! * [`table`] lists what there is, for people.

mod converter;
pub mod ctx;
mod emit;
mod hint;
pub mod lower;
mod ops;
pub mod registry;
#[cfg(test)]
mod samples;
pub mod table;
#[cfg(test)]
#[allow(dead_code, missing_docs, reason = "a kit for tests")]
mod testing;

mod unread;

pub use converter::{Converter, Def, Key, Outputs};
pub use emit::Emit;
pub use lower::{LowerError, SegmentIo, lower};
pub use registry::Registry;

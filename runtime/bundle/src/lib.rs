//! The leaf crate: what a bundle file is made of, and the small vocabulary (dtypes, targets) that
//! every other crate shares. It depends on no other crate of the project.
//!
//! A bundle (`.trtc`) is one file: a header of 128 bytes, then parts at multiples of 64 bytes in any order (weights,
//! engines, networks, host graphs, reports), then the manifest in JSON, which has the place and the BLAKE3 hash of each
//! part. [`BundleWriter`] makes one, [`Bundle`] maps one.

mod carrier;
mod check;
mod dtype;
mod error;
mod hash;
mod header;
mod location;
mod manifest;
mod map;
mod read;
#[cfg(feature = "sign")]
mod sign;
mod target;
#[cfg(test)]
mod tests;
mod write;

pub use carrier::{narrowed, widened};
pub use dtype::DType;
pub use error::BundleError;
pub use hash::{Hash, HashError};
pub use header::FORMAT_VERSION;
pub use location::{LOCATION, LOCATION_LEN};
pub use manifest::{
    Block, Carried, Declared, DeclaredValue, Dim, Element, Manifest, ModelInfo, NetworkRef, Pinned, ScanAxis,
    Section, SectionId, SectionKind, Segment, SegmentId, SegmentKind, Step, Symbol, TargetPlan, ValueId,
    ValueInfo, ValueKind, WeightsEntry, WeightsId,
};
pub use map::MappedFile;
pub use read::Bundle;
pub use target::{Product, Target, TargetError};
pub use write::{BundleWriter, WeightsRef};

//! The leaf crate: what a bundle file is made of, and the small vocabulary (dtypes, targets) that
//! every other crate shares. It depends on no other crate of the project.

mod dtype;
mod map;
mod target;

pub use dtype::DType;
pub use map::MappedFile;
pub use target::{Product, Target, TargetError};

//! What several operators share. An operator file uses these, never a sibling operator.

pub mod check;
pub mod elementwise;
pub mod extent;
pub mod shape;
pub mod small;

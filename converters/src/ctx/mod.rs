//! What several operators share. An operator file uses these, never a sibling operator.

pub mod attention;
pub mod axes;
pub mod body;
pub mod check;
pub mod dims;
pub mod elementwise;
pub mod extent;
pub mod first;
pub mod floats;
pub mod indices;
pub mod integers;
pub mod iota;
pub mod iterate;
pub mod key_mask;
pub mod matrix;
pub mod norm;
pub mod quantize;
pub mod reshape;
pub mod rotary;
pub mod round;
pub mod scatter;
pub mod shape;
pub mod small;
pub mod taps;
pub mod window;
pub mod wrap;

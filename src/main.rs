//! The `trtc` command.

fn main() {}

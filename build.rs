//! Stamps version and commit.

fn main() {}

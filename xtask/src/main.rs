//! Development tasks: generators of committed files.

fn main() {}

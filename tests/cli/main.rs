//! The command line, through the real executable: exit codes, what stands on which stream, and bad input of every kind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod bad_input;
mod bundle;
mod docs;
mod doctor;
mod partition;
mod streams;
mod support;
mod verify;

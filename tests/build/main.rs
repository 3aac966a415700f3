//! What a compile does with its engines: failures are got over, the cache, several targets, deferred engines. With the
//! real builder, in workers that die of what the test says.
#![cfg(all(feature = "tensorrt", debug_assertions))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod cache;
mod constants;
mod control_flow;
mod deferred;
mod opsets;
mod ranges;
mod recover;
mod runs;
mod sequences;
mod support;
mod tf32;
mod weights;

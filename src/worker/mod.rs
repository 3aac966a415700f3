//! Engines are built by a process that may die: the same executable, hidden subcommand `build-worker`.
//!
//! The parent ([`Worker`]) starts the child with one end of a socket as its stdin, and sends requests: the network as
//! JSON, and descriptors of the files that hold the weights. Weights that are slices of a mapped file go as descriptor,
//! offset and length; computed ones are gathered in one memfd. The engine comes back in a memfd, which the parent maps.
//! A worker serves one request after the other, so that the library is loaded once; whatever ends it (crash, time
//! limit) ends that child only, and the next request starts another one.

mod client;
mod serve;
mod wire;

pub use client::{BuildOptions, BuildRequest, EngineOutput, Worker, WorkerFailure, WorkerPool, build};
pub use serve::serve;

/// The hidden subcommand's name.
pub const SUBCOMMAND: &str = "build-worker";

/// Set in a worker's environment, so that a program which does not know the subcommand cannot start itself for ever.
const MARK: &str = "TRTC_BUILD_WORKER";

/// Ways to die that tests ask a worker for.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Inject {
    /// Writes a line to stderr and aborts.
    Abort,
    /// Never answers.
    Hang,
    /// Panics on the builder's thread.
    Panic,
    /// Refuses, as the builder does, without naming a node.
    Refuse,
    /// Refuses and names the first of the nodes.
    RefuseNamed,
}

/// A way to die of networks that hold all of these source nodes; of every network when there are none.
#[cfg(debug_assertions)]
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct InjectAt {
    /// Names of source nodes.
    pub nodes: Vec<String>,
    /// What happens.
    pub how: Inject,
}

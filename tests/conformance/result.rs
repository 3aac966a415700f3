//! What has become of a case.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is done with a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runner {
    /// Compiled, and run on the CPU in segments, engines by their host twins.
    Hybrid,
    /// The same with TensorRT's layers, raised to ONNX, for engines.
    Networks,
    /// The whole-model graph of the bundle.
    Whole,
    /// Each engine is really built.
    Builder,
    /// What was admitted was built: no node has a code E9….
    Soundness,
    /// What TensorRT itself makes of the engine's layers, with constants for inputs.
    Evaluator,
    /// The network of NVIDIA's own parser, raised to ONNX.
    Readback,
    /// Sizes become symbols; compiled with their ranges, run in segments and as layers at two sizes.
    Dynamic,
}

impl Runner {
    pub const ALL: [Runner; 8] = [
        Runner::Hybrid,
        Runner::Networks,
        Runner::Whole,
        Runner::Builder,
        Runner::Soundness,
        Runner::Evaluator,
        Runner::Readback,
        Runner::Dynamic,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Runner::Hybrid => "hybrid",
            Runner::Networks => "networks",
            Runner::Whole => "whole",
            Runner::Builder => "builder",
            Runner::Soundness => "soundness",
            Runner::Evaluator => "evaluator",
            Runner::Readback => "readback",
            Runner::Dynamic => "dynamic",
        }
    }

    pub fn from_name(name: &str) -> Option<Runner> {
        Runner::ALL.into_iter().find(|runner| runner.name() == name)
    }
}

/// How one runner ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Right,
    /// There is nothing to do for this runner, and why.
    Skipped(String),
    /// A short word for the kind of failure (`compile`, `session`, `run`, `differs`, `panic`, …), and what happened.
    Wrong(String, String),
}

impl Status {
    pub fn wrong(kind: &str, text: impl ToString) -> Status {
        Status::Wrong(kind.to_owned(), text.to_string())
    }
}

/// Where the nodes of a case went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// It was not compiled.
    #[default]
    None,
    /// All on the host.
    Host,
    /// In engines and on the host, or in control flow that the schedule runs.
    Mixed,
    /// All in engines, apart from what was folded or removed.
    Engine,
}

impl Placement {
    pub fn name(self) -> &'static str {
        match self {
            Placement::None => "none",
            Placement::Host => "host",
            Placement::Mixed => "mixed",
            Placement::Engine => "engine",
        }
    }

    pub fn from_name(name: &str) -> Option<Placement> {
        let all = [Placement::None, Placement::Host, Placement::Mixed, Placement::Engine];
        all.into_iter().find(|placement| placement.name() == name)
    }
}

/// A node that is on the host, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNode {
    pub op: String,
    pub code: String,
    pub reason: String,
}

/// All about a case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CaseResult {
    pub case: String,
    pub plain: bool,
    /// Operators of the model's own nodes, each once.
    pub ops: Vec<String>,
    pub placement: Placement,
    pub engines: usize,
    pub host: Vec<HostNode>,
    pub status: BTreeMap<Runner, Status>,
    pub seconds: f64,
}

impl CaseResult {
    /// A case that ended its process, or took too long.
    pub fn lost(case: &str, runners: &[Runner], kind: &str, text: &str) -> CaseResult {
        let status = runners.iter().map(|&runner| (runner, Status::wrong(kind, text))).collect();
        CaseResult { case: case.to_owned(), status, ..CaseResult::default() }
    }
}

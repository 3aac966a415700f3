//! IR to ONNX: host segments, host twins of engines, and whole models.
//!
//! Nodes go down to one opset at which ONNX Runtime has a CPU kernel for each of them with its element types. Where it has none for
//! bf16, float8 and a few integers, the node computes in a wider type between casts; where one computes otherwise than ONNX says,
//! other nodes stand for it. Constants become initializers; where their bytes go is the caller's.

mod emit;
mod names;
mod plan;
mod proto;
mod repair;

pub use plan::opset_groups;

use trtc_ir::{Graph, NodeId, Symbols, Tensor, ValueId};
use trtc_onnx::ModelProto;

/// What to export, and how.
pub struct ExportRequest<'a> {
    /// Name of the exported graph.
    pub name: &'a str,
    /// Graph that the nodes are in.
    pub graph: &'a Graph,
    /// Symbols of the module.
    pub symbols: &'a Symbols,
    /// Nodes to export, in any order; `None` for all of them.
    pub nodes: Option<&'a [NodeId]>,
    /// Values that are fed. Constants are never fed.
    pub inputs: &'a [ValueId],
    /// Values that are wanted: made by the nodes, constants, or inputs.
    pub outputs: &'a [ValueId],
    /// Opset of ai.onnx to write; `None` for the highest up to 21 that suits every node, else the lowest above.
    pub opset: Option<u32>,
    /// Versions of other domains' operator sets, as [`trtc_ir::Module::opsets`] has them.
    pub opsets: &'a [(String, u32)],
    /// Says where the bytes of a constant go that is too large to stand inline; it is given the initializer's name.
    pub weights: &'a mut dyn FnMut(&Tensor, &str) -> WeightPlacement,
}

/// Where the bytes of an initializer go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightPlacement {
    /// Into the model itself.
    Inline,
    /// Into a file.
    External {
        /// Path, relative to the model's folder.
        location: String,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

/// Constants up to this size always stand inline, in bytes.
pub const INLINE_BYTES: usize = 1024;
/// Lists of integers up to this size do too: shapes must be seen when the session is made.
const INLINE_SHAPE_BYTES: usize = 1 << 16;

/// An exported model.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The model.
    pub model: ModelProto,
    /// Opset of ai.onnx that was chosen.
    pub opset: u32,
    /// Names of the inputs, in the order of the request.
    pub inputs: Vec<String>,
    /// Names of the outputs, in the order of the request: those of the values, except for a value that is an input too or is
    /// wanted twice.
    pub outputs: Vec<String>,
    /// Nodes (paths) that compute in a wider type because ONNX Runtime has no kernel for theirs.
    pub widened: Vec<String>,
}

/// Why nodes cannot be exported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// No opset suits these nodes together: split the segment between them.
    #[error("no opset suits nodes {} together", list(.names))]
    Conflict {
        /// The nodes of the exported graph; without any one of them there would be an opset.
        nodes: Vec<NodeId>,
        /// Their names.
        names: Vec<String>,
    },
    /// ONNX Runtime has no CPU kernel for a node, at any opset that can say it.
    #[error("node `{name}` ({op}): ONNX Runtime has no CPU kernel for it{}", types(.dtypes))]
    NoKernel {
        /// The node of the exported graph (the outer one, when a nested node is meant).
        node: NodeId,
        /// Path of the node that is meant.
        name: String,
        /// Operator.
        op: String,
        /// Element types of its inputs, as far as they are known.
        dtypes: Vec<String>,
    },
    /// A value is used that is neither fed, constant, nor made by the nodes.
    #[error("node `{node}` uses `{value}`, which is neither an input nor made inside")]
    MissingInput {
        /// Path of the node; empty for an output of the request.
        node: String,
        /// Name of the value.
        value: String,
    },
    /// An input whose element type is not known.
    #[error("the type of input `{value}` is not known")]
    UntypedInput {
        /// Name of the value.
        value: String,
    },
    /// The graph has a cycle.
    #[error("the graph has a cycle through {}", list(.names))]
    Cycle {
        /// Names of the nodes.
        names: Vec<String>,
    },
}

fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(8).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > 8 { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn types(dtypes: &[String]) -> String {
    if dtypes.is_empty() { String::new() } else { format!(" with {}", dtypes.join(", ")) }
}

/// Writes nodes of a graph as an ONNX model (IR version 10).
///
/// # Errors
/// See [`ExportError`].
pub fn export(request: ExportRequest<'_>) -> Result<Exported, ExportError> {
    let order = plan::selected(request.graph, request.nodes)?;
    let plan = plan::plan(&request, &order)?;
    emit::emit(request, &order, plan)
}

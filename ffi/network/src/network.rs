//! The network itself: tensors, inputs, weights, layers, outputs, one optimization profile.

use crate::layer::LayerEntry;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use trtc_bundle::DType;

/// A tensor of one network. Ids are dense: they index [`Network::tensors`], regions of `If` and `Loop` included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TensorId(pub u32);

/// Weights of one network: an index into [`Network::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WeightsId(pub u32);

impl TensorId {
    /// Position in [`Network::tensors`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl WeightsId {
    /// Position in [`Network::weights`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known of a tensor before the build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorInfo {
    /// Element type.
    pub dtype: DType,
    /// Dims, outermost first; −1 where only the run knows.
    pub dims: Vec<i64>,
}

/// A network input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Binding name.
    pub name: String,
    /// The tensor.
    pub tensor: TensorId,
    /// Names of its dims, empty where one has none; dims of one name have one size in every run. Empty, or one a dim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dim_names: Vec<String>,
}

/// A network output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Binding name.
    pub name: String,
    /// The tensor.
    pub tensor: TensorId,
}

/// Element type and count of a block of weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsInfo {
    /// Element type.
    pub dtype: DType,
    /// Number of elements; 0 for an empty constant.
    pub count: u64,
}

/// Ranges of one input in the (only) optimization profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputProfile {
    /// Binding name of the input.
    pub name: String,
    /// Dims, when one of them is dynamic: minimum, optimum, maximum.
    pub dims: Option<[Vec<i64>; 3]>,
    /// Values, when the input is a shape tensor: minimum, optimum, maximum.
    pub values: Option<[Vec<i64>; 3]>,
}

/// A TensorRT network as data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Name, for messages.
    pub name: String,
    /// Every tensor, by [`TensorId`].
    pub tensors: Vec<TensorInfo>,
    /// Inputs in binding order.
    pub inputs: Vec<Input>,
    /// Weights, by [`WeightsId`].
    pub weights: Vec<WeightsInfo>,
    /// Top-level layers in an order in which every tensor is made before it is used.
    pub layers: Vec<LayerEntry>,
    /// Outputs in binding order.
    pub outputs: Vec<Output>,
    /// Profile; empty for a static network.
    pub profile: Vec<InputProfile>,
    /// Names of the source nodes, indexed by [`LayerEntry::node`].
    pub nodes: Vec<String>,
}

/// A network with the bytes of its weights: `weights[k]` belongs to `network.weights[k]`.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// The network.
    pub network: Network,
    /// Little-endian packed bytes of each block of weights, usually slices of a mapped file.
    pub weights: Vec<Bytes>,
}

/// A broken promise of ours: a layer was described that TensorRT cannot hold. Never a user's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node `{node}`: {what}")]
pub struct Fault {
    /// The source node that was being emitted.
    pub node: String,
    /// What was wrong.
    pub what: String,
}

impl Network {
    /// Info of a tensor; `None` for an id of another network.
    pub fn tensor(&self, id: TensorId) -> Option<&TensorInfo> {
        self.tensors.get(id.index())
    }
}

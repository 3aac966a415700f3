//! Makes networks layer by layer and keeps dtype and dims of every tensor.

use crate::infer::{self, Known};
use crate::layer::*;
use crate::network::*;
use bytes::Bytes;
use trtc_bundle::DType;

/// Builds one [`Network`].
///
/// Converters cannot refuse here. A layer that TensorRT could not hold is a [`Fault`] of ours: it is kept, a
/// placeholder stands in for the result, and [`NetworkBuilder::finish`] reports it. The first fault wins.
#[derive(Debug)]
pub struct NetworkBuilder {
    lowered: Lowered,
    /// Open blocks of layers, innermost last; the first is the network's own.
    scopes: Vec<Vec<LayerEntry>>,
    node: u32,
    /// Nodes whose layers the open blocks are part of.
    around: Vec<u32>,
    fault: Option<Fault>,
}

impl NetworkBuilder {
    /// An empty network.
    pub fn new(name: &str) -> NetworkBuilder {
        let network = Network { name: name.to_owned(), ..Network::default() };
        let lowered = Lowered { network, weights: Vec::new() };
        NetworkBuilder { lowered, scopes: vec![Vec::new()], node: 0, around: Vec::new(), fault: None }
    }

    /// Names the source node of the layers that follow.
    pub fn begin_node(&mut self, name: &str) {
        self.node = self.lowered.network.nodes.len() as u32;
        self.lowered.network.nodes.push(name.to_owned());
    }

    /// Dtype and dims of a tensor of this network. An unknown id gives a rank-0 f32, which only a fault can cause.
    pub fn info(&self, id: TensorId) -> &TensorInfo {
        static NONE: TensorInfo = TensorInfo { dtype: DType::F32, dims: Vec::new() };
        self.lowered.network.tensor(id).unwrap_or(&NONE)
    }

    /// Rank of a tensor.
    pub fn rank(&self, id: TensorId) -> usize {
        self.info(id).dims.len()
    }

    /// Element type of a tensor.
    pub fn dtype(&self, id: TensorId) -> DType {
        self.info(id).dtype
    }

    /// Dims of a tensor; −1 where only the run knows.
    pub fn dims(&self, id: TensorId) -> &[i64] {
        &self.info(id).dims
    }

    /// Replaces −1 dims by what the IR knows. Dims that are known already stay.
    pub fn refine(&mut self, id: TensorId, dims: &[i64]) {
        if let Some(info) = self.lowered.network.tensors.get_mut(id.index())
            && info.dims.len() == dims.len()
        {
            for (d, &known) in info.dims.iter_mut().zip(dims) {
                if *d < 0 {
                    *d = known;
                }
            }
        }
    }

    /// Keeps a broken promise for [`NetworkBuilder::finish`].
    pub fn fault(&mut self, what: impl Into<String>) {
        if self.fault.is_none() {
            let node = self.lowered.network.nodes.get(self.node as usize).cloned().unwrap_or_default();
            self.fault = Some(Fault { node, what: what.into() });
        }
    }

    /// A new tensor that no layer makes: a network input, a capture, a loop's state.
    pub fn tensor(&mut self, dtype: DType, dims: Vec<i64>) -> TensorId {
        let tensors = &mut self.lowered.network.tensors;
        tensors.push(TensorInfo { dtype, dims });
        TensorId(tensors.len() as u32 - 1)
    }

    /// A network input.
    pub fn add_input(&mut self, name: &str, dtype: DType, dims: Vec<i64>) -> TensorId {
        let tensor = self.tensor(dtype, dims);
        self.lowered.network.inputs.push(Input { name: name.to_owned(), tensor, dim_names: Vec::new() });
        tensor
    }

    /// Marks a network output.
    pub fn mark_output(&mut self, tensor: TensorId, name: &str) {
        self.lowered.network.outputs.push(Output { name: name.to_owned(), tensor });
    }

    /// Sets an input's ranges in the profile.
    pub fn add_profile(&mut self, profile: InputProfile) {
        self.lowered.network.profile.push(profile);
    }

    /// Appends a layer; the ids of its outputs.
    pub fn layer(&mut self, layer: Layer) -> Vec<TensorId> {
        let known = Known { tensors: &self.lowered.network.tensors, weights: &self.lowered.network.weights };
        let infos = match infer::outputs(&layer, &known) {
            Ok(infos) => infos,
            Err(what) => {
                self.fault(format!("{what} ({})", layer.name()));
                vec![TensorInfo { dtype: DType::F32, dims: Vec::new() }; 2]
            }
        };
        let outputs: Vec<TensorId> =
            infos.into_iter().map(|info| self.tensor(info.dtype, info.dims)).collect();
        let entry = LayerEntry { layer, outputs: outputs.clone(), node: self.node };
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(entry);
        }
        outputs
    }

    /// Appends a layer with one output.
    pub fn one(&mut self, layer: Layer) -> TensorId {
        self.layer(layer).first().copied().unwrap_or(TensorId(u32::MAX))
    }

    /// A constant over bytes in place (packed little-endian). Nothing is copied.
    pub fn constant(&mut self, dtype: DType, dims: Vec<i64>, bytes: Bytes) -> TensorId {
        let count = dims.iter().map(|&d| d.max(0) as u64).product::<u64>();
        if dtype.bytes_for(count as usize) != Some(bytes.len()) {
            self.fault(format!("a constant of {dims:?} {dtype} over {} bytes", bytes.len()));
        }
        let id = WeightsId(self.lowered.network.weights.len() as u32);
        self.lowered.network.weights.push(WeightsInfo { dtype, count });
        self.lowered.weights.push(bytes);
        self.one(Layer::Constant { dims, weights: id })
    }

    /// A rank-1 i64 constant.
    pub fn i64s(&mut self, values: &[i64]) -> TensorId {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(DType::I64, vec![values.len() as i64], bytes.into())
    }

    /// A constant of one value, of rank `rank` (all dims 1), converted to `dtype`: floats by rounding to nearest even,
    /// integers by truncation, bool by ≠ 0.
    pub fn scalar(&mut self, dtype: DType, rank: usize, value: f64) -> TensorId {
        let bytes: Vec<u8> = match dtype {
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            DType::F64 => value.to_le_bytes().to_vec(),
            DType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
            DType::Bf16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
            DType::I64 => (value as i64).to_le_bytes().to_vec(),
            DType::I32 => (value as i32).to_le_bytes().to_vec(),
            DType::I8 => (value as i8).to_le_bytes().to_vec(),
            DType::U8 => (value as u8).to_le_bytes().to_vec(),
            DType::Bool => vec![u8::from(value != 0.0)],
            other => {
                self.fault(format!("a scalar constant of {other}"));
                (value as f32).to_le_bytes().to_vec()
            }
        };
        self.constant(dtype, vec![1; rank], bytes.into())
    }

    /// Opens a block of layers: an `If` branch or a loop body.
    pub fn open_region(&mut self) {
        self.scopes.push(Vec::new());
        self.around.push(self.node);
    }

    /// Closes the innermost block; layers that follow are again of the node that opened it.
    pub fn close_region(&mut self, outputs: Vec<TensorId>) -> Region {
        self.node = self.around.pop().unwrap_or(self.node);
        let layers = if self.scopes.len() > 1 { self.scopes.pop().unwrap_or_default() } else { Vec::new() };
        Region { layers, outputs }
    }

    /// The network, or the first fault.
    pub fn finish(mut self) -> Result<Lowered, Fault> {
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => {
                self.lowered.network.layers = self.scopes.into_iter().next().unwrap_or_default();
                Ok(self.lowered)
            }
        }
    }
}

/// Short forms for the layers that converters use all the time.
impl NetworkBuilder {
    /// `addElementWise`; ranks must be equal.
    pub fn elementwise(&mut self, a: TensorId, b: TensorId, op: ElementWiseOp) -> TensorId {
        self.one(Layer::ElementWise { a, b, op })
    }

    /// `addUnary`.
    pub fn unary(&mut self, x: TensorId, op: UnaryOp) -> TensorId {
        self.one(Layer::Unary { x, op })
    }

    /// `addActivation`. In a block, ELU is a SELU of β 1, the same function: TensorRT-RTX's builder fails on two ELU layers in a loop.
    pub fn activation(&mut self, x: TensorId, kind: ActivationKind, alpha: f32, beta: f32) -> TensorId {
        let (kind, beta) = match kind {
            ActivationKind::Elu if self.scopes.len() > 1 => (ActivationKind::Selu, 1.0),
            kind => (kind, beta),
        };
        self.one(Layer::Activation { x, kind, alpha, beta })
    }

    /// `addCast`; `x` itself when the dtype is right already.
    pub fn cast(&mut self, x: TensorId, to: DType) -> TensorId {
        if self.dtype(x) == to { x } else { self.one(Layer::Cast { x, to }) }
    }

    /// A reshape to build-time dims; −1 once; zeros are genuine zeros.
    pub fn reshape(&mut self, x: TensorId, dims: Vec<i64>) -> TensorId {
        let reshape = Some(Extent::Static(dims));
        self.one(Layer::Shuffle { x, first: None, reshape, zero_is_placeholder: false, second: None })
    }

    /// A transpose; `x` itself when the order is the identity.
    pub fn transpose(&mut self, x: TensorId, order: Vec<u32>) -> TensorId {
        if order.iter().enumerate().all(|(k, &axis)| k == axis as usize) {
            return x;
        }
        self.one(Layer::Shuffle {
            x,
            first: Some(order),
            reshape: None,
            zero_is_placeholder: false,
            second: None,
        })
    }

    /// Prepends dims of 1 up to `rank`.
    pub fn with_rank(&mut self, x: TensorId, rank: usize) -> TensorId {
        let missing = rank.saturating_sub(self.rank(x));
        if missing == 0 { x } else { self.one(Layer::Unsqueeze { x, axes: (0..missing as u32).collect() }) }
    }

    /// Element `axis` of the shape of `x`, as an i64 tensor of dims `[1]`.
    pub fn dim_of(&mut self, x: TensorId, axis: usize) -> TensorId {
        let shape = self.one(Layer::Shape { x });
        let fixed = |v: i64| Extent::Static(vec![v]);
        self.one(Layer::Slice {
            x: shape,
            start: fixed(axis as i64),
            size: fixed(1),
            stride: fixed(1),
            mode: SampleMode::Strict,
            fill: None,
        })
    }
}

//! Nodes that ONNX Runtime's CPU kernels compute otherwise than ONNX says, or refuse: written as others that say the same.

use crate::onnx::draft::Names;
use bytes::Bytes;
use trtc_bundle::DType;
use trtc_ir::{Graph, Node, ValueId};
use trtc_onnx::{
    NodeProto, TensorProto,
    write::{attr_i, node as node_proto},
};

/// Where the other nodes get their names and constants.
pub(super) struct Repair<'a> {
    pub(super) graph: &'a Graph,
    pub(super) node: &'a Node,
    /// The node computes in f32 instead of its own type.
    pub(super) widened: bool,
    pub(super) names: &'a mut Names,
    pub(super) initializers: &'a mut Vec<TensorProto>,
}

impl Repair<'_> {
    /// The nodes to write for `proto`, which says the node in one: most often just that.
    pub(super) fn nodes(&mut self, proto: NodeProto) -> Vec<NodeProto> {
        match (&*self.node.op.domain, &*self.node.op.op_type) {
            ("", "Attention") => self.attention(proto),
            ("", "ConvInteger") => self.conv_integer(proto),
            ("", "MaxUnpool") => self.max_unpool(proto),
            _ => vec![proto],
        }
    }

    fn id(&self, slot: usize) -> Option<ValueId> {
        self.node.inputs().get(slot).copied().flatten()
    }

    /// Dims of an input, where all are known.
    fn dims(&self, slot: usize) -> Option<Vec<i64>> {
        self.graph[self.id(slot)?].ty.static_shape()
    }

    fn name(&mut self, what: &str) -> String {
        self.names.unique(&format!("{}/{what}", self.node.name))
    }

    fn constant(&mut self, what: &str, dtype: DType, dims: &[i64], bytes: Vec<u8>) -> String {
        let name = self.name(what);
        self.initializers.push(TensorProto::raw(&name, dtype, dims, Bytes::from(bytes)));
        name
    }

    /// A mask that is shorter than the keys hides those beyond it, which ONNX Runtime does not take; and what is hidden is -inf,
    /// where ONNX Runtime gives out the lowest number.
    fn attention(&mut self, mut proto: NodeProto) -> Vec<NodeProto> {
        let mut before = Vec::new();
        if let Some(whole) = self.whole_mask(&proto) {
            proto.input[3].clone_from(&whole.output[0]);
            before.push(whole);
        }
        let mode = self.node.attrs.int("qk_matmul_output_mode").unwrap_or(0);
        let dtype = self.id(0).and_then(|id| self.graph[id].ty.dtype());
        let in_f32 = self.widened || dtype == Some(DType::F32);
        let after = match proto.output.get_mut(3) {
            Some(output) if !output.is_empty() && matches!(mode, 1 | 2) && in_f32 => {
                let made = std::mem::take(output);
                let raw = self.name("lowest");
                proto.output[3].clone_from(&raw);
                let f32s = |v: f32| v.to_le_bytes().to_vec();
                let limit = self.constant("limit", DType::F32, &[], f32s(f32::MIN / 2.0));
                let hidden = self.constant("hidden", DType::F32, &[], f32s(f32::NEG_INFINITY));
                let is_hidden = self.name("is_hidden");
                vec![
                    node_proto("Less", &[&raw, &limit], &[&is_hidden], []),
                    node_proto("Where", &[&is_hidden, &hidden, &raw], &[&made], []),
                ]
            }
            _ => Vec::new(),
        };
        before.push(proto);
        before.extend(after);
        before
    }

    /// The node that adds what a mask lacks.
    fn whole_mask(&mut self, proto: &NodeProto) -> Option<NodeProto> {
        let mut dims = self.dims(3)?;
        let keys = self.dims(1)?;
        let past = self.dims(4).map_or(0, |dims| dims.get(2).copied().unwrap_or(0));
        // Keys are [batch, heads, length, size] or [batch, length, heads · size].
        let length = keys.get(keys.len().checked_sub(2)?)?.checked_add(past)?;
        let lacking = length.checked_sub(*dims.last()?).filter(|&n| n > 0)?;
        let dtype = self.graph[self.id(3)?].ty.dtype()?;
        let (dtype, hidden) = match dtype {
            DType::Bool => (dtype, vec![0]),
            _ if self.widened || dtype == DType::F32 => {
                (DType::F32, f32::NEG_INFINITY.to_le_bytes().to_vec())
            }
            DType::F16 => (dtype, half::f16::NEG_INFINITY.to_le_bytes().to_vec()),
            _ => return None,
        };
        *dims.last_mut()? = lacking;
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))?;
        let rest = self.constant("hidden_keys", dtype, &dims, hidden.repeat(count));
        let whole = self.name("whole_mask");
        Some(node_proto("Concat", &[proto.input.get(3)?, &rest], &[&whole], [attr_i("axis", -1)]))
    }

    /// A zero point for each channel, where ONNX Runtime has one for all: Σ(x − a)·(w − z) = Σ(x − a)·w − z·Σ(x − a), in whole numbers.
    fn conv_integer(&mut self, mut proto: NodeProto) -> Vec<NodeProto> {
        let channels = self.dims(3).filter(|dims| dims.len() == 1 && dims[0] > 1);
        let weights = self.dims(1);
        let dtype = self.id(1).and_then(|id| self.graph[id].ty.dtype());
        let (Some(channels), Some(weights), Some(dtype)) = (channels, weights, dtype) else {
            return vec![proto];
        };
        let count = weights.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
        let (Some(count), Some(made)) = (count, proto.output.first().cloned()) else { return vec![proto] };
        let zeros = proto.input[3].clone();
        proto.input.truncate(3);
        let ones = self.constant("ones", dtype, &weights, vec![1; count]);
        let mut along = vec![1; weights.len()];
        along[1] = channels[0];
        let bytes = along.iter().flat_map(|d| d.to_le_bytes()).collect();
        let shape = self.constant("by_channel", DType::I64, &[along.len() as i64], bytes);
        let [product, sums, wide, spread, excess] =
            ["product", "sums", "zeros", "spread", "excess"].map(|what| self.name(what));
        let mut other = proto.clone();
        other.name = Some(self.name("sum"));
        other.input[1] = ones;
        other.output[0].clone_from(&sums);
        proto.output[0].clone_from(&product);
        vec![
            proto,
            other,
            node_proto("Cast", &[&zeros], &[&wide], [attr_i("to", DType::I32.onnx().into())]),
            node_proto("Reshape", &[&wide, &shape], &[&spread], []),
            node_proto("Mul", &[&sums, &spread], &[&excess], []),
            node_proto("Sub", &[&product, &excess], &[&made], []),
        ]
    }

    /// A larger result than the window gives: places are counted in the smaller one, and zeros follow. ONNX Runtime counts them in
    /// the larger.
    fn max_unpool(&mut self, mut proto: NodeProto) -> Vec<NodeProto> {
        let rank = self.id(0).and_then(|id| self.graph[id].ty.shape()).map(<[_]>::len);
        let (Some(rank), Some(shape)) = (rank, proto.input.get(2).filter(|name| !name.is_empty()).cloned())
        else {
            return vec![proto];
        };
        let Some(made) = proto.output.first().cloned() else { return vec![proto] };
        proto.input.truncate(2);
        let [smaller, window, more, pads] = ["smaller", "window", "more", "pads"].map(|what| self.name(what));
        proto.output[0].clone_from(&smaller);
        let none = self.constant("before", DType::I64, &[rank as i64], vec![0; 8 * rank]);
        vec![
            proto,
            node_proto("Shape", &[&smaller], &[&window], []),
            node_proto("Sub", &[&shape, &window], &[&more], []),
            node_proto("Concat", &[&none, &more], &[&pads], [attr_i("axis", 0)]),
            node_proto("Pad", &[&smaller, &pads], &[&made], []),
        ]
    }
}

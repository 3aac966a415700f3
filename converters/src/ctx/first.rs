//! Which element along an axis is the largest or smallest, ties by position: what ArgMax, ArgMin, Hardmax and TopK of one
//! element need. TensorRT's TopK layer leaves ties in any order.

use crate::Emit;
use trtc_bundle::DType;
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, FillOp, ReduceOp},
};

fn reduce(cx: &mut Emit<'_>, x: TensorId, op: ReduceOp, axis: u32) -> TensorId {
    cx.one(Layer::Reduce { x, op, axes: vec![axis], keep_dims: true })
}

/// Longest line of positions that stands in the network as a constant.
const MAX_CONSTANT: i64 = 1 << 16;

/// 0, 1, … along an axis of `x` (i64; every other dim 1).
pub fn positions(cx: &mut Emit<'_>, x: TensorId, axis: u32) -> TensorId {
    let rank = cx.rank(x);
    let at = axis as usize;
    let mut dims = vec![1; rank];
    let known = cx.dims(x).get(at).copied().unwrap_or(-1);
    if let Some(dim) = dims.get_mut(at) {
        *dim = known;
    }
    if (0..=MAX_CONSTANT).contains(&known) {
        let bytes: Vec<u8> = (0..known).flat_map(i64::to_le_bytes).collect();
        return cx.constant(DType::I64, dims, bytes.into());
    }
    let shape = match known {
        0.. => Extent::Static(vec![known]),
        _ => Extent::Tensor(cx.dim_of(x, at)),
    };
    let (alpha, beta) = (cx.scalar(DType::I64, 0, 0.0), cx.scalar(DType::I64, 1, 1.0));
    let line = cx.one(Layer::Fill { shape, op: FillOp::Linspace, alpha, beta, to: DType::I64 });
    cx.reshape(line, dims)
}

/// Position of the extreme (`Max` or `Min`) along an axis, kept with size 1, as i64; of equal elements the first, or the
/// last. Where every element is NaN: the end of the axis that the search starts from.
pub fn extreme_position(cx: &mut Emit<'_>, x: TensorId, axis: u32, op: ReduceOp, last: bool) -> TensorId {
    let extreme = reduce(cx, x, op, axis);
    let hit = cx.elementwise(x, extreme, ElementWiseOp::Equal);
    let at = positions(cx, x, axis);
    let rank = cx.rank(x);
    let (other, choose) = if last {
        (cx.scalar(DType::I64, rank, 0.0), ReduceOp::Max)
    } else {
        (reduce(cx, at, ReduceOp::Max, axis), ReduceOp::Min)
    };
    let candidates = cx.one(Layer::Select { condition: hit, then_input: at, else_input: other });
    reduce(cx, candidates, choose, axis)
}

/// Whether each element is the first extreme along the axis (bool, dims of `x`).
pub fn is_first_extreme(cx: &mut Emit<'_>, x: TensorId, axis: u32, op: ReduceOp) -> TensorId {
    let chosen = extreme_position(cx, x, axis, op, false);
    let at = positions(cx, x, axis);
    // `chosen` has 1 along the axis, `at` 1 everywhere else: the comparison has the dims of x.
    cx.elementwise(at, chosen, ElementWiseOp::Equal)
}

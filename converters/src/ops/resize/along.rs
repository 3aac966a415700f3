//! Work along one axis: gathers, weighted sums, products with a matrix, what stands outside of a region.

use super::{Outside, Weights};
use crate::{
    Emit,
    ctx::{elementwise, floats},
};
use trtc_bundle::DType;
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode, MatrixOp},
};

/// The tensor gathered along one axis.
pub fn gathered(cx: &mut Emit<'_>, data: TensorId, axis: usize, indices: TensorId) -> TensorId {
    cx.one(Layer::Gather { data, indices, axis: axis as u32, mode: GatherMode::Default, batch_dims: 0 })
}

/// What each place along an axis is made of, added up.
pub fn combined(cx: &mut Emit<'_>, x: TensorId, axis: usize, weights: &Weights) -> TensorId {
    let terms = match weights {
        Weights::Few(terms) => terms,
        Weights::Many { rows, columns, values } => {
            let weights = floats::constant(cx, DType::F32, vec![*rows, *columns], values);
            return weighted(cx, x, axis, weights);
        }
    };
    let terms: Vec<(TensorId, TensorId)> = terms
        .iter()
        .map(|(indices, weights)| {
            let indices = cx.i64s(indices);
            (indices, floats::constant(cx, DType::F32, vec![weights.len() as i64], weights))
        })
        .collect();
    sum_of(cx, x, axis, &terms)
}

/// Σ gathered(indices) · weights, both lines along an axis.
pub fn sum_of(cx: &mut Emit<'_>, x: TensorId, axis: usize, terms: &[(TensorId, TensorId)]) -> TensorId {
    let mut sum: Option<TensorId> = None;
    for &(indices, weights) in terms {
        let part = gathered(cx, x, axis, indices);
        let rank = cx.rank(part);
        let weights = along(cx, weights, axis, rank);
        let part = cx.elementwise(part, weights, ElementWiseOp::Prod);
        sum = Some(sum.map_or(part, |sum| cx.elementwise(sum, part, ElementWiseOp::Sum)));
    }
    sum.unwrap_or(x)
}

/// A line as a tensor of rank `rank` whose other dims are 1.
pub fn along(cx: &mut Emit<'_>, line: TensorId, axis: usize, rank: usize) -> TensorId {
    let axes: Vec<u32> = (0..rank as u32).filter(|&k| k as usize != axis).collect();
    if axes.is_empty() { line } else { cx.one(Layer::Unsqueeze { x: line, axes }) }
}

/// The tensor multiplied along one axis by weights [rows, columns].
pub fn weighted(cx: &mut Emit<'_>, x: TensorId, axis: usize, weights: TensorId) -> TensorId {
    let rank = cx.rank(x);
    let (none, product) = (MatrixOp::None, |a, op_a, b, op_b| Layer::MatrixMultiply { a, op_a, b, op_b });
    if rank == 1 {
        return cx.one(product(weights, none, x, MatrixOp::Vector));
    }
    let weights = cx.with_rank(weights, rank);
    if axis + 2 == rank {
        return cx.one(product(weights, none, x, none));
    }
    // The axis goes last, and back.
    let mut order: Vec<u32> = (0..rank as u32).collect();
    order.swap(axis, rank - 1);
    let a = cx.transpose(x, order.clone());
    let y = cx.one(product(a, none, weights, MatrixOp::Transpose));
    cx.transpose(y, order)
}

/// The value where a place lies outside along any axis.
pub fn with_outside(cx: &mut Emit<'_>, x: TensorId, outside: Option<&Outside>) -> TensorId {
    let Some(outside) = outside else { return x };
    let masks: Vec<(usize, TensorId)> = outside
        .inside
        .iter()
        .map(|(axis, list)| {
            let bytes: Vec<u8> = list.iter().map(|&inside| u8::from(inside)).collect();
            (*axis, cx.constant(DType::Bool, vec![list.len() as i64], bytes.into()))
        })
        .collect();
    masked(cx, x, &masks, outside.value)
}

/// `value` where any of the masks (bool [dim], by axis) is false.
pub fn masked(cx: &mut Emit<'_>, x: TensorId, masks: &[(usize, TensorId)], value: f32) -> TensorId {
    let rank = cx.rank(x);
    let mut all: Option<TensorId> = None;
    for &(axis, mask) in masks {
        let mask = along(cx, mask, axis, rank);
        all = Some(all.map_or(mask, |all| cx.elementwise(all, mask, ElementWiseOp::And)));
    }
    let Some(condition) = all else { return x };
    let else_input = elementwise::scalar_like(cx, x, f64::from(value));
    cx.one(Layer::Select { condition, then_input: x, else_input })
}

//! Normalisation over the last axis with a scale and perhaps a bias.

use crate::{Emit, ctx::elementwise};
use trtc_bundle::DType;
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, ReduceOp, UnaryOp},
};

/// What a row is centred on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Centre {
    /// The mean: LayerNormalization.
    Mean,
    /// Nothing: RMSNormalization.
    Zero,
}

/// (x − centre) / √(mean of squares + ε) · scale + bias over the last axis, computed in f32; in the dtype of `x`.
pub fn over_last(
    cx: &mut Emit<'_>,
    x: TensorId,
    scale: TensorId,
    bias: Option<TensorId>,
    (centre, epsilon): (Centre, f32),
) -> TensorId {
    let (dtype, rank) = (cx.dtype(x), cx.rank(x));
    let axes = vec![rank.saturating_sub(1) as u32];
    let wide = cx.cast(x, DType::F32);
    let [scale, bias] = [Some(scale), bias].map(|p| {
        p.map(|p| {
            let p = cx.cast(p, DType::F32);
            cx.with_rank(p, rank)
        })
    });
    if let (Centre::Mean, Some(scale), Some(bias), DType::F32) = (centre, scale, bias, dtype) {
        return cx.one(Layer::Normalization { x, scale, bias, axes, epsilon, groups: 1 });
    }
    let average = |cx: &mut Emit<'_>, x: TensorId| {
        cx.one(Layer::Reduce { x, op: ReduceOp::Avg, axes: axes.clone(), keep_dims: true })
    };
    let centred = match centre {
        Centre::Zero => wide,
        Centre::Mean => {
            let mean = average(cx, wide);
            cx.elementwise(wide, mean, ElementWiseOp::Sub)
        }
    };
    let squares = cx.elementwise(centred, centred, ElementWiseOp::Prod);
    let variance = average(cx, squares);
    let epsilon = elementwise::scalar_like(cx, variance, epsilon.into());
    let variance = cx.elementwise(variance, epsilon, ElementWiseOp::Sum);
    let deviation = cx.unary(variance, UnaryOp::Sqrt);
    let mut y = cx.elementwise(centred, deviation, ElementWiseOp::Div);
    for (p, op) in [(scale, ElementWiseOp::Prod), (bias, ElementWiseOp::Sum)] {
        if let Some(p) = p {
            y = cx.elementwise(y, p, op);
        }
    }
    cx.cast(y, dtype)
}

//! Pairs of elements turned by an angle: what rotary embeddings are made of.

use crate::{
    Emit,
    ctx::{
        extent::{DimPlan, ExtentPlan},
        reshape,
    },
};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, GatherMode, SampleMode},
};

/// How the last axis of a tensor of rank 4 is turned.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Dims before the last.
    pub lead: [DimPlan; 3],
    /// Size of the last axis.
    pub head: i64,
    /// How many of its elements are turned, from the first; even.
    pub turned: i64,
    /// Neighbours are pairs; otherwise the elements of the two halves.
    pub interleaved: bool,
}

/// Rows of a cache of angles [m, r/2] for indices [.., s]: [.., s, r/2].
pub fn rows(cx: &mut Emit<'_>, cache: TensorId, indices: TensorId) -> TensorId {
    let mode = GatherMode::Default;
    cx.one(Layer::Gather { data: cache, indices, axis: 0, mode, batch_dims: 0 })
}

/// Turns `x` by angles whose cosines and sines broadcast to its pairs, [.., .., .., turned/2].
pub fn turn(cx: &mut Emit<'_>, x: TensorId, [cos, sin]: [TensorId; 2], how: &Rotation) -> TensorId {
    let half = how.turned / 2;
    let [a, b] = match how.interleaved {
        true => [part(cx, how, x, 0, half, 2), part(cx, how, x, 1, half, 2)],
        false => [part(cx, how, x, 0, half, 1), part(cx, how, x, half, half, 1)],
    };
    let product = |cx: &mut Emit<'_>, a, b| cx.elementwise(a, b, ElementWiseOp::Prod);
    let (ca, sb) = (product(cx, cos, a), product(cx, sin, b));
    let real = cx.elementwise(ca, sb, ElementWiseOp::Sub);
    let (sa, cb) = (product(cx, sin, a), product(cx, cos, b));
    let imaginary = cx.elementwise(sa, cb, ElementWiseOp::Sum);
    let mut parts = match how.interleaved {
        false => vec![real, imaginary],
        true => {
            let pair = [real, imaginary].map(|x| cx.one(Layer::Unsqueeze { x, axes: vec![4] }));
            let pairs = cx.one(Layer::Concatenation { xs: pair.to_vec(), axis: 4 });
            vec![reshape::copying(cx, pairs, vec![0, 0, 0, how.turned])]
        }
    };
    if how.turned < how.head {
        parts.push(part(cx, how, x, how.turned, how.head - how.turned, 1));
    }
    match parts.as_slice() {
        [one] => *one,
        _ => cx.one(Layer::Concatenation { xs: parts, axis: 3 }),
    }
}

/// `size` elements of the last axis from `start` on, every `step`th.
fn part(cx: &mut Emit<'_>, how: &Rotation, x: TensorId, start: i64, size: i64, step: i64) -> TensorId {
    let mut dims = how.lead.to_vec();
    dims.push(DimPlan::Fixed(size));
    let size = cx.extent(&ExtentPlan::Dims(dims));
    let start = Extent::Static(vec![0, 0, 0, start]);
    let stride = Extent::Static(vec![1, 1, 1, step]);
    cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })
}

//! Axes that only the run knows: numbers given for them, by axis.
//!
//! They are data, not shapes. A tensor whose dims are known whatever the axes turn out to be (the model declares them)
//! can so be worked on along each axis in turn.

use crate::{Emit, ctx::check};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Dim, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, ReduceOp, SampleMode},
};

/// Which axes are named, in the node's order.
#[derive(Clone, Debug, PartialEq)]
pub enum AxesPlan {
    /// These.
    Known(Vec<usize>),
    /// The elements of an input.
    Input(usize),
}

/// A list of `count` integers that the run gives in `slot`, or that is constant.
///
/// # Errors
/// `E0402`: it is not known to have so many elements.
pub fn list(
    node: NodeView<'_>,
    slot: usize,
    name: &str,
    count: usize,
    target: &Target,
) -> Result<(), Refusal> {
    let view = check::operand(node, slot, name, &[DType::I32, DType::I64], target)?;
    if view.shape != [Dim::Known(count as i64)] {
        let why = format!("not known to have {count} elements");
        return Err(Refusal::new(Code::SHAPE_VALUE, why).slot(name));
    }
    Ok(())
}

/// Elements `start .. start + count` of an integer input of rank 1, as i64.
pub fn part(cx: &mut Emit<'_>, slot: usize, start: usize, count: usize) -> TensorId {
    let x = cx.input(slot);
    let x = cx.cast(x, DType::I64);
    if start == 0 && cx.dims(x) == [count as i64] {
        return x;
    }
    let fixed = |v: usize| Extent::Static(vec![v as i64]);
    let (start, size, stride) = (fixed(start), fixed(count), fixed(1));
    cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })
}

/// Where the axes of an input name `axis`: bool \[k\].
pub fn hits(cx: &mut Emit<'_>, slot: usize, axis: usize, rank: usize) -> TensorId {
    let axes = cx.input(slot);
    let axes = cx.cast(axes, DType::I64);
    let axes = if cx.rank(axes) == 0 { cx.reshape(axes, vec![1]) } else { axes };
    let (front, back) = (cx.i64s(&[axis as i64]), cx.i64s(&[axis as i64 - rank as i64]));
    let front = cx.elementwise(axes, front, ElementWiseOp::Equal);
    let back = cx.elementwise(axes, back, ElementWiseOp::Equal);
    cx.elementwise(front, back, ElementWiseOp::Or)
}

/// Whether the axes of an input name `axis`: bool \[1\].
pub fn named(cx: &mut Emit<'_>, slot: usize, axis: usize, rank: usize) -> TensorId {
    let hits = hits(cx, slot, axis, rank);
    let ones = cx.cast(hits, DType::I64);
    let any = cx.one(Layer::Reduce { x: ones, op: ReduceOp::Max, axes: vec![0], keep_dims: true });
    let zero = cx.i64s(&[0]);
    cx.elementwise(any, zero, ElementWiseOp::Greater)
}

/// The one of `values` (i64 \[k\]) that is given for `axis`, or `default`: i64 \[1\].
pub fn value(
    cx: &mut Emit<'_>,
    plan: &AxesPlan,
    values: TensorId,
    (axis, rank): (usize, usize),
    default: i64,
) -> TensorId {
    match plan {
        AxesPlan::Known(axes) => match axes.iter().position(|&named| named == axis) {
            None => cx.i64s(&[default]),
            Some(place) => {
                let fixed = |v: i64| Extent::Static(vec![v]);
                let (start, size, stride) = (fixed(place as i64), fixed(1), fixed(1));
                let mode = SampleMode::Strict;
                cx.one(Layer::Slice { x: values, start, size, stride, mode, fill: None })
            }
        },
        AxesPlan::Input(slot) => {
            // Of the distances from the default all but the one that is named are 0.
            let hits = hits(cx, *slot, axis, rank);
            let default = cx.i64s(&[default]);
            let condition = hits;
            let only = cx.one(Layer::Select { condition, then_input: values, else_input: default });
            let distance = cx.elementwise(only, default, ElementWiseOp::Sub);
            let sum =
                cx.one(Layer::Reduce { x: distance, op: ReduceOp::Sum, axes: vec![0], keep_dims: true });
            cx.elementwise(sum, default, ElementWiseOp::Sum)
        }
    }
}

/// Held between `low` and `high`.
pub fn clamped(cx: &mut Emit<'_>, x: TensorId, low: i64, high: i64) -> TensorId {
    let (low, high) = (cx.i64s(&[low]), cx.i64s(&[high]));
    let x = cx.elementwise(x, low, ElementWiseOp::Max);
    cx.elementwise(x, high, ElementWiseOp::Min)
}

/// 0 … n − 1 as an i64 constant.
pub fn line(cx: &mut Emit<'_>, n: i64) -> TensorId {
    let values: Vec<i64> = (0..n).collect();
    cx.i64s(&values)
}

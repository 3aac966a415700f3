//! Scales and zero points of linear quantization.

use crate::{
    Emit,
    ctx::{check::Operand, elementwise},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, NodeView, Refusal, Tensor};
use trtc_network::TensorId;

/// How a scale or zero point lies over the tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Granularity {
    /// One for all.
    Tensor,
    /// One for each index of an axis.
    Axis(usize),
    /// One for each block of an axis: axis, block size, size of the axis.
    Block(usize, usize, usize),
}

/// Granularity from the scale's shape.
///
/// # Errors
/// A scale whose shape does not fit, or blocks over a dim that is not known.
pub fn granularity(
    node: NodeView<'_>,
    x: &Operand<'_>,
    scale: &Operand<'_>,
    name: &str,
) -> Result<Granularity, Refusal> {
    let count = scale.view.constant().map(Tensor::count);
    if scale.rank() == 0 || count == Some(1) || (scale.rank() == 1 && scale.shape == [1.into()]) {
        return Ok(Granularity::Tensor);
    }
    let given = node.int("axis", 1);
    let axis = crate::ctx::check::axis(given, x.rank(), "axis")?;
    let block = usize::try_from(node.int("block_size", 0)).unwrap_or(0);
    if scale.rank() == 1 && block == 0 {
        return Ok(Granularity::Axis(axis));
    }
    if scale.rank() != x.rank() || block == 0 {
        let why = format!("a scale of rank {} for a tensor of rank {}", scale.rank(), x.rank());
        return Err(Refusal::new(Code::INVALID, why).slot(name));
    }
    let dim = x.shape[axis].known().and_then(|d| usize::try_from(d).ok());
    let dim = dim.ok_or_else(|| {
        Refusal::new(Code::DIM_UNKNOWN, format!("blocks over axis {axis}, whose size is not known"))
            .slot(name)
    })?;
    if scale.view.constant().is_none() {
        return Err(Refusal::new(Code::NOT_CONSTANT, "scales of blocks must be constant").slot(name));
    }
    Ok(Granularity::Block(axis, block, dim))
}

/// The zero point: whether it is nothing but zeros, or absent.
pub fn zero_point_is_zero(node: NodeView<'_>, slot: usize) -> bool {
    match node.input(slot) {
        None => true,
        Some(view) => view.constant().and_then(Tensor::to_i64s).is_some_and(|z| z.iter().all(|&v| v == 0)),
    }
}

/// A scale that TensorRT's own layers take: constant and positive.
pub fn is_positive_constant(scale: &Operand<'_>) -> bool {
    scale
        .view
        .constant()
        .and_then(Tensor::to_f64s)
        .is_some_and(|s| s.iter().all(|&v| v > 0.0 && v.is_finite()))
}

/// A scale or zero point as an f32 tensor that broadcasts against a tensor of rank `rank`.
pub fn spread(cx: &mut Emit<'_>, slot: usize, how: &Granularity, rank: usize) -> TensorId {
    match how {
        Granularity::Tensor => {
            let s = cx.input(slot);
            let s = cx.cast(s, DType::F32);
            cx.reshape(s, vec![1; rank])
        }
        Granularity::Axis(axis) => {
            let s = cx.input(slot);
            let s = cx.cast(s, DType::F32);
            let mut dims = vec![1; rank];
            if let Some(d) = dims.get_mut(*axis) {
                *d = -1;
            }
            cx.reshape(s, dims)
        }
        Granularity::Block(axis, block, dim) => blocks(cx, slot, (*axis, *block, *dim)),
    }
}

/// Every scale over again for each element of its block. The scale is a constant (`granularity`).
fn blocks(cx: &mut Emit<'_>, slot: usize, (axis, block, dim): (usize, usize, usize)) -> TensorId {
    let constant = cx.node().input(slot).and_then(|view| view.constant()).cloned();
    let (Some(constant), Some(values)) = (constant.as_ref(), constant.as_ref().and_then(Tensor::to_f64s))
    else {
        cx.fault("a scale of blocks that is not constant");
        return TensorId(u32::MAX);
    };
    let mut dims = constant.dims().to_vec();
    let inner: usize = dims[axis + 1..].iter().map(|&d| d as usize).product();
    let outer: usize = dims[..axis].iter().map(|&d| d as usize).product();
    let own = dims[axis] as usize;
    dims[axis] = dim as i64;
    let mut bytes = Vec::with_capacity(outer * dim * inner * 4);
    for o in 0..outer {
        for k in 0..dim {
            for i in 0..inner {
                let from = (o * own + (k / block).min(own - 1)) * inner + i;
                bytes.extend((values.get(from).copied().unwrap_or(0.0) as f32).to_le_bytes());
            }
        }
    }
    cx.constant(DType::F32, dims, bytes.into())
}

/// The scale: a float, not empty.
///
/// # Errors
/// One of [`elementwise::REFUSALS`].
pub fn scale<'a>(
    node: NodeView<'a>,
    slot: usize,
    name: &str,
    target: &Target,
) -> Result<Operand<'a>, Refusal> {
    elementwise::gate(node, slot, name, crate::ctx::check::FLOATS, target)
}

//! Scales and zero points of linear quantization.

use crate::{
    Emit,
    ctx::{check::Operand, elementwise, floats},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Dim, NodeView, Refusal, Tensor};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode},
};

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

/// Dtypes of quantised values.
pub const QUANTISED: &[DType] = &[
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I4,
    DType::U4,
    DType::I2,
    DType::U2,
    DType::F8E4M3,
    DType::F8E4M3Uz,
    DType::F8E5M2,
    DType::F8E5M2Uz,
];

/// Least and greatest value of an integer dtype of at most 16 bits.
pub fn range(dtype: DType) -> (f64, f64) {
    let size = 2f64.powi(dtype.bits() as i32);
    match dtype {
        DType::U16 | DType::U8 | DType::U4 | DType::U2 => (0.0, size - 1.0),
        _ => (-size / 2.0, size / 2.0 - 1.0),
    }
}

/// Longest axis whose blocks are written out.
const MAX_BLOCKED: usize = 1 << 24;

/// Whether elements of 4 bits are known to fill whole bytes: TensorRT refuses an odd number of them.
pub fn fills_bytes(x: &Operand<'_>) -> bool {
    x.shape.iter().any(|dim| dim.known().is_some_and(|dim| dim % 2 == 0))
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
    if dim.is_some_and(|dim| dim > MAX_BLOCKED) {
        return Err(
            Refusal::new(Code::SHAPE, format!("blocks over more than {MAX_BLOCKED} elements")).slot(name)
        );
    }
    let dim = dim.ok_or_else(|| {
        Refusal::new(Code::DIM_UNKNOWN, format!("blocks over axis {axis}, whose size is not known"))
            .slot(name)
    })?;
    Ok(Granularity::Block(axis, block, dim))
}

/// The zero point: whether it is nothing but zeros, or absent.
pub fn zero_point_is_zero(node: NodeView<'_>, slot: usize) -> bool {
    zero_point_is(node, slot, 0) || zero_bytes(node, slot)
}

/// Whether every zero point is a constant `value`; an absent one is 0.
pub fn zero_point_is(node: NodeView<'_>, slot: usize, value: i64) -> bool {
    match node.input(slot) {
        None => value == 0,
        Some(view) => {
            view.constant().and_then(Tensor::to_i64s).is_some_and(|z| z.iter().all(|&v| v == value))
        }
    }
}

/// Zeros of a type that is no integer, of either sign.
fn zero_bytes(node: NodeView<'_>, slot: usize) -> bool {
    let Some(constant) = node.input(slot).and_then(|view| view.constant()) else { return false };
    let size = match constant.dtype() {
        DType::F8E4M3 | DType::F8E5M2 => 0x7f,
        DType::F8E4M3Uz | DType::F8E5M2Uz => 0xff,
        _ => return false,
    };
    constant.bytes().is_some_and(|bytes| bytes.iter().all(|&b| b & size == 0))
}

/// A scale that TensorRT's own layers take: constant and positive.
pub fn is_positive_constant(scale: &Operand<'_>) -> bool {
    scale
        .view
        .constant()
        .and_then(Tensor::to_f64s)
        .is_some_and(|s| s.iter().all(|&v| v > 0.0 && v.is_finite()))
}

/// An input in f32. Constants are converted here: TensorRT has no constants of many of the dtypes.
pub fn in_f32(cx: &mut Emit<'_>, slot: usize) -> TensorId {
    let constant = cx.node().input(slot).and_then(|view| view.constant()).cloned();
    match constant.as_ref().and_then(|c| Some((c.dims().to_vec(), c.to_f64s()?))) {
        Some((dims, values)) => floats::constant(cx, DType::F32, dims, &values),
        None => {
            let x = cx.input(slot);
            cx.cast(x, DType::F32)
        }
    }
}

/// A scale or zero point as an f32 tensor that broadcasts against a tensor of rank `rank`.
pub fn spread(cx: &mut Emit<'_>, slot: usize, how: &Granularity, rank: usize) -> TensorId {
    let s = in_f32(cx, slot);
    let mut dims = vec![1; rank];
    match how {
        Granularity::Tensor => cx.reshape(s, dims),
        Granularity::Axis(axis) => {
            if let Some(d) = dims.get_mut(*axis) {
                *d = -1;
            }
            cx.reshape(s, dims)
        }
        Granularity::Block(axis, block, dim) => {
            let last = cx.dims(s).get(*axis).map_or(0, |&d| d.max(1) as usize - 1);
            let blocks: Vec<i64> = (0..*dim).map(|k| (k / block).min(last) as i64).collect();
            let indices = cx.i64s(&blocks);
            let (axis, mode) = (*axis as u32, GatherMode::Default);
            cx.one(Layer::Gather { data: s, indices, axis, mode, batch_dims: 0 })
        }
    }
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

/// Slots of a tensor with one scale and zero point for all of it.
#[derive(Clone, Copy, Debug)]
pub struct Quantised {
    /// The tensor.
    pub x: usize,
    /// Its scale.
    pub scale: usize,
    /// Its zero point, which may be absent.
    pub zero: usize,
}

impl Quantised {
    /// Three slots in a row.
    pub fn at(x: usize) -> Quantised {
        Quantised { x, scale: x + 1, zero: x + 2 }
    }

    /// The tensor's dtype, where it, its scale and its zero point are what an engine can hold.
    ///
    /// # Errors
    /// One of [`elementwise::REFUSALS`].
    pub fn gate<'a>(&self, node: NodeView<'a>, target: &Target) -> Result<Operand<'a>, Refusal> {
        let x = elementwise::gate(node, self.x, "x", crate::ctx::integers::BYTES, target)?;
        numbers(node, (self.scale, self.zero), x.dtype, target)?;
        Ok(x)
    }

    /// x − zero point, in f32 of rank `rank`.
    pub fn difference(&self, cx: &mut Emit<'_>, rank: usize) -> TensorId {
        let x = elementwise::input(cx, self.x, rank);
        let x = cx.cast(x, DType::F32);
        if cx.node().input(self.zero).is_none() {
            return x;
        }
        let zero = zero_point(cx, self.zero, rank);
        cx.elementwise(x, zero, ElementWiseOp::Sub)
    }

    /// (x − zero point) · scale, in f32 of rank `rank`.
    pub fn real(&self, cx: &mut Emit<'_>, rank: usize) -> TensorId {
        let x = self.difference(cx, rank);
        let scale = number(cx, self.scale, rank);
        cx.elementwise(x, scale, ElementWiseOp::Prod)
    }
}

/// A scale and a zero point of `dtype` (or none) that are one number each.
///
/// # Errors
/// One of [`elementwise::REFUSALS`].
pub fn numbers(
    node: NodeView<'_>,
    (scale, zero): (usize, usize),
    dtype: DType,
    target: &Target,
) -> Result<(), Refusal> {
    let one = |slot: usize, dtype: DType| {
        let operand = elementwise::gate(node, slot, "scales and zero points", &[dtype], target)?;
        if operand.shape.iter().any(|dim| *dim != Dim::Known(1)) {
            let why = "a scale or zero point that is not one number";
            return Err(Refusal::new(Code::SHAPE, why).slot("scales and zero points"));
        }
        Ok(())
    };
    one(scale, DType::F32)?;
    if node.input(zero).is_some() {
        one(zero, dtype)?;
    }
    Ok(())
}

/// One number in f32, of rank `rank`.
pub fn number(cx: &mut Emit<'_>, slot: usize, rank: usize) -> TensorId {
    let x = cx.input(slot);
    let x = cx.cast(x, DType::F32);
    cx.reshape(x, vec![1; rank])
}

/// A zero point that is one number, in f32, of rank `rank`; 0 where it is absent.
pub fn zero_point(cx: &mut Emit<'_>, slot: usize, rank: usize) -> TensorId {
    match cx.node().input(slot) {
        Some(_) => number(cx, slot, rank),
        None => cx.scalar(DType::F32, rank, 0.0),
    }
}

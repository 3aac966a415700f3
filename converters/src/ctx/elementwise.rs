//! Operators that compute each element by itself, with broadcasting.

use crate::{
    Emit,
    ctx::{
        check::{self, Operand},
        shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, NodeView, Refusal, Type};
use trtc_network::TensorId;

/// Codes of [`gate`] and [`gates`].
pub const REFUSALS: &[Code] = &[
    Code::DTYPE_UNREPRESENTABLE,
    Code::DTYPE_KERNEL,
    Code::DTYPE_UNKNOWN,
    Code::RANK_UNKNOWN,
    Code::RANK,
    Code::SHAPE,
    Code::COMPUTE_CAPABILITY,
    Code::INVALID,
];

/// Type of a broadcast of the inputs in `slots`, which must agree in dtype, with dtype `dtype` (that of the inputs when
/// `None`).
///
/// # Errors
/// Unequal dtypes, or dims that do not fit.
pub fn broadcast(
    node: NodeView<'_>,
    slots: &[usize],
    dtype: Option<DType>,
    cx: &mut InferCx<'_>,
) -> Result<Type, Diag> {
    let mut common = None;
    for &slot in slots {
        let own = shape::dtype_of(node, slot);
        if let (Some(a), Some(b)) = (common, own)
            && a != b
        {
            return Err(Diag::invalid(format!("inputs of dtypes {a} and {b}")));
        }
        common = common.or(own);
    }
    Ok(shape::typed(dtype.or(common), broadcast_shape(node, slots, cx)?))
}

/// Shape of a broadcast of the inputs in `slots`, whatever their dtypes.
///
/// # Errors
/// Dims that do not fit.
pub fn broadcast_shape(
    node: NodeView<'_>,
    slots: &[usize],
    cx: &mut InferCx<'_>,
) -> Result<Option<Vec<Dim>>, Diag> {
    let shapes: Vec<Option<&[Dim]>> =
        slots.iter().map(|&slot| node.input(slot).and_then(|view| view.shape())).collect();
    shape::broadcast(&shapes, cx)
}

/// An input that an engine can hold: [`check::operand`], and not empty.
///
/// # Errors
/// One of [`REFUSALS`].
pub fn gate<'a>(
    node: NodeView<'a>,
    slot: usize,
    name: &str,
    allowed: &[DType],
    target: &Target,
) -> Result<Operand<'a>, Refusal> {
    let operand = check::operand(node, slot, name, allowed, target)?;
    check::not_empty(&operand, name)?;
    Ok(operand)
}

/// The inputs `names` in slots 0, 1, … of one dtype; the largest rank.
///
/// # Errors
/// One of [`REFUSALS`].
pub fn gates(
    node: NodeView<'_>,
    names: &[&str],
    allowed: &[DType],
    target: &Target,
) -> Result<(DType, usize), Refusal> {
    let mut first = None;
    let mut rank = 0;
    for (slot, name) in names.iter().enumerate() {
        let operand = gate(node, slot, name, allowed, target)?;
        rank = rank.max(operand.rank());
        let dtype = *first.get_or_insert(operand.dtype);
        if dtype != operand.dtype {
            return Err(Refusal::new(Code::INVALID, format!("{} beside {dtype}", operand.dtype)).slot(*name));
        }
    }
    let dtype = first.ok_or_else(|| Refusal::new(Code::INVALID, "no inputs"))?;
    Ok((dtype, rank))
}

/// The tensor of an input, with dims of 1 prepended up to `rank`.
pub fn input(cx: &mut Emit<'_>, slot: usize, rank: usize) -> TensorId {
    let x = cx.input(slot);
    cx.with_rank(x, rank)
}

/// A constant that broadcasts against `x`, in its dtype.
pub fn scalar_like(cx: &mut Emit<'_>, x: TensorId, value: f64) -> TensorId {
    let (dtype, rank) = (cx.dtype(x), cx.rank(x));
    cx.scalar(dtype, rank, value)
}

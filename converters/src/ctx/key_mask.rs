//! Masks of keys as com.microsoft's attention operators have them: lengths, or ones and zeros.

use crate::{
    Emit,
    ctx::{
        attention::{self, Band},
        check,
        extent::DimPlan,
        iota, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Dim, InferCx, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode, UnaryOp},
};

/// What a mask says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMask {
    /// `[n]`: how many keys are valid.
    Lengths,
    /// `[2n]`: where valid keys end, and where they start.
    Spans,
    /// `[n, t]`: which keys are valid.
    Keys,
    /// `[n, s, t]`: which query sees which key.
    Pairs,
}

/// Dims of the attention that a mask is for.
#[derive(Clone, Copy, Debug)]
pub struct Dims<'a> {
    /// Rows of the batch.
    pub batch: &'a Dim,
    /// Queries.
    pub queries: &'a Dim,
    /// Keys, past ones included.
    pub keys: &'a Dim,
}

/// Reads the mask in `slot`.
///
/// # Errors
/// A mask of another shape, or one that is not known to be of one of these.
pub fn plan(
    node: NodeView<'_>,
    slot: usize,
    name: &str,
    dims: Dims<'_>,
    target: &Target,
) -> Result<Option<KeyMask>, Refusal> {
    if node.input(slot).is_none() {
        return Ok(None);
    }
    let mask = check::operand(node, slot, name, &[DType::I32], target)?;
    check::not_empty(&mask, name)?;
    let is = |axis: usize, dim: &Dim| mask.shape[axis] == *dim && *dim != Dim::Unknown;
    let may = |axis: usize, dim: &Dim| may_be(&mask.shape[axis], dim);
    let kind = match mask.rank() {
        1 if is(0, dims.batch) => Some(KeyMask::Lengths),
        1 if is(0, &dims.batch.mul(&Dim::Known(2))) => Some(KeyMask::Spans),
        2 if may(0, dims.batch) && may(1, dims.keys) => Some(KeyMask::Keys),
        3 if may(0, dims.batch) && may(1, dims.queries) && may(2, dims.keys) => Some(KeyMask::Pairs),
        _ => None,
    };
    kind.map(Some).ok_or_else(|| {
        let shown: Vec<String> = mask.shape.iter().map(|dim| node.symbols().show(dim)).collect();
        let why = format!(
            "a mask of [{}] for {} rows, {} queries, {} keys",
            shown.join(", "),
            node.symbols().show(dims.batch),
            node.symbols().show(dims.queries),
            node.symbols().show(dims.keys)
        );
        Refusal::new(Code::SHAPE, why).slot(name)
    })
}

/// Whether the dims can be one: [`demand`] sees to it that they are.
fn may_be(a: &Dim, b: &Dim) -> bool {
    a == b || a.known().is_none() || b.known().is_none()
}

/// Demands of the dims of a mask and of a bias what [`plan`] and [`attention_bias`] rely on. Numbers that differ are
/// refused there.
pub fn demand(node: NodeView<'_>, mask: usize, bias: usize, dims: Dims<'_>, cx: &mut InferCx<'_>) {
    let of_mask: &[&Dim] = match node.input(mask).and_then(|mask| mask.rank()) {
        Some(2) => &[dims.batch, dims.keys],
        Some(3) => &[dims.batch, dims.queries, dims.keys],
        _ => &[],
    };
    let of_mask = of_mask.iter().enumerate().map(|(axis, dim)| (mask, axis, *dim));
    for (slot, axis, dim) in of_mask.chain([(bias, 2, dims.queries), (bias, 3, dims.keys)]) {
        let own = node.input(slot).and_then(|view| view.dim(axis));
        if own.is_some_and(|own| own.known().is_none() || dim.known().is_none()) {
            let _ = shape::demand(node, (slot, axis), dim, cx);
        }
    }
}

/// What the mask in `slot` adds to the scores: `hidden` for what is not seen, of rank 4.
pub fn bias(
    cx: &mut Emit<'_>,
    mask: KeyMask,
    slot: usize,
    keys: &DimPlan,
    dtype: DType,
    hidden: f64,
) -> TensorId {
    let x = cx.input(slot);
    let seen = match mask {
        KeyMask::Keys | KeyMask::Pairs => {
            let axes = if mask == KeyMask::Keys { vec![1, 2] } else { vec![1] };
            let x = cx.one(Layer::Unsqueeze { x, axes });
            let zero = cx.scalar(DType::I32, 4, 0.0);
            cx.elementwise(x, zero, ElementWiseOp::Greater)
        }
        KeyMask::Lengths => {
            let x = cx.cast(x, DType::I64);
            let valid = cx.reshape(x, vec![-1, 1, 1, 1]);
            attention::valid_keys(cx, keys, valid)
        }
        KeyMask::Spans => {
            let x = cx.cast(x, DType::I64);
            let data = cx.reshape(x, vec![2, -1, 1, 1, 1]);
            let [end, start] = [0.0, 1.0].map(|k| {
                let indices = cx.scalar(DType::I64, 0, k);
                let mode = GatherMode::Default;
                cx.one(Layer::Gather { data, indices, axis: 0, mode, batch_dims: 0 })
            });
            let key = iota::along(cx, keys, 3, 4);
            let before_end = cx.elementwise(key, end, ElementWiseOp::Less);
            let before_start = cx.elementwise(key, start, ElementWiseOp::Less);
            let inside = cx.unary(before_start, UnaryOp::Not);
            cx.elementwise(before_end, inside, ElementWiseOp::And)
        }
    };
    attention::as_bias(cx, seen, dtype, hidden)
}

/// What a query's own position adds: the lowest number for the keys after it. `past` is how many keys come before the
/// first query.
pub fn causal(
    cx: &mut Emit<'_>,
    queries: &DimPlan,
    keys: &DimPlan,
    past: &DimPlan,
    dtype: DType,
) -> Option<TensorId> {
    let first = match past.fixed() {
        Some(0) => None,
        _ => {
            let past = cx.dim(past);
            Some(cx.with_rank(past, 4))
        }
    };
    let seen = attention::seen(cx, Band::CAUSAL, queries, keys, first)?;
    Some(attention::as_bias(cx, seen, dtype, lowest(dtype)))
}

/// The score of what is not seen, as the attribute mask_filter_value has it, where the dtype holds it.
pub fn hidden(node: NodeView<'_>, dtype: DType) -> f64 {
    f64::from(node.float("mask_filter_value", -10000.0)).max(lowest(dtype))
}

/// The lowest finite number.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::MIN.into(),
        DType::Bf16 => half::bf16::MIN.into(),
        _ => f32::MIN.into(),
    }
}

/// The factor of the scores: the attribute, or 1/√d.
///
/// # Errors
/// A negative one.
pub fn scale(node: NodeView<'_>, head: i64) -> Result<f64, Refusal> {
    match node.float("scale", 0.0) {
        0.0 => Ok(1.0 / (head as f64).sqrt()),
        scale if scale > 0.0 => Ok(scale.into()),
        scale => Err(Refusal::new(Code::ATTRIBUTE, format!("{scale} has no root")).slot("scale")),
    }
}

/// The bias in `slot` that is added to the scores: [n or 1, h or 1, s, t].
///
/// # Errors
/// Another rank, or a number of keys that is not known to be right.
pub fn attention_bias(
    node: NodeView<'_>,
    slot: usize,
    dtype: DType,
    dims: Dims<'_>,
    target: &Target,
) -> Result<bool, Refusal> {
    const NAME: &str = "attention_bias";
    if node.input(slot).is_none() {
        return Ok(false);
    }
    let bias = check::operand(node, slot, NAME, &[dtype], target)?;
    check::not_empty(&bias, NAME)?;
    if bias.rank() != 4 {
        return Err(Refusal::new(Code::INVALID, format!("rank {}, not 4", bias.rank())).slot(NAME));
    }
    for (axis, dim) in [(2, dims.queries), (3, dims.keys)] {
        if !may_be(&bias.shape[axis], dim) {
            let (own, show) = (node.symbols().show(&bias.shape[axis]), node.symbols().show(dim));
            return Err(Refusal::new(Code::SHAPE, format!("axis {axis} is {own}, not {show}")).slot(NAME));
        }
    }
    Ok(true)
}

/// Refuses attributes that are not at the value which means nothing special.
///
/// # Errors
/// `E0201`.
pub fn only(node: NodeView<'_>, list: &[(&str, i64, &str)]) -> Result<(), Refusal> {
    match list.iter().find(|(name, value, _)| node.int(name, *value) != *value) {
        Some((name, _, why)) => Err(Refusal::new(Code::ATTRIBUTE, *why).slot(*name)),
        None => Ok(()),
    }
}

/// Refuses inputs that are there.
///
/// # Errors
/// `E0201`.
pub fn without(node: NodeView<'_>, list: &[(usize, &str, &str)]) -> Result<(), Refusal> {
    match list.iter().find(|(slot, ..)| node.input(*slot).is_some()) {
        Some((_, name, why)) => Err(Refusal::new(Code::ATTRIBUTE, *why).slot(*name)),
        None => Ok(()),
    }
}

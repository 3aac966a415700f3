//! How com.microsoft's attention operators weigh keys: masks of lengths or of ones and zeros, biases, causality.

use crate::{
    Emit,
    ctx::{
        attention::{self, Attended, Band, Scoring},
        check,
        extent::{self, DimPlan, ExtentPlan},
        iota, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Dim, InferCx, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, GatherMode, SampleMode, UnaryOp},
};

/// What a mask says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMask {
    /// `[n]`: how many keys are valid.
    Lengths,
    /// `[2n]`: where valid keys end, and where they start.
    Spans,
    /// `[3n + 2]`: how many keys are valid, then sums of lengths, which say nothing more.
    Cumulated,
    /// `[n, t]`: which keys are valid.
    Keys,
    /// `[n, s, t]`: which query sees which key.
    Pairs,
    /// `[n, 1, m, m]`: which position sees which.
    Positions,
}

/// Dims of the attention that a mask is for.
#[derive(Clone, Copy, Debug)]
pub struct Dims<'a> {
    /// Rows of the batch.
    pub batch: &'a Dim,
    /// Heads.
    pub heads: i64,
    /// Queries.
    pub queries: &'a Dim,
    /// Keys, past ones included.
    pub keys: &'a Dim,
}

/// Reads the mask in `slot`.
///
/// # Errors
/// A mask of another shape, or one that is not known to be of one of these.
fn plan(
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
        1 if is(0, &dims.batch.mul(&Dim::Known(3)).add(&Dim::Known(2))) => Some(KeyMask::Cumulated),
        2 if may(0, dims.batch) && may(1, dims.keys) => Some(KeyMask::Keys),
        3 if may(0, dims.batch) && may(1, dims.queries) && may(2, dims.keys) => Some(KeyMask::Pairs),
        4 if may(0, dims.batch) && may(1, &Dim::Known(1)) => Some(KeyMask::Positions),
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

/// Demands of the dims of a mask and of a bias what `plan` and `attention_bias` rely on. Numbers that differ are
/// refused there.
pub fn demand(node: NodeView<'_>, slots: Slots, dims: Dims<'_>, cx: &mut InferCx<'_>) {
    let mask = slots.mask.0;
    let of_mask: &[&Dim] = match node.input(mask).and_then(|mask| mask.rank()) {
        Some(2) => &[dims.batch, dims.keys],
        Some(3) => &[dims.batch, dims.queries, dims.keys],
        Some(4) => &[dims.batch],
        _ => &[],
    };
    let of_mask = of_mask.iter().enumerate().map(|(axis, dim)| (mask, axis, *dim));
    let of_bias = slots.bias.map(|bias| [(bias, 2, dims.queries), (bias, 3, dims.keys)]);
    for (slot, axis, dim) in of_mask.chain(of_bias.into_iter().flatten()) {
        let own = node.input(slot).and_then(|view| view.dim(axis));
        if own.is_some_and(|own| own.known().is_none() || dim.known().is_none()) {
            let _ = shape::demand(node, (slot, axis), dim, cx);
        }
    }
    for (axis, dim) in [(0, dims.batch), (1, &Dim::Known(dims.heads))] {
        let _ = slots.bias.map(|bias| shape::demand_broadcast(node, (bias, axis), dim, cx));
    }
}

/// What the mask in `slot` adds to the scores: `hidden` for what is not seen, of rank 4. `first` is the position of the
/// first query.
fn bias(
    cx: &mut Emit<'_>,
    (slot, mask): (usize, KeyMask),
    extents: &Extents,
    dtype: DType,
    hidden: f64,
) -> TensorId {
    let x = cx.input(slot);
    let seen = match mask {
        KeyMask::Keys | KeyMask::Pairs => {
            let axes = if mask == KeyMask::Keys { vec![1, 2] } else { vec![1] };
            let x = cx.one(Layer::Unsqueeze { x, axes });
            above_zero(cx, x)
        }
        KeyMask::Positions => {
            let start = vec![DimPlan::Fixed(0), DimPlan::Fixed(0), extents.past.clone(), DimPlan::Fixed(0)];
            let size =
                [&extents.batch, &DimPlan::Fixed(1), &extents.queries, &extents.keys].map(DimPlan::clone);
            let [start, size] = [start, size.to_vec()].map(|dims| cx.extent(&ExtentPlan::Dims(dims)));
            let stride = Extent::Static(vec![1; 4]);
            let mode = SampleMode::Strict;
            let x = cx.one(Layer::Slice { x, start, size, stride, mode, fill: None });
            above_zero(cx, x)
        }
        KeyMask::Lengths | KeyMask::Cumulated => {
            let mut x = cx.cast(x, DType::I64);
            if mask == KeyMask::Cumulated {
                let [start, stride] = [0, 1].map(|value| Extent::Static(vec![value]));
                let size = cx.extent(&ExtentPlan::Dims(vec![extents.batch.clone()]));
                x = cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None });
            }
            let valid = cx.reshape(x, vec![-1, 1, 1, 1]);
            attention::valid_keys(cx, &extents.keys, valid)
        }
        KeyMask::Spans => {
            let x = cx.cast(x, DType::I64);
            let data = cx.reshape(x, vec![2, -1, 1, 1, 1]);
            let [end, start] = [0.0, 1.0].map(|k| {
                let indices = cx.scalar(DType::I64, 0, k);
                let mode = GatherMode::Default;
                cx.one(Layer::Gather { data, indices, axis: 0, mode, batch_dims: 0 })
            });
            let key = iota::along(cx, &extents.keys, 3, 4);
            let before_end = cx.elementwise(key, end, ElementWiseOp::Less);
            let before_start = cx.elementwise(key, start, ElementWiseOp::Less);
            let inside = cx.unary(before_start, UnaryOp::Not);
            cx.elementwise(before_end, inside, ElementWiseOp::And)
        }
    };
    attention::as_bias(cx, seen, dtype, hidden)
}

fn above_zero(cx: &mut Emit<'_>, x: TensorId) -> TensorId {
    let zero = cx.scalar(DType::I32, 4, 0.0);
    cx.elementwise(x, zero, ElementWiseOp::Greater)
}

/// Sizes of an attention, as they are emitted.
#[derive(Clone, Debug)]
pub struct Extents {
    /// Rows of the batch.
    pub batch: DimPlan,
    /// Queries.
    pub queries: DimPlan,
    /// Keys, past ones included.
    pub keys: DimPlan,
    /// Keys before the first query.
    pub past: DimPlan,
}

/// Where an operator has its mask and its bias of scores.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// The mask, and its name.
    pub mask: (usize, &'static str),
    /// attention_bias.
    pub bias: Option<usize>,
}

/// Everything that follows queries, keys and values by head.
#[derive(Debug)]
pub struct Weighing {
    mask: Option<(usize, KeyMask)>,
    added: Option<usize>,
    causal: bool,
    /// Sizes.
    pub extents: Extents,
    hidden: f64,
    scale: f64,
}

impl Weighing {
    /// Reads mask, bias and attributes of a node whose heads have `head` elements.
    ///
    /// # Errors
    /// A mask or a bias of another shape.
    pub fn plan(
        node: NodeView<'_>,
        slots: Slots,
        dims: Dims<'_>,
        extents: Extents,
        (dtype, head): (DType, i64),
        target: &Target,
    ) -> Result<Weighing, Refusal> {
        let (slot, name) = slots.mask;
        let mask = plan(node, slot, name, dims, target)?;
        let added = match slots.bias {
            Some(slot) => attention_bias(node, slot, dtype, dims, target)?.then_some(slot),
            None => None,
        };
        Ok(Weighing {
            mask: mask.map(|mask| (slot, mask)),
            added,
            causal: node.int("unidirectional", 0) != 0,
            extents,
            hidden: hidden(node, dtype),
            scale: scale(node, head),
        })
    }

    /// Attends to keys and values, past ones included, as many heads as in queries. `first` is the position of the first
    /// query in buffers that are longer than what they hold, i64 of rank 4; masks and biases by key may then be shorter
    /// than the buffers.
    pub fn attend(self, cx: &mut Emit<'_>, [q, k, v]: [TensorId; 3], first: Option<TensorId>) -> Attended {
        let dtype = cx.dtype(q);
        let Extents { queries, keys, past, .. } = &self.extents;
        let mask = self.mask.map(|mask| {
            let x = bias(cx, mask, &self.extents, dtype, self.hidden);
            let queries = if mask.1 == KeyMask::Pairs { queries.clone() } else { DimPlan::Fixed(1) };
            let by_key = matches!(mask.1, KeyMask::Keys | KeyMask::Pairs);
            match first.filter(|_| by_key) {
                Some(_) => {
                    let lead = vec![self.extents.batch.clone(), DimPlan::Fixed(1), queries];
                    attention::lengthened(cx, x, lead, keys)
                }
                None => x,
            }
        });
        let later = match (self.causal, first) {
            (true, None) => causal(cx, queries, keys, past, dtype),
            (false, None) => None,
            (causal, Some(first)) => Some(held(cx, &self.extents, causal, first, dtype)),
        };
        let added = self.added.map(|slot| {
            let x = cx.input(slot);
            let own = |axis| extent::own_dim(cx.node(), slot, axis);
            let lead = vec![own(0), own(1), own(2)];
            if first.is_some() { attention::lengthened(cx, x, lead, keys) } else { x }
        });
        let all = attention::summed(cx, mask, later);
        let all = attention::summed(cx, all, added);
        let how = Scoring { scale: self.scale, ..Scoring::default() };
        attention::attend(cx, [q, k, v], all, how)
    }
}

/// What buffers add that hold keys up to the last query's position: nothing of what lies behind is seen.
fn held(cx: &mut Emit<'_>, extents: &Extents, causal: bool, first: TensorId, dtype: DType) -> TensorId {
    let queries = cx.dim(&extents.queries);
    let queries = cx.with_rank(queries, 4);
    let count = cx.elementwise(first, queries, ElementWiseOp::Sum);
    let mut seen = Some(attention::valid_keys(cx, &extents.keys, count));
    if causal {
        let before = attention::seen(cx, Band::CAUSAL, &extents.queries, &extents.keys, Some(first));
        seen = attention::both(cx, seen, before);
    }
    match seen {
        Some(seen) => attention::as_bias(cx, seen, dtype, f64::NEG_INFINITY),
        None => count,
    }
}

/// What a query's own position adds: the lowest number for the keys after it. `past` is how many keys come before the
/// first query.
fn causal(
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
fn hidden(node: NodeView<'_>, dtype: DType) -> f64 {
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
pub fn scale(node: NodeView<'_>, head: i64) -> f64 {
    match node.float("scale", 0.0) {
        0.0 => 1.0 / (head as f64).sqrt(),
        scale => scale.into(),
    }
}

/// The bias in `slot` that is added to the scores: [n or 1, h or 1, s, t].
///
/// # Errors
/// Another rank, or other dims.
fn attention_bias(
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
    let heads = Dim::Known(dims.heads);
    for (axis, dim) in [dims.batch, &heads, dims.queries, dims.keys].into_iter().enumerate() {
        let own = &bias.shape[axis];
        if !may_be(own, dim) && (axis > 1 || *own != Dim::Known(1)) {
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

//! What the attention operators share: heads, masks, and scores → probabilities → values.
//!
//! Shapes are named n batch, h heads, s queries, t keys (past ones first), d head size.

use crate::{
    Emit,
    ctx::{
        elementwise,
        extent::{DimPlan, ExtentPlan},
        iota, reshape, shape,
    },
};
use trtc_bundle::DType;
use trtc_ir::{Diag, Dim, NodeView};
use trtc_network::{
    TensorId,
    layer::{
        ActivationKind, ElementWiseOp, Extent, GatherMode, Layer, MatrixOp, ReduceOp, SampleMode,
        ScatterMode, UnaryOp,
    },
};

/// A number of heads that an attribute must give.
///
/// # Errors
/// The attribute is missing or below 1.
pub fn heads(node: NodeView<'_>, name: &str) -> Result<i64, Diag> {
    match node.attrs().int(name) {
        Some(heads) if heads > 0 => Ok(heads),
        _ => Err(Diag::invalid("not a number of heads").slot(name)),
    }
}

/// What each head has of a dim of input `slot`.
///
/// # Errors
/// A known dim that does not divide.
pub fn share(dim: &Dim, heads: i64, slot: &str) -> Result<Dim, Diag> {
    match dim {
        Dim::Known(size) if size % heads != 0 => {
            Err(Diag::invalid(format!("a dim of {size} for {heads} heads")).slot(slot))
        }
        dim => Ok(dim.floor_div(&Dim::Known(heads))),
    }
}

/// Hidden sizes of queries, keys and values whose weights are merged in slot `weights`; `None` where their dim is unknown.
///
/// # Errors
/// Sizes that do not go into heads, or are not those of the weights.
pub fn merged_parts(node: NodeView<'_>, weights: usize) -> Result<Option<[i64; 3]>, Diag> {
    let heads = heads(node, "num_heads")?;
    let whole = node.input(weights).and_then(|w| w.dim(1)).and_then(Dim::known);
    let parts = match (node.attrs().ints("qkv_hidden_sizes"), whole) {
        (Some([q, k, v]), _) => [*q, *k, *v],
        (Some([]) | None, Some(whole)) if whole % 3 == 0 => [whole / 3; 3],
        (Some([]) | None, None) => return Ok(None),
        _ => return Err(Diag::invalid("weights that do not fall into three").slot("weights")),
    };
    let sum = parts.iter().try_fold(0i64, |sum, &part| sum.checked_add(part));
    let fits = parts.iter().all(|&part| part > 0 && part % heads == 0)
        && parts[0] == parts[1]
        && whole.is_none_or(|whole| sum == Some(whole));
    match fits {
        true => Ok(Some(parts)),
        false => {
            Err(Diag::invalid(format!("hidden sizes {parts:?} for {heads} heads")).slot("qkv_hidden_sizes"))
        }
    }
}

/// Keys of before: a dim of the input that holds them, 0 without one.
pub fn past_keys(node: NodeView<'_>, slot: usize, axis: usize) -> Dim {
    match node.input(slot) {
        None => Dim::Known(0),
        Some(_) => shape::dim_of(node, slot, axis),
    }
}

/// [n, s, h·d] as [n, h, s, d].
pub fn split_heads(cx: &mut Emit<'_>, x: TensorId, heads: i64) -> TensorId {
    cx.one(Layer::Shuffle {
        x,
        first: None,
        reshape: Some(Extent::Static(vec![0, 0, heads, -1])),
        zero_is_placeholder: true,
        second: Some(vec![0, 2, 1, 3]),
    })
}

/// [n, h, s, d] as [n, s, h·d].
pub fn merge_heads(cx: &mut Emit<'_>, x: TensorId) -> TensorId {
    cx.one(Layer::Shuffle {
        x,
        first: Some(vec![0, 2, 1, 3]),
        reshape: Some(Extent::Static(vec![0, 0, -1])),
        zero_is_placeholder: true,
        second: None,
    })
}

/// Queries, keys or values (`k`) of what is merged along the last axis of [n, s, sum of `parts`].
pub fn part(
    cx: &mut Emit<'_>,
    x: TensorId,
    [batch, tokens]: [&DimPlan; 2],
    parts: [i64; 3],
    k: usize,
) -> TensorId {
    let start = Extent::Static(vec![0, 0, parts[..k].iter().sum()]);
    let size = cx.extent(&ExtentPlan::Dims(vec![batch.clone(), tokens.clone(), DimPlan::Fixed(parts[k])]));
    let stride = Extent::Static(vec![1; 3]);
    cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })
}

/// Where each of `tokens` tokens of sequences of several lengths stands among all places, padding included: `[m]` i64, from
/// the input in `slot` [n, s] i32, which has the places of the padding behind them.
pub fn places(cx: &mut Emit<'_>, slot: usize, tokens: &DimPlan) -> TensorId {
    let x = cx.input(slot);
    let x = cx.cast(x, DType::I64);
    let x = cx.reshape(x, vec![-1]);
    let [start, stride] = [0, 1].map(|value| Extent::Static(vec![value]));
    let size = cx.extent(&ExtentPlan::Dims(vec![tokens.clone()]));
    cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })
}

/// Tokens [m, h] at their [`places`] in [n, s, h], zeros elsewhere.
pub fn padded(cx: &mut Emit<'_>, x: TensorId, places: TensorId, dims: [DimPlan; 3]) -> TensorId {
    let dtype = cx.dtype(x);
    let [batch, length, hidden] = dims;
    let zero = cx.scalar(dtype, 2, 0.0);
    let flat = vec![batch.clone().times(length.clone()), hidden.clone()];
    let size = cx.extent(&ExtentPlan::Dims(flat));
    let (start, stride) = (Extent::Static(vec![0; 2]), Extent::Static(vec![0; 2]));
    let mode = SampleMode::Strict;
    let data = cx.one(Layer::Slice { x: zero, start, size, stride, mode, fill: None });
    let indices = cx.one(Layer::Unsqueeze { x: places, axes: vec![1] });
    let mode = ScatterMode::Nd;
    let y = cx.one(Layer::Scatter { data, indices, updates: x, mode, axis: 0 });
    reshape::emit(cx, y, &reshape::of_dims(vec![batch, length, hidden]))
}

/// Each of `heads` heads (axis 1) `times` times in a row: what query groups share.
pub fn repeat_heads(cx: &mut Emit<'_>, x: TensorId, heads: i64, times: i64) -> TensorId {
    if times == 1 {
        return x;
    }
    let list: Vec<i64> = (0..heads).flat_map(|head| std::iter::repeat_n(head, times as usize)).collect();
    let indices = cx.i64s(&list);
    cx.one(Layer::Gather { data: x, indices, axis: 1, mode: GatherMode::Default, batch_dims: 0 })
}

/// Past keys or values in front of the new ones, along the sequence (axis 2).
pub fn joined(cx: &mut Emit<'_>, past: Option<TensorId>, x: TensorId) -> TensorId {
    match past {
        Some(past) => cx.one(Layer::Concatenation { xs: vec![past, x], axis: 2 }),
        None => x,
    }
}

/// A constant that broadcasts against `x`, in its dtype: −∞.
fn minus_infinity(cx: &mut Emit<'_>, x: TensorId) -> TensorId {
    elementwise::scalar_like(cx, x, f64::NEG_INFINITY)
}

/// Which keys a query at position p may see: those from p − left to p + right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Band {
    /// How many before its own position; all when `None`.
    pub left: Option<i64>,
    /// How many after its own position; all when `None`.
    pub right: Option<i64>,
}

impl Band {
    /// No keys after the query's own position.
    pub const CAUSAL: Band = Band { left: None, right: Some(0) };

    /// Whether nothing is hidden.
    pub fn is_open(self) -> bool {
        self == Band::default()
    }
}

/// What a query may see of a band: bool, [1 or n, 1, s, t]. `first` is the position of the first query, an i64 tensor
/// of rank 4 (0 when absent).
pub fn seen(
    cx: &mut Emit<'_>,
    band: Band,
    queries: &DimPlan,
    keys: &DimPlan,
    first: Option<TensorId>,
) -> Option<TensorId> {
    if band.is_open() {
        return None;
    }
    let mut position = iota::along(cx, queries, 2, 4);
    if let Some(first) = first {
        position = cx.elementwise(position, first, ElementWiseOp::Sum);
    }
    let key = iota::along(cx, keys, 3, 4);
    let mut within = |by: i64, op| {
        let by = cx.scalar(DType::I64, 4, by as f64);
        let bound = cx.elementwise(position, by, ElementWiseOp::Sum);
        cx.elementwise(key, bound, op)
    };
    let right = band.right.map(|right| within(right.saturating_add(1), ElementWiseOp::Less));
    let left = band.left.map(|left| within(left.saturating_add(1).saturating_neg(), ElementWiseOp::Greater));
    both(cx, right, left)
}

/// Keys below a number of valid ones for each row of the batch: bool, [n, 1, 1, t]. `valid` is i64 of rank 4.
pub fn valid_keys(cx: &mut Emit<'_>, keys: &DimPlan, valid: TensorId) -> TensorId {
    let key = iota::along(cx, keys, 3, 4);
    cx.elementwise(key, valid, ElementWiseOp::Less)
}

/// Both conditions.
pub fn both(cx: &mut Emit<'_>, a: Option<TensorId>, b: Option<TensorId>) -> Option<TensorId> {
    match (a, b) {
        (Some(a), Some(b)) => Some(cx.elementwise(a, b, ElementWiseOp::And)),
        (a, b) => a.or(b),
    }
}

/// What is added to the scores for a condition: 0 where it holds, `hidden` elsewhere.
pub fn as_bias(cx: &mut Emit<'_>, seen: TensorId, dtype: DType, hidden: f64) -> TensorId {
    let rank = cx.rank(seen);
    let (then_input, else_input) = (cx.scalar(dtype, rank, 0.0), cx.scalar(dtype, rank, hidden));
    cx.one(Layer::Select { condition: seen, then_input, else_input })
}

/// A bias [.., m] lengthened to `keys` with −∞. `lead` are its dims but the last.
pub fn lengthened(cx: &mut Emit<'_>, x: TensorId, mut lead: Vec<DimPlan>, keys: &DimPlan) -> TensorId {
    let rank = cx.rank(x);
    let dtype = cx.dtype(x);
    let fill = cx.scalar(dtype, 0, f64::NEG_INFINITY);
    lead.push(keys.clone());
    let size = cx.extent(&ExtentPlan::Dims(lead));
    let start = Extent::Static(vec![0; rank]);
    let stride = Extent::Static(vec![1; rank]);
    cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Fill, fill: Some(fill) })
}

/// The sum of two biases.
pub fn summed(cx: &mut Emit<'_>, a: Option<TensorId>, b: Option<TensorId>) -> Option<TensorId> {
    match (a, b) {
        (Some(a), Some(b)) => Some(cx.elementwise(a, b, ElementWiseOp::Sum)),
        (a, b) => a.or(b),
    }
}

/// A share of attention that goes to no key: a further term of the softmax's denominator, exp of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// 0.
    Zero,
    /// What the input of this slot has for each head, `[h]`.
    OfHeads(usize),
}

/// How scores become probabilities.
#[derive(Clone, Copy, Debug)]
pub struct Scoring {
    /// Factor of the scores. Queries and keys are each multiplied by its root; queries alone when it is negative.
    pub scale: f64,
    /// c · tanh(score / c) when positive.
    pub softcap: f32,
    /// Dtype of the softmax; that of the scores when `None`.
    pub precision: Option<DType>,
    /// Queries that see nothing have probabilities of 0, not NaN.
    pub guard: bool,
    /// What goes to no key.
    pub sink: Option<Sink>,
}

impl Default for Scoring {
    fn default() -> Scoring {
        Scoring { scale: 1.0, softcap: 0.0, precision: None, guard: false, sink: None }
    }
}

/// Results of [`attend`], [n, h, s, t] but for `y` [n, h, s, d].
#[derive(Clone, Copy, Debug)]
pub struct Attended {
    /// Weighted values.
    pub y: TensorId,
    /// Products of queries and keys, scaled.
    pub raw: TensorId,
    /// After the soft cap.
    pub capped: TensorId,
    /// After the bias.
    pub biased: TensorId,
    /// Probabilities.
    pub probabilities: TensorId,
}

/// softmax(cap(q · kᵀ) + bias) · v, with heads as many in k and v as in q.
pub fn attend(cx: &mut Emit<'_>, [q, k, v]: [TensorId; 3], bias: Option<TensorId>, how: Scoring) -> Attended {
    let dtype = cx.dtype(q);
    let root = how.scale.abs().sqrt();
    let factors = if how.scale < 0.0 { [how.scale, 1.0] } else { [root, root] };
    let [a, b] = [(q, factors[0]), (k, factors[1])].map(|(x, factor)| {
        if factor == 1.0 {
            return x;
        }
        let factor = elementwise::scalar_like(cx, x, factor);
        cx.elementwise(x, factor, ElementWiseOp::Prod)
    });
    let raw = cx.one(Layer::MatrixMultiply { a, op_a: MatrixOp::None, b, op_b: MatrixOp::Transpose });
    let mut capped = raw;
    if how.softcap > 0.0 {
        let cap = elementwise::scalar_like(cx, raw, how.softcap.into());
        let part = cx.elementwise(raw, cap, ElementWiseOp::Div);
        let bent = cx.activation(part, ActivationKind::Tanh, 0.0, 0.0);
        capped = cx.elementwise(bent, cap, ElementWiseOp::Prod);
    }
    let biased = match bias {
        Some(bias) => cx.elementwise(capped, bias, ElementWiseOp::Sum),
        None => capped,
    };
    let scores = cx.cast(biased, how.precision.unwrap_or(dtype));
    let mut probabilities = match how.sink {
        Some(sink) => with_sink(cx, scores, sink),
        None => cx.one(Layer::SoftMax { x: scores, axis: 3 }),
    };
    if let Some(bias) = bias.filter(|_| how.guard) {
        probabilities = zero_where_blind(cx, probabilities, bias);
    }
    let probabilities = cx.cast(probabilities, dtype);
    let y = times(cx, probabilities, v);
    Attended { y, raw, capped, biased, probabilities }
}

/// Softmax over axis 3 with a further term in the denominator, in f32.
fn with_sink(cx: &mut Emit<'_>, scores: TensorId, sink: Sink) -> TensorId {
    let scores = cx.cast(scores, DType::F32);
    let sink = match sink {
        Sink::Zero => cx.scalar(DType::F32, 4, 0.0),
        Sink::OfHeads(slot) => {
            let x = cx.input(slot);
            let x = cx.cast(x, DType::F32);
            cx.reshape(x, vec![1, -1, 1, 1])
        }
    };
    let over_keys = |cx: &mut Emit<'_>, x: TensorId, op: ReduceOp| {
        cx.one(Layer::Reduce { x, op, axes: vec![3], keep_dims: true })
    };
    let best = over_keys(cx, scores, ReduceOp::Max);
    let best = cx.elementwise(best, sink, ElementWiseOp::Max);
    let [weights, rest] = [scores, sink].map(|x| {
        let x = cx.elementwise(x, best, ElementWiseOp::Sub);
        cx.unary(x, UnaryOp::Exp)
    });
    let sum = over_keys(cx, weights, ReduceOp::Sum);
    let sum = cx.elementwise(sum, rest, ElementWiseOp::Sum);
    cx.elementwise(weights, sum, ElementWiseOp::Div)
}

/// A plain matrix product.
pub fn times(cx: &mut Emit<'_>, a: TensorId, b: TensorId) -> TensorId {
    cx.one(Layer::MatrixMultiply { a, op_a: MatrixOp::None, b, op_b: MatrixOp::None })
}

/// Rows whose whole bias is −∞ become 0.
fn zero_where_blind(cx: &mut Emit<'_>, probabilities: TensorId, bias: TensorId) -> TensorId {
    let best = cx.one(Layer::Reduce { x: bias, op: ReduceOp::Max, axes: vec![3], keep_dims: true });
    let nothing = minus_infinity(cx, best);
    let sees = cx.elementwise(best, nothing, ElementWiseOp::Greater);
    let condition = cx.unary(sees, UnaryOp::Not);
    let then_input = elementwise::scalar_like(cx, probabilities, 0.0);
    cx.one(Layer::Select { condition, then_input, else_input: probabilities })
}

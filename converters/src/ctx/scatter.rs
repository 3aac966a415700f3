//! Scatters that combine with what is there: TensorRT's layer only replaces.
//!
//! Everything happens on matrices: data [n, f], updates [e, f], and for each update the row that it goes to. Sums of
//! floats over whole rows are a product with a one-hot matrix [n, e]; everything else selects among [n, e, f] and reduces.

use crate::{
    Emit,
    ctx::{extent::DimPlan, floats, iota},
};
use trtc_bundle::DType;
use trtc_ir::{Code, Dim, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode, MatrixOp, ReduceOp, UnaryOp},
};

/// How updates are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Sum.
    Add,
    /// Product.
    Mul,
    /// The larger one.
    Max,
    /// The smaller one.
    Min,
}

/// A combining scatter.
#[derive(Clone, Debug)]
pub struct CombinePlan {
    how: Combine,
    rows: DimPlan,
    /// Every element of a row of updates goes to the same row.
    whole_rows: bool,
    /// Both infinities are counted at once.
    packed: bool,
}

/// Elements that a selection may go over: 64 MiB of f32.
const MOST_SELECTED: i64 = 1 << 24;
/// Updates of which f32 counts every one.
const MOST_SUMMED: i64 = 1 << 24;
/// Updates of which f32 counts two kinds at once: see [`sum_by_product`].
const MOST_PACKED: i64 = 4095;

/// The attribute `reduction`; `None` for `none`.
///
/// # Errors
/// `E0201` for a word that the schema does not have.
pub fn combine(node: NodeView<'_>) -> Result<Option<Combine>, Refusal> {
    match node.str("reduction", "none") {
        "none" => Ok(None),
        "add" => Ok(Some(Combine::Add)),
        "mul" => Ok(Some(Combine::Mul)),
        "max" => Ok(Some(Combine::Max)),
        "min" => Ok(Some(Combine::Min)),
        other => Err(Refusal::new(Code::ATTRIBUTE, format!("`{other}` is no reduction")).slot("reduction")),
    }
}

/// Plans the combination of `updates` [e, f] into `rows` rows. `whole_rows` says that indices do not differ within a
/// row of updates.
///
/// # Errors
/// `E0304`: more elements than a selection over all pairs should have, or sizes that nobody can bound.
pub fn plan(
    node: NodeView<'_>,
    how: Combine,
    dtype: DType,
    rows: (&Dim, DimPlan),
    updates: (&Dim, &Dim),
    whole_rows: bool,
) -> Result<CombinePlan, Refusal> {
    let most = |dim: &Dim| node.symbols().interval(dim).max;
    let by_product = how == Combine::Add && whole_rows && dtype.is_float();
    let (size, limit) = match by_product {
        true => (most(updates.0), MOST_SUMMED),
        false => (most(&rows.0.mul(updates.0).mul(updates.1)), MOST_SELECTED),
    };
    if size.is_none_or(|size| size > limit) {
        let size = size.map_or("an unbounded number".to_owned(), |size| size.to_string());
        let why = format!(
            "TensorRT scatters without reduction; made of other layers it takes {size} > {limit} elements"
        );
        return Err(Refusal::new(Code::SHAPE, why)
            .slot("reduction")
            .help("give smaller ranges with --shape"));
    }
    let packed = size.is_some_and(|size| size <= MOST_PACKED);
    Ok(CombinePlan { how, rows: rows.1, whole_rows, packed })
}

/// `data` [n, f] combined with `updates` [e, f] at the rows `indices` [e, f] (or \[e\], for whole rows).
pub fn emit(
    cx: &mut Emit<'_>,
    plan: &CombinePlan,
    data: TensorId,
    indices: TensorId,
    updates: TensorId,
) -> TensorId {
    let dtype = cx.dtype(data);
    let indices = cx.cast(indices, DType::I64);
    if plan.how == Combine::Add && plan.whole_rows && dtype.is_float() {
        let updates = floats::widened(cx, updates);
        let sum = sum_by_product(cx, plan, indices, updates);
        let wide = floats::widened(cx, data);
        let sum = cx.elementwise(wide, sum, ElementWiseOp::Sum);
        return cx.cast(sum, dtype);
    }
    let (identity, reduce, op) = match plan.how {
        Combine::Add => (0.0, ReduceOp::Sum, ElementWiseOp::Sum),
        Combine::Mul => (1.0, ReduceOp::Prod, ElementWiseOp::Prod),
        Combine::Max => (f64::NEG_INFINITY, ReduceOp::Max, ElementWiseOp::Max),
        Combine::Min => (f64::INFINITY, ReduceOp::Min, ElementWiseOp::Min),
    };
    // Integers saturate where the scalar is made.
    let identity = cx.scalar(dtype, 3, identity);
    let places = iota::along(cx, &plan.rows, 0, 3);
    let axes = if cx.rank(indices) == 1 { vec![0, 2] } else { vec![0] };
    let indices = cx.one(Layer::Unsqueeze { x: indices, axes });
    let condition = cx.elementwise(places, indices, ElementWiseOp::Equal);
    let updates = cx.one(Layer::Unsqueeze { x: updates, axes: vec![0] });
    let chosen = cx.one(Layer::Select { condition, then_input: updates, else_input: identity });
    let x = if dtype.is_float() { floats::widened(cx, chosen) } else { chosen };
    let reduced = cx.one(Layer::Reduce { x, op: reduce, axes: vec![1], keep_dims: false });
    let data_wide = if dtype.is_float() { floats::widened(cx, data) } else { data };
    let y = cx.elementwise(data_wide, reduced, op);
    cx.cast(y, dtype)
}

/// Σ of the updates that go to each row: [n, f].
///
/// A product with zeros keeps infinities and NaN of other rows only while every factor is finite. So these are counted
/// apart: +∞ as 1, −∞ as 4096, NaN as both; their sums are exact in f32 for up to 4095 updates (for more, each by itself),
/// and put back afterwards.
fn sum_by_product(cx: &mut Emit<'_>, plan: &CombinePlan, indices: TensorId, updates: TensorId) -> TensorId {
    let scalar = |cx: &mut Emit<'_>, value: f64| cx.scalar(DType::F32, 2, value);
    let (zero, one, many) = (scalar(cx, 0.0), scalar(cx, 1.0), scalar(cx, 4096.0));
    let (high, low) = (scalar(cx, f64::INFINITY), scalar(cx, f64::NEG_INFINITY));
    let places = iota::along(cx, &plan.rows, 0, 2);
    let indices = cx.with_rank(indices, 2);
    let condition = cx.elementwise(places, indices, ElementWiseOp::Equal);
    let a = cx.one(Layer::Select { condition, then_input: one, else_input: zero });
    let product = |cx: &mut Emit<'_>, b: TensorId| {
        cx.one(Layer::MatrixMultiply { a, op_a: MatrixOp::None, b, op_b: MatrixOp::None })
    };
    let below = cx.elementwise(updates, high, ElementWiseOp::Less);
    let above = cx.elementwise(updates, low, ElementWiseOp::Greater);
    let finite = cx.elementwise(below, above, ElementWiseOp::And);
    let finite = cx.one(Layer::Select { condition: finite, then_input: updates, else_input: zero });
    let sum = product(cx, finite);
    let up = cx.one(Layer::Select { condition: below, then_input: zero, else_input: one });
    let down = cx.one(Layer::Select { condition: above, then_input: zero, else_input: many });
    let (ups, downs) = if plan.packed {
        let counted = cx.elementwise(up, down, ElementWiseOp::Sum);
        let counted = product(cx, counted);
        // floor(c / 4096) downs, and the rest of c ups.
        let downs = cx.elementwise(counted, many, ElementWiseOp::Div);
        let downs = cx.unary(downs, UnaryOp::Floor);
        let whole = cx.elementwise(downs, many, ElementWiseOp::Prod);
        (cx.elementwise(counted, whole, ElementWiseOp::Sub), downs)
    } else {
        (product(cx, up), product(cx, down))
    };
    let any = |cx: &mut Emit<'_>, count: TensorId, value: TensorId| {
        let condition = cx.elementwise(count, zero, ElementWiseOp::Greater);
        cx.one(Layer::Select { condition, then_input: value, else_input: zero })
    };
    let (ups, downs) = (any(cx, ups, high), any(cx, downs, low));
    let special = cx.elementwise(ups, downs, ElementWiseOp::Sum);
    cx.elementwise(sum, special, ElementWiseOp::Sum)
}

/// A tensor with its first dim kept and the others joined: [n, f].
pub fn matrix(cx: &mut Emit<'_>, x: TensorId) -> TensorId {
    use crate::ctx::reshape::{ReshapePlan, emit};
    match cx.rank(x) {
        1 => cx.reshape(x, vec![-1, 1]),
        2 => x,
        _ => emit(cx, x, &ReshapePlan::Dims { dims: vec![0, -1], placeholder: true }),
    }
}

/// Column 0 of [e, f]: \[e\].
pub fn first_column(cx: &mut Emit<'_>, data: TensorId) -> TensorId {
    let indices = cx.scalar(DType::I64, 0, 0.0);
    cx.one(Layer::Gather { data, indices, axis: 1, mode: GatherMode::Default, batch_dims: 0 })
}

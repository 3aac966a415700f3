//! Over known dims, at places that the run works out: the scales, the sizes of a common scale, or the region are inputs.
//!
//! The numbers are data, not shapes: each axis has a line of places in f32, computed as [`super::sampling`] computes them,
//! and from it indices and weights of what each place is made of, or, of unknown reach (antialias), a matrix of weights.

use super::{
    aim::given,
    gathered, masked, product_gate,
    sampling::{Mode, Transformation},
    sum_of, weighted, writable,
};
use crate::{Emit, ctx::floats};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, Interpolation, ReduceOp, ResizeRound, SampleMode, UnaryOp},
};

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct MeasuredPlan {
    mode: Mode,
    axes: Vec<Axis>,
    /// Number of axes that the node names.
    named: usize,
    /// Lengths of the named axes, where one scale serves them all; whether the larger ratio is taken.
    common: Option<(Vec<i64>, bool)>,
    /// Value outside of the region.
    outside: Option<f32>,
}

/// An axis that is sampled.
#[derive(Debug)]
struct Axis {
    axis: usize,
    from: i64,
    to: i64,
    /// Its place among the axes that the node names.
    place: usize,
    /// Scale, where it is known.
    scale: Option<f32>,
}

/// What is known of the axes.
pub struct Axes<'a> {
    pub node: NodeView<'a>,
    pub all: &'a [usize],
    pub changed: &'a [usize],
    pub sizes: &'a [(i64, i64)],
    pub scales: &'a [Option<f32>],
}

/// Decides how the axes are sampled.
pub fn plan(mode: &Mode, at: Axes<'_>, dtype: DType, target: &Target) -> Result<MeasuredPlan, Refusal> {
    let node = at.node;
    let one_scale = !given(node, 2) && at.changed.iter().any(|&axis| at.scales[axis].is_none());
    let slot = if given(node, 2) { 2 } else { 3 };
    let name = if slot == 2 { "scales" } else { "sizes" };
    let view = node.input(slot);
    let ready = view.is_some_and(|view| {
        view.shape() == Some(&[trtc_ir::Dim::Known(at.all.len() as i64)])
            && view.dtype().is_some_and(|dtype| matches!(dtype, DType::F32 | DType::I64))
    });
    if !ready {
        return Err(Refusal::new(Code::NOT_CONSTANT, "must be a constant").slot(name));
    }
    writable(
        at.sizes.iter().map(|&(from, to)| (from.saturating_add(2 * padding(mode, from, to)), to)),
        mode,
    )?;
    if mode.antialias {
        product_gate(dtype, target)?;
    }
    let mut axes = Vec::new();
    for (&axis, &(from, to)) in at.changed.iter().zip(at.sizes) {
        let place = at.all.iter().position(|&named| named == axis);
        let place = place.ok_or_else(|| Refusal::new(Code::INVALID, format!("axis {axis} is not named")))?;
        axes.push(Axis { axis, from, to, place, scale: at.scales[axis] });
    }
    let x = node.input(0).and_then(|x| x.shape()).unwrap_or_default();
    let lengths: Option<Vec<i64>> = at.all.iter().map(|&axis| x.get(axis)?.known()).collect();
    let common = match (one_scale, lengths) {
        (false, _) => None,
        (true, Some(lengths)) => {
            Some((lengths, node.str("keep_aspect_ratio_policy", "stretch") == "not_smaller"))
        }
        (true, None) => {
            return Err(
                Refusal::new(Code::DIM_UNKNOWN, "the common scale follows from dims of the run").slot(name)
            );
        }
    };
    let crop = mode.transformation == Transformation::Crop;
    let outside = crop.then(|| node.float("extrapolation_value", 0.0));
    Ok(MeasuredPlan { mode: mode.clone(), axes, named: at.all.len(), common, outside })
}

/// Places before and after the source that the kernel may reach. A result of `to` places means a scale of at least
/// (to − ½) / from, which bounds how far it is stretched.
fn padding(mode: &Mode, from: i64, to: i64) -> i64 {
    if mode.exclude_outside || !mode.antialias {
        return 0;
    }
    (mode.support() * (from as f64 / (to as f64 - 0.5)).max(1.0)).ceil() as i64 + 2
}

/// Emits the layers.
pub fn emit(cx: &mut Emit<'_>, x: TensorId, plan: &MeasuredPlan) -> TensorId {
    let (dtype, nearest) = (cx.dtype(x), plan.mode.nearest);
    let mut y = if nearest.is_some() { x } else { floats::widened(cx, x) };
    let common = plan.common.as_ref().map(|(lengths, larger)| common_scale(cx, lengths, *larger));
    let mut masks = Vec::new();
    for axis in &plan.axes {
        let scale = match (axis.scale, common) {
            (Some(scale), _) => floats::constant(cx, DType::F32, vec![1], &[scale.into()]),
            (None, Some(scale)) => scale,
            (None, None) => element(cx, 2, axis.place),
        };
        let at = places(cx, plan, axis, scale);
        if plan.outside.is_some() {
            masks.push((axis.axis, inside(cx, at, axis.from)));
        }
        y = match nearest {
            Some(round) => {
                let indices = nearest_index(cx, at, round, axis.from);
                gathered(cx, y, axis.axis, indices)
            }
            None if !plan.mode.antialias => {
                let terms = match plan.mode.interpolation {
                    Interpolation::Cubic => cubic_terms(cx, &plan.mode, axis, at),
                    _ => linear_terms(cx, axis, at),
                };
                sum_of(cx, y, axis.axis, &terms)
            }
            None => {
                let (weights, pad) = weights(cx, &plan.mode, axis, at, scale);
                let padded = padded(cx, y, axis.axis, pad);
                weighted(cx, padded, axis.axis, weights)
            }
        };
    }
    if let Some(value) = plan.outside {
        y = masked(cx, y, &masks, value);
    }
    cx.cast(y, dtype)
}

/// Element of a float input of rank 1, as f32 \[1\].
fn element(cx: &mut Emit<'_>, slot: usize, index: usize) -> TensorId {
    let x = cx.input(slot);
    let fixed = |v: i64| Extent::Static(vec![v]);
    let (start, size, stride) = (fixed(index as i64), fixed(1), fixed(1));
    let one = cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None });
    cx.cast(one, DType::F32)
}

/// The smallest or largest ratio of a size to its dim.
fn common_scale(cx: &mut Emit<'_>, lengths: &[i64], larger: bool) -> TensorId {
    let sizes = cx.input(3);
    let sizes = cx.cast(sizes, DType::F32);
    let lengths: Vec<f64> = lengths.iter().map(|&length| length as f64).collect();
    let lengths = floats::constant(cx, DType::F32, vec![lengths.len() as i64], &lengths);
    let ratios = cx.elementwise(sizes, lengths, ElementWiseOp::Div);
    let op = if larger { ReduceOp::Max } else { ReduceOp::Min };
    cx.one(Layer::Reduce { x: ratios, op, axes: vec![0], keep_dims: true })
}

/// Where each place of the result lies in the source: f32 \[to\].
fn places(cx: &mut Emit<'_>, plan: &MeasuredPlan, axis: &Axis, scale: TensorId) -> TensorId {
    let (from, to) = (axis.from as f64, axis.to as f64);
    let line = |cx: &mut Emit<'_>, f: &dyn Fn(f64) -> f64| {
        let values: Vec<f64> = (0..axis.to).map(|k| f(k as f64)).collect();
        floats::constant(cx, DType::F32, vec![axis.to], &values)
    };
    let number = |cx: &mut Emit<'_>, v: f64| cx.scalar(DType::F32, 1, v);
    let half_pixel = |cx: &mut Emit<'_>| {
        let x = line(cx, &|k| k + 0.5);
        let x = cx.elementwise(x, scale, ElementWiseOp::Div);
        let half = number(cx, 0.5);
        cx.elementwise(x, half, ElementWiseOp::Sub)
    };
    match plan.mode.transformation {
        Transformation::PytorchHalfPixel if axis.to <= 1 => line(cx, &|_| 0.0),
        Transformation::HalfPixel | Transformation::PytorchHalfPixel => half_pixel(cx),
        Transformation::HalfPixelSymmetric => {
            // from / 2 · (1 − to / (scale · from))
            let all = number(cx, from);
            let exact = cx.elementwise(scale, all, ElementWiseOp::Prod);
            let whole = number(cx, to);
            let adjustment = cx.elementwise(whole, exact, ElementWiseOp::Div);
            let one = number(cx, 1.0);
            let left = cx.elementwise(one, adjustment, ElementWiseOp::Sub);
            let centre = number(cx, from / 2.0);
            let moved = cx.elementwise(centre, left, ElementWiseOp::Prod);
            let x = half_pixel(cx);
            cx.elementwise(x, moved, ElementWiseOp::Sum)
        }
        Transformation::AlignCorners if axis.to <= 1 => line(cx, &|_| 0.0),
        Transformation::AlignCorners => line(cx, &|k| ((k * (from - 1.0)) as f32 / (to - 1.0) as f32).into()),
        Transformation::Asymmetric => {
            let x = line(cx, &|k| k);
            cx.elementwise(x, scale, ElementWiseOp::Div)
        }
        Transformation::TfHalfPixelForNn => {
            let x = line(cx, &|k| k + 0.5);
            cx.elementwise(x, scale, ElementWiseOp::Div)
        }
        Transformation::Crop => {
            let (start, end) = (element(cx, 1, axis.place), element(cx, 1, plan.named + axis.place));
            let last = number(cx, from - 1.0);
            if axis.to <= 1 {
                let sum = cx.elementwise(start, end, ElementWiseOp::Sum);
                let half = number(cx, 0.5);
                let middle = cx.elementwise(sum, half, ElementWiseOp::Prod);
                return cx.elementwise(middle, last, ElementWiseOp::Prod);
            }
            // start · (from − 1) + k · (end − start) · (from − 1) / (to − 1), in this order.
            let first = cx.elementwise(start, last, ElementWiseOp::Prod);
            let width = cx.elementwise(end, start, ElementWiseOp::Sub);
            let x = line(cx, &|k| k);
            let x = cx.elementwise(x, width, ElementWiseOp::Prod);
            let x = cx.elementwise(x, last, ElementWiseOp::Prod);
            let steps = number(cx, to - 1.0);
            let x = cx.elementwise(x, steps, ElementWiseOp::Div);
            cx.elementwise(first, x, ElementWiseOp::Sum)
        }
    }
}

/// Whether a place lies inside the source: bool \[to\].
fn inside(cx: &mut Emit<'_>, at: TensorId, from: i64) -> TensorId {
    let (zero, last) = (cx.scalar(DType::F32, 1, 0.0), cx.scalar(DType::F32, 1, (from - 1) as f64));
    let below = cx.elementwise(at, zero, ElementWiseOp::Less);
    let above = cx.elementwise(at, last, ElementWiseOp::Greater);
    let outside = cx.elementwise(below, above, ElementWiseOp::Or);
    cx.unary(outside, UnaryOp::Not)
}

/// Rounded and held inside: i64 \[to\].
fn nearest_index(cx: &mut Emit<'_>, at: TensorId, round: ResizeRound, from: i64) -> TensorId {
    let floor = cx.unary(at, UnaryOp::Floor);
    let rounded = match round {
        ResizeRound::Floor => floor,
        ResizeRound::Ceil => cx.unary(at, UnaryOp::Ceil),
        // The distance to the floor is exact, so the tie is.
        _ => {
            let part = cx.elementwise(at, floor, ElementWiseOp::Sub);
            let half = cx.scalar(DType::F32, 1, 0.5);
            let one = cx.scalar(DType::F32, 1, 1.0);
            let next = cx.elementwise(floor, one, ElementWiseOp::Sum);
            let (a, b, then_input, else_input) = match round {
                ResizeRound::HalfDown => (part, half, next, floor),
                _ => (half, part, floor, next),
            };
            let condition = cx.elementwise(a, b, ElementWiseOp::Greater);
            cx.one(Layer::Select { condition, then_input, else_input })
        }
    };
    let held = clamped(cx, rounded, from);
    cx.cast(held, DType::I64)
}

fn clamped(cx: &mut Emit<'_>, x: TensorId, from: i64) -> TensorId {
    let (zero, last) = (cx.scalar(DType::F32, 1, 0.0), cx.scalar(DType::F32, 1, (from - 1) as f64));
    let x = cx.elementwise(x, zero, ElementWiseOp::Max);
    cx.elementwise(x, last, ElementWiseOp::Min)
}

/// The lower and the higher neighbour, with their weights.
fn linear_terms(cx: &mut Emit<'_>, axis: &Axis, at: TensorId) -> Vec<(TensorId, TensorId)> {
    let at = clamped(cx, at, axis.from);
    let low = cx.unary(at, UnaryOp::Floor);
    let one = cx.scalar(DType::F32, 1, 1.0);
    let high = cx.elementwise(low, one, ElementWiseOp::Sum);
    let high = clamped(cx, high, axis.from);
    let part = cx.elementwise(at, low, ElementWiseOp::Sub);
    let rest = cx.elementwise(one, part, ElementWiseOp::Sub);
    [(low, rest), (high, part)].map(|(index, weight)| (cx.cast(index, DType::I64), weight)).to_vec()
}

/// Four neighbours with their weights.
fn cubic_terms(cx: &mut Emit<'_>, mode: &Mode, axis: &Axis, at: TensorId) -> Vec<(TensorId, TensorId)> {
    let base = cx.unary(at, UnaryOp::Floor);
    let part = cx.elementwise(at, base, ElementWiseOp::Sub);
    let mut terms = Vec::new();
    let mut total: Option<TensorId> = None;
    for k in [-1.0, 0.0, 1.0, 2.0] {
        let step = cx.scalar(DType::F32, 1, k);
        let index = cx.elementwise(base, step, ElementWiseOp::Sum);
        let distance = cx.elementwise(part, step, ElementWiseOp::Sub);
        let distance = cx.unary(distance, UnaryOp::Abs);
        let mut weight = cubic(cx, distance, mode.cubic_coeff.into());
        if mode.exclude_outside {
            let condition = inside(cx, index, axis.from);
            let zero = cx.scalar(DType::F32, 1, 0.0);
            weight = cx.one(Layer::Select { condition, then_input: weight, else_input: zero });
            total = Some(total.map_or(weight, |total| cx.elementwise(total, weight, ElementWiseOp::Sum)));
        }
        let index = clamped(cx, index, axis.from);
        terms.push((cx.cast(index, DType::I64), weight));
    }
    if let Some(total) = total {
        terms.iter_mut().for_each(|term| term.1 = cx.elementwise(term.1, total, ElementWiseOp::Div));
    }
    terms
}

/// Weights f32 [to, from + 2 · padding] of a kernel that is stretched, and the padding.
fn weights(cx: &mut Emit<'_>, mode: &Mode, axis: &Axis, at: TensorId, scale: TensorId) -> (TensorId, i64) {
    let pad = padding(mode, axis.from, axis.to);
    let columns: Vec<f64> = (-pad..axis.from + pad).map(|k| k as f64).collect();
    let columns = floats::constant(cx, DType::F32, vec![1, columns.len() as i64], &columns);
    let rows = cx.reshape(at, vec![axis.to, 1]);
    let distance = cx.elementwise(columns, rows, ElementWiseOp::Sub);
    let distance = cx.unary(distance, UnaryOp::Abs);
    let one = cx.scalar(DType::F32, 2, 1.0);
    let scale = cx.with_rank(scale, 2);
    let squeeze = cx.elementwise(scale, one, ElementWiseOp::Min);
    let distance = cx.elementwise(distance, squeeze, ElementWiseOp::Prod);
    let weights = match mode.interpolation {
        Interpolation::Cubic => cubic(cx, distance, mode.cubic_coeff.into()),
        _ => {
            let left = cx.elementwise(one, distance, ElementWiseOp::Sub);
            let zero = cx.scalar(DType::F32, 2, 0.0);
            cx.elementwise(left, zero, ElementWiseOp::Max)
        }
    };
    let total = cx.one(Layer::Reduce { x: weights, op: ReduceOp::Sum, axes: vec![1], keep_dims: true });
    (cx.elementwise(weights, total, ElementWiseOp::Div), pad)
}

/// The cubic kernel at distances d ≥ 0.
fn cubic(cx: &mut Emit<'_>, d: TensorId, a: f64) -> TensorId {
    let rank = cx.rank(d);
    let number = |cx: &mut Emit<'_>, v: f64| cx.scalar(DType::F32, rank, v);
    // Σ cₖ dᵏ, by Horner.
    let polynomial = |cx: &mut Emit<'_>, [c3, c2, c1, c0]: [f64; 4]| {
        let mut sum = number(cx, c3);
        for c in [c2, c1, c0] {
            let product = cx.elementwise(sum, d, ElementWiseOp::Prod);
            let c = number(cx, c);
            sum = cx.elementwise(product, c, ElementWiseOp::Sum);
        }
        sum
    };
    let near = polynomial(cx, [a + 2.0, -(a + 3.0), 0.0, 1.0]);
    let far = polynomial(cx, [a, -5.0 * a, 8.0 * a, -4.0 * a]);
    let (one, two, zero) = (number(cx, 1.0), number(cx, 2.0), number(cx, 0.0));
    let beyond = cx.elementwise(d, two, ElementWiseOp::Less);
    let far = cx.one(Layer::Select { condition: beyond, then_input: far, else_input: zero });
    let condition = cx.elementwise(d, one, ElementWiseOp::Less);
    cx.one(Layer::Select { condition, then_input: near, else_input: far })
}

/// The tensor with its first and last places repeated along an axis.
fn padded(cx: &mut Emit<'_>, x: TensorId, axis: usize, pad: i64) -> TensorId {
    if pad == 0 {
        return x;
    }
    let from = cx.dims(x).get(axis).copied().unwrap_or(1);
    let line: Vec<i64> = (-pad..from + pad).map(|k| k.clamp(0, from - 1)).collect();
    let indices = cx.i64s(&line);
    gathered(cx, x, axis, indices)
}

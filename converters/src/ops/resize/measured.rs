//! At places that the run works out: the scales, the sizes of a common scale, the region are inputs, or dims are dynamic
//! and TensorRT's layer does not sample so.
//!
//! The numbers are data, not shapes: each axis has a line of places in f32, computed as [`super::sampling`] computes them,
//! and from it indices and weights of what each place is made of, or, of unknown reach (antialias), a matrix of weights.

use super::{
    aim::given,
    along::{gathered, masked, sum_of, weighted},
    product_gate,
    sampling::{Mode, Transformation},
    writable,
};
use crate::{
    Emit,
    ctx::{
        extent::{DimPlan, SizeOp},
        floats, iota,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Dim, NodeView, Refusal};
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
    from: DimPlan,
    to: DimPlan,
    /// Its place among the axes that the node names.
    place: usize,
    scale: Scale,
    /// Region, where it is known.
    region: Option<(f32, f32)>,
}

/// Where the scale of an axis comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Known(f32),
    /// The element of the scales.
    Element,
    /// The one scale of all axes.
    Common,
    /// The dims.
    Ratio,
}

/// What is known of the axes.
pub struct Axes<'a> {
    pub node: NodeView<'a>,
    /// The axes that the node names.
    pub all: &'a [usize],
    /// Those that are sampled, with their dims.
    pub changed: &'a [(usize, DimPlan, DimPlan)],
    pub scales: &'a [Option<f32>],
    /// Whether one scale serves all axes.
    pub common: bool,
    /// Regions by axis; `None` where they are an input.
    pub regions: Option<&'a [(f32, f32)]>,
}

/// Decides how the axes are sampled.
pub fn plan(mode: &Mode, at: Axes<'_>, dtype: DType, target: &Target) -> Result<MeasuredPlan, Refusal> {
    let node = at.node;
    let scale = |axis: usize| match (at.scales[axis], given(node, 2)) {
        (Some(scale), _) => Scale::Known(scale),
        (None, true) => Scale::Element,
        (None, false) if at.common => Scale::Common,
        (None, false) => Scale::Ratio,
    };
    let mut axes = Vec::new();
    for (axis, from, to) in at.changed {
        let place = at.all.iter().position(|named| named == axis);
        let place = place.ok_or_else(|| Refusal::new(Code::INVALID, format!("axis {axis} is not named")))?;
        if let (Some(from), Some(to)) = (from.fixed(), to.fixed()) {
            let pad = padding(mode, &DimPlan::Fixed(from), &DimPlan::Fixed(to)).fixed().unwrap_or(0);
            writable([(from.saturating_add(2 * pad), to)].into_iter(), mode)?;
        }
        let region = at.regions.map(|list| list.get(*axis).copied().unwrap_or((0.0, 1.0)));
        let (from, to) = (from.clone(), to.clone());
        axes.push(Axis { axis: *axis, from, to, place, scale: scale(*axis), region });
    }
    let (slot, name, dtypes) = match given(node, 2) {
        true => (2, "scales", [DType::F32; 2]),
        false => (3, "sizes", [DType::I64, DType::I32]),
    };
    if axes.iter().any(|axis| matches!(axis.scale, Scale::Element | Scale::Common)) {
        let ready = node.input(slot).is_some_and(|view| {
            view.shape() == Some(&[Dim::Known(at.all.len() as i64)])
                && view.dtype().is_some_and(|dtype| dtypes.contains(&dtype))
        });
        if !ready {
            return Err(Refusal::new(Code::NOT_CONSTANT, "must be a constant").slot(name));
        }
    }
    if mode.antialias {
        product_gate(dtype, target)?;
    }
    let x = node.input(0).and_then(|x| x.shape()).unwrap_or_default();
    let lengths: Option<Vec<i64>> = at.all.iter().map(|&axis| x.get(axis)?.known()).collect();
    let common = match (axes.iter().any(|axis| axis.scale == Scale::Common), lengths) {
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
/// (to − ½) / from, which bounds how far it is stretched: to below twice from / to.
fn padding(mode: &Mode, from: &DimPlan, to: &DimPlan) -> DimPlan {
    if mode.exclude_outside || !mode.antialias {
        return DimPlan::Fixed(0);
    }
    if let (Some(from), Some(to)) = (from.fixed(), to.fixed()) {
        let stretch = (from as f64 / (to as f64 - 0.5)).max(1.0);
        return DimPlan::Fixed((mode.support() * stretch).ceil() as i64 + 2);
    }
    let above = from.clone().plus(to.clone()).plus(DimPlan::Fixed(-1));
    let ratio = DimPlan::Op(SizeOp::FloorDiv, Box::new(above), Box::new(to.clone()));
    ratio.times(DimPlan::Fixed(2 * mode.support() as i64)).plus(DimPlan::Fixed(2))
}

/// Emits the layers.
pub fn emit(cx: &mut Emit<'_>, x: TensorId, plan: &MeasuredPlan) -> TensorId {
    let (dtype, nearest) = (cx.dtype(x), plan.mode.nearest);
    let mut y = if nearest.is_some() { x } else { floats::widened(cx, x) };
    let common = plan.common.as_ref().map(|(lengths, larger)| common_scale(cx, lengths, *larger));
    let mut masks = Vec::new();
    for axis in &plan.axes {
        let scale = match (axis.scale, common) {
            (Scale::Known(scale), _) => cx.scalar(DType::F32, 1, scale.into()),
            (Scale::Common, Some(scale)) => scale,
            (Scale::Ratio, _) => {
                let (to, from) = (size(cx, &axis.to, 0), size(cx, &axis.from, 0));
                cx.elementwise(to, from, ElementWiseOp::Div)
            }
            _ => element(cx, 2, axis.place),
        };
        let at = places(cx, plan, axis, scale);
        if plan.outside.is_some() {
            masks.push((axis.axis, inside(cx, at, &axis.from)));
        }
        y = match nearest {
            Some(round) => {
                let indices = nearest_index(cx, at, round, &axis.from);
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
                let padded = padded(cx, y, axis, &pad);
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

/// A dim, and `more`, in f32 \[1\].
fn size(cx: &mut Emit<'_>, dim: &DimPlan, more: i64) -> TensorId {
    if let Some(dim) = dim.fixed() {
        return cx.scalar(DType::F32, 1, (dim + more) as f64);
    }
    let dim = cx.dim(dim);
    let dim = cx.cast(dim, DType::F32);
    let more = cx.scalar(DType::F32, 1, more as f64);
    cx.elementwise(dim, more, ElementWiseOp::Sum)
}

/// k + `more` for each place k of a line of `dim`: f32 \[dim\].
fn line(cx: &mut Emit<'_>, dim: &DimPlan, more: f64) -> TensorId {
    if let Some(dim) = dim.fixed() {
        let values: Vec<f64> = (0..dim).map(|k| k as f64 + more).collect();
        return floats::constant(cx, DType::F32, vec![dim], &values);
    }
    let places = iota::along(cx, dim, 0, 1);
    let places = cx.cast(places, DType::F32);
    let more = cx.scalar(DType::F32, 1, more);
    cx.elementwise(places, more, ElementWiseOp::Sum)
}

/// `several` where the result has more than one place, else `single`.
fn unless_single(
    cx: &mut Emit<'_>,
    axis: &Axis,
    several: impl FnOnce(&mut Emit<'_>) -> TensorId,
    single: impl FnOnce(&mut Emit<'_>) -> TensorId,
) -> TensorId {
    match axis.to.fixed() {
        Some(1) => single(cx),
        Some(_) => several(cx),
        None => {
            let (then_input, else_input) = (several(cx), single(cx));
            let (to, one) = (size(cx, &axis.to, 0), cx.scalar(DType::F32, 1, 1.0));
            let condition = cx.elementwise(to, one, ElementWiseOp::Greater);
            cx.one(Layer::Select { condition, then_input, else_input })
        }
    }
}

/// Where each place of the result lies in the source: f32 \[to\].
fn places(cx: &mut Emit<'_>, plan: &MeasuredPlan, axis: &Axis, scale: TensorId) -> TensorId {
    let number = |cx: &mut Emit<'_>, v: f64| cx.scalar(DType::F32, 1, v);
    let zeros = |cx: &mut Emit<'_>| {
        let (line, zero) = (line(cx, &axis.to, 0.0), number(cx, 0.0));
        cx.elementwise(line, zero, ElementWiseOp::Prod)
    };
    let half_pixel = |cx: &mut Emit<'_>| {
        let x = line(cx, &axis.to, 0.5);
        let x = cx.elementwise(x, scale, ElementWiseOp::Div);
        let half = number(cx, 0.5);
        cx.elementwise(x, half, ElementWiseOp::Sub)
    };
    // to − 1, which divides only where it is not 0.
    let steps = |cx: &mut Emit<'_>| {
        let (steps, one) = (size(cx, &axis.to, -1), number(cx, 1.0));
        cx.elementwise(steps, one, ElementWiseOp::Max)
    };
    match plan.mode.transformation {
        Transformation::HalfPixel => half_pixel(cx),
        Transformation::PytorchHalfPixel => unless_single(cx, axis, half_pixel, zeros),
        Transformation::HalfPixelSymmetric => {
            // from / 2 · (1 − to / (scale · from))
            let (all, whole) = (size(cx, &axis.from, 0), size(cx, &axis.to, 0));
            let exact = cx.elementwise(scale, all, ElementWiseOp::Prod);
            let adjustment = cx.elementwise(whole, exact, ElementWiseOp::Div);
            let (one, half) = (number(cx, 1.0), number(cx, 0.5));
            let left = cx.elementwise(one, adjustment, ElementWiseOp::Sub);
            let centre = cx.elementwise(all, half, ElementWiseOp::Prod);
            let moved = cx.elementwise(centre, left, ElementWiseOp::Prod);
            let x = half_pixel(cx);
            cx.elementwise(x, moved, ElementWiseOp::Sum)
        }
        Transformation::AlignCorners => {
            let several = |cx: &mut Emit<'_>| {
                let (x, last, steps) = (line(cx, &axis.to, 0.0), size(cx, &axis.from, -1), steps(cx));
                let x = cx.elementwise(x, last, ElementWiseOp::Prod);
                cx.elementwise(x, steps, ElementWiseOp::Div)
            };
            unless_single(cx, axis, several, zeros)
        }
        Transformation::Asymmetric => {
            let x = line(cx, &axis.to, 0.0);
            cx.elementwise(x, scale, ElementWiseOp::Div)
        }
        Transformation::TfHalfPixelForNn => {
            let x = line(cx, &axis.to, 0.5);
            cx.elementwise(x, scale, ElementWiseOp::Div)
        }
        Transformation::Crop => {
            let (start, end) = match axis.region {
                Some((start, end)) => (number(cx, start.into()), number(cx, end.into())),
                None => (element(cx, 1, axis.place), element(cx, 1, plan.named + axis.place)),
            };
            let last = size(cx, &axis.from, -1);
            // start · (from − 1) + k · (end − start) · (from − 1) / (to − 1), in this order.
            let several = |cx: &mut Emit<'_>| {
                let first = cx.elementwise(start, last, ElementWiseOp::Prod);
                let width = cx.elementwise(end, start, ElementWiseOp::Sub);
                let x = line(cx, &axis.to, 0.0);
                let x = cx.elementwise(x, width, ElementWiseOp::Prod);
                let x = cx.elementwise(x, last, ElementWiseOp::Prod);
                let steps = steps(cx);
                let x = cx.elementwise(x, steps, ElementWiseOp::Div);
                cx.elementwise(first, x, ElementWiseOp::Sum)
            };
            let single = |cx: &mut Emit<'_>| {
                let sum = cx.elementwise(start, end, ElementWiseOp::Sum);
                let half = number(cx, 0.5);
                let middle = cx.elementwise(sum, half, ElementWiseOp::Prod);
                let middle = cx.elementwise(middle, last, ElementWiseOp::Prod);
                let zeros = zeros(cx);
                cx.elementwise(middle, zeros, ElementWiseOp::Sum)
            };
            unless_single(cx, axis, several, single)
        }
    }
}

/// Whether a place lies inside the source: bool \[to\].
fn inside(cx: &mut Emit<'_>, at: TensorId, from: &DimPlan) -> TensorId {
    let (zero, last) = (cx.scalar(DType::F32, 1, 0.0), size(cx, from, -1));
    let below = cx.elementwise(at, zero, ElementWiseOp::Less);
    let above = cx.elementwise(at, last, ElementWiseOp::Greater);
    let outside = cx.elementwise(below, above, ElementWiseOp::Or);
    cx.unary(outside, UnaryOp::Not)
}

/// Rounded and held inside: i64 \[to\].
fn nearest_index(cx: &mut Emit<'_>, at: TensorId, round: ResizeRound, from: &DimPlan) -> TensorId {
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

fn clamped(cx: &mut Emit<'_>, x: TensorId, from: &DimPlan) -> TensorId {
    let (zero, last) = (cx.scalar(DType::F32, 1, 0.0), size(cx, from, -1));
    let x = cx.elementwise(x, zero, ElementWiseOp::Max);
    cx.elementwise(x, last, ElementWiseOp::Min)
}

/// The lower and the higher neighbour, with their weights.
fn linear_terms(cx: &mut Emit<'_>, axis: &Axis, at: TensorId) -> Vec<(TensorId, TensorId)> {
    let at = clamped(cx, at, &axis.from);
    let low = cx.unary(at, UnaryOp::Floor);
    let one = cx.scalar(DType::F32, 1, 1.0);
    let high = cx.elementwise(low, one, ElementWiseOp::Sum);
    let high = clamped(cx, high, &axis.from);
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
            let condition = inside(cx, index, &axis.from);
            let zero = cx.scalar(DType::F32, 1, 0.0);
            weight = cx.one(Layer::Select { condition, then_input: weight, else_input: zero });
            total = Some(total.map_or(weight, |total| cx.elementwise(total, weight, ElementWiseOp::Sum)));
        }
        let index = clamped(cx, index, &axis.from);
        terms.push((cx.cast(index, DType::I64), weight));
    }
    if let Some(total) = total {
        terms.iter_mut().for_each(|term| term.1 = cx.elementwise(term.1, total, ElementWiseOp::Div));
    }
    terms
}

/// Weights f32 [to, from + 2 · padding] of a kernel that is stretched, and the padding.
fn weights(
    cx: &mut Emit<'_>,
    mode: &Mode,
    axis: &Axis,
    at: TensorId,
    scale: TensorId,
) -> (TensorId, DimPlan) {
    let pad = padding(mode, &axis.from, &axis.to);
    let columns = padded_line(cx, axis, &pad);
    let columns = cx.one(Layer::Unsqueeze { x: columns, axes: vec![0] });
    let rows = cx.one(Layer::Unsqueeze { x: at, axes: vec![1] });
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

/// −padding … from − 1 + padding: f32.
fn padded_line(cx: &mut Emit<'_>, axis: &Axis, pad: &DimPlan) -> TensorId {
    let whole = axis.from.clone().plus(pad.clone().times(DimPlan::Fixed(2)));
    if let (Some(_), Some(pad)) = (whole.fixed(), pad.fixed()) {
        return line(cx, &whole, -pad as f64);
    }
    let places = line(cx, &whole, 0.0);
    let before = size(cx, pad, 0);
    cx.elementwise(places, before, ElementWiseOp::Sub)
}

/// The tensor with its first and last places repeated along an axis.
fn padded(cx: &mut Emit<'_>, x: TensorId, axis: &Axis, pad: &DimPlan) -> TensorId {
    if pad.fixed() == Some(0) {
        return x;
    }
    let places = padded_line(cx, axis, pad);
    let places = clamped(cx, places, &axis.from);
    let indices = cx.cast(places, DType::I64);
    gathered(cx, x, axis.axis, indices)
}

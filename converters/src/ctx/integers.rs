//! Exact sums of products of small integers. TensorRT multiplies no matrices of integers, but f32 is exact for whole numbers
//! up to 2²⁴: as long as no sum of magnitudes passes that, products of 8-bit numbers are exact in f32 in any order. Longer sums
//! are made in parts, which are added up in i32; where there would be too many, factors are halved into their upper and lower 4
//! bits first (v = 16·high + low), so that a part can be 16 or 256 times as long.

use crate::{
    Emit,
    ctx::{
        check::{self, Operand},
        elementwise, quantize,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Dim, NodeView, Refusal, Tensor};
use trtc_network::{
    TensorId,
    layer::{ElementWiseOp, UnaryOp},
};

/// Dtypes of the factors.
pub const BYTES: &[DType] = &[DType::U8, DType::I8];

/// Largest magnitude of a sum.
const LIMIT: f64 = 16_777_216.0;

/// One factor: an input of 8 bits and its zero point.
#[derive(Debug)]
pub struct Factor {
    slot: usize,
    /// Slot of the zero point, and the dims in which it broadcasts; `None` for no zero point.
    zero: Option<(usize, Vec<i64>)>,
    /// Zero points as numbers, where they are constant; empty for none.
    zeros: Option<Vec<i64>>,
    /// Largest magnitude of value − zero point.
    magnitude: f64,
}

impl Factor {
    /// A factor that is no input, of at most this magnitude.
    pub fn of_magnitude(magnitude: f64) -> Factor {
        Factor { slot: usize::MAX, zero: None, zeros: None, magnitude }
    }
}

/// How zero points of rank 1 lie over their operand.
#[derive(Clone, Copy, Debug)]
pub enum Along {
    /// Along this axis from the start.
    Axis(usize),
    /// Along this axis from the end.
    FromEnd(usize),
    /// Of a stack of matrices `[d, k, n]`: one for each matrix `[d]`, or for each of its columns `[d, n]`.
    Stack,
}

/// A factor in `slot` with its zero point in `zero`.
///
/// # Errors
/// A dtype, rank or shape that an engine cannot hold.
pub fn factor<'a>(
    node: NodeView<'a>,
    (slot, name): (usize, &str),
    (zero, zero_name): (usize, &str),
    along: Along,
    target: &Target,
) -> Result<(Factor, Operand<'a>), Refusal> {
    let x = elementwise::gate(node, slot, name, BYTES, target)?;
    check::never_empty(&x, name)?;
    let range = if x.dtype == DType::U8 { (0, 255) } else { (-128, 127) };
    let mut factor = Factor { slot, zero: None, zeros: Some(Vec::new()), magnitude: 0.0 };
    if let Some(view) = node.input(zero) {
        let z = elementwise::gate(node, zero, zero_name, &[x.dtype], target)?;
        factor.zeros = view.constant().and_then(Tensor::to_i64s);
        if factor.zeros.as_ref().is_none_or(|list| list.iter().any(|&v| v != 0)) {
            let dims = zero_dims(&z, x.rank(), along)
                .ok_or_else(|| Refusal::new(Code::INVALID, "a shape that does not fit").slot(zero_name))?;
            factor.zero = Some((zero, dims));
        }
    }
    let (least, most) = match &factor.zeros {
        Some(list) => (list.iter().min().copied().unwrap_or(0), list.iter().max().copied().unwrap_or(0)),
        None => range,
    };
    factor.magnitude = (range.1 - least).max(most - range.0) as f64;
    Ok((factor, x))
}

/// Dims in which a zero point broadcasts over a tensor of rank `rank`.
fn zero_dims(z: &Operand<'_>, rank: usize, along: Along) -> Option<Vec<i64>> {
    let mut dims = vec![1; rank];
    match z.shape {
        [] | [Dim::Known(1)] => {}
        [d, n] if matches!(along, Along::Stack) => {
            *dims.first_mut()? = d.known()?;
            *dims.last_mut()? = n.known()?;
        }
        [n] => {
            let axis = match along {
                Along::Axis(axis) => axis,
                Along::FromEnd(back) => rank.checked_sub(back)?,
                Along::Stack => 0,
            };
            *dims.get_mut(axis)? = n.known()?;
        }
        shape if shape.len() == rank => {
            for (dim, own) in dims.iter_mut().zip(shape) {
                *dim = own.known()?;
            }
        }
        _ => return None,
    }
    Some(dims)
}

/// Most parts of a sum.
const PARTS: i64 = 16;

/// Largest magnitude of either half of a factor.
const HALF: f64 = 16.0;

/// How sums are made so that none can pass 2²⁴.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    /// Bounds of the parts, in units of terms that stay together.
    bounds: Vec<i64>,
    /// Which of the factors are halved.
    halved: [bool; 2],
}

/// How sums of `terms` products are made; `unit` terms stay together. Where the bound from the dtypes is too weak for one part,
/// constant weights are added up.
///
/// # Errors
/// `E0304` with the bound, where too many parts would be needed.
pub fn sums(
    node: NodeView<'_>,
    [a, b]: [&Factor; 2],
    terms: Option<i64>,
    unit: i64,
    layout: Option<Layout>,
) -> Result<Sums, Refusal> {
    let unknown =
        || Refusal::new(Code::DIM_UNKNOWN, "how many products are added up is known only at run time");
    let terms = terms.ok_or_else(unknown)?;
    let units = terms / unit.max(1);
    let Err(refusal) = exact(node, [a, b], terms, layout) else {
        return Ok(Sums { bounds: vec![0, units], halved: [false; 2] });
    };
    for halved in [[false, false], [false, true], [true, true]] {
        let size = |factor: &Factor, half: bool| if half { HALF } else { factor.magnitude };
        let product = size(a, halved[0]) * size(b, halved[1]);
        let each = (LIMIT / (product * unit as f64)).floor() as i64;
        if each >= 1 && units <= each.saturating_mul(PARTS) {
            return Ok(Sums { bounds: (0..units).step_by(each as usize).chain([units]).collect(), halved });
        }
    }
    Err(refusal)
}

/// Checks that no sum of `terms` products can pass 2²⁴.
fn exact(
    node: NodeView<'_>,
    [a, b]: [&Factor; 2],
    terms: i64,
    layout: Option<Layout>,
) -> Result<(), Refusal> {
    let coarse = terms as f64 * a.magnitude * b.magnitude;
    if coarse <= LIMIT {
        return Ok(());
    }
    let fine = layout.and_then(|layout| largest_sum(node, b, layout)).map(|sum| sum * a.magnitude);
    match fine {
        Some(fine) if fine <= LIMIT => Ok(()),
        _ => Err(Refusal::new(
            Code::SHAPE,
            format!(
                "sums of {terms} products may reach {}; f32 holds whole numbers exactly up to 2^24, and there would be too many parts",
                fine.unwrap_or(coarse)
            ),
        )
        .help("quantise with QuantizeLinear and DequantizeLinear pairs (i8, zero point 0) instead")),
    }
}

/// Where the elements of one sum stand in constant weights: `outer` blocks of `terms` rows of `inner` sums.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Blocks.
    pub outer: usize,
    /// Elements of a sum in a block.
    pub terms: usize,
    /// Sums side by side.
    pub inner: usize,
}

/// Largest Σ|w − zero point| of constant weights with constant zero points.
fn largest_sum(node: NodeView<'_>, factor: &Factor, layout: Layout) -> Option<f64> {
    let constant = node.input(factor.slot)?.constant()?;
    let Layout { outer, terms, inner } = layout;
    if outer.checked_mul(terms)?.checked_mul(inner)? != constant.count() || inner == 0 || terms == 0 {
        return None;
    }
    let differences = differences(constant, factor)?;
    let mut largest = 0.0f64;
    for block in differences.chunks_exact(terms * inner) {
        let mut sums = vec![0.0; inner];
        for row in block.chunks_exact(inner) {
            sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += f64::from(v.abs()));
        }
        largest = sums.into_iter().fold(largest, f64::max);
    }
    Some(largest)
}

/// The factor less its zero point, in f32. Constants are computed here, so that the engine holds just the difference.
pub fn emit(cx: &mut Emit<'_>, factor: &Factor) -> TensorId {
    let constant = cx.node().input(factor.slot).and_then(|view| view.constant()).cloned();
    if let Some(constant) = constant
        && let Some(differences) = differences(&constant, factor)
    {
        let floats: Vec<u8> = differences.into_iter().flat_map(f32::to_le_bytes).collect();
        return cx.constant(DType::F32, constant.dims().to_vec(), floats.into());
    }
    let x = cx.input(factor.slot);
    let x = cx.cast(x, DType::F32);
    match &factor.zero {
        None => x,
        Some((slot, dims)) => {
            let zero = cx.input(*slot);
            let zero = cx.cast(zero, DType::F32);
            let zero = cx.reshape(zero, dims.clone());
            cx.elementwise(x, zero, ElementWiseOp::Sub)
        }
    }
}

/// Constant weights less their constant zero points.
fn differences(constant: &Tensor, factor: &Factor) -> Option<Vec<f32>> {
    let (bytes, zeros) = (constant.bytes()?, factor.zeros.as_deref()?);
    let dims: Vec<usize> = constant.dims().iter().map(|&d| usize::try_from(d).ok()).collect::<Option<_>>()?;
    // Steps over the zero points for each axis: 0 where they broadcast.
    let spread = factor.zero.as_ref().map(|(_, dims)| &dims[..]).unwrap_or_default();
    let mut steps = vec![0; dims.len()];
    let mut step = 1usize;
    for (axis, &d) in spread.iter().enumerate().rev() {
        if d > 1 {
            *steps.get_mut(axis)? = step;
            step = step.checked_mul(usize::try_from(d).ok()?)?;
        }
    }
    let signed = constant.dtype() == DType::I8;
    // Elements side by side that have one zero point.
    let outer = steps.iter().rposition(|&step| step > 0).map_or(0, |axis| axis + 1);
    let (dims, run) = (&dims[..outer], dims[outer..].iter().product::<usize>());
    let mut at = vec![0usize; outer];
    let mut differences = Vec::with_capacity(bytes.len());
    for values in bytes.chunks(run.max(1)) {
        let index: usize = at.iter().zip(&steps).map(|(k, step)| k * step).sum();
        let zero = if spread.is_empty() { 0 } else { *zeros.get(index)? };
        match signed {
            true => differences.extend(values.iter().map(|&v| (i64::from(v as i8) - zero) as f32)),
            false => differences.extend(values.iter().map(|&v| (i64::from(v) - zero) as f32)),
        }
        for (k, &d) in at.iter_mut().zip(dims).rev() {
            *k += 1;
            if *k < d {
                break;
            }
            *k = 0;
        }
    }
    Some(differences)
}

/// Sums of products of `a` and `b`, whole numbers in f32: a kernel that works in another domain may leave a trace of its rounding.
/// `product` makes those of one part (its bounds; `None` for all); several are added up in i32.
pub fn total(
    cx: &mut Emit<'_>,
    sums: &Sums,
    [a, b]: [TensorId; 2],
    product: impl Fn(&mut Emit<'_>, TensorId, TensorId, Option<(i64, i64)>) -> TensorId,
) -> TensorId {
    let whole = sums.bounds.len() <= 2;
    if whole && sums.halved == [false; 2] {
        let sums = product(cx, a, b, None);
        return cx.unary(sums, UnaryOp::Round);
    }
    let (a, b) = (halves(cx, a, sums.halved[0]), halves(cx, b, sums.halved[1]));
    let mut sum = None;
    for pair in sums.bounds.windows(2) {
        let part = (!whole).then(|| (pair[0], pair[1]));
        for &(a, a_weight) in &a {
            for &(b, b_weight) in &b {
                let part = product(cx, a, b, part);
                let part = cx.unary(part, UnaryOp::Round);
                let mut part = cx.cast(part, DType::I32);
                if a_weight * b_weight > 1.0 {
                    let weight = elementwise::scalar_like(cx, part, a_weight * b_weight);
                    part = cx.elementwise(part, weight, ElementWiseOp::Prod);
                }
                sum = Some(match sum {
                    Some(sum) => cx.elementwise(sum, part, ElementWiseOp::Sum),
                    None => part,
                });
            }
        }
    }
    sum.unwrap_or(TensorId(u32::MAX))
}

/// A factor with its weight in a product: itself, or its halves ⌊v / 16⌋ and the rest.
fn halves(cx: &mut Emit<'_>, x: TensorId, halved: bool) -> Vec<(TensorId, f64)> {
    if !halved {
        return vec![(x, 1.0)];
    }
    let step = elementwise::scalar_like(cx, x, 1.0 / HALF);
    let high = cx.elementwise(x, step, ElementWiseOp::Prod);
    let high = cx.unary(high, UnaryOp::Floor);
    let step = elementwise::scalar_like(cx, x, HALF);
    let upper = cx.elementwise(high, step, ElementWiseOp::Prod);
    let low = cx.elementwise(x, upper, ElementWiseOp::Sub);
    vec![(high, HALF), (low, 1.0)]
}

/// Elements `from..to` along `axis` of each of `blocks` equal stretches of it; all for `None`.
pub fn taken(cx: &mut Emit<'_>, x: TensorId, axis: usize, blocks: i64, part: Option<(i64, i64)>) -> TensorId {
    use trtc_network::{Layer, layer::GatherMode};
    let Some((from, to)) = part else { return x };
    let each = cx.dims(x).get(axis).map_or(0, |d| d / blocks.max(1));
    let indices: Vec<i64> = (0..blocks).flat_map(|k| k * each + from..k * each + to).collect();
    let indices = cx.i64s(&indices);
    let (axis, mode) = (axis as u32, GatherMode::Default);
    cx.one(Layer::Gather { data: x, indices, axis, mode, batch_dims: 0 })
}

/// Quantised x: round(x / scale) + zero point, held to the range of `to` (of at most 16 bits); in f32, all of one rank.
pub fn quantized(cx: &mut Emit<'_>, quotient: TensorId, zero: TensorId, to: DType) -> TensorId {
    let y = cx.unary(quotient, UnaryOp::Round);
    let y = cx.elementwise(y, zero, ElementWiseOp::Sum);
    clamped(cx, y, to)
}

/// Held to the range of an integer dtype of at most 16 bits.
pub fn clamped(cx: &mut Emit<'_>, x: TensorId, to: DType) -> TensorId {
    let (low, high) = quantize::range(to);
    let low = elementwise::scalar_like(cx, x, low);
    let x = cx.elementwise(x, low, ElementWiseOp::Max);
    let high = elementwise::scalar_like(cx, x, high);
    cx.elementwise(x, high, ElementWiseOp::Min)
}

/// A tensor quantised to u8 by its own range, as DynamicQuantizeLinear does.
#[derive(Clone, Copy, Debug)]
pub struct Dynamic {
    /// 0 … 255, in f32.
    pub y: TensorId,
    /// Scale, in f32, every dim 1.
    pub scale: TensorId,
    /// Zero point, in f32, every dim 1.
    pub zero: TensorId,
}

/// Quantises `x` (f32) to u8: the range is widened to hold 0.
pub fn dynamic(cx: &mut Emit<'_>, x: TensorId) -> Dynamic {
    use trtc_network::{Layer, layer::ReduceOp};
    let axes: Vec<u32> = (0..cx.rank(x) as u32).collect();
    let extreme = |cx: &mut Emit<'_>, op| match axes.is_empty() {
        true => x,
        false => cx.one(Layer::Reduce { x, op, axes: axes.clone(), keep_dims: true }),
    };
    let (high, low) = (extreme(cx, ReduceOp::Max), extreme(cx, ReduceOp::Min));
    let zero = elementwise::scalar_like(cx, high, 0.0);
    let high = cx.elementwise(high, zero, ElementWiseOp::Max);
    let low = cx.elementwise(low, zero, ElementWiseOp::Min);
    let width = cx.elementwise(high, low, ElementWiseOp::Sub);
    let steps = elementwise::scalar_like(cx, width, 255.0);
    let scale = cx.elementwise(width, steps, ElementWiseOp::Div);
    // Nothing but zeros: any scale will do, and 1 divides.
    let flat = cx.elementwise(width, zero, ElementWiseOp::Equal);
    let one = elementwise::scalar_like(cx, width, 1.0);
    let scale = cx.one(Layer::Select { condition: flat, then_input: one, else_input: scale });
    let offset = cx.elementwise(low, scale, ElementWiseOp::Div);
    let offset = cx.elementwise(zero, offset, ElementWiseOp::Sub);
    let offset = clamped(cx, offset, DType::U8);
    let point = cx.unary(offset, UnaryOp::Round);
    let quotient = cx.elementwise(x, scale, ElementWiseOp::Div);
    Dynamic { y: quantized(cx, quotient, point, DType::U8), scale, zero: point }
}

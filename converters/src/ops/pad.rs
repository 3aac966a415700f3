//! Pad: add to, or cut from, the ends of axes.
//!
//! data [d0..dn] T, pads [2k] i64, constant_value [] T, axes [k] i  ->  output [d + begin + end] T
//! Opsets: 1, 2 attributes; 11 inputs; 13, 21, 23, 24, 25 wider types; 18 axes; 19 wrap.     TensorRT: ISliceLayer;
//! IGatherLayer (the run tells the pads, the model the dims).
//! Limits: pads constant (constant mode: or computed from dims), or all dims declared; reflected pads smaller than the dim.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        axes::{self, AxesPlan},
        check, dims,
        extent::{self, DimPlan, ExtentPlan},
        shape,
    },
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, GatherMode, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct Pad;

/// How the result is made.
#[derive(Debug)]
pub enum Plan {
    /// By slices.
    Slices(Slices),
    /// From indices that the run works out.
    Gather(Measured),
}

/// Pads that the run tells, to dims that are known.
#[derive(Debug)]
pub struct Measured {
    axes: AxesPlan,
    /// Number of pads before.
    count: usize,
    /// Axis, its length, and that of the result.
    parts: Vec<(usize, i64, i64)>,
    mode: SampleMode,
}

/// Longest axis whose indices are written out.
const MOST_INDICES: i64 = 1 << 20;

/// Cuts first, then adds; either may be absent.
#[derive(Debug)]
pub struct Slices {
    cut: Option<(ExtentPlan, ExtentPlan)>,
    add: Option<(ExtentPlan, ExtentPlan)>,
    mode: SampleMode,
}

/// Padding before and after each axis; `None` when the values are not known.
fn pads(node: NodeView<'_>, rank: usize) -> Result<Option<Vec<(Dim, Dim)>>, Diag> {
    let axes = match node.input(3) {
        None => (0..rank).collect(),
        Some(axes) => match axes.const_i64s() {
            None => return Ok(None),
            Some(list) => {
                shape::axes(&list, rank).map_err(|diag| diag.slot("axes"))?;
                list.iter().map(|&axis| shape::axis(axis, rank)).collect::<Result<Vec<_>, _>>()?
            }
        },
    };
    let Some(list) = node.input(1).and_then(|pads| pads.elements()) else { return Ok(None) };
    if list.len() != 2 * axes.len() {
        return Err(Diag::invalid(format!("{} pads for {} axes", list.len(), axes.len())).slot("pads"));
    }
    let mut pads = vec![(Dim::Known(0), Dim::Known(0)); rank];
    for (k, &axis) in axes.iter().enumerate() {
        pads[axis] = (list[k].clone(), list[axes.len() + k].clone());
    }
    Ok(Some(pads))
}

fn mode(node: NodeView<'_>) -> Result<SampleMode, Diag> {
    match node.str("mode", "constant") {
        "constant" => Ok(SampleMode::Fill),
        "reflect" => Ok(SampleMode::Reflect),
        "edge" => Ok(SampleMode::Clamp),
        "wrap" => Ok(SampleMode::Wrap),
        other => Err(Diag::invalid(format!("`{other}` is no padding mode")).slot("mode")),
    }
}

/// Plans a padding of which the run tells the pads, perhaps the axes, and the model the dims of the result.
fn measured(
    node: NodeView<'_>,
    x: &[Dim],
    mode: SampleMode,
    target: &Target,
) -> Result<Option<Measured>, Refusal> {
    let Some(to) = dims::of_output(node, 0).filter(|to| to.len() == x.len()) else { return Ok(None) };
    let pads = node.input(1).and_then(|pads| pads.dim(0)).and_then(Dim::known);
    let Some(count) = pads.and_then(|n| usize::try_from(n / 2).ok()).filter(|&n| n <= x.len()) else {
        return Ok(None);
    };
    axes::list(node, 1, "pads", 2 * count, target)?;
    let plan = match node.input(3) {
        None => AxesPlan::Known((0..count).collect()),
        Some(list) => match list.const_i64s() {
            Some(list) => {
                let list = list.iter().map(|&axis| check::axis(axis, x.len(), "axes"));
                AxesPlan::Known(list.collect::<Result<_, _>>()?)
            }
            None => {
                axes::list(node, 3, "axes", count, target)?;
                AxesPlan::Input(3)
            }
        },
    };
    let mut parts = Vec::new();
    for (axis, &to) in to.iter().enumerate() {
        if matches!(&plan, AxesPlan::Known(list) if !list.contains(&axis)) {
            continue;
        }
        let Some(from) = x[axis].known() else { return Ok(None) };
        if to == 0 {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        if to > MOST_INDICES || from > MOST_INDICES {
            return Ok(None);
        }
        parts.push((axis, from, to));
    }
    Ok(Some(Measured { axes: plan, count, parts, mode }))
}

impl Converter for Pad {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Pad", 25)],
        dtypes: check::CARRIED,
        layers: "ISliceLayer, IGatherLayer",
        limits: "pads constant, or computed from dims, or bounded, or all dims declared; reflected pads below the dim",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::NOT_CONSTANT,
            Code::SHAPE_VALUE,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        mode(node)?;
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let Some(pads) = pads(node, x.len())? else {
            return Ok(shape::types([shape::typed(dtype, Some(vec![Dim::Unknown; x.len()]))]));
        };
        let mut to = Vec::with_capacity(x.len());
        for (axis, (dim, (before, after))) in x.iter().zip(&pads).enumerate() {
            let size = dim.add(before).add(after);
            match &size {
                Dim::Known(size) if *size < 0 => {
                    return Err(Diag::invalid(format!("axis {axis} would have size {size}")).slot("pads"));
                }
                Dim::Expr(_) if size != *dim => cx.require(ConstraintKind::AtLeast(size.clone(), 0)),
                _ => {}
            }
            to.push(size);
        }
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::CARRIED, target)?;
        check::not_empty(&x, "data")?;
        if x.rank() == 0 {
            return Err(Refusal::new(Code::RANK, "a scalar has no axes to pad").slot("data"));
        }
        let mode = mode(node).map_err(crate::ctx::window::refused)?;
        if let Some(value) = node.input(2)
            && (value.dtype() != Some(x.dtype)
                || value.shape().is_none_or(|s| s.iter().any(|d| *d != Dim::Known(1))))
        {
            let why = format!("must be a scalar of {}", x.dtype);
            return Err(Refusal::new(Code::CONSTANT_VALUE, why).slot("constant_value"));
        }
        let pads = pads(node, x.rank()).map_err(crate::ctx::window::refused)?;
        if pads.is_none()
            && let Some(measured) = measured(node, x.shape, mode, target)?
        {
            return Ok(Plan::Gather(measured));
        }
        if node.input(3).is_some() {
            check::constant(node, 3, "axes")?;
        }
        let pads = pads.ok_or_else(|| {
            Refusal::new(Code::SHAPE_VALUE, "the pads are known only at run time").slot("pads")
        })?;
        let own = |axis| extent::own_dim(node, 0, axis);
        let ends = |before: &Dim, after: &Dim, axis: usize| -> Result<(DimPlan, DimPlan), Refusal> {
            let before = extent::require_dim(node, before, "pads")?;
            let after = extent::require_dim(node, after, "pads")?;
            let size = own(axis).plus(before.clone()).plus(after);
            Ok((before.times(DimPlan::Fixed(-1)), size))
        };
        let zero = Dim::Known(0);
        let is_cut = |dim: &Dim| !dims::at_least(node, dim, 0);
        let slice = |pads: &[(Dim, Dim)]| -> Result<Option<(ExtentPlan, ExtentPlan)>, Refusal> {
            if pads.iter().all(|(a, b)| *a == zero && *b == zero) {
                return Ok(None);
            }
            let parts =
                pads.iter().enumerate().map(|(k, (a, b))| ends(a, b, k)).collect::<Result<Vec<_>, _>>()?;
            let (starts, sizes) = parts.into_iter().unzip();
            Ok(Some((ExtentPlan::Dims(starts), ExtentPlan::Dims(sizes))))
        };
        for (axis, (before, after)) in pads.iter().enumerate() {
            if x.shape[axis].add(before).add(after) == zero {
                return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
            }
        }
        if mode == SampleMode::Fill {
            // Outside is the same value wherever a cut ends, so one slice does both.
            return Ok(Plan::Slices(Slices { cut: None, add: slice(&pads)?, mode }));
        }
        // Whether something is cut or added decides which layers there are.
        let most = |dim: &Dim| node.symbols().interval(dim).max;
        let is_decided = |dim: &Dim| dim.known().is_some() || (!is_cut(dim) && most(dim).is_some());
        if pads.iter().any(|(a, b)| !is_decided(a) || !is_decided(b)) {
            let why = "must be constants, or have ranges from 0 up, in this mode";
            return Err(Refusal::new(Code::NOT_CONSTANT, why).slot("pads"));
        }
        let part = |keep: &dyn Fn(&Dim) -> bool| -> Vec<(Dim, Dim)> {
            let pick = |dim: &Dim| if keep(dim) { dim.clone() } else { zero.clone() };
            pads.iter().map(|(a, b)| (pick(a), pick(b))).collect()
        };
        let (cuts, adds) = (part(&is_cut), part(&|dim| !is_cut(dim)));
        for (axis, (before, after)) in adds.iter().enumerate() {
            let left = x.shape[axis].add(&cuts[axis].0).add(&cuts[axis].1);
            let most = most(before).unwrap_or(0).max(most(after).unwrap_or(0));
            if most == 0 {
                continue;
            }
            let needed = if mode == SampleMode::Reflect { most.saturating_add(1) } else { 1 };
            match left {
                Dim::Known(left) if left < needed => {
                    let why = format!("{most} are to be added to a dim of {left}");
                    return Err(Refusal::new(Code::SHAPE, why).slot("pads"));
                }
                ref left if !dims::at_least(node, left, needed) => {
                    let why = format!("dim {axis} may be below {needed} at run time");
                    return Err(Refusal::new(Code::DIM_UNKNOWN, why).slot("data"));
                }
                _ => {}
            }
        }
        // The second slice works on what the first one left: its sizes follow from the same dims.
        let cut = slice(&cuts)?;
        let add = match slice(&adds)? {
            Some((starts, _)) => slice(&pads)?.map(|(_, sizes)| (starts, sizes)),
            None => None,
        };
        Ok(Plan::Slices(Slices { cut, add, mode }))
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut x = cx.input(0);
        let plan = match plan {
            Plan::Slices(plan) => plan,
            Plan::Gather(plan) => return vec![gathered(cx, x, &plan)],
        };
        if let Some((start, size)) = &plan.cut {
            x = slice(cx, x, start, size, SampleMode::Strict, None);
        }
        if let Some((start, size)) = &plan.add {
            let fill = (plan.mode == SampleMode::Fill).then(|| value(cx, x));
            x = slice(cx, x, start, size, plan.mode, fill);
        }
        vec![x]
    }
}

/// What is added in mode `constant`, of rank 0.
fn value(cx: &mut Emit<'_>, x: TensorId) -> TensorId {
    match cx.optional(2) {
        Some(value) if cx.rank(value) == 0 => value,
        Some(value) => cx.reshape(value, Vec::new()),
        None => {
            let dtype = cx.dtype(x);
            cx.scalar(dtype, 0, 0.0)
        }
    }
}

/// Gathers along each axis from indices that the pads before it give; those after it follow from the dims.
fn gathered(cx: &mut Emit<'_>, x: TensorId, plan: &Measured) -> TensorId {
    let rank = cx.rank(x);
    let pads = axes::part(cx, 1, 0, plan.count);
    let mut y = x;
    let mut masks: Option<TensorId> = None;
    for &(axis, from, to) in &plan.parts {
        let before = axes::value(cx, &plan.axes, pads, (axis, rank), 0);
        let line = axes::line(cx, to);
        let at = cx.elementwise(line, before, ElementWiseOp::Sub);
        let indices = match plan.mode {
            SampleMode::Fill => {
                let (low, high) = (cx.i64s(&[-1]), cx.i64s(&[from]));
                let above = cx.elementwise(at, low, ElementWiseOp::Greater);
                let below = cx.elementwise(at, high, ElementWiseOp::Less);
                let inside = cx.elementwise(above, below, ElementWiseOp::And);
                let others: Vec<u32> = (0..rank as u32).filter(|&k| k as usize != axis).collect();
                let inside = match others.is_empty() {
                    true => inside,
                    false => cx.one(Layer::Unsqueeze { x: inside, axes: others }),
                };
                masks = Some(masks.map_or(inside, |all| cx.elementwise(all, inside, ElementWiseOp::And)));
                at
            }
            mode => inner(cx, mode, at, before, (from, to)),
        };
        let indices = axes::clamped(cx, indices, 0, from - 1);
        let (axis, mode) = (axis as u32, GatherMode::Default);
        y = cx.one(Layer::Gather { data: y, indices, axis, mode, batch_dims: 0 });
    }
    let Some(condition) = masks else { return y };
    let fill = value(cx, x);
    let else_input = cx.reshape(fill, vec![1; rank]);
    cx.one(Layer::Select { condition, then_input: y, else_input })
}

/// Which place of the axis stands at `at` = place of the result − pad before: what a negative pad cuts off is gone
/// first, and the rest, of length L, is continued.
fn inner(
    cx: &mut Emit<'_>,
    mode: SampleMode,
    at: TensorId,
    before: TensorId,
    (from, to): (i64, i64),
) -> TensorId {
    let (zero, one) = (cx.i64s(&[0]), cx.i64s(&[1]));
    // First place that is left, and the length: the pad after is what the dims lack.
    let cut = cx.elementwise(zero, before, ElementWiseOp::Sub);
    let first = cx.elementwise(cut, zero, ElementWiseOp::Max);
    let grown = cx.i64s(&[to - from]);
    let after = cx.elementwise(grown, before, ElementWiseOp::Sub);
    let after = cx.elementwise(after, zero, ElementWiseOp::Min);
    let length = cx.i64s(&[from]);
    let end = cx.elementwise(length, after, ElementWiseOp::Sum);
    let length = cx.elementwise(end, first, ElementWiseOp::Sub);
    let last = cx.elementwise(length, one, ElementWiseOp::Sub);
    let at = cx.elementwise(at, first, ElementWiseOp::Sub);
    let rest = |cx: &mut Emit<'_>, of: TensorId| {
        let of = cx.elementwise(of, one, ElementWiseOp::Max);
        let whole = cx.elementwise(at, of, ElementWiseOp::FloorDiv);
        let whole = cx.elementwise(whole, of, ElementWiseOp::Prod);
        cx.elementwise(at, whole, ElementWiseOp::Sub)
    };
    let place = match mode {
        SampleMode::Wrap => rest(cx, length),
        SampleMode::Reflect => {
            let period = cx.elementwise(last, last, ElementWiseOp::Sum);
            let forth = rest(cx, period);
            let back = cx.elementwise(period, forth, ElementWiseOp::Sub);
            let beyond = cx.elementwise(forth, last, ElementWiseOp::Greater);
            cx.one(Layer::Select { condition: beyond, then_input: back, else_input: forth })
        }
        _ => {
            let place = cx.elementwise(at, zero, ElementWiseOp::Max);
            cx.elementwise(place, last, ElementWiseOp::Min)
        }
    };
    cx.elementwise(place, first, ElementWiseOp::Sum)
}

fn slice(
    cx: &mut Emit<'_>,
    x: TensorId,
    start: &ExtentPlan,
    size: &ExtentPlan,
    mode: SampleMode,
    fill: Option<TensorId>,
) -> TensorId {
    let stride = Extent::Static(vec![1; cx.rank(x)]);
    let (start, size) = (cx.extent(start), cx.extent(size));
    cx.one(Layer::Slice { x, start, size, stride, mode, fill })
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn pad(pads: &[i64]) -> Case {
        Case::new("Pad", 25).input(noise([4, 5])).constant(list(pads))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("Pad", 25).input(x(&[1])).constant(list(&[1, 1])));
        Case::new("Pad", 25).input(noise([])).constant(list(&[])).refused(Code::RANK);
        pad(&[-4, 0, 0, 0]).refused(Code::SHAPE);
        pad(&[4, 0, 0, 0]).str("mode", "reflect").refused(Code::SHAPE);
        pad(&[4, 0, 0, 0]).str("mode", "reflect").dynamic(0, ["N", "5"]).refused(Code::DIM_UNKNOWN);
        let open = Case::new("Pad", 25).input(noise([4, 5])).input(list(&[1, 1, 1, 1]));
        open.clone().refused(Code::SHAPE_VALUE);
        open.str("mode", "edge").sizes(1, ["a?", "0", "0", "0"]).refused(Code::NOT_CONSTANT);
        pad(&[1, 1]).absent().input(list(&[0])).refused(Code::NOT_CONSTANT);
        pad(&[1, 1, 1, 1]).constant(noise([2])).refused(Code::CONSTANT_VALUE);
    }

    #[test]
    fn types() {
        assert_eq!(pad(&[1, -2, 0, 3]).dynamic(0, ["N", "5"]).types(), ["f32[N + 1 x 6]"]);
        assert_eq!(pad(&[1, 2]).absent().constant(list(&[-1])).types(), ["f32[4 x 8]"]);
        assert!(pad(&[-5, 0, 0, 0]).invalid().contains("size -1"));
        assert!(pad(&[1, 2]).invalid().contains("2 pads for 2 axes"));
        assert!(pad(&[0; 4]).str("mode", "mirror").invalid().contains("mirror"));
    }

    #[test]
    fn numbers() {
        pad(&[0; 4]).check(Tolerance::Exact);
        for mode in ["constant", "reflect", "edge", "wrap"] {
            pad(&[1, 2, 3, 0]).str("mode", mode).check(Tolerance::Exact);
            pad(&[-1, 2, 2, -2]).str("mode", mode).check(Tolerance::Exact);
            pad(&[0, 2, 0, 1]).str("mode", mode).dynamic(0, ["N", "5"]).check(Tolerance::Exact);
        }
        pad(&[1, 2, 3, 0]).constant(f32s([], &[1.5])).dynamic(0, ["N", "5"]).check(Tolerance::Exact);
        pad(&[1, -2]).constant(f32s([1], &[1.5])).constant(list(&[1])).check(Tolerance::Exact);
        let whole =
            Case::new("Pad", 25).input(list(&[1, 2])).constant(list(&[1, 1])).constant(i64s([], &[7]));
        whole.check(Tolerance::Exact);
        Case::new("Pad", 25).input(bools([2], &[true; 2])).constant(list(&[1, 1])).check(Tolerance::Exact);
        let symbolic = Case::new("Pad", 25).input(noise([4])).input(list(&[1, 2])).sizes(1, ["a", "b"]);
        symbolic.check(Tolerance::Exact);
    }

    #[test]
    fn ranges() {
        let some = Case::new("Pad", 25).input(noise([4, 5])).input(list(&[2, 0, 0, 1]));
        let some = some.sizes(1, ["a", "0", "0", "b"]);
        some.clone().check(Tolerance::Exact);
        some.str("mode", "edge").check(Tolerance::Exact);
    }

    #[test]
    fn told_by_the_run() {
        let open = |pads: &[i64]| Case::new("Pad", 25).input(noise([4, 5])).input(list(pads));
        for mode in ["constant", "reflect", "edge", "wrap"] {
            open(&[1, 2, 3, 0]).str("mode", mode).declared(0, &[8, 7]).check(Tolerance::Exact);
            open(&[-1, 2, 2, -2]).str("mode", mode).declared(0, &[5, 5]).check(Tolerance::Exact);
            open(&[0, -1, -2, 2]).str("mode", mode).declared(0, &[2, 6]).check(Tolerance::Exact);
            let axes = open(&[1, 2]).absent().str("mode", mode).declared(0, &[4, 8]);
            axes.clone().input(list(&[-1])).check(Tolerance::Exact);
            axes.constant(list(&[1])).check(Tolerance::Exact);
        }
        open(&[1, 2, 3, 0]).input(f32s([1], &[1.5])).declared(0, &[8, 7]).check(Tolerance::Exact);
        open(&[-4, 0, 0, 0]).declared(0, &[0, 5]).refused(Code::SHAPE);
    }

    #[test]
    fn bytes() {
        let x = u8s([2, 2], &[0, 255, 128, 3]);
        let case = Case::new("Pad", 25).input(x).constant(list(&[1, 0, 0, 1]));
        case.clone().check(Tolerance::Exact);
        case.constant(u8s([], &[200])).check(Tolerance::Exact);
    }

    #[test]
    fn gates() {
        Case::new("Pad", 25).absent().constant(list(&[1, 1])).refused(Code::INVALID);
    }
}

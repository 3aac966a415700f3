//! Slice: a strided part of a tensor.
//!
//! data [d0..dn] T, starts [k] i, ends [k] i, axes [k] i, steps [k] i  ->  output [e0..en] T
//! Opsets: 1 attributes; 10 inputs, steps; 11 negative axes; 13 wider types.     TensorRT: ISliceLayer;
//! IGatherLayer (what is taken is known only at run time, but not how much).
//! Limits: axes and steps constant; starts and ends constant, or computed from dims, or bounded; or all dims declared.

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
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, GatherMode, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct Slice;

/// How the part is taken.
#[derive(Debug)]
pub enum Plan {
    /// Everything is.
    All,
    /// Start, size and stride.
    Part(ExtentPlan, ExtentPlan, Vec<i64>),
    /// At indices that the run works out.
    Gather(Measured),
}

/// A part of known dims from places that the run tells.
#[derive(Debug)]
pub struct Measured {
    axes: AxesPlan,
    /// Number of starts.
    count: usize,
    /// Axis, its length, and how many are taken.
    parts: Vec<(usize, i64, i64)>,
}

/// Most indices along an axis that are written out.
const MOST_INDICES: i64 = 1 << 20;

/// The part of one axis that is taken.
struct Part {
    axis: usize,
    start: Dim,
    size: Dim,
    step: i64,
}

/// The parts, one an axis named. `None` when axes or steps are not known.
fn parts(node: NodeView<'_>, x: &[Dim]) -> Result<Option<Vec<Part>>, Diag> {
    let values = |slot: usize| node.input(slot).and_then(|view| view.elements());
    let length = |slot: usize| node.input(slot)?.dim(0)?.known();
    let Some(count) = values(1).map(|l| l.len() as i64).or_else(|| length(1)).or_else(|| length(2)) else {
        return Ok(None);
    };
    let Some(count) = usize::try_from(count).ok().filter(|&count| count <= x.len()) else {
        return Err(Diag::invalid(format!("{count} starts for rank {}", x.len())).slot("starts"));
    };
    let numbers = |slot: usize, default: fn(usize) -> i64| -> Option<Vec<i64>> {
        match node.input(slot) {
            None => Some((0..count).map(default).collect()),
            Some(view) => view.elements()?.iter().map(Dim::known).collect(),
        }
    };
    let (Some(axes), Some(steps)) = (numbers(3, |k| k as i64), numbers(4, |_| 1)) else { return Ok(None) };
    let fits = |slot: usize| values(slot).is_none_or(|list| list.len() == count);
    if axes.len() != count || steps.len() != count || !fits(1) || !fits(2) {
        return Err(Diag::invalid("starts, ends, axes and steps of unequal length"));
    }
    shape::axes(&axes, x.len()).map_err(|diag| diag.slot("axes"))?;
    let mut parts = Vec::with_capacity(count);
    for k in 0..count {
        let axis = shape::axis(axes[k], x.len())?;
        if steps[k] == 0 || steps[k] == i64::MIN {
            return Err(Diag::invalid(format!("a step of {}", steps[k])).slot("steps"));
        }
        let value = |slot: usize| values(slot).map_or(Dim::Unknown, |list| list[k].clone());
        let (start, size) = cut(node, &x[axis], &value(1), &value(2), steps[k]);
        parts.push(Part { axis, start, size, step: steps[k] });
    }
    Ok(Some(parts))
}

/// Start and size of a part, clamped as the schema says. Unknown where the sign of a bound is not known.
fn cut(node: NodeView<'_>, dim: &Dim, start: &Dim, end: &Dim, step: i64) -> (Dim, Dim) {
    // No dim is this long: such a bound means "all of it".
    const FAR: i64 = i32::MAX as i64;
    let zero = Dim::Known(0);
    // Where a bound may lie: from `low` to `high`.
    let clamp = |bound: &Dim, low: &Dim, high: &Dim| match bound {
        Dim::Known(v) if *v >= FAR => high.clone(),
        Dim::Known(v) if *v <= -FAR => low.clone(),
        bound if dims::at_least(node, bound, 0) => dims::min(node, bound, high),
        bound if dims::below(node, bound, 0) => dims::max(node, &dim.add(bound), low),
        _ => Dim::Unknown,
    };
    let (start, distance) = if step > 0 {
        let (start, end) = (clamp(start, &zero, dim), clamp(end, &zero, dim));
        let distance = end.sub(&start);
        (start, distance)
    } else {
        let last = dim.sub(&Dim::Known(1));
        let (start, end) = (clamp(start, &zero, &last), clamp(end, &Dim::Known(-1), &last));
        let distance = start.sub(&end);
        (start, distance)
    };
    let size = dims::max(node, &distance.ceil_div(&Dim::Known(step.abs())), &zero);
    (start, size)
}

/// Plans a slice of which the run tells the starts, perhaps the axes and steps, and the model the dims of the result.
fn measured(node: NodeView<'_>, x: &[Dim], target: &Target) -> Result<Option<Measured>, Refusal> {
    let Some(to) = dims::of_output(node, 0).filter(|to| to.len() == x.len()) else { return Ok(None) };
    let Some(count) = node.input(1).and_then(|starts| starts.dim(0)).and_then(Dim::known) else {
        return Ok(None);
    };
    let Some(count) = usize::try_from(count).ok().filter(|&count| count <= x.len()) else { return Ok(None) };
    axes::list(node, 1, "starts", count, target)?;
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
    if node.input(4).is_some() {
        axes::list(node, 4, "steps", count, target)?;
    }
    let mut parts = Vec::new();
    for (axis, &to) in to.iter().enumerate() {
        if matches!(&plan, AxesPlan::Known(list) if !list.contains(&axis)) {
            continue;
        }
        let Some(from) = x[axis].known() else { return Ok(None) };
        if to == 0 {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        if to > from.min(MOST_INDICES) {
            return Ok(None);
        }
        parts.push((axis, from, to));
    }
    Ok(Some(Measured { axes: plan, count, parts }))
}

impl Converter for Slice {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Slice", 13)],
        dtypes: check::CARRIED,
        layers: "ISliceLayer, IGatherLayer",
        limits: "axes, steps constant; starts, ends constant, or computed from dims, or bounded; or all dims declared",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::NOT_CONSTANT,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let Some(parts) = parts(node, x)? else {
            return Ok(shape::types([shape::typed(dtype, Some(vec![Dim::Unknown; x.len()]))]));
        };
        let mut to = x.to_vec();
        for part in &parts {
            to[part.axis] = part.size.clone();
        }
        let elements = match (node.input(0).and_then(|x| x.elements()), parts.as_slice()) {
            (Some(list), []) if x.len() == 1 => Some(list.to_vec()),
            (Some(list), [part]) if x.len() == 1 => picked(list, part),
            _ => None,
        };
        Ok(vec![Inferred { ty: shape::typed(dtype, Some(to)), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::CARRIED, target)?;
        check::not_empty(&x, "data")?;
        let parts = parts(node, x.shape).map_err(crate::ctx::window::refused)?;
        let open = |part: &Part| {
            extent::plan_dim(node, &part.start).is_none() || extent::plan_dim(node, &part.size).is_none()
        };
        if parts.as_ref().is_none_or(|parts| parts.iter().any(open))
            && let Some(measured) = measured(node, x.shape, target)?
        {
            return Ok(Plan::Gather(measured));
        }
        let parts = parts.ok_or_else(|| {
            Refusal::new(Code::NOT_CONSTANT, "axes and steps must be constants").slot("axes")
        })?;
        let mut starts = vec![DimPlan::Fixed(0); x.rank()];
        let mut sizes = extent::own_dims(node, 0);
        let mut strides = vec![1; x.rank()];
        let mut all = true;
        for part in parts {
            if part.size == Dim::Known(0) {
                return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
            }
            if part.step == 1 && part.start == Dim::Known(0) && part.size == x.shape[part.axis] {
                continue;
            }
            all = false;
            starts[part.axis] = extent::require_dim(node, &part.start, "starts")?;
            sizes[part.axis] = extent::require_dim(node, &part.size, "ends")?;
            // One element whatever the step; TensorRT holds steps in 32 bits.
            strides[part.axis] = if part.size == Dim::Known(1) { 1 } else { part.step };
            if i32::try_from(strides[part.axis]).is_err() {
                strides[part.axis] = i64::from(i32::MAX) * part.step.signum();
            }
        }
        Ok(match all {
            true => Plan::All,
            false => Plan::Part(ExtentPlan::Dims(starts), ExtentPlan::Dims(sizes), strides),
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let (start, size, stride) = match plan {
            Plan::All => return vec![x],
            Plan::Gather(plan) => return vec![taken(cx, x, &plan)],
            Plan::Part(start, size, stride) => (start, size, stride),
        };
        let (start, size) = (cx.extent(&start), cx.extent(&size));
        let stride = Extent::Static(stride);
        vec![cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })]
    }
}

/// Gathers along each axis: start + k · step, with the start clamped as the schema says.
fn taken(cx: &mut Emit<'_>, x: TensorId, plan: &Measured) -> TensorId {
    let rank = cx.rank(x);
    let starts = axes::part(cx, 1, 0, plan.count);
    let steps = cx.node().input(4).is_some().then(|| axes::part(cx, 4, 0, plan.count));
    let mut y = x;
    for &(axis, from, to) in &plan.parts {
        let start = axes::value(cx, &plan.axes, starts, (axis, rank), 0);
        let step = match steps {
            Some(steps) => axes::value(cx, &plan.axes, steps, (axis, rank), 1),
            None => cx.i64s(&[1]),
        };
        let (zero, length) = (cx.i64s(&[0]), cx.i64s(&[from]));
        let from_end = cx.elementwise(start, zero, ElementWiseOp::Less);
        let wrapped = cx.elementwise(start, length, ElementWiseOp::Sum);
        let start = cx.one(Layer::Select { condition: from_end, then_input: wrapped, else_input: start });
        // Backwards the last place is the farthest; forwards nothing is taken from beyond it.
        let start = axes::clamped(cx, start, 0, from - 1);
        let line = axes::line(cx, to);
        let moved = cx.elementwise(line, step, ElementWiseOp::Prod);
        let indices = cx.elementwise(start, moved, ElementWiseOp::Sum);
        let indices = axes::clamped(cx, indices, 0, from - 1);
        let (axis, mode) = (axis as u32, GatherMode::Default);
        y = cx.one(Layer::Gather { data: y, indices, axis, mode, batch_dims: 0 });
    }
    y
}

fn picked(list: &[Dim], part: &Part) -> Option<Vec<Dim>> {
    let (start, size) = (part.start.known()?, part.size.known()?);
    let at = |k: i64| usize::try_from(start.checked_add(k.checked_mul(part.step)?)?).ok();
    (0..size).map(|k| list.get(at(k)?).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn slice(starts: &[i64], ends: &[i64], axes: &[i64], steps: &[i64]) -> Case {
        let case = Case::new("Slice", 13).input(noise([5, 6])).constant(list(starts)).constant(list(ends));
        case.constant(list(axes)).constant(list(steps))
    }

    #[test]
    fn refusals() {
        let one = list(&[1]);
        let case = Case::new("Slice", 13).input(noise([1])).constant(list(&[0])).constant(one.clone());
        case.constant(list(&[0])).gates(unheld());
        slice(&[1], &[1], &[0], &[1]).refused(Code::SHAPE);
        let case = Case::new("Slice", 13).input(noise([5, 6]));
        case.clone().input(list(&[0])).constant(one.clone()).refused(Code::SHAPE_VALUE);
        case.constant(list(&[0])).constant(one.clone()).input(list(&[0])).refused(Code::NOT_CONSTANT);
    }

    #[test]
    fn types() {
        assert_eq!(slice(&[1], &[4], &[0], &[2]).types(), ["f32[2 x 6]"]);
        assert_eq!(slice(&[-3], &[i64::MAX], &[1], &[1]).types(), ["f32[5 x 3]"]);
        assert_eq!(slice(&[-1], &[i64::MIN], &[1], &[-1]).types(), ["f32[5 x 6]"]);
        assert_eq!(slice(&[-1], &[-7], &[1], &[-2]).types(), ["f32[5 x 3]"]);
        assert_eq!(slice(&[0], &[i64::MAX], &[0], &[1]).dynamic(0, ["N", "6"]).types(), ["f32[N x 6]"]);
        assert_eq!(slice(&[1], &[i64::MAX], &[0], &[1]).dynamic(0, ["N", "6"]).types(), ["f32[N - 1 x 6]"]);
        assert_eq!(slice(&[0], &[-1], &[0], &[1]).dynamic(0, ["N", "6"]).types(), ["f32[N - 1 x 6]"]);
        assert_eq!(slice(&[0], &[3], &[0], &[1]).dynamic(0, ["N", "6"]).types(), ["f32[min(3, N) x 6]"]);
        let shape = Case::new("Slice", 13).input(list(&[2, 3, 4])).sizes(0, ["N", "3", "M"]);
        let shape = shape
            .constant(list(&[-1]))
            .constant(list(&[i64::MIN]))
            .constant(list(&[0]))
            .constant(list(&[-1]));
        assert_eq!(shape.types(), ["i64[3] = [M, 3, N]"]);
        assert!(slice(&[0], &[3], &[0], &[0]).invalid().contains("a step of 0"));
        assert!(slice(&[0, 1], &[3], &[0], &[1]).invalid().contains("unequal length"));
        let open = Case::new("Slice", 13).input(noise([5, 6])).input(list(&[0])).constant(list(&[1]));
        assert_eq!(open.types(), ["f32[? x 6]"]);
    }

    #[test]
    fn numbers() {
        slice(&[1], &[4], &[0], &[2]).check(Tolerance::Exact);
        slice(&[-1, 5], &[i64::MIN, 0], &[1, 0], &[-1, -2]).check(Tolerance::Exact);
        slice(&[1], &[i64::MAX], &[0], &[1]).dynamic(0, ["N", "6"]).check(Tolerance::Exact);
        slice(&[-2], &[-20], &[0], &[-1]).dynamic(0, ["N", "M"]).check(Tolerance::Exact);
        slice(&[0], &[3], &[0], &[1]).dynamic(0, ["N", "6"]).check(Tolerance::Exact);
        slice(&[-1], &[i64::MIN], &[0], &[-1 << 62]).check(Tolerance::Exact);
        slice(&[1], &[i64::MAX], &[1], &[1 << 40]).dynamic(0, ["N", "M"]).check(Tolerance::Exact);
        let bounded = Case::new("Slice", 13).input(noise([5, 6])).dynamic(0, ["N", "6"]).input(list(&[1]));
        bounded.sizes(1, ["s"]).constant(list(&[i64::MAX])).check(Tolerance::Exact);
    }

    #[test]
    fn told_by_the_run() {
        let open = |starts: &[i64], ends: &[i64]| {
            Case::new("Slice", 13).input(noise([5, 6])).input(list(starts)).input(list(ends))
        };
        open(&[1, -4], &[4, 5]).declared(0, &[3, 3]).check(Tolerance::Exact);
        open(&[2], &[99]).declared(0, &[3, 6]).check(Tolerance::Exact);
        let axes = open(&[-1, 5], &[i64::MIN, 0]).input(list(&[-1, 0]));
        axes.input(list(&[-1, -2])).declared(0, &[2, 6]).check(Tolerance::Exact);
        let steps = open(&[-9], &[4]).constant(list(&[1])).input(list(&[3]));
        steps.declared(0, &[5, 2]).check(Tolerance::Exact);
        open(&[5], &[9]).declared(0, &[0, 6]).refused(Code::SHAPE);
        let narrow =
            Case::new("Slice", 13).input(counting([4])).input(i32s([1], &[1])).input(i32s([1], &[3]));
        narrow.declared(0, &[2]).check(Tolerance::Exact);
    }

    #[test]
    fn bytes() {
        let case = Case::new("Slice", 13).input(u8s([3], &[0, 255, 128]));
        case.constant(list(&[1])).constant(list(&[3])).check(Tolerance::Exact);
    }
}

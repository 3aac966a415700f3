//! ReduceSum, Mean, Max, Min, Prod, L1, L2, LogSum, LogSumExp, SumSquare.
//!
//! x [d0..dn] T, (axes [k] i64)  ->  y [d0..dn with 1, or without the axes] T
//! Opsets: axes as attribute up to 11 (Sum), 13 (others); 13, 18 as input, noop_with_empty_axes; 20 bool (Max, Min).
//! TensorRT: IReduceLayer with IUnaryLayer, IElementWiseLayer. f16 and bf16 are added up in f32.
//! Limits: floats; Sum, Mean, Max, Min, Prod, L1, SumSquare also i32, i64; Max, Min also bool, u8, i8; not empty;
//! axes constant, or of a number that the declared dims of the result leave few choices for: the run picks one.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{axes as run_axes, check, dims, elementwise, shape, small},
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, ReduceOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct Reduce;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    L1,
    L2,
    LogSum,
    LogSumExp,
    SumSquare,
}

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    kind: Kind,
    /// Axes that it may be; one choice unless the run picks.
    choices: Vec<Choice>,
    keep_dims: bool,
    dtype: DType,
}

/// Axes that are reduced.
#[derive(Debug)]
struct Choice {
    axes: Vec<u32>,
    /// Number of elements that go into one, for the mean of integers.
    count: i64,
}

/// Most reductions that are computed for the run to pick from.
const MOST_CHOICES: usize = 8;

fn kind(node: NodeView<'_>) -> Kind {
    match node.op() {
        "ReduceSum" => Kind::Sum,
        "ReduceMean" => Kind::Mean,
        "ReduceMax" => Kind::Max,
        "ReduceMin" => Kind::Min,
        "ReduceProd" => Kind::Prod,
        "ReduceL1" => Kind::L1,
        "ReduceL2" => Kind::L2,
        "ReduceLogSum" => Kind::LogSum,
        "ReduceLogSumExp" => Kind::LogSumExp,
        _ => Kind::SumSquare,
    }
}

fn allowed(kind: Kind) -> &'static [DType] {
    match kind {
        Kind::Max | Kind::Min => check::WITH_BOOL,
        Kind::L2 | Kind::LogSum | Kind::LogSumExp => check::FLOATS,
        _ => check::NUMBERS,
    }
}

/// The axes, ascending; `Ok(None)` when only the run knows them.
fn axes(node: NodeView<'_>, rank: usize) -> Result<Option<Vec<usize>>, Diag> {
    let given = match node.input(1) {
        None => Vec::new(),
        Some(view) => match view.const_i64s() {
            Some(list) => list,
            None if view.dim(0) == Some(&Dim::Known(0)) => Vec::new(),
            None => return Ok(None),
        },
    };
    if !given.is_empty() {
        return shape::axes(&given, rank).map(Some).map_err(|diag| diag.slot("axes"));
    }
    let all = node.int("noop_with_empty_axes", 0) == 0;
    Ok(Some(if all { (0..rank).collect() } else { Vec::new() }))
}

/// Sets of axes, as many as the input names, that leave just the dims that the model declares for the result.
fn choices(node: NodeView<'_>, x: &[Dim]) -> Option<Vec<Vec<usize>>> {
    let count = node.input(1)?.dim(0)?.known()?;
    let to = dims::of_output(node, 0)?;
    let from = x.iter().map(Dim::known).collect::<Option<Vec<i64>>>()?;
    let keep = node.int("keepdims", 1) != 0;
    let left = |axes: &[usize]| -> Vec<i64> {
        let dims = from.iter().enumerate();
        dims.filter_map(|(axis, &dim)| match axes.contains(&axis) {
            true => keep.then_some(1),
            false => Some(dim),
        })
        .collect()
    };
    let sets = (0u32..1 << from.len().min(8)).filter(|set| i64::from(set.count_ones()) == count);
    let axes = sets.map(|set| (0..from.len()).filter(|axis| set >> axis & 1 == 1).collect::<Vec<_>>());
    let fitting: Vec<Vec<usize>> = axes.filter(|axes| left(axes) == to).collect();
    (1..=MOST_CHOICES).contains(&fitting.len()).then_some(fitting)
}

impl Converter for Reduce {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("ReduceSum", 13),
            Key::onnx("ReduceMean", 18),
            Key::onnx("ReduceMax", 20),
            Key::onnx("ReduceMin", 20),
            Key::onnx("ReduceProd", 18),
            Key::onnx("ReduceL1", 18),
            Key::onnx("ReduceL2", 18),
            Key::onnx("ReduceLogSum", 28),
            Key::onnx("ReduceLogSumExp", 28),
            Key::onnx("ReduceSumSquare", 18),
        ],
        dtypes: check::NUMBERS,
        layers: "IReduceLayer, IUnaryLayer, IElementWiseLayer",
        limits: "axes constant, or told by the declared result; L2, LogSum, LogSumExp: floating point",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::NOT_CONSTANT,
            Code::DIM_UNKNOWN,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let dims = node.input(0).and_then(|x| x.shape());
        let Some(dims) = dims else { return Ok(shape::types([shape::typed(dtype, None)])) };
        let keep = node.int("keepdims", 1) != 0;
        let Some(axes) = axes(node, dims.len())? else {
            let count = node.input(1).and_then(|view| view.dim(0)).and_then(Dim::known);
            let rank = match (keep, count) {
                (true, _) => Some(dims.len()),
                (false, Some(count)) => usize::try_from(count).ok().and_then(|n| dims.len().checked_sub(n)),
                (false, None) => None,
            };
            let shape = rank.map(|rank| vec![Dim::Unknown; rank]);
            return Ok(shape::types([shape::typed(dtype, shape)]));
        };
        let mut shape = Vec::with_capacity(dims.len());
        for (axis, dim) in dims.iter().enumerate() {
            match (axes.contains(&axis), keep) {
                (false, _) => shape.push(dim.clone()),
                (true, true) => shape.push(Dim::Known(1)),
                (true, false) => {}
            }
        }
        let elements = if axes == [0] { elements(node) } else { None };
        let elements = small::settled(elements, dtype, node.symbols());
        Ok(vec![Inferred { ty: shape::typed(dtype, Some(shape)), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let kind = kind(node);
        let x = elementwise::gate(node, 0, "data", allowed(kind), target)?;
        check::never_empty(&x, "data")?;
        let axes = axes(node, x.rank()).map_err(|diag| Refusal::new(Code::INVALID, diag.why).slot("axes"))?;
        let sets = match axes {
            Some(axes) => vec![axes],
            None => {
                let sets = choices(node, x.shape)
                    .ok_or_else(|| Refusal::new(Code::NOT_CONSTANT, "must be a constant").slot("axes"))?;
                check::operand(node, 1, "axes", &[DType::I64, DType::I32], target)?;
                sets
            }
        };
        let choice = |axes: Vec<usize>| {
            let count = dims::product(axes.iter().map(|&axis| &x.shape[axis]));
            let count = match (kind, x.dtype.is_int()) {
                (Kind::Mean, true) => count.known().ok_or_else(|| {
                    Refusal::new(Code::DIM_UNKNOWN, "the mean of a number of integers that is not known")
                        .slot("data")
                })?,
                _ => 0,
            };
            Ok(Choice { axes: axes.into_iter().map(|axis| axis as u32).collect(), count })
        };
        Ok(Plan {
            kind,
            choices: sets.into_iter().map(choice).collect::<Result<_, Refusal>>()?,
            keep_dims: node.int("keepdims", 1) != 0,
            dtype: x.dtype,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let exact = matches!(plan.kind, Kind::Max | Kind::Min);
        let x = match plan.dtype {
            DType::Bool => cx.cast(x, DType::I32),
            DType::F16 | DType::Bf16 if !exact => cx.cast(x, DType::F32),
            _ => x,
        };
        let rank = cx.rank(x);
        let mut picked: Option<TensorId> = None;
        for choice in &plan.choices {
            let y = reduced(&plan, choice, cx, x);
            let y = match (plan.keep_dims, choice.axes.is_empty()) {
                (false, false) => cx.one(Layer::Squeeze { x: y, axes: choice.axes.clone() }),
                _ => y,
            };
            picked = Some(match picked {
                None => y,
                Some(other) => {
                    let to = cx.rank(y);
                    let condition = is_named(cx, &choice.axes, rank, to);
                    cx.one(Layer::Select { condition, then_input: y, else_input: other })
                }
            });
        }
        let Some(y) = picked else { return Outputs::new() };
        vec![match plan.dtype {
            DType::Bool => {
                let zero = elementwise::scalar_like(cx, y, 0.0);
                cx.elementwise(y, zero, ElementWiseOp::Greater)
            }
            dtype => cx.cast(y, carrier(dtype)),
        }]
    }
}

/// Whether the run names just these axes: a bool of rank `to`. All choices have the same number of them.
fn is_named(cx: &mut Emit<'_>, list: &[u32], rank: usize, to: usize) -> TensorId {
    let mut all = None;
    for &axis in list {
        let one = run_axes::named(cx, 1, axis as usize, rank);
        all = Some(all.map_or(one, |all| cx.elementwise(all, one, ElementWiseOp::And)));
    }
    let all = all.unwrap_or_else(|| cx.scalar(DType::Bool, 1, 1.0));
    cx.reshape(all, vec![1; to])
}

/// The reduction with the axes kept. No axes: the steps around the reduction remain.
fn reduced(plan: &Plan, choice: &Choice, cx: &mut Emit<'_>, x: TensorId) -> TensorId {
    let reduce = |cx: &mut Emit<'_>, x: TensorId, op: ReduceOp| match choice.axes.is_empty() {
        true => x,
        false => cx.one(Layer::Reduce { x, op, axes: choice.axes.clone(), keep_dims: true }),
    };
    match plan.kind {
        Kind::Sum => reduce(cx, x, ReduceOp::Sum),
        Kind::Max => reduce(cx, x, ReduceOp::Max),
        Kind::Min => reduce(cx, x, ReduceOp::Min),
        Kind::Prod => reduce(cx, x, ReduceOp::Prod),
        Kind::Mean if plan.dtype.is_int() => {
            let sum = reduce(cx, x, ReduceOp::Sum);
            let count = elementwise::scalar_like(cx, sum, choice.count as f64);
            cx.elementwise(sum, count, ElementWiseOp::Div)
        }
        Kind::Mean => reduce(cx, x, ReduceOp::Avg),
        Kind::L1 => {
            let x = cx.unary(x, UnaryOp::Abs);
            reduce(cx, x, ReduceOp::Sum)
        }
        Kind::L2 => {
            let x = cx.elementwise(x, x, ElementWiseOp::Prod);
            let sum = reduce(cx, x, ReduceOp::Sum);
            cx.unary(sum, UnaryOp::Sqrt)
        }
        Kind::SumSquare => {
            let x = cx.elementwise(x, x, ElementWiseOp::Prod);
            reduce(cx, x, ReduceOp::Sum)
        }
        Kind::LogSum => {
            let sum = reduce(cx, x, ReduceOp::Sum);
            cx.unary(sum, UnaryOp::Log)
        }
        Kind::LogSumExp => {
            // Relative to the largest element, so that nothing overflows; relative to 0 where that is infinite.
            let largest = reduce(cx, x, ReduceOp::Max);
            let infinite = cx.unary(largest, UnaryOp::IsInf);
            let zero = elementwise::scalar_like(cx, largest, 0.0);
            let base = cx.one(Layer::Select { condition: infinite, then_input: zero, else_input: largest });
            let moved = cx.elementwise(x, base, ElementWiseOp::Sub);
            let power = cx.unary(moved, UnaryOp::Exp);
            let sum = reduce(cx, power, ReduceOp::Sum);
            let log = cx.unary(sum, UnaryOp::Log);
            cx.elementwise(log, base, ElementWiseOp::Sum)
        }
    }
}

/// Sum, product, maximum, minimum of a known vector.
fn elements(node: NodeView<'_>) -> Option<Vec<Dim>> {
    let list = small::elements(node, 0)?;
    let (first, rest) = list.split_first()?;
    let all = |f: &dyn Fn(&Dim, &Dim) -> Dim| rest.iter().fold(first.clone(), |a, b| f(&a, b));
    Some(vec![match kind(node) {
        Kind::Sum => all(&Dim::add),
        Kind::Prod => all(&Dim::mul),
        Kind::Max => all(&|a, b| dims::max(node, a, b)),
        Kind::Min => all(&|a, b| dims::min(node, a, b)),
        _ => return None,
    }])
}

#[cfg(test)]
mod tests {
    use super::{Reduce, allowed, kind};
    use crate::{Converter, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Code, NodeView};

    fn kind_of(op: &str, since: u32) -> super::Kind {
        let built = Case::new(op, since).input(f32s([1], &[1.0])).built();
        kind(NodeView::new(&built.module.graph, &built.module.symbols, built.node))
    }

    #[test]
    fn numbers() {
        let values = [1.0, 3.0, 2.0, 5.0, 4.0, 6.0, 2.0, 1.0, 7.0, 3.0, 2.0, 2.0];
        for key in Reduce::DEF.keys {
            for &dtype in allowed(kind_of(key.op, key.since)) {
                let case = Case::new(key.op, key.since).input(of_dtype(dtype, [2, 3, 2], &values));
                let axes = |list: &[i64]| case.clone().constant(i64s([list.len() as i64], list));
                let near = if dtype == DType::Bool { Tolerance::Exact } else { near(dtype) };
                axes(&[1]).check(near);
                axes(&[-1, 0]).int("keepdims", 0).check(near);
                case.clone().int("keepdims", 0).check(near);
                if !(dtype.is_int() && key.op == "ReduceMean") {
                    axes(&[0, 2]).dynamic(0, ["N", "M", "K"]).check(near);
                }
            }
        }
    }

    #[test]
    fn no_axes() {
        let x = || f32s([2, 2], &[1.0, 2.0, 0.5, 4.0]);
        for key in Reduce::DEF.keys {
            let case = Case::new(key.op, key.since).input(x()).int("noop_with_empty_axes", 1);
            let expected = match key.op {
                "ReduceSumSquare" => f32s([2, 2], &[1.0, 4.0, 0.25, 16.0]),
                "ReduceLogSum" => f32s([2, 2], &[0.0, 2f32.ln(), 0.5f32.ln(), 4f32.ln()]),
                _ => x(),
            };
            case.gives(F32, &[expected]);
            Case::new(key.op, key.since).input(f32s([], &[2.0])).check(F32);
        }
    }

    #[test]
    fn axes_of_the_run() {
        let values = [1.0, 3.0, 2.0, 5.0, 4.0, 6.0, 2.0, 1.0, 7.0, 3.0, 2.0, 2.0];
        for key in Reduce::DEF.keys {
            let case = Case::new(key.op, key.since).input(of_dtype(DType::F32, [3, 2, 2], &values));
            let axes = |list: &[i64]| case.clone().input(i64s([list.len() as i64], list));
            axes(&[-2]).declared(0, &[3, 1, 2]).check(F32);
            axes(&[1]).int("keepdims", 0).declared(0, &[3, 2]).check(F32);
            axes(&[-1]).int("keepdims", 0).declared(0, &[3, 2]).check(F32);
            axes(&[-1, 0]).int("keepdims", 0).declared(0, &[2]).check(F32);
            axes(&[0, 1]).int("keepdims", 0).declared(0, &[2]).check(F32);
        }
        let mean = Case::new("ReduceMean", 18).input(i32s([2, 2], &[1, 2, 4, 8])).input(i64s([1], &[0]));
        mean.int("keepdims", 0).declared(0, &[2]).check(Tolerance::Exact);
        let line = Case::new("ReduceSum", 13).input(f32s([1, 1, 2], &[1.0, 2.0])).input(i64s([2], &[0, -2]));
        line.declared(0, &[1, 1, 2]).check(Tolerance::Exact);
    }

    #[test]
    fn extremes() {
        let inf = f32::INFINITY;
        let x = f32s([4, 2], &[-inf, -inf, inf, 0.0, 200.0, 200.0, -200.0, -201.0]);
        let case = Case::new("ReduceLogSumExp", 28).input(x).constant(i64s([1], &[1]));
        let f = |v: f32| v.ln_1p();
        let expected = [-inf, inf, 200.0 + 2f32.ln(), -200.0 + f((-1f32).exp())];
        case.gives(F32, &[f32s([4, 1], &expected)]);
        let bits = Case::new("ReduceMin", 20).input(bools([2, 2], &[true, false, true, true]));
        bits.constant(i64s([1], &[1]))
            .int("keepdims", 0)
            .gives(Tolerance::Exact, &[bools([2], &[false, true])]);
    }

    #[test]
    fn types() {
        let x = || Case::new("ReduceSum", 13).input(f32s([2, 3], &[0.0; 6])).dynamic(0, ["N", "3"]);
        assert_eq!(x().constant(i64s([1], &[1])).types(), ["f32[N x 1]"]);
        assert_eq!(x().constant(i64s([1], &[1])).int("keepdims", 0).types(), ["f32[N]"]);
        assert_eq!(x().input(i64s([1], &[1])).types(), ["f32[? x ?]"]);
        assert_eq!(x().input(i64s([1], &[1])).int("keepdims", 0).types(), ["f32[?]"]);
        assert_eq!(x().constant(i64s([1], &[2])).invalid(), "axis 2 is out of range for rank 2");
        let of = |op: &str, since| {
            let case = Case::new(op, since).input(i64s([3], &[0; 3])).sizes(0, ["N", "2", "M"]);
            case.int("keepdims", 0).types()[0].clone()
        };
        assert_eq!(of("ReduceProd", 18), "i64[] = [2*N*M]");
        assert_eq!(of("ReduceSum", 13), "i64[] = [N + M + 2]");
        assert_eq!(of("ReduceMax", 20), "i64[] = [max(M, max(2, N))]");
    }

    #[test]
    fn refusals() {
        for key in Reduce::DEF.keys {
            let wrong = match allowed(kind_of(key.op, key.since)) {
                list if list.contains(&DType::Bool) => f8s([1], &[1]),
                list if list.contains(&DType::I32) => bools([1], &[true]),
                _ => i32s([1], &[1]),
            };
            Case::new(key.op, key.since).input(f32s([1], &[1.0])).gates(wrong);
        }
        let sum = Case::new("ReduceSum", 13).input(f32s([2], &[1.0, 2.0]));
        sum.input(i64s([1], &[0])).refused(Code::NOT_CONSTANT);
        let mean = Case::new("ReduceMean", 18).input(i32s([2], &[1, 2]));
        mean.dynamic(0, ["N"]).refused(Code::DIM_UNKNOWN);
    }
}

//! Compress: the slices along an axis that a condition picks.
//!
//! input [d0..dn] T, condition [k] bool  ->  output [d.., count, ..d] T (of the flat input without axis)
//! Opsets: 9; 11 negative axes; 28 wider types.     TensorRT: IGatherLayer (condition of the run: ICumulativeLayer).
//! Limits: condition constant, or the dims of the result declared.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, Interval, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{CumulativeOp, ElementWiseOp, GatherMode, ReduceOp},
};

/// The converter.
#[derive(Debug)]
pub struct Compress;

/// Which slices, along which axis; `None` for the flat input.
#[derive(Debug)]
pub struct Plan {
    axis: Option<usize>,
    picks: Picks,
}

#[derive(Debug)]
enum Picks {
    /// These.
    Known(Vec<i64>),
    /// As many, wherever the condition of the run, of this length, holds.
    Count { count: i64, of: i64 },
}

/// Conditions times results, written out as a matrix of places.
const MOST_PAIRS: i64 = 1 << 24;

fn axis(node: NodeView<'_>, rank: usize) -> Result<Option<usize>, Diag> {
    let axis = node.attrs().int("axis").map(|axis| shape::axis(axis, rank));
    axis.transpose().map_err(|diag| diag.slot("axis"))
}

/// Places at which a constant condition holds.
fn picks(node: NodeView<'_>) -> Option<Vec<i64>> {
    let values = node.input(1)?.const_i64s()?;
    Some((0..).zip(values).filter(|&(_, holds)| holds != 0).map(|(place, _)| place).collect())
}

impl Converter for Compress {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Compress", 28)],
        dtypes: check::CARRIED,
        layers: "IGatherLayer, ICumulativeLayer",
        limits: "condition constant, or told by the declared result",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let x = node.input(0).and_then(|x| x.shape());
        let axis = match x {
            Some(x) => axis(node, x.len())?,
            None => None,
        };
        let along = x.map(|x| axis.map_or_else(|| dims::product(x), |axis| x[axis].clone()));
        let count = match picks(node) {
            Some(picks) => Dim::Known(picks.len() as i64),
            None => {
                let range = |dim: &Dim| node.symbols().interval(dim).max;
                let most = along.as_ref().and_then(range);
                let length = node.input(1).and_then(|condition| condition.dim(0)).and_then(range);
                let most = most.zip(length).map(|(a, b)| a.min(b)).or(most).or(length);
                match dims::declared(node, Dim::Unknown, 0, axis.unwrap_or(0)) {
                    Dim::Unknown => cx.unbacked("count", Interval { min: Some(0), max: most }),
                    // Left to the declaration.
                    _ => Dim::Unknown,
                }
            }
        };
        let to = match (node.attrs().int("axis"), x, axis) {
            (None, _, _) => Some(vec![count]),
            (Some(_), Some(x), Some(axis)) => {
                let mut to = x.to_vec();
                to[axis] = count;
                Some(to)
            }
            _ => None,
        };
        Ok(shape::types([shape::typed(dtype, to)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::CARRIED, target)?;
        check::not_empty(&x, "input")?;
        let axis = axis(node, x.rank()).map_err(crate::ctx::window::refused)?;
        let along = axis.map_or_else(|| dims::product(x.shape), |axis| x.shape[axis].clone());
        let condition = check::operand(node, 1, "condition", &[DType::Bool], target)?;
        let empty = || Refusal::new(Code::SHAPE, "the result is an empty tensor");
        if let Some(picks) = picks(node) {
            let last = *picks.last().ok_or_else(empty)?;
            if !dims::at_least(node, &along, last.saturating_add(1)) {
                let why = format!("place {last} is picked of {} slices", node.symbols().show(&along));
                return Err(Refusal::new(Code::CONSTANT_VALUE, why).slot("condition"));
            }
            return Ok(Plan { axis, picks: Picks::Known(picks) });
        }
        let told = dims::declared(node, Dim::Unknown, 0, axis.unwrap_or(0)).known();
        let (Some(count), [Dim::Known(of)]) = (told, condition.shape) else {
            let why = "how many slices are picked is known only at run time";
            return Err(Refusal::new(Code::SHAPE_VALUE, why).slot("condition"));
        };
        if count == 0 {
            return Err(empty());
        }
        if !dims::at_least(node, &along, *of) || count > *of || count.saturating_mul(*of) > MOST_PAIRS {
            let why = format!("{count} slices by a condition of {of}");
            return Err(Refusal::new(Code::SHAPE, why).slot("condition"));
        }
        Ok(Plan { axis, picks: Picks::Count { count, of: *of } })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let data = if plan.axis.is_none() && cx.rank(x) != 1 { cx.reshape(x, vec![-1]) } else { x };
        let indices = match plan.picks {
            Picks::Known(list) => cx.i64s(&list),
            Picks::Count { count, of } => places(cx, count, of),
        };
        let axis = plan.axis.unwrap_or(0) as u32;
        vec![cx.one(Layer::Gather { data, indices, axis, mode: GatherMode::Default, batch_dims: 0 })]
    }
}

/// Where the condition holds for the first, second, … time: i64 \[count\].
fn places(cx: &mut Emit<'_>, count: i64, of: i64) -> TensorId {
    let condition = cx.input(1);
    let ones = cx.cast(condition, DType::I64);
    let (axis, op) = (cx.scalar(DType::I64, 0, 0.0), CumulativeOp::Sum);
    let so_far = cx.one(Layer::Cumulative { x: ones, axis, op, exclusive: false, reverse: false });
    let so_far = cx.reshape(so_far, vec![1, of]);
    let here = cx.reshape(condition, vec![1, of]);
    let column = |cx: &mut Emit<'_>, dims: Vec<i64>, first: i64| {
        let n: i64 = dims.iter().product();
        let bytes: Vec<u8> = (first..first + n).flat_map(i64::to_le_bytes).collect();
        cx.constant(DType::I64, dims, bytes.into())
    };
    let wanted = column(cx, vec![count, 1], 1);
    let hit = cx.elementwise(so_far, wanted, ElementWiseOp::Equal);
    let condition = cx.elementwise(hit, here, ElementWiseOp::And);
    let then_input = column(cx, vec![1, of], 0);
    let else_input = cx.scalar(DType::I64, 2, 0.0);
    let chosen = cx.one(Layer::Select { condition, then_input, else_input });
    cx.one(Layer::Reduce { x: chosen, op: ReduceOp::Sum, axes: vec![1], keep_dims: false })
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn case() -> Case {
        Case::new("Compress", 28).input(noise([3, 4]))
    }

    #[test]
    fn refusals() {
        let usual = Case::new("Compress", 28).input(noise([2])).constant(bools([2], &[true, false]));
        usual.gates(unheld());
        case().constant(bools([2], &[false; 2])).refused(Code::SHAPE);
        case().int("axis", 0).constant(bools([4], &[true; 4])).refused(Code::CONSTANT_VALUE);
        case().input(bools([2], &[true; 2])).refused(Code::SHAPE_VALUE);
        let open = case().int("axis", 0).input(bools([3], &[true; 3]));
        open.clone().declared(0, &[0, 4]).refused(Code::SHAPE);
        open.dynamic(1, ["N"]).declared(0, &[2, 4]).refused(Code::SHAPE_VALUE);
        case().refused(Code::INVALID);
    }

    #[test]
    fn types() {
        let compress = case().input(bools([2], &[true; 2]));
        assert_eq!(compress.types(), ["f32[node.count]"]);
        assert_eq!(compress.int("axis", 0).types(), ["f32[node.count x 4]"]);
        let known = case().constant(bools([3], &[true, false, true])).int("axis", -1);
        assert_eq!(known.dynamic(0, ["N", "4"]).types(), ["f32[N x 2]"]);
        assert!(case().int("axis", 3).invalid().contains("out of range"));
    }

    #[test]
    fn numbers() {
        let mask = || bools([3], &[true, false, true]);
        case().constant(mask()).check(Tolerance::Exact);
        case().constant(mask()).int("axis", 0).check(Tolerance::Exact);
        case().constant(mask()).int("axis", -1).dynamic(0, ["N", "4"]).check(Tolerance::Exact);
        case().input(mask()).declared(0, &[2]).check(Tolerance::Exact);
        case().input(mask()).int("axis", 0).declared(0, &[2, 4]).check(Tolerance::Exact);
        case()
            .input(bools([4], &[false, true, true, true]))
            .int("axis", 1)
            .declared(0, &[3, 3])
            .check(Tolerance::Exact);
    }
}

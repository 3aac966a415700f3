//! QLinearAdd, QLinearMul, QLinearSigmoid, QLinearLeakyRelu, QLinearConcat, QLinearWhere (com.microsoft): an operator over
//! quantised numbers with a quantised result.
//!
//! x [..] T, x_scale [] f32, (x_zero_point [] T), …, y_scale [] f32, (y_zero_point [] T)  ->  y [..] T
//! Opsets: 1.     TensorRT: the layers of the operator in f32 between IElementWiseLayer and IUnaryLayer.
//! Limits: u8, i8; one scale and zero point for a tensor; not empty. A sum that is within a last place of a tie may be rounded
//! the other way than by a processor with fused multiplications.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise, integers,
        quantize::{self, Quantised},
        shape,
    },
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ActivationKind, ElementWiseOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct QLinear;

/// What is computed, of what.
#[derive(Debug)]
pub struct Plan {
    op: Op,
    operands: Vec<Quantised>,
    /// Scale and zero point of the result.
    result: (usize, usize),
    rank: usize,
    to: DType,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Add,
    Mul,
    Sigmoid,
    LeakyRelu(f32),
    Concat(u32),
    Where,
}

const BYTES: &[DType] = integers::BYTES;

/// The quantised operands, and the slots of the result's scale and zero point.
fn slots(node: NodeView<'_>) -> (Vec<Quantised>, (usize, usize)) {
    let at = Quantised::at;
    match node.op() {
        "QLinearAdd" | "QLinearMul" => (vec![at(0), at(3)], (6, 7)),
        "QLinearWhere" => (vec![at(1), at(4)], (7, 8)),
        "QLinearConcat" => ((2..node.input_count()).step_by(3).map(at).collect(), (0, 1)),
        _ => (vec![at(0)], (3, 4)),
    }
}

fn operation(node: NodeView<'_>, rank: usize) -> Result<Op, Refusal> {
    Ok(match node.op() {
        "QLinearAdd" => Op::Add,
        "QLinearMul" => Op::Mul,
        "QLinearWhere" => Op::Where,
        "QLinearSigmoid" => Op::Sigmoid,
        "QLinearLeakyRelu" => Op::LeakyRelu(node.float("alpha", 0.01)),
        _ => Op::Concat(check::axis(node.int("axis", 0), rank, "axis")? as u32),
    })
}

impl Converter for QLinear {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::of("com.microsoft", "QLinearAdd", 1),
            Key::of("com.microsoft", "QLinearMul", 1),
            Key::of("com.microsoft", "QLinearSigmoid", 1),
            Key::of("com.microsoft", "QLinearLeakyRelu", 1),
            Key::of("com.microsoft", "QLinearConcat", 1),
            Key::of("com.microsoft", "QLinearWhere", 1),
        ],
        dtypes: BYTES,
        layers: "IElementWiseLayer, IUnaryLayer, IActivationLayer, IConcatenationLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let (operands, _) = slots(node);
        let Some(first) = operands.first() else { return Err(Diag::invalid("no inputs")) };
        let dtype = shape::dtype_of(node, first.x);
        let of = |slot: usize| node.input(slot).and_then(|view| view.shape());
        let dims = match node.op() {
            "QLinearAdd" | "QLinearMul" => elementwise::broadcast_shape(node, &[0, 3], cx)?,
            "QLinearWhere" => elementwise::broadcast_shape(node, &[0, 1, 4], cx)?,
            "QLinearConcat" => {
                let shapes: Option<Vec<&[Dim]>> = operands.iter().map(|operand| of(operand.x)).collect();
                match shapes {
                    Some(shapes) => Some(joined(node, &shapes)?),
                    None => None,
                }
            }
            _ => of(first.x).map(<[Dim]>::to_vec),
        };
        Ok(shape::types([shape::typed(dtype, dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (operands, result) = slots(node);
        let (mut rank, mut to) = (0, None);
        for operand in &operands {
            let x = operand.gate(node, target)?;
            if *to.get_or_insert(x.dtype) != x.dtype {
                return Err(Refusal::new(Code::INVALID, "operands of unequal dtypes").slot("x"));
            }
            rank = rank.max(x.rank());
        }
        let to = to.ok_or_else(|| Refusal::new(Code::INVALID, "no inputs"))?;
        quantize::numbers(node, result, to, target)?;
        if node.op() == "QLinearWhere" {
            let condition = elementwise::gate(node, 0, "condition", &[DType::Bool], target)?;
            rank = rank.max(condition.rank());
        }
        let op = operation(node, rank)?;
        Ok(Plan { op, operands, result, rank, to })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let rank = plan.rank;
        // A sum or a product is rounded with the zero point in it.
        let moved = match (&plan.operands[..], plan.op) {
            ([a, b], Op::Add) => Some(sum(cx, &plan, [a, b])),
            ([a, b], Op::Mul) => Some(product(cx, &plan, [a, b])),
            _ => None,
        };
        if let Some(moved) = moved {
            let y = cx.unary(moved, UnaryOp::Round);
            let y = integers::clamped(cx, y, plan.to);
            return vec![cx.cast(y, carrier(plan.to))];
        }
        let xs: Vec<TensorId> = plan.operands.iter().map(|operand| operand.real(cx, rank)).collect();
        let (x, other) = (xs[0], xs.last().copied().unwrap_or(xs[0]));
        let y = match plan.op {
            Op::Sigmoid => cx.activation(x, ActivationKind::Sigmoid, 0.0, 0.0),
            Op::LeakyRelu(alpha) => cx.activation(x, ActivationKind::LeakyRelu, alpha, 0.0),
            Op::Concat(axis) => cx.one(Layer::Concatenation { xs, axis }),
            Op::Add | Op::Mul => x,
            Op::Where => {
                let condition = elementwise::input(cx, 0, rank);
                cx.one(Layer::Select { condition, then_input: x, else_input: other })
            }
        };
        let scale = quantize::number(cx, plan.result.0, rank);
        let quotient = cx.elementwise(y, scale, ElementWiseOp::Div);
        let zero = quantize::zero_point(cx, plan.result.1, rank);
        let y = integers::quantized(cx, quotient, zero, plan.to);
        vec![cx.cast(y, carrier(plan.to))]
    }
}

/// The sum in units of the result, its zero point added: (z + b · rb) + a · ra, with r the ratio of an operand's scale to the
/// result's and z the result's zero point less the operands' by their ratios. So ONNX Runtime adds (with fused
/// multiplications where the processor has them), and so ties are rounded.
fn sum(cx: &mut Emit<'_>, plan: &Plan, operands: [&Quantised; 2]) -> TensorId {
    let rank = plan.rank;
    let scale = quantize::number(cx, plan.result.0, rank);
    let [(a, a_zero), (b, b_zero)] = operands.map(|operand| {
        let x = elementwise::input(cx, operand.x, rank);
        let x = cx.cast(x, DType::F32);
        let own = quantize::number(cx, operand.scale, rank);
        let ratio = cx.elementwise(own, scale, ElementWiseOp::Div);
        let zero = quantize::zero_point(cx, operand.zero, rank);
        let zero = cx.elementwise(ratio, zero, ElementWiseOp::Prod);
        (cx.elementwise(x, ratio, ElementWiseOp::Prod), zero)
    });
    let zero = quantize::zero_point(cx, plan.result.1, rank);
    let zeros = cx.elementwise(a_zero, b_zero, ElementWiseOp::Sum);
    let zero = cx.elementwise(zero, zeros, ElementWiseOp::Sub);
    let y = cx.elementwise(zero, b, ElementWiseOp::Sum);
    cx.elementwise(y, a, ElementWiseOp::Sum)
}

/// The product in units of the result, its zero point added: whole numbers are multiplied, exactly, and scaled once.
fn product(cx: &mut Emit<'_>, plan: &Plan, operands: [&Quantised; 2]) -> TensorId {
    let rank = plan.rank;
    let [a, b] = operands.map(|operand| operand.difference(cx, rank));
    let [a_scale, b_scale] = operands.map(|operand| quantize::number(cx, operand.scale, rank));
    let scale = quantize::number(cx, plan.result.0, rank);
    let factor = cx.elementwise(a_scale, b_scale, ElementWiseOp::Prod);
    let factor = cx.elementwise(factor, scale, ElementWiseOp::Div);
    let whole = cx.elementwise(a, b, ElementWiseOp::Prod);
    let y = cx.elementwise(whole, factor, ElementWiseOp::Prod);
    let zero = quantize::zero_point(cx, plan.result.1, rank);
    cx.elementwise(y, zero, ElementWiseOp::Sum)
}

/// Dims of the shapes one behind the other.
fn joined(node: NodeView<'_>, shapes: &[&[Dim]]) -> Result<Vec<Dim>, Diag> {
    let mut dims = shapes[0].to_vec();
    let axis = shape::axis(node.int("axis", 0), dims.len()).map_err(|diag| diag.slot("axis"))?;
    for other in &shapes[1..] {
        let Some(size) = other.get(axis).filter(|_| other.len() == dims.len()) else {
            return Err(Diag::invalid("inputs of unequal ranks"));
        };
        dims[axis] = dims[axis].add(size);
    }
    Ok(dims)
}

#[cfg(test)]
mod tests {
    use super::QLinear;
    use crate::{Converter, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    fn of(dtype: DType, values: [f64; 6]) -> Tensor {
        of_dtype(dtype, [2, 3], &values)
    }

    fn data(dtype: DType) -> [Tensor; 2] {
        match dtype {
            DType::U8 => [
                of(dtype, [0.0, 17.0, 128.0, 200.0, 255.0, 90.0]),
                of(dtype, [255.0, 3.0, 77.0, 128.0, 1.0, 60.0]),
            ],
            _ => [
                of(dtype, [-128.0, 17.0, 0.0, -90.0, 127.0, 64.0]),
                of(dtype, [5.0, -127.0, 99.0, -1.0, 33.0, 12.0]),
            ],
        }
    }

    fn case(op: &str) -> Case {
        Case::of("com.microsoft", op, 1)
    }

    fn scale(value: f32) -> Tensor {
        f32s([], &[value])
    }

    fn zero(dtype: DType, value: f64) -> Tensor {
        of_dtype(dtype, [], &[value])
    }

    #[test]
    fn two_operands() {
        for dtype in [DType::U8, DType::I8] {
            let [a, b] = data(dtype);
            for op in ["QLinearAdd", "QLinearMul"] {
                let left = case(op).input(a.clone()).constant(scale(0.071)).constant(zero(dtype, 3.0));
                let both = left.clone().input(b.clone()).constant(scale(0.113)).constant(zero(dtype, 7.0));
                let whole = both.constant(scale(0.37)).constant(zero(dtype, 21.0));
                whole.check(Tolerance::Exact);
                whole.dynamic(0, ["N", "3"]).dynamic(3, ["N", "3"]).check(Tolerance::Exact);
                // Everything from the run, broadcast.
                let row = of_dtype(dtype, [3], &[9.0, 100.0, 50.0]);
                let run = case(op).input(a.clone()).input(scale(0.071)).input(zero(dtype, 3.0)).input(row);
                let run = run.input(scale(0.113)).input(zero(dtype, 7.0)).input(scale(0.37));
                run.input(zero(dtype, 2.0)).check(Tolerance::Exact);
            }
            let choice = case("QLinearWhere").input(bools([2, 1], &[true, false])).input(a);
            let choice = choice.constant(scale(0.071)).constant(zero(dtype, 3.0)).input(b);
            let choice = choice.constant(scale(0.113)).constant(zero(dtype, 7.0));
            choice.constant(scale(0.09)).constant(zero(dtype, 11.0)).check(Tolerance::Exact);
        }
    }

    // ONNX Runtime wants the zero points that its schema lets out.
    #[test]
    fn without_zero_points() {
        let left = case("QLinearAdd").input(u8s([2], &[2, 4])).constant(scale(0.5)).absent();
        let both = left.input(u8s([2], &[4, 255])).constant(scale(0.25)).absent();
        both.constant(scale(0.125)).gives(Tolerance::Exact, &[u8s([2], &[16, 255])]);
    }

    fn unary(op: &str, x: Tensor, dtype: DType) -> Case {
        let case = case(op).input(x).constant(scale(0.071)).constant(zero(dtype, 3.0));
        case.constant(scale(0.0123)).constant(zero(dtype, 21.0))
    }

    #[test]
    fn one_operand() {
        for dtype in [DType::U8, DType::I8] {
            let [a, _] = data(dtype);
            unary("QLinearSigmoid", a.clone(), dtype).check(Tolerance::Exact);
            unary("QLinearLeakyRelu", a.clone(), dtype).float("alpha", 0.3).check(Tolerance::Exact);
            unary("QLinearLeakyRelu", a.clone(), dtype).dynamic(0, ["N", "3"]).check(Tolerance::Exact);
        }
    }

    /// Scales (two operands, the result) of which many results are ties, and others.
    const SCALES: [[f32; 3]; 4] = [[1.0, 1.0, 2.0], [0.1, 0.1, 0.2], [0.03, 0.06, 0.06], [0.5, 0.25, 0.125]];

    fn every_level(dtype: DType, each: impl Fn(i64) -> i64, n: i64) -> Tensor {
        let least = if dtype == DType::I8 { -128 } else { 0 };
        let list: Vec<f64> = (0..n).map(|k| (each(k) + least) as f64).collect();
        of_dtype(dtype, [n], &list)
    }

    #[test]
    fn every_pair_of_levels() {
        for dtype in [DType::U8, DType::I8] {
            for [a_scale, b_scale, y_scale] in SCALES {
                for op in ["QLinearAdd", "QLinearMul"] {
                    let (a, b) =
                        (every_level(dtype, |k| k / 256, 65_536), every_level(dtype, |k| k % 256, 65_536));
                    let left = case(op).input(a).constant(scale(a_scale)).constant(zero(dtype, 3.0));
                    let both = left.input(b).constant(scale(b_scale)).constant(zero(dtype, 7.0));
                    both.constant(scale(y_scale)).constant(zero(dtype, 21.0)).check(Tolerance::Exact);
                }
            }
        }
    }

    #[test]
    fn every_level_alone() {
        for dtype in [DType::U8, DType::I8] {
            for [x_scale, _, y_scale] in SCALES {
                let x = || every_level(dtype, |k| k, 256);
                for op in ["QLinearSigmoid", "QLinearLeakyRelu"] {
                    let case = case(op).input(x()).constant(scale(x_scale)).constant(zero(dtype, 3.0));
                    let case = case.constant(scale(y_scale / 16.0)).constant(zero(dtype, 21.0));
                    let case = if op == "QLinearLeakyRelu" { case.float("alpha", 0.25) } else { case };
                    case.check(Tolerance::Exact);
                }
                let start = case("QLinearConcat").constant(scale(y_scale)).constant(zero(dtype, 5.0));
                let one = start.input(x()).constant(scale(x_scale)).constant(zero(dtype, 3.0));
                let two = one.input(x()).constant(scale(0.113)).constant(zero(dtype, 7.0)).int("axis", 0);
                two.check(Tolerance::Exact);
                let flags: Vec<bool> = (0..256).map(|k| k % 3 == 0).collect();
                let choice = case("QLinearWhere").input(bools([256], &flags)).input(x());
                let choice = choice.constant(scale(x_scale)).constant(zero(dtype, 3.0)).input(x());
                let choice = choice.constant(scale(0.113)).constant(zero(dtype, 7.0));
                choice.constant(scale(y_scale)).constant(zero(dtype, 11.0)).check(Tolerance::Exact);
            }
        }
    }

    #[test]
    fn concatenation() {
        for dtype in [DType::U8, DType::I8] {
            let [a, b] = data(dtype);
            let start = case("QLinearConcat").constant(scale(0.09)).constant(zero(dtype, 5.0));
            let one = start.input(a).constant(scale(0.071)).constant(zero(dtype, 3.0));
            let two = one.input(b).constant(scale(0.113)).constant(zero(dtype, 7.0)).int("axis", 1);
            assert_eq!(two.types(), [format!("{dtype}[2 x 6]")]);
            two.check(Tolerance::Exact);
            assert_eq!(two.clone().dynamic(2, ["2", "N"]).types(), [format!("{dtype}[2 x N + 3]")]);
            assert!(two.int("axis", 2).invalid().contains("axis"));
        }
    }

    #[test]
    fn refusals() {
        for key in QLinear::DEF.keys.iter().filter(|key| !["QLinearConcat", "QLinearWhere"].contains(&key.op))
        {
            let [a, _] = data(DType::U8);
            unary(key.op, a.clone(), DType::U8).dynamic(0, ["2", "0"]).refused(Code::SHAPE);
            unary(key.op, a.clone(), DType::U8).untyped(0).refused(Code::DTYPE_UNKNOWN);
            unary(key.op, f64s([1], &[1.0]), DType::U8).refused(Code::DTYPE_UNREPRESENTABLE);
            unary(key.op, f32s([1], &[1.0]), DType::U8).refused(Code::DTYPE_KERNEL);
        }
        let [a, _] = data(DType::U8);
        let sigmoid = || case("QLinearSigmoid").input(a.clone());
        unary("QLinearSigmoid", a.clone(), DType::U8).unranked(0).refused(Code::RANK_UNKNOWN);
        unary("QLinearSigmoid", a.clone(), DType::U8).dynamic(0, ["1"; 9]).refused(Code::RANK);
        sigmoid().refused(Code::INVALID);
        let two = sigmoid().constant(f32s([2], &[1.0, 2.0])).absent().constant(scale(1.0));
        two.refused(Code::SHAPE);
        let [a, b] = data(DType::U8);
        let start = case("QLinearConcat").constant(scale(0.09)).constant(zero(DType::U8, 5.0));
        let one = start.input(a).dynamic(2, ["2", "3"]).constant(scale(0.071)).constant(zero(DType::U8, 3.0));
        one.input(b).unranked(5).constant(scale(0.1)).int("axis", 7).refused(Code::RANK_UNKNOWN);
    }
}

//! BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot: integers bit by bit.
//!
//! a [..] T, b [..] T  ->  c [broadcast] T          x [d0..dn] T  ->  y [d0..dn] T
//! Opsets: 18.     TensorRT: none; IElementWiseLayer FLOOR_DIV, PROD, SUB, SUM and IReduceLayer.
//! Both are split into bits along a new last axis, multiplied and added up again; one constant mask of few runs of ones cuts
//! these out without. Or and xor follow: a & b is taken from a and from b.
//! Limits: i32, i64, u8, i8, u16, i16, u32; rank below 8 but for such a mask; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, small, wrap},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Tensor};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, ReduceOp},
};

/// The converter.
#[derive(Debug)]
pub struct Bitwise;

/// The operation, of what, and how a & b is found.
#[derive(Debug)]
pub struct Plan {
    op: Op,
    dtype: DType,
    rank: usize,
    /// The slot of a constant mask, and its runs of ones: from this bit up to before that one.
    mask: Option<(usize, Vec<(u32, u32)>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    And,
    Or,
    Xor,
    Not,
}

/// A mask of more runs is cheaper by bits.
const MOST_RUNS: usize = 4;

/// As many bits as are added up at once.
const HALF: usize = 32;

fn op_of(node: NodeView<'_>) -> Op {
    match node.op() {
        "BitwiseAnd" => Op::And,
        "BitwiseOr" => Op::Or,
        "BitwiseXor" => Op::Xor,
        _ => Op::Not,
    }
}

fn signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// Runs of ones in the bits of a constant whose elements are all the same.
fn runs(constant: &Tensor) -> Option<Vec<(u32, u32)>> {
    let values = constant.to_i64s()?;
    let (&first, rest) = values.split_first()?;
    if rest.iter().any(|&value| value != first) {
        return None;
    }
    let bits = constant.dtype().bits() as u32;
    let one = |bit: &u32| first >> bit & 1 == 1;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for bit in (0..bits).filter(one) {
        match runs.last_mut() {
            Some((_, end)) if *end == bit => *end += 1,
            _ => runs.push((bit, bit + 1)),
        }
    }
    // 2³¹ is no i32, and 2⁶³ no i64.
    let wide = matches!(constant.dtype(), DType::I32 | DType::I64);
    let held = |&(from, to): &(u32, u32)| !wide || (from < bits - 1 && (to == bits || to - from < bits - 1));
    (runs.len() <= MOST_RUNS && runs.iter().all(held)).then_some(runs)
}

impl Converter for Bitwise {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("BitwiseAnd", 18),
            Key::onnx("BitwiseOr", 18),
            Key::onnx("BitwiseXor", 18),
            Key::onnx("BitwiseNot", 18),
        ],
        dtypes: check::INTEGERS,
        layers: "IElementWiseLayer, IReduceLayer, ISelectLayer",
        limits: "rank below 8, but for BitwiseNot and plain constant masks",
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
        let slots: &[usize] = if node.op() == "BitwiseNot" { &[0] } else { &[0, 1] };
        let ty = elementwise::broadcast(node, slots, None, cx)?;
        let both = |f: &dyn Fn(i64, i64) -> i64| {
            small::zip(node, [0, 1], |a, b| match (a, b) {
                (Dim::Known(a), Dim::Known(b)) => Dim::Known(f(*a, *b)),
                _ => Dim::Unknown,
            })
        };
        let elements = match node.op() {
            "BitwiseAnd" => both(&|a, b| a & b),
            "BitwiseOr" => both(&|a, b| a | b),
            "BitwiseXor" => both(&|a, b| a ^ b),
            _ => None,
        };
        let elements = small::settled(elements, ty.dtype(), node.symbols());
        Ok(vec![Inferred { ty, elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let op = op_of(node);
        let names: &[&str] = if op == Op::Not { &["X"] } else { &["A", "B"] };
        let (dtype, rank) = elementwise::gates(node, names, check::INTEGERS, target)?;
        let mask = |slot: usize| {
            let constant = node.input(slot)?.constant()?;
            Some((slot, runs(constant)?))
        };
        let mask = if op == Op::Not { None } else { mask(1).or_else(|| mask(0)) };
        if op != Op::Not && mask.is_none() && rank == 8 {
            let why = "the bits stand along an axis of their own, and TensorRT holds at most 8 dims";
            return Err(Refusal::new(Code::RANK, why).slot("A"));
        }
        Ok(Plan { op, dtype, rank, mask })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        if plan.op == Op::Not {
            // In two's complement −1 − x; without a sign the greatest less x.
            let x = cx.input(0);
            let all = if signed(plan.dtype) { -1.0 } else { 2f64.powi(plan.dtype.bits() as i32) - 1.0 };
            let all = elementwise::scalar_like(cx, x, all);
            return vec![cx.elementwise(all, x, ElementWiseOp::Sub)];
        }
        let [a, b] = [0, 1].map(|slot| elementwise::input(cx, slot, plan.rank));
        let both = match &plan.mask {
            Some((slot, runs)) => masked(cx, if *slot == 1 { a } else { b }, runs, plan.dtype),
            None => and(cx, a, b, plan.dtype),
        };
        if plan.op == Op::And {
            let mask = plan.mask.map(|(slot, _)| if slot == 1 { b } else { a });
            return vec![match mask.filter(|&mask| cx.dims(mask).iter().any(|&dim| dim != 1)) {
                // What the mask adds to the shape.
                Some(mask) => {
                    let none = cx.elementwise(mask, mask, ElementWiseOp::Sub);
                    cx.elementwise(both, none, ElementWiseOp::Sum)
                }
                None => both,
            }];
        }
        let mut parts = [a, b];
        let apart = if plan.op == Op::Or { &mut parts[1..] } else { &mut parts[..] };
        for x in apart {
            *x = cx.elementwise(*x, both, ElementWiseOp::Sub);
        }
        vec![cx.elementwise(parts[0], parts[1], ElementWiseOp::Sum)]
    }
}

/// The bits of `x` where the mask has ones.
fn masked(cx: &mut Emit<'_>, x: TensorId, runs: &[(u32, u32)], dtype: DType) -> TensorId {
    let mut sum = None;
    for &(from, to) in runs {
        let mut part = x;
        if from > 0 {
            part = wrap::shifted_right(cx, part, from as usize);
        }
        // A run up to the top has nothing above it.
        if to < dtype.bits() as u32 {
            part = wrap::low_bits(cx, part, (to - from) as usize);
        }
        if from > 0 {
            part = wrap::shifted_left(cx, part, from as usize);
        }
        sum = Some(match sum {
            Some(sum) => cx.elementwise(sum, part, ElementWiseOp::Sum),
            None => part,
        });
    }
    sum.unwrap_or_else(|| cx.elementwise(x, x, ElementWiseOp::Sub))
}

/// a & b by the products of their bits. The sign, which is worth a negative number, is found by comparisons.
fn and(cx: &mut Emit<'_>, a: TensorId, b: TensorId, dtype: DType) -> TensorId {
    let rank = cx.rank(a).max(cx.rank(b));
    let width = dtype.bits() - usize::from(signed(dtype));
    let carrier = cx.dtype(a);
    // One number for each bit, along the new axis.
    let along = |cx: &mut Emit<'_>, number: &dyn Fn(usize) -> i64| {
        let bytes: Vec<u8> = match carrier {
            DType::I64 => (0..width).flat_map(|k| number(k).to_le_bytes()).collect(),
            _ => (0..width).flat_map(|k| (number(k) as i32).to_le_bytes()).collect(),
        };
        let mut dims = vec![1; rank + 1];
        dims[rank] = width as i64;
        cx.constant(carrier, dims, bytes.into())
    };
    let powers = along(cx, &|k| 1 << k);
    let bits = [a, b].map(|x| {
        let x = cx.one(Layer::Unsqueeze { x, axes: vec![rank as u32] });
        let above = cx.elementwise(x, powers, ElementWiseOp::FloorDiv);
        wrap::low_bits(cx, above, 1)
    });
    let both = cx.elementwise(bits[0], bits[1], ElementWiseOp::Prod);
    let total = |cx: &mut Emit<'_>, weights: TensorId| {
        let x = cx.elementwise(both, weights, ElementWiseOp::Prod);
        cx.one(Layer::Reduce { x, op: ReduceOp::Sum, axes: vec![rank as u32], keep_dims: false })
    };
    let sum = match width > HALF {
        false => total(cx, powers),
        // In two halves: ONNX Runtime adds i64 up in f64, and who knows where TensorRT does.
        true => {
            let low = along(cx, &|k| if k < HALF { 1 << k } else { 0 });
            let high = along(cx, &|k| if k < HALF { 0 } else { 1 << (k - HALF) });
            let (low, high) = (total(cx, low), total(cx, high));
            let high = wrap::shifted_left(cx, high, HALF);
            cx.elementwise(low, high, ElementWiseOp::Sum)
        }
    };
    if !signed(dtype) {
        return sum;
    }
    let negative = [a, b].map(|x| {
        let zero = elementwise::scalar_like(cx, x, 0.0);
        cx.elementwise(x, zero, ElementWiseOp::Less)
    });
    let condition = cx.elementwise(negative[0], negative[1], ElementWiseOp::And);
    let sign = elementwise::scalar_like(cx, sum, -(2f64.powi(width as i32)));
    let then_input = cx.elementwise(sum, sign, ElementWiseOp::Sum);
    cx.one(Layer::Select { condition, then_input, else_input: sum })
}

#[cfg(test)]
mod tests {
    use super::Bitwise;
    use crate::{Converter, ctx::check, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    const OPS: [&str; 3] = ["BitwiseAnd", "BitwiseOr", "BitwiseXor"];

    /// Both ends, both signs, and bits without pattern; wrapped to the dtype.
    fn some(dtype: DType) -> Tensor {
        let bits = [0, -1, 1, 0x5a5a_5a5a_5a5a_5a5a, i64::MIN, i64::MAX, 0x1234_5678_9abc_def0, -0x0f0f_0f0f];
        let values = bits.map(|v: i64| (v >> (64 - dtype.bits())) as i128);
        let bytes: Vec<u8> =
            values.iter().flat_map(|v| v.to_le_bytes()[..dtype.bits() / 8].to_vec()).collect();
        Tensor::new(dtype, vec![8], bytes.into()).unwrap()
    }

    #[test]
    fn numbers() {
        for &dtype in check::INTEGERS {
            let column = some(dtype).with_dims(vec![8, 1]).unwrap();
            for op in OPS {
                let case = Case::new(op, 18).input(some(dtype)).input(column.clone());
                case.check(Tolerance::Exact);
                case.dynamic(0, ["N"]).check(Tolerance::Exact);
            }
            Case::new("BitwiseNot", 18).input(some(dtype)).check(Tolerance::Exact);
        }
    }

    #[test]
    fn masks() {
        for &dtype in check::INTEGERS {
            for mask in [0, 1, -1, 0x0f, -16, 0x6c, i64::from(i8::MIN)] {
                let bytes = &mask.to_le_bytes()[..dtype.bits() / 8];
                let mask = Tensor::new(dtype, vec![1, 1], bytes.to_vec().into()).unwrap();
                for op in OPS {
                    let case = Case::new(op, 18).input(some(dtype)).constant(mask.clone());
                    assert!(!case.layers().contains(&"Reduce"));
                    case.check(Tolerance::Exact);
                }
                Case::new("BitwiseAnd", 18).constant(mask).input(some(dtype)).check(Tolerance::Exact);
            }
        }
        for mask in [i32::MAX, i32::MIN, i32::MAX - 1, -2] {
            let case = Case::new("BitwiseXor", 18).input(some(DType::I32)).constant(i32s([], &[mask]));
            case.check(Tolerance::Exact);
        }
        let many = Case::new("BitwiseAnd", 18).input(some(DType::I32)).constant(i32s([], &[0x5555_5555]));
        assert!(many.layers().contains(&"Reduce"));
        many.check(Tolerance::Exact);
        let list = Case::new("BitwiseXor", 18).input(u8s([2], &[7, 9])).constant(u8s([3, 1], &[1, 2, 255]));
        list.check(Tolerance::Exact);
        // The mask's shape counts too.
        Case::new("BitwiseAnd", 18)
            .input(u8s([2], &[7, 9]))
            .constant(u8s([3, 1], &[3; 3]))
            .gives(Tolerance::Exact, &[u8s([3, 2], &[3, 1, 3, 1, 3, 1])]);
    }

    #[test]
    fn types() {
        let case = Case::new("BitwiseAnd", 18).input(i64s([2], &[0; 2])).sizes(0, ["12", "N"]);
        assert_eq!(case.constant(i64s([1], &[10])).types(), ["i64[2] = [8, ?]"]);
        assert_eq!(Case::new("BitwiseNot", 18).input(i32s([2], &[0; 2])).types(), ["i32[2]"]);
    }

    #[test]
    fn refusals() {
        for key in Bitwise::DEF.keys {
            let case = Case::new(key.op, key.since).input(i32s([1], &[1]));
            let case = if key.op == "BitwiseNot" { case } else { case.input(i32s([1], &[1])) };
            case.gates_of_f32(f32s([1], &[1.0]));
        }
        let deep = Case::new("BitwiseOr", 18).input(i32s([1; 8], &[1]));
        deep.clone().input(i32s([1], &[1])).refused(Code::RANK);
        deep.constant(i32s([1], &[7])).layers();
    }
}

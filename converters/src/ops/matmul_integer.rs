//! MatMulInteger and its kin: products of 8-bit matrices, exact in f32 while every sum stays below 2²⁴; longer sums in parts.
//!
//! MatMulInteger: a [.., m, k] i8 | u8, b [.., k, n] i8 | u8, (zero points [] | [m], [] | [n])  ->  y [.., m, n] i32
//! MatMulIntegerToFloat: a, b, a_scale, b_scale, (zero points), (bias [n])  ->  y [.., m, n] f32
//! DynamicQuantizeMatMul: a f32, b, b_scale, (b zero point), (bias [n])  ->  y [.., m, n] f32
//! QLinearMatMul: a, scale, zero point, b, scale, zero point, y scale, y zero point  ->  y [.., m, n] i8 | u8
//! Opsets: 10; QLinearMatMul 21 more types; com.microsoft 1.     TensorRT: IMatrixMultiplyLayer in f32, IUnaryLayer ROUND.
//! Limits: k known, 16 parts with sums below 2²⁴ (one from the weights where they are constant), of halved factors if need be; not for sm75; rank ≥ 2; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise,
        integers::{self, Along, Factor, Layout, Sums},
        matrix, shape,
    },
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, MatrixOp},
};

/// The converters.
#[derive(Debug)]
pub struct MatMulInteger;

/// Slots of an operator's inputs.
#[derive(Clone, Copy, Debug)]
struct Slots {
    a: usize,
    b: usize,
    /// `None` where a is quantised by its own range.
    a_zero: Option<usize>,
    b_zero: usize,
    scales: &'static [usize],
    bias: Option<usize>,
    /// Scale and zero point of the result.
    y: Option<(usize, usize)>,
}

fn slots(node: NodeView<'_>) -> Slots {
    let plain = Slots { a: 0, b: 1, a_zero: Some(2), b_zero: 3, scales: &[], bias: None, y: None };
    match node.op() {
        "MatMulIntegerToFloat" => {
            Slots { a_zero: Some(4), b_zero: 5, scales: &[2, 3], bias: Some(6), ..plain }
        }
        "DynamicQuantizeMatMul" => Slots { a_zero: None, scales: &[2], bias: Some(4), ..plain },
        "QLinearMatMul" => Slots { b: 3, b_zero: 5, scales: &[1, 4], y: Some((6, 7)), ..plain },
        _ => plain,
    }
}

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    slots: Slots,
    /// `None` where a is quantised by its own range.
    a: Option<Factor>,
    b: Factor,
    rank: usize,
    to: DType,
    /// How sums over k are made.
    sums: Sums,
}

impl Converter for MatMulInteger {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("MatMulInteger", 10),
            Key::onnx("QLinearMatMul", 21),
            Key::of("com.microsoft", "MatMulIntegerToFloat", 1),
            Key::of("com.microsoft", "DynamicQuantizeMatMul", 1),
        ],
        dtypes: integers::BYTES,
        layers: "IMatrixMultiplyLayer, IElementWiseLayer, IUnaryLayer",
        limits: "16 parts of halved factors with sums below 2²⁴; not for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::DIM_UNKNOWN,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let slots = slots(node);
        let dtype = match (slots.y, slots.scales) {
            (Some((_, zero)), _) => shape::dtype_of(node, zero),
            (None, []) => Some(DType::I32),
            (None, [scale, ..]) => shape::dtype_of(node, *scale),
        };
        let dims = matrix::product_shape(node, slots.a, slots.b, cx)?;
        Ok(shape::types([shape::typed(dtype, dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let slots = slots(node);
        let along = Along::FromEnd(1);
        let (b, b_operand) =
            integers::factor(node, (slots.b, "B"), (slots.b_zero, "b_zero_point"), along, target)?;
        let (a, a_operand) = match slots.a_zero {
            Some(zero) => {
                let names = ((slots.a, "A"), (zero, "a_zero_point"));
                let (a, operand) = integers::factor(node, names.0, names.1, Along::FromEnd(2), target)?;
                (Some(a), operand)
            }
            None => {
                let operand = elementwise::gate(node, slots.a, "A", &[DType::F32], target)?;
                check::never_empty(&operand, "A")?;
                (None, operand)
            }
        };
        if a_operand.rank() < 2 || b_operand.rank() < 2 {
            return Err(Refusal::new(Code::RANK, "a vector in a product of 8-bit matrices"));
        }
        let rank = a_operand.rank().max(b_operand.rank());
        for &slot in slots.scales.iter().chain(slots.bias.iter()).chain(slots.y.as_ref().map(|(s, _)| s)) {
            if node.input(slot).is_some() || Some(slot) != slots.bias {
                let operand = elementwise::gate(node, slot, "scales and bias", check::FLOATS, target)?;
                if operand.rank() > 1 {
                    let why = format!("a scale or bias of rank {}", operand.rank());
                    return Err(Refusal::new(Code::RANK, why));
                }
            }
        }
        let to = match (slots.y, slots.scales) {
            (Some((_, zero)), _) => {
                let zero = elementwise::gate(node, zero, "y_zero_point", integers::BYTES, target)?;
                if zero.rank() > 1 {
                    return Err(Refusal::new(Code::RANK, "a zero point of the result of rank above 1"));
                }
                zero.dtype
            }
            (None, []) => DType::I32,
            (None, [scale, ..]) => shape::dtype_of(node, *scale).unwrap_or(DType::F32),
        };
        matrix::gemm_gate(DType::F32, target)?;
        let dims: Option<Vec<i64>> = b_operand.shape.iter().map(|dim| dim.known()).collect();
        let layout = dims.as_ref().and_then(|dims| {
            let at = dims.len().checked_sub(2)?;
            let size = |d: &i64| usize::try_from(*d).ok();
            let outer = dims[..at].iter().try_fold(1usize, |n, d| n.checked_mul(size(d)?))?;
            Some(Layout { outer, terms: size(&dims[at])?, inner: size(&dims[at + 1])? })
        });
        let terms = b_operand.shape[b_operand.rank() - 2].known();
        let terms = terms.or_else(|| a_operand.shape[a_operand.rank() - 1].known());
        // Quantised by its own range, a is u8 with a zero point in 0 … 255.
        let own = Factor::of_magnitude(255.0);
        let sums = integers::sums(node, [a.as_ref().unwrap_or(&own), &b], terms, 1, layout)?;
        Ok(Plan { slots, a, b, rank, to, sums })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let slots = plan.slots;
        let mut scale = None;
        let a = match &plan.a {
            Some(a) => integers::emit(cx, a),
            None => {
                let x = cx.input(slots.a);
                let found = integers::dynamic(cx, x);
                scale = Some(cx.reshape(found.scale, vec![1; plan.rank]));
                cx.elementwise(found.y, found.zero, ElementWiseOp::Sub)
            }
        };
        let b = integers::emit(cx, &plan.b);
        let [a, b] = [a, b].map(|x| cx.with_rank(x, plan.rank));
        let (op_a, op_b) = (MatrixOp::None, MatrixOp::None);
        let mut y = integers::total(cx, &plan.sums, [a, b], |cx, a, b, part| {
            let a = integers::taken(cx, a, plan.rank - 1, 1, part);
            let b = integers::taken(cx, b, plan.rank - 2, 1, part);
            cx.one(Layer::MatrixMultiply { a, op_a, b, op_b })
        });
        if plan.to != DType::I32 || slots.y.is_some() || !slots.scales.is_empty() {
            y = cx.cast(y, DType::F32);
        }
        for &slot in slots.scales {
            // A scale a row of A stands before the last dim, a scale a column of B in it.
            let own = if slots.y.is_some() && slot == 1 { 2 } else { 1 };
            let s = spread(cx, slot, plan.rank, own);
            scale = Some(match scale {
                Some(scale) => cx.elementwise(scale, s, ElementWiseOp::Prod),
                None => s,
            });
        }
        if let Some((y_scale, y_zero)) = slots.y {
            let (y_scale, zero) = (spread(cx, y_scale, plan.rank, 2), spread(cx, y_zero, plan.rank, 2));
            let factor = scale.map_or(y_scale, |s| cx.elementwise(s, y_scale, ElementWiseOp::Div));
            let scaled = cx.elementwise(y, factor, ElementWiseOp::Prod);
            let y = integers::quantized(cx, scaled, zero, plan.to);
            return vec![cx.cast(y, carrier(plan.to))];
        }
        if let Some(scale) = scale {
            y = cx.elementwise(y, scale, ElementWiseOp::Prod);
        }
        if let Some(bias) = slots.bias.filter(|&slot| cx.node().input(slot).is_some()) {
            let bias = spread(cx, bias, plan.rank, 1);
            y = cx.elementwise(y, bias, ElementWiseOp::Sum);
        }
        vec![cx.cast(y, plan.to)]
    }
}

/// A vector (or scalar) in f32, along the axis `back` from the end.
fn spread(cx: &mut Emit<'_>, slot: usize, rank: usize, back: usize) -> TensorId {
    let x = cx.input(slot);
    let x = cx.cast(x, DType::F32);
    let mut dims = vec![1; rank];
    if let Some(dim) = rank.checked_sub(back).and_then(|axis| dims.get_mut(axis)) {
        *dim = -1;
    }
    cx.reshape(x, dims)
}

#[cfg(test)]
mod tests {
    use super::MatMulInteger;
    use crate::{Converter, testing::*};
    use trtc_ir::{Code, Tensor};

    fn a() -> Tensor {
        u8s([2, 3], &[0, 255, 7, 128, 3, 250])
    }

    fn b() -> Tensor {
        i8s([3, 4], &[1, -128, 127, 5, -7, 9, 0, 100, 3, 2, -1, -50])
    }

    fn plain() -> Case {
        Case::new("MatMulInteger", 10)
    }

    #[test]
    fn numbers() {
        plain().input(a()).input(b()).check(Tolerance::Exact);
        let zeros = plain().input(a()).constant(b()).constant(u8s([], &[128]));
        zeros.clone().constant(i8s([], &[3])).check(Tolerance::Exact);
        zeros.clone().constant(i8s([4], &[3, 0, -1, 7])).check(Tolerance::Exact);
        zeros.dynamic(0, ["N", "3"]).check(Tolerance::Exact);
        plain().input(a()).constant(b()).input(u8s([], &[7])).input(i8s([], &[-3])).check(Tolerance::Exact);
        let rows = plain().input(u8s([2, 2, 3], &[200; 12])).constant(b()).constant(u8s([2], &[3, 200]));
        rows.gives(Tolerance::Exact, &[rows_by_hand()]);
    }

    /// Rows of 200 with zero points 3 and 200: 197 times the column sums −3, −117, 126, 55 of b; 0.
    fn rows_by_hand() -> Tensor {
        let sums: [i32; 4] = [-3, -117, 126, 55];
        let row: Vec<i32> = sums.iter().map(|s| s * 197).collect();
        i32s([2, 2, 4], &[row.clone(), vec![0; 4], row, vec![0; 4]].concat())
    }

    #[test]
    fn long_sums() {
        // Past 2²⁴, odd, and past 2³¹ not: 255² · 700 and a little.
        let k = 701;
        let a: Vec<u8> = (0..2 * k).map(|n| if n % 50 == 7 { 254 } else { 255 }).collect();
        let b: Vec<u8> = (0..3 * k).map(|n| if n % 70 == 11 { 253 } else { 255 }).collect();
        let (a, b) = (
            u8s([2 * k], &a).with_dims(vec![2, k]).unwrap(),
            u8s([3 * k], &b).with_dims(vec![k, 3]).unwrap(),
        );
        let case = plain().input(a.clone()).input(b.clone());
        assert!(case.layers().contains(&"Gather"));
        case.check(Tolerance::Exact);
        case.dynamic(0, ["N", "701"]).check(Tolerance::Exact);
        plain().input(a.clone()).constant(b.clone()).input(u8s([], &[1])).check(Tolerance::Exact);
        // Halves, where there would be too many parts.
        let k = 258 * 16 + 3;
        let long = |n: usize, odd: u8| -> Vec<u8> {
            (0..n * k).map(|v| if v % 50 == 7 { odd } else { 255 }).collect()
        };
        let (left, right) = (long(1, 254), long(2, 3));
        let left = u8s([k as i64], &left).with_dims(vec![1, k as i64]).unwrap();
        let right = u8s([2 * k as i64], &right).with_dims(vec![k as i64, 2]).unwrap();
        let case = plain().input(left).input(right).constant(u8s([], &[9])).constant(u8s([2], &[0, 200]));
        case.check(Tolerance::Exact);
        let to_float = Case::of("com.microsoft", "MatMulIntegerToFloat", 1).input(a).constant(b);
        let to_float = to_float.constant(f32s([], &[0.5])).constant(f32s([3], &[0.25, 1.0, 2.0]));
        to_float.check(F32);
    }

    #[test]
    fn floats() {
        let to_float = Case::of("com.microsoft", "MatMulIntegerToFloat", 1).input(a()).constant(b());
        let to_float = to_float.constant(f32s([], &[0.5])).constant(f32s([4], &[0.25, 1.0, 2.0, 0.5]));
        let zeros = to_float.clone().constant(u8s([], &[128])).constant(i8s([4], &[0, 1, 2, 3]));
        zeros.check(F32);
        zeros.constant(f32s([4], &[1.0, 2.0, 3.0, 4.0])).check(F32);
        let x = f32s([2, 3], &[-1.0, 0.25, 3.0, 7.5, -2.25, 0.0]);
        let dynamic = Case::of("com.microsoft", "DynamicQuantizeMatMul", 1).input(x).constant(b());
        let dynamic = dynamic.constant(f32s([], &[0.5])).constant(i8s([], &[0]));
        dynamic.check(F32);
        dynamic.constant(f32s([4], &[1.0, 2.0, 3.0, 4.0])).dynamic(0, ["N", "3"]).check(F32);
    }

    #[test]
    fn quantised() {
        let one = |v: f32| f32s([], &[v]);
        let case = Case::new("QLinearMatMul", 21).input(a()).constant(one(0.01)).constant(u8s([], &[113]));
        let case = case.constant(u8s([3, 2], &[152, 51, 244, 60, 26, 255]));
        let case = case.constant(one(0.02)).constant(u8s([], &[114]));
        case.constant(one(0.1)).constant(u8s([], &[118])).check(Tolerance::Exact);
        // Scales of f16, as the specification's example has them.
        let half = |v: f32| f16s([1], &[v]);
        let case = Case::new("QLinearMatMul", 21).input(u8s([2, 4], &[208, 236, 0, 238, 3, 214, 255, 29]));
        let case = case.constant(half(0.0066)).constant(u8s([1], &[113]));
        let case = case.constant(u8s([4, 3], &[152, 51, 244, 60, 26, 255, 0, 127, 246, 127, 254, 247]));
        let case = case.constant(half(0.00705)).constant(u8s([1], &[114]));
        let case = case.constant(half(0.0107)).constant(u8s([1], &[118]));
        case.gives(Tolerance::Exact, &[u8s([2, 3], &[168, 115, 255, 1, 66, 151])]);
    }

    #[test]
    fn types() {
        assert_eq!(plain().input(a()).input(b()).types(), ["i32[2 x 4]"]);
        for key in MatMulInteger::DEF.keys {
            Case::of(key.domain, key.op, key.since).types();
        }
    }

    #[test]
    fn refusals() {
        let byte = || u8s([1, 1], &[1]);
        plain().input(a()).input(i32s([3, 1], &[1; 3])).refused(Code::DTYPE_KERNEL);
        plain().input(a()).input(f64s([3, 1], &[1.0; 3])).refused(Code::DTYPE_UNREPRESENTABLE);
        plain().input(byte()).untyped(0).input(byte()).refused(Code::DTYPE_UNKNOWN);
        plain().input(byte()).unranked(0).input(byte()).refused(Code::RANK_UNKNOWN);
        plain().input(u8s([1], &[1])).input(byte()).refused(Code::RANK);
        plain().input(byte()).dynamic(0, ["0", "1"]).input(byte()).refused(Code::SHAPE);
        plain().input(byte()).input(byte()).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        plain().input(a()).refused(Code::INVALID);
        let wide = |k: i64| {
            plain().input(u8s([1, k], &vec![1; k as usize])).input(u8s([k, 1], &vec![1; k as usize]))
        };
        // 255² · 258 = 16,776,450; one more passes 2²⁴.
        assert!(!wide(258).layers().contains(&"Gather"));
        assert!(wide(259).layers().contains(&"Gather"));
        let products = |k: i64| wide(k).layers().iter().filter(|&&name| name == "MatrixMultiply").count();
        // 16 parts; 4112 products of a number and a half, 5 of 65,536 of halves.
        assert_eq!([258 * 16, 258 * 16 + 1, 4112 * 16 + 1].map(products), [16, 4, 8]);
        let refusal = wide(65_536 * 16 + 1).refused(Code::SHAPE);
        assert!(refusal.why.starts_with("sums of 1048577 products may reach"), "{}", refusal.why);
        // The weights themselves say that it is less.
        plain().input(u8s([1, 259], &[1; 259])).constant(u8s([259, 1], &[1; 259])).layers();
        wide(2).dynamic(0, ["1", "K"]).dynamic(1, ["K", "1"]).refused(Code::DIM_UNKNOWN);
    }
}

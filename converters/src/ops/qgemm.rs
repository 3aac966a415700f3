//! QGemm (com.microsoft): a product of 8-bit matrices and an i32 addend, scaled or quantised.
//!
//! a [m, k] | [k, m] T, a_scale [], a_zero_point [] T, b [k, n] | [n, k] U, b_scale [] | [n], b_zero_point [] | [n] U,
//! (c i32 that broadcasts to [m, n]), (y_scale []), (y_zero_point [] T)  ->  y [m, n] f32, or T with a zero point
//! Opsets: 1.     TensorRT: IMatrixMultiplyLayer in f32, IElementWiseLayer in i32, IUnaryLayer ROUND.
//! Limits: k known, 16 parts of halved factors with sums below 2²⁴; not for sm75; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        elementwise,
        integers::{self, Along, Factor, Layout, Sums},
        matrix, quantize, shape,
    },
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, MatrixOp},
};

/// The converter.
#[derive(Debug)]
pub struct QGemm;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    factors: [Factor; 2],
    /// Which of the factors is transposed.
    transposed: [bool; 2],
    sums: Sums,
    alpha: f32,
    /// Dtype of a quantised result.
    quantised: Option<DType>,
}

const A: usize = 0;
const B: usize = 3;
const C: usize = 6;
const Y: (usize, usize) = (7, 8);

fn transposed(node: NodeView<'_>) -> [bool; 2] {
    ["transA", "transB"].map(|name| node.int(name, 0) != 0)
}

impl Converter for QGemm {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "QGemm", 1)],
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
        let dtype = match node.input(Y.1) {
            Some(zero) => zero.dtype(),
            None => Some(DType::F32),
        };
        let [a, b] = transposed(node);
        let of = |slot: usize, axis: usize| shape::dim_of(node, slot, axis);
        matrix::inner(&of(A, usize::from(!a)), &of(B, usize::from(b)), cx)?;
        let dims = vec![of(A, usize::from(a)), of(B, usize::from(!b))];
        Ok(shape::types([shape::typed(dtype, Some(dims))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let [trans_a, trans_b] = transposed(node);
        let along = Along::Axis(usize::from(!trans_b));
        let (a, a_operand) = integers::factor(node, (A, "A"), (2, "a_zero_point"), Along::Axis(0), target)?;
        let (b, b_operand) = integers::factor(node, (B, "B"), (5, "b_zero_point"), along, target)?;
        if a_operand.rank() != 2 || b_operand.rank() != 2 {
            let why = format!("ranks {} and {}, not 2", a_operand.rank(), b_operand.rank());
            return Err(Refusal::new(Code::RANK, why));
        }
        quantize::numbers(node, (1, 2), a_operand.dtype, target)?;
        if elementwise::gate(node, 4, "b_scale", &[DType::F32], target)?.rank() > 1 {
            return Err(Refusal::new(Code::RANK, "a scale of rank above 1").slot("b_scale"));
        }
        if node.input(C).is_some() {
            let c = elementwise::gate(node, C, "C", &[DType::I32], target)?;
            if c.rank() > 2 {
                return Err(Refusal::new(Code::RANK, format!("rank {}", c.rank())).slot("C"));
            }
        }
        if node.input(Y.0).is_some() {
            quantize::numbers(node, Y, a_operand.dtype, target)?;
        }
        let quantised = node.input(Y.1).map(|_| a_operand.dtype);
        matrix::gemm_gate(DType::F32, target)?;
        let known: Option<Vec<usize>> =
            b_operand.shape.iter().map(|dim| dim.known().and_then(|d| usize::try_from(d).ok())).collect();
        let layout = known.map(|d| match trans_b {
            true => Layout { outer: d[0], terms: d[1], inner: 1 },
            false => Layout { outer: 1, terms: d[0], inner: d[1] },
        });
        let of = |shape: &[Dim], axis: bool| shape[usize::from(axis)].known();
        let terms = of(b_operand.shape, trans_b).or_else(|| of(a_operand.shape, !trans_a));
        let sums = integers::sums(node, [&a, &b], terms, 1, layout)?;
        let (factors, transposed) = ([a, b], [trans_a, trans_b]);
        Ok(Plan { factors, transposed, sums, alpha: node.float("alpha", 1.0), quantised })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let [a, b] = plan.factors.each_ref().map(|factor| integers::emit(cx, factor));
        let [trans_a, trans_b] = plan.transposed;
        let [op_a, op_b] = plan.transposed.map(|t| if t { MatrixOp::Transpose } else { MatrixOp::None });
        let mut y = integers::total(cx, &plan.sums, [a, b], |cx, a, b, part| {
            let a = integers::taken(cx, a, usize::from(!trans_a), 1, part);
            let b = integers::taken(cx, b, usize::from(trans_b), 1, part);
            cx.one(Layer::MatrixMultiply { a, op_a, b, op_b })
        });
        if cx.node().input(C).is_some() {
            y = cx.cast(y, DType::I32);
            let addend = elementwise::input(cx, C, 2);
            y = cx.elementwise(y, addend, ElementWiseOp::Sum);
        }
        let y = cx.cast(y, DType::F32);
        // alpha · a_scale · b_scale / y_scale, in this order.
        let alpha = cx.scalar(DType::F32, 2, plan.alpha.into());
        let (a_scale, b_scale) = (elementwise::input(cx, 1, 2), elementwise::input(cx, 4, 2));
        let scale = cx.elementwise(alpha, a_scale, ElementWiseOp::Prod);
        let mut scale = cx.elementwise(scale, b_scale, ElementWiseOp::Prod);
        if cx.node().input(Y.0).is_some() {
            let y_scale = elementwise::input(cx, Y.0, 2);
            scale = cx.elementwise(scale, y_scale, ElementWiseOp::Div);
        }
        let y = cx.elementwise(y, scale, ElementWiseOp::Prod);
        let Some(to) = plan.quantised else { return vec![y] };
        let zero = quantize::zero_point(cx, Y.1, 2);
        let y = integers::quantized(cx, y, zero, to);
        vec![cx.cast(y, carrier(to))]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    fn levels(dtype: DType, dims: [i64; 2], step: i64) -> Tensor {
        let least = if dtype == DType::I8 { -128 } else { 0 };
        let list: Vec<f64> = (0..dims[0] * dims[1]).map(|k| (k * step % 256 + least) as f64).collect();
        of_dtype(dtype, dims, &list)
    }

    fn number(v: f32) -> Tensor {
        f32s([], &[v])
    }

    fn byte(dtype: DType, v: f64) -> Tensor {
        of_dtype(dtype, [], &[v])
    }

    fn case(a: Tensor, b: Tensor) -> Case {
        let (t, u) = (a.dtype(), b.dtype());
        let case =
            Case::of("com.microsoft", "QGemm", 1).input(a).constant(number(0.02)).constant(byte(t, 7.0));
        case.constant(b).constant(number(0.013)).constant(byte(u, 3.0))
    }

    #[test]
    fn numbers() {
        for (t, u) in [(DType::U8, DType::U8), (DType::U8, DType::I8), (DType::I8, DType::I8)] {
            let plain = case(levels(t, [3, 5], 37), levels(u, [5, 4], 91));
            plain.clone().float("alpha", 1.5).check(Tolerance::Exact);
            plain.clone().dynamic(0, ["M", "5"]).check(Tolerance::Exact);
            let whole = plain.constant(i32s([4], &[1, -20_000_000, 300, 7]));
            whole.check(Tolerance::Exact);
            whole.constant(number(0.4)).constant(byte(t, 21.0)).check(Tolerance::Exact);
            let turned = case(levels(t, [5, 3], 37), levels(u, [4, 5], 91)).int("transA", 1).int("transB", 1);
            let turned = turned.constant(i32s([3, 1], &[100, -2000, 7])).constant(number(0.4));
            turned.constant(byte(t, 2.0)).check(Tolerance::Exact);
        }
        // One scale and zero point for each column; sums past 2²⁴.
        let long = Case::of("com.microsoft", "QGemm", 1).input(levels(DType::U8, [2, 700], 255));
        let long =
            long.constant(number(0.02)).constant(u8s([], &[0])).input(levels(DType::U8, [3, 700], 253));
        let long = long.constant(f32s([3], &[0.01, 0.5, 2.0])).constant(u8s([3], &[0, 255, 9]));
        long.int("transB", 1).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        let plain = case(levels(DType::U8, [3, 5], 1), levels(DType::U8, [5, 4], 1));
        assert_eq!(plain.clone().dynamic(0, ["M", "5"]).types(), ["f32[M x 4]"]);
        assert_eq!(
            plain.absent().constant(number(1.0)).constant(byte(DType::U8, 0.0)).types(),
            ["u8[3 x 4]"]
        );
    }

    #[test]
    fn refusals() {
        let (a, b) = (|| levels(DType::U8, [3, 5], 1), || levels(DType::U8, [5, 4], 1));
        let plain = || case(a(), b());
        plain().untyped(0).refused(Code::DTYPE_UNKNOWN);
        plain().unranked(0).refused(Code::RANK_UNKNOWN);
        plain().dynamic(0, ["0", "5"]).refused(Code::SHAPE);
        plain().target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        plain().constant(i32s([1, 1, 1], &[1])).refused(Code::RANK);
        plain().constant(f32s([1], &[1.0])).refused(Code::DTYPE_KERNEL);
        Case::of("com.microsoft", "QGemm", 1).input(a()).refused(Code::INVALID);
        let of = |x: Tensor| {
            let case = Case::of("com.microsoft", "QGemm", 1).input(x).constant(number(0.02)).absent();
            case.input(b()).constant(number(0.013)).absent()
        };
        of(f64s([3, 5], &[0.0; 15])).refused(Code::DTYPE_UNREPRESENTABLE);
        of(a()).dynamic(0, ["3", "K"]).dynamic(3, ["K", "4"]).refused(Code::DIM_UNKNOWN);
    }
}

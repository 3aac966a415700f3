//! Gemm: alpha · A′ · B′ + beta · C.
//!
//! a [m, k] (or transposed) T, b [k, n] (or transposed) T, (c [broadcasts to m, n] T)  ->  y [m, n] T
//! Opsets: 7 broadcasting; 9 integers; 11 C optional; 13 bf16.     TensorRT: IMatrixMultiplyLayer, IElementWiseLayer.
//! Limits: f32 (not for sm75), f16, bf16; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, matrix, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, MatrixOp},
};

/// The converter.
#[derive(Debug)]
pub struct Gemm;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    ops: [MatrixOp; 2],
    alpha: f32,
    /// `None` without C, or when nothing of it counts.
    beta: Option<f32>,
}

impl Converter for Gemm {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Gemm", 13)],
        dtypes: check::FLOATS,
        layers: "IMatrixMultiplyLayer, IElementWiseLayer",
        limits: "no f32 for sm75",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        for slot in [0, 1] {
            let rank = node.input(slot).and_then(|view| view.rank());
            if let Some(rank) = rank.filter(|&rank| rank != 2) {
                return Err(Diag::invalid(format!("a matrix of rank {rank}")).slot(["A", "B"][slot]));
            }
        }
        let dims = matrix::product_shape(node, 0, 1, cx)?;
        let dims = dims.unwrap_or_else(|| vec![Dim::Unknown; 2]);
        if let Some(c) = node.input(2).and_then(|view| view.shape()) {
            let joint = shape::broadcast(&[Some(&dims), Some(c)], cx)?.unwrap_or_default();
            let grows = joint.len() > 2
                || joint
                    .iter()
                    .zip(&dims)
                    .any(|(j, d)| matches!((j, d), (Dim::Known(j), Dim::Known(d)) if j != d));
            if grows {
                return Err(Diag::invalid("C does not broadcast to the product").slot("C"));
            }
        }
        Ok(shape::types([shape::typed(dtype, Some(dims))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (dtype, _) = elementwise::gates(node, &["A", "B"], check::FLOATS, target)?;
        matrix::gemm_gate(dtype, target)?;
        let beta = node.float("beta", 1.0);
        let beta = match node.input(2) {
            None => None,
            Some(_) => {
                let c = elementwise::gate(node, 2, "C", check::FLOATS, target)?;
                if c.dtype != dtype {
                    return Err(Refusal::new(Code::INVALID, format!("{} beside {dtype}", c.dtype)).slot("C"));
                }
                Some(beta).filter(|&beta| beta != 0.0)
            }
        };
        let op = |operand| match matrix::transposed(node, operand) {
            true => MatrixOp::Transpose,
            false => MatrixOp::None,
        };
        Ok(Plan { ops: [op(0), op(1)], alpha: node.float("alpha", 1.0), beta })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let (a, b) = (cx.input(0), cx.input(1));
        let [op_a, op_b] = plan.ops;
        let y = cx.one(Layer::MatrixMultiply { a, op_a, b, op_b });
        let y = times(cx, y, plan.alpha);
        let Some(beta) = plan.beta else { return vec![y] };
        let c = elementwise::input(cx, 2, 2);
        let c = times(cx, c, beta);
        vec![cx.elementwise(y, c, ElementWiseOp::Sum)]
    }
}

fn times(cx: &mut Emit<'_>, x: TensorId, factor: f32) -> TensorId {
    if factor == 1.0 {
        return x;
    }
    let factor = elementwise::scalar_like(cx, x, factor.into());
    cx.elementwise(x, factor, ElementWiseOp::Prod)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    const A: [f64; 6] = [1.0, -2.0, 3.0, 0.5, 5.0, -6.0];
    const B: [f64; 12] = [1.0, -2.0, 3.0, 0.5, 5.0, -6.0, 0.25, 8.0, -1.0, 2.0, 0.0, 4.0];

    #[test]
    fn numbers() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let near = near(dtype);
            let plain = Case::new("Gemm", 13).input(of_dtype(dtype, [2, 3], &A));
            let weights = plain.constant(of_dtype(dtype, [3, 4], &B));
            weights.check(near);
            let biased = weights.clone().constant(of_dtype(dtype, [4], &[1.0, 2.0, 3.0, 4.0]));
            biased.check(near);
            biased.dynamic(0, ["N", "3"]).check(near);
            weights.clone().constant(of_dtype(dtype, [2, 1], &[1.0, 2.0])).float("beta", 0.5).check(near);
            weights.clone().constant(of_dtype(dtype, [], &[1.0])).float("alpha", 2.0).check(near);
            weights.constant(of_dtype(dtype, [1], &[f64::NAN])).float("beta", 0.0).check(near);
            let turned = Case::new("Gemm", 13).input(of_dtype(dtype, [3, 2], &A)).int("transA", 1);
            turned.input(of_dtype(dtype, [4, 3], &B)).int("transB", 1).check(near);
        }
    }

    #[test]
    fn types() {
        let case = Case::new("Gemm", 13).input(f32s([2, 3], &[0.0; 6])).dynamic(0, ["N", "K"]);
        let case = case.constant(f32s([3, 4], &[0.0; 12]));
        assert_eq!(case.types(), ["f32[N x 4]"]);
        let bad = Case::new("Gemm", 13).input(f32s([1], &[0.0])).input(f32s([1, 1], &[0.0]));
        assert_eq!(bad.invalid(), "a matrix of rank 1");
        let bad = Case::new("Gemm", 13).input(f32s([1, 1], &[0.0])).input(f32s([1, 1], &[0.0]));
        assert_eq!(bad.input(f32s([2], &[0.0; 2])).invalid(), "C does not broadcast to the product");
    }

    #[test]
    fn refusals() {
        let one = || f32s([1, 1], &[1.0]);
        let case = Case::new("Gemm", 13).input(one()).input(one());
        case.clone().target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        case.clone().target("tensorrt-11.3:sm75").layers();
        case.clone().input(f16s([1], &[1.0])).refused(Code::INVALID);
        let of = |x: trtc_ir::Tensor| Case::new("Gemm", 13).input(x.clone()).input(x);
        of(f64s([1, 1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        of(i32s([1, 1], &[1])).refused(Code::DTYPE_KERNEL);
        case.clone().untyped(0).refused(Code::DTYPE_UNKNOWN);
        case.clone().unranked(0).refused(Code::RANK_UNKNOWN);
        case.dynamic(0, ["0", "1"]).refused(Code::SHAPE);
    }
}

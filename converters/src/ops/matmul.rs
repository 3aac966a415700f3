//! MatMul: matrix product with numpy's rules: a rank-1 operand is a vector, leading dims broadcast.
//!
//! a [.., m, k] T, b [.., k, n] T  ->  y [.., m, n] T
//! Opsets: 1; 9 integers; 13 bf16. FusedMatMul (com.microsoft): alpha, transA, transB.     TensorRT: IMatrixMultiplyLayer.
//! Limits: f32 (not for sm75), f16, bf16; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, matrix, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, MatrixOp},
};

/// The converter.
#[derive(Debug)]
pub struct MatMul;

/// How each operand is read, rank of the leading dims, and a factor.
#[derive(Debug)]
pub struct Plan {
    ops: [MatrixOp; 2],
    lead: usize,
    alpha: f32,
}

impl Converter for MatMul {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("MatMul", 13), Key::of("com.microsoft", "FusedMatMul", 1)],
        dtypes: check::FLOATS,
        layers: "IMatrixMultiplyLayer",
        limits: "no f32 for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::ATTRIBUTE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let batch_transposed = node.int("transBatchA", 0) != 0 || node.int("transBatchB", 0) != 0;
        let dtype = shape::dtype_of(node, 0);
        let dims = match batch_transposed {
            true => None,
            false => matrix::product_shape(node, 0, 1, cx)?,
        };
        Ok(shape::types([shape::typed(dtype, dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (dtype, _) = elementwise::gates(node, &["A", "B"], check::FLOATS, target)?;
        matrix::gemm_gate(dtype, target)?;
        for name in ["transBatchA", "transBatchB"] {
            if node.int(name, 0) != 0 {
                return Err(Refusal::new(Code::ATTRIBUTE, "batch and row axes swapped").slot(name));
            }
        }
        let mut ops = [MatrixOp::None; 2];
        let mut lead = 0;
        for (slot, name) in ["A", "B"].into_iter().enumerate() {
            let rank = node.input(slot).and_then(|view| view.rank()).unwrap_or(0);
            ops[slot] = match rank {
                0 => return Err(Refusal::new(Code::INVALID, "a scalar").slot(name)),
                1 => MatrixOp::Vector,
                _ if matrix::transposed(node, slot) => MatrixOp::Transpose,
                _ => MatrixOp::None,
            };
            lead = lead.max(rank.saturating_sub(2));
        }
        Ok(Plan { ops, lead, alpha: node.float("alpha", 1.0) })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let [op_a, op_b] = plan.ops;
        let [a, b] = [(0, op_a), (1, op_b)].map(|(slot, op)| {
            let own = if op == MatrixOp::Vector { 1 } else { 2 };
            elementwise::input(cx, slot, plan.lead + own)
        });
        let mut y = cx.one(Layer::MatrixMultiply { a, op_a, b, op_b });
        if plan.alpha != 1.0 {
            let alpha = elementwise::scalar_like(cx, y, plan.alpha.into());
            y = cx.elementwise(y, alpha, ElementWiseOp::Prod);
        }
        vec![y]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    const A: [f64; 12] = [1.0, -2.0, 3.0, 0.5, 5.0, -6.0, 0.25, 8.0, -1.0, 2.0, 0.0, 4.0];

    fn pair(a: Tensor, b: Tensor) -> Case {
        Case::new("MatMul", 13).input(a).input(b)
    }

    #[test]
    fn numbers() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let of = |dims: &[i64]| {
                let n = dims.iter().product::<i64>() as usize;
                of_dtype(dtype, [n as i64], &A[..n]).with_dims(dims.to_vec()).unwrap()
            };
            let near = near(dtype);
            pair(of(&[2, 3]), of(&[3, 4])).check(near);
            pair(of(&[2, 2, 3]), of(&[3, 4])).dynamic(0, ["N", "2", "3"]).check(near);
            pair(of(&[2, 3]), of(&[2, 3, 2])).check(near);
            pair(of(&[2, 1, 2, 3]), of(&[2, 3, 2])).check(near);
            pair(of(&[3]), of(&[3])).check(near);
            pair(of(&[3]), of(&[3, 2])).check(near);
            pair(of(&[2, 3]), of(&[3])).dynamic(0, ["N", "3"]).check(near);
            pair(of(&[2, 2, 3]), of(&[3])).check(near);
            pair(of(&[3]), of(&[2, 3, 2])).check(near);
        }
    }

    #[test]
    fn fused() {
        let case = |a, b| Case::of("com.microsoft", "FusedMatMul", 1).input(a).input(b);
        let a = || of_dtype(DType::F32, [3, 2], &A[..6]);
        let b = || of_dtype(DType::F32, [4, 3], &A);
        let both = case(a(), b()).int("transA", 1).int("transB", 1).float("alpha", 0.5);
        assert_eq!(both.types(), ["f32[2 x 4]"]);
        both.check(F32);
        both.int("transBatchA", 1).refused(Code::ATTRIBUTE);
    }

    #[test]
    fn types() {
        let zeros = |n: usize| vec![0.0; n];
        let case = pair(f32s([2, 1, 3, 4], &zeros(24)), f32s([5, 4, 2], &zeros(40)));
        assert_eq!(case.types(), ["f32[2 x 5 x 3 x 2]"]);
        assert_eq!(case.dynamic(0, ["N", "1", "M", "K"]).types(), ["f32[N x 5 x M x 2]"]);
        assert_eq!(pair(f32s([4], &zeros(4)), f32s([5, 4, 2], &zeros(40))).types(), ["f32[5 x 2]"]);
        assert_eq!(pair(f32s([4], &zeros(4)), f32s([4], &zeros(4))).types(), ["f32[]"]);
        let bad = pair(f32s([2, 3], &zeros(6)), f32s([2, 3], &zeros(6)));
        assert_eq!(bad.invalid(), "the inner dims 3 and 2 differ");
    }

    #[test]
    fn refusals() {
        pair(f32s([1], &[1.0]), f32s([1], &[1.0])).gates(i32s([1], &[1]));
        let case = pair(f32s([1, 1], &[1.0]), f32s([1, 1], &[1.0]));
        case.target("rtx-1.7:sm75,sm89").refused(Code::COMPUTE_CAPABILITY);
        let half = pair(f16s([1, 1], &[1.0]), f16s([1, 1], &[1.0]));
        half.target("rtx-1.7:sm75").layers();
        let scalar = pair(f32s([], &[1.0]), f32s([1], &[1.0]));
        assert_eq!(scalar.invalid(), "a scalar in a matrix product");
    }
}

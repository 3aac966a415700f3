//! LinearRegressor (ai.onnx.ml): x · coefficients + intercepts.
//!
//! x [n, f] | [f] f32  ->  y [n, targets] f32
//! Opsets: 1.     TensorRT: IMatrixMultiplyLayer, IElementWiseLayer.
//! Limits: f32; no post_transform; not for sm75; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, floats, matrix, shape, small},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, MatrixOp},
};

/// The converter.
#[derive(Debug)]
pub struct LinearRegressor;

/// Coefficients [targets, features] and intercepts [targets].
#[derive(Debug)]
pub struct Plan {
    targets: usize,
    features: usize,
    coefficients: Vec<f64>,
    intercepts: Vec<f64>,
}

impl Converter for LinearRegressor {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("ai.onnx.ml", "LinearRegressor", 1)],
        dtypes: &[DType::F32],
        layers: "IMatrixMultiplyLayer, IElementWiseLayer",
        limits: "no post_transform; not for sm75",
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

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let rows = match node.input(0).and_then(|x| x.shape()) {
            Some([_]) => Dim::Known(1),
            Some([n, ..]) => n.clone(),
            _ => Dim::Unknown,
        };
        let targets = small::size(Some(node.int("targets", 1)));
        Ok(shape::types([shape::typed(Some(DType::F32), Some(vec![rows, targets]))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "X", &[DType::F32], target)?;
        check::never_empty(&x, "X")?;
        if !matches!(x.rank(), 1 | 2) {
            return Err(Refusal::new(Code::RANK, format!("features of rank {}", x.rank())).slot("X"));
        }
        let transform = node.str("post_transform", "NONE");
        if transform != "NONE" {
            let why = format!("{transform} after the regression");
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("post_transform"));
        }
        matrix::gemm_gate(DType::F32, target)?;
        let list = |name: &str| -> Vec<f64> {
            node.attrs().floats(name).unwrap_or_default().iter().map(|&v| v.into()).collect()
        };
        let (coefficients, intercepts) = (list("coefficients"), list("intercepts"));
        let invalid = |why: String, slot: &str| Refusal::new(Code::INVALID, why).slot(slot);
        let targets = usize::try_from(node.int("targets", 1)).unwrap_or(0);
        if targets == 0 || coefficients.is_empty() || coefficients.len() % targets != 0 {
            let why = format!("{} numbers for {targets} targets", coefficients.len());
            return Err(invalid(why, "coefficients"));
        }
        let features = coefficients.len() / targets;
        if x.shape.last().and_then(Dim::known).is_some_and(|f| f != features as i64) {
            return Err(invalid(format!("made for {features} features"), "coefficients"));
        }
        if !intercepts.is_empty() && intercepts.len() != targets {
            return Err(invalid(format!("{} numbers for {targets} targets", intercepts.len()), "intercepts"));
        }
        Ok(Plan { targets, features, coefficients, intercepts })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let a = elementwise::input(cx, 0, 2);
        let (targets, features) = (plan.targets as i64, plan.features as i64);
        let b = floats::constant(cx, DType::F32, vec![targets, features], &plan.coefficients);
        let (op_a, op_b) = (MatrixOp::None, MatrixOp::Transpose);
        let y = cx.one(Layer::MatrixMultiply { a, op_a, b, op_b });
        if plan.intercepts.is_empty() {
            return vec![y];
        }
        let intercepts = floats::constant(cx, DType::F32, vec![1, targets], &plan.intercepts);
        vec![cx.elementwise(y, intercepts, ElementWiseOp::Sum)]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_ir::{Attr, Code};

    fn case() -> Case {
        let x = f32s([2, 3], &[1.0, -2.0, 3.0, 0.0, 5.0, -6.0]);
        let numbers = Attr::Floats(vec![0.5, 1.0, -1.0, 2.0, 0.25, 3.0]);
        Case::of("ai.onnx.ml", "LinearRegressor", 1).input(x).attr("coefficients", numbers)
    }

    #[test]
    fn numbers() {
        case().int("targets", 2).check(F32);
        let biased = case().int("targets", 2).attr("intercepts", Attr::Floats(vec![1.0, -1.0]));
        biased.check(F32);
        biased.dynamic(0, ["N", "3"]).check(F32);
    }

    #[test]
    fn types() {
        assert_eq!(case().int("targets", 2).dynamic(0, ["N", "3"]).types(), ["f32[N x 2]"]);
    }

    #[test]
    fn refusals() {
        let one = Case::of("ai.onnx.ml", "LinearRegressor", 1).input(f32s([1], &[1.0]));
        one.gates_of_f32(i32s([1], &[1]));
        case().dynamic(0, ["1", "2", "3"]).refused(Code::RANK);
        case().str("post_transform", "LOGISTIC").refused(Code::ATTRIBUTE);
        case().int("targets", 2).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        case().int("targets", 4).refused(Code::INVALID);
        case().int("targets", 3).refused(Code::INVALID);
        case().int("targets", 2).attr("intercepts", Attr::Floats(vec![1.0])).refused(Code::INVALID);
    }
}

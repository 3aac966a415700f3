//! BiasGelu, FastGelu (com.microsoft): Gelu of x + bias, exact or by tanh.
//!
//! x [.., n] T, bias [n] T (FastGelu: optional)  ->  y [.., n] T
//! Opsets: 1.     TensorRT: IElementWiseLayer SUM, IActivationLayer GELU_ERF, GELU_TANH.
//! Limits: f32, f16, bf16; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::{ActivationKind, ElementWiseOp};

/// The converter.
#[derive(Debug)]
pub struct BiasGelu;

/// Kind, rank, and whether there is a bias.
#[derive(Debug)]
pub struct Plan {
    kind: ActivationKind,
    rank: usize,
    bias: bool,
}

impl Converter for BiasGelu {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "BiasGelu", 1), Key::of("com.microsoft", "FastGelu", 1)],
        dtypes: check::FLOATS,
        layers: "IElementWiseLayer, IActivationLayer",
        limits: "",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let x = shape::same_as_input(node, 0);
        shape::demand_fits(node, 1, x.shape().unwrap_or(&[]), cx)?;
        Ok(shape::types([x]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let fast = node.op() == "FastGelu";
        let bias = !fast || node.input(1).is_some();
        let names: &[&str] = if bias { &["A", "B"] } else { &["X"] };
        let (_, rank) = elementwise::gates(node, names, check::FLOATS, target)?;
        let kind = if fast { ActivationKind::GeluTanh } else { ActivationKind::GeluErf };
        Ok(Plan { kind, rank, bias })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut x = elementwise::input(cx, 0, plan.rank);
        if plan.bias {
            let bias = elementwise::input(cx, 1, plan.rank);
            x = cx.elementwise(x, bias, ElementWiseOp::Sum);
        }
        vec![cx.activation(x, plan.kind, 0.0, 0.0)]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn case(op: &str) -> Case {
        Case::of("com.microsoft", op, 1).input(f32s([2, 3], &[-3.0, -1.0, -0.25, 0.25, 1.0, 3.0]))
    }

    #[test]
    fn numbers() {
        for op in ["BiasGelu", "FastGelu"] {
            let biased = case(op).constant(f32s([3], &[0.5, -0.5, 1.0]));
            biased.check(F32);
            assert_eq!(biased.clone().dynamic(0, ["2", "C"]).equalities(), ["3 = C"]);
            biased.dynamic(0, ["N", "3"]).check(F32);
        }
        case("FastGelu").check(F32);
    }

    #[test]
    fn refusals() {
        let one = |op| Case::of("com.microsoft", op, 1).input(f32s([1], &[1.0])).input(f32s([1], &[1.0]));
        one("BiasGelu").gates(i32s([1], &[1]));
        one("FastGelu").gates(i32s([1], &[1]));
    }
}

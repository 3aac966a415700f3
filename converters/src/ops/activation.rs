//! Activations of one TensorRT layer: elementwise functions with at most two constants.
//!
//! x [d0..dn] T  ->  y [d0..dn] T
//! Opsets: attributes as in the newest version.     TensorRT: IActivationLayer.
//! Limits: floats (Relu: also not integers, which TensorRT refuses).

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::ActivationKind;

/// Relu, Sigmoid, Tanh, LeakyRelu, Elu, Selu, Softsign, Softplus, HardSigmoid, ThresholdedRelu.
#[derive(Debug)]
pub struct Activation;

/// Layer kind with its constants.
#[derive(Debug)]
pub struct Plan {
    kind: ActivationKind,
    alpha: f32,
    beta: f32,
}

impl Converter for Activation {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("Relu", 14),
            Key::onnx("Sigmoid", 13),
            Key::onnx("Tanh", 13),
            Key::onnx("LeakyRelu", 16),
            Key::onnx("Elu", 22),
            Key::onnx("Selu", 22),
            Key::onnx("Softsign", 22),
            Key::onnx("Softplus", 22),
            Key::onnx("HardSigmoid", 22),
            Key::onnx("ThresholdedRelu", 22),
        ],
        dtypes: check::FLOATS,
        layers: "IActivationLayer",
        limits: "floating point",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::COMPUTE_CAPABILITY,
            Code::RANK_UNKNOWN,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        check::operand(node, 0, "X", check::FLOATS, target)?;
        let alpha = |default| node.float("alpha", default);
        let (kind, alpha, beta) = match node.op() {
            "Sigmoid" => (ActivationKind::Sigmoid, 0.0, 0.0),
            "Tanh" => (ActivationKind::Tanh, 0.0, 0.0),
            "LeakyRelu" => (ActivationKind::LeakyRelu, alpha(0.01), 0.0),
            "Elu" => (ActivationKind::Elu, alpha(1.0), 0.0),
            "Selu" => (ActivationKind::Selu, alpha(1.673_263_2), node.float("gamma", 1.050_701)),
            "Softsign" => (ActivationKind::Softsign, 0.0, 0.0),
            "Softplus" => (ActivationKind::Softplus, 1.0, 1.0),
            "HardSigmoid" => (ActivationKind::HardSigmoid, alpha(0.2), node.float("beta", 0.5)),
            "ThresholdedRelu" => (ActivationKind::ThresholdedRelu, alpha(1.0), 0.0),
            _ => (ActivationKind::Relu, 0.0, 0.0),
        };
        Ok(Plan { kind, alpha, beta })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        vec![cx.activation(x, plan.kind, plan.alpha, plan.beta)]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    const ALL: &[(&str, u32)] = &[
        ("Relu", 14),
        ("Sigmoid", 13),
        ("Tanh", 13),
        ("LeakyRelu", 16),
        ("Elu", 22),
        ("Selu", 22),
        ("Softsign", 22),
        ("Softplus", 22),
        ("HardSigmoid", 22),
        ("ThresholdedRelu", 22),
    ];

    #[test]
    fn numbers() {
        let values = [-30.0, -2.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5, 30.0];
        for &(op, since) in ALL {
            for dtype in [DType::F32, DType::F16, DType::Bf16] {
                let case = Case::new(op, since).input(of_dtype(dtype, [2, 5], &values));
                case.check(near(dtype));
                case.dynamic(0, ["N", "5"]).check(near(dtype));
            }
        }
    }

    #[test]
    fn refusals() {
        let relu = || Case::new("Relu", 14);
        relu().input(f64s([1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        relu().input(i32s([1], &[1])).refused(Code::DTYPE_KERNEL);
        relu().input(bf16s([1], &[1.0])).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        relu().input(f32s([1], &[1.0])).unranked(0).refused(Code::RANK_UNKNOWN);
    }
}

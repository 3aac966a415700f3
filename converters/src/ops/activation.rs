//! Activations: elementwise functions of one input with constants.
//!
//! x [d0..dn] T  ->  y [d0..dn] T
//! Opsets: attributes as in the newest version; Relu 14 integers; Gelu 20; Swish 24.
//! TensorRT: IActivationLayer; HardSwish, Mish, Swish, Celu, Shrink of several layers.
//! Limits: floats; Relu also integers of up to 64 bits, but u64; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ActivationKind, ElementWiseOp, UnaryOp},
};

/// Relu, Sigmoid, Tanh, LeakyRelu, Elu, Selu, Softsign, Softplus, HardSigmoid, ThresholdedRelu, Gelu, HardSwish, Mish,
/// Swish, Celu, Shrink, and the contributed ScaledTanh, ParametricSoftplus, Affine, QuickGelu, Gelu.
#[derive(Debug)]
pub struct Activation;

/// What is emitted.
#[derive(Debug)]
pub enum Plan {
    /// One layer with its constants.
    Layer(ActivationKind, f32, f32),
    /// max(x, 0), for integers.
    Positive,
    /// x · f(αx + β).
    Gated(ActivationKind, f32, f32),
    /// x · sigmoid(αx).
    Swish(f32),
    /// x · tanh(softplus(x)).
    Mish,
    /// max(0, x) + min(0, α·(exp(x/α) − 1)).
    Celu(f32),
    /// x + bias below −λ, x − bias above λ, 0 between.
    Shrink(f32, f32),
    /// αx + β.
    Affine(f32, f32),
}

fn plan_of(node: NodeView<'_>, dtype: DType) -> Result<Plan, Refusal> {
    let alpha = |default| node.float("alpha", default);
    let beta = |default| node.float("beta", default);
    let layer = |kind| Plan::Layer(kind, 0.0, 0.0);
    Ok(match node.op() {
        "Relu" if dtype.is_int() => Plan::Positive,
        "Relu" => layer(ActivationKind::Relu),
        "Sigmoid" => layer(ActivationKind::Sigmoid),
        "Tanh" => layer(ActivationKind::Tanh),
        "LeakyRelu" => Plan::Layer(ActivationKind::LeakyRelu, alpha(0.01), 0.0),
        "Elu" => Plan::Layer(ActivationKind::Elu, alpha(1.0), 0.0),
        "Selu" => Plan::Layer(ActivationKind::Selu, alpha(1.673_263_2), node.float("gamma", 1.050_701)),
        "Softsign" => layer(ActivationKind::Softsign),
        "Softplus" => Plan::Layer(ActivationKind::Softplus, 1.0, 1.0),
        "HardSigmoid" => Plan::Layer(ActivationKind::HardSigmoid, alpha(0.2), beta(0.5)),
        "ThresholdedRelu" => Plan::Layer(ActivationKind::ThresholdedRelu, alpha(1.0), 0.0),
        "Gelu" => match node.str("approximate", "none") {
            "none" => layer(ActivationKind::GeluErf),
            "tanh" => layer(ActivationKind::GeluTanh),
            other => {
                let why = format!("no approximation `{other}`");
                return Err(Refusal::new(Code::ATTRIBUTE, why).slot("approximate"));
            }
        },
        "HardSwish" => Plan::Gated(ActivationKind::HardSigmoid, 1.0 / 6.0, 0.5),
        "Mish" => Plan::Mish,
        "Swish" => Plan::Swish(alpha(1.0)),
        "QuickGelu" => Plan::Swish(alpha(1.702)),
        "Celu" => Plan::Celu(alpha(1.0)),
        "Shrink" => Plan::Shrink(node.float("lambd", 0.5), node.float("bias", 0.0)),
        "ScaledTanh" => Plan::Layer(ActivationKind::ScaledTanh, alpha(0.0), beta(0.0)),
        "ParametricSoftplus" => Plan::Layer(ActivationKind::Softplus, alpha(0.0), beta(0.0)),
        _ => Plan::Affine(alpha(1.0), beta(0.0)),
    })
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
            Key::onnx("Gelu", 20),
            Key::onnx("HardSwish", 22),
            Key::onnx("Mish", 22),
            Key::onnx("Swish", 24),
            Key::onnx("Celu", 28),
            Key::onnx("Shrink", 9),
            Key::onnx("ScaledTanh", 1),
            Key::onnx("ParametricSoftplus", 1),
            Key::onnx("Affine", 1),
            Key::of("com.microsoft", "Gelu", 1),
            Key::of("com.microsoft", "QuickGelu", 1),
        ],
        dtypes: check::FLOATS,
        layers: "IActivationLayer",
        limits: "Relu also integers of up to 64 bits, but u64",
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
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let allowed = if node.op() == "Relu" { check::WITH_NARROW } else { check::FLOATS };
        let x = elementwise::gate(node, 0, "X", allowed, target)?;
        plan_of(node, x.dtype)
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        vec![match plan {
            Plan::Layer(kind, alpha, beta) => cx.activation(x, kind, alpha, beta),
            Plan::Positive => {
                let zero = elementwise::scalar_like(cx, x, 0.0);
                cx.elementwise(x, zero, ElementWiseOp::Max)
            }
            Plan::Gated(kind, alpha, beta) => {
                let gate = cx.activation(x, kind, alpha, beta);
                cx.elementwise(x, gate, ElementWiseOp::Prod)
            }
            Plan::Swish(alpha) => {
                let scaled = if alpha == 1.0 { x } else { times(cx, x, alpha) };
                let gate = cx.activation(scaled, ActivationKind::Sigmoid, 0.0, 0.0);
                cx.elementwise(x, gate, ElementWiseOp::Prod)
            }
            Plan::Mish => {
                let soft = cx.activation(x, ActivationKind::Softplus, 1.0, 1.0);
                let gate = cx.activation(soft, ActivationKind::Tanh, 0.0, 0.0);
                cx.elementwise(x, gate, ElementWiseOp::Prod)
            }
            Plan::Celu(alpha) => celu(cx, x, alpha),
            Plan::Shrink(lambda, bias) => shrink(cx, x, lambda, bias),
            Plan::Affine(alpha, beta) => {
                let scaled = times(cx, x, alpha);
                let beta = elementwise::scalar_like(cx, x, beta.into());
                cx.elementwise(scaled, beta, ElementWiseOp::Sum)
            }
        }]
    }
}

fn times(cx: &mut Emit<'_>, x: TensorId, factor: f32) -> TensorId {
    let factor = elementwise::scalar_like(cx, x, factor.into());
    cx.elementwise(x, factor, ElementWiseOp::Prod)
}

fn celu(cx: &mut Emit<'_>, x: TensorId, alpha: f32) -> TensorId {
    let (zero, one) = (elementwise::scalar_like(cx, x, 0.0), elementwise::scalar_like(cx, x, 1.0));
    let divisor = elementwise::scalar_like(cx, x, alpha.into());
    let scaled = cx.elementwise(x, divisor, ElementWiseOp::Div);
    let power = cx.unary(scaled, UnaryOp::Exp);
    let less = cx.elementwise(power, one, ElementWiseOp::Sub);
    let low = times(cx, less, alpha);
    let low = cx.elementwise(low, zero, ElementWiseOp::Min);
    let high = cx.elementwise(x, zero, ElementWiseOp::Max);
    cx.elementwise(high, low, ElementWiseOp::Sum)
}

fn shrink(cx: &mut Emit<'_>, x: TensorId, lambda: f32, bias: f32) -> TensorId {
    let scalar = |cx: &mut Emit<'_>, value: f32| elementwise::scalar_like(cx, x, value.into());
    let (zero, bias) = (scalar(cx, 0.0), scalar(cx, bias));
    let (low, high) = (scalar(cx, -lambda), scalar(cx, lambda));
    let above = cx.elementwise(x, high, ElementWiseOp::Greater);
    let down = cx.elementwise(x, bias, ElementWiseOp::Sub);
    let y = cx.one(Layer::Select { condition: above, then_input: down, else_input: zero });
    let below = cx.elementwise(x, low, ElementWiseOp::Less);
    let up = cx.elementwise(x, bias, ElementWiseOp::Sum);
    cx.one(Layer::Select { condition: below, then_input: up, else_input: y })
}

#[cfg(test)]
mod tests {
    use super::Activation;
    use crate::{Converter, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::Code;

    #[test]
    fn numbers() {
        let values = [-30.0, -2.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5, 30.0];
        for key in Activation::DEF.keys {
            for dtype in [DType::F32, DType::F16, DType::Bf16] {
                let case = Case::of(key.domain, key.op, key.since).input(of_dtype(dtype, [2, 5], &values));
                let case = match key.op {
                    "ScaledTanh" | "ParametricSoftplus" | "Affine" => {
                        case.float("alpha", 1.5).float("beta", 0.5)
                    }
                    _ => case,
                };
                case.check(near(dtype));
                case.dynamic(0, ["N", "5"]).check(near(dtype));
            }
        }
    }

    #[test]
    fn attributes() {
        let x = || f32s([6], &[-3.0, -1.0, -0.25, 0.25, 1.0, 3.0]);
        let with = |op, since, name, value| Case::new(op, since).input(x()).float(name, value).check(F32);
        with("LeakyRelu", 16, "alpha", 0.3);
        with("Elu", 22, "alpha", 0.3);
        with("Selu", 22, "gamma", 2.0);
        with("HardSigmoid", 22, "beta", 0.25);
        // The threshold itself gives 0.
        with("ThresholdedRelu", 22, "alpha", 1.0);
        with("Celu", 28, "alpha", 2.0);
        with("Celu", 28, "alpha", -2.0);
        with("Swish", 24, "alpha", 0.5);
        with("Shrink", 9, "bias", 1.5);
        with("Shrink", 9, "lambd", 1.0);
        Case::new("Gelu", 20).input(x()).str("approximate", "tanh").check(F32);
        Case::new("Relu", 14).input(i32s([3], &[-1, 0, 5])).check(Tolerance::Exact);
        Case::new("Relu", 14).input(i8s([3], &[-1, 0, 5])).check(Tolerance::Exact);
        Case::new("Relu", 14).input(i64s([3], &[-1, 0, 5])).check(Tolerance::Exact);
    }

    #[test]
    fn refusals() {
        for key in Activation::DEF.keys {
            let wrong = if key.op == "Relu" { bools([1], &[true]) } else { i32s([1], &[1]) };
            Case::of(key.domain, key.op, key.since).input(f32s([1], &[1.0])).gates(wrong);
        }
        let gelu = Case::new("Gelu", 20).input(f32s([1], &[1.0])).str("approximate", "sigmoid");
        gelu.refused(Code::ATTRIBUTE);
    }
}

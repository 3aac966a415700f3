//! SkipLayerNormalization, SkipSimplifiedLayerNormalization (com.microsoft), SimplifiedLayerNormalization.
//!
//! x [.., h] T, skip [broadcasts to x] T, gamma [h] T, (beta [h] T), (bias [h] T)
//!   ->  y [.., h] T, (mean, inverse deviation: not made), (x + skip + bias) [.., h] T
//! Simplified: divided by the root of the mean of squares, no beta.     SimplifiedLayerNormalization: x [.., h] T, scale [h] T.
//! Opsets: 1.     TensorRT: INormalizationLayer in f32 with beta; otherwise IReduceLayer, IElementWiseLayer, in f32.
//! Limits: f32, f16, bf16; the last axis; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise,
        norm::{self, Centre},
        shape,
    },
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::ElementWiseOp;

/// The converters.
#[derive(Debug)]
pub struct SkipLayerNormalization;

/// Slots of an operator's inputs.
#[derive(Clone, Copy, Debug)]
struct Slots {
    skip: Option<usize>,
    scale: usize,
    beta: Option<usize>,
    bias: Option<usize>,
}

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    slots: Slots,
    centre: Centre,
    epsilon: f32,
    rank: usize,
}

fn slots(node: NodeView<'_>) -> Slots {
    match node.op() {
        "SkipLayerNormalization" => Slots { skip: Some(1), scale: 2, beta: Some(3), bias: Some(4) },
        "SkipSimplifiedLayerNormalization" => Slots { skip: Some(1), scale: 2, beta: None, bias: Some(3) },
        _ => Slots { skip: None, scale: 1, beta: None, bias: None },
    }
}

impl Converter for SkipLayerNormalization {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::of("com.microsoft", "SkipLayerNormalization", 1),
            Key::of("com.microsoft", "SkipSimplifiedLayerNormalization", 1),
            Key::onnx("SimplifiedLayerNormalization", 1),
        ],
        dtypes: check::FLOATS,
        layers: "INormalizationLayer, IReduceLayer, IElementWiseLayer",
        limits: "the last axis; mean and deviation are not made",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::OUTPUTS,
            Code::ATTRIBUTE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let x = shape::same_as_input(node, 0);
        let slots = slots(node);
        for slot in [slots.skip, Some(slots.scale), slots.beta, slots.bias].into_iter().flatten() {
            shape::demand_fits(node, slot, x.shape().unwrap_or(&[]), cx)?;
        }
        let unknown = trtc_ir::Type::Unknown;
        Ok(shape::types([x.clone(), unknown.clone(), unknown, x]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let slots = slots(node);
        let x = elementwise::gate(node, 0, "input", check::FLOATS, target)?;
        check::never_empty(&x, "input")?;
        if x.rank() == 0 {
            return Err(Refusal::new(Code::RANK, "a scalar has no row").slot("input"));
        }
        if slots.skip.is_none() && check::axis(node.int("axis", -1), x.rank(), "axis")? + 1 != x.rank() {
            return Err(Refusal::new(Code::ATTRIBUTE, "over more than the last axis").slot("axis"));
        }
        for (slot, name, optional) in [
            (slots.skip, "skip", false),
            (Some(slots.scale), "gamma", false),
            (slots.beta, "beta", true),
            (slots.bias, "bias", true),
        ] {
            let Some(slot) = slot.filter(|&slot| !optional || node.input(slot).is_some()) else { continue };
            let operand = elementwise::gate(node, slot, name, &[x.dtype], target)?;
            if operand.rank() > x.rank() {
                return Err(Refusal::new(Code::RANK, "a higher rank than the input's").slot(name));
            }
        }
        let wanted = |slot: usize| {
            let output = node.output(slot);
            output.is_some_and(|v| !v.value().users().is_empty() || node.graph().outputs().contains(&v.id()))
        };
        if wanted(1) || wanted(2) {
            return Err(Refusal::new(Code::OUTPUTS, "mean and inverse deviation, which inference needs not"));
        }
        let centre = if node.op() == "SkipLayerNormalization" { Centre::Mean } else { Centre::Zero };
        let epsilon = node.float("epsilon", if slots.skip.is_some() { 1e-12 } else { 1e-5 });
        Ok(Plan { slots, centre, epsilon, rank: x.rank() })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let Slots { skip, scale, beta, bias } = plan.slots;
        let mut x = cx.input(0);
        for slot in [skip, bias].into_iter().flatten() {
            if cx.node().input(slot).is_some() {
                let other = elementwise::input(cx, slot, plan.rank);
                x = cx.elementwise(x, other, ElementWiseOp::Sum);
            }
        }
        let scale = cx.input(scale);
        let beta = beta.and_then(|slot| cx.optional(slot));
        let y = norm::over_last(cx, x, scale, beta, (plan.centre, plan.epsilon));
        vec![y, y, y, x]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn case(op: &str) -> Case {
        let case = Case::of("com.microsoft", op, 1).input(noise([2, 3, 8])).input(noise([2, 3, 8]));
        case.constant(noise([8])).float("epsilon", 1e-5)
    }

    #[test]
    fn numbers() {
        let full = case("SkipLayerNormalization").constant(noise([8]));
        full.check(F32);
        full.clone().constant(noise([8])).check(F32);
        full.clone().dynamic(0, ["N", "S", "8"]).dynamic(1, ["N", "S", "8"]).check(F32);
        case("SkipLayerNormalization").check(F32);
        let simple = case("SkipSimplifiedLayerNormalization");
        assert_eq!(simple.clone().dynamic(0, ["2", "3", "D"]).equalities(), ["8 = D"]);
        simple.check(F32);
        simple.constant(noise([8])).dynamic(0, ["N", "3", "8"]).dynamic(1, ["N", "3", "8"]).check(F32);
        let half = Case::of("com.microsoft", "SkipLayerNormalization", 1).input(noise16([2, 3, 8]));
        let half = half.input(noise16([2, 3, 8])).constant(noise16([8])).constant(noise16([8]));
        half.float("epsilon", 1e-5).check(F16);
        let plain = Case::new("SimplifiedLayerNormalization", 1).input(noise([2, 3, 8])).constant(noise([8]));
        plain.layers();
    }

    #[test]
    fn sums() {
        let case = case("SkipSimplifiedLayerNormalization").outputs(4);
        assert_eq!(case.types(), ["f32[2 x 3 x 8]", "?", "?", "f32[2 x 3 x 8]"]);
        case.refused(Code::OUTPUTS);
    }

    #[test]
    fn refusals() {
        let one = || f32s([1], &[1.0]);
        for op in ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"] {
            Case::of("com.microsoft", op, 1).input(one()).input(one()).input(one()).gates(i32s([1], &[1]));
            let long = case(op).constant(noise([1, 1, 1, 8]));
            long.refused(Code::RANK);
        }
        let plain = Case::new("SimplifiedLayerNormalization", 1).input(noise([2, 8])).constant(noise([2, 8]));
        plain.int("axis", 0).refused(Code::ATTRIBUTE);
    }
}

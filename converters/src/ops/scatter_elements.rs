//! ScatterElements: replace single elements along one axis.
//!
//! data [d0..dn] T, indices [q0..qn] i32|i64, updates [q0..qn] T  ->  output [d0..dn] T
//! Opsets: 11; 13 wider types; 16, 18 reduction.     TensorRT: IScatterLayer (element mode).
//! Limits: no reduction; negative indices cost a select.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, indices, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::ScatterMode};

/// The converter.
#[derive(Debug)]
pub struct ScatterElements;

/// Axis, and how the indices become non-negative.
#[derive(Debug)]
pub struct Plan {
    axis: u32,
    indices: indices::IndexPlan,
}

impl Converter for ScatterElements {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("ScatterElements", 18)],
        dtypes: check::CARRIED,
        layers: "IScatterLayer",
        limits: "reduction `none`",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let rank = |slot: usize| node.input(slot).and_then(|view| view.rank());
        if let Some(r) = rank(0) {
            shape::axis(node.int("axis", 0), r).map_err(|diag| diag.slot("axis"))?;
            if let Some(other) = rank(1).filter(|&q| q != r).or(rank(2).filter(|&q| q != r)) {
                return Err(Diag::invalid(format!("indices or updates of rank {other} for rank {r}")));
            }
        }
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::CARRIED, target)?;
        check::never_empty(&x, "data")?;
        let updates = check::operand(node, 2, "updates", &[x.dtype], target)?;
        check::not_empty(&updates, "updates")?;
        let reduction = node.str("reduction", "none");
        if reduction != "none" {
            return Err(Refusal::new(
                Code::ATTRIBUTE,
                format!("TensorRT does not scatter with `{reduction}`"),
            )
            .slot("reduction"));
        }
        let axis = check::axis(node.int("axis", 0), x.rank(), "axis")?;
        Ok(Plan { axis: axis as u32, indices: indices::plan(node, 1, &[axis], false, target)? })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let data = cx.input(0);
        let indices = indices::emit(cx, 1, &plan.indices);
        let updates = cx.input(2);
        let mode = ScatterMode::Element;
        vec![cx.one(Layer::Scatter { data, indices, updates, mode, axis: plan.axis })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn scatter(indices: trtc_ir::Tensor) -> Case {
        Case::new("ScatterElements", 18)
            .input(noise([3, 4]))
            .input(indices)
            .input(noise([3, 2]))
            .int("axis", 1)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("ScatterElements", 18).input(x(&[2])).input(list(&[0])).input(x(&[1])));
        let case = Case::new("ScatterElements", 18).input(noise([2])).input(list(&[0])).input(noise([1]));
        case.clone().str("reduction", "add").refused(Code::ATTRIBUTE);
        case.dynamic(0, ["0"]).refused(Code::SHAPE);
        let case = Case::new("ScatterElements", 18).input(noise([2])).constant(list(&[2])).input(noise([1]));
        case.refused(Code::CONSTANT_VALUE);
    }

    #[test]
    fn types() {
        assert_eq!(scatter(i64s([3, 2], &[0; 6])).dynamic(0, ["N", "4"]).types(), ["f32[N x 4]"]);
        assert!(scatter(list(&[0])).invalid().contains("rank 1 for rank 2"));
    }

    #[test]
    fn numbers() {
        let indices = [0, 1, -1, 2, 3, 0];
        scatter(i64s([3, 2], &indices)).check(Tolerance::Exact);
        let dynamic = scatter(i64s([3, 2], &indices)).dynamic(0, ["N", "4"]).dynamic(1, ["N", "2"]);
        dynamic.dynamic(2, ["N", "2"]).check(Tolerance::Exact);
        let case = Case::new("ScatterElements", 18).input(noise([3, 4])).constant(i64s([1, 2], &[-1, 0]));
        case.input(noise([1, 2])).check(Tolerance::Exact);
        let bool = Case::new("ScatterElements", 18).input(bools([3], &[false; 3])).input(list(&[1]));
        bool.input(bools([1], &[true])).check(Tolerance::Exact);
    }
}

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
        dtypes: check::MOVABLE,
        layers: "IScatterLayer",
        limits: "reduction `none`",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::COMPUTE_CAPABILITY,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::CONSTANT_VALUE,
            Code::SHAPE,
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
        let x = check::operand(node, 0, "data", check::MOVABLE, target)?;
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

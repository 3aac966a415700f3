//! GatherElements: one element for each index, along one axis.
//!
//! data [d0..dn] T, indices [q0..qn] i32|i64, q ≤ d but for the axis  ->  output [q0..qn] T
//! Opsets: 11; 13 wider types.     TensorRT: IGatherLayer (element mode).
//! Limits: none; negative indices cost a select.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, indices, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::GatherMode};

/// The converter.
#[derive(Debug)]
pub struct GatherElements;

/// Axis, and how the indices become non-negative.
#[derive(Debug)]
pub struct Plan {
    axis: u32,
    indices: indices::IndexPlan,
}

impl Converter for GatherElements {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("GatherElements", 13)],
        dtypes: check::MOVABLE,
        layers: "IGatherLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::COMPUTE_CAPABILITY,
            Code::RANK_UNKNOWN,
            Code::CONSTANT_VALUE,
            Code::SHAPE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let to = node.input(1).and_then(|indices| indices.shape()).map(<[_]>::to_vec);
        if let (Some(x), Some(q)) = (node.input(0).and_then(|x| x.shape()), &to) {
            if x.len() != q.len() {
                return Err(Diag::invalid(format!("indices of rank {} for rank {}", q.len(), x.len())));
            }
            shape::axis(node.int("axis", 0), x.len()).map_err(|diag| diag.slot("axis"))?;
        }
        Ok(shape::types([shape::typed(shape::dtype_of(node, 0), to)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::MOVABLE, target)?;
        check::not_empty(&x, "data")?;
        let axis = check::axis(node.int("axis", 0), x.rank(), "axis")?;
        Ok(Plan { axis: axis as u32, indices: indices::plan(node, 1, &[axis], false, target)? })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let data = cx.input(0);
        let indices = indices::emit(cx, 1, &plan.indices);
        let mode = GatherMode::Element;
        vec![cx.one(Layer::Gather { data, indices, axis: plan.axis, mode, batch_dims: 0 })]
    }
}

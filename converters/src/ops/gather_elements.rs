//! GatherElements: one element for each index, along one axis.
//!
//! data [d0..dn] T, indices [q0..qn] i32|i64, q ≤ d but for the axis  ->  output [q0..qn] T
//! Opsets: 11; 13 wider types.     TensorRT: IGatherLayer (element mode).
//! Limits: none; negative indices cost a select.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, indices::AlongAxis, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};
use trtc_network::layer::GatherMode;

/// The converter.
#[derive(Debug)]
pub struct GatherElements;

impl Converter for GatherElements {
    type Plan = AlongAxis;

    const DEF: Def = Def {
        keys: &[Key::onnx("GatherElements", 13)],
        dtypes: check::CARRIED,
        layers: "IGatherLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let to = node.input(1).and_then(|indices| indices.shape()).map(<[_]>::to_vec);
        if let (Some(x), Some(q)) = (node.input(0).and_then(|x| x.shape()), &to) {
            if x.len() != q.len() {
                return Err(Diag::invalid(format!("indices of rank {} for rank {}", q.len(), x.len())));
            }
            let along = shape::axis(node.int("axis", 0), x.len()).map_err(|diag| diag.slot("axis"))?;
            for (axis, (x, q)) in x.iter().zip(q).enumerate().filter(|(axis, _)| *axis != along) {
                match x.sub(q) {
                    Dim::Known(rest) if rest < 0 => {
                        let why = format!("on axis {axis} there are {} indices more than data", -rest);
                        return Err(Diag::invalid(why).slot("indices"));
                    }
                    rest @ Dim::Expr(_) => cx.require(ConstraintKind::AtLeast(rest, 0)),
                    _ => {}
                }
            }
        }
        Ok(shape::types([shape::typed(shape::dtype_of(node, 0), to)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<AlongAxis, Refusal> {
        let (x, axis, plan) = AlongAxis::plan(node, target)?;
        let indices = node.input(1).and_then(|indices| indices.shape()).unwrap_or_default();
        let other = x.shape.iter().zip(indices).enumerate().filter(|(k, _)| *k != axis);
        if let Some((axis, _)) = other.into_iter().find(|(_, (x, q))| !dims::at_least(node, &x.sub(q), 0)) {
            let why = format!("the indices are not known to be within the data on axis {axis}");
            return Err(Refusal::new(Code::SHAPE, why).slot("indices"));
        }
        Ok(plan)
    }

    fn emit(&self, plan: AlongAxis, cx: &mut Emit<'_>) -> Outputs {
        vec![plan.emit(cx, GatherMode::Element)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn gather(indices: trtc_ir::Tensor) -> Case {
        Case::new("GatherElements", 13).input(noise([3, 4])).input(indices).int("axis", 1)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("GatherElements", 13).input(x(&[1])).input(list(&[0])));
        let case = Case::new("GatherElements", 13).input(noise([1])).input(list(&[0]));
        Case::new("GatherElements", 13).input(noise([2])).constant(list(&[2])).refused(Code::CONSTANT_VALUE);
        case.dynamic(0, ["0"]).refused(Code::SHAPE);
        gather(i64s([3, 2], &[0; 6])).dynamic(1, ["N?", "2"]).refused(Code::SHAPE);
    }

    #[test]
    fn types() {
        assert_eq!(gather(i64s([3, 2], &[0; 6])).dynamic(1, ["N", "2"]).types(), ["f32[N x 2]"]);
        assert!(gather(list(&[0])).invalid().contains("rank 1 for rank 2"));
    }

    #[test]
    fn numbers() {
        gather(i64s([3, 2], &[0, 1, -1, 2, 3, 0]))
            .dynamic(0, ["N", "4"])
            .dynamic(1, ["N", "2"])
            .check(Tolerance::Exact);
        gather(i32s([2, 2], &[0, -1, 3, 2])).check(Tolerance::Exact);
        let case = Case::new("GatherElements", 13)
            .input(noise([3, 4]))
            .constant(i64s([2, 3], &[0, -1, 2, 1, 0, -3]));
        case.int("axis", 0).check(Tolerance::Exact);
    }

    #[test]
    fn gates() {
        let nine = Case::new("GatherElements", 13).input(noise([1; 9])).input(i64s([1; 9], &[0]));
        nine.refused(Code::RANK);
        Case::new("GatherElements", 13).absent().input(list(&[0])).refused(Code::INVALID);
    }
}

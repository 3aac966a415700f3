//! ReverseSequence: reverse the first elements of each row.
//!
//! input [t, b, d..] T (or [b, t, d..]), sequence_lens [b] i64  ->  Y [t, b, d..] T
//! Opsets: 10; 28 wider types.     TensorRT: IReverseSequenceLayer.
//! Limits: none.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::Layer;

/// The converter.
#[derive(Debug)]
pub struct ReverseSequence;

/// Batch and sequence axis.
#[derive(Debug)]
pub struct Plan {
    batch_axis: u32,
    sequence_axis: u32,
}

fn axes(node: NodeView<'_>) -> Result<(u32, u32), Diag> {
    match (node.int("batch_axis", 1), node.int("time_axis", 0)) {
        (1, 0) => Ok((1, 0)),
        (0, 1) => Ok((0, 1)),
        (batch, time) => {
            Err(Diag::invalid(format!("batch axis {batch} and time axis {time}")).slot("batch_axis"))
        }
    }
}

impl Converter for ReverseSequence {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("ReverseSequence", 28)],
        dtypes: check::CARRIED,
        layers: "IReverseSequenceLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let (batch_axis, _) = axes(node)?;
        if let Some(rank) = node.input(0).and_then(|x| x.rank()).filter(|&rank| rank < 2) {
            return Err(Diag::invalid(format!("rank {rank} has no batch and time")).slot("input"));
        }
        if let Some(batch) = node.input(0).and_then(|x| x.dim(batch_axis as usize)) {
            shape::demand(node, (1, 0), batch, cx)?;
        }
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::CARRIED, target)?;
        check::never_empty(&x, "input")?;
        check::operand(node, 1, "sequence_lens", &[DType::I64], target)?;
        let (batch_axis, sequence_axis) = axes(node).map_err(crate::ctx::window::refused)?;
        Ok(Plan { batch_axis, sequence_axis })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let (x, lengths) = (cx.input(0), cx.input(1));
        let Plan { batch_axis, sequence_axis } = plan;
        vec![cx.one(Layer::ReverseSequence { x, lengths, batch_axis, sequence_axis })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn case() -> Case {
        Case::new("ReverseSequence", 28).input(noise([4, 3, 2])).input(list(&[4, 1, 2]))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("ReverseSequence", 28).input(x(&[2, 2])).input(list(&[1, 1])));
        case().dynamic(0, ["0", "3", "2"]).refused(Code::SHAPE);
        Case::new("ReverseSequence", 28).input(noise([1; 9])).input(list(&[1])).refused(Code::RANK);
        Case::new("ReverseSequence", 28).input(noise([2, 2])).refused(Code::INVALID);
    }

    #[test]
    fn numbers() {
        assert_eq!(case().dynamic(0, ["T", "3", "2"]).types(), ["f32[T x 3 x 2]"]);
        assert_eq!(case().dynamic(0, ["T", "N", "2"]).dynamic(1, ["M"]).equalities(), ["M = N"]);
        assert!(case().int("batch_axis", 0).invalid().contains("time axis 0"));
        assert!(Case::new("ReverseSequence", 28).input(noise([2])).invalid().contains("rank 1"));
        case().check(Tolerance::Exact);
        case().dynamic(0, ["T", "3", "2"]).check(Tolerance::Exact);
        let other = Case::new("ReverseSequence", 28).input(noise([2, 5])).constant(list(&[5, 3]));
        other.int("batch_axis", 0).int("time_axis", 1).check(Tolerance::Exact);
    }
}

//! ScatterND: replace slices named by index tuples.
//!
//! data [d0..dn] T, indices [q.., k] i64, updates [q.., dk..dn] T  ->  output [d0..dn] T
//! Opsets: 11; 13 wider types; 16, 18 reduction.     TensorRT: IScatterLayer (ND mode).
//! Limits: no reduction; the last dim of the indices known; negative indices cost a select.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, indices, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::ScatterMode};

/// The converter.
#[derive(Debug)]
pub struct ScatterNd;

/// How the indices become non-negative.
#[derive(Debug)]
pub struct Plan(indices::IndexPlan);

impl Converter for ScatterNd {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("ScatterND", 18)],
        dtypes: check::CARRIED,
        layers: "IScatterLayer",
        limits: "reduction `none`; last dim of the indices known",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        if let (Some(rank), Some(Dim::Known(length))) = (
            node.input(0).and_then(|x| x.rank()),
            node.input(1).and_then(|indices| indices.shape()).and_then(<[Dim]>::last),
        ) && !(1..=rank as i64).contains(length)
        {
            return Err(Diag::invalid(format!("tuples of {length} indices into rank {rank}")).slot("indices"));
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
        let q = check::operand(node, 1, "indices", &[DType::I64, DType::I32], target)?;
        let length = q.shape.last().and_then(Dim::known).and_then(|n| usize::try_from(n).ok());
        let length = length.filter(|n| (1..=x.rank()).contains(n)).ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "the number of indices in a tuple is not known").slot("indices")
        })?;
        let axes: Vec<usize> = (0..length).collect();
        Ok(Plan(indices::plan(node, 1, &axes, true, target)?))
    }

    fn emit(&self, Plan(plan): Plan, cx: &mut Emit<'_>) -> Outputs {
        let data = cx.input(0);
        let indices = indices::emit(cx, 1, &plan);
        let updates = cx.input(2);
        vec![cx.one(Layer::Scatter { data, indices, updates, mode: ScatterMode::Nd, axis: 0 })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn scatter(indices: trtc_ir::Tensor, updates: trtc_ir::Tensor) -> Case {
        Case::new("ScatterND", 18).input(noise([3, 4])).input(indices).input(updates)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            Case::new("ScatterND", 18).input(x(&[2])).input(i64s([1, 1], &[0])).input(x(&[1]))
        });
        let case = Case::new("ScatterND", 18).input(noise([2])).input(i64s([1, 1], &[0])).input(noise([1]));
        case.clone().str("reduction", "max").refused(Code::ATTRIBUTE);
        case.clone().dynamic(1, ["1", "k"]).refused(Code::DIM_UNKNOWN);
        case.dynamic(0, ["0"]).refused(Code::SHAPE);
        let case =
            Case::new("ScatterND", 18).input(noise([2])).constant(i64s([1, 1], &[2])).input(noise([1]));
        case.refused(Code::CONSTANT_VALUE);
    }

    #[test]
    fn types() {
        let case = scatter(i64s([1, 1], &[0]), noise([1, 4])).dynamic(0, ["N", "4"]);
        assert_eq!(case.types(), ["f32[N x 4]"]);
        assert!(scatter(i64s([1, 3], &[0; 3]), noise([1])).invalid().contains("3 indices into rank 2"));
    }

    #[test]
    fn numbers() {
        scatter(i64s([2, 1], &[-1, 0]), noise([2, 4])).check(Tolerance::Exact);
        scatter(i64s([2, 2], &[-1, 0, 1, -2]), noise([2])).dynamic(0, ["N", "4"]).check(Tolerance::Exact);
    }

    #[test]
    fn bytes() {
        let x = u8s([3], &[0, 255, 128]);
        let case = Case::new("ScatterND", 18).input(x).input(i64s([1, 1], &[-1]));
        case.input(u8s([1], &[7])).check(Tolerance::Exact);
    }
}

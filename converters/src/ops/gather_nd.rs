//! GatherND: slices of a tensor named by index tuples.
//!
//! data [d0..dn] T, indices [b.., q.., k] i64  ->  output [b.., q.., d(batch+k)..dn] T
//! Opsets: 11; 12 batch_dims; 13 wider types.     TensorRT: IGatherLayer (ND mode).
//! Limits: the last dim of the indices known; negative indices cost a select.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, indices, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::GatherMode};

/// The converter.
#[derive(Debug)]
pub struct GatherNd;

/// Batch dims, and how the indices become non-negative.
#[derive(Debug)]
pub struct Plan {
    batch: u32,
    indices: indices::IndexPlan,
}

/// Batch dims and length of a tuple, checked against the ranks.
fn tuple(node: NodeView<'_>, x: &[Dim], q: &[Dim]) -> Result<(usize, Option<usize>), Diag> {
    let batch = node.int("batch_dims", 0);
    let batch = usize::try_from(batch)
        .ok()
        .filter(|&batch| batch < x.len() && batch < q.len())
        .ok_or_else(|| Diag::invalid(format!("{batch} batch dims")).slot("batch_dims"))?;
    let Some(Dim::Known(length)) = q.last() else { return Ok((batch, None)) };
    let length =
        usize::try_from(*length).ok().filter(|&length| length >= 1 && batch + length <= x.len()).ok_or_else(
            || Diag::invalid(format!("tuples of {length} indices into rank {}", x.len())).slot("indices"),
        )?;
    Ok((batch, Some(length)))
}

impl Converter for GatherNd {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("GatherND", 13)],
        dtypes: check::CARRIED,
        layers: "IGatherLayer",
        limits: "last dim of the indices known",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let shape_of = |slot: usize| node.input(slot).and_then(|view| view.shape());
        let (Some(x), Some(q)) = (shape_of(0), shape_of(1)) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let to = match tuple(node, x, q)? {
            (batch, Some(length)) => {
                for (axis, dim) in x.iter().enumerate().take(batch) {
                    shape::demand(node, (1, axis), dim, cx)?;
                }
                Some([&q[..q.len() - 1], &x[batch + length..]].concat())
            }
            _ => None,
        };
        Ok(shape::types([shape::typed(dtype, to)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::CARRIED, target)?;
        check::not_empty(&x, "data")?;
        let q =
            check::operand(node, 1, "indices", &[trtc_bundle::DType::I64, trtc_bundle::DType::I32], target)?;
        let (batch, length) = tuple(node, x.shape, q.shape).map_err(crate::ctx::window::refused)?;
        let length = length.ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "the number of indices in a tuple is not known").slot("indices")
        })?;
        let rank = q.rank() - 1 + x.rank() - batch - length;
        if rank > 8 {
            return Err(Refusal::new(Code::RANK, format!("rank {rank}; TensorRT holds at most 8 dims")));
        }
        let axes: Vec<usize> = (batch..batch + length).collect();
        Ok(Plan { batch: batch as u32, indices: indices::plan(node, 1, &axes, true, target)? })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let data = cx.input(0);
        let indices = indices::emit(cx, 1, &plan.indices);
        let mode = GatherMode::Nd;
        vec![cx.one(Layer::Gather { data, indices, axis: 0, mode, batch_dims: plan.batch })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn gather(indices: trtc_ir::Tensor) -> Case {
        Case::new("GatherND", 13).input(noise([2, 3, 4])).input(indices)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("GatherND", 13).input(x(&[2])).input(i64s([1, 1], &[0])));
        let case = Case::new("GatherND", 13).input(noise([2])).input(i64s([1, 1], &[0]));
        case.clone().dynamic(1, ["1", "k"]).refused(Code::DIM_UNKNOWN);
        case.dynamic(0, ["0"]).refused(Code::SHAPE);
        Case::new("GatherND", 13)
            .input(noise([2]))
            .constant(i64s([1, 1], &[2]))
            .refused(Code::CONSTANT_VALUE);
        Case::new("GatherND", 13).input(noise([1; 8])).input(i64s([1, 1, 1], &[0])).refused(Code::RANK);
    }

    #[test]
    fn types() {
        assert_eq!(gather(i64s([5, 2], &[0; 10])).types(), ["f32[5 x 4]"]);
        let batched = gather(i64s([2, 1], &[0; 2])).int("batch_dims", 1).dynamic(0, ["N", "3", "4"]);
        assert_eq!(batched.dynamic(1, ["M", "1"]).equalities(), ["M = N"]);
        assert_eq!(gather(i64s([5, 3], &[0; 15])).dynamic(1, ["N", "3"]).types(), ["f32[N]"]);
        assert_eq!(gather(i64s([2, 1], &[0; 2])).int("batch_dims", 1).types(), ["f32[2 x 4]"]);
        assert!(gather(i64s([1, 4], &[0; 4])).invalid().contains("4 indices into rank 3"));
        assert!(gather(i64s([1, 2], &[0; 2])).int("batch_dims", 2).invalid().contains("batch dims"));
    }

    #[test]
    fn numbers() {
        gather(i64s([2, 2], &[0, 1, -1, -3])).check(Tolerance::Exact);
        gather(i64s([2, 3], &[0, 1, 3, 1, 2, -1]))
            .dynamic(0, ["N", "3", "4"])
            .dynamic(1, ["M", "3"])
            .check(Tolerance::Exact);
        gather(i64s([2, 1], &[2, -1])).int("batch_dims", 1).check(Tolerance::Exact);
        Case::new("GatherND", 13)
            .input(noise([2, 3]))
            .constant(i64s([2, 2], &[0, -1, -1, 1]))
            .check(Tolerance::Exact);
    }

    #[test]
    fn gates() {
        Case::new("GatherND", 13).absent().input(i64s([1, 1], &[0])).refused(Code::INVALID);
    }
}

//! Gather: slices of a tensor along one axis.
//!
//! data [d0..dn] T, indices [q..] i32|i64  ->  output [d0..d(axis-1), q.., d(axis+1)..dn] T
//! Opsets: 1; 11 negative indices; 13 wider types.     TensorRT: IGatherLayer (default mode).
//! Limits: none; negative indices cost a select.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, indices::AlongAxis, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::GatherMode;

/// The converter.
#[derive(Debug)]
pub struct Gather;

impl Converter for Gather {
    type Plan = AlongAxis;

    const DEF: Def = Def {
        keys: &[Key::onnx("Gather", 13)],
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

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let (Some(data), Some(indices)) = (node.input(0), node.input(1)) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let (Some(x), Some(q)) = (data.shape(), indices.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let axis = shape::axis(node.int("axis", 0), x.len()).map_err(|diag| diag.slot("axis"))?;
        let to: Vec<Dim> = [&x[..axis], q, &x[axis + 1..]].concat();
        let elements = match (data.elements(), indices.const_i64s()) {
            (Some(list), Some(indices)) if to.len() <= 1 => indices
                .iter()
                .map(|&k| {
                    let at = if k < 0 { k.checked_add(list.len() as i64)? } else { k };
                    list.get(usize::try_from(at).ok()?).cloned()
                })
                .collect(),
            _ => None,
        };
        Ok(vec![Inferred { ty: shape::typed(dtype, Some(to)), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<AlongAxis, Refusal> {
        let (x, _, plan) = AlongAxis::plan(node, target)?;
        let rank = x.rank() + node.input(1).and_then(|view| view.rank()).unwrap_or(0) - 1;
        if rank > 8 {
            return Err(Refusal::new(Code::RANK, format!("rank {rank}; TensorRT holds at most 8 dims")));
        }
        Ok(plan)
    }

    fn emit(&self, plan: AlongAxis, cx: &mut Emit<'_>) -> Outputs {
        vec![plan.emit(cx, GatherMode::Default)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn gather(indices: trtc_ir::Tensor) -> Case {
        Case::new("Gather", 13).input(noise([3, 4])).input(indices).int("axis", 1)
    }

    #[test]
    fn refusals() {
        Case::new("Gather", 13).input(noise([1])).input(list(&[0])).gates(unheld());
        Case::new("Gather", 13).input(noise([2])).constant(list(&[2])).refused(Code::CONSTANT_VALUE);
        Case::new("Gather", 13).input(noise([1; 8])).input(i64s([1, 1], &[0])).refused(Code::RANK);
    }

    #[test]
    fn types() {
        let case = gather(i64s([2, 2], &[0, 1, -1, 2])).dynamic(0, ["N", "?"]).dynamic(1, ["2", "M"]);
        assert_eq!(case.types(), ["f32[N x 2 x M]"]);
        let shape = |k| Case::new("Gather", 13).input(list(&[2, 3, 4])).sizes(0, ["N", "3", "M"]).constant(k);
        assert_eq!(shape(list(&[-1, 0])).types(), ["i64[2] = [M, N]"]);
        assert_eq!(shape(i64s([], &[1])).types(), ["i64[] = [3]"]);
        assert!(gather(list(&[0])).int("axis", 2).invalid().contains("out of range"));
    }

    #[test]
    fn numbers() {
        gather(i64s([2, 2], &[0, 1, -1, 2])).dynamic(0, ["N", "4"]).check(Tolerance::Exact);
        gather(i32s([2], &[-4, 3])).check(Tolerance::Exact);
        gather(i64s([], &[-2])).check(Tolerance::Exact);
        Case::new("Gather", 13).input(noise([3, 4])).constant(list(&[-1, 0])).check(Tolerance::Exact);
        let open = Case::new("Gather", 13).input(noise([3, 4])).dynamic(0, ["N", "4"]);
        open.constant(i64s([], &[-1])).check(Tolerance::Exact);
        Case::new("Gather", 13).input(bools([2], &[true, false])).input(list(&[1])).check(Tolerance::Exact);
    }

    #[test]
    fn bytes() {
        let x = u8s([2, 2], &[0, 255, 128, 3]);
        Case::new("Gather", 13).input(x).input(list(&[1, -2])).check(Tolerance::Exact);
    }
}

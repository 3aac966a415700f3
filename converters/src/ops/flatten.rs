//! Flatten: to a matrix, split at an axis.
//!
//! input [d0..dn] T  ->  output [d0·…·d(axis-1), d(axis)·…·dn] T
//! Opsets: 1; 9, 13, 21, 23, 24, 25 wider types; 11 negative axis.     TensorRT: IShuffleLayer.
//! Limits: no dim may be 0.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, extent, reshape, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The converter.
#[derive(Debug)]
pub struct Flatten;

/// First axis of the second dim: 0 to rank.
fn split(node: NodeView<'_>, rank: usize) -> Result<usize, Diag> {
    let axis = node.int("axis", 1);
    let at = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    usize::try_from(at)
        .ok()
        .filter(|&at| at <= rank)
        .ok_or_else(|| Diag::invalid(format!("axis {axis} is out of range for rank {rank}")).slot("axis"))
}

impl Converter for Flatten {
    type Plan = reshape::ReshapePlan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Flatten", 25)],
        dtypes: check::CARRIED,
        layers: "IShuffleLayer",
        limits: "no dim may be 0",
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

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let to = match node.input(0).and_then(|x| x.shape()) {
            Some(from) => {
                let at = split(node, from.len())?;
                vec![dims::product(&from[..at]), dims::product(&from[at..])]
            }
            None => vec![Dim::Unknown; 2],
        };
        Ok(shape::types([shape::typed(shape::dtype_of(node, 0), Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Self::Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::CARRIED, target)?;
        check::never_empty(&x, "input")?;
        let at = split(node, x.rank()).map_err(crate::ctx::window::refused)?;
        let to = [dims::product(&x.shape[..at]), dims::product(&x.shape[at..])];
        let holes = to.iter().filter(|dim| dim.known().is_none()).count();
        let copies = to[0].known().is_none() && to.first() == x.shape.first();
        if holes <= 1 || copies {
            let parts = to.map(reshape::Part::Dim);
            return reshape::plan(node, x.shape, &parts, None, false);
        }
        // Two products over dynamic dims: the first is computed, the second is what is left.
        let first =
            (0..at).fold(extent::DimPlan::Fixed(1), |p, axis| p.times(extent::own_dim(node, 0, axis)));
        Ok(reshape::of_dims(vec![first, extent::DimPlan::Fixed(-1)]))
    }

    fn emit(&self, plan: Self::Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        vec![reshape::emit(cx, x, &plan)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};

    fn flatten() -> Case {
        Case::new("Flatten", 25).input(noise([2, 3, 4]))
    }

    #[test]
    fn refusals() {
        Case::new("Flatten", 25).input(noise([1])).gates(unheld());
    }

    #[test]
    fn types() {
        assert_eq!(flatten().types(), ["f32[2 x 12]"]);
        assert_eq!(flatten().int("axis", 0).types(), ["f32[1 x 24]"]);
        assert_eq!(flatten().int("axis", 3).types(), ["f32[24 x 1]"]);
        assert_eq!(flatten().int("axis", -1).dynamic(0, ["N", "3", "4"]).types(), ["f32[3*N x 4]"]);
        assert!(flatten().int("axis", 4).invalid().contains("out of range"));
    }

    #[test]
    fn numbers() {
        flatten().check(Tolerance::Exact);
        flatten().dynamic(0, ["N", "M", "4"]).check(Tolerance::Exact);
        flatten().int("axis", 2).dynamic(0, ["N", "M", "K"]).check(Tolerance::Exact);
        flatten().int("axis", 0).dynamic(0, ["N", "M", "K"]).check(Tolerance::Exact);
    }
}

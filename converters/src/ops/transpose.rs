//! Transpose: permute axes.
//!
//! data [d0..dn] T  ->  transposed [d(perm0)..d(permn)] T
//! Opsets: 1; 13, 21, 23, 24, 25 wider types.     TensorRT: IShuffleLayer.
//! Limits: none.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};

/// The converter.
#[derive(Debug)]
pub struct Transpose;

/// Axis of the input for each axis of the output.
#[derive(Debug)]
pub struct Plan(Vec<u32>);

fn order(node: NodeView<'_>, rank: usize) -> Result<Vec<u32>, Diag> {
    let Some(perm) = node.attrs().ints("perm") else { return Ok((0..rank as u32).rev().collect()) };
    let order: Vec<u32> = perm
        .iter()
        .map(|&axis| shape::axis(axis, rank).map(|axis| axis as u32))
        .collect::<Result<_, _>>()
        .map_err(|diag| diag.slot("perm"))?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank as u32) {
        return Err(Diag::invalid(format!("{perm:?} does not permute {rank} axes")).slot("perm"));
    }
    Ok(order)
}

impl Converter for Transpose {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Transpose", 25)],
        dtypes: check::CARRIED,
        layers: "IShuffleLayer",
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

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(dims) = node.input(0).and_then(|x| x.shape()) else {
            let rank = node.attrs().ints("perm").map(|perm| vec![trtc_ir::Dim::Unknown; perm.len()]);
            return Ok(shape::types([shape::typed(dtype, rank)]));
        };
        let to = order(node, dims.len())?.into_iter().map(|axis| dims[axis as usize].clone()).collect();
        let elements = node.input(0).and_then(|x| x.elements()).map(<[_]>::to_vec);
        Ok(vec![Inferred { ty: shape::typed(dtype, Some(to)), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::CARRIED, target)?;
        check::not_empty(&x, "data")?;
        order(node, x.rank()).map(Plan).map_err(crate::ctx::window::refused)
    }

    fn emit(&self, Plan(order): Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        vec![cx.transpose(x, order)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};

    fn transpose() -> Case {
        Case::new("Transpose", 25).input(noise([2, 3, 4]))
    }

    #[test]
    fn refusals() {
        Case::new("Transpose", 25).input(noise([1])).gates(unheld());
    }

    #[test]
    fn types() {
        assert_eq!(transpose().dynamic(0, ["N", "3", "?"]).types(), ["f32[? x 3 x N]"]);
        assert_eq!(transpose().ints("perm", &[1, 0, 2]).types(), ["f32[3 x 2 x 4]"]);
        assert!(transpose().ints("perm", &[1, 1, 2]).invalid().contains("does not permute"));
    }

    #[test]
    fn numbers() {
        transpose().dynamic(0, ["N", "3", "M"]).check(Tolerance::Exact);
        transpose().ints("perm", &[0, 1, 2]).check(Tolerance::Exact);
        Case::new("Transpose", 25).input(bools([2, 1], &[true, false])).check(Tolerance::Exact);
    }
}

//! Unsqueeze: insert axes of size 1.
//!
//! data [d0..dn] T, axes [k] i64  ->  expanded [rank n+1+k] T
//! Opsets: 1, 11 axes as attribute; 13 as input; 21, 23, 24, 25 wider types.     TensorRT: IUnsqueezeLayer,
//! IShuffleLayer (dims that the model declares).
//! Limits: axes constant, or the result's dims declared; at most 8 dims result.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, reshape, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::Layer;

/// The converter.
#[derive(Debug)]
pub struct Unsqueeze;

/// How the axes come.
#[derive(Debug)]
pub enum Plan {
    /// At these places of the result, ascending.
    Axes(Vec<u32>),
    /// Wherever they are, these dims result.
    Dims(Vec<i64>),
}

impl Converter for Unsqueeze {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Unsqueeze", 25)],
        dtypes: check::CARRIED,
        layers: "IUnsqueezeLayer, IShuffleLayer",
        limits: "axes constant, or told by the declared result",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::NOT_CONSTANT,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let dims = node.input(0).and_then(|x| x.shape());
        let axes = node.input(1);
        let count = axes.and_then(|axes| axes.dim(0)).and_then(Dim::known).filter(|n| (0..64).contains(n));
        let (Some(dims), Some(axes)) = (dims, axes.and_then(|axes| axes.const_i64s())) else {
            // The number of axes still tells the rank.
            let rank = dims.zip(count).map(|(dims, n)| vec![Dim::Unknown; dims.len() + n as usize]);
            return Ok(shape::types([shape::typed(dtype, rank)]));
        };
        let rank = dims.len() + axes.len();
        let axes = shape::axes(&axes, rank).map_err(|diag| diag.slot("axes"))?;
        let mut rest = dims.iter();
        let dim = |axis| if axes.contains(&axis) { Some(Dim::Known(1)) } else { rest.next().cloned() };
        let to: Vec<Dim> = (0..rank).filter_map(dim).collect();
        let elements = node.input(0).and_then(|x| x.elements()).filter(|_| rank <= 1).map(<[_]>::to_vec);
        Ok(vec![Inferred { ty: shape::typed(dtype, Some(to)), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::CARRIED, target)?;
        check::not_empty(&x, "data")?;
        if node.input(1).is_some_and(|axes| axes.constant().is_none())
            && let Some(dims) = reshape::declared(node, x.shape).filter(|dims| dims.len() <= 8)
        {
            return Ok(Plan::Dims(dims));
        }
        let axes = check::constant_i64s(node, 1, "axes")?;
        let rank = x.rank() + axes.len();
        if rank > 8 {
            return Err(Refusal::new(Code::RANK, format!("rank {rank}; TensorRT holds at most 8 dims")));
        }
        let axes = shape::axes(&axes, rank).map_err(crate::ctx::window::refused)?;
        Ok(Plan::Axes(axes.into_iter().map(|axis| axis as u32).collect()))
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let axes = match plan {
            Plan::Axes(axes) => axes,
            Plan::Dims(dims) => return vec![cx.reshape(x, dims)],
        };
        vec![if axes.is_empty() { x } else { cx.one(Layer::Unsqueeze { x, axes }) }]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn unsqueeze(axes: &[i64]) -> Case {
        Case::new("Unsqueeze", 25).input(noise([2, 3])).constant(list(axes))
    }

    #[test]
    fn refusals() {
        Case::new("Unsqueeze", 25).input(noise([1])).constant(list(&[0])).gates(unheld());
        Case::new("Unsqueeze", 25).input(noise([2])).input(list(&[0])).refused(Code::NOT_CONSTANT);
        unsqueeze(&[0, 1, 2, 3, 4, 5, 6]).refused(Code::RANK);
    }

    #[test]
    fn types() {
        assert_eq!(unsqueeze(&[-1, 0]).dynamic(0, ["N", "3"]).types(), ["f32[1 x N x 3 x 1]"]);
        assert!(unsqueeze(&[0, 0]).invalid().contains("twice"));
        assert!(unsqueeze(&[3]).invalid().contains("out of range"));
        let scalar = Case::new("Unsqueeze", 25).input(i64s([], &[3])).sizes(0, ["N"]).constant(list(&[0]));
        assert_eq!(scalar.types(), ["i64[1] = [N]"]);
        assert_eq!(Case::new("Unsqueeze", 25).input(noise([2])).input(list(&[0])).types(), ["f32[? x ?]"]);
    }

    #[test]
    fn numbers() {
        unsqueeze(&[-1, 0]).dynamic(0, ["N", "3"]).check(Tolerance::Exact);
        unsqueeze(&[]).check(Tolerance::Exact);
        let open = Case::new("Unsqueeze", 25).input(noise([2, 3])).input(list(&[-1, 0]));
        open.declared(0, &[1, 2, 3, 1]).check(Tolerance::Exact);
    }
}

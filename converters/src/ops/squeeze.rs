//! Squeeze: drop axes of size 1.
//!
//! x [d0..dn] T, axes [k] i64  ->  y [rank n+1-k] T
//! Opsets: 1, 11 axes as attribute; 13 as input; 21, 23, 24, 25 wider types.     TensorRT: ISqueezeLayer,
//! IShuffleLayer (dims that the model declares).
//! Limits: axes constant, or the result's dims declared; squeezed dims known to be 1; empty tensors never reach here.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, reshape, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};
use trtc_network::Layer;

/// The converter.
#[derive(Debug)]
pub struct Squeeze;

/// How the axes go.
#[derive(Debug)]
pub enum Plan {
    /// These, ascending.
    Axes(Vec<u32>),
    /// Whichever they are, these dims remain.
    Dims(Vec<i64>),
}

impl Converter for Squeeze {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Squeeze", 25)],
        dtypes: check::CARRIED,
        layers: "ISqueezeLayer, IShuffleLayer",
        limits: "axes constant, or told by the declared result; squeezed dims known to be 1",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::NOT_CONSTANT,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let (dtype, dims) = (shape::dtype_of(node, 0), node.input(0).and_then(|x| x.shape()));
        let elements = node.input(0).and_then(|x| x.elements()).map(<[Dim]>::to_vec);
        let Some(dims) = dims else { return Ok(shape::types([shape::typed(dtype, None)])) };
        let axes = match node.input(1) {
            // A dim that may turn out to be 1 leaves even the rank open.
            None if dims
                .iter()
                .any(|dim| dim.known().is_none() && node.symbols().interval(dim).contains(1)) =>
            {
                return Ok(shape::types([shape::typed(dtype, None)]));
            }
            None => (0..dims.len()).filter(|&k| dims[k] == Dim::Known(1)).collect(),
            Some(axes) => match axes.const_i64s() {
                Some(list) => shape::axes(&list, dims.len())?,
                None => {
                    // The number of axes still tells the rank.
                    let count = axes.dim(0).and_then(Dim::known).and_then(|n| usize::try_from(n).ok());
                    let rank = count.and_then(|n| dims.len().checked_sub(n));
                    return Ok(shape::types([shape::typed(dtype, rank.map(|n| vec![Dim::Unknown; n]))]));
                }
            },
        };
        for &axis in &axes {
            match &dims[axis] {
                Dim::Known(1) | Dim::Unknown => {}
                Dim::Known(n) => {
                    return Err(Diag::invalid(format!("axis {axis} has size {n}, not 1")).slot("axes"));
                }
                dim => cx.require(ConstraintKind::Equal(dim.clone(), Dim::Known(1))),
            }
        }
        let rest =
            (0..dims.len()).filter(|axis| !axes.contains(axis)).map(|axis| dims[axis].clone()).collect();
        Ok(vec![Inferred { ty: shape::typed(dtype, Some(rest)), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::CARRIED, target)?;
        check::never_empty(&x, "data")?;
        if node.input(1).is_some_and(|axes| axes.constant().is_none())
            && let Some(dims) = reshape::declared(node, x.shape)
        {
            return Ok(Plan::Dims(dims));
        }
        let axes: Vec<usize> = match node.input(1) {
            Some(_) => check::constant_i64s(node, 1, "axes")?
                .into_iter()
                .map(|a| check::axis(a, x.rank(), "axes"))
                .collect::<Result<_, _>>()?,
            None if x.shape.iter().all(|dim| dim.known().is_some()) => {
                (0..x.rank()).filter(|&axis| x.shape[axis] == Dim::Known(1)).collect()
            }
            None => {
                return Err(Refusal::new(Code::DIM_UNKNOWN, "which dims are 1 is known only at run time")
                    .slot("data"));
            }
        };
        if let Some(axis) = axes.iter().find(|&&axis| x.shape[axis] != Dim::Known(1)) {
            return Err(Refusal::new(Code::DIM_UNKNOWN, format!("dim {axis} is not known to be 1"))
                .slot("data")
                .help("give the input's shape with --shape"));
        }
        let mut axes: Vec<u32> = axes.into_iter().map(|axis| axis as u32).collect();
        axes.sort_unstable();
        Ok(Plan::Axes(axes))
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let axes = match plan {
            Plan::Axes(axes) => axes,
            Plan::Dims(dims) => return vec![cx.reshape(x, dims)],
        };
        vec![if axes.is_empty() { cx.one(Layer::Identity { x }) } else { cx.one(Layer::Squeeze { x, axes }) }]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn squeeze() -> Case {
        Case::new("Squeeze", 25).input(noise([1, 3, 1]))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("Squeeze", 25).input(x(&[1])).constant(list(&[0])));
        squeeze().constant(list(&[0])).dynamic(0, ["1", "0", "1"]).refused(Code::SHAPE);
        squeeze().input(list(&[0])).refused(Code::NOT_CONSTANT);
        squeeze().dynamic(0, ["N", "3", "1"]).refused(Code::DIM_UNKNOWN);
        squeeze().constant(list(&[0])).dynamic(0, ["?", "3", "1"]).refused(Code::DIM_UNKNOWN);
    }

    #[test]
    fn types() {
        assert_eq!(squeeze().types(), ["f32[3]"]);
        assert_eq!(squeeze().constant(list(&[-1])).types(), ["f32[1 x 3]"]);
        assert_eq!(squeeze().dynamic(0, ["N", "3", "1"]).types(), ["f32[..]"]);
        assert!(squeeze().constant(list(&[1])).invalid().contains("size 3"));
    }

    #[test]
    fn numbers() {
        squeeze().check(Tolerance::Exact);
        squeeze().input(list(&[-1])).declared(0, &[1, 3]).check(Tolerance::Exact);
        squeeze().constant(list(&[0])).dynamic(0, ["1", "N", "M"]).check(Tolerance::Exact);
    }

    #[test]
    fn gates() {
        Case::new("Squeeze", 25).input(noise([1; 9])).refused(Code::RANK);
        Case::new("Squeeze", 25).absent().refused(Code::INVALID);
    }
}

//! Expand: broadcast to a shape.
//!
//! input [d..] T, shape [r] i64  ->  output [broadcast(d, shape)] T
//! Opsets: 8; 13 wider types.     TensorRT: ISliceLayer with strides of 0.
//! Limits: the shape constant, or computed from dims, or bounded.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check,
        extent::{self, DimPlan, ExtentPlan, SizeOp},
        shape,
    },
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, graph::MAX_ELEMENTS};
use trtc_network::{
    Layer,
    layer::{Extent, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct Expand;

/// Size and stride of each dim of the result; `None` when nothing is broadcast and no axis is new.
#[derive(Debug)]
pub struct Plan {
    rank: usize,
    slice: Option<(ExtentPlan, ExtentPlan)>,
}

/// The elements of the shape, unknown ones included.
fn wanted(node: NodeView<'_>) -> Option<Vec<Dim>> {
    let view = node.input(1)?;
    if let Some(list) = view.elements() {
        return Some(list.to_vec());
    }
    let rank = view.dim(0)?.known().and_then(|n| usize::try_from(n).ok()).filter(|&n| n <= 64)?;
    Some(vec![Dim::Unknown; rank])
}

impl Converter for Expand {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Expand", 13)],
        dtypes: check::CARRIED,
        layers: "ISliceLayer",
        limits: "shape constant, or computed from dims, or bounded",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let (x, to) = (node.input(0).and_then(|x| x.shape()), wanted(node));
        let to = shape::broadcast(&[x, to.as_deref()], cx)?;
        let elements = match (node.input(0).and_then(|x| x.elements()), to.as_deref()) {
            (Some([one]), Some([Dim::Known(n)])) if (0..=MAX_ELEMENTS as i64).contains(n) => {
                Some(vec![one.clone(); *n as usize])
            }
            (Some(list), Some([Dim::Known(n)])) if list.len() as i64 == *n => Some(list.to_vec()),
            (Some([one]), Some([])) => Some(vec![one.clone()]),
            _ => None,
        };
        Ok(vec![Inferred { ty: shape::typed(dtype, to), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::CARRIED, target)?;
        check::not_empty(&x, "input")?;
        let to = node.output(0).and_then(|y| y.shape()).ok_or_else(|| {
            Refusal::new(Code::RANK_UNKNOWN, "the rank of the result is not known before the run")
                .slot("shape")
        })?;
        if to.len() > 8 {
            return Err(Refusal::new(
                Code::RANK,
                format!("rank {}; TensorRT holds at most 8 dims", to.len()),
            ));
        }
        if to.contains(&Dim::Known(0)) {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        let missing = to.len().saturating_sub(x.rank());
        let (mut sizes, mut strides) = (Vec::new(), Vec::new());
        for (axis, dim) in to.iter().enumerate() {
            let own = axis.checked_sub(missing);
            match own.map(|own| (own, &x.shape[own])) {
                Some((own, d)) if (d == dim && *d != Dim::Unknown) || own_known(d, dim) => {
                    sizes.push(extent::own_dim(node, 0, own));
                    strides.push(DimPlan::Fixed(1));
                }
                None | Some((_, Dim::Known(1))) => {
                    sizes.push(extent::require_dim(node, dim, "shape")?);
                    strides.push(DimPlan::Fixed(0));
                }
                Some((own, _)) => {
                    sizes.push(extent::require_dim(node, dim, "shape")?);
                    // min(1, d − 1): 0 for a dim that turns out to be 1.
                    let less = extent::own_dim(node, 0, own).plus(DimPlan::Fixed(-1));
                    strides.push(DimPlan::Op(SizeOp::Min, Box::new(DimPlan::Fixed(1)), Box::new(less)));
                }
            }
        }
        let same = missing == 0 && strides.iter().all(|stride| *stride == DimPlan::Fixed(1));
        let slice = (!same).then_some((ExtentPlan::Dims(sizes), ExtentPlan::Dims(strides)));
        Ok(Plan { rank: to.len(), slice })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let Some((size, stride)) = plan.slice else { return vec![x] };
        let x = cx.with_rank(x, plan.rank);
        let (size, stride) = (cx.extent(&size), cx.extent(&stride));
        let start = Extent::Static(vec![0; plan.rank]);
        vec![cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })]
    }
}

/// A known dim above 1 is the dim of the result.
fn own_known(d: &Dim, dim: &Dim) -> bool {
    matches!((d, dim), (Dim::Known(d), _) if *d > 1) && *dim != Dim::Known(0)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn expand(shape: &[i64]) -> Case {
        Case::new("Expand", 13).input(noise([3, 1])).constant(list(shape))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("Expand", 13).input(x(&[1])).constant(list(&[1])));
        expand(&[1; 9]).refused(Code::RANK);
        expand(&[0, 3, 1]).refused(Code::SHAPE);
        let open = Case::new("Expand", 13).input(noise([3, 1])).input(list(&[3, 4]));
        open.clone().refused(Code::SHAPE_VALUE);
        open.unranked(1).refused(Code::RANK_UNKNOWN);
    }

    #[test]
    fn types() {
        assert_eq!(expand(&[2, 1, 6]).types(), ["f32[2 x 3 x 6]"]);
        assert_eq!(expand(&[1]).types(), ["f32[3 x 1]"]);
        let symbolic = Case::new("Expand", 13).input(noise([3, 1])).input(list(&[3, 4])).sizes(1, ["N", "M"]);
        assert_eq!(symbolic.dynamic(0, ["N", "1"]).types(), ["f32[N x M]"]);
        assert!(expand(&[2, 6]).invalid().contains("do not broadcast"));
        let ones = Case::new("Expand", 13).input(list(&[1])).sizes(0, ["N"]).constant(list(&[3]));
        assert_eq!(ones.types(), ["i64[3] = [N, N, N]"]);
    }

    #[test]
    fn numbers() {
        expand(&[2, 1, 6]).check(Tolerance::Exact);
        expand(&[1, 1]).check(Tolerance::Exact);
        // Whether M is 1 is seen at run time.
        expand(&[3, 4]).dynamic(0, ["N", "M"]).layers();
        expand(&[2, 1, 4]).dynamic(0, ["N", "1"]).check(Tolerance::Exact);
        let symbolic = Case::new("Expand", 13).input(noise([3, 1])).input(list(&[1, 4])).sizes(1, ["1", "M"]);
        symbolic.dynamic(0, ["N", "1"]).check(Tolerance::Exact);
    }

    #[test]
    fn gates() {
        Case::new("Expand", 13).absent().constant(list(&[1])).refused(Code::INVALID);
    }
}

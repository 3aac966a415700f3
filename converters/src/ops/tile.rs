//! Tile: repeat along each axis.
//!
//! input [d0..dn] T, repeats [n+1] i64  ->  output [d0·r0..dn·rn] T
//! Opsets: 1 scalar inputs (dropped at import); 6; 13 wider types.     TensorRT: ISliceLayer (wrap).
//! Limits: repeats constant, or computed from dims, or bounded, or the model declares the result's dims.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, dims,
        extent::{self, ExtentPlan},
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
pub struct Tile;

/// Dims of the result; `None` when nothing is repeated.
#[derive(Debug)]
pub struct Plan(Option<ExtentPlan>);

impl Converter for Tile {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Tile", 13)],
        dtypes: check::CARRIED,
        layers: "ISliceLayer",
        limits: "repeats constant, or computed from dims, or bounded, or told by the declared result",
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

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let to: Vec<Dim> = match node.input(1).and_then(|repeats| repeats.elements()) {
            Some(list) if list.len() != x.len() => {
                return Err(
                    Diag::invalid(format!("{} repeats for rank {}", list.len(), x.len())).slot("repeats")
                );
            }
            Some(list) if list.iter().any(|r| r.known().is_some_and(|r| r < 0)) => {
                return Err(Diag::invalid("a negative number of repeats").slot("repeats"));
            }
            Some(list) => x.iter().zip(list).map(|(d, r)| d.mul(r)).collect(),
            None => vec![Dim::Unknown; x.len()],
        };
        let elements = match (node.input(0).and_then(|x| x.elements()), to.as_slice()) {
            (Some(list), []) => Some(list.to_vec()),
            (Some(list), [Dim::Known(n)]) if (0..=MAX_ELEMENTS as i64).contains(n) => {
                Some(list.iter().cycle().take(*n as usize).cloned().collect())
            }
            _ => None,
        };
        Ok(vec![Inferred { ty: shape::typed(dtype, Some(to)), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::CARRIED, target)?;
        check::never_empty(&x, "input")?;
        let repeats = node.input(1).and_then(|repeats| repeats.elements()).filter(|l| l.len() == x.rank());
        if let (None, Some(to)) = (repeats, dims::of_output(node, 0)) {
            let whole =
                |(to, from): (&i64, &Dim)| from.known().is_some_and(|d| d > 0 && *to >= d && to % d == 0);
            if to.len() == x.rank() && to.iter().zip(x.shape).all(whole) {
                return Ok(Plan(Some(ExtentPlan::fixed(&to))));
            }
        }
        let repeats = repeats.ok_or_else(|| {
            Refusal::new(Code::SHAPE_VALUE, "the repeats are known only at run time").slot("repeats")
        })?;
        if repeats.contains(&Dim::Known(0)) {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        if repeats.iter().all(|r| *r == Dim::Known(1)) {
            return Ok(Plan(None));
        }
        let sizes = repeats
            .iter()
            .enumerate()
            .map(|(axis, r)| {
                Ok(extent::own_dim(node, 0, axis).times(extent::require_dim(node, r, "repeats")?))
            })
            .collect::<Result<Vec<_>, Refusal>>()?;
        Ok(Plan(Some(ExtentPlan::Dims(sizes))))
    }

    fn emit(&self, Plan(size): Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let Some(size) = size else { return vec![x] };
        let rank = cx.rank(x);
        let size = cx.extent(&size);
        let (start, stride) = (Extent::Static(vec![0; rank]), Extent::Static(vec![1; rank]));
        vec![cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Wrap, fill: None })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn tile(repeats: &[i64]) -> Case {
        Case::new("Tile", 13).input(noise([2, 3])).constant(list(repeats))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("Tile", 13).input(x(&[1])).constant(list(&[1])));
        tile(&[0, 1]).refused(Code::SHAPE);
        Case::new("Tile", 13).input(noise([2, 3])).input(list(&[1, 2])).refused(Code::SHAPE_VALUE);
    }

    #[test]
    fn types() {
        assert_eq!(tile(&[2, 3]).dynamic(0, ["N", "3"]).types(), ["f32[2*N x 9]"]);
        assert!(tile(&[2]).invalid().contains("1 repeats for rank 2"));
        assert!(tile(&[-2, 1]).invalid().contains("negative"));
        let shape = Case::new("Tile", 13).input(list(&[2, 3])).sizes(0, ["N", "3"]).constant(list(&[2]));
        assert_eq!(shape.types(), ["i64[4] = [N, 3, N, 3]"]);
    }

    #[test]
    fn numbers() {
        tile(&[2, 3]).check(Tolerance::Exact);
        tile(&[1, 1]).check(Tolerance::Exact);
        let told = Case::new("Tile", 13).input(noise([2, 3])).input(list(&[2, 3]));
        told.declared(0, &[4, 9]).check(Tolerance::Exact);
        tile(&[1, 2]).dynamic(0, ["N", "M"]).check(Tolerance::Exact);
        Case::new("Tile", 13).input(bools([2], &[true, false])).constant(list(&[3])).check(Tolerance::Exact);
    }

    #[test]
    fn gates() {
        Case::new("Tile", 13).input(noise([1; 9])).constant(list(&[1; 9])).refused(Code::RANK);
        Case::new("Tile", 13).absent().constant(list(&[1])).refused(Code::INVALID);
    }
}

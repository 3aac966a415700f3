//! Reshape: the same elements under other dims.
//!
//! data [d0..dn] T, shape [r] i64  ->  reshaped [e0..er] T
//! Opsets: 1 shape as attribute; 5 as input; 14 allowzero; 13, 19, 21, 23, 24, 25 wider types.     TensorRT: IShuffleLayer.
//! Limits: the shape constant or bounded; no dim may be 0.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, reshape, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};

/// The converter.
#[derive(Debug)]
pub struct Reshape;

/// What is said of the result: each element of the shape, interpreted. `None` when not even their number is known.
fn parts(node: NodeView<'_>) -> Option<Vec<reshape::Part>> {
    let to = node.input(1)?;
    let allow_zero = node.int("allowzero", 0) != 0;
    let count = match (to.elements(), to.dim(0)) {
        (Some(list), _) => list.len(),
        (None, Some(Dim::Known(n))) => usize::try_from(*n).ok().filter(|&n| n <= 64)?,
        _ => return None,
    };
    let part = |k: usize| match to.elements().map(|list| &list[k]) {
        Some(Dim::Known(0)) if !allow_zero => reshape::Part::Copy,
        Some(Dim::Known(-1)) => reshape::Part::Rest,
        Some(dim) => reshape::Part::Dim(dim.clone()),
        None => reshape::Part::Dim(Dim::Unknown),
    };
    Some((0..count).map(part).collect())
}

impl Converter for Reshape {
    type Plan = reshape::ReshapePlan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Reshape", 25)],
        dtypes: check::CARRIED,
        layers: "IShuffleLayer",
        limits: "shape constant, or computed from dims, or bounded; no dim may be 0",
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
        let Some(parts) = parts(node) else { return Ok(shape::types([shape::typed(dtype, None)])) };
        let from = node.input(0).and_then(|x| x.shape());
        let to = result(node, from, &parts, cx)?;
        let elements = match (node.input(0).and_then(|x| x.elements()), to.as_slice()) {
            (Some(list), [] | [_]) => Some(list.to_vec()),
            _ => None,
        };
        Ok(vec![Inferred { ty: shape::typed(dtype, Some(to)), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Self::Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::CARRIED, target)?;
        check::never_empty(&x, "data")?;
        let mut parts = parts(node).ok_or_else(|| {
            Refusal::new(Code::RANK_UNKNOWN, "the rank of the result is not known before the run")
                .slot("shape")
        })?;
        if parts.len() > 8 {
            return Err(Refusal::new(Code::RANK, "TensorRT holds at most 8 dims").slot("shape"));
        }
        // What inference found out says more than the elements do; what it found for a −1 is a size like any other.
        let known = node.output(0).and_then(|y| y.shape()).unwrap_or_default();
        if known.len() == parts.len() {
            for (part, dim) in parts.iter_mut().zip(known) {
                match (dim, &*part) {
                    (Dim::Known(_), reshape::Part::Rest | reshape::Part::Dim(_))
                    | (Dim::Expr(_), reshape::Part::Rest) => *part = reshape::Part::Dim(dim.clone()),
                    _ => {}
                }
            }
        }
        reshape::plan(node, x.shape, &parts, Some((1, "shape")), node.int("allowzero", 0) != 0)
    }

    fn emit(&self, plan: Self::Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        vec![reshape::emit(cx, x, &plan)]
    }
}

/// Dims of the result.
fn result(
    node: NodeView<'_>,
    from: Option<&[Dim]>,
    parts: &[reshape::Part],
    cx: &mut InferCx<'_>,
) -> Result<Vec<Dim>, Diag> {
    let allow_zero = node.int("allowzero", 0) != 0;
    let mut to = Vec::with_capacity(parts.len());
    // Dims of the input that are not copied, and dims of the result that are not.
    let mut left: Vec<Option<&Dim>> = from.unwrap_or_default().iter().map(Some).collect();
    let mut named = Dim::Known(1);
    let mut hole = None;
    for (axis, part) in parts.iter().enumerate() {
        to.push(match part {
            reshape::Part::Copy => match (from, left.get_mut(axis)) {
                (Some(from), Some(slot)) => {
                    *slot = None;
                    from[axis].clone()
                }
                (None, _) => Dim::Unknown,
                _ => return Err(Diag::invalid(format!("0 at {axis} copies no dim")).slot("shape")),
            },
            reshape::Part::Rest if hole.is_some() => {
                return Err(Diag::invalid("more than one -1").slot("shape"));
            }
            reshape::Part::Rest => {
                hole = Some(axis);
                Dim::Unknown
            }
            reshape::Part::Dim(Dim::Known(n)) if *n < 0 => {
                return Err(Diag::invalid(format!("a dim of {n}")).slot("shape"));
            }
            reshape::Part::Dim(dim) => {
                if let (Dim::Expr(_), false) = (dim, allow_zero)
                    && from.and_then(|from| from.get(axis)) != Some(dim)
                {
                    // 0 would copy a dim, and −1 would be inferred.
                    cx.require(ConstraintKind::AtLeast(dim.clone(), 1));
                }
                named = named.mul(dim);
                dim.clone()
            }
        });
    }
    if from.is_none() {
        return Ok(to);
    }
    let total = dims::product(left.into_iter().flatten());
    match hole {
        Some(axis) => {
            let rest = match (&total, &named) {
                (Dim::Known(0), Dim::Known(0)) => Dim::Unknown,
                (Dim::Known(a), Dim::Known(b)) if *b == 0 || a % b != 0 => {
                    return Err(Diag::invalid(format!("{a} elements do not divide into {b}")).slot("shape"));
                }
                _ => total.floor_div(&named),
            };
            if let Dim::Expr(_) = rest {
                cx.require(ConstraintKind::AtLeast(rest.clone(), 1));
                let whole = rest.mul(&named);
                if whole != total {
                    cx.require(ConstraintKind::Equal(total, whole));
                }
            }
            to[axis] = rest;
        }
        None => match (&total, &named) {
            (Dim::Known(a), Dim::Known(b)) if a != b => {
                return Err(Diag::invalid(format!("{a} elements against {b}")).slot("shape"));
            }
            (Dim::Unknown, _) | (_, Dim::Unknown) => {}
            (a, b) if a != b => cx.require(ConstraintKind::Equal(total, named)),
            _ => {}
        },
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn reshape(shape: &[i64]) -> Case {
        Case::new("Reshape", 25).input(noise([2, 3, 4])).constant(list(shape))
    }

    #[test]
    fn refusals() {
        Case::new("Reshape", 25).input(noise([1])).constant(list(&[-1])).gates(unheld());
        let case = Case::new("Reshape", 25).input(noise([2, 3])).input(list(&[3, 2]));
        case.clone().refused(Code::SHAPE_VALUE);
        case.clone().unranked(1).refused(Code::RANK_UNKNOWN);
        case.clone().sizes(1, ["a?", "b?"]).refused(Code::SHAPE_VALUE);
        case.sizes(1, ["a", "b"]).refused(Code::SHAPE_VALUE);
        reshape(&[2, 3, 4, 1, 1, 1, 1, 1, 1]).refused(Code::RANK);
    }

    #[test]
    fn types() {
        assert_eq!(reshape(&[4, -1]).types(), ["f32[4 x 6]"]);
        assert_eq!(reshape(&[0, -1]).types(), ["f32[2 x 12]"]);
        assert_eq!(reshape(&[0, -1]).dynamic(0, ["N", "3", "4"]).types(), ["f32[N x 12]"]);
        assert_eq!(reshape(&[-1, 4]).dynamic(0, ["N", "3", "4"]).types(), ["f32[3*N x 4]"]);
        assert_eq!(reshape(&[-1, 0, 2]).dynamic(0, ["N", "?", "4"]).types(), ["f32[2*N x ? x 2]"]);
        let symbolic = Case::new("Reshape", 25).input(noise([2, 3, 4])).input(list(&[2, 12]));
        let symbolic = symbolic.dynamic(0, ["N", "3", "4"]).sizes(1, ["N", "-1"]);
        assert_eq!(symbolic.types(), ["f32[N x 12]"]);
        let elements = Case::new("Reshape", 25).input(list(&[1])).sizes(0, ["N"]).constant(list(&[]));
        assert_eq!(elements.types(), ["i64[] = [N]"]);
    }

    #[test]
    fn invalid() {
        assert!(reshape(&[5, -1]).invalid().contains("24 elements"));
        assert!(reshape(&[-1, -1]).invalid().contains("more than one"));
        assert!(reshape(&[-2, -1]).invalid().contains("-2"));
        assert!(reshape(&[2, 3, 4, 0]).invalid().contains("copies no dim"));
        assert!(reshape(&[7]).invalid().contains("against 7"));
    }

    #[test]
    fn numbers() {
        reshape(&[4, -1]).check(Tolerance::Exact);
        reshape(&[-1, 4]).dynamic(0, ["N", "3", "4"]).check(Tolerance::Exact);
        reshape(&[0, 0, 2, 2]).dynamic(0, ["N", "M", "4"]).check(Tolerance::Exact);
        let bounded = Case::new("Reshape", 25).input(noise([4, 3])).input(list(&[3, 4]));
        let layers = bounded.dynamic(0, ["N", "M"]).sizes(1, ["M", "N"]).layers();
        assert_eq!(layers.last(), Some(&"Shuffle"));
        // A head split of attention: the −1 is N·3, and M stands where the input has no M.
        let heads = Case::new("Reshape", 25).input(noise([2, 3, 5, 4])).input(list(&[-1, 5, 4]));
        let heads = heads.dynamic(0, ["N", "3", "M", "4"]).sizes(1, ["-1", "M", "4"]);
        assert_eq!(heads.types(), ["f32[3*N x M x 4]"]);
        assert_eq!(heads.layers().last(), Some(&"Shuffle"));
    }
}

//! Pad: add to, or cut from, the ends of axes.
//!
//! data [d0..dn] T, pads [2k] i64, constant_value [] T, axes [k] i  ->  output [d + begin + end] T
//! Opsets: 1, 2 attributes; 11 inputs; 13, 21, 23, 24, 25 wider types; 18 axes; 19 wrap.     TensorRT: ISliceLayer.
//! Limits: pads constant (constant mode: or computed from dims); reflected pads smaller than the dim.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, dims,
        extent::{self, DimPlan, ExtentPlan},
        shape,
    },
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};
use trtc_network::{
    Layer, TensorId,
    layer::{Extent, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct Pad;

/// Cuts first, then adds; either may be absent.
#[derive(Debug)]
pub struct Plan {
    cut: Option<(ExtentPlan, ExtentPlan)>,
    add: Option<(ExtentPlan, ExtentPlan)>,
    mode: SampleMode,
}

/// Padding before and after each axis; `None` when the values are not known.
fn pads(node: NodeView<'_>, rank: usize) -> Result<Option<Vec<(Dim, Dim)>>, Diag> {
    let axes = match node.input(3) {
        None => (0..rank).collect(),
        Some(axes) => match axes.const_i64s() {
            None => return Ok(None),
            Some(list) => {
                shape::axes(&list, rank).map_err(|diag| diag.slot("axes"))?;
                list.iter().map(|&axis| shape::axis(axis, rank)).collect::<Result<Vec<_>, _>>()?
            }
        },
    };
    let Some(list) = node.input(1).and_then(|pads| pads.elements()) else { return Ok(None) };
    if list.len() != 2 * axes.len() {
        return Err(Diag::invalid(format!("{} pads for {} axes", list.len(), axes.len())).slot("pads"));
    }
    let mut pads = vec![(Dim::Known(0), Dim::Known(0)); rank];
    for (k, &axis) in axes.iter().enumerate() {
        pads[axis] = (list[k].clone(), list[axes.len() + k].clone());
    }
    Ok(Some(pads))
}

fn mode(node: NodeView<'_>) -> Result<SampleMode, Diag> {
    match node.str("mode", "constant") {
        "constant" => Ok(SampleMode::Fill),
        "reflect" => Ok(SampleMode::Reflect),
        "edge" => Ok(SampleMode::Clamp),
        "wrap" => Ok(SampleMode::Wrap),
        other => Err(Diag::invalid(format!("`{other}` is no padding mode")).slot("mode")),
    }
}

impl Converter for Pad {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Pad", 25)],
        dtypes: check::CARRIED,
        layers: "ISliceLayer",
        limits: "pads constant (mode `constant`: or computed from dims); reflected pads smaller than the dim",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::NOT_CONSTANT,
            Code::SHAPE_VALUE,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        mode(node)?;
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let Some(pads) = pads(node, x.len())? else {
            return Ok(shape::types([shape::typed(dtype, Some(vec![Dim::Unknown; x.len()]))]));
        };
        let mut to = Vec::with_capacity(x.len());
        for (axis, (dim, (before, after))) in x.iter().zip(&pads).enumerate() {
            let size = dim.add(before).add(after);
            match &size {
                Dim::Known(size) if *size < 0 => {
                    return Err(Diag::invalid(format!("axis {axis} would have size {size}")).slot("pads"));
                }
                Dim::Expr(_) if size != *dim => cx.require(ConstraintKind::AtLeast(size.clone(), 0)),
                _ => {}
            }
            to.push(size);
        }
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::CARRIED, target)?;
        check::not_empty(&x, "data")?;
        if x.rank() == 0 {
            return Err(Refusal::new(Code::RANK, "a scalar has no axes to pad").slot("data"));
        }
        let mode = mode(node).map_err(crate::ctx::window::refused)?;
        if node.input(3).is_some() {
            check::constant(node, 3, "axes")?;
        }
        if let Some(value) = node.input(2)
            && (value.dtype() != Some(x.dtype)
                || value.shape().is_none_or(|s| s.iter().any(|d| *d != Dim::Known(1))))
        {
            let why = format!("must be a scalar of {}", x.dtype);
            return Err(Refusal::new(Code::CONSTANT_VALUE, why).slot("constant_value"));
        }
        let pads = pads(node, x.rank()).map_err(crate::ctx::window::refused)?.ok_or_else(|| {
            Refusal::new(Code::SHAPE_VALUE, "the pads are known only at run time").slot("pads")
        })?;
        let own = |axis| extent::own_dim(node, 0, axis);
        let ends = |before: &Dim, after: &Dim, axis: usize| -> Result<(DimPlan, DimPlan), Refusal> {
            let before = extent::require_dim(node, before, "pads")?;
            let after = extent::require_dim(node, after, "pads")?;
            let size = own(axis).plus(before.clone()).plus(after);
            Ok((before.times(DimPlan::Fixed(-1)), size))
        };
        let zero = Dim::Known(0);
        let is_cut = |dim: &Dim| !dims::at_least(node, dim, 0);
        let slice = |pads: &[(Dim, Dim)]| -> Result<Option<(ExtentPlan, ExtentPlan)>, Refusal> {
            if pads.iter().all(|(a, b)| *a == zero && *b == zero) {
                return Ok(None);
            }
            let parts =
                pads.iter().enumerate().map(|(k, (a, b))| ends(a, b, k)).collect::<Result<Vec<_>, _>>()?;
            let (starts, sizes) = parts.into_iter().unzip();
            Ok(Some((ExtentPlan::Dims(starts), ExtentPlan::Dims(sizes))))
        };
        for (axis, (before, after)) in pads.iter().enumerate() {
            if x.shape[axis].add(before).add(after) == zero {
                return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
            }
        }
        if mode == SampleMode::Fill {
            // Outside is the same value wherever a cut ends, so one slice does both.
            return Ok(Plan { cut: None, add: slice(&pads)?, mode });
        }
        if pads.iter().any(|(a, b)| a.known().is_none() || b.known().is_none()) {
            return Err(Refusal::new(Code::NOT_CONSTANT, "must be constants in this mode").slot("pads"));
        }
        let part = |keep: &dyn Fn(&Dim) -> bool| -> Vec<(Dim, Dim)> {
            let pick = |dim: &Dim| if keep(dim) { dim.clone() } else { zero.clone() };
            pads.iter().map(|(a, b)| (pick(a), pick(b))).collect()
        };
        let (cuts, adds) = (part(&is_cut), part(&|dim| !is_cut(dim)));
        for (axis, (before, after)) in adds.iter().enumerate() {
            let left = x.shape[axis].add(&cuts[axis].0).add(&cuts[axis].1);
            let most = before.known().unwrap_or(0).max(after.known().unwrap_or(0));
            if most == 0 {
                continue;
            }
            let needed = if mode == SampleMode::Reflect { most.saturating_add(1) } else { 1 };
            match left {
                Dim::Known(left) if left < needed => {
                    let why = format!("{most} are to be added to a dim of {left}");
                    return Err(Refusal::new(Code::SHAPE, why).slot("pads"));
                }
                ref left if !dims::at_least(node, left, needed) => {
                    let why = format!("dim {axis} may be below {needed} at run time");
                    return Err(Refusal::new(Code::DIM_UNKNOWN, why).slot("data"));
                }
                _ => {}
            }
        }
        // The second slice works on what the first one left: its sizes follow from the same dims.
        let cut = slice(&cuts)?;
        let add = match slice(&adds)? {
            Some((starts, _)) => slice(&pads)?.map(|(_, sizes)| (starts, sizes)),
            None => None,
        };
        Ok(Plan { cut, add, mode })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut x = cx.input(0);
        let dtype = cx.dtype(x);
        if let Some((start, size)) = &plan.cut {
            x = slice(cx, x, start, size, SampleMode::Strict, None);
        }
        if let Some((start, size)) = &plan.add {
            let fill = (plan.mode == SampleMode::Fill).then(|| match cx.optional(2) {
                Some(value) if cx.rank(value) == 0 => value,
                Some(value) => cx.reshape(value, Vec::new()),
                None => cx.scalar(dtype, 0, 0.0),
            });
            x = slice(cx, x, start, size, plan.mode, fill);
        }
        vec![x]
    }
}

fn slice(
    cx: &mut Emit<'_>,
    x: TensorId,
    start: &ExtentPlan,
    size: &ExtentPlan,
    mode: SampleMode,
    fill: Option<TensorId>,
) -> TensorId {
    let stride = Extent::Static(vec![1; cx.rank(x)]);
    let (start, size) = (cx.extent(start), cx.extent(size));
    cx.one(Layer::Slice { x, start, size, stride, mode, fill })
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn pad(pads: &[i64]) -> Case {
        Case::new("Pad", 25).input(noise([4, 5])).constant(list(pads))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("Pad", 25).input(x(&[1])).constant(list(&[1, 1])));
        Case::new("Pad", 25).input(noise([])).constant(list(&[])).refused(Code::RANK);
        pad(&[-4, 0, 0, 0]).refused(Code::SHAPE);
        pad(&[4, 0, 0, 0]).str("mode", "reflect").refused(Code::SHAPE);
        pad(&[4, 0, 0, 0]).str("mode", "reflect").dynamic(0, ["N", "5"]).refused(Code::DIM_UNKNOWN);
        let open = Case::new("Pad", 25).input(noise([4, 5])).input(list(&[1, 1, 1, 1]));
        open.clone().refused(Code::SHAPE_VALUE);
        open.sizes(1, ["a", "0", "0", "0"]).str("mode", "edge").refused(Code::NOT_CONSTANT);
        pad(&[1, 1]).absent().input(list(&[0])).refused(Code::NOT_CONSTANT);
        pad(&[1, 1, 1, 1]).constant(noise([2])).refused(Code::CONSTANT_VALUE);
    }

    #[test]
    fn types() {
        assert_eq!(pad(&[1, -2, 0, 3]).dynamic(0, ["N", "5"]).types(), ["f32[N + 1 x 6]"]);
        assert_eq!(pad(&[1, 2]).absent().constant(list(&[-1])).types(), ["f32[4 x 8]"]);
        assert!(pad(&[-5, 0, 0, 0]).invalid().contains("size -1"));
        assert!(pad(&[1, 2]).invalid().contains("2 pads for 2 axes"));
        assert!(pad(&[0; 4]).str("mode", "mirror").invalid().contains("mirror"));
    }

    #[test]
    fn numbers() {
        pad(&[0; 4]).check(Tolerance::Exact);
        for mode in ["constant", "reflect", "edge", "wrap"] {
            pad(&[1, 2, 3, 0]).str("mode", mode).check(Tolerance::Exact);
            pad(&[-1, 2, 2, -2]).str("mode", mode).check(Tolerance::Exact);
            pad(&[0, 2, 0, 1]).str("mode", mode).dynamic(0, ["N", "5"]).check(Tolerance::Exact);
        }
        pad(&[1, 2, 3, 0]).constant(f32s([], &[1.5])).dynamic(0, ["N", "5"]).check(Tolerance::Exact);
        pad(&[1, -2]).constant(f32s([1], &[1.5])).constant(list(&[1])).check(Tolerance::Exact);
        let whole =
            Case::new("Pad", 25).input(list(&[1, 2])).constant(list(&[1, 1])).constant(i64s([], &[7]));
        whole.check(Tolerance::Exact);
        Case::new("Pad", 25).input(bools([2], &[true; 2])).constant(list(&[1, 1])).check(Tolerance::Exact);
        let symbolic = Case::new("Pad", 25).input(noise([4])).input(list(&[1, 2])).sizes(1, ["a", "b"]);
        symbolic.check(Tolerance::Exact);
    }

    #[test]
    fn bytes() {
        let x = u8s([2, 2], &[0, 255, 128, 3]);
        let case = Case::new("Pad", 25).input(x).constant(list(&[1, 0, 0, 1]));
        case.clone().check(Tolerance::Exact);
        case.constant(u8s([], &[200])).check(Tolerance::Exact);
    }

    #[test]
    fn gates() {
        Case::new("Pad", 25).absent().constant(list(&[1, 1])).refused(Code::INVALID);
    }
}

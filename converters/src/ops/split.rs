//! Split: cut along an axis.
//!
//! input [d0..dn] T, split [k] i64 (optional)  ->  outputs [d0..s(i)..dn] T, k of them
//! Opsets: 1, 2, 11 split as attribute; 13 as input; 18 num_outputs, the last one smaller.     TensorRT: ISliceLayer.
//! Limits: sizes constant, or computed from dims, or the model declares the results' dims.

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
    Layer,
    layer::{Extent, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct Split;

/// Start and size of each output; `None` for one that nobody wants.
#[derive(Debug)]
pub struct Plan(Vec<Option<(ExtentPlan, ExtentPlan)>>);

/// Sizes along the axis, one an output; `None` when the values are not known.
fn sizes(node: NodeView<'_>, dim: &Dim) -> Result<Option<Vec<Dim>>, Diag> {
    if let Some(split) = node.input(1) {
        let Some(list) = split.elements() else { return Ok(None) };
        if list.len() < node.output_count() {
            return Err(Diag::invalid(format!("{} sizes for {} outputs", list.len(), node.output_count()))
                .slot("split"));
        }
        if list.iter().any(|size| size.known().is_some_and(|size| size < 0)) {
            return Err(Diag::invalid("a negative size").slot("split"));
        }
        if let (Some(a), Some(b)) = (dims::sum(list).known(), dim.known())
            && a != b
        {
            return Err(Diag::invalid(format!("sizes of {a} in sum for a dim of {b}")).slot("split"));
        }
        return Ok(Some(list.to_vec()));
    }
    let count = node.int("num_outputs", node.output_count() as i64);
    if !(1..=1 << 16).contains(&count) {
        return Err(Diag::invalid(format!("{count} outputs")).slot("num_outputs"));
    }
    let chunk = dim.ceil_div(&Dim::Known(count));
    let last = dim.sub(&chunk.mul(&Dim::Known(count - 1)));
    if last.known().is_some_and(|size| size < 0) {
        return Err(Diag::invalid("the last outputs would be negative").slot("num_outputs"));
    }
    let mut list = vec![chunk; count as usize - 1];
    list.push(last);
    Ok(Some(list))
}

/// Sizes along the axis as the model declares them, when they make up the dim.
fn declared(node: NodeView<'_>, axis: usize, dim: &Dim) -> Option<Vec<Dim>> {
    let size = |slot: usize| node.output(slot)?.dim(axis)?.known();
    let list = (0..node.output_count()).map(size).collect::<Option<Vec<i64>>>()?;
    let sum = list.iter().try_fold(0i64, |sum, &size| sum.checked_add(size.max(0)))?;
    (dim.known() == Some(sum)).then(|| list.into_iter().map(Dim::Known).collect())
}

impl Converter for Split {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Split", 18)],
        dtypes: check::CARRIED,
        layers: "ISliceLayer",
        limits: "sizes constant, or computed from dims, or told by the declared results",
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
        let count = node.output_count();
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types(vec![shape::typed(dtype, None); count]));
        };
        let axis = shape::axis(node.int("axis", 0), x.len()).map_err(|diag| diag.slot("axis"))?;
        let sizes = sizes(node, &x[axis])?;
        let elements = node.input(0).and_then(|x| x.elements());
        let mut start = Some(0usize);
        let mut outputs = Vec::with_capacity(count);
        for k in 0..count {
            let size = sizes.as_ref().and_then(|list| list.get(k)).cloned().unwrap_or(Dim::Unknown);
            if let Dim::Expr(_) = size {
                cx.require(ConstraintKind::AtLeast(size.clone(), 1));
            }
            let end = start.zip(size.known()).and_then(|(at, n)| at.checked_add(usize::try_from(n).ok()?));
            let part = elements.zip(start.zip(end)).and_then(|(list, (a, b))| list.get(a..b));
            start = end;
            let mut to = x.to_vec();
            to[axis] = size;
            outputs.push(Inferred {
                ty: shape::typed(dtype, Some(to)),
                elements: part.map(<[Dim]>::to_vec).filter(|_| x.len() == 1),
            });
        }
        Ok(outputs)
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::CARRIED, target)?;
        check::not_empty(&x, "input")?;
        let axis = check::axis(node.int("axis", 0), x.rank(), "axis")?;
        let sizes = sizes(node, &x.shape[axis]).map_err(crate::ctx::window::refused)?;
        let sizes = sizes.or_else(|| declared(node, axis, &x.shape[axis])).ok_or_else(|| {
            Refusal::new(Code::SHAPE_VALUE, "the sizes are known only at run time").slot("split")
        })?;
        let mut plan = Vec::new();
        let mut at = Dim::Known(0);
        for (k, size) in sizes.iter().enumerate() {
            let part = match node.output(k) {
                None => None,
                Some(_) if *size == Dim::Known(0) => {
                    return Err(Refusal::new(Code::SHAPE, format!("output {k} is an empty tensor")));
                }
                Some(_) => {
                    let mut starts = vec![DimPlan::Fixed(0); x.rank()];
                    let mut extent = extent::own_dims(node, 0);
                    starts[axis] = extent::require_dim(node, &at, "split")?;
                    extent[axis] = extent::require_dim(node, size, "split")?;
                    Some((ExtentPlan::Dims(starts), ExtentPlan::Dims(extent)))
                }
            };
            at = at.add(size);
            plan.push(part);
        }
        Ok(Plan(plan))
    }

    fn emit(&self, Plan(parts): Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let rank = cx.rank(x);
        let mut outputs = Vec::new();
        for part in &parts {
            let Some((start, size)) = part else {
                outputs.push(x);
                continue;
            };
            let (start, size) = (cx.extent(start), cx.extent(size));
            let stride = Extent::Static(vec![1; rank]);
            outputs.push(cx.one(Layer::Slice {
                x,
                start,
                size,
                stride,
                mode: SampleMode::Strict,
                fill: None,
            }));
        }
        outputs
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn split() -> Case {
        Case::new("Split", 18).input(noise([2, 7])).int("axis", 1)
    }

    #[test]
    fn refusals() {
        Case::new("Split", 18).input(noise([1])).int("num_outputs", 1).gates(unheld());
        split().input(list(&[3, 4])).outputs(2).refused(Code::SHAPE_VALUE);
        split().constant(list(&[0, 7])).outputs(2).refused(Code::SHAPE);
    }

    #[test]
    fn types() {
        assert_eq!(
            split().int("num_outputs", 3).outputs(3).types(),
            ["f32[2 x 3]", "f32[2 x 3]", "f32[2 x 1]"]
        );
        assert_eq!(split().constant(list(&[2, 5])).outputs(2).types(), ["f32[2 x 2]", "f32[2 x 5]"]);
        let even = split().int("num_outputs", 2).outputs(2).dynamic(0, ["2", "N"]);
        assert_eq!(even.types(), ["f32[2 x floordiv(N + 1, 2)]", "f32[2 x N - floordiv(N + 1, 2)]"]);
        assert!(split().constant(list(&[2, 6])).outputs(2).invalid().contains("8 in sum"));
        let shape =
            Case::new("Split", 18).input(list(&[1, 2, 3])).sizes(0, ["N", "3", "M"]).int("num_outputs", 3);
        assert_eq!(shape.outputs(3).types(), ["i64[1] = [N]", "i64[1] = [3]", "i64[1] = [M]"]);
    }

    #[test]
    fn numbers() {
        split().int("num_outputs", 3).outputs(3).dynamic(0, ["N", "7"]).check(Tolerance::Exact);
        split().constant(list(&[2, 5])).outputs(2).check(Tolerance::Exact);
        let told = split().input(list(&[2, 5])).outputs(2).declared(0, &[2, 2]).declared(1, &[2, 5]);
        told.check(Tolerance::Exact);
        split().int("num_outputs", 2).outputs(2).dynamic(0, ["2", "N"]).check(Tolerance::Exact);
    }
}

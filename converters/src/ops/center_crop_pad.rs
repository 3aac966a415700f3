//! CenterCropPad: cut or padded with zeros to given dims, around the middle.
//!
//! input_data [d0..dn] T, shape [k] i  ->  output_data [e0..en] T
//! Opsets: 18.     TensorRT: ISliceLayer (fill).
//! Limits: shape constant, or computed from dims, or bounded, or the dims of the result declared.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, dims,
        extent::{self, DimPlan, ExtentPlan},
        shape,
    },
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::{Extent, Layer, SampleMode};

/// The converter.
#[derive(Debug)]
pub struct CenterCropPad;

/// Start and size; `None` when nothing changes.
#[derive(Debug)]
pub struct Plan(Option<(ExtentPlan, ExtentPlan)>);

/// Dims of the result, as the inputs say.
fn target_dims(node: NodeView<'_>, x: &[Dim]) -> Result<Vec<Dim>, Diag> {
    let axes: Vec<usize> = match node.attrs().ints("axes") {
        None => (0..x.len()).collect(),
        Some(list) => {
            shape::axes(list, x.len()).map_err(|diag| diag.slot("axes"))?;
            list.iter().map(|&axis| shape::axis(axis, x.len())).collect::<Result<_, _>>()?
        }
    };
    let mut to = x.to_vec();
    let sizes = node.input(1).and_then(|sizes| sizes.elements());
    if let Some(sizes) = sizes
        && sizes.len() != axes.len()
    {
        return Err(Diag::invalid(format!("{} sizes for {} axes", sizes.len(), axes.len())).slot("shape"));
    }
    for (k, &axis) in axes.iter().enumerate() {
        to[axis] = sizes.map_or(Dim::Unknown, |sizes| sizes[k].clone());
        if to[axis].known().is_some_and(|size| size < 0) {
            return Err(Diag::invalid("a negative size").slot("shape"));
        }
    }
    Ok(to)
}

impl Converter for CenterCropPad {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("CenterCropPad", 18)],
        dtypes: check::CARRIED,
        layers: "ISliceLayer",
        limits: "shape constant, or computed from dims, or bounded, or told by the declared result",
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
        let to = match node.input(0).and_then(|x| x.shape()) {
            Some(x) => Some(target_dims(node, x)?),
            None => None,
        };
        Ok(shape::types([shape::typed(dtype, to)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input_data", check::CARRIED, target)?;
        check::never_empty(&x, "input_data")?;
        let to = target_dims(node, x.shape).map_err(crate::ctx::window::refused)?;
        let (mut starts, mut sizes) = (Vec::new(), Vec::new());
        for (axis, dim) in to.into_iter().enumerate() {
            let from = &x.shape[axis];
            let to = dims::declared(node, dim, 0, axis);
            if to == Dim::Known(0) {
                return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
            }
            if to == *from {
                starts.push(DimPlan::Fixed(0));
                sizes.push(extent::own_dim(node, 0, axis));
                continue;
            }
            // Half of what is too much is cut off in front, half of what lacks is put there; both rounded down.
            let (zero, two) = (Dim::Known(0), Dim::Known(2));
            let half = |more: &Dim, less: &Dim| dims::max(node, &more.sub(less), &zero).floor_div(&two);
            let start = half(from, &to).sub(&half(&to, from));
            starts.push(extent::require_dim(node, &start, "shape")?);
            sizes.push(extent::require_dim(node, &to, "shape")?);
        }
        let all =
            starts.iter().all(|start| *start == DimPlan::Fixed(0)) && sizes == extent::own_dims(node, 0);
        Ok(Plan((!all).then_some((ExtentPlan::Dims(starts), ExtentPlan::Dims(sizes)))))
    }

    fn emit(&self, Plan(part): Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let Some((start, size)) = part else { return vec![x] };
        let (dtype, rank) = (cx.dtype(x), cx.rank(x));
        let fill = Some(cx.scalar(dtype, 0, 0.0));
        let (start, size) = (cx.extent(&start), cx.extent(&size));
        let stride = Extent::Static(vec![1; rank]);
        vec![cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Fill, fill })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn case(shape: &[i64]) -> Case {
        Case::new("CenterCropPad", 18).input(noise([5, 4, 3])).constant(list(shape))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("CenterCropPad", 18).input(x(&[2])).constant(list(&[3])));
        case(&[5, 0, 3]).refused(Code::SHAPE);
        Case::new("CenterCropPad", 18).input(noise([5])).input(list(&[3])).refused(Code::SHAPE_VALUE);
        Case::new("CenterCropPad", 18).input(noise([1; 9])).constant(list(&[1; 9])).refused(Code::RANK);
        Case::new("CenterCropPad", 18).absent().constant(list(&[1])).refused(Code::INVALID);
    }

    #[test]
    fn types() {
        assert_eq!(case(&[2, 9, 3]).types(), ["f32[2 x 9 x 3]"]);
        let axes = case(&[6, 7]).ints("axes", &[-1, 0]).dynamic(0, ["N", "M", "3"]);
        assert_eq!(axes.types(), ["f32[7 x M x 6]"]);
        assert!(case(&[6, 7]).invalid().contains("2 sizes for 3 axes"));
        assert!(case(&[6]).ints("axes", &[3]).invalid().contains("out of range"));
        assert!(case(&[-1]).ints("axes", &[1]).invalid().contains("negative"));
    }

    #[test]
    fn numbers() {
        for shape in [[2, 9, 3], [10, 1, 2], [5, 4, 3], [4, 7, 6]] {
            case(&shape).check(Tolerance::Exact);
        }
        case(&[6, 3]).ints("axes", &[-1, 0]).check(Tolerance::Exact);
        case(&[6, 3]).ints("axes", &[0, 1]).dynamic(0, ["N", "M", "3"]).check(Tolerance::Exact);
        let open = Case::new("CenterCropPad", 18).input(counting([5, 4])).input(list(&[7, 3]));
        open.clone().declared(0, &[7, 3]).check(Tolerance::Exact);
        open.sizes(1, ["A", "B"]).lowered();
    }
}

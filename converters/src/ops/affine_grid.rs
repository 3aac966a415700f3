//! AffineGrid: places of an image under affine maps, for GridSample.
//!
//! theta [n, k, k+1] T, size [k+2] i64 (n, c, d1..dk)  ->  grid [n, d1..dk, k] T,     k = 2 or 3
//! Opsets: 20.     TensorRT: IElementWiseLayer.
//! Limits: the image's dims known, or told by the declared dims; f16, bf16 run in f32.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, floats, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode},
};

/// The converter.
#[derive(Debug)]
pub struct AffineGrid;

/// Places along each axis of the image, the slowest first.
#[derive(Debug)]
pub struct Plan(Vec<Vec<f64>>);

/// Longest axis that is written out.
const LONGEST: i64 = 1 << 20;

/// Number of spatial dims, from either input.
fn spatial(node: NodeView<'_>) -> Result<Option<usize>, Diag> {
    let theta = node.input(0).and_then(|x| x.shape());
    if let Some(theta) = theta
        && theta.len() != 3
    {
        return Err(Diag::invalid(format!("rank {}, not 3", theta.len())).slot("theta"));
    }
    let rows = theta.and_then(|theta| theta[1].known());
    let sizes = node.input(1).and_then(|size| match size.elements() {
        Some(list) => Some(list.len() as i64),
        None => size.dim(0)?.known(),
    });
    let k = match (rows, sizes) {
        (Some(a), Some(b)) if a != b - 2 => {
            return Err(Diag::invalid(format!("{b} sizes for maps of {a} dims")).slot("size"));
        }
        (Some(k), _) => k,
        (None, Some(n)) => n - 2,
        (None, None) => return Ok(None),
    };
    match k {
        2 | 3 => Ok(Some(k as usize)),
        _ => Err(Diag::invalid(format!("maps of {k} dims, not 2 or 3")).slot("theta")),
    }
}

impl Converter for AffineGrid {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("AffineGrid", 20)],
        dtypes: check::FLOATS,
        layers: "IElementWiseLayer",
        limits: "dims of the image known, or told by the declared result",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(k) = spatial(node)? else { return Ok(shape::types([shape::typed(dtype, None)])) };
        let sizes = node.input(1).and_then(|size| size.elements()).filter(|list| list.len() == k + 2);
        let batch = shape::dim_of(node, 0, 0);
        let mut to = vec![batch];
        match sizes {
            Some(sizes) => to.extend_from_slice(&sizes[2..]),
            None => to.extend(vec![Dim::Unknown; k]),
        }
        to.push(Dim::Known(k as i64));
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let theta = check::operand(node, 0, "theta", check::FLOATS, target)?;
        check::never_empty(&theta, "theta")?;
        let k = spatial(node).map_err(crate::ctx::window::refused)?;
        let k = k.ok_or_else(|| Refusal::new(Code::INVALID, "the input is absent").slot("size"))?;
        if theta.shape[1..] != [Dim::Known(k as i64), Dim::Known(k as i64 + 1)] {
            return Err(
                Refusal::new(Code::DIM_UNKNOWN, format!("not known to be maps of {k} dims")).slot("theta")
            );
        }
        let sizes = node.input(1).and_then(|size| size.elements());
        let corners = node.int("align_corners", 0) != 0;
        let mut axes = Vec::new();
        for axis in 0..k {
            let size = sizes.and_then(|list| list.get(axis + 2)).cloned().unwrap_or(Dim::Unknown);
            let size = dims::declared(node, size, 0, axis + 1).known().ok_or_else(|| {
                Refusal::new(Code::SHAPE_VALUE, "not known before the run, nor from the declared dims")
                    .slot("size")
            })?;
            if !(1..=LONGEST).contains(&size) || corners && size == 1 {
                let why = match size {
                    1 => "two corners of one pixel are no place".to_owned(),
                    _ => format!("an image dim of {size}"),
                };
                return Err(Refusal::new(Code::SHAPE, why).slot("size"));
            }
            let place = |at: i64| match corners {
                true => 2.0 * at as f64 / (size - 1) as f64 - 1.0,
                false => (2.0 * at as f64 + 1.0) / size as f64 - 1.0,
            };
            axes.push((0..size).map(place).collect());
        }
        Ok(Plan(axes))
    }

    fn emit(&self, Plan(axes): Plan, cx: &mut Emit<'_>) -> Outputs {
        let theta = cx.input(0);
        let dtype = cx.dtype(theta);
        let theta = floats::widened(cx, theta);
        let k = axes.len();
        let column = |cx: &mut Emit<'_>, index: usize| {
            let index = cx.constant(DType::I64, Vec::new(), (index as i64).to_le_bytes().to_vec().into());
            let (axis, mode) = (2, GatherMode::Default);
            let x = cx.one(Layer::Gather { data: theta, indices: index, axis, mode, batch_dims: 0 });
            // [n, k] as [n, 1.., k].
            cx.one(Layer::Unsqueeze { x, axes: (1..=k as u32).collect() })
        };
        // t + r_x · x + r_y · y + …: the last axis of the image is x.
        let mut sum: TensorId = column(cx, k);
        for (axis, places) in axes.iter().enumerate() {
            let mut shape = vec![1; k + 2];
            shape[axis + 1] = places.len() as i64;
            let places = floats::constant(cx, DType::F32, shape, places);
            let factor = column(cx, k - 1 - axis);
            let part = cx.elementwise(factor, places, ElementWiseOp::Prod);
            sum = cx.elementwise(sum, part, ElementWiseOp::Sum);
        }
        vec![cx.cast(sum, dtype)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn flat(size: &[i64]) -> Case {
        Case::new("AffineGrid", 20).input(noise([2, 2, 3])).constant(list(size))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("AffineGrid", 20).input(x(&[1, 2, 3])).constant(list(&[1, 1, 2, 2])));
        flat(&[2, 1, 4, 5]).dynamic(0, ["0", "2", "3"]).refused(Code::SHAPE);
        flat(&[2, 1, 4, 5]).dynamic(0, ["2", "2", "K"]).refused(Code::DIM_UNKNOWN);
        flat(&[2, 1, 4, 1]).int("align_corners", 1).refused(Code::SHAPE);
        Case::new("AffineGrid", 20)
            .input(noise([2, 2, 3]))
            .input(list(&[2, 1, 4, 5]))
            .refused(Code::SHAPE_VALUE);
        Case::new("AffineGrid", 20).absent().constant(list(&[2, 1, 4, 5])).refused(Code::INVALID);
    }

    #[test]
    fn types() {
        assert_eq!(flat(&[2, 7, 4, 5]).dynamic(0, ["N", "2", "3"]).types(), ["f32[N x 4 x 5 x 2]"]);
        assert!(flat(&[2, 7, 4, 5, 6]).invalid().contains("5 sizes"));
        assert!(Case::new("AffineGrid", 20).input(noise([2, 2])).invalid().contains("rank 2"));
        assert!(Case::new("AffineGrid", 20).input(noise([2, 4, 5])).invalid().contains("4 dims"));
    }

    #[test]
    fn numbers() {
        for corners in [0, 1] {
            flat(&[2, 3, 4, 5]).int("align_corners", corners).check(F32);
            let open = Case::new("AffineGrid", 20).input(noise([2, 2, 3])).input(list(&[2, 1, 3, 2]));
            open.int("align_corners", corners).declared(0, &[2, 3, 2, 2]).check(F32);
            let deep = Case::new("AffineGrid", 20).input(noise([2, 3, 4])).constant(list(&[2, 1, 3, 2, 5]));
            deep.int("align_corners", corners).check(F32);
        }
        flat(&[2, 3, 1, 5]).dynamic(0, ["N", "2", "3"]).lowered();
    }
}

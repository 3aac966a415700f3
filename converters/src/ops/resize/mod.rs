//! Resize: sample at other sizes.
//!
//! X [d0..dn] T, roi, scales [k] f32, sizes [k] i64  ->  Y [e0..en] T
//! Opsets: 10 scales only; 11 modes, sizes; 13 types; 18 antialias, axes, aspect ratio; 19 half_pixel_symmetric.     TensorRT:
//! IResizeLayer; over known dims also IGatherLayer (nearest) and IMatrixMultiplyLayer (weights of each axis).
//! Limits: scales constant; sizes constant, or computed from dims, or bounded; no antialias, no tf_crop_and_resize.

mod sampling;

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check,
        extent::{self, ExtentPlan},
        floats, shape,
    },
};
use sampling::{Mode, Sampling};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};
use trtc_network::{
    Layer, TensorId,
    layer::{Coordinates, GatherMode, Interpolation, MatrixOp, ResizeRound, ResizeSelector, ResizeTo},
};

/// The converter.
#[derive(Debug)]
pub struct Resize;

/// How the node is emitted.
#[derive(Debug)]
pub enum Plan {
    /// All sizes stay.
    Same,
    /// TensorRT's layer.
    Layer(LayerPlan),
    /// Nearest over known dims: source index of each place, by axis.
    Gather(Vec<(usize, Vec<i64>)>),
    /// Linear or cubic over known dims: a matrix [out, in] by axis.
    Weights(Vec<(usize, Matrix)>),
}

/// Parameters of the layer.
#[derive(Debug)]
pub struct LayerPlan {
    to: To,
    interpolation: Interpolation,
    coordinates: Coordinates,
    selector: ResizeSelector,
    round: ResizeRound,
    cubic_coeff: f32,
    exclude_outside: bool,
}

#[derive(Debug)]
enum To {
    Scales(Vec<f32>),
    Sizes(ExtentPlan),
}

/// Rows of weights: one for each place of the result.
#[derive(Debug)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

/// Target of each axis.
struct Aim {
    dims: Vec<Dim>,
    /// Scale of each axis, where it is given or follows from known dims.
    scales: Vec<Option<f32>>,
    /// Whether `scales` is what the node says.
    by_scales: bool,
}

fn axes(node: NodeView<'_>, rank: usize) -> Result<Vec<usize>, Diag> {
    match node.attrs().ints("axes") {
        None => Ok((0..rank).collect()),
        Some(list) => {
            shape::axes(list, rank).map_err(|diag| diag.slot("axes"))?;
            list.iter().map(|&axis| shape::axis(axis, rank)).collect()
        }
    }
}

/// Whether the input is there and not one of the empty tensors that stand for "absent".
fn given(node: NodeView<'_>, slot: usize) -> bool {
    node.input(slot).is_some_and(|view| view.shape() != Some(&[Dim::Known(0)]))
}

fn aim(node: NodeView<'_>, x: &[Dim]) -> Result<Aim, Diag> {
    let axes = axes(node, x.len())?;
    let mut result = Aim { dims: x.to_vec(), scales: vec![Some(1.0); x.len()], by_scales: given(node, 2) };
    if result.by_scales {
        let values = node.input(2).and_then(|scales| scales.constant()).and_then(|tensor| tensor.to_f64s());
        let Some(values) = values else {
            for &axis in &axes {
                result.dims[axis] = Dim::Unknown;
                result.scales[axis] = None;
            }
            return Ok(result);
        };
        if values.len() != axes.len() {
            return Err(
                Diag::invalid(format!("{} scales for {} axes", values.len(), axes.len())).slot("scales")
            );
        }
        for (&axis, &scale) in axes.iter().zip(&values) {
            if !(scale > 0.0 && scale < 1e9) {
                return Err(Diag::invalid(format!("a scale of {scale}")).slot("scales"));
            }
            result.scales[axis] = Some(scale as f32);
            result.dims[axis] = scaled(&x[axis], scale as f32);
        }
        return Ok(result);
    }
    let sizes = node.input(3).and_then(|sizes| sizes.elements());
    let Some(sizes) = sizes else {
        if node.input(3).is_none() {
            return Err(Diag::invalid("one of scales and sizes is needed"));
        }
        for &axis in &axes {
            result.dims[axis] = Dim::Unknown;
            result.scales[axis] = None;
        }
        return Ok(result);
    };
    if sizes.len() != axes.len() {
        return Err(Diag::invalid(format!("{} sizes for {} axes", sizes.len(), axes.len())).slot("sizes"));
    }
    if sizes.iter().any(|size| size.known().is_some_and(|size| size < 0)) {
        return Err(Diag::invalid("a negative size").slot("sizes"));
    }
    let ratio = |size: &Dim, dim: &Dim| match (size, dim) {
        (Dim::Known(size), Dim::Known(dim)) if *dim > 0 => Some(*size as f32 / *dim as f32),
        (size, dim) if size == dim && *size != Dim::Unknown => Some(1.0),
        _ => None,
    };
    let policy = node.str("keep_aspect_ratio_policy", "stretch");
    let ratios: Vec<Option<f32>> =
        axes.iter().zip(sizes).map(|(&axis, size)| ratio(size, &x[axis])).collect();
    if policy == "stretch" {
        for ((&axis, size), ratio) in axes.iter().zip(sizes).zip(ratios) {
            result.dims[axis] = size.clone();
            result.scales[axis] = ratio;
        }
        return Ok(result);
    }
    let pick = match policy {
        "not_larger" => f32::min,
        "not_smaller" => f32::max,
        other => {
            return Err(Diag::invalid(format!("`{other}` is no policy")).slot("keep_aspect_ratio_policy"));
        }
    };
    let common = ratios.into_iter().collect::<Option<Vec<f32>>>().and_then(|l| l.into_iter().reduce(pick));
    for &axis in &axes {
        result.scales[axis] = common;
        result.dims[axis] = match (common, &x[axis]) {
            (Some(scale), Dim::Known(d)) => Dim::Known((scale * *d as f32 + 0.5).floor() as i64),
            _ => Dim::Unknown,
        };
    }
    Ok(result)
}

/// ⌊dim · scale⌋, in f32 as ONNX Runtime computes it for known dims; for symbols where the scale is a small fraction.
fn scaled(dim: &Dim, scale: f32) -> Dim {
    if let Dim::Known(d) = dim {
        return Dim::Known((scale * *d as f32) as i64);
    }
    // The scale as a fraction with a power of two below: exact for every f32 of moderate size.
    let mut below = 1i64;
    let mut above = f64::from(scale);
    while above.fract() != 0.0 && below < 1 << 12 {
        above *= 2.0;
        below *= 2;
    }
    if above.fract() != 0.0 || above > 1e9 {
        return Dim::Unknown;
    }
    dim.mul(&Dim::Known(above as i64)).floor_div(&Dim::Known(below))
}

impl Converter for Resize {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Resize", 19)],
        dtypes: check::FLOATS,
        layers: "IResizeLayer, IGatherLayer, IMatrixMultiplyLayer",
        limits: "scales constant; no antialias, no tf_crop_and_resize; some modes need known dims",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::NOT_CONSTANT,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let to = aim(node, x)?.dims;
        for dim in &to {
            if let Dim::Expr(_) = dim {
                cx.require(ConstraintKind::AtLeast(dim.clone(), 1));
            }
        }
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let attribute = |name: &str, why: String| Refusal::new(Code::ATTRIBUTE, why).slot(name);
        let mode = node.str("mode", "nearest");
        let allowed = if mode == "nearest" { check::MOVABLE } else { check::FLOATS };
        let x = check::operand(node, 0, "X", allowed, target)?;
        check::never_empty(&x, "X")?;
        if given(node, 2) {
            check::constant(node, 2, "scales")?;
        }
        if node.int("antialias", 0) != 0 && mode != "nearest" {
            return Err(attribute("antialias", "TensorRT does not filter before it samples".into()));
        }
        let mode = Mode::read(node).map_err(|(name, why)| attribute(name, why))?;
        let aim = aim(node, x.shape).map_err(crate::ctx::window::refused)?;
        if aim.dims.contains(&Dim::Known(0)) {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        let changed: Vec<usize> = (0..x.rank())
            .filter(|&axis| {
                aim.dims[axis] == Dim::Unknown
                    || aim.dims[axis] != x.shape[axis]
                    || aim.scales[axis] != Some(1.0)
            })
            .collect();
        if changed.is_empty() {
            return Ok(Plan::Same);
        }
        let whole: Option<Vec<(i64, i64, f32)>> = changed
            .iter()
            .map(|&axis| Some((x.shape[axis].known()?, aim.dims[axis].known()?, aim.scales[axis]?)))
            .collect();
        if let Some(sizes) = &whole {
            let exact = sizes.iter().all(|&(from, to, scale)| exactly(from, to, scale));
            let factor = |&(from, to, _): &(i64, i64, f32)| if to % from == 0 { to / from } else { i64::MAX };
            let largest = sizes.iter().map(factor).max().unwrap_or(i64::MAX);
            let layer_fits = exact && check::FLOATS.contains(&x.dtype) && mode.layer(&changed, x.rank());
            if !layer_fits || !mode.settled(largest) {
                return over_known_dims(&mode, &changed, sizes, x.dtype, target);
            }
        } else if !check::FLOATS.contains(&x.dtype) {
            let why = format!("TensorRT resizes {} over known dims only", x.dtype);
            return Err(Refusal::new(Code::DTYPE_KERNEL, why).slot("X"));
        } else if !mode.layer(&changed, x.rank())
            || node.str("keep_aspect_ratio_policy", "stretch") != "stretch"
        {
            return Err(Refusal::new(
                Code::DIM_UNKNOWN,
                "this mode needs dims that are known before the run",
            )
            .slot("coordinate_transformation_mode")
            .help("give the input's shape with --shape"));
        }
        let to =
            match (whole.is_some(), aim.by_scales) {
                (false, true) => {
                    let scales: Option<Vec<f32>> = aim.scales.iter().copied().collect();
                    To::Scales(scales.ok_or_else(|| {
                        Refusal::new(Code::NOT_CONSTANT, "must be a constant").slot("scales")
                    })?)
                }
                _ => {
                    let fallback = node.attrs().ints("axes").is_none().then_some((3, "sizes"));
                    let own = |axis: usize| match aim.dims[axis] == x.shape[axis] {
                        true => Some(extent::own_dim(node, 0, axis)),
                        false => extent::plan_dim(node, &aim.dims[axis]),
                    };
                    To::Sizes(match (0..x.rank()).map(own).collect::<Option<Vec<_>>>() {
                        Some(list) => ExtentPlan::Dims(list),
                        None => extent::plan_extent(node, &aim.dims, fallback)?,
                    })
                }
            };
        Ok(Plan::Layer(LayerPlan {
            to,
            interpolation: mode.interpolation,
            coordinates: mode.coordinates,
            selector: mode.selector,
            round: mode.nearest.unwrap_or(ResizeRound::Floor),
            cubic_coeff: mode.cubic_coeff,
            exclude_outside: mode.exclude_outside,
        }))
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut x = cx.input(0);
        let dtype = cx.dtype(x);
        match plan {
            Plan::Same => {}
            Plan::Layer(plan) => {
                let to = match &plan.to {
                    To::Scales(scales) => ResizeTo::Scales(scales.clone()),
                    To::Sizes(sizes) => ResizeTo::Sizes(cx.extent(sizes)),
                };
                x = cx.one(Layer::Resize {
                    x,
                    to,
                    interpolation: plan.interpolation,
                    coordinates: plan.coordinates,
                    selector: plan.selector,
                    round: plan.round,
                    cubic_coeff: plan.cubic_coeff,
                    exclude_outside: plan.exclude_outside,
                });
            }
            Plan::Gather(axes) => {
                for (axis, indices) in axes {
                    let indices = cx.i64s(&indices);
                    let mode = GatherMode::Default;
                    x = cx.one(Layer::Gather { data: x, indices, axis: axis as u32, mode, batch_dims: 0 });
                }
            }
            Plan::Weights(axes) => {
                x = floats::widened(cx, x);
                for (axis, matrix) in axes {
                    x = weighted(cx, x, axis, &matrix);
                }
                x = cx.cast(x, dtype);
            }
        }
        vec![x]
    }
}

/// Places along an axis whose indices or weights are written out.
const MOST_PLACES: i64 = 1 << 24;

/// Whether the scale is the ratio of the sizes, so that it does not matter which of them coordinates come from.
fn exactly(from: i64, to: i64, scale: f32) -> bool {
    f64::from(scale) * from as f64 == to as f64 || scale == to as f32 / from as f32
}

/// Indices or weights of each axis that changes.
fn over_known_dims(
    mode: &Mode,
    changed: &[usize],
    sizes: &[(i64, i64, f32)],
    dtype: DType,
    target: &Target,
) -> Result<Plan, Refusal> {
    let samplings =
        changed.iter().zip(sizes).map(|(&axis, &(from, to, scale))| (axis, Sampling { from, to, scale }));
    if let Some(size) = sizes.iter().map(|&(_, to, _)| to).find(|&to| to > MOST_PLACES) {
        return Err(Refusal::new(Code::SHAPE, format!("a dim of {size} would result")));
    }
    if mode.nearest.is_some() {
        return Ok(Plan::Gather(samplings.map(|(axis, s)| (axis, s.nearest(mode))).collect()));
    }
    if target.product() == Product::Rtx && target.sms().contains(&75) {
        return Err(Refusal::new(
            Code::COMPUTE_CAPABILITY,
            format!("this mode takes an f32 matrix product in {dtype}, which TensorRT-RTX lacks for sm75"),
        )
        .help("leave out sm75, or compile it as a target of its own"));
    }
    let mut plans = Vec::new();
    for (axis, sampling) in samplings {
        let (rows, columns) = (sampling.to.max(0) as usize, sampling.from.max(0) as usize);
        if rows.saturating_mul(columns) > 1 << 24 {
            return Err(Refusal::new(Code::SHAPE, format!("weights of {rows} x {columns} for axis {axis}")));
        }
        plans.push((axis, Matrix { rows, columns, values: sampling.weights(mode) }));
    }
    Ok(Plan::Weights(plans))
}

/// The tensor multiplied along one axis.
fn weighted(cx: &mut Emit<'_>, x: TensorId, axis: usize, matrix: &Matrix) -> TensorId {
    let rank = cx.rank(x);
    let (rows, columns) = (matrix.rows as i64, matrix.columns as i64);
    if rank == 1 {
        let a = floats::constant(cx, DType::F32, vec![rows, columns], &matrix.values);
        return cx.one(Layer::MatrixMultiply { a, op_a: MatrixOp::None, b: x, op_b: MatrixOp::Vector });
    }
    let mut dims = vec![1; rank - 2];
    dims.extend([rows, columns]);
    let weights = floats::constant(cx, DType::F32, dims, &matrix.values);
    if axis + 2 == rank {
        return cx.one(Layer::MatrixMultiply {
            a: weights,
            op_a: MatrixOp::None,
            b: x,
            op_b: MatrixOp::None,
        });
    }
    // The axis goes last, and back.
    let mut order: Vec<u32> = (0..rank as u32).collect();
    order.swap(axis, rank - 1);
    let a = cx.transpose(x, order.clone());
    let y = cx.one(Layer::MatrixMultiply { a, op_a: MatrixOp::None, b: weights, op_b: MatrixOp::Transpose });
    cx.transpose(y, order)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::Tensor;

    fn scaled(x: Tensor, scales: &[f32]) -> Case {
        Case::new("Resize", 19).input(x).absent().constant(f32s([scales.len() as i64], scales).clone())
    }

    fn sized(x: Tensor, sizes: &[i64]) -> Case {
        Case::new("Resize", 19).input(x).absent().absent().constant(list(sizes))
    }

    fn f32s(dims: [i64; 1], values: &[f32]) -> Tensor {
        crate::testing::f32s(dims, values)
    }

    const COORDINATES: [&str; 5] =
        ["half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric"];

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let scales = f32s([3], &[1.0, 1.0, 2.0]);
            Case::new("Resize", 19).input(x(&[1, 1, 2])).absent().constant(scales).str("mode", "linear")
        });
        let case = scaled(noise([1, 1, 4]), &[1.0, 1.0, 2.0]);
        case.clone().str("coordinate_transformation_mode", "tf_crop_and_resize").refused(Code::ATTRIBUTE);
        case.clone().str("mode", "linear").int("antialias", 1).refused(Code::ATTRIBUTE);
        case.clone().dynamic(0, ["1", "1", "0"]).refused(Code::SHAPE);
        Case::new("Resize", 19)
            .input(noise([4]))
            .absent()
            .input(f32s([1], &[2.0]))
            .refused(Code::NOT_CONSTANT);
        let open = Case::new("Resize", 19).input(noise([4])).absent().absent().input(list(&[8]));
        open.refused(Code::SHAPE_VALUE);
        let front = scaled(noise([4, 1, 1, 1]), &[2.0, 1.0, 1.0, 1.0]).str("mode", "linear");
        front.clone().dynamic(0, ["N", "1", "1", "1"]).refused(Code::DIM_UNKNOWN);
        front.target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        let whole = Case::new("Resize", 19).input(list(&[1, 2])).absent().constant(f32s([1], &[2.0]));
        whole.dynamic(0, ["N"]).refused(Code::DTYPE_KERNEL);
        Case::new("Resize", 19).absent().refused(Code::INVALID);
    }

    #[test]
    fn types() {
        let case = scaled(noise([1, 2, 4, 5]), &[1.0, 1.0, 2.0, 0.5]);
        assert_eq!(case.dynamic(0, ["N", "2", "H", "W"]).types(), ["f32[N x 2 x 2*H x floordiv(W, 2)]"]);
        let case = sized(noise([1, 2, 4, 5]), &[7, 9]).ints("axes", &[2, 3]);
        assert_eq!(case.dynamic(0, ["N", "2", "H", "W"]).types(), ["f32[N x 2 x 7 x 9]"]);
        let keep = sized(noise([10, 20]), &[5, 15]);
        assert_eq!(keep.clone().str("keep_aspect_ratio_policy", "not_larger").types(), ["f32[5 x 10]"]);
        assert_eq!(keep.str("keep_aspect_ratio_policy", "not_smaller").types(), ["f32[8 x 15]"]);
        assert!(scaled(noise([2]), &[0.0]).invalid().contains("a scale of 0"));
        assert!(sized(noise([2]), &[1, 2]).invalid().contains("2 sizes for 1 axes"));
        assert!(Case::new("Resize", 19).input(noise([2])).invalid().contains("needed"));
    }

    #[test]
    fn nearest() {
        let x = || noise([1, 2, 4, 6]);
        for coordinates in COORDINATES {
            for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] {
                let with = |case: Case| {
                    case.str("coordinate_transformation_mode", coordinates).str("nearest_mode", rounding)
                };
                with(scaled(x(), &[1.0, 1.0, 2.0, 3.0])).check(Tolerance::Exact);
                with(sized(x(), &[1, 2, 7, 3])).check(Tolerance::Exact);
                with(sized(x(), &[1, 2, 1, 1])).check(Tolerance::Exact);
            }
            let open = scaled(x(), &[1.0, 1.0, 2.0, 2.0]).str("coordinate_transformation_mode", coordinates);
            open.str("nearest_mode", "floor").dynamic(0, ["N", "2", "H", "W"]).lowered();
        }
        let open = scaled(x(), &[1.0, 1.0, 2.0, 2.0]).str("coordinate_transformation_mode", "asymmetric");
        open.str("nearest_mode", "floor").dynamic(0, ["N", "2", "H", "W"]).check(Tolerance::Exact);
        scaled(counting([3, 2]), &[2.0, 2.0]).check(Tolerance::Exact);
    }

    #[test]
    fn linear() {
        let x = || noise([1, 2, 4, 6]);
        for coordinates in COORDINATES {
            let with =
                |case: Case| case.str("coordinate_transformation_mode", coordinates).str("mode", "linear");
            with(scaled(x(), &[1.0, 1.0, 2.0, 3.0])).check(F32);
            with(sized(x(), &[1, 2, 7, 3])).check(F32);
            with(sized(x(), &[1, 2, 1, 1])).check(F32);
            with(scaled(x(), &[1.0, 1.0, 1.3, 0.7])).check(F32);
            with(sized(x(), &[1, 2, 5, 8])).dynamic(0, ["N", "2", "4", "6"]).types();
        }
        let open = scaled(x(), &[1.0, 1.0, 2.0, 2.0]).str("mode", "linear");
        open.dynamic(0, ["N", "2", "H", "W"]).check(F32);
        let sizes = sized(x(), &[9, 11]).ints("axes", &[2, 3]).str("mode", "linear");
        sizes.dynamic(0, ["N", "2", "H", "W"]).check(F32);
        sized(noise([1, 5]), &[1, 8]).str("mode", "linear").check(F32);
        sized(noise16([1, 1, 4, 4]), &[1, 1, 8, 8]).str("mode", "linear").check(F16);
    }

    /// Sixteen products, added up in another order.
    const SUMS: Tolerance = Tolerance::Near { rtol: 1e-4, atol: 1e-5 };

    #[test]
    fn cubic() {
        let x = || noise([1, 2, 4, 6]);
        for coordinates in COORDINATES {
            let with =
                |case: Case| case.str("coordinate_transformation_mode", coordinates).str("mode", "cubic");
            with(scaled(x(), &[1.0, 1.0, 2.0, 3.0])).check(SUMS);
            with(sized(x(), &[1, 2, 7, 3])).check(SUMS);
            with(scaled(x(), &[1.0, 1.0, 1.3, 0.7])).float("cubic_coeff_a", -0.5).check(SUMS);
            with(scaled(x(), &[1.0, 1.0, 2.0, 0.8])).int("exclude_outside", 1).check(SUMS);
        }
    }

    #[test]
    fn gates() {
        scaled(noise([1; 9]), &[1.0; 9]).refused(Code::RANK);
    }
}

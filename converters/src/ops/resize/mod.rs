//! Resize: sample at other sizes.
//!
//! X [d0..dn] T, roi, scales [k] f32, sizes [k] i64  ->  Y [e0..en] T
//! Opsets: 10 scales only; 11 modes, sizes; 13 types; 18 antialias, axes, aspect ratio; 19 half_pixel_symmetric.     TensorRT:
//! IResizeLayer; over known dims also IGatherLayer (of what each place is made of, by axis) and, where a place is made of
//! many, IMatrixMultiplyLayer.
//! Limits: scales and sizes constant, or computed from dims, or the dims of the result declared.

mod aim;
mod along;
mod measured;
mod sampling;

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check,
        extent::{self, ExtentPlan},
        floats, shape,
    },
};
use aim::{aim, common, regions, settle};
use along::{combined, gathered, with_outside};
use measured::MeasuredPlan;
use sampling::{Mode, Sampling, Transformation};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};
use trtc_network::{
    Layer,
    layer::{Coordinates, Interpolation, ResizeRound, ResizeSelector, ResizeTo},
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
    Gather(Vec<(usize, Vec<i64>)>, Option<Outside>),
    /// Linear or cubic over known dims, by axis.
    Weights(Vec<(usize, Weights)>, Option<Outside>),
    /// Over known dims, at places that the run works out.
    Measured(MeasuredPlan),
}

/// What stands where a region reaches past the source.
#[derive(Debug)]
pub struct Outside {
    /// Whether a place lies inside, by axis.
    inside: Vec<(usize, Vec<bool>)>,
    value: f32,
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

/// What the places of a result are made of, along one axis.
#[derive(Debug)]
pub enum Weights {
    /// Few each: index and weight of the first of every place, of the second, ….
    Few(Vec<(Vec<i64>, Vec<f64>)>),
    /// Many: a matrix [rows, columns], a row for each place.
    Many {
        /// Places of the result.
        rows: i64,
        /// Places of the source.
        columns: i64,
        /// Row by row.
        values: Vec<f64>,
    },
}

/// Parts of a place that are gathered one by one.
const FEW: usize = 8;

impl Converter for Resize {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Resize", 19)],
        dtypes: check::FLOATS,
        layers: "IResizeLayer, IGatherLayer, IMatrixMultiplyLayer",
        limits: "scales and sizes constant, or computed from dims, or told by the declared result",
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
        let allowed = if mode == "nearest" { check::CARRIED } else { check::FLOATS };
        let x = check::operand(node, 0, "X", allowed, target)?;
        check::never_empty(&x, "X")?;
        let mode = Mode::read(node).map_err(|(name, why)| attribute(name, why))?;
        let mut aim = aim(node, x.shape).map_err(crate::ctx::window::refused)?;
        settle(node, x.shape, &mut aim);
        if aim.dims.contains(&Dim::Known(0)) {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        let crop = mode.transformation == Transformation::Crop;
        let regions = if crop { regions(node, &aim.axes, x.rank())? } else { Some(Vec::new()) };
        let region = |axis: usize| match &regions {
            Some(list) => list.get(axis).copied().unwrap_or((0.0, 1.0)),
            None if aim.axes.contains(&axis) => (f32::NAN, f32::NAN),
            None => (0.0, 1.0),
        };
        let one = Dim::Known(1);
        let changed: Vec<usize> = (0..x.rank())
            .filter(|&axis| {
                // Of one element the same one is sampled wherever the place is.
                let single = x.shape[axis] == one && aim.dims[axis] == one;
                !single
                    && (aim.dims[axis] == Dim::Unknown
                        || aim.dims[axis] != x.shape[axis]
                        || aim.scales[axis] != Some(1.0)
                        || region(axis) != (0.0, 1.0))
            })
            .collect();
        if changed.is_empty() {
            return Ok(Plan::Same);
        }
        let whole: Option<Vec<(i64, i64, f32)>> = changed
            .iter()
            .map(|&axis| Some((x.shape[axis].known()?, aim.dims[axis].known()?, aim.scales[axis]?)))
            .collect();
        let open = |axis: &usize| aim.scales[*axis].is_none() && (aim.by_scales || common(node));
        let symmetric = mode.transformation == Transformation::HalfPixelSymmetric && aim.by_scales;
        let layer_fits = check::FLOATS.contains(&x.dtype)
            && mode.layer(&changed, x.rank())
            && !common(node)
            && !(symmetric && changed.iter().any(|&axis| aim.scales[axis].is_none_or(|s| s.fract() != 0.0)));
        let told = regions.is_some() && !changed.iter().any(open);
        if !told || whole.is_none() && !layer_fits {
            let sizes = changed
                .iter()
                .map(|&axis| Ok((axis, extent::own_dim(node, 0, axis), self.to(node, &aim, axis)?)));
            let at = measured::Axes {
                node,
                all: &aim.axes,
                changed: &sizes.collect::<Result<Vec<_>, Refusal>>()?,
                scales: &aim.scales,
                common: common(node),
                regions: regions.as_deref(),
            };
            return measured::plan(&mode, at, x.dtype, target).map(Plan::Measured);
        }
        if let Some(sizes) = &whole {
            let exact = sizes.iter().all(|&(from, to, scale)| exactly(from, to, scale));
            let factor = |&(from, to, _): &(i64, i64, f32)| if to % from == 0 { to / from } else { i64::MAX };
            let largest = sizes.iter().map(factor).max().unwrap_or(i64::MAX);
            let layer_fits = exact && check::FLOATS.contains(&x.dtype) && mode.layer(&changed, x.rank());
            if !layer_fits || !mode.settled(largest) {
                let samplings = changed.iter().zip(sizes).map(|(&axis, &(from, to, scale))| {
                    (axis, Sampling { from, to, scale, region: region(axis) })
                });
                let value = node.float("extrapolation_value", 0.0);
                return over_known_dims(&mode, &samplings.collect::<Vec<_>>(), value, x.dtype, target);
            }
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
            Plan::Gather(axes, outside) => {
                for (axis, indices) in axes {
                    let indices = cx.i64s(&indices);
                    x = gathered(cx, x, axis, indices);
                }
                x = with_outside(cx, x, outside.as_ref());
            }
            Plan::Weights(axes, outside) => {
                x = floats::widened(cx, x);
                for (axis, weights) in axes {
                    x = combined(cx, x, axis, &weights);
                }
                x = with_outside(cx, x, outside.as_ref());
                x = cx.cast(x, dtype);
            }
            Plan::Measured(plan) => x = measured::emit(cx, x, &plan),
        }
        vec![x]
    }
}

impl Resize {
    /// The dim of the result along an axis that is sampled at places of the run.
    fn to(&self, node: NodeView<'_>, aim: &aim::Aim, axis: usize) -> Result<extent::DimPlan, Refusal> {
        let x = node.input(0).and_then(|x| x.dim(axis));
        if x == Some(&aim.dims[axis]) && aim.dims[axis] != Dim::Unknown {
            return Ok(extent::own_dim(node, 0, axis));
        }
        extent::plan_dim(node, &aim.dims[axis]).ok_or_else(|| {
            let why =
                format!("how long axis {axis} becomes is not known before the run, nor computed from dims");
            match (aim.by_scales, aim.scales[axis]) {
                (true, None) => Refusal::new(Code::NOT_CONSTANT, "must be a constant").slot("scales"),
                (true, Some(_)) => Refusal::new(Code::DIM_UNKNOWN, why).slot("scales"),
                (false, _) if common(node) => {
                    Refusal::new(Code::DIM_UNKNOWN, why).slot("keep_aspect_ratio_policy")
                }
                (false, _) => Refusal::new(Code::SHAPE_VALUE, why).slot("sizes"),
            }
            .help("give the input's shape with --shape")
        })
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
    samplings: &[(usize, Sampling)],
    value: f32,
    dtype: DType,
    target: &Target,
) -> Result<Plan, Refusal> {
    writable(samplings.iter().map(|(_, s)| (s.from, s.to)), mode)?;
    let inside = samplings.iter().map(|(axis, s)| (*axis, s.inside(mode)));
    let inside: Vec<(usize, Vec<bool>)> = inside.filter(|(_, list)| list.contains(&false)).collect();
    let crop = mode.transformation == Transformation::Crop;
    let outside = (crop && !inside.is_empty()).then_some(Outside { inside, value });
    if mode.nearest.is_some() {
        let axes = samplings.iter().map(|(axis, s)| (*axis, s.nearest(mode)));
        return Ok(Plan::Gather(axes.collect(), outside));
    }
    let axes: Vec<(usize, Weights)> =
        samplings.iter().map(|(axis, sampling)| (*axis, weights(sampling, mode))).collect();
    if axes.iter().any(|(_, weights)| matches!(weights, Weights::Many { .. })) {
        product_gate(dtype, target)?;
    }
    Ok(Plan::Weights(axes, outside))
}

fn weights(sampling: &Sampling, mode: &Mode) -> Weights {
    let parts = sampling.parts(mode);
    let most = parts.iter().map(Vec::len).max().unwrap_or(0);
    if most > FEW {
        let (rows, columns) = (sampling.to, sampling.from);
        let mut values = vec![0.0; rows.max(0) as usize * columns.max(0) as usize];
        for (row, parts) in values.chunks_exact_mut(columns.max(1) as usize).zip(&parts) {
            parts.iter().for_each(|&(index, weight)| row[index as usize] = weight);
        }
        return Weights::Many { rows, columns, values };
    }
    // Places of fewer parts repeat one with weight 0.
    let part = |k: usize, parts: &Vec<(i64, f64)>| match (parts.get(k), parts.first()) {
        (Some(&part), _) => part,
        (None, Some(&(index, _))) => (index, 0.0),
        (None, None) => (0, 0.0),
    };
    Weights::Few((0..most.max(1)).map(|k| parts.iter().map(|parts| part(k, parts)).unzip()).collect())
}

/// Whether indices or weights of these axes (from, to) can be written out.
fn writable(axes: impl Iterator<Item = (i64, i64)>, mode: &Mode) -> Result<(), Refusal> {
    for (from, to) in axes {
        if to > MOST_PLACES {
            return Err(Refusal::new(Code::SHAPE, format!("a dim of {to} would result")));
        }
        if mode.nearest.is_none() && from.saturating_mul(to) > MOST_PLACES {
            return Err(Refusal::new(Code::SHAPE, format!("weights of {to} x {from} for an axis")));
        }
    }
    Ok(())
}

/// TensorRT-RTX has no f32 matrix product for sm75.
fn product_gate(dtype: DType, target: &Target) -> Result<(), Refusal> {
    if target.product() == Product::Rtx && target.sms().contains(&75) {
        return Err(Refusal::new(
            Code::COMPUTE_CAPABILITY,
            format!("this mode takes an f32 matrix product in {dtype}, which TensorRT-RTX lacks for sm75"),
        )
        .help("leave out sm75, or compile it as a target of its own"));
    }
    Ok(())
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
        case.clone().str("coordinate_transformation_mode", "spiral").refused(Code::ATTRIBUTE);
        case.clone().dynamic(0, ["1", "1", "0"]).refused(Code::SHAPE);
        Case::new("Resize", 19)
            .input(noise([4]))
            .absent()
            .input(f32s([1], &[2.0]))
            .refused(Code::NOT_CONSTANT);
        let open = Case::new("Resize", 19).input(noise([4])).absent().absent().input(list(&[8]));
        open.refused(Code::SHAPE_VALUE);
        let front = scaled(noise([4, 1, 1, 1]), &[2.0, 1.0, 1.0, 1.0]).str("mode", "linear");
        front.dynamic(0, ["N", "1", "1", "1"]).lowered();
        let keep = sized(noise([4, 6]), &[2, 2]).str("keep_aspect_ratio_policy", "not_larger");
        keep.dynamic(0, ["N", "6"]).refused(Code::DIM_UNKNOWN);
        let many = scaled(noise([1, 1, 60]), &[1.0, 1.0, 0.1]).str("mode", "cubic").int("antialias", 1);
        many.target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
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
    fn antialias() {
        let x = || noise([1, 2, 8, 6]);
        for mode in ["linear", "cubic"] {
            for coordinates in COORDINATES {
                let with = |case: Case| {
                    let case = case.str("coordinate_transformation_mode", coordinates);
                    case.str("mode", mode).int("antialias", 1)
                };
                with(scaled(x(), &[1.0, 1.0, 0.5, 0.3])).check(SUMS);
                with(sized(x(), &[1, 2, 3, 13])).check(SUMS);
                with(scaled(noise([1, 1, 40, 3]), &[1.0, 1.0, 0.1, 1.0])).check(SUMS);
                with(sized(x(), &[1, 2, 5, 1])).int("exclude_outside", 1).check(SUMS);
                let open = with(Case::new("Resize", 19).input(x()).absent());
                open.input(f32s([4], &[1.0, 1.0, 0.4, 1.2])).declared(0, &[1, 2, 3, 7]).check(SUMS);
            }
        }
    }

    #[test]
    fn regions() {
        let x = || noise([1, 1, 5, 6]);
        let roi = |axes: [f32; 4]| f32s([8], &[0.0, 0.0, axes[0], axes[1], 1.0, 1.0, axes[2], axes[3]]);
        for mode in ["nearest", "linear", "cubic"] {
            for axes in [[0.4, 0.61, 0.6, 0.83], [-0.2, 0.1, 0.9, 1.4], [0.55, 0.5, 0.55, 0.5]] {
                let crop = |case: Case| {
                    let case = case.str("coordinate_transformation_mode", "tf_crop_and_resize");
                    case.str("mode", mode).float("extrapolation_value", 10.0)
                };
                let case = || Case::new("Resize", 19).input(x());
                let sizes = |case: Case| crop(case.absent().constant(list(&[1, 1, 4, 3])));
                sizes(case().constant(roi(axes))).check(SUMS);
                sizes(case().input(roi(axes))).check(SUMS);
                let open = crop(case().input(roi(axes)).input(f32s([4], &[1.0, 1.0, 1.4, 0.2])));
                open.declared(0, &[1, 1, 7, 1]).check(SUMS);
            }
        }
        let crop =
            Case::new("Resize", 19).input(x()).str("coordinate_transformation_mode", "tf_crop_and_resize");
        let sizes = |case: Case| case.absent().constant(list(&[1, 1, 4, 3]));
        sizes(crop.clone().absent()).refused(Code::INVALID);
        sizes(crop.input(roi([0.0; 4])).dynamic(1, ["N"])).refused(Code::NOT_CONSTANT);
    }

    #[test]
    fn measured() {
        let x = || noise([2, 3, 4, 6]);
        let open = || Case::new("Resize", 19).input(x()).absent();
        for coordinates in COORDINATES {
            for mode in ["nearest", "linear", "cubic"] {
                let with =
                    |case: Case| case.str("coordinate_transformation_mode", coordinates).str("mode", mode);
                let scales = |values: [f32; 4]| with(open().input(f32s([4], &values)));
                scales([1.0, 1.0, 2.0, 1.5]).declared(0, &[2, 3, 8, 9]).check(SUMS);
                scales([1.0, 1.0, 0.6, 0.8]).declared(0, &[2, 3, 2, 4]).check(SUMS);
                if mode == "cubic" {
                    let scales = scales([1.0, 1.0, 0.3, 1.1]).int("exclude_outside", 1);
                    scales.declared(0, &[2, 3, 1, 6]).check(SUMS);
                }
                let policies =
                    if coordinates == "half_pixel" { &["not_larger", "not_smaller"][..] } else { &[] };
                for &policy in policies {
                    let to = if policy == "not_larger" { [2, 3, 5, 8] } else { [2, 3, 7, 11] };
                    let sizes = with(open().absent().input(list(&[7, 8]))).ints("axes", &[2, 3]);
                    sizes.str("keep_aspect_ratio_policy", policy).declared(0, &to).check(SUMS);
                }
            }
        }
        for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] {
            let case =
                open().input(f32s([2], &[2.0, 0.5])).ints("axes", &[3, 2]).str("nearest_mode", rounding);
            case.declared(0, &[2, 3, 2, 12]).check(Tolerance::Exact);
        }
        let sizes = open().absent().input(list(&[2, 3, 7, 8])).declared(0, &[2, 3, 7, 8]);
        sizes.check(Tolerance::Exact);
        let whole = Case::new("Resize", 19).input(counting([4])).absent().input(f32s([1], &[2.0]));
        whole.declared(0, &[8]).check(Tolerance::Exact);
        let scales = || open().input(f32s([4], &[1.0; 4])).str("mode", "linear").declared(0, &[2, 3, 4, 6]);
        scales().target("rtx-1.7:sm75").lowered();
        let smooth = scales().int("antialias", 1);
        smooth.target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        scales().dynamic(2, ["N"]).refused(Code::NOT_CONSTANT);
    }

    #[test]
    fn over_dims_of_the_run() {
        let open = |case: Case| case.dynamic(0, ["N", "2", "H", "W"]);
        let x = || noise([1, 2, 4, 6]);
        for mode in ["linear", "cubic"] {
            for coordinates in ["half_pixel", "align_corners"] {
                let with = |case: Case| {
                    let case = case.str("coordinate_transformation_mode", coordinates);
                    open(case.str("mode", mode).int("antialias", 1))
                };
                with(sized(x(), &[3, 9]).ints("axes", &[2, 3])).check(SUMS);
                with(scaled(x(), &[1.0, 1.0, 0.5, 1.5])).check(SUMS);
                with(sized(x(), &[1, 1]).ints("axes", &[3, 2])).int("exclude_outside", 1).check(SUMS);
            }
        }
        for coordinates in COORDINATES {
            for rounding in ["round_prefer_floor", "ceil"] {
                let whole = |scales: &[f32]| scaled(counting([4, 3]), scales).str("nearest_mode", rounding);
                let with = |case: Case| case.str("coordinate_transformation_mode", coordinates);
                with(whole(&[2.0, 0.5])).dynamic(0, ["N", "M"]).check(Tolerance::Exact);
            }
        }
        let front = scaled(noise([4, 1, 1, 1]), &[2.0, 1.0, 1.0, 1.0]).str("mode", "linear");
        let half = Case::new("Resize", 19).input(f32s([2], &[1.0, 5.0])).absent().constant(f32s([1], &[2.0]));
        half.dynamic(0, ["N"]).str("mode", "cubic").lowered();
        front.dynamic(0, ["N", "1", "1", "1"]).lowered();
        let symmetric = scaled(x(), &[1.0, 1.0, 0.5, 1.5]).str("mode", "linear");
        open(symmetric.str("coordinate_transformation_mode", "half_pixel_symmetric")).check(SUMS);
        let roi = f32s([4], &[0.2, -0.1, 0.7, 1.3]);
        let crop = Case::new("Resize", 19).input(x()).constant(roi).absent().constant(list(&[3, 1]));
        let crop = crop.ints("axes", &[2, 3]).str("coordinate_transformation_mode", "tf_crop_and_resize");
        open(crop.str("mode", "linear")).check(SUMS);
        let whole = Case::new("Resize", 19).input(list(&[1, 2])).absent().constant(f32s([1], &[2.0]));
        whole.dynamic(0, ["N"]).check(Tolerance::Exact);
    }

    #[test]
    fn gates() {
        scaled(noise([1; 9]), &[1.0; 9]).refused(Code::RANK);
    }
}

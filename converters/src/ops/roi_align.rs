//! RoiAlign: averages or maxima of samples in regions of feature maps.
//!
//! X [n, c, h, w] T, rois [r, 4] T (x1, y1, x2, y2), batch_indices [r] i64  ->  Y [r, c, output_height, output_width] T
//! Opsets: 10 (output_half_pixel); 16 half_pixel; 22 bf16.     TensorRT: IGatherLayer of the four neighbours, IReduceLayer.
//! Limits: sampling_ratio given; c, h, w known; f16, bf16 run in f32.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, floats, reshape, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode, ReduceOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct RoiAlign;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    channels: i64,
    /// Height and width of a map.
    map: [i64; 2],
    /// Height and width of a result.
    output: [i64; 2],
    /// Samples along each side of an element of the result.
    samples: i64,
    scale: f64,
    /// Whether pixels are half a pixel from the edges of their own.
    half_pixel: bool,
    max: bool,
}

/// Samples of one region beyond this number are no gain.
const MOST_SAMPLES: i64 = 1 << 20;

fn output(node: NodeView<'_>) -> [i64; 2] {
    [node.int("output_height", 1), node.int("output_width", 1)]
}

impl Converter for RoiAlign {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("RoiAlign", 22)],
        dtypes: check::FLOATS,
        layers: "IGatherLayer, IElementWiseLayer, IReduceLayer",
        limits: "sampling_ratio at least 1; channels, height and width known",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let (rois, batches) = (shape::dim_of(node, 1, 0), shape::dim_of(node, 2, 0));
        let rois = if rois == Dim::Unknown { batches } else { rois };
        let [h, w] = output(node);
        if h < 1 || w < 1 {
            return Err(Diag::invalid(format!("a result of {h} x {w}")).slot("output_height"));
        }
        let to = vec![rois, shape::dim_of(node, 0, 1), Dim::Known(h), Dim::Known(w)];
        Ok(shape::types([shape::typed(shape::dtype_of(node, 0), Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        let rois = check::operand(node, 1, "rois", check::FLOATS, target)?;
        check::never_empty(&rois, "rois")?;
        check::operand(node, 2, "batch_indices", &[DType::I64], target)?;
        let [_, channels, h, w] = x.shape else {
            return Err(Refusal::new(Code::RANK, format!("rank {}, not 4", x.rank())).slot("X"));
        };
        if rois.rank() != 2 || rois.shape[1] != Dim::Known(4) {
            return Err(Refusal::new(Code::INVALID, "not known to be four numbers each").slot("rois"));
        }
        let (Some(channels), Some(h), Some(w)) = (channels.known(), h.known(), w.known()) else {
            return Err(Refusal::new(
                Code::DIM_UNKNOWN,
                "channels, height and width must be known before the run",
            )
            .slot("X")
            .help("give the input's shape with --shape"));
        };
        let attribute = |name: &str, why: String| Refusal::new(Code::ATTRIBUTE, why).slot(name);
        let half_pixel = match node.str("coordinate_transformation_mode", "half_pixel") {
            "half_pixel" => true,
            "output_half_pixel" => false,
            other => {
                let why = format!("`{other}` is no transformation");
                return Err(attribute("coordinate_transformation_mode", why));
            }
        };
        let max = match node.str("mode", "avg") {
            "avg" => false,
            "max" => true,
            other => return Err(attribute("mode", format!("`{other}` is no pooling"))),
        };
        let samples = node.int("sampling_ratio", 0);
        if samples < 1 {
            let why = "with 0 the number of samples depends on the size of each region";
            return Err(attribute("sampling_ratio", why.into()));
        }
        let output = output(node);
        let count = [output[0], output[1], samples, samples].iter().try_fold(1i64, |n, d| n.checked_mul(*d));
        if count.is_none_or(|n| n > MOST_SAMPLES) || h > 1 << 20 || w > 1 << 20 {
            return Err(Refusal::new(Code::SHAPE, "too many samples of a region").slot("sampling_ratio"));
        }
        let scale = f64::from(node.float("spatial_scale", 1.0));
        Ok(Plan { channels, map: [h, w], output, samples, scale, half_pixel, max })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let dtype = cx.dtype(x);
        let rois = cx.input(1);
        let rois = floats::widened(cx, rois);
        let [h, w] = plan.map;
        // Maps as rows of channels: [n · h · w, c].
        let x = floats::widened(cx, x);
        let rows = cx.transpose(x, vec![0, 2, 3, 1]);
        let rows = cx.reshape(rows, vec![-1, plan.channels]);
        let (down, across) = (side(cx, &plan, rois, 0), side(cx, &plan, rois, 1));
        let batch = cx.input(2);
        let batch = cx.reshape(batch, vec![-1, 1, 1]);
        let size = elementwise::scalar_like(cx, batch, (h * w) as f64);
        let first = cx.elementwise(batch, size, ElementWiseOp::Prod);
        // The four neighbours, weighted.
        let mut corners = Vec::new();
        for (y, wy) in down {
            let y = cx.one(Layer::Unsqueeze { x: y, axes: vec![2] });
            let width = elementwise::scalar_like(cx, y, w as f64);
            let line = cx.elementwise(y, width, ElementWiseOp::Prod);
            let line = cx.elementwise(line, first, ElementWiseOp::Sum);
            let wy = cx.one(Layer::Unsqueeze { x: wy, axes: vec![2] });
            for (x, wx) in across {
                let x = cx.one(Layer::Unsqueeze { x, axes: vec![1] });
                let indices = cx.elementwise(line, x, ElementWiseOp::Sum);
                let wx = cx.one(Layer::Unsqueeze { x: wx, axes: vec![1] });
                let weight = cx.elementwise(wy, wx, ElementWiseOp::Prod);
                let weight = cx.one(Layer::Unsqueeze { x: weight, axes: vec![3] });
                let mode = GatherMode::Default;
                let value = cx.one(Layer::Gather { data: rows, indices, axis: 0, mode, batch_dims: 0 });
                corners.push(cx.elementwise(value, weight, ElementWiseOp::Prod));
            }
        }
        // A maximum is one over the weighted neighbours themselves: so ONNX defines it.
        let op = if plan.max { ElementWiseOp::Max } else { ElementWiseOp::Sum };
        let mut corners = corners.into_iter();
        let Some(mut value) = corners.next() else { return Outputs::new() };
        for corner in corners {
            value = cx.elementwise(value, corner, op);
        }
        let [oh, ow] = plan.output;
        let s = plan.samples;
        let parts = reshape::copying(cx, value, vec![0, oh, s, ow, s, plan.channels]);
        let op = if plan.max { ReduceOp::Max } else { ReduceOp::Avg };
        let y = cx.one(Layer::Reduce { x: parts, op, axes: vec![2, 4], keep_dims: false });
        let y = cx.transpose(y, vec![0, 3, 1, 2]);
        vec![cx.cast(y, dtype)]
    }
}

/// Samples along the height (0) or width (1) of each region: the lower and the higher neighbour, i64 [r, output · samples],
/// each with its weight, which is 0 outside of the map.
fn side(cx: &mut Emit<'_>, plan: &Plan, rois: TensorId, along: usize) -> [(TensorId, TensorId); 2] {
    let column = |cx: &mut Emit<'_>, index: usize| {
        let indices = cx.i64s(&[index as i64]);
        cx.one(Layer::Gather { data: rois, indices, axis: 1, mode: GatherMode::Default, batch_dims: 0 })
    };
    let number = |cx: &mut Emit<'_>, v: f64| cx.scalar(DType::F32, 2, v);
    let (size, output) = (plan.map[along] as f64, plan.output[along]);
    let (start, end) = (column(cx, 1 - along), column(cx, 3 - along));
    let scale = number(cx, plan.scale);
    let offset = number(cx, if plan.half_pixel { 0.5 } else { 0.0 });
    let place = |cx: &mut Emit<'_>, x: TensorId| {
        let x = cx.elementwise(x, scale, ElementWiseOp::Prod);
        cx.elementwise(x, offset, ElementWiseOp::Sub)
    };
    let (start, end) = (place(cx, start), place(cx, end));
    let mut length = cx.elementwise(end, start, ElementWiseOp::Sub);
    if !plan.half_pixel {
        let one = number(cx, 1.0);
        length = cx.elementwise(length, one, ElementWiseOp::Max);
    }
    let parts = number(cx, output as f64);
    let bin = cx.elementwise(length, parts, ElementWiseOp::Div);
    // start + p · bin + (s + ½) · bin / samples, in this order.
    let s = plan.samples;
    let line = |cx: &mut Emit<'_>, f: &dyn Fn(i64) -> f64| {
        let values: Vec<f64> = (0..output * s).map(f).collect();
        floats::constant(cx, DType::F32, vec![1, output * s], &values)
    };
    let whole = line(cx, &|k| (k / s) as f64);
    let within = line(cx, &|k| (k % s) as f64 + 0.5);
    let whole = cx.elementwise(whole, bin, ElementWiseOp::Prod);
    let within = cx.elementwise(within, bin, ElementWiseOp::Prod);
    let count = number(cx, s as f64);
    let within = cx.elementwise(within, count, ElementWiseOp::Div);
    let at = cx.elementwise(start, whole, ElementWiseOp::Sum);
    let at = cx.elementwise(at, within, ElementWiseOp::Sum);
    let (below, above) = (number(cx, -1.0), number(cx, size));
    let too_low = cx.elementwise(at, below, ElementWiseOp::Less);
    let too_high = cx.elementwise(at, above, ElementWiseOp::Greater);
    let outside = cx.elementwise(too_low, too_high, ElementWiseOp::Or);
    let (zero, one, last) = (number(cx, 0.0), number(cx, 1.0), number(cx, size - 1.0));
    let held = cx.elementwise(at, zero, ElementWiseOp::Max);
    let held = cx.elementwise(held, last, ElementWiseOp::Min);
    let low = cx.unary(held, UnaryOp::Floor);
    let high = cx.elementwise(low, one, ElementWiseOp::Sum);
    let high = cx.elementwise(high, last, ElementWiseOp::Min);
    let part = cx.elementwise(held, low, ElementWiseOp::Sub);
    let rest = cx.elementwise(one, part, ElementWiseOp::Sub);
    [(low, rest), (high, part)].map(|(index, weight)| {
        let weight = cx.one(Layer::Select { condition: outside, then_input: zero, else_input: weight });
        (cx.cast(index, DType::I64), weight)
    })
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    fn rois() -> Tensor {
        f32s([3, 4], &[0.0, 0.0, 7.3, 5.1, 1.5, 2.25, 3.75, 4.5, -3.0, 2.0, 9.5, 12.0])
    }

    fn case() -> Case {
        let case = Case::new("RoiAlign", 22).input(noise([2, 3, 7, 8])).input(rois());
        let case = case.input(list(&[1, 0, 1])).int("sampling_ratio", 2);
        case.int("output_height", 3).int("output_width", 4)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let case = Case::new("RoiAlign", 22).input(x(&[1, 1, 2, 2])).input(x(&[1, 4])).input(list(&[0]));
            case.int("sampling_ratio", 1)
        });
        case().int("sampling_ratio", 0).refused(Code::ATTRIBUTE);
        case().str("mode", "sum").refused(Code::ATTRIBUTE);
        case().str("coordinate_transformation_mode", "pixel").refused(Code::ATTRIBUTE);
        case().dynamic(0, ["2", "3", "H", "8"]).refused(Code::DIM_UNKNOWN);
        case().dynamic(0, ["0", "3", "7", "8"]).refused(Code::SHAPE);
        let flat = Case::new("RoiAlign", 22).input(noise([2, 2, 2])).input(rois()).input(list(&[0, 0, 0]));
        flat.refused(Code::RANK);
        Case::new("RoiAlign", 22).input(noise([1, 1, 2, 2])).refused(Code::INVALID);
    }

    #[test]
    fn numbers() {
        assert_eq!(case().dynamic(1, ["R", "4"]).types(), ["f32[R x 3 x 3 x 4]"]);
        assert!(case().int("output_width", 0).invalid().contains("3 x 0"));
        for mode in ["avg", "max"] {
            for transformation in ["half_pixel", "output_half_pixel"] {
                let case = || case().str("mode", mode).str("coordinate_transformation_mode", transformation);
                case().check(F32);
                case().float("spatial_scale", 0.5).int("sampling_ratio", 3).check(F32);
                let open = case().dynamic(0, ["N", "3", "7", "8"]).dynamic(1, ["R", "4"]).dynamic(2, ["R"]);
                open.check(F32);
            }
        }
    }
}

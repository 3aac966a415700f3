//! RoiAlign: averages or maxima of samples in regions of feature maps.
//!
//! X [n, c, h, w] T, rois [r, 4] T (x1, y1, x2, y2), batch_indices [r] i64  ->  Y [r, c, output_height, output_width] T
//! Opsets: 10 (output_half_pixel); 16 half_pixel; 22 bf16.     TensorRT: IGatherLayer of the four neighbours, IReduceLayer; with
//! sampling_ratio 0 an ILoop of as many steps as the region with the most samples needs.
//! Limits: c, h, w known; f16, bf16 run in f32.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise,
        extent::{self, DimPlan, ExtentPlan},
        floats, reshape, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{
        ElementWiseOp, Extent, GatherMode, LoopOutput, LoopOutputKind, Recurrence, ReduceOp, SampleMode,
        TripLimit, UnaryOp,
    },
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
    /// Samples along each side of an element of the result; `None` for ⌈its length⌉, which differs by region.
    samples: Option<i64>,
    /// How many regions there are.
    regions: DimPlan,
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
        layers: "IGatherLayer, IElementWiseLayer, IReduceLayer, ILoop",
        limits: "channels, height and width known",
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
        let samples = (samples > 0).then_some(samples);
        let output = output(node);
        let side = samples.unwrap_or(1);
        let count = [output[0], output[1], side, side].iter().try_fold(1i64, |n, d| n.checked_mul(*d));
        if count.is_none_or(|n| n > MOST_SAMPLES) || h > 1 << 20 || w > 1 << 20 {
            return Err(Refusal::new(Code::SHAPE, "too many samples of a region").slot("sampling_ratio"));
        }
        let scale = f64::from(node.float("spatial_scale", 1.0));
        let regions = extent::own_dim(node, 1, 0);
        Ok(Plan { channels, map: [h, w], output, samples, regions, scale, half_pixel, max })
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
        let batch = cx.input(2);
        let batch = cx.reshape(batch, vec![-1, 1, 1]);
        let size = elementwise::scalar_like(cx, batch, (h * w) as f64);
        let maps = Maps { rows, first: cx.elementwise(batch, size, ElementWiseOp::Prod) };
        let sides = [0, 1].map(|along| Side::emit(cx, &plan, rois, along));
        let y = match plan.samples {
            Some(s) => counted(cx, &plan, &maps, &sides, s),
            None => adaptive(cx, &plan, &maps, &sides),
        };
        let y = cx.transpose(y, vec![0, 3, 1, 2]);
        vec![cx.cast(y, dtype)]
    }
}

/// The maps as rows of channels.
struct Maps {
    /// [n · h · w, c]
    rows: TensorId,
    /// The first row of each region's map: i64 [r, 1, 1].
    first: TensorId,
}

impl Maps {
    /// Samples [r, y, x, c] at places along the height [r, y] and the width [r, x].
    fn sample(&self, cx: &mut Emit<'_>, plan: &Plan, [y, x]: [TensorId; 2]) -> TensorId {
        let (down, across) = (neighbours(cx, plan, y, 0), neighbours(cx, plan, x, 1));
        // The four neighbours, weighted.
        let mut corners = Vec::new();
        for (y, wy) in down {
            let y = cx.one(Layer::Unsqueeze { x: y, axes: vec![2] });
            let width = elementwise::scalar_like(cx, y, plan.map[1] as f64);
            let line = cx.elementwise(y, width, ElementWiseOp::Prod);
            let line = cx.elementwise(line, self.first, ElementWiseOp::Sum);
            let wy = cx.one(Layer::Unsqueeze { x: wy, axes: vec![2] });
            for (x, wx) in across {
                let x = cx.one(Layer::Unsqueeze { x, axes: vec![1] });
                let indices = cx.elementwise(line, x, ElementWiseOp::Sum);
                let wx = cx.one(Layer::Unsqueeze { x: wx, axes: vec![1] });
                let weight = cx.elementwise(wy, wx, ElementWiseOp::Prod);
                let weight = cx.one(Layer::Unsqueeze { x: weight, axes: vec![3] });
                let (data, mode) = (self.rows, GatherMode::Default);
                let value = cx.one(Layer::Gather { data, indices, axis: 0, mode, batch_dims: 0 });
                corners.push(cx.elementwise(value, weight, ElementWiseOp::Prod));
            }
        }
        // A maximum is one over the weighted neighbours themselves: so ONNX defines it.
        let op = if plan.max { ElementWiseOp::Max } else { ElementWiseOp::Sum };
        let value = corners.into_iter().reduce(|a, b| cx.elementwise(a, b, op));
        value.unwrap_or(self.rows)
    }
}

/// Regions along the height (0) or width (1), f32 [r, 1] each.
struct Side {
    start: TensorId,
    /// Length of an element of the result.
    bin: TensorId,
}

impl Side {
    fn emit(cx: &mut Emit<'_>, plan: &Plan, rois: TensorId, along: usize) -> Side {
        let column = |cx: &mut Emit<'_>, index: usize| {
            let indices = cx.i64s(&[index as i64]);
            cx.one(Layer::Gather { data: rois, indices, axis: 1, mode: GatherMode::Default, batch_dims: 0 })
        };
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
        let parts = number(cx, plan.output[along] as f64);
        let bin = cx.elementwise(length, parts, ElementWiseOp::Div);
        Side { start, bin }
    }

    /// start + p · bin + (s + ½) · bin / samples, in this order; p, s + ½ and samples broadcast to [r, k].
    fn places(&self, cx: &mut Emit<'_>, p: TensorId, s: TensorId, samples: TensorId) -> TensorId {
        let whole = cx.elementwise(p, self.bin, ElementWiseOp::Prod);
        let within = cx.elementwise(s, self.bin, ElementWiseOp::Prod);
        let within = cx.elementwise(within, samples, ElementWiseOp::Div);
        let at = cx.elementwise(self.start, whole, ElementWiseOp::Sum);
        cx.elementwise(at, within, ElementWiseOp::Sum)
    }
}

fn number(cx: &mut Emit<'_>, v: f64) -> TensorId {
    cx.scalar(DType::F32, 2, v)
}

/// [1, n] f32.
fn line(cx: &mut Emit<'_>, n: i64, f: impl Fn(i64) -> f64) -> TensorId {
    let values: Vec<f64> = (0..n).map(f).collect();
    floats::constant(cx, DType::F32, vec![1, n], &values)
}

/// As many samples for every region: all at once. [r, output height, output width, c]
fn counted(cx: &mut Emit<'_>, plan: &Plan, maps: &Maps, sides: &[Side; 2], s: i64) -> TensorId {
    let places = [0, 1].map(|along| {
        let n = plan.output[along] * s;
        let (whole, within) = (line(cx, n, |k| (k / s) as f64), line(cx, n, |k| (k % s) as f64 + 0.5));
        let samples = number(cx, s as f64);
        sides[along].places(cx, whole, within, samples)
    });
    let value = maps.sample(cx, plan, places);
    let [oh, ow] = plan.output;
    let parts = reshape::copying(cx, value, vec![0, oh, s, ow, s, plan.channels]);
    let op = if plan.max { ReduceOp::Max } else { ReduceOp::Avg };
    cx.one(Layer::Reduce { x: parts, op, axes: vec![2, 4], keep_dims: false })
}

/// ⌈length / output⌉ samples: a step for each pair of them that any region has, in which regions that have fewer stand by.
/// [r, output height, output width, c]
fn adaptive(cx: &mut Emit<'_>, plan: &Plan, maps: &Maps, sides: &[Side; 2]) -> TensorId {
    let zero = number(cx, 0.0);
    // Samples of each region, f32 [r, 1]; none where it ends before it starts.
    let samples = [0, 1].map(|along| {
        let count = cx.unary(sides[along].bin, UnaryOp::Ceil);
        cx.elementwise(count, zero, ElementWiseOp::Max)
    });
    let most = samples.map(|x| {
        let most = cx.one(Layer::Reduce { x, op: ReduceOp::Max, axes: vec![0], keep_dims: true });
        cx.cast(most, DType::I64)
    });
    let steps = cx.elementwise(most[0], most[1], ElementWiseOp::Prod);
    let steps = cx.reshape(steps, Vec::new());
    let [oh, ow] = plan.output;
    let dims = [oh, ow, plan.channels].map(DimPlan::Fixed);
    let size = cx.extent(&ExtentPlan::Dims(std::iter::once(plan.regions.clone()).chain(dims).collect()));
    let x = cx.scalar(DType::F32, 4, if plan.max { f64::NEG_INFINITY } else { 0.0 });
    let still = Extent::Static(vec![0; 4]);
    let (start, stride) = (still.clone(), still);
    let initial = cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None });
    let first = cx.scalar(DType::I64, 0, 0.0);
    let carried = |cx: &mut Emit<'_>, initial: TensorId| {
        let info = cx.info(initial).clone();
        cx.tensor(info.dtype, info.dims)
    };
    let (so_far, step) = (carried(cx, initial), carried(cx, first));
    cx.open_region();
    let goes_on = cx.elementwise(step, steps, ElementWiseOp::Less);
    let number_of = cx.reshape(step, vec![1, 1]);
    let row = cx.elementwise(number_of, most[1], ElementWiseOp::FloorDiv);
    let before = cx.elementwise(row, most[1], ElementWiseOp::Prod);
    let column = cx.elementwise(number_of, before, ElementWiseOp::Sub);
    let (mut places, mut within) = (Vec::new(), Vec::new());
    for (along, index) in [row, column].into_iter().enumerate() {
        let index = cx.cast(index, DType::F32);
        let half = number(cx, 0.5);
        let middle = cx.elementwise(index, half, ElementWiseOp::Sum);
        let whole = line(cx, plan.output[along], |k| k as f64);
        let one = number(cx, 1.0);
        let count = cx.elementwise(samples[along], one, ElementWiseOp::Max);
        places.push(sides[along].places(cx, whole, middle, count));
        within.push(cx.elementwise(index, samples[along], ElementWiseOp::Less));
    }
    let value = maps.sample(cx, plan, [places[0], places[1]]);
    let condition = cx.elementwise(within[0], within[1], ElementWiseOp::And);
    let condition = cx.one(Layer::Unsqueeze { x: condition, axes: vec![2, 3] });
    let op = if plan.max { ElementWiseOp::Max } else { ElementWiseOp::Sum };
    let more = cx.elementwise(so_far, value, op);
    let next = cx.one(Layer::Select { condition, then_input: more, else_input: so_far });
    let one = cx.scalar(DType::I64, 0, 1.0);
    let following = cx.elementwise(step, one, ElementWiseOp::Sum);
    let body = cx.close_region(Vec::new()).layers;
    let recurrences = vec![
        Recurrence { initial, current: so_far, next },
        Recurrence { initial: first, current: step, next: following },
    ];
    let results = vec![LoopOutput { kind: LoopOutputKind::LastValue, value: so_far, axis: 0, length: None }];
    // A count of steps would have to be known where shapes are.
    let limits = vec![(TripLimit::While, goes_on)];
    let total = cx.one(Layer::Loop { limits, recurrences, iterators: Vec::new(), body, results });
    let count = cx.elementwise(samples[0], samples[1], ElementWiseOp::Prod);
    let count = cx.one(Layer::Unsqueeze { x: count, axes: vec![2, 3] });
    if plan.max {
        let zero = cx.scalar(DType::F32, 4, 0.0);
        let condition = cx.elementwise(count, zero, ElementWiseOp::Greater);
        return cx.one(Layer::Select { condition, then_input: total, else_input: zero });
    }
    let one = cx.scalar(DType::F32, 4, 1.0);
    let count = cx.elementwise(count, one, ElementWiseOp::Max);
    cx.elementwise(total, count, ElementWiseOp::Div)
}

/// The lower and the higher neighbour of places [r, k] along the height (0) or width (1), i64 [r, k], each with its weight,
/// which is 0 outside of the map.
fn neighbours(cx: &mut Emit<'_>, plan: &Plan, at: TensorId, along: usize) -> [(TensorId, TensorId); 2] {
    let size = plan.map[along] as f64;
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

    /// Regions of many sizes: of no length, of less than none, outside of the map, larger than it.
    fn uneven() -> Tensor {
        let rows = [
            [0.0, 0.0, 7.3, 5.1],
            [1.5, 2.25, 3.75, 4.5],
            [-3.0, 2.0, 29.5, 12.0],
            [4.0, 3.0, 4.0, 3.0],
            [5.0, 4.0, 2.0, 1.0],
            [0.2, 0.1, 0.9, 6.9],
        ];
        f32s([6, 4], &rows.concat())
    }

    #[test]
    fn as_many_samples_as_a_region_is_long() {
        for mode in ["avg", "max"] {
            for transformation in ["half_pixel", "output_half_pixel"] {
                for constant in [false, true] {
                    let case = Case::new("RoiAlign", 22).input(noise([2, 3, 7, 8]));
                    let case = if constant { case.constant(uneven()) } else { case.input(uneven()) };
                    let case = case.input(list(&[1, 0, 1, 0, 1, 0])).str("mode", mode);
                    let case = case.str("coordinate_transformation_mode", transformation);
                    let case = case.int("output_height", 2).int("output_width", 3);
                    assert!(case.layers().contains(&"Loop"));
                    case.check(F32);
                    case.clone().float("spatial_scale", 2.5).check(F32);
                    if !constant {
                        let open = case.dynamic(0, ["N", "3", "7", "8"]);
                        open.dynamic(1, ["R", "4"]).dynamic(2, ["R"]).check(F32);
                    }
                }
            }
        }
    }
}

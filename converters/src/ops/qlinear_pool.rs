//! QLinearAveragePool, QLinearGlobalAveragePool (com.microsoft): averages of quantised numbers, quantised.
//!
//! x [n, c, s..] T, x_scale [] f32, (x_zero_point [] T), y_scale [] f32, (y_zero_point [] T)  ->  y [n, c, t..] T; with
//! channels_last c is at the end
//! Opsets: 1.     TensorRT: ISliceLayer for each place of a window, IElementWiseLayer; IReduceLayer in i32 for all of a map.
//! Limits: u8, i8; windows over known dims, of at most 96 places. As ONNX Runtime: a window's real numbers are added one after the
//! other in f32 and the zero point is added before the rounding; over a whole map whole numbers are added.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise, floats,
        integers::{self, BYTES},
        layout,
        quantize::{self, Quantised},
        shape,
        taps::Taps,
        window::{self, Attributes},
    },
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, ReduceOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct QLinearPool;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    way: Way,
    channels_last: bool,
    rank: usize,
    to: DType,
}

#[derive(Debug)]
enum Way {
    /// All of each map.
    Whole,
    /// Windows, and how many elements each counts.
    Windows(Box<Taps>, Vec<f64>),
}

const X: Quantised = Quantised { x: 0, scale: 1, zero: 2 };

/// Scale and zero point of the result.
const Y: (usize, usize) = (3, 4);

fn is_global(node: NodeView<'_>) -> bool {
    node.op() == "QLinearGlobalAveragePool"
}

impl Converter for QLinearPool {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::of("com.microsoft", "QLinearAveragePool", 1),
            Key::of("com.microsoft", "QLinearGlobalAveragePool", 1),
        ],
        dtypes: BYTES,
        layers: "ISliceLayer, IReduceLayer, IElementWiseLayer, IUnaryLayer",
        limits: "windows over known dims, of at most 96 places",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::INVALID,
            Code::ATTRIBUTE,
            Code::DIM_UNKNOWN,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(dims) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        if dims.len() < 3 {
            return Err(Diag::invalid(format!("rank {} has no spatial dims", dims.len())).slot("x"));
        }
        let last = layout::channels_last(node);
        let dims = if last { layout::to_first(dims) } else { dims.to_vec() };
        let to = match is_global(node) {
            true => [&dims[..2], &vec![Dim::Known(1); dims.len() - 2]].concat(),
            false => Attributes::read(node, dims.len() - 2, None)?.outputs(&dims, dims[1].clone(), cx)?,
        };
        let to = if last { layout::to_last(&to) } else { to };
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = X.gate(node, target)?;
        check::never_empty(&x, "x")?;
        quantize::numbers(node, Y, x.dtype, target)?;
        let channels_last = layout::channels_last(node);
        let dims = if channels_last { layout::to_first(x.shape) } else { x.shape.to_vec() };
        let rank = x.rank();
        let plan = |way| Ok(Plan { way, channels_last, rank, to: x.dtype });
        if is_global(node) {
            return plan(Way::Whole);
        }
        let n = window::spatial(&x, "x")?;
        let spatial = &dims[2..];
        let attributes = Attributes::read(node, n, None).map_err(window::refused)?;
        let (before, after) = attributes.pooled_paddings(spatial)?;
        if attributes.dilations.iter().any(|&dilation| dilation != 1) {
            let why = "the operator has no dilated windows";
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("dilations"));
        }
        let whole = spatial.iter().zip(&attributes.kernel).all(|(dim, &k)| dim.known() == Some(k));
        if whole && before.iter().chain(&after).all(|&pad| pad == 0) {
            return plan(Way::Whole);
        }
        let taps = Taps::plan(&attributes, spatial, before, after)?;
        taps.few_in_all()?;
        let mut counts = taps.counts(false);
        if node.int("count_include_pad", 0) != 0 {
            // What a last window has beyond the padding counts, too.
            counts.fill(attributes.kernel.iter().product::<i64>() as f64);
        }
        plan(Way::Windows(Box::new(taps), counts))
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let rank = plan.rank;
        let y_scale = quantize::number(cx, Y.0, rank);
        let y_zero = quantize::zero_point(cx, Y.1, rank);
        let y = match &plan.way {
            Way::Whole => {
                let mut x = cx.input(X.x);
                if cx.node().input(X.zero).is_some() {
                    let zero = elementwise::input(cx, X.zero, rank);
                    x = cx.elementwise(x, zero, ElementWiseOp::Sub);
                }
                let axes: Vec<u32> =
                    if plan.channels_last { 1..rank as u32 - 1 } else { 2..rank as u32 }.collect();
                // scale of x / (scale of y · elements), as f32
                let mut elements = cx.scalar(DType::F32, rank, 1.0);
                for &axis in &axes {
                    let size = cx.dim_of(x, axis as usize);
                    let size = cx.cast(size, DType::F32);
                    let size = cx.reshape(size, vec![1; rank]);
                    elements = cx.elementwise(elements, size, ElementWiseOp::Prod);
                }
                let divisor = cx.elementwise(y_scale, elements, ElementWiseOp::Prod);
                let x_scale = quantize::number(cx, X.scale, rank);
                let factor = cx.elementwise(x_scale, divisor, ElementWiseOp::Div);
                let sum = cx.one(Layer::Reduce { x, op: ReduceOp::Sum, axes, keep_dims: true });
                let sum = cx.cast(sum, DType::F32);
                let scaled = cx.elementwise(sum, factor, ElementWiseOp::Prod);
                integers::quantized(cx, scaled, y_zero, plan.to)
            }
            Way::Windows(taps, counts) => {
                let mut x = X.real(cx, rank);
                if plan.channels_last {
                    x = layout::moved_to_first(cx, x);
                }
                let x = taps.padded(cx, x, 0.0);
                let mut sum = None;
                for place in taps.places() {
                    let part = taps.at(cx, x, &place);
                    sum = Some(sum.map_or(part, |sum| cx.elementwise(sum, part, ElementWiseOp::Sum)));
                }
                let sum = sum.unwrap_or(x);
                let dims = [&[1, 1], taps.output.as_slice()].concat();
                let counts = floats::constant(cx, DType::F32, dims, counts);
                let mean = cx.elementwise(sum, counts, ElementWiseOp::Div);
                let quotient = cx.elementwise(mean, y_scale, ElementWiseOp::Div);
                let moved = cx.elementwise(quotient, y_zero, ElementWiseOp::Sum);
                let y = cx.unary(moved, UnaryOp::Round);
                let y = integers::clamped(cx, y, plan.to);
                if plan.channels_last { layout::moved_to_last(cx, y) } else { y }
            }
        };
        vec![cx.cast(y, carrier(plan.to))]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    const BOTH: [DType; 2] = [DType::U8, DType::I8];

    fn levels<const R: usize>(dtype: DType, dims: [i64; R]) -> Tensor {
        let least = if dtype == DType::I8 { -128.0 } else { 0.0 };
        let n = dims.iter().product::<i64>() as usize;
        let list: Vec<f64> = values(n).iter().map(|v| least + (f64::from(v + 2.0) * 63.9).floor()).collect();
        of_dtype(dtype, dims, &list)
    }

    fn case(op: &str, x: Tensor, scales: [f32; 2], zeros: [f64; 2]) -> Case {
        let zero = |k: usize| of_dtype(x.dtype(), [], &[zeros[k]]);
        let case = Case::of("com.microsoft", op, 1).input(x.clone()).constant(f32s([], &[scales[0]]));
        case.constant(zero(0)).constant(f32s([], &[scales[1]])).constant(zero(1))
    }

    /// Scales of which many a mean is a tie, and others.
    const SCALES: [[f32; 2]; 3] = [[0.1, 0.1], [0.03, 0.06], [0.071, 0.0523]];

    #[test]
    fn windows() {
        for dtype in BOTH {
            for scales in SCALES {
                let pool = |x: Tensor| case("QLinearAveragePool", x, scales, [3.0, 21.0]);
                let image = pool(levels(dtype, [2, 3, 7, 6])).ints("kernel_shape", &[2, 2]);
                image.check(Tolerance::Exact);
                image.clone().ints("strides", &[2, 1]).ints("pads", &[1, 0, 1, 1]).check(Tolerance::Exact);
                let padded = image.clone().ints("pads", &[1, 1, 1, 1]).int("count_include_pad", 1);
                padded.clone().dynamic(0, ["N", "3", "7", "6"]).check(Tolerance::Exact);
                padded.int("ceil_mode", 1).ints("strides", &[2, 2]).check(Tolerance::Exact);
                image.clone().str("auto_pad", "SAME_UPPER").check(Tolerance::Exact);
                let last = image.int("channels_last", 1);
                assert_eq!(last.types(), [format!("{dtype}[2 x 2 x 6 x 6]")]);
                last.check(Tolerance::Exact);
                pool(levels(dtype, [2, 3, 9])).ints("kernel_shape", &[4]).check(Tolerance::Exact);
                pool(levels(dtype, [1, 2, 4, 3, 5])).ints("kernel_shape", &[2, 3, 2]).check(Tolerance::Exact);
            }
        }
    }

    #[test]
    fn whole_maps() {
        for dtype in BOTH {
            for scales in SCALES {
                let x = || levels(dtype, [2, 40, 4, 2]);
                let mean = |x: Tensor| case("QLinearGlobalAveragePool", x, scales, [3.0, 21.0]);
                assert_eq!(mean(x()).types(), [format!("{dtype}[2 x 40 x 1 x 1]")]);
                mean(x()).check(Tolerance::Exact);
                mean(x()).dynamic(0, ["N", "40", "H", "2"]).check(Tolerance::Exact);
                let last = mean(levels(dtype, [2, 4, 2, 40])).int("channels_last", 1);
                assert_eq!(last.types(), [format!("{dtype}[2 x 1 x 1 x 40]")]);
                last.check(Tolerance::Exact);
                // ONNX Runtime takes a window over all of the map for the same.
                let window =
                    case("QLinearAveragePool", x(), scales, [3.0, 21.0]).ints("kernel_shape", &[4, 2]);
                assert!(window.layers().contains(&"Reduce"));
                window.check(Tolerance::Exact);
            }
        }
    }

    #[test]
    fn refusals() {
        let of = |x: Tensor| {
            let case = Case::of("com.microsoft", "QLinearAveragePool", 1).input(x).constant(f32s([], &[0.1]));
            case.absent().constant(f32s([], &[0.1])).ints("kernel_shape", &[2, 2])
        };
        let x = || u8s([1, 1, 3, 3], &[7; 9]);
        of(x()).ints("pads", &[2, 0, 0, 0]).refused(Code::ATTRIBUTE);
        of(x()).ints("dilations", &[2, 1]).refused(Code::ATTRIBUTE);
        of(x()).dynamic(0, ["1", "1", "H", "3"]).refused(Code::DIM_UNKNOWN);
        of(x()).dynamic(0, ["0", "1", "3", "3"]).refused(Code::SHAPE);
        of(x()).untyped(0).refused(Code::DTYPE_UNKNOWN);
        of(x()).unranked(0).refused(Code::RANK_UNKNOWN);
        of(u8s([1; 9], &[1])).ints("kernel_shape", &[1; 7]).refused(Code::RANK);
        of(f64s([1; 4], &[1.0])).ints("kernel_shape", &[1, 1]).refused(Code::DTYPE_UNREPRESENTABLE);
        of(f32s([1; 4], &[1.0])).ints("kernel_shape", &[1, 1]).refused(Code::DTYPE_KERNEL);
        Case::of("com.microsoft", "QLinearGlobalAveragePool", 1).input(x()).refused(Code::INVALID);
        assert!(of(u8s([1, 1], &[1])).invalid().contains("no spatial dims"));
    }
}

//! ConvInteger, QLinearConv: convolutions of 8-bit tensors, exact in f32 while every sum stays below 2²⁴; longer sums in
//! parts of the channels.
//!
//! ConvInteger: x [n, c, spatial..] i8 | u8, w [m, c / group, kernel..] i8 | u8, (zero points [], [] | [m])  ->  y i32
//! QLinearConv: x, scale, zero point, w, scale [] | [m], zero point, y scale, y zero point, (b [m] i32)  ->  y i8 | u8
//! Opsets: 10; com.microsoft QLinearConv 1.     TensorRT: IConvolutionLayer in f32, IUnaryLayer ROUND. Padding is 0 after the zero point is taken off.
//! Limits: as Conv; w known in shape, 16 parts with sums below 2²⁴ (one from the weights where they are constant), of the upper
//! and lower 4 bits where the numbers themselves are too large; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        elementwise,
        integers::{self, Along, Factor, Layout, Sums},
        layout, shape,
        window::{self, Attributes},
    },
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Window},
};

/// The converters.
#[derive(Debug)]
pub struct ConvInteger;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    x: Factor,
    w: Factor,
    window: Window,
    groups: i64,
    rank: usize,
    /// Dtype of QLinearConv's result.
    quantised: Option<DType>,
    /// How sums over the channels of a group are made.
    sums: Sums,
    channels_last: bool,
}

/// Slots of w, of the zero points of x and w.
fn slots(node: NodeView<'_>) -> (usize, usize, usize) {
    if node.op() == "QLinearConv" { (3, 2, 5) } else { (1, 2, 3) }
}

fn kernel(node: NodeView<'_>) -> Option<Vec<i64>> {
    window::kernel(node, slots(node).0)
}

impl Converter for ConvInteger {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("ConvInteger", 10),
            Key::onnx("QLinearConv", 10),
            Key::of("com.microsoft", "QLinearConv", 1),
        ],
        dtypes: integers::BYTES,
        layers: "IConvolutionLayer, IElementWiseLayer, IUnaryLayer",
        limits: "1 to 3 spatial dims; 16 parts of halved factors with sums below 2²⁴; no 3 spatial dims for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::DIM_UNKNOWN,
            Code::ATTRIBUTE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = match node.op() {
            "QLinearConv" => shape::dtype_of(node, 7),
            _ => Some(DType::I32),
        };
        let of = |slot: usize| node.input(slot).and_then(|view| view.shape());
        let (Some(x), Some(w)) = (of(0), of(slots(node).0)) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let last = layout::channels_last(node);
        let x = if last { layout::to_first(x) } else { x.to_vec() };
        if x.len() < 3 || w.len() != x.len() {
            let text = format!("an input of rank {} and weights of rank {}", x.len(), w.len());
            return Err(Diag::invalid(text));
        }
        if let (Dim::Known(c), Dim::Known(k)) = (&x[1], &w[1])
            && k.checked_mul(node.int("group", 1)) != Some(*c)
        {
            return Err(Diag::invalid(format!("{c} channels for weights of {k}")).slot("w"));
        }
        let dims = match window::is_kernel_known(node, slots(node).0) {
            true => Attributes::read(node, x.len() - 2, kernel(node))?.outputs(&x, w[0].clone(), cx)?,
            false => vec![Dim::Unknown; x.len()],
        };
        let dims = if last { layout::to_last(&dims) } else { dims };
        Ok(shape::types([shape::typed(dtype, Some(dims))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (slot, x_zero, w_zero) = slots(node);
        let along = Along::Axis(0);
        let (x, x_operand) = integers::factor(node, (0, "x"), (x_zero, "x_zero_point"), along, target)?;
        let (w, w_operand) = integers::factor(node, (slot, "w"), (w_zero, "w_zero_point"), along, target)?;
        let spatial = window::spatial(&x_operand, "x")?;
        let dims: Option<Vec<i64>> = w_operand.shape.iter().map(Dim::known).collect();
        let dims = dims.ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "the size of the weights is not known before the run").slot("w")
        })?;
        let channels_last = layout::channels_last(node);
        let x_dims = if channels_last { layout::to_first(x_operand.shape) } else { x_operand.shape.to_vec() };
        window::known_channels(&x_dims[1], "x")?;
        let attributes = Attributes::read(node, spatial, kernel(node)).map_err(window::refused)?;
        window::not_turing_3d(DType::F32, spatial, target)?;
        let groups = node.int("group", 1);
        if groups < 1 || dims[0] % groups != 0 {
            let why = format!("{groups} groups do not divide the output channels");
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("group"));
        }
        let (before, after) = attributes.paddings(&x_dims[2..])?;
        window::non_negative(&before, &after)?;
        let terms = dims[1..].iter().try_fold(1i64, |n, &d| n.checked_mul(d)).filter(|&n| n > 0);
        let layout = terms.and_then(|n| usize::try_from(n).ok()).zip(usize::try_from(dims[0]).ok());
        let layout = layout.map(|(terms, outer)| Layout { outer, terms, inner: 1 });
        // Channels can be taken apart, each group's alike; what one channel adds stays together.
        let unit = terms.and_then(|terms| terms.checked_div(dims[1]));
        let sums = integers::sums(node, [&x, &w], terms, unit.unwrap_or(1), layout)?;
        let mut window = attributes.window(before, after);
        if spatial == 1 {
            window = window::over_two_dims(window);
        }
        let quantised = if node.op() == "QLinearConv" { Some(result(node, target)?) } else { None };
        Ok(Plan { x, w, window, groups, rank: x_operand.rank(), quantised, sums, channels_last })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let (mut x, mut kernel) = (integers::emit(cx, &plan.x), integers::emit(cx, &plan.w));
        if plan.channels_last {
            x = layout::moved_to_first(cx, x);
        }
        let flat = plan.rank == 3;
        if flat {
            [x, kernel] = [x, kernel].map(|x| cx.one(Layer::Unsqueeze { x, axes: vec![2] }));
        }
        let (window, groups) = (plan.window, plan.groups);
        let mut y = integers::total(cx, &plan.sums, [x, kernel], |cx, x, kernel, part| {
            let x = integers::taken(cx, x, 1, groups, part);
            let kernel = integers::taken(cx, kernel, 1, 1, part);
            cx.one(Layer::Convolution { x, kernel, bias: None, window: window.clone(), groups })
        });
        if flat {
            y = cx.one(Layer::Squeeze { x: y, axes: vec![2] });
        }
        let Some(to) = plan.quantised else { return vec![cx.cast(y, DType::I32)] };
        let mut sums = cx.cast(y, DType::F32);
        if cx.node().input(8).is_some() {
            let bias = by_channel(cx, 8, plan.rank);
            sums = cx.elementwise(sums, bias, ElementWiseOp::Sum);
        }
        let [x_scale, w_scale, y_scale, zero] = [1, 4, 6, 7].map(|slot| by_channel(cx, slot, plan.rank));
        let factor = cx.elementwise(x_scale, w_scale, ElementWiseOp::Prod);
        let factor = cx.elementwise(factor, y_scale, ElementWiseOp::Div);
        let scaled = cx.elementwise(sums, factor, ElementWiseOp::Prod);
        let mut y = integers::quantized(cx, scaled, zero, to);
        if plan.channels_last {
            y = layout::moved_to_last(cx, y);
        }
        vec![cx.cast(y, carrier(to))]
    }
}

/// Gates of QLinearConv's scales, bias and zero point; the result's dtype.
fn result(node: NodeView<'_>, target: &Target) -> Result<DType, Refusal> {
    for (slot, name, dtype) in [
        (1, "x_scale", DType::F32),
        (4, "w_scale", DType::F32),
        (6, "y_scale", DType::F32),
        (8, "B", DType::I32),
    ] {
        if slot == 8 && node.input(8).is_none() {
            continue;
        }
        let operand = elementwise::gate(node, slot, name, &[dtype], target)?;
        if operand.rank() > 1 {
            return Err(Refusal::new(Code::RANK, format!("rank {}", operand.rank())).slot(name));
        }
    }
    let zero = elementwise::gate(node, 7, "y_zero_point", integers::BYTES, target)?;
    match zero.rank() {
        0 | 1 => Ok(zero.dtype),
        rank => Err(Refusal::new(Code::RANK, format!("rank {rank}")).slot("y_zero_point")),
    }
}

/// A scalar or vector in f32, along the channels.
fn by_channel(cx: &mut Emit<'_>, slot: usize, rank: usize) -> TensorId {
    let x = cx.input(slot);
    let x = cx.cast(x, DType::F32);
    let mut dims = vec![1; rank];
    if let Some(dim) = dims.get_mut(1) {
        *dim = -1;
    }
    cx.reshape(x, dims)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_ir::{Code, Tensor};

    fn bytes(dims: &[i64]) -> Tensor {
        let n = dims.iter().product::<i64>();
        let list: Vec<u8> = (0..n).map(|k| (k * 37 % 256) as u8).collect();
        u8s([n], &list).with_dims(dims.to_vec()).unwrap()
    }

    fn case(x: &[i64], w: &[i64]) -> Case {
        Case::new("ConvInteger", 10).input(bytes(x)).constant(bytes(w))
    }

    #[test]
    fn numbers() {
        let plain = case(&[1, 2, 5, 4], &[3, 2, 3, 3]);
        plain.check(Tolerance::Exact);
        let zeros = plain.constant(u8s([], &[128])).constant(u8s([], &[7]));
        zeros.clone().ints("pads", &[1, 1, 1, 1]).check(Tolerance::Exact);
        zeros.clone().ints("strides", &[2, 1]).dynamic(0, ["N", "2", "H", "4"]).check(Tolerance::Exact);
        zeros.str("auto_pad", "SAME_UPPER").check(Tolerance::Exact);
        // A zero point for each channel.
        let plain =
            case(&[1, 2, 5, 4], &[3, 2, 3, 3]).constant(u8s([], &[128])).constant(u8s([3], &[7, 0, 200]));
        plain.ints("pads", &[1, 0, 2, 1]).check(Tolerance::Exact);
        case(&[1, 4, 5, 4], &[4, 1, 3, 3]).int("group", 4).constant(u8s([], &[3])).check(Tolerance::Exact);
    }

    #[test]
    fn long_sums() {
        let large = |dims: &[i64], odd: u8| {
            let n = dims.iter().product::<i64>();
            let list: Vec<u8> = (0..n).map(|k| if k % 41 == 3 { odd } else { 255 }).collect();
            u8s([n], &list).with_dims(dims.to_vec()).unwrap()
        };
        let case =
            Case::new("ConvInteger", 10).input(large(&[1, 90, 4, 3], 254)).input(large(&[2, 90, 3, 2], 251));
        assert!(case.layers().contains(&"Gather"));
        case.check(Tolerance::Exact);
        case.dynamic(0, ["N", "90", "H", "3"]).check(Tolerance::Exact);
        let line =
            Case::new("ConvInteger", 10).input(large(&[1, 300, 3], 254)).input(large(&[1, 300, 2], 250));
        line.constant(u8s([], &[1])).check(Tolerance::Exact);
        // Groups: channels of each are taken apart alike.
        let grouped = Case::new("ConvInteger", 10)
            .input(large(&[1, 600, 2, 1], 254))
            .input(large(&[4, 300, 1, 1], 251));
        let grouped = grouped.int("group", 2);
        assert!(grouped.layers().contains(&"Gather"));
        grouped.check(Tolerance::Exact);
        grouped.dynamic(0, ["N", "600", "H", "1"]).constant(u8s([], &[3])).check(Tolerance::Exact);
        // A kernel too large for one part of whole numbers: halves, of one factor and of both.
        for (k, products) in [(17, 2), (70, 4)] {
            let wide = Case::new("ConvInteger", 10)
                .input(large(&[1, 2, k, k + 1], 254))
                .input(large(&[2, 1, k, k], 251));
            let wide = wide.int("group", 2).constant(u8s([], &[7])).constant(u8s([], &[9]));
            assert_eq!(wide.layers().iter().filter(|&&name| name == "Convolution").count(), products);
            wide.check(Tolerance::Exact);
        }
    }

    #[test]
    fn one_dim() {
        // ONNX Runtime agrees on the plain sum: x = 0, 37, 74, 111; w = 0, 37.
        let case = case(&[1, 1, 4], &[1, 1, 2]).constant(u8s([], &[10]));
        case.gives(Tolerance::Exact, &[i32s([1, 1, 3], &[27 * 37, 64 * 37, 101 * 37])]);
    }

    #[test]
    fn quantised() {
        quantised_of("", 10);
        quantised_of("com.microsoft", 1);
    }

    fn quantised_of(domain: &str, since: u32) {
        let one = |v: f32| f32s([], &[v]);
        let case = Case::of(domain, "QLinearConv", since).input(bytes(&[1, 2, 5, 4])).constant(one(0.02));
        let case = case.constant(u8s([], &[100])).constant(bytes(&[3, 2, 3, 3]));
        let scaled = case.clone().constant(f32s([3], &[0.03, 0.01, 0.05])).constant(u8s([3], &[120; 3]));
        let scaled = scaled.constant(one(0.7)).constant(u8s([], &[128]));
        scaled.check(Tolerance::Exact);
        if domain == "com.microsoft" {
            let case = Case::of(domain, "QLinearConv", since).input(bytes(&[1, 5, 4, 2])).constant(one(0.02));
            let case = case.constant(u8s([], &[100])).constant(bytes(&[3, 2, 3, 3]));
            let case = case.constant(f32s([3], &[0.03, 0.01, 0.05])).constant(u8s([3], &[120; 3]));
            let last = case.constant(one(0.7)).constant(u8s([], &[128])).int("channels_last", 1);
            assert_eq!(last.types(), ["u8[1 x 3 x 2 x 3]"]);
            last.ints("pads", &[1, 0, 1, 0]).check(Tolerance::Exact);
        }
        scaled.constant(i32s([3], &[100, -2000, 7])).ints("pads", &[1, 0, 1, 0]).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        let dynamic = case(&[1, 1, 4, 4], &[2, 1, 3, 3]).dynamic(0, ["N", "1", "H", "4"]);
        assert_eq!(dynamic.ints("pads", &[1, 1, 1, 1]).types(), ["i32[N x 2 x H x 4]"]);
        assert!(case(&[1], &[1]).invalid().contains("rank 1"));
        assert!(case(&[1, 3, 4, 4], &[2, 1, 3, 3]).invalid().contains("3 channels"));
        Case::new("ConvInteger", 10).types();
        Case::new("QLinearConv", 10).types();
    }

    #[test]
    fn refusals() {
        let w = || bytes(&[1, 1, 1, 1]);
        let x = || Case::new("ConvInteger", 10).input(bytes(&[1, 1, 2, 2]));
        let plain = x().constant(w());
        x().refused(Code::INVALID);
        let of = |x: Tensor| Case::new("ConvInteger", 10).input(x).constant(w());
        of(i32s([1, 1, 1, 1], &[1])).refused(Code::DTYPE_KERNEL);
        of(f64s([1, 1, 1, 1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        plain.clone().untyped(0).refused(Code::DTYPE_UNKNOWN);
        plain.clone().unranked(0).refused(Code::RANK_UNKNOWN);
        case(&[1; 6], &[1; 6]).refused(Code::RANK);
        plain.clone().dynamic(0, ["0", "1", "2", "2"]).refused(Code::SHAPE);
        plain.clone().dynamic(0, ["1", "C", "2", "2"]).refused(Code::DIM_UNKNOWN);
        plain.clone().ints("pads", &[-1, 0, 0, 0]).refused(Code::ATTRIBUTE);
        case(&[1, 1, 2, 2, 2], &[1; 5]).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        // One channel whose kernel alone holds more products than halves of both factors allow.
        let k = 257;
        let wide = Case::new("ConvInteger", 10).input(bytes(&[1, 1, k, k])).input(bytes(&[1, 1, k, k]));
        wide.refused(Code::SHAPE);
    }
}

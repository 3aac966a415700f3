//! DeformConv: convolution that samples where a tensor says.
//!
//! X [n, c, h, w] T, W [m, c/group, kh, kw] T, offset [n, offset_group · kh · kw · 2, oh, ow] T, B [m] T,
//! mask [n, offset_group · kh · kw, oh, ow] T  ->  Y [n, m, oh, ow] T
//! Opsets: 19; 22 bf16.     TensorRT: IGridSampleLayer, IMatrixMultiplyLayer.
//! Limits: two spatial dims; all dims known but the batch; f16 and bf16 run in f32.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, floats, matrix, shape, window},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode, Interpolation, MatrixOp, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct DeformConv;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    channels: i64,
    outputs: i64,
    groups: i64,
    offset_groups: i64,
    /// Height and width of X.
    map: [i64; 2],
    kernel: [i64; 2],
    strides: [i64; 2],
    dilations: [i64; 2],
    before: [i64; 2],
    /// Height and width of Y.
    output: [i64; 2],
}

/// Places of samples that are written out.
const MOST_PLACES: i64 = 1 << 24;

fn attributes(node: NodeView<'_>, spatial: usize) -> Result<window::Attributes, Diag> {
    window::Attributes::read(node, spatial, window::kernel(node, 1).filter(|kernel| kernel.len() == spatial))
}

impl Converter for DeformConv {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("DeformConv", 22)],
        dtypes: check::FLOATS,
        layers: "IGridSampleLayer, IMatrixMultiplyLayer",
        limits: "2 spatial dims; all dims known but the batch; not for sm75",
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

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        if x.len() < 3 {
            return Err(Diag::invalid(format!("rank {} has no spatial dims", x.len())).slot("X"));
        }
        let outputs = shape::dim_of(node, 1, 0);
        if !window::is_kernel_known(node, 1) {
            let to = [vec![x[0].clone(), outputs], vec![Dim::Unknown; x.len() - 2]].concat();
            return Ok(shape::types([shape::typed(dtype, Some(to))]));
        }
        let to = attributes(node, x.len() - 2)?.outputs(x, outputs, cx)?;
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        if x.rank() != 4 {
            return Err(Refusal::new(Code::RANK, format!("rank {}, not 4", x.rank())).slot("X"));
        }
        matrix::gemm_gate(DType::F32, target)?;
        let attributes = attributes(node, 2).map_err(window::refused)?;
        let (before, after) = (&attributes.before, &attributes.after);
        window::non_negative(before, after)?;
        if attributes.auto_pad != window::AutoPad::Explicit {
            return Err(Refusal::new(Code::ATTRIBUTE, "not an attribute of this operator").slot("auto_pad"));
        }
        let open = |slot: &str| {
            Refusal::new(Code::DIM_UNKNOWN, "only the batch may be known no sooner than at run time")
                .slot(slot)
                .help("give the input's shape with --shape")
        };
        let known = |slot: usize, name: &str, axis: usize| {
            let dim = node.input(slot).and_then(|view| view.dim(axis)).and_then(Dim::known);
            dim.filter(|&d| (1..=MOST_PLACES).contains(&d)).ok_or_else(|| open(name))
        };
        let (channels, map) = (known(0, "X", 1)?, [known(0, "X", 2)?, known(0, "X", 3)?]);
        let mut output = [0; 2];
        for (axis, size) in output.iter_mut().enumerate() {
            let room = map[axis] + before[axis] + after[axis] - attributes.reach(axis);
            *size = room.div_euclid(attributes.strides[axis]) + 1;
        }
        let outputs = known(1, "W", 0)?;
        let (groups, offset_groups) = (node.int("group", 1), node.int("offset_group", 1));
        let divides = |n: i64, by: i64| by >= 1 && n % by == 0;
        if !divides(channels, groups) || !divides(outputs, groups) || !divides(channels, offset_groups) {
            let why = format!("{groups} and {offset_groups} groups of {channels} channels");
            return Err(Refusal::new(Code::INVALID, why).slot("group"));
        }
        let taps = attributes.kernel[0].saturating_mul(attributes.kernel[1]);
        let places = output[0].saturating_mul(output[1]).saturating_mul(taps);
        if places > MOST_PLACES {
            return Err(Refusal::new(Code::SHAPE, "a kernel at too many places").slot("W"));
        }
        // The other operands must have just the dims that these give.
        let fixed = |v: i64| Dim::Known(v);
        let batch = &x.shape[0];
        let place = [fixed(output[0]), fixed(output[1])];
        let with = |lead: &[Dim]| [lead, &place].concat();
        let expect = |slot: usize, name: &str, dims: Vec<Dim>| -> Result<(), Refusal> {
            let view = check::operand(node, slot, name, check::FLOATS, target)?;
            let same = view.shape.len() == dims.len()
                && view.shape.iter().zip(&dims).all(|(a, b)| a == b && *a != Dim::Unknown);
            match same && view.dtype == x.dtype {
                true => Ok(()),
                false => Err(open(name)),
            }
        };
        let weights = vec![
            fixed(outputs),
            fixed(channels / groups),
            fixed(attributes.kernel[0]),
            fixed(attributes.kernel[1]),
        ];
        expect(1, "W", weights)?;
        let count = offset_groups.saturating_mul(taps);
        expect(2, "offset", with(&[batch.clone(), fixed(count.saturating_mul(2))]))?;
        if node.input(3).is_some() {
            expect(3, "B", vec![fixed(outputs)])?;
        }
        if node.input(4).is_some() {
            expect(4, "mask", with(&[batch.clone(), fixed(count)]))?;
        }
        let pair = |list: &[i64]| [list[0], list[1]];
        Ok(Plan {
            channels,
            outputs,
            groups,
            offset_groups,
            map,
            kernel: pair(&attributes.kernel),
            strides: pair(&attributes.strides),
            dilations: pair(&attributes.dilations),
            before: pair(before),
            output,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let dtype = cx.dtype(x);
        let wide = |cx: &mut Emit<'_>, slot: usize| {
            let x = cx.input(slot);
            floats::widened(cx, x)
        };
        let (x, offset) = (wide(cx, 0), wide(cx, 2));
        let [oh, ow] = plan.output;
        let taps = plan.kernel[0] * plan.kernel[1];
        // The offset groups of a batch side by side: [n · offset_group, ..].
        let per_group = plan.channels / plan.offset_groups;
        let x = cx.reshape(x, vec![-1, per_group, plan.map[0], plan.map[1]]);
        let grid = grid(cx, &plan, offset);
        let mut samples = cx.one(Layer::GridSample {
            x,
            grid,
            interpolation: Interpolation::Linear,
            align_corners: false,
            mode: SampleMode::Fill,
        });
        if cx.node().input(4).is_some() {
            let mask = wide(cx, 4);
            let mask = cx.reshape(mask, vec![-1, 1, taps * oh, ow]);
            samples = cx.elementwise(samples, mask, ElementWiseOp::Prod);
        }
        let (n, m, groups) = (plan.channels / plan.groups, plan.outputs / plan.groups, plan.groups);
        let columns = cx.reshape(samples, vec![-1, groups, n * taps, oh * ow]);
        let weights = wide(cx, 1);
        let weights = cx.reshape(weights, vec![1, groups, m, n * taps]);
        let (op_a, op_b) = (MatrixOp::None, MatrixOp::None);
        let y = cx.one(Layer::MatrixMultiply { a: weights, op_a, b: columns, op_b });
        let mut y = cx.reshape(y, vec![-1, plan.outputs, oh, ow]);
        if cx.node().input(3).is_some() {
            let bias = wide(cx, 3);
            let bias = cx.reshape(bias, vec![1, plan.outputs, 1, 1]);
            y = cx.elementwise(y, bias, ElementWiseOp::Sum);
        }
        vec![cx.cast(y, dtype)]
    }
}

/// Where each tap of the kernel samples, as GridSample counts: [n · offset_group, taps · oh, ow, 2], x before y.
fn grid(cx: &mut Emit<'_>, plan: &Plan, offset: TensorId) -> TensorId {
    let [oh, ow] = plan.output;
    let taps = plan.kernel[0] * plan.kernel[1];
    let offset = cx.reshape(offset, vec![-1, taps, 2, oh, ow]);
    let offset = cx.transpose(offset, vec![0, 1, 3, 4, 2]);
    let mut base = Vec::new();
    for tap in 0..taps {
        let at = [tap / plan.kernel[1], tap % plan.kernel[1]];
        let place = |axis: usize, k: i64| {
            (k * plan.strides[axis] - plan.before[axis] + at[axis] * plan.dilations[axis]) as f64
        };
        for y in 0..oh {
            for x in 0..ow {
                base.extend([place(0, y), place(1, x)]);
            }
        }
    }
    let base = floats::constant(cx, DType::F32, vec![1, taps, oh, ow, 2], &base);
    let place = cx.elementwise(offset, base, ElementWiseOp::Sum);
    // Pixel p of n lies at (2p + 1) / n − 1.
    let line = |cx: &mut Emit<'_>, f: &dyn Fn(f64) -> f64| {
        let values: Vec<f64> = plan.map.iter().map(|&n| f(n as f64)).collect();
        floats::constant(cx, DType::F32, vec![1, 1, 1, 1, 2], &values)
    };
    let (factor, shift) = (line(cx, &|n| 2.0 / n), line(cx, &|n| 1.0 / n - 1.0));
    let scaled = cx.elementwise(place, factor, ElementWiseOp::Prod);
    let scaled = cx.elementwise(scaled, shift, ElementWiseOp::Sum);
    let indices = cx.i64s(&[1, 0]);
    let (axis, mode) = (4, GatherMode::Default);
    let grid = cx.one(Layer::Gather { data: scaled, indices, axis, mode, batch_dims: 0 });
    cx.reshape(grid, vec![-1, taps * oh, ow, 2])
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    /// Sums of a few products, at places computed in f32.
    const SUMS: Tolerance = Tolerance::Near { rtol: 1e-4, atol: 2e-5 };

    fn case(x: Tensor, w: Tensor, offset: Tensor) -> Case {
        Case::new("DeformConv", 22).input(x).input(w).input(offset)
    }

    fn usual() -> Case {
        case(noise([2, 2, 5, 4]), noise([3, 2, 3, 2]), noise([2, 12, 3, 3]))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| case(x(&[1, 1, 1, 1]), x(&[1, 1, 1, 1]), x(&[1, 2, 1, 1])));
        usual().ints("pads", &[-1, 0, 0, 0]).refused(Code::ATTRIBUTE);
        usual().dynamic(0, ["2", "2", "H", "4"]).refused(Code::DIM_UNKNOWN);
        usual().dynamic(0, ["0", "2", "5", "4"]).refused(Code::SHAPE);
        usual().target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        usual().int("offset_group", 3).refused(Code::INVALID);
        case(noise([1, 1, 4]), noise([1, 1, 2]), noise([1, 2, 3])).refused(Code::RANK);
    }

    #[test]
    fn types() {
        assert_eq!(usual().dynamic(0, ["N", "2", "5", "4"]).types(), ["f32[N x 3 x 3 x 3]"]);
        let open = usual().dynamic(1, ["M", "2", "K", "2"]);
        assert_eq!(open.types(), ["f32[2 x M x ? x ?]"]);
        assert!(case(noise([1, 1]), noise([1, 1]), noise([1, 1])).invalid().contains("no spatial dims"));
    }

    #[test]
    fn numbers() {
        usual().check(SUMS);
        let open = usual().dynamic(0, ["N", "2", "5", "4"]).dynamic(2, ["N", "12", "3", "3"]);
        open.check(SUMS);
        usual().input(noise([3])).input(noise([2, 6, 3, 3])).check(SUMS);
        let padded = case(noise([1, 4, 5, 4]), noise([2, 2, 2, 2]), noise([1, 16, 3, 6]));
        let padded = padded.ints("pads", &[1, 1, 0, 2]).ints("strides", &[2, 1]);
        padded.int("group", 2).int("offset_group", 2).check(SUMS);
        let dilated = case(noise([1, 1, 5, 5]), noise([1, 1, 2, 2]), noise([1, 8, 3, 3]));
        dilated.ints("dilations", &[2, 2]).check(SUMS);
    }
}

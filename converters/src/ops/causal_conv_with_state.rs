//! CausalConvWithState: each channel convolved with a kernel of its own over now and before (ai.onnx and com.microsoft).
//!
//! input [n, c, l] T, weight [c, 1, k] T, (bias [c] T), (past_state [n, c, k-1] T)
//!   ->  output [n, c, l] T, present_state [n, c, k-1] T
//! Opsets: 27; com.microsoft 1.     TensorRT: IConvolutionLayer (one dim as two), IConcatenationLayer, ISliceLayer.
//! Limits: channels and kernel known; com.microsoft: one spatial dim, no dilation, channels first, one state.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check,
        extent::{self, DimPlan, ExtentPlan},
        floats, shape, window,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Tensor};
use trtc_network::{
    Layer, TensorId,
    layer::{ActivationKind, ElementWiseOp, Extent, SampleMode, Window},
};

/// The converters.
#[derive(Debug)]
pub struct CausalConvWithState;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    channels: i64,
    /// Elements of the past that an output sees.
    reach: i64,
    batch: DimPlan,
    length: DimPlan,
    /// The kernel as a constant over two dims, when it is constant.
    flat: Option<Tensor>,
    silu: bool,
    state: bool,
}

fn kernel(node: NodeView<'_>) -> Option<&Dim> {
    node.input(1)?.dim(2)
}

/// Attributes of com.microsoft with which it is what ai.onnx has.
const PLAIN: &[(&str, i64)] = &[
    ("ndim", 1),
    ("dilation", 1),
    ("channels_last", 0),
    ("state_window", 0),
    ("state_length", 0),
    ("state_update_capacity", 0),
    ("state_channels_last", -1),
    ("input_channels", 0),
    ("input_channel_offset", 0),
];

impl Converter for CausalConvWithState {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("CausalConvWithState", 27), Key::of("com.microsoft", "CausalConvWithState", 1)],
        dtypes: check::FLOATS,
        layers: "IConvolutionLayer, IConcatenationLayer, ISliceLayer, IActivationLayer",
        limits: "channels and kernel known; one spatial dim, channels first, no dilation",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let x = shape::same_as_input(node, 0);
        let plain = PLAIN.iter().all(|&(name, value)| node.int(name, value) == value);
        if !plain {
            return Ok(shape::types([shape::typed(x.dtype(), None)]));
        }
        for (axis, from) in [(0, 0), (1, 1)] {
            if let Some(dim) = node.input(0).and_then(|x| x.dim(from)) {
                shape::demand(node, (3, axis), dim, cx)?;
            }
        }
        let one = Dim::Known(1);
        let reach = kernel(node).map_or(Dim::Unknown, |k| k.sub(&one));
        shape::demand(node, (3, 2), &reach, cx)?;
        let state = x.shape().filter(|dims| dims.len() == 3).map(|dims| {
            let mut dims = dims.to_vec();
            dims[2] = reach;
            dims
        });
        let state = shape::typed(x.dtype(), state);
        Ok(shape::types([x, state]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        for &(name, value) in PLAIN {
            if node.int(name, value) != value {
                let why = format!("{}; ai.onnx has only {value}", node.int(name, value));
                return Err(Refusal::new(Code::ATTRIBUTE, why).slot(name));
            }
        }
        let x = check::operand(node, 0, "input", check::FLOATS, target)?;
        check::never_empty(&x, "input")?;
        let w = check::operand(node, 1, "weight", &[x.dtype], target)?;
        check::not_empty(&w, "weight")?;
        if x.rank() != 3 || w.rank() != 3 {
            let why = format!("an input of rank {} and weights of rank {}", x.rank(), w.rank());
            return Err(Refusal::new(Code::INVALID, why));
        }
        window::known_channels(&w.shape[0], "weight")?;
        let unknown = || {
            Refusal::new(Code::DIM_UNKNOWN, "the kernel's size is not known before the run").slot("weight")
        };
        let (channels, kernel) = w.shape[0].known().zip(w.shape[2].known()).ok_or_else(unknown)?;
        if x.shape[1].known().is_some_and(|c| c != channels) || w.shape[1].known().is_some_and(|n| n != 1) {
            return Err(Refusal::new(Code::INVALID, "not one kernel for each channel").slot("weight"));
        }
        if node.input(2).is_some() {
            let bias = check::operand(node, 2, "bias", &[x.dtype], target)?;
            if bias.rank() != 1 {
                return Err(Refusal::new(Code::INVALID, format!("rank {}", bias.rank())).slot("bias"));
            }
        }
        let reach = kernel - 1;
        if node.input(3).is_some() && reach > 0 {
            let past = check::operand(node, 3, "past_state", &[x.dtype], target)?;
            check::not_empty(&past, "past_state")?;
            if past.rank() != 3 || past.shape[2].known().is_some_and(|n| n != reach) {
                let why = format!("not the {reach} elements before the first");
                return Err(Refusal::new(Code::INVALID, why).slot("past_state"));
            }
        }
        let silu = match node.str("activation", "none") {
            "none" | "" => false,
            "silu" | "swish" => true,
            other => {
                let why = format!("`{other}` is no activation of it");
                return Err(Refusal::new(Code::INVALID, why).slot("activation"));
            }
        };
        let state = node.output(1).is_some();
        if state && reach == 0 {
            return Err(Refusal::new(Code::SHAPE, "an empty state").slot("present_state"));
        }
        Ok(Plan {
            channels,
            reach,
            batch: extent::own_dim(node, 0, 0),
            length: extent::own_dim(node, 0, 2),
            flat: w.view.constant().and_then(window::kernel_over_two_dims),
            silu,
            state,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let Plan { channels, reach, batch, length, flat, silu, state } = plan;
        let now = cx.input(0);
        let bias = cx.optional(2);
        let dims = |length: DimPlan| ExtentPlan::Dims(vec![batch.clone(), DimPlan::Fixed(channels), length]);
        let stride = || Extent::Static(vec![1; 3]);
        let x = match cx.node().input(3) {
            _ if reach == 0 => now,
            Some(_) => {
                let past = cx.input(3);
                cx.one(Layer::Concatenation { xs: vec![past, now], axis: 2 })
            }
            None => {
                let dtype = cx.dtype(now);
                let fill = Some(cx.scalar(dtype, 0, 0.0));
                let size = cx.extent(&dims(length.clone().plus(DimPlan::Fixed(reach))));
                let start = Extent::Static(vec![0, 0, -reach]);
                cx.one(Layer::Slice { x: now, start, size, stride: stride(), mode: SampleMode::Fill, fill })
            }
        };
        let kernel = window::emit_kernel(cx, flat);
        let flat = cx.one(Layer::Unsqueeze { x, axes: vec![2] });
        let window = window::over_two_dims(Window {
            kernel: vec![reach + 1],
            stride: vec![1],
            pre_padding: vec![0],
            post_padding: vec![0],
            dilation: vec![1],
        });
        let y = cx.one(Layer::Convolution { x: flat, kernel, bias, window, groups: channels });
        let mut y = cx.one(Layer::Squeeze { x: y, axes: vec![2] });
        if silu {
            y = silu_of(cx, y);
        }
        if !state {
            return vec![y];
        }
        let start = cx.extent(&ExtentPlan::Dims(vec![DimPlan::Fixed(0), DimPlan::Fixed(0), length]));
        let size = cx.extent(&dims(DimPlan::Fixed(reach)));
        let mode = SampleMode::Strict;
        let present = cx.one(Layer::Slice { x, start, size, stride: stride(), mode, fill: None });
        vec![y, present]
    }
}

/// x · sigmoid(x), computed in f32.
fn silu_of(cx: &mut Emit<'_>, x: TensorId) -> TensorId {
    let dtype: DType = cx.dtype(x);
    let wide = floats::widened(cx, x);
    let gate = cx.activation(wide, ActivationKind::Sigmoid, 0.0, 0.0);
    let y = cx.elementwise(wide, gate, ElementWiseOp::Prod);
    cx.cast(y, dtype)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    fn of(x: Tensor, w: Tensor) -> Case {
        Case::of("com.microsoft", "CausalConvWithState", 1).input(x).constant(w)
    }

    #[test]
    fn numbers() {
        let case = || of(noise([2, 3, 7]), noise([3, 1, 4])).outputs(2);
        case().check(F32);
        case().constant(noise([3])).input(noise([2, 3, 3])).str("activation", "silu").check(F32);
        let open = case().absent().input(noise([2, 3, 3])).dynamic(0, ["N", "3", "L"]);
        open.dynamic(3, ["N", "3", "3"]).check(F32);
        case().dynamic(0, ["N", "3", "L"]).str("activation", "swish").check(F32);
        let given = Case::of("com.microsoft", "CausalConvWithState", 1).input(noise([2, 3, 2]));
        given.input(noise([3, 1, 4])).outputs(2).check(F32);
        of(noise([2, 3, 7]), noise([3, 1, 1])).check(F32);
    }

    #[test]
    fn of_the_specification() {
        let case = |x, w| Case::new("CausalConvWithState", 27).input(x).constant(w).outputs(2);
        let small = case(f32s([1, 1, 3], &[1.0, 2.0, 3.0]), f32s([1, 1, 2], &[10.0, 1.0]));
        small.gives(F32, &[f32s([1, 1, 3], &[1.0, 12.0, 23.0]), f32s([1, 1, 1], &[3.0])]);
        let half = case(f16s([1, 1, 1], &[1.0]), f16s([1, 1, 3], &[3.0, 2.0, 1.0])).absent();
        let half = half.input(f16s([1, 1, 2], &[1.0, 2.0]));
        half.gives(F16, &[f16s([1, 1, 1], &[8.0]), f16s([1, 1, 2], &[2.0, 1.0])]);
    }

    #[test]
    fn types() {
        let case = of(noise([2, 3, 7]), noise([3, 1, 4])).outputs(2).dynamic(0, ["N", "3", "L"]);
        assert_eq!(case.types(), ["f32[N x 3 x L]", "f32[N x 3 x 3]"]);
        assert_eq!(case.int("ndim", 2).types(), ["f32[..]", "?"]);
        // The past that is given is what the kernel sees of it.
        let long = of(noise([2, 3, 7]), noise([3, 1, 4])).absent().input(noise([2, 3, 5])).outputs(2);
        assert!(!long.invalid().is_empty());
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| of(x(&[1, 1, 3]), x(&[1, 1, 2])));
        let case = of(noise([2, 3, 7]), noise([3, 1, 4]));
        case.clone().int("ndim", 2).refused(Code::ATTRIBUTE);
        case.clone().int("dilation", 2).refused(Code::ATTRIBUTE);
        case.clone().str("activation", "relu").refused(Code::INVALID);
        case.clone().dynamic(0, ["2", "3", "0"]).refused(Code::SHAPE);
        case.clone().input(noise([3, 1])).refused(Code::INVALID);
        of(noise([2, 3, 7]), noise([3, 2, 4])).refused(Code::INVALID);
        of(noise([2, 3]), noise([3, 1, 4])).refused(Code::INVALID);
        of(noise([2, 3, 7]), noise([3, 1, 1])).outputs(2).refused(Code::SHAPE);
        let open = Case::new("CausalConvWithState", 27).input(noise([2, 3, 7])).input(noise([3, 1, 4]));
        open.clone().dynamic(1, ["3", "1", "K"]).refused(Code::DIM_UNKNOWN);
        open.dynamic(1, ["C", "1", "4"]).refused(Code::DIM_UNKNOWN);
    }
}

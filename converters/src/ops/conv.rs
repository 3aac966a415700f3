//! Conv: convolution over one to three spatial dims.
//!
//! X [N, C, d..] T, W [M, C/group, k..] T, B [M] T  ->  Y [N, M, e..] T
//! Opsets: 1; 11 strides and dilations have defaults; 22 bf16.     TensorRT: IConvolutionLayer (one dim: as two).
//! Limits: channels and kernel known; SAME padding with strides needs known dims; f32 over 3 dims not on sm75.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, shape, window},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Tensor};
use trtc_network::{Layer, TensorId, layer::Window};

/// The converter.
#[derive(Debug)]
pub struct Conv;

/// Window over two or three dims.
#[derive(Debug)]
pub struct Plan {
    window: Window,
    groups: i64,
    /// One spatial dim: the kernel as a constant over two, when it is constant.
    flat: Option<Option<Tensor>>,
}

/// Kernel sizes that the weights say, where all are known.
fn kernel(node: NodeView<'_>) -> Option<Vec<i64>> {
    node.input(1)?.shape()?.get(2..)?.iter().map(Dim::known).collect()
}

impl Converter for Conv {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Conv", 22)],
        dtypes: check::FLOATS,
        layers: "IConvolutionLayer",
        limits: "1 to 3 spatial dims; channels and kernel known; SAME padding with strides needs known dims",
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
        let (x, w) = (node.input(0).and_then(|x| x.shape()), node.input(1).and_then(|w| w.shape()));
        let Some(rank) = x.or(w).map(<[Dim]>::len) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        if rank < 3 || w.is_some_and(|w| w.len() != rank) {
            return Err(Diag::invalid(format!("an input of rank {rank} and weights of another, or below 3")));
        }
        let channels = w.map_or(Dim::Unknown, |w| w[0].clone());
        let group = node.int("group", 1);
        if let (Some(x), Some(w)) = (x, w)
            && let (Dim::Known(c), Dim::Known(k)) = (&x[1], &w[1])
            && k.checked_mul(group) != Some(*c)
        {
            return Err(Diag::invalid(format!("{c} channels for weights of {k} in {group} groups")).slot("W"));
        }
        let known = kernel(node).is_some() || node.attrs().ints("kernel_shape").is_some();
        let dims = match x {
            Some(x) if known => {
                window::Attributes::read(node, rank - 2, kernel(node))?.outputs(x, channels, cx)?
            }
            _ => {
                let mut dims = vec![Dim::Unknown; rank];
                dims[0] = x.map_or(Dim::Unknown, |x| x[0].clone());
                dims[1] = channels;
                dims
            }
        };
        Ok(shape::types([shape::typed(dtype, Some(dims))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        let w = check::operand(node, 1, "W", &[x.dtype], target)?;
        check::not_empty(&w, "W")?;
        if node.input(2).is_some() {
            check::operand(node, 2, "B", &[x.dtype], target)?;
        }
        let spatial = window::spatial(&x, "X")?;
        window::known_channels(&x.shape[1], "X")?;
        window::known_channels(&w.shape[0], "W")?;
        let kernel = kernel(node).ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "the kernel's size is not known before the run").slot("W")
        })?;
        let attributes = window::Attributes::read(node, spatial, Some(kernel)).map_err(window::refused)?;
        window::not_turing_3d(x.dtype, spatial, target)?;
        let groups = node.int("group", 1);
        if groups < 1 || w.shape[0].known().is_some_and(|m| m % groups != 0) {
            return Err(Refusal::new(
                Code::ATTRIBUTE,
                format!("{groups} groups do not divide the output channels"),
            )
            .slot("group"));
        }
        let (before, after) = attributes.paddings(&x.shape[2..])?;
        window::non_negative(&before, &after)?;
        let mut window = attributes.window(before, after);
        let mut flat = None;
        if spatial == 1 {
            window = window::over_two_dims(window);
            flat = Some(w.view.constant().and_then(window::kernel_over_two_dims));
        }
        Ok(Plan { window, groups, flat })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let bias = cx.optional(2);
        let Plan { window, groups, flat } = plan;
        let Some(constant) = flat else {
            let kernel = cx.input(1);
            return vec![cx.one(Layer::Convolution { x, kernel, bias, window, groups })];
        };
        let kernel = window::emit_kernel(cx, constant);
        let x = cx.one(Layer::Unsqueeze { x, axes: vec![2] });
        let y: TensorId = cx.one(Layer::Convolution { x, kernel, bias, window, groups });
        vec![cx.one(Layer::Squeeze { x: y, axes: vec![2] })]
    }
}

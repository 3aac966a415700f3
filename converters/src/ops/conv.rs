//! Conv: convolution over one to three spatial dims. FusedConv (com.microsoft): with a sum and an activation after it.
//!
//! X [N, C, d..] T, W [M, C/group, k..] T, B [M] T, (FusedConv: Z [N, M, e..] T)  ->  Y [N, M, e..] T
//! Opsets: 1; 11 strides and dilations have defaults; 22 bf16.     TensorRT: IConvolutionLayer (one dim: as two);
//! IElementWiseLayer, IActivationLayer.     Limits: channels and kernel known; SAME padding with strides needs known dims; f32 over 3 dims not on sm75.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, shape, window},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Tensor};
use trtc_network::{
    Layer, TensorId,
    layer::{ActivationKind, ElementWiseOp, Window},
};

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
    /// Whether something is added.
    sum: bool,
    activation: Option<(ActivationKind, f32, f32)>,
}

/// The activation of a FusedConv.
fn activation(node: NodeView<'_>) -> Result<Option<(ActivationKind, f32, f32)>, Refusal> {
    let refuse = |why: String| Refusal::new(Code::ATTRIBUTE, why).slot("activation");
    let name = node.str("activation", "");
    let (kind, count) = match name {
        "" => return Ok(None),
        "Relu" => (ActivationKind::Relu, 0),
        "Sigmoid" => (ActivationKind::Sigmoid, 0),
        "Tanh" => (ActivationKind::Tanh, 0),
        "LeakyRelu" => (ActivationKind::LeakyRelu, 1),
        "Clip" => (ActivationKind::Clip, 2),
        "HardSigmoid" => (ActivationKind::HardSigmoid, 2),
        other => return Err(refuse(format!("`{other}` is no activation that ONNX Runtime fuses"))),
    };
    match (count, node.attrs().floats("activation_params").unwrap_or_default()) {
        (0, _) => Ok(Some((kind, 0.0, 0.0))),
        (1, [a]) => Ok(Some((kind, *a, 0.0))),
        (2, [a, b]) => Ok(Some((kind, *a, *b))),
        (count, list) => Err(refuse(format!("{} parameters for `{name}`, not {count}", list.len()))),
    }
}

impl Converter for Conv {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Conv", 22), Key::of("com.microsoft", "FusedConv", 1)],
        dtypes: check::FLOATS,
        layers: "IConvolutionLayer, IElementWiseLayer, IActivationLayer",
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
        let Some(window::Shapes { x, w, rank }) = window::Shapes::of(node)? else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let channels = w.map_or(Dim::Unknown, |w| w[0].clone());
        let group = node.int("group", 1);
        if let (Some(x), Some(w)) = (x, w)
            && let (Dim::Known(c), Dim::Known(k)) = (&x[1], &w[1])
            && k.checked_mul(group) != Some(*c)
        {
            return Err(Diag::invalid(format!("{c} channels for weights of {k} in {group} groups")).slot("W"));
        }
        let dims = match x {
            Some(x) if window::is_kernel_known(node, 1) => {
                window::Attributes::read(node, rank - 2, window::kernel(node, 1))?.outputs(x, channels, cx)?
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
        let filter = window::Filter::read(node, target, 0, window::kernel(node, 1))?;
        filter.divides(&filter.w.shape[0], "output")?;
        let window::Filter { x, w, spatial, attributes, groups } = filter;
        let (before, after) = attributes.paddings(&x.shape[2..])?;
        window::non_negative(&before, &after)?;
        let mut window = attributes.window(before, after);
        let mut flat = None;
        if spatial == 1 {
            window = window::over_two_dims(window);
            flat = Some(w.view.constant().and_then(window::kernel_over_two_dims));
        }
        let fused = !node.domain().is_empty();
        let sum = fused && node.input(3).is_some();
        if sum {
            let z = check::operand(node, 3, "Z", &[x.dtype], target)?;
            if z.rank() != x.rank() {
                return Err(
                    Refusal::new(Code::INVALID, format!("rank {}, not {}", z.rank(), x.rank())).slot("Z")
                );
            }
        }
        let activation = if fused { activation(node)? } else { None };
        Ok(Plan { window, groups, flat, sum, activation })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let bias = cx.optional(2);
        let Plan { window, groups, flat, sum, activation } = plan;
        let mut y: TensorId = match flat {
            None => {
                let kernel = cx.input(1);
                cx.one(Layer::Convolution { x, kernel, bias, window, groups })
            }
            Some(constant) => {
                let kernel = window::emit_kernel(cx, constant);
                let x = cx.one(Layer::Unsqueeze { x, axes: vec![2] });
                let y = cx.one(Layer::Convolution { x, kernel, bias, window, groups });
                cx.one(Layer::Squeeze { x: y, axes: vec![2] })
            }
        };
        if sum {
            let z = cx.input(3);
            y = cx.elementwise(y, z, ElementWiseOp::Sum);
        }
        if let Some((kind, alpha, beta)) = activation {
            y = cx.activation(y, kind, alpha, beta);
        }
        vec![y]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::Tensor;

    fn conv(x: Tensor, w: Tensor) -> Case {
        Case::new("Conv", 22).input(x).constant(w)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("Conv", 22).input(x(&[1, 1, 3, 3])).input(x(&[1, 1, 1, 1])));
        let case = conv(noise([1, 2, 5, 5]), noise([4, 2, 3, 3]));
        Case::new("Conv", 22).input(noise([1, 2, 5, 5])).refused(Code::INVALID);
        case.clone().dynamic(0, ["1", "C", "5", "5"]).refused(Code::DIM_UNKNOWN);
        case.clone().dynamic(0, ["1", "2", "?", "?"]).ints("pads", &[-1, 0, 0, 0]).refused(Code::ATTRIBUTE);
        case.clone().dynamic(0, ["0", "2", "5", "5"]).refused(Code::SHAPE);
        let same = case.dynamic(0, ["1", "2", "H", "5"]).str("auto_pad", "SAME_UPPER");
        same.ints("strides", &[2, 2]).refused(Code::DIM_UNKNOWN);
        conv(noise([1, 1, 2, 2, 2, 2]), noise([1, 1, 1, 1, 1, 1])).refused(Code::RANK);
        let deep = conv(noise([1, 1, 2, 2, 2]), noise([1, 1, 1, 1, 1]));
        deep.target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
    }

    #[test]
    fn types() {
        let case = conv(noise([1, 2, 5, 5]), noise([4, 2, 3, 3])).dynamic(0, ["N", "2", "H", "5"]);
        assert_eq!(
            case.clone().ints("strides", &[2, 1]).types(),
            ["f32[N x 4 x floordiv(H + 1, 2) - 1 x 3]"]
        );
        assert_eq!(case.clone().str("auto_pad", "SAME_LOWER").types(), ["f32[N x 4 x H x 5]"]);
        assert_eq!(case.clone().ints("pads", &[1, 1, 1, 1]).types(), ["f32[N x 4 x H x 5]"]);
        assert_eq!(case.clone().ints("dilations", &[2, 2]).types(), ["f32[N x 4 x H - 4 x 1]"]);
        assert!(case.clone().int("group", 2).invalid().contains("2 channels for weights of 2 in 2 groups"));
        assert!(case.clone().ints("strides", &[0, 1]).invalid().contains("out of range"));
        assert!(case.ints("pads", &[1]).invalid().contains("entries"));
        assert!(conv(noise([1, 2, 2, 2]), noise([4, 2, 3, 3])).invalid().contains("a window of 3"));
    }

    #[test]
    fn numbers() {
        let case = conv(noise([2, 4, 7, 6]), noise([6, 4, 3, 2])).constant(noise([6]));
        case.check(F32);
        case.clone()
            .ints("pads", &[1, 0, 2, 1])
            .ints("strides", &[2, 1])
            .ints("dilations", &[1, 2])
            .check(F32);
        case.clone().dynamic(0, ["N", "4", "H", "W"]).ints("pads", &[2, 1, 2, 1]).check(F32);
        case.clone().str("auto_pad", "SAME_UPPER").ints("strides", &[2, 2]).check(F32);
        case.clone().str("auto_pad", "SAME_LOWER").dynamic(0, ["N", "4", "H", "W"]).check(F32);
        case.str("auto_pad", "VALID").check(F32);
        conv(noise([2, 4, 7, 6]), noise([6, 2, 3, 3])).int("group", 2).check(F32);
        conv(noise([2, 4, 7, 6]), noise([4, 1, 3, 3])).int("group", 4).check(F32);
        conv(noise16([1, 4, 7, 6]), noise16([6, 4, 3, 3])).check(F16);
    }

    #[test]
    fn one_and_three_dims() {
        let case = conv(noise([2, 3, 9]), noise([4, 3, 3])).constant(noise([4]));
        case.clone().ints("pads", &[1, 2]).ints("strides", &[2]).ints("dilations", &[2]).check(F32);
        case.dynamic(0, ["N", "3", "L"]).ints("pads", &[1, 1]).check(F32);
        let given = Case::new("Conv", 22).input(noise([2, 3, 9])).input(noise([4, 3, 3]));
        given.ints("kernel_shape", &[3]).check(F32);
        conv(noise([1, 2, 4, 5, 4]), noise([3, 2, 2, 3, 2])).ints("pads", &[1, 0, 1, 0, 1, 1]).check(F32);
    }

    #[test]
    fn fused() {
        let of = |activation: &str| {
            let case = Case::of("com.microsoft", "FusedConv", 1)
                .input(noise([2, 4, 7, 6]))
                .constant(noise([6, 4, 3, 2]));
            case.constant(noise([6])).str("activation", activation)
        };
        let with =
            |case: Case, list: &[f32]| case.attr("activation_params", trtc_ir::Attr::Floats(list.to_vec()));
        for name in ["Relu", "Sigmoid", "Tanh"] {
            of(name).check(F32);
        }
        with(of("LeakyRelu"), &[0.25]).check(F32);
        with(of("Clip"), &[-0.5, 2.0]).check(F32);
        with(of("HardSigmoid"), &[0.25, 0.5]).check(F32);
        of("Relu").input(noise([2, 6, 5, 5])).check(F32);
        of("Relu").dynamic(0, ["N", "4", "H", "6"]).check(F32);
        of("Gelu").refused(Code::ATTRIBUTE);
        of("LeakyRelu").refused(Code::ATTRIBUTE);
        of("Relu").input(noise([6, 5, 5])).refused(Code::INVALID);
    }

    #[test]
    fn weights_of_the_run() {
        let case =
            Case::new("Conv", 22).input(noise([2, 4, 7, 6])).input(noise([6, 4, 3, 2])).input(noise([6]));
        case.check(F32);
    }
}

//! LpPool: (Σ |x|ᵖ)^(1/p) over windows.
//!
//! X [N, C, d..] T  ->  Y [N, C, e..] T
//! Opsets: 1, 2 (integer p), 11, 18 (dilations, ceil_mode), 22.     TensorRT: IPoolingLayer (average · size of the window);
//! ISliceLayer (dilated windows).
//! Limits: dilated windows need known dims.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, floats, shape, taps::Taps, window},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, PoolKind, Window},
};

/// The converter.
#[derive(Debug)]
pub struct LpPool;

/// Order and window.
#[derive(Debug)]
pub struct Plan {
    p: i64,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// The layer.
    Layer(Window),
    /// Slices of a dilated window.
    Slices(Taps),
}

impl Converter for LpPool {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("LpPool", 22)],
        dtypes: check::FLOATS,
        layers: "IPoolingLayer, ISliceLayer",
        limits: "1 to 3 spatial dims; dilated windows need known dims",
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
        let to = match node.input(0).and_then(|x| x.shape()) {
            Some(x) if x.len() < 3 => {
                return Err(Diag::invalid(format!("rank {} has no spatial dims", x.len())).slot("X"));
            }
            Some(x) => {
                Some(window::Attributes::read(node, x.len() - 2, None)?.outputs(x, x[1].clone(), cx)?)
            }
            None => node.attrs().ints("kernel_shape").map(|k| vec![Dim::Unknown; k.len() + 2]),
        };
        Ok(shape::types([shape::typed(shape::dtype_of(node, 0), to)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        let n = window::spatial(&x, "X")?;
        let attributes = window::Attributes::read(node, n, None).map_err(window::refused)?;
        let p = node.int("p", 2);
        if p < 1 {
            return Err(Refusal::new(Code::ATTRIBUTE, format!("a norm of order {p}")).slot("p"));
        }
        let (before, mut after) = attributes.pooled_paddings(&x.shape[2..])?;
        if attributes.dilations.iter().any(|&dilation| dilation != 1) {
            let taps = Taps::plan(&attributes, &x.shape[2..], before, after)?;
            taps.few_along_axes()?;
            return Ok(Plan { p, way: Way::Slices(taps) });
        }
        let overhang = attributes.overhang(&x.shape[2..], &before, &after)?;
        after.iter_mut().zip(overhang).for_each(|(pad, more)| *pad += more);
        let mut window = attributes.window(before, after);
        if n == 1 {
            window = window::over_two_dims(window);
        }
        Ok(Plan { p, way: Way::Layer(window) })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut x = cx.input(0);
        let dtype = cx.dtype(x);
        let window = match plan.way {
            Way::Layer(window) => window,
            Way::Slices(taps) => {
                let x = floats::widened(cx, x);
                let x = floats::absolute_power(cx, x, plan.p);
                let x = taps.padded(cx, x, 0.0);
                let sum = taps.reduced(cx, x, ElementWiseOp::Sum);
                let y = floats::root(cx, sum, plan.p);
                return vec![cx.cast(y, dtype)];
            }
        };
        let one_dim = cx.rank(x) == 3;
        if one_dim {
            x = cx.one(Layer::Unsqueeze { x, axes: vec![2] });
        }
        let x = floats::widened(cx, x);
        let x = floats::absolute_power(cx, x, plan.p);
        // Padding counts as zeros, so that every window is whole.
        let size: i64 = window.kernel.iter().product();
        let kind = PoolKind::Average;
        let mean = cx.one(Layer::Pooling { x, kind, window, exclude_padding: false, blend: 0.0 });
        let (wide, rank) = (cx.dtype(mean), cx.rank(mean));
        let size = cx.scalar(wide, rank, size as f64);
        let sum = cx.elementwise(mean, size, ElementWiseOp::Prod);
        let mut y = floats::root(cx, sum, plan.p);
        if one_dim {
            y = cx.one(Layer::Squeeze { x: y, axes: vec![2] });
        }
        vec![cx.cast(y, dtype)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn pool(x: trtc_ir::Tensor) -> Case {
        Case::new("LpPool", 22).input(x)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| pool(x(&[1, 1, 3, 3])).ints("kernel_shape", &[2, 2]));
        let case = pool(noise([1, 2, 5, 5])).ints("kernel_shape", &[2, 2]);
        case.clone().ints("pads", &[2, 0, 0, 0]).refused(Code::ATTRIBUTE);
        case.clone().int("p", 0).refused(Code::ATTRIBUTE);
        let dilated = case.clone().ints("dilations", &[2, 1]);
        dilated.dynamic(0, ["1", "2", "H", "5"]).refused(Code::DIM_UNKNOWN);
        case.clone().dynamic(0, ["0", "2", "5", "5"]).refused(Code::SHAPE);
        let same = case.str("auto_pad", "SAME_UPPER").ints("strides", &[2, 2]);
        same.dynamic(0, ["1", "2", "H", "5"]).refused(Code::DIM_UNKNOWN);
        pool(noise([1; 6])).ints("kernel_shape", &[1; 4]).refused(Code::RANK);
        Case::new("LpPool", 22).absent().ints("kernel_shape", &[1]).refused(Code::INVALID);
    }

    #[test]
    fn numbers() {
        let case = || pool(noise([2, 3, 7, 6])).ints("kernel_shape", &[3, 2]);
        assert_eq!(case().dynamic(0, ["N", "3", "H", "W"]).types(), ["f32[N x 3 x H - 2 x W - 1]"]);
        for p in [1, 2, 3] {
            case().int("p", p).check(F32);
        }
        case().ints("pads", &[1, 0, 2, 1]).ints("strides", &[2, 1]).check(F32);
        case().dynamic(0, ["N", "3", "H", "W"]).check(F32);
        case().str("auto_pad", "SAME_UPPER").check(F32);
        case().ints("dilations", &[2, 3]).ints("pads", &[1, 1, 2, 0]).ints("strides", &[1, 2]).check(F32);
        pool(noise([2, 3, 7])).ints("kernel_shape", &[3]).check(F32);
        assert!(pool(noise([2, 3])).ints("kernel_shape", &[]).invalid().contains("no spatial dims"));
    }
}

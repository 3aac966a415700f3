//! LRN: local response normalization across channels.
//!
//! X [N, C, d..] T  ->  Y [N, C, d..] T
//! Opsets: 1, 13.     TensorRT: ILRNLayer; IPoolingLayer over the channels where that one does not fit.
//! Limits: channels known.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, extent, floats, reshape, shape, window},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, PoolKind, Window},
};

/// The converter.
#[derive(Debug)]
pub struct Lrn;

/// x / (k + α/size · Σ x²)^β.
#[derive(Debug)]
pub struct Plan {
    size: i64,
    alpha: f32,
    beta: f32,
    k: f32,
    layer: bool,
    /// [n, 1, c, d·…]
    flat: reshape::ReshapePlan,
    whole: reshape::ReshapePlan,
}

impl Converter for Lrn {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("LRN", 13)],
        dtypes: check::FLOATS,
        layers: "ILRNLayer, IPoolingLayer",
        limits: "channels known",
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
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = window::maps(node, target)?;
        window::known_channels(&x.shape[1], "X")?;
        let size = node.int("size", 0);
        if !(1..=1 << 12).contains(&size) {
            return Err(Refusal::new(Code::ATTRIBUTE, format!("a window of {size} channels")).slot("size"));
        }
        let (alpha, beta, k) = (node.float("alpha", 1e-4), node.float("beta", 0.75), node.float("bias", 1.0));
        // Ranges that NvInfer.h gives for ILRNLayer.
        let layer = x.rank() == 4
            && size % 2 == 1
            && size <= 15
            && (-1e20..=1e20).contains(&alpha)
            && (0.01..=1e5).contains(&beta)
            && (1e-5..=1e10).contains(&k);
        let own = extent::own_dims(node, 0);
        let fixed = extent::DimPlan::Fixed;
        let flat = vec![own[0].clone(), fixed(1), own[1].clone(), fixed(-1)];
        Ok(Plan { size, alpha, beta, k, layer, flat: reshape::of_dims(flat), whole: reshape::of_dims(own) })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let Plan { size, alpha, beta, k, .. } = plan;
        if plan.layer {
            return vec![cx.one(Layer::Lrn { x, window: size, alpha, beta, k })];
        }
        let (dtype, rank) = (cx.dtype(x), cx.rank(x));
        let wide = floats::widened(cx, x);
        let squares = cx.elementwise(wide, wide, ElementWiseOp::Prod);
        let squares = reshape::emit(cx, squares, &plan.flat);
        // The channels are a spatial dim: an average that counts the padding is the sum over the window by its size.
        let window = Window {
            kernel: vec![size, 1],
            stride: vec![1, 1],
            pre_padding: vec![(size - 1) / 2, 0],
            post_padding: vec![size / 2, 0],
            dilation: vec![1, 1],
        };
        let kind = PoolKind::Average;
        let mean = cx.one(Layer::Pooling { x: squares, kind, window, exclude_padding: false, blend: 0.0 });
        let mean = reshape::emit(cx, mean, &plan.whole);
        let scalar = |cx: &mut Emit<'_>, value: f32| cx.scalar(DType::F32, rank, f64::from(value));
        let alpha = scalar(cx, alpha);
        let scaled = cx.elementwise(mean, alpha, ElementWiseOp::Prod);
        let k = scalar(cx, k);
        let sum = cx.elementwise(scaled, k, ElementWiseOp::Sum);
        let beta = scalar(cx, beta);
        let power = cx.elementwise(sum, beta, ElementWiseOp::Pow);
        let y = cx.elementwise(wide, power, ElementWiseOp::Div);
        vec![cx.cast(y, dtype)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn case(size: i64) -> Case {
        Case::new("LRN", 13).input(noise([2, 5, 3, 2])).int("size", size).float("alpha", 0.5)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("LRN", 13).input(x(&[1, 1, 1, 1])).int("size", 3));
        case(0).refused(Code::ATTRIBUTE);
        case(3).dynamic(0, ["2", "C", "3", "2"]).refused(Code::DIM_UNKNOWN);
        case(3).dynamic(0, ["2", "5", "0", "2"]).refused(Code::SHAPE);
        Case::new("LRN", 13).input(noise([2, 5])).int("size", 3).refused(Code::RANK);
        Case::new("LRN", 13).absent().int("size", 3).refused(Code::INVALID);
    }

    #[test]
    fn numbers() {
        assert_eq!(case(3).layers(), ["Lrn"]);
        for size in [1, 3, 5] {
            case(size).check(F32);
        }
        case(3).float("beta", 0.5).float("bias", 2.0).dynamic(0, ["N", "5", "H", "W"]).check(F32);
        // What ILRNLayer does not take.
        case(17).check(F32);
        case(17).dynamic(0, ["N", "5", "H", "W"]).check(F32);
    }

    /// ONNX Runtime takes odd sizes only. Size 2, by hand: one channel after the own one.
    #[test]
    fn even() {
        let x = f32s([1, 3, 1], &[1.0, 2.0, 3.0]);
        let y = f32s([1, 3, 1], &[1.0 / 3.5, 2.0 / 7.5, 3.0 / 5.5]);
        let case = Case::new("LRN", 13).input(x).int("size", 2).float("alpha", 1.0).float("beta", 1.0);
        case.gives(F32, &[y]);
    }
}

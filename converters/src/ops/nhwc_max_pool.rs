//! NhwcMaxPool (com.microsoft): maxima of 8-bit numbers over windows, channels at the end.
//!
//! x [n, s.., c] i8 | u8  ->  y [n, t.., c] i8 | u8
//! Opsets: 1.     TensorRT: ISliceLayer along one axis after the other, IElementWiseLayer, in f32.
//! Limits: windows over known dims, of at most 96 places along all axes together.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise,
        integers::BYTES,
        layout, shape,
        taps::Taps,
        window::{self, Attributes},
    },
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::ElementWiseOp;

/// The converter.
#[derive(Debug)]
pub struct NhwcMaxPool;

/// The windows, and the dtype of the result.
#[derive(Debug)]
pub struct Plan {
    taps: Taps,
    to: DType,
}

impl Converter for NhwcMaxPool {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "NhwcMaxPool", 1)],
        dtypes: BYTES,
        layers: "ISliceLayer, IElementWiseLayer",
        limits: "windows over known dims",
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
        let dims = layout::to_first(dims);
        let to = Attributes::read(node, dims.len() - 2, None)?.outputs(&dims, dims[1].clone(), cx)?;
        Ok(shape::types([shape::typed(dtype, Some(layout::to_last(&to)))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "x", BYTES, target)?;
        check::never_empty(&x, "x")?;
        let n = window::spatial(&x, "x")?;
        let dims = layout::to_first(x.shape);
        let attributes = Attributes::read(node, n, None).map_err(window::refused)?;
        let (before, after) = attributes.pooled_paddings(&dims[2..])?;
        let taps = Taps::plan(&attributes, &dims[2..], before, after)?;
        taps.few_along_axes()?;
        Ok(Plan { taps, to: x.dtype })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let x = cx.cast(x, DType::F32);
        let x = layout::moved_to_first(cx, x);
        let x = plan.taps.padded(cx, x, f64::NEG_INFINITY);
        let y = plan.taps.reduced(cx, x, ElementWiseOp::Max);
        let y = layout::moved_to_last(cx, y);
        vec![cx.cast(y, carrier(plan.to))]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    fn levels(dtype: DType) -> Tensor {
        let least = if dtype == DType::I8 { -128.0 } else { 0.0 };
        let list: Vec<f64> =
            values(252).iter().map(|v| least + (f64::from(v + 2.0) * 63.9).floor()).collect();
        of_dtype(dtype, [2, 7, 6, 3], &list)
    }

    fn case(x: Tensor) -> Case {
        Case::of("com.microsoft", "NhwcMaxPool", 1).input(x).ints("kernel_shape", &[3, 2])
    }

    #[test]
    fn numbers() {
        for dtype in [DType::U8, DType::I8] {
            let pool = case(levels(dtype));
            assert_eq!(pool.types(), [format!("{dtype}[2 x 5 x 5 x 3]")]);
            pool.check(Tolerance::Exact);
            let padded = pool.clone().ints("pads", &[1, 0, 2, 1]).ints("strides", &[2, 1]);
            padded.dynamic(0, ["N", "7", "6", "3"]).check(Tolerance::Exact);
            pool.clone().ints("dilations", &[2, 2]).check(Tolerance::Exact);
            pool.int("ceil_mode", 1).ints("strides", &[3, 2]).check(Tolerance::Exact);
        }
    }

    #[test]
    fn refusals() {
        let x = || levels(DType::U8);
        case(x()).ints("pads", &[3, 0, 0, 0]).refused(Code::ATTRIBUTE);
        case(x()).dynamic(0, ["2", "H", "6", "3"]).refused(Code::DIM_UNKNOWN);
        case(x()).dynamic(0, ["0", "7", "6", "3"]).refused(Code::SHAPE);
        case(x()).untyped(0).refused(Code::DTYPE_UNKNOWN);
        case(x()).unranked(0).refused(Code::RANK_UNKNOWN);
        case(u8s([1; 9], &[1])).ints("kernel_shape", &[1; 7]).refused(Code::RANK);
        case(f64s([1; 4], &[1.0])).ints("kernel_shape", &[1, 1]).refused(Code::DTYPE_UNREPRESENTABLE);
        case(f32s([1; 4], &[1.0])).ints("kernel_shape", &[1, 1]).refused(Code::DTYPE_KERNEL);
        let bare = Case::of("com.microsoft", "NhwcMaxPool", 1).absent().ints("kernel_shape", &[1]);
        bare.refused(Code::INVALID);
        assert!(case(u8s([1, 1], &[1])).invalid().contains("no spatial dims"));
    }
}

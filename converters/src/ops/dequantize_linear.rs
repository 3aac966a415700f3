//! DequantizeLinear: (x − zero point) · scale.
//!
//! x [d0..dn] T, x_scale [] | [di] | [blocks] U, (x_zero_point, as the scale, T)  ->  y [d0..dn] U
//! Opsets: 10; 13 axis; 19 f16, bf16 scales; 21 blocks; 23 output_dtype; 28 2 bits.
//! TensorRT: IDequantizeLayer where x is i8, the zero point 0 and the scale constant, for one scale or for constant x;
//! otherwise computed in f32, exactly.
//! Limits: i8, u8, i32; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise,
        quantize::{self, Granularity},
        shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, TensorId, layer::ElementWiseOp};

/// The converter.
#[derive(Debug)]
pub struct DequantizeLinear;

/// How it is computed.
#[derive(Debug)]
pub struct Plan {
    how: Granularity,
    rank: usize,
    to: DType,
    layer: bool,
    zero_point: bool,
}

const ALLOWED: &[DType] = &[DType::I8, DType::U8, DType::I32];

fn output_dtype(node: NodeView<'_>) -> Option<DType> {
    match i32::try_from(node.int("output_dtype", 0)) {
        Ok(0) | Err(_) => shape::dtype_of(node, 1),
        Ok(number) => DType::from_onnx(number),
    }
}

impl Converter for DequantizeLinear {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("DequantizeLinear", 28)],
        dtypes: ALLOWED,
        layers: "IDequantizeLayer, IElementWiseLayer",
        limits: "scales of blocks constant",
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
            Code::NOT_CONSTANT,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        Ok(shape::types([shape::typed(output_dtype(node), dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "x", ALLOWED, target)?;
        let scale = quantize::scale(node, 1, "x_scale", target)?;
        let to = output_dtype(node).unwrap_or(scale.dtype);
        check::dtype_gate(to, "output_dtype", check::FLOATS, target)?;
        let how = quantize::granularity(node, &x, &scale, "x_scale")?;
        let zero = quantize::zero_point_is_zero(node, 2);
        if !zero {
            elementwise::gate(node, 2, "x_zero_point", ALLOWED, target)?;
        }
        let constant = x.view.constant().is_some();
        let layer = x.dtype == DType::I8
            && zero
            && x.rank() > 0
            && quantize::is_positive_constant(&scale)
            && scale.dtype == to
            && (how == Granularity::Tensor || (matches!(how, Granularity::Axis(_)) && constant));
        Ok(Plan { how, rank: x.rank(), to, layer, zero_point: !zero })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        if plan.layer {
            return vec![by_layer(cx, &plan)];
        }
        let x = cx.input(0);
        let mut y = cx.cast(x, DType::F32);
        if plan.zero_point {
            let zero = quantize::spread(cx, 2, &plan.how, plan.rank);
            y = cx.elementwise(y, zero, ElementWiseOp::Sub);
        }
        let scale = quantize::spread(cx, 1, &plan.how, plan.rank);
        y = cx.elementwise(y, scale, ElementWiseOp::Prod);
        vec![cx.cast(y, plan.to)]
    }
}

fn by_layer(cx: &mut Emit<'_>, plan: &Plan) -> TensorId {
    // A constant stands directly in front of the layer, in i8.
    let constant = cx.node().input(0).and_then(|view| view.constant()).cloned();
    let x = match constant.as_ref().and_then(|c| c.bytes().cloned()).zip(constant.as_ref()) {
        Some((bytes, constant)) => cx.constant(DType::I8, constant.dims().to_vec(), bytes),
        None => cx.input(0),
    };
    let scale = cx.input(1);
    let (scale, axis) = match plan.how {
        Granularity::Axis(axis) => (cx.reshape(scale, vec![-1]), Some(axis as u32)),
        _ => (cx.reshape(scale, Vec::new()), None),
    };
    cx.one(Layer::Dequantize { x, scale, axis, to: plan.to })
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_ir::Code;

    fn case(x: trtc_ir::Tensor) -> Case {
        Case::new("DequantizeLinear", 28).input(x)
    }

    #[test]
    fn numbers() {
        let signed = i8s([2, 3], &[-128, -1, 0, 1, 2, 127]);
        let unsigned = u8s([2, 3], &[0, 1, 2, 128, 200, 255]);
        let by_layer = case(signed.clone()).constant(f32s([], &[0.25]));
        assert_eq!(by_layer.layers(), ["Shuffle", "Dequantize"]);
        by_layer.check(F32);
        by_layer.clone().constant(i8s([], &[0])).dynamic(0, ["N", "3"]).check(F32);
        by_layer.constant(i8s([], &[-3])).check(F32);
        let table = case(unsigned.clone()).constant(f32s([], &[0.5])).constant(u8s([], &[128]));
        table.check(F32);
        table.dynamic(0, ["N", "3"]).check(F32);
        let axis = case(signed.clone()).constant(f32s([3], &[0.5, 0.25, 2.0]));
        axis.clone().constant(i8s([3], &[0, 1, -1])).check(F32);
        axis.check(F32);
        case(signed.clone()).constant(f16s([2], &[0.5, 0.25])).int("axis", 0).check(F16);
        let weights =
            Case::new("DequantizeLinear", 28).constant(signed).constant(f32s([3], &[0.5, 0.25, 2.0]));
        weights.check(F32);
        let weights = Case::new("DequantizeLinear", 28).constant(unsigned).constant(f32s([], &[0.5]));
        weights.constant(u8s([], &[3])).check(F32);
        case(i32s([2], &[1000, -7])).constant(f32s([], &[0.5])).check(F32);
    }

    #[test]
    fn blocks() {
        let x = i8s([2, 5], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let case = case(x).constant(f32s([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        case.clone().int("block_size", 2).int("axis", 1).check(F32);
        case.dynamic(0, ["2", "N"]).int("block_size", 2).int("axis", 1).refused(Code::DIM_UNKNOWN);
    }

    #[test]
    fn types() {
        assert_eq!(case(i8s([1], &[1])).constant(f16s([], &[1.0])).types(), ["f16[1]"]);
        let wide = case(i8s([1], &[1])).constant(f16s([], &[1.0])).int("output_dtype", 1);
        assert_eq!(wide.types(), ["f32[1]"]);
        wide.check(F32);
    }

    #[test]
    fn refusals() {
        let scale = || f32s([], &[1.0]);
        case(i16s([1], &[1])).constant(scale()).refused(Code::DTYPE_UNREPRESENTABLE);
        case(f8s([1], &[0])).constant(scale()).refused(Code::DTYPE_KERNEL);
        case(i8s([1], &[1])).untyped(0).constant(scale()).refused(Code::DTYPE_UNKNOWN);
        case(i8s([1], &[1])).unranked(0).constant(scale()).refused(Code::RANK_UNKNOWN);
        case(i8s([1], &[1])).dynamic(0, ["1"; 9]).constant(scale()).refused(Code::RANK);
        case(i8s([1], &[1])).dynamic(0, ["0"]).constant(scale()).refused(Code::SHAPE);
        let narrow = case(i8s([1], &[1])).constant(bf16s([], &[1.0])).target("rtx-1.7:sm75");
        narrow.refused(Code::COMPUTE_CAPABILITY);
        case(i8s([1], &[1])).refused(Code::INVALID);
        let blocks = case(i8s([1, 2], &[1, 2])).input(f32s([1, 2], &[1.0, 2.0]));
        blocks.clone().refused(Code::INVALID);
        blocks.int("block_size", 1).refused(Code::NOT_CONSTANT);
    }
}

//! DynamicQuantizeLinear: u8 by the range of the tensor itself.
//!
//! x [d0..dn] f32  ->  y [d0..dn] u8, y_scale [] f32, y_zero_point [] u8
//! Opsets: 11.     TensorRT: IReduceLayer, IElementWiseLayer, IUnaryLayer, in f32.
//! Limits: not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, integers, shape},
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The converter.
#[derive(Debug)]
pub struct DynamicQuantizeLinear;

/// Nothing to decide.
#[derive(Debug)]
pub struct Plan;

impl Converter for DynamicQuantizeLinear {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("DynamicQuantizeLinear", 11)],
        dtypes: &[DType::F32],
        layers: "IReduceLayer, IElementWiseLayer, IUnaryLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        let scalar = |dtype| shape::typed(Some(dtype), Some(Vec::new()));
        Ok(shape::types([shape::typed(Some(DType::U8), dims), scalar(DType::F32), scalar(DType::U8)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "x", &[DType::F32], target)?;
        check::never_empty(&x, "x")?;
        Ok(Plan)
    }

    fn emit(&self, _: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let found = integers::dynamic(cx, x);
        let y = cx.cast(found.y, carrier(DType::U8));
        let scale = cx.reshape(found.scale, Vec::new());
        let zero = cx.cast(found.zero, carrier(DType::U8));
        vec![y, scale, cx.reshape(zero, Vec::new())]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn case(x: trtc_ir::Tensor) -> Case {
        Case::new("DynamicQuantizeLinear", 11).input(x).outputs(3)
    }

    #[test]
    fn numbers() {
        let x = f32s([2, 3], &[-1.0, 0.25, 3.0, 7.5, -2.25, 0.0]);
        case(x.clone()).check(F32);
        case(x).dynamic(0, ["N", "3"]).check(F32);
        // One sign only, zeros only, a scalar: the range is widened to hold 0.
        case(f32s([3], &[1.0, 2.0, 3.5])).check(F32);
        case(f32s([3], &[-1.0, -2.0, -3.5])).check(F32);
        case(f32s([2], &[0.0, 0.0])).check(F32);
        case(f32s([], &[4.0])).check(F32);
    }

    #[test]
    fn types() {
        let case = case(f32s([2, 3], &[0.0; 6])).dynamic(0, ["N", "3"]);
        assert_eq!(case.types(), ["u8[N x 3]", "f32[]", "u8[]"]);
    }

    #[test]
    fn refusals() {
        // f16 is no dtype of the operator, so neither is bf16 for sm75.
        let case = Case::new("DynamicQuantizeLinear", 11).outputs(3);
        case.input(f32s([1], &[1.0])).gates_of_f32(f16s([1], &[1.0]));
    }
}

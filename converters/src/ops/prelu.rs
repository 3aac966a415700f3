//! PRelu: x where x ≥ 0, slope · x elsewhere.
//!
//! x [d0..dn] T, slope [broadcasts to x] T  ->  y [d0..dn] T
//! Opsets: 7 broadcasting; 9 integers; 16 bf16.     TensorRT: IParametricReLULayer; integers: ISelectLayer.
//! Limits: f32, f16, bf16, i32, i64; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::ElementWiseOp};

/// The converter.
#[derive(Debug)]
pub struct PRelu;

/// Rank, and whether the elements are integers.
#[derive(Debug)]
pub struct Plan {
    rank: usize,
    integers: bool,
}

impl Converter for PRelu {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("PRelu", 16)],
        dtypes: check::NUMBERS,
        layers: "IParametricReLULayer, ISelectLayer",
        limits: "",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (dtype, rank) = elementwise::gates(node, &["X", "slope"], check::NUMBERS, target)?;
        if node.input(0).and_then(|x| x.rank()) != Some(rank) {
            return Err(Refusal::new(Code::INVALID, "the slope has a higher rank than X").slot("slope"));
        }
        Ok(Plan { rank, integers: dtype.is_int() })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let (x, slopes) = (cx.input(0), elementwise::input(cx, 1, plan.rank));
        if !plan.integers {
            return vec![cx.one(Layer::ParametricRelu { x, slopes })];
        }
        let zero = elementwise::scalar_like(cx, x, 0.0);
        let condition = cx.elementwise(x, zero, ElementWiseOp::Less);
        let scaled = cx.elementwise(x, slopes, ElementWiseOp::Prod);
        vec![cx.one(Layer::Select { condition, then_input: scaled, else_input: x })]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    #[test]
    fn numbers() {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64] {
            let x = of_dtype(
                dtype,
                [2, 3, 2],
                &[-5.0, -1.0, 0.0, 1.0, 2.0, 7.0, -3.0, 4.0, -8.0, 0.0, 1.0, -2.0],
            );
            let case = Case::new("PRelu", 16).input(x);
            case.clone().constant(of_dtype(dtype, [3, 1], &[2.0, -1.0, 0.5])).check(near(dtype));
            case.input(of_dtype(dtype, [1], &[3.0])).dynamic(0, ["N", "3", "M"]).check(near(dtype));
        }
    }

    #[test]
    fn refusals() {
        let case = Case::new("PRelu", 16).input(f32s([1], &[1.0]));
        case.clone().input(f32s([1], &[1.0])).gates(bools([1], &[true]));
        case.input(f32s([1, 1], &[1.0])).refused(Code::INVALID);
    }
}

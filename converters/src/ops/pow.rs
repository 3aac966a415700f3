//! Pow: x to the power of y, with broadcasting; the result has the dtype of x.
//!
//! x [..] T, y [..] U  ->  z [broadcast] T
//! Opsets: 7 broadcasting; 12 unequal dtypes; 13, 15 bf16.     TensorRT: IElementWiseLayer POW, PROD.
//! Limits: floats; integers with integer exponents that are constant and not negative; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::ElementWiseOp;

/// The converter.
#[derive(Debug)]
pub struct Pow;

/// How the power is computed.
#[derive(Debug)]
pub enum Plan {
    /// By multiplication, as ONNX Runtime computes squares and cubes: this many factors, and rank of the result.
    Product(u32, usize),
    /// By the layer; the exponent is cast first.
    Layer(DType, usize),
}

impl Converter for Pow {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Pow", 15)],
        dtypes: check::NUMBERS,
        layers: "IElementWiseLayer",
        limits: "integers: constant exponents, not negative",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::NOT_CONSTANT,
            Code::CONSTANT_VALUE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dims = elementwise::broadcast_shape(node, &[0, 1], cx)?;
        Ok(shape::types([shape::typed(shape::dtype_of(node, 0), dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "X", check::NUMBERS, target)?;
        let y = elementwise::gate(node, 1, "Y", check::NUMBERS, target)?;
        let rank = x.rank().max(y.rank());
        let constant = y.view.constant();
        // One exponent for all: the factors are x itself. A rank-1 exponent must not add dims that broadcast.
        if let Some(value @ (2.0 | 3.0)) = constant.and_then(|c| c.scalar_f64()) {
            return Ok(Plan::Product(value as u32, rank));
        }
        if x.dtype.is_int() {
            if !y.dtype.is_int() {
                let why = format!("{} to a power of {}: rounding would show", x.dtype, y.dtype);
                return Err(Refusal::new(Code::DTYPE_KERNEL, why).slot("Y"));
            }
            let exponents = check::constant_i64s(node, 1, "Y")?;
            if exponents.iter().any(|&e| e < 0) {
                return Err(Refusal::new(Code::CONSTANT_VALUE, "a negative power of an integer").slot("Y"));
            }
        }
        Ok(Plan::Layer(x.dtype, rank))
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        vec![match plan {
            Plan::Product(factors, rank) => {
                let x = elementwise::input(cx, 0, rank);
                (1..factors).fold(x, |product, _| cx.elementwise(product, x, ElementWiseOp::Prod))
            }
            Plan::Layer(dtype, rank) => {
                let (x, y) = (elementwise::input(cx, 0, rank), elementwise::input(cx, 1, rank));
                let y = cx.cast(y, dtype);
                cx.elementwise(x, y, ElementWiseOp::Pow)
            }
        }]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    #[test]
    fn numbers() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let case = Case::new("Pow", 15).input(of_dtype(dtype, [2, 3], &[0.5, 1.0, 2.0, 3.0, 0.0, 4.0]));
            case.clone().input(of_dtype(dtype, [3], &[0.5, 2.0, 1.5])).check(near(dtype));
            case.clone().constant(f32s([], &[2.0])).check(near(dtype));
            case.clone().constant(f32s([1], &[3.0])).dynamic(0, ["N", "3"]).check(near(dtype));
            case.constant(i64s([], &[-1])).check(near(dtype));
        }
        for dtype in [DType::I32, DType::I64] {
            let case = Case::new("Pow", 15).input(of_dtype(dtype, [3], &[-3.0, 0.0, 5.0]));
            case.clone().constant(of_dtype(dtype, [3], &[3.0, 0.0, 4.0])).check(Tolerance::Exact);
            case.constant(f32s([], &[2.0])).check(Tolerance::Exact);
        }
        let square = Case::new("Pow", 15).input(f32s([2], &[-1.5, 2.0])).constant(f32s([1, 1], &[2.0]));
        assert_eq!(square.types(), ["f32[1 x 2]"]);
        square.check(Tolerance::Exact);
    }

    #[test]
    fn refusals() {
        Case::new("Pow", 15).input(f32s([1], &[1.0])).input(f32s([1], &[1.5])).gates(bools([1], &[true]));
        let whole = Case::new("Pow", 15).input(i64s([1], &[3]));
        whole.clone().input(f32s([1], &[1.5])).refused(Code::DTYPE_KERNEL);
        whole.clone().input(i64s([1], &[2])).refused(Code::NOT_CONSTANT);
        whole.constant(i64s([1], &[-2])).refused(Code::CONSTANT_VALUE);
    }
}

//! Pow: x to the power of y, with broadcasting; the result has the dtype of x.
//!
//! x [..] T, y [..] U  ->  z [broadcast] T
//! Opsets: 7 broadcasting; 12 unequal dtypes; 13, 15 bf16.     TensorRT: IElementWiseLayer POW, PROD.
//! Limits: floats; integers with integer exponents (below 0: 1/xⁿ towards zero; 0 to such a power is undefined); not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct Pow;

/// How the power is computed.
#[derive(Debug)]
pub enum Plan {
    /// By multiplication, as ONNX Runtime computes squares and cubes, and exact for integers: exponent, rank of the result.
    Product(u32, usize),
    /// By the layer; the exponent is cast first.
    Layer(DType, usize),
    /// Integers by the layer, where an exponent may be below 0.
    Whole(DType, usize),
}

impl Converter for Pow {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Pow", 15)],
        dtypes: check::NUMBERS,
        layers: "IElementWiseLayer",
        limits: "integers: integer exponents",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dims = elementwise::broadcast_shape(node, &[0, 1], cx)?;
        Ok(shape::types([shape::typed(shape::dtype_of(node, 0), dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "X", check::NUMBERS, target)?;
        let y = elementwise::gate(node, 1, "Y", check::WITH_NARROW, target)?;
        let rank = x.rank().max(y.rank());
        let exponent = y.view.constant().and_then(|c| c.scalar_f64());
        match exponent {
            Some(value @ (2.0 | 3.0)) => return Ok(Plan::Product(value as u32, rank)),
            Some(value) if x.dtype.is_int() && value.fract() == 0.0 && (1.0..=64.0).contains(&value) => {
                return Ok(Plan::Product(value as u32, rank));
            }
            _ => {}
        }
        if x.dtype.is_int() {
            if !y.dtype.is_int() {
                let why = format!("{} to a power of {}: rounding would show", x.dtype, y.dtype);
                return Err(Refusal::new(Code::DTYPE_KERNEL, why).slot("Y"));
            }
            return Ok(Plan::Whole(x.dtype, rank));
        }
        Ok(Plan::Layer(x.dtype, rank))
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        vec![match plan {
            Plan::Product(exponent, rank) => {
                let x = elementwise::input(cx, 0, rank);
                product(cx, x, exponent)
            }
            Plan::Layer(dtype, rank) => {
                let (x, y) = (elementwise::input(cx, 0, rank), elementwise::input(cx, 1, rank));
                let y = cx.cast(y, dtype);
                cx.elementwise(x, y, ElementWiseOp::Pow)
            }
            Plan::Whole(dtype, rank) => {
                let (x, y) = (elementwise::input(cx, 0, rank), elementwise::input(cx, 1, rank));
                let y = cx.cast(y, dtype);
                whole(cx, x, y)
            }
        }]
    }
}

/// xⁿ for n ≥ 1 by squaring.
fn product(cx: &mut Emit<'_>, x: TensorId, exponent: u32) -> TensorId {
    let top = exponent.checked_ilog2().unwrap_or(0);
    (0..top).rev().fold(x, |y, bit| {
        let y = cx.elementwise(y, y, ElementWiseOp::Prod);
        if exponent >> bit & 1 == 1 { cx.elementwise(y, x, ElementWiseOp::Prod) } else { y }
    })
}

/// Integer powers: x⁻ⁿ is xⁿ for x = ±1, and 0 for larger x.
fn whole(cx: &mut Emit<'_>, x: TensorId, y: TensorId) -> TensorId {
    let size = cx.unary(y, UnaryOp::Abs);
    let power = cx.elementwise(x, size, ElementWiseOp::Pow);
    let (zero, one) = (elementwise::scalar_like(cx, x, 0.0), elementwise::scalar_like(cx, x, 1.0));
    let below = cx.elementwise(y, zero, ElementWiseOp::Less);
    let size = cx.unary(x, UnaryOp::Abs);
    let large = cx.elementwise(size, one, ElementWiseOp::Greater);
    let vanishes = cx.elementwise(below, large, ElementWiseOp::And);
    cx.one(Layer::Select { condition: vanishes, then_input: zero, else_input: power })
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
            case.clone().constant(f32s([], &[2.0])).check(Tolerance::Exact);
            case.clone().constant(of_dtype(dtype, [], &[7.0])).check(Tolerance::Exact);
            case.clone().input(of_dtype(DType::U16, [3], &[3.0, 0.0, 4.0])).check(Tolerance::Exact);
            let run = Case::new("Pow", 15).input(of_dtype(dtype, [5], &[-1.0, 1.0, 3.0, -2.0, 2.0]));
            run.input(of_dtype(dtype, [5], &[-3.0, -2.0, -1.0, 3.0, 10.0])).check(Tolerance::Exact);
        }
        for dtype in [DType::U32, DType::I16] {
            let case = Case::new("Pow", 15).input(f32s([3], &[1.0, 2.0, 3.0]));
            case.input(of_dtype(dtype, [3], &[4.0, 5.0, 6.0])).check(F32);
        }
        let square = Case::new("Pow", 15).input(f32s([2], &[-1.5, 2.0])).constant(f32s([1, 1], &[2.0]));
        assert_eq!(square.types(), ["f32[1 x 2]"]);
        square.check(Tolerance::Exact);
    }

    #[test]
    fn refusals() {
        Case::new("Pow", 15).input(f32s([1], &[1.0])).input(f32s([1], &[1.5])).gates(bools([1], &[true]));
        let whole = Case::new("Pow", 15).input(i64s([1], &[3]));
        whole.input(f32s([1], &[1.5])).refused(Code::DTYPE_KERNEL);
    }
}

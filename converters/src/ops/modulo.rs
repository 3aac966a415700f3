//! Mod: remainder, with the sign of the divisor (fmod = 0) or of the dividend (fmod = 1).
//!
//! a [..] T, b [..] T  ->  c [broadcast] T
//! Opsets: 10; 13 bf16; 28 floats with fmod = 0.
//! TensorRT: IElementWiseLayer FLOOR_DIV, DIV, PROD, SUB. Floats: in f32, the product of quotient and divisor as two
//! numbers, so that the remainder is exact while the quotient is below 2²⁴.
//! Limits: f32, f16, bf16, i32, i64, u8, i8, u16, i16, u32; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, elementwise, small},
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct Modulo;

/// Rank of the result, whose sign, and dtype.
#[derive(Debug)]
pub struct Plan {
    rank: usize,
    sign_of_dividend: bool,
    dtype: DType,
}

impl Converter for Modulo {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Mod", 28)],
        dtypes: check::WITH_NARROW,
        layers: "IElementWiseLayer, IUnaryLayer, ISelectLayer",
        limits: "floats: quotients below 2²⁴",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let ty = elementwise::broadcast(node, &[0, 1], None, cx)?;
        let by_dividend = node.int("fmod", 0) != 0;
        let elements = small::zip(node, [0, 1], |a, b| match (a, b) {
            (_, Dim::Known(0)) => Dim::Unknown,
            (Dim::Known(a), Dim::Known(b)) if by_dividend => {
                a.checked_rem(*b).map_or(Dim::Unknown, Dim::Known)
            }
            _ if by_dividend && !(dims::at_least(node, a, 0) && dims::at_least(node, b, 1)) => Dim::Unknown,
            _ => a.modulo(b),
        });
        let elements = small::settled(elements, ty.dtype(), node.symbols());
        Ok(vec![Inferred { ty, elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (dtype, rank) = elementwise::gates(node, &["A", "B"], check::WITH_NARROW, target)?;
        Ok(Plan { rank, sign_of_dividend: node.int("fmod", 0) != 0, dtype })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let [a, b] = [0, 1].map(|slot| elementwise::input(cx, slot, plan.rank));
        if plan.dtype.is_int() {
            let op = if plan.sign_of_dividend { ElementWiseOp::Div } else { ElementWiseOp::FloorDiv };
            let quotient = cx.elementwise(a, b, op);
            let whole = cx.elementwise(quotient, b, ElementWiseOp::Prod);
            let rest = cx.elementwise(a, whole, ElementWiseOp::Sub);
            return vec![cx.cast(rest, carrier(plan.dtype))];
        }
        let (a, b) = (cx.cast(a, DType::F32), cx.cast(b, DType::F32));
        let mut rest = remainder(cx, a, b);
        if !plan.sign_of_dividend {
            rest = towards(cx, rest, b);
        }
        vec![cx.cast(rest, plan.dtype)]
    }
}

fn select(cx: &mut Emit<'_>, condition: TensorId, then_input: TensorId, else_input: TensorId) -> TensorId {
    cx.one(Layer::Select { condition, then_input, else_input })
}

/// Whether one of the two is above and the other below 0.
fn opposite(cx: &mut Emit<'_>, x: TensorId, y: TensorId) -> TensorId {
    let signs = [x, y].map(|x| cx.unary(x, UnaryOp::Sign));
    let product = cx.elementwise(signs[0], signs[1], ElementWiseOp::Prod);
    let zero = elementwise::scalar_like(cx, product, 0.0);
    cx.elementwise(product, zero, ElementWiseOp::Less)
}

/// a − trunc(a / b) · b.
fn remainder(cx: &mut Emit<'_>, a: TensorId, b: TensorId) -> TensorId {
    // A dividend that is the smaller one is the remainder, whatever the product below would be; so x mod ±∞ is x.
    let [size_a, size_b] = [a, b].map(|x| cx.unary(x, UnaryOp::Abs));
    let smaller = cx.elementwise(size_a, size_b, ElementWiseOp::Less);
    // Products of large divisors would overflow; both scaled by a power of 2 have the scaled remainder.
    let bound = elementwise::scalar_like(cx, b, 2f64.powi(100));
    let large = cx.elementwise(size_b, bound, ElementWiseOp::Greater);
    let [down, up] = [-64, 64].map(|exponent| {
        let [factor, one] = [2f64.powi(exponent), 1.0].map(|value| elementwise::scalar_like(cx, b, value));
        select(cx, large, factor, one)
    });
    let [x, y] = [a, b].map(|x| cx.elementwise(x, down, ElementWiseOp::Prod));
    let quotient = cx.elementwise(x, y, ElementWiseOp::Div);
    let size = cx.unary(quotient, UnaryOp::Abs);
    let size = cx.unary(size, UnaryOp::Floor);
    let sign = cx.unary(quotient, UnaryOp::Sign);
    let whole = cx.elementwise(size, sign, ElementWiseOp::Prod);
    let (high, low) = exact_product(cx, whole, y);
    let rest = cx.elementwise(x, high, ElementWiseOp::Sub);
    let rest = cx.elementwise(rest, low, ElementWiseOp::Sub);
    // A quotient that was rounded up to a whole number is one too many.
    let distance = cx.unary(y, UnaryOp::Abs);
    let sign = cx.unary(x, UnaryOp::Sign);
    let step = cx.elementwise(distance, sign, ElementWiseOp::Prod);
    let corrected = cx.elementwise(rest, step, ElementWiseOp::Sum);
    let overshot = opposite(cx, rest, x);
    let rest = select(cx, overshot, corrected, rest);
    let rest = cx.elementwise(rest, up, ElementWiseOp::Prod);
    select(cx, smaller, a, rest)
}

/// x · y as the sum of two f32 (Dekker's product: each factor in two halves of 12 bits).
fn exact_product(cx: &mut Emit<'_>, x: TensorId, y: TensorId) -> (TensorId, TensorId) {
    use ElementWiseOp::{Prod, Sub, Sum};
    let product = cx.elementwise(x, y, Prod);
    let [(xh, xl), (yh, yl)] = [x, y].map(|x| halves(cx, x));
    let mut error = cx.elementwise(xh, yh, Prod);
    error = cx.elementwise(error, product, Sub);
    for (a, b) in [(xh, yl), (xl, yh), (xl, yl)] {
        let part = cx.elementwise(a, b, Prod);
        error = cx.elementwise(error, part, Sum);
    }
    (product, error)
}

fn halves(cx: &mut Emit<'_>, x: TensorId) -> (TensorId, TensorId) {
    let splitter = elementwise::scalar_like(cx, x, 4097.0);
    let scaled = cx.elementwise(x, splitter, ElementWiseOp::Prod);
    let rest = cx.elementwise(scaled, x, ElementWiseOp::Sub);
    let high = cx.elementwise(scaled, rest, ElementWiseOp::Sub);
    (high, cx.elementwise(x, high, ElementWiseOp::Sub))
}

/// The remainder moved to the side of the divisor.
fn towards(cx: &mut Emit<'_>, rest: TensorId, b: TensorId) -> TensorId {
    let wrong = opposite(cx, rest, b);
    let moved = cx.elementwise(rest, b, ElementWiseOp::Sum);
    select(cx, wrong, moved, rest)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;

    #[test]
    fn integers() {
        for dtype in [DType::I32, DType::I64] {
            let case = Case::new("Mod", 28)
                .input(of_dtype(dtype, [2, 4], &[7.0, -7.0, 6.0, -6.0, 0.0, 1.0, -1.0, 100.0]))
                .input(of_dtype(dtype, [4], &[3.0, 3.0, -4.0, -4.0]));
            case.check(Tolerance::Exact);
            case.int("fmod", 1).dynamic(0, ["N", "4"]).check(Tolerance::Exact);
        }
        let bytes = Case::new("Mod", 28).input(u8s([3], &[200, 7, 255])).constant(u8s([3], &[7, 200, 16]));
        bytes.check(Tolerance::Exact);
        for dtype in [DType::U16, DType::I16, DType::U32] {
            let a = of_dtype(dtype, [4], &[65_535.0, 32_768.0, 7.0, -2.0]);
            let case = Case::new("Mod", 28).input(a).input(of_dtype(dtype, [4], &[7.0, -3.0, 32_767.0, 5.0]));
            case.check(Tolerance::Exact);
        }
        let bytes = Case::new("Mod", 28).input(i8s([3], &[-100, 7, 127])).constant(i8s([3], &[7, -3, 16]));
        bytes.check(Tolerance::Exact);
        bytes.int("fmod", 1).check(Tolerance::Exact);
    }

    #[test]
    fn floats() {
        let inf = f64::INFINITY;
        let a = [7.5, -7.5, 6.25, -6.25, 1e6, 0.3, 1.0, -1.0, 5.0, inf];
        let b = [2.0, 2.0, -1.5, -1.5, 0.1, 0.1, inf, -inf, 0.0, 2.0];
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let case = Case::new("Mod", 28).input(of_dtype(dtype, [10], &a)).input(of_dtype(dtype, [10], &b));
            case.int("fmod", 1).dynamic(0, ["N"]).dynamic(1, ["N"]).check(Tolerance::Exact);
        }
        let most = f64::from(f32::MAX);
        let a = f32s([6], &[1.0, -2.0, 3e38, 1e-41, -3e38, 0.5].map(|v| v as f32));
        let b = [most, -3e38, 2.5e38, 3e38, 1.6e38, f64::NEG_INFINITY].map(|v| v as f32);
        Case::new("Mod", 28).input(a).input(f32s([6], &b)).int("fmod", 1).check(Tolerance::Exact);
        // The specification of fmod = 0, by hand.
        let a = f32s([8], &[7.5, -7.5, 6.25, -6.25, 1.0, -1.0, 4.0, f32::NAN]);
        let case = Case::new("Mod", 28).input(a);
        let inf = f32::INFINITY;
        let case = case.input(f32s([8], &[2.0, 2.0, -1.5, -1.5, inf, inf, 2.0, 1.0]));
        case.gives(Tolerance::Exact, &[f32s([8], &[1.5, 0.5, -1.25, -0.25, 1.0, inf, 0.0, f32::NAN])]);
    }

    #[test]
    fn types() {
        let of = |fmod: i64| {
            let case = Case::new("Mod", 28).input(i64s([3], &[0; 3])).sizes(0, ["N", "-7", "?"]);
            case.constant(i64s([], &[3])).int("fmod", fmod).types()[0].clone()
        };
        assert_eq!(of(0), "i64[3] = [mod(N, 3), 2, ?]");
        assert_eq!(of(1), "i64[3] = [mod(N, 3), -1, ?]");
    }

    #[test]
    fn refusals() {
        Case::new("Mod", 28).input(f32s([1], &[1.0])).input(f32s([1], &[1.0])).gates(bools([1], &[true]));
    }
}

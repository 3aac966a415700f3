//! Functions of one element: Abs Neg Exp Log Sqrt Reciprocal Sin … Atanh Ceil Floor Round Erf Sign IsInf IsNaN.
//!
//! x [d0..dn] T  ->  y [d0..dn] T (IsInf, IsNaN: bool)
//! Opsets: types widen only; IsInf 10 detect_negative, detect_positive.     TensorRT: IUnaryLayer.
//! Limits: f32, f16, bf16; Abs, Neg, Sign also integers of up to 64 bits, but u64; not empty. Round is to the nearest even.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape, small, wrap},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Diag, Dim, InferCx, Inferred, NodeView, Refusal, Type};
use trtc_network::layer::{ElementWiseOp, UnaryOp};

/// The converter.
#[derive(Debug)]
pub struct Unary;

/// What is emitted.
#[derive(Debug)]
pub enum Plan {
    /// One layer.
    Layer(UnaryOp),
    /// x = value: an infinity of one sign.
    EqualTo(f64),
    /// False everywhere.
    Never,
}

fn op_of(name: &str) -> UnaryOp {
    match name {
        "Abs" => UnaryOp::Abs,
        "Neg" => UnaryOp::Neg,
        "Exp" => UnaryOp::Exp,
        "Log" => UnaryOp::Log,
        "Sqrt" => UnaryOp::Sqrt,
        "Reciprocal" => UnaryOp::Recip,
        "Sin" => UnaryOp::Sin,
        "Cos" => UnaryOp::Cos,
        "Tan" => UnaryOp::Tan,
        "Sinh" => UnaryOp::Sinh,
        "Cosh" => UnaryOp::Cosh,
        "Asin" => UnaryOp::Asin,
        "Acos" => UnaryOp::Acos,
        "Atan" => UnaryOp::Atan,
        "Asinh" => UnaryOp::Asinh,
        "Acosh" => UnaryOp::Acosh,
        "Atanh" => UnaryOp::Atanh,
        "Ceil" => UnaryOp::Ceil,
        "Floor" => UnaryOp::Floor,
        "Round" => UnaryOp::Round,
        "Erf" => UnaryOp::Erf,
        "Sign" => UnaryOp::Sign,
        "IsInf" => UnaryOp::IsInf,
        _ => UnaryOp::IsNan,
    }
}

fn signed(op: UnaryOp) -> bool {
    matches!(op, UnaryOp::Abs | UnaryOp::Neg | UnaryOp::Sign)
}

fn allowed(op: UnaryOp) -> &'static [DType] {
    if signed(op) { check::WITH_NARROW } else { check::FLOATS }
}

impl Converter for Unary {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("Abs", 13),
            Key::onnx("Neg", 13),
            Key::onnx("Exp", 13),
            Key::onnx("Log", 13),
            Key::onnx("Sqrt", 13),
            Key::onnx("Reciprocal", 13),
            Key::onnx("Sin", 22),
            Key::onnx("Cos", 22),
            Key::onnx("Tan", 22),
            Key::onnx("Sinh", 22),
            Key::onnx("Cosh", 22),
            Key::onnx("Asin", 22),
            Key::onnx("Acos", 22),
            Key::onnx("Atan", 22),
            Key::onnx("Asinh", 22),
            Key::onnx("Acosh", 22),
            Key::onnx("Atanh", 22),
            Key::onnx("Ceil", 13),
            Key::onnx("Floor", 13),
            Key::onnx("Round", 22),
            Key::onnx("Erf", 13),
            Key::onnx("Sign", 13),
            Key::onnx("IsInf", 20),
            Key::onnx("IsNaN", 20),
        ],
        dtypes: check::FLOATS,
        layers: "IUnaryLayer",
        limits: "Abs, Neg, Sign also integers of up to 64 bits, but u64",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let op = op_of(node.op());
        let x = shape::same_as_input(node, 0);
        let ty = match op {
            UnaryOp::IsInf | UnaryOp::IsNan => {
                shape::typed(Some(DType::Bool), x.shape().map(<[Dim]>::to_vec))
            }
            _ => x,
        };
        Ok(vec![Inferred { elements: elements(node, op, &ty), ty }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let op = op_of(node.op());
        elementwise::gate(node, 0, "X", allowed(op), target)?;
        if op != UnaryOp::IsInf {
            return Ok(Plan::Layer(op));
        }
        Ok(match (node.int("detect_negative", 1) != 0, node.int("detect_positive", 1) != 0) {
            (true, true) => Plan::Layer(op),
            (true, false) => Plan::EqualTo(f64::NEG_INFINITY),
            (false, true) => Plan::EqualTo(f64::INFINITY),
            (false, false) => Plan::Never,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        vec![match plan {
            Plan::Layer(op) if signed(op) => {
                let dtype = cx.node().input(0).and_then(|view| view.dtype()).unwrap_or(DType::F32);
                let y = cx.unary(x, op);
                wrap::wrapped(cx, y, dtype)
            }
            Plan::Layer(op) => cx.unary(x, op),
            Plan::EqualTo(value) => {
                let value = elementwise::scalar_like(cx, x, value);
                cx.elementwise(x, value, ElementWiseOp::Equal)
            }
            Plan::Never => cx.elementwise(x, x, ElementWiseOp::Less),
        }]
    }
}

/// Elements that a rounding leaves alone, or a sign changes.
fn elements(node: NodeView<'_>, op: UnaryOp, ty: &Type) -> Option<Vec<Dim>> {
    let zero = Dim::Known(0);
    let of = |dim: &Dim| match op {
        UnaryOp::Ceil | UnaryOp::Floor | UnaryOp::Round => dim.clone(),
        UnaryOp::Neg => zero.sub(dim),
        UnaryOp::Abs => dim.max(&zero.sub(dim)),
        UnaryOp::Sign => match dim {
            Dim::Known(value) => Dim::Known(value.signum()),
            dim if node.symbols().interval(dim).min.is_some_and(|min| min > 0) => Dim::Known(1),
            _ => Dim::Unknown,
        },
        _ => Dim::Unknown,
    };
    let list = small::elements(node, 0)?.iter().map(of).collect();
    small::settled(Some(list), ty.dtype(), node.symbols())
}

#[cfg(test)]
mod tests {
    use super::{Unary, UnaryOp, allowed, op_of};
    use crate::{Converter, testing::*};
    use trtc_bundle::DType;

    /// Values inside the domain of the function.
    fn domain(op: UnaryOp) -> [f64; 6] {
        match op {
            UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Recip => [0.25, 0.5, 1.0, 2.0, 3.0, 100.0],
            UnaryOp::Acosh => [1.0, 1.25, 1.5, 2.0, 10.0, 100.0],
            UnaryOp::Asin | UnaryOp::Acos | UnaryOp::Atanh => [-0.75, -0.5, 0.0, 0.25, 0.5, 0.875],
            // Half-way cases and both sides of zero.
            UnaryOp::Round | UnaryOp::Ceil | UnaryOp::Floor => [-2.5, -1.5, -0.5, 0.5, 1.5, 2.75],
            _ => [-3.0, -1.0, -0.25, 0.0, 0.5, 2.0],
        }
    }

    #[test]
    fn numbers() {
        for key in Unary::DEF.keys {
            let op = op_of(key.op);
            for &dtype in allowed(op).iter().filter(|&&d| !matches!(d, DType::U8 | DType::U16 | DType::U32)) {
                let case = Case::new(key.op, key.since).input(of_dtype(dtype, [2, 3], &domain(op)));
                case.check(near(dtype));
                case.dynamic(0, ["N", "M"]).check(near(dtype));
            }
        }
        Case::new("Exp", 13).input(f32s([], &[1.0])).check(F32);
    }

    #[test]
    fn infinities() {
        let x = f32s([5], &[f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, f32::MAX]);
        for (negative, positive) in [(1, 1), (1, 0), (0, 1), (0, 0)] {
            Case::new("IsInf", 20)
                .input(x.clone())
                .int("detect_negative", negative)
                .int("detect_positive", positive)
                .check(Tolerance::Exact);
        }
        Case::new("IsNaN", 20).input(x.clone()).check(Tolerance::Exact);
        Case::new("Floor", 13).input(x).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        let of = |op: &str| {
            Case::new(op, 13).input(i64s([3], &[0; 3])).sizes(0, ["N", "-2", "?"]).types()[0].clone()
        };
        assert_eq!(of("Neg"), "i64[3] = [-N, 2, ?]");
        assert_eq!(of("Sign"), "i64[3] = [1, -1, ?]");
        let floor = Case::new("Floor", 13).input(f32s([1], &[0.0])).sizes(0, ["N"]);
        assert_eq!(floor.types(), ["f32[1] = [N]"]);
        assert_eq!(Case::new("IsNaN", 20).input(f16s([2], &[0.0; 2])).types(), ["bool[2]"]);
    }

    #[test]
    fn refusals() {
        for key in Unary::DEF.keys {
            let wrong = match allowed(op_of(key.op)).contains(&DType::I32) {
                true => bools([1], &[true]),
                false => i32s([1], &[1]),
            };
            Case::new(key.op, key.since).input(f32s([1], &[1.0])).gates(wrong);
        }
    }
}

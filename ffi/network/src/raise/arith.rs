//! Layers that compute element by element.

use super::Result;
use super::emit::{Raiser, Value};
use crate::layer::{ActivationKind, ElementWiseOp, UnaryOp};
use crate::network::TensorId;
use trtc_bundle::DType;
use trtc_onnx::write::{attr_f, attr_s};

impl Raiser<'_> {
    pub fn activation(&mut self, x: TensorId, kind: ActivationKind, alpha: f32, beta: f32) -> Result<Value> {
        use ActivationKind::*;
        let x = self.get(x)?;
        let dtype = x.dtype;
        let (a, b) = (f64::from(alpha), f64::from(beta));
        let y = match kind {
            Relu if dtype.is_int() => self.with_scalar("Max", &x, 0.0)?,
            Relu => self.apply("Relu", &x)?,
            Sigmoid => self.apply("Sigmoid", &x)?,
            Tanh => self.apply("Tanh", &x)?,
            LeakyRelu => self.call("LeakyRelu").data(&x).attr(attr_f("alpha", alpha)).value()?,
            Elu => self.call("Elu").data(&x).attr(attr_f("alpha", alpha)).value()?,
            Selu => {
                self.call("Selu").data(&x).attr(attr_f("alpha", alpha)).attr(attr_f("gamma", beta)).value()?
            }
            Softsign => self.apply("Softsign", &x)?,
            Softplus => {
                let x = self.in_f32(&x);
                let scaled = self.with_scalar("Mul", &x, b)?;
                let log = self.apply("Softplus", &scaled)?;
                self.with_scalar("Mul", &log, a)?
            }
            Clip => {
                let x = self.in_f32(&x);
                let below = self.with_scalar("Min", &x, b)?;
                self.with_scalar("Max", &below, a)?
            }
            HardSigmoid => self
                .call("HardSigmoid")
                .data(&x)
                .attr(attr_f("alpha", alpha))
                .attr(attr_f("beta", beta))
                .value()?,
            ScaledTanh => {
                let x = self.in_f32(&x);
                let scaled = self.with_scalar("Mul", &x, b)?;
                let tanh = self.apply("Tanh", &scaled)?;
                self.with_scalar("Mul", &tanh, a)?
            }
            ThresholdedRelu => self.call("ThresholdedRelu").data(&x).attr(attr_f("alpha", alpha)).value()?,
            GeluErf => self.call("Gelu").data(&x).attr(attr_s("approximate", "none")).value()?,
            GeluTanh => self.call("Gelu").data(&x).attr(attr_s("approximate", "tanh")).value()?,
        };
        Ok(self.cast(&y, dtype))
    }

    pub fn unary(&mut self, x: TensorId, op: UnaryOp) -> Result<Value> {
        let x = self.get(x)?;
        let name = match op {
            UnaryOp::Exp => "Exp",
            UnaryOp::Log => "Log",
            UnaryOp::Sqrt => "Sqrt",
            UnaryOp::Recip => "Reciprocal",
            UnaryOp::Abs => "Abs",
            UnaryOp::Neg => "Neg",
            UnaryOp::Sin => "Sin",
            UnaryOp::Cos => "Cos",
            UnaryOp::Tan => "Tan",
            UnaryOp::Sinh => "Sinh",
            UnaryOp::Cosh => "Cosh",
            UnaryOp::Asin => "Asin",
            UnaryOp::Acos => "Acos",
            UnaryOp::Atan => "Atan",
            UnaryOp::Asinh => "Asinh",
            UnaryOp::Acosh => "Acosh",
            UnaryOp::Atanh => "Atanh",
            UnaryOp::Ceil => "Ceil",
            UnaryOp::Floor => "Floor",
            UnaryOp::Erf => "Erf",
            UnaryOp::Not => "Not",
            UnaryOp::Sign => "Sign",
            UnaryOp::Round => "Round",
            UnaryOp::IsInf => return self.call("IsInf").data(&x).value_of(DType::Bool),
            UnaryOp::IsNan => return self.call("IsNaN").data(&x).value_of(DType::Bool),
        };
        self.apply(name, &x)
    }

    pub fn elementwise(&mut self, a: TensorId, b: TensorId, op: ElementWiseOp) -> Result<Value> {
        let (a, b) = (self.get(a)?, self.get(b)?);
        match op {
            ElementWiseOp::Sum => self.binary("Add", &a, &b),
            ElementWiseOp::Prod => self.binary("Mul", &a, &b),
            ElementWiseOp::Max => self.binary("Max", &a, &b),
            ElementWiseOp::Min => self.binary("Min", &a, &b),
            ElementWiseOp::Sub => self.binary("Sub", &a, &b),
            // Integers are divided towards zero, by TensorRT and by ONNX Runtime.
            ElementWiseOp::Div if a.dtype.is_int() => {
                let b = self.divisor(&b)?;
                self.binary("Div", &a, &b)
            }
            ElementWiseOp::Div => self.binary("Div", &a, &b),
            ElementWiseOp::Pow => self.binary("Pow", &a, &b),
            ElementWiseOp::FloorDiv if a.dtype.is_int() => self.floor_divide(&a, &b),
            ElementWiseOp::FloorDiv => {
                let dtype = a.dtype;
                let (a, b) = (self.in_f32(&a), self.in_f32(&b));
                let quotient = self.binary("Div", &a, &b)?;
                let floor = self.apply("Floor", &quotient)?;
                Ok(self.cast(&floor, dtype))
            }
            ElementWiseOp::And => self.binary("And", &a, &b),
            ElementWiseOp::Or => self.binary("Or", &a, &b),
            ElementWiseOp::Xor => self.binary("Xor", &a, &b),
            ElementWiseOp::Equal => self.compare("Equal", &a, &b),
            ElementWiseOp::Greater => self.compare("Greater", &a, &b),
            ElementWiseOp::Less => self.compare("Less", &a, &b),
        }
    }

    /// An integer divisor with 1 for 0: ONNX Runtime ends the run there, TensorRT goes on with some number.
    fn divisor(&mut self, b: &Value) -> Result<Value> {
        let zero = self.scalar(b.dtype, 0.0);
        let zero = self.compare("Equal", b, &zero)?;
        let one = self.cast(&zero, b.dtype);
        self.binary("Add", b, &one)
    }

    /// The quotient rounded down: one less than the truncated one where a remainder has not the divisor's sign.
    fn floor_divide(&mut self, a: &Value, b: &Value) -> Result<Value> {
        let b = &self.divisor(b)?;
        let quotient = self.binary("Div", a, b)?;
        let product = self.binary("Mul", &quotient, b)?;
        let rest = self.binary("Sub", a, &product)?;
        let zero = self.scalar(a.dtype, 0.0);
        let rest_below = self.compare("Less", &rest, &zero)?;
        let divisor_below = self.compare("Less", b, &zero)?;
        let signs_differ = self.binary("Xor", &rest_below, &divisor_below)?;
        let exact = self.compare("Equal", &rest, &zero)?;
        let inexact = self.apply("Not", &exact)?;
        let lower = self.binary("And", &signs_differ, &inexact)?;
        let lower = self.cast(&lower, a.dtype);
        self.binary("Sub", &quotient, &lower)
    }

    pub fn parametric_relu(&mut self, x: TensorId, slopes: TensorId) -> Result<Value> {
        let (x, slopes) = (self.get(x)?, self.get(slopes)?);
        let zero = self.scalar(x.dtype, 0.0);
        let below = self.compare("Less", &x, &zero)?;
        let scaled = self.binary("Mul", &x, &slopes)?;
        self.choose(&below, &scaled, &x)
    }

    pub fn select(&mut self, condition: TensorId, a: TensorId, b: TensorId) -> Result<Value> {
        let (condition, a, b) = (self.get(condition)?, self.get(a)?, self.get(b)?);
        self.choose(&condition, &a, &b)
    }
}

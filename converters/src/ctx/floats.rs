//! Float constants, and computing in f32 what f16 and bf16 are too narrow for.

use crate::Emit;
use trtc_bundle::DType;
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, ReduceOp, UnaryOp},
};

/// A constant of dims `dims` in a float dtype, rounded to nearest even.
pub fn constant(cx: &mut Emit<'_>, dtype: DType, dims: Vec<i64>, values: &[f64]) -> TensorId {
    let bytes: Vec<u8> = match dtype {
        DType::F16 => values.iter().flat_map(|&v| half::f16::from_f64(v).to_le_bytes()).collect(),
        DType::Bf16 => values.iter().flat_map(|&v| half::bf16::from_f64(v).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
    };
    let dtype = if matches!(dtype, DType::F16 | DType::Bf16) { dtype } else { DType::F32 };
    cx.constant(dtype, dims, bytes.into())
}

/// The tensor in f32; itself when it is already.
pub fn widened(cx: &mut Emit<'_>, x: TensorId) -> TensorId {
    cx.cast(x, DType::F32)
}

/// |x|ᵖ for p ≥ 1.
pub fn absolute_power(cx: &mut Emit<'_>, x: TensorId, p: i64) -> TensorId {
    match p {
        2 => cx.elementwise(x, x, ElementWiseOp::Prod),
        _ => {
            let x = cx.unary(x, UnaryOp::Abs);
            power(cx, x, p as f64)
        }
    }
}

/// x^(1/p) for x ≥ 0, p ≥ 1.
pub fn root(cx: &mut Emit<'_>, x: TensorId, p: i64) -> TensorId {
    match p {
        2 => cx.unary(x, UnaryOp::Sqrt),
        _ => power(cx, x, 1.0 / p as f64),
    }
}

/// (Σ|x|ᵖ)^(1/p) over axes, which stay as 1; p ≥ 1.
pub fn norm(cx: &mut Emit<'_>, x: TensorId, p: i64, axes: Vec<u32>) -> TensorId {
    let x = absolute_power(cx, x, p);
    let sum = cx.one(Layer::Reduce { x, op: ReduceOp::Sum, axes, keep_dims: true });
    root(cx, sum, p)
}

fn power(cx: &mut Emit<'_>, x: TensorId, exponent: f64) -> TensorId {
    if exponent == 1.0 {
        return x;
    }
    let (dtype, rank) = (cx.dtype(x), cx.rank(x));
    let exponent = cx.scalar(dtype, rank, exponent);
    cx.elementwise(x, exponent, ElementWiseOp::Pow)
}

/// x − max − log Σ exp(x − max) over one axis; `x` in f32.
pub fn log_softmax(cx: &mut Emit<'_>, x: TensorId, axis: u32) -> TensorId {
    let reduce =
        |cx: &mut Emit<'_>, x, op| cx.one(Layer::Reduce { x, op, axes: vec![axis], keep_dims: true });
    let largest = reduce(cx, x, ReduceOp::Max);
    let x = cx.elementwise(x, largest, ElementWiseOp::Sub);
    let power = cx.unary(x, UnaryOp::Exp);
    let sum = reduce(cx, power, ReduceOp::Sum);
    let log = cx.unary(sum, UnaryOp::Log);
    cx.elementwise(x, log, ElementWiseOp::Sub)
}

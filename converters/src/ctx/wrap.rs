//! Integers that wrap: what was computed on a carrier, brought back into the range of its dtype.

use crate::{Emit, ctx::elementwise::scalar_like, emit::carrier};
use trtc_bundle::DType;
use trtc_network::{TensorId, layer::ElementWiseOp};

/// The lowest bits of integers (i32 or i64) as an integer of `to`, in its carrier. i32, i64 and what is no integer stay as
/// they are; bits that do not get lost in a sum or product of the carrier's width are right in the result.
pub fn wrapped(cx: &mut Emit<'_>, x: TensorId, to: DType) -> TensorId {
    let own = cx.dtype(x);
    let x = match to {
        DType::I32 if own == DType::I64 => signed(cx, x, 32),
        DType::U8 | DType::U16 | DType::U32 | DType::U4 | DType::U2 => low_bits(cx, x, to.bits()),
        DType::I8 | DType::I16 | DType::I4 | DType::I2 => signed(cx, x, to.bits()),
        _ => return x,
    };
    cx.cast(x, carrier(to))
}

/// The lowest `bits` bits as a number from 0: x − 2ᵏ · floor(x / 2ᵏ). `bits` is below the width of x less one.
pub fn low_bits(cx: &mut Emit<'_>, x: TensorId, bits: usize) -> TensorId {
    let high = shifted_right(cx, x, bits);
    let high = shifted_left(cx, high, bits);
    cx.elementwise(x, high, ElementWiseOp::Sub)
}

/// The lowest `bits` bits as a two's complement.
fn signed(cx: &mut Emit<'_>, x: TensorId, bits: usize) -> TensorId {
    let low = low_bits(cx, x, bits);
    let sign = shifted_right(cx, low, bits - 1);
    let weight = shifted_left(cx, sign, bits);
    cx.elementwise(low, weight, ElementWiseOp::Sub)
}

/// floor(x / 2ᵏ).
pub fn shifted_right(cx: &mut Emit<'_>, x: TensorId, bits: usize) -> TensorId {
    let divisor = scalar_like(cx, x, 2f64.powi(bits as i32));
    cx.elementwise(x, divisor, ElementWiseOp::FloorDiv)
}

/// x · 2ᵏ.
pub fn shifted_left(cx: &mut Emit<'_>, x: TensorId, bits: usize) -> TensorId {
    let factor = scalar_like(cx, x, 2f64.powi(bits as i32));
    cx.elementwise(x, factor, ElementWiseOp::Prod)
}

/// a · b, wrapped to `dtype`. No product of the carriers leaves their range, so none relies on how TensorRT's integers
/// overflow, but for i32 and i64 themselves.
pub fn product(cx: &mut Emit<'_>, a: TensorId, b: TensorId, dtype: DType) -> TensorId {
    match dtype {
        DType::U16 => {
            let [a, b] = [a, b].map(|x| cx.cast(x, DType::I64));
            let y = cx.elementwise(a, b, ElementWiseOp::Prod);
            wrapped(cx, y, dtype)
        }
        // The second factor in two halves: a · high counts only as far as its lowest 16 bits.
        DType::U32 => {
            let high = shifted_right(cx, b, 16);
            let above = shifted_left(cx, high, 16);
            let low = cx.elementwise(b, above, ElementWiseOp::Sub);
            let high = cx.elementwise(a, high, ElementWiseOp::Prod);
            let high = low_bits(cx, high, 16);
            let high = shifted_left(cx, high, 16);
            let low = cx.elementwise(a, low, ElementWiseOp::Prod);
            let y = cx.elementwise(low, high, ElementWiseOp::Sum);
            wrapped(cx, y, dtype)
        }
        _ => {
            let y = cx.elementwise(a, b, ElementWiseOp::Prod);
            wrapped(cx, y, dtype)
        }
    }
}

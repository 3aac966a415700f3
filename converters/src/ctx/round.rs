//! Rounding f32 to floats of 8 bits, by arithmetic that is exact: comparisons, products with powers of two, and one
//! rounding to a whole number (ties to even).

use crate::{Emit, ctx::elementwise::scalar_like};
use trtc_bundle::DType;
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, UnaryOp},
};

/// Dtypes that [`rounded`] makes.
pub const ROUNDED: &[DType] = &[DType::F8E4M3, DType::F8E4M3Uz, DType::F8E5M2, DType::F8E5M2Uz];

/// How f8e8m0 is made of what lies between two powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    /// The greater.
    Up,
    /// The lesser.
    Down,
    /// The nearer, of two as near the greater.
    Nearest,
}

fn select(cx: &mut Emit<'_>, condition: TensorId, then_input: TensorId, else_input: TensorId) -> TensorId {
    cx.one(Layer::Select { condition, then_input, else_input })
}

fn above(cx: &mut Emit<'_>, x: TensorId, limit: f64) -> TensorId {
    let limit = scalar_like(cx, x, limit);
    cx.elementwise(x, limit, ElementWiseOp::Greater)
}

fn below(cx: &mut Emit<'_>, x: TensorId, limit: f64) -> TensorId {
    let limit = scalar_like(cx, x, limit);
    cx.elementwise(x, limit, ElementWiseOp::Less)
}

fn times(cx: &mut Emit<'_>, x: TensorId, factor: f64) -> TensorId {
    let factor = scalar_like(cx, x, factor);
    cx.elementwise(x, factor, ElementWiseOp::Prod)
}

/// `x` (f32) where it is not outside of the limit, `value` where it is.
fn replaced(cx: &mut Emit<'_>, outside: TensorId, value: f64, x: TensorId) -> TensorId {
    let value = scalar_like(cx, x, value);
    select(cx, outside, value, x)
}

/// Moves `scales` by 2^±step where `size` is no less than `least`·2^step, for each step: the binade of each element.
fn climb(
    cx: &mut Emit<'_>,
    size: TensorId,
    mut least: TensorId,
    mut inverse: Option<TensorId>,
    steps: &[i32],
) -> (TensorId, Option<TensorId>) {
    for &step in steps {
        let next = times(cx, least, 2f64.powi(step));
        let stays = cx.elementwise(size, next, ElementWiseOp::Less);
        if let Some(old) = inverse {
            let moved = times(cx, old, 2f64.powi(-step));
            inverse = Some(select(cx, stays, old, moved));
        }
        least = select(cx, stays, least, next);
    }
    (least, inverse)
}

/// f32 to the nearest value of `to` (ties to even), in f32. Beyond the greatest: that one with `saturate`, else infinity
/// (f8e5m2) or no number. Not-a-numbers stay; types without −0 make 0 of it.
pub fn rounded(cx: &mut Emit<'_>, x: TensorId, to: DType, saturate: bool) -> TensorId {
    let (mantissa_bits, least_exponent, most) = match to {
        DType::F8E4M3 => (3, -6, 448.0),
        DType::F8E4M3Uz => (3, -7, 240.0),
        DType::F8E5M2 => (2, -14, 57_344.0),
        _ => (2, -15, 57_344.0),
    };
    let size = cx.unary(x, UnaryOp::Abs);
    let start = scalar_like(cx, x, 2f64.powi(least_exponent));
    let inverse = scalar_like(cx, x, 2f64.powi(mantissa_bits - least_exponent));
    let (binade, inverse) = climb(cx, size, start, Some(inverse), &[16, 8, 4, 2, 1]);
    // In units of the last place the rounding is to a whole number.
    let units = inverse.map_or(x, |inverse| cx.elementwise(x, inverse, ElementWiseOp::Prod));
    let units = cx.unary(units, UnaryOp::Round);
    let unit = times(cx, binade, 2f64.powi(-mantissa_bits));
    let mut y = cx.elementwise(units, unit, ElementWiseOp::Prod);
    let (high, low) = match (saturate, to) {
        (true, _) => (most, -most),
        (false, DType::F8E5M2) => (f64::INFINITY, f64::NEG_INFINITY),
        (false, _) => (f64::NAN, f64::NAN),
    };
    let outside = above(cx, y, most);
    y = replaced(cx, outside, high, y);
    let outside = below(cx, y, -most);
    y = replaced(cx, outside, low, y);
    if matches!(to, DType::F8E4M3Uz | DType::F8E5M2Uz) {
        let zero = scalar_like(cx, y, 0.0);
        let is_zero = cx.elementwise(y, zero, ElementWiseOp::Equal);
        y = replaced(cx, is_zero, 0.0, y);
    }
    y
}

/// f32 to a power of two, in f32. Beyond 2⁻¹²⁷ … 2¹²⁷: the nearest of these with `saturate`, else no number.
pub fn power_of_two(cx: &mut Emit<'_>, x: TensorId, towards: Towards, saturate: bool) -> TensorId {
    let (least, normal, most) = (2f64.powi(-127), 2f64.powi(-126), 2f64.powi(127));
    let start = scalar_like(cx, x, normal);
    let (lower, _) = climb(cx, x, start, None, &[64, 64, 64, 32, 16, 8, 4, 2, 1]);
    let upper = times(cx, lower, 2.0);
    let mut y = match towards {
        Towards::Down => lower,
        Towards::Up => {
            let more = cx.elementwise(x, lower, ElementWiseOp::Greater);
            select(cx, more, upper, lower)
        }
        Towards::Nearest => {
            let middle = times(cx, lower, 1.5);
            let less = cx.elementwise(x, middle, ElementWiseOp::Less);
            select(cx, less, lower, upper)
        }
    };
    // Below the normal numbers there is one power of two.
    let limit = match towards {
        Towards::Down => normal,
        Towards::Up => least,
        Towards::Nearest => least * 1.5,
    };
    let small = below(cx, x, normal);
    let smallest = match towards {
        Towards::Up => {
            let more = above(cx, x, limit);
            cx.unary(more, UnaryOp::Not)
        }
        _ => below(cx, x, limit),
    };
    y = replaced(cx, small, normal, y);
    y = replaced(cx, smallest, least, y);
    let [under, over] = if saturate { [least, most] } else { [f64::NAN; 2] };
    let outside = below(cx, x, least);
    y = replaced(cx, outside, under, y);
    let outside = above(cx, x, most);
    y = replaced(cx, outside, over, y);
    let nothing = cx.unary(x, UnaryOp::IsNan);
    replaced(cx, nothing, f64::NAN, y)
}

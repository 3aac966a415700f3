//! Element-wise arithmetic: integers wrap to their width; floats only where every IEEE implementation agrees.

use super::{
    Args, MAX_COUNT, OrSkip, Out, Stop, broadcast, invalid,
    numbers::{Walk, broadcast_strides, floats, from_floats, from_ints, ints, is_real, is_whole},
    sizes, within,
};
use crate::tensor::Tensor;
use trtc_bundle::DType;

/// Two inputs of one dtype, repeated over the dims that they broadcast to.
fn zipped<A: Copy, B>(
    (x, y): (&Tensor, &Tensor),
    read: impl Fn(&Tensor) -> Out<Vec<A>>,
    f: impl Fn(A, A) -> Out<B>,
) -> Out<(Vec<usize>, Vec<B>)> {
    if x.dtype() != y.dtype() {
        return invalid(format!("operands of {} and {}", x.dtype(), y.dtype()));
    }
    let (xs, ys) = (sizes(x), sizes(y));
    let to = broadcast(&xs, &ys)?;
    within(to.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).or_skip()?, MAX_COUNT)?;
    let (a, b) = (read(x)?, read(y)?);
    let walk = |from: &[usize]| Walk::new(&to, broadcast_strides(from, &to), 0);
    let values = walk(&xs)
        .zip(walk(&ys))
        .map(|(i, j)| f(*a.get(i).or_skip()?, *b.get(j).or_skip()?))
        .collect::<Out<Vec<B>>>()?;
    Ok((to, values))
}

pub(super) fn binary(args: &Args<'_>) -> Out<Tensor> {
    // The attributes of versions before 7.
    if args.node.attrs().get("broadcast").is_some() {
        return Err(Stop::Skip);
    }
    let op = args.node.op();
    let mut result = args.need(0)?.clone();
    if args.inputs.len() == 1 && !matches!(op, "Min" | "Max") {
        return Err(Stop::Skip);
    }
    for slot in 1..args.inputs.len() {
        result = pair(args, op, &result, args.need(slot)?)?;
    }
    Ok(result)
}

fn pair(args: &Args<'_>, op: &str, x: &Tensor, y: &Tensor) -> Out<Tensor> {
    let dtype = x.dtype();
    if op == "Pow" && is_whole(dtype) && is_whole(y.dtype()) {
        // The exponent may have a dtype of its own; its values are what counts.
        let wide = from_ints(DType::I64, &sizes(y), &ints(y)?)?;
        let base = from_ints(DType::I64, &sizes(x), &ints(x)?)?;
        let (to, values) = zipped((&base, &wide), ints, power)?;
        return from_ints(dtype, &to, &values);
    }
    if dtype == DType::Bool {
        return Err(Stop::Skip);
    }
    if is_whole(dtype) {
        let fmod = args.int("fmod", 0) != 0;
        let left = args.node.str("direction", "LEFT") == "LEFT";
        let bits = dtype.bits() as i128;
        let f = |a: i128, b: i128| -> Out<i128> {
            Ok(match op {
                "Add" => a + b,
                "Sub" => a - b,
                "Mul" => a.wrapping_mul(b),
                "Div" => a.checked_div(b).or_skip()?,
                "Mod" if fmod => a.checked_rem(b).or_skip()?,
                "Mod" => {
                    let rest = a.checked_rem(b).or_skip()?;
                    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
                }
                "Min" => a.min(b),
                "Max" => a.max(b),
                "BitwiseAnd" => a & b,
                "BitwiseOr" => a | b,
                "BitwiseXor" => a ^ b,
                "BitShift" if b >= bits || b < 0 => return Err(Stop::Skip),
                "BitShift" if left => a << b,
                "BitShift" => a >> b,
                _ => return Err(Stop::Skip),
            })
        };
        let (to, values) = zipped((x, y), ints, f)?;
        return from_ints(dtype, &to, &values);
    }
    if !is_real(dtype) {
        return Err(Stop::Skip);
    }
    // One operation in double and one rounding gives the correctly rounded result of the narrower types: double has
    // more than twice their precision.
    let f = |a: f64, b: f64| -> Out<f64> {
        Ok(match op {
            "Add" => a + b,
            "Sub" => a - b,
            "Mul" => a * b,
            "Div" => a / b,
            "Mod" if args.int("fmod", 0) != 0 && b != 0.0 => a % b,
            "Min" | "Max" => {
                // NaN and the sign of zero differ between implementations.
                if a.is_nan() || b.is_nan() || (a == b && a.to_bits() != b.to_bits()) {
                    return Err(Stop::Skip);
                }
                if op == "Min" { a.min(b) } else { a.max(b) }
            }
            _ => return Err(Stop::Skip),
        })
    };
    let (to, values) = zipped((x, y), floats, f)?;
    from_floats(dtype, &to, &values)
}

/// Powers whose value a double holds exactly: implementations go through one.
fn power(base: i128, exponent: i128) -> Out<i128> {
    let exponent = u32::try_from(exponent).map_err(|_| Stop::Skip)?;
    base.checked_pow(exponent).filter(|v| v.abs() <= 1 << 53).or_skip()
}

pub(super) fn unary(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    within(x.count(), MAX_COUNT)?;
    let (dtype, to, op) = (x.dtype(), sizes(x), args.node.op());
    if is_whole(dtype) && dtype != DType::Bool {
        let f = |a: i128| {
            Ok(match op {
                "Abs" => a.abs(),
                "Neg" => -a,
                "Sign" => a.signum(),
                "Relu" => a.max(0),
                "BitwiseNot" => !a,
                _ => return Err(Stop::Skip),
            })
        };
        let values = ints(x)?.into_iter().map(f).collect::<Out<Vec<i128>>>()?;
        return from_ints(dtype, &to, &values);
    }
    if !is_real(dtype) {
        return Err(Stop::Skip);
    }
    let f = |a: f64| {
        Ok(match op {
            "Abs" => a.abs(),
            "Neg" => -a,
            "Floor" => a.floor(),
            "Ceil" => a.ceil(),
            "Round" => a.round_ties_even(),
            "Sqrt" => a.sqrt(),
            "Reciprocal" => 1.0 / a,
            "Sign" if a == 0.0 => 0.0,
            "Sign" if !a.is_nan() => a.signum(),
            "Relu" if a > 0.0 => a,
            "Relu" if a < 0.0 || a.to_bits() == 0 => 0.0,
            _ => return Err(Stop::Skip),
        })
    };
    let values = floats(x)?.into_iter().map(f).collect::<Out<Vec<f64>>>()?;
    from_floats(dtype, &to, &values)
}

pub(super) fn clip(args: &Args<'_>) -> Out<Tensor> {
    // The attributes of versions before 11.
    if args.node.attrs().float("min").is_some() || args.node.attrs().float("max").is_some() {
        return Err(Stop::Skip);
    }
    let mut result = args.need(0)?.clone();
    // The upper bound is applied last: it wins when the bounds are the wrong way round.
    for (slot, op) in [(1, "Max"), (2, "Min")] {
        if let Some(bound) = args.opt(slot) {
            if bound.count() != 1 {
                return invalid("a bound has to hold one element");
            }
            let bound = bound.with_dims(vec![]).or_skip()?;
            result = pair(args, op, &result, &bound)?;
        }
    }
    Ok(result)
}

pub(super) fn compare(args: &Args<'_>) -> Out<Tensor> {
    if args.node.attrs().get("broadcast").is_some() {
        return Err(Stop::Skip);
    }
    let (x, y, op) = (args.need(0)?, args.need(1)?, args.node.op());
    fn holds<T: PartialOrd>(op: &str, a: T, b: T) -> i128 {
        i128::from(match op {
            "Equal" => a == b,
            "Greater" => a > b,
            "GreaterOrEqual" => a >= b,
            "Less" => a < b,
            _ => a <= b,
        })
    }
    let (to, values) = if is_real(x.dtype()) {
        zipped((x, y), floats, |a, b| Ok(holds(op, a, b)))?
    } else {
        zipped((x, y), ints, |a, b| Ok(holds(op, a, b)))?
    };
    from_ints(DType::Bool, &to, &values)
}

pub(super) fn logic(args: &Args<'_>) -> Out<Tensor> {
    let (x, op) = (args.need(0)?, args.node.op());
    let one = |f: &dyn Fn(f64) -> bool| {
        within(x.count(), MAX_COUNT)?;
        let values: Vec<i128> = floats(x)?.into_iter().map(|v| i128::from(f(v))).collect();
        from_ints(DType::Bool, &sizes(x), &values)
    };
    let (positive, negative) = (args.int("detect_positive", 1) != 0, args.int("detect_negative", 1) != 0);
    match op {
        "IsNaN" => return one(&f64::is_nan),
        "IsInf" => {
            return one(&|v| v.is_infinite() && if v > 0.0 { positive } else { negative });
        }
        _ => {}
    }
    if x.dtype() != DType::Bool {
        return invalid(format!("an operand of {}", x.dtype()));
    }
    if op == "Not" {
        within(x.count(), MAX_COUNT)?;
        let values: Vec<i128> = ints(x)?.into_iter().map(|v| i128::from(v == 0)).collect();
        return from_ints(DType::Bool, &sizes(x), &values);
    }
    let (to, values) = zipped((x, args.need(1)?), ints, |a, b| {
        Ok(i128::from(match op {
            "And" => a != 0 && b != 0,
            "Or" => a != 0 || b != 0,
            _ => (a != 0) != (b != 0),
        }))
    })?;
    from_ints(DType::Bool, &to, &values)
}

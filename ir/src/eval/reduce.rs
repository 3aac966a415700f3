//! Reductions and running sums over integers, and over floats where no rounding can differ.

use super::{
    Args, MAX_WORK, OrSkip, Out, Stop, axes, axis, invalid,
    numbers::{affordable, floats, from_floats, from_ints, ints, is_real, is_whole, strides},
    sizes, within,
};
use crate::tensor::Tensor;
use trtc_bundle::DType;

/// Dims of the result (`keep`: with 1 in place of a reduced axis), and for each element of `from` its place in it.
fn groups(from: &[usize], on: &[usize], keep: bool) -> Out<(Vec<usize>, Vec<usize>)> {
    let kept: Vec<usize> = (0..from.len()).map(|k| if on.contains(&k) { 1 } else { from[k] }).collect();
    let own = strides(&kept);
    let count: usize = from.iter().product();
    within(count, MAX_WORK)?;
    let steps = (0..from.len()).map(|k| if on.contains(&k) { 0 } else { own[k] }).collect();
    let places = super::numbers::Walk::new(from, steps, 0).collect();
    let to = if keep { kept } else { (0..from.len()).filter(|k| !on.contains(k)).map(|k| from[k]).collect() };
    Ok((to, places))
}

pub(super) fn reduce(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let from = sizes(x);
    let op = args.node.op();
    let on = match args.ints_or_attr(1, "axes")?.filter(|list| !list.is_empty()) {
        Some(list) => axes(&list, from.len())?,
        None if args.int("noop_with_empty_axes", 0) != 0 => return Ok(x.clone()),
        None => (0..from.len()).collect(),
    };
    let (to, places) = groups(&from, &on, args.int("keepdims", 1) != 0)?;
    let count = affordable(x.dtype(), &to)?;
    let each: usize = on.iter().map(|&k| from[k]).product();
    let extreme = matches!(op, "ReduceMin" | "ReduceMax");
    if each == 0 && extreme {
        return Err(Stop::Skip);
    }
    let dtype = x.dtype();
    if is_whole(dtype) {
        if dtype == DType::Bool && !extreme {
            return Err(Stop::Skip);
        }
        let mut sums: Vec<Option<i128>> = vec![None; count];
        for (value, place) in ints(x)?.into_iter().zip(places) {
            let slot = sums.get_mut(place).or_skip()?;
            *slot = Some(match (*slot, op) {
                (None, _) => value,
                (Some(sum), "ReduceSum") => sum + value,
                (Some(sum), "ReduceProd") => sum.checked_mul(value).or_skip()?,
                (Some(sum), "ReduceMin") => sum.min(value),
                (Some(sum), _) => sum.max(value),
            });
        }
        let neutral = i128::from(op == "ReduceProd");
        let values: Vec<i128> = sums.into_iter().map(|sum| sum.unwrap_or(neutral)).collect();
        let result = from_ints(dtype, &to, &values)?;
        // What overflows is not the same everywhere.
        return if ints(&result)? == values { Ok(result) } else { Err(Stop::Skip) };
    }
    if !is_real(dtype) || (each > 1 && !extreme) {
        return Err(Stop::Skip);
    }
    let mut sums: Vec<Option<f64>> = vec![None; count];
    for (value, place) in floats(x)?.into_iter().zip(places) {
        if value.is_nan() || (value == 0.0 && extreme && value.is_sign_negative()) {
            return Err(Stop::Skip);
        }
        let slot = sums.get_mut(place).or_skip()?;
        *slot = Some(match (*slot, op) {
            (None, _) => value,
            (Some(best), "ReduceMin") => best.min(value),
            (Some(best), _) => best.max(value),
        });
    }
    let neutral = f64::from(u8::from(op == "ReduceProd"));
    let values: Vec<f64> = sums.into_iter().map(|sum| sum.unwrap_or(neutral)).collect();
    from_floats(dtype, &to, &values)
}

pub(super) fn arg_extreme(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let from = sizes(x);
    let at = axis(args.int("axis", 0), from.len())?;
    let (to, places) = groups(&from, &[at], args.int("keepdims", 1) != 0)?;
    let count = affordable(DType::I64, &to)?;
    if from[at] == 0 {
        return Err(Stop::Skip);
    }
    let (largest, last) = (args.node.op() == "ArgMax", args.int("select_last_index", 0) != 0);
    let after: usize = from[at + 1..].iter().product();
    let values = ints(x)?;
    let mut best: Vec<Option<(i128, usize)>> = vec![None; count];
    for (k, (value, place)) in values.into_iter().zip(places).enumerate() {
        let index = k / after % from[at];
        let slot = best.get_mut(place).or_skip()?;
        let better = match *slot {
            None => true,
            Some((old, _)) if old == value => last,
            Some((old, _)) => (value > old) == largest,
        };
        if better {
            *slot = Some((value, index));
        }
    }
    let indices: Vec<i128> = best.into_iter().map(|b| b.map_or(0, |(_, k)| k as i128)).collect();
    from_ints(DType::I64, &to, &indices)
}

pub(super) fn cum_sum(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let from = sizes(x);
    let at = axis(args.scalar(1)?, from.len())?;
    if !is_whole(x.dtype()) || x.dtype() == DType::Bool {
        return Err(Stop::Skip);
    }
    let (exclusive, reverse) = (args.int("exclusive", 0) != 0, args.int("reverse", 0) != 0);
    affordable(x.dtype(), &from)?;
    let mut values = ints(x)?;
    let (before, size): (usize, usize) = (from[..at].iter().product(), from[at]);
    let after: usize = from[at + 1..].iter().product();
    if before.checked_mul(size).and_then(|n| n.checked_mul(after)) != Some(values.len()) {
        return invalid("dims and elements differ");
    }
    for row in 0..before {
        for column in 0..after {
            let mut sum = 0i128;
            for step in 0..size {
                let k = if reverse { size - 1 - step } else { step };
                let slot = &mut values[(row * size + k) * after + column];
                let value = *slot;
                *slot = if exclusive { sum } else { sum + value };
                sum += value;
            }
        }
    }
    from_ints(x.dtype(), &from, &values)
}

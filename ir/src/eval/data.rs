//! Data movement with a pattern that dims and attributes fix: any dtype, strings included.

use super::{
    Args, OrSkip, Out, Stop, axes, axis, broadcast, invalid,
    numbers::{Walk, affordable, broadcast_strides, each_coordinate, pick, strides},
    shape::dims_of,
    sizes,
};
use crate::tensor::Tensor;
use trtc_bundle::DType;

fn strided(x: &Tensor, to: &[usize], steps: Vec<isize>, base: isize) -> Out<Tensor> {
    affordable(x.dtype(), to)?;
    pick(&[x], to, Walk::new(to, steps, base).map(|k| (0, k)))
}

pub(super) fn transpose(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let from = sizes(x);
    let perm = match args.node.attrs().ints("perm") {
        Some(list) => axes(list, from.len())?,
        None => (0..from.len()).rev().collect(),
    };
    if perm.len() != from.len() {
        return invalid("perm does not name every axis");
    }
    let own = strides(&from);
    let to: Vec<usize> = perm.iter().map(|&k| from[k]).collect();
    strided(x, &to, perm.iter().map(|&k| own[k]).collect(), 0)
}

/// First element, number of elements and step of a slice along a dim of `size`, by ONNX's clamping.
pub(crate) fn slice_range(size: i64, start: i64, end: i64, step: i64) -> (i64, i64) {
    let wrap = |value: i64| if value < 0 { value.saturating_add(size) } else { value };
    if step > 0 {
        let (start, end) = (wrap(start).clamp(0, size), wrap(end).clamp(0, size));
        (start, (end - start).max(0).div_ceil_by(step))
    } else {
        let last = size - 1;
        let (start, end) = (wrap(start).clamp(0.min(last), last), wrap(end).clamp(-1, last));
        (start, (start - end).max(0).div_ceil_by(step.saturating_neg()))
    }
}

trait DivCeil {
    fn div_ceil_by(self, by: i64) -> i64;
}

impl DivCeil for i64 {
    /// Both are not negative, `by` not 0.
    fn div_ceil_by(self, by: i64) -> i64 {
        self / by + i64::from(self % by != 0)
    }
}

pub(super) fn slice(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let from = sizes(x);
    let (starts, ends) = (args.ints(1)?, args.ints(2)?);
    let on = match args.opt_ints(3)? {
        Some(list) => axes(&list, from.len())?,
        None => (0..starts.len()).collect(),
    };
    let steps = args.opt_ints(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if ends.len() != starts.len() || on.len() != starts.len() || steps.len() != starts.len() {
        return invalid("starts, ends, axes and steps differ in length");
    }
    let (mut to, mut own, mut base) = (from.clone(), strides(&from), 0isize);
    for (k, &at) in on.iter().enumerate() {
        let Some(&size) = from.get(at) else { return invalid("more starts than axes") };
        if steps[k] == 0 {
            return invalid("a step is 0");
        }
        // ONNX Runtime takes this for "to the start", the specification for an empty slice.
        if steps[k] < 0 && ends[k] >= i64::from(i32::MAX) {
            return Err(Stop::Skip);
        }
        let (start, count) = slice_range(size as i64, starts[k], ends[k], steps[k]);
        base += start as isize * own[at];
        // A step past the end is never taken; keep the product small.
        own[at] = own[at].saturating_mul(if count > 1 { steps[k] as isize } else { 1 });
        to[at] = count as usize;
    }
    if to == from && steps.iter().all(|&step| step > 0) {
        return Ok(x.clone());
    }
    strided(x, &to, own, base)
}

pub(super) fn concat(args: &Args<'_>) -> Out<Tensor> {
    let parts = args.inputs.iter().map(|part| part.or_skip()).collect::<Out<Vec<&Tensor>>>()?;
    let first = *parts.first().or_skip()?;
    let at = axis(args.node.attrs().int("axis").or_skip()?, first.dims().len())?;
    let mut to = sizes(first);
    to[at] = 0;
    for part in &parts {
        let from = sizes(part);
        if from.len() != to.len() || (0..to.len()).any(|k| k != at && from[k] != to[k]) {
            return invalid("the inputs' dims differ off the axis");
        }
        to[at] += from[at];
    }
    if parts.len() == 1 {
        return Ok(first.clone());
    }
    affordable(first.dtype(), &to)?;
    let (before, after): (usize, usize) = (to[..at].iter().product(), to[at + 1..].iter().product());
    let runs: Vec<usize> = parts.iter().map(|part| sizes(part)[at] * after).collect();
    let picks = (0..before).flat_map(|row| {
        runs.iter().enumerate().flat_map(move |(s, &run)| (row * run..(row + 1) * run).map(move |k| (s, k)))
    });
    pick(&parts, &to, picks)
}

/// Sizes of the parts of a Split along a dim of `size`.
pub(crate) fn split_sizes(size: usize, given: Option<&[i64]>, parts: usize) -> Out<Vec<usize>> {
    match given {
        Some(list) => {
            let list = dims_of(list)?;
            if list.iter().sum::<usize>() != size {
                return invalid(format!("split does not add up to {size}"));
            }
            Ok(list)
        }
        None if parts == 0 => invalid("a split into no parts"),
        None => {
            let chunk = size.div_ceil(parts);
            Ok((0..parts).map(|k| size.saturating_sub(k * chunk).min(chunk)).collect())
        }
    }
}

pub(super) fn split(args: &Args<'_>) -> Out<Vec<Tensor>> {
    let x = args.need(0)?;
    let from = sizes(x);
    let at = axis(args.int("axis", 0), from.len())?;
    let given = args.ints_or_attr(1, "split")?;
    let parts = match args.node.attrs().int("num_outputs") {
        Some(n) => usize::try_from(n).map_err(|_| Stop::Skip)?,
        None => args.node.output_count(),
    };
    let own = strides(&from);
    let mut start = 0isize;
    let mut outputs = Vec::new();
    for size in split_sizes(from[at], given.as_deref(), parts)? {
        let mut to = from.clone();
        to[at] = size;
        outputs.push(strided(x, &to, own.clone(), start * own[at])?);
        start += size as isize;
    }
    Ok(outputs)
}

pub(super) fn expand(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let from = sizes(x);
    let to = broadcast(&from, &dims_of(&args.ints(1)?)?)?;
    if to == from {
        return Ok(x.clone());
    }
    strided(x, &to, broadcast_strides(&from, &to), 0)
}

pub(super) fn tile(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let from = sizes(x);
    let repeats = dims_of(&args.ints(1)?)?;
    if repeats.len() != from.len() {
        return invalid("repeats does not name every axis");
    }
    let own = strides(&from);
    let to: Vec<usize> = from.iter().zip(&repeats).map(|(d, r)| d.saturating_mul(*r)).collect();
    affordable(x.dtype(), &to)?;
    // Repeat and dim side by side walk in the order of the result.
    let split: Vec<usize> = repeats.iter().zip(&from).flat_map(|(&r, &d)| [r, d]).collect();
    let steps = own.iter().flat_map(|&s| [0, s]).collect();
    pick(&[x], &to, Walk::new(&split, steps, 0).map(|k| (0, k)))
}

pub(super) fn pad(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    if args.node.str("mode", "constant") != "constant" {
        return Err(Stop::Skip);
    }
    let from = sizes(x);
    let pads = args.ints(1)?;
    let on = match args.opt_ints(3)? {
        Some(list) => axes(&list, from.len())?,
        None => (0..from.len()).collect(),
    };
    if pads.len() != 2 * on.len() {
        return invalid("pads needs two numbers an axis");
    }
    let (mut to, mut before) = (from.clone(), vec![0i64; from.len()]);
    for (k, &at) in on.iter().enumerate() {
        before[at] = pads[k];
        let size = from[at] as i128 + i128::from(pads[k]) + i128::from(pads[on.len() + k]);
        let Ok(size) = usize::try_from(size) else { return invalid("pads cut off more than there is") };
        to[at] = size;
    }
    if pads.iter().all(|&p| p == 0) {
        return Ok(x.clone());
    }
    let zero;
    let fill = match args.opt(2) {
        Some(fill) if fill.count() == 1 => fill,
        Some(_) => return invalid("constant_value has to hold one element"),
        None if x.dtype() == DType::Str => return Err(Stop::Skip),
        None => {
            let bytes = vec![0u8; x.dtype().bytes_for(1).or_skip()?];
            zero = Tensor::new(x.dtype(), vec![1], bytes.into()).or_skip()?;
            &zero
        }
    };
    let count = affordable(x.dtype(), &to)?;
    let own = strides(&from);
    let mut picks = Vec::with_capacity(count);
    each_coordinate(&to, |at| {
        let mut offset = 0isize;
        for (k, &c) in at.iter().enumerate() {
            match usize::try_from(c as i64 - before[k]) {
                Ok(inside) if inside < from[k] => offset += inside as isize * own[k],
                _ => {
                    picks.push((1, 0));
                    return Ok(());
                }
            }
        }
        picks.push((0, offset as usize));
        Ok(())
    })?;
    pick(&[x, fill], &to, picks.into_iter())
}

/// Where.
pub(super) fn select(args: &Args<'_>) -> Out<Tensor> {
    let (condition, x, y) = (args.need(0)?, args.need(1)?, args.need(2)?);
    if condition.dtype() != DType::Bool {
        return invalid("the condition is not bool");
    }
    let (cs, xs, ys) = (sizes(condition), sizes(x), sizes(y));
    let to = broadcast(&broadcast(&cs, &xs)?, &ys)?;
    affordable(x.dtype(), &to)?;
    let chosen = condition.bytes().or_skip()?;
    let walk = |from: &[usize]| Walk::new(&to, broadcast_strides(from, &to), 0);
    let picks = walk(&cs)
        .zip(walk(&xs).zip(walk(&ys)))
        .map(|(c, (x, y))| if chosen.get(c).is_some_and(|&b| b != 0) { (0, x) } else { (1, y) });
    pick(&[x, y], &to, picks)
}

pub(super) fn trilu(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let from = sizes(x);
    let [.., rows, columns] = from[..] else { return invalid("Trilu takes matrices") };
    let k = args.opt(1).map_or(Ok(0), |_| args.scalar(1))?;
    let upper = args.int("upper", 1) != 0;
    let bytes = vec![0u8; x.dtype().bytes_for(1).or_skip()?];
    let zero = Tensor::new(x.dtype(), vec![1], bytes.into()).or_skip()?;
    let count = affordable(x.dtype(), &from)?;
    let picks = (0..count).map(|at| {
        let (row, column) = ((at / columns % rows) as i64, (at % columns) as i64);
        let distance = (column - row).saturating_sub(k);
        let keep = if upper { distance >= 0 } else { distance <= 0 };
        if keep { (0, at) } else { (1, 0) }
    });
    pick(&[x, &zero], &from, picks)
}

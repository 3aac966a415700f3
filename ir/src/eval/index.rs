//! Data movement by index tensors.

use super::{
    Args, MAX_COUNT, MAX_WORK, OrSkip, Out, Stop, axis, invalid,
    numbers::{affordable, each_coordinate, floats, from_ints, ints, is_real, pick, strides},
    sizes, within,
};
use crate::tensor::Tensor;
use trtc_bundle::DType;

/// An index in `0..size`, from a possibly negative one.
fn wrapped(value: i64, size: usize) -> Out<usize> {
    let index = if value < 0 { value + size as i64 } else { value };
    match usize::try_from(index) {
        Ok(index) if index < size => Ok(index),
        _ => invalid(format!("index {value} is out of range for size {size}")),
    }
}

pub(super) fn gather(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let from = sizes(x);
    let at = axis(args.int("axis", 0), from.len())?;
    let size = from[at];
    let list = args.ints(1)?.into_iter().map(|i| wrapped(i, size)).collect::<Out<Vec<usize>>>()?;
    let mut to = from[..at].to_vec();
    to.extend(sizes(args.need(1)?));
    to.extend(&from[at + 1..]);
    affordable(x.dtype(), &to)?;
    let (before, after): (usize, usize) = (from[..at].iter().product(), from[at + 1..].iter().product());
    let picks = (0..before).flat_map(|row| {
        let list = &list;
        list.iter().flat_map(move |&i| {
            let start = (row * size + i) * after;
            (start..start + after).map(|k| (0, k))
        })
    });
    pick(&[x], &to, picks)
}

/// Offsets of the elements that GatherElements or ScatterElements name.
fn element_offsets(args: &Args<'_>, from: &[usize]) -> Out<Vec<usize>> {
    let at = axis(args.int("axis", 0), from.len())?;
    let indices = args.need(1)?;
    let on = sizes(indices);
    if on.len() != from.len() || (0..on.len()).any(|k| k != at && on[k] > from[k]) {
        return invalid("indices do not fit the data");
    }
    within(indices.count(), MAX_WORK)?;
    let own = strides(from);
    let mut list = args.ints(1)?.into_iter();
    let mut offsets = Vec::with_capacity(indices.count());
    each_coordinate(&on, |c| {
        let index = wrapped(list.next().or_skip()?, from[at])?;
        let place = |k: usize| if k == at { index } else { c[k] };
        offsets.push((0..c.len()).map(|k| place(k) * own[k] as usize).sum());
        Ok(())
    })?;
    Ok(offsets)
}

pub(super) fn gather_elements(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let to = sizes(args.need(1)?);
    affordable(x.dtype(), &to)?;
    let offsets = element_offsets(args, &sizes(x))?;
    pick(&[x], &to, offsets.into_iter().map(|k| (0, k)))
}

/// Sets elements of a copy of `x`; a later update of the same element wins.
fn scatter(x: &Tensor, updates: &Tensor, writes: impl Iterator<Item = (usize, usize)>) -> Out<Tensor> {
    let to = sizes(x);
    let count = affordable(x.dtype(), &to)?;
    let mut picks: Vec<(usize, usize)> = (0..count).map(|k| (0, k)).collect();
    for (target, source) in writes {
        *picks.get_mut(target).or_skip()? = (1, source);
    }
    pick(&[x, updates], &to, picks.into_iter())
}

pub(super) fn scatter_elements(args: &Args<'_>) -> Out<Tensor> {
    let (x, updates) = (args.need(0)?, args.need(2)?);
    if args.node.str("reduction", "none") != "none" {
        return Err(Stop::Skip);
    }
    if updates.dims() != args.need(1)?.dims() {
        return invalid("updates and indices differ in shape");
    }
    affordable(x.dtype(), &sizes(x))?;
    let offsets = element_offsets(args, &sizes(x))?;
    scatter(x, updates, offsets.into_iter().enumerate().map(|(k, target)| (target, k)))
}

/// Offsets that index tuples (the last axis of `indices`) name in a tensor of `from`, and the run that each selects.
fn tuples(indices: &Tensor, from: &[usize]) -> Out<(Vec<usize>, usize)> {
    let on = sizes(indices);
    let Some(&depth) = on.last() else { return invalid("indices is a scalar") };
    if depth > from.len() || depth == 0 {
        return invalid(format!("index tuples of {depth} for rank {}", from.len()));
    }
    within(indices.count(), MAX_WORK)?;
    let own = strides(from);
    let list = indices.to_i64s().or_skip()?;
    let offsets = list
        .chunks_exact(depth)
        .map(|tuple| {
            let parts = tuple.iter().enumerate().map(|(k, &i)| Ok(wrapped(i, from[k])? * own[k] as usize));
            parts.sum::<Out<usize>>()
        })
        .collect::<Out<Vec<usize>>>()?;
    Ok((offsets, from[depth..].iter().product()))
}

pub(super) fn gather_nd(args: &Args<'_>) -> Out<Tensor> {
    let (x, indices) = (args.need(0)?, args.need(1)?);
    let (from, on) = (sizes(x), sizes(indices));
    let batch = usize::try_from(args.int("batch_dims", 0)).map_err(|_| Stop::Skip)?;
    if batch >= on.len() || batch >= from.len() || from[..batch] != on[..batch] {
        return invalid("batch_dims does not fit data and indices");
    }
    let (offsets, run) = tuples(indices, &from[batch..])?;
    let depth = on.last().copied().unwrap_or(0);
    let mut to = on[..on.len() - 1].to_vec();
    to.extend(&from[batch + depth..]);
    affordable(x.dtype(), &to)?;
    let batches: usize = from[..batch].iter().product();
    let (each, plane) = (offsets.len() / batches.max(1), from[batch..].iter().product::<usize>());
    let picks = offsets.iter().enumerate().flat_map(|(k, &offset)| {
        let start = k / each.max(1) * plane + offset;
        (start..start + run).map(|k| (0, k))
    });
    pick(&[x], &to, picks)
}

pub(super) fn scatter_nd(args: &Args<'_>) -> Out<Tensor> {
    let (x, indices, updates) = (args.need(0)?, args.need(1)?, args.need(2)?);
    if args.node.str("reduction", "none") != "none" {
        return Err(Stop::Skip);
    }
    let from = sizes(x);
    affordable(x.dtype(), &from)?;
    let (offsets, run) = tuples(indices, &from)?;
    if updates.count() != offsets.len() * run {
        return invalid("updates do not fit indices and data");
    }
    let writes =
        offsets.iter().enumerate().flat_map(|(k, &offset)| (0..run).map(move |j| (offset + j, k * run + j)));
    scatter(x, updates, writes)
}

pub(super) fn non_zero(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let from = sizes(x);
    within(x.count(), MAX_COUNT)?;
    if from.is_empty() {
        return Err(Stop::Skip);
    }
    let set: Vec<bool> = if is_real(x.dtype()) {
        floats(x)?.into_iter().map(|v| v != 0.0).collect()
    } else {
        ints(x)?.into_iter().map(|v| v != 0).collect()
    };
    let mut found: Vec<Vec<i128>> = vec![Vec::new(); from.len()];
    let mut at = set.into_iter();
    each_coordinate(&from, |c| {
        if at.next() == Some(true) {
            for (list, &k) in found.iter_mut().zip(c) {
                list.push(k as i128);
            }
        }
        Ok(())
    })?;
    let count = found[0].len();
    from_ints(DType::I64, &[from.len(), count], &found.concat())
}

pub(super) fn one_hot(args: &Args<'_>) -> Out<Tensor> {
    let (indices, values) = (args.need(0)?, args.need(2)?);
    let depth = usize::try_from(args.scalar(1)?).map_err(|_| Stop::Skip)?;
    if values.count() != 2 {
        return invalid("values has to hold two elements");
    }
    let list = args.ints(0)?;
    let mut to = sizes(indices);
    let at = match args.int("axis", -1) {
        -1 => to.len(),
        value => axis(value, to.len() + 1)?,
    };
    let after: usize = to[at..].iter().product();
    to.insert(at, depth);
    let count = affordable(values.dtype(), &to)?;
    let picks = (0..count).map(|k| {
        let (row, hot, column) = (k / after / depth, k / after % depth, k % after);
        let index = list.get(row * after + column).copied().unwrap_or(0);
        let index = if index < 0 { index + depth as i64 } else { index };
        (0, usize::from(index == hot as i64))
    });
    pick(&[values], &to, picks)
}

//! Constants, shapes of things, and views: operators that move no element.

use super::{
    Args, OrSkip, Out, Stop, axes, axis, invalid,
    numbers::{affordable, from_floats, from_ints, is_real, is_whole, pick},
    sizes,
};
use crate::{attr::Attr, tensor::Tensor};
use std::sync::Arc;
use trtc_bundle::DType;

pub(super) fn constant(args: &Args<'_>) -> Out<Tensor> {
    let mut attrs = args.node.attrs().iter();
    let (Some((name, attr)), None) = (attrs.next(), attrs.next()) else { return Err(Stop::Skip) };
    match (name, attr) {
        ("value", Attr::Tensor(tensor)) => Ok(tensor.clone()),
        ("value_int", Attr::Int(value)) => Ok(Tensor::scalar_i64(*value)),
        ("value_ints", Attr::Ints(values)) => Ok(Tensor::from_i64s(values)),
        ("value_float", Attr::Float(value)) => Tensor::from_f32s(vec![], &[*value]).or_skip(),
        ("value_floats", Attr::Floats(values)) => {
            Tensor::from_f32s(vec![values.len() as i64], values).or_skip()
        }
        ("value_string", Attr::Str(value)) => Tensor::strings(vec![], Arc::from([value.clone()])).or_skip(),
        ("value_strings", Attr::Strs(values)) => {
            Tensor::strings(vec![values.len() as i64], values.clone().into()).or_skip()
        }
        _ => Err(Stop::Skip),
    }
}

pub(super) fn constant_of_shape(args: &Args<'_>) -> Out<Tensor> {
    let dims = dims_of(&args.ints(0)?)?;
    let zero = Tensor::from_f32s(vec![1], &[0.0]).or_skip()?;
    let value = args.node.attrs().tensor("value").unwrap_or(&zero);
    if value.count() != 1 {
        return invalid("value has to hold one element");
    }
    pick(&[value], &dims, std::iter::repeat((0, 0)))
}

/// Dims given as elements of a tensor.
pub(super) fn dims_of(values: &[i64]) -> Out<Vec<usize>> {
    values.iter().map(|&d| usize::try_from(d).or_else(|_| invalid(format!("dim {d} is negative")))).collect()
}

pub(super) fn eye_like(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let [rows, columns] = sizes(x)[..] else { return invalid("EyeLike takes a matrix") };
    let dtype = match args.node.attrs().int("dtype") {
        Some(number) => i32::try_from(number).ok().and_then(DType::from_onnx).or_skip()?,
        None => x.dtype(),
    };
    affordable(dtype, &[rows, columns])?;
    let k = i128::from(args.int("k", 0));
    let ones: Vec<i128> =
        (0..rows as i128).flat_map(|r| (0..columns as i128).map(move |c| i128::from(c - r == k))).collect();
    if is_whole(dtype) {
        from_ints(dtype, &[rows, columns], &ones)
    } else if is_real(dtype) {
        from_floats(dtype, &[rows, columns], &ones.iter().map(|&v| v as f64).collect::<Vec<f64>>())
    } else {
        Err(Stop::Skip)
    }
}

pub(super) fn shape(args: &Args<'_>) -> Out<Tensor> {
    let dims = args.need(0)?.dims();
    let (start, end) = shape_range(args.node, dims.len());
    Ok(Tensor::from_i64s(dims.get(start..end).unwrap_or(&[])))
}

/// The axes that a Shape node reads, as start and end: both clamp to the rank.
pub(crate) fn shape_range(node: crate::view::NodeView<'_>, rank: usize) -> (usize, usize) {
    let clamp = |value: i64| {
        let value = if value < 0 { value.saturating_add(rank as i64) } else { value };
        value.clamp(0, rank as i64) as usize
    };
    (clamp(node.int("start", 0)), clamp(node.int("end", i64::MAX)))
}

pub(super) fn size(args: &Args<'_>) -> Out<Tensor> {
    Ok(Tensor::scalar_i64(args.need(0)?.count() as i64))
}

pub(super) fn range(args: &Args<'_>) -> Out<Tensor> {
    let dtype = args.need(0)?.dtype();
    if !matches!(dtype, DType::I16 | DType::I32 | DType::I64) {
        return Err(Stop::Skip);
    }
    let (start, limit, delta) =
        (i128::from(args.scalar(0)?), i128::from(args.scalar(1)?), i128::from(args.scalar(2)?));
    if delta == 0 {
        return invalid("delta is 0");
    }
    let span = limit - start;
    let count = if (span > 0) == (delta > 0) && span != 0 { span.abs().div_euclid(delta.abs()) } else { 0 };
    let count = count + i128::from((span > 0) == (delta > 0) && span % delta != 0);
    let count = usize::try_from(count).map_err(|_| Stop::Skip)?;
    affordable(dtype, &[count])?;
    let values: Vec<i128> = (0..count as i128).map(|k| start + k * delta).collect();
    from_ints(dtype, &[count], &values)
}

/// Identity, and Dropout at inference.
pub(super) fn identity(args: &Args<'_>) -> Out<Vec<Tensor>> {
    let x = args.need(0)?;
    if args.node.op() == "Dropout" {
        if args.opt(2).is_some_and(|mode| mode.to_i64s() != Some(vec![0])) {
            return Err(Stop::Skip);
        }
        if args.node.output(1).is_some() {
            return Err(Stop::Skip);
        }
    }
    Ok(vec![x.clone()])
}

fn view(tensor: &Tensor, dims: Vec<i64>) -> Out<Tensor> {
    match tensor.with_dims(dims) {
        Some(view) => Ok(view),
        None => invalid("the number of elements changes"),
    }
}

pub(super) fn reshape(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let wanted = args.ints(1)?;
    let copy_zero = args.int("allowzero", 0) == 0;
    let mut dims = Vec::with_capacity(wanted.len());
    for (k, &d) in wanted.iter().enumerate() {
        match d {
            0 if copy_zero => match x.dims().get(k) {
                Some(&d) => dims.push(d),
                None => return invalid(format!("shape copies dim {k}, which the input does not have")),
            },
            -1.. => dims.push(d),
            _ => return invalid(format!("shape holds {d}")),
        }
    }
    if let Some(at) = dims.iter().position(|&d| d == -1) {
        dims[at] = 1;
        let rest = crate::tensor::element_count(&dims).or_skip()?;
        if rest == 0 || !x.count().is_multiple_of(rest) {
            return invalid("-1 in shape has no solution");
        }
        dims[at] = (x.count() / rest) as i64;
    }
    view(x, dims)
}

pub(super) fn flatten(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let rank = x.dims().len();
    let value = args.int("axis", 1);
    let at = if value == rank as i64 { rank } else { axis(value, rank)? };
    let (rows, columns) = x.dims().split_at(at);
    view(x, vec![rows.iter().product(), columns.iter().product()])
}

pub(super) fn squeeze(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let dims = x.dims();
    let drop = match args.ints_or_attr(1, "axes")? {
        Some(list) => axes(&list, dims.len())?,
        None => (0..dims.len()).filter(|&k| dims[k] == 1).collect(),
    };
    if let Some(&k) = drop.iter().find(|&&k| dims[k] != 1) {
        return invalid(format!("axis {k} has size {}, not 1", dims[k]));
    }
    view(x, (0..dims.len()).filter(|k| !drop.contains(k)).map(|k| dims[k]).collect())
}

pub(super) fn unsqueeze(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let list = args.ints_or_attr(1, "axes")?.or_skip()?;
    let rank = x.dims().len() + list.len();
    let new = axes(&list, rank)?;
    let mut old = x.dims().iter();
    let dims = (0..rank).map(|k| if new.contains(&k) { 1 } else { old.next().copied().unwrap_or(1) });
    view(x, dims.collect())
}

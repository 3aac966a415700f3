//! Dtypes and dims of a layer's outputs, as TensorRT infers them (−1 where only the run knows).

use crate::layer::*;
use crate::network::{TensorId, TensorInfo, WeightsInfo};
use trtc_bundle::DType;

/// Read access to what is known already.
pub(crate) struct Known<'a> {
    pub tensors: &'a [TensorInfo],
    pub weights: &'a [WeightsInfo],
}

impl<'a> Known<'a> {
    fn get(&self, id: TensorId) -> Result<&'a TensorInfo, String> {
        self.tensors.get(id.index()).ok_or_else(|| format!("tensor {} does not exist", id.0))
    }
}

/// The outputs of `layer`, or why TensorRT would not take it.
pub(crate) fn outputs(layer: &Layer, known: &Known<'_>) -> Result<Vec<TensorInfo>, String> {
    let one = |dtype: DType, dims: Vec<i64>| Ok(vec![TensorInfo { dtype, dims }]);
    match layer {
        Layer::Activation { x, .. } | Layer::Identity { x } | Layer::Lrn { x, .. } => {
            Ok(vec![known.get(*x)?.clone()])
        }
        Layer::Unary { x, op } => {
            let x = known.get(*x)?;
            let dtype = if matches!(op, UnaryOp::IsInf | UnaryOp::IsNan) { DType::Bool } else { x.dtype };
            one(dtype, x.dims.clone())
        }
        Layer::Cast { x, to } => one(*to, known.get(*x)?.dims.clone()),
        Layer::Quantize { x, to, .. } | Layer::Dequantize { x, to, .. } => {
            one(*to, known.get(*x)?.dims.clone())
        }
        Layer::Concatenation { xs, axis } => concatenation(xs, *axis, known),
        Layer::Constant { dims, weights } => {
            let info = known.weights.get(weights.index()).ok_or("weights do not exist")?;
            let count =
                dims.iter().try_fold(1u64, |n, &d| u64::try_from(d).ok().and_then(|d| n.checked_mul(d)));
            if count != Some(info.count) {
                return Err(format!("constant of dims {dims:?} with {} elements", info.count));
            }
            one(info.dtype, dims.clone())
        }
        Layer::Convolution { x, kernel, window, groups, .. } => {
            let (x, k) = (known.get(*x)?, known.get(*kernel)?);
            spatial_rank(x, window)?;
            let channels = *k.dims.first().ok_or("kernel of rank 0")?;
            if let (Some(&c), Some(&kc)) = (x.dims.get(1), k.dims.get(1))
                && c >= 0
                && kc >= 0
                && c != kc * groups
            {
                return Err(format!("{c} input channels against a kernel of {kc} in {groups} groups"));
            }
            let mut dims = vec![x.dims[0], channels];
            dims.extend(window_dims(&x.dims[2..], window, false)?);
            one(x.dtype, dims)
        }
        Layer::Deconvolution { x, kernel, window, groups, .. } => {
            let (x, k) = (known.get(*x)?, known.get(*kernel)?);
            spatial_rank(x, window)?;
            let channels = *k.dims.get(1).ok_or("kernel of rank below 2")?;
            let mut dims = vec![x.dims[0], if channels < 0 { -1 } else { channels * groups }];
            for (axis, &d) in x.dims[2..].iter().enumerate() {
                let kernel = (window.kernel[axis] - 1) * window.dilation[axis] + 1;
                let pads = window.pre_padding[axis] + window.post_padding[axis];
                dims.push(if d < 0 { -1 } else { (d - 1) * window.stride[axis] + kernel - pads });
            }
            one(x.dtype, dims)
        }
        Layer::Pooling { x, window, .. } => {
            let x = known.get(*x)?;
            spatial_rank(x, window)?;
            let mut dims = x.dims[..2].to_vec();
            dims.extend(window_dims(&x.dims[2..], window, true)?);
            one(x.dtype, dims)
        }
        Layer::Cumulative { x, .. } => Ok(vec![known.get(*x)?.clone()]),
        Layer::Einsum { xs, equation } => einsum(xs, equation, known),
        Layer::ElementWise { a, b, op } => {
            let (a, b) = (known.get(*a)?, known.get(*b)?);
            if a.dtype != b.dtype {
                return Err(format!("{op:?} of {} and {}", a.dtype, b.dtype));
            }
            let logical = matches!(op, ElementWiseOp::Equal | ElementWiseOp::Greater | ElementWiseOp::Less);
            one(if logical { DType::Bool } else { a.dtype }, broadcast(&[&a.dims, &b.dims])?)
        }
        Layer::Fill { shape, to, .. } => one(*to, extent_dims(shape, known)?),
        Layer::Gather { data, indices, axis, mode, batch_dims } => {
            gather(known.get(*data)?, known.get(*indices)?, *axis as usize, *mode, *batch_dims as usize)
        }
        Layer::GridSample { x, grid, .. } => {
            let (x, grid) = (known.get(*x)?, known.get(*grid)?);
            if x.dims.len() < 3 || grid.dims.len() != x.dims.len() {
                return Err("grid sample of unequal ranks".into());
            }
            let mut dims = x.dims[..2].to_vec();
            dims.extend_from_slice(&grid.dims[1..grid.dims.len() - 1]);
            one(x.dtype, dims)
        }
        Layer::If { condition, then_branch, else_branch, .. } => {
            let condition = known.get(*condition)?;
            if condition.dtype != DType::Bool || !condition.dims.is_empty() {
                return Err("the condition of an If is a rank-0 bool".into());
            }
            if then_branch.outputs.len() != else_branch.outputs.len() {
                return Err("the branches of an If hand out unequal numbers of tensors".into());
            }
            let mut results = Vec::new();
            for (&t, &e) in then_branch.outputs.iter().zip(&else_branch.outputs) {
                let (t, e) = (known.get(t)?, known.get(e)?);
                if t.dtype != e.dtype || t.dims.len() != e.dims.len() {
                    return Err("the branches of an If differ in dtype or rank".into());
                }
                let dims = t.dims.iter().zip(&e.dims).map(|(&a, &b)| if a == b { a } else { -1 }).collect();
                results.push(TensorInfo { dtype: t.dtype, dims });
            }
            Ok(results)
        }
        Layer::Loop { recurrences, results, .. } => loop_results(recurrences, results, known),
        Layer::MatrixMultiply { a, op_a, b, op_b } => matmul(known.get(*a)?, *op_a, known.get(*b)?, *op_b),
        Layer::Nms { to, .. } => Ok(vec![
            TensorInfo { dtype: *to, dims: vec![-1, 3] },
            // The type of the indices is not that of their number.
            TensorInfo { dtype: DType::I32, dims: Vec::new() },
        ]),
        Layer::NonZero { x, to } => one(*to, vec![known.get(*x)?.dims.len() as i64, -1]),
        Layer::Normalization { x, .. } => Ok(vec![known.get(*x)?.clone()]),
        Layer::OneHot { indices, values, axis, .. } => {
            let mut dims = known.get(*indices)?.dims.clone();
            if *axis as usize > dims.len() {
                return Err("one-hot axis out of range".into());
            }
            dims.insert(*axis as usize, -1);
            one(known.get(*values)?.dtype, dims)
        }
        Layer::ParametricRelu { x, slopes } => {
            let (x, s) = (known.get(*x)?, known.get(*slopes)?);
            one(x.dtype, broadcast(&[&x.dims, &s.dims])?)
        }
        Layer::Reduce { x, axes, keep_dims, .. } => {
            let x = known.get(*x)?;
            axes_in_range(axes, x.dims.len())?;
            let mut dims = Vec::new();
            for (axis, &d) in x.dims.iter().enumerate() {
                match (axes.contains(&(axis as u32)), keep_dims) {
                    (false, _) => dims.push(d),
                    (true, true) => dims.push(1),
                    (true, false) => {}
                }
            }
            one(x.dtype, dims)
        }
        Layer::Resize { x, to, .. } => {
            let x = known.get(*x)?;
            match to {
                ResizeTo::Sizes(extent) => one(x.dtype, extent_dims(extent, known)?),
                ResizeTo::Scales(scales) => {
                    if scales.len() != x.dims.len() {
                        return Err("one scale a dim".into());
                    }
                    let scale =
                        |(&d, &s): (&i64, &f32)| if d < 0 { -1 } else { (d as f32 * s).floor() as i64 };
                    one(x.dtype, x.dims.iter().zip(scales).map(scale).collect())
                }
            }
        }
        Layer::ReverseSequence { x, .. } => Ok(vec![known.get(*x)?.clone()]),
        Layer::Scatter { data, .. } => Ok(vec![known.get(*data)?.clone()]),
        Layer::Select { condition, then_input, else_input } => {
            let (c, t, e) = (known.get(*condition)?, known.get(*then_input)?, known.get(*else_input)?);
            if c.dtype != DType::Bool || t.dtype != e.dtype {
                return Err(format!("select of {}, {}, {}", c.dtype, t.dtype, e.dtype));
            }
            one(t.dtype, broadcast(&[&c.dims, &t.dims, &e.dims])?)
        }
        Layer::Shape { x } => one(DType::I64, vec![known.get(*x)?.dims.len() as i64]),
        Layer::Shuffle { x, first, reshape, zero_is_placeholder, second } => {
            let x = known.get(*x)?;
            let mut dims = permute(&x.dims, first.as_deref())?;
            if let Some(extent) = reshape {
                dims = match extent {
                    Extent::Static(to) => reshaped(&dims, to, *zero_is_placeholder)?,
                    Extent::Tensor(_) => extent_dims(extent, known)?,
                };
            }
            one(x.dtype, permute(&dims, second.as_deref())?)
        }
        Layer::Slice { x, size, .. } => {
            let x = known.get(*x)?;
            let dims = extent_dims(size, known)?;
            if dims.len() != x.dims.len() {
                return Err("a slice names every dim".into());
            }
            one(x.dtype, dims)
        }
        Layer::SoftMax { x, axis } => {
            let x = known.get(*x)?;
            axes_in_range(&[*axis], x.dims.len())?;
            Ok(vec![x.clone()])
        }
        Layer::Squeeze { x, axes } => {
            let x = known.get(*x)?;
            axes_in_range(axes, x.dims.len())?;
            if let Some(axis) = axes.iter().find(|&&axis| !matches!(x.dims[axis as usize], 1 | -1)) {
                return Err(format!("squeeze of axis {axis} of {:?}", x.dims));
            }
            let keep = |axis: &usize| !axes.contains(&(*axis as u32));
            one(x.dtype, (0..x.dims.len()).filter(keep).map(|axis| x.dims[axis]).collect())
        }
        Layer::Unsqueeze { x, axes } => {
            let x = known.get(*x)?;
            let rank = x.dims.len() + axes.len();
            axes_in_range(axes, rank)?;
            let mut rest = x.dims.iter();
            let dim = |axis| if axes.contains(&(axis as u32)) { Some(1) } else { rest.next().copied() };
            let dims: Option<Vec<i64>> = (0..rank).map(dim).collect();
            one(x.dtype, dims.ok_or("an axis is named twice")?)
        }
        Layer::TopK { x, k, axis, indices, .. } => {
            let x = known.get(*x)?;
            axes_in_range(&[*axis], x.dims.len())?;
            let mut dims = x.dims.clone();
            dims[*axis as usize] = if let Count::Static(k) = k { *k } else { -1 };
            Ok(vec![TensorInfo { dtype: x.dtype, dims: dims.clone() }, TensorInfo { dtype: *indices, dims }])
        }
    }
}

fn axes_in_range(axes: &[u32], rank: usize) -> Result<(), String> {
    match axes.iter().find(|&&axis| axis as usize >= rank) {
        Some(axis) => Err(format!("axis {axis} of rank {rank}")),
        None => Ok(()),
    }
}

fn extent_dims(extent: &Extent, known: &Known<'_>) -> Result<Vec<i64>, String> {
    match extent {
        Extent::Static(dims) => Ok(dims.clone()),
        Extent::Tensor(id) => match known.get(*id)?.dims[..] {
            [rank] if rank >= 0 => Ok(vec![-1; rank as usize]),
            ref other => Err(format!("a shape tensor of dims {other:?}")),
        },
    }
}

fn spatial_rank(x: &TensorInfo, window: &Window) -> Result<(), String> {
    let spatial = x.dims.len().checked_sub(2).filter(|&n| n >= 1).ok_or("a window over a rank below 3")?;
    let lists = [&window.kernel, &window.stride, &window.pre_padding, &window.post_padding, &window.dilation];
    match lists.iter().all(|list| list.len() == spatial) {
        true => Ok(()),
        false => Err(format!("a window that does not have {spatial} entries")),
    }
}

fn window_dims(dims: &[i64], window: &Window, pooling: bool) -> Result<Vec<i64>, String> {
    let mut result = Vec::with_capacity(dims.len());
    for (axis, &d) in dims.iter().enumerate() {
        let dilation = if pooling { 1 } else { window.dilation[axis] };
        let kernel = (window.kernel[axis] - 1) * dilation + 1;
        let room = d + window.pre_padding[axis] + window.post_padding[axis] - kernel;
        if d >= 0 && room < 0 {
            return Err(format!("a window of {kernel} over a padded dim of {}", room + kernel));
        }
        result.push(if d < 0 { -1 } else { room / window.stride[axis] + 1 });
    }
    Ok(result)
}

fn broadcast(shapes: &[&[i64]]) -> Result<Vec<i64>, String> {
    let rank = shapes.first().map_or(0, |s| s.len());
    if shapes.iter().any(|s| s.len() != rank) {
        return Err(format!("operands of unequal rank {shapes:?}"));
    }
    let mut dims = vec![1; rank];
    for shape in shapes {
        for (d, &s) in dims.iter_mut().zip(*shape) {
            *d = match (*d, s) {
                (1, s) => s,
                (d, 1) => d,
                (-1, s) => s,
                (d, -1) => d,
                (d, s) if d == s => d,
                _ => return Err(format!("operands {shapes:?} do not broadcast")),
            };
        }
    }
    Ok(dims)
}

fn concatenation(xs: &[TensorId], axis: u32, known: &Known<'_>) -> Result<Vec<TensorInfo>, String> {
    let first = known.get(*xs.first().ok_or("concatenation of nothing")?)?;
    axes_in_range(&[axis], first.dims.len())?;
    let mut dims = first.dims.clone();
    for &x in &xs[1..] {
        let x = known.get(x)?;
        if x.dtype != first.dtype || x.dims.len() != dims.len() {
            return Err("concatenation of unequal dtypes or ranks".into());
        }
        for (k, (d, &s)) in dims.iter_mut().zip(&x.dims).enumerate() {
            *d = match (*d, s) {
                (d, s) if k == axis as usize => {
                    if d < 0 || s < 0 {
                        -1
                    } else {
                        d + s
                    }
                }
                (-1, s) => s,
                (d, -1) => d,
                (d, s) if d == s => d,
                _ => return Err("concatenation of unequal dims".into()),
            };
        }
    }
    Ok(vec![TensorInfo { dtype: first.dtype, dims }])
}

fn gather(
    data: &TensorInfo,
    indices: &TensorInfo,
    axis: usize,
    mode: GatherMode,
    batch: usize,
) -> Result<Vec<TensorInfo>, String> {
    let dims = match mode {
        GatherMode::Element => indices.dims.clone(),
        GatherMode::Default => {
            if axis >= data.dims.len() || batch > axis || batch > indices.dims.len() {
                return Err("gather axis out of range".into());
            }
            let lead = broadcast(&[&data.dims[..batch], &indices.dims[..batch]])?;
            [&lead, &data.dims[batch..axis], &indices.dims[batch..], &data.dims[axis + 1..]].concat()
        }
        GatherMode::Nd => {
            let (&last, lead) = indices.dims.split_last().ok_or("indices of rank 0")?;
            let last = usize::try_from(last).map_err(|_| "the last dim of the indices is not known")?;
            if batch + last > data.dims.len() {
                return Err("indices reach past the data's rank".into());
            }
            [lead, &data.dims[batch + last..]].concat()
        }
    };
    Ok(vec![TensorInfo { dtype: data.dtype, dims }])
}

fn permute(dims: &[i64], order: Option<&[u32]>) -> Result<Vec<i64>, String> {
    let Some(order) = order else { return Ok(dims.to_vec()) };
    let mut sorted: Vec<u32> = order.to_vec();
    sorted.sort_unstable();
    if sorted.len() != dims.len() || sorted.iter().enumerate().any(|(k, &axis)| k != axis as usize) {
        return Err(format!("{order:?} does not permute rank {}", dims.len()));
    }
    Ok(order.iter().map(|&axis| dims[axis as usize]).collect())
}

fn reshaped(from: &[i64], to: &[i64], zero_is_placeholder: bool) -> Result<Vec<i64>, String> {
    let mut dims = to.to_vec();
    if zero_is_placeholder {
        for (axis, d) in dims.iter_mut().enumerate() {
            if *d == 0 {
                *d = *from.get(axis).ok_or("a 0 past the rank of the input")?;
            }
        }
    }
    let total = from.iter().try_fold(1i64, |n, &d| if d < 0 { None } else { n.checked_mul(d) });
    if to.iter().filter(|&&d| d == -1).count() > 1 {
        return Err("more than one -1 in a reshape".into());
    }
    if let (Some(total), Some(hole)) = (total, to.iter().position(|&d| d == -1)) {
        let rest: i64 = dims.iter().enumerate().filter(|&(k, _)| k != hole).map(|(_, &d)| d).product();
        if rest > 0 && total % rest == 0 {
            dims[hole] = total / rest;
        } else if rest > 0 {
            return Err(format!("{from:?} does not reshape to {to:?}"));
        }
    }
    let known = dims.iter().try_fold(1i64, |n, &d| if d < 0 { None } else { n.checked_mul(d) });
    match (total, known) {
        (Some(a), Some(b)) if a != b => Err(format!("{from:?} does not reshape to {to:?}")),
        _ => Ok(dims),
    }
}

fn matmul(a: &TensorInfo, op_a: MatrixOp, b: &TensorInfo, op_b: MatrixOp) -> Result<Vec<TensorInfo>, String> {
    if a.dtype != b.dtype {
        return Err(format!("matrix product of {} and {}", a.dtype, b.dtype));
    }
    let split = |x: &TensorInfo, op: MatrixOp| -> Result<(Vec<i64>, Vec<i64>), String> {
        let core = if op == MatrixOp::Vector { 1 } else { 2 };
        let lead = x.dims.len().checked_sub(core).ok_or("a matrix of too low a rank")?;
        let mut matrix = x.dims[lead..].to_vec();
        if op == MatrixOp::Transpose {
            matrix.reverse();
        }
        Ok((x.dims[..lead].to_vec(), matrix))
    };
    let ((lead_a, a_core), (lead_b, b_core)) = (split(a, op_a)?, split(b, op_b)?);
    let (&k_a, &k_b) = (a_core.last().ok_or("rank 0")?, b_core.first().ok_or("rank 0")?);
    if k_a >= 0 && k_b >= 0 && k_a != k_b {
        return Err(format!("matrix product over {k_a} and {k_b}"));
    }
    let mut dims = broadcast(&[&lead_a, &lead_b])?;
    dims.extend_from_slice(&a_core[..a_core.len() - 1]);
    dims.extend_from_slice(&b_core[1..]);
    Ok(vec![TensorInfo { dtype: a.dtype, dims }])
}

fn einsum(xs: &[TensorId], equation: &str, known: &Known<'_>) -> Result<Vec<TensorInfo>, String> {
    let equation = equation.replace(' ', "");
    let (left, right) = equation.split_once("->").ok_or("an equation without ->")?;
    let mut sizes = std::collections::BTreeMap::new();
    let mut dtype = None;
    for (term, &x) in left.split(',').zip(xs) {
        let x = known.get(x)?;
        dtype = Some(x.dtype);
        if term.chars().count() != x.dims.len() {
            return Err(format!("term `{term}` for rank {}", x.dims.len()));
        }
        for (label, &d) in term.chars().zip(&x.dims) {
            let size = sizes.entry(label).or_insert(d);
            if *size < 0 || *size == 1 {
                *size = d;
            }
        }
    }
    let dims: Option<Vec<i64>> = right.chars().map(|label| sizes.get(&label).copied()).collect();
    let dims = dims.ok_or("a result label that no operand has")?;
    Ok(vec![TensorInfo { dtype: dtype.ok_or("einsum of nothing")?, dims }])
}

fn loop_results(
    recurrences: &[Recurrence],
    results: &[LoopOutput],
    known: &Known<'_>,
) -> Result<Vec<TensorInfo>, String> {
    let mut infos = Vec::new();
    for result in results {
        let value = known.get(result.value)?;
        let mut dims = value.dims.clone();
        match result.kind {
            LoopOutputKind::LastValue => {
                if !recurrences.iter().any(|r| r.current == result.value) {
                    return Err("the last value of a tensor that is not carried".into());
                }
            }
            LoopOutputKind::Concatenate | LoopOutputKind::Reverse => {
                if result.axis as usize > dims.len() {
                    return Err("loop output axis out of range".into());
                }
                dims.insert(result.axis as usize, -1);
            }
        }
        infos.push(TensorInfo { dtype: value.dtype, dims });
    }
    Ok(infos)
}

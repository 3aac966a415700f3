//! Shape rules that several operators share.

use trtc_bundle::DType;
use trtc_ir::{Diag, Dim, InferCx, Inferred, NodeView, Type, infer::ConstraintKind};

/// The type of an input, as the type of an output.
pub fn same_as_input(node: NodeView<'_>, slot: usize) -> Type {
    node.input(slot).map_or(Type::Unknown, |view| view.value().ty.clone())
}

/// The dtype of an input.
pub fn dtype_of(node: NodeView<'_>, slot: usize) -> Option<DType> {
    node.input(slot)?.dtype()
}

/// A dim of an input; unknown where the input is absent or its rank is not known.
pub fn dim_of(node: NodeView<'_>, slot: usize, axis: usize) -> Dim {
    node.input(slot).and_then(|view| view.dim(axis)).cloned().unwrap_or(Dim::Unknown)
}

/// A tensor type whose dtype may be unknown.
pub fn typed(dtype: Option<DType>, shape: Option<Vec<Dim>>) -> Type {
    Type::Tensor(trtc_ir::TensorType { dtype, shape })
}

/// Numpy broadcasting of shapes; `None` when a rank is unknown.
///
/// # Errors
/// Two known dims that do not fit.
pub fn broadcast(shapes: &[Option<&[Dim]>], cx: &mut InferCx<'_>) -> Result<Option<Vec<Dim>>, Diag> {
    let Some(shapes) = shapes.iter().copied().collect::<Option<Vec<&[Dim]>>>() else { return Ok(None) };
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut dims = vec![Dim::Known(1); rank];
    for shape in shapes {
        let offset = rank - shape.len();
        for (axis, dim) in shape.iter().enumerate() {
            let slot = &mut dims[offset + axis];
            *slot = broadcast_dim(slot, dim, cx)?;
        }
    }
    Ok(Some(dims))
}

/// One dim of [`broadcast`].
///
/// # Errors
/// Two known dims that are unequal and not 1.
pub fn broadcast_dim(a: &Dim, b: &Dim, cx: &mut InferCx<'_>) -> Result<Dim, Diag> {
    Ok(match (a, b) {
        (a, b) if a == b && *a != Dim::Unknown => a.clone(),
        (Dim::Known(1), d) | (d, Dim::Known(1)) => d.clone(),
        (Dim::Known(x), Dim::Known(y)) => {
            return Err(Diag::invalid(format!("dims {x} and {y} do not broadcast")));
        }
        (Dim::Known(n), other) | (other, Dim::Known(n)) => {
            cx.require(ConstraintKind::Broadcast(Dim::Known(*n), other.clone()));
            Dim::Known(*n)
        }
        (Dim::Unknown, _) | (_, Dim::Unknown) => Dim::Unknown,
        (a, b) => {
            // Two different symbolic sizes: equal, or one of them is 1 at run time.
            cx.require(ConstraintKind::Broadcast(a.clone(), b.clone()));
            a.max(b)
        }
    })
}

/// Demands that a dim of an input is `dim`. An absent input, an unknown dim and an axis that is not there demand nothing.
///
/// # Errors
/// Both are known and differ.
pub fn demand(
    node: NodeView<'_>,
    (slot, axis): (usize, usize),
    dim: &Dim,
    cx: &mut InferCx<'_>,
) -> Result<(), Diag> {
    match (node.input(slot).and_then(|view| view.dim(axis)), dim) {
        (None, _) | (_, Dim::Unknown) | (Some(Dim::Unknown), _) => Ok(()),
        (Some(Dim::Known(a)), Dim::Known(b)) if a != b => {
            Err(Diag::invalid(format!("axis {axis} of input {slot} has size {a}, not {b}")))
        }
        (Some(own), dim) => {
            if own != dim {
                cx.require(ConstraintKind::Equal(own.clone(), dim.clone()));
            }
            Ok(())
        }
    }
}

/// As [`demand`], of a dim that may also be 1.
///
/// # Errors
/// Both are known, and they differ.
pub fn demand_broadcast(
    node: NodeView<'_>,
    (slot, axis): (usize, usize),
    dim: &Dim,
    cx: &mut InferCx<'_>,
) -> Result<(), Diag> {
    match node.input(slot).and_then(|view| view.dim(axis)) {
        None | Some(Dim::Known(1)) => Ok(()),
        Some(own) => broadcast_dim(own, dim, cx).map(drop),
    }
}

/// Demands that an input broadcasts to `dims`, aligned at the last axis, without growing them. An absent input and one of
/// a higher rank demand nothing.
///
/// # Errors
/// Known dims do not.
pub fn demand_fits(node: NodeView<'_>, slot: usize, dims: &[Dim], cx: &mut InferCx<'_>) -> Result<(), Diag> {
    let own = node.input(slot).and_then(|view| view.shape()).unwrap_or(&[]);
    let lead = dims.len().saturating_sub(own.len());
    if own.len() > dims.len() {
        return Ok(());
    }
    for (axis, (own, dim)) in own.iter().zip(&dims[lead..]).enumerate() {
        match own {
            Dim::Known(1) => {}
            Dim::Known(_) => demand(node, (slot, axis), dim, cx)?,
            _ => demand_broadcast(node, (slot, axis), dim, cx)?,
        }
    }
    Ok(())
}

/// An axis of an attribute or input, made non-negative.
///
/// # Errors
/// Out of range.
pub fn axis(axis: i64, rank: usize) -> Result<usize, Diag> {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(at)
        .ok()
        .filter(|&at| at < rank)
        .ok_or_else(|| Diag::invalid(format!("axis {axis} is out of range for rank {rank}")))
}

/// Several axes, made non-negative, sorted, each once.
///
/// # Errors
/// Out of range, or named twice.
pub fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, Diag> {
    let mut result = list.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
    result.sort_unstable();
    if result.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Diag::invalid(format!("an axis of {list:?} is named twice")));
    }
    Ok(result)
}

/// Inferred results that are just types.
pub fn types(list: impl IntoIterator<Item = Type>) -> Vec<Inferred> {
    list.into_iter().map(Inferred::from).collect()
}

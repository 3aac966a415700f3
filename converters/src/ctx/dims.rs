//! Arithmetic over dims that uses what is known of the symbols' ranges.

use trtc_ir::{Dim, NodeView};

/// Product; 1 of nothing.
pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
    dims.into_iter().fold(Dim::Known(1), |product, dim| product.mul(dim))
}

/// Sum; 0 of nothing.
pub fn sum<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
    dims.into_iter().fold(Dim::Known(0), |sum, dim| sum.add(dim))
}

/// Whether the dim is at least `least` for every value of the symbols.
pub fn at_least(node: NodeView<'_>, dim: &Dim, least: i64) -> bool {
    node.symbols().interval(dim).min.is_some_and(|min| min >= least)
}

/// Whether the dim is below `bound` for every value of the symbols.
pub fn below(node: NodeView<'_>, dim: &Dim, bound: i64) -> bool {
    node.symbols().interval(dim).max.is_some_and(|max| max < bound)
}

/// The larger one; just that one when the ranges decide.
pub fn max(node: NodeView<'_>, a: &Dim, b: &Dim) -> Dim {
    let distance = node.symbols().interval(&a.sub(b));
    match (distance.min, distance.max) {
        (Some(min), _) if min >= 0 => a.clone(),
        (_, Some(max)) if max <= 0 => b.clone(),
        _ => a.max(b),
    }
}

/// The smaller one; just that one when the ranges decide.
pub fn min(node: NodeView<'_>, a: &Dim, b: &Dim) -> Dim {
    let distance = node.symbols().interval(&a.sub(b));
    match (distance.min, distance.max) {
        (Some(min), _) if min >= 0 => b.clone(),
        (_, Some(max)) if max <= 0 => a.clone(),
        _ => a.min(b),
    }
}

/// Whether no dim of the model's inputs is open. Only then does a number that the model declares for a result tell a size
/// that nothing else tells: a model with open dims often keeps the numbers of the example that it was exported with.
pub fn all_fixed(node: NodeView<'_>) -> bool {
    node.symbols().iter().all(|(_, info)| info.unbacked)
}

/// Dims of an output that are all known before the run: from the inputs, or because the model declares them
/// ([`all_fixed`]).
pub fn of_output(node: NodeView<'_>, slot: usize) -> Option<Vec<i64>> {
    node.output(slot)?.shape()?.iter().map(Dim::known).collect::<Option<_>>().filter(|_| all_fixed(node))
}

/// A dim that is not known from the inputs, as the model declares it for an output ([`all_fixed`]).
pub fn declared(node: NodeView<'_>, dim: Dim, slot: usize, axis: usize) -> Dim {
    match dim {
        Dim::Unknown if all_fixed(node) => match node.output(slot).and_then(|y| y.dim(axis)) {
            Some(Dim::Known(value)) => Dim::Known(*value),
            _ => Dim::Unknown,
        },
        dim => dim,
    }
}

/// The only element of an integer input of rank 0, or of rank 1 with one element.
pub fn scalar<'a>(node: NodeView<'a>, slot: usize) -> Option<&'a Dim> {
    match node.input(slot)?.elements()? {
        [one] => Some(one),
        _ => None,
    }
}

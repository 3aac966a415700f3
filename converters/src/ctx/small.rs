//! Arithmetic over the known elements of small integer tensors: what makes `Shape → Gather → Mul → Concat → Reshape`
//! known while types are inferred.

use trtc_bundle::DType;
use trtc_ir::{Dim, Interval, NodeView, Symbols, ValueView, graph::MAX_ELEMENTS};

/// Known elements of an input of rank 0 or 1: facts, or a small constant (bool counts as 0 and 1, floats when every one
/// is a whole number).
pub fn elements(node: NodeView<'_>, slot: usize) -> Option<Vec<Dim>> {
    of_value(node.input(slot)?)
}

/// As [`elements`], of any value.
pub fn of_value(view: ValueView<'_>) -> Option<Vec<Dim>> {
    if let Some(list) = view.elements() {
        return Some(list.to_vec());
    }
    let constant = view.constant()?;
    if constant.dims().len() > 1 || constant.count() > MAX_ELEMENTS {
        return None;
    }
    if let Some(list) = constant.to_i64s() {
        return Some(list.into_iter().map(Dim::Known).collect());
    }
    constant.to_f64s()?.into_iter().map(whole).collect()
}

/// A float that is a whole number, as a dim. Bounded by 2⁵³, where f64 stops being exact.
fn whole(value: f64) -> Option<Dim> {
    (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then_some(Dim::Known(value as i64))
}

/// A size that an attribute gives; unknown when it is none.
pub fn size(value: Option<i64>) -> Dim {
    value.filter(|&v| v >= 0).map_or(Dim::Unknown, Dim::Known)
}

/// Applies `f` to the elements of two inputs with broadcasting; `None` when either is unknown.
pub fn zip(node: NodeView<'_>, slots: [usize; 2], f: impl Fn(&Dim, &Dim) -> Dim) -> Option<Vec<Dim>> {
    zip_lists(&elements(node, slots[0])?, &elements(node, slots[1])?, f)
}

/// Applies `f` elementwise, a list of one element to every element of the other.
pub fn zip_lists(a: &[Dim], b: &[Dim], f: impl Fn(&Dim, &Dim) -> Dim) -> Option<Vec<Dim>> {
    let n = if a.len() == 1 { b.len() } else { a.len() };
    if (a.len() != n && a.len() != 1) || (b.len() != n && b.len() != 1) {
        return None;
    }
    let pick = |list: &[Dim], k: usize| list.get(if list.len() == 1 { 0 } else { k }).cloned();
    (0..n).map(|k| Some(f(&pick(a, k)?, &pick(b, k)?))).collect()
}

/// Quotient rounded towards zero, as ONNX divides integers. Unknown where the signs are not known.
pub fn truncating_div(a: &Dim, b: &Dim, symbols: &Symbols) -> Dim {
    if let (Dim::Known(a), Dim::Known(b)) = (a, b) {
        return a.checked_div(*b).map_or(Dim::Unknown, Dim::Known);
    }
    let at_least = |dim: &Dim, least: i64| symbols.interval(dim).min.is_some_and(|min| min >= least);
    if at_least(a, 0) && at_least(b, 1) { a.floor_div(b) } else { Dim::Unknown }
}

/// Quotient of whole floats, known only where it is whole.
pub fn exact_div(a: &Dim, b: &Dim) -> Dim {
    let quotient = a.floor_div(b);
    if quotient.mul(b) == *a && *b != Dim::Known(0) { quotient } else { Dim::Unknown }
}

/// Whether every whole number of the range is exact in `dtype`, and no integer of it wraps.
pub fn holds(dtype: DType, range: Interval) -> bool {
    let (low, high) = match dtype {
        DType::I64 => return true,
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DType::I8 => (-128, 127),
        DType::U8 => (0, 255),
        DType::U16 => (0, 65_535),
        DType::U32 => (0, i64::from(u32::MAX)),
        DType::U64 => (0, i64::MAX),
        DType::Bool => (0, 1),
        DType::F64 => (-(1 << 53), 1 << 53),
        DType::F32 => (-(1 << 24), 1 << 24),
        DType::F16 => (-(1 << 11), 1 << 11),
        DType::Bf16 => (-(1 << 8), 1 << 8),
        _ => return false,
    };
    range.min.is_some_and(|min| min >= low) && range.max.is_some_and(|max| max <= high)
}

/// Elements as the output of an operator of dtype `dtype`: those that the dtype cannot hold exactly become unknown.
/// Integers of 32 and 64 bits are taken to hold every size.
pub fn settled(list: Option<Vec<Dim>>, dtype: Option<DType>, symbols: &Symbols) -> Option<Vec<Dim>> {
    let dtype = dtype?;
    let keep = |dim: Dim| match dtype {
        DType::I64 | DType::I32 => dim,
        _ if holds(dtype, symbols.interval(&dim)) => dim,
        _ => Dim::Unknown,
    };
    let list: Vec<Dim> = list?.into_iter().map(keep).collect();
    (list.len() <= MAX_ELEMENTS && list.iter().any(|dim| *dim != Dim::Unknown)).then_some(list)
}

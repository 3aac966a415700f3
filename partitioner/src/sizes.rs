//! Sizes of values, at the optimum of each symbol's range.

use trtc_ir::{Dim, Graph, Symbols, Type, ValueId};

/// A dim at the optimum of the symbols: the middle of the range where no optimum is set, the minimum where there is no
/// maximum.
pub(crate) fn at_optimum(symbols: &Symbols, dim: &Dim) -> Option<i64> {
    dim.eval(&|symbol| {
        let info = symbols.info(symbol)?;
        match (info.opt, info.range.min, info.range.max) {
            (Some(opt), _, _) => Some(opt),
            (None, Some(min), Some(max)) => Some(min.midpoint(max)),
            (None, min, max) => min.or(max),
        }
    })
}

/// Elements of a value's tensor at the optimum of the symbols; `None` for unknown shapes and what is no tensor.
pub(crate) fn element_count(graph: &Graph, symbols: &Symbols, value: ValueId) -> Option<usize> {
    let Type::Tensor(tensor) = &graph[value].ty else { return None };
    let mut count = 1usize;
    for dim in tensor.shape.as_ref()? {
        count = count.checked_mul(usize::try_from(at_optimum(symbols, dim)?).ok()?)?;
    }
    Some(count)
}

/// Bytes of a value's tensor at the optimum of the symbols (the middle of the range where no optimum is set; the
/// minimum where there is no maximum). `None` for strings, sequences and unknown shapes.
pub fn value_bytes(graph: &Graph, symbols: &Symbols, value: ValueId) -> Option<u64> {
    let dtype = graph[value].ty.dtype()?;
    dtype.bytes_for(element_count(graph, symbols, value)?).map(|bytes| bytes as u64)
}

/// As [`value_bytes`], in the dtype that an engine's binding for the value has.
pub(crate) fn binding_bytes(graph: &Graph, symbols: &Symbols, value: ValueId) -> Option<u64> {
    let dtype = graph[value].ty.dtype()?;
    let held = dtype.binding().unwrap_or(dtype);
    held.bytes_for(element_count(graph, symbols, value)?).map(|bytes| bytes as u64)
}

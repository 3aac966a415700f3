//! Bytes of values, at the optimum of each symbol's range.

use trtc_ir::{Symbols, Type, ValueId};

/// Bytes of a value's tensor at the optimum of the symbols (the middle of the range where no optimum is set; the
/// minimum where there is no maximum). `None` for strings, sequences and unknown shapes.
pub fn value_bytes(graph: &trtc_ir::Graph, symbols: &Symbols, value: ValueId) -> Option<u64> {
    let Type::Tensor(tensor) = &graph[value].ty else { return None };
    let at = |symbol| {
        let info = symbols.info(symbol)?;
        match (info.opt, info.range.min, info.range.max) {
            (Some(opt), _, _) => Some(opt),
            (None, Some(min), Some(max)) => Some(min.midpoint(max)),
            (None, min, max) => min.or(max),
        }
    };
    let mut count = 1usize;
    for dim in tensor.shape.as_ref()? {
        count = count.checked_mul(usize::try_from(dim.eval(&at)?).ok()?)?;
    }
    tensor.dtype?.bytes_for(count).map(|bytes| bytes as u64)
}

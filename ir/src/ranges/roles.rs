//! What a symbol of the inputs probably is, and the default sizes that follow.

use crate::{dim::Symbol, graph::Module};

/// Default sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Defaults {
    pub opt: i64,
    pub max: i64,
}

const BATCH: Defaults = Defaults { opt: 1, max: 8 };
const SEQUENCE: Defaults = Defaults { opt: 128, max: 512 };
const SPATIAL: Defaults = Defaults { opt: 640, max: 1024 };
const OTHER: Defaults = Defaults { opt: 256, max: 4096 };

/// Default sizes of a symbol, by its name and by the axes of the inputs that are just this symbol.
pub(super) fn defaults(module: &Module, symbol: Symbol) -> Defaults {
    let name = module.symbols.name(symbol).to_lowercase();
    // Names made from a value's name (`x.2`) say nothing of the axis.
    let given = !name.contains('.');
    let says = |words: &[&str]| given && words.iter().any(|word| name.contains(word));
    if says(&["batch"]) || (given && matches!(name.as_str(), "n" | "b" | "bs")) {
        return BATCH;
    }
    if says(&["seq", "len", "token", "past", "time", "frame", "chunk"]) {
        return SEQUENCE;
    }
    if says(&["height", "width"]) || (given && matches!(name.as_str(), "h" | "w")) {
        return SPATIAL;
    }
    let mut places = Vec::new();
    for &input in module.graph.inputs() {
        let ty = &module.graph[input].ty;
        for (axis, dim) in ty.shape().into_iter().flatten().enumerate() {
            if dim.as_symbol() == Some(symbol) {
                let rank = ty.shape().map_or(0, <[_]>::len);
                places.push((axis, rank, ty.dtype().is_some_and(|dtype| dtype.is_int())));
            }
        }
    }
    if places.is_empty() {
        return OTHER;
    }
    if places.iter().all(|&(axis, rank, _)| axis == 0 && rank >= 2) {
        return BATCH;
    }
    if places.iter().any(|&(axis, rank, is_int)| axis == 1 && rank == 2 && is_int) {
        return SEQUENCE;
    }
    if places.iter().any(|&(axis, rank, _)| axis >= 1 && rank >= 4) {
        return SPATIAL;
    }
    OTHER
}

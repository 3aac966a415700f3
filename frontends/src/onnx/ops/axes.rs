//! Squeeze, Unsqueeze and the reductions: `axes`.
//!
//! Squeeze, Unsqueeze, ReduceSum before 13 and the other reductions before 18: attribute; then input. Negative axes since 11.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph};

pub(super) static FAMILY: Family = Family {
    ops: &[
        "Squeeze",
        "Unsqueeze",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
    ],
    upgrade,
    downgrade,
};

/// Version since which the axes are an input.
fn input_since(op_type: &str) -> u32 {
    match op_type {
        "Squeeze" | "Unsqueeze" | "ReduceSum" => 13,
        _ => 18,
    }
}

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= input_since(&draft.op.op_type) {
        return Ok(Step::Canonical);
    }
    // An empty list means what no list means.
    if draft.attrs.ints("axes").is_some_and(<[i64]>::is_empty) && &*draft.op.op_type != "Unsqueeze" {
        draft.attrs.remove("axes");
    }
    draft.ints_to_input("axes", 1);
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version >= input_since(&draft.op.op_type) {
        return Ok(());
    }
    let axes = match draft.input(1) {
        Arg::None => None,
        arg => Some(constant_i64s(graph, arg).ok_or(Misfit)?),
    };
    draft.inputs.truncate(1);
    let empty = axes.as_ref().is_none_or(Vec::is_empty);
    if draft.attrs.int("noop_with_empty_axes").unwrap_or(0) != 0 && empty {
        return Err(Misfit);
    }
    draft.attrs.remove("noop_with_empty_axes");
    if let Some(axes) = axes.filter(|axes| !axes.is_empty()) {
        if version < 11 && axes.iter().any(|&axis| axis < 0) {
            return Err(Misfit);
        }
        draft.attrs.set("axes", Attr::Ints(axes));
    }
    Ok(())
}

/// The elements of an integer constant.
pub(super) fn constant_i64s(graph: &Graph, arg: &Arg) -> Option<Vec<i64>> {
    match arg {
        Arg::None => None,
        Arg::Value(id) => graph[*id].constant.as_ref()?.to_i64s(),
        Arg::Const(tensor) => tensor.to_i64s(),
    }
}

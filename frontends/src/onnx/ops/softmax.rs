//! Softmax, LogSoftmax, Hardmax: what `axis` means.
//!
//! 1, 11: x is taken as a matrix, dims before `axis` (default 1) by dims from it on, and each row is normalised.
//! 13: along the one axis (default −1).

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Attrs, Diag, Graph, OpKey};
use trtc_onnx::schema;

pub(super) static FAMILY: Family = Family { ops: &["Softmax", "LogSoftmax", "Hardmax"], upgrade, downgrade };

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 13 {
        return Ok(Step::Canonical);
    }
    let axis = draft.attrs.int("axis").unwrap_or(1);
    let rank = cx.rank(draft.input(0)).map(|rank| rank as i64);
    let last = match rank {
        Some(rank) => axis == -1 || axis == rank - 1,
        None => axis == -1,
    };
    if last {
        draft.attrs.set("axis", Attr::Int(-1));
        return Ok(Step::Canonical);
    }
    let x = draft.input(0).clone();
    let mut attrs = Attrs::new();
    attrs.set("axis", Attr::Int(axis));
    let matrix = cx.emit("Flatten", attrs, vec![x.clone()], None);
    let shape = cx.emit("Shape", Attrs::new(), vec![x], None);
    let mut attrs = Attrs::new();
    attrs.set("axis", Attr::Int(-1));
    let op_type = draft.op.op_type.clone();
    let rows = cx.emit(&op_type, attrs, vec![matrix], Some("Reshape"));
    *draft = Draft {
        op: OpKey::new("", "Reshape"),
        since: schema::since_version("", "Reshape", schema::MAX_OPSET).unwrap_or(14),
        attrs: Attrs::new(),
        inputs: vec![rows, shape],
        outputs: draft.outputs,
        wanted: std::mem::take(&mut draft.wanted),
    };
    // An empty dim of x is an empty dim of the result, not one to copy.
    draft.attrs.set("allowzero", Attr::Int(1));
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version >= 13 {
        return Ok(());
    }
    let Arg::Value(x) = draft.input(0) else { return Err(Misfit) };
    let rank = graph[*x].ty.shape().ok_or(Misfit)?.len() as i64;
    let axis = draft.attrs.int("axis").unwrap_or(-1);
    // Only along the last axis do both mean the same.
    if rank == 0 || (axis != -1 && axis != rank - 1) {
        return Err(Misfit);
    }
    draft.attrs.set("axis", Attr::Int(rank - 1));
    Ok(())
}

//! Pad: where the widths and the value are.
//!
//! 1: attributes paddings, value.     2: pads, value.     11: inputs.     18: input axes.     19: mode wrap.

use super::{Family, Misfit, Step, axes::constant_i64s};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["Pad"], upgrade, downgrade };

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 11 {
        return Ok(Step::Canonical);
    }
    draft.ints_to_input(if draft.since < 2 { "paddings" } else { "pads" }, 1);
    let value = draft.attrs.float("value").unwrap_or(0.0);
    draft.attrs.remove("value");
    if value != 0.0 {
        let x = draft.input(0).clone();
        let value = cx.scalar_like(value, &x);
        draft.set_input(2, value);
    }
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 19 && draft.attrs.str("mode") == Some("wrap") || version < 18 && draft.has(3) {
        return Err(Misfit);
    }
    if version >= 11 {
        return Ok(());
    }
    let pads = constant_i64s(graph, draft.input(1)).ok_or(Misfit)?;
    if draft.has(2) {
        let value = constant_scalar(graph, draft.input(2)).ok_or(Misfit)?;
        draft.attrs.set("value", Attr::Float(value));
    }
    draft.attrs.set(if version < 2 { "paddings" } else { "pads" }, Attr::Ints(pads));
    draft.inputs.truncate(1);
    Ok(())
}

/// The only element of a constant that a f32 attribute can hold.
pub(super) fn constant_scalar(graph: &Graph, arg: &Arg) -> Option<f32> {
    let value = match arg {
        Arg::None => None,
        Arg::Value(id) => graph[*id].constant.as_ref()?.scalar_f64(),
        Arg::Const(tensor) => tensor.scalar_f64(),
    }?;
    let short = value as f32;
    (f64::from(short) == value).then_some(short)
}

//! GroupNormalization: what scale and bias are for.
//!
//! 18: one a group.     21: one a channel; stash_type.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Attrs, Diag, Graph, Tensor};

pub(super) static FAMILY: Family = Family { ops: &["GroupNormalization"], upgrade, downgrade };

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 21 {
        return Ok(Step::Canonical);
    }
    let groups = draft.attrs.int("num_groups").unwrap_or(0);
    if groups <= 0 {
        return Err(Diag::invalid(format!("{groups} groups")).slot("num_groups"));
    }
    // [groups, channels / groups], each value as often as its group has channels.
    let x = draft.input(0).clone();
    let mut attrs = Attrs::new();
    attrs.set("start", Attr::Int(1));
    attrs.set("end", Attr::Int(2));
    let channels = cx.emit("Shape", attrs, vec![x], None);
    let group_count = Arg::Const(Tensor::from_i64s(&[groups]));
    let each = cx.emit("Div", Attrs::new(), vec![channels.clone(), group_count.clone()], None);
    let mut attrs = Attrs::new();
    attrs.set("axis", Attr::Int(0));
    let matrix = cx.emit("Concat", attrs, vec![group_count, each], None);
    for slot in [1, 2] {
        let arg = draft.input(slot).clone();
        let column = cx.emit("Unsqueeze", Attrs::new(), vec![arg, Arg::Const(Tensor::from_i64s(&[1]))], None);
        let repeated = cx.emit("Expand", Attrs::new(), vec![column, matrix.clone()], None);
        let flat =
            cx.emit("Reshape", Attrs::new(), vec![repeated, Arg::Const(Tensor::from_i64s(&[-1]))], None);
        draft.set_input(slot, flat);
    }
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, _: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 21 { Err(Misfit) } else { Ok(()) }
}

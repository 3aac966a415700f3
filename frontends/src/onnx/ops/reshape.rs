//! Reshape, Tile and Concat: where the numbers are.
//!
//! Reshape 1: attribute shape.     5: input.     14: allowzero.
//! Concat 1: axis, default 1.     4: axis is required.
//! Tile 1: one axis, inputs tiles and axis.     6: repeats for every axis.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph, Tensor};

pub(super) static FAMILY: Family = Family { ops: &["Reshape", "Tile", "Concat"], upgrade, downgrade };

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    match &*draft.op.op_type {
        "Reshape" if draft.since < 5 => {
            draft.ints_to_input("shape", 1);
            if !draft.has(1) {
                return Err(Diag::invalid("the attribute is required by Reshape-1").slot("shape"));
            }
        }
        "Concat" if draft.attrs.get("axis").is_none() => draft.attrs.set("axis", Attr::Int(1)),
        "Tile" if draft.since < 6 => {
            let one = |arg: &Arg| cx.constant(arg)?.scalar_f64().map(|value| value as i64);
            let known = (cx.rank(draft.input(0)), one(draft.input(1)), one(draft.input(2)));
            let (Some(rank), Some(tiles), Some(axis)) = known else { return Ok(Step::Keep) };
            let mut repeats = vec![1; rank];
            match usize::try_from(axis).ok().and_then(|axis| repeats.get_mut(axis)) {
                Some(slot) => *slot = tiles,
                None => {
                    return Err(Diag::invalid(format!("axis {axis} is outside of rank {rank}")).slot("axis"));
                }
            }
            draft.inputs.truncate(1);
            draft.set_input(1, Arg::Const(Tensor::from_i64s(&repeats)));
        }
        _ => {}
    }
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    let oldest = match &*draft.op.op_type {
        "Tile" => 6,
        "Reshape" => 5,
        _ => 4,
    };
    if version < oldest { Err(Misfit) } else { Ok(()) }
}

//! DFT: where the axis is.
//!
//! 17: attribute axis, default 1.     20: input, default −2.

use super::{Family, Misfit, Step, axes::constant_i64s};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph, Tensor};

pub(super) static FAMILY: Family = Family { ops: &["DFT"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since < 20 {
        let axis = draft.attrs.int("axis").unwrap_or(1);
        draft.attrs.remove("axis");
        draft.set_input(2, Arg::Const(Tensor::scalar_i64(axis)));
    }
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 20 {
        let axis = match draft.input(2) {
            Arg::None => -2,
            arg => constant_i64s(graph, arg).ok_or(Misfit)?.first().copied().ok_or(Misfit)?,
        };
        draft.attrs.set("axis", Attr::Int(axis));
        draft.inputs.truncate(2);
    }
    Ok(())
}

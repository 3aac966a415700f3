//! TopK: where k is.
//!
//! 1: attribute k.     10: input.     11: attributes largest, sorted.

use super::{Family, Misfit, Step, axes::constant_i64s};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph, Tensor};

pub(super) static FAMILY: Family = Family { ops: &["TopK"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since < 10
        && let Some(Attr::Int(k)) = draft.attrs.remove("k")
    {
        draft.set_input(1, Arg::Const(Tensor::from_i64s(&[k])));
    }
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 11 && draft.attrs.int("axis").is_some_and(|axis| axis < -1) {
        return Err(Misfit);
    }
    if version < 10 {
        let k = constant_i64s(graph, draft.input(1)).ok_or(Misfit)?;
        let &[k] = k.as_slice() else { return Err(Misfit) };
        draft.attrs.set("k", Attr::Int(k));
        draft.inputs.truncate(1);
    }
    Ok(())
}

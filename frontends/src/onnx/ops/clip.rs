//! Clip: where the limits are.
//!
//! 1, 6: attributes min, max.     11: optional inputs.

use super::{Family, Misfit, Step, pad::constant_scalar};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["Clip"], upgrade, downgrade };

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 11 {
        return Ok(Step::Canonical);
    }
    for (slot, name, none) in [(1, "min", f32::MIN), (2, "max", f32::MAX)] {
        let limit = draft.attrs.float(name);
        draft.attrs.remove(name);
        // The default of version 6 stands for no limit, and would be infinite in f16.
        if let Some(limit) = limit
            && limit != none
        {
            let x = draft.input(0).clone();
            let limit = cx.scalar_like(limit, &x);
            draft.set_input(slot, limit);
        }
    }
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version >= 11 {
        return Ok(());
    }
    for (slot, name) in [(1, "min"), (2, "max")] {
        if draft.has(slot) {
            let limit = constant_scalar(graph, draft.input(slot)).ok_or(Misfit)?;
            draft.attrs.set(name, Attr::Float(limit));
        }
    }
    draft.inputs.truncate(1);
    Ok(())
}

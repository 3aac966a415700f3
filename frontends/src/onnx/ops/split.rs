//! Split: where the sizes are.
//!
//! 1: attribute or input `split`.     2: attribute.     13: input.     18: `num_outputs`, given when there is no input; the last part
//! may then be smaller.

use super::{Family, Misfit, Step, axes::constant_i64s};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["Split"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since < 13 {
        draft.ints_to_input("split", 1);
    }
    if draft.since < 18 && !draft.has(1) {
        draft.attrs.set("num_outputs", Attr::Int(draft.outputs as i64));
    }
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version >= 18 {
        return Ok(());
    }
    if let Some(parts) = draft.attrs.int("num_outputs")
        && !draft.has(1)
    {
        // Older versions want equal parts.
        let Arg::Value(input) = draft.input(0) else { return Err(Misfit) };
        let shape = graph[*input].ty.shape().ok_or(Misfit)?;
        let axis = draft.attrs.int("axis").unwrap_or(0);
        let axis = if axis < 0 { axis + shape.len() as i64 } else { axis };
        let dim = usize::try_from(axis).ok().and_then(|axis| shape.get(axis)).ok_or(Misfit)?;
        let equal = dim.modulo(&trtc_ir::Dim::Known(parts)) == trtc_ir::Dim::Known(0);
        if !equal || parts != draft.outputs as i64 {
            return Err(Misfit);
        }
    }
    draft.attrs.remove("num_outputs");
    if version < 13 && draft.has(1) {
        let sizes = constant_i64s(graph, draft.input(1)).ok_or(Misfit)?;
        draft.attrs.set("split", Attr::Ints(sizes));
        draft.inputs.truncate(1);
    }
    if version < 11 && draft.attrs.int("axis").is_some_and(|axis| axis < 0) {
        return Err(Misfit);
    }
    Ok(())
}

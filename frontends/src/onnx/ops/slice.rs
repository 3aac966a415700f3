//! Slice: where the bounds are.
//!
//! 1: attributes starts, ends, axes.     10: inputs, and steps.

use super::{Family, Misfit, Step, axes::constant_i64s};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["Slice"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since < 10 {
        let count = |name: &str| draft.attrs.ints(name).map(<[i64]>::len);
        let starts = count("starts");
        if count("ends") != starts || count("axes").is_some_and(|axes| Some(axes) != starts) {
            return Err(Diag::invalid("starts, ends and axes differ in length").slot("starts"));
        }
        draft.ints_to_input("starts", 1);
        draft.ints_to_input("ends", 2);
        draft.ints_to_input("axes", 3);
    }
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version >= 10 {
        return Ok(());
    }
    if draft.has(4) && constant_i64s(graph, draft.input(4)).ok_or(Misfit)?.iter().any(|&step| step != 1) {
        return Err(Misfit);
    }
    for (slot, name) in [(1, "starts"), (2, "ends"), (3, "axes")] {
        if !matches!(draft.input(slot), Arg::None) {
            let values = constant_i64s(graph, draft.input(slot)).ok_or(Misfit)?;
            if name == "axes" && values.iter().any(|&axis| axis < 0) {
                return Err(Misfit);
            }
            draft.attrs.set(name, Attr::Ints(values));
        }
    }
    draft.inputs.truncate(1);
    Ok(())
}

//! Dropout: where the ratio is, and when it drops.
//!
//! 1, 6: attributes ratio, is_test.     7, 10: attribute ratio, never drops.     12: inputs ratio, training_mode.

use super::{Family, Misfit, Step, axes::constant_i64s, pad::constant_scalar};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph, Tensor};

pub(super) static FAMILY: Family = Family { ops: &["Dropout"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 12 {
        return Ok(Step::Canonical);
    }
    // The mask had the dtype of the data.
    if draft.since < 10 && draft.wants(1) {
        return Ok(Step::Keep);
    }
    // Writers of old models left is_test at 0 in models that are for inference; every runtime takes them so.
    draft.attrs.remove("is_test");
    let ratio = draft.attrs.float("ratio");
    draft.attrs.remove("ratio");
    if let Some(ratio) = ratio
        && let Some(tensor) = Tensor::from_f32s(Vec::new(), &[ratio])
    {
        draft.set_input(1, Arg::Const(tensor));
    }
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version >= 12 {
        return Ok(());
    }
    if draft.has(2) && constant_i64s(graph, draft.input(2)).ok_or(Misfit)? != [0] {
        return Err(Misfit);
    }
    if version < 10 && draft.wants(1) || version < 7 {
        return Err(Misfit);
    }
    if draft.has(1) {
        let ratio = constant_scalar(graph, draft.input(1)).ok_or(Misfit)?;
        draft.attrs.set("ratio", Attr::Float(ratio));
    }
    draft.attrs.remove("seed");
    draft.inputs.truncate(1);
    Ok(())
}

//! BatchNormalization: training outputs.
//!
//! 1, 6: attributes is_test, spatial.     7: spatial.     9: always spatial.     All up to 9: five outputs when training.
//! 14: training_mode, up to three outputs.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_ir::{Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["BatchNormalization"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 14 {
        return Ok(Step::Canonical);
    }
    let spatial = draft.attrs.int("spatial").unwrap_or(1) != 0;
    if !spatial || (1..5).any(|slot| draft.wants(slot)) {
        return Ok(Step::Keep);
    }
    // Writers of old models left is_test at 0 in models that are for inference; with one output it is inference.
    draft.attrs.remove("is_test");
    draft.attrs.remove("spatial");
    draft.outputs = 1;
    draft.wanted.truncate(1);
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    let trains = draft.attrs.int("training_mode").unwrap_or(0) != 0;
    if version < 14 && (trains || draft.outputs > 1) || version < 7 { Err(Misfit) } else { Ok(()) }
}

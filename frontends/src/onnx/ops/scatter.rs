//! ScatterElements, ScatterND: reduction; Scatter, the old name.
//!
//! Scatter 9 is ScatterElements 11.     16: reduction add, mul.     18: max, min.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_ir::{Diag, Graph, OpKey};

pub(super) static FAMILY: Family =
    Family { ops: &["Scatter", "ScatterElements", "ScatterND"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if &*draft.op.op_type == "Scatter" {
        draft.op = OpKey::new("", "ScatterElements");
    }
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    let new = matches!(draft.attrs.str("reduction"), Some("max" | "min"));
    if version < 18 && new { Err(Misfit) } else { Ok(()) }
}

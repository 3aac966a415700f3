//! Mod: which remainder of floats.
//!
//! 10, 13: floats only with `fmod = 1`.     28: `fmod = 0` too.

use super::{Family, Misfit, Step, quantize::dtype_of};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_bundle::DType;
use trtc_ir::{Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["Mod"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, _: &mut Draft) -> Result<Step, Diag> {
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    let float = dtype_of(graph, draft.input(0)).is_some_and(DType::is_float);
    let truncates = draft.attrs.int("fmod").unwrap_or(0) != 0;
    if version < 28 && float && !truncates { Err(Misfit) } else { Ok(()) }
}

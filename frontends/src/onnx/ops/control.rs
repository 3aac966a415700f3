//! Scan: batches.
//!
//! 8: a batch dim in front of every state and scan, and sequence lengths.     9: neither; axes and directions of scans.
//! If and Loop only gained types.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_ir::{Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["Scan"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    Ok(if draft.since < 9 { Step::Keep } else { Step::Canonical })
}

fn downgrade(_: &Graph, _: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 9 { Err(Misfit) } else { Ok(()) }
}

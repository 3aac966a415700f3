//! RNN, GRU, LSTM: which outputs there are.
//!
//! 1, 3: attribute output_sequence.     7: outputs are those that are named.     14: layout.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_ir::{Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["RNN", "GRU", "LSTM"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    draft.attrs.remove("output_sequence");
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, _: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 7 { Err(Misfit) } else { Ok(()) }
}

//! RNN, GRU, LSTM: which outputs there are, and which dim is the batch.
//!
//! 1, 3: attribute output_sequence.     7: outputs are those that are named.     14: layout; 1 puts the batch first. Canonical is
//! layout 0 between transpositions: neither TensorRT nor ONNX Runtime on the CPU has the other.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Attrs, Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["RNN", "GRU", "LSTM"], upgrade, downgrade };

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    draft.attrs.remove("output_sequence");
    if draft.attrs.int("layout") != Some(1) {
        return Ok(Step::Canonical);
    }
    draft.attrs.remove("layout");
    // x, initial_h, initial_c: [batch, k, size] to [k, batch, size].
    for slot in [0, 5, 6] {
        if let arg @ Arg::Value(_) = draft.input(slot).clone() {
            let swapped = cx.emit("Transpose", perm(&[1, 0, 2]), vec![arg], None);
            draft.set_input(slot, swapped);
        }
    }
    // y: [sequence, direction, batch, hidden] to [batch, sequence, direction, hidden]; the states as above.
    cx.emit_behind(0, "Transpose", perm(&[2, 0, 1, 3]));
    cx.emit_behind(1, "Transpose", perm(&[1, 0, 2]));
    cx.emit_behind(2, "Transpose", perm(&[1, 0, 2]));
    Ok(Step::Canonical)
}

fn perm(axes: &[i64]) -> Attrs {
    let mut attrs = Attrs::new();
    attrs.set("perm", Attr::Ints(axes.to_vec()));
    attrs
}

fn downgrade(_: &Graph, _: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 7 { Err(Misfit) } else { Ok(()) }
}

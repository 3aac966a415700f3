//! Attention: masks that are shorter than the keys.
//!
//! 23 attn_mask as long as the keys; 24 a shorter one is lengthened with −∞; 25 windows. ONNX Runtime's kernels refuse a
//! shorter one; at 25 it has none and takes the operator apart as the specification does. One whose dims are all known is
//! lengthened when it is written (`export/repair.rs`).

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Diag, Dim, Graph};

pub(super) static FAMILY: Family = Family { ops: &["Attention"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, _: &mut Draft) -> Result<Step, Diag> {
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version >= 25 || !draft.has(3) {
        return Ok(());
    }
    let dims = |slot: usize| match draft.input(slot) {
        Arg::Value(id) => graph[*id].ty.shape(),
        _ => None,
    };
    let last = dims(3).and_then(<[Dim]>::last);
    let new = dims(1).and_then(|k| k.get(k.len().checked_sub(2)?));
    let past = match draft.has(4) {
        true => dims(4).and_then(|past| past.get(2)),
        false => Some(&Dim::Known(0)),
    };
    let known = |dim: Option<&Dim>| dim.is_some_and(|dim| dim.known().is_some());
    if known(new) && known(past) && dims(3).is_some_and(|mask| mask.iter().all(|dim| known(Some(dim)))) {
        return Ok(());
    }
    match (last, new, past) {
        (Some(last), Some(new), Some(past)) if *last == past.add(new) && *last != Dim::Unknown => Ok(()),
        _ => Err(Misfit),
    }
}

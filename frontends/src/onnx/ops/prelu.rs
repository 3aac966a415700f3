//! PRelu: the shape of the slope.
//!
//! 1, 6: one slope, or one a channel (`[C]`, axis 1 of x).     7: broadcasts to x as in numpy.

use super::{Family, Misfit, Step, broadcast::unsqueeze};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_ir::{Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["PRelu"], upgrade, downgrade };

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 7 {
        return Ok(Step::Canonical);
    }
    let slope = draft.input(1).clone();
    if cx.constant(&slope).is_some_and(|slope| slope.count() == 1) {
        return Ok(Step::Canonical);
    }
    match (cx.rank(draft.input(0)), cx.rank(&slope)) {
        (Some(rank), Some(1)) if rank > 2 => {
            let axes: Vec<i64> = (1..rank as i64 - 1).collect();
            let slope = unsqueeze(cx, slope, &axes);
            draft.set_input(1, slope);
        }
        (Some(_), Some(_)) => {}
        _ => return Ok(Step::Keep),
    }
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, _: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 7 { Err(Misfit) } else { Ok(()) }
}

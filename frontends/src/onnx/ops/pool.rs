//! LpPool, GlobalLpPool: the type of p. The other poolings only gained attributes.
//!
//! 1: p is a float, kernel_shape may be absent.     2: p is an integer.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["LpPool", "GlobalLpPool"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 2 {
        return Ok(Step::Canonical);
    }
    let p = draft.attrs.float("p").unwrap_or(2.0);
    let whole = p.fract() == 0.0 && p >= 1.0;
    if !whole || (&*draft.op.op_type == "LpPool" && draft.attrs.get("kernel_shape").is_none()) {
        return Ok(Step::Keep);
    }
    draft.attrs.set("p", Attr::Int(p as i64));
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, _: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 2 { Err(Misfit) } else { Ok(()) }
}

//! GridSample: names of modes.
//!
//! 16: bilinear, nearest, bicubic, of images only.     20: linear, nearest, cubic, of any rank.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["GridSample"], upgrade, downgrade };

const NAMES: [(&str, &str); 2] = [("bilinear", "linear"), ("bicubic", "cubic")];

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since < 20 {
        let mode = draft.attrs.str("mode").unwrap_or("bilinear");
        let name = NAMES.iter().find(|(old, _)| *old == mode).map_or(mode, |(_, new)| new).to_owned();
        draft.attrs.set("mode", Attr::Str(name.into()));
    }
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version >= 20 {
        return Ok(());
    }
    let Arg::Value(x) = draft.input(0) else { return Err(Misfit) };
    if graph[*x].ty.shape().map(<[_]>::len) != Some(4) {
        return Err(Misfit);
    }
    let mode = draft.attrs.str("mode").unwrap_or("linear");
    let name = NAMES.iter().find(|(_, new)| *new == mode).map_or(mode, |(old, _)| old).to_owned();
    draft.attrs.set("mode", Attr::Str(name.into()));
    Ok(())
}

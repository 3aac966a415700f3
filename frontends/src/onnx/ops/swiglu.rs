//! SwiGLU: no kernel anywhere knows it whole.
//!
//! 28: a · sigmoid(alpha · a) · b, which becomes Swish and Mul.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_ir::{Attrs, Diag, Graph, OpKey};
use trtc_onnx::schema;

pub(super) static FAMILY: Family = Family { ops: &["SwiGLU"], upgrade, downgrade };

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    let mut attrs = Attrs::new();
    if let Some(alpha) = draft.attrs.get("alpha") {
        attrs.set("alpha", alpha.clone());
    }
    let gate = cx.emit("Swish", attrs, vec![draft.input(0).clone()], Some("Mul"));
    *draft = Draft {
        op: OpKey::new("", "Mul"),
        since: schema::since_version("", "Mul", schema::MAX_OPSET).unwrap_or(14),
        attrs: Attrs::new(),
        inputs: vec![gate, draft.input(1).clone()],
        outputs: draft.outputs,
        wanted: std::mem::take(&mut draft.wanted),
    };
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, _: &mut Draft, _: u32) -> Result<(), Misfit> {
    Ok(())
}

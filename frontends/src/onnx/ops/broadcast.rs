//! Element-wise operators of two inputs, and Gemm: broadcasting before opset 7.
//!
//! 1, 6: equal shapes, or `broadcast = 1` and the second input aligned at `axis` (its dims match a run of the first one's dims).
//! 7: as in numpy, no attributes.     Gemm 1, 6: `broadcast` allows the third input to broadcast; 7: always.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_ir::{Attrs, Diag, Graph, Tensor};

pub(super) static FAMILY: Family = Family {
    ops: &["Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", "Gemm"],
    upgrade,
    downgrade,
};

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 7 {
        return Ok(Step::Canonical);
    }
    let broadcast = draft.attrs.remove("broadcast");
    let axis = draft.attrs.int("axis");
    draft.attrs.remove("axis");
    if !matches!(broadcast, Some(trtc_ir::Attr::Int(1))) || &*draft.op.op_type == "Gemm" {
        return Ok(Step::Canonical);
    }
    let Some(axis) = axis else { return Ok(Step::Canonical) };
    let (Some(a), Some(b)) = (cx.rank(draft.input(0)), cx.rank(draft.input(1))) else {
        return Ok(Step::Keep);
    };
    let axis = if axis < 0 { axis + a as i64 } else { axis };
    let behind = usize::try_from(axis).ok().and_then(|axis| a.checked_sub(axis + b));
    let Some(behind) = behind else {
        let why = format!("a second input of rank {b} cannot stand at axis {axis} of rank {a}");
        return Err(Diag::invalid(why).slot("axis"));
    };
    if behind > 0 {
        let second = draft.input(1).clone();
        let axes: Vec<i64> = (b..b + behind).map(|axis| axis as i64).collect();
        let aligned = unsqueeze(cx, second, &axes);
        draft.set_input(1, aligned);
    }
    Ok(Step::Canonical)
}

/// Appends axes; a constant is given other dims instead.
pub(super) fn unsqueeze(cx: &mut Upgrade<'_>, arg: Arg, axes: &[i64]) -> Arg {
    if let Some(tensor) = cx.constant(&arg) {
        let dims = tensor.dims().iter().copied().chain(axes.iter().map(|_| 1)).collect();
        if let Some(tensor) = tensor.with_dims(dims) {
            return Arg::Const(tensor);
        }
    }
    cx.emit("Unsqueeze", Attrs::new(), vec![arg, Arg::Const(Tensor::from_i64s(axes))], None)
}

fn downgrade(_: &Graph, _: &mut Draft, version: u32) -> Result<(), Misfit> {
    // Whether shapes are equal is not looked into: no ONNX Runtime of today runs such opsets.
    if version < 7 { Err(Misfit) } else { Ok(()) }
}

//! QuantizeLinear, DequantizeLinear: axis, blocks, output type.
//!
//! 10: one scale.     13: axis.     19: float8, saturate.     21: block_size, output_dtype (quantize).     23: output_dtype (dequantize),
//! precision. Before 23, ONNX Runtime divides 16-bit floats in f32; from 23 on in the scale's type, unless `precision` says another.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_bundle::DType;
use trtc_ir::{Attr, Diag, Graph};

pub(super) static FAMILY: Family =
    Family { ops: &["QuantizeLinear", "DequantizeLinear"], upgrade, downgrade };

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    let scale = cx.dtype(draft.input(1));
    if draft.since < 23
        && &*draft.op.op_type == "QuantizeLinear"
        && matches!(scale, Some(DType::F16 | DType::Bf16))
    {
        draft.attrs.set("precision", Attr::Int(DType::F32.onnx().into()));
    }
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    let count = |arg: &Arg| match arg {
        Arg::None => None,
        Arg::Value(id) => graph[*id].ty.static_shape().map(|dims| dims.iter().product::<i64>()),
        Arg::Const(tensor) => Some(tensor.count() as i64),
    };
    if version < 23 && &*draft.op.op_type == "QuantizeLinear" {
        let narrow = matches!(dtype_of(graph, draft.input(1)), Some(DType::F16 | DType::Bf16));
        let written = draft.attrs.int("precision").filter(|&number| number != 0);
        if written.map_or(narrow, |number| number != i64::from(DType::F32.onnx())) {
            return Err(Misfit);
        }
        draft.attrs.remove("precision");
    }
    let scalar = count(draft.input(1)) == Some(1);
    if version < 13 {
        if !scalar {
            return Err(Misfit);
        }
        draft.attrs.remove("axis");
    }
    if version < 21 {
        let written = draft.attrs.int("output_dtype").and_then(|number| i32::try_from(number).ok());
        let written = written.and_then(DType::from_onnx);
        // What the zero point says, or u8 without one, need not be written.
        let implied = match &*draft.op.op_type {
            "QuantizeLinear" => dtype_of(graph, draft.input(2)).unwrap_or(DType::U8),
            _ => dtype_of(graph, draft.input(1)).unwrap_or(DType::F32),
        };
        if written.is_some_and(|written| written != implied) {
            return Err(Misfit);
        }
        draft.attrs.remove("output_dtype");
    }
    Ok(())
}

/// Element type of an input.
pub(super) fn dtype_of(graph: &Graph, arg: &Arg) -> Option<DType> {
    match arg {
        Arg::None => None,
        Arg::Value(id) => graph[*id].ty.dtype(),
        Arg::Const(tensor) => Some(tensor.dtype()),
    }
}

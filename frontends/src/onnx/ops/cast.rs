//! Cast: how the type is written.
//!
//! 1: `to` is a name (`FLOAT`).     6: a number.     19: saturate.     24: round_mode.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_bundle::DType;
use trtc_ir::{Attr, Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["Cast"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 6 {
        return Ok(Step::Canonical);
    }
    let name = draft.attrs.str("to").unwrap_or("").to_ascii_uppercase();
    let dtype = match name.as_str() {
        "FLOAT" => DType::F32,
        "UINT8" => DType::U8,
        "INT8" => DType::I8,
        "UINT16" => DType::U16,
        "INT16" => DType::I16,
        "INT32" => DType::I32,
        "INT64" => DType::I64,
        "STRING" => DType::Str,
        "BOOL" => DType::Bool,
        "FLOAT16" => DType::F16,
        "DOUBLE" => DType::F64,
        "UINT32" => DType::U32,
        "UINT64" => DType::U64,
        _ => return Err(Diag::invalid(format!("`{name}` is not an element type")).slot("to")),
    };
    draft.attrs.set("to", Attr::Int(dtype.onnx().into()));
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, _: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 6 { Err(Misfit) } else { Ok(()) }
}

//! The element type in which ONNX Runtime can run an operator.

use super::OPSET;
use trtc_bundle::DType::{self, *};
use trtc_onnx::{kernels, schema};

/// Types that hold each value of `dtype`, `dtype` first, the cheapest next.
fn holding(dtype: DType) -> &'static [DType] {
    match dtype {
        F32 => &[F32],
        F16 => &[F16, F32],
        Bf16 => &[Bf16, F32],
        F8E4M3 => &[F8E4M3, F32],
        F8E5M2 => &[F8E5M2, F32],
        Bool => &[Bool, U8, I32],
        I8 => &[I8, I32, I64, F32],
        U8 => &[U8, I32, I64, F32],
        I4 => &[I4, I8, I32, F32],
        U4 => &[U4, U8, I32, F32],
        I32 => &[I32, I64],
        I64 => &[I64],
        F64 => &[F64],
        _ => &[],
    }
}

/// An input or output whose type is that of the data, or is fixed, or that is left out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Typed {
    Data,
    Fixed(DType),
    Absent,
}

/// The type in which `op` runs data of `dtype`: `dtype` itself, else one that holds each of its values; `None` when no
/// kernel does.
pub(super) fn run_as(op: &str, dtype: DType, inputs: &[Typed], outputs: &[Typed]) -> Option<DType> {
    let schema = schema::in_force("", op, OPSET as u32)?;
    let types = |list: &[Typed], data: DType| -> Vec<Option<DType>> {
        let list = list.iter().map(|typed| match typed {
            Typed::Data => Some(data),
            Typed::Fixed(dtype) => Some(*dtype),
            Typed::Absent => None,
        });
        list.collect()
    };
    holding(dtype).iter().copied().find(|&run| {
        let (inputs, outputs) = (types(inputs, run), types(outputs, run));
        let type_of = |name: &str| schema.bound(name, &inputs, &outputs);
        schema.allows(&inputs, &outputs) && kernels::cpu_kernel("", op, schema.since_version, &type_of)
    })
}

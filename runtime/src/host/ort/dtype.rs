//! ONNX Runtime's numbers for element types. They differ from ONNX's after 23.

use ::ort::sys::ONNXTensorElementDataType as Ort;
use trtc_bundle::DType;

/// ONNX Runtime's type; `None` for types that it does not have.
pub(super) fn to_ort(dtype: DType) -> Option<Ort> {
    Some(match dtype {
        DType::F32 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        DType::U8 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        DType::I8 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        DType::U16 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        DType::I16 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        DType::I32 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        DType::I64 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        DType::Str => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
        DType::Bool => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        DType::F16 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        DType::F64 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        DType::U32 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        DType::U64 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        DType::Bf16 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
        DType::F8E4M3 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN,
        DType::F8E4M3Uz => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FNUZ,
        DType::F8E5M2 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2,
        DType::F8E5M2Uz => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2FNUZ,
        DType::U4 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4,
        DType::I4 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4,
        DType::F4E2M1 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT4E2M1,
        DType::U2 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT2,
        DType::I2 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT2,
        DType::F8E8M0 => Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E8M0,
        // It has numbers for complex types, but cannot hold them.
        _ => return None,
    })
}

/// Inverse of [`to_ort`], from the bare number: a later library may know more of them than the binding's enum.
pub(super) fn from_ort(number: i32) -> Option<DType> {
    DType::ALL.iter().copied().find(|&dtype| to_ort(dtype).is_some_and(|ort| ort as i32 == number))
}

#[cfg(test)]
mod tests {
    use super::{from_ort, to_ort};
    use trtc_bundle::DType;

    #[test]
    fn the_numbers_that_differ() {
        // onnxruntime_c_api.h 1.32: UINT2 24, INT2 25, FLOAT8E8M0 26.
        assert_eq!(
            [24, 25, 26, 1, 27].map(from_ort),
            [Some(DType::U2), Some(DType::I2), Some(DType::F8E8M0), Some(DType::F32), None]
        );
        assert_eq!(to_ort(DType::C64), None);
    }
}

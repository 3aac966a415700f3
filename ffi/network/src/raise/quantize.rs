//! Quantize and Dequantize: symmetric, per tensor, per channel or per block.

use super::Result;
use super::emit::{Raiser, Value};
use crate::network::TensorId;
use trtc_bundle::DType;
use trtc_onnx::AttributeProto;
use trtc_onnx::write::attr_i;

impl Raiser<'_> {
    /// clamp(round(x / scale)), to nearest even. Computed in f32: ONNX wants `x` and the scale of one type.
    pub fn quantize(&mut self, x: TensorId, scale: TensorId, axis: Option<u32>, to: DType) -> Result<Value> {
        if !matches!(to, DType::I8 | DType::F8E4M3 | DType::I4) {
            return Err(self.no_counterpart(format!("quantization to {to}")));
        }
        let zero = self.zero_point(to, scale)?;
        let (value, scale, attributes) = self.quantized(x, scale, axis)?;
        let value = self.cast(&value, DType::F32);
        let mut call = self.call("QuantizeLinear").plain(&value).plain(&scale).plain(&zero);
        for attribute in attributes {
            call = call.attr(attribute);
        }
        call.value_of(to)
    }

    /// x · scale, rounded once, to `to`.
    pub fn dequantize(
        &mut self,
        x: TensorId,
        scale: TensorId,
        axis: Option<u32>,
        to: DType,
    ) -> Result<Value> {
        let zero = self.zero_point(self.dtype(x)?, scale)?;
        let (value, scale, attributes) = self.quantized(x, scale, axis)?;
        if !matches!(value.dtype, DType::I8 | DType::F8E4M3 | DType::I4) {
            return Err(self.no_counterpart(format!("dequantization of {}", value.dtype)));
        }
        let mut call = self.call("DequantizeLinear").plain(&value).plain(&scale).plain(&zero);
        for attribute in attributes {
            call = call.attr(attribute);
        }
        let wide = call.value_of(DType::F32)?;
        Ok(self.cast(&wide, to))
    }

    /// Zeros in the shape that ONNX wants the scale in. Without a zero point ONNX Runtime, where it fuses operators, takes the
    /// quantised type for u8.
    fn zero_point(&mut self, dtype: DType, scale: TensorId) -> Result<Value> {
        let dims = self.dims(scale)?;
        let dims = if dims.iter().all(|&d| d == 1) { &[] } else { dims };
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
        let bytes = count.and_then(|count| dtype.bytes_for(count));
        let bytes = bytes.ok_or_else(|| self.malformed(format!("a scale of dims {dims:?}")))?;
        Ok(self.constant(dtype, dims.to_vec(), vec![0; bytes]))
    }

    /// `x`, its scale as f32 in ONNX's shape, and what says which element has which scale.
    fn quantized(
        &mut self,
        x: TensorId,
        scale: TensorId,
        axis: Option<u32>,
    ) -> Result<(Value, Value, Vec<AttributeProto>)> {
        let (x_dims, scale_dims) = (self.dims(x)?, self.dims(scale)?);
        let (x, scale) = (self.get(x)?, self.get(scale)?);
        let scale = self.cast(&scale, DType::F32);
        if scale_dims.iter().all(|&d| d == 1) {
            let scale = if scale_dims.is_empty() { scale } else { self.reshape(&scale, &[])? };
            return Ok((x, scale, Vec::new()));
        }
        if let ([_], Some(axis)) = (scale_dims, axis) {
            return Ok((x, scale, vec![attr_i("axis", i64::from(axis))]));
        }
        if x_dims.len() != scale_dims.len() || x_dims.iter().chain(scale_dims).any(|&d| d < 0) {
            return Err(self.malformed(format!("a scale of dims {scale_dims:?} for {x_dims:?}")));
        }
        let blocked: Vec<usize> =
            (0..x_dims.len()).filter(|&axis| x_dims[axis] != scale_dims[axis]).collect();
        match blocked[..] {
            // One scale an element.
            [] => Ok((x, scale, vec![attr_i("axis", 0), attr_i("block_size", 1)])),
            [axis] if scale_dims[axis] > 0 && x_dims[axis] % scale_dims[axis] == 0 => {
                let block = x_dims[axis] / scale_dims[axis];
                Ok((x, scale, vec![attr_i("axis", axis as i64), attr_i("block_size", block)]))
            }
            _ => Err(self.no_counterpart(format!("blocks of {x_dims:?} with scales of {scale_dims:?}"))),
        }
    }
}

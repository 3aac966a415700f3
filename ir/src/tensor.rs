//! Constant tensors. Bytes are shared, usually with a mapped file; a clone copies nothing.

use bytes::Bytes;
use std::sync::Arc;
use trtc_bundle::DType;

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    dtype: DType,
    dims: Vec<i64>,
    data: TensorData,
}

/// Elements of a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorData {
    /// Packed little-endian elements, as [`DType`] says. Not necessarily aligned.
    Bytes(Bytes),
    /// Strings, in row-major order.
    Strings(Arc<[Bytes]>),
}

impl Tensor {
    /// A tensor over packed bytes; `None` when the byte count is not what dtype and dims need, or a dim is negative.
    pub fn new(dtype: DType, dims: Vec<i64>, bytes: Bytes) -> Option<Tensor> {
        let count = element_count(&dims)?;
        (dtype.bytes_for(count)? == bytes.len()).then_some(Tensor {
            dtype,
            dims,
            data: TensorData::Bytes(bytes),
        })
    }

    /// A tensor of strings.
    pub fn strings(dims: Vec<i64>, strings: Arc<[Bytes]>) -> Option<Tensor> {
        (element_count(&dims)? == strings.len()).then_some(Tensor {
            dtype: DType::Str,
            dims,
            data: TensorData::Strings(strings),
        })
    }

    /// A rank-1 i64 tensor.
    pub fn from_i64s(values: &[i64]) -> Tensor {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor { dtype: DType::I64, dims: vec![values.len() as i64], data: TensorData::Bytes(bytes.into()) }
    }

    /// A rank-0 i64 tensor.
    pub fn scalar_i64(value: i64) -> Tensor {
        Tensor { dims: Vec::new(), ..Tensor::from_i64s(&[value]) }
    }

    /// A f32 tensor; `None` when the count does not fit the dims.
    pub fn from_f32s(dims: Vec<i64>, values: &[f32]) -> Option<Tensor> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor::new(DType::F32, dims, bytes.into())
    }

    /// An empty tensor; `None` unless a dim is 0.
    pub fn empty(dtype: DType, dims: Vec<i64>) -> Option<Tensor> {
        if element_count(&dims)? != 0 {
            return None;
        }
        match dtype {
            DType::Str => Tensor::strings(dims, Arc::from([])),
            _ => Tensor::new(dtype, dims, Bytes::new()),
        }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dims, all ≥ 0.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        element_count(&self.dims).unwrap_or(0)
    }

    /// Elements.
    pub fn data(&self) -> &TensorData {
        &self.data
    }

    /// Packed bytes; `None` for strings.
    pub fn bytes(&self) -> Option<&Bytes> {
        if let TensorData::Bytes(bytes) = &self.data { Some(bytes) } else { None }
    }

    /// The same elements under other dims; `None` when the counts differ.
    pub fn with_dims(&self, dims: Vec<i64>) -> Option<Tensor> {
        (element_count(&dims)? == self.count()).then(|| Tensor { dims, ..self.clone() })
    }

    /// Elements of an integer or bool tensor, widened; `None` for other dtypes and u64 values past i64.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        let bytes = self.bytes()?;
        let wide = |n: usize, f: &dyn Fn(&[u8]) -> Option<i64>| {
            bytes.chunks_exact(n).map(f).collect::<Option<Vec<i64>>>()
        };
        match self.dtype {
            DType::Bool | DType::U8 => wide(1, &|c| Some(c[0].into())),
            DType::I8 => wide(1, &|c| Some((c[0] as i8).into())),
            DType::U16 => wide(2, &|c| Some(u16::from_le_bytes(c.try_into().ok()?).into())),
            DType::I16 => wide(2, &|c| Some(i16::from_le_bytes(c.try_into().ok()?).into())),
            DType::U32 => wide(4, &|c| Some(u32::from_le_bytes(c.try_into().ok()?).into())),
            DType::I32 => wide(4, &|c| Some(i32::from_le_bytes(c.try_into().ok()?).into())),
            DType::U64 => wide(8, &|c| i64::try_from(u64::from_le_bytes(c.try_into().ok()?)).ok()),
            DType::I64 => wide(8, &|c| Some(i64::from_le_bytes(c.try_into().ok()?))),
            DType::U4 | DType::I4 => {
                let nibbles = bytes.iter().flat_map(|&b| [b & 15, b >> 4]).take(self.count());
                let signed = self.dtype == DType::I4;
                Some(nibbles.map(|n| if signed && n > 7 { i64::from(n) - 16 } else { n.into() }).collect())
            }
            _ => None,
        }
    }

    /// Elements of a real tensor as f64: exact for f32, f16, bf16, f64 and for integers up to 2⁵³; `None` for others.
    pub fn to_f64s(&self) -> Option<Vec<f64>> {
        let bytes = self.bytes()?;
        let wide = |n: usize, f: &dyn Fn(&[u8]) -> Option<f64>| {
            bytes.chunks_exact(n).map(f).collect::<Option<Vec<f64>>>()
        };
        match self.dtype {
            DType::F32 => wide(4, &|c| Some(f32::from_le_bytes(c.try_into().ok()?).into())),
            DType::F64 => wide(8, &|c| Some(f64::from_le_bytes(c.try_into().ok()?))),
            DType::F16 => wide(2, &|c| Some(half::f16::from_le_bytes(c.try_into().ok()?).into())),
            DType::Bf16 => wide(2, &|c| Some(half::bf16::from_le_bytes(c.try_into().ok()?).into())),
            _ => self.to_i64s().map(|values| values.into_iter().map(|v| v as f64).collect()),
        }
    }

    /// The only element as f64.
    pub fn scalar_f64(&self) -> Option<f64> {
        if self.count() == 1 { self.to_f64s()?.first().copied() } else { None }
    }
}

/// Product of dims; `None` for a negative dim or overflow.
pub fn element_count(dims: &[i64]) -> Option<usize> {
    dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))
}

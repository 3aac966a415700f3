//! Element access: numbers in and out of packed bytes, element-wise picks for any width, strided walks.

use super::{MAX_BYTES, MAX_COUNT, OrSkip, Out, Stop, signed, within};
use crate::tensor::{Tensor, TensorData, element_count};
use bytes::Bytes;
use std::borrow::Cow;
use trtc_bundle::DType;

/// Elements of an integer or bool tensor.
pub(crate) fn ints(tensor: &Tensor) -> Out<Vec<i128>> {
    within(tensor.count(), super::MAX_WORK)?;
    if tensor.dtype() == DType::U64 {
        let bytes = tensor.bytes().or_skip()?;
        let read = |c: &[u8]| c.try_into().map(u64::from_le_bytes).map(i128::from).map_err(|_| Stop::Skip);
        return bytes.chunks_exact(8).map(read).collect();
    }
    Ok(tensor.to_i64s().or_skip()?.into_iter().map(i128::from).collect())
}

/// A tensor of an integer type or bool; values wrap to its width, as C's conversions do.
pub(crate) fn from_ints(dtype: DType, sizes: &[usize], values: &[i128]) -> Out<Tensor> {
    let mut bytes = Vec::with_capacity(values.len() * 8);
    for &value in values {
        match dtype {
            DType::Bool => bytes.push(u8::from(value != 0)),
            DType::U8 | DType::I8 => bytes.push(value as u8),
            DType::U16 | DType::I16 => bytes.extend_from_slice(&(value as u16).to_le_bytes()),
            DType::U32 | DType::I32 => bytes.extend_from_slice(&(value as u32).to_le_bytes()),
            DType::U64 | DType::I64 => bytes.extend_from_slice(&(value as u64).to_le_bytes()),
            _ => return Err(Stop::Skip),
        }
    }
    Tensor::new(dtype, signed(sizes), bytes.into()).or_skip()
}

/// Whether a tensor's elements are read by [`ints`] and written by [`from_ints`].
pub(crate) fn is_whole(dtype: DType) -> bool {
    use DType::*;
    matches!(dtype, Bool | U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
}

/// Elements of a float tensor, exact.
pub(crate) fn floats(tensor: &Tensor) -> Out<Vec<f64>> {
    within(tensor.count(), super::MAX_WORK)?;
    if is_real(tensor.dtype()) { tensor.to_f64s().or_skip() } else { Err(Stop::Skip) }
}

/// Whether a tensor's elements are read by [`floats`] and written by [`from_floats`].
pub(crate) fn is_real(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::Bf16)
}

/// A float tensor; each value is rounded once, to nearest even.
pub(crate) fn from_floats(dtype: DType, sizes: &[usize], values: &[f64]) -> Out<Tensor> {
    let mut bytes = Vec::with_capacity(values.len() * 8);
    for &value in values {
        match dtype {
            DType::F64 => bytes.extend_from_slice(&value.to_le_bytes()),
            DType::F32 => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
            DType::F16 => bytes.extend_from_slice(&half::f16::from_f64(value).to_le_bytes()),
            DType::Bf16 => bytes.extend_from_slice(&half::bf16::from_f64(value).to_le_bytes()),
            _ => return Err(Stop::Skip),
        }
    }
    Tensor::new(dtype, signed(sizes), bytes.into()).or_skip()
}

/// Row-major strides in elements.
pub(crate) fn strides(sizes: &[usize]) -> Vec<isize> {
    let mut step = 1isize;
    let mut list: Vec<isize> = sizes
        .iter()
        .rev()
        .map(|&d| {
            let here = step;
            step = step.saturating_mul(d as isize);
            here
        })
        .collect();
    list.reverse();
    list
}

/// Strides that repeat a tensor of `from` over `to` by numpy's rule; the shapes are known to broadcast.
pub(crate) fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<isize> {
    let lead = to.len() - from.len();
    let own = strides(from);
    (0..to.len())
        .map(|k| match k.checked_sub(lead) {
            Some(k) if from[k] != 1 => own[k],
            _ => 0,
        })
        .collect()
}

/// Offsets of a strided walk in row-major order of `sizes`.
pub(crate) struct Walk {
    sizes: Vec<usize>,
    strides: Vec<isize>,
    at: Vec<usize>,
    offset: isize,
    left: usize,
}

impl Walk {
    pub(crate) fn new(sizes: &[usize], strides: Vec<isize>, base: isize) -> Walk {
        let left = sizes.iter().product();
        Walk { sizes: sizes.to_vec(), strides, at: vec![0; sizes.len()], offset: base, left }
    }
}

impl Iterator for Walk {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let here = self.offset;
        for axis in (0..self.sizes.len()).rev() {
            self.at[axis] += 1;
            self.offset += self.strides[axis];
            if self.at[axis] < self.sizes[axis] {
                break;
            }
            self.offset -= self.strides[axis] * self.sizes[axis] as isize;
            self.at[axis] = 0;
        }
        usize::try_from(here).ok()
    }
}

/// Calls `f` with every coordinate of `sizes`, row-major.
pub(crate) fn each_coordinate(sizes: &[usize], mut f: impl FnMut(&[usize]) -> Out<()>) -> Out<()> {
    let total: usize = sizes.iter().product();
    let mut at = vec![0usize; sizes.len()];
    for _ in 0..total {
        f(&at)?;
        for axis in (0..sizes.len()).rev() {
            at[axis] += 1;
            if at[axis] < sizes[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    Ok(())
}

/// Skips a result that is too large to keep.
pub(crate) fn affordable(dtype: DType, sizes: &[usize]) -> Out<usize> {
    let count = element_count(&signed(sizes)).or_skip()?;
    match dtype.bytes_for(count) {
        Some(bytes) => within(bytes, MAX_BYTES)?,
        None => within(count, MAX_COUNT)?,
    }
    Ok(count)
}

/// A tensor whose elements are picked from `sources` (all of one dtype) as (source, element).
pub(crate) fn pick(
    sources: &[&Tensor],
    sizes: &[usize],
    picks: impl Iterator<Item = (usize, usize)>,
) -> Out<Tensor> {
    let dtype = sources.first().or_skip()?.dtype();
    if sources.iter().any(|source| source.dtype() != dtype) {
        return super::invalid("inputs of different dtypes");
    }
    let count = affordable(dtype, sizes)?;
    if dtype == DType::Str {
        let lists = sources
            .iter()
            .map(|source| match source.data() {
                TensorData::Strings(list) => Ok(list),
                TensorData::Bytes(_) => Err(Stop::Skip),
            })
            .collect::<Out<Vec<_>>>()?;
        let strings: Vec<Bytes> = picks
            .take(count)
            .map(|(s, k)| lists.get(s).and_then(|list| list.get(k)).cloned().or_skip())
            .collect::<Out<_>>()?;
        return Tensor::strings(signed(sizes), strings.into()).or_skip();
    }
    let unpacked = sources.iter().map(|source| unpack(source)).collect::<Out<Vec<_>>>()?;
    let bytes = match dtype.bits().div_ceil(8) {
        1 => copy::<1>(&unpacked, count, picks),
        2 => copy::<2>(&unpacked, count, picks),
        4 => copy::<4>(&unpacked, count, picks),
        8 => copy::<8>(&unpacked, count, picks),
        16 => copy::<16>(&unpacked, count, picks),
        _ => return Err(Stop::Skip),
    }?;
    Tensor::new(dtype, signed(sizes), repack(dtype, bytes).into()).or_skip()
}

fn copy<const W: usize>(
    sources: &[Cow<'_, [u8]>],
    count: usize,
    picks: impl Iterator<Item = (usize, usize)>,
) -> Out<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count * W);
    for (source, k) in picks.take(count) {
        let element = sources.get(source).and_then(|bytes| bytes.get(k * W..k * W + W)).or_skip()?;
        bytes.extend_from_slice(element);
    }
    Ok(bytes)
}

/// One byte or more an element: types below a byte are spread.
fn unpack<'a>(tensor: &'a Tensor) -> Out<Cow<'a, [u8]>> {
    let bytes: &'a [u8] = tensor.bytes().or_skip()?;
    match tensor.dtype().bits() {
        4 => {
            within(tensor.count(), super::MAX_WORK)?;
            Ok(bytes.iter().flat_map(|&b| [b & 15, b >> 4]).take(tensor.count()).collect())
        }
        2 => {
            within(tensor.count(), super::MAX_WORK)?;
            let four = |&b: &u8| [b & 3, b >> 2 & 3, b >> 4 & 3, b >> 6];
            Ok(bytes.iter().flat_map(four).take(tensor.count()).collect())
        }
        6 => Err(Stop::Skip),
        _ => Ok(Cow::Borrowed(bytes)),
    }
}

fn repack(dtype: DType, spread: Vec<u8>) -> Vec<u8> {
    let join = |width: usize| {
        spread
            .chunks(8 / width)
            .map(|chunk| chunk.iter().enumerate().fold(0u8, |byte, (k, &e)| byte | e << (k * width)))
            .collect()
    };
    match dtype.bits() {
        4 => join(4),
        2 => join(2),
        _ => spread,
    }
}

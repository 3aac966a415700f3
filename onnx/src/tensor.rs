//! Elements of a tensor: from whatever field holds them to one packed little-endian layout, and back.

use crate::{
    EXTERNAL, Error, Packed, Result, SparseTensorProto, StringStringEntryProto, TensorFault, TensorProto,
};
use bytes::Bytes;
use trtc_bundle::DType;

/// A tensor with its elements at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Shape: no dimension is negative and the element count fits `usize`.
    pub dims: Vec<i64>,
    /// Elements, row-major.
    pub data: TensorData,
}

/// Elements of a [`Tensor`].
#[derive(Clone, PartialEq, Eq)]
pub enum TensorData {
    /// Packed little-endian elements as [`DType`] describes them: a bool is one byte, 4-bit elements stand two a byte with the
    /// first in the low bits, 2-bit elements four, and 6-bit elements form one little-endian stream of bits. Exactly
    /// `dtype.bytes_for(count)` bytes, in place in a mapped file whenever the file holds them so. No alignment is promised.
    Bytes(Bytes),
    /// Strings, by convention UTF-8.
    Strings(Vec<Bytes>),
}

impl std::fmt::Debug for TensorData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TensorData::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            TensorData::Strings(strings) => f.debug_tuple("Strings").field(strings).finish(),
        }
    }
}

/// Number of elements of a shape (1 for rank 0).
///
/// # Errors
/// A negative dimension, or more elements than `usize` holds.
pub fn element_count(dims: &[i64]) -> Result<usize, TensorFault> {
    if dims.iter().any(|&dim| dim < 0) {
        return Err(TensorFault::NegativeDim { dims: dims.to_vec() });
    }
    if dims.contains(&0) {
        return Ok(0);
    }
    dims.iter()
        .try_fold(1usize, |count, &dim| count.checked_mul(usize::try_from(dim).ok()?))
        .ok_or_else(|| TensorFault::TooManyElements { dims: dims.to_vec() })
}

/// What type and shape ask for.
pub(crate) struct Header {
    pub(crate) dtype: DType,
    pub(crate) count: usize,
    /// Bytes of the packed layout; 0 for strings.
    pub(crate) bytes: usize,
}

impl TensorProto {
    /// Element type.
    ///
    /// # Errors
    /// None is given, or one that ONNX does not define.
    pub fn dtype(&self) -> Result<DType> {
        self.checked_dtype().map_err(|fault| self.error(fault))
    }

    /// The elements of a tensor that holds them itself; [`crate::OnnxFile::tensor`] reads external data too.
    ///
    /// # Errors
    /// Type, shape and data do not fit each other, or the data is external.
    pub fn to_tensor(&self) -> Result<Tensor> {
        if self.is_external() {
            let location = self.external_key("location").unwrap_or_default().to_owned();
            let fault = crate::ExternalFault::NoFolder;
            return Err(Error::External { name: self.name().to_owned(), location, fault });
        }
        self.header().and_then(|header| self.inline(&header)).map_err(|fault| self.error(fault))
    }

    pub(crate) fn error(&self, fault: TensorFault) -> Error {
        Error::Tensor { name: self.name().to_owned(), fault }
    }

    pub(crate) fn external_key(&self, key: &str) -> Option<&str> {
        let entry = self.external_data.iter().find(|entry| entry.key.as_deref() == Some(key))?;
        entry.value.as_deref()
    }

    pub(crate) fn header(&self) -> Result<Header, TensorFault> {
        let dtype = self.checked_dtype()?;
        if self.segment.is_some() {
            return Err(TensorFault::Segment);
        }
        let count = element_count(&self.dims)?;
        let bytes = match dtype {
            DType::Str => 0,
            _ => dtype
                .bytes_for(count)
                .filter(|&bytes| isize::try_from(bytes).is_ok())
                .ok_or_else(|| TensorFault::TooManyElements { dims: self.dims.clone() })?,
        };
        Ok(Header { dtype, count, bytes })
    }

    fn checked_dtype(&self) -> Result<DType, TensorFault> {
        match self.data_type {
            None | Some(0) => Err(TensorFault::NoType),
            Some(number) => DType::from_onnx(number).ok_or(TensorFault::UnknownType(number)),
        }
    }

    fn inline(&self, header: &Header) -> Result<Tensor, TensorFault> {
        let data = match (header.dtype, &self.raw_data) {
            (DType::Str, Some(raw)) if !raw.is_empty() => {
                return Err(TensorFault::StringsElsewhere("raw_data"));
            }
            (DType::Str, _) => {
                self.fits(header, "strings", "string_data", header.count, self.string_data.len())?;
                TensorData::Strings(self.string_data.clone())
            }
            // Some writers set an empty raw_data next to a typed field.
            (_, Some(raw)) if !raw.is_empty() || self.typed_field(header.dtype).1.is_empty() => {
                self.fits(header, "bytes", "raw_data", header.bytes, raw.len())?;
                TensorData::Bytes(raw.clone())
            }
            _ => TensorData::Bytes(self.typed(header)?),
        };
        Ok(Tensor { dtype: header.dtype, dims: self.dims.clone(), data })
    }

    fn fits(
        &self,
        header: &Header,
        unit: &'static str,
        field: &'static str,
        expected: usize,
        found: usize,
    ) -> Result<(), TensorFault> {
        if expected == found {
            return Ok(());
        }
        let (dtype, dims) = (header.dtype.name(), self.dims.clone());
        Err(TensorFault::WrongSize { dtype, dims, expected, found, unit, field })
    }

    /// Field that onnx.proto assigns to the type.
    fn typed_field(&self, dtype: DType) -> (&'static str, &Packed) {
        match dtype {
            DType::F32 | DType::C64 => ("float_data", &self.float_data),
            DType::F64 | DType::C128 => ("double_data", &self.double_data),
            DType::I64 => ("int64_data", &self.int64_data),
            DType::U32 | DType::U64 => ("uint64_data", &self.uint64_data),
            _ => ("int32_data", &self.int32_data),
        }
    }

    /// The packed layout, from the typed field.
    fn typed(&self, header: &Header) -> Result<Bytes, TensorFault> {
        let (field, packed) = self.typed_field(header.dtype);
        if matches!(header.dtype, DType::F32 | DType::F64 | DType::C64 | DType::C128) {
            self.fits(header, "bytes", field, header.bytes, packed.len())?;
            return Ok(packed.bytes());
        }
        // One varint holds one element, or one byte of 2- and 4-bit elements.
        let bits = header.dtype.bits();
        let entries = if bits < 6 { header.bytes } else { header.count };
        // A varint takes a byte at least: a forged shape cannot make us reserve what the file does not hold.
        if packed.len() < entries {
            let found = packed.varints().count();
            return Err(self
                .fits(header, "entries", field, entries, found)
                .err()
                .unwrap_or(TensorFault::Damaged { field, why: "short".to_owned() }));
        }
        let mut out = Vec::with_capacity(header.bytes);
        let (mut found, mut spare, mut spare_bits) = (0usize, 0u32, 0u32);
        for value in packed.varints() {
            let value = value.map_err(|error| TensorFault::Damaged { field, why: error.to_string() })?;
            found += 1;
            match (header.dtype, bits) {
                (DType::Bool, _) => out.push(u8::from(value != 0)),
                (_, 6) => {
                    spare |= (value as u32 & 0x3f) << spare_bits;
                    spare_bits += 6;
                    while spare_bits >= 8 {
                        out.push(spare as u8);
                        spare >>= 8;
                        spare_bits -= 8;
                    }
                }
                (_, 64) => out.extend_from_slice(&value.to_le_bytes()),
                (_, 32) => out.extend_from_slice(&(value as u32).to_le_bytes()),
                (_, 16) => out.extend_from_slice(&(value as u16).to_le_bytes()),
                _ => out.push(value as u8),
            }
        }
        if spare_bits > 0 {
            out.push(spare as u8);
        }
        self.fits(header, "entries", field, entries, found)?;
        Ok(out.into())
    }

    /// A tensor whose elements stand in the message itself: `data` in the packed layout of [`TensorData::Bytes`].
    pub fn raw(name: &str, dtype: DType, dims: &[i64], data: impl Into<Bytes>) -> TensorProto {
        TensorProto { raw_data: Some(data.into()), ..TensorProto::bare(name, dtype, dims) }
    }

    /// A tensor whose elements, in the packed layout of [`TensorData::Bytes`], are bytes `offset..offset + length` of
    /// the file `location`, relative to the model's folder.
    pub fn external(
        name: &str,
        dtype: DType,
        dims: &[i64],
        location: &str,
        offset: u64,
        length: u64,
    ) -> TensorProto {
        let entries = [
            ("location", location.to_owned()),
            ("offset", offset.to_string()),
            ("length", length.to_string()),
        ];
        TensorProto {
            data_location: Some(EXTERNAL),
            external_data: entries
                .into_iter()
                .map(|(key, value)| StringStringEntryProto { key: Some(key.to_owned()), value: Some(value) })
                .collect(),
            ..TensorProto::bare(name, dtype, dims)
        }
    }

    /// A tensor of strings.
    pub fn strings(name: &str, dims: &[i64], strings: Vec<Bytes>) -> TensorProto {
        TensorProto { string_data: strings, ..TensorProto::bare(name, DType::Str, dims) }
    }

    fn bare(name: &str, dtype: DType, dims: &[i64]) -> TensorProto {
        TensorProto {
            name: (!name.is_empty()).then(|| name.to_owned()),
            data_type: Some(dtype.onnx()),
            dims: dims.to_vec(),
            ..TensorProto::default()
        }
    }
}

impl Tensor {
    /// The message that holds this tensor inline, sharing its bytes.
    pub fn to_proto(&self, name: &str) -> TensorProto {
        match &self.data {
            TensorData::Bytes(bytes) => TensorProto::raw(name, self.dtype, &self.dims, bytes.clone()),
            TensorData::Strings(strings) => TensorProto::strings(name, &self.dims, strings.clone()),
        }
    }

    /// The packed elements; `None` for strings.
    pub fn bytes(&self) -> Option<&Bytes> {
        match &self.data {
            TensorData::Bytes(bytes) => Some(bytes),
            TensorData::Strings(_) => None,
        }
    }
}

impl SparseTensorProto {
    /// Name: that of `values`.
    pub fn name(&self) -> &str {
        self.values.as_ref().map_or("", TensorProto::name)
    }

    /// The dense tensor, zero (or an empty string) where no value is given. `read` reads `values` and `indices`, for
    /// example [`crate::OnnxFile::tensor`].
    ///
    /// # Errors
    /// Indices that do not fit the shape or are not unique and ascending, and whatever `read` says.
    pub fn to_dense(&self, read: impl Fn(&TensorProto) -> Result<Tensor>) -> Result<Tensor> {
        let fault = |fault: TensorFault| Error::Tensor { name: self.name().to_owned(), fault };
        let sparse = |why: String| fault(TensorFault::Sparse(why));
        let (Some(values), Some(indices)) = (&self.values, &self.indices) else {
            return Err(sparse("values or indices are missing".to_owned()));
        };
        let (values, indices) = (read(values)?, read(indices)?);
        let count = element_count(&self.dims).map_err(fault)?;
        let nnz = element_count(&values.dims).map_err(fault)?;
        if nnz > count {
            return Err(sparse(format!("{nnz} values for {count} elements")));
        }
        let places = linear_places(&indices, &self.dims, nnz).map_err(sparse)?;
        if let Some(pair) = places.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(sparse(format!("element {} follows element {}; they must ascend", pair[1], pair[0])));
        }
        if let Some(place) = places.last().filter(|&&place| place >= count) {
            return Err(sparse(format!("element {place} of {count} does not exist")));
        }
        let too_many = || fault(TensorFault::TooManyElements { dims: self.dims.clone() });
        let data = match &values.data {
            TensorData::Strings(strings) => {
                let mut dense = reserved(count).ok_or_else(too_many)?;
                dense.resize(count, Bytes::new());
                places.iter().zip(strings).for_each(|(&place, text)| dense[place] = text.clone());
                TensorData::Strings(dense)
            }
            TensorData::Bytes(bytes) => {
                let length = values.dtype.bytes_for(count).ok_or_else(too_many)?;
                let mut dense = reserved(length).ok_or_else(too_many)?;
                dense.resize(length, 0u8);
                let bits = values.dtype.bits();
                for (k, &place) in places.iter().enumerate() {
                    if bits % 8 == 0 {
                        let width = bits / 8;
                        dense[place * width..][..width].copy_from_slice(&bytes[k * width..][..width]);
                    } else {
                        (0..bits).for_each(|bit| {
                            let from = k * bits + bit;
                            let to = place * bits + bit;
                            dense[to / 8] |= (bytes[from / 8] >> (from % 8) & 1) << (to % 8);
                        });
                    }
                }
                TensorData::Bytes(dense.into())
            }
        };
        Ok(Tensor { dtype: values.dtype, dims: self.dims.clone(), data })
    }
}

/// Room for `count` elements, or `None` when memory has none: the shape of a sparse tensor is not backed by data.
fn reserved<T>(count: usize) -> Option<Vec<T>> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(count).ok().map(|()| vec)
}

/// Row-major places that sparse indices, linear or by coordinate, stand for.
fn linear_places(indices: &Tensor, dims: &[i64], nnz: usize) -> Result<Vec<usize>, String> {
    let (DType::I64, TensorData::Bytes(bytes)) = (indices.dtype, &indices.data) else {
        return Err(format!("their type is {}, it must be i64", indices.dtype));
    };
    let coordinates = match *indices.dims.as_slice() {
        [n] if n as usize == nnz => 1,
        [n, rank] if n as usize == nnz && rank as usize == dims.len() && rank > 0 => dims.len(),
        _ => {
            return Err(format!("shape {:?} does not fit {nnz} values of rank {}", indices.dims, dims.len()));
        }
    };
    let (numbers, _) = bytes.as_chunks::<8>();
    let numbers: Vec<i64> = numbers.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
    let linear = indices.dims.len() == 1;
    numbers
        .chunks_exact(coordinates)
        .map(|index| {
            let outside = || format!("index {index:?} is outside of shape {dims:?}");
            if linear {
                return usize::try_from(index[0]).map_err(|_| outside());
            }
            index.iter().zip(dims).try_fold(0usize, |place, (&at, &dim)| {
                if !(0..dim).contains(&at) {
                    return Err(outside());
                }
                Ok(place * dim as usize + at as usize)
            })
        })
        .collect()
}

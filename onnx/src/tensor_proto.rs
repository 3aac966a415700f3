//! `TensorProto`: encoded by hand, so that packed numbers stay in place in the mapped file.
//!
//! onnx.proto packs `float_data` and its siblings, that is, it writes one length and then the numbers. Decoded as bytes, they are
//! a slice of the file. A writer is free not to pack (each number then has its own tag); those are gathered.

use crate::StringStringEntryProto;
use bytes::{Buf, BufMut, Bytes};
use prost::{
    DecodeError, Message,
    encoding::{self, DecodeContext, WireType, varint},
};

/// Where the elements of a [`TensorProto`] are: `data_location` says [`EXTERNAL`] or nothing.
pub const EXTERNAL: i32 = 1;

/// Numbers of a packed field, as their wire bytes: slices of the file where the writer packed them.
#[derive(Clone, Default)]
pub struct Packed {
    chunks: Vec<Bytes>,
    /// Numbers that came unpacked, after the chunks.
    tail: Vec<u8>,
}

impl Packed {
    /// No numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wire bytes.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum::<usize>() + self.tail.len()
    }

    /// All wire bytes: in place when they came in one piece, else a copy.
    pub fn bytes(&self) -> Bytes {
        match (self.chunks.as_slice(), self.tail.as_slice()) {
            ([], []) => Bytes::new(),
            ([one], []) => one.clone(),
            (chunks, tail) => [chunks.concat().as_slice(), tail].concat().into(),
        }
    }

    /// Varints, in order, cut to 64 bits; an `Err` for what is not one, after which nothing follows.
    pub fn varints(&self) -> impl Iterator<Item = Result<u64, DecodeError>> + use<> {
        let mut rest = self.bytes();
        std::iter::from_fn(move || {
            if !rest.has_remaining() {
                return None;
            }
            let value = varint::decode_varint(&mut rest);
            if value.is_err() {
                rest.clear();
            }
            Some(value)
        })
    }

    /// Fixed-width numbers, given as their little-endian bytes.
    pub fn fixed(bytes: Bytes) -> Packed {
        Packed { chunks: vec![bytes], tail: Vec::new() }
    }

    /// Varints. Negative numbers of an `int32` field are given sign-extended to 64 bits.
    pub fn from_varints(values: impl IntoIterator<Item = u64>) -> Packed {
        let mut tail = Vec::new();
        values.into_iter().for_each(|value| varint::encode_varint(value, &mut tail));
        Packed { chunks: Vec::new(), tail }
    }

    /// Merges one occurrence of the field; `single` is the wire type of an unpacked number.
    fn merge(
        &mut self,
        single: WireType,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match (wire_type, single) {
            (WireType::LengthDelimited, _) => {
                let mut chunk = Bytes::new();
                encoding::bytes::merge(wire_type, &mut chunk, buf, ctx)?;
                if !self.tail.is_empty() {
                    self.chunks.push(std::mem::take(&mut self.tail).into());
                }
                if !chunk.is_empty() {
                    self.chunks.push(chunk);
                }
            }
            (_, WireType::ThirtyTwoBit) => {
                let mut value = 0;
                encoding::fixed32::merge(wire_type, &mut value, buf, ctx)?;
                self.tail.put_u32_le(value);
            }
            (_, WireType::SixtyFourBit) => {
                let mut value = 0;
                encoding::fixed64::merge(wire_type, &mut value, buf, ctx)?;
                self.tail.put_u64_le(value);
            }
            _ => {
                let mut value = 0;
                encoding::uint64::merge(wire_type, &mut value, buf, ctx)?;
                varint::encode_varint(value, &mut self.tail);
            }
        }
        Ok(())
    }

    fn encode(&self, tag: u32, buf: &mut impl BufMut) {
        if !self.is_empty() {
            encoding::encode_key(tag, WireType::LengthDelimited, buf);
            varint::encode_varint(self.len() as u64, buf);
            self.chunks.iter().for_each(|chunk| buf.put_slice(chunk));
            buf.put_slice(&self.tail);
        }
    }

    fn encoded_len(&self, tag: u32) -> usize {
        match self.len() {
            0 => 0,
            len => encoding::key_len(tag) + varint::encoded_len_varint(len as u64) + len,
        }
    }
}

impl PartialEq for Packed {
    fn eq(&self, other: &Packed) -> bool {
        self.len() == other.len() && self.bytes() == other.bytes()
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packed({} bytes)", self.len())
    }
}

/// Part of a tensor that is stored in pieces; kept, but no known writer uses it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Segment {
    /// First element.
    #[prost(int64, optional, tag = "1")]
    pub begin: Option<i64>,
    /// One past the last element.
    #[prost(int64, optional, tag = "2")]
    pub end: Option<i64>,
}

/// A tensor as the file holds it; [`crate::OnnxFile::tensor`] gives its elements.
#[derive(Clone, PartialEq, Default)]
pub struct TensorProto {
    /// Shape.
    pub dims: Vec<i64>,
    /// Number of the element type ([`trtc_bundle::DType::from_onnx`]).
    pub data_type: Option<i32>,
    /// Piece of a larger tensor.
    pub segment: Option<Segment>,
    /// FLOAT, COMPLEX64: little-endian f32.
    pub float_data: Packed,
    /// Types of up to 32 bits: varints.
    pub int32_data: Packed,
    /// STRING.
    pub string_data: Vec<Bytes>,
    /// INT64: varints.
    pub int64_data: Packed,
    /// Name.
    pub name: Option<String>,
    /// Elements of fixed width, little-endian.
    pub raw_data: Option<Bytes>,
    /// DOUBLE, COMPLEX128: little-endian f64.
    pub double_data: Packed,
    /// UINT32, UINT64: varints.
    pub uint64_data: Packed,
    /// Documentation.
    pub doc_string: Option<Bytes>,
    /// `location`, `offset`, `length`, `checksum` of data in another file.
    pub external_data: Vec<StringStringEntryProto>,
    /// [`EXTERNAL`], or 0.
    pub data_location: Option<i32>,
    /// Named metadata.
    pub metadata_props: Vec<StringStringEntryProto>,
}

impl TensorProto {
    /// Name, empty when there is none.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("")
    }

    /// Whether the elements are in another file.
    pub fn is_external(&self) -> bool {
        self.data_location == Some(EXTERNAL)
    }
}

// Derived messages print nothing of note for bytes; a weight must never land in a log.
impl std::fmt::Debug for TensorProto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TensorProto")
            .field("name", &self.name())
            .field("data_type", &self.data_type)
            .field("dims", &self.dims)
            .finish_non_exhaustive()
    }
}

impl Message for TensorProto {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        encoding::int64::encode_repeated(1, &self.dims, buf);
        if let Some(value) = &self.data_type {
            encoding::int32::encode(2, value, buf);
        }
        if let Some(value) = &self.segment {
            encoding::message::encode(3, value, buf);
        }
        self.float_data.encode(4, buf);
        self.int32_data.encode(5, buf);
        encoding::bytes::encode_repeated(6, &self.string_data, buf);
        self.int64_data.encode(7, buf);
        if let Some(value) = &self.name {
            encoding::string::encode(8, value, buf);
        }
        if let Some(value) = &self.raw_data {
            encoding::bytes::encode(9, value, buf);
        }
        self.double_data.encode(10, buf);
        self.uint64_data.encode(11, buf);
        if let Some(value) = &self.doc_string {
            encoding::bytes::encode(12, value, buf);
        }
        encoding::message::encode_repeated(13, &self.external_data, buf);
        if let Some(value) = &self.data_location {
            encoding::int32::encode(14, value, buf);
        }
        encoding::message::encode_repeated(16, &self.metadata_props, buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        use encoding::{bytes, int32, int64, message, string};
        let (name, result) = match tag {
            1 => ("dims", int64::merge_repeated(wire_type, &mut self.dims, buf, ctx)),
            2 => ("data_type", int32::merge(wire_type, self.data_type.get_or_insert_default(), buf, ctx)),
            3 => ("segment", message::merge(wire_type, self.segment.get_or_insert_default(), buf, ctx)),
            4 => ("float_data", self.float_data.merge(WireType::ThirtyTwoBit, wire_type, buf, ctx)),
            5 => ("int32_data", self.int32_data.merge(WireType::Varint, wire_type, buf, ctx)),
            6 => ("string_data", bytes::merge_repeated(wire_type, &mut self.string_data, buf, ctx)),
            7 => ("int64_data", self.int64_data.merge(WireType::Varint, wire_type, buf, ctx)),
            8 => ("name", string::merge(wire_type, self.name.get_or_insert_default(), buf, ctx)),
            9 => ("raw_data", bytes::merge(wire_type, self.raw_data.get_or_insert_default(), buf, ctx)),
            10 => ("double_data", self.double_data.merge(WireType::SixtyFourBit, wire_type, buf, ctx)),
            11 => ("uint64_data", self.uint64_data.merge(WireType::Varint, wire_type, buf, ctx)),
            12 => ("doc_string", bytes::merge(wire_type, self.doc_string.get_or_insert_default(), buf, ctx)),
            13 => ("external_data", message::merge_repeated(wire_type, &mut self.external_data, buf, ctx)),
            14 => (
                "data_location",
                int32::merge(wire_type, self.data_location.get_or_insert_default(), buf, ctx),
            ),
            16 => ("metadata_props", message::merge_repeated(wire_type, &mut self.metadata_props, buf, ctx)),
            _ => return encoding::skip_field(wire_type, tag, buf, ctx),
        };
        result.map_err(|mut error| {
            error.push("TensorProto", name);
            error
        })
    }

    fn encoded_len(&self) -> usize {
        encoding::int64::encoded_len_repeated(1, &self.dims)
            + self.data_type.as_ref().map_or(0, |value| encoding::int32::encoded_len(2, value))
            + self.segment.as_ref().map_or(0, |value| encoding::message::encoded_len(3, value))
            + self.float_data.encoded_len(4)
            + self.int32_data.encoded_len(5)
            + encoding::bytes::encoded_len_repeated(6, &self.string_data)
            + self.int64_data.encoded_len(7)
            + self.name.as_ref().map_or(0, |value| encoding::string::encoded_len(8, value))
            + self.raw_data.as_ref().map_or(0, |value| encoding::bytes::encoded_len(9, value))
            + self.double_data.encoded_len(10)
            + self.uint64_data.encoded_len(11)
            + self.doc_string.as_ref().map_or(0, |value| encoding::bytes::encoded_len(12, value))
            + encoding::message::encoded_len_repeated(13, &self.external_data)
            + self.data_location.as_ref().map_or(0, |value| encoding::int32::encoded_len(14, value))
            + encoding::message::encoded_len_repeated(16, &self.metadata_props)
    }

    fn clear(&mut self) {
        *self = TensorProto::default();
    }
}

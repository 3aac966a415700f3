//! Elements of constants as text.

use crate::tensor::{Tensor, TensorData};
use bytes::Bytes;
use std::fmt::Write;
use trtc_bundle::{DType, Hash};

/// A quoted string; bytes that are no plain text are escaped.
pub(super) fn quote(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    let push = |text: &mut String, part: &str| {
        for c in part.chars() {
            match c {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                c if c.is_ascii_control() => {
                    let _ = write!(text, "\\x{:02x}", c as u32);
                }
                c => text.push(c),
            }
        }
    };
    for chunk in bytes.utf8_chunks() {
        push(&mut text, chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text.push('"');
    text
}

/// A float so that reading it gives the same number: always with a point, an exponent, or by name.
pub(super) fn float(value: f64, is_single: bool) -> String {
    match value {
        v if v.is_nan() => "nan".to_owned(),
        v if v.is_infinite() => if v > 0.0 { "inf" } else { "-inf" }.to_owned(),
        v if is_single => format!("{:?}", v as f32),
        v => format!("{v:?}"),
    }
}

/// The elements of a tensor: a list, one for all, packed bytes, or a hash.
pub(super) fn elements(tensor: &Tensor, max_inline: usize) -> String {
    if let TensorData::Strings(list) = tensor.data() {
        let parts: Vec<String> = list.iter().map(|s| quote(s)).collect();
        return format!("[{}]", parts.join(", "));
    }
    let bytes: &[u8] = tensor.bytes().map_or(&[], |bytes| bytes);
    if tensor.count() > max_inline {
        return match splat(tensor, bytes) {
            Some(one) => format!("splat({one})"),
            None => format!("hash\"{}\"", Hash::of(bytes)),
        };
    }
    match list(tensor) {
        Some(parts) => format!("[{}]", parts.join(", ")),
        None => format!("hex\"{}\"", hex(bytes)),
    }
}

fn splat(tensor: &Tensor, bytes: &[u8]) -> Option<String> {
    let width = tensor.dtype().bits() / 8;
    if width == 0 || !tensor.dtype().bits().is_multiple_of(8) {
        return None;
    }
    let first = bytes.get(..width)?;
    if !bytes.chunks_exact(width).all(|element| element == first) {
        return None;
    }
    let one = Tensor::new(tensor.dtype(), vec![], Bytes::copy_from_slice(first))?;
    list(&one)?.pop()
}

/// Elements as numbers; `None` where numbers do not give the same bits back.
fn list(tensor: &Tensor) -> Option<Vec<String>> {
    let dtype = tensor.dtype();
    let parts: Vec<String> = match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => {
            tensor.to_f64s()?.into_iter().map(|v| float(v, true)).collect()
        }
        DType::F64 => tensor.to_f64s()?.into_iter().map(|v| float(v, false)).collect(),
        DType::Bool => tensor
            .to_i64s()?
            .into_iter()
            .map(|v| match v {
                0 => Some("false".to_owned()),
                1 => Some("true".to_owned()),
                _ => None,
            })
            .collect::<Option<Vec<String>>>()?,
        _ => tensor.to_i64s()?.into_iter().map(|v| v.to_string()).collect(),
    };
    // NaNs of other bits than the usual ones, and whatever else a number does not say.
    let again = from_numbers(dtype, tensor.dims().to_vec(), &parts)?;
    (again == *tensor).then_some(parts)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Packed bytes from hexadecimal digits.
pub(super) fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()).collect()
}

/// A tensor from numbers as text; `None` for one out of range, a wrong count, or a dtype that numbers do not write.
pub(super) fn from_numbers(dtype: DType, dims: Vec<i64>, parts: &[String]) -> Option<Tensor> {
    let mut bytes = Vec::with_capacity(parts.len() * 8);
    let mut nibbles = Vec::new();
    for part in parts {
        let whole = || part.parse::<i64>().ok();
        match dtype {
            DType::Bool => bytes.push(match part.as_str() {
                "true" | "1" => 1,
                "false" | "0" => 0,
                _ => return None,
            }),
            DType::U8 => bytes.push(part.parse::<u8>().ok()?),
            DType::I8 => bytes.push(part.parse::<i8>().ok()? as u8),
            DType::U16 => bytes.extend(part.parse::<u16>().ok()?.to_le_bytes()),
            DType::I16 => bytes.extend(part.parse::<i16>().ok()?.to_le_bytes()),
            DType::U32 => bytes.extend(part.parse::<u32>().ok()?.to_le_bytes()),
            DType::I32 => bytes.extend(part.parse::<i32>().ok()?.to_le_bytes()),
            DType::U64 => bytes.extend(part.parse::<u64>().ok()?.to_le_bytes()),
            DType::I64 => bytes.extend(whole()?.to_le_bytes()),
            DType::F32 => bytes.extend(part.parse::<f32>().ok()?.to_le_bytes()),
            DType::F64 => bytes.extend(part.parse::<f64>().ok()?.to_le_bytes()),
            DType::F16 => bytes.extend(half::f16::from_f32(part.parse::<f32>().ok()?).to_le_bytes()),
            DType::Bf16 => bytes.extend(half::bf16::from_f32(part.parse::<f32>().ok()?).to_le_bytes()),
            DType::U4 => nibbles.push(whole().filter(|v| (0..16).contains(v))? as u8),
            DType::I4 => nibbles.push((whole().filter(|v| (-8..8).contains(v))? & 15) as u8),
            _ => return None,
        }
    }
    if crate::tensor::element_count(&dims)? != parts.len() {
        return None;
    }
    bytes.extend(nibbles.chunks(2).map(|pair| pair[0] | pair.get(1).map_or(0, |high| high << 4)));
    Tensor::new(dtype, dims, bytes.into())
}

/// A tensor of one element everywhere.
pub(super) fn from_splat(dtype: DType, dims: Vec<i64>, one: &str) -> Option<Tensor> {
    let one = from_numbers(dtype, vec![], &[one.to_owned()])?;
    let count = crate::tensor::element_count(&dims)?;
    if !dtype.bits().is_multiple_of(8) {
        return None;
    }
    Tensor::new(dtype, dims, one.bytes()?.repeat(count).into())
}

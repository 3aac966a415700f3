//! Between numpy's arrays and values of a model. Types that numpy has no name for are raw bits of the same width: bf16 as
//! `uint16` or `V2`, fp8 as `uint8` or `V1`; types of less than a byte take one byte an element (`int8` when signed).

use super::npy::{Array, NumpyType};
use trtc_bundle::DType;
use trtc_runtime::{StringTensor, Tensor, Value};

/// How numpy holds a dtype: the type that is written, and another that is read as well.
fn numpy_types(dtype: DType) -> Option<(NumpyType, Option<NumpyType>)> {
    use NumpyType::{Bool, Complex, Float, Int, Uint, Void};
    Some(match dtype {
        DType::Bool => (Bool, None),
        DType::F16 => (Float(2), None),
        DType::F32 => (Float(4), None),
        DType::F64 => (Float(8), None),
        DType::I8 => (Int(1), None),
        DType::I16 => (Int(2), None),
        DType::I32 => (Int(4), None),
        DType::I64 => (Int(8), None),
        DType::U8 => (Uint(1), None),
        DType::U16 => (Uint(2), None),
        DType::U32 => (Uint(4), None),
        DType::U64 => (Uint(8), None),
        DType::C64 => (Complex(8), None),
        DType::C128 => (Complex(16), None),
        DType::Bf16 => (Uint(2), Some(Void(2))),
        DType::I4 | DType::I2 => (Int(1), Some(Void(1))),
        other if (1..=8).contains(&other.bits()) => (Uint(1), Some(Void(1))),
        _ => return None,
    })
}

/// An array as a value of `dtype`. Nothing is converted: the array must hold that dtype already.
///
/// # Errors
/// Why it does not, in words.
pub fn value_of(array: &Array, dtype: DType) -> Result<Value, String> {
    if dtype == DType::Str {
        let strings = strings(array)?;
        return Ok(Value::Strings(StringTensor { dims: array.dims.clone(), strings }));
    }
    let Some((written, raw)) = numpy_types(dtype) else {
        return Err(format!("{dtype} has no form in .npz files"));
    };
    if array.ty != written && Some(array.ty) != raw {
        let as_raw = if raw.is_some() { " (its bits)" } else { "" };
        return Err(format!("{} is given where {dtype} is wanted: {written}{as_raw}", array.ty));
    }
    let bits = dtype.bits();
    let packed;
    let bytes = if bits < 8 {
        packed = pack(&array.bytes, bits, matches!(dtype, DType::I4 | DType::I2))?;
        &packed
    } else {
        if dtype == DType::Bool && array.bytes.iter().any(|&byte| byte > 1) {
            return Err("a bool is neither 0 nor 1".into());
        }
        &array.bytes
    };
    Tensor::from_bytes(dtype, &array.dims, bytes).map(Value::Tensor).map_err(|error| error.to_string())
}

/// The arrays of a value: one of a tensor, one for each element of a sequence with its number as a suffix (`.0`), none of
/// an absent optional.
///
/// # Errors
/// The value has no form in `.npz` files.
pub fn array_of(value: &Value) -> Result<Vec<(String, Array)>, String> {
    let one = |array| Ok(vec![(String::new(), array)]);
    match value {
        Value::Nothing => Ok(Vec::new()),
        Value::Tensor(tensor) => one(of_tensor(tensor)?),
        Value::Strings(tensor) => one(of_strings(tensor)),
        Value::Sequence(elements) => {
            let mut arrays = Vec::new();
            for (k, element) in elements.iter().enumerate() {
                let element = array_of(element)?.into_iter();
                arrays.extend(element.map(|(suffix, array)| (format!(".{k}{suffix}"), array)));
            }
            Ok(arrays)
        }
        Value::Map(map) => {
            let mut arrays = Vec::new();
            for (name, part) in [(".keys", &map.0), (".values", &map.1)] {
                let part = array_of(part)?.into_iter();
                arrays.extend(part.map(|(suffix, array)| (format!("{name}{suffix}"), array)));
            }
            Ok(arrays)
        }
        other => Err(format!("{} has no form in .npz files", other.kind_name())),
    }
}

fn of_tensor(tensor: &Tensor) -> Result<Array, String> {
    let dtype = tensor.dtype();
    let Some((ty, _)) = numpy_types(dtype) else {
        return Err(format!("{dtype} has no form in .npz files"));
    };
    let bits = dtype.bits();
    let bytes = if bits < 8 {
        let count = tensor.dims().iter().product();
        unpack(tensor.bytes(), count, bits, ty == NumpyType::Int(1))
    } else {
        tensor.bytes().to_vec()
    };
    Ok(Array { ty, dims: tensor.dims().to_vec(), bytes })
}

/// `bits` of each byte, as one little-endian stream.
fn pack(elements: &[u8], bits: usize, signed: bool) -> Result<Vec<u8>, String> {
    let mut packed = vec![0u8; (elements.len() * bits).div_ceil(8)];
    for (k, &element) in elements.iter().enumerate() {
        let shift = 8 - bits;
        let back = if signed { ((element << shift) as i8 >> shift) as u8 } else { element << shift >> shift };
        if back != element {
            let number = if signed { i32::from(element as i8) } else { element.into() };
            return Err(format!("element {k} is {number}, which does not fit {bits} bits"));
        }
        for bit in 0..bits {
            let to = k * bits + bit;
            packed[to / 8] |= (element >> bit & 1) << (to % 8);
        }
    }
    Ok(packed)
}

fn unpack(packed: &[u8], count: usize, bits: usize, signed: bool) -> Vec<u8> {
    let element = |k: usize| {
        let bit = |bit: usize| {
            let from = k * bits + bit;
            packed.get(from / 8).map_or(0, |byte| (byte >> (from % 8) & 1) << bit)
        };
        let element = (0..bits).map(bit).fold(0, |element, bit| element | bit);
        let shift = 8 - bits;
        if signed { ((element << shift) as i8 >> shift) as u8 } else { element }
    };
    (0..count).map(element).collect()
}

fn strings(array: &Array) -> Result<Vec<String>, String> {
    let count: usize = array.dims.iter().product();
    let width = array.ty.width();
    let element = |k: usize| &array.bytes[k * width..][..width];
    match array.ty {
        NumpyType::Unicode(_) => (0..count)
            .map(|k| {
                let (points, _) = element(k).as_chunks::<4>();
                let end = points.iter().rposition(|point| *point != [0; 4]).map_or(0, |last| last + 1);
                let letters = points[..end].iter().map(|point| char::from_u32(u32::from_le_bytes(*point)));
                letters.collect::<Option<String>>().ok_or_else(|| format!("string {k} is not Unicode"))
            })
            .collect(),
        NumpyType::Bytes(_) => (0..count)
            .map(|k| {
                let bytes = element(k);
                let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                String::from_utf8(bytes[..end].to_vec()).map_err(|_| format!("string {k} is not UTF-8"))
            })
            .collect(),
        other => Err(format!("{other} is given where strings are wanted: an array of type U or S")),
    }
}

fn of_strings(tensor: &StringTensor) -> Array {
    let length = tensor.strings.iter().map(|string| string.chars().count()).max().unwrap_or(0).max(1);
    let mut bytes = Vec::new();
    for string in &tensor.strings {
        let end = bytes.len() + length * 4;
        bytes.extend(string.chars().flat_map(|letter| u32::from(letter).to_le_bytes()));
        bytes.resize(end, 0);
    }
    Array { ty: NumpyType::Unicode(length), dims: tensor.dims.clone(), bytes }
}

#[cfg(test)]
mod tests {
    use super::{Array, NumpyType, array_of, value_of};
    use trtc_bundle::DType;
    use trtc_runtime::{StringTensor, Tensor, Value};

    fn array(ty: NumpyType, dims: &[usize], bytes: &[u8]) -> Array {
        Array { ty, dims: dims.to_vec(), bytes: bytes.to_vec() }
    }

    #[test]
    fn every_dtype_travels_there_and_back() {
        for &dtype in DType::ALL.iter().filter(|dtype| dtype.bits() > 0) {
            let bytes: Vec<u8> = match dtype {
                DType::Bool => vec![1, 0, 1, 1],
                _ => (0..dtype.bytes_for(4).unwrap() as u8).map(|k| k.wrapping_mul(37) ^ 0xa5).collect(),
            };
            let tensor = Tensor::from_bytes(dtype, &[2, 2], &bytes).unwrap();
            let arrays = array_of(&Value::Tensor(tensor.clone())).unwrap();
            let [(suffix, array)] = arrays.as_slice() else { panic!("one array") };
            assert_eq!((suffix.as_str(), array.bytes.len()), ("", 4 * array.ty.width()));
            assert_eq!(value_of(array, dtype).unwrap().as_tensor(), Some(&tensor), "{dtype}");
        }
    }

    #[test]
    fn small_elements_lie_one_a_byte() {
        // Low nibble first: 0x2f is -1, 2.
        let value = value_of(&array(NumpyType::Int(1), &[3], &[0xff, 2, 0xf8]), DType::I4).unwrap();
        assert_eq!(value.as_tensor().unwrap().bytes(), [0x2f, 0x08]);
        let too_big = value_of(&array(NumpyType::Int(1), &[1], &[8]), DType::I4).unwrap_err();
        assert!(too_big.contains("element 0 is 8"), "{too_big}");
        let raw = value_of(&array(NumpyType::Void(2), &[1], &[0x80, 0x3f]), DType::Bf16).unwrap();
        assert_eq!(raw.as_tensor().unwrap().bytes(), [0x80, 0x3f]);
    }

    #[test]
    fn another_type_is_refused_not_converted() {
        let error = value_of(&array(NumpyType::Float(8), &[1], &[0; 8]), DType::F32).unwrap_err();
        assert_eq!(error, "float64 is given where f32 is wanted: float32");
        let error = value_of(&array(NumpyType::Float(2), &[1], &[0; 2]), DType::Bf16).unwrap_err();
        assert_eq!(error, "float16 is given where bf16 is wanted: uint16 (its bits)");
        assert!(value_of(&array(NumpyType::Bool, &[1], &[2]), DType::Bool).is_err());
        assert!(
            value_of(&array(NumpyType::Int(8), &[1], &[0; 8]), DType::Str).unwrap_err().contains("U or S")
        );
    }

    #[test]
    fn strings_of_either_kind() {
        let tensor = StringTensor { dims: vec![2], strings: vec!["é𝄞".into(), String::new()] };
        let arrays = array_of(&Value::Strings(tensor.clone())).unwrap();
        assert_eq!(arrays[0].1.ty, NumpyType::Unicode(2));
        let Value::Strings(back) = value_of(&arrays[0].1, DType::Str).unwrap() else { panic!("strings") };
        assert_eq!(back, tensor);
        let Value::Strings(ascii) =
            value_of(&array(NumpyType::Bytes(3), &[2], b"abca\0\0"), DType::Str).unwrap()
        else {
            panic!("strings")
        };
        assert_eq!(ascii.strings, ["abc", "a"]);
        assert!(value_of(&array(NumpyType::Unicode(1), &[], &[0, 0xd8, 0, 0]), DType::Str).is_err());
    }

    #[test]
    fn sequences_have_numbered_keys() {
        let one = || Value::Tensor(Tensor::from_slice(&[1], &[1i64]).unwrap());
        let value = Value::Sequence(vec![one(), Value::Sequence(vec![one()]), Value::Nothing]);
        let names: Vec<String> = array_of(&value).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [".0", ".1.0"]);
    }
}

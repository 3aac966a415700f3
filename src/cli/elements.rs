//! Elements of tensors as numbers, for comparison and display.

use half::{bf16, f16};
use trtc_bundle::DType;

/// Reads element `index` of packed little-endian bytes. Complex types have twice as many elements: real, imaginary, ….
/// An element that the bytes do not hold is NaN.
pub type ReadElement = fn(bytes: &[u8], index: usize) -> f64;

/// How to read a dtype; `None` for strings. Integers of 64 bits lose what f64 cannot hold.
pub fn reader(dtype: DType) -> Option<ReadElement> {
    fn at<const N: usize>(bytes: &[u8], index: usize) -> Option<[u8; N]> {
        bytes.as_chunks::<N>().0.get(index).copied()
    }
    macro_rules! number {
        ($type:ty) => {
            |bytes, index| at(bytes, index).map_or(f64::NAN, |element| <$type>::from_le_bytes(element) as f64)
        };
    }
    macro_rules! half {
        ($type:ty) => {
            |bytes, index| {
                at(bytes, index).map_or(f64::NAN, |element| <$type>::from_le_bytes(element).to_f64())
            }
        };
    }
    /// A float of less than a byte or of one: so many bits, exponent bits, bias, and what its largest codes mean.
    macro_rules! mini {
        ($bits:literal, $exponent:literal, $bias:literal, $special:ident) => {
            |bytes, index| mini_float(bits(bytes, index, $bits), $bits, $exponent, $bias, Special::$special)
        };
    }
    Some(match dtype {
        DType::F32 | DType::C64 => number!(f32),
        DType::F64 | DType::C128 => number!(f64),
        DType::I8 => number!(i8),
        DType::I16 => number!(i16),
        DType::I32 => number!(i32),
        DType::I64 => number!(i64),
        DType::U8 | DType::Bool => number!(u8),
        DType::U16 => number!(u16),
        DType::U32 => number!(u32),
        DType::U64 => number!(u64),
        DType::F16 => half!(f16),
        DType::Bf16 => half!(bf16),
        DType::F8E4M3 => mini!(8, 4, 7, AllOnes),
        DType::F8E4M3Uz => mini!(8, 4, 8, NegativeZero),
        DType::F8E5M2 => mini!(8, 5, 15, Ieee),
        DType::F8E5M2Uz => mini!(8, 5, 16, NegativeZero),
        DType::F4E2M1 => mini!(4, 2, 1, None),
        DType::F6E2M3 => mini!(6, 2, 1, None),
        DType::F6E3M2 => mini!(6, 3, 3, None),
        DType::F8E8M0 => |bytes, index| match bytes.get(index) {
            None | Some(0xff) => f64::NAN,
            Some(&exponent) => 2f64.powi(i32::from(exponent) - 127),
        },
        DType::U4 => |bytes, index| f64::from(bits(bytes, index, 4)),
        DType::U2 => |bytes, index| f64::from(bits(bytes, index, 2)),
        DType::I4 => |bytes, index| f64::from((bits(bytes, index, 4) << 4) as i8 >> 4),
        DType::I2 => |bytes, index| f64::from((bits(bytes, index, 2) << 6) as i8 >> 6),
        _ => return None,
    })
}

/// Element `index` of a little-endian stream of elements of `width` bits (at most 8).
fn bits(bytes: &[u8], index: usize, width: usize) -> u8 {
    let start = index * width;
    let byte = |k: usize| bytes.get(k).copied().unwrap_or(0);
    let both = u16::from_le_bytes([byte(start / 8), byte(start / 8 + 1)]);
    (both >> (start % 8)) as u8 & (0xff >> (8 - width))
}

/// What a small float does with the codes that IEEE gives to infinity and NaN.
#[derive(Clone, Copy)]
enum Special {
    /// Numbers like all others.
    None,
    /// As IEEE.
    Ieee,
    /// The code of all ones is NaN, the others are numbers (…FN).
    AllOnes,
    /// Negative zero is NaN, the others are numbers (…UZ).
    NegativeZero,
}

fn mini_float(code: u8, width: u32, exponent_bits: u32, bias: i32, special: Special) -> f64 {
    let mantissa_bits = width - 1 - exponent_bits;
    let sign = code >> (width - 1) & 1;
    let magnitude = code & !(1 << (width - 1));
    let exponent = i32::from(magnitude >> mantissa_bits);
    let mantissa = magnitude & ((1 << mantissa_bits) - 1);
    let largest = (1 << exponent_bits) - 1;
    match special {
        Special::NegativeZero if sign == 1 && magnitude == 0 => return f64::NAN,
        Special::AllOnes if magnitude == (1 << (width - 1)) - 1 => return f64::NAN,
        Special::Ieee if exponent == largest && mantissa != 0 => return f64::NAN,
        Special::Ieee if exponent == largest => {
            return if sign == 1 { f64::NEG_INFINITY } else { f64::INFINITY };
        }
        _ => {}
    }
    let fraction = f64::from(mantissa) / f64::from(1u32 << mantissa_bits);
    let value = match exponent {
        0 => fraction * 2f64.powi(1 - bias),
        _ => (1.0 + fraction) * 2f64.powi(exponent - bias),
    };
    if sign == 1 { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::reader;
    use trtc_bundle::DType;

    fn read(dtype: DType, bytes: &[u8], index: usize) -> f64 {
        reader(dtype).unwrap()(bytes, index)
    }

    #[test]
    fn small_floats_have_the_values_of_their_formats() {
        // Largest, smallest normal and smallest values from the tables of the OCP formats and of ONNX's float8 page.
        for (dtype, code, value) in [
            (DType::F8E4M3, 0x7e, 448.0),
            (DType::F8E4M3, 0x08, 0.015625),
            (DType::F8E4M3, 0x81, -0.001953125),
            (DType::F8E4M3Uz, 0x7f, 240.0),
            (DType::F8E5M2, 0x7b, 57344.0),
            (DType::F8E5M2, 0xfc, f64::NEG_INFINITY),
            (DType::F8E5M2Uz, 0x7f, 57344.0),
            (DType::F8E8M0, 127, 1.0),
            (DType::F4E2M1, 0x07, 6.0),
            (DType::F4E2M1, 0x01, 0.5),
            (DType::F6E2M3, 0x1f, 7.5),
            (DType::F6E3M2, 0x1f, 28.0),
        ] {
            assert_eq!(read(dtype, &[code], 0), value, "{dtype} {code:#x}");
        }
        for (dtype, code) in
            [(DType::F8E4M3, 0xff), (DType::F8E4M3Uz, 0x80), (DType::F8E5M2, 0x7d), (DType::F8E8M0, 255)]
        {
            assert!(read(dtype, &[code], 0).is_nan(), "{dtype}");
        }
    }

    #[test]
    fn packed_and_wide_elements() {
        let nibbles = [0x2f, 0x08];
        assert_eq!([0, 1, 2].map(|k| read(DType::I4, &nibbles, k)), [-1.0, 2.0, -8.0]);
        assert_eq!([0, 1, 2, 3].map(|k| read(DType::U2, &[0b11_10_01_00], k)), [0.0, 1.0, 2.0, 3.0]);
        // Second of two 6-bit elements crosses a byte: 0b011111 after 0b000000.
        assert_eq!(read(DType::F6E2M3, &[0b11_000000, 0b0000_0111], 1), 7.5);
        assert_eq!(read(DType::F16, &[0, 0x3c, 0, 0xc0], 1), -2.0);
        assert_eq!(read(DType::C64, &[0, 0, 128, 63, 0, 0, 0, 64], 1), 2.0);
        assert!(read(DType::F32, &[0; 4], 1).is_nan());
        assert!(reader(DType::Str).is_none());
    }
}

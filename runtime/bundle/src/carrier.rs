//! Dtypes that TensorRT does not have, held in dtypes that it has.
//!
//! Each value of such a dtype is exactly one value of its *carrier*, so nothing is rounded on the way there, and nothing
//! on the way back as long as what was computed stays within the dtype. Integers of 2 to 16 bits are carried in i32, u32
//! in i64, floats of 8 bits in f16 (the powers of two of f8e8m0, which f16 does not hold, in f32).

use crate::DType;
use std::collections::HashMap;

impl DType {
    /// The dtype in which a TensorRT network holds values of this one; `None` where no dtype holds all of them exactly.
    pub const fn carrier(self) -> Option<DType> {
        use DType::*;
        match self {
            F32 | F16 | Bf16 | I32 | I64 | Bool => Some(self),
            U8 | I8 | U16 | I16 | U4 | I4 | U2 | I2 => Some(I32),
            U32 => Some(I64),
            F8E4M3 | F8E4M3Uz | F8E5M2 | F8E5M2Uz => Some(F16),
            F8E8M0 => Some(F32),
            _ => None,
        }
    }

    /// The dtype of an engine's binding for values of this one: bytes as they are, all else as the carrier.
    pub const fn binding(self) -> Option<DType> {
        match self {
            DType::U8 | DType::I8 => Some(self),
            _ => self.carrier(),
        }
    }
}

/// Packed bytes of `count` elements of `dtype` as packed bytes of its carrier; `None` where it has none, or the length is
/// wrong.
pub fn widened(dtype: DType, count: usize, bytes: &[u8]) -> Option<Vec<u8>> {
    use DType::*;
    if dtype.bytes_for(count)? != bytes.len() {
        return None;
    }
    let whole = |size: usize, f: &dyn Fn(&[u8]) -> i32| -> Vec<u8> {
        bytes.chunks_exact(size).flat_map(|c| f(c).to_le_bytes()).collect()
    };
    Some(match dtype {
        U8 => whole(1, &|c| c[0].into()),
        I8 => whole(1, &|c| (c[0] as i8).into()),
        U16 => whole(2, &|c| u16::from_le_bytes([c[0], c[1]]).into()),
        I16 => whole(2, &|c| i16::from_le_bytes([c[0], c[1]]).into()),
        U4 | I4 | U2 | I2 => {
            let bits = dtype.bits();
            let signed = matches!(dtype, I4 | I2);
            let element = |k: usize| {
                let raw = i32::from(bytes[k * bits / 8] >> (k * bits % 8)) & ((1 << bits) - 1);
                if signed && raw >> (bits - 1) == 1 { raw - (1 << bits) } else { raw }
            };
            (0..count).flat_map(|k| element(k).to_le_bytes()).collect()
        }
        U32 => {
            let wide = |c: &[u8]| i64::from(u32::from_le_bytes([c[0], c[1], c[2], c[3]])).to_le_bytes();
            bytes.chunks_exact(4).flat_map(wide).collect()
        }
        F8E4M3 | F8E4M3Uz | F8E5M2 | F8E5M2Uz => {
            let table: Vec<[u8; 2]> = (0..=255).map(|code| half_of(dtype, code).to_le_bytes()).collect();
            bytes.iter().flat_map(|&code| table[usize::from(code)]).collect()
        }
        F8E8M0 => bytes.iter().flat_map(|&code| power_of_two(code).to_le_bytes()).collect(),
        _ if dtype.carrier() == Some(dtype) => bytes.to_vec(),
        _ => return None,
    })
}

/// The reverse of [`widened`]: integers keep their lowest bits; `None` for a float that `dtype` does not hold, a dtype
/// without a carrier, or a wrong length. Not-a-numbers come out as the one that ONNX Runtime makes, with their sign where
/// there are two.
pub fn narrowed(dtype: DType, count: usize, bytes: &[u8]) -> Option<Vec<u8>> {
    use DType::*;
    if dtype.carrier()?.bytes_for(count)? != bytes.len() {
        return None;
    }
    Some(match dtype {
        U8 | I8 => bytes.chunks_exact(4).map(|c| c[0]).collect(),
        U16 | I16 => bytes.chunks_exact(4).flat_map(|c| [c[0], c[1]]).collect(),
        U4 | I4 | U2 | I2 => {
            let bits = dtype.bits();
            let mut packed = vec![0u8; dtype.bytes_for(count)?];
            for (k, c) in bytes.chunks_exact(4).enumerate() {
                packed[k * bits / 8] |= (c[0] & ((1 << bits) - 1)) << (k * bits % 8);
            }
            packed
        }
        U32 => bytes.chunks_exact(8).flat_map(|c| [c[0], c[1], c[2], c[3]]).collect(),
        F8E4M3 | F8E4M3Uz | F8E5M2 | F8E5M2Uz => {
            // Of two codes for one value (the not-a-numbers of f8e5m2) the last is kept.
            let codes: HashMap<u16, u8> = (0..=255).map(|code| (half_of(dtype, code), code)).collect();
            let code = |c: &[u8]| codes.get(&settled(dtype, u16::from_le_bytes([c[0], c[1]]))).copied();
            bytes.chunks_exact(2).map(code).collect::<Option<Vec<u8>>>()?
        }
        F8E8M0 => {
            let codes: HashMap<u32, u8> =
                (0..=255).map(|code| (power_of_two(code).to_bits(), code)).collect();
            let code = |c: &[u8]| {
                let value = f32::from_le_bytes([c[0], c[1], c[2], c[3]]);
                if value.is_nan() { Some(255) } else { codes.get(&value.to_bits()).copied() }
            };
            bytes.chunks_exact(4).map(code).collect::<Option<Vec<u8>>>()?
        }
        _ if dtype.carrier() == Some(dtype) => bytes.to_vec(),
        _ => return None,
    })
}

const HALF_NAN: u16 = 0x7e00;

/// Bits of f16 as [`half_of`] makes them: one not-a-number for each sign, and no −0 for the types without one.
fn settled(dtype: DType, half: u16) -> u16 {
    let unsigned = matches!(dtype, DType::F8E4M3Uz | DType::F8E5M2Uz);
    match half & 0x7fff {
        0 if unsigned => 0,
        size if size > 0x7c00 => HALF_NAN | if unsigned { 0 } else { half & 0x8000 },
        _ => half,
    }
}

/// A float of 8 bits as bits of f16, which holds each of them.
fn half_of(dtype: DType, code: u8) -> u16 {
    let (mantissa_bits, bias) = match dtype {
        DType::F8E4M3 => (3, 7),
        DType::F8E4M3Uz => (3, 8),
        DType::F8E5M2 => (2, 15),
        _ => (2, 16),
    };
    let sign = u16::from(code & 0x80) << 8;
    let size = code & 0x7f;
    match dtype {
        DType::F8E4M3 if size == 0x7f => return HALF_NAN | sign,
        DType::F8E5M2 if size == 0x7c => return 0x7c00 | sign,
        DType::F8E5M2 if size > 0x7c => return HALF_NAN | sign,
        DType::F8E4M3Uz | DType::F8E5M2Uz if code == 0x80 => return HALF_NAN,
        _ => {}
    }
    let (exponent, mantissa) =
        (i32::from(size >> mantissa_bits), u32::from(size & ((1 << mantissa_bits) - 1)));
    let lead = u32::from(exponent > 0) << mantissa_bits;
    let scale = exponent.max(1) - bias - mantissa_bits;
    let value = (lead | mantissa) as f32 * 2f32.powi(scale);
    half::f16::from_f32(value).to_bits() | sign
}

/// 2^(code − 127); 255 is no number.
fn power_of_two(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(code) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::{narrowed, widened};
    use crate::DType;

    /// Every code of a dtype of at most 16 bits, packed.
    fn codes(dtype: DType) -> (usize, Vec<u8>) {
        match dtype.bits() {
            16 => (1 << 16, (0..=u16::MAX).flat_map(u16::to_le_bytes).collect()),
            bits => (256 * 8 / bits, (0..=255).collect()),
        }
    }

    #[test]
    fn every_value_comes_back() {
        for &dtype in DType::ALL.iter().filter(|dtype| dtype.bits() <= 16) {
            let Some(carrier) = dtype.carrier() else { continue };
            let (count, bytes) = codes(dtype);
            if dtype.bits() == 16 && carrier == dtype || dtype == DType::Bool {
                continue;
            }
            let wide = widened(dtype, count, &bytes).unwrap();
            assert_eq!(wide.len(), count * carrier.bits() / 8, "{dtype}");
            let mut expected = bytes.clone();
            if dtype == DType::F8E5M2 {
                for code in expected.iter_mut().filter(|code| **code & 0x7f > 0x7c) {
                    *code |= 0x7f;
                }
            }
            assert_eq!(narrowed(dtype, count, &wide).unwrap(), expected, "{dtype}");
        }
        let numbers: Vec<u8> =
            [0, 1, i32::MAX as u32, u32::MAX].iter().flat_map(|v| v.to_le_bytes()).collect();
        let wide = widened(DType::U32, 4, &numbers).unwrap();
        assert_eq!(narrowed(DType::U32, 4, &wide).unwrap(), numbers);
    }

    fn halves(dtype: DType, codes: &[u8]) -> Vec<f32> {
        let wide = widened(dtype, codes.len(), codes).unwrap();
        wide.chunks_exact(2).map(|c| half::f16::from_le_bytes([c[0], c[1]]).to_f32()).collect()
    }

    // The extremes that ONNX's table of the formats gives.
    #[test]
    fn floats_of_8_bits() {
        assert_eq!(
            halves(DType::F8E4M3, &[0x7e, 0x08, 0x01, 0x80]),
            [448.0, 2f32.powi(-6), 2f32.powi(-9), 0.0]
        );
        assert_eq!(halves(DType::F8E4M3Uz, &[0x7f, 0x08, 0x01]), [240.0, 2f32.powi(-7), 2f32.powi(-10)]);
        assert_eq!(halves(DType::F8E5M2, &[0x7b, 0x04, 0x01]), [57344.0, 2f32.powi(-14), 2f32.powi(-16)]);
        assert_eq!(halves(DType::F8E5M2Uz, &[0x7f, 0x04, 0x01]), [57344.0, 2f32.powi(-15), 2f32.powi(-17)]);
        assert_eq!(halves(DType::F8E5M2, &[0x7c, 0xfc]), [f32::INFINITY, f32::NEG_INFINITY]);
        for (dtype, code) in
            [(DType::F8E4M3, 0x7f), (DType::F8E4M3, 0xff), (DType::F8E4M3Uz, 0x80), (DType::F8E5M2Uz, 0x80)]
        {
            assert!(halves(dtype, &[code])[0].is_nan(), "{dtype}");
        }
        let powers = widened(DType::F8E8M0, 3, &[0, 127, 254]).unwrap();
        let powers: Vec<f64> =
            powers.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]).into()).collect();
        assert_eq!(powers, [2f64.powi(-127), 1.0, 2f64.powi(127)]);
    }

    #[test]
    fn integers() {
        let nibbles = widened(DType::I4, 3, &[0x8f, 0x07]).unwrap();
        let expected: Vec<u8> = [-1i32, -8, 7].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(nibbles, expected);
        let pairs = widened(DType::I2, 5, &[0b01_10_11_00, 0b10]).unwrap();
        let expected: Vec<u8> = [0i32, -1, -2, 1, -2].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(pairs, expected);
    }

    #[test]
    fn what_does_not_fit() {
        assert_eq!(DType::F64.carrier(), None);
        assert_eq!(DType::U64.binding(), None);
        assert_eq!((DType::U8.binding(), DType::U16.binding()), (Some(DType::U8), Some(DType::I32)));
        assert_eq!(widened(DType::U16, 2, &[0; 3]), None);
        assert_eq!(widened(DType::F64, 1, &[0; 8]), None);
        // 1.1 is no e5m2.
        assert_eq!(narrowed(DType::F8E5M2, 1, &half::f16::from_f32(1.1).to_le_bytes()), None);
        assert_eq!(narrowed(DType::F8E8M0, 1, &3f32.to_le_bytes()), None);
        assert_eq!(narrowed(DType::F8E8M0, 1, &f32::NAN.to_le_bytes()), Some(vec![255]));
    }
}

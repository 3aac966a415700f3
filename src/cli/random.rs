//! Inputs made up from a seed: the same on every machine, for the same names, dtypes and dims.
//!
//! Floats have the mean 0 and the variance 1. Integers of 32 and 64 bits are 0 or 1, which nearly every model takes where
//! it wants an index, a token, a mask or a length; those of 8 and 16 bits, which hold samples, fill 0 to 127.

use half::{bf16, f16};
use trtc_bundle::DType;
use trtc_runtime::{StringTensor, Tensor, TensorError, Value};

/// A tensor of random elements. `seed` and `name` choose them.
///
/// # Errors
/// The dims ask for more memory than there can be.
pub fn tensor(seed: u64, name: &str, dtype: DType, dims: &[usize]) -> Result<Value, TensorError> {
    let mut random = Random::new(seed, name);
    if dtype == DType::Str {
        let count = dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
        let count = count.ok_or(TensorError::Size { dtype, dims: dims.to_vec() })?;
        let strings = (0..count).map(|_| random.word()).collect();
        return Ok(Value::Strings(StringTensor { dims: dims.to_vec(), strings }));
    }
    let mut tensor = Tensor::zeros(dtype, dims)?;
    fill(&mut random, dtype, tensor.bytes_mut());
    Ok(Value::Tensor(tensor))
}

fn fill(random: &mut Random, dtype: DType, bytes: &mut [u8]) {
    fn each<const N: usize>(bytes: &mut [u8], mut element: impl FnMut() -> [u8; N]) {
        bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|chunk| *chunk = element());
    }
    match dtype {
        DType::F32 | DType::C64 => each(bytes, || (random.normal() as f32).to_le_bytes()),
        DType::F64 | DType::C128 => each(bytes, || random.normal().to_le_bytes()),
        DType::F16 => each(bytes, || f16::from_f64(random.normal()).to_le_bytes()),
        DType::Bf16 => each(bytes, || bf16::from_f64(random.normal()).to_le_bytes()),
        DType::Bool => each(bytes, || [random.below(2) as u8]),
        DType::I32 | DType::U32 => each(bytes, || (random.below(2) as u32).to_le_bytes()),
        DType::I64 | DType::U64 => each(bytes, || random.below(2).to_le_bytes()),
        DType::I16 | DType::U16 => each(bytes, || (random.below(128) as u16).to_le_bytes()),
        DType::I8 | DType::U8 => each(bytes, || [random.below(128) as u8]),
        // 2^-4 to 2^4.
        DType::F8E8M0 => each(bytes, || [(123 + random.below(9)) as u8]),
        // Of one byte, a sign and codes below those of infinity and NaN.
        DType::F8E4M3 | DType::F8E4M3Uz | DType::F8E5M2 | DType::F8E5M2Uz => {
            each(bytes, || [(random.below(0x40) + 1 + 0x80 * random.below(2)) as u8]);
        }
        // Every code of the types of less than a byte is a number.
        _ => each(bytes, || [random.next() as u8]),
    }
}

/// xoshiro256++ (Blackman and Vigna, public domain).
struct Random([u64; 4]);

impl Random {
    fn new(seed: u64, name: &str) -> Random {
        // FNV-1a of the name, so that an input keeps its elements when another is added.
        let start = 0xcbf2_9ce4_8422_2325u64;
        let hash =
            name.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut state = seed ^ hash;
        // SplitMix64, as the authors of xoshiro advise.
        let mut split = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Random([split(), split(), split(), split()])
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `end`, which is small.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Near enough to a normal distribution: the sum of twelve uniform numbers, less its mean. Sums are the same on every
    /// machine; logarithm and cosine are not.
    fn normal(&mut self) -> f64 {
        let unit = 1.0 / (1u64 << 32) as f64;
        let pair = |bits: u64| (bits >> 32) as f64 * unit + (bits & 0xffff_ffff) as f64 * unit;
        (0..6).map(|_| pair(self.next())).sum::<f64>() - 6.0
    }

    fn word(&mut self) -> String {
        let length = 1 + self.below(8);
        (0..length).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, tensor};
    use trtc_bundle::DType;
    use trtc_runtime::Value;

    #[test]
    fn the_generator_is_xoshiro() {
        // First outputs of the reference implementation for the state 1, 2, 3, 4.
        let mut random = Random([1, 2, 3, 4]);
        let first: Vec<u64> = (0..4).map(|_| random.next()).collect();
        assert_eq!(first, [41943041, 58720359, 3588806011781223, 3591011842654386]);
    }

    #[test]
    fn floats_are_normal_and_seeded() {
        let floats = |seed, name| {
            let value = tensor(seed, name, DType::F32, &[100, 100]).unwrap();
            value.as_tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
        };
        let values = floats(1, "x");
        let mean = values.iter().sum::<f32>() / 1e4;
        let variance = values.iter().map(|v| v * v).sum::<f32>() / 1e4;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        assert_eq!(values, floats(1, "x"));
        assert_ne!(values, floats(2, "x"));
        assert_ne!(values, floats(1, "y"));
    }

    #[test]
    fn every_dtype_is_filled_with_numbers() {
        for &dtype in DType::ALL.iter().filter(|dtype| dtype.bits() > 0) {
            let value = tensor(3, "x", dtype, &[64]).unwrap();
            let bytes = value.as_tensor().unwrap().bytes();
            assert!(bytes.iter().any(|&byte| byte != 0), "{dtype}");
            let read = crate::cli::elements::reader(dtype).unwrap();
            assert!((0..64).all(|k| read(bytes, k).is_finite()), "{dtype}");
            if matches!(dtype, DType::I64 | DType::Bool | DType::U32) {
                assert!((0..64).all(|k| (0.0..=1.0).contains(&read(bytes, k))), "{dtype}");
            }
        }
        let Value::Strings(strings) = tensor(3, "x", DType::Str, &[2, 2]).unwrap() else { panic!("strings") };
        assert_eq!(strings.strings.len(), 4);
        assert!(tensor(3, "x", DType::F32, &[usize::MAX, 2]).is_err());
    }
}

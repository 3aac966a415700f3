//! Element types, written once: names, widths and the numbers that each party uses for them.

use serde::{Deserialize, Serialize};

macro_rules! dtypes {
    ($($variant:ident = $name:literal, onnx $onnx:literal, bits $bits:literal, $doc:literal;)*) => {
        /// Element type of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum DType {
            $(#[doc = $doc] #[serde(rename = $name)] $variant,)*
        }

        impl DType {
            /// Every element type, in the order of ONNX's numbers.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// Short name as written in reports and in the text form: `f32`, `i64`, …
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// ONNX `TensorProto.DataType` (onnx.proto, IR version 14).
            pub const fn onnx(self) -> i32 {
                match self { $(DType::$variant => $onnx,)* }
            }

            /// Inverse of [`DType::onnx`]; `None` for a number that ONNX does not define.
            pub const fn from_onnx(number: i32) -> Option<DType> {
                match number { $($onnx => Some(DType::$variant),)* _ => None }
            }

            /// Inverse of [`DType::name`].
            pub fn from_name(name: &str) -> Option<DType> {
                match name { $($name => Some(DType::$variant),)* _ => None }
            }

            /// Bits of one element; 0 for strings, which have no fixed width.
            pub const fn bits(self) -> usize {
                match self { $(DType::$variant => $bits,)* }
            }
        }
    };
}

dtypes! {
    F32 = "f32", onnx 1, bits 32, "IEEE binary32.";
    U8 = "u8", onnx 2, bits 8, "Unsigned 8-bit.";
    I8 = "i8", onnx 3, bits 8, "Signed 8-bit.";
    U16 = "u16", onnx 4, bits 16, "Unsigned 16-bit.";
    I16 = "i16", onnx 5, bits 16, "Signed 16-bit.";
    I32 = "i32", onnx 6, bits 32, "Signed 32-bit.";
    I64 = "i64", onnx 7, bits 64, "Signed 64-bit.";
    Str = "str", onnx 8, bits 0, "UTF-8 string.";
    Bool = "bool", onnx 9, bits 8, "One byte, 0 or 1.";
    F16 = "f16", onnx 10, bits 16, "IEEE binary16.";
    F64 = "f64", onnx 11, bits 64, "IEEE binary64.";
    U32 = "u32", onnx 12, bits 32, "Unsigned 32-bit.";
    U64 = "u64", onnx 13, bits 64, "Unsigned 64-bit.";
    C64 = "c64", onnx 14, bits 64, "Two f32: real, imaginary.";
    C128 = "c128", onnx 15, bits 128, "Two f64: real, imaginary.";
    Bf16 = "bf16", onnx 16, bits 16, "bfloat16.";
    F8E4M3 = "f8e4m3", onnx 17, bits 8, "FLOAT8E4M3FN.";
    F8E4M3Uz = "f8e4m3uz", onnx 18, bits 8, "FLOAT8E4M3FNUZ.";
    F8E5M2 = "f8e5m2", onnx 19, bits 8, "FLOAT8E5M2.";
    F8E5M2Uz = "f8e5m2uz", onnx 20, bits 8, "FLOAT8E5M2FNUZ.";
    U4 = "u4", onnx 21, bits 4, "Unsigned 4-bit, two a byte, low nibble first.";
    I4 = "i4", onnx 22, bits 4, "Signed 4-bit, two a byte, low nibble first.";
    F4E2M1 = "f4e2m1", onnx 23, bits 4, "FLOAT4E2M1, two a byte, low nibble first.";
    F8E8M0 = "f8e8m0", onnx 24, bits 8, "FLOAT8E8M0: a power of two.";
    U2 = "u2", onnx 25, bits 2, "Unsigned 2-bit, four a byte.";
    I2 = "i2", onnx 26, bits 2, "Signed 2-bit, four a byte.";
    F6E2M3 = "f6e2m3", onnx 27, bits 6, "FLOAT6E2M3.";
    F6E3M2 = "f6e3m2", onnx 28, bits 6, "FLOAT6E3M2.";
}

impl DType {
    /// Bytes that `count` packed elements take (a started byte counts whole); `None` for strings or
    /// when the product overflows.
    pub const fn bytes_for(self, count: usize) -> Option<usize> {
        match self.bits() {
            0 => None,
            bits => match count.checked_mul(bits) {
                Some(total) => Some(total.div_ceil(8)),
                None => None,
            },
        }
    }

    /// A binary floating-point type (any width).
    pub const fn is_float(self) -> bool {
        use DType::*;
        matches!(
            self,
            F32 | F16
                | F64
                | Bf16
                | F8E4M3
                | F8E4M3Uz
                | F8E5M2
                | F8E5M2Uz
                | F4E2M1
                | F8E8M0
                | F6E2M3
                | F6E3M2
        )
    }

    /// A signed or unsigned integer type (bool is not one).
    pub const fn is_int(self) -> bool {
        use DType::*;
        matches!(self, U8 | I8 | U16 | I16 | I32 | I64 | U32 | U64 | U4 | I4 | U2 | I2)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::DType;

    #[test]
    fn names_and_numbers_are_inverse() {
        for &dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            assert_eq!(DType::from_onnx(dtype.onnx()), Some(dtype));
        }
        assert_eq!(DType::from_onnx(0), None);
        assert_eq!(DType::from_onnx(29), None);
    }

    #[test]
    fn packed_widths_round_up() {
        assert_eq!(DType::I4.bytes_for(3), Some(2));
        assert_eq!(DType::F32.bytes_for(3), Some(12));
        assert_eq!(DType::Str.bytes_for(1), None);
        assert_eq!(DType::F64.bytes_for(usize::MAX), None);
    }
}

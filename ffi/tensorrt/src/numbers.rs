//! Our enums as the numbers of each product's headers.

use trtc_bundle::DType;
use trtc_network::layer::*;
use trtc_tensorrt_sys::{enterprise, rtx};

/// Whose headers' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Rtx,
    TensorRt,
}

/// The number of an enum's value in a product's headers.
pub(crate) trait Number: Copy {
    fn number(self, api: Api) -> i32;
}

macro_rules! numbers {
    ($($ours:ident = $theirs:ident { $($variant:ident: $constant:ident),* $(,)? })*) => {
        $(impl Number for $ours {
            fn number(self, api: Api) -> i32 {
                match (api, self) {
                    $((Api::Rtx, $ours::$variant) => rtx::$theirs::$constant.0,
                    (Api::TensorRt, $ours::$variant) => enterprise::$theirs::$constant.0,)*
                }
            }
        })*

        #[cfg(test)]
        fn all() -> Vec<(&'static str, i32, i32)> {
            vec![$($((
                concat!(stringify!($ours), "::", stringify!($variant)),
                $ours::$variant.number(Api::Rtx),
                $ours::$variant.number(Api::TensorRt),
            ),)*)*]
        }
    };
}

numbers! {
    ActivationKind = ActivationType {
        Relu: kRELU, Sigmoid: kSIGMOID, Tanh: kTANH, LeakyRelu: kLEAKY_RELU, Elu: kELU, Selu: kSELU,
        Softsign: kSOFTSIGN, Softplus: kSOFTPLUS, Clip: kCLIP, HardSigmoid: kHARD_SIGMOID,
        ScaledTanh: kSCALED_TANH, ThresholdedRelu: kTHRESHOLDED_RELU, GeluErf: kGELU_ERF, GeluTanh: kGELU_TANH,
    }
    ElementWiseOp = ElementWiseOperation {
        Sum: kSUM, Prod: kPROD, Max: kMAX, Min: kMIN, Sub: kSUB, Div: kDIV, Pow: kPOW, FloorDiv: kFLOOR_DIV,
        And: kAND, Or: kOR, Xor: kXOR, Equal: kEQUAL, Greater: kGREATER, Less: kLESS,
    }
    UnaryOp = UnaryOperation {
        Exp: kEXP, Log: kLOG, Sqrt: kSQRT, Recip: kRECIP, Abs: kABS, Neg: kNEG, Sin: kSIN, Cos: kCOS, Tan: kTAN,
        Sinh: kSINH, Cosh: kCOSH, Asin: kASIN, Acos: kACOS, Atan: kATAN, Asinh: kASINH, Acosh: kACOSH,
        Atanh: kATANH, Ceil: kCEIL, Floor: kFLOOR, Erf: kERF, Not: kNOT, Sign: kSIGN, Round: kROUND,
        IsInf: kISINF, IsNan: kISNAN,
    }
    ReduceOp = ReduceOperation { Sum: kSUM, Prod: kPROD, Max: kMAX, Min: kMIN, Avg: kAVG, None: kNONE }
    PoolKind = PoolingType { Max: kMAX, Average: kAVERAGE, MaxAverageBlend: kMAX_AVERAGE_BLEND }
    MatrixOp = MatrixOperation { None: kNONE, Transpose: kTRANSPOSE, Vector: kVECTOR }
    TopKOp = TopKOperation { Max: kMAX, Min: kMIN }
    GatherMode = GatherMode { Default: kDEFAULT, Element: kELEMENT, Nd: kND }
    ScatterMode = ScatterMode { Element: kELEMENT, Nd: kND }
    SampleMode = SampleMode {
        Strict: kSTRICT_BOUNDS, Wrap: kWRAP, Clamp: kCLAMP, Fill: kFILL, Reflect: kREFLECT,
    }
    Interpolation = InterpolationMode { Nearest: kNEAREST, Linear: kLINEAR, Cubic: kCUBIC }
    Coordinates = ResizeCoordinateTransformation {
        AlignCorners: kALIGN_CORNERS, Asymmetric: kASYMMETRIC, HalfPixel: kHALF_PIXEL,
    }
    ResizeSelector = ResizeSelector { Formula: kFORMULA, Upper: kUPPER }
    ResizeRound = ResizeRoundMode { HalfUp: kHALF_UP, HalfDown: kHALF_DOWN, Floor: kFLOOR, Ceil: kCEIL }
    FillOp = FillOperation { Linspace: kLINSPACE, RandomUniform: kRANDOM_UNIFORM, RandomNormal: kRANDOM_NORMAL }
    CumulativeOp = CumulativeOperation { Sum: kSUM }
    TripLimit = TripLimit { Count: kCOUNT, While: kWHILE }
    LoopOutputKind = LoopOutput { LastValue: kLAST_VALUE, Concatenate: kCONCATENATE, Reverse: kREVERSE }
    BoxFormat = BoundingBoxFormat { CornerPairs: kCORNER_PAIRS, CenterSizes: kCENTER_SIZES }
}

macro_rules! dtypes {
    ($($variant:ident: $constant:ident),* $(,)?) => {
        /// The number of an element type; `None` for one that TensorRT does not have.
        pub(crate) fn dtype_number(api: Api, dtype: DType) -> Option<i32> {
            Some(match (api, dtype) {
                $((Api::Rtx, DType::$variant) => rtx::DataType::$constant.0,
                (Api::TensorRt, DType::$variant) => enterprise::DataType::$constant.0,)*
                _ => return None,
            })
        }

        /// The element type of a number.
        pub(crate) fn dtype_of(api: Api, number: i32) -> Option<DType> {
            [$(DType::$variant),*].into_iter().find(|&dtype| dtype_number(api, dtype) == Some(number))
        }
    };
}

dtypes! {
    F32: kFLOAT, F16: kHALF, I8: kINT8, I32: kINT32, Bool: kBOOL, U8: kUINT8, F8E4M3: kFP8, Bf16: kBF16, I64: kINT64,
    I4: kINT4, F4E2M1: kFP4, F8E8M0: kE8M0,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values as the public API reference lists them, in the order of declaration from 0.
    #[test]
    fn numbers_are_the_documented_ones_in_both_products() {
        let mut expected = 0;
        let mut last = "";
        for (name, rtx, tensorrt) in all() {
            let group = name.split("::").next().unwrap();
            expected = if group == last { expected + 1 } else { 0 };
            last = group;
            assert_eq!((rtx, tensorrt), (expected, expected), "{name}");
        }
    }

    #[test]
    fn dtypes_are_the_documented_ones_in_both_products() {
        let expected = [
            (DType::F32, 0),
            (DType::F16, 1),
            (DType::I8, 2),
            (DType::I32, 3),
            (DType::Bool, 4),
            (DType::U8, 5),
            (DType::F8E4M3, 6),
            (DType::Bf16, 7),
            (DType::I64, 8),
            (DType::I4, 9),
            (DType::F4E2M1, 10),
            (DType::F8E8M0, 11),
        ];
        for api in [Api::Rtx, Api::TensorRt] {
            for &dtype in DType::ALL {
                let number = expected.iter().find(|(d, _)| *d == dtype).map(|&(_, n)| n);
                assert_eq!(dtype_number(api, dtype), number, "{dtype}");
                if let Some(number) = number {
                    assert_eq!(dtype_of(api, number), Some(dtype));
                }
            }
            assert_eq!(dtype_of(api, 12), None);
        }
    }
}

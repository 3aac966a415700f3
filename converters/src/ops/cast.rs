//! Cast, CastLike: conversion of dtypes.
//!
//! x [d0..dn] T, (like [..] U)  ->  y [d0..dn] U
//! Opsets: 6 attribute `to` as number; 9 strings; 13 bf16; 19 f8; 21 4 bits; 28 2 bits.
//! TensorRT: ICastLayer; f8e4m3: IQuantizeLayer, IDequantizeLayer with scale 1.
//! Limits: f32, f16, bf16, i32, i64, i8, u8, bool; f8e4m3 saturating, rank ≥ 1. Floats become integers towards zero; out of range is undefined in ONNX.
//! Integers wrap. Bool is ≠ 0.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape, small},
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct Cast;

/// From and to, as in the model.
#[derive(Debug)]
pub struct Plan {
    from: DType,
    to: DType,
}

const ALLOWED: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::I32,
    DType::I64,
    DType::I8,
    DType::U8,
    DType::Bool,
    DType::F8E4M3,
];

fn to(node: NodeView<'_>) -> Result<Option<DType>, Diag> {
    if node.op() == "CastLike" {
        return Ok(shape::dtype_of(node, 1));
    }
    let number =
        node.attrs().int("to").ok_or_else(|| Diag::invalid("the attribute is missing").slot("to"))?;
    let dtype = i32::try_from(number).ok().and_then(DType::from_onnx);
    dtype.map(Some).ok_or_else(|| Diag::invalid(format!("no dtype has the number {number}")).slot("to"))
}

impl Converter for Cast {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Cast", 28), Key::onnx("CastLike", 25)],
        dtypes: ALLOWED,
        layers: "ICastLayer",
        limits: "to f8e4m3: saturating",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::ATTRIBUTE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let to = to(node)?;
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        let elements = match (to, small::elements(node, 0)) {
            (Some(DType::Bool), Some(list)) => Some(list.iter().map(|dim| truth(node, dim)).collect()),
            (_, list) => list,
        };
        let elements = small::settled(elements, to, node.symbols());
        Ok(vec![Inferred { ty: shape::typed(to, dims), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "input", ALLOWED, target)?;
        let from = x.dtype;
        let to = to(node).ok().flatten().ok_or_else(|| {
            Refusal::new(Code::DTYPE_UNKNOWN, "the dtype is not known before the run").slot("to")
        })?;
        check::dtype_gate(to, "to", ALLOWED, target)?;
        // The builder crashes on a quantised scalar.
        if x.rank() == 0 && from != to && (from == DType::F8E4M3 || to == DType::F8E4M3) {
            return Err(Refusal::new(Code::RANK, "a scalar of f8e4m3").slot("input"));
        }
        if to == DType::F8E4M3 && node.int("saturate", 1) == 0 {
            let why = "TensorRT saturates what f8e4m3 does not hold";
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("saturate"));
        }
        Ok(Plan { from, to })
    }

    fn emit(&self, Plan { from, to }: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut x = cx.input(0);
        if from == DType::F8E4M3 && to != from {
            let scale = cx.scalar(DType::F32, 0, 1.0);
            x = cx.one(Layer::Dequantize { x, scale, axis: None, to: DType::F32 });
        }
        vec![match to {
            _ if from == to => x,
            DType::F8E4M3 => {
                let (x, scale) = (cx.cast(x, DType::F32), cx.scalar(DType::F32, 0, 1.0));
                cx.one(Layer::Quantize { x, scale, axis: None, to })
            }
            // Not through the layer, whose result for 0.5 or 256 is nowhere documented.
            DType::Bool => {
                let x = elementwise::wide(cx, x);
                let zero = elementwise::scalar_like(cx, x, 0.0);
                let same = cx.elementwise(x, zero, ElementWiseOp::Equal);
                cx.unary(same, UnaryOp::Not)
            }
            DType::U8 | DType::I8 if from.is_int() => {
                let x = elementwise::wide(cx, x);
                elementwise::narrowed(cx, x, to)
            }
            to => cx.cast(x, carrier(to)),
        }]
    }
}

fn truth(node: NodeView<'_>, dim: &Dim) -> Dim {
    let range = node.symbols().interval(dim);
    match dim {
        Dim::Known(0) => Dim::Known(0),
        Dim::Unknown => Dim::Unknown,
        _ if !range.contains(0) => Dim::Known(1),
        _ => Dim::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::ALLOWED;
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    fn nibbles() -> trtc_ir::Tensor {
        trtc_ir::Tensor::new(DType::I4, vec![1], vec![1].into()).unwrap()
    }

    /// Values that both dtypes hold after truncation, where ONNX says what happens.
    fn values(from: DType, to: DType) -> [f64; 6] {
        match (from.is_float(), to) {
            (true, DType::U8) => [0.0, 0.5, 1.75, 100.0, 127.0, 3.0],
            (true, DType::Bool) => [0.0, 0.5, -0.25, 1.0, 256.0, f64::NAN],
            (true, _) => [0.0, -0.5, 1.75, -2.5, 100.0, -128.0],
            (false, _) => [0.0, 1.0, 2.0, 100.0, 127.0, 5.0],
        }
    }

    #[test]
    fn every_pair() {
        // f8e4m3 is the last.
        let plain = &ALLOWED[..ALLOWED.len() - 1];
        for &from in plain {
            for &to in plain {
                let case = Case::new("Cast", 28)
                    .input(of_dtype(from, [2, 3], &values(from, to)))
                    .int("to", to.onnx().into());
                case.check(Tolerance::Exact);
            }
        }
        let case = Case::new("Cast", 28).input(u8s([2, 2], &[0, 1, 128, 255])).int("to", 1);
        case.dynamic(0, ["N", "2"]).check(Tolerance::Exact);
    }

    #[test]
    fn f8() {
        let to = |dtype: DType| i64::from(dtype.onnx());
        for from in [DType::F32, DType::F16, DType::I32] {
            let x = of_dtype(from, [6], &[0.0, 1.0, -2.5, 448.0, 1000.0, 17.0]);
            Case::new("Cast", 28).input(x).int("to", to(DType::F8E4M3)).check(Tolerance::Exact);
        }
        // 1.5, −2, 448, 2⁻⁹.
        let x = || f8s([4], &[0x3c, 0xc0, 0x7e, 0x01]);
        let case = Case::new("Cast", 28).input(x()).int("to", to(DType::F32));
        case.gives(Tolerance::Exact, &[f32s([4], &[1.5, -2.0, 448.0, 1.0 / 512.0])]);
        case.int("to", to(DType::F8E4M3)).layers();
        Case::new("Cast", 28)
            .input(x())
            .int("to", to(DType::I32))
            .gives(Tolerance::Exact, &[i32s([4], &[1, -2, 448, 0])]);
    }

    #[test]
    fn integers_wrap() {
        let wide = [300.0, -1.0, 256.0, 128.0, -129.0, 32767.0];
        for from in [DType::I32, DType::I64] {
            for to in [DType::U8, DType::I8, DType::Bool] {
                let x = of_dtype(from, [6], &wide);
                Case::new("Cast", 28).input(x).int("to", to.onnx().into()).check(Tolerance::Exact);
            }
        }
        let x = i64s([2], &[1 << 32, -(1 << 33) + 5]);
        Case::new("Cast", 28).input(x).int("to", DType::I32.onnx().into()).check(Tolerance::Exact);
        let x = i8s([3], &[-1, -128, 5]);
        Case::new("Cast", 28).input(x).int("to", DType::U8.onnx().into()).check(Tolerance::Exact);
        let x = u8s([3], &[255, 128, 127]);
        Case::new("Cast", 28).input(x).int("to", DType::I8.onnx().into()).check(Tolerance::Exact);
    }

    #[test]
    fn like() {
        let case = Case::new("CastLike", 25).input(i64s([2], &[1, 0])).input(f16s([1], &[0.0]));
        assert_eq!(case.types(), ["f16[2]"]);
        case.check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        let of = |to: DType| {
            let case = Case::new("Cast", 28).input(i64s([3], &[0; 3])).sizes(0, ["N", "-300", "M?"]);
            case.int("to", to.onnx().into()).types()[0].clone()
        };
        assert_eq!(of(DType::I32), "i32[3] = [N, -300, M]");
        // M has no bound, and 2²⁴ + 1 is no f32.
        assert_eq!(of(DType::F32), "f32[3] = [N, -300, ?]");
        assert_eq!(of(DType::Bool), "bool[3] = [1, 1, 1]");
        assert_eq!(of(DType::U8), "u8[3] = [N, ?, ?]");
        let case = Case::new("Cast", 28).input(f32s([1], &[0.0]));
        assert_eq!(case.clone().int("to", 99).invalid(), "no dtype has the number 99");
        assert_eq!(case.invalid(), "the attribute is missing");
    }

    #[test]
    fn refusals() {
        let to = |dtype: DType| i64::from(dtype.onnx());
        Case::new("Cast", 28).input(f32s([1], &[1.0])).int("to", to(DType::F16)).gates(nibbles());
        let f32_to = |dtype| Case::new("Cast", 28).input(f32s([1], &[1.0])).int("to", to(dtype));
        f32_to(DType::F64).refused(Code::DTYPE_UNREPRESENTABLE);
        f32_to(DType::I4).refused(Code::DTYPE_KERNEL);
        f32_to(DType::F8E4M3).int("saturate", 0).refused(Code::ATTRIBUTE);
        f32_to(DType::F8E4M3).target("rtx-1.7:sm86").refused(Code::COMPUTE_CAPABILITY);
        let scalar = Case::new("Cast", 28).input(f32s([], &[1.0])).int("to", to(DType::F8E4M3));
        scalar.refused(Code::RANK);
        f32_to(DType::Bf16).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        let like = Case::new("CastLike", 25).input(i64s([2], &[1, 0])).input(f16s([1], &[0.0]));
        like.untyped(1).refused(Code::DTYPE_UNKNOWN);
    }
}

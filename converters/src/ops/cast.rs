//! Cast, CastLike: conversion of dtypes.
//!
//! x [d0..dn] T, (like [..] U)  ->  y [d0..dn] U
//! Opsets: 6 attribute `to` as number; 9 strings; 13 bf16; 19 f8; 21 4 bits; 24 f8e8m0, round_mode; 28 2 bits.
//! TensorRT: ICastLayer; f8e4m3: IQuantizeLayer, IDequantizeLayer with scale 1; other small floats: rounded by
//! arithmetic. Weights in i8 for a product or a lookup: IDequantizeLayer with scale 1, so that the engine holds bytes.
//! Limits: no f64, u64, strings, f4e2m1. Floats become integers towards zero (ONNX Runtime rounds to 4 and 2 bits); out of
//! range (undefined in ONNX) and integers wrap. Bool is ≠ 0.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise,
        round::{self, Towards},
        shape, small, wrap,
    },
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeId, NodeView, Refusal, ValueId, ValueView};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct Cast;

/// From and to, as in the model, and how floats of 8 bits are rounded.
#[derive(Debug)]
pub struct Plan {
    from: DType,
    to: DType,
    saturate: bool,
    towards: Towards,
    /// By the quantising layer, which saturates.
    layer: bool,
    /// By the dequantising layer.
    weights: bool,
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
    DType::U16,
    DType::I16,
    DType::U32,
    DType::U4,
    DType::I4,
    DType::U2,
    DType::I2,
    DType::F8E4M3,
    DType::F8E4M3Uz,
    DType::F8E5M2,
    DType::F8E5M2Uz,
    DType::F8E8M0,
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
        layers: "ICastLayer, IElementWiseLayer, IUnaryLayer, ISelectLayer, IQuantizeLayer",
        limits: "",
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
        let towards = match node.str("round_mode", "up") {
            "up" => Towards::Up,
            "down" => Towards::Down,
            "nearest" => Towards::Nearest,
            other => {
                return Err(Refusal::new(Code::ATTRIBUTE, format!("no mode `{other}`")).slot("round_mode"));
            }
        };
        let saturate = node.int("saturate", 1) != 0;
        // The builder crashes on a quantised scalar.
        let layer = to == DType::F8E4M3
            && saturate
            && x.rank() > 0
            && check::native_gate(DType::F8E4M3, "to", target).is_ok();
        let floats = matches!(to, DType::F32 | DType::F16 | DType::Bf16);
        let weights = from == DType::I8 && floats && is_weights(node);
        Ok(Plan { from, to, saturate, towards, layer, weights })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let Plan { from, to, .. } = plan;
        let constant = cx.node().input(0).and_then(|view| view.constant()).filter(|_| plan.weights);
        if let Some((bytes, dims)) = constant.and_then(|c| Some((c.bytes()?.clone(), c.dims().to_vec()))) {
            let (x, scale) = (cx.constant(from, dims, bytes), cx.scalar(to, 0, 1.0));
            return vec![cx.one(Layer::Dequantize { x, scale, axis: None, to })];
        }
        let x = cx.input(0);
        vec![match to {
            _ if from == to => x,
            DType::F8E4M3 if plan.layer => {
                let (x, scale) = (cx.cast(x, DType::F32), cx.scalar(DType::F32, 0, 1.0));
                cx.one(Layer::Quantize { x, scale, axis: None, to })
            }
            DType::F8E8M0 => {
                let x = cx.cast(x, DType::F32);
                round::power_of_two(cx, x, plan.towards, plan.saturate)
            }
            to if round::ROUNDED.contains(&to) => {
                let x = cx.cast(x, DType::F32);
                let y = round::rounded(cx, x, to, plan.saturate);
                cx.cast(y, carrier(to))
            }
            // Not through the layer, whose result for 0.5 or 256 is nowhere documented.
            DType::Bool => {
                let zero = elementwise::scalar_like(cx, x, 0.0);
                let same = cx.elementwise(x, zero, ElementWiseOp::Equal);
                cx.unary(same, UnaryOp::Not)
            }
            // The layer drops the upper half.
            DType::I32 if from == DType::I64 => cx.cast(x, DType::I32),
            DType::I32 if from.is_int() => wrap::wrapped(cx, x, to),
            to if to.is_int() => {
                let x = if from.is_int() { x } else { cx.cast(x, carrier(to)) };
                let x = if carrier(to) == DType::I64 { cx.cast(x, DType::I64) } else { x };
                wrap::wrapped(cx, x, to)
            }
            to => cx.cast(x, to),
        }]
    }
}

/// Whether this makes floats of stored weights that a product reads scaled, or a lookup.
///
/// TensorRT folds a cast of a constant into floats of four times the size, but keeps what it dequantises. The kernels that
/// TensorRT-RTX 1.7 names in engines for sm80 to sm120 then read the bytes themselves: a matrix product has the cast and
/// the scale in its own kernel, a Gather takes rows before it casts them (a MiniLM with i8 weights: engine 91 to 27 MiB).
/// Before a convolution, without a scale, or where a zero point is subtracted, a kernel of its own would cast all weights
/// in each run: these are folded.
fn is_weights(node: NodeView<'_>) -> bool {
    /// Below this nothing is saved.
    const LEAST: usize = 1024;
    let graph = node.graph();
    let is = |id: NodeId, ops: &[&str]| ops.contains(&&*graph[id].op.op_type);
    let all_users = |y: ValueId, read: &dyn Fn(NodeId) -> bool| {
        let users = graph[y].users();
        !users.is_empty() && users.iter().all(|&user| read(user))
    };
    let scaled = |id: NodeId| {
        let mut outputs = graph[id].outputs().iter().flatten();
        is(id, &["Mul"]) && outputs.all(|&y| all_users(y, &|user| is(user, &["MatMul", "Gemm", "Gather"])))
    };
    let large = |view: ValueView<'_>| view.constant().is_some_and(|constant| constant.count() >= LEAST);
    node.input(0).is_some_and(large)
        && node.output(0).is_some_and(|y| all_users(y.id(), &|user| is(user, &["Gather"]) || scaled(user)))
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

    fn to(dtype: DType) -> i64 {
        dtype.onnx().into()
    }

    /// Values that both dtypes hold after truncation, where ONNX says what happens.
    fn values(from: DType, to: DType) -> [f64; 6] {
        match (from.is_float(), to) {
            (true, DType::U4 | DType::I4 | DType::U2 | DType::I2) => [0.0, 1.0, 2.0, 3.0, 15.0, 7.0],
            (true, DType::U8 | DType::U16 | DType::U32) => [0.0, 0.5, 1.75, 96.0, 112.0, 3.0],
            (true, DType::Bool) => [0.0, 0.5, -0.25, 1.0, 192.0, 0.0],
            (true, _) => [0.0, -0.5, 1.75, -2.5, 112.0, -128.0],
            (false, _) => [0.0, 1.0, 2.0, 100.0, 127.0, 5.0],
        }
    }

    #[test]
    fn every_pair() {
        let pair = |from: DType, dtype: DType| {
            let case = Case::new("Cast", 28).input(of_dtype(from, [2, 3], &values(from, dtype)));
            case.int("to", to(dtype)).check(Tolerance::Exact);
        };
        for &from in &ALLOWED[..8] {
            ALLOWED[..8].iter().for_each(|&dtype| pair(from, dtype));
        }
        for &narrow in ALLOWED[8..].iter().filter(|&&dtype| dtype != DType::F8E8M0) {
            for other in [DType::F32, DType::I64, DType::Bool, DType::U8] {
                pair(narrow, other);
                pair(other, narrow);
            }
        }
        let case = Case::new("Cast", 28).input(u8s([2, 2], &[0, 1, 128, 255])).int("to", 1);
        case.dynamic(0, ["N", "2"]).check(Tolerance::Exact);
        let nan = Case::new("Cast", 28).input(f32s([2], &[f32::NAN, 256.0]));
        nan.int("to", to(DType::Bool)).check(Tolerance::Exact);
    }

    #[test]
    fn f8() {
        for from in [DType::F32, DType::F16, DType::I32] {
            let x = of_dtype(from, [6], &[0.0, 1.0, -2.5, 448.0, 1000.0, 17.0]);
            Case::new("Cast", 28).input(x).int("to", to(DType::F8E4M3)).check(Tolerance::Exact);
        }
        let scalar = Case::new("Cast", 28).input(f32s([], &[1.1])).int("to", to(DType::F8E4M3));
        scalar.gives(Tolerance::Exact, &[f8s([], &[0x39])]);
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

    /// Every value of a float of 8 bits, the middles between neighbours, and what lies next to these.
    fn around(dtype: DType) -> Vec<f32> {
        let codes: Vec<u8> = (0..128).collect();
        let wide = trtc_bundle::widened(dtype, 128, &codes).unwrap();
        let halves = wide.chunks_exact(2).map(|c| half::f16::from_le_bytes([c[0], c[1]]).to_f32());
        let values: Vec<f32> = halves.filter(|v| v.is_finite()).collect();
        let middles = values.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
        let mut all: Vec<f32> = middles
            .flat_map(|m| [m, f32::from_bits(m.to_bits() - 1), f32::from_bits(m.to_bits() + 1)])
            .collect();
        all.extend(values);
        let negative: Vec<f32> = all.iter().map(|v| -v).collect();
        all.extend(negative);
        all
    }

    #[test]
    fn rounding() {
        let beyond = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e6, -1e30, 1e-30, -1e-30];
        for &dtype in crate::ctx::round::ROUNDED {
            for saturate in [0, 1] {
                let mut x = around(dtype);
                // ONNX Runtime makes no number of what is past the greatest f8e5m2, ONNX infinity.
                if (dtype, saturate) != (DType::F8E5M2, 0) {
                    x.extend(beyond);
                }
                let x = trtc_ir::Tensor::from_f32s(vec![x.len() as i64], &x).unwrap();
                let case = Case::new("Cast", 28).input(x).int("to", to(dtype)).int("saturate", saturate);
                // Without the layer.
                case.target("rtx-1.7:sm86").check(Tolerance::Exact);
            }
        }
        let x = Case::new("Cast", 28).input(f32s([5], &[61_440.0, -1e6, f32::INFINITY, 61_439.0, f32::NAN]));
        let expected =
            trtc_ir::Tensor::new(DType::F8E5M2, vec![5], vec![0x7c, 0xfc, 0x7c, 0x7b, 0x7f].into());
        let strict = x.int("to", to(DType::F8E5M2)).int("saturate", 0);
        strict.gives(Tolerance::Exact, &[expected.unwrap()]);
        let back = |dtype: DType| {
            let bytes: Vec<u8> = (0..=255).collect();
            let x = trtc_ir::Tensor::new(dtype, vec![256], bytes.into()).unwrap();
            Case::new("Cast", 28).input(x)
        };
        for &dtype in crate::ctx::round::ROUNDED.iter().chain(&[DType::F8E8M0]) {
            for other in [DType::F32, DType::F16] {
                back(dtype).int("to", to(other)).check(Tolerance::Exact);
            }
        }
    }

    #[test]
    fn powers_of_two() {
        let two = |power: i32| 2f32.powi(power);
        let x =
            [0.0, 0.124, 0.25, 1.1, 1.5, 1.4999, 1.75, 2.0, 3.0, 3.1, 1e-38, 1e38, two(127), two(-126), 1e30];
        let beyond = [f32::NAN, f32::INFINITY, 3e38, 0.0];
        for mode in ["up", "down", "nearest"] {
            for saturate in [0, 1] {
                let x: Vec<f32> = x.iter().chain(&beyond).copied().collect();
                let x = trtc_ir::Tensor::from_f32s(vec![x.len() as i64], &x).unwrap();
                let case =
                    Case::new("Cast", 28).input(x).int("to", to(DType::F8E8M0)).str("round_mode", mode);
                case.int("saturate", saturate).check(Tolerance::Exact);
            }
        }
    }

    #[test]
    fn narrow_integers_wrap() {
        let x = [-9.5, -8.0, -1.5, -0.5, 3.0, 7.9, 8.0, 15.0, 16.0, 300.0, 32_768.0, 65_535.0];
        for &dtype in
            &[DType::U4, DType::I4, DType::U2, DType::I2, DType::U8, DType::I8, DType::U16, DType::I16]
        {
            // Truncated, then the lowest bits; ONNX Runtime rounds where the reference truncates, to 4 and 2 bits.
            let float = Case::new("Cast", 28).input(f32s([12], &x.map(|v| v as f32))).int("to", to(dtype));
            float.gives(Tolerance::Exact, &[of_dtype(dtype, [12], &x.map(f64::trunc))]);
            let whole = Case::new("Cast", 28).input(f32s([12], &x.map(|v| v.trunc() as f32)));
            whole.int("to", to(dtype)).check(Tolerance::Exact);
            for from in [DType::I32, DType::I64, DType::U32, DType::I16] {
                Case::new("Cast", 28)
                    .input(of_dtype(from, [12], &x))
                    .int("to", to(dtype))
                    .check(Tolerance::Exact);
            }
        }
        let large = [0.0, 4_294_967_295.0, 2_147_483_648.0, 5.0];
        for dtype in [DType::I32, DType::I64, DType::F32, DType::U16, DType::I8] {
            let case = Case::new("Cast", 28).input(of_dtype(DType::U32, [4], &large)).int("to", to(dtype));
            case.check(Tolerance::Exact);
        }
        for from in [DType::I32, DType::I64] {
            let case = Case::new("Cast", 28).input(of_dtype(from, [3], &[-1.0, 7.0, -2_147_483_648.0]));
            case.int("to", to(DType::U32)).check(Tolerance::Exact);
        }
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
        Case::new("Cast", 28).input(f32s([1], &[1.0])).int("to", to(DType::F16)).gates(unheld());
        let f32_to = |dtype| Case::new("Cast", 28).input(f32s([1], &[1.0])).int("to", to(dtype));
        f32_to(DType::F64).refused(Code::DTYPE_UNREPRESENTABLE);
        f32_to(DType::U64).refused(Code::DTYPE_UNREPRESENTABLE);
        f32_to(DType::F4E2M1).refused(Code::DTYPE_KERNEL);
        f32_to(DType::F8E8M0).str("round_mode", "off").refused(Code::ATTRIBUTE);
        f32_to(DType::Bf16).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        let like = Case::new("CastLike", 25).input(i64s([2], &[1, 0])).input(f16s([1], &[0.0]));
        like.untyped(1).refused(Code::DTYPE_UNKNOWN);
    }
}

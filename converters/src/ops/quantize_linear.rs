//! QuantizeLinear: round(x / scale) + zero point, saturated.
//!
//! x [d0..dn] T, y_scale [] | [di] | [blocks] U, (y_zero_point, as the scale, V)  ->  y [d0..dn] V
//! Opsets: 10; 13 axis; 19 f8, f16, bf16; 21 blocks, output_dtype; 23 precision; 28 2 bits; com.microsoft 1.
//! TensorRT: IQuantizeLayer where y is i8, f8e4m3 or i4, the zero point 0 and the one scale constant; otherwise computed in f32.
//! Limits: f32, f16, bf16 to integers of at most 16 bits and floats of 8; the zero point of floats is 0; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise, integers,
        quantize::{self, Granularity},
        round, shape,
    },
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
pub struct QuantizeLinear;

/// How it is computed.
#[derive(Debug)]
pub struct Plan {
    how: Granularity,
    rank: usize,
    to: DType,
    /// Dtype of the division.
    precision: DType,
    layer: bool,
    zero_point: bool,
    saturate: bool,
}

fn output_dtype(node: NodeView<'_>) -> Option<DType> {
    match i32::try_from(node.int("output_dtype", 0)) {
        Ok(0) | Err(_) => match node.input(2) {
            Some(zero) => zero.dtype(),
            None => Some(DType::U8),
        },
        Ok(number) => DType::from_onnx(number),
    }
}

impl Converter for QuantizeLinear {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("QuantizeLinear", 28), Key::of("com.microsoft", "QuantizeLinear", 1)],
        dtypes: check::FLOATS,
        layers: "IQuantizeLayer, IElementWiseLayer, IUnaryLayer",
        limits: "to 2, 4, 8, 16 bits; floats: zero point 0",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::DIM_UNKNOWN,
            Code::ATTRIBUTE,
            Code::CONSTANT_VALUE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        Ok(shape::types([shape::typed(output_dtype(node), dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "x", check::FLOATS, target)?;
        let scale = quantize::scale(node, 1, "y_scale", target)?;
        let to = output_dtype(node)
            .ok_or_else(|| Refusal::new(Code::DTYPE_UNKNOWN, "the result's dtype is not known"))?;
        check::dtype_gate(to, "y", quantize::QUANTISED, target)?;
        let how = quantize::granularity(node, &x, &scale, "y_scale")?;
        let zero = quantize::zero_point_is_zero(node, 2);
        if !zero {
            elementwise::gate(node, 2, "y_zero_point", &[to], target)?;
            // ONNX Runtime and the reference leave out what a run gives.
            if to.is_float() && node.input(2).is_some_and(|zero| zero.constant().is_some()) {
                let why = format!("a zero point of {to} other than 0");
                return Err(Refusal::new(Code::CONSTANT_VALUE, why).slot("y_zero_point"));
            }
        }
        let precision = match i32::try_from(node.int("precision", 0)) {
            Ok(0) => scale.dtype,
            Ok(number) => {
                DType::from_onnx(number).filter(|d| check::FLOATS.contains(d)).ok_or_else(|| {
                    Refusal::new(Code::ATTRIBUTE, "a division in another dtype than f32, f16, bf16")
                        .slot("precision")
                })?
            }
            Err(_) => scale.dtype,
        };
        let saturate = node.int("saturate", 1) != 0;
        let layer = matches!(to, DType::I8 | DType::I4 | DType::F8E4M3)
            && check::native_gate(to, "y", target).is_ok()
            && zero
            && x.rank() > 0
            && how == Granularity::Tensor
            && quantize::is_positive_constant(&scale)
            && (scale.dtype == x.dtype || scale.dtype == DType::F32)
            && (precision == scale.dtype || precision == DType::F32)
            && (to != DType::F8E4M3 || saturate)
            && (to != DType::I4 || quantize::fills_bytes(&x));
        Ok(Plan { how, rank: x.rank(), to, precision, layer, zero_point: !zero && to.is_int(), saturate })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        if plan.layer {
            let scale = cx.input(1);
            let scale = cx.reshape(scale, Vec::new());
            let [x, scale] = [x, scale].map(|x| cx.cast(x, plan.precision));
            return vec![cx.one(Layer::Quantize { x, scale, axis: None, to: plan.to })];
        }
        // The quotient of two numbers of 16 bits is rounded right when it is made in f32 and rounded again.
        let x = cx.cast(x, DType::F32);
        let scale = quantize::spread(cx, 1, &plan.how, plan.rank);
        let quotient = cx.elementwise(x, scale, ElementWiseOp::Div);
        let quotient = cx.cast(quotient, plan.precision);
        let quotient = cx.cast(quotient, DType::F32);
        if plan.to.is_float() {
            let y = round::rounded(cx, quotient, plan.to, plan.saturate);
            return vec![cx.cast(y, carrier(plan.to))];
        }
        let mut y = cx.unary(quotient, UnaryOp::Round);
        if plan.zero_point {
            let zero = quantize::spread(cx, 2, &plan.how, plan.rank);
            y = cx.elementwise(y, zero, ElementWiseOp::Sum);
        }
        let y = integers::clamped(cx, y, plan.to);
        vec![cx.cast(y, carrier(plan.to))]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    /// Ties, both ends, far outside.
    const X: [f32; 6] = [-1000.0, -0.75, 0.25, 0.75, 1.25, 1000.0];

    fn case() -> Case {
        Case::new("QuantizeLinear", 28).input(f32s([2, 3], &X))
    }

    #[test]
    fn of_microsoft() {
        let case = || Case::of("com.microsoft", "QuantizeLinear", 1).input(f32s([2, 3], &X));
        case().constant(f32s([], &[0.5])).constant(i8s([], &[0])).check(Tolerance::Exact);
        case()
            .constant(f32s([], &[0.5]))
            .constant(of_dtype(DType::U16, [], &[300.0]))
            .check(Tolerance::Exact);
        let axis = case().constant(f32s([3], &[0.5, 0.25, 2.0])).constant(u8s([3], &[0, 128, 255]));
        axis.int("axis", 1).check(Tolerance::Exact);
    }

    #[test]
    fn numbers() {
        let signed = case().constant(f32s([], &[0.5])).constant(i8s([], &[0]));
        assert_eq!(signed.layers(), ["Shuffle", "Quantize"]);
        signed.check(Tolerance::Exact);
        signed.dynamic(0, ["N", "3"]).check(Tolerance::Exact);
        case().constant(f32s([], &[0.5])).constant(i8s([], &[5])).check(Tolerance::Exact);
        case().constant(f32s([], &[0.5])).constant(u8s([], &[128])).check(Tolerance::Exact);
        case().constant(f32s([], &[0.5])).check(Tolerance::Exact);
        let axis = case().constant(f32s([3], &[0.5, 0.25, 2.0])).constant(u8s([3], &[0, 128, 255]));
        axis.check(Tolerance::Exact);
        axis.dynamic(0, ["N", "3"]).check(Tolerance::Exact);
        case().input(f32s([], &[0.5])).input(u8s([], &[7])).check(Tolerance::Exact);
        let half = Case::new("QuantizeLinear", 28).input(f16s([2, 3], &X)).constant(f16s([], &[0.3]));
        half.constant(u8s([], &[128])).check(Tolerance::Exact);
    }

    #[test]
    fn narrow() {
        let case = Case::new("QuantizeLinear", 28).input(f32s([4], &[1.5, -2.0, 1000.0, 0.3]));
        let float = case.clone().constant(f32s([], &[1.0])).int("output_dtype", DType::F8E4M3.onnx().into());
        // Handed out as f16.
        assert_eq!(float.layers(), ["Shuffle", "Quantize", "Dequantize", "Cast"]);
        float.check(Tolerance::Exact);
        let strict = float.int("saturate", 0);
        strict.gives(Tolerance::Exact, &[f8s([4], &[0x3c, 0xc0, 0x7f, 0x2a])]);
        strict.target("rtx-1.7:sm86").layers();
        let nibble = case.constant(f32s([], &[0.5])).int("output_dtype", DType::I4.onnx().into());
        assert_eq!(nibble.layers(), ["Shuffle", "Quantize", "Dequantize", "Cast"]);
        nibble.check(Tolerance::Exact);
        // By arithmetic where the layer is not.
        nibble.target("rtx-1.7:sm75").layers();
        let odd =
            Case::new("QuantizeLinear", 28).input(f32s([3], &[1.5, -2.0, 0.3])).constant(f32s([], &[0.5]));
        let odd = odd.int("output_dtype", DType::I4.onnx().into());
        assert!(!odd.layers().contains(&"Quantize"));
        odd.check(Tolerance::Exact);
        let half = Case::new("QuantizeLinear", 28).input(f16s([2, 3], &X)).constant(f32s([], &[0.5]));
        half.constant(i8s([], &[0])).check(Tolerance::Exact);
        // Halves divided in f32, as before version 23: 296.6 is not 296.5 first.
        let x = f16s([2], &[53.406_25, 0.120_483_4]);
        let halves = Case::new("QuantizeLinear", 28).input(x).input(f16s([2], &[0.180_053_7, 0.016_067_5]));
        let halves = halves.int("axis", 0).int("output_dtype", DType::U16.onnx().into());
        halves
            .clone()
            .int("precision", 1)
            .gives(Tolerance::Exact, &[of_dtype(DType::U16, [2], &[297.0, 7.0])]);
        halves.gives(Tolerance::Exact, &[of_dtype(DType::U16, [2], &[296.0, 8.0])]);
    }

    #[test]
    fn every_dtype() {
        // Ties, both ends of each, far outside.
        let x = [-1e6, -32_768.5, -8.5, -2.5, -0.5, 0.5, 1.5, 2.5, 3.5, 7.5, 14.5, 15.5, 65_534.5, 1e6];
        let case = || Case::new("QuantizeLinear", 28).input(f32s([14], &x));
        for &to in crate::ctx::quantize::QUANTISED {
            let to_attribute = |case: Case| case.int("output_dtype", to.onnx().into());
            to_attribute(case().constant(f32s([], &[1.0]))).check(Tolerance::Exact);
            // A scale of the run.
            to_attribute(case().input(f32s([], &[0.25]))).check(Tolerance::Exact);
            if to.is_int() {
                let zero = of_dtype(to, [], &[1.0]);
                case().constant(f32s([], &[2.0])).constant(zero.clone()).check(Tolerance::Exact);
                let scales = case().constant(f32s([14], &[0.5; 14]));
                scales.input(repeated(&zero, vec![14])).int("axis", 0).check(Tolerance::Exact);
            }
        }
    }

    #[test]
    fn blocks() {
        let case = case().input(f32s([2, 2], &[0.5, 1.0, 2.0, 4.0])).constant(i8s([2, 2], &[0; 4]));
        case.int("block_size", 2).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        assert_eq!(case().constant(f32s([], &[1.0])).types(), ["u8[2 x 3]"]);
        assert_eq!(case().constant(f32s([], &[1.0])).constant(i8s([], &[0])).types(), ["i8[2 x 3]"]);
        assert_eq!(case().constant(f32s([], &[1.0])).int("output_dtype", 3).types(), ["i8[2 x 3]"]);
    }

    #[test]
    fn refusals() {
        let scale = || f32s([], &[1.0]);
        case().constant(scale()).gates(i32s([1], &[1]));
        case().constant(scale()).int("output_dtype", 11).refused(Code::DTYPE_UNREPRESENTABLE);
        let of_the_run = case().constant(scale()).input(f8s([], &[0]));
        assert!(!of_the_run.layers().contains(&"Quantize"));
        of_the_run.check(Tolerance::Exact);
        case().constant(scale()).constant(f8s([], &[0x38])).refused(Code::CONSTANT_VALUE);
        case().constant(scale()).int("output_dtype", 9).refused(Code::DTYPE_KERNEL);
        case().constant(scale()).input(u8s([], &[0])).untyped(2).refused(Code::DTYPE_UNKNOWN);
        case().constant(scale()).int("precision", 11).refused(Code::ATTRIBUTE);
        let blocks = case().input(f32s([2, 2], &[1.0; 4]));
        blocks.refused(Code::INVALID);
        blocks.dynamic(0, ["2", "N"]).int("block_size", 2).refused(Code::DIM_UNKNOWN);
    }
}

//! DequantizeLinear: (x − zero point) · scale.
//!
//! x [d0..dn] T, x_scale [] | [di] | [blocks] U, (x_zero_point, as the scale, T)  ->  y [d0..dn] U
//! Opsets: 10; 13 axis; 19 f8, f16, bf16 scales; 21 blocks, 4 and 16 bits; 23 output_dtype; 28 2 bits; com.microsoft 1.
//! TensorRT: IDequantizeLayer for i8, f8e4m3, i4 with zero point 0 and constant scales: one scale, or constant x; constant u8
//! with zero point 128 and u4 with 8 are moved to i8 and i4. Otherwise computed in f32, exactly.
//! Limits: integers of at most 16 bits and i32, floats of 8 bits; constants of any integer type; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check::{self, Operand},
        elementwise,
        quantize::{self, Granularity},
        shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Tensor};
use trtc_network::{Layer, TensorId, layer::ElementWiseOp};

/// The converter.
#[derive(Debug)]
pub struct DequantizeLinear;

/// How it is computed.
#[derive(Debug)]
pub struct Plan {
    how: Granularity,
    rank: usize,
    to: DType,
    /// Dtype in which the layer takes x; `None` for f32 arithmetic.
    layer: Option<DType>,
    zero_point: bool,
}

const ALLOWED: &[DType] = &[
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
    DType::I4,
    DType::U4,
    DType::I2,
    DType::U2,
    DType::F8E4M3,
    DType::F8E4M3Uz,
    DType::F8E5M2,
    DType::F8E5M2Uz,
];

fn output_dtype(node: NodeView<'_>) -> Option<DType> {
    match i32::try_from(node.int("output_dtype", 0)) {
        Ok(0) | Err(_) => shape::dtype_of(node, 1),
        Ok(number) => DType::from_onnx(number),
    }
}

/// The quantised input. Constants of integers that TensorRT does not have are converted when the node is emitted.
fn quantised<'a>(node: NodeView<'a>, target: &Target) -> Result<Operand<'a>, Refusal> {
    if let Some(view) = node.input(0)
        && let (Some(constant), Some(shape)) = (view.constant(), view.shape())
        && constant.dtype().is_int()
        && shape.len() <= 8
    {
        let operand = Operand { view, dtype: constant.dtype(), shape };
        check::not_empty(&operand, "x")?;
        return Ok(operand);
    }
    elementwise::gate(node, 0, "x", ALLOWED, target)
}

/// Dtype in which TensorRT's layer can take x.
///
/// The layer has no zero point. Weights with another one could be stored as i8 too, with a difference behind the layer; but
/// TensorRT-RTX 1.7 then runs a kernel that makes floats of all of them each time (docs/building.md), so they are folded.
fn layer(
    node: NodeView<'_>,
    x: &Operand<'_>,
    scale: &Operand<'_>,
    how: &Granularity,
    target: &Target,
) -> Option<DType> {
    let constant = x.view.constant().is_some();
    let own = match x.dtype {
        DType::I8 | DType::I4 | DType::F8E4M3 if quantize::zero_point_is_zero(node, 2) => x.dtype,
        DType::U8 if constant && quantize::zero_point_is(node, 2, 128) => DType::I8,
        DType::U4 if constant && quantize::zero_point_is(node, 2, 8) => DType::I4,
        _ => return None,
    };
    check::native_gate(own, "x", target).ok()?;
    if own == DType::I4 && !quantize::fills_bytes(x) {
        return None;
    }
    let fits = match how {
        Granularity::Tensor => true,
        Granularity::Axis(_) => constant,
        Granularity::Block(axis, block, dim) => {
            let blocks = scale.shape.get(*axis).and_then(Dim::known);
            // TensorRT finds the axis by where the dims differ.
            constant
                && *block > 1
                && axis + 2 >= x.rank()
                && blocks.and_then(|n| usize::try_from(n).ok()?.checked_mul(*block)) == Some(*dim)
        }
    };
    (fits && x.rank() > 0 && quantize::is_positive_constant(scale)).then_some(own)
}

impl Converter for DequantizeLinear {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("DequantizeLinear", 28), Key::of("com.microsoft", "DequantizeLinear", 1)],
        dtypes: ALLOWED,
        layers: "IDequantizeLayer, IElementWiseLayer",
        limits: "floats: zero point 0",
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
            Code::CONSTANT_VALUE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        Ok(shape::types([shape::typed(output_dtype(node), dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = quantised(node, target)?;
        let scale = quantize::scale(node, 1, "x_scale", target)?;
        let to = output_dtype(node).unwrap_or(scale.dtype);
        check::dtype_gate(to, "output_dtype", check::FLOATS, target)?;
        let how = quantize::granularity(node, &x, &scale, "x_scale")?;
        let layer = layer(node, &x, &scale, &how, target).filter(|_| scale.dtype == to);
        let zero_point = !quantize::zero_point_is_zero(node, 2);
        if zero_point {
            let constant = node.input(2).is_some_and(|zero| zero.constant().is_some());
            if x.dtype.is_float() && constant {
                let why = format!("a zero point of {} other than 0", x.dtype);
                return Err(Refusal::new(Code::CONSTANT_VALUE, why).slot("x_zero_point"));
            }
            if !constant {
                elementwise::gate(node, 2, "x_zero_point", &[x.dtype], target)?;
            }
        }
        Ok(Plan { how, rank: x.rank(), to, layer, zero_point })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        if let Some(y) = plan.layer.and_then(|dtype| by_layer(cx, &plan, dtype)) {
            return vec![y];
        }
        let mut y = quantize::in_f32(cx, 0);
        if plan.zero_point {
            let zero = quantize::spread(cx, 2, &plan.how, plan.rank);
            y = cx.elementwise(y, zero, ElementWiseOp::Sub);
        }
        let scale = quantize::spread(cx, 1, &plan.how, plan.rank);
        y = cx.elementwise(y, scale, ElementWiseOp::Prod);
        vec![cx.cast(y, plan.to)]
    }
}

/// Constant bytes in the layer's dtype: u8 − 128 and u4 − 8 flip the top bit of each element.
fn stored(constant: &Tensor) -> Option<bytes::Bytes> {
    let bytes = constant.bytes()?;
    let flip = match constant.dtype() {
        DType::U8 => 0x80,
        DType::U4 => 0x88,
        _ => return Some(bytes.clone()),
    };
    Some(bytes.iter().map(|b| b ^ flip).collect::<Vec<u8>>().into())
}

/// The layer, where x travels in its own dtype: a constant directly in front of it, or what another layer quantised.
fn by_layer(cx: &mut Emit<'_>, plan: &Plan, dtype: DType) -> Option<TensorId> {
    let constant = cx.node().input(0).and_then(|view| view.constant()).cloned();
    let x = match constant.as_ref().and_then(|c| Some((stored(c)?, c.dims().to_vec()))) {
        Some((bytes, dims)) => cx.constant(dtype, dims, bytes),
        None => cx.native(0)?,
    };
    let scale = cx.input(1);
    let (scale, axis) = match plan.how {
        Granularity::Tensor => (cx.reshape(scale, Vec::new()), None),
        Granularity::Axis(axis) => (scale, Some(axis as u32)),
        Granularity::Block(..) => (scale, None),
    };
    Some(cx.one(Layer::Dequantize { x, scale, axis, to: plan.to }))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    fn case(x: Tensor) -> Case {
        Case::new("DequantizeLinear", 28).input(x)
    }

    #[test]
    fn of_microsoft() {
        let case = |x| Case::of("com.microsoft", "DequantizeLinear", 1).input(x);
        case(i8s([2, 3], &[-128, -1, 0, 1, 2, 127]))
            .constant(f32s([], &[0.25]))
            .constant(i8s([], &[0]))
            .check(F32);
        let wide = case(of_dtype(DType::U16, [2, 3], &[0.0, 1.0, 300.0, 40_000.0, 65_535.0, 7.0]));
        let wide = wide.constant(f32s([3], &[0.25, 0.5, 2.0]));
        wide.constant(of_dtype(DType::U16, [3], &[0.0, 300.0, 40_000.0])).int("axis", 1).check(F32);
    }

    #[test]
    fn numbers() {
        let signed = i8s([2, 3], &[-128, -1, 0, 1, 2, 127]);
        let unsigned = u8s([2, 3], &[0, 1, 2, 128, 200, 255]);
        let by_layer = case(signed.clone()).constant(f32s([], &[0.25]));
        assert_eq!(by_layer.layers(), ["Shuffle", "Dequantize"]);
        by_layer.check(F32);
        by_layer.clone().constant(i8s([], &[0])).dynamic(0, ["N", "3"]).check(F32);
        by_layer.constant(i8s([], &[-3])).check(F32);
        let table = case(unsigned.clone()).constant(f32s([], &[0.5])).constant(u8s([], &[128]));
        table.check(F32);
        table.dynamic(0, ["N", "3"]).check(F32);
        let axis = case(signed.clone()).constant(f32s([3], &[0.5, 0.25, 2.0]));
        axis.clone().constant(i8s([3], &[0, 1, -1])).check(F32);
        axis.check(F32);
        case(signed.clone()).constant(f16s([2], &[0.5, 0.25])).int("axis", 0).check(F16);
        let weights =
            Case::new("DequantizeLinear", 28).constant(signed).constant(f32s([3], &[0.5, 0.25, 2.0]));
        weights.check(F32);
        let weights = Case::new("DequantizeLinear", 28).constant(unsigned).constant(f32s([], &[0.5]));
        weights.constant(u8s([], &[3])).check(F32);
        case(i32s([2], &[1000, -7])).constant(f32s([], &[0.5])).check(F32);
    }

    #[test]
    fn narrow() {
        // e4m3: 1.5, −2, 448, 2⁻⁹.
        let x = || f8s([2, 2], &[0x3c, 0xc0, 0x7e, 0x01]);
        let one = case(x()).constant(f32s([], &[0.25]));
        one.gives(F32, &[f32s([2, 2], &[0.375, -0.5, 112.0, 0.25 / 512.0])]);
        one.constant(f8s([], &[0])).layers();
        let weights = Case::new("DequantizeLinear", 28).constant(x()).constant(f32s([2], &[0.5, 2.0]));
        weights.int("axis", 0).gives(F32, &[f32s([2, 2], &[0.75, -1.0, 896.0, 2.0 / 512.0])]);
        // 4 bits, low nibble first.
        let packed = |dtype| Tensor::new(dtype, vec![2, 4], vec![0x10, 0xf7, 0x98, 0x80].into()).unwrap();
        let signed = [0.0, 1.0, 7.0, -1.0, -8.0, -7.0, 0.0, -8.0];
        let weights = |dtype| Case::new("DequantizeLinear", 28).constant(packed(dtype));
        let plain = weights(DType::I4).constant(f32s([], &[0.5]));
        assert_eq!(plain.layers(), ["Shuffle", "Dequantize"]);
        plain.gives(F32, &[f32s([2, 4], &signed.map(|v| v * 0.5))]);
        let blocks = f32s([2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let blocked = weights(DType::I4).constant(blocks).int("block_size", 2);
        assert_eq!(blocked.layers(), ["Dequantize"]);
        blocked.gives(F32, &[f32s([2, 4], &[0.0, 1.0, 14.0, -2.0, -24.0, -21.0, 0.0, -32.0])]);
        // Unsigned with 8 as zero point is signed with none; another one is computed.
        let zero = |v: u8| Tensor::new(DType::U4, vec![], vec![v].into()).unwrap();
        let unsigned = weights(DType::U4).constant(f32s([], &[1.0]));
        let centred = unsigned.clone().constant(zero(8));
        assert_eq!(centred.layers(), ["Shuffle", "Dequantize"]);
        centred.gives(F32, &[f32s([2, 4], &[-8.0, -7.0, -1.0, 7.0, 0.0, 1.0, -8.0, 0.0])]);
        unsigned.constant(zero(3)).gives(F32, &[f32s([2, 4], &[-3.0, -2.0, 4.0, 12.0, 5.0, 6.0, -3.0, 5.0])]);
    }

    #[test]
    fn an_odd_number_of_nibbles_is_computed() {
        let odd = Tensor::new(DType::I4, vec![3], vec![0x10, 0x0f].into()).unwrap();
        let case = Case::new("DequantizeLinear", 28).constant(odd).constant(f32s([], &[0.5]));
        assert!(!case.layers().contains(&"Dequantize"));
        case.gives(F32, &[f32s([3], &[0.0, 0.5, -0.5])]);
    }

    #[test]
    fn every_dtype() {
        for &dtype in super::ALLOWED {
            let x = || of_dtype(dtype, [2, 3], &[0.0, 1.0, -1.0, 2.0, -2.0, 3.0]);
            case(x()).constant(f32s([], &[0.3])).check(F32);
            case(x()).input(f16s([3], &[0.25, 2.0, 3.0])).dynamic(0, ["N", "3"]).check(F16);
            if dtype.is_int() && dtype != DType::I32 {
                let zero = of_dtype(dtype, [3], &[0.0, 1.0, -1.0]);
                case(x()).constant(f32s([3], &[0.5, 2.0, 3.0])).input(zero).check(F32);
            }
        }
        let extremes = case(of_dtype(DType::U16, [2], &[0.0, 65_535.0])).constant(f32s([], &[0.5]));
        extremes.constant(of_dtype(DType::U16, [], &[32_767.0])).check(F32);
    }

    #[test]
    fn weights_of_other_integers() {
        let byte = Case::new("DequantizeLinear", 28).constant(u8s([2, 2], &[0, 128, 200, 255]));
        let byte = byte.constant(f32s([2], &[0.5, 0.25])).constant(u8s([2], &[128; 2]));
        assert_eq!(byte.layers(), ["Dequantize"]);
        byte.check(F32);
        let wide = Case::new("DequantizeLinear", 28).constant(i16s([2, 2], &[-30_000, 1, 2, 32_000]));
        wide.constant(f32s([], &[0.5])).constant(i16s([], &[-5])).check(F32);
    }

    #[test]
    fn blocks() {
        let x = i8s([2, 5], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let case = case(x).constant(f32s([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        case.clone().int("block_size", 2).int("axis", 1).check(F32);
        let x = i8s([2, 4], &[1, 2, 3, 4, 5, 6, 7, 8]);
        let run = Case::new("DequantizeLinear", 28)
            .input(x.clone())
            .input(f32s([2, 2], &[1.0, 2.0, 3.0, 4.0]))
            .input(i8s([2, 2], &[1, 0, -1, 2]));
        run.int("block_size", 2).check(F32);
        let weights =
            Case::new("DequantizeLinear", 28).constant(x).constant(f32s([1, 4], &[1.0, 2.0, 3.0, 4.0]));
        let weights = weights.int("block_size", 2).int("axis", 0);
        assert_eq!(weights.layers(), ["Dequantize"]);
        weights.check(F32);
        let ones = Case::new("DequantizeLinear", 28).constant(i8s([2, 2], &[1, 2, 3, 4]));
        let ones = ones.constant(f32s([2, 2], &[1.0, 2.0, 3.0, 4.0]));
        ones.int("block_size", 1).int("axis", 1).check(F32);
        case.dynamic(0, ["2", "N"]).int("block_size", 2).int("axis", 1).refused(Code::DIM_UNKNOWN);
    }

    #[test]
    fn types() {
        assert_eq!(case(i8s([1], &[1])).constant(f16s([], &[1.0])).types(), ["f16[1]"]);
        let wide = case(i8s([1], &[1])).constant(f16s([], &[1.0])).int("output_dtype", 1);
        assert_eq!(wide.types(), ["f32[1]"]);
        wide.check(F32);
    }

    #[test]
    fn refusals() {
        let scale = || f32s([], &[1.0]);
        case(f64s([1], &[1.0])).constant(scale()).refused(Code::DTYPE_UNREPRESENTABLE);
        case(bools([1], &[true])).constant(scale()).refused(Code::DTYPE_KERNEL);
        case(f8s([2], &[0, 1])).constant(scale()).constant(f8s([], &[1])).refused(Code::CONSTANT_VALUE);
        case(f8s([2], &[0, 1])).constant(scale()).input(f8s([], &[0])).check(F32);
        case(i8s([1], &[1])).untyped(0).constant(scale()).refused(Code::DTYPE_UNKNOWN);
        case(i8s([1], &[1])).unranked(0).constant(scale()).refused(Code::RANK_UNKNOWN);
        case(i8s([1], &[1])).dynamic(0, ["1"; 9]).constant(scale()).refused(Code::RANK);
        case(i8s([1], &[1])).dynamic(0, ["0"]).constant(scale()).refused(Code::SHAPE);
        let narrow = case(i8s([1], &[1])).constant(bf16s([], &[1.0])).target("rtx-1.7:sm75");
        narrow.refused(Code::COMPUTE_CAPABILITY);
        case(i8s([1], &[1])).refused(Code::INVALID);
        let blocks = case(i8s([1, 2], &[1, 2])).input(f32s([1, 2], &[1.0, 2.0]));
        blocks.refused(Code::INVALID);
    }
}

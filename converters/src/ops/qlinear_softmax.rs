//! QLinearSoftmax (com.microsoft): softmax over quantised numbers with a quantised result.
//!
//! x [d0..dn] T, x_scale [] f32, (x_zero_point [] T), y_scale [] f32, (y_zero_point [] T)  ->  y [d0..dn] T
//! Opsets: 1.     TensorRT: IGatherLayer from a table of powers of e, IReduceLayer, IElementWiseLayer, IUnaryLayer.
//! Limits: u8, i8; x_scale constant. As ONNX Runtime: the powers are made in f64 and scaled so that their sums are large in f32,
//! and 1 / y_scale is a whole number, rounded down.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, floats, integers, quantize, quantize::Quantised, shape},
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, GatherMode, ReduceOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct QLinearSoftmax;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    /// e to the power of (k − 255) · scale, for k from 0 to 255, all scaled alike.
    table: Vec<f64>,
    axes: Vec<u32>,
    rank: usize,
    to: DType,
}

/// Terms of a sum of unknown length.
const MOST_TERMS: f64 = 2_147_483_648.0;

impl Converter for QLinearSoftmax {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "QLinearSoftmax", 1)],
        dtypes: integers::BYTES,
        layers: "IGatherLayer, IReduceLayer, IElementWiseLayer, IUnaryLayer",
        limits: "x_scale constant",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::INVALID,
            Code::NOT_CONSTANT,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        Ok(shape::types([shape::typed(shape::dtype_of(node, 0), dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = Quantised::at(0).gate(node, target)?;
        check::never_empty(&x, "x")?;
        quantize::numbers(node, (3, 4), x.dtype, target)?;
        let rank = x.rank();
        // Before opset 13 of ai.onnx everything behind the axis is one row.
        let rows = node.int("opset", 0) < 13;
        let axis = check::axis(node.int("axis", if rows { 1 } else { -1 }), rank, "axis")?;
        let axes = axis..if rows { rank } else { axis + 1 };
        let scale = check::constant(node, 1, "x_scale")?.to_f64s();
        let scale = scale.and_then(|list| list.first().copied()).filter(|&scale| scale > 0.0);
        let scale = scale.ok_or_else(|| Refusal::new(Code::INVALID, "no positive number").slot("x_scale"))?;
        let known = |product: f64, dim: &Dim| Some(product * dim.known()? as f64);
        let terms = x.shape[axes.clone()].iter().try_fold(1.0, known).unwrap_or(MOST_TERMS);
        let room = f64::from((f64::from(f32::MAX) / terms) as f32).ln() - 5.0;
        let shift = room.max(0.0) / scale;
        let power = |k: i32| f64::from(((f64::from(k - 255) + shift) * scale).exp() as f32);
        let table = (0..256).map(power).collect();
        Ok(Plan { table, axes: axes.map(|axis| axis as u32).collect(), rank, to: x.dtype })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let rank = plan.rank;
        let x = cx.input(0);
        let reduce = |x, op| Layer::Reduce { x, op, axes: plan.axes.clone(), keep_dims: true };
        let greatest = cx.one(reduce(x, ReduceOp::Max));
        let below = cx.elementwise(x, greatest, ElementWiseOp::Sub);
        let last = elementwise::scalar_like(cx, below, 255.0);
        let indices = cx.elementwise(below, last, ElementWiseOp::Sum);
        let data = floats::constant(cx, DType::F32, vec![256], &plan.table);
        let mode = GatherMode::Default;
        let powers = cx.one(Layer::Gather { data, indices, axis: 0, mode, batch_dims: 0 });
        let sum = cx.one(reduce(powers, ReduceOp::Sum));
        let one = cx.scalar(DType::F32, rank, 1.0);
        let y_scale = quantize::number(cx, 3, rank);
        let levels = cx.elementwise(one, y_scale, ElementWiseOp::Div);
        let levels = cx.unary(levels, UnaryOp::Floor);
        let scaled = cx.elementwise(powers, levels, ElementWiseOp::Prod);
        let quotient = cx.elementwise(scaled, sum, ElementWiseOp::Div);
        let zero = quantize::zero_point(cx, 4, rank);
        let y = integers::quantized(cx, quotient, zero, plan.to);
        vec![cx.cast(y, carrier(plan.to))]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    fn levels<const R: usize>(dtype: DType, dims: [i64; R]) -> Tensor {
        let least = if dtype == DType::I8 { -128.0 } else { 0.0 };
        let n = dims.iter().product::<i64>() as usize;
        let list: Vec<f64> = values(n).iter().map(|v| least + (f64::from(v + 2.0) * 63.9).floor()).collect();
        of_dtype(dtype, dims, &list)
    }

    fn case(x: Tensor, scale: f32) -> Case {
        let dtype = x.dtype();
        let case = Case::of("com.microsoft", "QLinearSoftmax", 1).input(x).constant(f32s([], &[scale]));
        case.constant(of_dtype(dtype, [], &[9.0])).constant(f32s([], &[1.0 / 256.0]))
    }

    #[test]
    fn numbers() {
        for dtype in [DType::U8, DType::I8] {
            let zero = of_dtype(dtype, [], &[if dtype == DType::I8 { -128.0 } else { 0.0 }]);
            for scale in [0.003, 0.05, 0.31] {
                let last = case(levels(dtype, [40, 25]), scale).constant(zero.clone()).int("opset", 13);
                last.check(Tolerance::Exact);
                last.clone().dynamic(0, ["N", "25"]).check(Tolerance::Exact);
                last.clone().dynamic(0, ["40", "N"]).check(Tolerance::Exact);
                let image = case(levels(dtype, [3, 7, 4, 5]), scale).constant(zero.clone());
                image.clone().int("opset", 13).int("axis", 1).check(Tolerance::Exact);
                image.int("opset", 12).int("axis", 2).check(Tolerance::Exact);
            }
            // Every level beside the greatest.
            let all: Vec<f64> =
                (0..256).map(f64::from).map(|v| if dtype == DType::I8 { v - 128.0 } else { v }).collect();
            case(of_dtype(dtype, [1, 256], &all), 0.02)
                .constant(zero)
                .int("opset", 13)
                .check(Tolerance::Exact);
        }
    }

    #[test]
    fn types() {
        let case = case(u8s([1, 2, 4, 4], &[7; 32]), 0.1).int("opset", 13);
        assert_eq!(case.types(), ["u8[1 x 2 x 4 x 4]"]);
    }

    #[test]
    fn refusals() {
        let x = || u8s([1, 2], &[7; 2]);
        let of = |x: Tensor| {
            let case = Case::of("com.microsoft", "QLinearSoftmax", 1).input(x).constant(f32s([], &[0.1]));
            case.absent().constant(f32s([], &[0.1])).int("opset", 13)
        };
        of(f64s([1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        of(f32s([1], &[1.0])).refused(Code::DTYPE_KERNEL);
        of(x()).untyped(0).refused(Code::DTYPE_UNKNOWN);
        of(x()).unranked(0).refused(Code::RANK_UNKNOWN);
        of(x()).dynamic(0, ["1"; 9]).refused(Code::RANK);
        of(x()).dynamic(0, ["0", "2"]).refused(Code::SHAPE);
        Case::of("com.microsoft", "QLinearSoftmax", 1).input(x()).refused(Code::INVALID);
        let run = Case::of("com.microsoft", "QLinearSoftmax", 1).input(x()).input(f32s([], &[0.1]));
        run.absent().constant(f32s([], &[0.1])).int("opset", 13).refused(Code::NOT_CONSTANT);
    }
}

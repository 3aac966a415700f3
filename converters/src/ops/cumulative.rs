//! CumSum, CumProd: running sum or product along an axis.
//!
//! x [d0..dn] T, axis [] i64  ->  y [d0..dn] T
//! Opsets: CumSum 11; 14 f16, bf16; CumProd 26.
//! TensorRT: ICumulativeLayer; CumProd: log₂(length) products with the tensor moved by 1, 2, 4, … (ISliceLayer).
//! Limits: f32, f16, bf16, i32, i64; rank at least 1; CumProd: the axis's length known. f16 and bf16 run in f32; not empty.
//! With an axis that only the run knows the sums along every axis are computed, and it picks.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        axes, check, elementwise,
        extent::{self, ExtentPlan},
        shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{CumulativeOp, ElementWiseOp, Extent, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct Cumulative;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    /// Axes to compute along; the run picks one when they are several.
    along: Vec<Along>,
    /// Whether the axis is an input.
    picked: bool,
    exclusive: bool,
    reverse: bool,
    dtype: DType,
}

/// One axis.
#[derive(Debug)]
struct Along {
    axis: usize,
    /// Length of the axis and all dims, for the product.
    product: Option<(i64, ExtentPlan)>,
}

impl Converter for Cumulative {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("CumSum", 14), Key::onnx("CumProd", 26)],
        dtypes: check::NUMBERS,
        layers: "ICumulativeLayer, ISliceLayer",
        limits: "CumProd: the axis's length known",
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
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let ty = shape::same_as_input(node, 0);
        let axis = node.input(1).and_then(|view| view.const_i64s());
        if let (Some(dims), Some([axis])) = (ty.shape(), axis.as_deref()) {
            shape::axis(*axis, dims.len()).map_err(|diag| diag.slot("axis"))?;
        }
        Ok(shape::types([ty]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "x", check::NUMBERS, target)?;
        check::never_empty(&x, "x")?;
        let one = || Refusal::new(Code::INVALID, "one axis is needed").slot("axis");
        let view = check::operand(node, 1, "axis", &[DType::I32, DType::I64], target)?;
        let picked = view.view.constant().is_none();
        let list: Vec<usize> = if picked {
            if x.rank() == 0 || !matches!(view.shape, [] | [Dim::Known(1)]) {
                return Err(one());
            }
            (0..x.rank()).collect()
        } else {
            match check::constant_i64s(node, 1, "axis")?.as_slice() {
                [axis] => vec![check::axis(*axis, x.rank(), "axis")?],
                _ => return Err(one()),
            }
        };
        let along = |axis: usize| {
            let product = match node.op() {
                "CumProd" => {
                    let length = x.shape[axis].known().ok_or_else(|| {
                        let why = format!("the length of axis {axis} is known only at run time");
                        Refusal::new(Code::DIM_UNKNOWN, why).slot("x")
                    })?;
                    Some((length, extent::plan_extent(node, x.shape, None)?))
                }
                _ => None,
            };
            Ok(Along { axis, product })
        };
        let along = list.into_iter().map(along).collect::<Result<_, Refusal>>()?;
        let flag = |name| node.int(name, 0) != 0;
        Ok(Plan { along, picked, exclusive: flag("exclusive"), reverse: flag("reverse"), dtype: x.dtype })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let x = if plan.dtype.is_float() { cx.cast(x, DType::F32) } else { x };
        let rank = cx.rank(x);
        let mut result: Option<TensorId> = None;
        for along in &plan.along {
            let y = match &along.product {
                None => {
                    let axis = cx.scalar(DType::I64, 0, along.axis as f64);
                    let (exclusive, reverse) = (plan.exclusive, plan.reverse);
                    cx.one(Layer::Cumulative { x, axis, op: CumulativeOp::Sum, exclusive, reverse })
                }
                Some((length, dims)) => {
                    let size = cx.extent(dims);
                    running_product(cx, x, &plan, along.axis, *length, &size)
                }
            };
            result = Some(match result {
                Some(other) if plan.picked => {
                    let condition = axes::named(cx, 1, along.axis, rank);
                    let condition = cx.reshape(condition, vec![1; rank]);
                    cx.one(Layer::Select { condition, then_input: y, else_input: other })
                }
                _ => y,
            });
        }
        let Some(y) = result else { return Outputs::new() };
        vec![cx.cast(y, plan.dtype)]
    }
}

/// y[k] = x[0] · … · x[k]: after the step of distance s each element holds the product of the 2s before it, itself included.
fn running_product(
    cx: &mut Emit<'_>,
    x: TensorId,
    plan: &Plan,
    axis: usize,
    length: i64,
    size: &Extent,
) -> TensorId {
    let rank = cx.rank(x);
    let dtype = cx.dtype(x);
    let fill = cx.scalar(dtype, 0, 1.0);
    let moved = |cx: &mut Emit<'_>, x: TensorId, by: i64| {
        let mut start = vec![0; rank];
        if let Some(at) = start.get_mut(axis) {
            *at = if plan.reverse { by } else { -by };
        }
        let (start, stride) = (Extent::Static(start), Extent::Static(vec![1; rank]));
        cx.one(Layer::Slice {
            x,
            start,
            size: size.clone(),
            stride,
            mode: SampleMode::Fill,
            fill: Some(fill),
        })
    };
    let mut y = if plan.exclusive { moved(cx, x, 1) } else { x };
    let mut distance = 1;
    while distance < length {
        let other = moved(cx, y, distance);
        y = cx.elementwise(y, other, ElementWiseOp::Prod);
        distance = distance.saturating_mul(2);
    }
    y
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    const VALUES: [f64; 10] = [1.0, 3.0, 2.0, 0.5, -4.0, 2.0, 8.0, 0.25, -1.0, 1.0];

    #[test]
    fn sums() {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64] {
            let case = Case::new("CumSum", 14).input(of_dtype(dtype, [2, 5], &VALUES));
            let case = |axis| case.clone().constant(Tensor::scalar_i64(axis));
            case(1).check(near(dtype));
            case(0).int("exclusive", 1).check(near(dtype));
            case(-1).int("reverse", 1).dynamic(0, ["N", "M"]).check(near(dtype));
            case(-1).int("reverse", 1).int("exclusive", 1).check(near(dtype));
        }
        let line = Case::new("CumSum", 14).input(f32s([3], &[1.0, 2.0, 3.0])).constant(i32s([], &[0]));
        line.check(F32);
        for axis in [0, 1, -1, -2] {
            let open = Case::new("CumSum", 14).input(of_dtype(DType::I32, [2, 5], &VALUES));
            open.input(i32s([], &[axis])).dynamic(0, ["N", "M"]).check(Tolerance::Exact);
        }
    }

    #[test]
    fn products() {
        for dtype in [DType::F32, DType::F16, DType::I32, DType::I64] {
            let x = of_dtype(dtype, [1, 5], &[1.0, 2.0, -3.0, 4.0, 2.0]);
            let case = Case::new("CumProd", 26).input(x).constant(Tensor::scalar_i64(1));
            let gives =
                |case: &Case, values: &[f64]| case.gives(near(dtype), &[of_dtype(dtype, [1, 5], values)]);
            gives(&case, &[1.0, 2.0, -6.0, -24.0, -48.0]);
            gives(&case.clone().int("exclusive", 1), &[1.0, 1.0, 2.0, -6.0, -24.0]);
            gives(&case.clone().int("reverse", 1), &[-48.0, -48.0, -24.0, 8.0, 2.0]);
            let both = case.int("reverse", 1).int("exclusive", 1);
            gives(&both.dynamic(0, ["N", "5"]), &[-48.0, -24.0, 8.0, 2.0, 1.0]);
            let x = of_dtype(dtype, [1, 5], &[1.0, 2.0, -3.0, 4.0, 2.0]);
            let open = Case::new("CumProd", 26).input(x).input(i32s([1], &[-1]));
            gives(&open, &[1.0, 2.0, -6.0, -24.0, -48.0]);
        }
    }

    #[test]
    fn types() {
        let case = Case::new("CumSum", 14).input(f32s([2], &[0.0; 2])).constant(Tensor::scalar_i64(1));
        assert_eq!(case.invalid(), "axis 1 is out of range for rank 1");
    }

    #[test]
    fn refusals() {
        for (op, since) in [("CumSum", 14), ("CumProd", 26)] {
            let case = Case::new(op, since).input(f32s([1], &[1.0]));
            case.clone().constant(Tensor::scalar_i64(0)).gates(bools([1], &[true]));
            case.clone().input(i64s([2], &[0, 0])).refused(Code::INVALID);
            case.constant(i64s([2], &[0, 0])).refused(Code::INVALID);
        }
        let product = Case::new("CumProd", 26).input(f32s([1], &[1.0])).constant(Tensor::scalar_i64(0));
        product.dynamic(0, ["N"]).refused(Code::DIM_UNKNOWN);
    }
}

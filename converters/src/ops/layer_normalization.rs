//! LayerNormalization: over the axes from `axis` on.
//!
//! X [d0..dn] T, Scale, B [broadcasts to X] T  ->  Y [d0..dn] T, Mean, InvStdDev [d0..d(axis-1), 1..] U
//! Opsets: 17.     TensorRT: INormalizationLayer; the other outputs by IReduceLayer.
//! Limits: none.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, floats, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, ReduceOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct LayerNormalization;

/// Axes, ε, whether the layer does it, and which outputs are wanted besides.
#[derive(Debug)]
pub struct Plan {
    axes: Vec<u32>,
    epsilon: f32,
    /// Dims of the scale with leading ones, when they are known and TensorRT's layer takes them.
    layer: bool,
    statistics: bool,
    /// Dtype of Mean and InvStdDev.
    stash: DType,
}

/// Dtype of the statistics; f32 unless `stash_type` says otherwise.
fn stash(node: NodeView<'_>) -> Option<DType> {
    i32::try_from(node.int("stash_type", 1)).ok().and_then(DType::from_onnx)
}

impl Converter for LayerNormalization {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("LayerNormalization", 17)],
        dtypes: check::FLOATS,
        layers: "INormalizationLayer, IReduceLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let y = shape::same_as_input(node, 0);
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            let statistics = shape::typed(stash(node), None);
            return Ok(shape::types([y, statistics.clone(), statistics]));
        };
        let axis = shape::axis(node.int("axis", -1), x.len()).map_err(|diag| diag.slot("axis"))?;
        for slot in [1, 2] {
            shape::demand_fits(node, slot, &x[axis..], cx)?;
        }
        let mut dims = x.to_vec();
        dims[axis..].fill(Dim::Known(1));
        let statistics = shape::typed(stash(node), Some(dims));
        Ok(shape::types([y, statistics.clone(), statistics]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        let axis = check::axis(node.int("axis", -1), x.rank(), "axis")?;
        let stash = stash(node).filter(|dtype| check::FLOATS.contains(dtype)).ok_or_else(|| {
            Refusal::new(Code::ATTRIBUTE, "statistics in a dtype that TensorRT does not compute in")
                .slot("stash_type")
        })?;
        // The layer wants scale and bias of the normalised axes, as they are in the input.
        let fits = |shape: &[Dim]| {
            let known = |k: usize| shape[k].known().is_some() && shape[k] == x.shape[axis + k];
            shape.len() == x.rank() - axis && (0..shape.len()).all(known)
        };
        // It also wants a bias, which is then written out.
        let count = dims::product(&x.shape[axis..]).known();
        let mut layer = node.input(2).is_some() || count.is_some_and(|count| count <= 1 << 22);
        for (slot, name) in [(1, "Scale"), (2, "B")] {
            if slot == 1 || node.input(slot).is_some() {
                let parameter = check::operand(node, slot, name, &[x.dtype], target)?;
                check::never_empty(&parameter, name)?;
                layer &= fits(parameter.shape);
                if parameter.rank() > x.rank() {
                    return Err(Refusal::new(Code::SHAPE, "a rank above the input's").slot(name));
                }
            }
        }
        Ok(Plan {
            axes: (axis as u32..x.rank() as u32).collect(),
            epsilon: node.float("epsilon", 1e-5),
            layer,
            statistics: node.output(1).is_some() || node.output(2).is_some(),
            stash,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let (dtype, rank) = (cx.dtype(x), cx.rank(x));
        let scale = cx.input(1);
        let bias = cx.optional(2);
        if plan.layer && !plan.statistics {
            let dims = cx.dims(scale).to_vec();
            let count = dims.iter().product::<i64>().max(0) as usize;
            let bias = match bias {
                Some(bias) => bias,
                None => floats::constant(cx, dtype, dims, &vec![0.0; count]),
            };
            let (scale, bias) = (cx.with_rank(scale, rank), cx.with_rank(bias, rank));
            let (axes, epsilon) = (plan.axes, plan.epsilon);
            return vec![cx.one(Layer::Normalization { x, scale, bias, axes, epsilon, groups: 1 })];
        }
        let wide = floats::widened(cx, x);
        let mean = average(cx, wide, &plan.axes);
        let centred = cx.elementwise(wide, mean, ElementWiseOp::Sub);
        let squares = cx.elementwise(centred, centred, ElementWiseOp::Prod);
        let variance = average(cx, squares, &plan.axes);
        let epsilon = cx.scalar(DType::F32, rank, f64::from(plan.epsilon));
        let variance = cx.elementwise(variance, epsilon, ElementWiseOp::Sum);
        let deviation = cx.unary(variance, UnaryOp::Sqrt);
        let inverse = cx.unary(deviation, UnaryOp::Recip);
        let normal = cx.elementwise(centred, inverse, ElementWiseOp::Prod);
        let mut parameter = |p: TensorId| {
            let p = floats::widened(cx, p);
            cx.with_rank(p, rank)
        };
        let (scale, bias) = (parameter(scale), bias.map(&mut parameter));
        let mut y = cx.elementwise(normal, scale, ElementWiseOp::Prod);
        if let Some(bias) = bias {
            y = cx.elementwise(y, bias, ElementWiseOp::Sum);
        }
        vec![cx.cast(y, dtype), cx.cast(mean, plan.stash), cx.cast(inverse, plan.stash)]
    }
}

fn average(cx: &mut Emit<'_>, x: TensorId, axes: &[u32]) -> TensorId {
    cx.one(Layer::Reduce { x, op: ReduceOp::Avg, axes: axes.to_vec(), keep_dims: true })
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn case(axis: i64, scale: trtc_ir::Tensor) -> Case {
        Case::new("LayerNormalization", 17).input(noise([2, 3, 4])).constant(scale).int("axis", axis)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("LayerNormalization", 17).input(x(&[2, 2])).input(x(&[2])));
        case(-1, noise([4])).int("stash_type", 11).refused(Code::ATTRIBUTE);
        case(-1, noise([4])).dynamic(0, ["2", "0", "4"]).refused(Code::SHAPE);
        case(-1, noise([1, 1, 1, 4])).refused(Code::SHAPE);
        Case::new("LayerNormalization", 17).input(noise([2, 3])).refused(Code::INVALID);
    }

    #[test]
    fn types() {
        let types = case(1, noise([3, 4])).outputs(3).dynamic(0, ["N", "3", "4"]).types();
        assert_eq!(types, ["f32[N x 3 x 4]", "f32[N x 1 x 1]", "f32[N x 1 x 1]"]);
        assert!(case(3, noise([4])).invalid().contains("out of range"));
        assert_eq!(case(1, noise([1, 4])).dynamic(0, ["2", "M", "D"]).equalities(), ["4 = D"]);
    }

    #[test]
    fn numbers() {
        case(-1, noise([4])).check(F32);
        case(-1, noise([4])).constant(noise([4])).dynamic(0, ["N", "M", "4"]).check(F32);
        case(1, noise([3, 4])).constant(noise([3, 4])).float("epsilon", 0.1).check(F32);
        case(1, noise([4])).check(F32);
        case(-2, noise([3, 4])).constant(noise([3, 4])).outputs(3).dynamic(0, ["N", "3", "4"]).check(F32);
        let open =
            Case::new("LayerNormalization", 17).input(noise([2, 4])).input(noise([4])).input(noise([4]));
        open.check(F32);
        Case::new("LayerNormalization", 17).input(noise16([2, 4])).input(noise16([4])).check(F16);
    }

    #[test]
    fn gates() {
        let nine = Case::new("LayerNormalization", 17).input(noise([1; 9])).input(noise([1]));
        nine.refused(Code::RANK);
    }
}

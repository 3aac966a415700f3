//! RMSNormalization, MeanVarianceNormalization, LpNormalization: by what the elements along axes come to.
//!
//! RMS: X [d0..dn] T, scale T -> Y [d0..dn] T        MeanVariance, Lp: X [d0..dn] T -> Y [d0..dn] T
//! Opsets: RMS 23; MeanVariance 9, 13; Lp 1, 22.     TensorRT: IReduceLayer, IElementWiseLayer.
//! Limits: none. f16 and bf16 are added up in f32.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, floats, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, ReduceOp, UnaryOp},
};

/// The converter of the three.
#[derive(Debug)]
pub struct RmsNormalization;

/// What the elements are divided by.
#[derive(Debug)]
pub struct Plan {
    kind: Kind,
    axes: Vec<u32>,
}

#[derive(Debug)]
enum Kind {
    /// √(mean x² + ε), in this dtype, then a scale.
    Rms(f32, DType),
    /// Standard deviation, of what the mean leaves.
    MeanVariance,
    /// Σ|x| or √Σx².
    Lp(i64),
}

/// Added to the standard deviation: the function body of the schema.
const SMALL: f64 = 1e-9;

fn axes(node: NodeView<'_>, rank: usize) -> Result<Vec<u32>, Diag> {
    let list = match node.op() {
        "RMSNormalization" => {
            let first = shape::axis(node.int("axis", -1), rank).map_err(|diag| diag.slot("axis"))?;
            return Ok((first as u32..rank as u32).collect());
        }
        "LpNormalization" => vec![node.int("axis", -1)],
        _ => node.attrs().ints("axes").map_or(vec![0, 2, 3], <[i64]>::to_vec),
    };
    Ok(shape::axes(&list, rank)
        .map_err(|diag| diag.slot("axes"))?
        .into_iter()
        .map(|axis| axis as u32)
        .collect())
}

impl Converter for RmsNormalization {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("RMSNormalization", 23),
            Key::onnx("MeanVarianceNormalization", 13),
            Key::onnx("LpNormalization", 22),
        ],
        dtypes: check::FLOATS,
        layers: "IReduceLayer, IElementWiseLayer",
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
        if let Some(rank) = node.input(0).and_then(|x| x.rank()) {
            axes(node, rank)?;
        }
        if let ("RMSNormalization", Some(x)) = (node.op(), node.input(0).and_then(|x| x.shape())) {
            shape::demand_fits(node, 1, x, cx)?;
        }
        let y =
            shape::typed(shape::dtype_of(node, 0), node.input(0).and_then(|x| x.shape()).map(<[_]>::to_vec));
        Ok(shape::types([y]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        let axes = axes(node, x.rank()).map_err(crate::ctx::window::refused)?;
        let kind = match node.op() {
            "RMSNormalization" => {
                let scale = check::operand(node, 1, "scale", &[x.dtype], target)?;
                if scale.rank() > x.rank() {
                    return Err(Refusal::new(Code::SHAPE, "a rank above the input's").slot("scale"));
                }
                let stash = i32::try_from(node.int("stash_type", 1)).ok().and_then(DType::from_onnx);
                let stash = stash.filter(|dtype| check::FLOATS.contains(dtype)).ok_or_else(|| {
                    Refusal::new(Code::ATTRIBUTE, "a dtype that TensorRT does not compute in")
                        .slot("stash_type")
                })?;
                Kind::Rms(node.float("epsilon", 1e-5), stash)
            }
            "LpNormalization" => match node.int("p", 2) {
                p @ (1 | 2) => Kind::Lp(p),
                p => return Err(Refusal::new(Code::ATTRIBUTE, format!("a norm of order {p}")).slot("p")),
            },
            _ => Kind::MeanVariance,
        };
        Ok(Plan { kind, axes })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let (dtype, rank) = (cx.dtype(x), cx.rank(x));
        let wide = floats::widened(cx, x);
        let reduce = |cx: &mut Emit<'_>, x: TensorId, op: ReduceOp| {
            cx.one(Layer::Reduce { x, op, axes: plan.axes.clone(), keep_dims: true })
        };
        let y = match plan.kind {
            Kind::Rms(epsilon, stash) => {
                let wide = if stash == DType::F32 { wide } else { cx.cast(x, stash) };
                let squares = cx.elementwise(wide, wide, ElementWiseOp::Prod);
                let mean = reduce(cx, squares, ReduceOp::Avg);
                let epsilon = cx.scalar(stash, rank, f64::from(epsilon));
                let sum = cx.elementwise(mean, epsilon, ElementWiseOp::Sum);
                let root = cx.unary(sum, UnaryOp::Sqrt);
                let normal = cx.elementwise(wide, root, ElementWiseOp::Div);
                let normal = cx.cast(normal, dtype);
                let scale = cx.input(1);
                let scale = cx.with_rank(scale, rank);
                return vec![cx.elementwise(normal, scale, ElementWiseOp::Prod)];
            }
            Kind::MeanVariance => {
                let mean = reduce(cx, wide, ReduceOp::Avg);
                let centred = cx.elementwise(wide, mean, ElementWiseOp::Sub);
                let squares = cx.elementwise(centred, centred, ElementWiseOp::Prod);
                let variance = reduce(cx, squares, ReduceOp::Avg);
                let deviation = cx.unary(variance, UnaryOp::Sqrt);
                let small = cx.scalar(DType::F32, rank, SMALL);
                let deviation = cx.elementwise(deviation, small, ElementWiseOp::Sum);
                cx.elementwise(centred, deviation, ElementWiseOp::Div)
            }
            Kind::Lp(p) => {
                let norm = floats::norm(cx, wide, p, plan.axes.clone());
                // All zeros stay zeros.
                let (zero, one) = (cx.scalar(DType::F32, rank, 0.0), cx.scalar(DType::F32, rank, 1.0));
                let condition = cx.elementwise(norm, zero, ElementWiseOp::Equal);
                let norm = cx.one(Layer::Select { condition, then_input: one, else_input: norm });
                cx.elementwise(wide, norm, ElementWiseOp::Div)
            }
        };
        vec![cx.cast(y, dtype)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::Tensor;

    fn rms(x: Tensor, scale: Tensor) -> Case {
        Case::new("RMSNormalization", 23).input(x).constant(scale)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("RMSNormalization", 23).input(x(&[2])).input(x(&[2])));
        for op in ["MeanVarianceNormalization", "LpNormalization"] {
            let since = if op == "LpNormalization" { 22 } else { 13 };
            refused_dtypes(|x| Case::new(op, since).input(x(&[2, 2, 2, 2])));
            Case::new(op, since).absent().refused(Code::INVALID);
            Case::new(op, since).input(noise([1; 9])).refused(Code::RANK);
        }
        rms(noise([2, 3]), noise([3])).dynamic(0, ["0", "3"]).refused(Code::SHAPE);
        rms(noise([2, 3]), noise([1, 1, 3])).refused(Code::SHAPE);
        rms(noise([2, 3]), noise([3])).int("stash_type", 11).refused(Code::ATTRIBUTE);
        Case::new("LpNormalization", 22).input(noise([2, 3])).int("p", 3).refused(Code::ATTRIBUTE);
    }

    #[test]
    fn numbers() {
        assert_eq!(rms(noise([2, 3]), noise([3])).dynamic(0, ["N", "3"]).types(), ["f32[N x 3]"]);
        assert_eq!(rms(noise([2, 3]), noise([3])).dynamic(0, ["2", "D"]).equalities(), ["3 = D"]);
        rms(noise([2, 3, 4]), noise([4])).check(F32);
        rms(noise([2, 3, 4]), noise([3, 4])).int("axis", 1).float("epsilon", 0.1).check(F32);
        rms(noise([2, 4]), noise([4])).dynamic(0, ["N", "4"]).check(F32);
        rms(noise16([2, 4]), noise16([4])).check(F16);
        let mvn = |x| Case::new("MeanVarianceNormalization", 13).input(x);
        mvn(noise([2, 3, 4, 2])).dynamic(0, ["N", "3", "H", "W"]).check(F32);
        mvn(noise([2, 3, 4])).ints("axes", &[1]).check(F32);
        for p in [1, 2] {
            let lp = |x| Case::new("LpNormalization", 22).input(x).int("p", p);
            lp(noise([2, 3])).check(F32);
            lp(noise([2, 3])).int("axis", 0).dynamic(0, ["N", "M"]).check(F32);
            lp(f32s([2, 2], &[0.0, 0.0, 1.0, -2.0])).check(F32);
        }
        assert!(rms(noise([2]), noise([2])).int("axis", 1).invalid().contains("out of range"));
        assert!(mvn(noise([2, 3])).invalid().contains("out of range"));
    }
}

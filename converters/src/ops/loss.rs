//! SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss.
//!
//! x [n, c, d1..dk] T, target [n, d1..dk] i32 | i64, (weight [c] T)
//!   ->  loss [n, d1..dk] | [] T, (SoftmaxCrossEntropyLoss: log_prob [n, c, d1..dk] T)
//! Opsets: 12; 13 bf16; 22.
//! TensorRT: IElementWiseLayer, ISelectLayer, IReduceLayer, in f32: the class is picked by comparison.
//! Limits: f32, f16, bf16; rank ≥ 2; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, first, floats, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, ReduceOp, UnaryOp},
};

/// The converters.
#[derive(Debug)]
pub struct Loss;

/// How the losses are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduction {
    None,
    Sum,
    Mean,
}

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    softmax: bool,
    reduction: Reduction,
    ignored: Option<i64>,
    dtype: DType,
}

impl Converter for Loss {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("SoftmaxCrossEntropyLoss", 13), Key::onnx("NegativeLogLikelihoodLoss", 22)],
        dtypes: check::FLOATS,
        layers: "IElementWiseLayer, ISelectLayer, IReduceLayer",
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

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let x = shape::same_as_input(node, 0);
        let loss = match node.str("reduction", "mean") {
            "none" => match x.shape() {
                Some([n, _, rest @ ..]) => Some([std::slice::from_ref(n), rest].concat()),
                Some(_) => return Err(Diag::invalid("a rank below 2").slot("scores")),
                None => node.input(1).and_then(|target| target.shape()).map(<[Dim]>::to_vec),
            },
            _ => Some(Vec::new()),
        };
        if let Some([n, classes, rest @ ..]) = x.shape() {
            shape::demand(node, (2, 0), classes, cx)?;
            for (axis, dim) in std::iter::once(n).chain(rest).enumerate() {
                shape::demand(node, (1, axis), dim, cx)?;
            }
        }
        let loss = shape::typed(x.dtype(), loss);
        Ok(shape::types(match node.op() {
            "SoftmaxCrossEntropyLoss" => vec![loss, x],
            _ => vec![loss],
        }))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "scores", check::FLOATS, target)?;
        check::never_empty(&x, "scores")?;
        let labels = elementwise::gate(node, 1, "labels", &[DType::I32, DType::I64], target)?;
        if x.rank() < 2 || labels.rank() + 1 != x.rank() {
            let why = format!("labels of rank {} for scores of rank {}", labels.rank(), x.rank());
            return Err(Refusal::new(Code::RANK, why).slot("labels"));
        }
        if node.input(2).is_some() {
            elementwise::gate(node, 2, "weights", &[x.dtype], target)?;
        }
        let reduction = match node.str("reduction", "mean") {
            "none" => Reduction::None,
            "sum" => Reduction::Sum,
            "mean" => Reduction::Mean,
            other => {
                return Err(
                    Refusal::new(Code::ATTRIBUTE, format!("no reduction `{other}`")).slot("reduction")
                );
            }
        };
        Ok(Plan {
            softmax: node.op() == "SoftmaxCrossEntropyLoss",
            reduction,
            ignored: node.attrs().int("ignore_index"),
            dtype: x.dtype,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let given = cx.input(0);
        let mut x = floats::widened(cx, given);
        if plan.softmax {
            x = floats::log_softmax(cx, x, 1);
        }
        let hit = chosen(cx, x, plan.ignored);
        let rank = cx.rank(x);
        let weights = match cx.node().input(2).is_some() {
            true => {
                let weights = cx.input(2);
                let weights = floats::widened(cx, weights);
                let mut dims = vec![1; rank];
                dims[1] = -1;
                cx.reshape(weights, dims)
            }
            false => elementwise::scalar_like(cx, x, 1.0),
        };
        let weight = picked(cx, hit, weights);
        let weighted = cx.elementwise(x, weights, ElementWiseOp::Prod);
        let loss = picked(cx, hit, weighted);
        let loss = cx.unary(loss, UnaryOp::Neg);
        let axes: Vec<u32> = (0..rank as u32).filter(|&axis| axis != 1).collect();
        let sum = |cx: &mut Emit<'_>, x| {
            cx.one(Layer::Reduce { x, op: ReduceOp::Sum, axes: axes.clone(), keep_dims: true })
        };
        let total = match plan.reduction {
            Reduction::None => cx.one(Layer::Squeeze { x: loss, axes: vec![1] }),
            Reduction::Sum => {
                let sum = sum(cx, loss);
                cx.reshape(sum, Vec::new())
            }
            Reduction::Mean => {
                let (sum, weight) = (sum(cx, loss), sum(cx, weight));
                let mean = cx.elementwise(sum, weight, ElementWiseOp::Div);
                cx.reshape(mean, Vec::new())
            }
        };
        vec![cx.cast(total, plan.dtype), cx.cast(x, plan.dtype)]
    }
}

/// Which class of each sample is its label (bool, dims of `x`); none where the label is ignored.
fn chosen(cx: &mut Emit<'_>, x: TensorId, ignored: Option<i64>) -> TensorId {
    let labels = cx.input(1);
    let labels = cx.cast(labels, DType::I64);
    let labels = cx.one(Layer::Unsqueeze { x: labels, axes: vec![1] });
    let classes = first::positions(cx, x, 1);
    let hit = cx.elementwise(labels, classes, ElementWiseOp::Equal);
    let Some(ignored) = ignored else { return hit };
    let ignored = elementwise::scalar_like(cx, labels, ignored as f64);
    let out = cx.elementwise(labels, ignored, ElementWiseOp::Equal);
    let kept = cx.unary(out, UnaryOp::Not);
    cx.elementwise(hit, kept, ElementWiseOp::And)
}

/// The chosen element of axis 1, or 0; the axis keeps size 1. Not a product with 0 and 1: ∞ may stand beside it.
fn picked(cx: &mut Emit<'_>, hit: TensorId, x: TensorId) -> TensorId {
    let zero = elementwise::scalar_like(cx, x, 0.0);
    let x = cx.one(Layer::Select { condition: hit, then_input: x, else_input: zero });
    cx.one(Layer::Reduce { x, op: ReduceOp::Sum, axes: vec![1], keep_dims: true })
}

#[cfg(test)]
mod tests {
    use super::Loss;
    use crate::{Converter, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::Code;

    const X: [f64; 12] = [1.0, 3.0, 2.0, 5.0, -4.0, 0.5, 2.0, 1.0, -7.0, 3.0, 2.0, 2.5];

    fn case(op: &str, since: u32) -> Case {
        Case::new(op, since).input(of_dtype(DType::F32, [2, 3, 2], &X)).input(i64s([2, 2], &[2, 0, 1, 2]))
    }

    #[test]
    fn numbers() {
        for key in Loss::DEF.keys {
            let n = if key.op == "SoftmaxCrossEntropyLoss" { 2 } else { 1 };
            for reduction in ["none", "sum", "mean"] {
                let plain = case(key.op, key.since).str("reduction", reduction).outputs(n);
                plain.check(F32);
                plain.clone().int("ignore_index", 2).check(F32);
                let weighted = plain.clone().constant(f32s([3], &[0.5, 2.0, 3.0]));
                weighted.check(F32);
                weighted.clone().int("ignore_index", 0).check(F32);
                weighted.dynamic(0, ["N", "3", "D"]).dynamic(1, ["N", "D"]).check(F32);
            }
            let flat = Case::new(key.op, key.since).input(of_dtype(DType::F16, [4, 3], &X));
            flat.input(i32s([4], &[2, 0, 1, 2])).check(F16);
        }
    }

    #[test]
    fn types() {
        let of = |reduction| {
            let case = case("SoftmaxCrossEntropyLoss", 13).dynamic(0, ["N", "3", "D"]).outputs(2);
            case.str("reduction", reduction).types()
        };
        assert_eq!(of("none"), ["f32[N x D]", "f32[N x 3 x D]"]);
        assert_eq!(of("mean"), ["f32[]", "f32[N x 3 x D]"]);
        let open = case("SoftmaxCrossEntropyLoss", 13).dynamic(0, ["N", "3", "D"]).dynamic(1, ["M", "E"]);
        assert_eq!(open.equalities(), ["M = N", "E = D"]);
        let open = case("SoftmaxCrossEntropyLoss", 13).dynamic(0, ["2", "C", "2"]);
        assert_eq!(open.constant(f32s([3], &[0.5, 2.0, 3.0])).equalities(), ["3 = C"]);
    }

    #[test]
    fn refusals() {
        for key in Loss::DEF.keys {
            let one = Case::new(key.op, key.since).input(f32s([1], &[1.0])).input(i64s([1], &[0]));
            one.gates(i32s([1], &[1]));
            case(key.op, key.since).dynamic(1, ["2"]).refused(Code::RANK);
            case(key.op, key.since).str("reduction", "max").refused(Code::ATTRIBUTE);
        }
    }
}

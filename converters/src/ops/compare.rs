//! Equal, Greater, Less, GreaterOrEqual, LessOrEqual: elementwise comparison with broadcasting.
//!
//! a [..] T, b [..] T  ->  c [broadcast] bool
//! Opsets: 7 broadcasting; 9, 11 more types; 13 bf16; 19 strings (Equal).     TensorRT: IElementWiseLayer EQUAL, GREATER, LESS, OR.
//! Limits: f32, f16, bf16, i32, i64, u8, i8, u16, i16, u32, bool (Equal); not empty. "Or equal" is made of two comparisons: NaN compares false.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, small},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::ElementWiseOp;

/// The converter.
#[derive(Debug)]
pub struct Compare;

/// Comparison, whether equality counts too, and rank of the result.
#[derive(Debug)]
pub struct Plan {
    op: ElementWiseOp,
    or_equal: bool,
    rank: usize,
}

fn op_of(node: NodeView<'_>) -> (ElementWiseOp, bool) {
    match node.op() {
        "Equal" => (ElementWiseOp::Equal, false),
        "Greater" => (ElementWiseOp::Greater, false),
        "GreaterOrEqual" => (ElementWiseOp::Greater, true),
        "Less" => (ElementWiseOp::Less, false),
        _ => (ElementWiseOp::Less, true),
    }
}

/// The verdict where the ranges decide it: 1, 0 or unknown.
fn compare(node: NodeView<'_>, a: &Dim, b: &Dim) -> Dim {
    let range = node.symbols().interval(&a.sub(b));
    let negative = range.max.is_some_and(|max| max < 0);
    let positive = range.min.is_some_and(|min| min > 0);
    let not_negative = range.min.is_some_and(|min| min >= 0);
    let not_positive = range.max.is_some_and(|max| max <= 0);
    let verdict = match op_of(node) {
        (ElementWiseOp::Equal, _) => (not_negative && not_positive, negative || positive),
        (ElementWiseOp::Greater, false) => (positive, not_positive),
        (ElementWiseOp::Greater, true) => (not_negative, negative),
        (_, false) => (negative, not_negative),
        (_, true) => (not_positive, positive),
    };
    match verdict {
        (true, _) => Dim::Known(1),
        (_, true) => Dim::Known(0),
        _ => Dim::Unknown,
    }
}

fn allowed(node: NodeView<'_>) -> &'static [DType] {
    if node.op() == "Equal" { check::WITH_BOOL } else { check::WITH_NARROW }
}

impl Converter for Compare {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("Equal", 19),
            Key::onnx("Greater", 13),
            Key::onnx("Less", 13),
            Key::onnx("GreaterOrEqual", 16),
            Key::onnx("LessOrEqual", 16),
        ],
        dtypes: check::WITH_NARROW,
        layers: "IElementWiseLayer",
        limits: "Equal also for bool",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let ty = elementwise::broadcast(node, &[0, 1], Some(DType::Bool), cx)?;
        let elements = small::zip(node, [0, 1], |a, b| compare(node, a, b));
        let elements = small::settled(elements, Some(DType::Bool), node.symbols());
        Ok(vec![Inferred { ty, elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (_, rank) = elementwise::gates(node, &["A", "B"], allowed(node), target)?;
        let (op, or_equal) = op_of(node);
        Ok(Plan { op, or_equal, rank })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let [a, b] = [0, 1].map(|slot| elementwise::input(cx, slot, plan.rank));
        let strict = cx.elementwise(a, b, plan.op);
        if !plan.or_equal {
            return vec![strict];
        }
        let equal = cx.elementwise(a, b, ElementWiseOp::Equal);
        vec![cx.elementwise(strict, equal, ElementWiseOp::Or)]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;

    const OPS: [(&str, u32); 5] =
        [("Equal", 19), ("Greater", 13), ("Less", 13), ("GreaterOrEqual", 16), ("LessOrEqual", 16)];

    #[test]
    fn numbers() {
        let (a, b) = ([1.0, 2.0, 3.0, 200.0, 2.0, 0.0], [2.0, 2.0, 200.0]);
        for (op, since) in OPS {
            for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64, DType::U8] {
                let case =
                    Case::new(op, since).input(of_dtype(dtype, [2, 3], &a)).input(of_dtype(dtype, [3], &b));
                case.check(Tolerance::Exact);
                case.dynamic(0, ["N", "3"]).check(Tolerance::Exact);
            }
            let nan = f32s([3], &[f32::NAN, 1.0, f32::INFINITY]);
            Case::new(op, since).input(nan.clone()).input(nan).check(Tolerance::Exact);
        }
        for (op, since) in OPS {
            for (dtype, ends) in [(DType::U16, [0.0, 65_535.0]), (DType::I16, [-32_768.0, 32_767.0])] {
                let case = Case::new(op, since).input(of_dtype(dtype, [2], &ends));
                case.input(of_dtype(dtype, [2, 1], &ends)).check(Tolerance::Exact);
            }
            let large = Case::new(op, since).input(of_dtype(DType::U32, [2], &[0.0, 4_294_967_295.0]));
            large.input(of_dtype(DType::U32, [2, 1], &[2_147_483_648.0, 1.0])).check(Tolerance::Exact);
            let bytes = Case::new(op, since).input(i8s([3], &[-128, 5, 127]));
            bytes.constant(i8s([3], &[-1, 5, 5])).check(Tolerance::Exact);
        }
        let bits = bools([2, 2], &[true, false, true, false]);
        Case::new("Equal", 19).input(bits).input(bools([2, 1], &[true, false])).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        let of = |op: &str, since| {
            let case = Case::new(op, since).input(i64s([3], &[0; 3])).sizes(0, ["N", "-1", "5"]);
            case.constant(i64s([], &[-1])).types()[0].clone()
        };
        // N is at least 1.
        assert_eq!(of("Equal", 19), "bool[3] = [0, 1, 0]");
        assert_eq!(of("Greater", 13), "bool[3] = [1, 0, 1]");
        assert_eq!(of("LessOrEqual", 16), "bool[3] = [0, 1, 0]");
    }

    #[test]
    fn refusals() {
        for (op, since) in OPS {
            let wrong = if op == "Equal" { f8s([1], &[1]) } else { bools([1], &[true]) };
            Case::new(op, since).input(f32s([1], &[1.0])).input(f32s([1], &[1.0])).gates(wrong);
        }
    }
}

//! And, Or, Xor, Not: elementwise logic with broadcasting.
//!
//! a [..] bool, b [..] bool  ->  c [broadcast] bool          x [d0..dn] bool  ->  y [d0..dn] bool
//! Opsets: 1 Not; 7 broadcasting.     TensorRT: IElementWiseLayer AND, OR, XOR; IUnaryLayer NOT.
//! Limits: not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{elementwise, small},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::{ElementWiseOp, UnaryOp};

/// The converter.
#[derive(Debug)]
pub struct Logic;

/// Operation (`None` for Not), and rank of the result.
#[derive(Debug)]
pub struct Plan {
    op: Option<ElementWiseOp>,
    rank: usize,
}

fn op_of(node: NodeView<'_>) -> Option<ElementWiseOp> {
    match node.op() {
        "And" => Some(ElementWiseOp::And),
        "Or" => Some(ElementWiseOp::Or),
        "Xor" => Some(ElementWiseOp::Xor),
        _ => None,
    }
}

/// Truth of 0, 1 or unknown.
fn combine(op: ElementWiseOp, a: &Dim, b: &Dim) -> Dim {
    let (no, yes) = (Dim::Known(0), Dim::Known(1));
    match op {
        ElementWiseOp::And if *a == no || *b == no => no,
        ElementWiseOp::Or if *a == yes || *b == yes => yes,
        ElementWiseOp::And => a.mul(b),
        ElementWiseOp::Or => a.max(b),
        _ => a.add(b).modulo(&Dim::Known(2)),
    }
}

impl Converter for Logic {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("And", 7), Key::onnx("Or", 7), Key::onnx("Xor", 7), Key::onnx("Not", 1)],
        dtypes: &[DType::Bool],
        layers: "IElementWiseLayer, IUnaryLayer",
        limits: "",
        refusals: &[
            trtc_ir::Code::DTYPE_UNREPRESENTABLE,
            trtc_ir::Code::DTYPE_KERNEL,
            trtc_ir::Code::DTYPE_UNKNOWN,
            trtc_ir::Code::RANK_UNKNOWN,
            trtc_ir::Code::RANK,
            trtc_ir::Code::SHAPE,
            trtc_ir::Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let (slots, elements): (&[usize], _) = match op_of(node) {
            Some(op) => (&[0, 1], small::zip(node, [0, 1], |a, b| combine(op, a, b))),
            None => {
                let not = |list: Vec<Dim>| list.iter().map(|dim| Dim::Known(1).sub(dim)).collect();
                (&[0], small::elements(node, 0).map(not))
            }
        };
        let ty = elementwise::broadcast(node, slots, Some(DType::Bool), cx)?;
        let elements = small::settled(elements, Some(DType::Bool), node.symbols());
        Ok(vec![Inferred { ty, elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let op = op_of(node);
        let names: &[&str] = if op.is_some() { &["A", "B"] } else { &["X"] };
        let (_, rank) = elementwise::gates(node, names, &[DType::Bool], target)?;
        Ok(Plan { op, rank })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let a = elementwise::input(cx, 0, plan.rank);
        match plan.op {
            None => vec![cx.unary(a, UnaryOp::Not)],
            Some(op) => {
                let b = elementwise::input(cx, 1, plan.rank);
                vec![cx.elementwise(a, b, op)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    #[test]
    fn numbers() {
        for op in ["And", "Or", "Xor"] {
            let case = Case::new(op, 7)
                .input(bools([2, 2], &[true, false, true, false]))
                .input(bools([2], &[true, false]));
            case.check(Tolerance::Exact);
            case.dynamic(0, ["N", "2"]).check(Tolerance::Exact);
        }
        Case::new("Not", 1).input(bools([3], &[true, false, true])).dynamic(0, ["N"]).check(Tolerance::Exact);
        Case::new("Not", 1).input(bools([], &[true])).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        let of = |op: &str| {
            let case = Case::new(op, 7).input(bools([3], &[true; 3])).sizes(0, ["0", "1", "?"]);
            case.constant(bools([3], &[true, true, false])).types()[0].clone()
        };
        assert_eq!(of("And"), "bool[3] = [0, 1, 0]");
        assert_eq!(of("Or"), "bool[3] = [1, 1, ?]");
        assert_eq!(of("Xor"), "bool[3] = [1, 0, ?]");
        let not = Case::new("Not", 1).input(bools([2], &[true; 2])).sizes(0, ["0", "?"]);
        assert_eq!(not.types(), ["bool[2] = [1, ?]"]);
    }

    #[test]
    fn refusals() {
        for op in ["And", "Or", "Xor"] {
            let bit = bools([1], &[true]);
            Case::new(op, 7).input(bit.clone()).input(bit).gates(i32s([1], &[1]));
        }
        Case::new("Not", 1).input(bools([1], &[true])).gates(i32s([1], &[1]));
    }
}

//! BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot, BitShift: integers bit by bit. Only shape rules.
//!
//! a [..] T, b [..] T  ->  c [broadcast] T          x [d0..dn] T  ->  y [d0..dn] T
//! Opsets: BitShift 11, 28; the others 18.     TensorRT: none.     Limits: host only.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{elementwise, small},
};
use std::convert::Infallible;
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The shape rules.
#[derive(Debug)]
pub struct Bitwise;

impl Converter for Bitwise {
    type Plan = Infallible;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("BitwiseAnd", 18),
            Key::onnx("BitwiseOr", 18),
            Key::onnx("BitwiseXor", 18),
            Key::onnx("BitwiseNot", 18),
            Key::onnx("BitShift", 28),
        ],
        dtypes: &[],
        layers: "",
        limits: "host only",
        refusals: &[Code::HOST_ONLY],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let slots: &[usize] = if node.op() == "BitwiseNot" { &[0] } else { &[0, 1] };
        let ty = elementwise::broadcast(node, slots, None, cx)?;
        let both = |f: &dyn Fn(i64, i64) -> i64| {
            small::zip(node, [0, 1], |a, b| match (a, b) {
                (Dim::Known(a), Dim::Known(b)) => Dim::Known(f(*a, *b)),
                _ => Dim::Unknown,
            })
        };
        let elements = match node.op() {
            "BitwiseAnd" => both(&|a, b| a & b),
            "BitwiseOr" => both(&|a, b| a | b),
            "BitwiseXor" => both(&|a, b| a ^ b),
            _ => None,
        };
        let elements = small::settled(elements, ty.dtype(), node.symbols());
        Ok(vec![Inferred { ty, elements }])
    }

    fn plan(&self, _: NodeView<'_>, _: &Target) -> Result<Infallible, Refusal> {
        Err(Refusal::new(Code::HOST_ONLY, "TensorRT does not compute with the bits of integers"))
    }

    fn emit(&self, plan: Infallible, _: &mut Emit<'_>) -> Outputs {
        match plan {}
    }
}

#[cfg(test)]
mod tests {
    use super::Bitwise;
    use crate::{Converter, testing::*};
    use trtc_ir::Code;

    #[test]
    fn types() {
        let case = Case::new("BitwiseAnd", 18).input(i64s([2], &[0; 2])).sizes(0, ["12", "N"]);
        assert_eq!(case.constant(i64s([1], &[10])).types(), ["i64[2] = [8, ?]"]);
        let shift = Case::new("BitShift", 28).input(u8s([2, 1], &[0; 2])).input(u8s([3], &[0; 3]));
        assert_eq!(shift.types(), ["u8[2 x 3]"]);
        assert_eq!(Case::new("BitwiseNot", 18).input(i32s([2], &[0; 2])).types(), ["i32[2]"]);
    }

    #[test]
    fn refusals() {
        for key in Bitwise::DEF.keys {
            Case::new(key.op, key.since).input(i32s([1], &[1])).refused(Code::HOST_ONLY);
        }
    }
}

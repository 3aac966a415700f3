//! Integer and quantised products, convolutions and recurrences that the host runs: only their shape rules.
//!
//! DynamicQuantizeLinear: x [..] f32 -> y [..] u8, scale [] f32, zero point [] u8
//! MatMulInteger: a [.., m, k], b [.., k, n] i8 | u8 -> [.., m, n] i32 (MatMulIntegerToFloat, DynamicQuantizeMatMul: f32)
//! QLinearMatMul: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point -> [.., m, n] as y_zero_point
//! ConvInteger, QLinearConv: as Conv -> i32, as y_zero_point.     DynamicQuantizeLSTM (com.microsoft): as LSTM.
//! Opsets: one version each; QLinearMatMul 21 more types.     TensorRT: none.
//! Limits: host only: the products of TensorRT's matrix layers are not exact integers.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{matrix, shape, window::Attributes},
};
use std::convert::Infallible;
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The shape rules.
#[derive(Debug)]
pub struct IntegerLinear;

impl Converter for IntegerLinear {
    type Plan = Infallible;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("DynamicQuantizeLinear", 11),
            Key::onnx("MatMulInteger", 10),
            Key::onnx("ConvInteger", 10),
            Key::onnx("QLinearConv", 10),
            Key::onnx("QLinearMatMul", 21),
            Key::of("com.microsoft", "DynamicQuantizeLSTM", 1),
            Key::of("com.microsoft", "DynamicQuantizeMatMul", 1),
            Key::of("com.microsoft", "MatMulIntegerToFloat", 1),
        ],
        dtypes: &[],
        layers: "",
        limits: "host only",
        refusals: &[Code::HOST_ONLY],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let scalar = |dtype| shape::typed(Some(dtype), Some(Vec::new()));
        Ok(shape::types(match node.op() {
            "DynamicQuantizeLinear" => {
                let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
                vec![shape::typed(Some(DType::U8), dims), scalar(DType::F32), scalar(DType::U8)]
            }
            "MatMulInteger" => {
                vec![shape::typed(Some(DType::I32), matrix::product_shape(node, 0, 1, cx)?)]
            }
            "DynamicQuantizeMatMul" | "MatMulIntegerToFloat" => {
                vec![shape::typed(Some(DType::F32), matrix::product_shape(node, 0, 1, cx)?)]
            }
            "QLinearMatMul" => {
                vec![shape::typed(shape::dtype_of(node, 7), matrix::product_shape(node, 0, 3, cx)?)]
            }
            "ConvInteger" => vec![shape::typed(Some(DType::I32), convolved(node, 1, cx)?)],
            "QLinearConv" => vec![shape::typed(shape::dtype_of(node, 7), convolved(node, 3, cx)?)],
            _ => return Ok(shape::types(lstm(node))),
        }))
    }

    fn plan(&self, node: NodeView<'_>, _: &Target) -> Result<Infallible, Refusal> {
        let why = match node.op() {
            "DynamicQuantizeLSTM" => "TensorRT has no LSTM with quantised weights",
            "DynamicQuantizeLinear" => {
                "TensorRT has no quantisation to u8 with a zero point found at run time"
            }
            _ => "TensorRT multiplies no integers exactly",
        };
        Err(Refusal::new(Code::HOST_ONLY, why)
            .help("quantise with QuantizeLinear and DequantizeLinear pairs (i8, zero point 0) instead"))
    }

    fn emit(&self, plan: Infallible, _: &mut Emit<'_>) -> Outputs {
        match plan {}
    }
}

/// Shape of a convolution of input 0 with the kernel in slot `w`.
fn convolved(node: NodeView<'_>, w: usize, cx: &mut InferCx<'_>) -> Result<Option<Vec<Dim>>, Diag> {
    let of = |slot: usize| node.input(slot).and_then(|view| view.shape());
    let (Some(x), Some(kernel)) = (of(0), of(w)) else { return Ok(None) };
    if x.len() < 2 || kernel.len() != x.len() {
        let text = format!("an input of rank {} and a kernel of rank {}", x.len(), kernel.len());
        return Err(Diag::invalid(text));
    }
    let sizes = kernel[2..].iter().map(Dim::known).collect::<Option<Vec<i64>>>();
    if sizes.is_none() && node.attrs().ints("kernel_shape").is_none() {
        return Ok(Some(vec![Dim::Unknown; x.len()]));
    }
    let attributes = Attributes::read(node, x.len() - 2, sizes)?;
    attributes.outputs(x, kernel[0].clone(), cx).map(Some)
}

/// Y [sequence, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden].
fn lstm(node: NodeView<'_>) -> Vec<trtc_ir::Type> {
    let directions = Dim::Known(if node.str("direction", "forward") == "bidirectional" { 2 } else { 1 });
    let hidden = node.attrs().int("hidden_size").map_or(Dim::Unknown, Dim::Known);
    let dim = |axis: usize| node.input(0).and_then(|x| x.dim(axis)).cloned().unwrap_or(Dim::Unknown);
    let state = vec![directions.clone(), dim(1), hidden.clone()];
    let sequence = vec![dim(0), directions, dim(1), hidden];
    let dtype = shape::dtype_of(node, 0);
    [sequence, state.clone(), state].map(|dims| shape::typed(dtype, Some(dims))).to_vec()
}

#[cfg(test)]
mod tests {
    use super::IntegerLinear;
    use crate::{Converter, testing::*};
    use trtc_ir::Code;

    #[test]
    fn types() {
        let x = || Case::new("DynamicQuantizeLinear", 11).input(f32s([2, 3], &[0.0; 6])).outputs(3);
        assert_eq!(x().dynamic(0, ["N", "3"]).types(), ["u8[N x 3]", "f32[]", "u8[]"]);
        let product = |case: Case| case.input(u8s([2, 3], &[0; 6])).input(i8s([3, 4], &[0; 12])).types();
        assert_eq!(product(Case::new("MatMulInteger", 10)), ["i32[2 x 4]"]);
        assert_eq!(product(Case::of("com.microsoft", "MatMulIntegerToFloat", 1)), ["f32[2 x 4]"]);
        let conv =
            Case::new("ConvInteger", 10).input(u8s([1, 1, 4, 4], &[0; 16])).dynamic(0, ["N", "1", "H", "4"]);
        let conv = conv.constant(i8s([2, 1, 3, 3], &[0; 18])).ints("pads", &[1, 1, 1, 1]);
        assert_eq!(conv.types(), ["i32[N x 2 x H x 4]"]);
        let scale = || f32s([], &[1.0]);
        let q = Case::new("QLinearMatMul", 21)
            .input(u8s([2, 3], &[0; 6]))
            .constant(scale())
            .constant(u8s([], &[0]));
        let q = q.input(u8s([3, 4], &[0; 12])).constant(scale()).constant(u8s([], &[0]));
        assert_eq!(q.constant(scale()).constant(i8s([], &[0])).types(), ["i8[2 x 4]"]);
        let lstm = Case::of("com.microsoft", "DynamicQuantizeLSTM", 1).input(f32s([5, 1, 3], &[0.0; 15]));
        let lstm = lstm.int("hidden_size", 4).str("direction", "bidirectional").outputs(3);
        assert_eq!(lstm.types(), ["f32[5 x 2 x 1 x 4]", "f32[2 x 1 x 4]", "f32[2 x 1 x 4]"]);
    }

    #[test]
    fn hostile() {
        for key in IntegerLinear::DEF.keys {
            Case::of(key.domain, key.op, key.since).outputs(3).types();
            Case::of(key.domain, key.op, key.since).input(f32s([], &[0.0])).unranked(0).types();
        }
        let conv = Case::new("ConvInteger", 10).input(u8s([1], &[0])).input(u8s([1], &[0]));
        assert_eq!(conv.invalid(), "an input of rank 1 and a kernel of rank 1");
    }

    #[test]
    fn refusals() {
        for key in IntegerLinear::DEF.keys {
            Case::of(key.domain, key.op, key.since)
                .input(f32s([1], &[1.0]))
                .unranked(0)
                .refused(Code::HOST_ONLY);
        }
    }
}

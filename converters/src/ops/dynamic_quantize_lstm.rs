//! DynamicQuantizeLSTM (com.microsoft): an LSTM with 8-bit weights. Only its shape rule.
//!
//! x [sequence, batch, input] f32, …  ->  y [sequence, directions, batch, hidden] f32, y_h, y_c [directions, batch, hidden]
//! Opsets: 1.     TensorRT: none.     Limits: host only.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{shape, small},
};
use std::convert::Infallible;
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The shape rule.
#[derive(Debug)]
pub struct DynamicQuantizeLstm;

impl Converter for DynamicQuantizeLstm {
    type Plan = Infallible;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "DynamicQuantizeLSTM", 1)],
        dtypes: &[],
        layers: "",
        limits: "host only",
        refusals: &[Code::HOST_ONLY],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let both = node.str("direction", "forward") == "bidirectional";
        let directions = Dim::Known(if both { 2 } else { 1 });
        let hidden = small::size(node.attrs().int("hidden_size"));
        let dim = |axis: usize| shape::dim_of(node, 0, axis);
        let state = vec![directions.clone(), dim(1), hidden.clone()];
        let sequence = vec![dim(0), directions, dim(1), hidden];
        let dtype = shape::dtype_of(node, 0);
        Ok(shape::types([sequence, state.clone(), state].map(|dims| shape::typed(dtype, Some(dims)))))
    }

    fn plan(&self, _: NodeView<'_>, _: &Target) -> Result<Infallible, Refusal> {
        let why = "quantises its input anew in every step, to 8 bits with a zero point; TensorRT has no such recurrence";
        Err(Refusal::new(Code::HOST_ONLY, why)
            .help("the model before dynamic quantisation has an LSTM that engines take"))
    }

    fn emit(&self, plan: Infallible, _: &mut Emit<'_>) -> Outputs {
        match plan {}
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_ir::Code;

    fn case() -> Case {
        Case::of("com.microsoft", "DynamicQuantizeLSTM", 1)
    }

    #[test]
    fn types() {
        let lstm = case().input(f32s([5, 1, 3], &[0.0; 15])).dynamic(0, ["T", "N", "3"]);
        let lstm = lstm.int("hidden_size", 4).str("direction", "bidirectional").outputs(3);
        assert_eq!(lstm.types(), ["f32[T x 2 x N x 4]", "f32[2 x N x 4]", "f32[2 x N x 4]"]);
        assert_eq!(case().types(), ["?[? x 1 x ? x ?]"]);
    }

    #[test]
    fn refusals() {
        case().input(f32s([5, 1, 3], &[0.0; 15])).refused(Code::HOST_ONLY);
    }
}

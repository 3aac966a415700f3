//! QLinearSoftmax, QLinearAveragePool (com.microsoft): only their shape rules.
//!
//! x [d0..dn] T, x_scale, (x_zero_point), y_scale, (y_zero_point)  ->  y [d0..dn] T        pool: x [n, c, s..] -> y [n, c, t..]
//! Opsets: 1.     TensorRT: none.     Limits: host only. ONNX Runtime's softmax divides in whole numbers.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{shape, window::Attributes},
};
use std::convert::Infallible;
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The shape rules.
#[derive(Debug)]
pub struct QLinearHost;

impl Converter for QLinearHost {
    type Plan = Infallible;

    const DEF: Def = Def {
        keys: &[
            Key::of("com.microsoft", "QLinearSoftmax", 1),
            Key::of("com.microsoft", "QLinearAveragePool", 1),
        ],
        dtypes: &[],
        layers: "",
        limits: "host only",
        refusals: &[Code::HOST_ONLY],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(dims) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let dims = match node.op() {
            "QLinearSoftmax" => dims.to_vec(),
            _ if node.int("channels_last", 0) != 0 || dims.len() < 3 => vec![Dim::Unknown; dims.len()],
            _ => {
                let kernel = node.attrs().ints("kernel_shape").map(<[i64]>::to_vec);
                Attributes::read(node, dims.len() - 2, kernel)?.outputs(dims, dims[1].clone(), cx)?
            }
        };
        Ok(shape::types([shape::typed(dtype, Some(dims))]))
    }

    fn plan(&self, node: NodeView<'_>, _: &Target) -> Result<Infallible, Refusal> {
        let why = match node.op() {
            "QLinearSoftmax" => "ONNX Runtime divides in whole numbers, which no engine repeats",
            _ => "engines do not average quantised numbers over windows",
        };
        Err(Refusal::new(Code::HOST_ONLY, why)
            .help("quantise with QuantizeLinear and DequantizeLinear pairs instead"))
    }

    fn emit(&self, plan: Infallible, _: &mut Emit<'_>) -> Outputs {
        match plan {}
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_ir::Code;

    fn case(op: &str) -> Case {
        Case::of("com.microsoft", op, 1).input(u8s([1, 2, 4, 4], &[7; 32]))
    }

    #[test]
    fn types() {
        assert_eq!(case("QLinearSoftmax").types(), ["u8[1 x 2 x 4 x 4]"]);
        let pool = case("QLinearAveragePool").ints("kernel_shape", &[2, 2]);
        assert_eq!(pool.clone().ints("strides", &[2, 1]).types(), ["u8[1 x 2 x 2 x 3]"]);
        assert_eq!(pool.int("channels_last", 1).types(), ["u8[? x ? x ? x ?]"]);
    }

    #[test]
    fn refusals() {
        case("QLinearSoftmax").refused(Code::HOST_ONLY);
        case("QLinearAveragePool").ints("kernel_shape", &[2, 2]).refused(Code::HOST_ONLY);
    }
}

//! Bernoulli, Multinomial, RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike. Only their shape rules.
//!
//! Like and Bernoulli: input [..] T -> output [..] dtype       Multinomial: input [batch, classes] T -> output [batch, sample_size]
//! RandomNormal and RandomUniform: attribute shape -> output of it
//! Opsets: Random* 1, 22; Multinomial 7, 22; Bernoulli 15, 22.     TensorRT: IFillLayer draws other numbers.     Limits: host only.

use crate::{Converter, Def, Emit, Key, Outputs, ctx::shape};
use std::convert::Infallible;
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The shape rules.
#[derive(Debug)]
pub struct Random;

impl Converter for Random {
    type Plan = Infallible;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("Bernoulli", 22),
            Key::onnx("Multinomial", 22),
            Key::onnx("RandomNormal", 22),
            Key::onnx("RandomNormalLike", 22),
            Key::onnx("RandomUniform", 22),
            Key::onnx("RandomUniformLike", 22),
        ],
        dtypes: &[],
        layers: "",
        limits: "host only",
        refusals: &[Code::HOST_ONLY],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let given = match node.attrs().int("dtype") {
            Some(number) => {
                let dtype = i32::try_from(number).ok().and_then(DType::from_onnx);
                Some(
                    dtype
                        .ok_or_else(|| Diag::invalid(format!("there is no dtype {number}")).slot("dtype"))?,
                )
            }
            None => None,
        };
        let x = node.input(0).and_then(|x| x.shape());
        let (default, dims) = match node.op() {
            "RandomNormal" | "RandomUniform" => {
                let dims = node.attrs().ints("shape").unwrap_or(&[]);
                if let Some(dim) = dims.iter().find(|&&dim| dim < 0) {
                    return Err(Diag::invalid(format!("a dim of {dim}")).slot("shape"));
                }
                (Some(DType::F32), Some(dims.iter().map(|&dim| Dim::Known(dim)).collect()))
            }
            "Multinomial" => {
                let samples = Dim::Known(node.int("sample_size", 1));
                let batch = match x {
                    Some([batch, _]) => batch.clone(),
                    Some(x) => return Err(Diag::invalid(format!("rank {}, not 2", x.len())).slot("input")),
                    None => Dim::Unknown,
                };
                (Some(DType::I32), Some(vec![batch, samples]))
            }
            _ => (shape::dtype_of(node, 0), x.map(<[Dim]>::to_vec)),
        };
        Ok(shape::types([shape::typed(given.or(default), dims)]))
    }

    fn plan(&self, node: NodeView<'_>, _: &Target) -> Result<Infallible, Refusal> {
        let why = format!("TensorRT does not draw the numbers of {}", node.op());
        Err(Refusal::new(Code::HOST_ONLY, why))
    }

    fn emit(&self, plan: Infallible, _: &mut Emit<'_>) -> Outputs {
        match plan {}
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    #[test]
    fn shapes() {
        let like = |op: &'static str| Case::new(op, 22).input(noise([2, 3])).dynamic(0, ["N", "3"]);
        for op in ["Bernoulli", "RandomNormalLike", "RandomUniformLike"] {
            like(op).refused(Code::HOST_ONLY);
            assert_eq!(like(op).types(), ["f32[N x 3]"], "{op}");
            assert_eq!(like(op).int("dtype", 10).types(), ["f16[N x 3]"], "{op}");
            assert!(like(op).int("dtype", 99).invalid().contains("no dtype 99"), "{op}");
        }
        assert_eq!(like("Multinomial").int("sample_size", 5).types(), ["i32[N x 5]"]);
        assert_eq!(like("Multinomial").int("dtype", 7).types(), ["i64[N x 1]"]);
        assert!(Case::new("Multinomial", 22).input(noise([3])).invalid().contains("rank 1"));
        for op in ["RandomNormal", "RandomUniform"] {
            assert_eq!(Case::new(op, 22).ints("shape", &[2, 0, 4]).types(), ["f32[2 x 0 x 4]"], "{op}");
            assert!(Case::new(op, 22).ints("shape", &[-1]).invalid().contains("a dim of -1"), "{op}");
        }
    }
}

//! RestorePadding, RemovePadding (com.microsoft): tokens of sequences of several lengths, with and without padding.
//!
//! RestorePadding: input [m, h] T, token_offset [n, s] i32 (where the tokens go, then where the padding goes)
//!   ->  output [n, s, h] T, zeros where no token goes
//! RemovePadding: input [n, s, h] T, sequence_token_count [n] i32
//!   ->  output [m, h] T, token_offset [n, s] i32, cumulated_seq_len [n + 1] i32, max_seq_len [1] i32
//! Opsets: 1.     TensorRT: IScatterLayer (ND mode).     Limits: RestorePadding only: as many tokens as a sum is no engine's.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention, check,
        extent::{self, DimPlan},
        shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The converters.
#[derive(Debug)]
pub struct RestorePadding;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    tokens: DimPlan,
    batch: DimPlan,
    length: DimPlan,
    hidden: DimPlan,
}

impl Converter for RestorePadding {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "RestorePadding", 1), Key::of("com.microsoft", "RemovePadding", 1)],
        dtypes: check::FLOATS,
        layers: "IScatterLayer",
        limits: "RemovePadding: neither an engine nor ONNX Runtime's CPU has it",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let at = |slot: usize, axis: usize| shape::dim_of(node, slot, axis);
        if node.op() == "RestorePadding" {
            let dims = vec![at(1, 0), at(1, 1), at(0, 1)];
            return Ok(shape::types([shape::typed(dtype, Some(dims))]));
        }
        shape::demand(node, (1, 0), &at(0, 0), cx)?;
        let counts = |dims: Vec<Dim>| shape::typed(Some(DType::I32), Some(dims));
        Ok(shape::types([
            shape::typed(dtype, Some(vec![Dim::Unknown, at(0, 2)])),
            counts(vec![at(0, 0), at(0, 1)]),
            counts(vec![at(0, 0).add(&Dim::Known(1))]),
            counts(vec![Dim::Known(1)]),
        ]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        if node.op() == "RemovePadding" {
            let why = "as many tokens as the run tells";
            return Err(Refusal::new(Code::SHAPE_VALUE, why).slot("sequence_token_count"));
        }
        let x = check::operand(node, 0, "input", check::FLOATS, target)?;
        let offset = check::operand(node, 1, "token_offset", &[DType::I32], target)?;
        for (operand, name) in [(&x, "input"), (&offset, "token_offset")] {
            check::never_empty(operand, name)?;
            if operand.rank() != 2 {
                let why = format!("rank {}, not 2", operand.rank());
                return Err(Refusal::new(Code::RANK, why).slot(name));
            }
        }
        Ok(Plan {
            tokens: extent::own_dim(node, 0, 0),
            batch: extent::own_dim(node, 1, 0),
            length: extent::own_dim(node, 1, 1),
            hidden: extent::own_dim(node, 0, 1),
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let Plan { tokens, batch, length, hidden } = plan;
        let places = attention::places(cx, 1, &tokens);
        vec![attention::padded(cx, x, places, [batch, length, hidden])]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    /// Two sequences, of one token and of three.
    fn case() -> Case {
        let case = Case::of("com.microsoft", "RestorePadding", 1);
        let case = case.input(f32s([4, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
        case.input(i32s([2, 3], &[0, 3, 4, 5, 1, 2]))
    }

    #[test]
    fn numbers() {
        let want = [f32s([2, 3, 2], &[1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])];
        case().gives(F32, &want);
        let open = case().dynamic(0, ["M", "2"]).dynamic(1, ["N", "S"]);
        assert_eq!(open.types(), ["f32[N x S x 2]"]);
        open.gives(F32, &want);
    }

    #[test]
    fn without_padding() {
        let case = Case::of("com.microsoft", "RemovePadding", 1).input(noise([2, 3, 4]));
        let case = case.input(i32s([2], &[1, 3])).outputs(4);
        assert_eq!(case.types(), ["f32[? x 4]", "i32[2 x 3]", "i32[3]", "i32[1]"]);
        case.refused(Code::SHAPE_VALUE);
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let case = Case::of("com.microsoft", "RestorePadding", 1);
            case.input(x(&[1, 1])).input(i32s([1, 1], &[0]))
        });
        case().dynamic(0, ["4"]).refused(Code::RANK);
        case().dynamic(1, ["0", "3"]).refused(Code::SHAPE);
    }
}

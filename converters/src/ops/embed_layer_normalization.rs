//! EmbedLayerNormalization (com.microsoft): the sum of word, position and segment embeddings, normalised.
//!
//! input_ids [b, s] i32, (segment_ids [b, s] i32), word [v, h] T, position [p, h] T, (segment [g, h] T), gamma [h] T, beta [h] T,
//! (mask [b, s] i32), (position_ids [b, s] i32)  ->  y [b, s, h] T, (ones of the mask [b] i32), (sum [b, s, h] T)
//! Opsets: 1.     TensorRT: IGatherLayer, IElementWiseLayer, INormalizationLayer, IReduceLayer.
//! Limits: f32, f16, bf16; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise, first,
        norm::{self, Centre},
        shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode, ReduceOp},
};

/// The converter.
#[derive(Debug)]
pub struct EmbedLayerNormalization;

/// Whether segments are embedded, and ε.
#[derive(Debug)]
pub struct Plan {
    segments: bool,
    epsilon: f32,
}

impl Converter for EmbedLayerNormalization {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "EmbedLayerNormalization", 1)],
        dtypes: check::FLOATS,
        layers: "IGatherLayer, IElementWiseLayer, INormalizationLayer, IReduceLayer",
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
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 2);
        let ids = node.input(0).and_then(|ids| ids.shape());
        let hidden = shape::dim_of(node, 2, 1);
        for (slot, axis) in [(3, 1), (4, 1), (5, 0), (6, 0)] {
            shape::demand(node, (slot, axis), &hidden, cx)?;
        }
        if let Some([batch, tokens]) = ids {
            for slot in [1, 7, 8] {
                shape::demand(node, (slot, 1), tokens, cx)?;
            }
            shape::demand(node, (1, 0), batch, cx)?;
            shape::demand(node, (7, 0), batch, cx)?;
            shape::demand_broadcast(node, (8, 0), batch, cx)?;
            if node.input(8).is_none()
                && let (Dim::Known(tokens), Dim::Known(places)) = (tokens, shape::dim_of(node, 3, 0))
                && *tokens > places
            {
                let why = format!("{tokens} tokens, of which only {places} have a position");
                return Err(Diag::invalid(why).slot("position_embedding"));
            }
        }
        let dims = ids.map(|ids| [ids, &[hidden]].concat());
        let batch = ids.and_then(<[Dim]>::first).cloned().unwrap_or(Dim::Unknown);
        Ok(shape::types([
            shape::typed(dtype, dims.clone()),
            shape::typed(Some(DType::I32), Some(vec![batch])),
            shape::typed(dtype, dims),
        ]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let matrix = |slot: usize, name: &str, allowed: &[DType]| {
            let operand = elementwise::gate(node, slot, name, allowed, target)?;
            check::never_empty(&operand, name)?;
            match operand.rank() {
                2 => Ok(operand),
                rank => Err(Refusal::new(Code::RANK, format!("rank {rank}")).slot(name)),
            }
        };
        const IDS: &[DType] = &[DType::I32, DType::I64];
        let word = matrix(2, "word_embedding", check::FLOATS)?;
        matrix(0, "input_ids", IDS)?;
        matrix(3, "position_embedding", &[word.dtype])?;
        let segments = node.input(1).is_some() && node.input(4).is_some();
        if segments {
            matrix(1, "segment_ids", IDS)?;
            matrix(4, "segment_embedding", &[word.dtype])?;
        }
        for (slot, name) in [(7, "mask"), (8, "position_ids")] {
            if node.input(slot).is_some() {
                matrix(slot, name, IDS)?;
            }
        }
        for (slot, name) in [(5, "gamma"), (6, "beta")] {
            elementwise::gate(node, slot, name, &[word.dtype], target)?;
        }
        Ok(Plan { segments, epsilon: node.float("epsilon", 1e-12) })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let ids = cx.input(0);
        let mut sum = rows(cx, 2, ids);
        let at = match cx.optional(8) {
            Some(ids) => ids,
            None => first::positions(cx, ids, 1),
        };
        let position = rows(cx, 3, at);
        sum = cx.elementwise(sum, position, ElementWiseOp::Sum);
        if plan.segments {
            let ids = cx.input(1);
            let segment = rows(cx, 4, ids);
            sum = cx.elementwise(sum, segment, ElementWiseOp::Sum);
        }
        let (gamma, beta) = (cx.input(5), cx.input(6));
        let y = norm::over_last(cx, sum, gamma, Some(beta), (Centre::Mean, plan.epsilon));
        vec![y, ones(cx, ids), sum]
    }
}

/// How many elements of each row of the mask are 1; 0 without a mask.
fn ones(cx: &mut Emit<'_>, ids: TensorId) -> TensorId {
    let hits = match cx.optional(7) {
        Some(mask) => {
            let one = elementwise::scalar_like(cx, mask, 1.0);
            cx.elementwise(mask, one, ElementWiseOp::Equal)
        }
        None => cx.elementwise(ids, ids, ElementWiseOp::Less),
    };
    let hits = cx.cast(hits, DType::I32);
    cx.one(Layer::Reduce { x: hits, op: ReduceOp::Sum, axes: vec![1], keep_dims: false })
}

fn rows(cx: &mut Emit<'_>, slot: usize, indices: TensorId) -> TensorId {
    let data = cx.input(slot);
    cx.one(Layer::Gather { data, indices, axis: 0, mode: GatherMode::Default, batch_dims: 0 })
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn case() -> Case {
        let case = Case::of("com.microsoft", "EmbedLayerNormalization", 1);
        let case = case.input(i32s([2, 3], &[0, 4, 2, 1, 1, 3])).input(i32s([2, 3], &[0, 0, 1, 1, 0, 1]));
        let case = case.constant(noise([5, 8])).constant(noise([6, 8])).constant(noise([2, 8]));
        case.constant(noise([8])).constant(noise([8])).float("epsilon", 1e-5).outputs(2)
    }

    #[test]
    fn numbers() {
        case().check(F32);
        case().dynamic(0, ["N", "S"]).dynamic(1, ["N", "S"]).check(F32);
        case().absent().input(i32s([2, 3], &[5, 4, 3, 2, 1, 0])).check(F32);
        case().input(i32s([2, 3], &[1, 1, 0, 1, 0, 0])).outputs(3).check(F32);
    }

    #[test]
    fn types() {
        let case = case().dynamic(0, ["N", "S"]).outputs(3);
        assert_eq!(case.types(), ["f32[N x S x 8]", "i32[N]", "f32[N x S x 8]"]);
    }

    #[test]
    fn dims_that_agree() {
        let case = case().dynamic(0, ["N", "S"]).dynamic(1, ["M", "T"]).absent();
        let case = case.input(i32s([1, 3], &[5, 4, 3])).dynamic(8, ["1", "U"]);
        assert_eq!(case.equalities(), ["T = S", "U = S", "M = N"]);
        case.check(F32);
        assert!(case.dynamic(1, ["2", "7"]).dynamic(0, ["2", "3"]).invalid().contains("axis 1 of input 1"));
    }

    #[test]
    fn refusals() {
        case().untyped(0).refused(Code::DTYPE_UNKNOWN);
        case().unranked(0).refused(Code::RANK_UNKNOWN);
        case().dynamic(0, ["2", "3", "1"]).refused(Code::RANK);
        case().dynamic(0, ["0", "3"]).dynamic(1, ["0", "3"]).refused(Code::SHAPE);
        let of = |word: trtc_ir::Tensor| {
            let case = Case::of("com.microsoft", "EmbedLayerNormalization", 1).input(i32s([1, 1], &[0]));
            case.absent().input(word.clone()).input(word)
        };
        of(f64s([1, 1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        of(i32s([1, 1], &[1])).refused(Code::DTYPE_KERNEL);
        of(bf16s([1, 1], &[1.0])).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        of(f32s([1, 1], &[1.0])).refused(Code::INVALID);
    }
}

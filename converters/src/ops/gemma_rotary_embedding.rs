//! GemmaRotaryEmbedding (com.microsoft): queries and keys times cosines, and their turned halves times sines.
//!
//! emb [n, s, d] f32, q, q_rot, k, k_rot [n, h, s, d] T  ->  q · cos(emb) + q_rot · sin(emb), k · cos(emb) + k_rot · sin(emb)
//! Opsets: 1.     TensorRT: IUnaryLayer SIN, COS in f32, IElementWiseLayer.     Limits: not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct GemmaRotaryEmbedding;

impl Converter for GemmaRotaryEmbedding {
    type Plan = ();

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "GemmaRotaryEmbedding", 1)],
        dtypes: check::FLOATS,
        layers: "IUnaryLayer, IElementWiseLayer",
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
        let at = |axis: usize| shape::dim_of(node, 0, axis);
        for slot in 1..5 {
            for (axis, dim) in [(0, at(0)), (2, at(1)), (3, at(2))] {
                shape::demand(node, (slot, axis), &dim, cx)?;
            }
        }
        for [slot, with] in [[2, 1], [4, 3]] {
            shape::demand(node, (slot, 1), &shape::dim_of(node, with, 1), cx)?;
        }
        Ok(shape::types([1, 3].map(|slot| shape::same_as_input(node, slot))))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<(), Refusal> {
        let q = elementwise::gate(node, 1, "q", check::FLOATS, target)?;
        let names = [("emb", 3), ("q", 4), ("q_rot", 4), ("k", 4), ("k_rot", 4)];
        for (slot, (name, rank)) in names.into_iter().enumerate() {
            let dtypes: &[DType] = if slot == 0 { &[DType::F32] } else { &[q.dtype] };
            let x = elementwise::gate(node, slot, name, dtypes, target)?;
            if x.rank() != rank {
                return Err(Refusal::new(Code::RANK, format!("rank {}, not {rank}", x.rank())).slot(name));
            }
        }
        Ok(())
    }

    fn emit(&self, (): (), cx: &mut Emit<'_>) -> Outputs {
        let angles = cx.input(0);
        let [cos, sin] = [UnaryOp::Cos, UnaryOp::Sin].map(|op| {
            let x = cx.unary(angles, op);
            cx.one(Layer::Unsqueeze { x, axes: vec![1] })
        });
        let turned = |cx: &mut Emit<'_>, slot: usize| {
            let [x, rotated] = [slot, slot + 1].map(|slot| cx.input(slot));
            let dtype = cx.dtype(x);
            let [cos, sin] = [cos, sin].map(|factor| cx.cast(factor, dtype));
            let a = cx.elementwise(x, cos, ElementWiseOp::Prod);
            let b = cx.elementwise(rotated, sin, ElementWiseOp::Prod);
            cx.elementwise(a, b, ElementWiseOp::Sum)
        };
        vec![turned(cx, 1), turned(cx, 3)]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn case() -> Case {
        let case = Case::of("com.microsoft", "GemmaRotaryEmbedding", 1);
        let case = case.input(f32s([1, 1, 2], &[0.0, std::f32::consts::FRAC_PI_2]));
        let case = case.input(f16s([1, 1, 1, 2], &[1.0, 2.0])).input(f16s([1, 1, 1, 2], &[-2.0, 1.0]));
        case.input(f16s([1, 1, 1, 2], &[3.0, 4.0])).input(f16s([1, 1, 1, 2], &[-4.0, 3.0])).outputs(2)
    }

    #[test]
    fn numbers() {
        let want = [f16s([1, 1, 1, 2], &[1.0, 1.0]), f16s([1, 1, 1, 2], &[3.0, 3.0])];
        case().gives(F16, &want);
        let open = case().dynamic(0, ["N", "S", "2"]).dynamic(1, ["M", "H", "T", "2"]);
        let open = open.dynamic(2, ["N", "G", "S", "2"]);
        assert_eq!(open.equalities()[..4], ["M = N", "T = S", "1 = N", "1 = S"]);
        assert_eq!(open.types(), ["f16[M x H x T x 2]", "f16[1 x 1 x 1 x 2]"]);
    }

    #[test]
    fn refusals() {
        use trtc_ir::Code;
        let of = |x: trtc_ir::Tensor| {
            let case = Case::of("com.microsoft", "GemmaRotaryEmbedding", 1).input(f32s([1, 1, 1], &[0.0]));
            case.input(x.clone()).input(x.clone()).input(x.clone()).input(x).outputs(2)
        };
        let one = |dtype| of_dtype(dtype, [1, 1, 1, 1], &[1.0]);
        use trtc_bundle::DType;
        of(one(DType::F64)).refused(Code::DTYPE_UNREPRESENTABLE);
        of(i32s([1, 1, 1, 1], &[1])).refused(Code::DTYPE_KERNEL);
        of(one(DType::F16)).untyped(1).refused(Code::DTYPE_UNKNOWN);
        of(one(DType::F16)).unranked(1).refused(Code::RANK_UNKNOWN);
        of(one(DType::Bf16)).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        of(f16s([1, 1, 1], &[1.0])).refused(Code::RANK);
        let empty = (1..5).fold(of(one(DType::F16)), |case, slot| case.dynamic(slot, ["1", "0", "1", "1"]));
        empty.refused(Code::SHAPE);
        Case::of("com.microsoft", "GemmaRotaryEmbedding", 1)
            .input(f32s([1, 1, 1], &[0.0]))
            .refused(Code::INVALID);
    }
}

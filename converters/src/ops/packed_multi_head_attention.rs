//! PackedMultiHeadAttention, PackedAttention (com.microsoft): attention within sequences of several lengths, whose tokens
//! stand one behind the other without padding.
//!
//! query [m, h·d] T, key [m, h·d] T, value [m, h·e] T, (bias [h·d + h·d + h·e] T), token_offset [n, s] i32,
//! cumulative_sequence_length [n + 1] i32, (attention_bias [n or 1, h or 1, s, s] T)  ->  output [m, h·e] T
//! Packed: query [m, h, 3, d].
//! PackedAttention: input [m, i] T, weights [i, h·d + h·d + h·e] T, bias, and the same from token_offset on.
//! token_offset has where the tokens stand among n · s places, then where the padding stands.
//! Opsets: 1.     TensorRT: IScatterLayer, IGatherLayer, IMatrixMultiplyLayer, ISoftMaxLayer.
//! Limits: hidden sizes known; no bias of what is packed by head. ONNX Runtime's CPU has neither.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention::{self, Scoring},
        check, elementwise,
        extent::{self, DimPlan, ExtentPlan},
        key_mask, matrix, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, GatherMode, SampleMode},
};

/// The converters.
#[derive(Debug)]
pub struct PackedMultiHeadAttention;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    slots: Slots,
    heads: i64,
    /// Hidden sizes of queries, keys, values.
    parts: [i64; 3],
    layout: Layout,
    tokens: DimPlan,
    batch: DimPlan,
    length: DimPlan,
    scale: f64,
}

/// Slots of an operator's inputs.
#[derive(Clone, Copy, Debug)]
struct Slots {
    bias: usize,
    offset: usize,
    cumulated: usize,
    added: usize,
}

/// How queries, keys and values are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Three inputs.
    Apart,
    /// One, by head.
    Packed,
    /// A product with weights.
    Projected,
}

fn is_projected(node: NodeView<'_>) -> bool {
    node.op() == "PackedAttention"
}

fn slots(node: NodeView<'_>) -> Slots {
    match is_projected(node) {
        true => Slots { bias: 2, offset: 3, cumulated: 4, added: 5 },
        false => Slots { bias: 3, offset: 4, cumulated: 5, added: 6 },
    }
}

/// Hidden sizes of queries (and keys) and of values.
fn hidden(node: NodeView<'_>) -> Result<[Dim; 2], Diag> {
    let heads = attention::heads(node, "num_heads")?;
    let at = |slot: usize, axis: usize| shape::dim_of(node, slot, axis);
    if is_projected(node) {
        let parts = attention::merged_parts(node, 1)?;
        return Ok(parts.map_or([Dim::Unknown, Dim::Unknown], |[q, _, v]| [q, v].map(Dim::Known)));
    }
    match node.input(0).and_then(|q| q.shape()) {
        Some([_, _, _, head]) => {
            let all = head.mul(&Dim::Known(heads));
            Ok([all.clone(), all])
        }
        _ => {
            attention::share(&at(0, 1), heads, "query")?;
            attention::share(&at(2, 1), heads, "value")?;
            Ok([at(0, 1), at(2, 1)])
        }
    }
}

impl Converter for PackedMultiHeadAttention {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::of("com.microsoft", "PackedMultiHeadAttention", 1),
            Key::of("com.microsoft", "PackedAttention", 1),
        ],
        dtypes: check::FLOATS,
        layers: "IScatterLayer, IGatherLayer, IMatrixMultiplyLayer, ISoftMaxLayer",
        limits: "hidden sizes known; no bias of what is packed by head; no f32 for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let at = |slot: usize, axis: usize| shape::dim_of(node, slot, axis);
        let slots = slots(node);
        let [query, value] = hidden(node)?;
        let heads = Dim::Known(attention::heads(node, "num_heads")?);
        let (tokens, batch, length) = (at(0, 0), at(slots.offset, 0), at(slots.offset, 1));
        match is_projected(node) {
            true => shape::demand(node, (1, 0), &at(0, 1), cx)?,
            false => {
                for (slot, axis, dim) in [(1, 0, &tokens), (2, 0, &tokens), (1, 1, &query)] {
                    shape::demand(node, (slot, axis), dim, cx)?;
                }
            }
        }
        shape::demand(node, (slots.cumulated, 0), &batch.add(&Dim::Known(1)), cx)?;
        for (axis, dim) in [(2, &length), (3, &length)] {
            shape::demand(node, (slots.added, axis), dim, cx)?;
        }
        for (axis, dim) in [(0, &batch), (1, &heads)] {
            shape::demand_broadcast(node, (slots.added, axis), dim, cx)?;
        }
        Ok(shape::types([shape::typed(shape::dtype_of(node, 0), Some(vec![tokens, value]))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let slots = slots(node);
        let q = check::operand(node, 0, "query", check::FLOATS, target)?;
        check::never_empty(&q, "query")?;
        let ranked = |slot: usize, name: &str, dtype: DType, rank: usize| {
            let x = check::operand(node, slot, name, &[dtype], target)?;
            check::never_empty(&x, name)?;
            match x.rank() == rank {
                true => Ok(x),
                false => {
                    let why = format!("rank {}, not {rank}", x.rank());
                    Err(Refusal::new(Code::RANK, why).slot(name))
                }
            }
        };
        let layout = match (is_projected(node), q.rank()) {
            (true, 2) => Layout::Projected,
            (false, 2) => Layout::Apart,
            (false, 4) => Layout::Packed,
            (_, rank) => {
                return Err(Refusal::new(Code::RANK, format!("tokens of rank {rank}")).slot("query"));
            }
        };
        match layout {
            Layout::Projected => {
                ranked(1, "weights", q.dtype, 2)?;
            }
            Layout::Apart => {
                ranked(1, "key", q.dtype, 2)?;
                ranked(2, "value", q.dtype, 2)?;
            }
            Layout::Packed => {}
        }
        ranked(slots.offset, "token_offset", DType::I32, 2)?;
        ranked(slots.cumulated, "cumulative_sequence_length", DType::I32, 1)?;
        if node.input(slots.added).is_some() {
            ranked(slots.added, "attention_bias", q.dtype, 4)?;
        }
        matrix::gemm_gate(q.dtype, target)?;
        let heads = attention::heads(node, "num_heads").map_err(crate::ctx::window::refused)?;
        let hidden = hidden(node).map_err(crate::ctx::window::refused)?;
        let [Dim::Known(query), Dim::Known(value)] = hidden else {
            let why = "the head size is not known before the run";
            return Err(Refusal::new(Code::DIM_UNKNOWN, why).slot("query"));
        };
        let parts = [query, query, value];
        if node.input(slots.bias).is_some() {
            let bias = ranked(slots.bias, "bias", q.dtype, 1)?;
            if layout == Layout::Packed {
                let why = "a bias of what is packed, which ONNX Runtime's kernels take differently";
                return Err(Refusal::new(Code::ATTRIBUTE, why).slot("bias"));
            }
            let all = parts.iter().fold(0i64, |sum, part| sum.saturating_add(*part));
            if bias.shape[0].known().is_some_and(|own| own != all) {
                return Err(Refusal::new(Code::INVALID, format!("not {parts:?} elements")).slot("bias"));
            }
        }
        Ok(Plan {
            slots,
            heads,
            parts,
            layout,
            tokens: extent::own_dim(node, 0, 0),
            batch: extent::own_dim(node, slots.offset, 0),
            length: extent::own_dim(node, slots.offset, 1),
            scale: key_mask::scale(node, query / heads),
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let slots = plan.slots;
        let places = attention::places(cx, slots.offset, &plan.tokens);
        let [q, k, v] = [0, 1, 2].map(|k| {
            let x = part(cx, &plan, k);
            let dims = [plan.batch.clone(), plan.length.clone(), DimPlan::Fixed(plan.parts[k])];
            let x = attention::padded(cx, x, places, dims);
            attention::split_heads(cx, x, plan.heads)
        });
        let dtype = cx.dtype(q);
        let valid = lengths(cx, &plan);
        let seen = attention::valid_keys(cx, &plan.length, valid);
        let bias = attention::as_bias(cx, seen, dtype, f64::NEG_INFINITY);
        let added = cx.optional(slots.added);
        let bias = attention::summed(cx, Some(bias), added);
        // A sequence without tokens sees nothing; nobody asks for it, but it must not be NaN in a tensor that others read.
        let how = Scoring { scale: plan.scale, guard: true, ..Scoring::default() };
        let done = attention::attend(cx, [q, k, v], bias, how);
        let y = attention::merge_heads(cx, done.y);
        let data = cx.reshape(y, vec![-1, plan.parts[2]]);
        let mode = GatherMode::Default;
        vec![cx.one(Layer::Gather { data, indices: places, axis: 0, mode, batch_dims: 0 })]
    }
}

/// Queries, keys or values of the tokens: [m, hidden].
fn part(cx: &mut Emit<'_>, plan: &Plan, k: usize) -> TensorId {
    let (from, size) = (plan.parts[..k].iter().sum::<i64>(), plan.parts[k]);
    let one_line = |cx: &mut Emit<'_>, x: TensorId| {
        let (start, stride) = (Extent::Static(vec![from]), Extent::Static(vec![1]));
        let size = Extent::Static(vec![size]);
        cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })
    };
    let mut x = match plan.layout {
        Layout::Apart => cx.input(k),
        Layout::Packed => {
            let data = cx.input(0);
            let indices = cx.scalar(DType::I64, 0, k as f64);
            let mode = GatherMode::Default;
            let x = cx.one(Layer::Gather { data, indices, axis: 2, mode, batch_dims: 0 });
            return cx.reshape(x, vec![-1, size]);
        }
        Layout::Projected => {
            let (x, weights) = (cx.input(0), cx.input(1));
            let all = attention::times(cx, x, weights);
            let (start, stride) = (Extent::Static(vec![0, from]), Extent::Static(vec![1; 2]));
            let size = cx.extent(&ExtentPlan::Dims(vec![plan.tokens.clone(), DimPlan::Fixed(size)]));
            cx.one(Layer::Slice { x: all, start, size, stride, mode: SampleMode::Strict, fill: None })
        }
    };
    if let Some(bias) = cx.optional(plan.slots.bias) {
        let bias = one_line(cx, bias);
        let bias = cx.with_rank(bias, 2);
        x = cx.elementwise(x, bias, ElementWiseOp::Sum);
    }
    x
}

/// Lengths of the sequences: [n, 1, 1, 1] i64.
fn lengths(cx: &mut Emit<'_>, plan: &Plan) -> TensorId {
    let x = elementwise::input(cx, plan.slots.cumulated, 1);
    let x = cx.cast(x, DType::I64);
    let [before, after] = [0, 1].map(|from| {
        let (start, stride) = (Extent::Static(vec![from]), Extent::Static(vec![1]));
        let size = cx.extent(&ExtentPlan::Dims(vec![plan.batch.clone()]));
        cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })
    });
    let length = cx.elementwise(after, before, ElementWiseOp::Sub);
    cx.reshape(length, vec![-1, 1, 1, 1])
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    fn of(op: &str, x: Tensor) -> Case {
        Case::of("com.microsoft", op, 1).int("num_heads", 1).input(x)
    }

    /// Sequences of one token and of two; three places each.
    fn placed(case: Case) -> Case {
        case.input(i32s([2, 3], &[0, 3, 4, 1, 2, 5])).input(i32s([3], &[0, 1, 3]))
    }

    /// The first sequence sees its own token; queries of zeros weigh the two of the second alike.
    const VALUES: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 8.0];
    const WANT: [f32; 6] = [1.0, 2.0, 4.0, 6.0, 4.0, 6.0];

    #[test]
    fn numbers() {
        let zeros = || f32s([3, 2], &[0.0; 6]);
        let plain = of("PackedMultiHeadAttention", zeros()).input(noise([3, 2])).input(f32s([3, 2], &VALUES));
        let plain = placed(plain.absent());
        plain.gives(F32, &[f32s([3, 2], &WANT)]);
        let open = plain.clone().dynamic(0, ["M", "2"]).dynamic(1, ["M", "2"]).dynamic(2, ["K", "2"]);
        let open = open.dynamic(4, ["N", "S"]).dynamic(5, ["C"]);
        assert_eq!(open.equalities(), ["K = M", "C = N + 1"]);
        let open = open.dynamic(2, ["M", "2"]).dynamic(5, ["3"]).dynamic(4, ["2", "S"]);
        open.gives(F32, &[f32s([3, 2], &WANT)]);
        // Keys score ln 3 more.
        let three = 3f32.ln();
        let added = plain.input(f32s([1, 1, 3, 3], &[0.0, three, 0.0, 0.0, three, 0.0, 0.0, 0.0, 0.0]));
        added.gives(F32, &[f32s([3, 2], &[1.0, 2.0, 4.5, 7.0, 4.5, 7.0])]);
    }

    #[test]
    fn packed_by_head() {
        let all: Vec<f32> =
            VALUES.chunks(2).flat_map(|v| [0.0, 0.0, 1.0, -1.0].into_iter().chain(v.to_vec())).collect();
        let case = of("PackedMultiHeadAttention", f32s([3, 1, 3, 2], &all)).absent().absent().absent();
        placed(case).gives(F32, &[f32s([3, 2], &WANT)]);
    }

    #[test]
    fn projected() {
        // Of an input of one element: queries 0, keys 0, values (x, 2x) plus (0, 0) or (1, 0).
        let case = of("PackedAttention", f32s([3, 1], &[1.0, 2.0, 4.0]));
        let case = case.constant(f32s([1, 6], &[0.0, 0.0, 0.0, 0.0, 1.0, 2.0]));
        let case = case.constant(f32s([6], &[0.0, 0.0, 0.0, 0.0, 1.0, 0.0]));
        placed(case).gives(F32, &[f32s([3, 2], &[2.0, 2.0, 4.0, 6.0, 4.0, 6.0])]);
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let case = of("PackedMultiHeadAttention", x(&[1, 1])).input(x(&[1, 1])).input(x(&[1, 1]));
            case.absent().input(i32s([1, 1], &[0])).input(i32s([2], &[0, 1]))
        });
        let plain = || {
            let case = of("PackedMultiHeadAttention", noise([3, 2])).input(noise([3, 2]));
            case.input(noise([3, 2]))
        };
        placed(plain().absent()).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        placed(plain().constant(noise([5]))).refused(Code::INVALID);
        placed(plain().absent()).dynamic(0, ["3", "H"]).refused(Code::DIM_UNKNOWN);
        placed(plain().absent()).dynamic(5, ["3", "1"]).refused(Code::RANK);
        placed(plain().absent()).dynamic(4, ["2", "0"]).refused(Code::SHAPE);
        let packed = of("PackedMultiHeadAttention", noise([3, 1, 3, 2])).absent().absent();
        placed(packed.constant(noise([6]))).refused(Code::ATTRIBUTE);
    }
}

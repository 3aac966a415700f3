//! MultiHeadAttention, DecoderMaskedMultiHeadAttention (com.microsoft): attention of heads side by side, with the bias of
//! the projection before it.
//!
//! query [n, s, h·d] T, key [n, t, h·d] T, value [n, t, h·e] T, (bias [h·d + h·d + h·e] T), (key_padding_mask i32),
//! (attention_bias [n or 1, h or 1, s, p+t] T), (past_key [n, h, p, d] T, past_value [n, h, p, e] T),
//! (past_sequence_length [1] i32)
//!   ->  output [n, s, h·e] T, (present_key [n, h, p+t, d] T, present_value [n, h, p+t, e] T), (qk [n, h, s, p+t] T)
//! Packed: query [n, s, h, 3, d]; key [n, t, h, 2, d]. Keys and values of before: [n, h, t, d]. The decoder's: s = 1; packed
//! query [n, 1, 3·h·d]. With past_sequence_length the past is a buffer of p places, of which so many are filled: the new
//! keys go behind them, and the presents are that buffer.
//! qk are the scores before the softmax, as ONNX Runtime's kernels have them.
//! Masks: ctx/key_mask.rs.     Opsets: 1.     TensorRT: IMatrixMultiplyLayer, ISoftMaxLayer, IElementWiseLayer, ISelectLayer.
//! Limits: hidden sizes known; no beams; no bias of what is packed by head.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention, check,
        extent::{self, DimPlan},
        iota,
        key_mask::{self, Dims, Extents, Weighing},
        matrix, shape,
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
pub struct MultiHeadAttention;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    slots: Slots,
    heads: i64,
    layout: Layout,
    /// Hidden sizes of queries, keys, values.
    parts: [i64; 3],
    bias: bool,
    past: Past,
    weighing: Weighing,
}

/// Keys and values of before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Past {
    None,
    /// In front of the new ones.
    Joined,
    /// Buffers, filled up to a length that is given.
    Buffers,
}

/// Slots of an operator's inputs; queries, keys and values are the first three.
#[derive(Clone, Copy, Debug)]
struct Slots {
    bias: usize,
    weights: key_mask::Slots,
    past: [usize; 2],
    filled: usize,
    beams: usize,
}

/// How the inputs hold queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Three of rank 3.
    Apart,
    /// All in the first, by head.
    AllInOne,
    /// All in the first, one behind the other.
    Thirds,
    /// Keys and values in the second.
    KeysWithValues,
    /// Keys and values by head.
    ByHead,
}

/// What the dims say.
struct Sizes {
    layout: Layout,
    heads: i64,
    batch: Dim,
    queries: Dim,
    new_keys: Dim,
    past_keys: Dim,
    head: Dim,
    value_head: Dim,
}

fn is_decoder(node: NodeView<'_>) -> bool {
    node.op() == "DecoderMaskedMultiHeadAttention"
}

fn slots(node: NodeView<'_>) -> Slots {
    let weights = |slot, name, bias| key_mask::Slots { mask: (slot, name), bias: Some(bias) };
    match is_decoder(node) {
        true => {
            let weights = weights(3, "mask_index", 4);
            Slots { bias: 10, weights, past: [5, 6], filled: 7, beams: 9 }
        }
        false => {
            let weights = weights(4, "key_padding_mask", 5);
            Slots { bias: 3, weights, past: [6, 7], filled: 8, beams: 9 }
        }
    }
}

/// Whether the past is a buffer.
fn has_buffers(node: NodeView<'_>) -> bool {
    match is_decoder(node) {
        true => node.int("past_present_share_buffer", 0) != 0 && node.input(5).is_some(),
        false => node.input(8).is_some(),
    }
}

fn dims<'a>(node: NodeView<'a>, slot: usize) -> Option<&'a [Dim]> {
    node.input(slot)?.shape()
}

/// `None` where a rank is unknown.
fn sizes(node: NodeView<'_>) -> Result<Option<Sizes>, Diag> {
    let heads = attention::heads(node, "num_heads")?;
    let share = |dim: &Dim, name: &str| attention::share(dim, heads, name);
    let Some(q) = dims(node, 0) else { return Ok(None) };
    let past_keys = attention::past_keys(node, slots(node).past[0], 2);
    let sizes = |layout, keys: &Dim, head: Dim, value_head: Dim| {
        let (batch, queries, new_keys) = (q[0].clone(), q[1].clone(), keys.clone());
        let past_keys = past_keys.clone();
        Ok(Some(Sizes { layout, heads, batch, queries, new_keys, past_keys, head, value_head }))
    };
    let wrong = || Err(Diag::invalid("no layout of queries, keys and values has these ranks"));
    match (q, node.input(1), node.input(2)) {
        ([_, keys, _, _, head], None, None) => sizes(Layout::AllInOne, keys, head.clone(), head.clone()),
        ([_, keys, all], None, None) if is_decoder(node) => {
            let head = attention::share(all, heads.saturating_mul(3), "query")?;
            sizes(Layout::Thirds, keys, head.clone(), head)
        }
        ([_, _, hidden], Some(k), v) => match (k.shape(), v.map(|v| v.shape())) {
            (None, _) | (_, Some(None)) => Ok(None),
            (Some([_, keys, _, _, head]), None) => {
                sizes(Layout::KeysWithValues, keys, head.clone(), head.clone())
            }
            (Some([_, _, keys, head]), Some(Some([_, _, _, value_head]))) => {
                sizes(Layout::ByHead, keys, head.clone(), value_head.clone())
            }
            (Some([_, keys, _]), Some(Some([_, _, values]))) => {
                sizes(Layout::Apart, keys, share(hidden, "query")?, share(values, "value")?)
            }
            _ => wrong(),
        },
        _ => wrong(),
    }
}

impl Sizes {
    /// Keys that are attended to.
    fn keys(&self, node: NodeView<'_>) -> Dim {
        match has_buffers(node) {
            true => self.past_keys.clone(),
            false => self.past_keys.add(&self.new_keys),
        }
    }
}

impl Converter for MultiHeadAttention {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::of("com.microsoft", "MultiHeadAttention", 1),
            Key::of("com.microsoft", "DecoderMaskedMultiHeadAttention", 1),
        ],
        dtypes: check::FLOATS,
        layers: "IMatrixMultiplyLayer, ISoftMaxLayer, IElementWiseLayer, ISelectLayer",
        limits: "hidden sizes known; no beams; no bias of what is packed by head; no f32 for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let open = |rank| shape::typed(dtype, Some(vec![Dim::Unknown; rank]));
        let Some(sizes) = sizes(node)? else { return Ok(shape::types([open(3), open(4), open(4), open(4)])) };
        let Slots { weights, past: [key, value], .. } = slots(node);
        let keys = sizes.keys(node);
        let Sizes { batch, queries, new_keys, past_keys, head, value_head, .. } = sizes;
        let heads = Dim::Known(sizes.heads);
        let rows = |slot: usize| (slot, 0, &batch);
        let hidden = heads.mul(&head);
        let new: &[(usize, usize, &Dim)] = match sizes.layout {
            Layout::Apart => &[(2, 1, &new_keys), (1, 2, &hidden)],
            Layout::ByHead => &[(2, 2, &new_keys), (1, 1, &heads), (2, 1, &heads)],
            Layout::AllInOne => &[(0, 2, &heads)],
            Layout::KeysWithValues => &[(1, 2, &heads)],
            Layout::Thirds => &[],
        };
        let of_past = [(value, 2, &past_keys), (key, 3, &head), (value, 3, &value_head)];
        let of_past = of_past.into_iter().chain([(key, 1, &heads), (value, 1, &heads)]);
        for (slot, axis, dim) in [1, 2, key, value].map(rows).into_iter().chain(new.to_vec()).chain(of_past) {
            shape::demand(node, (slot, axis), dim, cx)?;
        }
        if is_decoder(node) {
            shape::demand(node, (0, 1), &Dim::Known(1), cx)?;
        }
        let seen = if has_buffers(node) { &Dim::Unknown } else { &keys };
        let of = Dims { batch: &batch, heads: sizes.heads, queries: &queries, keys: seen };
        key_mask::demand(node, weights, of, cx);
        let typed = |dims: Vec<Dim>| shape::typed(dtype, Some(dims));
        let scored = if has_buffers(node) { Dim::Unknown } else { keys.clone() };
        Ok(shape::types([
            typed(vec![batch.clone(), queries.clone(), heads.mul(&value_head)]),
            typed(vec![batch.clone(), heads.clone(), keys.clone(), head]),
            typed(vec![batch.clone(), heads.clone(), keys, value_head]),
            typed(vec![batch, heads, queries, scored]),
        ]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let slots = slots(node);
        let q = check::operand(node, 0, "query", check::FLOATS, target)?;
        check::never_empty(&q, "query")?;
        for (slot, name) in [(1, "key"), (2, "value")] {
            if node.input(slot).is_some() {
                let x = check::operand(node, slot, name, &[q.dtype], target)?;
                check::never_empty(&x, name)?;
            }
        }
        matrix::gemm_gate(q.dtype, target)?;
        key_mask::without(node, &[(slots.beams, "cache_indirection", "a beam search")])?;
        let invalid = || Refusal::new(Code::RANK_UNKNOWN, "a rank is not known before the run");
        let sizes = sizes(node).map_err(crate::ctx::window::refused)?.ok_or_else(invalid)?;
        let (Some(head), Some(value_head)) = (sizes.head.known(), sizes.value_head.known()) else {
            let why = "the head size is not known before the run";
            return Err(Refusal::new(Code::DIM_UNKNOWN, why).slot("query"));
        };
        let [hidden, value_hidden] = [head, value_head].map(|size| size.saturating_mul(sizes.heads));
        let parts = [hidden, hidden, value_hidden];
        if node.input(slots.bias).is_some() {
            let x = check::operand(node, slots.bias, "bias", &[q.dtype], target)?;
            if matches!(sizes.layout, Layout::AllInOne | Layout::KeysWithValues) {
                let why = "a bias of what is packed, which ONNX Runtime's kernels take differently";
                return Err(Refusal::new(Code::ATTRIBUTE, why).slot("bias"));
            }
            if x.shape != [Dim::Known(parts.iter().fold(0i64, |sum, part| sum.saturating_add(*part)))] {
                return Err(Refusal::new(Code::INVALID, format!("not {parts:?} elements")).slot("bias"));
            }
        }
        let past = past(node, &sizes, slots, q.dtype, target)?;
        if node.int("unidirectional", 0) != 0
            && (sizes.queries != sizes.new_keys || sizes.queries == Dim::Unknown)
        {
            let why = "causal attention to another number of keys than there are queries, of which ONNX Runtime's \
                       kernels let the last query see all";
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("unidirectional"));
        }
        let buffers = past == Past::Buffers;
        if buffers && node.output(3).is_some() {
            let why = "scores of as many keys as the run tells";
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("past_sequence_length"));
        }
        let past_keys = match past {
            Past::None => DimPlan::Fixed(0),
            _ => extent::own_dim(node, slots.past[0], 2),
        };
        let new_keys = match sizes.layout {
            Layout::AllInOne | Layout::Thirds => extent::own_dim(node, 0, 1),
            Layout::ByHead => extent::own_dim(node, 1, 2),
            _ => extent::own_dim(node, 1, 1),
        };
        let extents = Extents {
            batch: extent::own_dim(node, 0, 0),
            queries: extent::own_dim(node, 0, 1),
            keys: if buffers { past_keys.clone() } else { new_keys.plus(past_keys.clone()) },
            past: past_keys,
        };
        let keys = if buffers { Dim::Unknown } else { sizes.keys(node) };
        let of = Dims { batch: &sizes.batch, heads: sizes.heads, queries: &sizes.queries, keys: &keys };
        let weighing = Weighing::plan(node, slots.weights, of, extents, (q.dtype, head), target)?;
        Ok(Plan {
            slots,
            heads: sizes.heads,
            layout: sizes.layout,
            parts,
            bias: node.input(slots.bias).is_some(),
            past,
            weighing,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let [q, k, v] = heads(cx, &plan);
        let (mut k, mut v, mut first) = (k, v, None);
        if plan.past == Past::Joined {
            let [past_key, past_value] = plan.slots.past.map(|slot| cx.input(slot));
            k = attention::joined(cx, Some(past_key), k);
            v = attention::joined(cx, Some(past_value), v);
        }
        if plan.past == Past::Buffers {
            let filled = cx.input(plan.slots.filled);
            let filled = cx.cast(filled, DType::I64);
            let filled = cx.with_rank(filled, 4);
            let [past_key, past_value] = plan.slots.past.map(|slot| cx.input(slot));
            k = placed(cx, past_key, k, filled, &plan.weighing.extents);
            v = placed(cx, past_value, v, filled, &plan.weighing.extents);
            first = Some(filled);
        }
        let done = plan.weighing.attend(cx, [q, k, v], first);
        vec![attention::merge_heads(cx, done.y), k, v, done.biased]
    }
}

/// Whether there are keys and values of before.
fn past(
    node: NodeView<'_>,
    sizes: &Sizes,
    slots: Slots,
    dtype: DType,
    target: &Target,
) -> Result<Past, Refusal> {
    let [key, value] = slots.past;
    if has_buffers(node) {
        check::operand(node, slots.filled, "past_sequence_length", &[DType::I32], target)?;
    }
    if node.input(key).is_none() && node.input(value).is_none() && !has_buffers(node) {
        return Ok(Past::None);
    }
    let mut empty = false;
    for (slot, name) in [(key, "past_key"), (value, "past_value")] {
        let x = check::operand(node, slot, name, &[dtype], target)?;
        if x.rank() != 4 || sizes.layout == Layout::ByHead {
            return Err(Refusal::new(Code::INVALID, "the past, of rank 4, of keys of rank 3").slot(name));
        }
        empty |= x.shape[2] == Dim::Known(0);
        if !empty {
            check::not_empty(&x, name)?;
        }
    }
    match (has_buffers(node), empty) {
        (true, true) => {
            let why = "a buffer of no places";
            Err(Refusal::new(Code::INVALID, why).slot("past_key"))
        }
        (true, false) => Ok(Past::Buffers),
        (false, true) => Ok(Past::None),
        (false, false) => Ok(Past::Joined),
    }
}

/// A buffer [n, h, p, d] with `x` [n, h, s, d] from place `filled` on.
fn placed(cx: &mut Emit<'_>, buffer: TensorId, x: TensorId, filled: TensorId, extents: &Extents) -> TensorId {
    let place = iota::along(cx, &extents.keys, 2, 4);
    let token = cx.elementwise(place, filled, ElementWiseOp::Sub);
    let count = cx.dim(&extents.queries);
    let count = cx.with_rank(count, 4);
    let [zero, one] = [0.0, 1.0].map(|value| cx.scalar(DType::I64, 4, value));
    let last = cx.elementwise(count, one, ElementWiseOp::Sub);
    // Places without a token take any: it is not chosen below.
    let index = cx.elementwise(token, zero, ElementWiseOp::Max);
    let index = cx.elementwise(index, last, ElementWiseOp::Min);
    let indices = cx.reshape(index, vec![-1]);
    let mode = GatherMode::Default;
    let then_input = cx.one(Layer::Gather { data: x, indices, axis: 2, mode, batch_dims: 0 });
    let chosen = cx.elementwise(index, token, ElementWiseOp::Equal);
    cx.one(Layer::Select { condition: chosen, then_input, else_input: buffer })
}

/// Queries, keys and values as [n, h, s, d].
fn heads(cx: &mut Emit<'_>, plan: &Plan) -> [TensorId; 3] {
    // A part of rank 3, whose bias is added.
    let flat = |cx: &mut Emit<'_>, mut x: TensorId, k: usize| {
        if plan.bias {
            let bias = bias_part(cx, plan, k);
            x = cx.elementwise(x, bias, ElementWiseOp::Sum);
        }
        attention::split_heads(cx, x, plan.heads)
    };
    // One of what is packed along axis 3 of [n, s, h, _, d].
    let packed = |cx: &mut Emit<'_>, slot: usize, k: i64| {
        let data = cx.input(slot);
        let indices = cx.scalar(DType::I64, 0, k as f64);
        let mode = GatherMode::Default;
        let x = cx.one(Layer::Gather { data, indices, axis: 3, mode, batch_dims: 0 });
        cx.transpose(x, vec![0, 2, 1, 3])
    };
    let x = cx.input(0);
    match plan.layout {
        Layout::Apart => [0, 1, 2].map(|k| {
            let x = cx.input(k);
            flat(cx, x, k)
        }),
        Layout::AllInOne => [0, 1, 2].map(|k| packed(cx, 0, k)),
        Layout::Thirds => [0, 1, 2].map(|k| {
            let Extents { batch, queries, .. } = &plan.weighing.extents;
            let x = attention::part(cx, x, [batch, queries], plan.parts, k);
            flat(cx, x, k)
        }),
        Layout::KeysWithValues => [flat(cx, x, 0), packed(cx, 1, 0), packed(cx, 1, 1)],
        // Keys and values of before have their bias already.
        Layout::ByHead => [flat(cx, x, 0), cx.input(1), cx.input(2)],
    }
}

/// The part of the bias for queries, keys or values, of rank 3.
fn bias_part(cx: &mut Emit<'_>, plan: &Plan, k: usize) -> TensorId {
    let x = cx.input(plan.slots.bias);
    let fixed = |value: i64| Extent::Static(vec![value]);
    let (start, size) = (fixed(plan.parts[..k].iter().sum()), fixed(plan.parts[k]));
    let x = cx.one(Layer::Slice { x, start, size, stride: fixed(1), mode: SampleMode::Strict, fill: None });
    cx.with_rank(x, 3)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    /// 2 rows, 3 heads of 4 and 5.
    fn of(q: Tensor) -> Case {
        Case::of("com.microsoft", "MultiHeadAttention", 1).int("num_heads", 3).input(q)
    }

    fn plain() -> Case {
        of(noise([2, 4, 12])).input(noise([2, 6, 12])).input(noise([2, 6, 15]))
    }

    fn square() -> Case {
        of(noise([2, 4, 12])).input(noise([2, 4, 12])).input(noise([2, 4, 12]))
    }

    #[test]
    fn numbers() {
        plain().check(F32);
        plain().float("scale", 0.3).constant(noise([39])).check(F32);
        plain()
            .dynamic(0, ["N", "S", "12"])
            .dynamic(1, ["N", "T", "12"])
            .dynamic(2, ["N", "T", "15"])
            .check(F32);
        square().int("unidirectional", 1).check(F32);
        let by_head = of(noise([2, 4, 12])).input(noise([2, 3, 6, 4])).input(noise([2, 3, 6, 4]));
        by_head.check(F32);
        by_head.constant(noise([36])).check(F32);
        plain().float("scale", -0.3).check(F32);
    }

    #[test]
    fn scores() {
        let with = |case: Case| case.absent().input(i32s([2, 4], &[1, 0, 1, 1, 1, 1, 1, 0])).outputs(4);
        with(square()).check(F32);
        with(square()).int("unidirectional", 1).input(noise([1, 3, 4, 4])).check(F32);
        assert_eq!(with(square()).types()[3], "f32[2 x 3 x 4 x 4]");
    }

    #[test]
    fn dims_that_agree() {
        let case =
            plain().dynamic(0, ["2", "S", "H"]).dynamic(1, ["N", "T", "12"]).dynamic(2, ["2", "U", "15"]);
        let case = case.absent().absent().input(noise([2, 3, 4, 6])).dynamic(5, ["B", "3", "Q", "6"]);
        assert_eq!(case.equalities(), ["N = 2", "U = T", "12 = 3*floordiv(H, 3)", "Q = S", "6 = T"]);
    }

    fn buffers(filled: i32, key: Tensor, value: Tensor) -> Case {
        let case = of(noise([2, 1, 12])).input(noise([2, 1, 12])).input(noise([2, 1, 12]));
        case.absent().absent().absent().input(key).input(value).input(i32s([1], &[filled])).outputs(3)
    }

    /// Buffers of 6 places.
    fn held(filled: i32) -> Case {
        buffers(filled, noise([2, 3, 6, 4]), noise([2, 3, 6, 4]))
    }

    #[test]
    fn held_in_buffers() {
        held(3).check(F32);
        held(5).check(F32);
        held(0).int("unidirectional", 1).check(F32);
        let open = held(2).dynamic(6, ["N", "3", "M", "4"]).dynamic(7, ["N", "3", "M", "4"]);
        let open =
            open.dynamic(0, ["N", "1", "12"]).dynamic(1, ["N", "1", "12"]).dynamic(2, ["N", "1", "12"]);
        assert_eq!(open.types(), ["f32[N x 1 x 12]", "f32[N x 3 x M x 4]", "f32[N x 3 x M x 4]"]);
        open.check(F32);
    }

    fn decoder(query: Tensor) -> Case {
        Case::of("com.microsoft", "DecoderMaskedMultiHeadAttention", 1).int("num_heads", 3).input(query)
    }

    #[test]
    fn decoders() {
        // Keys of an encoder.
        decoder(noise([2, 1, 12])).input(noise([2, 3, 6, 4])).input(noise([2, 3, 6, 4])).check(F32);
        let own = || decoder(noise([2, 1, 12])).input(noise([2, 1, 12])).input(noise([2, 1, 12]));
        let past = |case: Case| {
            let case = case.input(noise([2, 3, 6, 4])).input(noise([2, 3, 6, 4])).input(i32s([1], &[3]));
            case.int("past_present_share_buffer", 1).outputs(3)
        };
        past(own().absent().absent()).check(F32);
        past(own().absent().absent()).absent().absent().constant(noise([36])).check(F32);
        past(own().input(i32s([2, 4], &[1, 0, 1, 1, 0, 1, 1, 1])).absent()).check(F32);
        past(own().absent().input(noise([1, 3, 1, 4]))).check(F32);
        // What is packed is one behind the other. The query of zeros weighs all values alike.
        let packed = Case::of("com.microsoft", "DecoderMaskedMultiHeadAttention", 1).int("num_heads", 1);
        let packed =
            packed.input(f32s([1, 1, 6], &[0.0, 0.0, 7.0, 8.0, 3.0, 6.0])).absent().absent().absent();
        let packed =
            packed.absent().input(f32s([1, 1, 1, 2], &[5.0, 4.0])).input(f32s([1, 1, 1, 2], &[1.0, 2.0]));
        let keys = f32s([1, 1, 2, 2], &[5.0, 4.0, 7.0, 8.0]);
        packed.outputs(2).gives(F32, &[f32s([1, 1, 2], &[2.0, 4.0]), keys]);
        assert!(decoder(noise([2, 2, 36])).invalid().contains("axis 1 of input 0"));
    }

    #[test]
    fn masks() {
        let of = |mask: Tensor| plain().absent().input(mask);
        of(i32s([2], &[4, 6])).check(F32);
        of(i32s([2, 6], &[1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1])).check(F32);
        let pairs: Vec<i32> = (0..48).map(|k| i32::from(k % 3 != 1)).collect();
        of(i32s([2, 4, 6], &pairs)).check(F32);
        of(i32s([2, 6], &[0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1])).float("mask_filter_value", -2.0).check(F32);
        of(i32s([2], &[4, 6])).input(noise([1, 3, 4, 6])).check(F32);
        plain().absent().absent().input(noise([2, 1, 4, 6])).check(F32);
        let causal = square().absent().input(i32s([2, 4], &[0, 0, 1, 1, 1, 1, 1, 0]));
        causal.int("unidirectional", 1).check(F32);
        let open = plain().absent().input(i32s([2, 6], &[1, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1]));
        let open =
            open.dynamic(0, ["N", "S", "12"]).dynamic(1, ["N", "T", "12"]).dynamic(2, ["N", "T", "15"]);
        open.dynamic(4, ["N", "T"]).check(F32);
    }

    #[test]
    fn the_past() {
        let with = |case: Case| {
            let case = case.absent().absent().absent();
            case.input(noise([2, 3, 5, 4])).input(noise([2, 3, 5, 4])).outputs(3)
        };
        with(square()).check(F32);
        with(square()).int("unidirectional", 1).check(F32);
        let open = with(square()).dynamic(0, ["N", "S", "12"]).dynamic(1, ["N", "S", "12"]);
        let open = open.dynamic(2, ["N", "S", "12"]).dynamic(6, ["N", "3", "P", "4"]);
        let open = open.dynamic(7, ["N", "3", "P", "4"]);
        assert_eq!(open.types(), ["f32[N x S x 12]", "f32[N x 3 x S + P x 4]", "f32[N x 3 x S + P x 4]"]);
        open.int("unidirectional", 1).check(F32);
        square().outputs(3).check(F32);
        let none = square().absent().absent().absent().constant(f32s([2, 3, 0, 4], &[]));
        none.constant(f32s([2, 3, 0, 4], &[])).layers();
    }

    #[test]
    fn packed() {
        // What is packed and what is not must agree.
        let (q, k, v) = ([1.0, 2.0, -1.0, 0.5], [0.5, -1.0, 2.0, 1.0], [3.0, 1.0, -2.0, 4.0]);
        let all: Vec<f32> =
            (0..2).flat_map(|s| [q, k, v].into_iter().flat_map(move |x| [x[2 * s], x[2 * s + 1]])).collect();
        let one = |x: Tensor| Case::of("com.microsoft", "MultiHeadAttention", 1).int("num_heads", 1).input(x);
        let score = |s: usize, t: usize| (q[2 * s] * k[2 * t] + q[2 * s + 1] * k[2 * t + 1]) / 2f32.sqrt();
        let row = |s: usize| {
            let (a, b) = (score(s, 0).exp(), score(s, 1).exp());
            [0, 1].map(|e| (a * v[e] + b * v[2 + e]) / (a + b))
        };
        let want = [f32s([1, 2, 2], &[row(0), row(1)].concat())];
        one(f32s([1, 2, 1, 3, 2], &all)).gives(F32, &want);
        let pairs: Vec<f32> =
            (0..2).flat_map(|s| [k, v].into_iter().flat_map(move |x| [x[2 * s], x[2 * s + 1]])).collect();
        one(f32s([1, 2, 2], &q)).input(f32s([1, 2, 1, 2, 2], &pairs)).gives(F32, &want);
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let case = Case::of("com.microsoft", "MultiHeadAttention", 1).int("num_heads", 1);
            case.input(x(&[1, 1, 1])).input(x(&[1, 1, 1])).input(x(&[1, 1, 1]))
        });
        plain().target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        plain().constant(noise([38])).refused(Code::INVALID);
        plain().dynamic(0, ["2", "4", "H"]).refused(Code::DIM_UNKNOWN);
        plain().dynamic(1, ["2", "0", "12"]).dynamic(2, ["2", "0", "15"]).refused(Code::SHAPE);
        plain().absent().input(i32s([7], &[1; 7])).refused(Code::SHAPE);
        plain().int("unidirectional", 1).refused(Code::ATTRIBUTE);
        plain().absent().input(i32s([2, 5], &[1; 10])).refused(Code::SHAPE);
        plain().absent().absent().input(noise([2, 2, 4, 6])).refused(Code::SHAPE);
        plain().absent().absent().input(noise([1, 1, 4, 5])).refused(Code::SHAPE);
        plain().absent().absent().input(noise([4, 6])).refused(Code::INVALID);
        let beams = held(3).input(i32s([1, 1, 6], &[0; 6]));
        beams.refused(Code::ATTRIBUTE);
        held(3).outputs(4).refused(Code::ATTRIBUTE);
        let none = buffers(0, f32s([2, 3, 0, 4], &[]), f32s([2, 3, 0, 4], &[]));
        none.refused(Code::INVALID);
        let all = Case::of("com.microsoft", "MultiHeadAttention", 1).int("num_heads", 1);
        let all = all.input(noise([1, 2, 1, 3, 2])).absent().absent().constant(noise([6]));
        all.refused(Code::ATTRIBUTE);
        let past = of(noise([2, 4, 12])).input(noise([2, 3, 6, 4])).input(noise([2, 3, 6, 4]));
        let past = past.absent().absent().absent().input(noise([2, 3, 1, 4])).input(noise([2, 3, 1, 4]));
        past.refused(Code::INVALID);
        assert!(
            of(noise([2, 4, 13])).input(noise([2, 4, 13])).input(noise([2, 4, 13])).invalid().contains("13")
        );
        assert!(of(noise([2, 4])).invalid().contains("layout"));
        assert!(plain().int("num_heads", 0).invalid().contains("heads"));
    }
}

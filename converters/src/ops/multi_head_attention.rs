//! MultiHeadAttention (com.microsoft): attention of heads side by side, with the bias of the projection before it.
//!
//! query [n, s, h·d] T, key [n, t, h·d] T, value [n, t, h·e] T, (bias [h·d + h·d + h·e] T), (key_padding_mask i32),
//! (attention_bias [n or 1, h or 1, s, p+t] T), (past_key [n, h, p, d] T, past_value [n, h, p, e] T)
//!   ->  output [n, s, h·e] T, (present_key [n, h, p+t, d] T, present_value [n, h, p+t, e] T)
//! Packed: query [n, s, h, 3, d]; key [n, t, h, 2, d]. Keys and values of before: [n, h, t, d].
//! Masks: ctx/key_mask.rs.     Opsets: 1.     TensorRT: IMatrixMultiplyLayer, ISoftMaxLayer, IElementWiseLayer, ISelectLayer.
//! Limits: hidden sizes known; no shared buffers, no qk output; causal only where there are as many keys as queries.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention::{self, Scoring},
        check,
        extent::{self, DimPlan},
        key_mask::{self, Dims, KeyMask},
        matrix, shape,
    },
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, GatherMode, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct MultiHeadAttention;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    heads: i64,
    layout: Layout,
    /// Elements of the bias for queries, keys, values.
    bias: Option<[i64; 3]>,
    mask: Option<KeyMask>,
    added: bool,
    past: bool,
    causal: bool,
    queries: DimPlan,
    keys: DimPlan,
    past_keys: DimPlan,
    hidden: f64,
    scale: f64,
}

/// How the inputs hold queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Three of rank 3.
    Apart,
    /// All in the first.
    AllInOne,
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

fn dims<'a>(node: NodeView<'a>, slot: usize) -> Option<&'a [Dim]> {
    node.input(slot)?.shape()
}

/// `None` where a rank is unknown.
fn sizes(node: NodeView<'_>) -> Result<Option<Sizes>, Diag> {
    let heads = attention::heads(node, "num_heads")?;
    let share = |dim: &Dim, name: &str| attention::share(dim, heads, name);
    let Some(q) = dims(node, 0) else { return Ok(None) };
    let past_keys = attention::past_keys(node, 6, 2);
    let sizes = |layout, keys: &Dim, head: Dim, value_head: Dim| {
        let (batch, queries, new_keys) = (q[0].clone(), q[1].clone(), keys.clone());
        let past_keys = past_keys.clone();
        Ok(Some(Sizes { layout, heads, batch, queries, new_keys, past_keys, head, value_head }))
    };
    let wrong = || Err(Diag::invalid("no layout of queries, keys and values has these ranks"));
    match (q, node.input(1), node.input(2)) {
        ([_, keys, _, _, head], None, None) => sizes(Layout::AllInOne, keys, head.clone(), head.clone()),
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

impl Converter for MultiHeadAttention {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "MultiHeadAttention", 1)],
        dtypes: check::FLOATS,
        layers: "IMatrixMultiplyLayer, ISoftMaxLayer, IElementWiseLayer, ISelectLayer",
        limits: "hidden sizes known; no shared buffers, no qk output; no f32 for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::OUTPUTS,
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
        let Some(sizes) = sizes(node)? else { return Ok(shape::types([open(3), open(4), open(4)])) };
        let Sizes { batch, queries, new_keys, past_keys, head, value_head, .. } = sizes;
        let heads = Dim::Known(sizes.heads);
        let keys = past_keys.add(&new_keys);
        let rows = |slot: usize| (slot, 0, &batch);
        let lengths = match sizes.layout {
            Layout::Apart => Some((2, 1, &new_keys)),
            Layout::ByHead => Some((2, 2, &new_keys)),
            _ => None,
        };
        let past = [(7, 2, &past_keys), (6, 3, &head), (7, 3, &value_head)];
        for (slot, axis, dim) in [1, 2, 6, 7].map(rows).into_iter().chain(lengths).chain(past) {
            shape::demand(node, (slot, axis), dim, cx)?;
        }
        key_mask::demand(node, 4, 5, Dims { batch: &batch, queries: &queries, keys: &keys }, cx);
        let typed = |dims: Vec<Dim>| shape::typed(dtype, Some(dims));
        Ok(shape::types([
            typed(vec![batch.clone(), queries, heads.mul(&value_head)]),
            typed(vec![batch.clone(), heads.clone(), keys.clone(), head]),
            typed(vec![batch, heads, keys, value_head]),
        ]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let q = check::operand(node, 0, "query", check::FLOATS, target)?;
        check::never_empty(&q, "query")?;
        for (slot, name) in [(1, "key"), (2, "value")] {
            if node.input(slot).is_some() {
                let x = check::operand(node, slot, name, &[q.dtype], target)?;
                check::never_empty(&x, name)?;
            }
        }
        matrix::gemm_gate(q.dtype, target)?;
        key_mask::without(
            node,
            &[
                (8, "past_sequence_length", "buffers that are shared"),
                (9, "cache_indirection", "a beam search"),
            ],
        )?;
        if node.output(3).is_some() {
            return Err(Refusal::new(Code::OUTPUTS, "the scores are not handed out").slot("qk"));
        }
        let invalid = || Refusal::new(Code::RANK_UNKNOWN, "a rank is not known before the run");
        let sizes = sizes(node).map_err(crate::ctx::window::refused)?.ok_or_else(invalid)?;
        let (Some(head), Some(value_head)) = (sizes.head.known(), sizes.value_head.known()) else {
            let why = "the head size is not known before the run";
            return Err(Refusal::new(Code::DIM_UNKNOWN, why).slot("query"));
        };
        if sizes.layout == Layout::Apart
            && dims(node, 1).is_some_and(|k| k[2] != Dim::Known(head * sizes.heads))
        {
            let why = "keys of another hidden size than queries, or an unknown one";
            return Err(Refusal::new(Code::DIM_UNKNOWN, why).slot("key"));
        }
        let mut bias = None;
        if node.input(3).is_some() {
            let x = check::operand(node, 3, "bias", &[q.dtype], target)?;
            if matches!(sizes.layout, Layout::AllInOne | Layout::KeysWithValues) {
                let why = "a bias of what is packed, which ONNX Runtime's kernels take differently";
                return Err(Refusal::new(Code::ATTRIBUTE, why).slot("bias"));
            }
            let parts = [head * sizes.heads, head * sizes.heads, value_head * sizes.heads];
            if x.shape != [Dim::Known(parts.iter().sum())] {
                return Err(Refusal::new(Code::INVALID, format!("not {parts:?} elements")).slot("bias"));
            }
            bias = Some(parts);
        }
        let past = node.input(6).is_some() || node.input(7).is_some();
        let mut empty = false;
        for (slot, name) in [(6, "past_key"), (7, "past_value")] {
            if past {
                let x = check::operand(node, slot, name, &[q.dtype], target)?;
                if x.rank() != 4 || sizes.layout == Layout::ByHead {
                    return Err(
                        Refusal::new(Code::INVALID, "the past, of rank 4, of keys of rank 3").slot(name)
                    );
                }
                empty |= x.shape[2] == Dim::Known(0);
                if !empty {
                    check::not_empty(&x, name)?;
                }
            }
        }
        let past = past && !empty;
        let keys = sizes.past_keys.add(&sizes.new_keys);
        let of = Dims { batch: &sizes.batch, queries: &sizes.queries, keys: &keys };
        let mask = key_mask::plan(node, 4, "key_padding_mask", of, target)?;
        let added = key_mask::attention_bias(node, 5, q.dtype, of, target)?;
        let causal = node.int("unidirectional", 0) != 0;
        if causal && (sizes.queries != sizes.new_keys || sizes.queries == Dim::Unknown) {
            let why = "causal attention to another number of keys than there are queries";
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("unidirectional"));
        }
        let past_keys = if past { extent::own_dim(node, 6, 2) } else { DimPlan::Fixed(0) };
        let new_keys = match sizes.layout {
            Layout::AllInOne => extent::own_dim(node, 0, 1),
            Layout::ByHead => extent::own_dim(node, 1, 2),
            _ => extent::own_dim(node, 1, 1),
        };
        Ok(Plan {
            heads: sizes.heads,
            layout: sizes.layout,
            bias,
            mask,
            added,
            past,
            causal,
            queries: extent::own_dim(node, 0, 1),
            keys: new_keys.plus(past_keys.clone()),
            past_keys,
            hidden: key_mask::hidden(node, q.dtype),
            scale: key_mask::scale(node, head)?,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let [q, k, v] = heads(cx, &plan);
        let dtype = cx.dtype(q);
        let [past_key, past_value] = [6, 7].map(|slot| plan.past.then(|| cx.input(slot)));
        let k = attention::joined(cx, past_key, k);
        let v = attention::joined(cx, past_value, v);
        let mask = plan.mask.map(|mask| key_mask::bias(cx, mask, 4, &plan.keys, dtype, plan.hidden));
        let later = match plan.causal {
            true => key_mask::causal(cx, &plan.queries, &plan.keys, &plan.past_keys, dtype),
            false => None,
        };
        let added = plan.added.then(|| cx.input(5));
        let bias = attention::summed(cx, mask, later);
        let bias = attention::summed(cx, bias, added);
        let how = Scoring { scale: plan.scale, softcap: 0.0, precision: None, guard: false };
        let done = attention::attend(cx, [q, k, v], bias, how);
        vec![attention::merge_heads(cx, done.y), k, v]
    }
}

/// Queries, keys and values as [n, h, s, d].
fn heads(cx: &mut Emit<'_>, plan: &Plan) -> [TensorId; 3] {
    let flat = |cx: &mut Emit<'_>, k: usize| {
        let mut x = cx.input(k);
        if let Some(parts) = plan.bias {
            let bias = bias_part(cx, parts, k);
            x = cx.elementwise(x, bias, ElementWiseOp::Sum);
        }
        attention::split_heads(cx, x, plan.heads)
    };
    // One of what is packed along axis 3 of [n, s, h, _, d].
    let packed = |cx: &mut Emit<'_>, slot: usize, k: i64| {
        let data = cx.input(slot);
        let indices = cx.scalar(trtc_bundle::DType::I64, 0, k as f64);
        let mode = GatherMode::Default;
        let x = cx.one(Layer::Gather { data, indices, axis: 3, mode, batch_dims: 0 });
        cx.transpose(x, vec![0, 2, 1, 3])
    };
    match plan.layout {
        Layout::Apart => [0, 1, 2].map(|k| flat(cx, k)),
        Layout::AllInOne => [0, 1, 2].map(|k| packed(cx, 0, k)),
        Layout::KeysWithValues => [flat(cx, 0), packed(cx, 1, 0), packed(cx, 1, 1)],
        Layout::ByHead => [flat(cx, 0), cx.input(1), cx.input(2)],
    }
}

/// The part of the bias for queries, keys or values, of rank 3.
fn bias_part(cx: &mut Emit<'_>, parts: [i64; 3], k: usize) -> TensorId {
    let x = cx.input(3);
    let fixed = |value: i64| Extent::Static(vec![value]);
    let (start, size) = (fixed(parts[..k].iter().sum()), fixed(parts[k]));
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
        plain().outputs(4).refused(Code::OUTPUTS);
        plain().int("unidirectional", 1).refused(Code::ATTRIBUTE);
        plain().float("scale", -1.0).refused(Code::ATTRIBUTE);
        plain().constant(noise([38])).refused(Code::INVALID);
        plain().dynamic(0, ["2", "4", "H"]).refused(Code::DIM_UNKNOWN);
        plain().dynamic(1, ["2", "6", "H"]).refused(Code::DIM_UNKNOWN);
        plain().dynamic(1, ["2", "0", "12"]).dynamic(2, ["2", "0", "15"]).refused(Code::SHAPE);
        plain().absent().input(i32s([8], &[1; 8])).refused(Code::SHAPE);
        plain().absent().input(i32s([2, 5], &[1; 10])).refused(Code::SHAPE);
        plain().absent().absent().input(noise([1, 1, 4, 5])).refused(Code::SHAPE);
        plain().absent().absent().input(noise([4, 6])).refused(Code::INVALID);
        let beams = square().absent().absent().absent().absent().absent().input(i32s([1], &[2]));
        beams.refused(Code::ATTRIBUTE);
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

//! GroupQueryAttention (com.microsoft): causal attention with a cache of keys and values that groups of queries share.
//!
//! query [n, s, h·d] T, key [n, s, g·d] T, value [n, s, g·d] T, (past_key [n, g, p, d] T, past_value [n, g, p, d] T),
//! seqlens_k [n] i32 (tokens of a row, less 1), total_sequence_length [] i32, (cos_cache, sin_cache [m, r/2] T),
//! (position_ids [n, s] i64), (attention_bias [n or 1, h or 1, s, total] T), (head_sink [h] T),
//! (q_norm_weight, k_norm_weight [d] T), (query_seqlens [n] i32)
//!   ->  output [n, s, h·d] T, (present_key [n, g, max(total, p), d] T, present_value like it), (qk [n, h, s, total] T)
//! Packed: query [n, s, (h + 2g)·d]. The cache holds the past of a row from place 0 on, then its new tokens, then zeros.
//! seqlens_k and query_seqlens are data of the run; total_sequence_length decides a size, so it is a number or computed
//! from dims, or anything where there is no past (it is s then).
//! Opsets: 1.     TensorRT: IMatrixMultiplyLayer, ISoftMaxLayer, IGatherLayer, ISelectLayer, IElementWiseLayer.
//! Limits: hidden sizes known, total_sequence_length computed from dims; no quantised cache, no window-sized cache.

mod steps;

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention::{self, Band, Scoring, Sink},
        check, dims as dim_math,
        extent::{self, DimPlan},
        key_mask, matrix,
        norm::{self, Centre},
        rotary::{self, Rotation},
        shape,
    },
};
use steps::{angles, cached, handed_out, rotary_plan, scores, tokens};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};
use trtc_network::layer::ElementWiseOp;

/// The converter.
#[derive(Debug)]
pub struct GroupQueryAttention;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    heads: i64,
    groups: i64,
    head: i64,
    packed: bool,
    past: bool,
    batch: DimPlan,
    queries: DimPlan,
    past_keys: DimPlan,
    /// Length of the cache after the step.
    keys: DimPlan,
    band: Band,
    /// Queries and keys are normalised first, with this ε.
    norm: Option<f32>,
    /// Whether tokens of the step may be padding.
    padded: bool,
    scores: Option<Scores>,
    rotary: Option<Rotary>,
    /// Dims of the added bias but the last.
    added: Option<Vec<DimPlan>>,
    scoring: Scoring,
}

/// Scores or probabilities that are handed out.
#[derive(Debug)]
struct Scores {
    after_softmax: bool,
    /// Keys that they are cut to, when the cache is longer.
    total: Option<DimPlan>,
}

#[derive(Debug)]
struct Rotary {
    turned: i64,
    interleaved: bool,
    positions: Positions,
}

/// Where tokens stand.
#[derive(Debug)]
enum Positions {
    /// Behind what came before.
    Counted,
    /// As position_ids say.
    Given,
    /// Of a first prompt, from the first of position_ids on, in every row.
    FromFirst,
    /// Of a first prompt if there are as many tokens as this.
    Either(DimPlan),
}

struct Sizes {
    heads: i64,
    groups: i64,
    packed: bool,
    head: Dim,
}

/// Slots of the weights that queries and keys are normalised with, and of the numbers of tokens.
const NORMS: [usize; 2] = [14, 15];
const TOKENS: usize = 16;

fn sizes(node: NodeView<'_>) -> Result<Sizes, Diag> {
    let (heads, groups) = (attention::heads(node, "num_heads")?, attention::heads(node, "kv_num_heads")?);
    if heads % groups != 0 {
        return Err(Diag::invalid(format!("{heads} heads of queries share {groups}")).slot("kv_num_heads"));
    }
    let packed = node.input(1).is_none();
    let parts = if packed { groups.checked_mul(2).and_then(|g| g.checked_add(heads)) } else { Some(heads) };
    let parts = parts.ok_or_else(|| Diag::invalid("too many heads").slot("num_heads"))?;
    let head = attention::share(&shape::dim_of(node, 0, 2), parts, "query")?;
    Ok(Sizes { heads, groups, packed, head })
}

fn past_keys(node: NodeView<'_>) -> Dim {
    attention::past_keys(node, 3, 2)
}

fn has_past(node: NodeView<'_>) -> bool {
    node.input(3).is_some() && past_keys(node) != Dim::Known(0)
}

/// total_sequence_length: the tokens themselves without a past.
fn total(node: NodeView<'_>) -> Dim {
    match given_total(node) {
        Dim::Unknown if !has_past(node) => shape::dim_of(node, 0, 1),
        total => total,
    }
}

fn given_total(node: NodeView<'_>) -> Dim {
    let Some(total) = node.input(6) else { return Dim::Unknown };
    match (total.elements(), total.const_i64s().as_deref()) {
        (Some([one]), _) => one.clone(),
        (None, Some([one])) => Dim::Known(*one),
        _ => Dim::Unknown,
    }
}

/// Length of the cache after the step.
fn cache(node: NodeView<'_>) -> Dim {
    dim_math::max(node, &total(node), &past_keys(node))
}

/// Demands what the schema says of dims.
fn demand(node: NodeView<'_>, sizes: &Sizes, cx: &mut InferCx<'_>) -> Result<(), Diag> {
    let at = |axis: usize| shape::dim_of(node, 0, axis);
    let (batch, tokens) = (at(0), at(1));
    let (heads, groups) = (Dim::Known(sizes.heads), Dim::Known(sizes.groups));
    let (hidden, past, total) = (groups.mul(&sizes.head), past_keys(node), total(node));
    for slot in [1, 2, 3, 4, 5, TOKENS] {
        shape::demand(node, (slot, 0), &batch, cx)?;
    }
    for (slot, axis, dim) in [
        (1, 1, &tokens),
        (2, 1, &tokens),
        (9, 1, &tokens),
        (10, 2, &tokens),
        (10, 3, &total),
        (1, 2, &hidden),
        (2, 2, &hidden),
        (3, 1, &groups),
        (4, 1, &groups),
        (4, 2, &past),
        (3, 3, &sizes.head),
        (4, 3, &sizes.head),
        (11, 0, &heads),
        (NORMS[0], 0, &sizes.head),
        (NORMS[1], 0, &sizes.head),
    ] {
        shape::demand(node, (slot, axis), dim, cx)?;
    }
    for (slot, axis, dim) in [(9, 0, &batch), (10, 0, &batch), (10, 1, &heads)] {
        shape::demand_broadcast(node, (slot, axis), dim, cx)?;
    }
    if !has_past(node) {
        match (given_total(node), &tokens) {
            (Dim::Unknown, _) | (_, Dim::Unknown) => {}
            (Dim::Known(total), Dim::Known(tokens)) if total != *tokens => {
                let why = format!("{total} tokens, of which the step has {tokens}, without a past");
                return Err(Diag::invalid(why).slot("total_sequence_length"));
            }
            (total, tokens) if total != *tokens => {
                cx.require(ConstraintKind::Equal(total, tokens.clone()));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Converter for GroupQueryAttention {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "GroupQueryAttention", 1)],
        dtypes: check::FLOATS,
        layers: "IMatrixMultiplyLayer, ISoftMaxLayer, IGatherLayer, ISelectLayer, IElementWiseLayer",
        limits: "hidden sizes known, total_sequence_length computed from dims; no quantised or window-sized cache",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let sizes = sizes(node)?;
        let at = |axis: usize| shape::dim_of(node, 0, axis);
        demand(node, &sizes, cx)?;
        let hidden = Dim::Known(sizes.heads).mul(&sizes.head);
        let windowed = node.int("sliding_window_cache", 0) != 0;
        let quantised = !matches!(node.str("k_quant_type", "NONE"), "NONE" | "");
        let present = match windowed || quantised {
            true => trtc_ir::Type::Unknown,
            false => shape::typed(
                dtype,
                Some(vec![at(0), Dim::Known(sizes.groups), cache(node), sizes.head.clone()]),
            ),
        };
        let scores = vec![at(0), Dim::Known(sizes.heads), at(1), total(node)];
        let output = vec![at(0), at(1), hidden];
        let [output, scores] = [output, scores].map(|dims| shape::typed(dtype, Some(dims)));
        Ok(shape::types([output, present.clone(), present, scores]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let q = check::operand(node, 0, "query", check::FLOATS, target)?;
        check::never_empty(&q, "query")?;
        let Sizes { heads, groups, packed, head } = sizes(node).map_err(crate::ctx::window::refused)?;
        let head = head.known().ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "the head size is not known before the run").slot("query")
        })?;
        let same = |slot: usize, name: &'static str, rank: usize| {
            let x = check::operand(node, slot, name, &[q.dtype], target)?;
            match x.rank() == rank {
                true => Ok(x),
                false => {
                    Err(Refusal::new(Code::INVALID, format!("rank {}, not {rank}", x.rank())).slot(name))
                }
            }
        };
        if q.rank() != 3 {
            return Err(Refusal::new(Code::INVALID, format!("rank {}, not 3", q.rank())).slot("query"));
        }
        if !packed {
            for (slot, name) in [(1, "key"), (2, "value")] {
                let x = same(slot, name, 3)?;
                check::never_empty(&x, name)?;
            }
        }
        matrix::gemm_gate(q.dtype, target)?;
        let quantised = [(12, "k_scale", "a quantised cache"), (13, "v_scale", "a quantised cache")];
        key_mask::without(node, &quantised)?;
        key_mask::only(node, &[("sliding_window_cache", 0, "a cache as long as the window")])?;
        for name in ["k_quant_type", "v_quant_type"] {
            if !matches!(node.str(name, "NONE"), "NONE" | "") {
                return Err(Refusal::new(Code::ATTRIBUTE, "a quantised cache").slot(name));
            }
        }
        let norm = NORMS.iter().any(|&slot| node.input(slot).is_some());
        if norm {
            same(NORMS[0], "q_norm_weight", 1)?;
            same(NORMS[1], "k_norm_weight", 1)?;
        }
        if node.input(11).is_some() {
            same(11, "head_sink", 1)?;
        }
        let mut past = node.input(3).is_some() || node.input(4).is_some();
        if past {
            for (slot, name) in [(3, "past_key"), (4, "past_value")] {
                let x = same(slot, name, 4)?;
                if x.shape[2] == Dim::Known(0) {
                    past = false;
                    break;
                }
                check::not_empty(&x, name)?;
            }
        }
        let padded = node.input(TOKENS).is_some();
        for (slot, name, rank) in
            [(5, "seqlens_k", 1), (6, "total_sequence_length", 0), (TOKENS, "query_seqlens", 1)]
        {
            if slot == TOKENS && !padded {
                continue;
            }
            let x = check::operand(node, slot, name, &[DType::I32], target)?;
            // Exporters also give a list of one length for each row of one.
            if x.rank() > 1.max(rank) {
                return Err(Refusal::new(Code::INVALID, format!("rank {}", x.rank())).slot(name));
            }
        }
        let past_keys = if past { extent::own_dim(node, 3, 2) } else { DimPlan::Fixed(0) };
        let keys = extent::require_dim(node, &cache(node), "total_sequence_length")?;
        let rotary = rotary_plan(node, head, q.dtype, target)?;
        let added = match node.input(10) {
            None => None,
            Some(_) => {
                let x = same(10, "attention_bias", 4)?;
                check::not_empty(&x, "attention_bias")?;
                Some((0..3).map(|axis| extent::own_dim(node, 10, axis)).collect())
            }
        };
        let window = node.int("local_window_size", -1);
        let causal = node.int("causal", 1) != 0;
        if window < -1 || window == 0 || (window > 0 && !causal) {
            return Err(
                Refusal::new(Code::INVALID, format!("a window of {window}")).slot("local_window_size")
            );
        }
        let scores = match node.output(3) {
            None => None,
            Some(_) => Some(scores(node)?),
        };
        Ok(Plan {
            heads,
            groups,
            head,
            packed,
            past,
            batch: extent::own_dim(node, 0, 0),
            queries: extent::own_dim(node, 0, 1),
            past_keys,
            keys,
            // The window counts the query's own position.
            band: Band { left: (window >= 1).then(|| window - 1), right: causal.then_some(0) },
            norm: norm.then(|| node.float("qk_norm_epsilon", 1e-6)),
            padded,
            scores,
            rotary,
            added,
            scoring: Scoring {
                scale: key_mask::scale(node, head),
                softcap: node.float("softcap", 0.0),
                precision: None,
                // What padding gives is not defined, but must be a number.
                guard: padded || window >= 1,
                sink: match (node.input(11), node.int("smooth_softmax", -1)) {
                    (Some(_), _) => Some(Sink::OfHeads(11)),
                    (None, 1) => Some(Sink::Zero),
                    _ => None,
                },
            },
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let [mut q, mut k, v] = tokens(cx, &plan);
        let dtype = cx.dtype(q);
        // How many tokens of each row came before: [n, 1, 1, 1].
        let lengths = cx.input(5);
        let lengths = cx.cast(lengths, DType::I64);
        let last = cx.reshape(lengths, vec![-1, 1, 1, 1]);
        let queries = cx.dim(&plan.queries);
        let queries = cx.with_rank(queries, 4);
        let one = cx.scalar(DType::I64, 4, 1.0);
        let length = cx.elementwise(last, one, ElementWiseOp::Sum);
        let count = match plan.padded {
            true => {
                let x = cx.input(TOKENS);
                let x = cx.cast(x, DType::I64);
                cx.reshape(x, vec![-1, 1, 1, 1])
            }
            false => queries,
        };
        let before = cx.elementwise(length, count, ElementWiseOp::Sub);
        let zero = cx.scalar(DType::I64, 4, 0.0);
        let before = cx.elementwise(before, zero, ElementWiseOp::Max);
        if let Some(epsilon) = plan.norm {
            let [a, b] = NORMS.map(|slot| cx.input(slot));
            [q, k] = [(q, a), (k, b)].map(|(x, w)| norm::over_last(cx, x, w, None, (Centre::Zero, epsilon)));
        }
        if let Some(rotary) = &plan.rotary {
            let angles = angles(cx, &plan, rotary, before);
            [q, k] = [(q, plan.heads), (k, plan.groups)].map(|(x, heads)| {
                let lead = [plan.batch.clone(), plan.queries.clone(), DimPlan::Fixed(heads)];
                let (turned, interleaved) = (rotary.turned, rotary.interleaved);
                rotary::turn(cx, x, angles, &Rotation { lead, head: plan.head, turned, interleaved })
            });
        }
        let [present_key, present_value] =
            [(k, 3), (v, 4)].map(|(x, slot)| cached(cx, &plan, x, slot, [before, count]));
        let mut seen = attention::seen(cx, plan.band, &plan.queries, &plan.keys, Some(before));
        // The last of all tokens sees no other's.
        if plan.queries.fixed() != Some(1) || seen.is_none() {
            let valid = attention::valid_keys(cx, &plan.keys, length);
            seen = attention::both(cx, seen, Some(valid));
        }
        let mut bias = seen.map(|seen| attention::as_bias(cx, seen, dtype, f64::NEG_INFINITY));
        if let Some(lead) = plan.added.clone() {
            let x = cx.input(10);
            let x = attention::lengthened(cx, x, lead, &plan.keys);
            bias = attention::summed(cx, bias, Some(x));
        }
        let times = plan.heads / plan.groups;
        let [k, v] = [present_key, present_value].map(|x| attention::repeat_heads(cx, x, plan.groups, times));
        let q = cx.transpose(q, vec![0, 2, 1, 3]);
        let done = attention::attend(cx, [q, k, v], bias, plan.scoring);
        let mut outputs = vec![attention::merge_heads(cx, done.y), present_key, present_value];
        if let Some(scores) = &plan.scores {
            outputs.push(handed_out(cx, &plan, scores, &done, seen));
        }
        outputs
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    /// 2 rows of 3 new tokens; 4 heads of 16 share 2 of keys.
    fn of(past: i64, lengths: [i32; 2], total: i32) -> Case {
        let case =
            Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 4).int("kv_num_heads", 2);
        let case = case.input(noise([2, 3, 64])).input(noise([2, 3, 32])).input(noise([2, 3, 32]));
        let case = match past {
            0 => case.absent().absent(),
            past => case.input(noise([2, 2, past, 16])).input(noise([2, 2, past, 16])),
        };
        case.input(i32s([2], &lengths.map(|n| n - 1))).constant(i32s([], &[total])).outputs(3)
    }

    /// One row of one new token.
    fn decode(past: i64, length: i32, total: i32) -> Case {
        let case =
            Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 4).int("kv_num_heads", 2);
        let case = case.input(noise([1, 1, 64])).input(noise([1, 1, 32])).input(noise([1, 1, 32]));
        let case = case.input(noise([1, 2, past, 16])).input(noise([1, 2, past, 16]));
        case.input(i32s([1], &[length - 1])).constant(i32s([], &[total])).outputs(3)
    }

    fn turned(case: Case) -> Case {
        case.constant(noise([16, 8])).constant(noise([16, 8])).int("do_rotary", 1)
    }

    #[test]
    fn prompts() {
        of(0, [3, 3], 3).check(F32);
        of(0, [3, 3], 3).float("scale", 0.2).float("softcap", 1.5).check(F32);
        turned(of(0, [3, 3], 3)).check(F32);
        turned(of(0, [3, 3], 3)).int("rotary_interleaved", 1).check(F32);
        of(0, [3, 3], 3).int("local_window_size", 2).check(F32);
    }

    #[test]
    fn steps() {
        decode(5, 6, 6).check(F32);
        decode(5, 6, 6).int("local_window_size", 3).check(F32);
        turned(decode(5, 6, 6)).check(F32);
        // A cache that has room left.
        decode(8, 6, 6).check(F32);
        let given = turned(decode(5, 6, 6)).input(i64s([1, 1], &[7]));
        given.check(F32);
        // Of a first prompt only the first position counts.
        turned(of(0, [3, 3], 3)).input(i64s([2, 3], &[2, 7, 1, 5, 6, 7])).check(F32);
        let open = turned(of(0, [3, 3], 3)).input(i64s([2, 3], &[2, 7, 1, 5, 6, 7]));
        let open =
            open.dynamic(0, ["N", "3", "64"]).dynamic(1, ["N", "3", "32"]).dynamic(2, ["N", "3", "32"]);
        open.dynamic(5, ["N"]).dynamic(9, ["N", "3"]).check(F32);
        let rows =
            Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 4).int("kv_num_heads", 2);
        let rows = rows.input(noise([2, 1, 64])).input(noise([2, 1, 32])).input(noise([2, 1, 32]));
        let rows = rows.input(noise([2, 2, 5, 16])).input(noise([2, 2, 5, 16]));
        let rows = rows.input(i32s([2], &[5, 3])).constant(i32s([], &[6])).outputs(3);
        rows.check(F32);
        turned(rows).check(F32);
        let several =
            Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 4).int("kv_num_heads", 2);
        let several = several.input(noise([1, 3, 64])).input(noise([1, 3, 32])).input(noise([1, 3, 32]));
        let several = several.input(noise([1, 2, 5, 16])).input(noise([1, 2, 5, 16]));
        turned(several.input(i32s([1], &[7])).constant(i32s([], &[8])).outputs(3)).check(F32);
        let biased = decode(5, 6, 6).absent().absent().absent().input(noise([1, 4, 1, 6]));
        biased.check(F32);
    }

    #[test]
    fn shares_that_go_nowhere() {
        of(0, [3, 3], 3).int("smooth_softmax", 1).check(F32);
        let sink = |case: Case| case.absent().absent().absent().absent().input(noise([4]));
        sink(decode(8, 6, 6)).check(F32);
        sink(of(0, [3, 3], 3)).int("local_window_size", 1).float("softcap", 1.5).check(F32);
    }

    #[test]
    fn scores() {
        for kind in [1, 2] {
            let with = |case: Case| case.int("qk_output", kind).outputs(4);
            with(of(0, [3, 2], 3)).check(F32);
            // Cut to the tokens of a longer cache.
            let long = with(decode(8, 6, 6)).int("local_window_size", 3);
            assert_eq!(long.types()[3], "f32[1 x 4 x 1 x 6]");
            long.check(F32);
        }
    }

    #[test]
    fn both_ways() {
        of(0, [3, 2], 3).int("causal", 0).check(F32);
        decode(8, 6, 6).int("causal", 0).check(F32);
    }

    #[test]
    fn dims_that_agree() {
        let case = of(0, [3, 3], 3).dynamic(0, ["2", "S", "64"]).dynamic(1, ["2", "T", "32"]);
        let case = case.dynamic(2, ["B", "T", "32"]);
        assert_eq!(case.equalities(), ["B = 2", "T = S", "3 = S"]);
        assert!(of(0, [3, 3], 4).invalid().contains("4 tokens"));
    }

    /// The first of two heads is turned, the root of the mean square of which is 1 already; weights double it.
    #[test]
    fn normalised_first() {
        let case =
            Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 1).int("kv_num_heads", 1);
        let case = case.input(f32s([1, 2, 2], &[0.0; 4])).input(f32s([1, 2, 2], &[3.0, 4.0, 8.0, 6.0]));
        let case = case.input(f32s([1, 2, 2], &[1.0, 2.0, 5.0, 4.0])).absent().absent();
        let case = case.input(i32s([1], &[1])).constant(i32s([], &[2])).outputs(2);
        let case = (7..14).fold(case, |case, _| case.absent());
        let case = case.input(f32s([2], &[1.0, 1.0])).input(f32s([2], &[2.0, 1.0]));
        // √((9 + 16) / 2) = 5 / √2, √((64 + 36) / 2) = 10 / √2.
        let unit = [0.6, 0.8, 0.8, 0.6].map(|v: f32| v * 2f32.sqrt());
        let keys = f32s([1, 1, 2, 2], &[2.0 * unit[0], unit[1], 2.0 * unit[2], unit[3]]);
        case.gives(F32, &[f32s([1, 2, 2], &[1.0, 2.0, 3.0, 3.0]), keys]);
    }

    /// A row with one token of two, after one: the padding is no key, and does not come into the cache.
    #[test]
    fn padded_steps() {
        let case =
            Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 1).int("kv_num_heads", 1);
        let case = case.input(f32s([1, 2, 2], &[0.0; 4])).input(f32s([1, 2, 2], &[7.0, 8.0, 9.0, 9.0]));
        let case = case.input(f32s([1, 2, 2], &[5.0, 1.0, 9.0, 9.0]));
        let case = case.input(f32s([1, 1, 3, 2], &[3.0, 4.0, 0.0, 0.0, 0.0, 0.0]));
        let case = case.input(f32s([1, 1, 3, 2], &[1.0, 2.0, 0.0, 0.0, 0.0, 0.0]));
        let case = case.input(i32s([1], &[1])).constant(i32s([], &[3])).outputs(3);
        let case = (7..16).fold(case, |case, _| case.absent()).input(i32s([1], &[1]));
        let cache = |a: [f32; 4]| f32s([1, 1, 3, 2], &[a[0], a[1], a[2], a[3], 0.0, 0.0]);
        let want = f32s([1, 2, 2], &[3.0, 1.5, 3.0, 1.5]);
        case.gives(F32, &[want, cache([3.0, 4.0, 7.0, 8.0]), cache([1.0, 2.0, 5.0, 1.0])]);
    }

    #[test]
    fn packed() {
        let case =
            Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 4).int("kv_num_heads", 2);
        let case = case.input(noise([2, 3, 128])).absent().absent().absent().absent();
        let case = case.input(i32s([2], &[2, 2])).constant(i32s([], &[3])).outputs(3);
        case.check(F32);
        turned(case).check(F32);
    }

    #[test]
    fn sizes_of_the_run() {
        let case =
            Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 4).int("kv_num_heads", 2);
        let case = case.input(noise([1, 1, 64])).input(noise([1, 1, 32])).input(noise([1, 1, 32]));
        let case = case.input(noise([1, 2, 5, 16])).input(noise([1, 2, 5, 16]));
        let case = case.input(i32s([1], &[5])).input(i32s([], &[6])).sizes(6, ["T"]).outputs(3);
        let open = case.dynamic(3, ["1", "2", "P", "16"]).dynamic(4, ["1", "2", "P", "16"]);
        assert_eq!(
            open.types(),
            ["f32[1 x 1 x 64]", "f32[1 x 2 x max(P, T) x 16]", "f32[1 x 2 x max(P, T) x 16]"]
        );
        for (past, total) in [(5, 6), (3, 1)] {
            let case = Case::of("com.microsoft", "GroupQueryAttention", 1)
                .int("num_heads", 4)
                .int("kv_num_heads", 2);
            let case = case.input(noise([2, 1, 64])).input(noise([2, 1, 32])).input(noise([2, 1, 32]));
            let case = case.input(noise([2, 2, past, 16])).input(noise([2, 2, past, 16]));
            let case = case.input(i32s([2], &[total - 1; 2])).input(i32s([], &[total])).sizes(6, ["T"]);
            let case = turned(case.outputs(3)).input(i64s([2, 1], &[7, 2]));
            case.lowered();
        }
        // A query of zeros weighs all values alike.
        let case =
            Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 1).int("kv_num_heads", 1);
        let case = case.input(f32s([1, 1, 2], &[0.0, 0.0])).input(f32s([1, 1, 2], &[7.0, 8.0]));
        let case = case.input(f32s([1, 1, 2], &[5.0, 1.0])).input(f32s([1, 1, 1, 2], &[3.0, 4.0]));
        let case = case.input(f32s([1, 1, 1, 2], &[1.0, 2.0])).input(i32s([1], &[1]));
        let case = case.input(i32s([], &[2])).sizes(6, ["T"]).outputs(3);
        let case = case.dynamic(3, ["1", "1", "P", "2"]).dynamic(4, ["1", "1", "P", "2"]);
        let cache = |values: &[f32]| f32s([1, 1, 2, 2], values);
        let want = [f32s([1, 1, 2], &[3.0, 1.5]), cache(&[3.0, 4.0, 7.0, 8.0]), cache(&[1.0, 2.0, 5.0, 1.0])];
        case.gives(F32, &want);
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let case = Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 1);
            let case =
                case.int("kv_num_heads", 1).input(x(&[1, 1, 2])).input(x(&[1, 1, 2])).input(x(&[1, 1, 2]));
            case.absent().absent().input(i32s([1], &[0])).constant(i32s([], &[1]))
        });
        let case = || of(0, [3, 3], 3);
        case().target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        case().outputs(4).refused(Code::INVALID);
        case().int("sliding_window_cache", 1).refused(Code::ATTRIBUTE);
        case().int("causal", 0).int("local_window_size", 2).refused(Code::INVALID);
        case().int("local_window_size", 0).refused(Code::INVALID);
        case().str("k_quant_type", "PER_TENSOR").refused(Code::ATTRIBUTE);
        case().dynamic(0, ["2", "3", "H"]).refused(Code::DIM_UNKNOWN);
        case().int("do_rotary", 1).refused(Code::INVALID);
        turned(of(0, [3, 3], 3)).input(i64s([1], &[0])).refused(Code::INVALID);
        let unknown = Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 1);
        let one = |dtype| of_dtype(dtype, [1, 1, 2], &[1.0, 2.0]);
        let [q, k, v]: [Tensor; 3] = [DType::F32; 3].map(one);
        let unknown = unknown.int("kv_num_heads", 1).input(q).input(k).input(v);
        // The past and as many tokens, or less: the length of the cache is data of the run.
        let past = unknown.clone().input(noise([1, 1, 3, 2])).input(noise([1, 1, 3, 2]));
        past.input(i32s([1], &[0])).input(i32s([], &[1])).refused(Code::SHAPE_VALUE);
        let none = unknown.absent().absent().input(i32s([1], &[0])).input(i32s([], &[1])).outputs(3);
        assert_eq!(none.types(), ["f32[1 x 1 x 2]", "f32[1 x 1 x 1 x 2]", "f32[1 x 1 x 1 x 2]"]);
        none.layers();
        let empty = none.dynamic(0, ["1", "0", "2"]).dynamic(1, ["1", "0", "2"]).dynamic(2, ["1", "0", "2"]);
        empty.refused(Code::SHAPE);
        assert!(case().int("kv_num_heads", 3).invalid().contains("share 3"));
        assert!(case().int("num_heads", 6).invalid().contains("a dim of 64"));
    }
}

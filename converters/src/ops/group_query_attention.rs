//! GroupQueryAttention (com.microsoft): causal attention with a cache of keys and values that groups of queries share.
//!
//! query [n, s, h·d] T, key [n, s, g·d] T, value [n, s, g·d] T, (past_key [n, g, p, d] T, past_value [n, g, p, d] T),
//! seqlens_k [n] i32 (tokens of a row, less 1), total_sequence_length [] i32, (cos_cache, sin_cache [m, r/2] T),
//! (position_ids [n, s] i64), (attention_bias [n or 1, h or 1, s, total] T)
//!   ->  output [n, s, h·d] T, (present_key [n, g, max(total, p), d] T, present_value like it)
//! Packed: query [n, s, (h + 2g)·d]. The cache holds the past of a row from place 0 on, then its new tokens, then zeros.
//! Opsets: 1.     TensorRT: IMatrixMultiplyLayer, ISoftMaxLayer, IGatherLayer, ISelectLayer, IElementWiseLayer.
//! Limits: hidden sizes known, total_sequence_length computed from dims; causal; no quantised cache, window-sized cache, sinks.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention::{self, Band, Scoring},
        check, dims as dim_math, elementwise,
        extent::{self, DimPlan, ExtentPlan},
        iota, key_mask, matrix,
        rotary::{self, Rotation},
        shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, GatherMode, SampleMode},
};

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
    rotary: Option<Rotary>,
    /// Dims of the added bias but the last.
    added: Option<Vec<DimPlan>>,
    scoring: Scoring,
}

#[derive(Debug)]
struct Rotary {
    turned: i64,
    interleaved: bool,
    given: bool,
}

struct Sizes {
    heads: i64,
    groups: i64,
    packed: bool,
    head: Dim,
}

const UNSUPPORTED: &[(usize, &str, &str)] = &[
    (11, "head_sink", "a share of attention that goes to nothing"),
    (12, "k_scale", "a quantised cache"),
    (13, "v_scale", "a quantised cache"),
    (14, "q_norm_weight", "queries and keys that are normalised first"),
    (15, "k_norm_weight", "queries and keys that are normalised first"),
    (16, "query_seqlens", "padded tokens of the step"),
];

const PLAIN: &[(&str, i64, &str)] = &[
    ("causal", 1, "attention to keys of later positions"),
    ("sliding_window_cache", 0, "a cache as long as the window"),
    ("smooth_softmax", 0, "a share of attention that goes to nothing"),
    ("qk_output", 0, "the scores are not handed out"),
];

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

/// Length of the cache after the step.
fn cache(node: NodeView<'_>) -> Dim {
    let total = match node.input(6) {
        Some(total) => match (total.elements(), total.const_i64s().as_deref()) {
            (Some([one]), _) => one.clone(),
            (None, Some([one])) => Dim::Known(*one),
            _ => Dim::Unknown,
        },
        None => Dim::Unknown,
    };
    dim_math::max(node, &total, &past_keys(node))
}

impl Converter for GroupQueryAttention {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "GroupQueryAttention", 1)],
        dtypes: check::FLOATS,
        layers: "IMatrixMultiplyLayer, ISoftMaxLayer, IGatherLayer, ISelectLayer, IElementWiseLayer",
        limits: "hidden sizes known, total_sequence_length computed from dims; causal; no quantised or window-sized cache",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::OUTPUTS,
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
        for slot in [1, 2, 3, 4, 5] {
            shape::demand(node, (slot, 0), &at(0), cx)?;
        }
        shape::demand(node, (4, 2), &past_keys(node), cx)?;
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
        Ok(shape::types([shape::typed(dtype, Some(vec![at(0), at(1), hidden])), present.clone(), present]))
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
                if x.shape[1] != q.shape[1] || x.shape[2].known() != head.checked_mul(groups) {
                    let why = "other tokens than the queries, or another head size";
                    return Err(Refusal::new(Code::INVALID, why).slot(name));
                }
            }
        }
        matrix::gemm_gate(q.dtype, target)?;
        key_mask::without(node, UNSUPPORTED)?;
        key_mask::only(node, PLAIN)?;
        for name in ["k_quant_type", "v_quant_type"] {
            if !matches!(node.str(name, "NONE"), "NONE" | "") {
                return Err(Refusal::new(Code::ATTRIBUTE, "a quantised cache").slot(name));
            }
        }
        if node.output(3).is_some() {
            return Err(Refusal::new(Code::OUTPUTS, "the scores are not handed out").slot("output_qk"));
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
        for (slot, name, rank) in [(5, "seqlens_k", 1), (6, "total_sequence_length", 0)] {
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
        if window < -1 || window == 0 {
            return Err(
                Refusal::new(Code::INVALID, format!("a window of {window}")).slot("local_window_size")
            );
        }
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
            band: Band { left: (window >= 1).then(|| window - 1), ..Band::CAUSAL },
            rotary,
            added,
            scoring: Scoring {
                scale: key_mask::scale(node, head)?,
                softcap: node.float("softcap", 0.0),
                precision: None,
                guard: false,
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
        let before = cx.elementwise(length, queries, ElementWiseOp::Sub);
        let zero = cx.scalar(DType::I64, 4, 0.0);
        let before = cx.elementwise(before, zero, ElementWiseOp::Max);
        if let Some(rotary) = &plan.rotary {
            let angles = angles(cx, &plan, rotary, before);
            [q, k] = [(q, plan.heads), (k, plan.groups)].map(|(x, heads)| {
                let lead = [plan.batch.clone(), plan.queries.clone(), DimPlan::Fixed(heads)];
                let (turned, interleaved) = (rotary.turned, rotary.interleaved);
                rotary::turn(cx, x, angles, &Rotation { lead, head: plan.head, turned, interleaved })
            });
        }
        let [present_key, present_value] =
            [(k, 3), (v, 4)].map(|(x, slot)| cached(cx, &plan, x, slot, before));
        let seen = attention::seen(cx, plan.band, &plan.queries, &plan.keys, Some(before));
        let mut bias = seen.map(|seen| attention::as_bias(cx, seen, dtype, f64::NEG_INFINITY));
        if let Some(lead) = plan.added {
            let x = cx.input(10);
            let x = attention::lengthened(cx, x, lead, &plan.keys);
            bias = attention::summed(cx, bias, Some(x));
        }
        let times = plan.heads / plan.groups;
        let [k, v] = [present_key, present_value].map(|x| attention::repeat_heads(cx, x, plan.groups, times));
        let q = cx.transpose(q, vec![0, 2, 1, 3]);
        let done = attention::attend(cx, [q, k, v], bias, plan.scoring);
        vec![attention::merge_heads(cx, done.y), present_key, present_value]
    }
}

fn rotary_plan(
    node: NodeView<'_>,
    head: i64,
    dtype: DType,
    target: &Target,
) -> Result<Option<Rotary>, Refusal> {
    if node.int("do_rotary", 0) == 0 {
        return Ok(None);
    }
    let mut turned = 0;
    for (slot, name) in [(7, "cos_cache"), (8, "sin_cache")] {
        let x = elementwise::gate(node, slot, name, &[dtype], target)?;
        turned = match x.shape {
            [_, Dim::Known(half)] if (1..=head / 2).contains(half) => 2 * half,
            _ => return Err(Refusal::new(Code::INVALID, "not angles of a head's pairs").slot(name)),
        };
    }
    let given = node.input(9).is_some();
    if given {
        let ids = check::operand(node, 9, "position_ids", &[DType::I64], target)?;
        if ids.rank() != 2 {
            return Err(Refusal::new(Code::INVALID, format!("rank {}", ids.rank())).slot("position_ids"));
        }
    }
    Ok(Some(Rotary { turned, interleaved: node.int("rotary_interleaved", 0) != 0, given }))
}

/// Queries, keys and values as [n, s, h, d].
fn tokens(cx: &mut Emit<'_>, plan: &Plan) -> [TensorId; 3] {
    let all = [plan.heads, plan.groups, plan.groups];
    if !plan.packed {
        return [0, 1, 2].map(|slot| {
            let x = cx.input(slot);
            rotary::copied(cx, x, vec![0, 0, all[slot], -1])
        });
    }
    let x = cx.input(0);
    let x = rotary::copied(cx, x, vec![0, 0, plan.heads + 2 * plan.groups, -1]);
    [0, 1, 2].map(|k| {
        let fixed = DimPlan::Fixed;
        let dims = vec![plan.batch.clone(), plan.queries.clone(), fixed(all[k]), fixed(plan.head)];
        let size = cx.extent(&ExtentPlan::Dims(dims));
        let start = Extent::Static(vec![0, 0, all[..k].iter().sum(), 0]);
        let stride = Extent::Static(vec![1; 4]);
        cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })
    })
}

/// Cosines and sines of the tokens' positions: [n, s, 1, r/2].
fn angles(cx: &mut Emit<'_>, plan: &Plan, rotary: &Rotary, before: TensorId) -> [TensorId; 2] {
    let positions = match rotary.given {
        true => cx.input(9),
        false => {
            let before = cx.reshape(before, vec![-1, 1]);
            let count = iota::along(cx, &plan.queries, 1, 2);
            cx.elementwise(count, before, ElementWiseOp::Sum)
        }
    };
    [7, 8].map(|slot| {
        let cache = cx.input(slot);
        let x = rotary::rows(cx, cache, positions);
        cx.one(Layer::Unsqueeze { x, axes: vec![2] })
    })
}

/// The cache after the step, [n, g, t, d]: place j holds row j of the past, or token j − `before` of the step, or zeros.
fn cached(cx: &mut Emit<'_>, plan: &Plan, x: TensorId, past: usize, before: TensorId) -> TensorId {
    let dtype = cx.dtype(x);
    let mut all = x;
    if plan.past {
        let past = cx.input(past);
        let past = cx.transpose(past, vec![0, 2, 1, 3]);
        all = cx.one(Layer::Concatenation { xs: vec![past, x], axis: 1 });
    }
    let before = cx.reshape(before, vec![-1, 1]);
    let place = iota::along(cx, &plan.keys, 1, 2);
    let token = cx.elementwise(place, before, ElementWiseOp::Sub);
    let start = cx.dim(&plan.past_keys);
    let start = cx.with_rank(start, 2);
    let fresh = cx.elementwise(token, start, ElementWiseOp::Sum);
    let old = cx.elementwise(place, before, ElementWiseOp::Less);
    let row = cx.one(Layer::Select { condition: old, then_input: place, else_input: fresh });
    // What lies past the tokens is zeroed below; the index only has to exist.
    let last = plan.past_keys.clone().plus(plan.queries.clone()).plus(DimPlan::Fixed(-1));
    let last = cx.dim(&last);
    let last = cx.with_rank(last, 2);
    let indices = cx.elementwise(row, last, ElementWiseOp::Min);
    let y = cx.one(Layer::Gather { data: all, indices, axis: 1, mode: GatherMode::Default, batch_dims: 1 });
    let queries = cx.dim(&plan.queries);
    let queries = cx.with_rank(queries, 2);
    let filled = cx.elementwise(token, queries, ElementWiseOp::Less);
    let condition = cx.one(Layer::Unsqueeze { x: filled, axes: vec![2, 3] });
    let else_input = cx.scalar(dtype, 4, 0.0);
    let y = cx.one(Layer::Select { condition, then_input: y, else_input });
    cx.transpose(y, vec![0, 2, 1, 3])
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
        case().outputs(4).refused(Code::OUTPUTS);
        for (name, value) in
            [("causal", 0), ("sliding_window_cache", 1), ("smooth_softmax", 1), ("qk_output", 1)]
        {
            case().int(name, value).refused(Code::ATTRIBUTE);
        }
        case().int("local_window_size", 0).refused(Code::INVALID);
        case().str("k_quant_type", "PER_TENSOR").refused(Code::ATTRIBUTE);
        case().float("scale", -1.0).refused(Code::ATTRIBUTE);
        let sink = case().absent().absent().absent().absent().input(noise([4]));
        sink.refused(Code::ATTRIBUTE);
        case().dynamic(0, ["2", "3", "H"]).refused(Code::DIM_UNKNOWN);
        case().dynamic(0, ["2", "0", "64"]).refused(Code::SHAPE);
        case().dynamic(1, ["2", "2", "32"]).refused(Code::INVALID);
        case().int("do_rotary", 1).refused(Code::INVALID);
        turned(of(0, [3, 3], 3)).input(i64s([3], &[0, 1, 2])).refused(Code::INVALID);
        let unknown = Case::of("com.microsoft", "GroupQueryAttention", 1).int("num_heads", 1);
        let one = |dtype| of_dtype(dtype, [1, 1, 2], &[1.0, 2.0]);
        let [q, k, v]: [Tensor; 3] = [DType::F32; 3].map(one);
        let unknown = unknown.int("kv_num_heads", 1).input(q).input(k).input(v).absent().absent();
        unknown.input(i32s([1], &[0])).input(i32s([], &[1])).refused(Code::SHAPE_VALUE);
        assert!(case().int("kv_num_heads", 3).invalid().contains("share 3"));
        assert!(case().int("num_heads", 6).invalid().contains("a dim of 64"));
    }
}

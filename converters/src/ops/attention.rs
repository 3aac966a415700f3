//! Attention: scaled dot products of queries and keys, masked, as weights of values.
//!
//! Q [n, h, s, d] T, K [n, g, t, d] T, V [n, g, t, e] T, (attn_mask [..n, ..h, ..s, ..t] bool or T),
//! (past_key [n, g, p, d] T, past_value [n, g, p, e] T), (nonpad_kv_seqlen [n] i64)
//!   ->  Y [n, h, s, e] T, (present_key [n, g, p+t, d] T), (present_value [n, g, p+t, e] T), (qk [n, h, s, p+t] T)
//! Rank 3: Q [n, s, h·d], K [n, t, g·d], V [n, t, g·e], Y [n, s, h·e].
//! Opsets: 23; 24 nonpad_kv_seqlen; 25 windows.
//! TensorRT: IMatrixMultiplyLayer, ISoftMaxLayer, and what masks, caps and groups need. No IAttention: it has none of these.
//! Limits: one dtype for all; numbers of heads known or equal; head size known unless there is a scale; no softmax in f64.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention::{self, Band, Scoring},
        check::{self, Operand},
        extent::{self, DimPlan},
        matrix, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Type};
use trtc_network::{TensorId, layer::ElementWiseOp};

/// The converter.
#[derive(Debug)]
pub struct Attention;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    /// Heads of queries, and of keys and values, where the inputs have rank 3.
    split: Option<[i64; 2]>,
    /// Heads of keys and values, and how many queries share one.
    groups: Option<(i64, i64)>,
    /// Whether there are keys and values of the past.
    past: bool,
    queries: DimPlan,
    keys: DimPlan,
    past_keys: DimPlan,
    band: Band,
    mask: Option<MaskPlan>,
    scoring: Scoring,
    mode: i64,
}

/// The mask.
#[derive(Debug)]
struct MaskPlan {
    is_bool: bool,
    /// Its dims but the last, when it may be shorter than the keys.
    lengthen: Option<Vec<DimPlan>>,
}

/// Dims as the rank-4 forms name them.
struct Sizes {
    batch: Dim,
    heads: Dim,
    groups: Dim,
    queries: Dim,
    new_keys: Dim,
    past_keys: Dim,
    head: Dim,
    value_head: Dim,
    flat: bool,
}

fn dims<'a>(node: NodeView<'a>, slot: usize) -> Option<&'a [Dim]> {
    node.input(slot)?.shape()
}

/// Number of heads that an attribute gives.
fn heads_of(node: NodeView<'_>, name: &str) -> Result<i64, Diag> {
    match node.attrs().int(name) {
        Some(heads) if heads > 0 => Ok(heads),
        Some(heads) => Err(Diag::invalid(format!("{heads} heads")).slot(name)),
        None => Err(Diag::invalid("inputs of rank 3 need the number of heads").slot(name)),
    }
}

/// `None` when a rank is unknown.
fn sizes(node: NodeView<'_>) -> Result<Option<Sizes>, Diag> {
    let (Some(q), Some(k), Some(v)) = (dims(node, 0), dims(node, 1), dims(node, 2)) else { return Ok(None) };
    if q.len() != k.len() || q.len() != v.len() || !matches!(q.len(), 3 | 4) {
        return Err(Diag::invalid(format!("Q, K, V of ranks {}, {}, {}", q.len(), k.len(), v.len())));
    }
    let past_keys = match node.input(4) {
        None => Dim::Known(0),
        Some(past) => match past.shape() {
            None => Dim::Unknown,
            Some([_, _, keys, _]) => keys.clone(),
            Some(dims) => {
                return Err(Diag::invalid(format!("rank {}, not 4", dims.len())).slot("past_key"));
            }
        },
    };
    if q.len() == 4 {
        return Ok(Some(Sizes {
            batch: q[0].clone(),
            heads: q[1].clone(),
            groups: k[1].clone(),
            queries: q[2].clone(),
            new_keys: k[2].clone(),
            past_keys,
            head: q[3].clone(),
            value_head: v[3].clone(),
            flat: false,
        }));
    }
    let (heads, groups) = (heads_of(node, "q_num_heads")?, heads_of(node, "kv_num_heads")?);
    Ok(Some(Sizes {
        batch: q[0].clone(),
        heads: Dim::Known(heads),
        groups: Dim::Known(groups),
        queries: q[1].clone(),
        new_keys: k[1].clone(),
        past_keys,
        head: attention::share(&q[2], heads, "Q")?,
        value_head: attention::share(&v[2], groups, "V")?,
        flat: true,
    }))
}

fn softmax_dtype(node: NodeView<'_>) -> Result<Option<DType>, Refusal> {
    let why = |code, why: String| Err(Refusal::new(code, why).slot("softmax_precision"));
    match node.attrs().int("softmax_precision") {
        None => Ok(None),
        Some(1) => Ok(Some(DType::F32)),
        Some(10) => Ok(Some(DType::F16)),
        Some(16) => Ok(Some(DType::Bf16)),
        Some(11) => why(Code::ATTRIBUTE, "TensorRT has no f64".into()),
        Some(other) => why(Code::INVALID, format!("no float dtype has number {other}")),
    }
}

fn window(node: NodeView<'_>, name: &str) -> Result<Option<i64>, Refusal> {
    match node.int(name, -1) {
        -1 => Ok(None),
        size if size >= 0 => Ok(Some(size)),
        size => Err(Refusal::new(Code::INVALID, format!("a window of {size}")).slot(name)),
    }
}

/// Heads of keys and how many queries share one; `None` when there are as many of either.
fn groups(sizes: &Sizes) -> Result<Option<(i64, i64)>, Refusal> {
    match (&sizes.heads, &sizes.groups) {
        (a, b) if a == b && *a != Dim::Unknown => Ok(None),
        (Dim::Known(heads), Dim::Known(groups)) if *groups > 0 && heads % groups == 0 => {
            Ok(Some((*groups, heads / groups)))
        }
        (Dim::Known(heads), Dim::Known(groups)) => {
            Err(Refusal::new(Code::INVALID, format!("{heads} heads of queries share {groups} of keys")))
        }
        _ => Err(Refusal::new(Code::DIM_UNKNOWN, "the numbers of heads are not known before the run")
            .slot("Q")
            .help("give the input's shape with --shape")),
    }
}

fn rank_4(operand: &Operand<'_>, name: &str) -> Result<(), Refusal> {
    match operand.rank() {
        4 => Ok(()),
        rank => Err(Refusal::new(Code::INVALID, format!("rank {rank}, not 4")).slot(name)),
    }
}

/// Keys and values of the past; without any when they are empty.
fn past(node: NodeView<'_>, dtype: DType, target: &Target) -> Result<bool, Refusal> {
    if node.input(4).is_none() && node.input(5).is_none() {
        return Ok(false);
    }
    let mut some = true;
    for (slot, name) in [(4, "past_key"), (5, "past_value")] {
        let operand = check::operand(node, slot, name, &[dtype], target)?;
        rank_4(&operand, name)?;
        if operand.shape[2] == Dim::Known(0) {
            some = false;
        } else {
            check::not_empty(&operand, name)?;
        }
    }
    Ok(some)
}

fn mask(node: NodeView<'_>, dtype: DType, keys: &Dim, target: &Target) -> Result<Option<MaskPlan>, Refusal> {
    if node.input(3).is_none() {
        return Ok(None);
    }
    let operand = check::operand(node, 3, "attn_mask", &[dtype, DType::Bool], target)?;
    check::not_empty(&operand, "attn_mask")?;
    if !(1..=4).contains(&operand.rank()) {
        return Err(
            Refusal::new(Code::RANK, format!("rank {}, not 1 to 4", operand.rank())).slot("attn_mask")
        );
    }
    let last = &operand.shape[operand.rank() - 1];
    if let (Dim::Known(last), Dim::Known(keys)) = (last, keys)
        && last > keys
    {
        return Err(Refusal::new(Code::INVALID, format!("{last} entries for {keys} keys")).slot("attn_mask"));
    }
    let lengthen = (last != keys || *last == Dim::Unknown).then(|| {
        let mut lead = vec![DimPlan::Fixed(1); 4 - operand.rank()];
        lead.extend((0..operand.rank() - 1).map(|axis| extent::own_dim(node, 3, axis)));
        lead
    });
    Ok(Some(MaskPlan { is_bool: operand.dtype == DType::Bool, lengthen }))
}

impl Converter for Attention {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Attention", 25)],
        dtypes: check::FLOATS,
        layers: "IMatrixMultiplyLayer, ISoftMaxLayer, IElementWiseLayer, ISelectLayer, IGatherLayer",
        limits: "one dtype; numbers of heads and head size known; no softmax in f64; no f32 for sm75",
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
        let [t, u] = [0, 2].map(|slot| shape::dtype_of(node, slot));
        let Some(sizes) = sizes(node)? else {
            let open = |dtype, rank| shape::typed(dtype, Some(vec![Dim::Unknown; rank]));
            let y = dims(node, 0).map_or(shape::typed(t, None), |q| open(t, q.len()));
            return Ok(shape::types([y, open(t, 4), open(u, 4), open(t, 4)]));
        };
        let Sizes { batch, heads, groups, queries, new_keys, past_keys, head, value_head, flat } = sizes;
        let keys = past_keys.add(&new_keys);
        for (slot, axis, dim) in [(1, 0, &batch), (2, 0, &batch), (4, 0, &batch), (5, 0, &batch)]
            .into_iter()
            .chain([(4, 1, &groups), (5, 1, &groups), (4, 3, &head), (5, 3, &value_head)])
            .chain([(5, 2, &past_keys), (6, 0, &batch), (2, if flat { 1 } else { 2 }, &new_keys)])
            .chain((!flat).then_some((1, 3, &head)))
        {
            shape::demand(node, (slot, axis), dim, cx)?;
        }
        let mask_rank = node.input(3).and_then(|mask| mask.rank()).unwrap_or(0);
        for (k, dim) in [&queries, &heads, &batch].into_iter().enumerate() {
            if let Some(axis) = mask_rank.checked_sub(k + 2) {
                shape::demand_broadcast(node, (3, axis), dim, cx)?;
            }
        }
        let y = match flat {
            true => vec![batch.clone(), queries.clone(), heads.mul(&value_head)],
            false => vec![batch.clone(), heads.clone(), queries.clone(), value_head.clone()],
        };
        let typed = |dtype, dims| -> Type { shape::typed(dtype, Some(dims)) };
        Ok(shape::types([
            typed(t, y),
            typed(t, vec![batch.clone(), groups.clone(), keys.clone(), head]),
            typed(u, vec![batch.clone(), groups, keys.clone(), value_head]),
            typed(t, vec![batch, heads, queries, keys]),
        ]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let q = check::operand(node, 0, "Q", check::FLOATS, target)?;
        check::never_empty(&q, "Q")?;
        for (slot, name) in [(1, "K"), (2, "V")] {
            let operand = check::operand(node, slot, name, &[q.dtype], target)?;
            check::never_empty(&operand, name)?;
        }
        matrix::gemm_gate(q.dtype, target)?;
        let invalid = || Refusal::new(Code::INVALID, "inputs of unequal rank");
        let sizes = sizes(node).map_err(crate::ctx::window::refused)?.ok_or_else(invalid)?;
        if sizes.flat
            && let Some(slot) = (0..3).find(|&slot| dims(node, slot).is_some_and(|d| d[2].known().is_none()))
        {
            let why = "the head size is not known before the run";
            return Err(Refusal::new(Code::DIM_UNKNOWN, why).slot(["Q", "K", "V"][slot]));
        }
        let past = past(node, q.dtype, target)?;
        let nonpad = node.input(6).is_some();
        if nonpad {
            let operand = check::operand(node, 6, "nonpad_kv_seqlen", &[DType::I64], target)?;
            if operand.rank() != 1 || node.input(4).is_some() {
                let why = "a list of lengths, without keys of the past";
                return Err(Refusal::new(Code::INVALID, why).slot("nonpad_kv_seqlen"));
            }
        }
        let axis = if sizes.flat { 1 } else { 2 };
        let past_keys = if past { extent::own_dim(node, 4, 2) } else { DimPlan::Fixed(0) };
        let keys = extent::own_dim(node, 1, axis).plus(past_keys.clone());
        let mask = mask(node, q.dtype, &sizes.past_keys.add(&sizes.new_keys), target)?;
        let (left, mut right) = (window(node, "left_window_size")?, window(node, "right_window_size")?);
        let windows = left.is_some() || right.is_some();
        if node.int("is_causal", 0) != 0 {
            right = Some(0);
        }
        let precision = softmax_dtype(node)?;
        if let Some(dtype) = precision {
            check::dtype_gate(dtype, "softmax_precision", check::FLOATS, target)?;
        }
        let scale = match (node.attrs().float("scale"), &sizes.head) {
            (Some(scale), _) if scale >= 0.0 => scale.into(),
            (Some(scale), _) => {
                return Err(Refusal::new(Code::ATTRIBUTE, format!("{scale} has no root")).slot("scale"));
            }
            (None, Dim::Known(head)) => 1.0 / (*head as f64).sqrt(),
            (None, _) => {
                let why = "the head size, of which the scale is made, is not known before the run";
                return Err(Refusal::new(Code::DIM_UNKNOWN, why).slot("Q"));
            }
        };
        let mode = node.int("qk_matmul_output_mode", 0);
        if !(0..=3).contains(&mode) {
            let why = format!("there is no mode {mode}");
            return Err(Refusal::new(Code::INVALID, why).slot("qk_matmul_output_mode"));
        }
        Ok(Plan {
            split: match (&sizes.heads, &sizes.groups) {
                (Dim::Known(heads), Dim::Known(groups)) if sizes.flat => Some([*heads, *groups]),
                _ => None,
            },
            groups: groups(&sizes)?,
            past,
            queries: extent::own_dim(node, 0, axis),
            keys,
            past_keys,
            band: Band { left, right },
            scoring: Scoring {
                scale,
                softcap: node.float("softcap", 0.0),
                precision,
                // Causal queries see the first key at least.
                guard: mask.is_some() || nonpad || windows,
                sink: None,
            },
            mask,
            mode,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut inputs = [0, 1, 2].map(|slot| cx.input(slot));
        if let Some([heads, groups]) = plan.split {
            for (x, heads) in inputs.iter_mut().zip([heads, groups, groups]) {
                *x = attention::split_heads(cx, *x, heads);
            }
        }
        let [q, k, v] = inputs;
        let [past_key, past_value] = [4, 5].map(|slot| plan.past.then(|| cx.input(slot)));
        let (present_key, present_value) =
            (attention::joined(cx, past_key, k), attention::joined(cx, past_value, v));
        let bias = bias(cx, &plan, q);
        let [k, v] = [present_key, present_value].map(|x| match plan.groups {
            Some((heads, times)) => attention::repeat_heads(cx, x, heads, times),
            None => x,
        });
        let done = attention::attend(cx, [q, k, v], bias, plan.scoring);
        let y = match plan.split {
            Some(_) => attention::merge_heads(cx, done.y),
            None => done.y,
        };
        let qk = match plan.mode {
            0 => done.raw,
            1 => done.capped,
            2 => done.biased,
            _ => done.probabilities,
        };
        vec![y, present_key, present_value, qk]
    }
}

/// The sum of mask, causality, windows and padding, of rank 4.
fn bias(cx: &mut Emit<'_>, plan: &Plan, q: TensorId) -> Option<TensorId> {
    let dtype = cx.dtype(q);
    let valid = cx.optional(6).map(|x| cx.reshape(x, vec![-1, 1, 1, 1]));
    let first = match (valid, plan.past) {
        _ if plan.band.is_open() => None,
        // The last query is at the last valid key.
        (Some(valid), _) => {
            let queries = cx.dim(&plan.queries);
            let queries = cx.with_rank(queries, 4);
            Some(cx.elementwise(valid, queries, ElementWiseOp::Sub))
        }
        (None, true) => {
            let past = cx.dim(&plan.past_keys);
            Some(cx.with_rank(past, 4))
        }
        (None, false) => None,
    };
    let in_band = attention::seen(cx, plan.band, &plan.queries, &plan.keys, first);
    let unpadded = valid.map(|valid| attention::valid_keys(cx, &plan.keys, valid));
    let seen = attention::both(cx, in_band, unpadded);
    let seen = seen.map(|seen| attention::as_bias(cx, seen, dtype, f64::NEG_INFINITY));
    let mask = plan.mask.as_ref().map(|mask| {
        let x = cx.input(3);
        let mut x = cx.with_rank(x, 4);
        if mask.is_bool {
            x = attention::as_bias(cx, x, dtype, f64::NEG_INFINITY);
        }
        match &mask.lengthen {
            Some(lead) => attention::lengthened(cx, x, lead.clone(), &plan.keys),
            None => x,
        }
    });
    attention::summed(cx, mask, seen)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    fn of(q: Tensor, k: Tensor, v: Tensor) -> Case {
        Case::new("Attention", 25).input(q).input(k).input(v)
    }

    /// 2 rows, 3 heads, 4 queries, 6 keys, head sizes 8 and 10.
    fn plain() -> Case {
        of(noise([2, 3, 4, 8]), noise([2, 3, 6, 8]), noise([2, 3, 6, 10]))
    }

    fn flat(heads: i64, groups: i64) -> Case {
        let case = of(noise([2, 4, heads * 8]), noise([2, 6, groups * 8]), noise([2, 6, groups * 8]));
        case.int("q_num_heads", heads).int("kv_num_heads", groups)
    }

    fn bits(n: usize) -> Vec<bool> {
        // The first of every row is seen, so that ONNX Runtime's way with blind rows does not show.
        (0..n).map(|k| k % 6 == 0 || k * 7 % 5 < 3).collect()
    }

    #[test]
    fn numbers() {
        plain().check(F32);
        plain().float("scale", 0.01).float("softcap", 2.0).check(F32);
        plain().int("is_causal", 1).check(F32);
        flat(3, 3).check(F32);
        flat(6, 2).int("is_causal", 1).check(F32);
        of(noise16([2, 3, 4, 8]), noise16([2, 3, 6, 8]), noise16([2, 3, 6, 8])).check(F16);
        let grouped = of(noise([2, 6, 4, 8]), noise([2, 2, 6, 8]), noise([2, 2, 6, 8]));
        grouped.check(F32);
    }

    #[test]
    fn sizes_of_the_run() {
        let open = |case: Case| {
            case.dynamic(0, ["N", "3", "S", "8"])
                .dynamic(1, ["N", "3", "T", "8"])
                .dynamic(2, ["N", "3", "T", "10"])
        };
        open(plain()).check(F32);
        open(plain()).int("is_causal", 1).float("softcap", 1.5).check(F32);
        open(plain()).input(noise([4, 6])).dynamic(3, ["S", "T"]).int("is_causal", 1).check(F32);
        let any = plain().dynamic(0, ["2", "H", "4", "8"]).dynamic(1, ["2", "H", "6", "8"]);
        any.dynamic(2, ["2", "H", "6", "10"]).check(F32);
        let flat = flat(6, 2).dynamic(0, ["N", "S", "48"]).dynamic(1, ["N", "T", "16"]);
        flat.dynamic(2, ["N", "T", "16"]).int("is_causal", 1).check(F32);
    }

    #[test]
    fn masks() {
        for dims in [vec![4, 6], vec![1, 4, 6], vec![3, 4, 6], vec![2, 1, 4, 6], vec![2, 3, 4, 6]] {
            let n = dims.iter().product::<i64>();
            let shaped = |tensor: Tensor| tensor.with_dims(dims.clone()).unwrap();
            plain().input(shaped(noise([n]))).check(F32);
            plain().input(shaped(noise([n]))).int("is_causal", 1).check(F32);
            plain().input(shaped(bools([n], &bits(n as usize)))).check(F32);
        }
        flat(6, 2).input(noise([4, 6])).outputs(1).check(F32);
    }

    #[test]
    fn the_past() {
        let past = || plain().absent().input(noise([2, 3, 5, 8])).input(noise([2, 3, 5, 10])).outputs(3);
        past().check(F32);
        past().int("is_causal", 1).check(F32);
        let masked = plain().input(noise([4, 11])).input(noise([2, 3, 5, 8])).input(noise([2, 3, 5, 10]));
        for mode in 0..4 {
            let case = masked.clone().int("qk_matmul_output_mode", mode).outputs(4);
            case.clone().check(F32);
            if mode != 0 {
                case.float("softcap", 2.0).check(F32);
            }
        }
        let open = of(noise([2, 3, 6, 8]), noise([2, 3, 6, 8]), noise([2, 3, 6, 10])).absent();
        let open = open.input(noise([2, 3, 5, 8])).input(noise([2, 3, 5, 10])).outputs(3);
        let open = open.dynamic(0, ["N", "3", "S", "8"]).dynamic(1, ["N", "3", "S", "8"]);
        let open = open.dynamic(2, ["N", "3", "S", "10"]).dynamic(4, ["N", "3", "P", "8"]);
        let open = open.dynamic(5, ["N", "3", "P", "10"]);
        assert_eq!(
            open.types(),
            ["f32[N x 3 x S x 10]", "f32[N x 3 x S + P x 8]", "f32[N x 3 x S + P x 10]"]
        );
        open.clone().check(F32);
        open.int("is_causal", 1).check(F32);
        let flat = flat(6, 2).absent().input(noise([2, 2, 5, 8])).input(noise([2, 2, 5, 8])).outputs(3);
        flat.check(F32);
    }

    #[test]
    fn no_past_yet() {
        let none = f32s([2, 3, 0, 8], &[]);
        let case = plain().absent().constant(none).constant(f32s([2, 3, 0, 10], &[])).outputs(3);
        assert_eq!(case.types()[1], "f32[2 x 3 x 6 x 8]");
        case.check(F32);
    }

    /// Values that are the rows of a unit matrix show the probabilities.
    fn shown(keys: i64) -> Tensor {
        let at = |k: i64| if k % (keys + 1) == 0 { 1.0 } else { 0.0 };
        f32s([1, 1, keys, keys], &(0..keys * keys).map(at).collect::<Vec<_>>())
    }

    /// Equal scores: what a query sees has equal shares.
    fn even(queries: i64, keys: i64) -> Case {
        let zeros = |n: i64| f32s([1, 1, n, 2], &vec![0.0; 2 * n as usize]);
        of(zeros(queries), zeros(keys), shown(keys))
    }

    #[test]
    fn windows() {
        let third = 1.0 / 3.0;
        even(3, 3)
            .int("is_causal", 1)
            .int("left_window_size", 1)
            .gives(F32, &[f32s([1, 1, 3, 3], &[1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.5, 0.5])]);
        even(2, 4)
            .int("left_window_size", 0)
            .int("right_window_size", 2)
            .gives(F32, &[f32s([1, 1, 2, 4], &[third, third, third, 0.0, 0.0, third, third, third])]);
        // A window behind the last key sees nothing.
        even(3, 1).int("left_window_size", 1).gives(F32, &[f32s([1, 1, 3, 1], &[1.0, 1.0, 0.0])]);
        even(3, 1).int("left_window_size", -2).refused(Code::INVALID);
    }

    #[test]
    fn blind_rows() {
        let mask = bools([2, 2], &[true, false, false, false]);
        even(2, 2).input(mask).gives(F32, &[f32s([1, 1, 2, 2], &[1.0, 0.0, 0.0, 0.0])]);
        // As valid keys are fewer than queries, the first query is before the first key.
        let lengths = || i64s([1], &[2]);
        let case = even(3, 4).absent().absent().absent().input(lengths());
        case.clone().gives(F32, &[f32s([1, 1, 3, 4], &[0.5, 0.5, 0.0, 0.0].repeat(3))]);
        case.int("is_causal", 1)
            .gives(F32, &[f32s([1, 1, 3, 4], &[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0])]);
    }

    #[test]
    fn short_masks() {
        let mask = bools([1, 3], &[true, false, true]);
        let want = [f32s([1, 1, 2, 4], &[0.5, 0.0, 0.5, 0.0].repeat(2))];
        even(2, 4).input(mask.clone()).gives(F32, &want);
        even(2, 4).input(mask).dynamic(3, ["1", "M"]).gives(F32, &want);
        even(2, 4).input(f32s([3], &[0.0, f32::NEG_INFINITY, 0.0])).gives(F32, &want);
        even(2, 2).input(noise([2, 3])).refused(Code::INVALID);
        even(2, 2).input(noise([1, 1, 1, 2, 2])).refused(Code::RANK);
        even(2, 2).input(i64s([2, 2], &[1; 4])).refused(Code::DTYPE_KERNEL);
    }

    #[test]
    fn precision() {
        let narrow = || of(noise16([1, 1, 3, 4]), noise16([1, 1, 3, 4]), noise16([1, 1, 3, 4]));
        narrow().int("softmax_precision", 1).check(F16);
        let cast = narrow().int("softmax_precision", 1).layers();
        assert_eq!(cast.iter().filter(|&&name| name == "Cast").count(), 2);
        plain().int("softmax_precision", 11).refused(Code::ATTRIBUTE);
        plain().int("softmax_precision", 7).refused(Code::INVALID);
        plain().int("softmax_precision", 16).target("rtx-1.7:sm75,sm80").refused(Code::COMPUTE_CAPABILITY);
        let wide = [DType::Bf16].map(|dtype| of_dtype(dtype, [1, 1, 2, 2], &[1.0, 2.0, -1.0, 0.5]));
        of(wide[0].clone(), wide[0].clone(), wide[0].clone()).check(BF16);
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| of(x(&[1, 1, 2, 2]), x(&[1, 1, 2, 2]), x(&[1, 1, 2, 2])));
        plain().dynamic(0, ["2", "0", "4", "8"]).refused(Code::SHAPE);
        plain().dynamic(0, ["2", "H", "4", "8"]).refused(Code::DIM_UNKNOWN);
        let open = plain().dynamic(0, ["2", "3", "4", "D"]).dynamic(1, ["2", "3", "6", "D"]);
        open.refused(Code::DIM_UNKNOWN);
        open.float("scale", 0.5).layers();
        flat(3, 3).float("scale", 0.5).dynamic(0, ["2", "4", "H"]).refused(Code::DIM_UNKNOWN);
        plain().float("scale", -1.0).refused(Code::ATTRIBUTE);
        plain().int("qk_matmul_output_mode", 4).refused(Code::INVALID);
        let uneven = of(noise([2, 3, 4, 8]), noise([2, 2, 6, 8]), noise([2, 2, 6, 8]));
        uneven.refused(Code::INVALID);
        let both = plain().absent().input(noise([2, 3, 5, 8])).input(noise([2, 3, 5, 10]));
        both.input(i64s([2], &[1, 2])).refused(Code::INVALID);
        assert!(
            of(noise([1, 2, 8]), noise([1, 2, 8]), noise([1, 2, 8])).invalid().contains("number of heads")
        );
        assert!(of(noise([1, 2, 8]), noise([1, 1, 2, 8]), noise([1, 2, 8])).invalid().contains("ranks"));
        let thin = of(noise([1, 2, 8]), noise([1, 2, 8]), noise([1, 2, 8])).int("kv_num_heads", 2);
        assert!(thin.int("q_num_heads", 3).invalid().contains("a dim of 8 for 3 heads"));
        let odd = of(noise([2, 3, 4, 8]), noise([2, 3, 6, 7]), noise([2, 3, 6, 8]));
        assert!(odd.invalid().contains("axis 3 of input 1"));
    }
}

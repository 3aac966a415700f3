//! What GroupQueryAttention is made of: tokens by head, angles, caches, scores that are handed out.

use super::{Plan, Positions, Rotary, Scores, cache, has_past, total};
use crate::{
    Emit,
    ctx::{
        attention::Attended,
        check, elementwise,
        extent::{self, DimPlan, ExtentPlan},
        iota, reshape, rotary, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Dim, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, GatherMode, SampleMode},
};

/// Whether the fourth output holds scores or probabilities.
pub(super) fn scores(node: NodeView<'_>) -> Result<Scores, Refusal> {
    let after_softmax = match node.int("qk_output", 0) {
        1 => false,
        2 => true,
        other => {
            let why = format!("scores are handed out before (1) or after (2) the softmax, not {other}");
            return Err(Refusal::new(Code::INVALID, why).slot("qk_output"));
        }
    };
    let total = match total(node) == cache(node) {
        true => None,
        false => Some(extent::require_dim(node, &total(node), "total_sequence_length")?),
    };
    Ok(Scores { after_softmax, total })
}

/// Scores or probabilities of as many keys as there are tokens; 0 where nothing is seen.
pub(super) fn handed_out(
    cx: &mut Emit<'_>,
    plan: &Plan,
    scores: &Scores,
    done: &Attended,
    seen: Option<TensorId>,
) -> TensorId {
    let mut x = if scores.after_softmax { done.probabilities } else { done.biased };
    if let Some(condition) = seen.filter(|_| !scores.after_softmax) {
        let else_input = elementwise::scalar_like(cx, x, 0.0);
        x = cx.one(Layer::Select { condition, then_input: x, else_input });
    }
    let Some(total) = &scores.total else { return x };
    let (start, stride) = (Extent::Static(vec![0; 4]), Extent::Static(vec![1; 4]));
    let size = [&plan.batch, &DimPlan::Fixed(plan.heads), &plan.queries, total].map(DimPlan::clone);
    let size = cx.extent(&ExtentPlan::Dims(size.to_vec()));
    cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })
}

pub(super) fn rotary_plan(
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
    let mut positions = Positions::Counted;
    if node.input(9).is_some() {
        let ids = check::operand(node, 9, "position_ids", &[DType::I64], target)?;
        if ids.rank() != 2 {
            return Err(Refusal::new(Code::INVALID, format!("rank {}", ids.rank())).slot("position_ids"));
        }
        let (total, tokens) = (total(node), shape::dim_of(node, 0, 1));
        positions = match (total.known(), tokens.known()) {
            _ if total == tokens && total != Dim::Unknown => Positions::FromFirst,
            (Some(_), Some(_)) => Positions::Given,
            _ if !has_past(node) => Positions::FromFirst,
            _ => Positions::Either(extent::require_dim(node, &total, "total_sequence_length")?),
        };
    }
    Ok(Some(Rotary { turned, interleaved: node.int("rotary_interleaved", 0) != 0, positions }))
}

/// Queries, keys and values as [n, s, h, d].
pub(super) fn tokens(cx: &mut Emit<'_>, plan: &Plan) -> [TensorId; 3] {
    let all = [plan.heads, plan.groups, plan.groups];
    if !plan.packed {
        return [0, 1, 2].map(|slot| {
            let x = cx.input(slot);
            reshape::copying(cx, x, vec![0, 0, all[slot], -1])
        });
    }
    let x = cx.input(0);
    let x = reshape::copying(cx, x, vec![0, 0, plan.heads + 2 * plan.groups, -1]);
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
pub(super) fn angles(cx: &mut Emit<'_>, plan: &Plan, rotary: &Rotary, before: TensorId) -> [TensorId; 2] {
    let positions = match &rotary.positions {
        Positions::Counted => {
            let before = cx.reshape(before, vec![-1, 1]);
            let count = iota::along(cx, &plan.queries, 1, 2);
            cx.elementwise(count, before, ElementWiseOp::Sum)
        }
        Positions::Given => cx.input(9),
        Positions::FromFirst => from_first(cx, plan),
        Positions::Either(total) => {
            let [total, tokens] = [total, &plan.queries].map(|dim| {
                let x = cx.dim(dim);
                cx.with_rank(x, 2)
            });
            let condition = cx.elementwise(total, tokens, ElementWiseOp::Equal);
            let (then_input, else_input) = (from_first(cx, plan), cx.input(9));
            cx.one(Layer::Select { condition, then_input, else_input })
        }
    };
    [7, 8].map(|slot| {
        let cache = cx.input(slot);
        let x = rotary::rows(cx, cache, positions);
        cx.one(Layer::Unsqueeze { x, axes: vec![2] })
    })
}

/// Positions from the first of position_ids on: [1, s].
fn from_first(cx: &mut Emit<'_>, plan: &Plan) -> TensorId {
    let x = cx.input(9);
    let (start, ones) = (Extent::Static(vec![0; 2]), Extent::Static(vec![1; 2]));
    let mode = SampleMode::Strict;
    let first = cx.one(Layer::Slice { x, start, size: ones.clone(), stride: ones, mode, fill: None });
    let count = iota::along(cx, &plan.queries, 1, 2);
    cx.elementwise(count, first, ElementWiseOp::Sum)
}

/// The cache after the step, [n, g, t, d]: place j holds row j of the past, or token j − `before` of the step, of which
/// there are `count`, or zeros.
pub(super) fn cached(
    cx: &mut Emit<'_>,
    plan: &Plan,
    x: TensorId,
    past: usize,
    [before, count]: [TensorId; 2],
) -> TensorId {
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
    let count = cx.reshape(count, vec![-1, 1]);
    let filled = cx.elementwise(token, count, ElementWiseOp::Less);
    let condition = cx.one(Layer::Unsqueeze { x: filled, axes: vec![2, 3] });
    let else_input = cx.scalar(dtype, 4, 0.0);
    let y = cx.one(Layer::Select { condition, then_input: y, else_input });
    cx.transpose(y, vec![0, 2, 1, 3])
}

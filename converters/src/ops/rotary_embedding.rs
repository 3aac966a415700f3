//! RotaryEmbedding (ai.onnx and com.microsoft), MRotaryEmbedding (com.microsoft): pairs of elements turned by an angle that
//! depends on the position.
//!
//! X [n, h, s, d] T or [n, s, h·d] T, cos_cache [m, r/2] T, sin_cache [m, r/2] T, position_ids [n, s] i64  ->  Y like X
//! Without position_ids (ai.onnx): cos_cache, sin_cache [n, s, r/2] T.
//! com.microsoft: input, position_ids [n, s] or [1] (the first position) i64, cos_cache, sin_cache.
//! MRotaryEmbedding: position_ids [3, n, s], of time, height, width; mrope_section and mrope_layout say which of them is for
//! which column of the caches.
//! Opsets: 23; com.microsoft 1.     TensorRT: ISliceLayer, IGatherLayer, IElementWiseLayer, IConcatenationLayer.
//! Limits: heads and head size known; no scale.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise,
        extent::{self, DimPlan},
        iota, reshape,
        rotary::{self, Rotation},
        shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode},
};

/// The converters.
#[derive(Debug)]
pub struct RotaryEmbedding;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    slots: Slots,
    /// Of [n, h, s, d] or [n, s, h, d].
    rotation: Rotation,
    /// Heads, where the input has rank 3.
    split: Option<i64>,
    positions: Positions,
}

#[derive(Clone, Copy, Debug)]
struct Slots {
    cos: usize,
    sin: usize,
    ids: usize,
}

/// Where rows of the caches are taken from.
#[derive(Debug)]
enum Positions {
    /// The caches have a row for each token.
    Own,
    /// Indices of rows.
    Given,
    /// Counted from a first position. Holds the length.
    From(DimPlan),
    /// Indices of rows, three lists of them. Holds which is for which column of the caches.
    Streams(Vec<usize>),
}

fn has_streams(node: NodeView<'_>) -> bool {
    node.op() == "MRotaryEmbedding"
}

/// Which of three lists of positions each of `columns` columns of the caches takes.
fn streams(node: NodeView<'_>, columns: i64) -> Result<Vec<usize>, Refusal> {
    let wrong = |why: String| Err(Refusal::new(Code::INVALID, why).slot("mrope_section"));
    let Some(sections @ [a, b, c]) = node.attrs().ints("mrope_section") else {
        return wrong("not three sections".into());
    };
    let sum = a.checked_add(*b).and_then(|sum| sum.checked_add(*c));
    if sections.iter().any(|&size| size < 0) || sum != Some(columns) {
        return wrong(format!("sections {sections:?} of {columns} columns"));
    }
    let chunked = |k: i64| usize::from(k >= *a) + usize::from(k >= a + b);
    let interleaved = |k: i64| match k % 3 {
        1 if k / 3 < *b => 1,
        2 if k / 3 < *c => 2,
        _ => 0,
    };
    match node.int("mrope_layout", 0) {
        0 => Ok((0..columns).map(chunked).collect()),
        1 => Ok((0..columns).map(interleaved).collect()),
        other => {
            let why = format!("there is no layout {other}");
            Err(Refusal::new(Code::INVALID, why).slot("mrope_layout"))
        }
    }
}

fn is_contrib(node: NodeView<'_>) -> bool {
    !node.domain().is_empty()
}

fn slots(node: NodeView<'_>) -> Slots {
    match is_contrib(node) {
        true => Slots { cos: 2, sin: 3, ids: 1 },
        false => Slots { cos: 1, sin: 2, ids: 3 },
    }
}

fn unknown(why: &str, slot: &str) -> Refusal {
    Refusal::new(Code::DIM_UNKNOWN, why).slot(slot).help("give the input's shape with --shape")
}

/// Heads of an input of rank 3 [n, s, hidden].
fn heads(node: NodeView<'_>, hidden: i64, cos: &[Dim]) -> Result<i64, Refusal> {
    let rotary = node.int("rotary_embedding_dim", 0);
    let heads = match node.int("num_heads", 0) {
        // com.microsoft: heads as large as the caches turn whole.
        0 if is_contrib(node) && rotary == 0 => match cos.last() {
            Some(Dim::Known(half)) if *half > 0 && hidden % (2 * half) == 0 => hidden / (2 * half),
            Some(Dim::Known(half)) => {
                let why = format!("a dim of {hidden} has no heads of {}", half.saturating_mul(2));
                return Err(Refusal::new(Code::INVALID, why).slot("cos_cache"));
            }
            _ => return Err(unknown("the head size is not known before the run", "cos_cache")),
        },
        heads => heads,
    };
    match heads {
        heads if heads > 0 && hidden % heads == 0 => Ok(heads),
        heads => {
            Err(Refusal::new(Code::INVALID, format!("{heads} heads of a dim of {hidden}")).slot("num_heads"))
        }
    }
}

impl Converter for RotaryEmbedding {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("RotaryEmbedding", 23),
            Key::of("com.microsoft", "RotaryEmbedding", 1),
            Key::of("com.microsoft", "MRotaryEmbedding", 1),
        ],
        dtypes: check::FLOATS,
        layers: "ISliceLayer, IGatherLayer, IElementWiseLayer, IConcatenationLayer",
        limits: "heads and head size known",
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
        let slots = slots(node);
        let x = node.input(0).and_then(|x| x.shape()).unwrap_or_default();
        let caches = node.input(slots.cos).and_then(|cos| cos.shape()).unwrap_or_default();
        for (axis, dim) in caches.iter().enumerate() {
            shape::demand(node, (slots.sin, axis), dim, cx)?;
        }
        if let ([batch, tokens, _] | [batch, _, tokens, _], [_, _, _]) = (x, caches) {
            shape::demand(node, (slots.cos, 0), batch, cx)?;
            shape::demand(node, (slots.cos, 1), tokens, cx)?;
        }
        if let ([batch, tokens, _] | [batch, _, tokens, _], true) = (x, has_streams(node)) {
            for (axis, dim) in [(0, &Dim::Known(3)), (1, batch), (2, tokens)] {
                shape::demand(node, (slots.ids, axis), dim, cx)?;
            }
        }
        if let ([batch, tokens, _] | [batch, _, tokens, _], Some(2)) =
            (x, node.input(slots.ids).and_then(|ids| ids.rank()))
        {
            shape::demand_broadcast(node, (slots.ids, 0), batch, cx)?;
            shape::demand(node, (slots.ids, 1), tokens, cx)?;
        }
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let slots = slots(node);
        let x = elementwise::gate(node, 0, "X", check::FLOATS, target)?;
        let cos = elementwise::gate(node, slots.cos, "cos_cache", &[x.dtype], target)?;
        elementwise::gate(node, slots.sin, "sin_cache", &[x.dtype], target)?;
        let own = |axis: usize| extent::own_dim(node, 0, axis);
        let last = x.shape.last().and_then(Dim::known);
        let last = last.ok_or_else(|| unknown("the head size is not known before the run", "X"))?;
        let (lead, split, head, tokens) = match x.rank() {
            3 => {
                let heads = heads(node, last, cos.shape)?;
                let head = last / heads;
                ([own(0), own(1), DimPlan::Fixed(heads)], Some(heads), head, own(1))
            }
            4 => ([own(0), own(1), own(2)], None, last, own(2)),
            rank => {
                return Err(Refusal::new(Code::RANK, format!("rank {rank}, neither 3 nor 4")).slot("X"));
            }
        };
        let turned = match node.int("rotary_embedding_dim", 0) {
            0 => head,
            turned => turned,
        };
        if turned % 2 != 0 || !(1..=head).contains(&turned) {
            let why = format!("{turned} of the {head} elements of a head cannot be paired");
            return Err(Refusal::new(Code::INVALID, why).slot("rotary_embedding_dim"));
        }
        match cos.shape.last() {
            Some(Dim::Known(half)) if *half != turned / 2 => {
                let why = format!("rows of {half} angles for {turned} elements");
                return Err(Refusal::new(Code::INVALID, why).slot("cos_cache"));
            }
            _ => {}
        }
        if is_contrib(node) {
            // is_packed_batching only lifts a check of lengths: positions are given all the same.
            if node.float("scale", 1.0) != 1.0 {
                let why = "a scale, which ONNX Runtime does not heed";
                return Err(Refusal::new(Code::ATTRIBUTE, why).slot("scale"));
            }
        }
        let positions = match node.input(slots.ids) {
            None => Positions::Own,
            Some(_) => {
                let ids = elementwise::gate(node, slots.ids, "position_ids", &[DType::I64], target)?;
                match ids.rank() {
                    3 if has_streams(node) => Positions::Streams(streams(node, turned / 2)?),
                    rank if has_streams(node) => {
                        let why = format!("rank {rank}, not 3");
                        return Err(Refusal::new(Code::RANK, why).slot("position_ids"));
                    }
                    1 if is_contrib(node) => Positions::From(tokens),
                    2 => Positions::Given,
                    rank => {
                        return Err(Refusal::new(Code::RANK, format!("rank {rank}")).slot("position_ids"));
                    }
                }
            }
        };
        let rank = if matches!(positions, Positions::Own) { 3 } else { 2 };
        if cos.rank() != rank || node.input(slots.sin).and_then(|sin| sin.rank()) != Some(rank) {
            return Err(
                Refusal::new(Code::RANK, format!("caches of another rank than {rank}")).slot("cos_cache")
            );
        }
        let interleaved = node.int("interleaved", 0) != 0;
        Ok(Plan { slots, rotation: Rotation { lead, head, turned, interleaved }, split, positions })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut x = cx.input(0);
        if let Some(heads) = plan.split {
            x = reshape::copying(cx, x, vec![0, 0, heads, -1]);
        }
        // One angle for all heads of a token.
        let heads_axis = if plan.split.is_some() { 2 } else { 1 };
        let rows = rows(cx, &plan);
        let [cos, sin] = [plan.slots.cos, plan.slots.sin].map(|slot| {
            let mut x = cx.input(slot);
            if let Some(indices) = rows {
                x = rotary::rows(cx, x, indices);
            }
            if let Positions::Streams(streams) = &plan.positions {
                x = mixed(cx, x, plan.slots.ids, streams);
            }
            cx.one(Layer::Unsqueeze { x, axes: vec![heads_axis] })
        });
        let mut y = rotary::turn(cx, x, [cos, sin], &plan.rotation);
        if plan.split.is_some() {
            y = reshape::copying(cx, y, vec![0, 0, -1]);
        }
        vec![y]
    }
}

/// Indices of rows: [n, s] or [1, s].
fn rows(cx: &mut Emit<'_>, plan: &Plan) -> Option<TensorId> {
    match &plan.positions {
        Positions::Own | Positions::Streams(_) => None,
        Positions::Given => Some(cx.input(plan.slots.ids)),
        Positions::From(tokens) => {
            let first = cx.input(plan.slots.ids);
            let first = cx.with_rank(first, 2);
            let count = iota::along(cx, tokens, 1, 2);
            Some(cx.elementwise(count, first, ElementWiseOp::Sum))
        }
    }
}

/// Rows of a cache [m, r/2] whose columns take their position each from its own list: [n, s, r/2].
fn mixed(cx: &mut Emit<'_>, cache: TensorId, ids: usize, streams: &[usize]) -> TensorId {
    let data = cx.input(ids);
    let mut all: Option<TensorId> = None;
    for stream in (0..3usize).filter(|stream| streams.contains(stream)) {
        let index = cx.scalar(DType::I64, 0, stream as f64);
        let mode = GatherMode::Default;
        let indices = cx.one(Layer::Gather { data, indices: index, axis: 0, mode, batch_dims: 0 });
        let rows = rotary::rows(cx, cache, indices);
        all = Some(match all {
            None => rows,
            Some(else_input) => {
                let own: Vec<u8> = streams.iter().map(|&k| u8::from(k == stream)).collect();
                let condition = cx.constant(DType::Bool, vec![1, 1, streams.len() as i64], own.into());
                cx.one(Layer::Select { condition, then_input: rows, else_input })
            }
        });
    }
    all.unwrap_or(cache)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    fn ids() -> Tensor {
        i64s([2, 3], &[0, 1, 2, 4, 3, 7])
    }

    fn onnx(x: Tensor, half: i64) -> Case {
        Case::new("RotaryEmbedding", 23).input(x).input(noise([8, half])).input(noise([8, half])).input(ids())
    }

    fn contrib(x: Tensor, ids: Tensor, half: i64) -> Case {
        let case = Case::of("com.microsoft", "RotaryEmbedding", 1).input(x).input(ids);
        case.constant(noise([8, half])).constant(noise([8, half]))
    }

    #[test]
    fn numbers() {
        for interleaved in [0, 1] {
            let with = |case: Case| case.int("interleaved", interleaved);
            with(onnx(noise([2, 4, 3, 8]), 4)).check(F32);
            let open = with(onnx(noise([2, 4, 3, 8]), 4)).dynamic(0, ["N", "4", "3", "8"]);
            open.dynamic(3, ["N", "3"]).check(F32);
            with(onnx(noise([2, 4, 3, 8]), 2)).int("rotary_embedding_dim", 4).check(F32);
            let flat = with(onnx(noise([2, 3, 32]), 4)).int("num_heads", 4);
            flat.dynamic(0, ["2", "S", "32"]).dynamic(3, ["2", "S"]).check(F32);
            let rows = Case::new("RotaryEmbedding", 23).input(noise([2, 4, 3, 8])).input(noise([2, 3, 4]));
            with(rows.input(noise([2, 3, 4]))).check(F32);
            with(contrib(noise([2, 4, 3, 8]), ids(), 4)).check(F32);
            with(contrib(noise([2, 3, 32]), ids(), 4)).check(F32);
            with(contrib(noise([2, 3, 32]), ids(), 4)).int("is_packed_batching", 1).check(F32);
            let first = with(contrib(noise([2, 3, 32]), i64s([1], &[4]), 2)).int("num_heads", 4);
            let first = first.int("rotary_embedding_dim", 4);
            first.dynamic(0, ["N", "S", "32"]).check(F32);
        }
        let half = Case::new("RotaryEmbedding", 23).input(noise16([2, 4, 3, 8])).input(noise16([2, 3, 4]));
        half.input(noise16([2, 3, 4])).check(F16);
    }

    #[test]
    fn three_positions() {
        let positions = i64s([3, 2, 3], &[0, 1, 2, 4, 3, 7, 5, 5, 1, 0, 2, 2, 6, 0, 3, 1, 7, 4]);
        let of = |x: Tensor, sections: &[i64]| {
            let case = Case::of("com.microsoft", "MRotaryEmbedding", 1).input(x).input(positions.clone());
            let case = case.input(noise([8, 4])).input(noise([8, 4])).ints("mrope_section", sections);
            case.int("num_heads", 4)
        };
        for layout in [0, 1] {
            let with = |case: Case| case.int("mrope_layout", layout);
            with(of(noise([2, 3, 32]), &[2, 1, 1])).check(F32);
            with(of(noise([2, 3, 32]), &[1, 2, 1])).int("interleaved", 1).check(F32);
            with(of(noise([2, 4, 3, 8]), &[4, 0, 0])).check(F32);
            let open = with(of(noise([2, 3, 32]), &[2, 1, 1])).dynamic(0, ["N", "S", "32"]);
            let open = open.dynamic(1, ["3", "M", "T"]);
            assert_eq!(open.equalities(), ["M = N", "T = S"]);
            open.dynamic(1, ["3", "N", "S"]).check(F32);
        }
        of(noise([2, 3, 32]), &[2, 1, 2]).refused(Code::INVALID);
        of(noise([2, 3, 32]), &[2, 1, 1]).int("mrope_layout", 2).refused(Code::INVALID);
        of(noise([2, 3, 32]), &[2, 1, 1]).dynamic(1, ["3", "2", "3", "1"]).refused(Code::RANK);
    }

    #[test]
    fn refusals() {
        let caches = |case: Case| case.input(f32s([1, 1, 1], &[1.0])).input(f32s([1, 1, 1], &[1.0]));
        caches(Case::new("RotaryEmbedding", 23).input(f32s([1, 1, 1, 1], &[1.0]))).gates(i32s([1], &[1]));
        let case = onnx(noise([2, 4, 3, 8]), 4);
        case.clone().dynamic(0, ["2", "4", "3", "D"]).refused(Code::DIM_UNKNOWN);
        case.clone().int("rotary_embedding_dim", 3).refused(Code::INVALID);
        case.clone().int("rotary_embedding_dim", 4).refused(Code::INVALID);
        case.dynamic(3, ["6"]).refused(Code::RANK);
        onnx(noise([2, 3, 32]), 4).refused(Code::INVALID);
        onnx(noise([2, 32]), 4).refused(Code::RANK);
        contrib(noise([2, 3, 32]), ids(), 4).float("scale", 2.0).refused(Code::ATTRIBUTE);
        contrib(noise([2, 3, 32]), ids(), 5).refused(Code::INVALID);
        let deep = Case::new("RotaryEmbedding", 23).input(noise([2, 4, 3, 8])).input(noise([3, 4]));
        deep.input(noise([3, 4])).refused(Code::RANK);
    }
}

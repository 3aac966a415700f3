//! LinearAttention: attention as a state that each token changes and reads (ai.onnx and com.microsoft).
//!
//! query [n, t, h·d] T, key [n, t, g·d] T, value [n, t, g·e] T, (past_state [n, g, d, e] S), (decay [n, t, g·d or g] T),
//! (beta [n, t, g or 1] T)  ->  output [n, t, h·e] T, present_state [n, g, d, e] S
//! state = exp(decay) · state + key ⊗ (beta · (value − stateᵀ key)); output = scale · stateᵀ query; with or without
//! decay and the correction, as update_rule says.
//! Opsets: 27; com.microsoft 1.     TensorRT: ILoop, unrolled when short; IMatrixMultiplyLayer, in f32.
//! Limits: heads and their sizes known; no f32 for sm75; com.microsoft: one state, no more heads of keys than of queries.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention, check, elementwise,
        extent::{self, DimPlan, ExtentPlan},
        matrix, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{
        ElementWiseOp, Extent, GatherMode, LoopIterator, LoopOutput, LoopOutputKind, Recurrence, SampleMode,
        TripLimit, UnaryOp,
    },
};

/// The converters.
#[derive(Debug)]
pub struct LinearAttention;

/// Up to so many tokens are written out one after the other.
const UNROLLED: i64 = 8;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    groups: i64,
    /// Queries that share a state.
    shared: i64,
    key: i64,
    value: i64,
    batch: DimPlan,
    tokens: DimPlan,
    scale: f64,
    /// Elements of the decay of a head: one, or one for each of the key's.
    decay: Option<i64>,
    /// Heads that the rate has: one, or as many as states.
    beta: Option<i64>,
    past: bool,
}

/// What a token brings, each [.., n, g, x, y] with .. the tokens or nothing.
#[derive(Clone, Copy, Debug)]
struct Token {
    query: TensorId,
    key: TensorId,
    /// The key as a column.
    column: TensorId,
    value: TensorId,
    decay: Option<TensorId>,
    beta: Option<TensorId>,
}

impl Token {
    fn list(self) -> Vec<TensorId> {
        [Some(self.query), Some(self.key), Some(self.column), Some(self.value), self.decay, self.beta]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Other tensors in the places of these.
    fn of(self, mut others: impl Iterator<Item = TensorId>) -> Token {
        let mut next = |old: TensorId| others.next().unwrap_or(old);
        Token {
            query: next(self.query),
            key: next(self.key),
            column: next(self.column),
            value: next(self.value),
            decay: self.decay.map(&mut next),
            beta: self.beta.map(&mut next),
        }
    }
}

fn heads(node: NodeView<'_>) -> Result<(i64, i64), Diag> {
    Ok((attention::heads(node, "q_num_heads")?, attention::heads(node, "kv_num_heads")?))
}

fn last<'a>(node: NodeView<'a>, slot: usize) -> Option<&'a Dim> {
    node.input(slot)?.dim(2)
}

impl Converter for LinearAttention {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("LinearAttention", 27), Key::of("com.microsoft", "LinearAttention", 1)],
        dtypes: check::FLOATS,
        layers: "ILoop, IMatrixMultiplyLayer, IElementWiseLayer, IUnaryLayer",
        limits: "heads and their sizes known; not for sm75",
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
        let state_dtype = if node.input(3).is_some() { shape::dtype_of(node, 3) } else { dtype };
        let (h, g) = heads(node)?;
        let at = |slot: usize, axis: usize| shape::dim_of(node, slot, axis);
        let key = attention::share(&at(1, 2), g, "key")?;
        let value = attention::share(&at(2, 2), g, "value")?;
        for (axis, dim) in [(0, &at(0, 0)), (1, &Dim::Known(g)), (2, &key), (3, &value)] {
            shape::demand(node, (3, axis), dim, cx)?;
        }
        for slot in [1, 2, 4, 5] {
            shape::demand(node, (slot, 0), &at(0, 0), cx)?;
            shape::demand(node, (slot, 1), &at(0, 1), cx)?;
        }
        let output = vec![at(0, 0), at(0, 1), value.mul(&Dim::Known(h.max(g)))];
        let state = match node.int("state_window", 0) {
            0 => Some(vec![at(0, 0), Dim::Known(g), key, value]),
            _ => None,
        };
        Ok(shape::types([shape::typed(dtype, Some(output)), shape::typed(state_dtype, state)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (h, g) = heads(node).map_err(crate::ctx::window::refused)?;
        let q = check::operand(node, 0, "query", check::FLOATS, target)?;
        let names = [(0, "query"), (1, "key"), (2, "value"), (4, "decay"), (5, "beta")];
        for (slot, name) in names {
            if slot > 2 && node.input(slot).is_none() {
                continue;
            }
            let x = check::operand(node, slot, name, &[q.dtype], target)?;
            check::never_empty(&x, name)?;
            if x.rank() != 3 {
                return Err(Refusal::new(Code::INVALID, format!("rank {}, not 3", x.rank())).slot(name));
            }
        }
        matrix::gemm_gate(DType::F32, target)?;
        if h % g != 0 {
            let code = if h < g && !node.domain().is_empty() { Code::ATTRIBUTE } else { Code::INVALID };
            return Err(
                Refusal::new(code, format!("{h} heads of queries read {g} states")).slot("q_num_heads")
            );
        }
        if node.int("state_window", 0) != 0 {
            return Err(Refusal::new(Code::ATTRIBUTE, "a state for each token").slot("state_window"));
        }
        let size = |slot: usize, heads: i64, name: &str| match last(node, slot).and_then(Dim::known) {
            Some(size) if size % heads == 0 => Ok(size / heads),
            Some(size) => {
                Err(Refusal::new(Code::INVALID, format!("a dim of {size} for {heads} heads")).slot(name))
            }
            None => Err(Refusal::new(Code::DIM_UNKNOWN, "the head size is not known before the run")
                .slot(name)
                .help("give the input's shape with --shape")),
        };
        let (query, key, value) = (size(0, h, "query")?, size(1, g, "key")?, size(2, g, "value")?);
        if query != key {
            let why = format!("heads of {query} elements, those of the keys have {key}");
            return Err(Refusal::new(Code::INVALID, why).slot("query"));
        }
        let rule = node.str("update_rule", "gated_delta");
        let (gated, corrected) = match rule {
            "linear" => (false, false),
            "gated" => (true, false),
            "delta" => (false, true),
            "gated_delta" => (true, true),
            other => {
                let why = format!("there is no rule `{other}`");
                return Err(Refusal::new(Code::INVALID, why).slot("update_rule"));
            }
        };
        for (slot, name, wanted) in [(4, "decay", gated), (5, "beta", corrected)] {
            if node.input(slot).is_some() != wanted {
                let why = format!("`{rule}` {} it", if wanted { "needs" } else { "forbids" });
                return Err(Refusal::new(Code::INVALID, why).slot(name));
            }
        }
        let decay = gated.then(|| size(4, g, "decay")).transpose()?;
        let beta = match last(node, 5) {
            Some(Dim::Known(1)) if corrected => Some(1),
            _ if corrected => Some(size(5, g, "beta").map(|_| g)?),
            _ => None,
        };
        let fits = decay.is_none_or(|n| n == 1 || n == key)
            && last(node, 5).and_then(Dim::known).is_none_or(|n| n == 1 || n == g);
        if !fits {
            return Err(Refusal::new(Code::INVALID, "decay or beta have another number of heads"));
        }
        let past = node.input(3).is_some();
        if past {
            let state = check::operand(node, 3, "past_state", check::FLOATS, target)?;
            check::not_empty(&state, "past_state")?;
            if state.rank() != 4 {
                let why = format!("not {g} states of {key} x {value}");
                return Err(Refusal::new(Code::INVALID, why).slot("past_state"));
            }
        }
        let scale = match node.float("scale", 0.0) {
            0.0 => 1.0 / (key as f64).sqrt(),
            scale => scale.into(),
        };
        let (batch, tokens) = (extent::own_dim(node, 0, 0), extent::own_dim(node, 0, 1));
        Ok(Plan { groups: g, shared: h / g, key, value, batch, tokens, scale, decay, beta, past })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let q = cx.input(0);
        let dtype = cx.dtype(q);
        let g = plan.groups;
        let tokens = Token {
            query: by_token(cx, 0, [g, plan.shared, plan.key]),
            key: by_token(cx, 1, [g, 1, plan.key]),
            column: by_token(cx, 1, [g, plan.key, 1]),
            value: by_token(cx, 2, [g, 1, plan.value]),
            // Along the rows of the state.
            decay: plan.decay.map(|n| {
                let x = by_token(cx, 4, [g, n, 1]);
                cx.unary(x, UnaryOp::Exp)
            }),
            beta: plan.beta.map(|heads| by_token(cx, 5, [heads, 1, 1])),
        };
        let mut state_dtype = dtype;
        let state = if plan.past {
            let x = cx.input(3);
            state_dtype = cx.dtype(x);
            cx.cast(x, DType::F32)
        } else {
            zeros(cx, &plan)
        };
        let (all, state) = match plan.tokens {
            DimPlan::Fixed(n) if n <= UNROLLED => unrolled(cx, n, tokens, state),
            ref n => looped(cx, n, tokens, state),
        };
        let scale = elementwise::scalar_like(cx, all, plan.scale);
        let all = cx.elementwise(all, scale, ElementWiseOp::Prod);
        // [t, n, g, r, e] as [n, t, g·r·e].
        let y = cx.one(Layer::Shuffle {
            x: all,
            first: Some(vec![1, 0, 2, 3, 4]),
            reshape: Some(Extent::Static(vec![0, 0, -1])),
            zero_is_placeholder: true,
            second: None,
        });
        vec![cx.cast(y, dtype), cx.cast(state, state_dtype)]
    }
}

/// An input [n, t, a·b·c] as [t, n, a, b, c] in f32.
fn by_token(cx: &mut Emit<'_>, slot: usize, [a, b, c]: [i64; 3]) -> TensorId {
    let x = cx.input(slot);
    let x = cx.cast(x, DType::F32);
    cx.one(Layer::Shuffle {
        x,
        first: None,
        reshape: Some(Extent::Static(vec![0, 0, a, b, c])),
        zero_is_placeholder: true,
        second: Some(vec![1, 0, 2, 3, 4]),
    })
}

/// Zeros [n, g, d, e].
fn zeros(cx: &mut Emit<'_>, plan: &Plan) -> TensorId {
    let x = cx.scalar(DType::F32, 4, 0.0);
    let fixed = DimPlan::Fixed;
    let dims = vec![plan.batch.clone(), fixed(plan.groups), fixed(plan.key), fixed(plan.value)];
    let size = cx.extent(&ExtentPlan::Dims(dims));
    let zero = Extent::Static(vec![0; 4]);
    cx.one(Layer::Slice { x, start: zero.clone(), size, stride: zero, mode: SampleMode::Strict, fill: None })
}

/// One token: what it reads [n, g, r, e], and the state after it.
fn step(cx: &mut Emit<'_>, token: Token, mut state: TensorId) -> (TensorId, TensorId) {
    if let Some(decay) = token.decay {
        state = cx.elementwise(state, decay, ElementWiseOp::Prod);
    }
    let mut value = token.value;
    if let Some(beta) = token.beta {
        let known = attention::times(cx, token.key, state);
        let news = cx.elementwise(value, known, ElementWiseOp::Sub);
        value = cx.elementwise(news, beta, ElementWiseOp::Prod);
    }
    // No matrix product: of one head, TensorRT-RTX 1.7 recurses over it without end in a loop of dynamic length.
    let written = cx.elementwise(token.column, value, ElementWiseOp::Prod);
    let state = cx.elementwise(state, written, ElementWiseOp::Sum);
    (attention::times(cx, token.query, state), state)
}

fn unrolled(cx: &mut Emit<'_>, n: i64, tokens: Token, mut state: TensorId) -> (TensorId, TensorId) {
    let mut all = Vec::new();
    for k in 0..n {
        let indices = cx.scalar(DType::I64, 0, k as f64);
        let mode = GatherMode::Default;
        let parts: Vec<TensorId> = tokens
            .list()
            .into_iter()
            .map(|data| cx.one(Layer::Gather { data, indices, axis: 0, mode, batch_dims: 0 }))
            .collect();
        let read;
        (read, state) = step(cx, tokens.of(parts.into_iter()), state);
        all.push(cx.one(Layer::Unsqueeze { x: read, axes: vec![0] }));
    }
    let all = match all.as_slice() {
        [one] => *one,
        _ => cx.one(Layer::Concatenation { xs: all, axis: 0 }),
    };
    (all, state)
}

fn looped(cx: &mut Emit<'_>, n: &DimPlan, tokens: Token, initial: TensorId) -> (TensorId, TensorId) {
    let count = cx.dim(n);
    let count = cx.reshape(count, Vec::new());
    let iterators: Vec<LoopIterator> = tokens
        .list()
        .into_iter()
        .map(|x| {
            let info = cx.info(x).clone();
            let current = cx.tensor(info.dtype, info.dims[1..].to_vec());
            LoopIterator { x, current, axis: 0, reverse: false }
        })
        .collect();
    let info = cx.info(initial).clone();
    let current = cx.tensor(info.dtype, info.dims);
    cx.open_region();
    let (read, next) = step(cx, tokens.of(iterators.iter().map(|it| it.current)), current);
    let body = cx.close_region(Vec::new()).layers;
    let results = vec![
        LoopOutput { kind: LoopOutputKind::Concatenate, value: read, axis: 0, length: Some(count) },
        LoopOutput { kind: LoopOutputKind::LastValue, value: current, axis: 0, length: None },
    ];
    let recurrences = vec![Recurrence { initial, current, next }];
    let limits = vec![(TripLimit::Count, count)];
    let outputs = cx.layer(Layer::Loop { limits, recurrences, iterators, body, results });
    let at = |k: usize| outputs.get(k).copied().unwrap_or(TensorId(u32::MAX));
    (at(0), at(1))
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    /// 2 rows, `t` tokens; heads of 4 by 3.
    fn of(rule: &str, t: i64, heads: i64, groups: i64) -> Case {
        let case = Case::of("com.microsoft", "LinearAttention", 1).str("update_rule", rule);
        let case = case.int("q_num_heads", heads).int("kv_num_heads", groups).outputs(2);
        case.input(small([2, t, heads * 4])).input(small([2, t, groups * 4])).input(small([2, t, groups * 3]))
    }

    /// Noise below 1, under which states do not grow.
    fn small(dims: [i64; 3]) -> Tensor {
        let n = dims.iter().product::<i64>() as usize;
        f32s(dims, &values(n).iter().map(|v| v * 0.3).collect::<Vec<_>>())
    }

    #[test]
    fn numbers() {
        for t in [1, 3] {
            of("linear", t, 4, 2).check(F32);
            of("gated", t, 2, 2).absent().input(small([2, t, 8])).check(F32);
            of("delta", t, 4, 2).absent().absent().input(small([2, t, 2])).check(F32);
            let whole = of("gated_delta", t, 4, 2).input(noise([2, 2, 4, 3])).input(small([2, t, 2]));
            whole.clone().input(small([2, t, 2])).check(F32);
            whole.input(small([2, t, 1])).float("scale", 0.7).check(F32);
        }
    }

    #[test]
    fn loops() {
        of("linear", 11, 4, 2).check(F32);
        let open = of("gated_delta", 5, 4, 2).input(noise([2, 2, 4, 3])).input(small([2, 5, 2]));
        let open = open.input(small([2, 5, 2])).dynamic(0, ["N", "T", "16"]).dynamic(1, ["N", "T", "8"]);
        let open = open.dynamic(2, ["N", "T", "6"]).dynamic(3, ["N", "2", "4", "3"]);
        let open = open.dynamic(4, ["N", "T", "2"]).dynamic(5, ["N", "T", "2"]);
        assert_eq!(open.types(), ["f32[N x T x 12]", "f32[N x 2 x 4 x 3]"]);
        open.check(F32);
        let one = of("gated", 9, 2, 1).input(noise([2, 1, 4, 3])).input(small([2, 9, 4]));
        let one = one.dynamic(0, ["N", "T", "8"]).dynamic(1, ["N", "T", "4"]).dynamic(2, ["N", "T", "3"]);
        one.dynamic(3, ["N", "1", "4", "3"]).dynamic(4, ["N", "T", "4"]).check(F32);
        let fresh = of("linear", 5, 2, 2).dynamic(0, ["N", "T", "8"]).dynamic(1, ["N", "T", "8"]);
        fresh.dynamic(2, ["N", "T", "6"]).check(F32);
    }

    #[test]
    fn of_the_specification() {
        let ones = |n: i64, v: f32| f16s([1, 2, n], &vec![v; 2 * n as usize]);
        let case = Case::new("LinearAttention", 27).int("q_num_heads", 1).int("kv_num_heads", 1).outputs(2);
        let case =
            case.str("update_rule", "linear").input(ones(1, 2.0)).input(ones(1, 1.0)).input(ones(1, 3.0));
        case.gives(F16, &[f16s([1, 2, 1], &[6.0, 12.0]), f16s([1, 1, 1, 1], &[6.0])]);
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let case = Case::new("LinearAttention", 27).int("q_num_heads", 1).int("kv_num_heads", 1);
            let case = case.str("update_rule", "linear");
            case.input(x(&[1, 1, 1])).input(x(&[1, 1, 1])).input(x(&[1, 1, 1]))
        });
        of("linear", 2, 4, 2).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        of("linear", 2, 2, 4).refused(Code::ATTRIBUTE);
        of("linear", 2, 4, 3).refused(Code::INVALID);
        of("linear", 2, 4, 2).int("state_window", 2).refused(Code::ATTRIBUTE);
        of("linear", 2, 4, 2).dynamic(1, ["2", "2", "K"]).refused(Code::DIM_UNKNOWN);
        let empty = of("linear", 2, 4, 2).dynamic(0, ["2", "0", "16"]).dynamic(1, ["2", "0", "8"]);
        empty.dynamic(2, ["2", "0", "6"]).refused(Code::SHAPE);
        of("linear", 2, 4, 2).dynamic(0, ["2", "2"]).refused(Code::INVALID);
        of("linear", 2, 4, 2).dynamic(0, ["2", "2", "20"]).refused(Code::INVALID);
        of("linear", 2, 4, 2).absent().input(small([2, 2, 2])).refused(Code::INVALID);
        of("gated", 2, 4, 2).refused(Code::INVALID);
        of("gated", 2, 4, 2).absent().input(small([2, 2, 4])).refused(Code::INVALID);
        of("square", 2, 4, 2).refused(Code::INVALID);
        of("linear", 2, 4, 2).input(noise([2, 2, 4])).refused(Code::INVALID);
        assert!(of("linear", 2, 4, 2).input(noise([2, 2, 3, 4])).invalid().contains("axis 2 of input 3"));
        let none = Case::new("LinearAttention", 27).input(small([1, 1, 1])).int("q_num_heads", 0);
        assert!(none.invalid().contains("number of heads"));
        assert!(of("linear", 2, 4, 2).dynamic(1, ["2", "2", "7"]).invalid().contains("a dim of 7"));
    }
}

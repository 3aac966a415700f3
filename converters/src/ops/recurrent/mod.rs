//! LSTM, GRU, RNN, DynamicQuantizeLSTM (com.microsoft): recurrences over a sequence.
//!
//! X [s, b, i] T, W [d, g·h, i] T, R [d, g·h, h] T, B [d, 2·g·h] T, sequence_lens [b] i32, initial_h, initial_c [d, b, h] T, P [d, 3·h] T
//!   ->  Y [s, d, b, h] T, Y_h, Y_c [d, b, h] T; layout 1 has b in front
//! DynamicQuantizeLSTM: W [d, i, 4·h], R [d, h, 4·h] i8 | u8, after P the scales [d] | [d, 4·h] f32 and zero points of W and of R
//! Opsets: 1; 7 clip and lengths; 14 layout; 22 bf16; com.microsoft 1.     TensorRT: ILoop; steps one after another for a short known sequence.
//! Limits: weights' dims known; no f32 matrix products on sm75.

mod cell;
mod lengths;
mod quantised;

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check,
        extent::{self, DimPlan, ExtentPlan},
        integers, shape,
    },
};
use bytes::Bytes;
use cell::{Activation, Cell, Kind, Weights};
use lengths::Lengths;
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    TensorId,
    layer::{Extent, Layer, LoopIterator, LoopOutput, LoopOutputKind, Recurrence, SampleMode, TripLimit},
};

/// The converter of the three.
#[derive(Debug)]
pub struct Recurrent;

/// The converter of an LSTM with 8-bit weights.
#[derive(Debug)]
pub struct DynamicQuantizeLstm;

/// A sequence of at most this many steps is laid out step by step.
const UNROLLED: i64 = 8;

/// No recurrence of a real model is wider.
const MOST_HIDDEN: i64 = 1 << 20;

/// Sizes, and one cell for each direction.
#[derive(Debug)]
pub struct Plan {
    kind: Kind,
    /// Batch comes first in X and the results.
    batch_first: bool,
    /// Steps, where they are known.
    steps: Option<i64>,
    hidden: i64,
    inputs: i64,
    batch: DimPlan,
    length: DimPlan,
    /// Lengths differ from the whole: masks are needed.
    masked: bool,
    directions: Vec<(bool, Cell)>,
    quantised: Option<quantised::Plan>,
}

fn directions(node: NodeView<'_>) -> Result<Vec<bool>, Diag> {
    match node.str("direction", "forward") {
        "forward" => Ok(vec![false]),
        "reverse" => Ok(vec![true]),
        "bidirectional" => Ok(vec![false, true]),
        other => Err(Diag::invalid(format!("`{other}` is no direction")).slot("direction")),
    }
}

impl Converter for Recurrent {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("LSTM", 22), Key::onnx("GRU", 22), Key::onnx("RNN", 22)],
        dtypes: check::FLOATS,
        layers: "ILoop, IMatrixMultiplyLayer, IReverseSequenceLayer",
        limits: "dims of the weights known",
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
        inferred(node, cx)
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        planned(node, target)
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        emitted(&plan, cx)
    }
}

impl Converter for DynamicQuantizeLstm {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "DynamicQuantizeLSTM", 1)],
        dtypes: &[DType::F32],
        layers: "ILoop, IMatrixMultiplyLayer, IReduceLayer, IReverseSequenceLayer",
        limits: "dims of the weights known; not for sm75; states are quantised over the whole batch",
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
        inferred(node, cx)
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        planned(node, target)
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        emitted(&plan, cx)
    }
}

fn inferred(node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
    let dtype = shape::dtype_of(node, 0);
    let count = Dim::Known(directions(node)?.len() as i64);
    let x = node.input(0).and_then(|x| x.shape());
    if let Some(x) = x.filter(|x| x.len() != 3) {
        return Err(Diag::invalid(format!("rank {}, not 3", x.len())).slot("X"));
    }
    let of = |slot: usize, axis: usize| node.input(slot).and_then(|p| p.dim(axis)).cloned();
    let quantised = node.op() == "DynamicQuantizeLSTM";
    let column = if quantised { 1 } else { 2 };
    let hidden = of(2, column).filter(|dim| dim.known().is_some());
    let hidden = hidden.or(node.attrs().int("hidden_size").map(Dim::Known)).unwrap_or(Dim::Unknown);
    let batch_first = node.int("layout", 0) != 0;
    let (steps, batch) = match x {
        Some([s, b, _]) if !batch_first => (s.clone(), b.clone()),
        Some([b, s, _]) => (s.clone(), b.clone()),
        _ => (Dim::Unknown, Dim::Unknown),
    };
    let inputs = x.map_or(Dim::Unknown, |x| x[2].clone());
    shape::demand(node, (1, column), &inputs, cx)?;
    let batch_axis = usize::from(!batch_first);
    for place in [(4, 0), (5, batch_axis), (6, batch_axis)] {
        shape::demand(node, place, &batch, cx)?;
    }
    let (y, state) = match batch_first {
        false => (vec![steps, count.clone(), batch.clone(), hidden.clone()], vec![count, batch, hidden]),
        true => (vec![batch.clone(), steps, count.clone(), hidden.clone()], vec![batch, count, hidden]),
    };
    let state = shape::typed(dtype, Some(state));
    let mut list = vec![shape::typed(dtype, Some(y)), state.clone()];
    if Kind::of(node) == Kind::Lstm {
        list.push(state);
    }
    Ok(shape::types(list))
}

fn planned(node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
    let is_quantised = node.op() == "DynamicQuantizeLSTM";
    let floats = if is_quantised { &[DType::F32] } else { check::FLOATS };
    let x = check::operand(node, 0, "X", floats, target)?;
    check::never_empty(&x, "X")?;
    if x.rank() != 3 {
        return Err(Refusal::new(Code::RANK, format!("rank {}, not 3", x.rank())).slot("X"));
    }
    if x.dtype == DType::F32 && target.product() == Product::Rtx && target.sms().contains(&75) {
        let why = "TensorRT-RTX has no f32 matrix product for sm75";
        return Err(Refusal::new(Code::COMPUTE_CAPABILITY, why)
            .slot("X")
            .help("leave out sm75, or compile it as a target of its own"));
    }
    let kind = Kind::of(node);
    let weights = if is_quantised { integers::BYTES } else { &[x.dtype] };
    let (w, r) =
        (check::operand(node, 1, "W", weights, target)?, check::operand(node, 2, "R", weights, target)?);
    let directions = directions(node).map_err(crate::ctx::window::refused)?;
    let known = |shape: &[Dim]| shape.iter().map(Dim::known).collect::<Option<Vec<i64>>>();
    let (Some(w), Some(r)) = (known(w.shape), known(r.shape)) else {
        return Err(Refusal::new(Code::DIM_UNKNOWN, "the weights' dims are not known").slot("W"));
    };
    let (count, gates) = (directions.len() as i64, kind.gates());
    let hidden = r.get(if is_quantised { 1 } else { 2 }).copied().unwrap_or(0);
    let rows = hidden.saturating_mul(gates);
    // 8-bit weights lie the other way round.
    let (row, column) = if is_quantised { (2, 1) } else { (1, 2) };
    let fits = |dims: &[i64], columns: i64| {
        dims.len() == 3 && dims[0] == count && dims[row] == rows && dims[column] == columns && columns > 0
    };
    let inputs = w.get(column).copied().unwrap_or(0);
    if !(1..=MOST_HIDDEN).contains(&hidden) || !fits(&r, hidden) || !fits(&w, inputs) {
        let why = format!("weights of {w:?} and {r:?} for {count} directions of {gates} gates");
        return Err(Refusal::new(Code::SHAPE, why).slot("W"));
    }
    let quantised = match is_quantised {
        true => Some(quantised::plan(node, inputs, hidden, target)?),
        false => None,
    };
    let optional: &[(usize, &str)] = match kind {
        Kind::Lstm => &[(3, "B"), (5, "initial_h"), (6, "initial_c"), (7, "P")],
        _ => &[(3, "B"), (5, "initial_h")],
    };
    for &(slot, name) in optional {
        if node.input(slot).is_some() {
            let parameter = check::operand(node, slot, name, &[x.dtype], target)?;
            check::not_empty(&parameter, name)?;
        }
    }
    let batch_first = node.int("layout", 0) != 0;
    let steps_axis = usize::from(batch_first);
    let mut masked = false;
    if let Some(lengths) = node.input(4) {
        check::operand(node, 4, "sequence_lens", &[DType::I32], target)?;
        // Lengths that are all the whole say nothing.
        let whole = x.shape[steps_axis].known();
        masked = match lengths.const_i64s() {
            Some(list) => !list.iter().all(|&n| Some(n) == whole),
            None => true,
        };
    }
    let activations = Activation::read(node, kind, directions.len())?;
    let cells = activations.into_iter().map(|list| Cell::new(node, kind, list));
    Ok(Plan {
        kind,
        batch_first,
        steps: x.shape[steps_axis].known(),
        hidden,
        inputs,
        batch: extent::own_dim(node, 0, 1 - steps_axis),
        length: extent::own_dim(node, 0, steps_axis),
        masked,
        directions: directions.into_iter().zip(cells).collect(),
        quantised,
    })
}

fn emitted(plan: &Plan, cx: &mut Emit<'_>) -> Outputs {
    let mut x = cx.input(0);
    if plan.batch_first {
        x = cx.transpose(x, vec![1, 0, 2]);
    }
    let lengths = plan.masked.then(|| Lengths::emit(cx, plan));
    if let Some(lengths) = lengths.as_ref().filter(|_| plan.quantised.is_some()) {
        x = lengths.shown(cx, x);
    }
    let (mut ys, mut hs, mut cs) = (Vec::new(), Vec::new(), Vec::new());
    for (k, (reverse, cell)) in plan.directions.iter().enumerate() {
        let run = direction(cx, plan, k, *reverse, cell, x, lengths.as_ref());
        ys.push(cx.one(Layer::Unsqueeze { x: run.all, axes: vec![1] }));
        hs.push(cx.one(Layer::Unsqueeze { x: run.hidden, axes: vec![0] }));
        if let Some(c) = run.cell {
            cs.push(cx.one(Layer::Unsqueeze { x: c, axes: vec![0] }));
        }
    }
    let mut outputs = vec![join(cx, ys, 1), join(cx, hs, 0)];
    if !cs.is_empty() {
        outputs.push(join(cx, cs, 0));
    }
    if plan.batch_first {
        outputs[0] = cx.transpose(outputs[0], vec![2, 0, 1, 3]);
        for state in &mut outputs[1..] {
            *state = cx.transpose(*state, vec![1, 0, 2]);
        }
    }
    outputs
}

fn join(cx: &mut Emit<'_>, xs: Vec<TensorId>, axis: u32) -> TensorId {
    match xs.as_slice() {
        [one] => *one,
        _ => cx.one(Layer::Concatenation { xs, axis }),
    }
}

/// Results of one direction.
struct Run {
    /// [s, b, h]
    all: TensorId,
    /// [b, h]
    hidden: TensorId,
    /// [b, h]
    cell: Option<TensorId>,
}

fn direction(
    cx: &mut Emit<'_>,
    plan: &Plan,
    k: usize,
    reverse: bool,
    cell: &Cell,
    x: TensorId,
    lengths: Option<&Lengths>,
) -> Run {
    let dtype = cx.dtype(x);
    let h = plan.hidden;
    // A row that ends early starts, read backwards, at its own end.
    let flip = |cx: &mut Emit<'_>, x: TensorId| match lengths {
        Some(&Lengths { lengths, .. }) if reverse => {
            cx.one(Layer::ReverseSequence { x, lengths, batch_axis: 1, sequence_axis: 0 })
        }
        _ => x,
    };
    let reversed = reverse && lengths.is_none();
    let x = flip(cx, x);
    let weights = match &plan.quantised {
        Some(quantised) => {
            let factors = quantised.direction(cx, k);
            Weights::quantised(cx, k, h, cell, factors)
        }
        None => Weights::emit(cx, plan.kind, k, h, plan.inputs, cell),
    };
    let projected = weights.project(cx, x);
    let initial = |cx: &mut Emit<'_>, slot: usize| match cx.node().input(slot) {
        Some(_) => initial_state(cx, plan, slot, k),
        None => zeros(cx, plan, dtype),
    };
    let hidden = initial(cx, 5);
    let state = (plan.kind == Kind::Lstm).then(|| initial(cx, 6));
    let gate = cx.extent(&ExtentPlan::Dims(vec![plan.batch.clone(), DimPlan::Fixed(h)]));
    let masks = lengths.map_or(&[][..], |lengths| &lengths.masks);
    let run = match plan.steps {
        Some(steps) if steps <= UNROLLED => {
            unrolled(cx, &weights, &gate, steps, reversed, projected, masks, hidden, state)
        }
        _ => looped(cx, plan, &weights, &gate, reversed, projected, masks, hidden, state),
    };
    // ONNX Runtime's states of a row without steps are zeros, whatever they start as.
    let last = |cx: &mut Emit<'_>, then_input: TensorId| match lengths {
        Some(&Lengths { some: condition, .. }) => {
            let else_input = cx.scalar(dtype, 2, 0.0);
            cx.one(Layer::Select { condition, then_input, else_input })
        }
        None => then_input,
    };
    let all = flip(cx, run.all);
    Run { all, hidden: last(cx, run.hidden), cell: run.cell.map(|c| last(cx, c)) }
}

#[allow(clippy::too_many_arguments, reason = "the loop's parts, each named")]
fn unrolled(
    cx: &mut Emit<'_>,
    weights: &Weights<'_>,
    gate: &Extent,
    steps: i64,
    reversed: bool,
    projected: TensorId,
    masks: &[TensorId],
    mut hidden: TensorId,
    mut state: Option<TensorId>,
) -> Run {
    let mut all = Vec::new();
    for step in 0..steps {
        let at = if reversed { steps - 1 - step } else { step };
        let index = cx.scalar(DType::I64, 0, at as f64);
        let pick = |cx: &mut Emit<'_>, data: TensorId| {
            let mode = trtc_network::layer::GatherMode::Default;
            cx.one(Layer::Gather { data, indices: index, axis: 0, mode, batch_dims: 0 })
        };
        let x = pick(cx, projected);
        let within: Vec<TensorId> = masks.iter().map(|&mask| pick(cx, mask)).collect();
        let out;
        (out, hidden, state) = weights.step(cx, gate, x, hidden, state, &within);
        all.push(cx.one(Layer::Unsqueeze { x: out, axes: vec![0] }));
    }
    if reversed {
        all.reverse();
    }
    Run { all: join(cx, all, 0), hidden, cell: state }
}

#[allow(clippy::too_many_arguments, reason = "the loop's parts, each named")]
fn looped(
    cx: &mut Emit<'_>,
    plan: &Plan,
    weights: &Weights<'_>,
    gate: &Extent,
    reversed: bool,
    projected: TensorId,
    masks: &[TensorId],
    hidden: TensorId,
    state: Option<TensorId>,
) -> Run {
    let count = match plan.length {
        DimPlan::Fixed(steps) => cx.scalar(DType::I64, 0, steps as f64),
        ref dim => {
            let count = cx.dim(dim);
            cx.reshape(count, Vec::new())
        }
    };
    let walk = |cx: &mut Emit<'_>, x: TensorId| {
        let info = cx.info(x).clone();
        let current = cx.tensor(info.dtype, info.dims.get(1..).unwrap_or_default().to_vec());
        LoopIterator { x, current, axis: 0, reverse: reversed }
    };
    let x = walk(cx, projected);
    let within: Vec<LoopIterator> = masks.iter().map(|&mask| walk(cx, mask)).collect();
    let carried = |cx: &mut Emit<'_>, initial: TensorId| {
        let info = cx.info(initial).clone();
        cx.tensor(info.dtype, info.dims)
    };
    let hidden_now = carried(cx, hidden);
    let state_now = state.map(|state| carried(cx, state));
    cx.open_region();
    let within_now: Vec<TensorId> = within.iter().map(|it| it.current).collect();
    let (out, hidden_next, state_next) =
        weights.step(cx, gate, x.current, hidden_now, state_now, &within_now);
    let body = cx.close_region(Vec::new()).layers;
    let mut recurrences = vec![Recurrence { initial: hidden, current: hidden_now, next: hidden_next }];
    let last = |value| LoopOutput { kind: LoopOutputKind::LastValue, value, axis: 0, length: None };
    let kind = if reversed { LoopOutputKind::Reverse } else { LoopOutputKind::Concatenate };
    let mut results = vec![LoopOutput { kind, value: out, axis: 0, length: Some(count) }, last(hidden_now)];
    if let (Some(initial), Some(current), Some(next)) = (state, state_now, state_next) {
        recurrences.push(Recurrence { initial, current, next });
        results.push(last(current));
    }
    let iterators = std::iter::once(x).chain(within).collect();
    let limits = vec![(TripLimit::Count, count)];
    let outputs = cx.layer(Layer::Loop { limits, recurrences, iterators, body, results });
    let at = |k: usize| outputs.get(k).copied().unwrap_or(TensorId(u32::MAX));
    Run { all: at(0), hidden: at(1), cell: state.map(|_| at(2)) }
}

/// Direction `k` of a state that the node is given: [b, h].
fn initial_state(cx: &mut Emit<'_>, plan: &Plan, slot: usize, k: usize) -> TensorId {
    let data = cx.input(slot);
    let indices = cx.scalar(DType::I64, 0, k as f64);
    let axis = u32::from(plan.batch_first);
    let mode = trtc_network::layer::GatherMode::Default;
    cx.one(Layer::Gather { data, indices, axis, mode, batch_dims: 0 })
}

/// Zeros [b, h].
fn zeros(cx: &mut Emit<'_>, plan: &Plan, dtype: DType) -> TensorId {
    let x = cx.scalar(dtype, 2, 0.0);
    let size = cx.extent(&ExtentPlan::Dims(vec![plan.batch.clone(), DimPlan::Fixed(plan.hidden)]));
    let zero = Extent::Static(vec![0; 2]);
    cx.one(Layer::Slice { x, start: zero.clone(), size, stride: zero, mode: SampleMode::Strict, fill: None })
}

/// Rows `from..from + rows` of direction `k` of a weight [d, all, columns]: a part of the constant, or a slice.
fn rows(
    cx: &mut Emit<'_>,
    slot: usize,
    k: usize,
    all: i64,
    from: i64,
    rows: i64,
    columns: Option<i64>,
) -> TensorId {
    let width = columns.unwrap_or(1);
    let dims = || std::iter::once(rows).chain(columns).collect::<Vec<i64>>();
    let node = cx.node();
    if let Some(tensor) = node.input(slot).and_then(|view| view.constant())
        && let Some(part) = part(tensor, (k as i64 * all + from) * width, rows * width)
    {
        return cx.constant(tensor.dtype(), dims(), part);
    }
    let x = cx.input(slot);
    let mut start = vec![k as i64, from];
    let mut size = vec![1, rows];
    if columns.is_some() {
        start.push(0);
        size.push(width);
    }
    let stride = Extent::Static(vec![1; start.len()]);
    let (start, size) = (Extent::Static(start), Extent::Static(size));
    let x = cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None });
    cx.reshape(x, dims())
}

fn part(tensor: &trtc_ir::Tensor, from: i64, count: i64) -> Option<Bytes> {
    let at = |n: i64| tensor.dtype().bytes_for(usize::try_from(n).ok()?);
    let (start, end) = (at(from)?, at(from.checked_add(count)?)?);
    let bytes = tensor.bytes()?;
    (end <= bytes.len()).then(|| bytes.slice(start..end))
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use bytes::Bytes;
    use trtc_ir::{Attr, Tensor};

    const ALL: [(&str, i64); 3] = [("LSTM", 4), ("GRU", 3), ("RNN", 1)];

    /// i = 3, h = 2, b = 2.
    fn case(op: &str, steps: i64, directions: i64, noise: fn([i64; 3]) -> Tensor) -> Case {
        let gates = ALL.iter().find(|(name, _)| *name == op).map_or(1, |&(_, gates)| gates);
        let case = Case::new(op, 22).input(noise([steps, 2, 3])).constant(noise([directions, 2 * gates, 3]));
        let case = case.constant(noise([directions, 2 * gates, 2])).int("hidden_size", 2);
        let case = if directions == 2 { case.str("direction", "bidirectional") } else { case };
        case.outputs(if op == "LSTM" { 3 } else { 2 })
    }

    fn bias(op: &str, directions: i64) -> Tensor {
        let gates = ALL.iter().find(|(name, _)| *name == op).map_or(1, |&(_, gates)| gates);
        noise([directions, 4 * gates])
    }

    fn names(list: &[&str]) -> Attr {
        Attr::Strs(list.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect())
    }

    const NEAR: Tolerance = Tolerance::Near { rtol: 1e-4, atol: 1e-5 };

    #[test]
    fn refusals() {
        for (op, gates) in ALL {
            refused_dtypes(|x| {
                Case::new(op, 22).input(x(&[1, 2, 3])).input(x(&[1, 2 * gates, 3])).input(x(&[
                    1,
                    2 * gates,
                    2,
                ]))
            });
            let good = case(op, 3, 1, noise);
            good.clone().dynamic(0, ["3", "0", "3"]).refused(Code::SHAPE);
            good.clone().target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
            good.attr("activations", names(&["Swish"; 3])).refused(Code::ATTRIBUTE);
            let open =
                Case::new(op, 22).input(noise([1, 2, 3])).input(noise([1, 2, 3])).input(noise([1, 2, 2]));
            open.dynamic(1, ["1", "g", "3"]).refused(Code::DIM_UNKNOWN);
            Case::new(op, 22)
                .input(noise([1, 2, 3]))
                .constant(noise([1, 5, 3]))
                .constant(noise([1, 5, 2]))
                .refused(Code::SHAPE);
            Case::new(op, 22).input(noise([1, 2, 3])).refused(Code::INVALID);
            let rank = Case::new(op, 22).input(noise([1; 9])).unranked(0);
            rank.refused(Code::RANK_UNKNOWN);
            let high = Case::new(op, 22).input(noise([1, 2, 3]));
            let high = high.constant(noise([1, 1, 3, 1, 1, 1, 1, 1, 1])).constant(noise([1, 2, 2]));
            high.refused(Code::RANK);
        }
    }

    #[test]
    fn types() {
        let open = case("LSTM", 3, 2, noise).dynamic(0, ["S", "N", "3"]);
        assert_eq!(open.types(), ["f32[S x 2 x N x 2]", "f32[2 x N x 2]", "f32[2 x N x 2]"]);
        let given = case("LSTM", 3, 2, noise).dynamic(0, ["S", "N", "3"]).absent();
        let given = given.input(i32s([2], &[1, 2])).dynamic(4, ["M"]).input(noise([2, 2, 2]));
        assert_eq!(given.dynamic(5, ["2", "K", "2"]).equalities(), ["M = N", "K = N"]);
        let open = case("GRU", 3, 1, noise).dynamic(0, ["N", "S", "3"]).int("layout", 1);
        assert_eq!(open.types(), ["f32[N x S x 1 x 2]", "f32[N x 1 x 2]"]);
        assert!(case("RNN", 3, 1, noise).str("direction", "up").invalid().contains("up"));
        assert!(Case::new("RNN", 22).input(noise([2])).invalid().contains("not 3"));
        let wide = case("GRU", 3, 1, noise).dynamic(0, ["3", "N", "I"]);
        assert_eq!(wide.equalities(), ["3 = I"]);
        let unlike = case("GRU", 3, 1, noise).dynamic(0, ["S", "N", "2147483648"]);
        assert!(unlike.invalid().contains("size 3, not 2147483648"));
    }

    #[test]
    fn numbers() {
        for (op, _) in ALL {
            for steps in [1, 3, 10] {
                case(op, steps, 1, noise).check(NEAR);
                case(op, steps, 1, noise).str("direction", "reverse").check(NEAR);
                case(op, steps, 2, noise).constant(bias(op, 2)).check(NEAR);
            }
        }
    }

    #[test]
    fn dynamic() {
        for (op, _) in ALL {
            case(op, 3, 2, noise).constant(bias(op, 2)).dynamic(0, ["S", "N", "3"]).check(NEAR);
            case(op, 3, 1, noise).dynamic(0, ["3", "N", "3"]).check(NEAR);
            case(op, 3, 1, noise).dynamic(0, ["S", "2", "3"]).str("direction", "reverse").check(NEAR);
        }
    }

    #[test]
    fn states() {
        for (op, _) in ALL {
            for steps in [3, 10] {
                let mut with = case(op, steps, 2, noise).absent().absent().input(noise([2, 2, 2]));
                if op == "LSTM" {
                    with = with.input(noise([2, 2, 2])).constant(noise([2, 6]));
                }
                with.check(NEAR);
            }
        }
    }

    #[test]
    fn lengths() {
        for (op, _) in ALL {
            for steps in [3, 10] {
                let with = case(op, steps, 2, noise).constant(bias(op, 2)).input(i32s([2], &[2, 3]));
                with.check(NEAR);
                // A row without steps: its states are zeros, not what they start as.
                let none = case(op, steps, 2, noise).absent().input(i32s([2], &[0, 3]));
                let none = none.input(noise([2, 2, 2]));
                let none = if op == "LSTM" { none.input(noise([2, 2, 2])) } else { none };
                none.check(NEAR);
                let whole = i32s([2], &[steps as i32; 2]);
                let layers = case(op, steps, 1, noise).absent().constant(whole).layers();
                assert!(!layers.contains(&"Select"));
            }
        }
    }

    #[test]
    fn modes() {
        case("LSTM", 3, 1, noise).int("input_forget", 1).check(NEAR);
        case("GRU", 3, 1, noise).int("linear_before_reset", 1).constant(bias("GRU", 1)).check(NEAR);
        case("GRU", 10, 2, noise).int("linear_before_reset", 1).check(NEAR);
        for (op, _) in ALL {
            case(op, 3, 1, noise).float("clip", 0.3).constant(bias(op, 1)).check(NEAR);
        }
        let list = names(&["HardSigmoid", "ScaledTanh", "Affine"]);
        let with = case("LSTM", 3, 1, noise).attr("activations", list);
        with.clone().refused(Code::ATTRIBUTE);
        let with = with.attr("activation_alpha", Attr::Floats(vec![0.3, 0.9, 1.2]));
        with.attr("activation_beta", Attr::Floats(vec![0.4, 0.8, 0.1])).check(NEAR);
        case("LSTM", 10, 1, noise).attr("activations", names(&["Elu"; 3])).check(NEAR);
        for name in ["Relu", "LeakyRelu", "ThresholdedRelu", "Elu", "Softsign", "Softplus"] {
            let with = case("RNN", 3, 1, noise).attr("activations", names(&[name]));
            with.attr("activation_alpha", Attr::Floats(vec![0.25])).check(NEAR);
        }
    }

    #[test]
    fn narrow_floats() {
        for (op, _) in ALL {
            for steps in [3, 10] {
                case(op, steps, 1, noise16).check(Tolerance::Near { rtol: 1e-2, atol: 5e-3 });
                case(op, steps, 1, noise_bf16).check(Tolerance::Near { rtol: 5e-2, atol: 5e-2 });
            }
        }
    }

    #[test]
    fn weights_of_the_run() {
        let case =
            Case::new("LSTM", 22).input(noise([3, 2, 3])).input(noise([2, 8, 3])).input(noise([2, 8, 2]));
        let case = case.input(noise([2, 16])).str("direction", "bidirectional").int("hidden_size", 2);
        case.outputs(3).check(NEAR);
    }
}

//! Loop: a subgraph, over and over.
//!
//! M [] i64, cond [] bool, states..  ->  states.., stacked [trips, ..]..        body: i, cond, states.. -> cond, states.., parts..
//! Opsets: 1, 11, 13, 16, 19, 21, 23, 24, 25 wider types.     TensorRT: ILoop.
//! Limits: every node of the body fits an engine; states keep their shapes; a loop that may end early stacks nothing.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        body, check, dims,
        extent::{self, DimPlan},
        iterate::{bind_captures, body_of, carry, check_stacked, check_states, stacked, states},
    },
};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{
    Code, Diag, Dim, Graph, InferCx, Inferred, Interval, NodeView, Refusal, Type, ValueId,
    passes::unroll::goes_on_always,
};
use trtc_network::{
    TensorId,
    layer::{ElementWiseOp, Layer, LoopOutput, LoopOutputKind, Recurrence, TripLimit},
};

/// The converter.
#[derive(Debug)]
pub struct Loop;

/// How a loop ends.
#[derive(Debug)]
pub struct LoopPlan {
    limit: Limit,
    /// The condition may end it.
    conditional: bool,
    states: usize,
}

/// What is known of the number of trips.
#[derive(Debug)]
enum Limit {
    /// There is none.
    None,
    /// Known, or bounded; without a condition also the length of what is stacked.
    Count(DimPlan),
    /// A number that nobody can bound: compared before each trip.
    Compared,
}

/// As many trips as an i32 counts.
const FAR: i64 = i32::MAX as i64;

/// Whether an If is among the nodes that make a value.
fn made_by_branch(body: &Graph, value: ValueId) -> bool {
    let mut seen = std::collections::HashSet::new();
    let mut waiting = vec![value];
    while let Some(value) = waiting.pop() {
        let Some((maker, _)) = body[value].producer().filter(|(maker, _)| seen.insert(*maker)) else {
            continue;
        };
        if &*body[maker].op.op_type == "If" && body[maker].op.domain.is_empty() {
            return true;
        }
        waiting.extend(body[maker].uses());
    }
    false
}

/// The loop starts for certain, and only its count ends it.
fn unconditional(node: NodeView<'_>, body: &Graph) -> bool {
    let starts = match node.input(1) {
        None => true,
        Some(view) => view.constant().and_then(|c| c.to_i64s()).is_some_and(|v| v.iter().all(|&v| v != 0)),
    };
    starts && (node.input(1).is_none() && body.outputs().is_empty() || goes_on_always(body))
}

impl Converter for Loop {
    type Plan = LoopPlan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Loop", 25)],
        dtypes: check::CARRIED,
        layers: "ILoop",
        limits: "every node of the body fits an engine; states keep their shapes; a loop that may end early stacks nothing",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::KNOWN_FAULT,
            Code::BODY,
            Code::CONTROL_FLOW,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let body = body_of(node)?;
        let count = node.input_count().saturating_sub(2);
        if body.inputs().len() != count + 2 || body.outputs().len() < count + 1 {
            let why = format!(
                "{} inputs and {} outputs for {count} states",
                body.inputs().len(),
                body.outputs().len()
            );
            return Err(Diag::invalid(why).slot("body"));
        }
        let mut results = states(node, body, 2..count + 2, 1, 1);
        // An optional may go in where what it holds comes out.
        for (result, &output) in results.iter_mut().zip(&body.outputs()[1..]) {
            let next = &body[output].ty;
            if matches!(result.ty, Type::Optional(_)) && !matches!(next, Type::Optional(_)) {
                result.ty = next.clone();
            }
        }
        let limit = dims::scalar(node, 0);
        let most = limit.and_then(|limit| node.symbols().interval(limit).max).map(|most| most.max(0));
        let trips = match limit {
            Some(limit) if unconditional(node, body) && *limit != Dim::Unknown => {
                dims::max(node, limit, &Dim::Known(0))
            }
            _ => cx.unbacked("trips", Interval { min: Some(0), max: most }),
        };
        for &output in &body.outputs()[count + 1..] {
            results.push(stacked(&body[output].ty, &trips, 0).into());
        }
        Ok(results)
    }

    fn body_inputs(&self, node: NodeView<'_>, _: &str, pass: usize) -> Vec<Inferred> {
        let Ok(body) = body_of(node) else { return Vec::new() };
        let scalar =
            |dtype, k| Inferred::from(Type::tensor(dtype, vec![Dim::Known(1); declared_rank(body, k)]));
        let mut list = vec![scalar(DType::I64, 0), scalar(DType::Bool, 1)];
        list.extend(states(node, body, 2..node.input_count().max(2), 1, pass));
        list
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<LoopPlan, Refusal> {
        let body = body_of(node).map_err(crate::ctx::window::refused)?;
        let states = node.input_count().saturating_sub(2);
        if body.inputs().len() != states + 2 || body.outputs().len() < states + 1 {
            return Err(
                Refusal::new(Code::INVALID, "inputs and outputs do not match the states").slot("body")
            );
        }
        for (slot, name, dtype) in [(0, "M", DType::I64), (1, "cond", DType::Bool)] {
            if node.input(slot).is_some() {
                let x = check::operand(node, slot, name, &[dtype], target)?;
                if x.shape.iter().any(|dim| *dim != Dim::Known(1)) {
                    return Err(Refusal::new(Code::SHAPE, "must be one element").slot(name));
                }
            }
        }
        check_states(node, body, 2..states + 2, 1, target)?;
        let outputs = &body.outputs()[states + 1..];
        check_stacked(body, outputs, target)?;
        let conditional = !unconditional(node, body);
        // A limit beyond every count is no limit.
        let limit = dims::scalar(node, 0).and_then(Dim::known);
        if conditional && target.product() == Product::Rtx && made_by_branch(body, body.outputs()[0]) {
            let why = "TensorRT-RTX takes a loop whose condition an If of its body makes for a cycle";
            return Err(Refusal::new(Code::KNOWN_FAULT, why).slot("body"));
        }
        let count = node.input(0).is_some() && !(conditional && limit.is_some_and(|limit| limit >= FAR));
        if !count && !conditional {
            return Err(Refusal::new(Code::CONTROL_FLOW, "nothing ends the loop").slot("cond"));
        }
        if !outputs.is_empty() && conditional {
            let why = "the loop may end early, and TensorRT stacks a number of parts that is known before";
            return Err(Refusal::new(Code::CONTROL_FLOW, why).slot("cond"));
        }
        let trips = dims::scalar(node, 0).cloned().unwrap_or(Dim::Unknown);
        if !outputs.is_empty() && trips.known().is_some_and(|trips| trips < 1) {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        let limit = match extent::require_dim(node, &trips, "M") {
            _ if !count => Limit::None,
            Ok(count) => Limit::Count(count),
            Err(_) if outputs.is_empty() => Limit::Compared,
            Err(refusal) => return Err(refusal),
        };
        body::check_branches(body, target)?;
        body::plan(node, body, "body", target)?;
        Ok(LoopPlan { limit, conditional, states })
    }

    fn emit(&self, plan: LoopPlan, cx: &mut Emit<'_>) -> Outputs {
        let node = cx.node();
        let Ok(body) = body_of(node) else {
            cx.fault("no body");
            return Outputs::new();
        };
        let scalar = |cx: &mut Emit<'_>, slot: usize| {
            let x = cx.input(slot);
            if cx.rank(x) == 0 { x } else { cx.reshape(x, Vec::new()) }
        };
        let count = match &plan.limit {
            Limit::Count(count) => {
                let count = cx.dim(count);
                let count = cx.reshape(count, Vec::new());
                // Beside a condition TensorRT-RTX compares its i32 counter with the limit as it is.
                Some(if plan.conditional { narrowed(cx, count) } else { count })
            }
            _ => None,
        };
        let compared = matches!(plan.limit, Limit::Compared).then(|| scalar(cx, 0));
        let truth = match node.input(1) {
            Some(_) => scalar(cx, 1),
            None => cx.scalar(DType::Bool, 0, 1.0),
        };
        let initial = (0..plan.states).map(|k| cx.input(k + 2)).collect();
        let states = carry(cx, initial);
        let (start, one) = (cx.scalar(DType::I64, 0, 0.0), cx.scalar(DType::I64, 0, 1.0));
        let place = carry(cx, vec![start]);
        let place = (place.initial[0], place.current[0]);
        let condition = plan.conditional.then(|| carry(cx, vec![truth]));
        let condition = condition.map(|condition| (condition.initial[0], condition.current[0]));
        // In front of the body: its first inputs in the ranks that it gives them, and what else may end the loop.
        cx.open_region();
        let as_declared = |cx: &mut Emit<'_>, x: TensorId, k: usize| match declared_rank(body, k) {
            0 => x,
            rank => cx.reshape(x, vec![1; rank]),
        };
        let mut bind = vec![
            (body.inputs()[0], as_declared(cx, place.1, 0)),
            (body.inputs()[1], as_declared(cx, condition.map_or(truth, |c| c.1), 1)),
        ];
        let goes_on = match (compared, condition) {
            (Some(limit), condition) => {
                let below = cx.elementwise(place.1, limit, ElementWiseOp::Less);
                Some(condition.map_or(below, |c| cx.elementwise(below, c.1, ElementWiseOp::And)))
            }
            (None, condition) => condition.map(|c| c.1),
        };
        let mut layers = cx.close_region(Vec::new()).layers;
        bind.extend(body.inputs()[2..].iter().copied().zip(states.current.iter().copied()));
        bind_captures(cx, node, body, &mut bind);
        let region = cx.region(body, &bind);
        let at = |k: usize| region.outputs.get(k).copied().unwrap_or(TensorId(u32::MAX));
        layers.extend(region.layers.iter().cloned());
        // The place counts up beside the body's own layers.
        cx.open_region();
        let next_place = cx.elementwise(place.1, one, ElementWiseOp::Sum);
        let next_condition =
            condition.map(|_| if cx.rank(at(0)) == 0 { at(0) } else { cx.reshape(at(0), Vec::new()) });
        layers.extend(cx.close_region(Vec::new()).layers);
        let mut recurrences = vec![Recurrence { initial: place.0, current: place.1, next: next_place }];
        if let (Some((initial, current)), Some(next)) = (condition, next_condition) {
            recurrences.push(Recurrence { initial, current, next });
        }
        let limits = count.map(|count| (TripLimit::Count, count));
        let limits = limits.into_iter().chain(goes_on.map(|x| (TripLimit::While, x))).collect();
        let mut results = Vec::new();
        for k in 0..plan.states {
            let (initial, current) = (states.initial[k], states.current[k]);
            recurrences.push(Recurrence { initial, current, next: at(k + 1) });
            results.push(LoopOutput {
                kind: LoopOutputKind::LastValue,
                value: current,
                axis: 0,
                length: None,
            });
        }
        for k in plan.states + 1..body.outputs().len() {
            let kind = LoopOutputKind::Concatenate;
            results.push(LoopOutput { kind, value: at(k), axis: 0, length: count });
        }
        cx.layer(Layer::Loop { limits, recurrences, iterators: Vec::new(), body: layers, results })
    }
}

/// The count as i32, at most [`FAR`].
fn narrowed(cx: &mut Emit<'_>, count: TensorId) -> TensorId {
    let most = cx.scalar(DType::I64, 0, FAR as f64);
    let count = cx.elementwise(count, most, ElementWiseOp::Min);
    cx.cast(count, DType::I32)
}

/// Rank that a body gives its place (0) or condition (1): a scalar, or one element as ONNX Runtime also takes it.
fn declared_rank(body: &Graph, k: usize) -> usize {
    let rank = body.inputs().get(k).and_then(|&id| body[id].ty.shape()).map(<[Dim]>::len);
    usize::from(rank == Some(1))
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::{Attr, Attrs, Graph, Node, OpKey, Tensor, Type, ValueId};

    /// state = state * 2 + captured; stacks the state. The condition: what came in, or `sum(state) < 10`.
    fn loop_body(conditional: bool, stacks: bool) -> Graph {
        let mut g = Graph::new("body");
        g.add_input("i", Type::Unknown);
        let cond = g.add_input("cond_in", Type::Unknown);
        let state = g.add_input("state", Type::Unknown);
        let outer = g.add_capture(ValueId(3), "outer", Type::Unknown);
        let twice = node(&mut g, "Add", 14, &[state, state]);
        let next = node(&mut g, "Add", 14, &[twice, outer]);
        let out = if conditional {
            let total = node(&mut g, "ReduceMax", 20, &[next]);
            let total = {
                let axes = g.add_constant("axes", list(&[0]));
                node(&mut g, "Squeeze", 25, &[total, axes])
            };
            let most = g.add_constant("most", f32s([], &[10.0]));
            node(&mut g, "Less", 13, &[total, most])
        } else {
            node(&mut g, "Identity", 25, &[cond])
        };
        g.add_output(out);
        g.add_output(next);
        if stacks {
            let part = node(&mut g, "Neg", 13, &[next]);
            g.add_output(part);
        }
        g
    }

    fn looped(trips: i64, body: Graph) -> Case {
        let stacks = body.outputs().len() > 2;
        Case::new("Loop", 25)
            .constant(i64s([], &[trips]))
            .constant(bools([], &[true]))
            .input(f32s([3], &[0.5, -1.0, 0.25]))
            .outside(f32s([3], &[1.0, 2.0, -0.5]))
            .attr("body", Attr::Graph(Box::new(body)))
            .outputs(if stacks { 2 } else { 1 })
    }

    #[test]
    fn loops() {
        looped(3, loop_body(false, false)).check(F32);
        looped(3, loop_body(false, true)).check(F32);
        looped(3, loop_body(false, true)).dynamic(2, ["N"]).dynamic(3, ["N"]).check(F32);
        assert_eq!(looped(3, loop_body(false, true)).types(), ["f32[3]", "f32[3 x 3]"]);
        assert_eq!(looped(3, loop_body(true, true)).types(), ["f32[3]", "f32[node.trips x 3]"]);
    }

    #[test]
    fn conditions() {
        looped(9, loop_body(true, false)).check(F32);
        looped(2, loop_body(true, false)).check(F32);
        looped(i64::MAX, loop_body(true, false)).check(F32);
        let open = Case::new("Loop", 25).input(i64s([1], &[2])).input(bools([], &[false])).input(noise([3]));
        let open = open.outside(f32s([3], &[1.0, 2.0, -0.5])).sizes(0, ["2"]);
        open.attr("body", Attr::Graph(Box::new(loop_body(true, false)))).check(F32);
    }

    #[test]
    fn places() {
        let mut g = Graph::new("body");
        let i = g.add_input("i", Type::Unknown);
        let cond = g.add_input("cond_in", Type::Unknown);
        let state = g.add_input("state", Type::Unknown);
        let next = node(&mut g, "Add", 14, &[state, i]);
        g.add_output(cond);
        g.add_output(next);
        g.add_output(i);
        let case = Case::new("Loop", 25).input(i64s([], &[4])).absent().input(i64s([2], &[5, 6])).outputs(2);
        let case = case.attr("body", Attr::Graph(Box::new(g)));
        case.clone().sizes(0, ["4"]).check(Tolerance::Exact);
        case.refused(Code::SHAPE_VALUE);
    }

    #[test]
    fn limits_of_the_run() {
        for conditional in [false, true] {
            for trips in [0, 2, 9] {
                let case = Case::new("Loop", 25).input(i64s([], &[trips])).input(bools([], &[true]));
                let case = case.input(f32s([3], &[0.5, -1.0, 0.25])).outside(f32s([3], &[1.0, 2.0, -0.5]));
                case.attr("body", Attr::Graph(Box::new(loop_body(conditional, false)))).check(F32);
            }
        }
    }

    /// Adds an If to the body that hands `x` on.
    fn with_branch(g: &mut Graph, condition: ValueId, x: ValueId) -> ValueId {
        let branch = |name: &str| {
            let mut branch = Graph::new(name);
            let x = branch.add_capture(x, "x", Type::Unknown);
            let y = node(&mut branch, "Identity", 25, &[x]);
            branch.add_output(y);
            Attr::Graph(Box::new(branch))
        };
        let mut attrs = Attrs::new();
        attrs.set("then_branch", branch("then"));
        attrs.set("else_branch", branch("else"));
        let y = g.add_value("branch_y", Type::Unknown);
        g.add_node(Node::new("branch", OpKey::new("", "If"), 25, attrs, [Some(condition)], [Some(y)]));
        y
    }

    #[test]
    fn branches() {
        // An If that makes a state builds; one that makes the condition does not.
        let mut body = loop_body(true, false);
        let (cond, next) = (body.inputs()[1], body.outputs()[1]);
        let state = with_branch(&mut body, cond, next);
        let out = body.outputs()[0];
        body.set_outputs(vec![out, state]);
        looped(9, body).check(F32);
        let mut body = loop_body(true, false);
        let (cond, out) = (body.inputs()[1], body.outputs()[0]);
        let goes_on = with_branch(&mut body, cond, out);
        let state = body.outputs()[1];
        body.set_outputs(vec![goes_on, state]);
        looped(9, body).refused(Code::KNOWN_FAULT);
    }

    /// A body may take its place and condition as one element each.
    #[test]
    fn one_element() {
        let mut body = loop_body(true, false);
        for (k, dtype) in [(0, trtc_bundle::DType::I64), (1, trtc_bundle::DType::Bool)] {
            let input = body.inputs()[k];
            body[input].ty = Type::tensor(dtype, vec![trtc_ir::Dim::Known(1)]);
        }
        // 2x + outer: [2, 0, 0], [5, 2, -0.5], [11, 6, -1.5], which ends it.
        looped(4, body).gives(F32, &[f32s([3], &[11.0, 6.0, -1.5])]);
    }

    #[test]
    fn loop_refusals() {
        looped(3, loop_body(true, true)).refused(Code::CONTROL_FLOW);
        looped(0, loop_body(false, true)).refused(Code::SHAPE);
        let no_end =
            Case::new("Loop", 25).absent().constant(bools([], &[true])).input(noise([3])).outside(noise([3]));
        let no_end = no_end.outside(noise([3]));
        no_end.attr("body", Attr::Graph(Box::new(loop_body(false, false)))).refused(Code::CONTROL_FLOW);
        let case = |m: Tensor, state: Tensor| {
            let case = Case::new("Loop", 25)
                .input(m)
                .constant(bools([], &[true]))
                .input(state.clone())
                .outside(state);
            case.attr("body", Attr::Graph(Box::new(loop_body(false, false))))
        };
        case(noise([]), noise([3])).refused(Code::DTYPE_KERNEL);
        case(i64s([2], &[1, 2]), noise([3])).refused(Code::SHAPE);
        let one = || i64s([], &[1]);
        case(one(), f64s([3], &[1.0; 3])).refused(Code::DTYPE_UNREPRESENTABLE);
        case(one(), noise([3])).untyped(2).refused(Code::DTYPE_UNKNOWN);
        case(one(), noise([3])).unranked(2).refused(Code::RANK_UNKNOWN);
        case(one(), noise([1; 9])).refused(Code::RANK);
        case(one(), noise([3])).dynamic(2, ["?"]).refused(Code::CONTROL_FLOW);
        case(one(), bf16s([3], &[1.0; 3])).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        let mut grows = loop_body(false, false);
        let state = grows.inputs()[2];
        let joined = grows.add_value("joined", Type::Unknown);
        let mut attrs = Attrs::new();
        attrs.set("axis", Attr::Int(0));
        let inputs = [Some(state), Some(state)];
        grows.add_node(Node::new("join", OpKey::new("", "Concat"), 13, attrs, inputs, [Some(joined)]));
        let out = grows.outputs()[0];
        grows.set_outputs(vec![out, joined]);
        looped(3, grows).refused(Code::CONTROL_FLOW);
        let mut strange = loop_body(false, false);
        let state = strange.inputs()[2];
        node(&mut strange, "Mystery", 1, &[state]);
        looped(3, strange).refused(Code::BODY);
        assert!(Case::new("Loop", 25).input(one()).invalid().contains("missing"));
        let few =
            Case::new("Loop", 25).input(one()).attr("body", Attr::Graph(Box::new(loop_body(false, false))));
        assert!(
            few.outside(noise([1])).outside(noise([1])).outside(noise([1])).invalid().contains("0 states")
        );
    }

    #[test]
    fn gates() {
        let mut g = Graph::new("body");
        g.add_input("i", Type::Unknown);
        let cond = g.add_input("cond_in", Type::Unknown);
        let (a, b) = (g.add_input("a", Type::Unknown), g.add_input("b", Type::Unknown));
        g.set_outputs(vec![cond, a, b]);
        let case = Case::new("Loop", 25).constant(i64s([], &[2])).constant(bools([], &[true]));
        let case = case.absent().input(noise([2])).attr("body", Attr::Graph(Box::new(g)));
        case.refused(Code::INVALID);
    }
}

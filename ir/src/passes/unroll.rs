//! Loops over sequences of static structure, turn by turn.
//!
//! A SequenceMap over sequences of known length becomes its body, once for each element. A Loop that makes or reads such a
//! sequence, and whose number of turns is known, becomes its body as often: what is left are tensors, which engines hold.

use super::{
    Ledger, Outside, each_graph,
    sequences::{self, Sequence},
    splice::{Names, splice},
};
use crate::{
    attr::{Attr, Attrs},
    graph::{Graph, Module, Node, NodeId, OpKey, ValueId},
    tensor::Tensor,
    types::Type,
};
use std::collections::HashMap;
use trtc_bundle::DType;

/// Most turns of a loop that is unrolled, and most nodes that come of it.
const MAX_TURNS: usize = 64;
const MAX_NODES: usize = 4096;

/// Unrolls what is known. `true` when anything changed.
pub fn run(module: &mut Module, ledger: &mut Ledger) -> bool {
    each_graph(module, &mut |graph, _, path| {
        let is_loop = |id: &NodeId| {
            let op = &graph[*id].op;
            op.domain.is_empty() && matches!(&*op.op_type, "SequenceMap" | "Loop")
        };
        let loops: Vec<NodeId> = graph.node_ids().filter(is_loop).collect();
        if loops.is_empty() {
            return false;
        }
        let mut names = Names::of(graph);
        let mut changed = false;
        for id in loops {
            let known = sequences::known(graph);
            changed |= match &*graph[id].op.op_type {
                "Loop" => unroll_loop(graph, id, path, &known, &mut names, ledger),
                _ => unroll_map(graph, id, &known, &mut names),
            };
        }
        changed
    })
}

/// Whether a loop's body never ends it: its condition is a constant true, or what came in.
pub fn goes_on_always(body: &Graph) -> bool {
    let Some(&out) = body.outputs().first() else { return false };
    let mut at = out;
    for _ in 0..64 {
        if let Some(constant) = &body[at].constant {
            return constant.to_i64s().is_some_and(|v| v.iter().all(|&v| v != 0));
        }
        if body.inputs().get(1) == Some(&at) {
            return true;
        }
        match body[at].producer() {
            Some((id, _)) if &*body[id].op.op_type == "Identity" => match body[id].input(0) {
                Some(input) => at = input,
                None => return false,
            },
            _ => return false,
        }
    }
    false
}

/// The body of a node, if so many copies of it are not too many.
fn body_of(graph: &Graph, id: NodeId, turns: usize) -> Option<Graph> {
    fn nodes(graph: &Graph) -> usize {
        let nested = graph.node_ids().flat_map(|id| graph[id].attrs.graphs()).map(|(_, body)| nodes(body));
        graph.node_count() + nested.sum::<usize>()
    }
    let body = graph[id].attrs.graph("body")?;
    let fits = (1..=MAX_TURNS).contains(&turns) && turns * nodes(body).max(1) <= MAX_NODES;
    fits.then(|| {
        let mut body = body.clone();
        forget(&mut body);
        body
    })
}

/// What was found for the state of every turn need not hold in each: types are found anew, turn by turn.
fn forget(body: &mut Graph) {
    for value in body.value_ids() {
        let value = &mut body[value];
        if value.constant.is_none() {
            value.elements = None;
            value.ty = value.ty.dtype().map_or(Type::Unknown, Type::unranked);
        }
    }
    for id in body.node_ids().collect::<Vec<NodeId>>() {
        if let Some(node) = body.node_mut(id) {
            node.attrs.graphs_mut().for_each(|(_, nested)| forget(nested));
        }
    }
}

/// Copies the body for one turn. The first one keeps the paths of the nodes, by which a report knows them.
fn turn(
    graph: &mut Graph,
    body: &Graph,
    (node, turn): (&str, usize),
    names: &mut Names,
    bound: &[(ValueId, ValueId)],
) -> Vec<ValueId> {
    let prefix = format!("{node}/body");
    let label = |inner: &str| match turn {
        0 => format!("{prefix}/{inner}"),
        k => format!("{prefix}/{inner}#{k}"),
    };
    splice(graph, body, &prefix, names, bound, &label)
}

fn unroll_map(graph: &mut Graph, id: NodeId, known: &HashMap<ValueId, Sequence>, names: &mut Names) -> bool {
    let node = &graph[id];
    let Some(inputs) = node.inputs().iter().copied().collect::<Option<Vec<ValueId>>>() else { return false };
    let count = inputs.first().and_then(|first| sequences::length(graph, known.get(first)?));
    let Some(count) = count.and_then(|count| usize::try_from(count).ok()) else { return false };
    let fits = |input: &ValueId| match known.get(input) {
        Some(sequence) => sequences::length(graph, sequence) == Some(count as i64),
        None => graph[*input].constant.is_some() || matches!(graph[*input].ty, Type::Tensor(_)),
    };
    let Some(body) = body_of(graph, id, count).filter(|body| {
        inputs.iter().all(fits)
            && body.inputs().len() == inputs.len()
            && body.outputs().len() >= node.outputs().len()
    }) else {
        return false;
    };
    let name = node.name.to_string();
    let outputs: Vec<Option<ValueId>> = node.outputs().to_vec();
    let mut columns: Vec<Vec<ValueId>> = Vec::new();
    for &input in &inputs {
        columns.push(match known.get(&input) {
            Some(sequence) => match sequences::elements(graph, &name, sequence) {
                Some(list) => list,
                None => return false,
            },
            None => vec![input; count],
        });
    }
    let mut made: Vec<Vec<ValueId>> = vec![Vec::new(); outputs.len()];
    for k in 0..count {
        let bound: Vec<_> =
            body.inputs().iter().zip(&columns).map(|(&inner, list)| (inner, list[k])).collect();
        let map = turn(graph, &body, (&name, k), names, &bound);
        for (list, output) in made.iter_mut().zip(body.outputs()) {
            list.push(map[output.index()]);
        }
    }
    graph.remove_node(id);
    for (k, (output, list)) in outputs.into_iter().zip(made).enumerate() {
        let label = if k == 0 { name.clone() } else { format!("{name}#{k}") };
        let inputs = list.into_iter().map(Some);
        let op = OpKey::new("", "SequenceConstruct");
        graph.add_node(Node::new(&label, op, 11, Attrs::new(), inputs, [output]));
    }
    true
}

fn unroll_loop(
    graph: &mut Graph,
    id: NodeId,
    path: &str,
    known: &HashMap<ValueId, Sequence>,
    names: &mut Names,
    ledger: &mut Ledger,
) -> bool {
    let node = &graph[id];
    let constant = |slot: usize| graph[node.input(slot)?].constant.as_ref()?.to_i64s();
    let count = constant(0).and_then(|list| usize::try_from(*list.first()?).ok());
    let starts = node.input(1).is_none() || constant(1).is_some_and(|list| list.iter().all(|&v| v != 0));
    let (Some(count), true) = (count, starts) else { return false };
    let states: Option<Vec<ValueId>> = node.inputs().get(2..).unwrap_or_default().iter().copied().collect();
    // Exporters give the place and the condition one dim now and then.
    let rank = |body: &Graph, k: usize| {
        body.inputs().get(k).and_then(|&input| body[input].ty.shape()).map_or(0, |dims| dims.len().min(1))
    };
    let ranks = [0, 1].map(|k| node.attrs.graph("body").map_or(0, |body| rank(body, k)));
    let (Some(states), Some(body)) = (states, body_of(graph, id, count)) else { return false };
    // A loop over tensors is one that engines hold.
    let seen = states.iter().copied().chain(body.captures.iter().map(|capture| capture.outer));
    let mut sequences = seen.filter(|value| is_sequence(graph, known, *value)).peekable();
    let shaped = body.inputs().len() == states.len() + 2 && body.outputs().len() > states.len();
    if sequences.peek().is_none() || !sequences.all(|value| known.contains_key(&value)) {
        return false;
    }
    if !shaped || !goes_on_always(&body) || node.outputs().len() >= body.outputs().len() {
        return false;
    }
    let name = node.name.to_string();
    let outputs: Vec<Option<ValueId>> = node.outputs().to_vec();
    let mut now = states;
    let mut parts: Vec<Vec<ValueId>> = vec![Vec::new(); body.outputs().len() - 1 - now.len()];
    let Some(truth) = Tensor::new(DType::Bool, vec![1; ranks[1]], vec![1u8].into()) else {
        return false;
    };
    let goes_on = graph.add_constant(&names.free("goes_on", &name), truth);
    for k in 0..count {
        let place = match ranks[0] {
            0 => Tensor::scalar_i64(k as i64),
            _ => Tensor::from_i64s(&[k as i64]),
        };
        let place = graph.add_constant(&names.free("turn", &name), place);
        let values = [place, goes_on].into_iter().chain(now.iter().copied());
        let bound: Vec<_> = body.inputs().iter().copied().zip(values).collect();
        let map = turn(graph, &body, (&name, k), names, &bound);
        let mut made = body.outputs()[1..].iter().map(|output| map[output.index()]);
        now = made.by_ref().take(now.len()).collect();
        parts.iter_mut().zip(made).for_each(|(list, part)| list.push(part));
    }
    for (k, list) in parts.into_iter().enumerate() {
        if outputs.get(now.len()).is_none() {
            break;
        }
        now.push(stack(graph, &format!("{name}#stack_{k}"), &list, names));
    }
    if let Some(node) = graph.node_mut(id) {
        node.attrs = Attrs::new();
    }
    graph.refresh_captures(id);
    ledger.remove(graph, id, path, "a loop over a static sequence, unrolled");
    graph.remove_node(id);
    let mut outside = Outside::of(graph);
    for (k, (output, value)) in outputs.into_iter().zip(now).enumerate() {
        let Some(output) = output else { continue };
        if !outside.replace(graph, output, value) {
            let op = OpKey::new("", "Identity");
            let label = format!("{name}#{k}");
            graph.add_node(Node::new(&label, op, 25, Attrs::new(), [Some(value)], [Some(output)]));
        }
    }
    true
}

fn is_sequence(graph: &Graph, known: &HashMap<ValueId, Sequence>, value: ValueId) -> bool {
    known.contains_key(&value) || matches!(graph[value].ty, Type::Sequence(_) | Type::Optional(_))
}

/// Tensors one upon the other, along a new first axis.
fn stack(graph: &mut Graph, name: &str, parts: &[ValueId], names: &mut Names) -> ValueId {
    let axes = graph.add_constant(&names.free("axes", name), Tensor::from_i64s(&[0]));
    let mut rows = Vec::new();
    for (k, &part) in parts.iter().enumerate() {
        let row = graph.add_value(&names.free("row", name), Type::Unknown);
        let op = OpKey::new("", "Unsqueeze");
        let label = format!("{name}_row_{k}");
        graph.add_node(Node::new(&label, op, 25, Attrs::new(), [Some(part), Some(axes)], [Some(row)]));
        rows.push(Some(row));
    }
    let all = graph.add_value(&names.free("all", name), Type::Unknown);
    let mut attrs = Attrs::new();
    attrs.set("axis", Attr::Int(0));
    graph.add_node(Node::new(name, OpKey::new("", "Concat"), 13, attrs, rows, [Some(all)]));
    all
}

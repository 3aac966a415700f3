//! Sequences and optionals that cross the border of a subgraph, taken across it as their elements.
//!
//! An If whose branches both make a sequence of one length, or both an optional that holds something, gives the elements;
//! the sequence is made behind it. A subgraph that only takes constant places of a static sequence from around it gets its
//! elements.

use super::{
    Ledger, each_graph,
    sequences::{self, Parts, Sequence},
    splice::Names,
};
use crate::{
    attr::{Attr, Attrs},
    graph::{Graph, Module, Node, NodeId, OpKey, ValueId},
    infer::{put_attrs, take_attrs, taken_branch},
    tensor::Tensor,
    types::Type,
};
use std::collections::HashMap;

/// Moves what is static. `true` when anything changed.
pub fn run(module: &mut Module, _: &mut Ledger) -> bool {
    each_graph(module, &mut |graph, _, _| {
        let around: Vec<NodeId> =
            graph.node_ids().filter(|&id| graph[id].attrs.graphs().next().is_some()).collect();
        let mut changed = false;
        for id in around {
            changed |= out_of_branches(graph, id) | into_bodies(graph, id);
        }
        changed
    })
}

/// What both branches make of an output.
enum Made {
    /// Sequences of these elements.
    Sequences([Vec<ValueId>; 2]),
    /// Optionals that hold these.
    Optionals([ValueId; 2]),
}

fn out_of_branches(graph: &mut Graph, id: NodeId) -> bool {
    let node = &graph[id];
    if &*node.op.op_type != "If" || !node.op.domain.is_empty() || taken_branch(graph, id).is_some() {
        return false;
    }
    let [Some(then), Some(other)] = ["then_branch", "else_branch"].map(|name| node.attrs.graph(name)) else {
        return false;
    };
    let count = node.outputs().len();
    if then.outputs().len() < count || other.outputs().len() < count {
        return false;
    }
    let lists = [then, other].map(sequences::known);
    let made = (0..count).find_map(|slot| {
        node.output(slot)?;
        let [a, b] = [then, other].map(|body| body.outputs()[slot]);
        if let (Some(Sequence::List(a)), Some(Sequence::List(b))) = (lists[0].get(&a), lists[1].get(&b))
            && a.len() == b.len()
            && !a.is_empty()
        {
            return Some((slot, Made::Sequences([a.clone(), b.clone()])));
        }
        let held = |body: &Graph, value: ValueId| {
            let (maker, _) = body[value].producer()?;
            let is_optional = &*body[maker].op.op_type == "Optional" && body[maker].op.domain.is_empty();
            body[maker].input(0).filter(|_| is_optional)
        };
        let (a, b) = (held(then, a)?, held(other, b)?);
        Some((slot, Made::Optionals([a, b])))
    });
    let Some((slot, made)) = made else { return false };
    let (op, since, columns): (&str, u32, [Vec<ValueId>; 2]) = match made {
        Made::Sequences(lists) => ("SequenceConstruct", 11, lists),
        Made::Optionals(held) => ("Optional", 15, held.map(|value| vec![value])),
    };
    let Some(output) = node.output(slot) else { return false };
    let name = node.name.to_string();
    let width = columns[0].len();
    let Some(mut attrs) = take_attrs(graph, id) else { return false };
    for (branch, list) in ["then_branch", "else_branch"].into_iter().zip(columns) {
        if let Some(Attr::Graph(body)) = attrs.get_mut(branch) {
            let mut outputs = body.outputs()[..count].to_vec();
            outputs[slot] = list[0];
            outputs.extend(&list[1..]);
            body.set_outputs(outputs);
        }
    }
    put_attrs(graph, id, attrs);
    let mut parts = Vec::new();
    let mut names = Names::of(graph);
    for k in 0..width {
        let part = graph.add_value(&names.free(&format!("output_{slot}_{k}"), &name), Type::Unknown);
        graph.set_output(id, if k == 0 { slot } else { count + k - 1 }, part);
        parts.push(Some(part));
    }
    graph.refresh_captures(id);
    // An optional of a sequence is taken out twice.
    let label = format!("{name}#{slot}_{op}");
    graph.add_node(Node::new(&label, OpKey::new("", op), since, Attrs::new(), parts, [Some(output)]));
    true
}

fn into_bodies(graph: &mut Graph, id: NodeId) -> bool {
    let is_wanted = |body: &Graph, known: &HashMap<ValueId, Sequence>| {
        let capture = body.captures.iter().copied();
        capture.filter(|c| known.contains_key(&c.outer) && takes_places(body, c.inner)).collect::<Vec<_>>()
    };
    if graph[id].attrs.graphs().all(|(_, body)| body.captures.is_empty()) {
        return false;
    }
    let known = sequences::known(graph);
    if known.is_empty() || graph[id].attrs.graphs().all(|(_, body)| is_wanted(body, &known).is_empty()) {
        return false;
    }
    let Some(mut attrs) = take_attrs(graph, id) else { return false };
    for (_, body) in attrs.graphs_mut() {
        for capture in is_wanted(body, &known) {
            body.captures.retain(|other| other.inner != capture.inner);
            remake(graph, body, capture.inner, &known[&capture.outer]);
        }
    }
    put_attrs(graph, id, attrs);
    graph.refresh_captures(id);
    true
}

/// Whether only constant places of a sequence, or its length, are taken in a subgraph.
fn takes_places(body: &Graph, value: ValueId) -> bool {
    let takes = |&user: &NodeId| {
        let node = &body[user];
        let is_first = node.inputs().iter().skip(1).all(|input| *input != Some(value));
        match &*node.op.op_type {
            "SequenceAt" => is_first && node.input(1).is_some_and(|at| body[at].constant.is_some()),
            "SequenceLength" | "ConcatFromSequence" => true,
            _ => {
                !node.inputs().contains(&Some(value))
                    && node
                        .attrs
                        .graphs()
                        .flat_map(|(_, nested)| nested.captures.iter().map(move |c| (nested, c)))
                        .filter(|(_, capture)| capture.outer == value)
                        .all(|(nested, capture)| takes_places(nested, capture.inner))
            }
        }
    };
    let users = body[value].users();
    !users.is_empty() && users.iter().all(takes) && !body.outputs().contains(&value)
}

/// Makes a sequence of the graph around anew in a subgraph.
fn remake(graph: &Graph, body: &mut Graph, value: ValueId, sequence: &Sequence) {
    let inside = |outer: ValueId, body: &mut Graph| {
        let held = body.captures.iter().find(|capture| capture.outer == outer).map(|capture| capture.inner);
        held.unwrap_or_else(|| {
            let inner = body.add_capture(outer, &graph[outer].name, graph[outer].ty.clone());
            body[inner].constant = graph[outer].constant.clone();
            body[inner].elements = graph[outer].elements.clone();
            inner
        })
    };
    let label = format!("{}#again", body[value].name);
    let (op, attrs, inputs) = match sequence {
        Sequence::List(list) if list.is_empty() => ("SequenceEmpty", Attrs::new(), Vec::new()),
        Sequence::List(list) => {
            ("SequenceConstruct", Attrs::new(), list.iter().map(|&outer| inside(outer, body)).collect())
        }
        Sequence::Split { x, axis, parts } => {
            let mut attrs = Attrs::new();
            attrs.set("axis", Attr::Int(*axis));
            let mut inputs = vec![inside(*x, body)];
            let sizes = match parts {
                Parts::Squeezed => {
                    attrs.set("keepdims", Attr::Int(0));
                    None
                }
                Parts::Even(size) => Some(Tensor::scalar_i64(*size)),
                Parts::Sizes(sizes) => Some(Tensor::from_i64s(sizes)),
            };
            inputs.extend(sizes.map(|sizes| body.add_constant(&format!("{label}/sizes"), sizes)));
            ("SplitToSequence", attrs, inputs)
        }
    };
    let since = if op == "SplitToSequence" { 24 } else { 11 };
    body.add_node(Node::new(
        &label,
        OpKey::new("", op),
        since,
        attrs,
        inputs.into_iter().map(Some),
        [Some(value)],
    ));
}

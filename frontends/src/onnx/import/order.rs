//! Order of a graph's nodes: as given when every value is made before it is used, else sorted.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet},
};
use trtc_onnx::{GraphProto, NodeProto};

/// Positions of `nodes` in an order in which every value is made before it is used; among free nodes the given order decides.
///
/// # Errors
/// The positions of a cycle's nodes.
pub(super) fn order(nodes: &[NodeProto]) -> Result<Vec<usize>, Vec<usize>> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|name| !name.is_empty()) {
            makers.entry(output).or_insert(at);
        }
    }
    let mut sorted = true;
    let mut needs: Vec<Vec<usize>> = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let mut names = Vec::new();
        uses(node, &mut names);
        let mut list: Vec<usize> = names.iter().filter_map(|name| makers.get(name).copied()).collect();
        list.sort_unstable();
        list.dedup();
        sorted &= list.last().is_none_or(|&last| last < at);
        needs.push(list);
    }
    if sorted {
        return Ok((0..nodes.len()).collect());
    }
    sort(&needs)
}

fn sort(needs: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    let mut waiting: Vec<usize> = needs.iter().map(Vec::len).collect();
    for (at, list) in needs.iter().enumerate() {
        list.iter().for_each(|&need| users[need].push(at));
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..needs.len()).filter(|&at| waiting[at] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(needs.len());
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        for &user in &users[at] {
            waiting[user] -= 1;
            if waiting[user] == 0 {
                ready.push(Reverse(user));
            }
        }
    }
    if order.len() == needs.len() {
        return Ok(order);
    }
    // Walk backwards among the nodes that never became free until one repeats.
    let stuck = |at: &usize| waiting[*at] > 0;
    let mut path: Vec<usize> = Vec::new();
    let mut place = vec![usize::MAX; needs.len()];
    let mut next = (0..needs.len()).find(stuck);
    while let Some(at) = next {
        if place[at] != usize::MAX {
            let mut cycle = path.split_off(place[at]);
            cycle.reverse();
            return Err(cycle);
        }
        place[at] = path.len();
        path.push(at);
        next = needs[at].iter().copied().find(stuck);
    }
    Err(path)
}

/// Names that a node reads: its inputs, and what its subgraphs take from outside.
fn uses<'a>(node: &'a NodeProto, names: &mut Vec<&'a str>) {
    names.extend(node.input.iter().map(String::as_str));
    for graph in subgraphs(node) {
        free_names(graph, names);
    }
}

fn subgraphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|attr| attr.g.as_deref().into_iter().chain(&attr.graphs))
}

fn free_names<'a>(graph: &'a GraphProto, names: &mut Vec<&'a str>) {
    let mut inside: HashSet<&str> = HashSet::new();
    inside.extend(graph.input.iter().filter_map(|value| value.name.as_deref()));
    inside.extend(graph.initializer.iter().map(|tensor| tensor.name()));
    inside.extend(graph.sparse_initializer.iter().map(|tensor| tensor.name()));
    inside.extend(graph.node.iter().flat_map(|node| node.output.iter().map(String::as_str)));
    let mut used = Vec::new();
    graph.node.iter().for_each(|node| uses(node, &mut used));
    used.extend(graph.output.iter().filter_map(|value| value.name.as_deref()));
    names.extend(used.into_iter().filter(|name| !inside.contains(name)));
}

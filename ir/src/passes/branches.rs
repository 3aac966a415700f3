//! An If whose condition is constant becomes the branch that is taken, spliced into the graph around it.
//!
//! Nodes of the branch keep the path that they had (`if_3/then_branch/Add_1` becomes their name), so that a report
//! speaks of the same node before and after. The other branch's nodes are removed.

use super::{
    Ledger, each_graph, output_flags,
    splice::{Names, splice},
};
use crate::{
    graph::{Graph, Module, Node, NodeId, OpKey, ValueId},
    infer::{node_path, taken_branch},
};
use std::collections::HashSet;

/// Splices in the branches that are taken. `true` when anything changed.
pub fn run(module: &mut Module, ledger: &mut Ledger) -> bool {
    each_graph(module, &mut |graph, _, path| {
        let ifs: Vec<NodeId> = graph.node_ids().filter(|&id| taken_branch(graph, id).is_some()).collect();
        if ifs.is_empty() {
            return false;
        }
        let mut names = Names::of(graph);
        ifs.into_iter().fold(false, |changed, id| changed | inline(graph, id, path, &mut names, ledger))
    })
}

/// What an output of the If becomes.
enum Becomes {
    /// Users take this value.
    Value(ValueId),
    /// Users take this value, which also takes the output's name.
    Renamed(ValueId),
    /// A constant.
    Constant(crate::Tensor),
    /// An Identity has to stay, because both names are seen outside.
    Copy(ValueId),
}

/// The newest version of Identity's schema.
const IDENTITY_VERSION: u32 = 25;

fn inline(graph: &mut Graph, id: NodeId, path: &str, names: &mut Names, ledger: &mut Ledger) -> bool {
    let Some(branch) = taken_branch(graph, id) else { return false };
    let Some(body) = graph[id].attrs.graph(branch) else { return false };
    if !fits(graph, id, body) {
        return false;
    }
    let body = body.clone();
    let prefix = format!("{}/{branch}", graph[id].name);
    let map = splice(graph, &body, &prefix, names, &[], &|node| format!("{prefix}/{node}"));
    let is_output = output_flags(graph);
    let outputs: Vec<Option<ValueId>> = graph[id].outputs().to_vec();
    let mut copy = None;
    let mut renamed: HashSet<ValueId> = HashSet::new();
    for (output, inner) in outputs.into_iter().zip(body.outputs()) {
        let Some(output) = output else { continue };
        let value = map[inner.index()];
        match settle(graph, output, value, &is_output, &renamed) {
            Becomes::Constant(tensor) => graph.set_constant(output, tensor),
            Becomes::Value(value) => graph.replace_uses(output, value),
            Becomes::Renamed(value) => {
                let name = graph[output].name.clone();
                graph[output].name = std::mem::replace(&mut graph[value].name, name);
                renamed.insert(value);
                graph.replace_uses(output, value);
            }
            Becomes::Copy(value) => copy = Some((output, value)),
        }
    }
    let label = node_path(path, &graph[id].name);
    for (name, other) in graph[id].attrs.graphs() {
        if name != branch {
            ledger.bury(other, &format!("{label}/{name}"), "the branch is never taken");
        }
    }
    if let Some(node) = graph.node_mut(id) {
        node.attrs = crate::Attrs::new();
    }
    graph.refresh_captures(id);
    match copy {
        None => {
            ledger.fold(graph, id, path, &format!("its condition is constant: {branch} is taken"));
            graph.remove_node(id);
        }
        Some((output, value)) => {
            let name = graph[id].name.clone();
            graph.remove_node(id);
            let op = OpKey::new("", "Identity");
            graph.add_node(Node::new(
                &name,
                op,
                IDENTITY_VERSION,
                crate::Attrs::new(),
                [Some(value)],
                [Some(output)],
            ));
        }
    }
    true
}

/// Whether at most one output needs an Identity: the If's own node can become that one.
fn fits(graph: &Graph, id: NodeId, body: &Graph) -> bool {
    let is_output = output_flags(graph);
    let mut seen: HashSet<ValueId> = HashSet::new();
    let copies = graph[id].outputs().iter().zip(body.outputs()).filter(|(output, inner)| {
        let Some(output) = output else { return false };
        if !is_output[output.index()] || body[**inner].constant.is_some() {
            return false;
        }
        let capture = body.captures.iter().find(|capture| capture.inner == **inner);
        let fixed =
            capture.is_some_and(|c| is_output[c.outer.index()] || graph[c.outer].producer().is_none());
        fixed || !seen.insert(**inner)
    });
    copies.count() <= 1 && graph[id].outputs().len() <= body.outputs().len()
}

fn settle(
    graph: &Graph,
    output: ValueId,
    value: ValueId,
    is_output: &[bool],
    renamed: &HashSet<ValueId>,
) -> Becomes {
    if let Some(tensor) = &graph[value].constant {
        return Becomes::Constant(tensor.clone());
    }
    if !is_output[output.index()] {
        return Becomes::Value(value);
    }
    let taken = is_output.get(value.index()) == Some(&true) || renamed.contains(&value);
    if taken || graph[value].producer().is_none() { Becomes::Copy(value) } else { Becomes::Renamed(value) }
}

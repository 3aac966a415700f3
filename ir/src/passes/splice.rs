//! A subgraph's nodes, copied into the graph around it: what a branch that is taken and a loop that is unrolled share.

use crate::graph::{Graph, Node, ValueId};
use std::collections::HashSet;

/// Names of values that are taken.
pub(super) struct Names(HashSet<std::sync::Arc<str>>);

impl Names {
    pub(super) fn of(graph: &Graph) -> Names {
        Names(graph.value_ids().map(|id| graph[id].name.clone()).collect())
    }

    /// `name` if it is free, else with the path of the branch before it.
    pub(super) fn free(&mut self, name: &str, prefix: &str) -> String {
        let mut candidate = name.to_owned();
        let mut k = 1;
        while !self.0.insert(candidate.as_str().into()) {
            candidate = if k == 1 { format!("{prefix}/{name}") } else { format!("{prefix}/{name}_{k}") };
            k += 1;
        }
        candidate
    }
}

/// Copies a subgraph's values and nodes into the graph around it; what each value of the subgraph is now. `bound` says what
/// inputs of it are, `prefix` stands before names of values that are taken, `label` gives the names of nodes.
pub(super) fn splice(
    graph: &mut Graph,
    body: &Graph,
    prefix: &str,
    names: &mut Names,
    bound: &[(ValueId, ValueId)],
    label: &dyn Fn(&str) -> String,
) -> Vec<ValueId> {
    let mut captured: Vec<Option<ValueId>> = vec![None; body.value_count()];
    for capture in &body.captures {
        captured[capture.inner.index()] = Some(capture.outer);
    }
    for &(inner, outer) in bound {
        captured[inner.index()] = Some(outer);
    }
    let mut map: Vec<ValueId> = Vec::with_capacity(body.value_count());
    for id in body.value_ids() {
        let value = &body[id];
        map.push(match captured[id.index()] {
            Some(outer) => outer,
            None => {
                let name = names.free(&value.name, prefix);
                let new = match &value.constant {
                    Some(tensor) => graph.add_constant(&name, tensor.clone()),
                    None => graph.add_value(&name, value.ty.clone()),
                };
                if value.constant.is_none() {
                    graph[new].elements = value.elements.clone();
                }
                new
            }
        });
    }
    let moved = |id: &Option<ValueId>| id.map(|id| map[id.index()]);
    for id in body.node_ids() {
        let node = &body[id];
        let mut attrs = node.attrs.clone();
        for (_, nested) in attrs.graphs_mut() {
            let mut by_outer: Vec<(ValueId, ValueId)> = Vec::new();
            for capture in std::mem::take(&mut nested.captures) {
                let outer = map[capture.outer.index()];
                match by_outer.iter().find(|(seen, _)| *seen == outer) {
                    Some(&(_, inner)) => nested.replace_uses(capture.inner, inner),
                    None => {
                        by_outer.push((outer, capture.inner));
                        nested.captures.push(crate::Capture { outer, inner: capture.inner });
                    }
                }
            }
        }
        let name = label(&node.name);
        graph.add_node(Node::new(
            &name,
            node.op.clone(),
            node.since_version,
            attrs,
            node.inputs().iter().map(moved),
            node.outputs().iter().map(moved),
        ));
    }
    map
}

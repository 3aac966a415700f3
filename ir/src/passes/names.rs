//! What a subgraph captures has the name that it has outside, so that whatever runs a part of the subgraph on its own
//! can be given the value under one name. Values of the subgraph that had this name get another one.

use crate::graph::{Graph, Module};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Renames captured values, the outermost graph first. O(values).
pub fn run(module: &mut Module) {
    within(&mut module.graph);
}

fn within(graph: &mut Graph) {
    let holders: Vec<_> = graph.node_ids().filter(|&id| graph[id].attrs.graphs().next().is_some()).collect();
    for id in holders {
        let names: HashMap<_, Arc<str>> =
            graph[id].captured().iter().map(|&value| (value, graph[value].name.clone())).collect();
        let Some(node) = graph.node_mut(id) else { continue };
        for (_, body) in node.attrs.graphs_mut() {
            let wanted = body.captures.iter().filter_map(|c| Some((c.inner, names.get(&c.outer)?.clone())));
            rename(body, wanted.collect());
            within(body);
        }
    }
}

fn rename(body: &mut Graph, wanted: HashMap<crate::ValueId, Arc<str>>) {
    if wanted.iter().all(|(&inner, name)| body[inner].name == *name) {
        return;
    }
    let mut taken: HashSet<Arc<str>> = wanted.values().cloned().collect();
    for id in body.value_ids() {
        let name = body[id].name.clone();
        if let Some(name) = wanted.get(&id) {
            body[id].name = name.clone();
            continue;
        }
        let mut free = name.clone();
        let mut k = 1;
        while taken.contains(&free) {
            free = format!("{name}_{k}").into();
            k += 1;
        }
        taken.insert(free.clone());
        body[id].name = free;
    }
}

//! An If whose branches give one output of two ranks, where what reads it takes one rank alone: the branch of that rank
//! is the only one with which the model runs, so the condition is taken to be constant.
//!
//! Exporters write `squeeze if the dim is 1` so, and then go on with the squeezed rank. A run that would take the other
//! branch fails in the model as it stands, too.

use super::{Ledger, each_graph, simplify};
use crate::{
    graph::{Graph, Module, NodeId},
    infer::{Rules, every_diag, node_path, taken_branch},
    tensor::Tensor,
};
use trtc_bundle::DType;

/// Most Ifs that are looked at: for each the module is simplified twice.
const TRIED: usize = 16;

/// Where an If stands.
#[derive(Clone, Debug)]
struct Site {
    path: String,
    id: NodeId,
}

/// Sets the conditions that only one value fits. `true` when anything changed.
pub fn run(module: &mut Module, rules: &dyn Rules) -> bool {
    let mut sites: Vec<Site> = Vec::new();
    each_graph(module, &mut |graph, _, path| {
        let found = graph.node_ids().filter(|&id| has_two_ranks(graph, id));
        sites.extend(found.map(|id| Site { path: path.to_owned(), id }));
        false
    });
    sites.truncate(TRIED);
    let runs = |site: &Site, condition: bool| {
        let mut trial = module.clone();
        set_condition(&mut trial, site, condition);
        // What it finds wrong is found again below, with what is wrong in branches.
        drop(simplify(&mut trial, rules, &mut Ledger::default()));
        let wrong = every_diag(&mut trial, rules);
        !wrong.iter().any(|diag| always_runs(&mut trial, site, &diag.node))
    };
    let decided: Vec<(Site, bool)> = sites
        .into_iter()
        .filter_map(|site| match (runs(&site, true), runs(&site, false)) {
            (true, false) => Some((site, true)),
            (false, true) => Some((site, false)),
            _ => None,
        })
        .collect();
    for (site, condition) in &decided {
        set_condition(module, site, *condition);
    }
    !decided.is_empty()
}

/// Whether the branches of an If that is still open give some output of two ranks.
fn has_two_ranks(graph: &Graph, id: NodeId) -> bool {
    let node = &graph[id];
    if &*node.op.op_type != "If" || !node.op.domain.is_empty() || taken_branch(graph, id).is_some() {
        return false;
    }
    let [Some(then), Some(other)] = ["then_branch", "else_branch"].map(|name| node.attrs.graph(name)) else {
        return false;
    };
    let rank = |graph: &Graph, slot: usize| Some(graph[*graph.outputs().get(slot)?].ty.shape()?.len());
    (0..node.outputs().len()).any(|slot| match (rank(then, slot), rank(other, slot)) {
        (Some(a), Some(b)) => a != b,
        _ => false,
    })
}

fn set_condition(module: &mut Module, site: &Site, condition: bool) {
    each_graph(module, &mut |graph, _, path| {
        let tensor = Tensor::new(DType::Bool, Vec::new(), vec![u8::from(condition)].into());
        let (true, Some(tensor)) = (path == site.path && graph.get(site.id).is_some(), tensor) else {
            return false;
        };
        let mut name = format!("{}/cond", graph[site.id].name);
        while graph.value_ids().any(|id| *graph[id].name == *name) {
            name.push('_');
        }
        let constant = graph.add_constant(&name, tensor);
        graph.set_input(site.id, 0, Some(constant));
        true
    });
}

/// Whether a node stands in the If's own graph, so that it runs whenever the If does; one in a body may not.
fn always_runs(module: &mut Module, site: &Site, node: &str) -> bool {
    let mut found = false;
    each_graph(module, &mut |graph, _, path| {
        found |= path == site.path && graph.node_ids().any(|id| node_path(path, &graph[id].name) == node);
        false
    });
    found
}

//! Statically empty tensors: a value with a 0 in its static shape becomes an empty constant.
//!
//! No converter ever meets a genuinely empty dimension. Graph inputs stay as they are.

use super::{Ledger, each_graph};
use crate::{
    graph::{Graph, Module, NodeId, ValueId},
    tensor::Tensor,
};

/// Makes empty constants; takes out nodes that make nothing else. `true` when anything changed.
pub fn run(module: &mut Module, ledger: &mut Ledger) -> bool {
    each_graph(module, &mut |graph, _, path| {
        let ids: Vec<NodeId> = graph.node_ids().collect();
        let (mut changed, mut gone) = (false, Vec::new());
        for id in ids {
            if node(graph, id) {
                changed = true;
                if graph[id].outputs().iter().all(Option::is_none) {
                    ledger.fold(graph, id, path, "its outputs are empty");
                    gone.push(id);
                }
            }
        }
        graph.remove_nodes(&gone);
        changed
    })
}

fn node(graph: &mut Graph, id: NodeId) -> bool {
    let outputs: Vec<Option<ValueId>> = graph[id].outputs().to_vec();
    let mut changed = false;
    for output in outputs.into_iter().flatten() {
        let ty = &graph[output].ty;
        if let (Some(dtype), Some(dims)) = (ty.dtype(), ty.static_shape())
            && let Some(tensor) = Tensor::empty(dtype, dims)
        {
            graph.set_constant(output, tensor);
            changed = true;
        }
    }
    changed
}

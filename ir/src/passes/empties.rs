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
        ids.into_iter().fold(false, |changed, id| changed | node(graph, id, path, ledger))
    })
}

fn node(graph: &mut Graph, id: NodeId, path: &str, ledger: &mut Ledger) -> bool {
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
    if changed && graph[id].outputs().iter().all(Option::is_none) {
        ledger.fold(graph, id, path, "its outputs are empty");
    }
    changed
}

//! Folding: a node over constants becomes constants, as far as the small evaluator goes.
//!
//! A result larger than the evaluator's bound stays a node (ONNX Runtime folds it after partitioning), unless it is a
//! view of its input. What the evaluator calls wrong stays a node as well: it may stand where the run never comes.

use super::{Ledger, sweep_all};
use crate::{
    eval,
    graph::{Graph, Module, NodeId, ValueId},
    symbols::Symbols,
    tensor::Tensor,
    view::NodeView,
};

/// Folds what is foldable without inference. `true` when anything changed.
pub fn run(module: &mut Module, ledger: &mut Ledger) -> bool {
    sweep_all(module, &mut |graph, symbols, id, path| node(graph, symbols, id, path, ledger))
}

/// Folds one node whose inputs are all constants; `true` when it makes nothing any more.
pub(super) fn node(
    graph: &mut Graph,
    symbols: &Symbols,
    id: NodeId,
    path: &str,
    ledger: &mut Ledger,
) -> bool {
    let node = &graph[id];
    if !eval::knows(&node.op.domain, &node.op.op_type) || !node.captured().is_empty() {
        return false;
    }
    let mut inputs: Vec<Option<&Tensor>> = Vec::with_capacity(node.inputs().len());
    for input in node.inputs() {
        match input.map(|input| graph[input].constant.as_ref()) {
            Some(Some(tensor)) => inputs.push(Some(tensor)),
            Some(None) => return false,
            None => inputs.push(None),
        }
    }
    let Some(Ok(results)) = eval::evaluate(NodeView::new(graph, symbols, id), &inputs) else { return false };
    let outputs: Vec<Option<ValueId>> = node.outputs().to_vec();
    if results.len() < outputs.len() {
        return false;
    }
    for (output, tensor) in outputs.into_iter().zip(results) {
        if let Some(output) = output {
            graph.set_constant(output, tensor);
        }
    }
    ledger.fold(graph, id, path, "all of its inputs are constant");
    true
}

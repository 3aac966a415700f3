//! Dead code: nodes whose outputs nobody uses, and captures that a subgraph does not need.

use super::{Ledger, each_graph, is_dead, output_flags};
use crate::graph::{Graph, Module};

/// Takes dead nodes out. `true` when anything changed. O(nodes + uses).
pub fn run(module: &mut Module, ledger: &mut Ledger) -> bool {
    each_graph(module, &mut |graph, _, path| {
        let Ok(order) = graph.topo_order() else { return false };
        let is_output = output_flags(graph);
        let mut changed = false;
        // Backwards, so that what only dead nodes used is dead when its turn comes.
        for id in order.into_iter().rev() {
            if is_dead(graph, id, &is_output) {
                ledger.remove(graph, id, path, "nothing uses its outputs");
                graph.remove_node(id);
                changed = true;
            } else if may_omit_outputs(&graph[id].op.op_type) {
                let unused: Vec<_> = graph[id]
                    .outputs()
                    .iter()
                    .skip(1)
                    .flatten()
                    .copied()
                    .filter(|&value| graph[value].users().is_empty() && !is_output[value.index()])
                    .collect();
                // Without its mask a Dropout is nothing.
                changed |= !unused.is_empty();
                unused.into_iter().for_each(|value| graph.drop_output(value));
            }
        }
        changed | drop_captures(graph, &is_output)
    })
}

/// Operators whose outputs after the first are optional, each for itself.
fn may_omit_outputs(op_type: &str) -> bool {
    matches!(
        op_type,
        "Dropout" | "BatchNormalization" | "MaxPool" | "LayerNormalization" | "LSTM" | "GRU" | "RNN"
    )
}

fn drop_captures(graph: &mut Graph, is_output: &[bool]) -> bool {
    let mut captures = std::mem::take(&mut graph.captures);
    let before = captures.len();
    captures.retain(|capture| {
        !graph[capture.inner].users().is_empty() || is_output.get(capture.inner.index()) == Some(&true)
    });
    graph.captures = captures;
    graph.captures.len() != before
}

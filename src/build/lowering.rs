//! Nodes of a graph as a network.

use trtc_bundle::Target;
use trtc_converters::{LowerError, SegmentIo, lower};
use trtc_ir::{Code, Graph, NodeId, Refusal, Symbols, ValueId};
use trtc_network::Lowered;

/// Lowers nodes; otherwise the nodes that have to leave, and why.
///
/// # Errors
/// Those nodes: the one that is refused, all that touch a value which cannot cross, or all of them.
pub(crate) fn lower_nodes(
    graph: &Graph,
    symbols: &Symbols,
    name: &str,
    nodes: &[NodeId],
    inputs: &[ValueId],
    outputs: &[ValueId],
    target: &Target,
) -> Result<Lowered, (Vec<NodeId>, Refusal)> {
    lower(graph, symbols, SegmentIo { name, nodes, inputs, outputs }, target).map_err(|error| match error {
        LowerError::Refused { node, refusal, .. } => (vec![node], refusal),
        LowerError::Boundary { value, refusal, name } => {
            let touches = |id: &NodeId| {
                graph[*id].uses().any(|used| used == value) || graph[*id].outputs().contains(&Some(value))
            };
            (or_all(nodes.iter().copied().filter(touches).collect(), nodes), refusal.slot(name))
        }
        LowerError::Fault(fault) => {
            let named = nodes.iter().copied().filter(|&id| *graph[id].name == *fault.node).collect();
            (or_all(named, nodes), Refusal::new(Code::LOWERING, format!("a fault of ours: {}", fault.what)))
        }
    })
}

fn or_all(some: Vec<NodeId>, all: &[NodeId]) -> Vec<NodeId> {
    if some.is_empty() { all.to_vec() } else { some }
}

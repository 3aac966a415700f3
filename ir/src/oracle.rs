//! The question that the partitioner asks: can this node go into an engine of this target?

use crate::{
    diag::Refusal,
    graph::{Graph, NodeId, ValueId},
    symbols::Symbols,
    view::NodeView,
};
use trtc_bundle::Target;

/// Answers admission. Implemented over the converters; the partitioner knows no converter.
pub trait Oracle: Sync {
    /// `Ok` when the node's converter can plan it for the target.
    ///
    /// # Errors
    /// Why not.
    fn admit(&self, node: NodeView<'_>, target: &Target) -> Result<(), Refusal>;

    /// Checks a clustered segment as a whole: what crosses its boundary, and each node again, now that it is settled
    /// which values are made inside. `nodes` are in topological order and not empty.
    ///
    /// # Errors
    /// The node that must leave the segment, or the boundary value that cannot cross.
    fn check_segment(
        &self,
        graph: &Graph,
        symbols: &Symbols,
        nodes: &[NodeId],
        inputs: &[ValueId],
        outputs: &[ValueId],
        target: &Target,
    ) -> Result<(), SegmentRefusal> {
        let _ = (graph, symbols, nodes, inputs, outputs, target);
        Ok(())
    }
}

/// Why a segment does not hold together.
#[derive(Clone, Debug, PartialEq)]
pub enum SegmentRefusal {
    /// This node must leave.
    Node(NodeId, Refusal),
    /// This value cannot cross the boundary.
    Value(ValueId, Refusal),
}

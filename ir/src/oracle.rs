//! The question that the partitioner asks: can this node go into an engine of this target?

use crate::{diag::Refusal, view::NodeView};
use trtc_bundle::Target;

/// Answers admission. Implemented over the converters; the partitioner knows no converter.
pub trait Oracle: Sync {
    /// `Ok` when the node's converter can plan it for the target.
    ///
    /// # Errors
    /// Why not.
    fn admit(&self, node: NodeView<'_>, target: &Target) -> Result<(), Refusal>;
}

//! The partitioner: admission, then acyclic clusters, then the boundary, to a fixpoint; and the report.
//!
//! It knows the trait [`trtc_ir::Oracle`], not the converters, and reads nothing from the machine: the same module and
//! target give the same partition anywhere.

mod cluster;
mod partition;
mod report;
mod sizes;
mod text;

pub use partition::{Forced, Partition, Placement, Segment, SegmentKind, partition};
pub use report::{
    ModelInfo, NodeRow, PlacementName, Report, SegmentRow, SegmentStatus, SourceNode, TargetReport, Timings,
    Totals, target_report,
};
pub use sizes::value_bytes;

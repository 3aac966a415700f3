//! The partitioner: admission, then acyclic clusters, then the boundary, to a fixpoint; and the report.
//!
//! It knows the trait [`trtc_ir::Oracle`], not the converters, and reads nothing from the machine: the same module and
//! target give the same partition anywhere.

mod choose;
mod cluster;
mod cost;
mod dot;
mod duplicate;
mod layout;
mod operators;
mod page;
mod partition;
mod parts;
mod refine;
mod report;
mod resegment;
mod rows;
mod runs;
mod schedule;
mod segments;
mod sizes;
mod text;

pub use choose::{Estimate, settle_estimate};
pub use cost::{CostModel, CostModelError};
pub use partition::{
    Body, Forced, GraphPath, Partition, Placement, Segment, SegmentKind, partition, partition_with,
};
pub use parts::{Part, body_graph};
pub use report::{
    CrossingRow, EstimateRow, FailureRow, ModelInfo, NodeRow, PlacementName, Report, SegmentRow,
    SegmentStatus, SourceNode, TargetReport, Timings, Totals, target_report,
};
pub use resegment::{Pieces, boundary, split_segments};
pub use runs::split_long_runs;
pub use sizes::value_bytes;

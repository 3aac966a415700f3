//! The partitioner: admission, segments, report.

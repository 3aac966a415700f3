//! What segments consist of, for labels.

use crate::report::TargetReport;
use std::collections::{BTreeMap, HashMap};

/// Operators that a label lists.
const SHOWN: usize = 6;

/// The operators of each segment, the most frequent first: `12 Conv, 12 Relu`.
pub(crate) fn operators(target: &TargetReport) -> HashMap<&str, String> {
    let mut counts: HashMap<&str, BTreeMap<&str, usize>> = HashMap::new();
    for row in &target.nodes {
        if let Some(segment) = row.segment.as_deref() {
            *counts.entry(segment).or_default().entry(&row.op).or_default() += 1;
        }
    }
    let label = |counts: BTreeMap<&str, usize>| {
        let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let mut names: Vec<String> =
            counts.iter().take(SHOWN).map(|(op, count)| format!("{count} {op}")).collect();
        if counts.len() > SHOWN {
            names.push("…".to_owned());
        }
        names.join(", ")
    };
    counts.into_iter().map(|(segment, counts)| (segment, label(counts))).collect()
}

//! What changed between two snapshots in text.

/// The lines that differ, with a few around them.
pub fn lines(before: &str, now: &str) -> String {
    similar::TextDiff::from_lines(before, now)
        .unified_diff()
        .context_radius(2)
        .header("before", "now")
        .to_string()
}

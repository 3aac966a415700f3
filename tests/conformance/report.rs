//! The summary of a run, and the files that it leaves in target/conformance/.

use crate::{
    lists::Ignored,
    result::{CaseResult, Placement, Runner, Status},
};
use anyhow::Result;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::Write as _,
    path::Path,
};

/// How many cases ended how.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Count {
    right: usize,
    wrong: usize,
    ignored: usize,
    skipped: usize,
}

/// Cases of which some node of an operator stays on the host.
#[derive(Clone, Debug, Default, Serialize)]
struct OnHost {
    cases: usize,
    /// How many cases for each code and reason.
    reasons: BTreeMap<String, usize>,
}

/// All counts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    cases: usize,
    /// By runner.
    runners: BTreeMap<&'static str, Count>,
    /// Plain node cases, by where their nodes went.
    plain: BTreeMap<&'static str, usize>,
    /// Plain node cases wholly in engines that were built and whose layers are right.
    plain_in_engines_right: usize,
    /// Operators on the host, by operator.
    host: BTreeMap<String, OnHost>,
}

impl Summary {
    pub fn new(results: &[CaseResult], ignored: &Ignored) -> Summary {
        let mut summary = Summary { cases: results.len(), ..Summary::default() };
        for result in results {
            for (&runner, status) in &result.status {
                let count = summary.runners.entry(runner.name()).or_default();
                match status {
                    Status::Right => count.right += 1,
                    Status::Skipped(_) => count.skipped += 1,
                    Status::Wrong(..) if ignored.reason(runner, &result.case).is_some() => {
                        count.ignored += 1;
                    }
                    Status::Wrong(..) => count.wrong += 1,
                }
            }
            if result.plain {
                *summary.plain.entry(result.placement.name()).or_default() += 1;
                let right = |runner| !matches!(result.status.get(&runner), Some(Status::Wrong(..)) | None);
                if result.placement == Placement::Engine && right(Runner::Networks) && right(Runner::Builder)
                {
                    summary.plain_in_engines_right += 1;
                }
            }
            let mut seen = BTreeSet::new();
            for node in &result.host {
                let entry = summary.host.entry(node.op.clone()).or_default();
                if seen.insert(&node.op) {
                    entry.cases += 1;
                    let reason = format!("{} {}", node.code, node.reason);
                    *entry.reasons.entry(reason.trim().to_owned()).or_default() += 1;
                }
            }
        }
        summary
    }

    /// Writes the counts.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::write(folder.join("report.json"), serde_json::to_string_pretty(self)?)?;
        Ok(())
    }
}

/// results.jsonl: a line a case, as they come.
#[derive(Debug)]
pub struct Lines(std::fs::File);

impl Lines {
    pub fn create(folder: &Path) -> Result<Lines> {
        std::fs::create_dir_all(folder)?;
        Ok(Lines(std::fs::File::create(folder.join("results.jsonl"))?))
    }

    pub fn write(&mut self, result: &CaseResult) {
        if let Ok(text) = serde_json::to_string(result) {
            // What cannot be kept is in the summary all the same.
            writeln!(self.0, "{text}").ok();
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<12}{:>8}{:>8}{:>9}{:>9}", "runner", "right", "wrong", "ignored", "skipped")?;
        for (name, count) in &self.runners {
            let Count { right, wrong, ignored, skipped } = count;
            writeln!(f, "{name:<12}{right:>8}{wrong:>8}{ignored:>9}{skipped:>9}")?;
        }
        let plain: usize = self.plain.values().sum();
        if plain > 0 {
            let at = |name| self.plain.get(name).copied().unwrap_or_default();
            writeln!(
                f,
                "{plain} plain node cases: {} wholly in engines ({} built and right), {} partly, {} on the host, {} not compiled",
                at("engine"),
                self.plain_in_engines_right,
                at("mixed"),
                at("host"),
                at("none")
            )?;
        }
        Ok(())
    }
}

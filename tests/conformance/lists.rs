//! The lists beside this file: what each runner does not get right, and why; where each case ran when it was last blessed;
//! the sample.

use crate::result::{CaseResult, Placement, Runner, Status};
use anyhow::{Context as _, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name)
}

/// Lines that are neither empty nor comments.
fn lines(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

/// The cases of the sample, by id.
pub fn sample() -> Result<Vec<String>> {
    lines(&file("sample.txt"))
}

/// Cases that a runner does not get right, with the reason.
pub type Ignored = BTreeMap<(Runner, String), String>;

/// Reads `ignore/<runner>.txt`: `kind/case`, then the reason.
pub fn ignored() -> Result<Ignored> {
    let mut ignored = Ignored::new();
    for runner in Runner::ALL {
        let path = file(&format!("ignore/{}.txt", runner.name()));
        for line in lines(&path)? {
            let Some((case, reason)) = line.split_once(char::is_whitespace) else {
                bail!("{}: `{line}` has no reason", path.display());
            };
            let reason = reason.trim().to_owned();
            if ignored.insert((runner, case.to_owned()), reason).is_some() {
                bail!("{}: {case} twice", path.display());
            }
        }
    }
    Ok(ignored)
}

/// Where the nodes of a case went, and whether it ran with symbols.
pub type Baseline = BTreeMap<String, (Placement, bool)>;

/// Reads `baseline.tsv`.
pub fn baseline() -> Result<Baseline> {
    let mut baseline = Baseline::new();
    for line in lines(&file("baseline.tsv"))? {
        let mut fields = line.split('\t');
        let entry = (|| {
            let case = fields.next()?;
            let placement = Placement::from_name(fields.next()?)?;
            Some((case.to_owned(), (placement, fields.next()? == "dynamic")))
        })();
        let (case, entry) = entry.with_context(|| format!("baseline.tsv: `{line}`"))?;
        baseline.insert(case, entry);
    }
    Ok(baseline)
}

/// Writes what `results` say over the baseline; cases and runners that did not run keep their entry.
pub fn bless(results: &[CaseResult]) -> Result<()> {
    let mut baseline = baseline()?;
    for result in results {
        let before = baseline.get(&result.case).is_some_and(|(_, dynamic)| *dynamic);
        let dynamic = match result.status.get(&Runner::Dynamic) {
            Some(status) => *status == Status::Right,
            None => before,
        };
        baseline.insert(result.case.clone(), (result.placement, dynamic));
    }
    let mut text = String::from(
        "# Where the nodes of each case went (engine: all in engines), and whether it is right with symbols for sizes.\n\
         # A case must not fall behind its line. Written by `make conformance-bless`.\n",
    );
    for (case, (placement, dynamic)) in &baseline {
        writeln!(text, "{case}\t{}\t{}", placement.name(), if *dynamic { "dynamic" } else { "-" })?;
    }
    std::fs::write(file("baseline.tsv"), text)?;
    Ok(())
}

/// What is not as it should be, a line each.
pub fn complaints(
    results: &[CaseResult],
    ignored: &Ignored,
    baseline: &Baseline,
    known: &[String],
) -> Vec<String> {
    let mut complaints = Vec::new();
    for result in results {
        for (&runner, status) in &result.status {
            let reason = ignored.get(&(runner, result.case.clone()));
            match (status, reason) {
                (Status::Wrong(kind, text), None) => {
                    complaints.push(format!("{} {}: {kind}: {text}", runner.name(), result.case));
                }
                (Status::Right, Some(_)) => complaints.push(format!(
                    "{} {}: is right, but stands in ignore/{0}.txt",
                    runner.name(),
                    result.case
                )),
                _ => {}
            }
        }
        let Some(&(placement, dynamic)) = baseline.get(&result.case) else { continue };
        if result.placement < placement {
            complaints.push(format!(
                "{}: was placed on {}, is on {}",
                result.case,
                placement.name(),
                result.placement.name()
            ));
        }
        if dynamic && matches!(result.status.get(&Runner::Dynamic), Some(Status::Skipped(_))) {
            complaints.push(format!("{}: was right with symbols, is skipped", result.case));
        }
    }
    let known: BTreeSet<&String> = known.iter().collect();
    let strangers = ignored.keys().filter(|(_, case)| !known.contains(case));
    complaints.extend(
        strangers.map(|(runner, case)| format!("ignore/{}.txt: there is no case {case}", runner.name())),
    );
    complaints
}

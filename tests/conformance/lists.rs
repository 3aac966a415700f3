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

/// The cases of the sample, by id, and whether symbols are tried too.
pub fn sample() -> Result<Vec<(String, bool)>> {
    let parse = |line: &String| match line.split_once(' ') {
        None => Ok((line.clone(), false)),
        Some((case, "dynamic")) => Ok((case.to_owned(), true)),
        Some(_) => bail!("sample.txt: `{line}`"),
    };
    lines(&file("sample.txt"))?.iter().map(parse).collect()
}

/// Cases that a runner does not get right, with the reason.
#[derive(Debug, Default)]
pub struct Ignored(BTreeMap<(Runner, String), String>);

impl Ignored {
    /// Why a case that is wrong may be: what is wrong in segments is not expected to be right as a whole or with symbols.
    pub fn reason(&self, runner: Runner, case: &str) -> Option<&str> {
        let own = |runner| self.0.get(&(runner, case.to_owned())).map(String::as_str);
        match runner {
            Runner::Whole | Runner::Dynamic => own(runner).or_else(|| own(Runner::Hybrid)),
            _ => own(runner),
        }
    }

    /// Whether an entry is out of date when its case is right: not where that depends on the machine or on chance.
    fn is_stale(&self, runner: Runner, case: &str) -> bool {
        self.0.get(&(runner, case.to_owned())).is_some_and(|reason| !reason.starts_with("sometimes: "))
    }
}

/// Tolerances of cases, by the beginning of their id.
#[derive(Clone, Debug)]
pub struct Tolerance {
    prefix: String,
    /// |a − b| ≤ atol + rtol · |b|.
    pub rtol: f64,
    pub atol: f64,
}

/// Reads `tolerances.txt`: the beginning of a case's id, rtol, atol, then the reason.
pub fn tolerances() -> Result<Vec<Tolerance>> {
    let parse = |line: &String| {
        let mut words = line.split_whitespace();
        let prefix = words.next()?.to_owned();
        let (rtol, atol) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().map(|_| Tolerance { prefix, rtol, atol })
    };
    let lines = lines(&file("tolerances.txt"))?;
    lines.iter().map(|line| parse(line).with_context(|| format!("tolerances.txt: `{line}`"))).collect()
}

impl Tolerance {
    /// Whether it is meant for a case.
    pub fn is_for(&self, case: &str) -> bool {
        case.starts_with(&self.prefix)
    }
}

/// Reads `ignore/<runner>.txt`: `kind/case`, then the reason; `sometimes: …` where it depends on the machine or on chance.
pub fn ignored() -> Result<Ignored> {
    let mut ignored = BTreeMap::new();
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
    Ok(Ignored(ignored))
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

/// Writes what the plain node cases say of each operator to where the operator table reads it. `cargo xtask gen` puts it into
/// the documentation.
pub fn write_counts(results: &[CaseResult]) -> Result<()> {
    let mut counts: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for result in results.iter().filter(|result| result.plain) {
        let right = |runner| matches!(result.status.get(&runner), Some(Status::Right | Status::Skipped(_)));
        let in_engines = result.placement == Placement::Engine
            && [Runner::Networks, Runner::Builder, Runner::Soundness].into_iter().all(right);
        let of_case = [1, usize::from(in_engines), usize::from(right(Runner::Hybrid))];
        for op in &result.ops {
            let of_op = counts.entry(op).or_default();
            of_op.iter_mut().zip(of_case).for_each(|(sum, one)| *sum += one);
        }
    }
    let mut text = String::from(
        "# Plain node cases of the onnx package that use an operator: how many, how many wholly in engines (built for\n\
         # rtx-1.7:sm89, and their layers right), how many right at all. Written by `make conformance-bless`.\n",
    );
    for (op, [cases, engines, right]) in &counts {
        writeln!(text, "{op}\t{cases}\t{engines}\t{right}")?;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("converters/src/conformance.tsv");
    Ok(std::fs::write(path, text)?)
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
            match status {
                Status::Wrong(kind, text) if ignored.reason(runner, &result.case).is_none() => {
                    complaints.push(format!("{} {}: {kind}: {text}", runner.name(), result.case));
                }
                Status::Right if ignored.is_stale(runner, &result.case) => complaints.push(format!(
                    "{} {}: is right, but stands in ignore/{0}.txt",
                    runner.name(),
                    result.case
                )),
                _ => {}
            }
        }
        // Without another runner nothing is compiled as it is.
        let compiled =
            result.status.keys().any(|runner| !matches!(runner, Runner::Dynamic | Runner::Readback));
        let Some(&(placement, dynamic)) = baseline.get(&result.case) else { continue };
        if compiled && result.placement < placement {
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
    let strangers = ignored.0.keys().filter(|(_, case)| !known.contains(case));
    complaints.extend(
        strangers.map(|(runner, case)| format!("ignore/{}.txt: there is no case {case}", runner.name())),
    );
    complaints
}

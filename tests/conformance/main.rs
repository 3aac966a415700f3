//! The test cases of the onnx package, through everything that the compiler makes of them.
//!
//! ```text
//! cargo test -p trtc --test conformance                     the sample (sample.txt), as one test
//! make conformance                                          all cases, all runners
//! target/…/conformance --all [--runner NAME]... [--filter TEXT]... [--jobs N] [--out FOLDER] [--bless]
//! target/…/conformance --folder DIR [--references DIR] …    the models below a folder, with the data beside them (folder.rs)
//! ```
//!
//! Runners are in [`result::Runner`]. Each has a list of what it does not get right, with reasons (`ignore/`); an entry
//! that is right after all fails the run. `baseline.tsv` holds where the nodes of each case were placed: no case may fall
//! behind it. Results go to `target/conformance/`.
//!
//! `TRTC_CONFORMANCE_KEEP=FOLDER` keeps the models and bundles of the cases that are run. `TRTC_CONFORMANCE_COST=off`
//! places nothing by cost.
//!
//! Cases run in processes of their own, so a crash or a hang costs one case.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test runner"
)]

mod cases;
#[path = "../../src/cli/compare.rs"]
#[allow(dead_code, unused_imports, reason = "the command line uses all of it")]
mod compare;
mod dynamic;
#[path = "../../src/cli/elements.rs"]
#[allow(dead_code, unused_imports, reason = "the command line uses all of it")]
mod elements;
mod evaluator;
mod execute;
#[path = "../../src/cli/files.rs"]
#[allow(dead_code, unused_imports, reason = "the command line uses all of it")]
mod files;
mod folder;
mod lists;
#[path = "../../src/cli/npz/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the command line uses all of it")]
mod npz;
mod processes;
mod readback;
mod report;
mod result;
mod values;

use anyhow::{Context as _, Result, bail};
use folder::Folder;
use result::Runner;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Name under which test harnesses know the sample.
const SAMPLE: &str = "conformance_sample";

#[derive(Debug, Default)]
struct Arguments {
    all: bool,
    bless: bool,
    runners: Vec<Runner>,
    filters: Vec<String>,
    jobs: Option<usize>,
    out: Option<PathBuf>,
    folder: Option<PathBuf>,
    references: Option<PathBuf>,
}

impl Arguments {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments> {
        let mut parsed = Arguments::default();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--all" => parsed.all = true,
                "--bless" => parsed.bless = true,
                "--runner" => {
                    let name = value()?;
                    let runner = Runner::from_name(&name);
                    parsed.runners.push(runner.with_context(|| format!("there is no runner {name}"))?);
                }
                "--filter" => {
                    parsed.all = true;
                    parsed.filters.push(value()?);
                }
                "--folder" => parsed.folder = Some(value()?.into()),
                "--references" => parsed.references = Some(value()?.into()),
                "--out" => parsed.out = Some(value()?.into()),
                "--jobs" => parsed.jobs = Some(value()?.parse()?),
                // What harnesses pass to any test.
                "--exact" | "--nocapture" | "--quiet" | "--include-ignored" => {}
                name if !name.starts_with('-') && SAMPLE.contains(name) => {}
                other => bail!("unknown argument {other}"),
            }
        }
        Ok(parsed)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == processes::ARGUMENT) {
        if let Some(models) = arguments.get(2) {
            let references = arguments.get(3).map(PathBuf::from);
            folder::set(Folder { models: models.into(), references });
        }
        return processes::serve(Path::new(arguments.get(1).map_or("", String::as_str)));
    }
    if arguments.iter().any(|argument| argument == "--list") {
        if !arguments.iter().any(|argument| argument == "--ignored") {
            println!("{SAMPLE}: test");
        }
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|argument| argument == "--ignored")
        || arguments.iter().any(|argument| {
            !argument.starts_with('-') && arguments.len() == 1 && !SAMPLE.contains(argument.as_str())
        })
    {
        return ExitCode::SUCCESS;
    }
    match Arguments::parse(arguments.into_iter()).and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all is as it should be.
fn run(arguments: Arguments) -> Result<bool> {
    if let Some(models) = &arguments.folder {
        folder::set(Folder { models: models.clone(), references: arguments.references.clone() });
    }
    let found = folder::get().map(folder::all).transpose()?.or_else(cases::all);
    let Some(known) = found else {
        if arguments.all {
            bail!("there are no cases: `make conformance` writes them");
        }
        println!("skipped: `make test` and `make conformance` write the cases");
        return Ok(true);
    };
    let known: Vec<String> = known.into_iter().map(|case| case.id).collect();
    let of_folder = folder::get().is_some();
    let wanted = |runner: &Runner| match arguments.runners.as_slice() {
        [] => !of_folder || !matches!(runner, Runner::Dynamic | Runner::Readback),
        runners => runners.contains(runner),
    };
    let runners: Vec<Runner> = Runner::ALL.into_iter().filter(wanted).collect();
    let chosen: Vec<(String, Vec<Runner>)> = if arguments.all || of_folder {
        let wanted = |id: &&String| {
            arguments.filters.is_empty()
                || arguments.filters.iter().any(|filter| id.contains(filter.as_str()))
        };
        known.iter().filter(wanted).map(|id| (id.clone(), runners.clone())).collect()
    } else {
        let sample = lists::sample()?;
        if let Some((stranger, _)) = sample.iter().find(|(id, _)| !known.contains(id)) {
            bail!("sample.txt: there is no case {stranger}");
        }
        let of =
            |dynamic| runners.iter().copied().filter(move |&r| dynamic || r != Runner::Dynamic).collect();
        sample.into_iter().map(|(id, dynamic)| (id, of(dynamic))).collect()
    };
    let (ignored, baseline) = match of_folder {
        true => Default::default(),
        false => (lists::ignored()?, lists::baseline()?),
    };
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/conformance");
    let folder = arguments.out.unwrap_or_else(default);
    let mut lines = report::Lines::create(&folder)?;
    let results = processes::run_all(&chosen, jobs, &mut |result| lines.write(result))?;
    let summary = report::Summary::new(&results, &ignored);
    summary.write(&folder)?;
    if arguments.bless && !of_folder {
        lists::bless(&results)?;
        let counted = [Runner::Hybrid, Runner::Networks, Runner::Builder, Runner::Soundness];
        if arguments.filters.is_empty() && counted.iter().all(|runner| runners.contains(runner)) {
            lists::write_counts(&results)?;
        }
    }
    let complaints = lists::complaints(&results, &ignored, &baseline, &known);
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!("{summary}");
    println!(
        "{} cases, {} complaints; {} has them all",
        results.len(),
        complaints.len(),
        folder.join("results.jsonl").display()
    );
    Ok(complaints.is_empty())
}

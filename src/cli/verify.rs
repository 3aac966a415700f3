//! `trtc verify`: outputs beside those of something independent: given ones, or the original model in ONNX Runtime.

use super::{
    args::{Device, VerifyArgs},
    compare::{self, Comparison, Tolerances},
    failure::{Failure, Kind, Result},
    inputs::{self, Named},
    inspect,
    out::Out,
    subject::{self, File, Schedule, Subject},
};
use std::path::Path;
use trtc_bundle::{Bundle, ValueInfo};
use trtc_runtime::{Outputs, Session, Value};

pub fn run(args: &VerifyArgs) -> Result<()> {
    let subject = Subject::open(&args.file)?;
    let compiled;
    let (bundle, model) = match &subject.file {
        File::Bundle(bundle) => (&**bundle, args.model.as_deref()),
        File::Model(model) => {
            if args.model.is_some() {
                return Err(Failure::input(format!(
                    "{} is a model itself; --model goes with a bundle",
                    subject.shown
                )));
            }
            compiled = subject::compile(model, None, false)?;
            (&compiled.bundle, Some(model.as_path()))
        }
    };
    let reference = reference(args, bundle, model)?;
    let runs = given(args, bundle, &reference)?;
    let mut out = Out::stdout();
    out.line(format_args!("verify   {}", subject.shown))?;
    out.line(format_args!("against  {}", reference.described))?;
    out.line(format_args!("inputs   {}", described_inputs(args, &runs)))?;
    let tolerances = Tolerances { rtol: args.rtol, atol: args.atol };
    let mut differ = Vec::new();
    for schedule in schedules(args, bundle) {
        let session = subject::session(bundle, &schedule, Device::Auto, false)?;
        let described = subject::describe(&session, &schedule);
        out.line(format_args!("\nschedule {described}"))?;
        let mut rows: Vec<Row> = Vec::new();
        for run in &runs {
            let actual = session
                .run(&inputs::borrowed(&run.inputs))
                .map_err(|error| failed(&described, run.seed, &error))?;
            collect(&mut rows, &actual, run, tolerances);
        }
        differ.extend(print(&rows, &mut out)?.into_iter().map(|output| format!("`{output}` ({described})")));
    }
    let verdict = if differ.is_empty() { "ok" } else { "DIFFERS" };
    out.line(format_args!("\n{verdict}"))?;
    out.finish()?;
    if differ.is_empty() {
        return Ok(());
    }
    Err(Failure::check(format!(
        "{}: differs from {}: {}",
        subject.shown,
        reference.described,
        differ.join(", ")
    )))
}

/// A run that fails where the reference did not is a failed check, unless something is missing on this machine.
fn failed(schedule: &str, seed: Option<u64>, error: &trtc_runtime::RunError) -> Failure {
    let with = seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    let failure = subject::refused(&format!("{schedule}{with}"), error);
    match failure.kind {
        Kind::Input => Failure { kind: Kind::Check, ..failure },
        _ => failure,
    }
}

/// What is compared with.
struct Reference {
    described: String,
    /// The original model; `None` when the outputs are given.
    session: Option<Session>,
}

fn reference(args: &VerifyArgs, bundle: &Bundle, model: Option<&Path>) -> Result<Reference> {
    if let Some(path) = &args.expected {
        return Ok(Reference { described: path.display().to_string(), session: None });
    }
    let Some(model) = model else {
        return Err(Failure::input(format!(
            "{}: nothing independent to compare with",
            bundle.path().display()
        ))
        .help("give the original model with --model MODEL, or expected outputs with --expected OUT.npz"));
    };
    let hash = trtc::model_hash(model).map_err(|error| Failure::of(&error, model))?;
    let compiled_from = &bundle.manifest().model;
    if hash != compiled_from.hash {
        return Err(Failure::input(format!(
            "{} is not the model that the bundle was compiled from: its hash is {hash}, that of {} was {}",
            model.display(),
            compiled_from.name,
            compiled_from.hash
        )));
    }
    let session = subject::original(model, false)?;
    let described = format!("{} in {}", model.display(), session.backend());
    Ok(Reference { described, session: Some(session) })
}

/// One set of inputs and what is expected of it.
struct Run {
    seed: Option<u64>,
    inputs: Named,
    expected: Named,
}

fn given(args: &VerifyArgs, bundle: &Bundle, reference: &Reference) -> Result<Vec<Run>> {
    let manifest = bundle.manifest();
    let ports = &manifest.inputs;
    let named = |outputs: Outputs| -> Named {
        outputs.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
    };
    let refused = |error: &trtc_runtime::RunError| subject::refused("the original model", error);
    // The original model still has the inputs that are constants of the bundle.
    let pinned = inputs::pinned(bundle)?;
    let run = |values: &Named| match &reference.session {
        Some(session) => {
            let mut given = inputs::borrowed(values);
            given.extend(inputs::borrowed(&pinned));
            session.run(&given)
        }
        // Inputs are made up only for a reference that runs.
        None => Err(trtc_runtime::RunError::NoWholeModel),
    };
    if args.given.inputs.is_some() || ports.is_empty() {
        let inputs = match &args.given.inputs {
            Some(path) => inputs::read(path, ports, "input", true)?,
            None => Named::new(),
        };
        let expected = match &args.expected {
            Some(path) => given_outputs(path, &manifest.outputs)?,
            None => named(run(&inputs).map_err(|error| refused(&error))?),
        };
        return Ok(vec![Run { seed: None, inputs, expected }]);
    }
    let mut symbols = subject::symbols(bundle, ports).to_vec();
    let mut runs = Vec::new();
    for seed in 0..u64::from(args.random.map_or(1, |count| count.get())) {
        let (inputs, outputs) = inputs::random_that_run(seed, ports, &mut symbols, run)?.map_err(|error| {
            refused(&error).help(format!(
                "inputs made up from seed {seed} may not be what the model takes: give some with --inputs IN.npz"
            ))
        })?;
        runs.push(Run { seed: Some(seed), inputs, expected: named(outputs) });
    }
    Ok(runs)
}

fn given_outputs(path: &Path, ports: &[ValueInfo]) -> Result<Named> {
    let values = inputs::read(path, ports, "output", false)?;
    if values.is_empty() {
        return Err(Failure::input(format!("{}: it holds no output to compare with", path.display())));
    }
    Ok(values)
}

fn described_inputs(args: &VerifyArgs, runs: &[Run]) -> String {
    if let Some(path) = &args.given.inputs {
        return path.display().to_string();
    }
    let typed = |(name, value): &(String, Value)| match value {
        Value::Tensor(tensor) => format!("{name} {}", inspect::typed(tensor.dtype(), tensor.dims())),
        other => format!("{name} {}", other.kind_name()),
    };
    let first = runs.first().map(|run| run.inputs.iter().map(typed).collect::<Vec<_>>().join(", "));
    let first = first.filter(|text| !text.is_empty()).unwrap_or_else(|| "none".to_owned());
    match runs {
        [Run { seed: None, .. }] => first,
        [_] => format!("{first}, made up from seed 0"),
        _ => format!("{first}, made up from the seeds 0 to {}", runs.len() - 1),
    }
}

fn schedules(args: &VerifyArgs, bundle: &Bundle) -> Vec<Schedule> {
    let targets = || bundle.manifest().targets.iter().map(|plan| plan.target.clone());
    let mut schedules = Vec::new();
    if args.segments {
        schedules.extend(targets().map(Schedule::Segments));
    }
    if args.networks {
        // Without engines it would be the segments again.
        let targets = targets().filter(|target| !args.segments || subject::has_engines(bundle, target));
        schedules.extend(targets.map(Schedule::Networks));
    }
    if schedules.is_empty() {
        schedules.push(Schedule::Best);
    }
    schedules
}

/// What all runs found about one output.
struct Row {
    output: String,
    /// The worst comparison, and the seed that gave it.
    comparison: Option<(Comparison, Option<u64>)>,
}

fn collect(rows: &mut Vec<Row>, actual: &Outputs, run: &Run, tolerances: Tolerances) {
    for (name, value) in actual.iter() {
        let expected = run.expected.iter().find(|(other, _)| other == name);
        let found: Vec<(String, Option<Comparison>)> = match expected {
            None => vec![(name.to_owned(), None)],
            Some((_, expected)) => compare::compare(value, expected, tolerances)
                .into_iter()
                .map(|(suffix, comparison)| (format!("{name}{suffix}"), Some(comparison)))
                .collect(),
        };
        for (output, comparison) in found {
            let comparison = comparison.map(|comparison| (comparison, run.seed));
            match rows.iter_mut().find(|row| row.output == output) {
                None => rows.push(Row { output, comparison }),
                Some(row) => worse(&mut row.comparison, comparison),
            }
        }
    }
}

/// Keeps the worse of two comparisons, and the greatest differences of both.
fn worse(kept: &mut Option<(Comparison, Option<u64>)>, new: Option<(Comparison, Option<u64>)>) {
    let (Some((old, seed)), Some((mut new, new_seed))) = (kept, new) else { return };
    match (&mut *old, &mut new) {
        (Comparison::Unlike(_), _) => {}
        (Comparison::Elements(_), Comparison::Unlike(_)) => (*old, *seed) = (new, new_seed),
        (Comparison::Elements(a), Comparison::Elements(b)) => {
            let (max_abs, max_rel) = (a.max_abs.max(b.max_abs), a.max_rel.max(b.max_rel));
            (a.max_abs, a.max_rel, b.max_abs, b.max_rel) = (max_abs, max_rel, max_abs, max_rel);
            if b.differ > a.differ {
                (*old, *seed) = (new, new_seed);
            }
        }
    }
}

fn difference(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.2e}") }
}

/// Prints the table; gives the outputs that differ.
fn print(rows: &[Row], out: &mut Out) -> Result<Vec<String>> {
    let width = rows.iter().map(|row| row.output.len()).max().unwrap_or(0);
    let mut differ = Vec::new();
    for Row { output, comparison } in rows {
        let Some((comparison, seed)) = comparison else {
            out.line(format_args!("  {output:<width$}  not compared: nothing is expected of it"))?;
            continue;
        };
        if !comparison.is_equal() {
            differ.push(output.clone());
        }
        match comparison {
            Comparison::Unlike(why) => out.line(format_args!("  {output:<width$}  {why}  DIFFERS"))?,
            Comparison::Elements(found) => {
                let typed = inspect::typed(found.dtype, &found.dims);
                let exact = found.tolerance.rtol == 0.0 && found.tolerance.atol == 0.0;
                let within = if exact {
                    "exact".to_owned()
                } else {
                    format!("rtol {:.0e} atol {:.0e}", found.tolerance.rtol, found.tolerance.atol)
                };
                let verdict = if found.differ == 0 { "ok" } else { "DIFFERS" };
                out.line(format_args!(
                    "  {output:<width$}  {typed}  max_abs {}  max_rel {}  ({within})  {verdict}",
                    difference(found.max_abs),
                    difference(found.max_rel)
                ))?;
                if let Some(worst) = &found.worst {
                    let count: usize = found.dims.iter().product();
                    let with = seed.map(|seed| format!(" with seed {seed}")).unwrap_or_default();
                    out.line(format_args!(
                        "    {} of {count} elements differ{with}; the worst at {:?}: {} instead of {}",
                        found.differ, worst.index, worst.actual, worst.expected
                    ))?;
                }
            }
        }
    }
    Ok(differ)
}

#[cfg(test)]
mod tests {
    use super::worse;
    use crate::cli::compare::{Comparison, Tolerances, compare};
    use trtc_runtime::{Tensor, Value};

    fn comparison(actual: f32, expected: f32) -> Comparison {
        let value = |x: f32| Value::Tensor(Tensor::from_slice(&[1], &[x]).unwrap());
        compare(&value(actual), &value(expected), Tolerances::default()).remove(0).1
    }

    #[test]
    fn the_worst_of_several_runs_is_kept_with_its_seed() {
        let mut kept = Some((comparison(1.0, 1.0001), Some(0)));
        worse(&mut kept, Some((comparison(1.0, 3.0), Some(1))));
        worse(&mut kept, Some((comparison(1.0, 1.0), Some(2))));
        let Some((Comparison::Elements(found), seed)) = kept else { panic!("elements") };
        assert_eq!((found.differ, found.max_abs, seed), (1, 2.0, Some(1)));
        let mut kept = Some((comparison(1.0, 1.0), Some(0)));
        worse(&mut kept, Some((Comparison::Unlike("other".into()), Some(1))));
        assert_eq!(kept, Some((Comparison::Unlike("other".into()), Some(1))));
    }
}

//! A bundle's deferred engines, built on the machine that will run them.

use super::{
    backend::{Backend, Outcome},
    in_parallel,
};
use crate::{Error, Events, Options, networks::network};
use std::{path::Path, sync::OnceLock, time::Instant};
use trtc_bundle::{Bundle, BundleError, BundleWriter, Manifest, Product, SegmentKind, Target, TargetPlan};
use trtc_network::Lowered;
use trtc_partitioner::{SegmentStatus, TargetReport};
use trtc_runtime::device::Devices;

/// What became of a target's engines.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FinishedTarget {
    /// The target.
    pub target: Target,
    /// Engines that were in the bundle already.
    pub present: usize,
    /// Engines that were built and added.
    pub built: usize,
    /// Why the others could not be built, a line each. Their segments keep running on the host.
    pub left: Vec<String>,
    /// The target's report as the bundle holds it now; `None` when the bundle has none.
    pub report: Option<TargetReport>,
}

/// An engine that the bundle waits for, by target and segment.
struct Job {
    target: usize,
    segment: usize,
    id: String,
    lowered: Lowered,
}

/// Builds the deferred engines of a bundle, as far as this machine can, and replaces the file when there are any: whole,
/// or not at all. A signature is lost, since the file is another then. Options of the model have no effect here; the
/// targets are the bundle's.
///
/// TensorRT-RTX engines are built on any machine with the library, TensorRT engines on one with a GPU of the target's
/// compute capability. A network that cannot be built stays deferred: nothing is partitioned anew.
///
/// # Errors
/// [`crate::ErrorKind::Input`] for a damaged bundle or one that cannot be replaced; [`crate::ErrorKind::Missing`] when
/// engines are deferred and the library or GPU that they need is not here, for any target.
pub fn build_deferred(
    bundle: &Path,
    options: &Options,
    events: &dyn Events,
) -> Result<Vec<FinishedTarget>, Error> {
    let path = bundle;
    let cannot = |error: BundleError| {
        let (shown, text) = (path.display().to_string(), error.to_string());
        Error::input(if text.contains(&shown) { text } else { format!("{shown}: {text}") })
    };
    let bundle = Bundle::open(path).map_err(cannot)?;
    let mut manifest = bundle.manifest().clone();
    // Workers read weights in place of this mapping.
    let files = [bundle.file().clone()];
    // How engines are built was said when the bundle was compiled.
    let settings = [false, true].map(|tf32| options.clone().tf32(tf32));
    let backends: [OnceLock<Backend<'_>>; 2] = Default::default();
    let backend = |plan: &TargetPlan| {
        let slot = usize::from(plan.tf32);
        backends[slot].get_or_init(|| Backend::new(&settings[slot], &files, events))
    };

    let (mut finished, mut jobs, mut missing) = (Vec::new(), Vec::new(), None);
    for (number, plan) in manifest.targets.iter().enumerate() {
        let mut target = FinishedTarget {
            target: plan.target.clone(),
            present: 0,
            built: 0,
            left: Vec::new(),
            report: report(&bundle, plan)?,
        };
        let engines = plan.segments.iter().enumerate().filter(|(_, entry)| entry.kind == SegmentKind::Engine);
        let (present, absent): (Vec<_>, Vec<_>) = engines.partition(|(_, entry)| entry.engine.is_some());
        target.present = present.len();
        let able = if absent.is_empty() { Ok(()) } else { can_build(backend(plan), &plan.target) };
        match able {
            Ok(()) => {
                for (segment, entry) in absent {
                    match &entry.network {
                        Some(reference) => jobs.push(Job {
                            target: number,
                            segment,
                            id: entry.id.clone(),
                            lowered: network(&bundle, reference)?,
                        }),
                        None => target.left.push(format!("{}: the bundle holds no network of it", entry.id)),
                    }
                }
            }
            Err(error) => {
                target.left.push(error.to_string());
                missing = missing.or(Some(error));
            }
        }
        finished.push(target);
    }

    events.stage("build");
    let cores = backends.iter().find_map(OnceLock::get).map_or(1, Backend::cores);
    let outcomes = in_parallel(cores, &jobs, |job| {
        build_one(backend(&manifest.targets[job.target]), &finished[job.target].target, job, events)
    });
    let outcomes = outcomes.into_iter().collect::<Result<Vec<Outcome>, Error>>()?;
    if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Engine(_))) {
        events.stage("write");
        let mut writer = BundleWriter::extend(&bundle, path).map_err(cannot)?;
        add(&mut writer, &mut manifest, &mut finished, &jobs, &outcomes).map_err(cannot)?;
        writer.finish(manifest).map_err(cannot)?;
        if bundle.is_signed() {
            events.warning("the bundle's signature is gone: it was of the bundle without these engines");
        }
    }
    for (job, outcome) in jobs.iter().zip(&outcomes) {
        if let Outcome::Failed(failure) = outcome {
            let line = format!("{}: {}", job.id, failure.words);
            events.warning(&line);
            finished[job.target].left.push(line);
        }
    }
    match missing {
        Some(error) if finished.iter().all(|target| target.built == 0) => Err(error),
        _ => Ok(finished),
    }
}

fn build_one(
    backend: &Backend<'_>,
    target: &Target,
    job: &Job,
    events: &dyn Events,
) -> Result<Outcome, Error> {
    let mut nodes: Vec<u32> = job.lowered.network.layers.iter().map(|layer| layer.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    events.build_started(target, &job.id, nodes.len());
    let start = Instant::now();
    let outcome = backend.build(&job.lowered, target)?;
    let result = match &outcome {
        Outcome::Engine(engine) => Ok(engine.bytes.len() as u64),
        Outcome::Failed(failure) => Err(failure.words.as_str()),
    };
    events.build_ended(target, &job.id, start.elapsed().as_secs_f64(), result);
    Ok(outcome)
}

/// Adds engines to the bundle, and what they are to its reports.
fn add(
    writer: &mut BundleWriter,
    manifest: &mut Manifest,
    finished: &mut [FinishedTarget],
    jobs: &[Job],
    outcomes: &[Outcome],
) -> Result<(), BundleError> {
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let Outcome::Engine(engine) = outcome else { continue };
        manifest.targets[job.target].segments[job.segment].engine = Some(writer.add_engine(&engine.bytes)?);
        let target = &mut finished[job.target];
        target.built += 1;
        let rows = target.report.iter_mut().flat_map(|report| &mut report.segments);
        for row in rows.filter(|row| row.id == job.id) {
            row.status = SegmentStatus::Built;
            row.build_s = Some(engine.seconds);
            row.engine_bytes = Some(engine.bytes.len() as u64);
            row.cached = engine.cached;
        }
    }
    for (plan, target) in manifest.targets.iter_mut().zip(finished).filter(|(_, target)| target.built > 0) {
        if let Some(report) = &target.report {
            let json =
                serde_json::to_vec(report).map_err(|error| BundleError::Manifest(error.to_string()))?;
            plan.report = Some(writer.add_report(&json)?);
        }
    }
    Ok(())
}

/// Whether engines for a target can be built here.
fn can_build(backend: &Backend<'_>, target: &Target) -> Result<(), Error> {
    if target.product() == Product::TensorRt {
        let help = "run `trtc build` on the machine that will run the bundle";
        let missing = |why: String| Error::missing(format!("{target}: {why}")).help(help);
        let devices = Devices::probe().map_err(|error| missing(error.to_string()))?;
        if !devices.gpus.iter().any(|gpu| target.sms().contains(&gpu.sm)) {
            let found: Vec<String> = devices.gpus.iter().map(|gpu| format!("sm{}", gpu.sm)).collect();
            return Err(missing(format!("its engines are built on its GPU; here are {}", found.join(", "))));
        }
    }
    backend.library(target.product())
}

fn report(bundle: &Bundle, plan: &TargetPlan) -> Result<Option<TargetReport>, Error> {
    let Some(id) = plan.report else { return Ok(None) };
    let damaged = |error: &dyn std::fmt::Display| {
        Error::input(format!("{}: a report: {error}", bundle.path().display()))
    };
    let json = bundle.report(id).map_err(|error| damaged(&error))?;
    serde_json::from_slice(&json).map(Some).map_err(|error| damaged(&error))
}

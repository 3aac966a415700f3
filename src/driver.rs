//! The pipeline, a line a stage.

use crate::{
    Error, Events, Options,
    assemble::{Assembly, TargetParts},
    build::{BuiltSegment, BuiltTarget, build_targets},
    plan::{Cuts, plan},
    policy::Policy,
    prepare::{Prepared, Source, prepare},
};
use std::{path::Path, time::Instant};
use trtc_converters::Registry;
use trtc_partitioner::{Forced, ModelInfo, Report, SegmentStatus, TargetReport, Timings, target_report};

/// Partitions a model without building anything: needs no library. `-` reads the model from standard input.
///
/// # Errors
/// [`crate::ErrorKind::Input`] for a file that is no valid model, or options that do not fit it.
pub fn partition(model: &Path, options: &Options) -> Result<Report, Error> {
    let source = Source::open(model, options)?;
    let prepared = prepare(&source, options)?;
    let (graph, symbols) = (&prepared.module.graph, &prepared.module.symbols);
    let mut targets: Vec<TargetReport> = Vec::new();
    for target in options.targets_or_default() {
        let partition = plan(&prepared, &target, &Forced::new(), &Cuts::new(), options, Registry::get())?;
        let mut report =
            target_report(graph, symbols, &target, &partition, Registry::get(), &prepared.sources);
        report.tf32 = options.tf32_for(&target);
        targets.push(report);
    }
    Ok(report(model, &prepared, targets, None))
}

/// The hash of a model and its external data, as bundles hold it of the model that they were compiled from.
///
/// # Errors
/// [`crate::ErrorKind::Input`] for a file that is no valid model.
pub fn model_hash(model: &Path) -> Result<trtc_bundle::Hash, Error> {
    Ok(Source::open(model, &Options::default())?.hash())
}

/// Compiles a model into a bundle at `out`, which is written whole or not at all.
///
/// A failed build never ends a compile: its nodes go to the host with the builder's words as the reason.
///
/// # Errors
/// [`crate::ErrorKind::Input`] for a file that is no valid model, options that do not fit it, or a path that cannot be written;
/// [`crate::ErrorKind::Missing`] when an engine is to be built and the library is not there; [`crate::ErrorKind::Check`] for a host node
/// under [`Options::strict`].
pub fn compile(model: &Path, out: &Path, options: &Options, events: &dyn Events) -> Result<Report, Error> {
    let policy = match &options.policy {
        Some(path) if options.strict => Some(Policy::read(path)?),
        _ => options.strict.then(Policy::nothing),
    };
    let mut timings = Timings::default();

    events.stage("open");
    let (source, seconds) = timed(|| Source::open(model, options))?;
    timings.open_s = seconds;

    events.stage("passes");
    let (prepared, seconds) = timed(|| prepare(&source, options))?;
    timings.passes_s = seconds;

    events.stage("build");
    let (built, spent) = build_targets(&prepared, &source.loaded.files, options, events)?;

    events.stage("write");
    let reports: Vec<TargetReport> =
        built.iter().map(|built| built_report(&prepared, built, options)).collect();
    if let Some(policy) = &policy {
        policy.check(&reports)?;
    }
    let ((), seconds) = timed(|| {
        let mut assembly = Assembly::create(out, &source)?;
        assembly.whole_model(&source, &prepared.module)?;
        if let Some(sizes) = &prepared.sizes {
            assembly.sizes(sizes)?;
        }
        for (built, report) in built.iter().zip(&reports) {
            let parts = TargetParts { partition: &built.partition, segments: &built.segments, report };
            assembly.target(&prepared.module, parts)?;
        }
        assembly.finish()
    })?;
    timings.write_s = seconds;
    timings.partition_s = spent.partition_s;
    timings.convert_s = spent.convert_s;
    timings.build_s = spent.build_s;
    timings.recover_s = spent.recover_s;
    Ok(report(model, &prepared, reports, Some(timings)))
}

fn timed<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<(T, f64), Error> {
    let start = Instant::now();
    f().map(|result| (result, start.elapsed().as_secs_f64()))
}

fn report(model: &Path, prepared: &Prepared, targets: Vec<TargetReport>, timings: Option<Timings>) -> Report {
    let model = ModelInfo {
        path: model.display().to_string(),
        format: "onnx".to_owned(),
        nodes: prepared.sources.len(),
    };
    Report { schema_version: 1, model, ranges: prepared.ranges.clone(), targets, timings }
}

/// The report of a target, with what the builder made.
fn built_report(prepared: &Prepared, built: &BuiltTarget, options: &Options) -> TargetReport {
    let (graph, symbols) = (&prepared.module.graph, &prepared.module.symbols);
    let mut report =
        target_report(graph, symbols, &built.target, &built.partition, Registry::get(), &prepared.sources);
    report.tf32 = options.tf32_for(&built.target);
    for (row, segment) in report.segments.iter_mut().zip(&built.segments) {
        match segment {
            BuiltSegment::Engine { engine: Some(engine), .. } => {
                row.status = SegmentStatus::Built;
                row.build_s = Some(engine.seconds);
                row.engine_bytes = Some(engine.bytes.len() as u64);
                row.cached = engine.cached;
            }
            BuiltSegment::Engine { engine: None, .. } => row.status = SegmentStatus::Deferred,
            BuiltSegment::Host => row.status = SegmentStatus::Host,
            BuiltSegment::Constant(_) => row.status = SegmentStatus::Constant,
        }
    }
    report.failures.clone_from(&built.failures);
    report
}

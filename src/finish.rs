//! A bundle's deferred engines, built on the machine that will run them.

use crate::{Error, Events, Options};
use std::path::Path;
use trtc_bundle::Target;

/// What became of a target's engines.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// Builds the deferred engines of a bundle, as far as this machine can, and replaces the file when there are any: whole, or
/// not at all. A signature is lost, since the file is another then.
///
/// # Errors
/// [`crate::ErrorKind::Input`] for a damaged bundle or one that cannot be replaced; [`crate::ErrorKind::Missing`] when
/// engines are deferred and the library or GPU that they need is not here, for any target.
pub fn build(bundle: &Path, options: &Options, events: &dyn Events) -> Result<Vec<FinishedTarget>, Error> {
    builder::build(bundle, options, events)
}

#[cfg(not(feature = "tensorrt"))]
mod builder {
    use super::{Error, Events, FinishedTarget, Options, Path};

    pub fn build(_: &Path, _: &Options, _: &dyn Events) -> Result<Vec<FinishedTarget>, Error> {
        Err(Error::missing("this trtc was compiled without its builder")
            .help("compile it with the feature `tensorrt`"))
    }
}

#[cfg(feature = "tensorrt")]
mod builder {
    use super::{Error, Events, FinishedTarget, Options, Path, Target};
    use crate::{
        cache::Cache,
        networks::network,
        worker::{BuildOptions, BuildRequest, Worker, WorkerFailure},
    };
    use bytes::Bytes;
    use std::time::Instant;
    use trtc_bundle::{
        Bundle, BundleError, BundleWriter, Manifest, MappedFile, NetworkRef, Product, SegmentKind, TargetPlan,
    };
    use trtc_partitioner::{SegmentStatus, TargetReport};
    use trtc_runtime::device::Devices;
    use trtc_tensorrt::{Use, locate};

    pub fn build(path: &Path, options: &Options, events: &dyn Events) -> Result<Vec<FinishedTarget>, Error> {
        let cannot = |error: BundleError| {
            let (shown, text) = (path.display().to_string(), error.to_string());
            Error::input(if text.contains(&shown) { text } else { format!("{shown}: {text}") })
        };
        let bundle = Bundle::open(path).map_err(cannot)?;
        let mut manifest = bundle.manifest().clone();
        let mut writer = None;
        let (mut finished, mut missing) = (Vec::new(), None);
        for (number, plan) in bundle.manifest().targets.iter().enumerate() {
            let engines = || plan.segments.iter().filter(|segment| segment.kind == SegmentKind::Engine);
            let present = engines().filter(|segment| segment.engine.is_some()).count();
            let mut target =
                FinishedTarget { target: plan.target.clone(), present, built: 0, left: Vec::new() };
            if engines().count() > present {
                match Tools::find(&plan.target, options) {
                    Ok(tools) => {
                        let built = of_plan(&bundle, plan, tools, events, &mut target)?;
                        if !built.is_empty() {
                            let writer = match &mut writer {
                                Some(writer) => writer,
                                None => writer.insert(BundleWriter::extend(&bundle, path).map_err(cannot)?),
                            };
                            add(writer, &bundle, &mut manifest, number, &built).map_err(cannot)?;
                        }
                    }
                    Err(error) => {
                        target.left.push(error.to_string());
                        missing = missing.or(Some(error));
                    }
                }
            }
            finished.push(target);
        }
        if let Some(writer) = writer {
            if bundle.is_signed() {
                events.warning("the bundle's signature is gone: it was of the bundle without these engines");
            }
            events.stage("write");
            writer.finish(manifest).map_err(cannot)?;
        }
        match missing {
            Some(error) if finished.iter().all(|target| target.built == 0) => Err(error),
            _ => Ok(finished),
        }
    }

    /// What builds for a target.
    struct Tools {
        worker: Worker,
        cache: Option<Cache>,
    }

    impl Tools {
        fn find(target: &Target, options: &Options) -> Result<Tools, Error> {
            let product = target.product();
            if product == Product::TensorRt {
                has_gpu(target)?;
            }
            let explicit = options.rtx_library.as_deref().filter(|_| product == Product::Rtx);
            let library = locate(product, Use::Build, explicit).map_err(|error| {
                Error::missing(format!("{target}: {error}")).help("`trtc doctor` shows what is found")
            })?;
            let cache = options.cache_dir.as_deref().map(|folder| Cache::new(folder, &library));
            let mut build = BuildOptions::new(library);
            build.time_limit = options.build_time_limit.unwrap_or(build.time_limit);
            build.executable = options.worker.clone();
            Ok(Tools { worker: Worker::new(build), cache })
        }
    }

    /// TensorRT builds for the GPU that it finds.
    fn has_gpu(target: &Target) -> Result<(), Error> {
        let devices = Devices::probe().map_err(|error| Error::missing(format!("{target}: {error}")))?;
        if devices.gpus.iter().any(|gpu| target.sms().contains(&gpu.sm)) {
            return Ok(());
        }
        let found: Vec<String> = devices.gpus.iter().map(|gpu| format!("sm{}", gpu.sm)).collect();
        Err(Error::missing(format!(
            "{target}: its engines are built on its GPU; here are {}",
            found.join(", ")
        )))
    }

    /// An engine of a segment (by index), and the seconds that it took.
    struct Built {
        segment: usize,
        engine: Bytes,
        seconds: f64,
    }

    fn of_plan(
        bundle: &Bundle,
        plan: &TargetPlan,
        mut tools: Tools,
        events: &dyn Events,
        target: &mut FinishedTarget,
    ) -> Result<Vec<Built>, Error> {
        // The worker reads weights in place of this mapping.
        let files = [bundle.file().clone()];
        let mut built = Vec::new();
        for (segment, entry) in plan.segments.iter().enumerate() {
            if entry.kind != SegmentKind::Engine || entry.engine.is_some() {
                continue;
            }
            let Some(reference) = &entry.network else {
                target.left.push(format!("{}: the bundle holds no network of it", entry.id));
                continue;
            };
            match engine(bundle, &plan.target, &entry.id, reference, &mut tools, &files, events)? {
                Ok((engine, seconds)) => {
                    target.built += 1;
                    built.push(Built { segment, engine, seconds });
                }
                Err(words) => {
                    events.warning(&format!("{}: {words}", entry.id));
                    target.left.push(format!("{}: {words}", entry.id));
                }
            }
        }
        Ok(built)
    }

    type Outcome = Result<(Bytes, f64), String>;

    fn engine(
        bundle: &Bundle,
        target: &Target,
        id: &str,
        reference: &NetworkRef,
        tools: &mut Tools,
        files: &[MappedFile],
        events: &dyn Events,
    ) -> Result<Outcome, Error> {
        let lowered = network(bundle, reference)?;
        let mut nodes: Vec<u32> = lowered.network.layers.iter().map(|layer| layer.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        events.build_started(target, id, nodes.len());
        let start = Instant::now();
        let key = tools.cache.as_ref().and_then(|cache| cache.key(&lowered, target));
        if let Some(engine) = tools.cache.as_ref().zip(key).and_then(|(cache, key)| cache.get(key)) {
            let seconds = start.elapsed().as_secs_f64();
            events.build_ended(target, id, seconds, Ok(engine.len() as u64));
            return Ok(Ok((engine, seconds)));
        }
        let result = tools.worker.build(BuildRequest { lowered: &lowered, target }, files);
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(output) => {
                let engine = output.engine.bytes();
                if let Some((cache, key)) = tools.cache.as_ref().zip(key) {
                    cache.put(key, &engine);
                }
                events.build_ended(target, id, seconds, Ok(engine.len() as u64));
                Ok(Ok((engine, output.build_s)))
            }
            Err(error @ WorkerFailure::Missing { .. }) => Err(Error::missing(error.to_string())),
            Err(error) => {
                events.build_ended(target, id, seconds, Err(&error.to_string()));
                Ok(Err(error.to_string()))
            }
        }
    }

    /// Adds engines to the bundle, and what they are to its report.
    fn add(
        writer: &mut BundleWriter,
        bundle: &Bundle,
        manifest: &mut Manifest,
        target: usize,
        built: &[Built],
    ) -> Result<(), BundleError> {
        let Some(plan) = manifest.targets.get_mut(target) else { return Ok(()) };
        let report = plan.report.map(|report| bundle.report(report)).transpose()?;
        let mut report: Option<TargetReport> = report.and_then(|json| serde_json::from_slice(&json).ok());
        for Built { segment, engine, seconds } in built {
            let Some(entry) = plan.segments.get_mut(*segment) else { continue };
            entry.engine = Some(writer.add_engine(engine)?);
            let rows = report.iter_mut().flat_map(|report| &mut report.segments);
            for row in rows.filter(|row| row.id == entry.id) {
                row.status = SegmentStatus::Built;
                row.build_s = Some(*seconds);
                row.engine_bytes = Some(engine.len() as u64);
            }
        }
        if let Some(report) = report {
            let json =
                serde_json::to_vec(&report).map_err(|error| BundleError::Manifest(error.to_string()))?;
            plan.report = Some(writer.add_report(&json)?);
        }
        Ok(())
    }
}

//! What `run`, `verify` and `bench` are about: a bundle, or a model that stands for itself or is compiled on the way.

use super::{
    args::Device,
    failure::{Failure, Kind, Result},
    inspect,
    progress::Progress,
};
use std::{
    io::Write,
    path::{Path, PathBuf},
};
use tempfile::{NamedTempFile, TempDir};
use trtc::Options;
use trtc_bundle::{Bundle, BundleError, SegmentKind, Symbol, Target, ValueInfo};
use trtc_onnx::OnnxFile;
use trtc_runtime::{ErrorKind, Mode, RunError, Session, SessionOptions, host::ModelSource};

/// A bundle or a model.
pub struct Subject {
    /// As the user named it.
    pub shown: String,
    pub file: File,
    /// Standard input, kept as long as it is needed.
    _spool: Option<NamedTempFile>,
}

/// What the file is.
pub enum File {
    Bundle(Box<Bundle>),
    Model(PathBuf),
}

/// Which schedule is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Engines on a GPU, else the whole model on the CPU.
    Best,
    /// The partitioned schedule of a target with host graphs in the place of engines.
    Segments(Target),
    /// The partitioned schedule of a target with TensorRT layers, raised to ONNX, in the place of engines.
    Networks(Target),
}

impl Subject {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> Result<Subject> {
        let shown = path.display().to_string();
        let spool = if path == Path::new("-") { Some(spool()?) } else { None };
        let path = spool.as_ref().map_or(path, |file| file.path());
        let file = match Bundle::open(path) {
            Ok(bundle) => File::Bundle(Box::new(bundle)),
            Err(BundleError::NotABundle) => File::Model(path.to_owned()),
            Err(error) => return Err(inspect::refused(path, &error)),
        };
        Ok(Subject { shown, file, _spool: spool })
    }
}

/// Standard input, in a file, since it is read more than once.
fn spool() -> Result<NamedTempFile> {
    let copy = || {
        let mut file = NamedTempFile::with_prefix("trtc-stdin-")?;
        std::io::copy(&mut std::io::stdin().lock(), &mut file)?;
        file.flush()?;
        Ok(file)
    };
    copy().map_err(|error: std::io::Error| Failure::input(format!("standard input: {error}")))
}

/// A bundle made of a model on the way, gone with its folder.
pub struct Compiled {
    pub bundle: Bundle,
    _folder: TempDir,
}

/// Compiles a model for `target`. Engines are built only when they will be run.
pub fn compile(model: &Path, target: Option<Target>, engines: bool) -> Result<Compiled> {
    let folder = TempDir::with_prefix("trtc-")
        .map_err(|error| Failure::missing(format!("temporary folder: {error}")))?;
    let out = folder.path().join("model.trtc");
    let options = target.into_iter().fold(Options::default(), Options::target).build_engines(engines);
    let progress = Progress::new();
    trtc::compile(model, &out, &options, &progress).map_err(|error| Failure::of(&error, model))?;
    drop(progress);
    Ok(Compiled { bundle: inspect::open(&out)?, _folder: folder })
}

/// Ranges of the dims that a model leaves open.
pub fn symbols_of(model: &Path) -> Result<Vec<Symbol>> {
    Ok(compile(model, Some(Target::host()), false)?.bundle.manifest().symbols.clone())
}

/// The original model, ready to be run by ONNX Runtime as it is.
pub fn original(model: &Path, timing: bool) -> Result<Session> {
    OnnxFile::open(model).map_err(|error| Failure::input(error.to_string()))?;
    let options = SessionOptions::default().timing(timing);
    Session::of_model(ModelSource::File(model), &options)
        .map_err(|error| refused(&model.display().to_string(), &error))
}

/// A bundle, ready to run as `schedule` says.
pub fn session(bundle: &Bundle, schedule: &Schedule, device: Device, timing: bool) -> Result<Session> {
    // Host graphs stand for engines only where there is no device to run them on.
    let device = match (device, schedule) {
        (Device::Cuda(number), _) => trtc_runtime::Device::Cuda(number),
        (Device::Auto, Schedule::Best) => trtc_runtime::Device::Auto,
        _ => trtc_runtime::Device::Cpu,
    };
    let options = SessionOptions::default().device(device).timing(timing);
    let options = match schedule {
        Schedule::Best => options,
        Schedule::Segments(target) => options.mode(Mode::Segments).target(target.clone()),
        Schedule::Networks(target) => {
            let models = raised(bundle, target)?.into_iter();
            // As they are: what ONNX Runtime rewrites quantised layers to is rounded otherwise, or does not load.
            let options = options.mode(Mode::Segments).target(target.clone()).optimize(false);
            models.fold(options, |options, (segment, model)| options.twin_override(segment, model))
        }
    };
    Session::new(bundle, &options).map_err(|error| refused(&bundle.path().display().to_string(), &error))
}

fn raised(bundle: &Bundle, target: &Target) -> Result<std::collections::HashMap<String, Vec<u8>>> {
    let index = bundle.manifest().targets.iter().position(|plan| plan.target == *target);
    let index = index.ok_or_else(|| Failure::bug(format!("no plan for {target}")))?;
    trtc::raised_networks(bundle, index).map_err(|error| Failure::of(&error, bundle.path()))
}

/// The plan that the flags `--segments` and `--networks` of a single run mean: that of the bundle's first target.
pub fn schedule(bundle: &Bundle, segments: bool, networks: bool) -> Result<Schedule> {
    let first = || {
        let first = bundle.manifest().targets.first().map(|plan| plan.target.clone());
        first.ok_or_else(|| Failure::input(format!("{}: the bundle has no target", bundle.path().display())))
    };
    match (segments, networks) {
        (true, _) => first().map(Schedule::Segments),
        (_, true) => first().map(Schedule::Networks),
        _ => Ok(Schedule::Best),
    }
}

/// Whether a target's plan has engines.
pub fn has_engines(bundle: &Bundle, target: &Target) -> bool {
    let plan = bundle.manifest().targets.iter().find(|plan| plan.target == *target);
    plan.is_some_and(|plan| plan.segments.iter().any(|segment| segment.kind == SegmentKind::Engine))
}

/// Why a session could not be made or run.
pub fn refused(shown: &str, error: &RunError) -> Failure {
    let kind = match error.kind() {
        ErrorKind::Input => Kind::Input,
        ErrorKind::Missing => Kind::Missing,
        _ => Kind::Bug,
    };
    // What is missing on the machine has nothing to do with the file.
    let text = if kind == Kind::Missing { error.to_string() } else { format!("{shown}: {error}") };
    Failure::new(kind, text)
}

/// What a session runs, in words.
pub fn describe(session: &Session, schedule: &Schedule) -> String {
    match schedule {
        Schedule::Segments(target) => format!("segments of {target}, host graphs for engines"),
        Schedule::Networks(target) => {
            format!("segments of {target}, TensorRT layers raised to ONNX for engines")
        }
        Schedule::Best if session.mode() == Mode::WholeModel => "whole model on the CPU".to_owned(),
        Schedule::Best => "segments".to_owned(),
    }
}

/// Ranges that a bundle gives its open dims, for ports that have some.
pub fn symbols<'a>(bundle: &'a Bundle, ports: &[ValueInfo]) -> &'a [Symbol] {
    if super::inputs::is_open(ports) { &bundle.manifest().symbols } else { &[] }
}

//! `trtc doctor`: what is found on this machine, what is missing, and what to do about it.

use super::{
    args::{DoctorArgs, TextFormat},
    failure::{Failure, Result},
    out::Out,
};
use serde::Serialize;
use trtc::{CacheUse, cache_use};
use trtc_bundle::Target;
use trtc_runtime::{
    device::{Devices, Gpu},
    host::{OrtBackend, OrtOptions, Via, find_onnxruntime},
};

/// One thing that was looked for.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    found: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// More about it, or what is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// What to do when it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Serialize)]
struct FoundGpu {
    index: u32,
    name: String,
    sm: u16,
    memory_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    features: Vec<&'static str>,
    default_target: String,
    checks: Vec<Finding>,
    gpus: Vec<FoundGpu>,
    /// What the engine cache holds, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_cache: Option<CacheUse>,
    /// Bundles for the default target can be compiled here.
    can_compile: bool,
    /// Host graphs, so bundles without a GPU, can be run here.
    can_run_on_cpu: bool,
}

impl Finding {
    fn new(name: &'static str) -> Finding {
        Finding { name, found: false, version: None, path: None, detail: None, fix: None }
    }

    fn missing(mut self, why: impl ToString, fix: impl Into<String>) -> Finding {
        (self.detail, self.fix) = (Some(why.to_string()), Some(fix.into()));
        self
    }
}

pub fn run(args: &DoctorArgs) -> Result<()> {
    let target = Target::default_target();
    let mut checks = builder::checks(&target);
    let can_compile = checks.iter().any(|check| check.name == builder::TEST && check.found);
    checks.push(onnxruntime());
    let can_run_on_cpu = checks.last().is_some_and(|check| check.found);
    let (driver, gpus) = driver();
    checks.push(driver);
    let findings = Findings {
        version: super::VERSION,
        features: features(),
        default_target: target.to_string(),
        checks,
        gpus,
        engine_cache: super::cache_dir(args.cache_dir.as_ref()).map(|dir| cache_use(&dir)),
        can_compile,
        can_run_on_cpu,
    };
    let mut out = Out::stdout();
    match args.format {
        TextFormat::Json => out.json(&findings)?,
        TextFormat::Text => text(&findings, &mut out)?,
    }
    out.finish()?;
    if can_compile {
        return Ok(());
    }
    let fix = findings.checks.iter().find(|check| !check.found).and_then(|check| check.fix.clone());
    let failure = Failure::missing(format!("bundles for {target} cannot be compiled here"));
    Err(match fix {
        Some(fix) => failure.help(fix),
        None => failure,
    })
}

fn features() -> Vec<&'static str> {
    let all = [
        ("tensorrt", cfg!(feature = "tensorrt")),
        ("cuda", cfg!(feature = "cuda")),
        ("cli", cfg!(feature = "cli")),
    ];
    all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
}

fn onnxruntime() -> Finding {
    let mut finding = Finding::new("ONNX Runtime");
    let fix = "`make sdk` fetches it; or set TRTC_ORT_LIB to the library, or activate a virtual environment with onnxruntime";
    if let Ok(library) = find_onnxruntime(None) {
        finding.path = Some(library.path.display().to_string());
        finding.detail = Some(
            match library.via {
                Via::Explicit => "named",
                Via::Environment(name) => name,
                Via::Executable => "beside the executable",
                Via::Sdk => "in .sdk above the executable",
                Via::UserData => "in the user's data folder",
                Via::VirtualEnv => "in the virtual environment",
                _ => "found by the system",
            }
            .to_owned(),
        );
    }
    match OrtBackend::load(&OrtOptions::default()) {
        Ok(backend) => {
            finding.found = true;
            finding.version = Some(backend.version().to_owned());
            finding.path = backend.library().map(|path| path.display().to_string()).or(finding.path);
            finding
        }
        Err(error) => finding.missing(error, fix),
    }
}

fn driver() -> (Finding, Vec<FoundGpu>) {
    let mut finding = Finding::new("CUDA driver");
    match Devices::probe() {
        Ok(devices) => {
            finding.found = true;
            finding.version = Some(format!("{}.{}", devices.driver.0, devices.driver.1));
            let gpu = |gpu: &Gpu| FoundGpu {
                index: gpu.index,
                name: gpu.name.clone(),
                sm: gpu.sm,
                memory_bytes: gpu.memory_bytes,
            };
            (finding, devices.gpus.iter().map(gpu).collect())
        }
        Err(error) => {
            let fix = "only running engines needs it: without a GPU, bundles run on the CPU";
            (finding.missing(error, fix), Vec::new())
        }
    }
}

fn text(findings: &Findings, out: &mut Out) -> Result<()> {
    const WIDTH: usize = 13;
    let features = findings.features.join(" ");
    let features = if features.is_empty() { "none" } else { &features };
    out.line(format_args!("{:<WIDTH$}  {}, features: {features}", "trtc", findings.version))?;
    for check in &findings.checks {
        let state = if check.found { "" } else { "missing" };
        let parts = [Some(state), check.version.as_deref(), check.path.as_deref()];
        let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        let mut lines = vec![parts.join("  ")];
        lines.extend([&check.detail, &check.fix].into_iter().flatten().cloned());
        for (k, line) in lines.iter().filter(|line| !line.is_empty()).enumerate() {
            let name = if k == 0 { check.name } else { "" };
            out.line(format_args!("{name:<WIDTH$}  {line}"))?;
        }
    }
    for gpu in &findings.gpus {
        let name = format!("cuda:{}", gpu.index);
        let memory = super::inspect::size(gpu.memory_bytes);
        out.line(format_args!("{name:<WIDTH$}  {}, sm{}, {memory}", gpu.name, gpu.sm))?;
    }
    if let Some(CacheUse { dir, entries, bytes, refusals, .. }) = &findings.engine_cache {
        let (dir, size) = (dir.display(), super::inspect::size(*bytes));
        out.line(format_args!(
            "{:<WIDTH$}  {dir}  {entries} engines, {size}; {refusals} refusals",
            "engine cache"
        ))?;
    }
    let word = |yes: bool| if yes { "yes" } else { "no" };
    out.line(format_args!(
        "\n{:<WIDTH$}  {} ({})",
        "can compile",
        word(findings.can_compile),
        findings.default_target
    ))?;
    out.line(format_args!("{:<WIDTH$}  {}", "can run (CPU)", word(findings.can_run_on_cpu)))
}

#[cfg(not(feature = "tensorrt"))]
mod builder {
    use super::{Finding, Target};

    pub const TEST: &str = "build test";

    pub fn checks(_: &Target) -> Vec<Finding> {
        let fix = "build trtc with the feature `tensorrt`";
        vec![Finding::new(TEST).missing("this trtc was built without the builder", fix)]
    }
}

#[cfg(feature = "tensorrt")]
mod builder {
    use super::{Finding, Target};
    use std::{path::Path, time::Duration};
    use trtc::worker::{BuildOptions, BuildRequest, build};
    use trtc_bundle::{DType, Product};
    use trtc_network::{NetworkBuilder, layer::ActivationKind};
    use trtc_tensorrt::{Library, Use, locate};

    pub const TEST: &str = "build test";
    const FIX: &str = "`make sdk` fetches it; or set TRTC_TENSORRT_RTX_LIB to libtensorrt_rtx.so.1";
    const FIX_TENSORRT: &str =
        "only targets `tensorrt-…` need it: install TensorRT, or set TRTC_TENSORRT_LIB to libnvinfer.so.11";

    /// The libraries, and an engine that is built on trial.
    pub fn checks(target: &Target) -> Vec<Finding> {
        let (rtx, path) = library("TensorRT-RTX", Product::Rtx, Use::Build, FIX);
        let trial = match path {
            Some(path) => trial(target, &path),
            None => Finding::new(TEST).missing("there is no library to build with", FIX),
        };
        let (tensorrt, _) = library("TensorRT", Product::TensorRt, Use::Run, FIX_TENSORRT);
        vec![rtx, trial, tensorrt]
    }

    fn library(
        name: &'static str,
        product: Product,
        wanted: Use,
        fix: &str,
    ) -> (Finding, Option<std::path::PathBuf>) {
        let mut finding = Finding::new(name);
        let path = match locate(product, wanted, None) {
            Ok(path) => path,
            Err(error) => return (finding.missing(error, fix), None),
        };
        finding.path = Some(path.display().to_string());
        match Library::open(product, &path) {
            Ok(library) => {
                finding.found = true;
                finding.version = Some(library.version().to_string());
                if !library.has_builder() {
                    finding.detail = Some("runs engines, builds none".to_owned());
                }
                (finding, Some(path))
            }
            Err(error) => (finding.missing(error, fix), None),
        }
    }

    /// Builds `y = relu(x)` in a worker, as a compile does.
    fn trial(target: &Target, library: &Path) -> Finding {
        let mut finding = Finding::new(TEST);
        let mut network = NetworkBuilder::new("trial");
        network.begin_node("relu");
        let x = network.add_input("x", DType::F32, vec![1, 8]);
        let y = network.activation(x, ActivationKind::Relu, 0.0, 0.0);
        network.mark_output(y, "y");
        let lowered = match network.finish() {
            Ok(lowered) => lowered,
            Err(fault) => return finding.missing(fault, "please report this: it is a fault of trtc's own"),
        };
        let mut options = BuildOptions::new(library);
        options.time_limit = Duration::from_secs(60);
        match build(BuildRequest { lowered: &lowered, target }, &[], &options) {
            Ok(output) => {
                finding.found = true;
                let bytes = output.engine.len();
                finding.detail =
                    Some(format!("an engine of {bytes} bytes for {target} in {:.2} s", output.build_s));
                finding
            }
            Err(error) => {
                finding.missing(error, "reinstall the library (`make sdk`); TRTC_LOG=debug says more")
            }
        }
    }
}

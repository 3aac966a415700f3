//! Options of a compile, and the events that it sends.

use std::{path::PathBuf, time::Duration};
use trtc_bundle::{Product, Target};
use trtc_partitioner::CostModel;

/// How to compile. Made by [`Options::default`] and changed by the methods.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    pub(crate) targets: Vec<Target>,
    pub(crate) shapes: Vec<String>,
    pub(crate) values: Vec<String>,
    pub(crate) build_time_limit: Option<Duration>,
    pub(crate) strict: bool,
    pub(crate) allow_f64_as_f32: bool,
    pub(crate) rtx_library: Option<PathBuf>,
    pub(crate) worker: Option<PathBuf>,
    pub(crate) keep_failures: Option<PathBuf>,
    pub(crate) policy: Option<PathBuf>,
    pub(crate) cost: CostModel,
    pub(crate) cache_dir: Option<PathBuf>,
    pub(crate) cache_limit_bytes: Option<u64>,
    pub(crate) recovery_time_limit: Option<Duration>,
    pub(crate) ort_library: Option<PathBuf>,
    pub(crate) defer: bool,
    pub(crate) tf32: bool,
    #[cfg(all(feature = "tensorrt", debug_assertions))]
    pub(crate) inject: Vec<crate::worker::InjectAt>,
}

impl Options {
    /// Adds a target. Without any, [`Target::default_target`] is compiled for.
    pub fn target(mut self, target: Target) -> Options {
        self.targets.push(target);
        self
    }

    /// Fixes or bounds the dims of an input: `x=1x3x224x224` or `x=1..4..8x3x224x224` (min..opt..max). A `_` leaves a
    /// dim to the model.
    pub fn shape(mut self, text: impl Into<String>) -> Options {
        self.shapes.push(text.into());
        self
    }

    /// Makes an input a constant: `k=5`, `scales=1,1,2,2`. It is no input of the bundle. Elements of an integer input may
    /// have ranges instead: `sizes=1,3,64..128..512,64..128..512` (min..opt..max); it stays an input then.
    pub fn value(mut self, text: impl Into<String>) -> Options {
        self.values.push(text.into());
        self
    }

    /// Ends the build of one engine after this time; its nodes go to the host. 600 s unless set.
    pub fn build_time_limit(mut self, limit: Duration) -> Options {
        self.build_time_limit = Some(limit);
        self
    }

    /// Makes a host node an error.
    pub fn strict(mut self, strict: bool) -> Options {
        self.strict = strict;
        self
    }

    /// Computes f64 in f32: engines have no f64.
    pub fn allow_f64_as_f32(mut self, allow: bool) -> Options {
        self.allow_f64_as_f32 = allow;
        self
    }

    /// Lets convolutions and matrix products of f32 round their operands to TF32 (10 bits of mantissa instead of 23), which
    /// GPUs from sm80 on multiply faster. Sums stay f32. Off unless set, so that f32 is f32.
    pub fn tf32(mut self, allow: bool) -> Options {
        self.tf32 = allow;
        self
    }

    /// The TensorRT-RTX library to build with, instead of the one that is found.
    pub fn rtx_library(mut self, path: impl Into<PathBuf>) -> Options {
        self.rtx_library = Some(path.into());
        self
    }

    /// The executable that builds engines in a process of its own: `trtc`. The running executable unless set, so a
    /// program that embeds the compiler sets it.
    pub fn worker(mut self, path: impl Into<PathBuf>) -> Options {
        self.worker = Some(path.into());
        self
    }

    /// Keeps the network of each failed build in this folder, as text without weights.
    pub fn keep_failures(mut self, folder: impl Into<PathBuf>) -> Options {
        self.keep_failures = Some(folder.into());
        self
    }

    /// What [`Options::strict`] lets stay on the host: a policy file in TOML, which docs/partitioning.md describes.
    pub fn policy(mut self, path: impl Into<PathBuf>) -> Options {
        self.policy = Some(path.into());
        self
    }

    /// What nodes, copies and segments are estimated to take; decides what runs where.
    pub fn cost_model(mut self, model: CostModel) -> Options {
        self.cost = model;
        self
    }

    /// Keeps engines in this folder and takes them from there when the same network is built again.
    pub fn cache_dir(mut self, folder: impl Into<PathBuf>) -> Options {
        self.cache_dir = Some(folder.into());
        self
    }

    /// Most bytes that the engines of [`Options::cache_dir`] take; those that were not used for longest go first. 10 GiB
    /// unless set.
    pub fn cache_limit_bytes(mut self, bytes: u64) -> Options {
        self.cache_limit_bytes = Some(bytes);
        self
    }

    /// How long the compile may look for the nodes that make builds fail, for each target. Then all that may be to blame
    /// goes to the host. As long as one build may take unless set.
    pub fn recovery_time_limit(mut self, limit: Duration) -> Options {
        self.recovery_time_limit = Some(limit);
        self
    }

    /// The ONNX Runtime library that folds heavy constants, instead of the one that is found. Without any they are
    /// computed at run time.
    pub fn ort_library(mut self, path: impl Into<PathBuf>) -> Options {
        self.ort_library = Some(path.into());
        self
    }

    /// Makes workers die of every network that holds all of these nodes, for tests.
    #[cfg(all(feature = "tensorrt", debug_assertions))]
    #[doc(hidden)]
    pub fn inject(mut self, nodes: &[&str], how: crate::worker::Inject) -> Options {
        let nodes = nodes.iter().map(|&name| name.to_owned()).collect();
        self.inject.push(crate::worker::InjectAt { nodes, how });
        self
    }

    /// Whether engines are built now (the default), or all deferred: the bundle then runs on the CPU until
    /// [`crate::build`] builds them. Deferring needs no library.
    pub fn build_engines(mut self, build: bool) -> Options {
        self.defer = !build;
        self
    }

    /// Whether engines for a target may use TF32.
    pub(crate) fn tf32_for(&self, target: &Target) -> bool {
        self.tf32 && target.product() != Product::Host
    }

    pub(crate) fn targets_or_default(&self) -> Vec<Target> {
        if self.targets.is_empty() { vec![Target::default_target()] } else { self.targets.clone() }
    }
}

/// What happens during a compile, for progress displays. All methods do nothing unless implemented.
pub trait Events: Sync {
    /// A stage begins: `open`, `passes`, `partition`, `convert`, `build`, `write`.
    fn stage(&self, name: &str) {
        let _ = name;
    }

    /// The builder begins with an engine.
    fn build_started(&self, target: &Target, segment: &str, nodes: usize) {
        let _ = (target, segment, nodes);
    }

    /// The builder has ended: seconds, and the bytes of the engine, or its words.
    fn build_ended(&self, target: &Target, segment: &str, seconds: f64, result: Result<u64, &str>) {
        let _ = (target, segment, seconds, result);
    }

    /// A network that could not be built was looked into: seconds, the first build included, and the nodes that go to the
    /// host.
    fn recovered(&self, target: &Target, segment: &str, seconds: f64, nodes: &[&str]) {
        let _ = (target, segment, seconds, nodes);
    }

    /// Something to tell that ends nothing.
    fn warning(&self, text: &str) {
        let _ = text;
    }
}

/// No display.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Events for Quiet {}

//! Arguments. The doc comments are what `--help` prints.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};
use trtc_bundle::Target;
use trtc_ir::{passes::pin::ValueSpec, ranges::ShapeSpec};

/// Ahead-of-time model compiler with a TensorRT backend.
///
/// Exit codes: 0 done; 1 a check failed (difference, policy, --check); 2 bad usage or bad input; 3 something missing on
/// this machine (library, GPU); 4 a fault of trtc's own. TRTC_LOG=debug logs to standard error.
#[derive(Debug, Parser)]
#[command(name = "trtc", version = super::VERSION, disable_help_subcommand = true, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compile a model into a bundle.
    Compile(CompileArgs),
    /// Say what would run where, and why. A dry run of `compile`; needs no library of NVIDIA's.
    Partition(PartitionArgs),
    /// Run a bundle or a model once.
    Run(RunArgs),
    /// Compare a bundle or a model with something independent.
    Verify(VerifyArgs),
    /// Measure latency and throughput of a bundle or a model.
    Bench(BenchArgs),
    /// Say what changed between two reports: moved nodes, new refusals, bytes. Exit code 1 when they differ.
    Diff(DiffArgs),
    /// Say what a bundle holds.
    Inspect(InspectArgs),
    /// Build the engines of a bundle that were deferred, on the machine that will run them.
    Build(BuildArgs),
    /// List the operators that engines take.
    Ops(OpsArgs),
    /// Say what is found on this machine, and what is missing.
    Doctor(DoctorArgs),
}

/// What changes how a model is compiled.
#[derive(Debug, Default, Args)]
pub struct ModelOptions {
    /// What to compile for: rtx-1.7:sm86,sm89 (any of sm75 sm80 sm86 sm89 sm120 sm121), tensorrt-11.3:smXX, host. May be
    /// repeated [default: rtx-1.7:sm86,sm89,sm120]
    #[arg(long = "target", value_name = "TARGET")]
    pub targets: Vec<Target>,
    /// Shape of an input: NAME=1x3x224x224. A dim may be MIN..MAX, MIN..OPT..MAX or ? (left to the model); three whole
    /// shapes do too: NAME=1x3x32..4x3x64..8x3x96. May be repeated
    #[arg(long = "shape", value_name = "NAME=SHAPE", value_parser = shape)]
    pub shapes: Vec<String>,
    /// What an input always is: NAME=5 or NAME=1,1,2,2. It becomes a constant, and is no input any more. Elements of an
    /// integer input may be MIN..MAX, MIN..OPT..MAX or ? (left to the model) instead, and it stays an input:
    /// NAME=1,3,64..128..512,64..128..512. May be repeated
    #[arg(long = "value", value_name = "NAME=VALUES", value_parser = value)]
    pub values: Vec<String>,
    /// Compute float64 in float32 where TensorRT has no float64, instead of leaving it to the host
    #[arg(long)]
    pub allow_f64_as_f32: bool,
    /// Let convolutions and matrix products of f32 round their operands to TF32 (10 bits of mantissa), which GPUs from sm80
    /// on multiply faster
    #[arg(long, overrides_with = "no_tf32")]
    pub tf32: bool,
    /// Keep them in f32 [default]
    #[arg(long, overrides_with = "tf32")]
    pub no_tf32: bool,
    /// What nodes, copies and segments take, in TOML that changes some of the defaults; `off` places nothing by cost
    #[arg(long, value_name = "FILE|off")]
    pub cost_model: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CompileArgs {
    /// ONNX file, or `-` for standard input
    pub model: PathBuf,
    /// Bundle to write [default: the model's name with .trtc, in the working folder]
    #[arg(short, long, value_name = "OUT.trtc")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub options: ModelOptions,
    /// Fail when any node would run on the host
    #[arg(long)]
    pub strict: bool,
    /// What --strict lets stay on the host: a policy file in TOML
    #[arg(long, value_name = "FILE", requires = "strict")]
    pub policy: Option<PathBuf>,
    /// Write the report there, as JSON
    #[arg(long, value_name = "FILE.json")]
    pub report: Option<PathBuf>,
    /// Give an engine at most so many seconds to build
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub build_time_limit: Option<Duration>,
    /// Keep engines there, and take them from there when the same network is built again [default: TRTC_CACHE_DIR, if set]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Keep networks that the builder refused, with its words
    #[arg(long, value_name = "DIR")]
    pub keep_failures: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PartitionArgs {
    /// ONNX file, or `-` for standard input
    pub model: PathBuf,
    #[command(flatten)]
    pub options: ModelOptions,
    /// How to print the partition [default: text; for --check and --bless as FILE's name ends]
    #[arg(long, value_enum)]
    pub format: Option<PartitionFormat>,
    /// Compare with the partition in FILE instead of printing it; exit code 1 when it is another
    #[arg(long, value_name = "FILE", conflicts_with = "bless")]
    pub check: Option<PathBuf>,
    /// Write the partition to FILE, for --check
    #[arg(long, value_name = "FILE")]
    pub bless: Option<PathBuf>,
    /// Fail, after printing, when any node would run on the host
    #[arg(long)]
    pub strict: bool,
    /// What --strict lets stay on the host: a policy file in TOML
    #[arg(long, value_name = "FILE", requires = "strict")]
    pub policy: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Report in JSON (`partition --format json`, `compile --report`), or a bundle
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The one to compare it with
    #[arg(value_name = "B")]
    pub now: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartitionFormat {
    Text,
    Json,
    Dot,
    Html,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OpsFormat {
    #[default]
    Text,
    Json,
    Md,
}

/// Where inputs come from.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// Inputs, by name or by position (input_0, input_1)
    #[arg(long, value_name = "IN.npz")]
    pub inputs: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Bundle, or a model: ONNX file, or `-` for standard input
    #[arg(value_name = "BUNDLE|MODEL")]
    pub file: PathBuf,
    #[command(flatten)]
    pub given: InputArgs,
    /// Make inputs up from this seed
    #[arg(long, value_name = "SEED", conflicts_with = "inputs")]
    pub random: Option<u64>,
    /// Write the outputs there, by name
    #[arg(long, value_name = "OUT.npz")]
    pub outputs: Option<PathBuf>,
    /// Where to run: auto, cpu, cuda:N
    #[arg(long, default_value_t)]
    pub device: Device,
    /// Run the partitioned schedule, with host graphs in the place of engines
    #[arg(long, conflicts_with = "networks")]
    pub segments: bool,
    /// Run the partitioned schedule, with the engines' TensorRT layers raised to ONNX in their place
    #[arg(long)]
    pub networks: bool,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Bundle, or a model (which is compiled for the default target first)
    #[arg(value_name = "BUNDLE|MODEL")]
    pub file: PathBuf,
    /// The model that the bundle was compiled from, to be run by ONNX Runtime
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    #[command(flatten)]
    pub given: InputArgs,
    /// Make up inputs N times, with the seeds 0 to N-1 [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "inputs")]
    pub random: Option<NonZeroU32>,
    /// Outputs to compare with, by name or by position (output_0, output_1)
    #[arg(long, value_name = "OUT.npz", requires = "inputs")]
    pub expected: Option<PathBuf>,
    /// Greatest relative difference of floats [default: by dtype, printed]
    #[arg(long, value_name = "R", value_parser = tolerance)]
    pub rtol: Option<f64>,
    /// Greatest absolute difference of floats [default: by dtype, printed]
    #[arg(long, value_name = "A", value_parser = tolerance)]
    pub atol: Option<f64>,
    /// Verify the partitioned schedule, with host graphs in the place of engines
    #[arg(long)]
    pub segments: bool,
    /// Verify the partitioned schedule, with the engines' TensorRT layers raised to ONNX in their place
    #[arg(long)]
    pub networks: bool,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Bundle, or a model: ONNX file, or `-` for standard input
    #[arg(value_name = "BUNDLE|MODEL")]
    pub file: PathBuf,
    #[command(flatten)]
    pub given: InputArgs,
    /// Where to run: auto, cpu, cuda:N
    #[arg(long, default_value_t)]
    pub device: Device,
    /// Runs to measure, over all threads
    #[arg(long, value_name = "N", default_value = "100")]
    pub iterations: NonZeroUsize,
    /// Run so long before the measurement
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub warmup_ms: u64,
    /// Percentiles to print
    #[arg(long, value_name = "P,P", value_delimiter = ',', default_value = "90,95,99",
          value_parser = percentile)]
    pub percentile: Vec<f64>,
    /// Run from so many threads at once
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZeroUsize,
    /// Run the partitioned schedule, with host graphs in the place of engines
    #[arg(long)]
    pub segments: bool,
    /// Write the measurement there, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Bundle
    pub bundle: PathBuf,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    pub format: TextFormat,
}

#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Bundle; it is replaced when its engines are built
    pub bundle: PathBuf,
}

#[derive(Debug, Args)]
pub struct OpsArgs {
    /// Say what engines for this target take
    #[arg(long)]
    pub target: Option<Target>,
    /// How to print the list
    #[arg(long, value_enum, default_value_t)]
    pub format: OpsFormat,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Say what this engine cache holds [default: TRTC_CACHE_DIR, if set]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// How to print the findings
    #[arg(long, value_enum, default_value_t)]
    pub format: TextFormat,
}

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// A GPU when there is one that the bundle fits, else the CPU.
    #[default]
    Auto,
    Cpu,
    /// The GPU with this number.
    Cuda(u32),
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Device, String> {
        match text {
            "auto" => Ok(Device::Auto),
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|number| number.parse().ok())
                .map(Device::Cuda)
                .ok_or_else(|| "known: auto, cpu, cuda:N with the number of a GPU".to_owned()),
        }
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Device::Auto => f.write_str("auto"),
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

fn shape(text: &str) -> Result<String, String> {
    ShapeSpec::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn value(text: &str) -> Result<String, String> {
    ValueSpec::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn number(text: &str, fits: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|&number| fits(number));
    number.ok_or_else(|| format!("{wanted} is wanted"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wanted = "a number of seconds above 0";
    let seconds = number(text, |number| number > 0.0, wanted)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{wanted} is wanted"))
}

fn tolerance(text: &str) -> Result<f64, String> {
    number(text, |number| number >= 0.0 && number.is_finite(), "a number from 0 up")
}

fn percentile(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..=100.0).contains(&number), "a number from 0 to 100")
}

#[cfg(test)]
mod tests {
    use super::{Cli, Command, Device};
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_and_devices_are_read() {
        let line = ["trtc", "bench", "m.trtc", "--percentile", "50,99.9", "--device", "cuda:2"];
        let Command::Bench(bench) = Cli::try_parse_from(line).unwrap().command else { panic!("not bench") };
        assert_eq!((bench.percentile, bench.device), (vec![50.0, 99.9], Device::Cuda(2)));
        for text in ["auto", "cpu", "cuda:7"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn contradictions_are_bad_usage() {
        for line in [
            "run m --inputs a --random 1",
            "run m --segments --networks",
            "run m --device gpu",
            "compile m --policy p",
            "compile m --shape x",
            "compile m --value k=x",
            "compile m --build-time-limit 0",
            "compile m --target rtx-1.7:sm90",
            "partition m --check a --bless b",
            "verify m --random 0",
            "verify m --expected e",
            "verify m --rtol nan",
            "bench m --percentile 101",
            "bench m --iterations 0",
        ] {
            let line = ["trtc"].into_iter().chain(line.split(' '));
            assert_eq!(Cli::try_parse_from(line).unwrap_err().exit_code(), 2);
        }
    }
}

//! The command line: one file a subcommand. Standard output carries the result and nothing else.

mod args;
mod bench;
mod build;
mod compare;
mod compile;
mod diff;
mod doctor;
mod elements;
mod failure;
mod files;
mod inputs;
mod inspect;
mod npz;
mod ops;
mod out;
mod partition;
mod progress;
mod random;
mod render;
mod run;
mod subject;
mod verify;

use args::{Cli, Command};
use clap::Parser;
use failure::{Failure, Kind, Result};
use std::{
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
};

/// Version and commit, as `--version` prints them.
pub const VERSION: &str = env!("TRTC_VERSION");

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    panic::set_hook(Box::new(|info| {
        render::failure(&Failure::bug(info.to_string().replace('\n', " ")));
    }));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    log();
    match panic::catch_unwind(AssertUnwindSafe(|| run(cli.command))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            render::failure(&failure);
            ExitCode::from(failure.kind as u8)
        }
        // The hook has said what happened.
        Err(_) => ExitCode::from(Kind::Bug as u8),
    }
}

/// `--help` and `--version` go to standard output and end well; everything else is bad usage.
fn usage(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell when this cannot be written.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { Kind::Input as u8 } else { 0 })
}

/// Diagnostics of the libraries, chosen with TRTC_LOG as `tracing-subscriber` describes it (`debug`, `trtc=trace`).
/// What ONNX Runtime says of an error stands in the error already.
fn log() {
    use tracing_subscriber::{EnvFilter, fmt};
    let filter =
        EnvFilter::try_from_env("TRTC_LOG").unwrap_or_else(|_| EnvFilter::new("error,onnxruntime=off"));
    let subscriber = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(true);
    // Fails only when there is a subscriber already.
    let _ = subscriber.with_ansi(false).try_init();
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Compile(args) => compile::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Partition(args) => partition::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Ops(args) => ops::run(&args),
    }
}

/// The engine cache: as given, else as the environment says.
fn cache_dir(given: Option<&std::path::PathBuf>) -> Option<std::path::PathBuf> {
    let named = || std::env::var_os("TRTC_CACHE_DIR").filter(|dir| !dir.is_empty()).map(Into::into);
    given.cloned().or_else(named)
}

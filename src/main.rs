//! The `trtc` command.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "tensorrt")]
    if let Some(code) = build_worker() {
        return code;
    }
    cli::main()
}

/// The hidden subcommand `build-worker STACK_BYTES`, before anything else looks at the arguments or at stdin.
#[cfg(feature = "tensorrt")]
fn build_worker() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != trtc::worker::SUBCOMMAND {
        return None;
    }
    let stack_bytes = arguments.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(512 << 20);
    Some(trtc::worker::serve(stack_bytes))
}

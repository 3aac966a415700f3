//! `trtc compile`: a model into a bundle.

use super::{
    args::CompileArgs,
    failure::{Failure, Result},
    files,
    out::Out,
    partition,
    progress::Progress,
};
use std::path::{Path, PathBuf};

pub fn run(args: &CompileArgs) -> Result<()> {
    let out_path = output(args)?;
    let mut options = partition::options(&args.options)?.strict(args.strict);
    if let Some(limit) = args.build_time_limit {
        options = options.build_time_limit(limit);
    }
    if let Some(policy) = &args.policy {
        options = options.policy(policy);
    }
    if let Some(folder) = super::cache_dir(args.cache_dir.as_ref()) {
        options = options.cache_dir(folder);
    }
    if let Some(folder) = &args.keep_failures {
        options = options.keep_failures(folder);
    }
    let progress = Progress::new();
    let report = trtc::compile(&args.model, &out_path, &options, &progress);
    drop(progress);
    let report = report.map_err(|error| Failure::of(&error, &args.model))?;
    if let Some(path) = &args.report {
        let json = serde_json::to_string_pretty(&report).map_err(|error| Failure::bug(error.to_string()))?;
        files::write(path, format!("{json}\n").as_bytes())
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
    }
    let mut out = Out::stdout();
    out.text(&report.to_string())?;
    let bytes = std::fs::metadata(&out_path).map_or(0, |metadata| metadata.len());
    out.line(format_args!("bundle   {} ({})", out_path.display(), super::inspect::size(bytes)))?;
    out.finish()
}

/// Where the bundle goes: as given, else into the working folder under the model's name.
fn output(args: &CompileArgs) -> Result<PathBuf> {
    if let Some(path) = &args.output {
        return Ok(path.clone());
    }
    let stem = args.model.file_stem().filter(|_| args.model != Path::new("-"));
    match stem {
        Some(stem) => Ok(Path::new(stem).with_added_extension("trtc")),
        None => Err(Failure::input("a model from standard input has no name")
            .help("name the bundle with -o OUT.trtc")),
    }
}

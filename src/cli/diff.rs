//! `trtc diff`: what changed between two reports.

use super::{
    args::DiffArgs,
    failure::{Failure, Result},
    out::Out,
};

pub fn run(args: &DiffArgs) -> Result<()> {
    let read = |path| trtc::read_report(path).map_err(|error| Failure::of(&error, path));
    let diff = trtc::diff(&read(&args.before)?, &read(&args.now)?);
    let mut out = Out::stdout();
    out.text(&diff.to_string())?;
    out.finish()?;
    match diff.is_empty() {
        true => Ok(()),
        false => Err(Failure::check(format!("{} and {} differ", args.before.display(), args.now.display()))),
    }
}

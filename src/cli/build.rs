//! `trtc build`: the engines of a bundle that were deferred, built on the machine that will run them.

use super::{
    args::BuildArgs,
    failure::{Failure, Result},
    out::Out,
    progress::Progress,
};
use trtc::Options;

pub fn run(args: &BuildArgs) -> Result<()> {
    let progress = Progress::new();
    let options = super::cache_dir(None).into_iter().fold(Options::default(), Options::cache_dir);
    let finished = trtc::build(&args.bundle, &options, &progress);
    drop(progress);
    let finished = finished.map_err(|error| Failure::of(&error, &args.bundle))?;
    let mut out = Out::stdout();
    for target in &finished {
        let (built, present, left) = (target.built, target.present, target.left.len());
        out.line(format_args!(
            "{}: {built} engines built, {present} were there, {left} left",
            target.target
        ))?;
        for why in &target.left {
            out.line(format_args!("  {why}"))?;
        }
    }
    out.finish()
}

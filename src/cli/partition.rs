//! `trtc partition`: what would run where, printed, or compared with a snapshot.

mod difference;

use super::{
    args::{ModelOptions, PartitionArgs, PartitionFormat},
    failure::{Failure, Result},
    files,
    out::Out,
};
use std::path::Path;
use trtc::{CostModel, Options, Report};

pub fn run(args: &PartitionArgs) -> Result<()> {
    let mut report =
        trtc::partition(&args.model, &options(&args.options)?).map_err(|e| Failure::of(&e, &args.model))?;
    if let Some(file) = &args.bless {
        forget_folder(&mut report);
        let text = show(&report, format(args, Some(file)))?;
        return files::write(file, text.as_bytes())
            .map_err(|error| Failure::input(format!("{}: {error}", file.display())));
    }
    let policy = || match args.strict {
        true => trtc::check_policy(&report, args.policy.as_deref()).map_err(|e| Failure::of(&e, &args.model)),
        false => Ok(()),
    };
    if let Some(file) = &args.check {
        policy()?;
        return check(report, args, file);
    }
    let mut out = Out::stdout();
    out.text(&show(&report, format(args, None))?)?;
    out.finish()?;
    policy()
}

/// Options that `compile` and `partition` share.
pub fn options(args: &ModelOptions) -> Result<Options> {
    let mut options = Options::default().allow_f64_as_f32(args.allow_f64_as_f32).tf32(args.tf32);
    match &args.cost_model {
        Some(word) if word.as_os_str() == "off" => {
            options = options.cost_model(CostModel::maximal_clusters());
        }
        Some(file) => {
            let failed =
                |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", file.display()));
            let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
            options = options.cost_model(CostModel::with_changes(&text).map_err(|error| failed(&error))?);
        }
        None => {}
    }
    let options = args.targets.iter().cloned().fold(options, Options::target);
    let options = args.values.iter().cloned().fold(options, Options::value);
    Ok(args.shapes.iter().cloned().fold(options, Options::shape))
}

/// As asked for, else as the snapshot's name says, else text.
fn format(args: &PartitionArgs, file: Option<&Path>) -> PartitionFormat {
    let ending = file.and_then(Path::extension).and_then(|ending| ending.to_str());
    args.format.unwrap_or(match ending {
        Some("json") => PartitionFormat::Json,
        Some("dot") => PartitionFormat::Dot,
        Some("html") => PartitionFormat::Html,
        _ => PartitionFormat::Text,
    })
}

fn show(report: &Report, format: PartitionFormat) -> Result<String> {
    let text = match format {
        PartitionFormat::Text => report.to_string(),
        PartitionFormat::Dot => report.to_dot(),
        PartitionFormat::Html => report.to_html(),
        PartitionFormat::Json => {
            serde_json::to_string_pretty(report).map_err(|error| Failure::bug(error.to_string()))? + "\n"
        }
    };
    Ok(text)
}

/// A snapshot must not depend on where the model lies.
fn forget_folder(report: &mut Report) {
    if let Some(name) = Path::new(&report.model.path).file_name() {
        report.model.path = name.to_string_lossy().into_owned();
    }
}

fn check(mut report: Report, args: &PartitionArgs, file: &Path) -> Result<()> {
    let unreadable = |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", file.display()));
    let stored = std::fs::read_to_string(file)
        .map_err(|error| unreadable(&error).help("`trtc partition MODEL --bless FILE` makes the file"))?;
    forget_folder(&mut report);
    let format = format(args, Some(file));
    let (stored, changes) = if format == PartitionFormat::Json {
        let mut before: Report = serde_json::from_str(&stored)
            .map_err(|error| unreadable(&format!("not a partition in JSON: {error}")))?;
        forget_folder(&mut before);
        (show(&before, format)?, trtc::diff(&before, &report).to_string())
    } else {
        (stored, String::new())
    };
    let now = show(&report, format)?;
    let mut out = Out::stdout();
    if stored == now {
        out.line(format_args!("{}: unchanged", file.display()))?;
        return out.finish();
    }
    if changes.is_empty() {
        out.text(&difference::lines(&stored, &now))?;
    } else {
        out.text(&changes)?;
    }
    out.finish()?;
    Err(Failure::check(format!("{}: the partition has changed", file.display())).help(format!(
        "if it should, accept it with `trtc partition {} --bless {}`",
        args.model.display(),
        file.display()
    )))
}

//! `trtc run`: one run of a bundle or a model.

use super::{
    args::{Device, RunArgs},
    compare, elements,
    failure::{Failure, Result},
    inputs::{self, Named},
    inspect::typed,
    npz,
    out::Out,
    subject::{self, File, Subject},
};
use std::path::Path;
use trtc_bundle::{DType, Symbol};
use trtc_runtime::{Session, Tensor, Value};

pub fn run(args: &RunArgs) -> Result<()> {
    let subject = Subject::open(&args.file)?;
    let (session, mut symbols) = ready(&subject, args)?;
    let run = |values: &Named| session.run(&inputs::borrowed(values));
    let outputs = match (&args.given.inputs, args.random) {
        (Some(path), _) => run(&inputs::read(path, session.inputs(), "input", true)?),
        (None, Some(seed)) => {
            inputs::random_that_run(seed, session.inputs(), &mut symbols, run)?.map(|(_, outputs)| outputs)
        }
        (None, None) if session.inputs().is_empty() => run(&Named::new()),
        (None, None) => {
            return Err(Failure::input(format!("{} has inputs, and none are given", subject.shown))
                .help("give them with --inputs IN.npz, or have them made up with --random SEED"));
        }
    };
    let outputs = outputs.map_err(|error| subject::refused(&subject.shown, &error))?;
    if let Some(path) = &args.outputs {
        write(path, outputs.iter())?;
    }
    let mut out = Out::stdout();
    for (name, value) in outputs.iter() {
        out.line(format_args!("{name}  {}", show(value)))?;
    }
    out.finish()
}

/// The session that the arguments ask for, and the ranges of open dims when inputs are to be made up.
fn ready(subject: &Subject, args: &RunArgs) -> Result<(Session, Vec<Symbol>)> {
    let of_bundle = |bundle: &trtc_bundle::Bundle| {
        let schedule = subject::schedule(bundle, args.segments, args.networks)?;
        let session = subject::session(bundle, &schedule, args.device, false)?;
        Ok((session, bundle.manifest().symbols.clone()))
    };
    match &subject.file {
        File::Bundle(bundle) => of_bundle(bundle),
        File::Model(model) => {
            let on_gpu = matches!(args.device, Device::Cuda(_));
            if args.segments || args.networks || on_gpu {
                return of_bundle(&subject::compile(model, None, on_gpu)?.bundle);
            }
            let session = subject::original(model, false)?;
            let open = args.random.is_some() && inputs::is_open(session.inputs());
            let symbols = if open { subject::symbols_of(model)? } else { Vec::new() };
            Ok((session, symbols))
        }
    }
}

/// Writes values by name.
fn write<'a>(path: &Path, values: impl Iterator<Item = (&'a str, &'a Value)>) -> Result<()> {
    let mut arrays = Vec::new();
    for (name, value) in values {
        let found = npz::array_of(value).map_err(|why| Failure::input(format!("output `{name}`: {why}")))?;
        arrays.extend(found.into_iter().map(|(suffix, array)| (format!("{name}{suffix}"), array)));
    }
    npz::write(path, &arrays).map_err(|error| Failure::input(format!("{}: {error}", path.display())))
}

/// A value in a line: type and dims, then all elements of a small tensor, the range and mean of a large one.
fn show(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => show_tensor(tensor),
        Value::Strings(tensor) => {
            let shown: Vec<String> =
                tensor.strings.iter().take(SHOWN).map(|text| format!("{text:?}")).collect();
            let more = if tensor.strings.len() > SHOWN { " …" } else { "" };
            format!("{}  {}{more}", typed(DType::Str, &tensor.dims), shown.join(" "))
        }
        Value::Sequence(elements) => {
            let shown: Vec<String> = elements.iter().take(SHOWN).map(show).collect();
            let more = if elements.len() > SHOWN { ", …" } else { "" };
            format!("sequence of {}: {}{more}", elements.len(), shown.join(", "))
        }
        Value::Map(map) => format!("map of {} to {}", show(&map.0), show(&map.1)),
        other => other.kind_name().to_owned(),
    }
}

/// Elements that are shown one by one.
const SHOWN: usize = 8;

fn show_tensor(tensor: &Tensor) -> String {
    let typed = typed(tensor.dtype(), tensor.dims());
    let count: usize = tensor.dims().iter().product();
    let parts = if matches!(tensor.dtype(), DType::C64 | DType::C128) { 2 } else { 1 };
    let Some(read) = elements::reader(tensor.dtype()).filter(|_| count > 0) else { return typed };
    let elements = || (0..count * parts).map(|k| read(tensor.bytes(), k));
    if count * parts <= SHOWN {
        let shown: Vec<String> = elements().map(compare::number).collect();
        return format!("{typed}  {}", shown.join(" "));
    }
    let (mut least, mut greatest, mut sum, mut nans) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0usize);
    for element in elements() {
        if element.is_nan() {
            nans += 1;
            continue;
        }
        (least, greatest, sum) = (least.min(element), greatest.max(element), sum + element);
    }
    let numbers = count * parts - nans;
    if numbers == 0 {
        return format!("{typed}  all NaN");
    }
    let mean = compare::number(sum / numbers as f64);
    let nans = if nans > 0 { format!("  NaN {nans}") } else { String::new() };
    format!("{typed}  min {}  mean {mean}  max {}{nans}", compare::number(least), compare::number(greatest))
}

#[cfg(test)]
mod tests {
    use super::show;
    use trtc_runtime::{Tensor, Value};

    #[test]
    fn small_values_are_shown_whole_and_large_ones_summed_up() {
        let small = Value::Tensor(Tensor::from_slice(&[2, 1], &[1.5f32, -2.0]).unwrap());
        assert_eq!(show(&small), "f32[2 x 1]  1.5 -2");
        let large: Vec<f32> = (0..10).map(|k| if k == 9 { f32::NAN } else { k as f32 }).collect();
        let large = Value::Tensor(Tensor::from_slice(&[10], &large).unwrap());
        assert_eq!(show(&large), "f32[10]  min 0  mean 4  max 8  NaN 1");
        let sequence = Value::Sequence(vec![small, Value::Nothing]);
        assert_eq!(show(&sequence), "sequence of 2: f32[2 x 1]  1.5 -2, nothing");
        let empty = Value::Tensor(Tensor::from_slice::<i64>(&[0], &[]).unwrap());
        assert_eq!(show(&empty), "i64[0]");
    }
}

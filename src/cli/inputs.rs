//! Inputs of a run: read from a file, or made up.

use super::{
    failure::{Failure, Result},
    npz::{self, Array},
    random,
};
use std::{collections::HashMap, path::Path};
use trtc_bundle::{Bundle, DType, Dim, Element, Symbol, ValueInfo, ValueKind};
use trtc_runtime::{Input, Outputs, RunError, Tensor, Value, host::HostError};

/// Values by name, in the model's order.
pub type Named = Vec<(String, Value)>;

/// Borrows values for a run.
pub fn borrowed(values: &Named) -> Vec<(&str, Input<'_>)> {
    values.iter().map(|(name, value)| (name.as_str(), value.into())).collect()
}

/// Reads the values of `ports` from an `.npz` file: by name, else by position (`input_0`); elements of a sequence by the
/// name and their number (`x.0`). `what` is `input` or `output`.
///
/// With `all`, every port must be there; without, only those that are there are given.
///
/// # Errors
/// The file is damaged, an array is missing, unknown or of another type.
pub fn read(path: &Path, ports: &[ValueInfo], what: &str, all: bool) -> Result<Named> {
    let fail = |why: String| Failure::input(format!("{}: {why}", path.display()));
    let arrays = npz::read(path).map_err(|error| fail(error.to_string()))?;
    let mut arrays: HashMap<String, Array> = arrays.into_iter().collect();
    let mut values = Vec::new();
    for (position, port) in ports.iter().enumerate() {
        let position = format!("{what}_{position}");
        let name = if has(&arrays, &port.name) { &port.name } else { &position };
        match take(&mut arrays, name, port).map_err(|why| fail(format!("{what} `{}`: {why}", port.name)))? {
            Some(value) => values.push((port.name.clone(), value)),
            None if !all => {}
            None if matches!(port.kind, ValueKind::Optional | ValueKind::OptionalSequence) => {
                values.push((port.name.clone(), Value::Nothing));
            }
            None => {
                return Err(fail(format!("{what} `{}` is missing", port.name))
                    .help(format!("it is to be called `{}` or `{position}`", port.name)));
            }
        }
    }
    let mut left: Vec<String> = arrays.into_keys().collect();
    left.sort();
    if let Some(unknown) = left.first() {
        let known: Vec<String> = ports.iter().map(|port| format!("`{}`", port.name)).collect();
        return Err(fail(format!("there is no {what} `{unknown}`"))
            .help(format!("the {what}s are {}", known.join(", "))));
    }
    Ok(values)
}

fn has(arrays: &HashMap<String, Array>, name: &str) -> bool {
    arrays.contains_key(name) || arrays.contains_key(&format!("{name}.0"))
}

fn take(arrays: &mut HashMap<String, Array>, name: &str, port: &ValueInfo) -> Result<Option<Value>, String> {
    if matches!(port.kind, ValueKind::Sequence | ValueKind::OptionalSequence) {
        let mut elements = Vec::new();
        while let Some(array) = arrays.remove(&format!("{name}.{}", elements.len())) {
            elements.push(npz::value_of(&array, port.dtype)?);
        }
        return Ok((!elements.is_empty()).then_some(Value::Sequence(elements)));
    }
    match arrays.remove(name) {
        Some(_) if port.kind == ValueKind::Map => Err("a map has no form in .npz files".into()),
        Some(array) => npz::value_of(&array, port.dtype).map(Some),
        None => Ok(None),
    }
}

/// The values of inputs of the source model that a bundle has as constants.
///
/// # Errors
/// A damaged bundle.
pub fn pinned(bundle: &Bundle) -> Result<Named> {
    let value = |pinned: &trtc_bundle::Pinned| {
        let damaged = |why: String| Failure::input(format!("{}: {why}", bundle.path().display()));
        let bytes = bundle.weights(pinned.weights).map_err(|error| damaged(error.to_string()))?;
        let dims = pinned.value.static_dims().unwrap_or_default();
        let tensor = Tensor::from_bytes(pinned.value.dtype, &dims, &bytes)
            .map_err(|error| damaged(error.to_string()))?;
        Ok((pinned.value.name.clone(), Value::Tensor(tensor)))
    };
    bundle.manifest().pinned.iter().map(value).collect()
}

/// Makes values up. Dims that the model leaves open, and elements that sizes follow from, are what engines are tuned for
/// (`symbols`), else 1.
///
/// # Errors
/// A value that is no tensor, or whose rank is not known, cannot be made up.
pub fn random(seed: u64, ports: &[ValueInfo], symbols: &[Symbol]) -> Result<Named> {
    let one = |port: &ValueInfo| {
        let fail = |why: &str| {
            Failure::input(format!("input `{}` {why}, which cannot be made up", port.name))
                .help("give it with --inputs IN.npz")
        };
        let value = match (port.kind, &port.dims) {
            (ValueKind::Optional | ValueKind::OptionalSequence, _) => Value::Nothing,
            (ValueKind::Tensor, Some(dims)) => {
                let dims: Vec<usize> = dims.iter().map(|dim| size(dim, symbols)).collect();
                let mut value = random::tensor(seed, &port.name, port.dtype, &dims)
                    .map_err(|error| Failure::input(format!("input `{}`: {error}", port.name)))?;
                if let (Some(elements), Value::Tensor(tensor)) = (&port.elements, &mut value) {
                    put(tensor, elements, symbols);
                }
                value
            }
            (ValueKind::Tensor, None) => return Err(fail("has an unknown rank")),
            _ => return Err(fail("is no tensor")),
        };
        Ok((port.name.clone(), value))
    };
    ports.iter().map(one).collect()
}

/// Writes elements that are known, or have ranges, into an integer tensor.
fn put(tensor: &mut Tensor, elements: &[Element], symbols: &[Symbol]) {
    let dtype = tensor.dtype();
    for (k, element) in elements.iter().enumerate() {
        let number = match element {
            Element::Known(number) => *number,
            Element::Text(text) => i64::try_from(opt(text, symbols)).unwrap_or(i64::MAX),
            Element::Unknown => continue,
        };
        let bytes = tensor.bytes_mut();
        match dtype {
            DType::I64 => bytes.as_chunks_mut().0.get_mut(k).map(|place| *place = number.to_le_bytes()),
            DType::I32 => {
                bytes.as_chunks_mut().0.get_mut(k).map(|place| *place = (number as i32).to_le_bytes())
            }
            _ => None,
        };
    }
}

/// Made-up values that a model takes, and what a run with them gave.
///
/// Which open dims go together is known to the model alone: when it fails with those that engines are tuned for, others
/// within the ranges are tried. The ranges are left as the choice that worked, for the next seeds.
///
/// # Errors
/// As [`random`], or what the run with the first choice said.
pub fn random_that_run(
    seed: u64,
    ports: &[ValueInfo],
    symbols: &mut Vec<Symbol>,
    run: impl Fn(&Named) -> Result<Outputs, RunError>,
) -> Result<Result<(Named, Outputs), RunError>> {
    let mut first = None;
    for choice in choices(ports, symbols) {
        let values = random(seed, ports, &choice)?;
        match run(&values) {
            Ok(outputs) => {
                *symbols = choice;
                return Ok(Ok((values, outputs)));
            }
            Err(
                error @ (RunError::Host(HostError::Run(_))
                | RunError::Segment { source: HostError::Run(_), .. }),
            ) => {
                first.get_or_insert(error);
            }
            // Something else than the dims is in the way.
            Err(error) => return Ok(Err(first.unwrap_or(error))),
        }
    }
    first.map(Err).ok_or_else(|| Failure::bug("no choice of dims"))
}

/// Ranges that differ in what is chosen: for all open dims of the inputs what engines are tuned for, for all the least, then
/// mixtures.
fn choices(ports: &[ValueInfo], symbols: &[Symbol]) -> Vec<Vec<Symbol>> {
    const MOST: usize = 20;
    let used = |symbol: &Symbol| {
        let mut dims = ports.iter().filter_map(|port| port.dims.as_ref()).flatten();
        let mut elements = ports.iter().filter_map(|port| port.elements.as_ref()).flatten();
        dims.any(|dim| matches!(dim, Dim::Text(text) if *text == symbol.text))
            || elements.any(|element| matches!(element, Element::Text(text) if *text == symbol.text))
    };
    let open: Vec<usize> = (0..symbols.len()).filter(|&k| used(&symbols[k])).collect();
    let choice = |least: &dyn Fn(usize) -> bool| {
        let mut choice = symbols.to_vec();
        for &k in open.iter().filter(|&&k| least(k)) {
            choice[k].opt = symbols[k].min.max(1).min(symbols[k].max);
        }
        choice
    };
    let mut choices = vec![choice(&|_| false), choice(&|_| true)];
    choices.extend(open.iter().map(|&one| choice(&|k| k == one)));
    choices.extend(open.iter().map(|&one| choice(&|k| k != one)));
    let mut different: Vec<Vec<Symbol>> = Vec::new();
    for choice in choices {
        if different.len() < MOST && !different.contains(&choice) {
            different.push(choice);
        }
    }
    different
}

/// Whether a made-up value of `ports` depends on what engines are tuned for.
pub fn is_open(ports: &[ValueInfo]) -> bool {
    let is_open = |port: &ValueInfo| {
        port.dims.iter().flatten().any(|dim| !matches!(dim, Dim::Known(_)))
            || port.elements.iter().flatten().any(|element| matches!(element, Element::Text(_)))
    };
    ports.iter().any(is_open)
}

/// What engines are tuned for.
fn opt(text: &str, symbols: &[Symbol]) -> u64 {
    symbols.iter().find(|symbol| symbol.text == text).map_or(1, |symbol| symbol.opt)
}

fn size(dim: &Dim, symbols: &[Symbol]) -> usize {
    let number = match dim {
        Dim::Known(number) => *number,
        Dim::Text(text) => opt(text, symbols),
        Dim::Unknown => 1,
    };
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{choices, is_open, random, read};
    use crate::cli::npz::{self, Array, NumpyType};
    use std::path::PathBuf;
    use trtc_bundle::{DType, Dim, Symbol, ValueInfo, ValueKind};
    use trtc_runtime::Value;

    fn ports() -> Vec<ValueInfo> {
        let dims = vec![Dim::Text("N".into()), Dim::Text("2*N".into()), Dim::Known(3), Dim::Unknown];
        vec![
            ValueInfo::tensor("x", DType::F32, Some(dims)),
            ValueInfo::tensor("n", DType::I64, Some(Vec::new())),
        ]
    }

    fn file(folder: &tempfile::TempDir, arrays: &[(&str, NumpyType, usize)]) -> PathBuf {
        let path = folder.path().join("in.npz");
        let array = |&(name, ty, count): &(&str, NumpyType, usize)| {
            (name.to_owned(), Array { ty, dims: vec![count], bytes: vec![0; count * ty.width()] })
        };
        npz::write(&path, &arrays.iter().map(array).collect::<Vec<_>>()).unwrap();
        path
    }

    #[test]
    fn arrays_are_found_by_name_or_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, &[("input_0", NumpyType::Float(4), 2), ("n", NumpyType::Int(8), 1)]);
        let values = read(&path, &ports(), "input", true).unwrap();
        assert_eq!(values.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["x", "n"]);
        let sequence = [ValueInfo::other("s", ValueKind::Sequence, DType::F32)];
        let path = file(&folder, &[("s.0", NumpyType::Float(4), 2), ("s.1", NumpyType::Float(4), 1)]);
        let values = read(&path, &sequence, "input", true).unwrap();
        assert!(matches!(&values[0].1, Value::Sequence(elements) if elements.len() == 2));
    }

    #[test]
    fn missing_unknown_and_other_arrays_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let said = |arrays: &[(&str, NumpyType, usize)], all| {
            let failure = read(&file(&folder, arrays), &ports(), "input", all).unwrap_err();
            let message = failure.messages[0].clone();
            format!("{} {}", message.text, message.help.unwrap_or_default())
        };
        let (f32s, i64s) = (NumpyType::Float(4), NumpyType::Int(8));
        let missing = said(&[("x", f32s, 1)], true);
        assert!(missing.contains("`n` is missing") && missing.contains("`input_1`"), "{missing}");
        let unknown = said(&[("x", f32s, 1), ("n", i64s, 1), ("z", i64s, 1)], true);
        assert!(unknown.contains("`z`") && unknown.contains("`x`, `n`"), "{unknown}");
        let other = said(&[("x", i64s, 1)], false);
        assert!(other.contains("input `x`: int64 is given where f32 is wanted"), "{other}");
    }

    #[test]
    fn other_dims_are_tried_in_turn() {
        let symbols = [Symbol::new("N", 0, 4, 8), Symbol::new("M", 1, 1, 1), Symbol::new("other", 1, 5, 9)];
        let dims = vec![Dim::Text("N".into()), Dim::Text("M".into())];
        let choices = choices(&[ValueInfo::tensor("x", DType::F32, Some(dims))], &symbols);
        let opts: Vec<Vec<u64>> =
            choices.iter().map(|choice| choice.iter().map(|symbol| symbol.opt).collect()).collect();
        assert_eq!(opts, [[4, 1, 5], [1, 1, 5]]);
    }

    #[test]
    fn open_dims_are_what_engines_are_tuned_for() {
        let symbols = [Symbol::new("N", 1, 4, 8), Symbol::new("2*N", 2, 8, 16)];
        let values = random(0, &ports(), &symbols).unwrap();
        assert_eq!(values[0].1.as_tensor().unwrap().dims(), [4, 8, 3, 1]);
        assert!(is_open(&ports()) && !is_open(&ports()[1..]));
        assert!(random(0, &[ValueInfo::tensor("x", DType::F32, None)], &[]).is_err());
    }
}

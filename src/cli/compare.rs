//! Compares values with expected ones. Tolerances are fixed by dtype; integers, bools and strings are exact; NaN equals NaN.

use super::elements;
use trtc_bundle::DType;
use trtc_runtime::{Tensor, Value};

/// Two elements are equal when `|actual - expected| <= atol + rtol * |expected|`, as numpy's `allclose` has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    pub rtol: f64,
    pub atol: f64,
}

/// What the user says instead of the defaults; floats only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerances {
    pub rtol: Option<f64>,
    pub atol: Option<f64>,
}

impl Tolerances {
    /// Tolerance for a dtype. The defaults leave room for another order of summation, and for f32 for the 10 bits of
    /// mantissa that tensor cores keep where `--tf32` allows it; the small floats may be off by one in the last place.
    pub fn of(self, dtype: DType) -> Tolerance {
        let (rtol, atol) = match dtype {
            DType::F64 | DType::C128 => (1e-6, 1e-8),
            DType::F32 | DType::C64 => (1e-3, 1e-4),
            DType::F16 => (1e-2, 1e-3),
            DType::Bf16 => (4e-2, 1e-2),
            DType::F8E4M3 | DType::F8E4M3Uz | DType::F6E2M3 => (0.125, 0.0625),
            DType::F8E5M2 | DType::F8E5M2Uz | DType::F6E3M2 => (0.25, 0.0625),
            DType::F4E2M1 => (0.5, 0.5),
            _ => return Tolerance { rtol: 0.0, atol: 0.0 },
        };
        Tolerance { rtol: self.rtol.unwrap_or(rtol), atol: self.atol.unwrap_or(atol) }
    }
}

/// What a comparison of two values found.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// They can be compared element by element.
    Elements(Elements),
    /// They cannot: another kind, dtype or shape, in words.
    Unlike(String),
}

/// A comparison of as many elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Elements {
    pub dtype: DType,
    pub dims: Vec<usize>,
    pub tolerance: Tolerance,
    /// Greatest `|actual - expected|`; infinite where only one of the two is finite, or is NaN.
    pub max_abs: f64,
    /// Greatest `|actual - expected| / |expected|` of the elements with `expected != 0`.
    pub max_rel: f64,
    /// Elements outside of the tolerance.
    pub differ: usize,
    /// The element furthest outside of it.
    pub worst: Option<Worst>,
}

/// An element that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// Its index, outermost dim first.
    pub index: Vec<usize>,
    pub actual: String,
    pub expected: String,
}

impl Comparison {
    pub fn is_equal(&self) -> bool {
        matches!(self, Comparison::Elements(elements) if elements.differ == 0)
    }
}

/// Compares two values. Sequences and maps give a comparison for each of their tensors, named by what follows the name
/// of the value (`.0`, `.keys`).
pub fn compare(actual: &Value, expected: &Value, tolerances: Tolerances) -> Vec<(String, Comparison)> {
    let one = |comparison| vec![(String::new(), comparison)];
    let inner = |suffix: String, actual: &Value, expected: &Value| {
        let found = compare(actual, expected, tolerances).into_iter();
        found.map(move |(rest, comparison)| (format!("{suffix}{rest}"), comparison))
    };
    match (actual, expected) {
        (Value::Tensor(actual), Value::Tensor(expected)) => one(tensors(actual, expected, tolerances)),
        (Value::Strings(actual), Value::Strings(expected)) => one(if actual.dims != expected.dims {
            unlike_dims(DType::Str, &actual.dims, &expected.dims)
        } else {
            strings(&actual.dims, &actual.strings, &expected.strings)
        }),
        (Value::Sequence(actual), Value::Sequence(expected)) if actual.len() == expected.len() => {
            let pairs = actual.iter().zip(expected).enumerate();
            pairs.flat_map(|(k, (actual, expected))| inner(format!(".{k}"), actual, expected)).collect()
        }
        (Value::Sequence(actual), Value::Sequence(expected)) => {
            one(Comparison::Unlike(format!("a sequence of {} instead of {}", actual.len(), expected.len())))
        }
        (Value::Map(actual), Value::Map(expected)) => {
            let keys = inner(".keys".into(), &actual.0, &expected.0);
            keys.chain(inner(".values".into(), &actual.1, &expected.1)).collect()
        }
        (Value::Nothing, Value::Nothing) => Vec::new(),
        _ => one(Comparison::Unlike(format!("{} instead of {}", actual.kind_name(), expected.kind_name()))),
    }
}

fn unlike_dims(dtype: DType, actual: &[usize], expected: &[usize]) -> Comparison {
    Comparison::Unlike(format!("{dtype}{actual:?} instead of {dtype}{expected:?}"))
}

fn tensors(actual: &Tensor, expected: &Tensor, tolerances: Tolerances) -> Comparison {
    let (dtype, dims) = (expected.dtype(), expected.dims());
    if actual.dtype() != dtype {
        return Comparison::Unlike(format!(
            "{}{:?} instead of {dtype}{dims:?}",
            actual.dtype(),
            actual.dims()
        ));
    }
    if actual.dims() != dims {
        return unlike_dims(dtype, actual.dims(), dims);
    }
    let Some(read) = elements::reader(dtype) else {
        return Comparison::Unlike(format!("{dtype} cannot be compared"));
    };
    // Elements of a complex type are compared part by part.
    let parts = if matches!(dtype, DType::C64 | DType::C128) { 2 } else { 1 };
    let count = dims.iter().product::<usize>() * parts;
    let tolerance = tolerances.of(dtype);
    let exact = tolerance == Tolerance { rtol: 0.0, atol: 0.0 };
    let (a, e) = (actual.bytes(), expected.bytes());
    let mut found = Elements {
        dtype,
        dims: dims.to_vec(),
        tolerance,
        max_abs: 0.0,
        max_rel: 0.0,
        differ: 0,
        worst: None,
    };
    let mut furthest = (0.0, None);
    // Large integers can differ and still be the same f64.
    let wide = matches!(dtype, DType::I64 | DType::U64);
    if !(exact && a == e) {
        for k in 0..count {
            let (x, y) = (read(a, k), read(e, k));
            let same_bits = !wide || a[k * 8..][..8] == e[k * 8..][..8];
            if same_bits && (x == y || x.is_nan() && y.is_nan()) {
                continue;
            }
            let diff = (x - y).abs();
            let diff = if diff.is_nan() { f64::INFINITY } else { diff };
            found.max_abs = found.max_abs.max(diff);
            if y != 0.0 {
                found.max_rel = found.max_rel.max(if y.is_finite() { diff / y.abs() } else { f64::INFINITY });
            }
            let allowed = if y.is_finite() { tolerance.atol + tolerance.rtol * y.abs() } else { 0.0 };
            if diff > allowed || !same_bits {
                found.differ += 1;
                // How far outside; infinite for exact types, where the first of the greatest is shown.
                let far = if allowed > 0.0 { diff / allowed } else { diff };
                if furthest.1.is_none() || far > furthest.0 {
                    furthest = (far, Some(k));
                }
            }
        }
    }
    found.worst = furthest.1.map(|k| Worst {
        index: index(dims, k / parts),
        actual: show(dtype, a, k, read),
        expected: show(dtype, e, k, read),
    });
    Comparison::Elements(found)
}

fn strings(dims: &[usize], actual: &[String], expected: &[String]) -> Comparison {
    let mut unequal = (0..actual.len().max(expected.len())).filter(|&k| actual.get(k) != expected.get(k));
    let shown = |strings: &[String], k: usize| {
        let string = strings.get(k).map_or("", String::as_str);
        format!("{:?}", string.chars().take(40).collect::<String>())
    };
    let first = unequal.next();
    Comparison::Elements(Elements {
        dtype: DType::Str,
        dims: dims.to_vec(),
        tolerance: Tolerance { rtol: 0.0, atol: 0.0 },
        max_abs: 0.0,
        max_rel: 0.0,
        differ: usize::from(first.is_some()) + unequal.count(),
        worst: first.map(|k| Worst {
            index: index(dims, k),
            actual: shown(actual, k),
            expected: shown(expected, k),
        }),
    })
}

/// The index of the element at a row-major place.
fn index(dims: &[usize], mut place: usize) -> Vec<usize> {
    let mut index: Vec<usize> = dims
        .iter()
        .rev()
        .map(|&dim| {
            let at = place % dim.max(1);
            place /= dim.max(1);
            at
        })
        .collect();
    index.reverse();
    index
}

fn show(dtype: DType, bytes: &[u8], k: usize, read: elements::ReadElement) -> String {
    let wide = || bytes.as_chunks::<8>().0.get(k).copied().unwrap_or_default();
    match dtype {
        DType::I64 => i64::from_le_bytes(wide()).to_string(),
        DType::U64 => u64::from_le_bytes(wide()).to_string(),
        DType::Bool => (read(bytes, k) != 0.0).to_string(),
        _ => number(read(bytes, k)),
    }
}

/// A number short enough to read: seven digits, in powers of ten when it is very small or large.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || !value.is_finite() || value.fract() == 0.0 && magnitude < 1e9 {
        return value.to_string();
    }
    if (1e-3..1e7).contains(&magnitude) {
        let digits = (6 - magnitude.log10().floor() as i32).clamp(0, 9) as usize;
        let text = format!("{value:.digits$}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    format!("{value:.6e}")
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Elements, Tolerances, Worst, compare, index, number};
    use trtc_bundle::DType;
    use trtc_runtime::{StringTensor, Tensor, Value};

    fn f32s(values: &[f32]) -> Value {
        Value::Tensor(Tensor::from_slice(&[values.len()], values).unwrap())
    }

    fn i64s(values: &[i64]) -> Value {
        Value::Tensor(Tensor::from_slice(&[values.len()], values).unwrap())
    }

    fn elements(actual: &Value, expected: &Value) -> Elements {
        match compare(actual, expected, Tolerances::default()).remove(0).1 {
            Comparison::Elements(elements) => elements,
            Comparison::Unlike(why) => panic!("{why}"),
        }
    }

    #[test]
    fn floats_have_a_tolerance_and_nan_equals_nan() {
        let found = elements(
            &f32s(&[1.0, f32::NAN, f32::INFINITY, 0.0]),
            &f32s(&[1.0005, f32::NAN, f32::INFINITY, 5e-5]),
        );
        assert_eq!(found.differ, 0);
        assert!((found.max_abs - 5e-4).abs() < 1e-6 && (found.max_rel - 1.0).abs() < 1e-6, "{found:?}");
        let found = elements(&f32s(&[1.0, 2.0, 3.0]), &f32s(&[1.0, 2.5, 30.0]));
        let worst = Worst { index: vec![2], actual: "3".into(), expected: "30".into() };
        assert_eq!((found.differ, found.max_abs, found.worst), (2, 27.0, Some(worst)));
        for (a, b) in
            [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::INFINITY, f32::NEG_INFINITY), (1e30, f32::INFINITY)]
        {
            let found = elements(&f32s(&[a]), &f32s(&[b]));
            assert_eq!((found.differ, found.max_abs), (1, f64::INFINITY), "{a} {b}");
        }
    }

    #[test]
    fn integers_are_exact_beyond_what_f64_holds() {
        assert_eq!(elements(&i64s(&[i64::MAX]), &i64s(&[i64::MAX])).differ, 0);
        let found = elements(&i64s(&[7, i64::MAX]), &i64s(&[7, i64::MAX - 1]));
        let worst = Worst {
            index: vec![1],
            actual: "9223372036854775807".into(),
            expected: "9223372036854775806".into(),
        };
        assert_eq!((found.differ, found.worst), (1, Some(worst)));
        // A tolerance of the user's is for floats.
        let wide = Tolerances { rtol: Some(1.0), atol: Some(10.0) };
        assert!(!compare(&i64s(&[1]), &i64s(&[2]), wide)[0].1.is_equal());
        assert!(compare(&f32s(&[1.0]), &f32s(&[5.0]), wide)[0].1.is_equal());
    }

    #[test]
    fn unlike_values_say_how() {
        let why = |actual: &Value, expected: &Value| match compare(actual, expected, Tolerances::default())
            .remove(0)
            .1
        {
            Comparison::Unlike(why) => why,
            Comparison::Elements(found) => panic!("{found:?}"),
        };
        assert_eq!(why(&f32s(&[1.0]), &f32s(&[1.0, 2.0])), "f32[1] instead of f32[2]");
        assert_eq!(why(&f32s(&[1.0]), &i64s(&[1])), "f32[1] instead of i64[1]");
        assert_eq!(why(&Value::Nothing, &i64s(&[1])), "nothing instead of a tensor");
        let sequence = |count| Value::Sequence(vec![i64s(&[1]); count]);
        assert_eq!(why(&sequence(1), &sequence(2)), "a sequence of 1 instead of 2");
        let inside = compare(&sequence(2), &sequence(2), Tolerances::default());
        assert_eq!(inside.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [".0", ".1"]);
    }

    #[test]
    fn strings_are_exact() {
        let strings = |list: &[&str]| {
            let strings = list.iter().map(|&string| string.to_owned()).collect();
            Value::Strings(StringTensor { dims: vec![list.len()], strings })
        };
        let found = elements(&strings(&["a", "b", "c"]), &strings(&["a", "x", "y"]));
        assert_eq!((found.dtype, found.differ, found.worst.unwrap().index), (DType::Str, 2, vec![1]));
    }

    #[test]
    fn places_and_numbers_are_shown() {
        assert_eq!(index(&[2, 3, 4], 17), [1, 1, 1]);
        assert_eq!(index(&[], 0), [0; 0]);
        for (value, text) in [
            (0.1, "0.1"),
            (1.0 / 3.0, "0.3333333"),
            (-1234.5678, "-1234.568"),
            (1e-7, "1.000000e-7"),
            (3.0, "3"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}

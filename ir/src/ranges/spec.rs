//! Shapes as the command line gives them.

use std::fmt;

/// `NAME=DIMS`: what the user wants of one input, or of one symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeSpec {
    /// Name of a graph input, or of a symbol (with one dim).
    pub name: String,
    /// One entry a dim.
    pub dims: Vec<DimSpec>,
}

/// What the user wants of one dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimSpec {
    /// This size.
    Fixed(i64),
    /// Sizes from `min` to `max`.
    Range {
        /// Smallest size.
        min: i64,
        /// Size that engines are tuned for.
        opt: Option<i64>,
        /// Largest size.
        max: i64,
    },
    /// Left to the model and the defaults.
    Open,
}

/// Why a shape cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no shape: {why}; write NAME=1x3x224x224, NAME=1..4..8x3x224x224 or NAME=1x3..4x3..8x3")]
pub struct SpecError {
    text: String,
    why: String,
}

impl ShapeSpec {
    /// Reads `NAME=DIMS`. Dims are separated by `x`; each is `4`, `1..8`, `1..4..8` (min, opt, max) or `?`. Whole shapes
    /// may be given instead: `1x3x32..4x3x64..8x3x96`. Nothing after `=` is a scalar.
    ///
    /// # Errors
    /// Text that is not of this form, a range that runs backwards, or a range that starts below 1.
    pub fn parse(text: &str) -> Result<ShapeSpec, SpecError> {
        let fail = |why: &str| SpecError { text: text.to_owned(), why: why.to_owned() };
        // Names of values may hold `=` themselves; dims never do.
        let (name, shape) = text.rsplit_once('=').ok_or_else(|| fail("there is no `=`"))?;
        if name.is_empty() {
            return Err(fail("there is no name"));
        }
        let dims = dims(shape).map_err(|why| fail(&why))?;
        Ok(ShapeSpec { name: name.to_owned(), dims })
    }
}

fn dims(shape: &str) -> Result<Vec<DimSpec>, String> {
    let shape = shape.trim();
    if shape.is_empty() {
        return Ok(Vec::new());
    }
    let whole: Vec<Vec<&str>> = shape.split("..").map(|part| part.split('x').collect()).collect();
    let same_rank = whole.iter().all(|part| part.len() == whole[0].len());
    if matches!(whole.len(), 2 | 3) && same_rank && whole[0].len() > 1 {
        let number = |k: usize| whole.iter().map(|part| number(part[k])).collect::<Result<Vec<i64>, _>>();
        return (0..whole[0].len()).map(|k| span(&number(k)?, 1)).collect();
    }
    shape
        .split('x')
        .map(|part| match part.trim() {
            "?" | "*" => Ok(DimSpec::Open),
            part if part.contains("..") => {
                range(&part.split("..").map(number).collect::<Result<Vec<i64>, String>>()?, 1)
            }
            part => number(part).map(DimSpec::Fixed),
        })
        .collect()
}

fn number(text: &str) -> Result<i64, String> {
    let value = text.trim().parse::<i64>().map_err(|_| format!("`{text}` is no number"))?;
    if value < 0 { Err(format!("{value} is negative")) } else { Ok(value) }
}

/// What two or three numbers at the same place of whole shapes or values say.
pub(crate) fn span(parts: &[i64], least: i64) -> Result<DimSpec, String> {
    match parts {
        [first, rest @ ..] if rest.iter().all(|v| v == first) => Ok(DimSpec::Fixed(*first)),
        _ => range(parts, least),
    }
}

/// A range of two or three numbers, from `least` on.
pub(crate) fn range(parts: &[i64], least: i64) -> Result<DimSpec, String> {
    let (min, opt, max) = match *parts {
        [min, max] => (min, None, max),
        [min, opt, max] => (min, Some(opt), max),
        _ => return Err("a range has two or three numbers".to_owned()),
    };
    if min < least {
        return Err(format!("a range starts at {least} or above"));
    }
    if min > max || opt.is_some_and(|opt| opt < min || opt > max) {
        return Err(format!("{min} to {max} runs backwards, or the optimum lies outside"));
    }
    Ok(DimSpec::Range { min, opt, max })
}

impl fmt::Display for DimSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DimSpec::Fixed(value) => write!(f, "{value}"),
            DimSpec::Range { min, opt: Some(opt), max } => write!(f, "{min}..{opt}..{max}"),
            DimSpec::Range { min, opt: None, max } => write!(f, "{min}..{max}"),
            DimSpec::Open => f.write_str("?"),
        }
    }
}

impl fmt::Display for ShapeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(DimSpec::to_string).collect();
        write!(f, "{}={}", self.name, dims.join("x"))
    }
}

#[cfg(test)]
mod tests {
    use super::{DimSpec, ShapeSpec};

    #[test]
    fn forms() {
        let same = |text: &str| assert_eq!(ShapeSpec::parse(text).unwrap().to_string(), text);
        same("x=1x3x224x224");
        same("x:0=1..4..8x3x?x32..640");
        same("a=b=7");
        same("scalar=");
        let whole = ShapeSpec::parse("x=1x3x32..4x3x64..8x3x96").unwrap();
        assert_eq!(whole.to_string(), "x=1..4..8x3x32..64..96");
        let symbol = ShapeSpec::parse("batch=1..4..8").unwrap();
        assert_eq!(symbol.dims, [DimSpec::Range { min: 1, opt: Some(4), max: 8 }]);
        for wrong in ["x", "=1", "x=1x", "x=-1", "x=4..1", "x=0..4", "x=1..9..8", "x=1..2..3..4", "x=1e3"] {
            assert!(ShapeSpec::parse(wrong).is_err(), "{wrong}");
        }
    }
}

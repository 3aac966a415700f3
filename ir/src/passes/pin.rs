//! What the user says of the values of inputs: what `--value` asks for.
//!
//! An input that always has the same value becomes a constant and is no input any more, so nothing that follows from the
//! value can be wrong at run time. The elements of an integer input that have a range each become a symbol
//! (`sizes[2]`): sizes that follow from them are known as dims are, and engines take them as shape tensors. Not part of
//! [`super::run_all`]; run before it.

use crate::{
    diag::Diag,
    dim::{Dim, Interval},
    graph::{MAX_ELEMENTS, Module, ValueId},
    ranges::{self, DimSpec},
    tensor::Tensor,
    types::Type,
};
use std::fmt;
use trtc_bundle::DType;

/// `NAME=ELEMENT,ELEMENT,…`: the elements of a graph input, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// Name of a graph input.
    pub name: String,
    /// What is said of each element.
    pub elements: Vec<ElementSpec>,
}

/// What the user says of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementSpec {
    /// It always is this: a number, or `true` or `false`, as it was written.
    Fixed(String),
    /// It is a whole number within a range, or one that the model decides ([`DimSpec::Open`]).
    Size(DimSpec),
}

/// Why a text is no [`ValueSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {why}")]
pub struct ValueError {
    /// The text.
    pub text: String,
    /// What is wrong.
    pub why: String,
}

impl ValueSpec {
    /// Reads `NAME=ELEMENT,ELEMENT,…`; nothing after the `=` is a tensor without elements. An element is a number, a truth
    /// value, a range (`1..8`, or `1..4..8`: min, opt, max) or `?`. Whole values may be given instead:
    /// `1,3,64..1,3,128..1,3,512`.
    ///
    /// # Errors
    /// No `=`, no name, an element that is none of these, a range that runs backwards or starts below 0.
    pub fn parse(text: &str) -> Result<ValueSpec, ValueError> {
        let fail = |why: String| ValueError { text: text.to_owned(), why };
        let (name, list) = text.rsplit_once('=').ok_or_else(|| fail("there is no `=`".into()))?;
        if name.is_empty() {
            return Err(fail("there is no name".into()));
        }
        let elements = elements(list.trim()).map_err(fail)?;
        Ok(ValueSpec { name: name.to_owned(), elements })
    }

    /// Whether the input becomes a constant.
    pub fn is_fixed(&self) -> bool {
        self.elements.iter().all(|element| matches!(element, ElementSpec::Fixed(_)))
    }
}

fn elements(list: &str) -> Result<Vec<ElementSpec>, String> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let whole: Vec<Vec<&str>> = list.split("..").map(|part| part.split(',').collect()).collect();
    if matches!(whole.len(), 2 | 3) && whole[0].len() > 1 && whole.iter().all(|p| p.len() == whole[0].len()) {
        let element = |k: usize| {
            let parts: Vec<i64> = whole.iter().map(|part| number(part[k])).collect::<Result<_, _>>()?;
            ranges::span(&parts, 0).map(|size| match size {
                DimSpec::Fixed(value) => ElementSpec::Fixed(value.to_string()),
                size => ElementSpec::Size(size),
            })
        };
        return (0..whole[0].len()).map(element).collect();
    }
    let element = |text: &str| match text.trim() {
        "?" | "*" => Ok(ElementSpec::Size(DimSpec::Open)),
        text if text.contains("..") => {
            let parts = text.split("..").map(number).collect::<Result<Vec<i64>, String>>()?;
            ranges::range(&parts, 0).map(ElementSpec::Size)
        }
        text if truth(text).is_some() || text.parse::<f64>().is_ok() => {
            Ok(ElementSpec::Fixed(text.to_owned()))
        }
        text => Err(format!("`{text}` is no number")),
    };
    list.split(',').map(element).collect()
}

fn number(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is no whole number"))
}

impl fmt::Display for ElementSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementSpec::Fixed(text) => f.write_str(text),
            ElementSpec::Size(size) => size.fmt(f),
        }
    }
}

impl fmt::Display for ValueSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elements: Vec<String> = self.elements.iter().map(ElementSpec::to_string).collect();
        write!(f, "{}={}", self.name, elements.join(","))
    }
}

fn truth(text: &str) -> Option<bool> {
    text.parse().ok()
}

/// Makes the inputs that the specs name constants, or gives symbols to their elements. The inputs that became constants.
///
/// # Errors
/// A name that is no input, or an input that is named twice; another number of elements than the input has; an element
/// that its dtype does not hold; ranges for anything but integers of rank 0 or 1.
pub fn run(module: &mut Module, specs: &[ValueSpec]) -> Result<Vec<ValueId>, Vec<Diag>> {
    let mut diags = Vec::new();
    let mut pinned: Vec<ValueId> = Vec::new();
    let mut ranged: Vec<ValueId> = Vec::new();
    for spec in specs {
        let result = input(module, spec, &pinned, &ranged).and_then(|id| {
            if spec.is_fixed() {
                let tensor = tensor(module, id, spec)?;
                let rest = module.graph.inputs().iter().copied().filter(|&input| input != id).collect();
                module.graph.set_inputs(rest);
                module.graph.set_constant(id, tensor);
                pinned.push(id);
            } else {
                bound(module, id, spec)?;
                ranged.push(id);
            }
            Ok(())
        });
        if let Err(why) = result {
            diags.push(Diag::invalid(format!("--value {spec}: {why}")));
        }
    }
    if diags.is_empty() { Ok(pinned) } else { Err(diags) }
}

fn input(
    module: &Module,
    spec: &ValueSpec,
    pinned: &[ValueId],
    ranged: &[ValueId],
) -> Result<ValueId, String> {
    let graph = &module.graph;
    let named = |&id: &ValueId| *graph[id].name == *spec.name;
    if pinned.iter().chain(ranged).any(named) {
        return Err("the input is given twice".to_owned());
    }
    graph.inputs().iter().copied().find(named).ok_or_else(|| {
        let names: Vec<&str> = graph.inputs().iter().map(|&id| &*graph[id].name).collect();
        format!("no input has this name; the inputs are {}", names.join(", "))
    })
}

/// Gives symbols to the elements that have ranges.
fn bound(module: &mut Module, id: ValueId, spec: &ValueSpec) -> Result<(), String> {
    let ty = &module.graph[id].ty;
    let dtype = ty.dtype().ok_or("the input has no known dtype")?;
    if !matches!(dtype, DType::I32 | DType::I64) {
        return Err(format!("the elements of an input of {dtype} have no ranges, only those of i32 and i64"));
    }
    let count = spec.elements.len();
    let dims = match ty.shape() {
        Some([]) if count == 1 => Vec::new(),
        Some([dim]) if dim.known().is_none_or(|n| n == count as i64) => vec![Dim::Known(count as i64)],
        None if count <= MAX_ELEMENTS => vec![Dim::Known(count as i64)],
        Some([] | [_]) => {
            return Err(format!("{count} elements for an input of type {}", ty.show(&module.symbols)));
        }
        _ => return Err("only the elements of an input of rank 0 or 1 have ranges".to_owned()),
    };
    if count > MAX_ELEMENTS {
        return Err(format!("ranges are for values of at most {MAX_ELEMENTS} elements"));
    }
    let limit = if dtype == DType::I32 { i64::from(i32::MAX) } else { i64::MAX };
    let mut elements = Vec::with_capacity(count);
    for (k, element) in spec.elements.iter().enumerate() {
        elements.push(match element {
            ElementSpec::Fixed(text) => {
                encoded(dtype, text).ok_or_else(|| format!("`{text}` is no {dtype}"))?;
                Dim::Known(number(text)?)
            }
            ElementSpec::Size(size) => {
                let (range, asked) = match *size {
                    DimSpec::Range { max, .. } if max > limit => return Err(format!("{max} is no {dtype}")),
                    DimSpec::Range { min, opt, max } => (Interval::new(min, max), Some((min, opt, max))),
                    _ => (Interval { min: Some(1), max: None }, None),
                };
                let symbol = module.symbols.fresh(&format!("{}[{k}]", spec.name), range, false);
                if let Some(asked) = asked {
                    module.symbols.set_asked(symbol, asked);
                }
                Dim::symbol(symbol)
            }
        });
    }
    module.graph[id].ty = Type::tensor(dtype, dims);
    module.graph[id].elements = Some(elements);
    Ok(())
}

fn tensor(module: &Module, id: ValueId, spec: &ValueSpec) -> Result<Tensor, String> {
    let ty = &module.graph[id].ty;
    let dtype = ty.dtype().ok_or("the input has no known dtype")?;
    let count = spec.elements.len() as i64;
    let dims: Vec<i64> = match ty.shape() {
        // The one dim that is open is what the elements make it.
        Some([dim]) => vec![dim.known().unwrap_or(count)],
        Some(shape) => {
            let known = shape.iter().map(Dim::known).collect::<Option<Vec<i64>>>();
            known.ok_or("the input's dims are not known before the run")?
        }
        None => vec![count],
    };
    if dims.iter().try_fold(1i64, |n, d| n.checked_mul(*d)) != Some(count) {
        return Err(format!("{count} elements for an input of dims {dims:?}"));
    }
    let mut bytes = Vec::new();
    for element in &spec.elements {
        let text = element.to_string();
        bytes.extend(encoded(dtype, &text).ok_or_else(|| format!("`{text}` is no {dtype}"))?);
    }
    Tensor::new(dtype, dims, bytes.into()).ok_or_else(|| format!("an input of {dtype} cannot be given so"))
}

/// One element, little-endian; `None` when the dtype does not hold it, or has elements of less than a byte.
fn encoded(dtype: DType, text: &str) -> Option<Vec<u8>> {
    macro_rules! whole {
        ($type:ty) => {
            text.parse::<$type>().ok()?.to_le_bytes().to_vec()
        };
    }
    let real = || text.parse::<f64>().ok();
    Some(match dtype {
        DType::Bool => {
            let number = || text.parse::<i64>().ok().filter(|v| matches!(v, 0 | 1)).map(|v| v == 1);
            vec![u8::from(truth(text).or_else(number)?)]
        }
        DType::I8 => whole!(i8),
        DType::I16 => whole!(i16),
        DType::I32 => whole!(i32),
        DType::I64 => whole!(i64),
        DType::U8 => whole!(u8),
        DType::U16 => whole!(u16),
        DType::U32 => whole!(u32),
        DType::U64 => whole!(u64),
        DType::F64 => real()?.to_le_bytes().to_vec(),
        DType::F32 => text.parse::<f32>().ok()?.to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(real()?).to_le_bytes().to_vec(),
        DType::Bf16 => half::bf16::from_f64(real()?).to_le_bytes().to_vec(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{ValueSpec, run};
    use crate::{Module, Type, dim::Dim};
    use trtc_bundle::DType;

    fn module(dtype: DType, shape: &[Dim]) -> Module {
        let mut module = Module::default();
        let k = module.graph.add_input("k", Type::tensor(dtype, shape.to_vec()));
        let x = module.graph.add_input("x", Type::tensor(DType::F32, vec![Dim::Known(2)]));
        module.graph.set_outputs(vec![k, x]);
        module
    }

    fn pinned(dtype: DType, shape: &[Dim], text: &str) -> Result<Vec<f64>, String> {
        let mut module = module(dtype, shape);
        let k = module.graph.inputs()[0];
        let spec = ValueSpec::parse(text).map_err(|error| error.to_string())?;
        run(&mut module, &[spec]).map_err(|diags| diags[0].why.clone())?;
        assert_eq!(module.graph.inputs().len(), 1);
        let constant = module.graph[k].constant.clone().expect("a constant");
        assert_eq!(constant.dtype(), dtype);
        Ok(constant.to_f64s().expect("numbers"))
    }

    #[test]
    fn inputs_become_constants() {
        let known = |n| Dim::Known(n);
        assert_eq!(pinned(DType::I64, &[known(1)], "k=-7").unwrap(), [-7.0]);
        assert_eq!(pinned(DType::I64, &[Dim::Unknown], "k=1, 2,3").unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(pinned(DType::F32, &[], "k=1.5").unwrap(), [1.5]);
        assert_eq!(pinned(DType::F16, &[known(1), known(2)], "k=1e3,-0.5").unwrap(), [1000.0, -0.5]);
        let mut module = module(DType::Bool, &[known(2)]);
        run(&mut module, &[ValueSpec::parse("k=true,0").unwrap()]).unwrap();
        let bytes = module.graph.value_ids().find_map(|id| module.graph[id].constant.clone()).unwrap();
        assert_eq!(bytes.bytes().unwrap()[..], [1, 0]);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let known = |n| Dim::Known(n);
        let why = |dtype, shape: &[Dim], text: &str| pinned(dtype, shape, text).unwrap_err();
        assert!(why(DType::I64, &[known(2)], "k=1").contains("1 elements for an input of dims [2]"));
        assert!(why(DType::I64, &[], "k=1.5").contains("`1.5` is no i64"));
        assert!(why(DType::U8, &[], "k=300").contains("is no u8"));
        assert!(why(DType::I64, &[], "j=1").contains("the inputs are k, x"));
        assert!(why(DType::I64, &[Dim::Unknown, known(1)], "k=1").contains("not known"));
        for text in ["k", "=1", "k=one", "k=1,,2", "k=4..2", "k=-1..2", "k=1..2..3..4", "k=1..x"] {
            assert!(ValueSpec::parse(text).is_err(), "{text}");
        }
        assert_eq!(ValueSpec::parse("a=b=1,2").unwrap().to_string(), "a=b=1,2");
    }

    #[test]
    fn ranges_become_symbols() {
        let known = |n| Dim::Known(n);
        let mut module = module(DType::I64, &[Dim::Unknown]);
        let pinned = run(&mut module, &[ValueSpec::parse("k=-1,3,2..4..9,1..8,?").unwrap()]).unwrap();
        assert!(pinned.is_empty());
        let k = module.graph.inputs()[0];
        assert_eq!(module.graph[k].ty.shape(), Some(&[known(5)][..]));
        let shown: Vec<String> =
            module.graph[k].elements.iter().flatten().map(|dim| module.symbols.show(dim)).collect();
        assert_eq!(shown, ["-1", "3", "k[2]", "k[3]", "k[4]"]);
        let info = |name| module.symbols.info(module.symbols.find(name).unwrap()).unwrap().clone();
        assert_eq!(info("k[2]").asked, Some((2, Some(4), 9)));
        assert_eq!(info("k[3]").asked, Some((1, None, 8)));
        assert_eq!(info("k[4]").asked, None);
        let whole = ValueSpec::parse("k=1,3,64..1,3,128..1,3,512").unwrap();
        assert_eq!(whole.to_string(), "k=1,3,64..128..512");
        assert!(!whole.is_fixed() && ValueSpec::parse("k=1,2..1,2").unwrap().is_fixed());
    }

    #[test]
    fn only_small_integers_have_ranges() {
        let known = |n| Dim::Known(n);
        let why = |dtype, shape: &[Dim], text: &str| pinned(dtype, shape, text).unwrap_err();
        assert!(why(DType::F32, &[], "k=1..2").contains("only those of i32 and i64"));
        assert!(why(DType::I64, &[known(2)], "k=1..2").contains("1 elements for an input of type i64[2]"));
        assert!(why(DType::I64, &[known(1), known(1)], "k=1..2").contains("rank 0 or 1"));
        assert!(why(DType::I32, &[], "k=1..3000000000").contains("is no i32"));
        assert!(why(DType::I64, &[known(2)], "k=1.5,1..2").contains("is no i64"));
        let mut module = module(DType::I64, &[]);
        let specs = ["k=1..2", "k=3"].map(|text| ValueSpec::parse(text).unwrap());
        assert!(run(&mut module, &specs).unwrap_err()[0].why.contains("given twice"));
    }
}

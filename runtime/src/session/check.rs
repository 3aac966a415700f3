//! Inputs against what the manifest promises to take.

use crate::{error::RunError, tensor::TensorView, value::Input};
use std::fmt;
use trtc_bundle::{DType, Dim, Element, Symbol, ValueInfo, ValueKind};

/// What the inputs of a run must be.
#[derive(Debug)]
pub(super) struct InputCheck {
    inputs: Vec<Port>,
    symbols: Vec<SymbolRange>,
}

#[derive(Debug)]
struct Port {
    name: String,
    kind: ValueKind,
    dtype: DType,
    dims: Option<Vec<PortDim>>,
    /// What its elements have to be; dims are known then.
    elements: Option<Vec<PortElement>>,
}

#[derive(Clone, Copy, Debug)]
enum PortElement {
    Known(i64),
    /// An index into [`InputCheck::symbols`].
    Symbol(usize),
    Any,
}

#[derive(Clone, Copy, Debug)]
enum PortDim {
    Known(usize),
    /// An index into [`InputCheck::symbols`].
    Symbol(usize),
    Any,
}

#[derive(Debug)]
struct SymbolRange {
    text: String,
    range: Option<(u64, u64)>,
}

/// What a symbol was in one run, and the input and place that said so first.
pub(super) type Bound = Option<(u64, u16, Place)>;

/// Where an input says what a symbol is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Dim(u16),
    Element(u16),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Dim(axis) => write!(f, "dim {axis}"),
            Place::Element(k) => write!(f, "element {k}"),
        }
    }
}

impl InputCheck {
    pub fn new(inputs: &[ValueInfo], ranges: &[Symbol]) -> InputCheck {
        let mut symbols: Vec<SymbolRange> = Vec::new();
        let mut symbol = |text: &str| {
            symbols.iter().position(|symbol| symbol.text == text).unwrap_or_else(|| {
                let range =
                    ranges.iter().find(|range| range.text == text).map(|range| (range.min, range.max));
                symbols.push(SymbolRange { text: text.to_owned(), range });
                symbols.len() - 1
            })
        };
        let port = |input: &ValueInfo| {
            let dim = |dim: &Dim| match dim {
                // No tensor is so large: nothing can fit.
                Dim::Known(dim) => PortDim::Known(usize::try_from(*dim).unwrap_or(usize::MAX)),
                Dim::Text(text) => PortDim::Symbol(symbol(text)),
                Dim::Unknown => PortDim::Any,
            };
            let dims = input.dims.as_ref().map(|dims| dims.iter().map(dim).collect());
            let element = |element: &Element| match element {
                Element::Known(number) => PortElement::Known(*number),
                Element::Text(text) => PortElement::Symbol(symbol(text)),
                Element::Unknown => PortElement::Any,
            };
            let elements = input.elements.as_ref().map(|list| list.iter().map(element).collect());
            Port { name: input.name.clone(), kind: input.kind, dtype: input.dtype, dims, elements }
        };
        let inputs = inputs.iter().map(port).collect();
        InputCheck { inputs, symbols }
    }

    /// How many symbols there are: the length of `bound`.
    pub fn symbols(&self) -> usize {
        self.symbols.len()
    }

    /// Checks the inputs, in the model's order. `bound` is scratch memory.
    pub fn check(&self, inputs: &[Input<'_>], bound: &mut [Bound]) -> Result<(), RunError> {
        if inputs.len() != self.inputs.len() {
            let (given, expected) = (inputs.len(), self.inputs.len());
            return Err(RunError::Count { what: "inputs", given, expected });
        }
        bound.fill(None);
        for (k, (port, input)) in self.inputs.iter().zip(inputs).enumerate() {
            match (port.kind, input) {
                (ValueKind::Tensor | ValueKind::Optional, Input::Tensor(tensor)) => {
                    self.tensor(k, port, tensor, bound)?
                }
                (ValueKind::Tensor, Input::Value(value)) if port.dtype == DType::Str => match value {
                    crate::Value::Strings(strings) => self.dims(k, port, &strings.dims, bound)?,
                    crate::Value::Opaque(_) => {}
                    other => return Err(kind(port, other.kind_name(), "a tensor of strings")),
                },
                (ValueKind::Tensor, Input::Value(value)) => {
                    return Err(kind(port, value.kind_name(), "a tensor"));
                }
                (ValueKind::Sequence | ValueKind::OptionalSequence, Input::Tensor(_)) => {
                    return Err(kind(port, "a tensor", "a sequence"));
                }
                (ValueKind::Map, Input::Tensor(_)) => return Err(kind(port, "a tensor", "a map")),
                // The host backend looks into these itself.
                _ => {}
            }
        }
        Ok(())
    }

    fn tensor(
        &self,
        k: usize,
        port: &Port,
        tensor: &TensorView<'_>,
        bound: &mut [Bound],
    ) -> Result<(), RunError> {
        if tensor.dtype() != port.dtype {
            let (name, given, expected) = (port.name.clone(), tensor.dtype(), port.dtype);
            return Err(RunError::DType { name, given, expected });
        }
        self.dims(k, port, tensor.dims(), bound)?;
        match &port.elements {
            Some(elements) => self.elements(k, port, elements, tensor, bound),
            None => Ok(()),
        }
    }

    fn elements(
        &self,
        k: usize,
        port: &Port,
        expected: &[PortElement],
        tensor: &TensorView<'_>,
        bound: &mut [Bound],
    ) -> Result<(), RunError> {
        for (at, expected) in expected.iter().enumerate() {
            let Some(value) = integer(tensor, at) else { continue };
            let fail = |expected: String| {
                Err(RunError::Element { name: port.name.clone(), element: at, given: value, expected })
            };
            match *expected {
                PortElement::Known(known) if known != value => return fail(known.to_string()),
                PortElement::Symbol(symbol) => {
                    let SymbolRange { text, range } = &self.symbols[symbol];
                    let (min, max) = range.unwrap_or((0, i64::MAX as u64));
                    let size = u64::try_from(value).ok().filter(|size| (min..=max).contains(size));
                    let Some(size) = size else { return fail(format!("{min}..{max}")) };
                    if let Some((first, other)) =
                        self.bind(symbol, size, (k, Place::Element(at as u16)), bound)
                    {
                        return fail(format!("{first}, which is {other}, also `{text}`,"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes what a symbol is; what it was before and where, when that differs.
    fn bind(
        &self,
        symbol: usize,
        value: u64,
        (input, place): (usize, Place),
        bound: &mut [Bound],
    ) -> Option<(u64, String)> {
        match bound[symbol] {
            Some((first, input, place)) if first != value => {
                Some((first, format!("{place} of `{}`", self.inputs[usize::from(input)].name)))
            }
            Some(_) => None,
            None => {
                bound[symbol] = Some((value, input as u16, place));
                None
            }
        }
    }

    fn dims(&self, k: usize, port: &Port, dims: &[usize], bound: &mut [Bound]) -> Result<(), RunError> {
        let Some(expected) = &port.dims else { return Ok(()) };
        let fail = |why: String| {
            let expected = self.shown(expected);
            Err(RunError::Dims { name: port.name.clone(), given: dims.to_vec(), expected, why })
        };
        if expected.len() != dims.len() {
            return fail(format!("its rank is {}, not {}", dims.len(), expected.len()));
        }
        for (axis, (expected, &dim)) in expected.iter().zip(dims).enumerate() {
            match *expected {
                PortDim::Known(known) if known != dim => {
                    return fail(format!("dim {axis} is {dim}, not {known}"));
                }
                PortDim::Symbol(symbol) => {
                    let SymbolRange { text, range } = &self.symbols[symbol];
                    if let Some((min, max)) = range
                        && !(*min..=*max).contains(&(dim as u64))
                    {
                        return fail(format!("dim {axis}, `{text}`, is {dim}, outside {min}..{max}"));
                    }
                    let place = (k, Place::Dim(axis as u16));
                    if let Some((first, other)) = self.bind(symbol, dim as u64, place, bound) {
                        return fail(format!(
                            "dim {axis}, `{text}`, is {dim}, but {other}, also `{text}`, is {first}"
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn shown(&self, dims: &[PortDim]) -> String {
        let dim = |dim: &PortDim| match *dim {
            PortDim::Known(dim) => dim.to_string(),
            PortDim::Symbol(symbol) => self.symbols[symbol].text.clone(),
            PortDim::Any => "?".into(),
        };
        format!("[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(", "))
    }
}

/// An element of a tensor of i32 or i64.
fn integer(tensor: &TensorView<'_>, at: usize) -> Option<i64> {
    match tensor.dtype() {
        DType::I64 => tensor.bytes().as_chunks().0.get(at).map(|bytes| i64::from_le_bytes(*bytes)),
        DType::I32 => tensor.bytes().as_chunks().0.get(at).map(|bytes| i32::from_le_bytes(*bytes).into()),
        _ => None,
    }
}

fn kind(port: &Port, given: &'static str, expected: &'static str) -> RunError {
    RunError::Kind { name: port.name.clone(), given, expected }
}

#[cfg(test)]
mod tests {
    use super::InputCheck;
    use crate::{Input, Tensor};
    use trtc_bundle::{DType, Dim, Element, Symbol, ValueInfo};

    #[test]
    fn elements_are_checked_like_dims() {
        let text = |text: &str| Dim::Text(text.into());
        let sizes = ValueInfo::tensor("sizes", DType::I64, Some(vec![Dim::Known(3)])).with_elements(vec![
            Element::Known(-1),
            Element::Text("N".into()),
            Element::Unknown,
        ]);
        let inputs = [ValueInfo::tensor("x", DType::F32, Some(vec![text("N")])), sizes];
        let check = InputCheck::new(&inputs, &[Symbol::new("N", 0, 2, 4)]);
        let said = |n: usize, sizes: [i64; 3]| {
            let (x, sizes) =
                (Tensor::zeros(DType::F32, &[n]).unwrap(), Tensor::from_slice(&[3], &sizes).unwrap());
            let inputs = [Input::Tensor(x.view()), Input::Tensor(sizes.view())];
            let mut bound = vec![None; check.symbols()];
            check.check(&inputs, &mut bound).map_err(|error| error.to_string())
        };
        assert_eq!(said(4, [-1, 4, 77]), Ok(()));
        assert_eq!(said(0, [-1, 0, 77]), Ok(()));
        let why = |n: usize, sizes: [i64; 3]| said(n, sizes).unwrap_err();
        assert_eq!(why(2, [1, 2, 0]), "input `sizes` has 1 as element 0, but -1 is wanted");
        assert_eq!(why(2, [-1, 5, 0]), "input `sizes` has 5 as element 1, but 0..4 is wanted");
        assert_eq!(why(2, [-1, -2, 0]), "input `sizes` has -2 as element 1, but 0..4 is wanted");
        let other = why(2, [-1, 3, 0]);
        assert!(other.contains("but 2, which is dim 0 of `x`, also `N`, is wanted"), "{other}");
        assert!(why(5, [-1, 5, 0]).contains("is 5, outside 0..4"));
    }
}

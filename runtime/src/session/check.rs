//! Inputs against what the manifest promises to take.

use crate::{error::RunError, tensor::TensorView, value::Input};
use trtc_bundle::{DType, Dim, Symbol, ValueInfo, ValueKind};

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

/// What a symbol was in one run, and the input and axis that said so first.
pub(super) type Bound = Option<(usize, u16, u16)>;

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
        let mut dim = |dim: &Dim| match dim {
            // No tensor is so large: nothing can fit.
            Dim::Known(dim) => PortDim::Known(usize::try_from(*dim).unwrap_or(usize::MAX)),
            Dim::Text(text) => PortDim::Symbol(symbol(text)),
            Dim::Unknown => PortDim::Any,
        };
        let port = |input: &ValueInfo| Port {
            name: input.name.clone(),
            kind: input.kind,
            dtype: input.dtype,
            dims: input.dims.as_ref().map(|dims| dims.iter().map(&mut dim).collect()),
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
        self.dims(k, port, tensor.dims(), bound)
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
                    match bound[symbol] {
                        Some((first, input, axis_before)) if first != dim => {
                            let other = &self.inputs[usize::from(input)].name;
                            return fail(format!(
                                "dim {axis}, `{text}`, is {dim}, but dim {axis_before} of `{other}`, also `{text}`, is {first}"
                            ));
                        }
                        Some(_) => {}
                        None => bound[symbol] = Some((dim, k as u16, axis as u16)),
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

fn kind(port: &Port, given: &'static str, expected: &'static str) -> RunError {
    RunError::Kind { name: port.name.clone(), given, expected }
}

//! Sizes that the model declares, compared with what the inputs of a run give.

use crate::{
    error::RunError,
    host::{HostGraph, HostOutput},
    tensor::TensorView,
    value::{Input, Value},
};
use smallvec::SmallVec;
use std::sync::Arc;
use trtc_bundle::{DType, Declared, DeclaredValue, Dim, ValueInfo};

/// Most elements of an input that an error shows.
const SHOWN: usize = 16;

/// What is compared before each run.
pub(super) struct SizeCheck {
    graph: Arc<dyn HostGraph>,
    /// The model's input for each of the graph's.
    inputs: Vec<usize>,
    values: Vec<DeclaredValue>,
    names: Vec<String>,
}

impl SizeCheck {
    /// `ports` are the model's inputs.
    pub fn new(
        graph: Arc<dyn HostGraph>,
        declared: &Declared,
        ports: &[ValueInfo],
    ) -> Result<SizeCheck, RunError> {
        let place = |input: &ValueInfo| {
            let place = ports.iter().position(|port| port.name == input.name);
            place.ok_or_else(|| {
                RunError::Plan(format!("declared sizes follow from `{}`, which is no input", input.name))
            })
        };
        let inputs = graph.inputs().iter().map(place).collect::<Result<_, _>>()?;
        if graph.outputs().len() != declared.values.len() {
            return Err(RunError::Plan("not as many sizes as are declared".into()));
        }
        let names = ports.iter().map(|port| port.name.clone()).collect();
        Ok(SizeCheck { graph, inputs, values: declared.values.clone(), names })
    }

    /// Compares. `inputs` stand in the model's order.
    pub fn check(&self, inputs: &[Input<'_>]) -> Result<(), RunError> {
        let given: SmallVec<[Input<'_>; 16]> = self.inputs.iter().map(|&k| inputs[k]).collect();
        let mut outputs: SmallVec<[HostOutput<'_>; 16]> =
            self.values.iter().map(|_| HostOutput::New(Value::Nothing)).collect();
        self.graph
            .run(&given, &mut outputs)
            .map_err(|source| RunError::Segment { segment: "sizes".into(), source })?;
        for (value, output) in self.values.iter().zip(&outputs) {
            let HostOutput::New(Value::Tensor(tensor)) = output else { continue };
            let dims = tensor.as_slice::<i64>().unwrap_or_default();
            let fits = |(wanted, dim): (&Dim, &i64)| match wanted {
                Dim::Known(wanted) => i64::try_from(*wanted) == Ok(*dim),
                _ => true,
            };
            if dims.len() != value.dims.len() || !value.dims.iter().zip(dims).all(fits) {
                let declared: Vec<String> = value.dims.iter().map(ToString::to_string).collect();
                return Err(RunError::Declared {
                    value: value.name.clone(),
                    declared: format!("[{}]", declared.join(", ")),
                    because: self.because(value, inputs),
                    given: dims.to_vec(),
                });
            }
        }
        Ok(())
    }

    fn because(&self, value: &DeclaredValue, inputs: &[Input<'_>]) -> String {
        let shown = value.inputs.iter().filter_map(|name| {
            let at = self.names.iter().position(|known| known == name)?;
            let tensor = match inputs.get(at)? {
                Input::Tensor(tensor) => *tensor,
                Input::Value(value) => value.as_tensor()?.view(),
            };
            Some(format!("`{name}` = {}", numbers(&tensor)?))
        });
        let shown: Vec<String> = shown.collect();
        if shown.is_empty() { "with these inputs".into() } else { format!("with {}", shown.join(", ")) }
    }
}

/// A few integers as text.
fn numbers(tensor: &TensorView<'_>) -> Option<String> {
    let numbers: Vec<i64> = match tensor.dtype() {
        DType::I64 => tensor.as_slice::<i64>()?.to_vec(),
        DType::I32 => tensor.as_slice::<i32>()?.iter().map(|&v| v.into()).collect(),
        _ => return None,
    };
    (numbers.len() <= SHOWN).then(|| format!("{numbers:?}"))
}

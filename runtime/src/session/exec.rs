//! Running a program.

use super::program::{Body, Op, Place, Program, Runnable};
use crate::{
    error::RunError,
    host::{HostError, HostGraph, HostOutput},
    tensor::{AlignedBytes, Tensor, TensorView},
    value::{Input, Value},
};
use smallvec::SmallVec;
use std::{sync::atomic::Ordering::Relaxed, time::Instant};

/// Most segments have fewer inputs and outputs than this; their lists need no heap.
const FEW: usize = 16;

/// What one run works on.
pub(super) struct Frame<'r> {
    /// In the model's order.
    pub inputs: &'r [Input<'r>],
    /// In the model's order; tensors of the right type and dims are written in place.
    pub outputs: &'r mut [Value],
    pub arena: &'r mut AlignedBytes,
    /// By slot.
    pub values: &'r mut [Value],
    pub timing: bool,
}

impl Program {
    pub fn run(&self, frame: &mut Frame<'_>) -> Result<(), RunError> {
        self.steps(&self.steps, frame)?;
        for (k, &slot) in self.outputs.iter().enumerate() {
            if !matches!(self.slots[slot].place, Place::Output(there) if there == k) {
                frame.outputs[k] = self.value(slot, frame).into_read()?;
            }
        }
        Ok(())
    }

    fn steps(&self, steps: &[Op], frame: &mut Frame<'_>) -> Result<(), RunError> {
        for step in steps {
            match step {
                Op::Run { segment, drop, .. } => {
                    let segment = &self.segments[*segment];
                    let start = frame.timing.then(Instant::now);
                    self.segment(segment, frame)?;
                    if let Some(start) = start {
                        segment.runs.fetch_add(1, Relaxed);
                        segment.nanos.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
                    }
                    for &slot in drop {
                        frame.values[slot] = Value::Nothing;
                    }
                }
                Op::If { condition, then_block, else_block, outputs } => {
                    let block = if self.flag(*condition, frame)? { then_block } else { else_block };
                    let results = self.body(block, frame)?;
                    for (&slot, value) in outputs.iter().zip(results) {
                        frame.values[slot] = value;
                    }
                }
                Op::Loop { .. } => self.turns(step, frame)?,
            }
        }
        Ok(())
    }

    fn segment(&self, segment: &Runnable, frame: &mut Frame<'_>) -> Result<(), RunError> {
        let Some(graph) = &segment.graph else { return Ok(()) };
        // Model outputs are taken out for the time of the run, so that they can be written while others are read.
        let mut taken: SmallVec<[Tensor; FEW]> = SmallVec::new();
        for &slot in &segment.outputs {
            let slot = &self.slots[slot];
            if let Place::Output(k) = slot.place {
                taken.push(match std::mem::take(&mut frame.outputs[k]) {
                    Value::Tensor(tensor) if tensor.is_free_for(slot.dtype, &slot.dims) => tensor,
                    _ => Tensor::zeros(slot.dtype, &slot.dims)?,
                });
            }
        }
        let mut pieces = Pieces::cut(self, segment, frame.arena.bytes_mut());
        let mut writes: SmallVec<[Option<&mut [u8]>; FEW]> =
            segment.outputs.iter().map(|slot| pieces.take(segment, *slot)).collect();
        let pieces = pieces.read();
        let input = |&slot: &usize| match &self.slots[slot].place {
            Place::Input(k) => frame.inputs[*k],
            Place::Constant(value) => Input::from(value),
            Place::Output(k) => Input::from(&frame.outputs[*k]),
            Place::Free => Input::from(&frame.values[slot]),
            Place::Arena(_) => {
                let slot_info = &self.slots[slot];
                Input::Tensor(TensorView::new(slot_info.dtype, &slot_info.dims, pieces.get(segment, slot)))
            }
        };
        let inputs: SmallVec<[Input<'_>; FEW]> = segment.inputs.iter().map(input).collect();
        let surprising = segment.surprising.load(Relaxed);
        let mut in_place = taken.iter_mut();
        let outputs = segment.outputs.iter().zip(&mut writes).map(|(&slot, write)| {
            let slot = &self.slots[slot];
            let (dims, bytes) = match (&slot.place, write.take()) {
                (Place::Output(_), _) if surprising => return None,
                (Place::Output(_), _) => in_place.next()?.parts_mut(),
                (_, Some(bytes)) => (&slot.dims[..], bytes),
                _ => return None,
            };
            Some(HostOutput::Into { dtype: slot.dtype, dims, bytes })
        });
        let mut outputs: SmallVec<[HostOutput<'_>; FEW]> =
            outputs.map(|output| output.unwrap_or(HostOutput::New(Value::Nothing))).collect();
        let mut result = graph.run(&inputs, &mut outputs);
        if matches!(result, Err(HostError::Run(_))) && self.run_anew(segment, &**graph, &inputs, &mut outputs)
        {
            segment.surprising.store(true, Relaxed);
            result = Ok(());
        }
        result.map_err(|source| RunError::Segment { segment: segment.id.clone(), source })?;
        let made: SmallVec<[Option<Value>; FEW]> = outputs
            .into_iter()
            .map(|output| if let HostOutput::New(value) = output { Some(value) } else { None })
            .collect();
        drop(inputs);
        let mut taken = taken.into_iter();
        for (&slot, made) in segment.outputs.iter().zip(made) {
            match (&self.slots[slot].place, made) {
                (Place::Output(k), made) => {
                    let tensor = taken.next().map(Value::Tensor);
                    if let Some(value) = made.or(tensor) {
                        frame.outputs[*k] = value;
                    }
                }
                (_, Some(value)) => frame.values[slot] = value,
                _ => {}
            }
        }
        Ok(())
    }

    /// Runs a segment whose outputs did not fit the memory that they were given: a model may say wrong sizes of its
    /// outputs, and ONNX Runtime itself only warns of it. `false` when that was not what was wrong.
    fn run_anew(
        &self,
        segment: &Runnable,
        graph: &dyn HostGraph,
        inputs: &[Input<'_>],
        outputs: &mut [HostOutput<'_>],
    ) -> bool {
        let mut made: SmallVec<[HostOutput<'_>; FEW]> =
            outputs.iter().map(|_| HostOutput::New(Value::Nothing)).collect();
        let into = |output: &HostOutput<'_>| matches!(output, HostOutput::Into { .. });
        if !outputs.iter().any(into) || graph.run(inputs, &mut made).is_err() {
            return false;
        }
        for ((output, made), &slot) in outputs.iter_mut().zip(made).zip(&segment.outputs) {
            let HostOutput::New(value) = made else { continue };
            match (&mut *output, value.as_tensor()) {
                (HostOutput::Into { dtype, dims, bytes }, Some(tensor))
                    if tensor.dtype() == *dtype && tensor.dims() == *dims =>
                {
                    bytes.copy_from_slice(tensor.bytes());
                }
                (HostOutput::Into { .. }, _) if !matches!(self.slots[slot].place, Place::Output(_)) => {
                    return false;
                }
                _ => *output = HostOutput::New(value),
            }
        }
        true
    }

    fn body(&self, body: &Body, frame: &mut Frame<'_>) -> Result<Vec<Value>, RunError> {
        self.steps(&body.steps, frame)?;
        Ok(body.outputs.iter().map(|&slot| self.value(slot, frame)).collect())
    }

    fn turns(&self, step: &Op, frame: &mut Frame<'_>) -> Result<(), RunError> {
        let Op::Loop { trip_count, condition, initial, inputs, body, outputs } = step else { return Ok(()) };
        let trips = trip_count.map(|slot| self.number(slot, frame)).transpose()?;
        let mut go_on = condition.map(|slot| self.flag(slot, frame)).transpose()?.unwrap_or(true);
        let mut carried: Vec<Value> = initial.iter().map(|&slot| self.value(slot, frame)).collect();
        let scans = outputs.len().saturating_sub(carried.len());
        let mut slices: Vec<Vec<Value>> = vec![Vec::new(); scans];
        let mut turn = 0i64;
        while go_on && trips.is_none_or(|trips| turn < trips) {
            let head = [Tensor::from_slice(&[], &[turn])?, Tensor::from_bools(&[], &[true])?];
            let values = head.into_iter().map(Value::Tensor).chain(carried);
            for (&slot, value) in inputs.iter().zip(values) {
                frame.values[slot] = value;
            }
            let mut results = self.body(body, frame)?.into_iter();
            let flag = results.next().unwrap_or_default();
            go_on = bool_of(&flag).ok_or_else(|| self.wrong(body.outputs[0], "one bool"))?;
            carried = results.by_ref().take(initial.len()).collect();
            for (slices, value) in slices.iter_mut().zip(results) {
                slices.push(value);
            }
            turn += 1;
        }
        for (&slot, slices) in outputs.iter().skip(carried.len()).zip(slices) {
            frame.values[slot] = self.stack(slot, slices)?;
        }
        for (&slot, value) in outputs.iter().zip(carried) {
            frame.values[slot] = value;
        }
        Ok(())
    }

    /// Slices of one scan output, one behind the other.
    fn stack(&self, slot: usize, slices: Vec<Value>) -> Result<Value, RunError> {
        let wrong = || self.wrong(slot, "made of tensors of one type and one shape");
        let tensors: Vec<&Tensor> = slices.iter().filter_map(Value::as_tensor).collect();
        if tensors.len() != slices.len() {
            return Err(wrong());
        }
        let Some(first) = tensors.first() else {
            return Ok(Value::Tensor(Tensor::zeros(self.slots[slot].dtype, &self.slots[slot].none)?));
        };
        let same = |tensor: &&Tensor| tensor.dtype() == first.dtype() && tensor.dims() == first.dims();
        // Parts of a byte cannot be put one behind the other.
        if !tensors.iter().all(same) || first.dtype().bits() % 8 != 0 {
            return Err(wrong());
        }
        let dims: Vec<usize> = std::iter::once(tensors.len()).chain(first.dims().iter().copied()).collect();
        let bytes: Vec<u8> = tensors.iter().flat_map(|tensor| tensor.bytes()).copied().collect();
        Ok(Value::Tensor(Tensor::from_bytes(first.dtype(), &dims, &bytes)?))
    }

    /// What a slot holds; cheap unless it is memory of the caller.
    fn value(&self, slot: usize, frame: &Frame<'_>) -> Value {
        let info = &self.slots[slot];
        match &info.place {
            Place::Input(k) => frame.inputs[*k].to_value(),
            Place::Constant(value) => value.clone(),
            Place::Output(k) => frame.outputs[*k].clone(),
            Place::Free => frame.values[slot].clone(),
            Place::Arena(range) => {
                let bytes = &frame.arena.bytes()[range.clone()];
                Value::Tensor(TensorView::new(info.dtype, &info.dims, bytes).to_tensor())
            }
        }
    }

    fn flag(&self, slot: usize, frame: &Frame<'_>) -> Result<bool, RunError> {
        bool_of(&self.value(slot, frame)).ok_or_else(|| self.wrong(slot, "one bool"))
    }

    fn number(&self, slot: usize, frame: &Frame<'_>) -> Result<i64, RunError> {
        let value = self.value(slot, frame);
        let number = value.as_tensor().and_then(Tensor::as_slice::<i64>);
        match number {
            Some(&[number]) => Ok(number),
            _ => Err(self.wrong(slot, "one i64")),
        }
    }

    fn wrong(&self, slot: usize, expected: &'static str) -> RunError {
        RunError::ControlFlow { value: self.slots[slot].name.clone(), expected }
    }
}

fn bool_of(value: &Value) -> Option<bool> {
    let tensor = value.as_tensor().filter(|tensor| tensor.dtype() == trtc_bundle::DType::Bool)?;
    match tensor.bytes() {
        [byte] => Some(*byte != 0),
        _ => None,
    }
}

/// The ranges of the arena that one segment uses, cut out so that some can be written while others are read. They stand in
/// the order of [`Runnable::pieces`].
struct Pieces<'a>(SmallVec<[Option<&'a mut [u8]>; FEW]>);

struct ReadPieces<'a>(SmallVec<[&'a [u8]; FEW]>);

impl<'a> Pieces<'a> {
    fn cut(program: &Program, segment: &Runnable, arena: &'a mut [u8]) -> Pieces<'a> {
        let (mut rest, mut at) = (arena, 0);
        let mut pieces = SmallVec::new();
        for &slot in &segment.pieces {
            let Place::Arena(range) = &program.slots[slot].place else { continue };
            let (piece, tail) = rest.split_at_mut(range.start - at).1.split_at_mut(range.len());
            (rest, at) = (tail, range.end);
            pieces.push(Some(piece));
        }
        Pieces(pieces)
    }

    fn take(&mut self, segment: &Runnable, slot: usize) -> Option<&'a mut [u8]> {
        let k = segment.pieces.iter().position(|&piece| piece == slot)?;
        self.0[k].take()
    }

    fn read(self) -> ReadPieces<'a> {
        ReadPieces(self.0.into_iter().map(|piece| piece.map_or(&[][..], |piece| &*piece)).collect())
    }
}

impl<'a> ReadPieces<'a> {
    fn get(&self, segment: &Runnable, slot: usize) -> &'a [u8] {
        let k = segment.pieces.iter().position(|&piece| piece == slot);
        k.and_then(|k| self.0.get(k)).copied().unwrap_or(&[])
    }
}

//! Running a program.

use super::program::{Op, Place, Program, Runnable};
use crate::{
    error::RunError,
    host::{HostError, HostGraph, HostOutput},
    tensor::{AlignedBytes, Tensor, TensorView},
    value::{Input, Value},
};
use smallvec::SmallVec;
use std::{sync::atomic::Ordering::Relaxed, time::Instant};

/// Most segments have fewer inputs and outputs than this; their lists need no heap.
pub(super) const FEW: usize = 16;

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
            match self.slots[slot].place {
                Place::Output(there) if there == k => {}
                // The caller's memory is written by the next run.
                Place::Kept if !self.outputs[k + 1..].contains(&slot) => {
                    std::mem::swap(&mut frame.outputs[k], &mut frame.values[slot]);
                }
                _ => frame.outputs[k] = self.value(slot, frame).into_read()?,
            }
        }
        Ok(())
    }

    /// Forgets what must not outlive a run: all but memory of ours that the next run writes again.
    pub fn clear(&self, values: &mut [Value]) {
        for (value, slot) in values.iter_mut().zip(&self.slots) {
            let again = matches!((&*value, &slot.place), (Value::Tensor(tensor), Place::Kept)
                if tensor.is_free_for(slot.dtype, &slot.dims));
            if !again {
                *value = Value::Nothing;
            }
        }
    }

    pub(super) fn steps(&self, steps: &[Op], frame: &mut Frame<'_>) -> Result<(), RunError> {
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
                    self.steps(&block.steps, frame)?;
                    self.hand_on(&block.outputs, outputs, frame);
                }
                Op::Loop(turns) => self.turns(turns, frame)?,
                Op::Scan { .. } => self.scan(step, frame)?,
            }
        }
        Ok(())
    }

    fn segment(&self, segment: &Runnable, frame: &mut Frame<'_>) -> Result<(), RunError> {
        let Some(graph) = &segment.graph else { return Ok(()) };
        // Tensors are taken out for the time of the run, so that they can be written while others are read.
        let mut taken: SmallVec<[Tensor; FEW]> = SmallVec::new();
        for &slot in &segment.outputs {
            let value = match self.slots[slot].place {
                Place::Output(k) => std::mem::take(&mut frame.outputs[k]),
                Place::Kept => std::mem::take(&mut frame.values[slot]),
                _ => continue,
            };
            taken.push(self.writable(slot, value)?);
        }
        let mut pieces = Pieces::cut(self, segment, frame.arena.bytes_mut());
        let mut writes: SmallVec<[Option<&mut [u8]>; FEW]> =
            segment.outputs.iter().map(|slot| pieces.take(segment, *slot)).collect();
        let pieces = pieces.read();
        let input = |&slot: &usize| match &self.slots[slot].place {
            Place::Input(k) => frame.inputs[*k],
            Place::Constant(value) => Input::from(value),
            Place::Output(k) => Input::from(&frame.outputs[*k]),
            Place::Free | Place::Kept => Input::from(&frame.values[slot]),
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
                (Place::Output(_) | Place::Kept, _) if surprising => return None,
                (Place::Output(_) | Place::Kept, _) => in_place.next()?.parts_mut(),
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
                (Place::Output(_) | Place::Kept, made) => {
                    let tensor = taken.next().map(Value::Tensor);
                    let value = made.or(tensor).unwrap_or_default();
                    match self.slots[slot].place {
                        Place::Output(k) => frame.outputs[k] = value,
                        _ => frame.values[slot] = value,
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
                (HostOutput::Into { .. }, _)
                    if !matches!(self.slots[slot].place, Place::Output(_) | Place::Kept) =>
                {
                    return false;
                }
                _ => *output = HostOutput::New(value),
            }
        }
        true
    }

    /// A tensor of a slot's type to write into: `value` if it is one that nobody else reads.
    pub(super) fn writable(&self, slot: usize, value: Value) -> Result<Tensor, RunError> {
        let slot = &self.slots[slot];
        match value {
            Value::Tensor(tensor) if tensor.is_free_for(slot.dtype, &slot.dims) => Ok(tensor),
            _ => Ok(Tensor::zeros(slot.dtype, &slot.dims)?),
        }
    }

    /// What a slot holds; cheap unless it is memory of the caller.
    pub(super) fn value(&self, slot: usize, frame: &Frame<'_>) -> Value {
        match &self.slots[slot].place {
            Place::Input(k) => frame.inputs[*k].to_value(),
            Place::Constant(value) => value.clone(),
            Place::Output(k) => frame.outputs[*k].clone(),
            Place::Free | Place::Kept => frame.values[slot].clone(),
            Place::Arena(_) => {
                self.tensor(slot, frame).map_or(Value::Nothing, |t| Value::Tensor(t.to_tensor()))
            }
        }
    }

    /// The tensor that a slot holds, in place; `None` when it holds something else.
    pub(super) fn tensor<'f>(&'f self, slot: usize, frame: &'f Frame<'_>) -> Option<TensorView<'f>> {
        let info = &self.slots[slot];
        let value = match &info.place {
            Place::Input(k) => match &frame.inputs[*k] {
                Input::Tensor(tensor) => return Some(*tensor),
                Input::Value(value) => value,
            },
            Place::Constant(value) => value,
            Place::Output(k) => &frame.outputs[*k],
            Place::Free | Place::Kept => &frame.values[slot],
            Place::Arena(range) => {
                return Some(TensorView::new(info.dtype, &info.dims, &frame.arena.bytes()[range.clone()]));
            }
        };
        value.as_tensor().map(Tensor::view)
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

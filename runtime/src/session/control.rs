//! Control flow: branches, loops, scans.
//!
//! What a body reads from outside it reads in place. What it hands on changes places with what it replaces: the memory of
//! a loop's state is read in one turn and written in the next, so a loop allocates nothing from turn to turn as long as
//! its shapes are known.

use super::{
    exec::{FEW, Frame},
    program::{Axis, Leaving, Op, Place, Program, Turns},
};
use crate::{
    error::RunError,
    tensor::{Element, Tensor, TensorView},
    value::Value,
};
use smallvec::SmallVec;
use trtc_bundle::DType;

impl Program {
    /// Moves what leaves a body to where it goes. All of it is taken before any is put down: a body may hand out what it
    /// was given, in another order.
    pub(super) fn hand_on(&self, from: &[Leaving], to: &[usize], frame: &mut Frame<'_>) {
        let take = |leaving: &Leaving| match self.slots[leaving.slot].place {
            Place::Free | Place::Kept if leaving.own => std::mem::take(&mut frame.values[leaving.slot]),
            _ => self.value(leaving.slot, frame),
        };
        let values: SmallVec<[Value; FEW]> = from.iter().map(take).collect();
        for ((value, leaving), &slot) in values.into_iter().zip(from).zip(to) {
            let before = std::mem::replace(&mut frame.values[slot], value);
            let both_kept = matches!(self.slots[leaving.slot].place, Place::Kept)
                && matches!(self.slots[slot].place, Place::Kept);
            if leaving.own && both_kept {
                frame.values[leaving.slot] = before;
            }
        }
    }

    /// What a state is at first: copied to where the loop keeps it, or shared when it cannot be kept.
    fn begin(&self, initial: &[usize], states: &[usize], frame: &mut Frame<'_>) -> Result<(), RunError> {
        for (&from, &to) in initial.iter().zip(states) {
            let info = &self.slots[to];
            let same = |tensor: &TensorView<'_>| tensor.dtype() == info.dtype && tensor.dims() == info.dims;
            if matches!(info.place, Place::Kept) && self.tensor(from, frame).as_ref().is_some_and(same) {
                let mut kept = self.writable(to, std::mem::take(&mut frame.values[to]))?;
                if let Some(tensor) = self.tensor(from, frame) {
                    kept.bytes_mut().copy_from_slice(tensor.bytes());
                }
                frame.values[to] = Value::Tensor(kept);
            } else {
                frame.values[to] = self.value(from, frame);
            }
        }
        Ok(())
    }

    /// Writes a scalar of our own making.
    fn set_scalar(
        &self,
        slot: usize,
        dtype: DType,
        bytes: &[u8],
        frame: &mut Frame<'_>,
    ) -> Result<(), RunError> {
        let tensor = match std::mem::take(&mut frame.values[slot]) {
            Value::Tensor(mut tensor)
                if tensor.is_free_for(dtype, &self.slots[slot].dims)
                    && tensor.bytes().len() == bytes.len() =>
            {
                tensor.bytes_mut().copy_from_slice(bytes);
                tensor
            }
            _ => Tensor::from_bytes(dtype, &self.slots[slot].dims, bytes)?,
        };
        frame.values[slot] = Value::Tensor(tensor);
        Ok(())
    }

    pub(super) fn turns(&self, turns: &Turns, frame: &mut Frame<'_>) -> Result<(), RunError> {
        let Turns { trip_count, condition, initial, inputs, body, outputs } = turns;
        let trips = trip_count.map(|slot| self.number(slot, frame)).transpose()?;
        let mut go_on = condition.map(|slot| self.flag(slot, frame)).transpose()?.unwrap_or(true);
        let (&[number, flag], states) = inputs.split_first_chunk::<2>().ok_or_else(|| {
            RunError::Plan("a loop whose body has neither turn number nor condition".to_owned())
        })?;
        self.begin(initial, states, frame)?;
        let mut stacks: SmallVec<[Stack; 4]> =
            outputs.iter().skip(states.len()).map(|&slot| Stack::new(slot)).collect();
        let mut turn = 0i64;
        while go_on && trips.is_none_or(|trips| turn < trips) {
            self.set_scalar(number, DType::I64, &turn.to_le_bytes(), frame)?;
            self.set_scalar(flag, DType::Bool, &[1], frame)?;
            self.steps(&body.steps, frame)?;
            let Some((condition, rest)) = body.outputs.split_first() else { break };
            go_on = self.flag(condition.slot, frame)?;
            let (next, parts) = rest.split_at(states.len().min(rest.len()));
            for (stack, part) in stacks.iter_mut().zip(parts) {
                stack.push(self, part.slot, frame)?;
            }
            self.hand_on(next, states, frame);
            turn += 1;
        }
        self.end(states, outputs, frame);
        for stack in stacks {
            let slot = stack.slot;
            frame.values[slot] = Value::Tensor(stack.finish(self)?);
        }
        Ok(())
    }

    /// Hands on what the states are in the end.
    fn end(&self, states: &[usize], outputs: &[usize], frame: &mut Frame<'_>) {
        let leaving: SmallVec<[Leaving; FEW]> =
            states.iter().map(|&slot| Leaving { slot, own: true }).collect();
        self.hand_on(&leaving, &outputs[..states.len().min(outputs.len())], frame);
    }

    pub(super) fn scan(&self, step: &Op, frame: &mut Frame<'_>) -> Result<(), RunError> {
        let Op::Scan { initial, scanned, inputs, body, outputs, stacked } = step else { return Ok(()) };
        let (states, parts) = inputs.split_at(initial.len().min(inputs.len()));
        self.begin(initial, states, frame)?;
        let mut length = None;
        for axis in scanned {
            let dim = self.tensor(axis.slot, frame).and_then(|x| x.dims().get(axis.axis).copied());
            let dim = dim.ok_or_else(|| self.wrong(axis.slot, "a tensor that has the scanned axis"))?;
            if length.replace(dim).is_some_and(|before| before != dim) {
                return Err(self.wrong(axis.slot, "as long as the other tensors that are scanned"));
            }
        }
        let length = length.unwrap_or(0);
        let mut results: SmallVec<[Option<Tensor>; 4]> = stacked.iter().map(|_| None).collect();
        for turn in 0..length {
            for (axis, &slot) in scanned.iter().zip(parts) {
                self.take_apart(axis, turn, slot, frame)?;
            }
            self.steps(&body.steps, frame)?;
            let (next, made) = body.outputs.split_at(states.len().min(body.outputs.len()));
            for ((axis, part), result) in stacked.iter().zip(made).zip(&mut results) {
                self.put_together(axis, turn, length, part.slot, result, frame)?;
            }
            self.hand_on(next, states, frame);
        }
        self.end(states, outputs, frame);
        for (axis, result) in stacked.iter().zip(results) {
            frame.values[axis.slot] = Value::Tensor(match result {
                Some(tensor) => tensor,
                None => Tensor::zeros(self.slots[axis.slot].dtype, &self.slots[axis.slot].none)?,
            });
        }
        Ok(())
    }

    /// Part `turn` of a tensor, without its axis.
    fn take_apart(&self, axis: &Axis, turn: usize, to: usize, frame: &mut Frame<'_>) -> Result<(), RunError> {
        let before = std::mem::take(&mut frame.values[to]);
        let wrong = || self.wrong(axis.slot, "a tensor of whole bytes");
        let x = self.tensor(axis.slot, frame).filter(|x| x.dtype().bits() % 8 == 0).ok_or_else(wrong)?;
        let mut dims: SmallVec<[usize; 8]> = x.dims().into();
        let length = dims.remove(axis.axis);
        let mut part = match before {
            Value::Tensor(tensor) if tensor.is_free_for(x.dtype(), &dims) => tensor,
            _ => Tensor::zeros(x.dtype(), &dims)?,
        };
        let at = if axis.reverse { length - 1 - turn } else { turn };
        let chunk = dims[axis.axis..].iter().product::<usize>() * x.dtype().bits() / 8;
        if chunk > 0 {
            let rows = x.bytes().chunks_exact(chunk * length);
            for (to, row) in part.bytes_mut().chunks_exact_mut(chunk).zip(rows) {
                to.copy_from_slice(&row[at * chunk..(at + 1) * chunk]);
            }
        }
        frame.values[to] = Value::Tensor(part);
        Ok(())
    }

    fn put_together(
        &self,
        axis: &Axis,
        turn: usize,
        length: usize,
        part: usize,
        result: &mut Option<Tensor>,
        frame: &mut Frame<'_>,
    ) -> Result<(), RunError> {
        let wrong = || self.wrong(axis.slot, "made of tensors of one type and one shape");
        let free = std::mem::take(&mut frame.values[axis.slot]);
        let part = self.tensor(part, frame).filter(|part| part.dtype().bits() % 8 == 0).ok_or_else(wrong)?;
        let mut dims: SmallVec<[usize; 8]> = part.dims().into();
        if axis.axis > dims.len() {
            return Err(wrong());
        }
        dims.insert(axis.axis, length);
        let mut whole = match (result.take(), free) {
            (Some(whole), _) if whole.dtype() == part.dtype() && whole.dims() == &dims[..] => whole,
            (Some(_), _) => return Err(wrong()),
            (None, Value::Tensor(free)) if free.is_free_for(part.dtype(), &dims) => free,
            (None, _) => Tensor::zeros(part.dtype(), &dims)?,
        };
        let at = if axis.reverse { length - 1 - turn } else { turn };
        let chunk = part.dims()[axis.axis..].iter().product::<usize>() * part.dtype().bits() / 8;
        if chunk > 0 {
            let rows = whole.bytes_mut().chunks_exact_mut(chunk * length);
            for (row, from) in rows.zip(part.bytes().chunks_exact(chunk)) {
                row[at * chunk..(at + 1) * chunk].copy_from_slice(from);
            }
        }
        *result = Some(whole);
        Ok(())
    }

    pub(super) fn flag(&self, slot: usize, frame: &Frame<'_>) -> Result<bool, RunError> {
        let tensor = self.tensor(slot, frame).filter(|tensor| tensor.dtype() == DType::Bool);
        match tensor.map(|tensor| tensor.bytes()) {
            Some(&[byte]) => Ok(byte != 0),
            _ => Err(self.wrong(slot, "one bool")),
        }
    }

    fn number(&self, slot: usize, frame: &Frame<'_>) -> Result<i64, RunError> {
        match self
            .tensor(slot, frame)
            .filter(|tensor| tensor.dtype() == i64::DTYPE)
            .map(|tensor| tensor.bytes())
        {
            Some(bytes) => match bytes.try_into() {
                Ok(bytes) => Ok(i64::from_le_bytes(bytes)),
                Err(_) => Err(self.wrong(slot, "one i64")),
            },
            None => Err(self.wrong(slot, "one i64")),
        }
    }

    fn wrong(&self, slot: usize, expected: &'static str) -> RunError {
        RunError::ControlFlow { value: self.slots[slot].name.clone(), expected }
    }
}

/// Parts of one scan output of a loop, one behind the other.
struct Stack {
    slot: usize,
    of: Option<(DType, SmallVec<[usize; 8]>)>,
    count: usize,
    bytes: Vec<u8>,
}

impl Stack {
    fn new(slot: usize) -> Stack {
        Stack { slot, of: None, count: 0, bytes: Vec::new() }
    }

    fn push(&mut self, program: &Program, part: usize, frame: &Frame<'_>) -> Result<(), RunError> {
        let wrong = || program.wrong(self.slot, "made of tensors of one type and one shape");
        // Parts of a byte cannot be put one behind the other.
        let part =
            program.tensor(part, frame).filter(|part| part.dtype().bits() % 8 == 0).ok_or_else(wrong)?;
        match &self.of {
            None => self.of = Some((part.dtype(), part.dims().into())),
            Some((dtype, dims)) if *dtype == part.dtype() && dims[..] == *part.dims() => {}
            Some(_) => return Err(wrong()),
        }
        self.count += 1;
        self.bytes.extend_from_slice(part.bytes());
        Ok(())
    }

    fn finish(self, program: &Program) -> Result<Tensor, RunError> {
        let slot = &program.slots[self.slot];
        let Some((dtype, mut dims)) = self.of else { return Ok(Tensor::zeros(slot.dtype, &slot.none)?) };
        dims.insert(0, self.count);
        Ok(Tensor::from_bytes(dtype, &dims, &self.bytes)?)
    }
}

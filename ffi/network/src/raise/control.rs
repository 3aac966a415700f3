//! `If` and `Loop`, with their bodies.

use super::Result;
use super::emit::{Raiser, Value};
use crate::layer::*;
use crate::network::TensorId;
use std::collections::BTreeSet;
use trtc_bundle::DType;
use trtc_onnx::{GraphProto, write};

impl Raiser<'_> {
    pub fn if_layer(
        &mut self,
        condition: TensorId,
        captures: &[Capture],
        then_branch: &Region,
        else_branch: &Region,
    ) -> Result<Vec<Value>> {
        let condition = self.get(condition)?;
        let mark = self.mark();
        for capture in captures {
            let outer = self.get(capture.outer)?;
            self.bind(capture.inner, outer)?;
        }
        let (then_graph, then_types) = self.branch(then_branch)?;
        let (else_graph, else_types) = self.branch(else_branch)?;
        self.restore(mark);
        if then_types != else_types {
            return Err(self.malformed(format!("branches of {then_types:?} and {else_types:?}")));
        }
        let outputs: Vec<Option<DType>> = then_types.into_iter().map(Some).collect();
        self.call("If")
            .plain(&condition)
            .attr(write::attr_g("then_branch", then_graph))
            .attr(write::attr_g("else_branch", else_graph))
            .values(&outputs)
    }

    fn branch(&mut self, region: &Region) -> Result<(GraphProto, Vec<DType>)> {
        let mark = self.mark();
        self.open();
        self.layers(&region.layers)?;
        let mut outputs = Vec::new();
        for &id in &region.outputs {
            outputs.push((self.get(id)?, Some(self.dims(id)?)));
        }
        let graph = self.close(Vec::new(), &outputs);
        self.restore(mark);
        Ok((graph, outputs.iter().map(|(value, _)| value.dtype).collect()))
    }

    /// ONNX asks its condition after an iteration, TensorRT before it. So the layers of the condition are emitted in front of
    /// the loop, over the initial values, and at the end of the body, over the next ones.
    pub fn loop_layer(
        &mut self,
        limits: &[(TripLimit, TensorId)],
        recurrences: &[Recurrence],
        iterators: &[LoopIterator],
        body: &[LayerEntry],
        results: &[LoopOutput],
    ) -> Result<Vec<Value>> {
        let limit = |kind| limits.iter().filter(move |(k, _)| *k == kind).map(|&(_, id)| id);
        if limits.is_empty() || limit(TripLimit::Count).count() > 1 || limit(TripLimit::While).count() > 1 {
            return Err(self.malformed("a loop has one or two limits, of different kinds"));
        }
        let count = match limit(TripLimit::Count).next() {
            Some(id) => {
                let count = self.get(id)?;
                Some(self.cast(&count, DType::I64))
            }
            None => None,
        };
        let condition = limit(TripLimit::While).next();
        let initial = recurrences.iter().map(|r| self.get(r.initial)).collect::<Result<Vec<_>>>()?;
        let first = match condition {
            Some(id) => Some(self.condition(id, recurrences, &initial, body)?),
            None => None,
        };

        let scans: Vec<&LoopOutput> =
            results.iter().filter(|result| result.kind != LoopOutputKind::LastValue).collect();
        let mark = self.mark();
        let graph = self.body(count.as_ref(), condition, recurrences, iterators, body, &scans)?;
        self.restore(mark);

        let mut types: Vec<Option<DType>> = initial.iter().map(|value| Some(value.dtype)).collect();
        for scan in &scans {
            types.push(Some(self.dtype(scan.value)?));
        }
        let mut call = self.call("Loop").attr(write::attr_g("body", graph));
        call = match &count {
            Some(count) => call.plain(count),
            None => call.absent(),
        };
        call = match &first {
            Some(first) => call.plain(first),
            None => call.absent(),
        };
        for value in &initial {
            call = call.plain(value);
        }
        let mut last = call.values(&types)?;
        let mut stacked = last.split_off(initial.len()).into_iter();

        let mut values = Vec::new();
        for result in results {
            let carried = recurrences.iter().position(|r| r.current == result.value);
            values.push(match (result.kind, carried, stacked.as_slice()) {
                (LoopOutputKind::LastValue, Some(k), _) => last[k].clone(),
                (LoopOutputKind::Concatenate | LoopOutputKind::Reverse, _, [_, ..]) => {
                    let exact = if condition.is_none() { count.as_ref() } else { None };
                    match stacked.next() {
                        Some(stack) => self.loop_output(&stack, result, exact)?,
                        None => return Err(self.malformed("a loop output without a value")),
                    }
                }
                _ => return Err(self.malformed("the last value of a tensor that is not carried")),
            });
        }
        Ok(values)
    }

    /// The value of the `While` tensor when the loop's state is `state`.
    fn condition(
        &mut self,
        id: TensorId,
        recurrences: &[Recurrence],
        state: &[Value],
        body: &[LayerEntry],
    ) -> Result<Value> {
        let mark = self.mark();
        for (recurrence, value) in recurrences.iter().zip(state) {
            self.bind(recurrence.current, value.clone())?;
        }
        let mut wanted = BTreeSet::from([id]);
        let mut needed = Vec::new();
        for entry in body.iter().rev() {
            if entry.outputs.iter().any(|output| wanted.contains(output)) {
                reads(&entry.layer, &mut wanted);
                needed.push(entry);
            }
        }
        for entry in needed.into_iter().rev() {
            self.layers(std::slice::from_ref(entry))?;
        }
        let value = self.get(id)?;
        self.restore(mark);
        Ok(value)
    }

    fn body(
        &mut self,
        count: Option<&Value>,
        condition: Option<TensorId>,
        recurrences: &[Recurrence],
        iterators: &[LoopIterator],
        body: &[LayerEntry],
        scans: &[&LoopOutput],
    ) -> Result<GraphProto> {
        self.open();
        let iteration = Value { name: self.fresh(), dtype: DType::I64 };
        let going = Value { name: self.fresh(), dtype: DType::Bool };
        let mut inputs = vec![
            self.value_info(&iteration.name, DType::I64, &[]),
            self.value_info(&going.name, DType::Bool, &[]),
        ];
        for recurrence in recurrences {
            let current = Value { name: self.fresh(), dtype: self.dtype(recurrence.current)? };
            inputs.push(self.value_info(&current.name, current.dtype, self.dims(recurrence.current)?));
            self.bind(recurrence.current, current)?;
        }
        for iterator in iterators {
            let x = self.get(iterator.x)?;
            let at = match (iterator.reverse, count) {
                (false, _) => iteration.clone(),
                (true, Some(count)) => {
                    let last = self.with_scalar("Sub", count, 1.0)?;
                    self.binary("Sub", &last, &iteration)?
                }
                (true, None) => return Err(self.malformed("a reverse iterator without a trip count")),
            };
            let current = self.take(&x, &at, iterator.axis as usize)?;
            self.bind(iterator.current, current)?;
        }
        self.layers(body)?;
        let next = recurrences.iter().map(|r| self.get(r.next)).collect::<Result<Vec<_>>>()?;
        let going = match condition {
            Some(id) => self.condition(id, recurrences, &next, body)?,
            None => going,
        };
        let mut outputs = vec![(going, Some([].as_slice()))];
        for (recurrence, value) in recurrences.iter().zip(next) {
            outputs.push((value, Some(self.dims(recurrence.next)?)));
        }
        for scan in scans {
            outputs.push((self.get(scan.value)?, Some(self.dims(scan.value)?)));
        }
        Ok(self.close(inputs, &outputs))
    }

    /// ONNX's scan output as TensorRT's: of the promised length, in its order, along its axis. `exact` is the number of
    /// iterations when only a count ends the loop.
    fn loop_output(&mut self, stack: &Value, result: &LoopOutput, exact: Option<&Value>) -> Result<Value> {
        let rank = self.dims(result.value)?.len();
        let Some(length) = result.length else {
            return Err(self.malformed("a concatenated loop output without a length"));
        };
        let length = self.get(length)?;
        let length = self.cast(&length, DType::I64);
        let mut value = stack.clone();
        if exact != Some(&length) {
            value = self.fit(&value, &length, rank)?;
        }
        if result.kind == LoopOutputKind::Reverse {
            let (start, end) = (self.i64s(&[-1]), self.i64s(&[i64::MIN]));
            let (axis, step) = (self.i64s(&[0]), self.i64s(&[-1]));
            value = self
                .call("Slice")
                .data(&value)
                .plain(&start)
                .plain(&end)
                .plain(&axis)
                .plain(&step)
                .value()?;
        }
        let axis = result.axis;
        let order: Vec<u32> = (1..=axis).chain([0]).chain(axis + 1..rank as u32 + 1).collect();
        self.transpose(&value, &order)
    }

    /// The first `length` elements of dim 0, with zeros where there are not as many. `rank` more dims follow.
    fn fit(&mut self, value: &Value, length: &Value, rank: usize) -> Result<Value> {
        let length = self.unsqueeze(length, &[0])?;
        let zero = self.i64s(&[0]);
        let cut = self.call("Slice").data(value).plain(&zero).plain(&length).plain(&zero).value()?;
        let unknown = vec![-1; rank + 1];
        let have = self.sizes(&cut, &unknown, 0..1)?;
        let missing = self.binary("Sub", &length, &have)?;
        let shape = if rank == 0 {
            missing
        } else {
            let rest = self.sizes(&cut, &unknown, 1..rank + 1)?;
            self.join(&[missing, rest])?
        };
        let zeros = self.scalar(value.dtype, 0.0);
        let zeros = self.call("Expand").data(&zeros).plain(&shape).value()?;
        self.call("Concat").data(&cut).data(&zeros).attr(write::attr_i("axis", 0)).value()
    }
}

/// Everything that a layer, and the layers inside of it, read.
fn reads(layer: &Layer, wanted: &mut BTreeSet<TensorId>) {
    layer.for_each_input(&mut |id| {
        wanted.insert(id);
    });
    let mut inner = |layers: &[LayerEntry]| layers.iter().for_each(|entry| reads(&entry.layer, wanted));
    match layer {
        Layer::If { then_branch, else_branch, .. } => {
            inner(&then_branch.layers);
            inner(&else_branch.layers);
            wanted.extend(then_branch.outputs.iter().chain(&else_branch.outputs));
        }
        Layer::Loop { body, recurrences, results, .. } => {
            inner(body);
            wanted.extend(recurrences.iter().map(|recurrence| recurrence.next));
            wanted.extend(results.iter().map(|result| result.value));
        }
        _ => {}
    }
}

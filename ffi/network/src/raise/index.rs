//! Layers that look up, place, order or select elements.

use super::Result;
use super::emit::{Raiser, Value};
use crate::layer::{BoxFormat, Count, GatherMode, ScatterMode, TopKOp};
use crate::network::TensorId;
use trtc_bundle::DType;
use trtc_onnx::write::attr_i;

impl Raiser<'_> {
    pub fn gather(
        &mut self,
        data: TensorId,
        indices: TensorId,
        axis: u32,
        mode: GatherMode,
        batch_dims: u32,
    ) -> Result<Value> {
        let (x, at) = (self.get(data)?, self.get(indices)?);
        let at = self.cast(&at, DType::I64);
        match mode {
            GatherMode::Default if batch_dims == 0 => self.take(&x, &at, axis as usize),
            GatherMode::Default => {
                let (x_dims, at_dims) = (self.dims(data)?, self.dims(indices)?);
                self.gather_batched((&x, x_dims), (&at, at_dims), axis as usize, batch_dims as usize)
            }
            GatherMode::Element => {
                self.call("GatherElements").data(&x).plain(&at).attr(attr_i("axis", i64::from(axis))).value()
            }
            GatherMode::Nd => self
                .call("GatherND")
                .data(&x)
                .plain(&at)
                .attr(attr_i("batch_dims", i64::from(batch_dims)))
                .value(),
        }
    }

    /// A lookup along `axis` with indices of its own for each element of the first `batch` dims, which broadcast.
    fn gather_batched(
        &mut self,
        (x, x_dims): (&Value, &[i64]),
        (at, at_dims): (&Value, &[i64]),
        axis: usize,
        batch: usize,
    ) -> Result<Value> {
        let rank = x_dims.len();
        if batch > axis || axis >= rank || batch > at_dims.len() {
            return Err(self.malformed(format!("{batch} batch dims, axis {axis}, of rank {rank}")));
        }
        let positions = |range: std::ops::Range<usize>| range.map(|axis| axis as u32);
        // The axis comes right after the batch, where GatherND looks things up.
        let order: Vec<u32> = positions(0..batch)
            .chain([axis as u32])
            .chain(positions(batch..axis))
            .chain(positions(axis + 1..rank))
            .collect();
        let mut data = self.transpose(x, &order)?;
        let mut at = at.clone();
        if x_dims[..batch] != at_dims[..batch] || x_dims[..batch].iter().any(|&d| d < 0) {
            let x_lead = self.sizes(x, x_dims, 0..batch)?;
            let at_lead = self.sizes(&at, at_dims, 0..batch)?;
            data = self.expand_lead(&data, &at_lead, rank - batch)?;
            at = self.expand_lead(&at, &x_lead, at_dims.len() - batch)?;
        }
        let at = self.unsqueeze(&at, &[at_dims.len() as u32])?;
        let picked =
            self.call("GatherND").data(&data).plain(&at).attr(attr_i("batch_dims", batch as i64)).value()?;
        // Now batch, indices, dims before the axis, dims after it: the second and the third change places.
        let (lookups, before) = (at_dims.len() - batch, axis - batch);
        let end = batch + lookups + before;
        let order: Vec<u32> = positions(0..batch)
            .chain(positions(batch + lookups..end))
            .chain(positions(batch..batch + lookups))
            .chain(positions(end..end + rank - axis - 1))
            .collect();
        self.transpose(&picked, &order)
    }

    /// Broadcasts the leading dims against `lead`; `rest` more dims stay.
    fn expand_lead(&mut self, x: &Value, lead: &Value, rest: usize) -> Result<Value> {
        let ones = self.i64s(&vec![1; rest]);
        let shape = self.join(&[lead.clone(), ones])?;
        self.call("Expand").data(x).plain(&shape).value()
    }

    pub fn scatter(
        &mut self,
        data: TensorId,
        indices: TensorId,
        updates: TensorId,
        mode: ScatterMode,
        axis: u32,
    ) -> Result<Value> {
        let (x, at, updates) = (self.get(data)?, self.get(indices)?, self.get(updates)?);
        let at = self.cast(&at, DType::I64);
        match mode {
            ScatterMode::Element => self
                .call("ScatterElements")
                .data(&x)
                .plain(&at)
                .data(&updates)
                .attr(attr_i("axis", i64::from(axis)))
                .value(),
            ScatterMode::Nd => self.call("ScatterND").data(&x).plain(&at).data(&updates).value(),
        }
    }

    /// `values[1]` where the position along `axis` is the index, else `values[0]`. A negative index counts from the back
    /// (TensorRT's own evaluator of constants says so, its header does not).
    pub fn one_hot(
        &mut self,
        indices: TensorId,
        values: TensorId,
        depth: TensorId,
        axis: u32,
    ) -> Result<Value> {
        let rank = self.dims(indices)?.len() as u32;
        if axis > rank {
            return Err(self.malformed(format!("axis {axis} over indices of rank {rank}")));
        }
        let (at, values, depth) = (self.get(indices)?, self.get(values)?, self.get(depth)?);
        let (at, depth) = (self.cast(&at, DType::I64), self.cast(&depth, DType::I64));
        let zero = self.scalar(DType::I64, 0.0);
        let below = self.compare("Less", &at, &zero)?;
        let wrapped = self.binary("Add", &at, &depth)?;
        let at = self.choose(&below, &wrapped, &at)?;
        let at = self.unsqueeze(&at, &[axis])?;
        let positions = self.range(&depth)?;
        let later: Vec<u32> = (1..=rank - axis).collect();
        let positions = self.unsqueeze(&positions, &later)?;
        let hot = self.compare("Equal", &at, &positions)?;
        let (off, on) = (self.item(&values, 0)?, self.item(&values, 1)?);
        self.choose(&hot, &on, &off)
    }

    pub fn reverse_sequence(
        &mut self,
        x: TensorId,
        lengths: TensorId,
        batch_axis: u32,
        sequence_axis: u32,
    ) -> Result<Value> {
        let rank = self.dims(x)?.len() as u32;
        let (x, lengths) = (self.get(x)?, self.get(lengths)?);
        let lengths = self.cast(&lengths, DType::I64);
        if batch_axis == sequence_axis || batch_axis >= rank || sequence_axis >= rank {
            return Err(self.malformed(format!("axes {batch_axis} and {sequence_axis} of rank {rank}")));
        }
        // ONNX knows axes 0 and 1 only.
        let mut order = vec![batch_axis, sequence_axis];
        order.extend((0..rank).filter(|axis| *axis != batch_axis && *axis != sequence_axis));
        let mut back = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&axis, k)| back[axis as usize] = k);
        let moved = self.transpose(&x, &order)?;
        let reversed = self
            .call("ReverseSequence")
            .data(&moved)
            .plain(&lengths)
            .attr(attr_i("batch_axis", 0))
            .attr(attr_i("time_axis", 1))
            .value()?;
        self.transpose(&reversed, &back)
    }

    /// Values and indices.
    pub fn top_k(
        &mut self,
        x: TensorId,
        op: TopKOp,
        k: &Count,
        axis: u32,
        indices: DType,
    ) -> Result<Vec<Value>> {
        let x = self.get(x)?;
        let k = match k {
            Count::Static(k) => self.i64s(&[*k]),
            Count::Tensor(id) => {
                let k = self.get(*id)?;
                let k = self.cast(&k, DType::I64);
                self.reshape(&k, &[1])?
            }
        };
        self.ordered(&x, &k, axis, op == TopKOp::Max, indices)
    }

    fn ordered(&mut self, x: &Value, k: &Value, axis: u32, largest: bool, to: DType) -> Result<Vec<Value>> {
        let mut values = self
            .call("TopK")
            .data(x)
            .plain(k)
            .attr(attr_i("axis", i64::from(axis)))
            .attr(attr_i("largest", i64::from(largest)))
            .attr(attr_i("sorted", 1))
            .values(&[None, Some(DType::I64)])?;
        if let Some(at) = values.pop() {
            let at = self.cast(&at, to);
            values.push(at);
        }
        Ok(values)
    }

    pub fn non_zero(&mut self, x: TensorId, to: DType) -> Result<Value> {
        let x = self.get(x)?;
        let at = self.call("NonZero").data(&x).value_of(DType::I64)?;
        Ok(self.cast(&at, to))
    }

    /// Selected (batch, class, box), by batch and then by falling score, and their number. `thresholds` are those of IoU and
    /// score, 0 when absent.
    pub fn nms(
        &mut self,
        boxes: TensorId,
        scores: TensorId,
        max_output_boxes: TensorId,
        thresholds: [Option<TensorId>; 2],
        format: BoxFormat,
        to: DType,
    ) -> Result<Vec<Value>> {
        let (box_dims, score_dims) = (self.dims(boxes)?, self.dims(scores)?);
        if !matches!(box_dims.len(), 3 | 4) || score_dims.len() != 3 {
            return Err(self.malformed(format!("boxes {box_dims:?} with scores {score_dims:?}")));
        }
        let (boxes, scores) = (self.get(boxes)?, self.get(scores)?);
        let (boxes, scores) = (self.cast(&boxes, DType::F32), self.cast(&scores, DType::F32));
        let most = self.get(max_output_boxes)?;
        let most = self.cast(&most, DType::I64);
        let [iou, score] = thresholds.map(|threshold| match threshold {
            None => Ok(self.scalar(DType::F32, 0.0)),
            Some(id) => {
                let value = self.get(id)?;
                Ok(self.cast(&value, DType::F32))
            }
        });
        let (iou, score) = (iou?, score?);
        let by_class = self.transpose(&scores, &[0, 2, 1])?;
        let per_class = box_dims.len() == 4;
        // ONNX has no boxes of a class: each class becomes a batch item of its own.
        let (onnx_boxes, onnx_scores) = if per_class {
            let boxes = self.transpose(&boxes, &[0, 2, 1, 3])?;
            let last = self.sizes(&scores, score_dims, 1..2)?;
            let minus = self.i64s(&[-1]);
            let (one, four) = (self.i64s(&[1]), self.i64s(&[4]));
            let box_shape = self.join(&[minus.clone(), last.clone(), four])?;
            let score_shape = self.join(&[minus, one, last])?;
            let boxes = self.reshape_to(&boxes, &box_shape, false)?;
            (boxes, self.reshape_to(&by_class, &score_shape, false)?)
        } else {
            (boxes, by_class.clone())
        };
        let mut selected = self
            .call("NonMaxSuppression")
            .plain(&onnx_boxes)
            .plain(&onnx_scores)
            .plain(&most)
            .plain(&iou)
            .plain(&score)
            .attr(attr_i("center_point_box", i64::from(format == BoxFormat::CenterSizes)))
            .value_of(DType::I64)?;
        if per_class {
            let classes = self.sizes(&scores, score_dims, 2..3)?;
            let item = self.column(&selected, 0)?;
            let which = self.column(&selected, 2)?;
            let batch = self.binary("Div", &item, &classes)?;
            let class = self.binary("Mod", &item, &classes)?;
            selected =
                self.call("Concat").data(&batch).data(&class).data(&which).attr(attr_i("axis", 1)).value()?;
        }
        // ONNX orders by class before score. TopK is stable: by score first, then by batch.
        let count = self.sizes(&selected, &[-1, 3], 0..1)?;
        let score = self.call("GatherND").data(&by_class).plain(&selected).value()?;
        let by_score = self.ordered(&score, &count, 0, true, DType::I64)?;
        let selected = self.take(&selected, &by_score[1], 0)?;
        let batch = self.column(&selected, 0)?;
        let batch = self.squeeze(&batch, &[1])?;
        let by_batch = self.ordered(&batch, &count, 0, false, DType::I64)?;
        let selected = self.take(&selected, &by_batch[1], 0)?;
        let count = self.squeeze(&count, &[0])?;
        Ok(vec![self.cast(&selected, to), self.cast(&count, DType::I32)])
    }

    /// Column `index` of a matrix, as a matrix of one column.
    fn column(&mut self, matrix: &Value, index: i64) -> Result<Value> {
        let index = self.i64s(&[index]);
        self.take(matrix, &index, 1)
    }
}

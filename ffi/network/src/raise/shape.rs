//! Layers about shapes: concatenations, shuffles, slices, fills.

use super::Result;
use super::emit::{Raiser, Value};
use crate::layer::{Extent, FillOp, SampleMode};
use crate::network::TensorId;
use trtc_bundle::DType;
use trtc_onnx::write::attr_i;

impl Raiser<'_> {
    pub fn concatenation(&mut self, xs: &[TensorId], axis: u32) -> Result<Value> {
        let values = xs.iter().map(|&x| self.get(x)).collect::<Result<Vec<_>>>()?;
        let mut call = self.call("Concat").attr(attr_i("axis", i64::from(axis)));
        for value in &values {
            call = call.data(value);
        }
        call.value()
    }

    pub fn shape(&mut self, x: TensorId) -> Result<Value> {
        let dims = self.dims(x)?;
        let x = self.get(x)?;
        self.sizes(&x, dims, 0..dims.len())
    }

    /// Transpose, reshape, transpose.
    pub fn shuffle(
        &mut self,
        x: TensorId,
        first: Option<&[u32]>,
        reshape: Option<&Extent>,
        zero_is_placeholder: bool,
        second: Option<&[u32]>,
    ) -> Result<Value> {
        let mut value = self.get(x)?;
        if let Some(order) = first {
            value = self.transpose(&value, order)?;
        }
        if let Some(to) = reshape {
            // ONNX forbids −1 where a 0 is a size; that is no restriction unless there is a 0.
            let sized = match to {
                Extent::Static(dims) => !zero_is_placeholder && dims.contains(&0),
                Extent::Tensor(_) => !zero_is_placeholder,
            };
            let dims = self.extent(to)?;
            value = self.reshape_to(&value, &dims, sized)?;
        }
        match second {
            Some(order) => self.transpose(&value, order),
            None => Ok(value),
        }
    }

    /// Element i along an axis comes from start + i · stride; `extents` are start, size and stride.
    pub fn slice(
        &mut self,
        x: TensorId,
        extents: [&Extent; 3],
        mode: SampleMode,
        fill: Option<TensorId>,
    ) -> Result<Value> {
        let dims = self.dims(x)?;
        for extent in extents {
            if let Extent::Static(values) = extent
                && values.len() != dims.len()
            {
                return Err(self.malformed(format!("{} extents for rank {}", values.len(), dims.len())));
            }
        }
        let value = self.get(x)?;
        match (mode, extents) {
            (SampleMode::Strict, [Extent::Static(start), Extent::Static(size), Extent::Static(stride)])
                if !stride.contains(&0) =>
            {
                self.static_slice(&value, dims, start, size, stride)
            }
            (SampleMode::Strict, [start, size, Extent::Static(stride)]) if stride.iter().all(|&t| t > 0) => {
                let (start, size) = (self.extent(start)?, self.extent(size)?);
                let stride_value = self.i64s(stride);
                let mut length = size;
                if stride.iter().any(|&t| t != 1) {
                    length = self.binary("Mul", &length, &stride_value)?;
                }
                // An end past the dim is cut to it, and the same elements are left.
                let end = self.binary("Add", &start, &length)?;
                let axes: Vec<i64> = (0..dims.len() as i64).collect();
                let axes = self.i64s(&axes);
                self.call("Slice")
                    .data(&value)
                    .plain(&start)
                    .plain(&end)
                    .plain(&axes)
                    .plain(&stride_value)
                    .value()
            }
            _ => self.sampled_slice(value, dims, extents, mode, fill),
        }
    }

    fn static_slice(
        &mut self,
        x: &Value,
        dims: &[i64],
        start: &[i64],
        size: &[i64],
        stride: &[i64],
    ) -> Result<Value> {
        let cut: Vec<usize> = (0..dims.len())
            .filter(|&k| (start[k], size[k], stride[k]) != (0, dims[k], 1) || dims[k] < 0)
            .collect();
        if cut.is_empty() {
            return Ok(x.clone());
        }
        let pick = |list: &[i64]| cut.iter().map(|&k| list[k]).collect::<Vec<i64>>();
        let ends: Vec<i64> = cut
            .iter()
            .map(|&k| match start[k] + size[k] * stride[k] {
                // ONNX counts a negative end from the back.
                end if end < 0 => i64::MIN,
                end => end,
            })
            .collect();
        let axes: Vec<i64> = cut.iter().map(|&k| k as i64).collect();
        let (start, ends) = (self.i64s(&pick(start)), self.i64s(&ends));
        let (axes, stride) = (self.i64s(&axes), self.i64s(&pick(stride)));
        self.call("Slice").data(x).plain(&start).plain(&ends).plain(&axes).plain(&stride).value()
    }

    /// A slice as one Gather an axis.
    fn sampled_slice(
        &mut self,
        mut value: Value,
        dims: &[i64],
        extents: [&Extent; 3],
        mode: SampleMode,
        fill: Option<TensorId>,
    ) -> Result<Value> {
        let mut inside: Option<Value> = None;
        for (axis, &dim) in dims.iter().enumerate() {
            let fixed = extents.map(|extent| match extent {
                Extent::Static(values) => Some(values[axis]),
                Extent::Tensor(_) => None,
            });
            if dim >= 0 && fixed == [Some(0), Some(dim), Some(1)] {
                continue;
            }
            let [start, size, stride] = extents;
            let (start, size) = (self.element(start, axis)?, self.element(size, axis)?);
            let stride = self.element(stride, axis)?;
            let steps = self.range(&size)?;
            let steps = self.binary("Mul", &steps, &stride)?;
            let at = self.binary("Add", &steps, &start)?;
            let length = self.sizes(&value, dims, axis..axis + 1)?;
            let length = self.squeeze(&length, &[0])?;
            let at = match mode {
                SampleMode::Strict => at,
                // ONNX's Mod has the sign of the divisor.
                SampleMode::Wrap => self.binary("Mod", &at, &length)?,
                SampleMode::Clamp => self.clamp(&at, &length)?,
                SampleMode::Reflect => self.reflect(&at, &length)?,
                SampleMode::Fill => {
                    let zero = self.scalar(DType::I64, 0.0);
                    let below = self.compare("Less", &at, &zero)?;
                    let not_below = self.apply("Not", &below)?;
                    let not_past = self.compare("Less", &at, &length)?;
                    let here = self.binary("And", &not_below, &not_past)?;
                    let later: Vec<u32> = (1..(dims.len() - axis) as u32).collect();
                    let here = self.unsqueeze(&here, &later)?;
                    inside = Some(match inside {
                        Some(before) => self.binary("And", &before, &here)?,
                        None => here,
                    });
                    self.clamp(&at, &length)?
                }
            };
            value = self.take(&value, &at, axis)?;
        }
        let Some(inside) = inside else { return Ok(value) };
        let fill = match fill {
            None => self.scalar(value.dtype, 0.0),
            Some(id) => {
                let rank = self.dims(id)?.len();
                let fill = self.get(id)?;
                if rank == 0 { fill } else { self.reshape(&fill, &[])? }
            }
        };
        self.choose(&inside, &value, &fill)
    }

    fn clamp(&mut self, at: &Value, length: &Value) -> Result<Value> {
        let last = self.with_scalar("Sub", length, 1.0)?;
        let at = self.binary("Min", at, &last)?;
        self.with_scalar("Max", &at, 0.0)
    }

    /// Back and forth between the first and the last element, neither of them twice in a row.
    fn reflect(&mut self, at: &Value, length: &Value) -> Result<Value> {
        let last = self.with_scalar("Sub", length, 1.0)?;
        let period = self.binary("Add", &last, &last)?;
        let divisor = self.with_scalar("Max", &period, 1.0)?;
        let there = self.binary("Mod", at, &divisor)?;
        let back = self.binary("Sub", &period, &there)?;
        self.binary("Min", &there, &back)
    }

    /// Element `index` of an extent: i64, rank 0.
    fn element(&mut self, extent: &Extent, index: usize) -> Result<Value> {
        if let Extent::Static(values) = extent {
            let one = self.i64s(&values[index..=index]);
            return self.squeeze(&one, &[0]);
        }
        let list = self.extent(extent)?;
        self.item(&list, index)
    }

    /// Element `index` of a rank-1 value: rank 0.
    pub fn item(&mut self, list: &Value, index: usize) -> Result<Value> {
        let index = self.scalar(DType::I64, index as f64);
        self.take(list, &index, 0)
    }

    /// 0, 1, … up to `length` (i64, rank 0), exclusive: i64, rank 1.
    pub fn range(&mut self, length: &Value) -> Result<Value> {
        let (zero, one) = (self.scalar(DType::I64, 0.0), self.scalar(DType::I64, 1.0));
        self.call("Range").plain(&zero).plain(length).plain(&one).value_of(DType::I64)
    }

    /// alpha + Σ index · beta, in the dtype of alpha.
    pub fn fill(
        &mut self,
        shape: &Extent,
        op: FillOp,
        alpha: TensorId,
        beta: TensorId,
        to: DType,
    ) -> Result<Value> {
        if op != FillOp::Linspace {
            return Err(self.no_counterpart(format!("{op:?}: the values of a random fill")));
        }
        let rank = match shape {
            Extent::Static(dims) => dims.len(),
            Extent::Tensor(id) => match self.dims(*id)? {
                [rank] if *rank >= 0 => *rank as usize,
                other => return Err(self.malformed(format!("a shape tensor of dims {other:?}"))),
            },
        };
        let beta_rank = self.dims(beta)?.len();
        let (alpha, beta) = (self.get(alpha)?, self.get(beta)?);
        let (start, steps) = (self.in_f32(&alpha), self.in_f32(&beta));
        let mut sum = start;
        for axis in 0..rank {
            let length = self.element(shape, axis)?;
            let index = self.range(&length)?;
            let index = self.cast(&index, sum.dtype);
            let step = if beta_rank == 0 { steps.clone() } else { self.item(&steps, axis)? };
            let part = self.binary("Mul", &index, &step)?;
            let later: Vec<u32> = (1..(rank - axis) as u32).collect();
            let part = self.unsqueeze(&part, &later)?;
            sum = self.binary("Add", &sum, &part)?;
        }
        Ok(self.cast(&sum, to))
    }
}

//! Products, reductions and normalizations.

use super::Result;
use super::emit::{Raiser, Value};
use crate::layer::{CumulativeOp, MatrixOp, ReduceOp};
use crate::network::TensorId;
use trtc_bundle::DType;
use trtc_onnx::write::{attr_i, attr_s};

impl Raiser<'_> {
    /// A product of matrices or vectors, or of collections of them.
    pub fn matrix_multiply(
        &mut self,
        a: TensorId,
        op_a: MatrixOp,
        b: TensorId,
        op_b: MatrixOp,
    ) -> Result<Value> {
        let (rank_a, rank_b) = (self.dims(a)?.len() as u32, self.dims(b)?.len() as u32);
        let (a, b) = (self.get(a)?, self.get(b)?);
        let a = match op_a {
            MatrixOp::None => a,
            MatrixOp::Transpose => self.swap_last(&a, rank_a)?,
            MatrixOp::Vector => self.unsqueeze(&a, &[rank_a.saturating_sub(1)])?,
        };
        let b = match op_b {
            MatrixOp::None => b,
            MatrixOp::Transpose => self.swap_last(&b, rank_b)?,
            MatrixOp::Vector => self.unsqueeze(&b, &[rank_b])?,
        };
        let product = self.binary("MatMul", &a, &b)?;
        // The row of a vector on the left, the column of one on the right, are no dims of the result.
        let rank = if op_a == MatrixOp::Vector { rank_a + 1 } else { rank_a };
        let mut gone = Vec::new();
        if op_a == MatrixOp::Vector {
            gone.push(rank - 2);
        }
        if op_b == MatrixOp::Vector {
            gone.push(rank - 1);
        }
        self.squeeze(&product, &gone)
    }

    fn swap_last(&mut self, x: &Value, rank: u32) -> Result<Value> {
        if rank < 2 {
            return Err(self.malformed(format!("the transpose of a matrix of rank {rank}")));
        }
        let order: Vec<u32> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        self.transpose(x, &order)
    }

    /// ONNX Runtime never returns from some malformed equations, so they are checked here.
    pub fn einsum(&mut self, xs: &[TensorId], equation: &str) -> Result<Value> {
        let equation = &equation.replace(' ', "");
        // With an ellipsis or without a result, ONNX reads it as TensorRT does.
        let plain = |c: char| c.is_ascii_alphabetic() || c == '.';
        let (left, right) = equation.split_once("->").unwrap_or((equation, ""));
        let whole = left.split(',').count() == xs.len()
            && left.chars().all(|c| plain(c) || c == ',')
            && right.chars().all(plain);
        if !whole || xs.is_empty() {
            return Err(self.malformed(format!("equation `{equation}` over {} tensors", xs.len())));
        }
        let values = xs.iter().map(|&x| self.get(x)).collect::<Result<Vec<_>>>()?;
        let mut call = self.call("Einsum").attr(attr_s("equation", equation));
        for value in &values {
            call = call.data(value);
        }
        call.value()
    }

    pub fn softmax(&mut self, x: TensorId, axis: u32) -> Result<Value> {
        let x = self.get(x)?;
        self.call("Softmax").data(&x).attr(attr_i("axis", i64::from(axis))).value()
    }

    pub fn cumulative(
        &mut self,
        x: TensorId,
        axis: TensorId,
        op: CumulativeOp,
        exclusive: bool,
        reverse: bool,
    ) -> Result<Value> {
        let CumulativeOp::Sum = op;
        let (x, axis) = (self.get(x)?, self.get(axis)?);
        let axis = self.cast(&axis, DType::I64);
        self.call("CumSum")
            .data(&x)
            .plain(&axis)
            .attr(attr_i("exclusive", i64::from(exclusive)))
            .attr(attr_i("reverse", i64::from(reverse)))
            .value()
    }

    pub fn reduce(&mut self, x: TensorId, op: ReduceOp, axes: &[u32], keep: bool) -> Result<Value> {
        let dims = self.dims(x)?;
        let x = self.get(x)?;
        if axes.is_empty() {
            return Ok(x);
        }
        let name = match op {
            ReduceOp::Sum => "ReduceSum",
            ReduceOp::Prod => "ReduceProd",
            ReduceOp::Max => "ReduceMax",
            ReduceOp::Min => "ReduceMin",
            ReduceOp::Avg if x.dtype.is_int() => return self.integer_mean(&x, dims, axes, keep),
            ReduceOp::Avg => "ReduceMean",
            ReduceOp::None => return Err(self.no_counterpart("no reduction (for several devices)")),
        };
        self.reduction(name, &x, axes, keep)
    }

    fn reduction(&mut self, op: &'static str, x: &Value, axes: &[u32], keep: bool) -> Result<Value> {
        let axes: Vec<i64> = axes.iter().map(|&axis| i64::from(axis)).collect();
        let axes = self.i64s(&axes);
        self.call(op).data(x).plain(&axes).attr(attr_i("keepdims", i64::from(keep))).value()
    }

    /// The sum, divided towards zero by the number of summands.
    fn integer_mean(&mut self, x: &Value, dims: &[i64], axes: &[u32], keep: bool) -> Result<Value> {
        let sum = self.reduction("ReduceSum", x, axes, keep)?;
        let mut count = self.scalar(DType::I64, 1.0);
        for &axis in axes {
            let size = self.sizes(x, dims, axis as usize..axis as usize + 1)?;
            let size = self.squeeze(&size, &[0])?;
            count = self.binary("Mul", &count, &size)?;
        }
        let count = self.cast(&count, sum.dtype);
        self.binary("Div", &sum, &count)
    }

    /// (x − mean) / √(variance + ε) · scale + bias, in f32. With groups, mean and variance are those of the channels
    /// (dim 1) of a group and of the axes.
    pub fn normalization(
        &mut self,
        x: TensorId,
        scale: TensorId,
        bias: TensorId,
        axes: &[u32],
        epsilon: f32,
        groups: i64,
    ) -> Result<Value> {
        let dims = self.dims(x)?;
        let (x, scale, bias) = (self.get(x)?, self.get(scale)?, self.get(bias)?);
        let dtype = x.dtype;
        let (x, scale, bias) = (self.in_f32(&x), self.in_f32(&scale), self.in_f32(&bias));
        let normal = if groups == 1 {
            self.standardize(&x, axes, epsilon)?
        } else {
            let rank = dims.len() as u32;
            if groups < 1 || rank < 2 || !axes.iter().copied().eq(2..rank) {
                return Err(self.malformed(format!("{groups} groups of rank {rank} over axes {axes:?}")));
            }
            let shape = self.sizes(&x, dims, 0..dims.len())?;
            let grouped = self.reshape(&x, &[0, groups, -1])?;
            let normal = self.standardize(&grouped, &[2], epsilon)?;
            self.reshape_to(&normal, &shape, true)?
        };
        let scaled = self.binary("Mul", &normal, &scale)?;
        let result = self.binary("Add", &scaled, &bias)?;
        Ok(self.cast(&result, dtype))
    }

    fn standardize(&mut self, x: &Value, axes: &[u32], epsilon: f32) -> Result<Value> {
        if axes.is_empty() {
            return Err(self.malformed("a normalization over no axis"));
        }
        let mean = self.reduction("ReduceMean", x, axes, true)?;
        let centred = self.binary("Sub", x, &mean)?;
        let square = self.binary("Mul", &centred, &centred)?;
        let variance = self.reduction("ReduceMean", &square, axes, true)?;
        let variance = self.with_scalar("Add", &variance, f64::from(epsilon))?;
        let deviation = self.apply("Sqrt", &variance)?;
        self.binary("Div", &centred, &deviation)
    }
}

//! Layers over spatial dims: convolutions, poolings, grid samples, LRN.

use super::Result;
use super::emit::{Raiser, Value};
use crate::layer::*;
use crate::network::TensorId;
use trtc_onnx::write::{attr_f, attr_i, attr_ints, attr_s};

impl Raiser<'_> {
    /// `op` is `Conv` or `ConvTranspose`, which describe windows as TensorRT does.
    pub fn convolution(
        &mut self,
        op: &'static str,
        x: TensorId,
        kernel: TensorId,
        bias: Option<TensorId>,
        window: &Window,
        groups: i64,
    ) -> Result<Value> {
        let bias_rank = bias.map(|bias| self.dims(bias).map(<[i64]>::len)).transpose()?;
        let bias = bias.map(|bias| self.get(bias)).transpose()?;
        let bias = match (bias, bias_rank) {
            (Some(bias), Some(1)) => Some(bias),
            (Some(bias), _) => Some(self.reshape(&bias, &[-1])?),
            (None, _) => None,
        };
        let (x, kernel) = (self.get(x)?, self.get(kernel)?);
        let pads = [window.pre_padding.as_slice(), &window.post_padding].concat();
        let mut call = self.call(op).data(&x).data(&kernel);
        if let Some(bias) = &bias {
            call = call.data(bias);
        }
        call.attr(attr_ints("kernel_shape", &window.kernel))
            .attr(attr_ints("strides", &window.stride))
            .attr(attr_ints("pads", &pads))
            .attr(attr_ints("dilations", &window.dilation))
            .attr(attr_i("group", groups))
            .value()
    }

    pub fn pooling(
        &mut self,
        x: TensorId,
        kind: PoolKind,
        window: &Window,
        exclude_padding: bool,
        blend: f32,
    ) -> Result<Value> {
        let pads = window.pre_padding.iter().chain(&window.post_padding);
        if pads.zip(window.kernel.iter().cycle()).any(|(pad, kernel)| pad >= kernel) {
            return Err(self.no_counterpart(format!(
                "padding {:?}, {:?} not smaller than the window {:?}",
                window.pre_padding, window.post_padding, window.kernel
            )));
        }
        let x = self.get(x)?;
        let dtype = x.dtype;
        match kind {
            PoolKind::Max => self.pool("MaxPool", &x, window, false),
            PoolKind::Average => self.pool("AveragePool", &x, window, exclude_padding),
            PoolKind::MaxAverageBlend => {
                let x = self.in_f32(&x);
                let max = self.pool("MaxPool", &x, window, false)?;
                let average = self.pool("AveragePool", &x, window, exclude_padding)?;
                let max = self.with_scalar("Mul", &max, 1.0 - f64::from(blend))?;
                let average = self.with_scalar("Mul", &average, f64::from(blend))?;
                let sum = self.binary("Add", &max, &average)?;
                Ok(self.cast(&sum, dtype))
            }
        }
    }

    fn pool(&mut self, op: &'static str, x: &Value, window: &Window, exclude: bool) -> Result<Value> {
        let pads = [window.pre_padding.as_slice(), &window.post_padding].concat();
        let mut call = self
            .call(op)
            .data(x)
            .attr(attr_ints("kernel_shape", &window.kernel))
            .attr(attr_ints("strides", &window.stride))
            .attr(attr_ints("pads", &pads));
        if op == "AveragePool" {
            call = call.attr(attr_i("count_include_pad", i64::from(!exclude)));
        }
        call.value()
    }

    /// Over the channels, dim 1. ONNX Runtime takes rank 4 only.
    pub fn lrn(&mut self, x: TensorId, window: i64, alpha: f32, beta: f32, k: f32) -> Result<Value> {
        let dims = self.dims(x)?;
        let x = self.get(x)?;
        if dims.len() < 2 {
            return Err(self.malformed(format!("LRN of rank {}", dims.len())));
        }
        let flat = if dims.len() == 4 { x.clone() } else { self.reshape(&x, &[0, 0, -1, 1])? };
        let y = self
            .call("LRN")
            .data(&flat)
            .attr(attr_i("size", window))
            .attr(attr_f("alpha", alpha))
            .attr(attr_f("beta", beta))
            .attr(attr_f("bias", k))
            .value()?;
        if dims.len() == 4 {
            return Ok(y);
        }
        let shape = self.sizes(&x, dims, 0..dims.len())?;
        self.reshape_to(&y, &shape, true)
    }

    pub fn grid_sample(
        &mut self,
        x: TensorId,
        grid: TensorId,
        interpolation: Interpolation,
        align_corners: bool,
        mode: SampleMode,
    ) -> Result<Value> {
        let (x, grid) = (self.get(x)?, self.get(grid)?);
        let dtype = x.dtype;
        let (x, grid) = (self.in_f32(&x), self.in_f32(&grid));
        let padding = match mode {
            SampleMode::Fill => "zeros",
            SampleMode::Clamp => "border",
            SampleMode::Reflect => "reflection",
            SampleMode::Strict | SampleMode::Wrap => {
                return Err(self.no_counterpart(format!("sample mode {mode:?}")));
            }
        };
        let interpolation = match interpolation {
            Interpolation::Nearest => "nearest",
            Interpolation::Linear => "linear",
            Interpolation::Cubic => "cubic",
        };
        let y = self
            .call("GridSample")
            .data(&x)
            .data(&grid)
            .attr(attr_s("mode", interpolation))
            .attr(attr_s("padding_mode", padding))
            .attr(attr_i("align_corners", i64::from(align_corners)))
            .value()?;
        Ok(self.cast(&y, dtype))
    }
}

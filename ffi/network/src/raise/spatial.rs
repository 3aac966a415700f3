//! Layers over spatial dims: convolutions, poolings, resizes, grid samples, LRN.

use super::Result;
use super::emit::{Raiser, Value};
use crate::layer::*;
use crate::network::TensorId;
use trtc_bundle::DType;
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

    /// A [`Layer::Resize`].
    pub fn resize(&mut self, layer: &Layer) -> Result<Value> {
        let Layer::Resize {
            x,
            to,
            interpolation,
            coordinates,
            selector,
            round,
            cubic_coeff,
            exclude_outside,
        } = layer
        else {
            return Err(self.malformed("not a resize"));
        };
        let dims = self.dims(*x)?;
        let x = self.get(*x)?;
        // ONNX Runtime's cubic kernel knows ranks 2 and 4.
        let padded = *interpolation == Interpolation::Cubic && matches!(dims.len(), 1 | 3);
        let (mut scales, mut sizes) = (None, None);
        match to {
            ResizeTo::Sizes(extent) => sizes = Some(self.extent(extent)?),
            // These coordinates come from the lengths; with scales, ONNX takes a length that is not whole.
            ResizeTo::Scales(list) if *coordinates == Coordinates::AlignCorners => {
                let lengths = self.sizes(&x, dims, 0..dims.len())?;
                let lengths = self.cast(&lengths, DType::F32);
                let factors = self.f32s(list);
                let lengths = self.binary("Mul", &lengths, &factors)?;
                let lengths = self.apply("Floor", &lengths)?;
                sizes = Some(self.cast(&lengths, DType::I64));
            }
            ResizeTo::Scales(list) if padded => scales = Some(self.f32s(&[&[1.0], list.as_slice()].concat())),
            ResizeTo::Scales(list) => scales = Some(self.f32s(list)),
        }
        let x = if padded { self.unsqueeze(&x, &[0])? } else { x };
        if let (true, Some(rest)) = (padded, &sizes) {
            let one = self.i64s(&[1]);
            sizes = Some(self.join(&[one, rest.clone()])?);
        }
        let mode = match interpolation {
            Interpolation::Nearest => "nearest",
            Interpolation::Linear => "linear",
            Interpolation::Cubic => "cubic",
        };
        // The selector decides for a result of one pixel; there, the other two formulas select the upper one too.
        let coordinates = match (coordinates, selector) {
            (Coordinates::AlignCorners, _) => "align_corners",
            (Coordinates::Asymmetric, _) => "asymmetric",
            (Coordinates::HalfPixel, ResizeSelector::Formula) => "half_pixel",
            (Coordinates::HalfPixel, ResizeSelector::Upper) => "pytorch_half_pixel",
        };
        let nearest = match round {
            ResizeRound::HalfUp => "round_prefer_ceil",
            ResizeRound::HalfDown => "round_prefer_floor",
            ResizeRound::Floor => "floor",
            ResizeRound::Ceil => "ceil",
        };
        let mut call = self.call("Resize").data(&x).absent();
        call = match (&scales, &sizes) {
            (Some(scales), _) => call.plain(scales),
            (None, Some(sizes)) => call.absent().plain(sizes),
            (None, None) => call,
        };
        call = call
            .attr(attr_s("mode", mode))
            .attr(attr_s("coordinate_transformation_mode", coordinates))
            .attr(attr_s("nearest_mode", nearest));
        if *interpolation == Interpolation::Cubic {
            call = call
                .attr(attr_f("cubic_coeff_a", *cubic_coeff))
                .attr(attr_i("exclude_outside", i64::from(*exclude_outside)));
        }
        let y = call.value()?;
        if padded { self.squeeze(&y, &[0]) } else { Ok(y) }
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

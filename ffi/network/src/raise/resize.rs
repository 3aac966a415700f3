//! Resizes.

use super::Result;
use super::emit::{Raiser, Value};
use crate::layer::*;
use trtc_bundle::DType;
use trtc_onnx::AttributeProto;
use trtc_onnx::write::{attr_f, attr_i, attr_s};

/// Where a resize goes: all lengths (i64, rank 1), or all scales.
enum Target {
    Sizes(Value),
    Scales(Vec<f32>),
}

impl Raiser<'_> {
    /// A [`Layer::Resize`]. Where ONNX Runtime has no kernel for a rank, or for axes that change, each axis is resized alone.
    pub fn resize(&mut self, entry: &LayerEntry) -> Result<Value> {
        let Layer::Resize {
            x,
            to,
            interpolation,
            coordinates,
            selector,
            round,
            cubic_coeff,
            exclude_outside,
        } = &entry.layer
        else {
            return Err(self.malformed("not a resize"));
        };
        let dims = self.dims(*x)?;
        let x = self.get(*x)?;
        let target = match to {
            ResizeTo::Sizes(extent) => Target::Sizes(self.extent(extent)?),
            // These coordinates come from the lengths; with scales, ONNX takes a length that is not whole.
            ResizeTo::Scales(list) if *coordinates == Coordinates::AlignCorners => {
                let lengths = self.sizes(&x, dims, 0..dims.len())?;
                let lengths = self.cast(&lengths, DType::F32);
                let factors = self.f32s(list);
                let lengths = self.binary("Mul", &lengths, &factors)?;
                let lengths = self.apply("Floor", &lengths)?;
                Target::Sizes(self.cast(&lengths, DType::I64))
            }
            ResizeTo::Scales(list) => Target::Scales(list.clone()),
        };
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
        let mut attributes = vec![
            attr_s("mode", mode),
            attr_s("coordinate_transformation_mode", coordinates),
            attr_s("nearest_mode", nearest),
        ];
        if *interpolation == Interpolation::Cubic {
            attributes.push(attr_f("cubic_coeff_a", *cubic_coeff));
            attributes.push(attr_i("exclude_outside", i64::from(*exclude_outside)));
        }
        let results: &[i64] = match entry.outputs.first() {
            Some(&y) => self.dims(y)?,
            None => &[],
        };
        // An axis that is not known to keep its length changes it.
        let kept = |axis: usize| match to {
            ResizeTo::Sizes(_) => dims[axis] >= 0 && results.get(axis) == Some(&dims[axis]),
            ResizeTo::Scales(scales) => scales.get(axis) == Some(&1.0),
        };
        let has_kernel = match (interpolation, dims.len()) {
            (Interpolation::Nearest, _) | (_, 2) | (Interpolation::Linear, 3) => true,
            (Interpolation::Linear, 4 | 5) | (Interpolation::Cubic, 4) => kept(0) && kept(1),
            _ => false,
        };
        if has_kernel {
            return self.resize_node(&x, &target, &attributes);
        }
        let mut y = self.in_f32(&x);
        let mut dims_now = dims.to_vec();
        for axis in (0..dims.len()).filter(|&axis| !kept(axis)) {
            y = self.resize_axis(&y, &dims_now, axis, &target, &attributes)?;
            dims_now[axis] = -1;
        }
        Ok(self.cast(&y, x.dtype))
    }

    fn resize_node(&mut self, x: &Value, target: &Target, attributes: &[AttributeProto]) -> Result<Value> {
        let aim = match target {
            Target::Sizes(sizes) => sizes.clone(),
            Target::Scales(scales) => self.f32s(scales),
        };
        let mut call = self.call("Resize").data(x).absent();
        call = match target {
            Target::Sizes(_) => call.absent().plain(&aim),
            Target::Scales(_) => call.plain(&aim),
        };
        for attribute in attributes {
            call = call.attr(attribute.clone());
        }
        call.value()
    }

    /// One axis of a resize, which is a product of resizes of one axis each: as the height of an image [1, before, axis, after].
    fn resize_axis(
        &mut self,
        x: &Value,
        dims: &[i64],
        axis: usize,
        target: &Target,
        attributes: &[AttributeProto],
    ) -> Result<Value> {
        let rank = dims.len();
        let one = self.i64s(&[1]);
        let before = self.volume(x, dims, 0..axis)?;
        let after = self.volume(x, dims, axis + 1..rank)?;
        let length = self.sizes(x, dims, axis..axis + 1)?;
        let shape = self.join(&[one.clone(), before.clone(), length, after.clone()])?;
        let image = self.reshape_to(x, &shape, true)?;
        let target = match target {
            Target::Sizes(sizes) => {
                let at = self.i64s(&[axis as i64]);
                let length = self.take(sizes, &at, 0)?;
                Target::Sizes(self.join(&[one, before, length, after])?)
            }
            Target::Scales(scales) => {
                Target::Scales(vec![1.0, 1.0, scales.get(axis).copied().unwrap_or(1.0), 1.0])
            }
        };
        let resized = self.resize_node(&image, &target, attributes)?;
        let mut parts = Vec::new();
        if axis > 0 {
            parts.push(self.sizes(x, dims, 0..axis)?);
        }
        parts.push(self.sizes(&resized, &[-1; 4], 2..3)?);
        if axis + 1 < rank {
            parts.push(self.sizes(x, dims, axis + 1..rank)?);
        }
        let shape = self.join(&parts)?;
        self.reshape_to(&resized, &shape, true)
    }

    /// Product of some dims: i64, dims [1].
    fn volume(&mut self, x: &Value, dims: &[i64], axes: std::ops::Range<usize>) -> Result<Value> {
        if axes.is_empty() {
            return Ok(self.i64s(&[1]));
        }
        let sizes = self.sizes(x, dims, axes)?;
        let zero = self.i64s(&[0]);
        self.call("ReduceProd").data(&sizes).plain(&zero).attr(attr_i("keepdims", 1)).value()
    }
}

//! Windows as slices: each place of the kernel is a strided slice of the padded tensor. For what TensorRT's pooling lacks:
//! dilation, and which place of the window was chosen.

use crate::{Emit, ctx::window::Attributes};
use trtc_ir::{Code, Dim, Refusal};
use trtc_network::{
    TensorId,
    layer::{ElementWiseOp, Extent, Layer, SampleMode},
};

/// Windows over known spatial dims of [N, C, spatial…].
#[derive(Clone, Debug)]
pub struct Taps {
    /// Spatial dims.
    pub dims: Vec<i64>,
    /// Padding before.
    pub before: Vec<i64>,
    /// Padding after.
    pub after: Vec<i64>,
    /// Dims with both, and with what the last window reaches beyond.
    pub padded: Vec<i64>,
    /// Kernel size.
    pub kernel: Vec<i64>,
    /// Stride.
    pub stride: Vec<i64>,
    /// Dilation.
    pub dilation: Vec<i64>,
    /// Dims of the result.
    pub output: Vec<i64>,
}

/// Places of windows that are told apart.
pub const MOST_PLACES: i64 = 1 << 24;

/// Slices beyond this number are no gain over the host.
pub const MOST_SLICES: i64 = 96;

impl Taps {
    /// Plans windows with the attributes' paddings.
    ///
    /// # Errors
    /// `E0303`: a dim that only the run knows. `E0304`: too many places.
    pub fn plan(
        attributes: &Attributes,
        spatial: &[Dim],
        before: Vec<i64>,
        after: Vec<i64>,
    ) -> Result<Taps, Refusal> {
        let dims: Vec<i64> = spatial.iter().map(Dim::known).collect::<Option<_>>().ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "such a window over dims that only the run knows")
                .slot("X")
                .help("give the input's shape with --shape")
        })?;
        let overhang = attributes.overhang(spatial, &before, &after)?;
        let (mut padded, mut output) = (Vec::new(), Vec::new());
        for (axis, d) in dims.iter().enumerate() {
            let whole = before[axis].saturating_add(*d).saturating_add(after[axis] + overhang[axis]);
            padded.push(whole);
            output.push((whole - attributes.reach(axis)).div_euclid(attributes.strides[axis]) + 1);
        }
        let places = |dims: &[i64]| dims.iter().try_fold(1i64, |n, d| n.checked_mul(*d));
        if [&padded, &output].iter().any(|dims| places(dims).is_none_or(|n| n > MOST_PLACES)) {
            return Err(Refusal::new(Code::SHAPE, "such a window at too many places").slot("X"));
        }
        Ok(Taps {
            dims,
            before,
            after,
            padded,
            kernel: attributes.kernel.clone(),
            stride: attributes.strides.clone(),
            dilation: attributes.dilations.clone(),
            output,
        })
    }

    /// Refuses when windows that are taken one axis after the other need too many slices.
    ///
    /// # Errors
    /// `E0201`.
    pub fn few_along_axes(&self) -> Result<(), Refusal> {
        self.few(self.kernel.iter().fold(0i64, |n, k| n.saturating_add(*k)))
    }

    /// Refuses when a slice for every place of the kernel is too many.
    ///
    /// # Errors
    /// `E0201`.
    pub fn few_in_all(&self) -> Result<(), Refusal> {
        self.few(self.kernel.iter().fold(1i64, |n, k| n.saturating_mul(*k)))
    }

    fn few(&self, slices: i64) -> Result<(), Refusal> {
        if slices > MOST_SLICES {
            let why = format!("a window of {:?}, which would take {slices} slices", self.kernel);
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("kernel_shape"));
        }
        Ok(())
    }

    /// The tensor with `value` around it.
    pub fn padded(&self, cx: &mut Emit<'_>, x: TensorId, value: f64) -> TensorId {
        let dtype = cx.dtype(x);
        let fill = Some(cx.scalar(dtype, 0, value));
        let start = lead(0, &self.before.iter().map(|pad| -pad).collect::<Vec<i64>>());
        let (size, stride) = (with_spatial(cx, x, &self.padded), lead(1, &vec![1; self.before.len()]));
        cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Fill, fill })
    }

    /// Max or sum over each window, of a tensor that is padded: one axis after the other.
    pub fn reduced(&self, cx: &mut Emit<'_>, x: TensorId, op: ElementWiseOp) -> TensorId {
        let n = self.kernel.len();
        let mut dims = self.padded.clone();
        let mut y = x;
        for axis in 0..n {
            dims[axis] = self.output[axis];
            let mut stride = vec![1; n];
            stride[axis] = self.stride[axis];
            let mut result: Option<TensorId> = None;
            for k in 0..self.kernel[axis] {
                let mut start = vec![0; n];
                start[axis] = k * self.dilation[axis];
                let part = part(cx, y, &start, &dims, &stride);
                result = Some(result.map_or(part, |so_far| cx.elementwise(so_far, part, op)));
            }
            y = result.unwrap_or(y);
        }
        y
    }

    /// How many elements a window counts at each place of the result.
    pub fn counts(&self, count_pads: bool) -> Vec<f64> {
        let along = (0..self.kernel.len()).map(|axis| {
            let (before, d, after) = (self.before[axis], self.dims[axis], self.after[axis]);
            let counted = if count_pads { 0..before + d + after } else { before..before + d };
            let at = |place: i64| {
                let offsets =
                    (0..self.kernel[axis]).map(|k| place * self.stride[axis] + k * self.dilation[axis]);
                offsets.filter(|at| counted.contains(at)).count() as f64
            };
            (0..self.output[axis]).map(at).collect::<Vec<f64>>()
        });
        along.fold(vec![1.0], |counts, axis| {
            counts.iter().flat_map(|a| axis.iter().map(move |b| a * b)).collect()
        })
    }

    /// Places of the kernel, the last axis fastest: offsets in the padded tensor.
    pub fn places(&self) -> Vec<Vec<i64>> {
        let mut places = vec![Vec::new()];
        for (kernel, dilation) in self.kernel.iter().zip(&self.dilation) {
            let next = |place: &Vec<i64>| {
                let place = place.clone();
                (0..*kernel).map(move |k| [place.clone(), vec![k * dilation]].concat())
            };
            places = places.iter().flat_map(next).collect();
        }
        places
    }

    /// What stands at one place of every window, of a tensor that is padded.
    pub fn at(&self, cx: &mut Emit<'_>, x: TensorId, place: &[i64]) -> TensorId {
        part(cx, x, place, &self.output, &self.stride)
    }
}

fn part(cx: &mut Emit<'_>, x: TensorId, start: &[i64], dims: &[i64], stride: &[i64]) -> TensorId {
    let size = with_spatial(cx, x, dims);
    let (start, stride) = (lead(0, start), lead(1, stride));
    cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })
}

fn lead(value: i64, spatial: &[i64]) -> Extent {
    Extent::Static([&[value; 2], spatial].concat())
}

/// The first two dims of `x`, read from the tensor where they are dynamic, and `spatial`.
pub fn with_spatial(cx: &mut Emit<'_>, x: TensorId, spatial: &[i64]) -> Extent {
    let lead: Vec<i64> = cx.dims(x).iter().take(2).copied().collect();
    if lead.iter().all(|&d| d >= 0) {
        return Extent::Static([&lead, spatial].concat());
    }
    let mut parts = vec![cx.dim_of(x, 0), cx.dim_of(x, 1)];
    parts.push(cx.i64s(spatial));
    Extent::Tensor(cx.one(Layer::Concatenation { xs: parts, axis: 0 }))
}

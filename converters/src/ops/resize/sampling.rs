//! Where a resize samples, in f32 as ONNX Runtime computes it (`upsamplebase.h`, `upsample.cc`).

use trtc_ir::NodeView;
use trtc_network::layer::{Coordinates, Interpolation, ResizeRound, ResizeSelector};

/// Attributes, as far as they decide the samples.
#[derive(Clone, Debug)]
pub struct Mode {
    pub interpolation: Interpolation,
    pub coordinates: Coordinates,
    pub selector: ResizeSelector,
    /// Rounding; nearest only.
    pub nearest: Option<ResizeRound>,
    pub cubic_coeff: f32,
    pub exclude_outside: bool,
    /// Whether the kernel is stretched when the tensor shrinks.
    pub antialias: bool,
    pub transformation: Transformation,
}

/// From a place in the result to a place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transformation {
    HalfPixel,
    PytorchHalfPixel,
    HalfPixelSymmetric,
    AlignCorners,
    Asymmetric,
    /// Of older models: half_pixel without its shift back.
    TfHalfPixelForNn,
    /// Within a region, a part of the source; what lies outside of the source is a value of its own.
    Crop,
}

impl Mode {
    /// Reads the attributes; an attribute's name and what is wrong with it otherwise.
    pub fn read(node: NodeView<'_>) -> Result<Mode, (&'static str, String)> {
        const COORDINATES: &str = "coordinate_transformation_mode";
        let interpolation = match node.str("mode", "nearest") {
            "nearest" => Interpolation::Nearest,
            "linear" => Interpolation::Linear,
            "cubic" => Interpolation::Cubic,
            other => return Err(("mode", format!("`{other}` is no interpolation"))),
        };
        let transformation = match node.str(COORDINATES, "half_pixel") {
            "half_pixel" => Transformation::HalfPixel,
            "pytorch_half_pixel" => Transformation::PytorchHalfPixel,
            "half_pixel_symmetric" => Transformation::HalfPixelSymmetric,
            "align_corners" => Transformation::AlignCorners,
            "asymmetric" => Transformation::Asymmetric,
            "tf_half_pixel_for_nn" => Transformation::TfHalfPixelForNn,
            "tf_crop_and_resize" => Transformation::Crop,
            other => return Err((COORDINATES, format!("`{other}` is no transformation"))),
        };
        let nearest = match node.str("nearest_mode", "round_prefer_floor") {
            "round_prefer_floor" => ResizeRound::HalfDown,
            "round_prefer_ceil" => ResizeRound::HalfUp,
            "floor" => ResizeRound::Floor,
            "ceil" => ResizeRound::Ceil,
            other => return Err(("nearest_mode", format!("`{other}` is no rounding"))),
        };
        let (coordinates, selector) = match transformation {
            Transformation::HalfPixel | Transformation::HalfPixelSymmetric => {
                (Coordinates::HalfPixel, ResizeSelector::Formula)
            }
            Transformation::PytorchHalfPixel => (Coordinates::HalfPixel, ResizeSelector::Upper),
            Transformation::AlignCorners => (Coordinates::AlignCorners, ResizeSelector::Upper),
            // The last two never reach the layer.
            Transformation::Asymmetric | Transformation::TfHalfPixelForNn | Transformation::Crop => {
                (Coordinates::Asymmetric, ResizeSelector::Formula)
            }
        };
        let antialias = interpolation != Interpolation::Nearest && node.int("antialias", 0) != 0;
        Ok(Mode {
            interpolation,
            coordinates,
            selector,
            nearest: (interpolation == Interpolation::Nearest).then_some(nearest),
            cubic_coeff: node.float("cubic_coeff_a", -0.75),
            // Plain linear weights beyond an end go to the end: as if they were left out.
            exclude_outside: (interpolation == Interpolation::Cubic || antialias)
                && node.int("exclude_outside", 0) != 0,
            antialias,
            transformation,
        })
    }

    /// Whether TensorRT's layer samples just so, when scales are ratios of sizes. Linear is over the last three dims,
    /// cubic over the last two.
    pub fn layer(&self, changed: &[usize], rank: usize) -> bool {
        let own = matches!(self.transformation, Transformation::TfHalfPixelForNn | Transformation::Crop);
        if own || self.antialias {
            return false;
        }
        let within = |n: usize| changed.iter().all(|&axis| axis + n >= rank);
        match self.interpolation {
            Interpolation::Nearest => true,
            Interpolation::Linear => within(3),
            Interpolation::Cubic => within(2) && rank >= 3,
        }
    }
}

impl Mode {
    /// Whether every sample lies far from where a last bit would decide: always but for nearest, where that needs an
    /// enlargement by a whole factor (the largest is `factor`).
    pub fn settled(&self, factor: i64) -> bool {
        match (self.nearest, self.coordinates) {
            (None, _) => true,
            (Some(ResizeRound::Floor), Coordinates::Asymmetric) => factor <= 16,
            (Some(ResizeRound::HalfDown | ResizeRound::HalfUp), Coordinates::HalfPixel) => factor <= 1 << 12,
            _ => false,
        }
    }
}

impl Mode {
    /// How far the kernel reaches to either side, in places of the source, before it is stretched.
    pub fn support(&self) -> f64 {
        if self.interpolation == Interpolation::Cubic { 2.0 } else { 1.0 }
    }

    /// The kernel at distance `d` from its centre.
    fn kernel(&self, d: f64) -> f64 {
        let (a, d) = (f64::from(self.cubic_coeff), d.abs());
        match self.interpolation {
            Interpolation::Cubic if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
            Interpolation::Cubic if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
            Interpolation::Cubic => 0.0,
            _ => (1.0 - d).max(0.0),
        }
    }
}

/// One axis.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    pub from: i64,
    pub to: i64,
    pub scale: f32,
    /// Start and end of the region, as parts of the axis; of [`Transformation::Crop`].
    pub region: (f32, f32),
}

impl Sampling {
    /// Place in the source of a place in the result.
    fn source(&self, place: i64, transformation: Transformation) -> f32 {
        let (x, from, to) = (place as f32, self.from as f32, self.to as f32);
        let half_pixel = (x + 0.5) / self.scale - 0.5;
        match transformation {
            Transformation::HalfPixel => half_pixel,
            Transformation::PytorchHalfPixel => {
                if self.to > 1 {
                    half_pixel
                } else {
                    0.0
                }
            }
            Transformation::HalfPixelSymmetric => {
                let adjustment = to / (self.scale * from);
                from / 2.0 * (1.0 - adjustment) + half_pixel
            }
            Transformation::AlignCorners => {
                if self.to == 1 {
                    0.0
                } else {
                    x * (from - 1.0) / (to - 1.0)
                }
            }
            Transformation::Asymmetric => x / self.scale,
            Transformation::Crop => {
                let (start, end) = self.region;
                if self.to > 1 {
                    start * (from - 1.0) + x * (end - start) * (from - 1.0) / (to - 1.0)
                } else {
                    0.5 * (start + end) * (from - 1.0)
                }
            }
            Transformation::TfHalfPixelForNn => (x + 0.5) / self.scale,
        }
    }

    /// Source index of each place.
    pub fn nearest(&self, mode: &Mode) -> Vec<i64> {
        let index = |place: i64| {
            let cropped = mode.transformation == Transformation::Crop;
            let x = if self.scale == 1.0 && self.from == self.to && !cropped {
                place as f32
            } else {
                self.source(place, mode.transformation)
            };
            let rounded = match mode.nearest {
                Some(ResizeRound::HalfDown) => {
                    if x == x.trunc() + 0.5 {
                        x.floor()
                    } else {
                        x.round()
                    }
                }
                Some(ResizeRound::HalfUp) => x.round(),
                Some(ResizeRound::Ceil) => x.ceil(),
                _ => x.floor(),
            };
            (rounded as i64).clamp(0, self.from - 1)
        };
        (0..self.to).map(index).collect()
    }

    /// Which places of the result lie inside the source.
    pub fn inside(&self, mode: &Mode) -> Vec<bool> {
        let inside = |place| {
            let x = self.source(place, mode.transformation);
            x >= 0.0 && x <= (self.from - 1) as f32
        };
        (0..self.to).map(inside).collect()
    }

    /// What each place of the result is made of: indices, ascending, and their weights.
    pub fn parts(&self, mode: &Mode) -> Vec<Vec<(i64, f64)>> {
        let parts = |place: i64| {
            let x = self.source(place, mode.transformation);
            let mut list = match mode.interpolation {
                Interpolation::Linear if !mode.antialias => self.linear(x),
                _ => self.spread(x, mode),
            };
            list.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                if same {
                    kept.1 += next.1;
                }
                same
            });
            list
        };
        (0..self.to).map(parts).collect()
    }

    fn linear(&self, x: f32) -> Vec<(i64, f64)> {
        let last = self.from - 1;
        let x = x.clamp(0.0, last as f32);
        let low = (x as i64).min(last);
        let high = (low + 1).min(last);
        let part = f64::from(x - low as f32);
        vec![(low, 1.0 - part), (high, part)]
    }

    /// The kernel around x. What lies before the first place or after the last counts as that place, or not at all.
    fn spread(&self, x: f32, mode: &Mode) -> Vec<(i64, f64)> {
        let squeeze = if mode.antialias { f64::from(self.scale).min(1.0) } else { 1.0 };
        let x = f64::from(x);
        let reach = mode.support() / squeeze;
        let counted = |index: &i64| !mode.exclude_outside || (0..self.from).contains(index);
        let mut list: Vec<(i64, f64)> = ((x - reach).ceil() as i64..=(x + reach).floor() as i64)
            .filter(counted)
            .map(|index| (index.clamp(0, self.from - 1), mode.kernel((index as f64 - x) * squeeze)))
            .filter(|part| part.1 != 0.0)
            .collect();
        let total: f64 = list.iter().map(|part| part.1).sum();
        if (mode.exclude_outside || mode.antialias) && total != 0.0 {
            list.iter_mut().for_each(|part| part.1 /= total);
        }
        list
    }
}

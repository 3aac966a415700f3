//! Where a resize samples, in f32 as ONNX Runtime computes it (`upsamplebase.h`, `upsample.cc`).

use trtc_ir::NodeView;
use trtc_network::layer::{Coordinates, Interpolation, ResizeRound, ResizeSelector};

/// Attributes, as far as they decide the samples.
#[derive(Debug)]
pub struct Mode {
    pub interpolation: Interpolation,
    pub coordinates: Coordinates,
    pub selector: ResizeSelector,
    /// Rounding; nearest only.
    pub nearest: Option<ResizeRound>,
    pub cubic_coeff: f32,
    pub exclude_outside: bool,
    transformation: Transformation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transformation {
    HalfPixel,
    PytorchHalfPixel,
    HalfPixelSymmetric,
    AlignCorners,
    Asymmetric,
    /// Of older models: half_pixel without its shift back.
    TfHalfPixelForNn,
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
            other => return Err((COORDINATES, format!("TensorRT does not sample by `{other}`"))),
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
            Transformation::Asymmetric | Transformation::TfHalfPixelForNn => {
                (Coordinates::Asymmetric, ResizeSelector::Formula)
            }
        };
        Ok(Mode {
            interpolation,
            coordinates,
            selector,
            nearest: (interpolation == Interpolation::Nearest).then_some(nearest),
            cubic_coeff: node.float("cubic_coeff_a", -0.75),
            exclude_outside: interpolation == Interpolation::Cubic && node.int("exclude_outside", 0) != 0,
            transformation,
        })
    }

    /// Whether TensorRT's layer samples just so, when scales are ratios of sizes. Linear is over the last three dims,
    /// cubic over the last two.
    pub fn layer(&self, changed: &[usize], rank: usize) -> bool {
        if self.transformation == Transformation::TfHalfPixelForNn {
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

/// One axis.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    pub from: i64,
    pub to: i64,
    pub scale: f32,
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
            Transformation::TfHalfPixelForNn => (x + 0.5) / self.scale,
        }
    }

    /// Source index of each place.
    pub fn nearest(&self, mode: &Mode) -> Vec<i64> {
        let index = |place: i64| {
            let x = if self.scale == 1.0 && self.from == self.to {
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

    /// Weights [to, from], row by row.
    pub fn weights(&self, mode: &Mode) -> Vec<f64> {
        let columns = self.from.max(0) as usize;
        let mut rows = vec![0.0; columns * self.to.max(0) as usize];
        for (place, row) in rows.chunks_exact_mut(columns.max(1)).enumerate() {
            let x = self.source(place as i64, mode.transformation);
            match mode.interpolation {
                Interpolation::Cubic => self.cubic(x, mode, row),
                _ => self.linear(x, row),
            }
        }
        rows
    }

    fn linear(&self, x: f32, row: &mut [f64]) {
        let last = self.from - 1;
        let x = x.clamp(0.0, last as f32);
        let low = (x as i64).min(last);
        let high = (low + 1).min(last);
        let part = f64::from(x - low as f32);
        row[low as usize] += 1.0 - part;
        row[high as usize] += part;
    }

    fn cubic(&self, x: f32, mode: &Mode, row: &mut [f64]) {
        let a = f64::from(mode.cubic_coeff);
        let base = x.floor();
        let s = f64::from(x - base);
        let near = |d: f64| ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
        let far = |d: f64| ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
        let taps = [far(s + 1.0), near(s), near(1.0 - s), far(2.0 - s)];
        let index = |k: usize| base as i64 - 1 + k as i64;
        let inside = |k: usize| (0..self.from).contains(&index(k));
        let counted = |k: usize| !mode.exclude_outside || inside(k);
        let total: f64 = match mode.exclude_outside {
            true => (0..4).filter(|&k| counted(k)).map(|k| taps[k]).sum(),
            false => 1.0,
        };
        for (k, tap) in taps.iter().enumerate().filter(|&(k, _)| counted(k)) {
            row[index(k).clamp(0, self.from - 1) as usize] += tap / total;
        }
    }
}

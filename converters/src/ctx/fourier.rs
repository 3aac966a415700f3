//! The discrete Fourier transform as a matrix.

use crate::{
    Emit,
    ctx::{floats, reshape},
};
use std::f64::consts::TAU;
use trtc_bundle::DType;
use trtc_ir::{Code, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{GatherMode, MatrixOp},
};

/// A transform of lines of numbers that are real (one part) or complex (two).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// Numbers that are read; of a longer line the first ones. Those that lack up to `length` count as 0.
    pub read: i64,
    /// Parts of a number that is read: 1 or 2.
    pub parts: i64,
    /// Length of the transform.
    pub length: i64,
    /// Numbers of the result.
    pub bins: i64,
    /// e^(+2πi…) / length instead of e^(−2πi…).
    pub inverse: bool,
    /// Inverse of half a spectrum: what is read stands for its mirror image too, and the result is real.
    pub halved: bool,
}

/// Largest matrix.
const MOST_WEIGHTS: i64 = 1 << 24;

impl Transform {
    /// Parts of a number of the result.
    pub fn parts_out(&self) -> i64 {
        if self.halved { 1 } else { 2 }
    }

    /// Refuses a matrix that is too large, and lengths that are none.
    ///
    /// # Errors
    /// `E0304`.
    pub fn check(&self) -> Result<(), Refusal> {
        let size = [self.read, self.parts, self.bins, self.parts_out()];
        let size = size.iter().try_fold(1i64, |n, d| n.checked_mul(*d));
        match size {
            Some(size) if (1..=MOST_WEIGHTS).contains(&size) && self.length >= 1 => Ok(()),
            _ => Err(Refusal::new(
                Code::SHAPE,
                format!("a transform of {} numbers into {}, as a matrix", self.read, self.bins),
            )
            .slot("input")),
        }
    }

    /// Weights [read · parts, bins · parts of the result].
    fn weights(&self) -> Vec<f64> {
        let mut weights = Vec::new();
        for j in 0..self.read {
            // Numbers of a half spectrum but the first and the middle one occur twice.
            let single = j == 0 || 2 * j == self.length;
            let share = if self.inverse { 1.0 / self.length as f64 } else { 1.0 };
            let share = if self.halved && !single { 2.0 * share } else { share };
            for part in 0..self.parts {
                for k in 0..self.bins {
                    let (cos, sin) = turn(j, k, self.length);
                    let sin = if self.inverse { sin } else { -sin };
                    let (re, im) = if part == 0 { (cos, sin) } else { (-sin, cos) };
                    weights.push(share * re);
                    if !self.halved {
                        weights.push(share * im);
                    }
                }
            }
        }
        weights
    }

    /// Transforms the numbers along the last axis but one, the last being their parts; f32, rank at least 2.
    pub fn emit(&self, cx: &mut Emit<'_>, x: TensorId) -> TensorId {
        let rank = cx.rank(x);
        let x = match cx.dims(x).get(rank.saturating_sub(2)) {
            Some(&n) if n > self.read => {
                let line: Vec<i64> = (0..self.read).collect();
                let indices = cx.i64s(&line);
                let axis = rank.saturating_sub(2) as u32;
                cx.one(Layer::Gather { data: x, indices, axis, mode: GatherMode::Default, batch_dims: 0 })
            }
            _ => x,
        };
        let (rows, columns) = (self.read * self.parts, self.bins * self.parts_out());
        let weights = floats::constant(cx, DType::F32, vec![rows, columns], &self.weights());
        let lead = vec![0; rank.saturating_sub(2)];
        let joined = |last: &[i64]| [lead.as_slice(), last].concat();
        if rank < 3 {
            let x = cx.reshape(x, vec![1, rows]);
            let (op_a, op_b) = (MatrixOp::None, MatrixOp::None);
            let y = cx.one(Layer::MatrixMultiply { a: x, op_a, b: weights, op_b });
            return cx.reshape(y, vec![self.bins, self.parts_out()]);
        }
        let x = reshape::copying(cx, x, joined(&[rows]));
        let weights = cx.with_rank(weights, rank - 1);
        let (op_a, op_b) = (MatrixOp::None, MatrixOp::None);
        let y = cx.one(Layer::MatrixMultiply { a: x, op_a, b: weights, op_b });
        reshape::copying(cx, y, joined(&[self.bins, self.parts_out()]))
    }
}

/// Cosine and sine of 2π·j·k/n; exact at quarters of a turn.
fn turn(j: i64, k: i64, n: i64) -> (f64, f64) {
    let part = (i128::from(j) * i128::from(k)).rem_euclid(i128::from(n)) as i64;
    match (4 * part).checked_rem(n) {
        Some(0) => [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][(4 * part / n) as usize % 4],
        _ => {
            let angle = TAU * part as f64 / n as f64;
            (angle.cos(), angle.sin())
        }
    }
}

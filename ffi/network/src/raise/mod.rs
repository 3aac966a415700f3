//! TensorRT layers back to ONNX, to run a network without TensorRT.
//!
//! [`raise`] says what each layer computes *by TensorRT's own description* (`NvInfer.h`), in ONNX operators that ONNX
//! Runtime has CPU kernels for. It never asks how a layer came about, so that a converter and a raiser do not agree with
//! each other in silence.
//!
//! Numbers are those of the dtypes in the network: where ONNX Runtime has no kernel for one, the operator runs in a wider
//! type and its result is rounded back (f16, bf16 and fp8 to f32; i8 to i32; bool to u8). What is not rounded the way a
//! GPU rounds: sums inside one operator (a f16 convolution adds in f32), and functions of several operators (a softplus
//! with β), which are computed in f32 throughout.
//!
//! Known differences: an index outside of a gather's data is an error of ONNX Runtime's (TensorRT reads 0); ties of a TopK
//! come in order of their index (TensorRT does not say); all boxes take part in a NMS (TensorRT: the 5,000 of the
//! highest scores); a resize by scales maps coordinates by the scale, not by the ratio of the lengths, but for aligned
//! corners (the header speaks of lengths only, NVIDIA's parser hands ONNX's scales on); the elements of a loop's output past its last iteration are 0 (TensorRT does not say).

mod arith;
mod control;
mod emit;
mod index;
mod kernels;
mod matrix;
mod quantize;
mod resize;
mod shape;
mod spatial;

use crate::layer::{Layer, LayerEntry};
use crate::network::{Lowered, WeightsId};
use emit::Raiser;
use trtc_onnx::ModelProto;

/// Opset of a raised model: one for which ONNX Runtime has every kernel that raising needs.
pub const OPSET: i64 = 21;

/// Weights of at most this many bytes always stand in the model: ONNX Runtime wants shape constants there.
pub const INLINE_BYTES: usize = 1024;

/// Where the bytes of a block of weights are, as seen from the raised model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsPlacement {
    /// In the model itself.
    Inline,
    /// In a file, packed as in [`Lowered::weights`].
    External {
        /// Path of the file, relative to the folder that the model is loaded from.
        location: String,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

/// How to raise.
#[derive(Clone, Copy)]
pub struct RaiseOptions<'a> {
    weights: &'a dyn Fn(WeightsId) -> WeightsPlacement,
}

impl<'a> RaiseOptions<'a> {
    /// All weights stand in the model.
    pub fn new() -> RaiseOptions<'static> {
        RaiseOptions { weights: &|_| WeightsPlacement::Inline }
    }

    /// Asks `placement` where each block of weights of more than [`INLINE_BYTES`] is.
    #[must_use]
    pub fn with_weights(placement: &'a dyn Fn(WeightsId) -> WeightsPlacement) -> RaiseOptions<'a> {
        RaiseOptions { weights: placement }
    }
}

impl Default for RaiseOptions<'_> {
    fn default() -> Self {
        RaiseOptions::new()
    }
}

impl std::fmt::Debug for RaiseOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RaiseOptions").finish_non_exhaustive()
    }
}

/// Why a network cannot be raised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RaiseError {
    /// ONNX, or ONNX Runtime on a CPU, has nothing that does what the layer does.
    #[error("{layer} layer of node `{node}`: {what} has no counterpart that ONNX Runtime can run")]
    NoCounterpart {
        /// TensorRT's name of the layer.
        layer: &'static str,
        /// The source node.
        node: String,
        /// What the layer asks for.
        what: String,
    },
    /// The network contradicts itself: a fault of whoever made it.
    #[error("{layer} layer of node `{node}`: {what}")]
    Malformed {
        /// TensorRT's name of the layer; `Network` for an input or output.
        layer: &'static str,
        /// The source node, empty for an input or output.
        node: String,
        /// What is wrong.
        what: String,
    },
}

pub(crate) type Result<T, E = RaiseError> = std::result::Result<T, E>;

/// The network as an ONNX model (opset [`OPSET`], IR version 10).
///
/// Inputs and outputs have the binding names, dtypes and dims of the network, in binding order; a dim that only the run
/// knows has no value. Weights are slices of [`Lowered::weights`], not copies.
///
/// # Errors
/// A layer that has no counterpart (random fills, fp4, layers over several devices), or a network that contradicts itself.
pub fn raise(lowered: &Lowered, options: &RaiseOptions<'_>) -> Result<ModelProto> {
    let mut raiser = Raiser::new(lowered, options);
    raiser.inputs()?;
    raiser.layers(&lowered.network.layers)?;
    raiser.finish()
}

impl Raiser<'_> {
    /// Emits layers in order.
    fn layers(&mut self, layers: &[LayerEntry]) -> Result<()> {
        for entry in layers {
            self.enter(entry);
            self.layer(entry)?;
            self.leave();
        }
        Ok(())
    }

    fn layer(&mut self, entry: &LayerEntry) -> Result<()> {
        let value = match &entry.layer {
            Layer::Activation { x, kind, alpha, beta } => self.activation(*x, *kind, *alpha, *beta),
            Layer::Cast { x, to } => self.get(*x).map(|x| self.cast(&x, *to)),
            Layer::Concatenation { xs, axis } => self.concatenation(xs, *axis),
            Layer::Constant { dims, weights } => self.weights(*weights, dims),
            Layer::Convolution { x, kernel, bias, window, groups } => {
                self.convolution("Conv", *x, *kernel, *bias, window, *groups)
            }
            Layer::Cumulative { x, axis, op, exclusive, reverse } => {
                self.cumulative(*x, *axis, *op, *exclusive, *reverse)
            }
            Layer::Deconvolution { x, kernel, bias, window, groups } => {
                self.convolution("ConvTranspose", *x, *kernel, *bias, window, *groups)
            }
            Layer::Dequantize { x, scale, axis, to } => self.dequantize(*x, *scale, *axis, *to),
            Layer::Einsum { xs, equation } => self.einsum(xs, equation),
            Layer::ElementWise { a, b, op } => self.elementwise(*a, *b, *op),
            Layer::Fill { shape, op, alpha, beta, to } => self.fill(shape, *op, *alpha, *beta, *to),
            Layer::Gather { data, indices, axis, mode, batch_dims } => {
                self.gather(*data, *indices, *axis, *mode, *batch_dims)
            }
            Layer::GridSample { x, grid, interpolation, align_corners, mode } => {
                self.grid_sample(*x, *grid, *interpolation, *align_corners, *mode)
            }
            Layer::Identity { x } => self.get(*x),
            Layer::If { condition, captures, then_branch, else_branch } => {
                let values = self.if_layer(*condition, captures, then_branch, else_branch)?;
                return self.bind_all(entry, values);
            }
            Layer::Loop { limits, recurrences, iterators, body, results } => {
                let values = self.loop_layer(limits, recurrences, iterators, body, results)?;
                return self.bind_all(entry, values);
            }
            Layer::Lrn { x, window, alpha, beta, k } => self.lrn(*x, *window, *alpha, *beta, *k),
            Layer::MatrixMultiply { a, op_a, b, op_b } => self.matrix_multiply(*a, *op_a, *b, *op_b),
            Layer::Nms { boxes, scores, max_output_boxes, iou_threshold, score_threshold, format, to } => {
                let thresholds = [*iou_threshold, *score_threshold];
                let values = self.nms(*boxes, *scores, *max_output_boxes, thresholds, *format, *to)?;
                return self.bind_all(entry, values);
            }
            Layer::NonZero { x, to } => self.non_zero(*x, *to),
            Layer::Normalization { x, scale, bias, axes, epsilon, groups } => {
                self.normalization(*x, *scale, *bias, axes, *epsilon, *groups)
            }
            Layer::OneHot { indices, values, depth, axis } => self.one_hot(*indices, *values, *depth, *axis),
            Layer::ParametricRelu { x, slopes } => self.parametric_relu(*x, *slopes),
            Layer::Pooling { x, kind, window, exclude_padding, blend } => {
                self.pooling(*x, *kind, window, *exclude_padding, *blend)
            }
            Layer::Quantize { x, scale, axis, to } => self.quantize(*x, *scale, *axis, *to),
            Layer::Reduce { x, op, axes, keep_dims } => self.reduce(*x, *op, axes, *keep_dims),
            Layer::Resize { .. } => self.resize(entry),
            Layer::ReverseSequence { x, lengths, batch_axis, sequence_axis } => {
                self.reverse_sequence(*x, *lengths, *batch_axis, *sequence_axis)
            }
            Layer::Scatter { data, indices, updates, mode, axis } => {
                self.scatter(*data, *indices, *updates, *mode, *axis)
            }
            Layer::Select { condition, then_input, else_input } => {
                self.select(*condition, *then_input, *else_input)
            }
            Layer::Shape { x } => self.shape(*x),
            Layer::Shuffle { x, first, reshape, zero_is_placeholder, second } => {
                self.shuffle(*x, first.as_deref(), reshape.as_ref(), *zero_is_placeholder, second.as_deref())
            }
            Layer::Slice { x, start, size, stride, mode, fill } => {
                self.slice(*x, [start, size, stride], *mode, *fill)
            }
            Layer::SoftMax { x, axis } => self.softmax(*x, *axis),
            Layer::Squeeze { x, axes } => self.get(*x).and_then(|x| self.squeeze(&x, axes)),
            Layer::TopK { x, op, k, axis, indices } => {
                let values = self.top_k(*x, *op, k, *axis, *indices)?;
                return self.bind_all(entry, values);
            }
            Layer::Unary { x, op } => self.unary(*x, *op),
            Layer::Unsqueeze { x, axes } => self.get(*x).and_then(|x| self.unsqueeze(&x, axes)),
        }?;
        self.bind_all(entry, vec![value])
    }
}

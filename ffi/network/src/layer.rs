//! Every TensorRT layer that a converter may emit, as data.
//!
//! Field names follow TensorRT's C++ API (`NvInfer.h`). `x` is the layer's first input. Where the API takes either
//! build-time values or a shape tensor, the field is an [`Extent`]. Axes are plain numbers, not bit masks.

use crate::network::{TensorId, WeightsId};
use serde::{Deserialize, Serialize};
use trtc_bundle::DType;

macro_rules! kinds {
    ($($(#[$meta:meta])* $name:ident { $($variant:ident),* $(,)? })*) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "the variants are TensorRT's own names")]
        pub enum $name { $($variant),* })*
    };
}

kinds! {
    /// `ActivationType`. Uses of alpha and beta are TensorRT's: LeakyRelu α; Elu α; Selu β(x or α(eˣ−1)); Softsign none;
    /// Softplus α·log(1+e^(βx)); Clip max(α, min(β, x)); HardSigmoid max(0, min(1, αx+β)); ScaledTanh α·tanh(βx);
    /// ThresholdedRelu α.
    ActivationKind {
        Relu, Sigmoid, Tanh, LeakyRelu, Elu, Selu, Softsign, Softplus, Clip, HardSigmoid, ScaledTanh,
        ThresholdedRelu, GeluErf, GeluTanh,
    }
    /// `ElementWiseOperation`.
    ElementWiseOp { Sum, Prod, Max, Min, Sub, Div, Pow, FloorDiv, And, Or, Xor, Equal, Greater, Less }
    /// `UnaryOperation`.
    UnaryOp {
        Exp, Log, Sqrt, Recip, Abs, Neg, Sin, Cos, Tan, Sinh, Cosh, Asin, Acos, Atan, Asinh, Acosh, Atanh, Ceil,
        Floor, Erf, Not, Sign, Round, IsInf, IsNan,
    }
    /// `ReduceOperation`.
    ReduceOp { Sum, Prod, Max, Min, Avg, None }
    /// `PoolingType`.
    PoolKind { Max, Average, MaxAverageBlend }
    /// `MatrixOperation`.
    MatrixOp { None, Transpose, Vector }
    /// `TopKOperation`.
    TopKOp { Max, Min }
    /// `GatherMode`.
    GatherMode { Default, Element, Nd }
    /// `ScatterMode`.
    ScatterMode { Element, Nd }
    /// `SampleMode` of a slice or grid sample.
    SampleMode { Strict, Wrap, Clamp, Fill, Reflect }
    /// `InterpolationMode`.
    Interpolation { Nearest, Linear, Cubic }
    /// `ResizeCoordinateTransformation`.
    Coordinates { AlignCorners, Asymmetric, HalfPixel }
    /// `ResizeSelector`.
    ResizeSelector { Formula, Upper }
    /// `ResizeRoundMode`.
    ResizeRound { HalfUp, HalfDown, Floor, Ceil }
    /// `FillOperation`.
    FillOp { Linspace, RandomUniform, RandomNormal }
    /// `CumulativeOperation`.
    CumulativeOp { Sum }
    /// `TripLimit` of a loop.
    TripLimit { Count, While }
    /// `LoopOutput`.
    LoopOutputKind { LastValue, Concatenate, Reverse }
    /// `BoundingBoxFormat` of an NMS layer.
    BoxFormat { CornerPairs, CenterSizes }
}

/// Build-time values, or a shape tensor (i64, rank 1) that gives them at run time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extent {
    /// Known now.
    Static(Vec<i64>),
    /// A shape tensor.
    Tensor(TensorId),
}

/// One number known now, or a rank-0 tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Count {
    /// Known now.
    Static(i64),
    /// A rank-0 shape tensor.
    Tensor(TensorId),
}

/// What a resize aims at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ResizeTo {
    /// Output dims, all of them.
    Sizes(Extent),
    /// Scale of each dim, build-time.
    Scales(Vec<f32>),
}

/// Spatial window of a convolution or pooling; every list has one entry a spatial dim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Kernel size.
    pub kernel: Vec<i64>,
    /// Stride.
    pub stride: Vec<i64>,
    /// Padding before.
    pub pre_padding: Vec<i64>,
    /// Padding after.
    pub post_padding: Vec<i64>,
    /// Dilation (pooling: all 1).
    pub dilation: Vec<i64>,
}

/// A block of layers inside an `If` branch or a loop body, with the tensors it hands out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Layers, in order.
    pub layers: Vec<LayerEntry>,
    /// Results of the region.
    pub outputs: Vec<TensorId>,
}

/// A tensor brought into an `If` (`IIfConditionalInputLayer`): `inner` is its name inside both branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The tensor outside.
    pub outer: TensorId,
    /// The tensor inside.
    pub inner: TensorId,
}

/// State that a loop carries (`IRecurrenceLayer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recurrence {
    /// Value before the first iteration, made outside.
    pub initial: TensorId,
    /// Value at the start of an iteration (the recurrence layer's output).
    pub current: TensorId,
    /// Value for the next iteration, made inside the body.
    pub next: TensorId,
}

/// A tensor that a loop walks along one axis (`IIteratorLayer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopIterator {
    /// The tensor walked over, made outside.
    pub x: TensorId,
    /// The slice of this iteration, rank − 1.
    pub current: TensorId,
    /// Axis of `x`.
    pub axis: u32,
    /// From the end to the start.
    pub reverse: bool,
}

/// What a loop hands out (`ILoopOutputLayer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopOutput {
    /// How the iterations are put together.
    pub kind: LoopOutputKind,
    /// For `LastValue` a recurrence's `current`; otherwise a tensor of the body.
    pub value: TensorId,
    /// Axis of the result that counts iterations (`Concatenate`, `Reverse`).
    pub axis: u32,
    /// Length of that axis, a rank-0 shape tensor (`Concatenate`, `Reverse`).
    pub length: Option<TensorId>,
}

/// A layer with its outputs and the node it came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerEntry {
    /// What is computed.
    pub layer: Layer,
    /// Results, in TensorRT's order.
    pub outputs: Vec<TensorId>,
    /// Index into [`crate::Network::nodes`].
    pub node: u32,
}

/// One TensorRT layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "fields are named as in TensorRT's API; what is not plain is said at the variant"
)]
pub enum Layer {
    /// `addActivation`.
    Activation {
        x: TensorId,
        kind: ActivationKind,
        #[serde(with = "crate::float")]
        alpha: f32,
        #[serde(with = "crate::float")]
        beta: f32,
    },
    /// `addCast`.
    Cast { x: TensorId, to: DType },
    /// `addConcatenation`.
    Concatenation { xs: Vec<TensorId>, axis: u32 },
    /// `addConstant`. Count 0 is an empty constant.
    Constant { dims: Vec<i64>, weights: WeightsId },
    /// `addConvolutionNd` with kernel and bias as tensors (inputs 1 and 2).
    Convolution { x: TensorId, kernel: TensorId, bias: Option<TensorId>, window: Window, groups: i64 },
    /// `addCumulative`. `axis` is a rank-0 constant.
    Cumulative { x: TensorId, axis: TensorId, op: CumulativeOp, exclusive: bool, reverse: bool },
    /// `addDeconvolutionNd` with kernel and bias as tensors.
    Deconvolution { x: TensorId, kernel: TensorId, bias: Option<TensorId>, window: Window, groups: i64 },
    /// `addDequantize`; `axis` for a per-channel scale.
    Dequantize { x: TensorId, scale: TensorId, axis: Option<u32>, to: DType },
    /// `addEinsum`.
    Einsum { xs: Vec<TensorId>, equation: String },
    /// `addElementWise`: equal ranks, dims of 1 broadcast.
    ElementWise { a: TensorId, b: TensorId, op: ElementWiseOp },
    /// `addFill`. Linspace: alpha is the start (rank 0), beta the steps (rank 1, one a dim). Random: static range/moments.
    Fill { shape: Extent, op: FillOp, alpha: TensorId, beta: TensorId, to: DType },
    /// `addGatherV2`. `batch_dims` is `setNbElementWiseDims`.
    Gather { data: TensorId, indices: TensorId, axis: u32, mode: GatherMode, batch_dims: u32 },
    /// `addGridSample`.
    GridSample {
        x: TensorId,
        grid: TensorId,
        interpolation: Interpolation,
        align_corners: bool,
        mode: SampleMode,
    },
    /// `addIdentity`.
    Identity { x: TensorId },
    /// `addIfConditional`: the condition is a rank-0 bool. Outputs pair up the branches' outputs.
    If { condition: TensorId, captures: Vec<Capture>, then_branch: Region, else_branch: Region },
    /// `addLoop`. `limit` is a rank-0 i64/i32 count, or a rank-0 bool made in the body (`While`: tested before an iteration).
    Loop {
        limits: Vec<(TripLimit, TensorId)>,
        recurrences: Vec<Recurrence>,
        iterators: Vec<LoopIterator>,
        body: Vec<LayerEntry>,
        results: Vec<LoopOutput>,
    },
    /// `addLRN`.
    Lrn {
        x: TensorId,
        window: i64,
        #[serde(with = "crate::float")]
        alpha: f32,
        #[serde(with = "crate::float")]
        beta: f32,
        #[serde(with = "crate::float")]
        k: f32,
    },
    /// `addMatrixMultiply`: equal ranks (but for `Vector`), leading dims broadcast.
    MatrixMultiply { a: TensorId, op_a: MatrixOp, b: TensorId, op_b: MatrixOp },
    /// `addNMS`: outputs selected indices [n, 3] of type `to` and their count (rank 0, i32).
    Nms {
        boxes: TensorId,
        scores: TensorId,
        max_output_boxes: TensorId,
        iou_threshold: Option<TensorId>,
        score_threshold: Option<TensorId>,
        format: BoxFormat,
        to: DType,
    },
    /// `addNonZero`: indices [rank, n].
    NonZero { x: TensorId, to: DType },
    /// `addNormalizationV2`: (x − mean)/√(var + ε) · scale + bias over `axes`; `groups` splits the channels (dim 1).
    Normalization {
        x: TensorId,
        scale: TensorId,
        bias: TensorId,
        axes: Vec<u32>,
        #[serde(with = "crate::float")]
        epsilon: f32,
        groups: i64,
    },
    /// `addOneHot`: `values` = [off, on], `depth` rank 0.
    OneHot { indices: TensorId, values: TensorId, depth: TensorId, axis: u32 },
    /// `addParametricReLU`: equal ranks, slopes broadcast.
    ParametricRelu { x: TensorId, slopes: TensorId },
    /// `addPoolingNd`. `exclude_padding` is `setAverageCountExcludesPadding`; `blend` for `MaxAverageBlend`.
    Pooling {
        x: TensorId,
        kind: PoolKind,
        window: Window,
        exclude_padding: bool,
        #[serde(with = "crate::float")]
        blend: f32,
    },
    /// `addQuantize`; `axis` for a per-channel scale.
    Quantize { x: TensorId, scale: TensorId, axis: Option<u32>, to: DType },
    /// `addReduce`.
    Reduce { x: TensorId, op: ReduceOp, axes: Vec<u32>, keep_dims: bool },
    /// `addResize`.
    Resize {
        x: TensorId,
        to: ResizeTo,
        interpolation: Interpolation,
        coordinates: Coordinates,
        selector: ResizeSelector,
        round: ResizeRound,
        #[serde(with = "crate::float")]
        cubic_coeff: f32,
        exclude_outside: bool,
    },
    /// `addReverseSequence`.
    ReverseSequence { x: TensorId, lengths: TensorId, batch_axis: u32, sequence_axis: u32 },
    /// `addScatter`.
    Scatter { data: TensorId, indices: TensorId, updates: TensorId, mode: ScatterMode, axis: u32 },
    /// `addSelect`: equal ranks, dims of 1 broadcast.
    Select { condition: TensorId, then_input: TensorId, else_input: TensorId },
    /// `addShape`: i64, rank 1.
    Shape { x: TensorId },
    /// `addShuffle`: transpose, reshape, transpose. In `reshape`, −1 is inferred once and 0 copies the dim when
    /// `zero_is_placeholder`.
    Shuffle {
        x: TensorId,
        first: Option<Vec<u32>>,
        reshape: Option<Extent>,
        zero_is_placeholder: bool,
        second: Option<Vec<u32>>,
    },
    /// `addSlice`: all dims are named. `fill` is the value outside (`SampleMode::Fill`).
    Slice {
        x: TensorId,
        start: Extent,
        size: Extent,
        stride: Extent,
        mode: SampleMode,
        fill: Option<TensorId>,
    },
    /// `addSoftMax` over one axis.
    SoftMax { x: TensorId, axis: u32 },
    /// `addSqueeze`; axes build-time.
    Squeeze { x: TensorId, axes: Vec<u32> },
    /// `addTopK` over one axis: values, indices. Ties are not ordered.
    TopK { x: TensorId, op: TopKOp, k: Count, axis: u32, indices: DType },
    /// `addUnary`.
    Unary { x: TensorId, op: UnaryOp },
    /// `addUnsqueeze`; axes build-time, positions in the result.
    Unsqueeze { x: TensorId, axes: Vec<u32> },
}

impl Layer {
    /// TensorRT's name of the layer's type.
    pub fn name(&self) -> &'static str {
        match self {
            Layer::Activation { .. } => "Activation",
            Layer::Cast { .. } => "Cast",
            Layer::Concatenation { .. } => "Concatenation",
            Layer::Constant { .. } => "Constant",
            Layer::Convolution { .. } => "Convolution",
            Layer::Cumulative { .. } => "Cumulative",
            Layer::Deconvolution { .. } => "Deconvolution",
            Layer::Dequantize { .. } => "Dequantize",
            Layer::Einsum { .. } => "Einsum",
            Layer::ElementWise { .. } => "ElementWise",
            Layer::Fill { .. } => "Fill",
            Layer::Gather { .. } => "Gather",
            Layer::GridSample { .. } => "GridSample",
            Layer::Identity { .. } => "Identity",
            Layer::If { .. } => "If",
            Layer::Loop { .. } => "Loop",
            Layer::Lrn { .. } => "Lrn",
            Layer::MatrixMultiply { .. } => "MatrixMultiply",
            Layer::Nms { .. } => "Nms",
            Layer::NonZero { .. } => "NonZero",
            Layer::Normalization { .. } => "Normalization",
            Layer::OneHot { .. } => "OneHot",
            Layer::ParametricRelu { .. } => "ParametricRelu",
            Layer::Pooling { .. } => "Pooling",
            Layer::Quantize { .. } => "Quantize",
            Layer::Reduce { .. } => "Reduce",
            Layer::Resize { .. } => "Resize",
            Layer::ReverseSequence { .. } => "ReverseSequence",
            Layer::Scatter { .. } => "Scatter",
            Layer::Select { .. } => "Select",
            Layer::Shape { .. } => "Shape",
            Layer::Shuffle { .. } => "Shuffle",
            Layer::Slice { .. } => "Slice",
            Layer::SoftMax { .. } => "SoftMax",
            Layer::Squeeze { .. } => "Squeeze",
            Layer::TopK { .. } => "TopK",
            Layer::Unary { .. } => "Unary",
            Layer::Unsqueeze { .. } => "Unsqueeze",
        }
    }

    /// Calls `f` with every tensor that the layer reads from outside: operands, extents, captures, initial values. What
    /// regions read among their own tensors is not visited.
    pub fn for_each_input(&self, f: &mut dyn FnMut(TensorId)) {
        let extent = |e: &Extent, f: &mut dyn FnMut(TensorId)| {
            if let Extent::Tensor(id) = e {
                f(*id);
            }
        };
        match self {
            Layer::Activation { x, .. }
            | Layer::Cast { x, .. }
            | Layer::Identity { x }
            | Layer::Lrn { x, .. }
            | Layer::NonZero { x, .. }
            | Layer::Pooling { x, .. }
            | Layer::Reduce { x, .. }
            | Layer::Shape { x }
            | Layer::SoftMax { x, .. }
            | Layer::Squeeze { x, .. }
            | Layer::Unary { x, .. }
            | Layer::Unsqueeze { x, .. } => f(*x),
            Layer::Concatenation { xs, .. } | Layer::Einsum { xs, .. } => xs.iter().for_each(|&x| f(x)),
            Layer::Constant { .. } => {}
            Layer::Convolution { x, kernel, bias, .. } | Layer::Deconvolution { x, kernel, bias, .. } => {
                f(*x);
                f(*kernel);
                bias.iter().for_each(|&b| f(b));
            }
            Layer::Cumulative { x, axis, .. } => [*x, *axis].into_iter().for_each(f),
            Layer::Dequantize { x, scale, .. } | Layer::Quantize { x, scale, .. } => {
                [*x, *scale].into_iter().for_each(f)
            }
            Layer::ElementWise { a, b, .. } | Layer::MatrixMultiply { a, b, .. } => {
                [*a, *b].into_iter().for_each(f)
            }
            Layer::Fill { shape, alpha, beta, .. } => {
                extent(shape, f);
                [*alpha, *beta].into_iter().for_each(f);
            }
            Layer::Gather { data, indices, .. } => [*data, *indices].into_iter().for_each(f),
            Layer::GridSample { x, grid, .. } => [*x, *grid].into_iter().for_each(f),
            Layer::If { condition, captures, .. } => {
                f(*condition);
                captures.iter().for_each(|capture| f(capture.outer));
            }
            Layer::Loop { limits, recurrences, iterators, body: _, results } => {
                limits.iter().for_each(|limit| f(limit.1));
                recurrences.iter().for_each(|r| f(r.initial));
                iterators.iter().for_each(|it| f(it.x));
                results.iter().filter_map(|r| r.length).for_each(f);
            }
            Layer::Nms { boxes, scores, max_output_boxes, iou_threshold, score_threshold, .. } => {
                [*boxes, *scores, *max_output_boxes].into_iter().for_each(&mut *f);
                iou_threshold.iter().chain(score_threshold).for_each(|&t| f(t));
            }
            Layer::Normalization { x, scale, bias, .. } => [*x, *scale, *bias].into_iter().for_each(f),
            Layer::OneHot { indices, values, depth, .. } => {
                [*indices, *values, *depth].into_iter().for_each(f)
            }
            Layer::ParametricRelu { x, slopes } => [*x, *slopes].into_iter().for_each(f),
            Layer::Resize { x, to, .. } => {
                f(*x);
                if let ResizeTo::Sizes(sizes) = to {
                    extent(sizes, f);
                }
            }
            Layer::ReverseSequence { x, lengths, .. } => [*x, *lengths].into_iter().for_each(f),
            Layer::Scatter { data, indices, updates, .. } => {
                [*data, *indices, *updates].into_iter().for_each(f)
            }
            Layer::Select { condition, then_input, else_input } => {
                [*condition, *then_input, *else_input].into_iter().for_each(f)
            }
            Layer::Shuffle { x, reshape, .. } => {
                f(*x);
                reshape.iter().for_each(|e| extent(e, f));
            }
            Layer::Slice { x, start, size, stride, fill, .. } => {
                f(*x);
                [start, size, stride].into_iter().for_each(|e| extent(e, f));
                fill.iter().for_each(|&t| f(t));
            }
            Layer::TopK { x, k, .. } => {
                f(*x);
                if let Count::Tensor(id) = k {
                    f(*id);
                }
            }
        }
    }
}

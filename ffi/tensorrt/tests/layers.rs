//! Each layer type through the real TensorRT-RTX builder, for sm89.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use common::{build, dynamic, floats, network};
use std::collections::BTreeSet;
use trtc_bundle::DType;
use trtc_network::{Layer, Lowered, NetworkBuilder, TensorId, layer::*};
use trtc_tensorrt::BuildError;

const F32: DType = DType::F32;

fn input(b: &mut NetworkBuilder, dims: &[i64]) -> TensorId {
    b.add_input("x", F32, dims.to_vec())
}

fn output(b: &mut NetworkBuilder, y: TensorId) {
    b.mark_output(y, "y");
}

fn window(spatial: usize, kernel: i64) -> Window {
    Window {
        kernel: vec![kernel; spatial],
        stride: vec![1; spatial],
        pre_padding: vec![1; spatial],
        post_padding: vec![1; spatial],
        dilation: vec![1; spatial],
    }
}

fn fixed(values: &[i64]) -> Extent {
    Extent::Static(values.to_vec())
}

/// One layer between an input and an output.
fn simple(name: &str, dims: &[i64], layer: impl FnOnce(&mut NetworkBuilder, TensorId) -> Layer) -> Lowered {
    network(name, |b| {
        let x = input(b, dims);
        let layer = layer(b, x);
        let y = b.one(layer);
        output(b, y);
    })
}

fn resize(x: TensorId, to: ResizeTo, interpolation: Interpolation) -> Layer {
    Layer::Resize {
        x,
        to,
        interpolation,
        coordinates: Coordinates::HalfPixel,
        selector: ResizeSelector::Formula,
        round: ResizeRound::HalfDown,
        cubic_coeff: -0.75,
        exclude_outside: false,
    }
}

fn straight_cases() -> Vec<Lowered> {
    vec![
        simple("activation", &[2, 3], |_, x| Layer::Activation {
            x,
            kind: ActivationKind::LeakyRelu,
            alpha: 0.1,
            beta: 0.0,
        }),
        simple("cast", &[2, 3], |_, x| Layer::Cast { x, to: DType::F16 }),
        simple("cast to u8 at the output", &[2, 3], |_, x| Layer::Cast { x, to: DType::U8 }),
        simple("concatenation", &[2, 3], |b, x| {
            let c = floats(b, &[2, 4]);
            Layer::Concatenation { xs: vec![x, c], axis: 1 }
        }),
        simple("convolution", &[1, 4, 8, 8], |b, x| {
            let kernel = floats(b, &[6, 2, 3, 3]);
            let bias = Some(floats(b, &[6]));
            Layer::Convolution { x, kernel, bias, window: window(2, 3), groups: 2 }
        }),
        simple("convolution without bias", &[1, 4, 8], |b, x| {
            let x = b.reshape(x, vec![1, 4, 8, 1]);
            let kernel = floats(b, &[6, 4, 3, 3]);
            Layer::Convolution { x, kernel, bias: None, window: window(2, 3), groups: 1 }
        }),
        simple("deconvolution", &[1, 4, 8, 8], |b, x| {
            let kernel = floats(b, &[4, 3, 3, 3]);
            let bias = Some(floats(b, &[6]));
            Layer::Deconvolution { x, kernel, bias, window: window(2, 3), groups: 2 }
        }),
        simple("cumulative", &[2, 3], |b, x| {
            let axis = b.scalar(DType::I64, 0, 1.0);
            Layer::Cumulative { x, axis, op: CumulativeOp::Sum, exclusive: true, reverse: true }
        }),
        simple("einsum", &[2, 3], |b, x| {
            let c = floats(b, &[3, 4]);
            Layer::Einsum { xs: vec![x, c], equation: "ij,jk->ki".to_owned() }
        }),
        simple("element-wise", &[2, 3], |b, x| {
            let c = floats(b, &[1, 3]);
            Layer::ElementWise { a: x, b: c, op: ElementWiseOp::Sub }
        }),
        simple("gather", &[4, 3], |b, x| {
            let indices = b.i64s(&[2, 0]);
            Layer::Gather { data: x, indices, axis: 0, mode: GatherMode::Default, batch_dims: 0 }
        }),
        simple("gather elements", &[2, 3], |b, x| {
            let flat = b.i64s(&[1, 0, 1, 0, 1, 0]);
            let indices = b.reshape(flat, vec![2, 3]);
            Layer::Gather { data: x, indices, axis: 0, mode: GatherMode::Element, batch_dims: 0 }
        }),
        simple("gather nd in batches", &[2, 3, 4], |b, x| {
            let flat = b.i64s(&[1, 2]);
            let indices = b.reshape(flat, vec![2, 1]);
            Layer::Gather { data: x, indices, axis: 0, mode: GatherMode::Nd, batch_dims: 1 }
        }),
        simple("grid sample", &[1, 2, 4, 4], |b, x| {
            let grid = floats(b, &[1, 3, 3, 2]);
            Layer::GridSample {
                x,
                grid,
                interpolation: Interpolation::Linear,
                align_corners: true,
                mode: SampleMode::Clamp,
            }
        }),
        simple("identity", &[2, 3], |_, x| Layer::Identity { x }),
        simple("lrn", &[1, 4, 5, 5], |_, x| Layer::Lrn { x, window: 3, alpha: 1e-4, beta: 0.75, k: 1.0 }),
        simple("matrix multiply", &[2, 3], |b, x| {
            let c = floats(b, &[4, 3]);
            Layer::MatrixMultiply { a: x, op_a: MatrixOp::None, b: c, op_b: MatrixOp::Transpose }
        }),
        simple("matrix times vector", &[2, 3], |b, x| {
            let c = floats(b, &[3]);
            Layer::MatrixMultiply { a: x, op_a: MatrixOp::None, b: c, op_b: MatrixOp::Vector }
        }),
        simple("layer normalization", &[2, 3, 8], |b, x| {
            let (scale, bias) = (floats(b, &[1, 1, 8]), floats(b, &[1, 1, 8]));
            Layer::Normalization { x, scale, bias, axes: vec![2], epsilon: 1e-5, groups: 1 }
        }),
        simple("group normalization", &[2, 4, 5, 5], |b, x| {
            let (scale, bias) = (floats(b, &[1, 4, 1, 1]), floats(b, &[1, 4, 1, 1]));
            Layer::Normalization { x, scale, bias, axes: vec![2, 3], epsilon: 1e-5, groups: 2 }
        }),
        simple("parametric relu", &[2, 3], |b, x| {
            let slopes = floats(b, &[1, 3]);
            Layer::ParametricRelu { x, slopes }
        }),
        simple("average pooling", &[1, 2, 6, 6], |_, x| Layer::Pooling {
            x,
            kind: PoolKind::Average,
            window: window(2, 3),
            exclude_padding: true,
            blend: 0.0,
        }),
        simple("max pooling", &[1, 2, 6, 6], |_, x| Layer::Pooling {
            x,
            kind: PoolKind::Max,
            window: window(2, 3),
            exclude_padding: false,
            blend: 0.0,
        }),
        simple("reduce", &[2, 3, 4], |_, x| Layer::Reduce {
            x,
            op: ReduceOp::Avg,
            axes: vec![0, 2],
            keep_dims: false,
        }),
        simple("resize to sizes", &[1, 2, 4, 4], |_, x| {
            resize(x, ResizeTo::Sizes(fixed(&[1, 2, 8, 6])), Interpolation::Linear)
        }),
        simple("resize by scales", &[1, 2, 4, 4], |_, x| {
            resize(x, ResizeTo::Scales(vec![1.0, 1.0, 2.0, 1.5]), Interpolation::Nearest)
        }),
        simple("resize, cubic", &[1, 2, 4, 4], |_, x| {
            resize(x, ResizeTo::Sizes(fixed(&[1, 2, 8, 8])), Interpolation::Cubic)
        }),
        simple("reverse sequence", &[3, 2, 4], |b, x| {
            let lengths = b.i64s(&[2, 3]);
            Layer::ReverseSequence { x, lengths, batch_axis: 1, sequence_axis: 0 }
        }),
        simple("scatter elements", &[3, 4], |b, x| {
            let flat = b.i64s(&[0, 1, 2, 0]);
            let indices = b.reshape(flat, vec![1, 4]);
            let updates = floats(b, &[1, 4]);
            Layer::Scatter { data: x, indices, updates, mode: ScatterMode::Element, axis: 0 }
        }),
        simple("scatter nd", &[3, 4], |b, x| {
            let flat = b.i64s(&[2, 0]);
            let indices = b.reshape(flat, vec![2, 1]);
            let updates = floats(b, &[2, 4]);
            Layer::Scatter { data: x, indices, updates, mode: ScatterMode::Nd, axis: 0 }
        }),
        simple("select", &[2, 3], |b, x| {
            let zero = b.scalar(F32, 2, 0.0);
            let condition = b.elementwise(x, zero, ElementWiseOp::Greater);
            Layer::Select { condition, then_input: x, else_input: zero }
        }),
        simple("transposes around a reshape", &[2, 3, 4], |_, x| Layer::Shuffle {
            x,
            first: Some(vec![2, 0, 1]),
            reshape: Some(fixed(&[0, -1])),
            zero_is_placeholder: true,
            second: Some(vec![1, 0]),
        }),
        simple("slice backwards", &[2, 5], |_, x| Layer::Slice {
            x,
            start: fixed(&[1, 4]),
            size: fixed(&[2, 3]),
            stride: fixed(&[-1, -2]),
            mode: SampleMode::Strict,
            fill: None,
        }),
        simple("slice with fill", &[2, 5], |b, x| {
            let fill = Some(b.scalar(F32, 0, 7.0));
            Layer::Slice {
                x,
                start: fixed(&[-1, 0]),
                size: fixed(&[4, 7]),
                stride: fixed(&[1, 1]),
                mode: SampleMode::Fill,
                fill,
            }
        }),
        simple("softmax", &[2, 3], |_, x| Layer::SoftMax { x, axis: 1 }),
        simple("squeeze", &[2, 1, 3, 1], |_, x| Layer::Squeeze { x, axes: vec![1, 3] }),
        simple("unsqueeze", &[2, 3], |_, x| Layer::Unsqueeze { x, axes: vec![0, 3] }),
        simple("unary", &[2, 3], |_, x| Layer::Unary { x, op: UnaryOp::Sin }),
        simple("is nan", &[2, 3], |_, x| Layer::Unary { x, op: UnaryOp::IsNan }),
    ]
}

fn cases_with_more_than_one_layer() -> Vec<Lowered> {
    vec![
        network("quantize and dequantize", |b| {
            let x = input(b, &[2, 3]);
            let scale = floats(b, &[3]);
            let q = b.one(Layer::Quantize { x, scale, axis: Some(1), to: DType::I8 });
            let y = b.one(Layer::Dequantize { x: q, scale, axis: Some(1), to: F32 });
            output(b, y);
        }),
        network("fp8 with one scale", |b| {
            let x = input(b, &[2, 3]);
            let scale = b.scalar(F32, 0, 0.5);
            let q = b.one(Layer::Quantize { x, scale, axis: None, to: DType::F8E4M3 });
            let y = b.one(Layer::Dequantize { x: q, scale, axis: None, to: F32 });
            output(b, y);
        }),
        network("int4 weights", |b| {
            let x = b.add_input("x", DType::F16, vec![2, 64]);
            let weights = b.constant(DType::I4, vec![64, 32], vec![0x12; 1024].into());
            let scales = b.constant(DType::F16, vec![1, 32], [0x00, 0x34].repeat(32).into());
            let w = b.one(Layer::Dequantize { x: weights, scale: scales, axis: None, to: DType::F16 });
            let y = b.one(Layer::MatrixMultiply { a: x, op_a: MatrixOp::None, b: w, op_b: MatrixOp::None });
            output(b, y);
        }),
        network("bf16", |b| {
            let x = b.add_input("x", DType::Bf16, vec![2, 3]);
            let c = b.scalar(DType::Bf16, 2, 1.5);
            let y = b.elementwise(x, c, ElementWiseOp::Prod);
            output(b, y);
        }),
        network("u8 input", |b| {
            let x = b.add_input("x", DType::U8, vec![2, 3]);
            let y = b.cast(x, F32);
            output(b, y);
        }),
        network("bool input and output", |b| {
            let x = b.add_input("x", DType::Bool, vec![2, 3]);
            let y = b.unary(x, UnaryOp::Not);
            output(b, y);
        }),
        network("shape, slice by tensors, reshape by a tensor", |b| {
            let x = dynamic(b, &[-1, 6]);
            let n = b.dim_of(x, 0);
            let three = b.i64s(&[3]);
            let sizes = b.one(Layer::Concatenation { xs: vec![n, three], axis: 0 });
            let (zeros, ones) = (b.i64s(&[0, 1]), b.i64s(&[1, 1]));
            let part = b.one(Layer::Slice {
                x,
                start: Extent::Tensor(zeros),
                size: Extent::Tensor(sizes),
                stride: Extent::Tensor(ones),
                mode: SampleMode::Clamp,
                fill: None,
            });
            b.refine(part, &[-1, 3]);
            let one = b.i64s(&[1]);
            let to = b.one(Layer::Concatenation { xs: vec![one, n, three], axis: 0 });
            let y = b.one(Layer::Shuffle {
                x: part,
                first: None,
                reshape: Some(Extent::Tensor(to)),
                zero_is_placeholder: false,
                second: None,
            });
            output(b, y);
        }),
        network("resize to a tensor", |b| {
            let x = dynamic(b, &[-1, 2, 4, 4]);
            let n = b.dim_of(x, 0);
            let rest = b.i64s(&[2, 8, 8]);
            let sizes = b.one(Layer::Concatenation { xs: vec![n, rest], axis: 0 });
            let y = b.one(resize(x, ResizeTo::Sizes(Extent::Tensor(sizes)), Interpolation::Linear));
            output(b, y);
        }),
        network("fill of static dims", |b| {
            let x = input(b, &[2, 3]);
            let (alpha, beta) = (b.scalar(F32, 0, 1.0), floats(b, &[2]));
            let fill =
                b.one(Layer::Fill { shape: fixed(&[2, 3]), op: FillOp::Linspace, alpha, beta, to: F32 });
            let y = b.elementwise(x, fill, ElementWiseOp::Sum);
            output(b, y);
        }),
        network("fill of a shape tensor", |b| {
            let x = dynamic(b, &[-1, 3]);
            let shape = b.one(Layer::Shape { x });
            let (alpha, beta) = (b.scalar(DType::I64, 0, 1.0), b.i64s(&[1, 2]));
            let fill = b.one(Layer::Fill {
                shape: Extent::Tensor(shape),
                op: FillOp::Linspace,
                alpha,
                beta,
                to: DType::I64,
            });
            let fill = b.cast(fill, F32);
            let y = b.elementwise(x, fill, ElementWiseOp::Sum);
            output(b, y);
        }),
        network("random uniform", |b| {
            let x = input(b, &[2, 3]);
            let (alpha, beta) = (b.scalar(F32, 0, 0.0), b.scalar(F32, 0, 1.0));
            let fill =
                b.one(Layer::Fill { shape: fixed(&[2, 3]), op: FillOp::RandomUniform, alpha, beta, to: F32 });
            let y = b.elementwise(x, fill, ElementWiseOp::Sum);
            output(b, y);
        }),
        network("one hot", |b| {
            let x = b.add_input("x", DType::I64, vec![4]);
            let values = floats(b, &[2]);
            let depth = b.scalar(DType::I64, 0, 5.0);
            let y = b.one(Layer::OneHot { indices: x, values, depth, axis: 1 });
            output(b, y);
        }),
        network("top k", |b| {
            let x = input(b, &[2, 8]);
            let both = b.layer(Layer::TopK {
                x,
                op: TopKOp::Max,
                k: Count::Static(3),
                axis: 1,
                indices: DType::I64,
            });
            b.mark_output(both[0], "values");
            b.mark_output(both[1], "indices");
        }),
        network("top k of a tensor", |b| {
            let x = dynamic(b, &[-1, 8]);
            let n = b.dim_of(x, 0);
            let n = b.reshape(n, vec![]);
            let k = b.cast(n, DType::I32);
            let both = b.layer(Layer::TopK {
                x,
                op: TopKOp::Min,
                k: Count::Tensor(k),
                axis: 1,
                indices: DType::I32,
            });
            b.mark_output(both[0], "values");
        }),
        network("shape values in the profile", |b| {
            let x = input(b, &[2, 12]);
            let shape = b.add_input("shape", DType::I64, vec![2]);
            b.add_profile(trtc_network::InputProfile {
                name: "shape".to_owned(),
                dims: None,
                values: Some([vec![1, 1], vec![4, 6], vec![24, 24]]),
            });
            let y = b.one(Layer::Shuffle {
                x,
                first: None,
                reshape: Some(Extent::Tensor(shape)),
                zero_is_placeholder: false,
                second: None,
            });
            output(b, y);
        }),
        network("empty constant", |b| {
            let x = input(b, &[2, 3]);
            let none = b.constant(F32, vec![2, 0], Vec::new().into());
            let y = b.one(Layer::Concatenation { xs: vec![x, none], axis: 1 });
            output(b, y);
        }),
        network("an input that is an output, twice", |b| {
            let x = input(b, &[2, 3]);
            output(b, x);
            b.mark_output(x, "z");
            let r = b.activation(x, ActivationKind::Relu, 0.0, 0.0);
            b.mark_output(r, "r");
            b.mark_output(r, "s");
        }),
    ]
}

/// Types that the TensorRT-RTX builder refuses whole; the shim adds them all the same.
fn refused_cases() -> Vec<(Lowered, &'static str)> {
    let non_zero = network("non zero", |b| {
        let x = b.add_input("x", DType::Bool, vec![4]);
        let y = b.one(Layer::NonZero { x, to: DType::I64 });
        output(b, y);
    });
    let nms = network("nms", |b| {
        let boxes = b.add_input("boxes", F32, vec![1, 8, 4]);
        let scores = b.add_input("scores", F32, vec![1, 8, 2]);
        let max_output_boxes = b.scalar(DType::I32, 0, 3.0);
        let (iou, score) = (b.scalar(F32, 0, 0.5), b.scalar(F32, 0, 0.1));
        let ys = b.layer(Layer::Nms {
            boxes,
            scores,
            max_output_boxes,
            iou_threshold: Some(iou),
            score_threshold: Some(score),
            format: BoxFormat::CornerPairs,
            to: DType::I32,
        });
        b.mark_output(ys[0], "selected");
        b.mark_output(ys[1], "count");
    });
    vec![(non_zero, "non zero"), (nms, "nms")]
}

#[test]
fn every_layer_type_builds_or_is_refused_in_words() {
    let Some(library) = common::rtx() else { return };
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for lowered in straight_cases().iter().chain(&cases_with_more_than_one_layer()) {
        seen.extend(lowered.network.layers.iter().map(|entry| entry.layer.name()));
        if let Err(error) = build(&library, lowered) {
            wrong.push(format!("{}: {error}", lowered.network.name));
        }
    }
    for (lowered, node) in &refused_cases() {
        seen.extend(lowered.network.layers.iter().map(|entry| entry.layer.name()));
        match build(&library, lowered) {
            Err(BuildError::Refused { words, nodes }) => {
                let named = *nodes == [(*node).to_owned()];
                if !named || words.iter().any(|line| line.contains('@') || line.contains("cudaError")) {
                    wrong.push(format!("{node}: {nodes:?} in {words:?}"));
                }
            }
            other => wrong.push(format!("{node}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // 38 variants of `Layer`, two of which `control_flow.rs` tests; a new one needs a case here.
    assert_eq!(seen.len(), 36, "{seen:?}");
}

//! What layers compute, without a GPU: the library evaluates constants itself when they become the dims of a fill.
//!
//! Each case makes a rank-1 i64 tensor of constants. As the shape of a fill it gives dims, and the shim compares those
//! with the expected ones, worked out by hand. With one of them changed the network has to be a fault; so a tensor that
//! the library does not evaluate cannot pass.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use common::{build, network};
use trtc_bundle::DType;
use trtc_network::{Layer, Lowered, NetworkBuilder, TensorId, layer::*};
use trtc_tensorrt::BuildError;

const I64: DType = DType::I64;

/// Fills dims that `make` computes; says that they are `dims`.
fn fill(name: &str, dims: &[i64], make: impl Fn(&mut NetworkBuilder) -> TensorId) -> Lowered {
    network(name, |b| {
        let shape = make(b);
        let (alpha, beta) = (b.scalar(I64, 0, 0.0), b.i64s(&vec![1; dims.len()]));
        let fill =
            b.one(Layer::Fill { shape: Extent::Tensor(shape), op: FillOp::Linspace, alpha, beta, to: I64 });
        b.refine(fill, dims);
        b.mark_output(fill, "y");
    })
}

fn check(
    name: &str,
    expected: &[i64],
    make: impl Fn(&mut NetworkBuilder) -> TensorId,
    wrong: &mut Vec<String>,
) {
    let Some(library) = common::rtx() else { return };
    if let Err(error) = build(&library, &fill(name, expected, &make)) {
        wrong.push(format!("{name}: {error}"));
    }
    let mut other = expected.to_vec();
    other[0] += 1;
    if !matches!(build(&library, &fill(name, &other, &make)), Err(BuildError::Fault(_))) {
        wrong.push(format!("{name}: other dims pass as well"));
    }
}

fn slice(b: &mut NetworkBuilder, x: TensorId, at: [&[i64]; 3], mode: SampleMode) -> TensorId {
    let [start, size, stride] = at.map(|list| Extent::Static(list.to_vec()));
    b.one(Layer::Slice { x, start, size, stride, mode, fill: None })
}

fn matrix(b: &mut NetworkBuilder) -> TensorId {
    let flat = b.i64s(&[1, 2, 3, 4, 5, 6]);
    b.reshape(flat, vec![2, 3])
}

fn floats(b: &mut NetworkBuilder, values: &[f32]) -> TensorId {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    b.constant(DType::F32, vec![values.len() as i64], bytes.into())
}

#[test]
fn operands_and_operations_are_the_named_ones() {
    let mut wrong = Vec::new();
    let cases: [(ElementWiseOp, [i64; 3]); 8] = [
        (ElementWiseOp::Sum, [9, 5, 7]),
        (ElementWiseOp::Sub, [5, 3, 1]),
        (ElementWiseOp::Prod, [14, 4, 12]),
        (ElementWiseOp::Div, [3, 4, 1]),
        (ElementWiseOp::FloorDiv, [3, 4, 1]),
        (ElementWiseOp::Max, [7, 4, 4]),
        (ElementWiseOp::Min, [2, 1, 3]),
        (ElementWiseOp::Pow, [49, 4, 64]),
    ];
    for (op, expected) in cases {
        let make = |b: &mut NetworkBuilder| {
            let (x, y) = (b.i64s(&[7, 4, 4]), b.i64s(&[2, 1, 3]));
            b.elementwise(x, y, op)
        };
        check(&format!("{op:?}"), &expected, make, &mut wrong);
    }
    // -7 / 2, plus 10: towards zero 7, downwards 6.
    for (op, expected) in [(ElementWiseOp::Div, 7), (ElementWiseOp::FloorDiv, 6)] {
        let make = |b: &mut NetworkBuilder| {
            let (x, y, ten) = (b.i64s(&[-7]), b.i64s(&[2]), b.i64s(&[10]));
            let quotient = b.elementwise(x, y, op);
            b.elementwise(quotient, ten, ElementWiseOp::Sum)
        };
        check(&format!("negative {op:?}"), &[expected], make, &mut wrong);
    }
    for (op, expected) in [
        (ElementWiseOp::Greater, [1, 2, 2]),
        (ElementWiseOp::Less, [2, 1, 2]),
        (ElementWiseOp::Equal, [2, 2, 1]),
    ] {
        // A comparison that holds selects 1, the first branch.
        let make = |b: &mut NetworkBuilder| {
            let (x, y) = (b.i64s(&[5, 3, 4]), b.i64s(&[4, 4, 4]));
            let condition = b.elementwise(x, y, op);
            let (then_input, else_input) = (b.i64s(&[1]), b.i64s(&[2]));
            b.one(Layer::Select { condition, then_input, else_input })
        };
        check(&format!("select by {op:?}"), &expected, make, &mut wrong);
    }
    for (op, values, expected) in [
        (UnaryOp::Floor, [2.5f32, 3.5], [2, 3]),
        (UnaryOp::Ceil, [2.5, 3.5], [3, 4]),
        (UnaryOp::Round, [2.5, 3.5], [2, 4]),
        (UnaryOp::Sqrt, [9.0, 16.0], [3, 4]),
    ] {
        let make = |b: &mut NetworkBuilder| {
            let x = floats(b, &values);
            let y = b.unary(x, op);
            b.cast(y, I64)
        };
        check(&format!("{op:?}"), &expected, make, &mut wrong);
    }
    for (op, expected) in [
        (ReduceOp::Sum, [5, 7, 9]),
        (ReduceOp::Prod, [4, 10, 18]),
        (ReduceOp::Max, [4, 5, 6]),
        (ReduceOp::Min, [1, 2, 3]),
    ] {
        let make = |b: &mut NetworkBuilder| {
            let x = matrix(b);
            b.one(Layer::Reduce { x, op, axes: vec![0], keep_dims: false })
        };
        check(&format!("reduce {op:?}"), &expected, make, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn data_moves_as_named() {
    let mut wrong = Vec::new();
    let five = [10, 11, 12, 13, 14];
    for (mode, start, size, stride, expected) in [
        (SampleMode::Strict, 1, 2, 2, vec![11, 13]),
        (SampleMode::Strict, 4, 3, -2, vec![14, 12, 10]),
        (SampleMode::Wrap, 3, 4, 1, vec![13, 14, 10, 11]),
        (SampleMode::Reflect, 3, 4, 1, vec![13, 14, 13, 12]),
        (SampleMode::Clamp, 3, 4, 1, vec![13, 14, 14, 14]),
        // A shape tensor is padded with the default 0 only; 1 is added below.
        (SampleMode::Fill, 3, 4, 1, vec![14, 15, 1, 1]),
    ] {
        let make = |b: &mut NetworkBuilder| {
            let x = b.i64s(&five);
            let y = slice(b, x, [&[start], &[size], &[stride]], mode);
            let more = b.i64s(&[i64::from(mode == SampleMode::Fill)]);
            b.elementwise(y, more, ElementWiseOp::Sum)
        };
        check(&format!("slice {mode:?} {stride}"), &expected, make, &mut wrong);
    }
    let by_tensors = |b: &mut NetworkBuilder| {
        let x = b.i64s(&five);
        let [start, size, stride] = [1, 2, 3].map(|v| Extent::Tensor(b.i64s(&[v])));
        let y = b.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None });
        b.refine(y, &[2]);
        y
    };
    check("slice by tensors", &[11, 14], by_tensors, &mut wrong);

    let transposed = |b: &mut NetworkBuilder| {
        let x = matrix(b);
        let reshape = Some(Extent::Static(vec![6]));
        b.one(Layer::Shuffle { x, first: Some(vec![1, 0]), reshape, zero_is_placeholder: true, second: None })
    };
    check("transpose, then reshape", &[1, 4, 2, 5, 3, 6], transposed, &mut wrong);
    let second = |b: &mut NetworkBuilder| {
        let x = b.i64s(&[1, 2, 3, 4, 5, 6]);
        let reshape = Some(Extent::Static(vec![2, 3]));
        let x = b.one(Layer::Shuffle {
            x,
            first: None,
            reshape,
            zero_is_placeholder: true,
            second: Some(vec![1, 0]),
        });
        b.reshape(x, vec![6])
    };
    check("reshape, then transpose", &[1, 4, 2, 5, 3, 6], second, &mut wrong);
    let joined = |b: &mut NetworkBuilder| {
        let (x, y) = (b.i64s(&[1, 2]), b.i64s(&[3]));
        b.one(Layer::Concatenation { xs: vec![y, x], axis: 0 })
    };
    check("concatenation", &[3, 1, 2], joined, &mut wrong);

    for (mode, indices, shape, expected) in [
        (GatherMode::Default, vec![1, 0], vec![2], vec![4, 5, 6, 1, 2, 3]),
        (GatherMode::Element, vec![1, 0, 1], vec![1, 3], vec![4, 2, 6]),
    ] {
        let make = |b: &mut NetworkBuilder| {
            let data = matrix(b);
            let indices = b.i64s(&indices);
            let indices = b.reshape(indices, shape.clone());
            let y = b.one(Layer::Gather { data, indices, axis: 0, mode, batch_dims: 0 });
            b.reshape(y, vec![expected.len() as i64])
        };
        check(&format!("gather {mode:?}"), &expected, make, &mut wrong);
    }
    let squeezed = |b: &mut NetworkBuilder| {
        let x = matrix(b);
        let row = slice(b, x, [&[1, 0], &[1, 3], &[1, 1]], SampleMode::Strict);
        b.one(Layer::Squeeze { x: row, axes: vec![0] })
    };
    check("squeeze", &[4, 5, 6], squeezed, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn outputs_are_told_without_a_build() {
    let Some(library) = common::rtx() else { return };
    let lowered = network("told", |b| {
        let x = common::dynamic(b, &[-1, 3]);
        let (sizes, more) = (b.i64s(&[3, 1]), b.i64s(&[4, 1]));
        let shape = b.elementwise(sizes, more, ElementWiseOp::Sum);
        let (alpha, beta) = (b.scalar(I64, 0, 0.0), b.i64s(&[1, 1]));
        let fill =
            b.one(Layer::Fill { shape: Extent::Tensor(shape), op: FillOp::Linspace, alpha, beta, to: I64 });
        b.mark_output(fill, "filled");
        let root = b.unary(x, UnaryOp::Sqrt);
        b.mark_output(root, "root");
    });
    let weights: Vec<&[u8]> = lowered.weights.iter().map(|bytes| &bytes[..]).collect();
    let told = library.builder().outputs(&lowered.network, &weights).unwrap();
    let dims: Vec<(DType, &[i64])> = told.iter().map(|info| (info.dtype, &info.dims[..])).collect();
    assert_eq!(dims, [(I64, &[7, 2][..]), (DType::F32, &[-1, 3])]);
}

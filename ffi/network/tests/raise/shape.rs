//! Concatenation, Shape, Shuffle, Squeeze, Unsqueeze, Slice, Fill, Constant.

use crate::harness::*;
use trtc_bundle::DType;
use trtc_network::layer::{Extent, FillOp, SampleMode};
use trtc_network::{Layer, NetworkBuilder, TensorId};

#[test]
fn concatenation() {
    let (a, c) = (Tensor::noise(&[2, 1, 3], 1), Tensor::noise(&[2, 2, 3], 2));
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::Bool, DType::I8] {
        let keep = |v: f64| match dtype {
            DType::Bool => f64::from(v != 0.0),
            DType::I32 | DType::I8 => v.trunc(),
            _ => v,
        };
        let expected = Tensor::from_fn(DType::F32, &[2, 3, 3], |at| {
            keep(if at[1] < 1 { a.at(at) } else { c.at(&[at[0], at[1] - 1, at[2]]) })
        });
        let y = run_one(&[a.clone(), c.clone()], |b, ids| {
            let xs = vec![b.cast(ids[0], dtype), b.cast(ids[1], dtype)];
            let y = b.one(Layer::Concatenation { xs, axis: 1 });
            b.cast(y, DType::F32)
        });
        assert_close(&y, &expected, 0.0);
    }
}

#[test]
fn shape_of_a_tensor() {
    let y = run_one(&[Tensor::noise(&[2, 5, 3], 1)], |b, ids| b.one(Layer::Shape { x: ids[0] }));
    assert_close(&y, &Tensor::i64(&[3], &[2.0, 5.0, 3.0]), 0.0);
}

#[test]
fn shuffle_transposes_reshapes_transposes() {
    let x = Tensor::noise(&[2, 3, 4], 3);
    // [2,3,4] -> [4,2,3] -> [8,3] -> [3,8]
    let expected = Tensor::from_fn(DType::F32, &[3, 8], |at| x.at(&[at[1] % 2, at[0], at[1] / 2]));
    let y = run_one(&[x], |b, ids| {
        b.one(Layer::Shuffle {
            x: ids[0],
            first: Some(vec![2, 0, 1]),
            reshape: Some(Extent::Static(vec![8, 3])),
            zero_is_placeholder: true,
            second: Some(vec![1, 0]),
        })
    });
    assert_close(&y, &expected, 0.0);
}

#[test]
fn a_zero_in_a_reshape_copies_a_dim() {
    let x = Tensor::noise(&[2, 3, 4], 4);
    let expected = Tensor { dims: vec![2, 3, 2, 2], ..x.clone() };
    for dtype in [DType::F32, DType::F16, DType::I8] {
        let keep = |v: f64| if dtype == DType::I8 { v.trunc() } else { v };
        let y = run_one(&[x.clone()], |b, ids| {
            let x = b.cast(ids[0], dtype);
            let reshape = Some(Extent::Static(vec![0, 0, 2, -1]));
            let y =
                b.one(Layer::Shuffle { x, first: None, reshape, zero_is_placeholder: true, second: None });
            b.cast(y, DType::F32)
        });
        assert_close(&y, &expected.map(keep), 0.0);
    }
}

#[test]
fn reshapes_to_a_tensor() {
    let x = Tensor::noise(&[2, 6], 5);
    for (zero_is_placeholder, dims, expected) in
        [(true, [0.0, 3.0, -1.0], [2, 3, 2]), (false, [3.0, -1.0, 2.0], [3, 2, 2])]
    {
        for dtype in [DType::I64, DType::I32] {
            let to = Tensor::new(dtype, &[3], &dims);
            let y = run_static(&[x.clone(), to], |b, ids| {
                let reshape = Some(Extent::Tensor(ids[1]));
                vec![b.one(Layer::Shuffle {
                    x: ids[0],
                    first: None,
                    reshape,
                    zero_is_placeholder,
                    second: None,
                })]
            });
            assert_close(&y[0], &Tensor { dims: expected.to_vec(), ..x.clone() }, 0.0);
        }
    }
}

#[test]
fn squeeze_and_unsqueeze() {
    let x = Tensor::noise(&[2, 1, 3, 1], 6);
    let y = run(&[x.clone()], |b, ids| {
        let flat = b.one(Layer::Squeeze { x: ids[0], axes: vec![1, 3] });
        let tall = b.one(Layer::Unsqueeze { x: flat, axes: vec![0, 3] });
        vec![flat, tall, b.one(Layer::Squeeze { x: ids[0], axes: vec![] })]
    });
    assert_close(&y[0], &Tensor { dims: vec![2, 3], ..x.clone() }, 0.0);
    assert_close(&y[1], &Tensor { dims: vec![1, 2, 3, 1], ..x.clone() }, 0.0);
    assert_close(&y[2], &x, 0.0);
}

/// start + i · stride for i in 0..size, and what the mode says of a coordinate outside.
fn sliced(x: &Tensor, start: &[i64], size: &[i64], stride: &[i64], mode: SampleMode, fill: f64) -> Tensor {
    let dims: Vec<usize> = size.iter().map(|&n| n as usize).collect();
    Tensor::from_fn(x.dtype, &dims, |at| {
        let mut from = Vec::new();
        for axis in 0..at.len() {
            let length = x.dims[axis] as i64;
            let mut p = start[axis] + at[axis] as i64 * stride[axis];
            if p < 0 || p >= length {
                match mode {
                    SampleMode::Strict => panic!("out of bounds"),
                    SampleMode::Wrap => p = p.rem_euclid(length),
                    SampleMode::Clamp => p = p.clamp(0, length - 1),
                    SampleMode::Fill => return fill,
                    SampleMode::Reflect => {
                        while p < 0 || p >= length {
                            p = match length {
                                1 => 0,
                                _ if p < 0 => -p,
                                _ => 2 * (length - 1) - p,
                            };
                        }
                    }
                }
            }
            from.push(p as usize);
        }
        x.at(&from)
    })
}

#[test]
fn slices_of_every_mode() {
    let x = Tensor::noise(&[3, 5, 1], 7);
    type Case = ([i64; 3], [i64; 3], [i64; 3]);
    let inside: Vec<Case> = vec![
        ([1, 0, 0], [2, 5, 1], [1, 1, 1]),
        ([0, 1, 0], [2, 2, 1], [2, 2, 1]),
        // Backwards to the very first element.
        ([2, 4, 0], [3, 3, 1], [-1, -2, 1]),
        // Stride 0 repeats.
        ([1, 0, 0], [1, 5, 4], [1, 1, 0]),
        ([0, 4, 0], [3, 1, 1], [1, 1, 1]),
        ([0, 0, 0], [3, 5, 1], [1, 1, 1]),
    ];
    let outside: Vec<Case> = vec![
        ([-2, 3, 0], [7, 9, 1], [1, 1, 1]),
        ([1, -7, -1], [2, 9, 3], [1, 2, 1]),
        ([4, 12, 0], [5, 8, 1], [-2, -3, 1]),
    ];
    let modes =
        [SampleMode::Strict, SampleMode::Wrap, SampleMode::Clamp, SampleMode::Fill, SampleMode::Reflect];
    for mode in modes {
        let cases =
            if mode == SampleMode::Strict { inside.clone() } else { [&inside[..], &outside[..]].concat() };
        for (start, size, stride) in cases {
            let expected = sliced(&x, &start, &size, &stride, mode, -7.5);
            let fixed = |v: [i64; 3]| Extent::Static(v.to_vec());
            let fill =
                |b: &mut NetworkBuilder| (mode == SampleMode::Fill).then(|| b.scalar(DType::F32, 0, -7.5));
            let y = run_one(&[x.clone()], |b, ids| {
                let fill = fill(b);
                let (start, size, stride) = (fixed(start), fixed(size), fixed(stride));
                b.one(Layer::Slice { x: ids[0], start, size, stride, mode, fill })
            });
            assert_close(&y, &expected, 0.0);

            let shape = |v: [i64; 3]| Tensor::i64(&[3], &v.map(|v| v as f64));
            let inputs = [x.clone(), shape(start), shape(size), shape(stride)];
            let y = run_static(&inputs, |b, ids| {
                let fill = fill(b);
                let (start, size, stride) =
                    (Extent::Tensor(ids[1]), Extent::Tensor(ids[2]), Extent::Tensor(ids[3]));
                vec![b.one(Layer::Slice { x: ids[0], start, size, stride, mode, fill })]
            });
            assert_close(&y[0], &expected, 0.0);

            if stride.iter().all(|&t| t > 0) {
                let y = run_static(&inputs, |b, ids| {
                    let fill = fill(b);
                    let (start, size) = (Extent::Tensor(ids[1]), Extent::Tensor(ids[2]));
                    let stride = fixed(stride);
                    vec![b.one(Layer::Slice { x: ids[0], start, size, stride, mode, fill })]
                });
                assert_close(&y[0], &expected, 0.0);
            }
        }
    }
}

#[test]
fn slices_of_other_types() {
    let x = Tensor::noise(&[4], 8);
    for dtype in [DType::F16, DType::Bf16, DType::Bool, DType::I64] {
        let keep = |v: f64| match dtype {
            DType::Bool => f64::from(v != 0.0),
            DType::I64 => v.trunc(),
            _ => v,
        };
        let expected = sliced(&x.map(keep), &[-1], &[6], &[1], SampleMode::Fill, 0.0);
        let y = run_one(&[x.clone()], |b, ids| {
            let x = b.cast(ids[0], dtype);
            let fixed = |v: i64| Extent::Static(vec![v]);
            let y = b.one(Layer::Slice {
                x,
                start: fixed(-1),
                size: fixed(6),
                stride: fixed(1),
                mode: SampleMode::Fill,
                fill: None,
            });
            b.cast(y, DType::F32)
        });
        assert_close(&y, &expected, 0.0);
    }
}

/// A constant of rank 1.
fn steps(b: &mut NetworkBuilder, dtype: DType, values: &[f64]) -> TensorId {
    let bytes: Vec<u8> = match dtype {
        DType::F32 => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DType::I32 => values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|&v| (v as i64).to_le_bytes()).collect(),
    };
    b.constant(dtype, vec![values.len() as i64], bytes.into())
}

#[test]
fn linspace() {
    for dtype in [DType::F32, DType::I32, DType::I64] {
        let expected = Tensor::from_fn(dtype, &[3, 4], |at| 1.0 + 100.0 * at[0] as f64 + 10.0 * at[1] as f64);
        let y = run_static(&[Tensor::i64(&[2], &[3.0, 4.0])], |b, ids| {
            let alpha = b.scalar(dtype, 0, 1.0);
            let beta = steps(b, dtype, &[100.0, 10.0]);
            let fill = |shape| Layer::Fill { shape, op: FillOp::Linspace, alpha, beta, to: dtype };
            vec![b.one(fill(Extent::Static(vec![3, 4]))), b.one(fill(Extent::Tensor(ids[0])))]
        });
        assert_close(&y[0], &expected, 0.0);
        assert_close(&y[1], &expected, 0.0);
    }
}

#[test]
fn constants_of_every_shape() {
    let x = Tensor::f32(&[2], &[1.0, 2.0]);
    let y = run_static(&[x], |b, ids| {
        let scalar = b.scalar(DType::F32, 0, 3.5);
        let row = b.i64s(&[4, -5]);
        let empty = b.constant(DType::F32, vec![0], bytes::Bytes::new());
        let joined = b.one(Layer::Concatenation { xs: vec![ids[0], empty], axis: 0 });
        vec![scalar, row, joined, empty]
    });
    assert_close(&y[0], &Tensor::f32(&[], &[3.5]), 0.0);
    assert_close(&y[1], &Tensor::i64(&[2], &[4.0, -5.0]), 0.0);
    assert_close(&y[2], &Tensor::f32(&[2], &[1.0, 2.0]), 0.0);
    assert_close(&y[3], &Tensor::f32(&[0], &[]), 0.0);
}

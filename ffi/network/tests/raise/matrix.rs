//! MatrixMultiply, Einsum, SoftMax, Cumulative, Reduce, Normalization.

use crate::harness::*;
use trtc_bundle::DType;
use trtc_network::Layer;
use trtc_network::layer::{CumulativeOp, MatrixOp, ReduceOp};

#[test]
fn products_of_matrices_and_vectors() {
    use MatrixOp::{None, Transpose, Vector};
    // The matrix inside: [.., M, K] and [.., K, N], with M = 2, K = 3, N = 4; leading dims broadcast.
    for op_a in [None, Transpose, Vector] {
        for op_b in [None, Transpose, Vector] {
            let a_core: &[usize] = match op_a {
                None => &[2, 3],
                Transpose => &[3, 2],
                Vector => &[3],
            };
            let b_core: &[usize] = match op_b {
                None => &[3, 4],
                Transpose => &[4, 3],
                Vector => &[3],
            };
            for (a_lead, b_lead, lead) in
                [(&[5, 1][..], &[1, 2][..], &[5, 2][..]), (&[], &[], &[]), (&[2], &[2], &[2])]
            {
                let a = Tensor::noise(&[a_lead, a_core].concat(), 1);
                let c = Tensor::noise(&[b_lead, b_core].concat(), 2);
                let rows: &[usize] = if op_a == Vector { &[] } else { &[2] };
                let columns: &[usize] = if op_b == Vector { &[] } else { &[4] };
                let expected = Tensor::from_fn(DType::F32, &[lead, rows, columns].concat(), |p| {
                    let (lead, core) = p.split_at(lead.len());
                    let row = core.first().copied().unwrap_or(0);
                    let column = core.last().copied().unwrap_or(0);
                    (0..3)
                        .map(|k| {
                            let left = match op_a {
                                None => vec![row, k],
                                Transpose => vec![k, row],
                                Vector => vec![k],
                            };
                            let right = match op_b {
                                None => vec![k, column],
                                Transpose => vec![column, k],
                                Vector => vec![k],
                            };
                            a.broadcast_at(&[lead, &left].concat()) * c.broadcast_at(&[lead, &right].concat())
                        })
                        .sum()
                });
                for dtype in [DType::F32, DType::Bf16] {
                    let y = run_one(&[a.clone(), c.clone()], |b, ids| {
                        let (a, c) = (b.cast(ids[0], dtype), b.cast(ids[1], dtype));
                        let y = b.one(Layer::MatrixMultiply { a, op_a, b: c, op_b });
                        b.cast(y, DType::F32)
                    });
                    assert_close(&y, &expected, if dtype == DType::F32 { 1e-6 } else { 1e-2 });
                }
            }
        }
    }
}

#[test]
fn einsum() {
    let (a, c) = (Tensor::noise(&[2, 3, 4], 3), Tensor::noise(&[2, 4, 5], 4));
    let expected = Tensor::from_fn(DType::F32, &[2, 5, 3], |p| {
        (0..4).map(|k| a.at(&[p[0], p[2], k]) * c.at(&[p[0], k, p[1]])).sum()
    });
    for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F16, 2e-3)] {
        let y = run_one(&[a.clone(), c.clone()], |b, ids| {
            let xs = vec![b.cast(ids[0], dtype), b.cast(ids[1], dtype)];
            let y = b.one(Layer::Einsum { xs, equation: "bik,bkj->bji".into() });
            b.cast(y, DType::F32)
        });
        assert_close(&y, &expected, tolerance);
    }
    let square = Tensor::noise(&[3, 3], 5);
    let y = run_one(&[square.clone()], |b, ids| {
        b.one(Layer::Einsum { xs: vec![ids[0]], equation: "ii->i".into() })
    });
    assert_close(&y, &Tensor::from_fn(DType::F32, &[3], |p| square.at(&[p[0], p[0]])), 0.0);
    let total = a.values.iter().sum();
    let y = run_one(&[a], |b, ids| b.one(Layer::Einsum { xs: vec![ids[0]], equation: "a b c -> ".into() }));
    assert_close(&y, &Tensor::f32(&[], &[total]), 1e-6);
}

#[test]
fn softmax() {
    let x = Tensor::noise(&[2, 3, 4], 6);
    for axis in 0..3 {
        let expected = Tensor::from_fn(DType::F32, &[2, 3, 4], |p| {
            let sum: f64 = (0..x.dims[axis])
                .map(|k| {
                    let mut q = p.to_vec();
                    q[axis] = k;
                    x.at(&q).exp()
                })
                .sum();
            x.at(p).exp() / sum
        });
        for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F16, 1e-3), (DType::Bf16, 1e-2)] {
            let y = run_one(&[x.clone()], |b, ids| {
                let x = b.cast(ids[0], dtype);
                let y = b.one(Layer::SoftMax { x, axis: axis as u32 });
                b.cast(y, DType::F32)
            });
            assert_close(&y, &expected, tolerance);
        }
    }
}

#[test]
fn cumulative_sums() {
    let x = Tensor::noise(&[3, 4], 7);
    for axis in 0..2usize {
        for (exclusive, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
            let expected = Tensor::from_fn(DType::F32, &[3, 4], |p| {
                let (j, n) = (p[axis], x.dims[axis]);
                let range = match (exclusive, reverse) {
                    (false, false) => 0..j + 1,
                    (true, false) => 0..j,
                    (false, true) => j..n,
                    (true, true) => j + 1..n,
                };
                let element = |k| {
                    let mut q = p.to_vec();
                    q[axis] = k;
                    x.at(&q)
                };
                range.map(element).sum()
            });
            for dtype in [DType::F32, DType::F16] {
                let y = run_one(&[x.clone()], |b, ids| {
                    let x = b.cast(ids[0], dtype);
                    let axis = b.scalar(DType::I32, 0, axis as f64);
                    let y = b.one(Layer::Cumulative { x, axis, op: CumulativeOp::Sum, exclusive, reverse });
                    b.cast(y, DType::F32)
                });
                // Sums of a few sixteenths: exact in both types.
                assert_close(&y, &expected, 0.0);
            }
        }
    }
}

#[test]
fn reductions() {
    let x = Tensor::noise(&[2, 3, 4], 8);
    type Fold = fn(&[f64]) -> f64;
    let cases: [(ReduceOp, Fold); 5] = [
        (ReduceOp::Sum, |v| v.iter().sum()),
        (ReduceOp::Prod, |v| v.iter().product()),
        (ReduceOp::Max, |v| v.iter().copied().fold(f64::MIN, f64::max)),
        (ReduceOp::Min, |v| v.iter().copied().fold(f64::MAX, f64::min)),
        (ReduceOp::Avg, |v| v.iter().sum::<f64>() / v.len() as f64),
    ];
    for (op, fold) in cases {
        for axes in [vec![1], vec![0, 2], vec![0, 1, 2]] {
            for keep_dims in [false, true] {
                for (dtype, tolerance) in
                    [(DType::F32, 1e-6), (DType::F16, 2e-3), (DType::I32, 0.0), (DType::I64, 0.0)]
                {
                    let scaled = if dtype.is_int() {
                        x.map(|v| (v * 16.0).trunc().clamp(-3.0, 3.0))
                    } else {
                        x.clone()
                    };
                    let kept: Vec<usize> =
                        (0..3).map(|k| if axes.contains(&(k as u32)) { 1 } else { x.dims[k] }).collect();
                    let mut expected = Tensor::from_fn(DType::F32, &kept, |p| {
                        let inside = positions(&x.dims)
                            .filter(|q| (0..3).all(|k| axes.contains(&(k as u32)) || q[k] == p[k]));
                        let values: Vec<f64> = inside.map(|q| scaled.at(&q)).collect();
                        let value = fold(&values);
                        if dtype.is_int() { value.trunc() } else { value }
                    });
                    if !keep_dims {
                        expected.dims =
                            (0..3).filter(|k| !axes.contains(&(*k as u32))).map(|k| x.dims[k]).collect();
                    }
                    let y = run_one(&[scaled.clone()], |b, ids| {
                        let x = b.cast(ids[0], dtype);
                        let y = b.one(Layer::Reduce { x, op, axes: axes.clone(), keep_dims });
                        b.cast(y, DType::F32)
                    });
                    assert_close(&y, &expected, tolerance);
                }
            }
        }
    }
}

fn normalized(
    x: &Tensor,
    scale: &Tensor,
    bias: &Tensor,
    same: impl Fn(&[usize], &[usize]) -> bool,
) -> Tensor {
    Tensor::from_fn(DType::F32, &x.dims, |p| {
        let set: Vec<f64> = positions(&x.dims).filter(|q| same(p, q)).map(|q| x.at(&q)).collect();
        let mean = set.iter().sum::<f64>() / set.len() as f64;
        let variance = set.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / set.len() as f64;
        (x.at(p) - mean) / (variance + 1e-3).sqrt() * scale.broadcast_at(p) + bias.broadcast_at(p)
    })
}

#[test]
fn normalizations() {
    let x = Tensor::noise(&[2, 4, 3, 5], 9);
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 4e-3)] {
        let run_normal = |scale: &Tensor, bias: &Tensor, axes: Vec<u32>, groups: i64| {
            run_one(&[x.clone(), scale.clone(), bias.clone()], |b, ids| {
                let (x, scale, bias) = (b.cast(ids[0], dtype), b.cast(ids[1], dtype), b.cast(ids[2], dtype));
                let axes = axes.clone();
                let y = b.one(Layer::Normalization { x, scale, bias, axes, epsilon: 1e-3, groups });
                b.cast(y, DType::F32)
            })
        };
        // Instance: over the spatial dims, scales per channel.
        let (scale, bias) = (Tensor::noise(&[1, 4, 1, 1], 10), Tensor::noise(&[1, 4, 1, 1], 11));
        let expected = normalized(&x, &scale, &bias, |p, q| p[..2] == q[..2]);
        assert_close(&run_normal(&scale, &bias, vec![2, 3], 1), &expected, tolerance);
        // Group: two channels a group.
        let expected = normalized(&x, &scale, &bias, |p, q| p[0] == q[0] && p[1] / 2 == q[1] / 2);
        assert_close(&run_normal(&scale, &bias, vec![2, 3], 2), &expected, tolerance);
        // Layer: over the last dims, scales per element.
        let (scale, bias) = (Tensor::noise(&[1, 1, 3, 5], 12), Tensor::noise(&[1, 1, 3, 5], 13));
        let expected = normalized(&x, &scale, &bias, |p, q| p[..2] == q[..2]);
        assert_close(&run_normal(&scale, &bias, vec![2, 3], 1), &expected, tolerance);
        let (scale, bias) = (Tensor::noise(&[1, 1, 1, 5], 14), Tensor::noise(&[1, 1, 1, 5], 15));
        let expected = normalized(&x, &scale, &bias, |p, q| p[..3] == q[..3]);
        assert_close(&run_normal(&scale, &bias, vec![3], 1), &expected, tolerance);
    }
}

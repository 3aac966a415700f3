//! Gather, Scatter, OneHot, ReverseSequence, TopK, NonZero, NMS.

use crate::harness::*;
use trtc_bundle::DType;
use trtc_network::layer::{BoxFormat, Count, GatherMode, ScatterMode, TopKOp};
use trtc_network::{Layer, NetworkBuilder, TensorId};

fn gather(
    mode: GatherMode,
    axis: u32,
    batch_dims: u32,
) -> impl Fn(&mut NetworkBuilder, &[TensorId]) -> TensorId {
    move |b, ids| b.one(Layer::Gather { data: ids[0], indices: ids[1], axis, mode, batch_dims })
}

#[test]
fn gathers_along_an_axis() {
    let x = Tensor::noise(&[2, 4, 3], 1);
    let at = Tensor::i64(&[2, 2], &[3.0, 0.0, 1.0, -1.0]);
    let expected = Tensor::from_fn(DType::F32, &[2, 2, 2, 3], |p| {
        let index = at.at(&[p[1], p[2]]);
        x.at(&[p[0], if index < 0.0 { 3 } else { index as usize }, p[3]])
    });
    assert_close(&run_one(&[x.clone(), at], gather(GatherMode::Default, 1, 0)), &expected, 0.0);
    let one = Tensor::new(DType::I32, &[], &[2.0]);
    let expected = Tensor::from_fn(DType::F32, &[2, 3], |p| x.at(&[p[0], 2, p[1]]));
    assert_close(&run_one(&[x, one], gather(GatherMode::Default, 1, 0)), &expected, 0.0);
}

#[test]
fn gathers_by_batch() {
    let x = Tensor::noise(&[2, 3, 4, 2], 2);
    let at = Tensor::i64(&[2, 5], &[3.0, 0.0, 1.0, 1.0, 2.0, 0.0, 0.0, 3.0, 2.0, 1.0]);
    // output[b, i, j, k] = data[b, i, indices[b, j], k]
    let expected = Tensor::from_fn(DType::F32, &[2, 3, 5, 2], |p| {
        x.at(&[p[0], p[1], at.at(&[p[0], p[2]]) as usize, p[3]])
    });
    assert_close(&run_one(&[x.clone(), at.clone()], gather(GatherMode::Default, 2, 1)), &expected, 0.0);
    // The batch of either side broadcasts.
    let one = Tensor::i64(&[1, 5], &at.values[..5]);
    let expected = Tensor::from_fn(DType::F32, &[2, 3, 5, 2], |p| {
        x.at(&[p[0], p[1], one.at(&[0, p[2]]) as usize, p[3]])
    });
    assert_close(&run_one(&[x, one], gather(GatherMode::Default, 2, 1)), &expected, 0.0);
    let x = Tensor::noise(&[1, 4], 3);
    let at = Tensor::i64(&[3, 2], &[3.0, 0.0, 1.0, 1.0, 2.0, 0.0]);
    let expected = Tensor::from_fn(DType::F32, &[3, 2], |p| x.at(&[0, at.at(p) as usize]));
    for dtype in [DType::F32, DType::Bf16] {
        let y = run_one(&[x.clone(), at.clone()], |b, ids| {
            let x = b.cast(ids[0], dtype);
            let y = gather(GatherMode::Default, 1, 1)(b, &[x, ids[1]]);
            b.cast(y, DType::F32)
        });
        assert_close(&y, &expected, 0.0);
    }
}

#[test]
fn gathers_element_by_element() {
    let x = Tensor::noise(&[3, 4], 4);
    let at = Tensor::i64(&[2, 4], &[2.0, 0.0, 1.0, 1.0, 0.0, 2.0, 2.0, 1.0]);
    let expected = Tensor::from_fn(DType::F32, &[2, 4], |p| x.at(&[at.at(p) as usize, p[1]]));
    assert_close(&run_one(&[x, at], gather(GatherMode::Element, 0, 0)), &expected, 0.0);
}

#[test]
fn gathers_nd() {
    let x = Tensor::noise(&[2, 3, 4], 5);
    let at = Tensor::new(DType::I32, &[3, 2], &[0.0, 2.0, 1.0, 1.0, 1.0, 0.0]);
    let expected = Tensor::from_fn(DType::F32, &[3, 4], |p| {
        x.at(&[at.at(&[p[0], 0]) as usize, at.at(&[p[0], 1]) as usize, p[1]])
    });
    let build = |batch| {
        move |b: &mut NetworkBuilder, ids: &[TensorId]| vec![gather(GatherMode::Nd, 0, batch)(b, ids)]
    };
    assert_close(&run_static(&[x.clone(), at], build(0))[0], &expected, 0.0);
    let at = Tensor::i64(&[2, 2, 1], &[2.0, 0.0, 1.0, 1.0]);
    let expected =
        Tensor::from_fn(DType::F32, &[2, 2, 4], |p| x.at(&[p[0], at.at(&[p[0], p[1], 0]) as usize, p[2]]));
    assert_close(&run_static(&[x, at], build(1))[0], &expected, 0.0);
}

#[test]
fn scatters() {
    let x = Tensor::noise(&[3, 3], 6);
    let at = Tensor::new(DType::I32, &[2, 3], &[1.0, 0.0, 2.0, 0.0, 2.0, 1.0]);
    let updates = Tensor::f32(&[2, 3], &[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]);
    let mut expected = x.clone();
    for p in positions(&[2, 3]) {
        expected.values[at.at(&p) as usize * 3 + p[1]] = updates.at(&p);
    }
    let build = |mode, axis| {
        move |b: &mut NetworkBuilder, ids: &[TensorId]| {
            b.one(Layer::Scatter { data: ids[0], indices: ids[1], updates: ids[2], mode, axis })
        }
    };
    let y = run_one(&[x.clone(), at, updates], build(ScatterMode::Element, 0));
    assert_close(&y, &expected, 0.0);

    let at = Tensor::new(DType::I32, &[2, 1], &[2.0, 0.0]);
    let updates = Tensor::f32(&[2, 3], &[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]);
    let expected = Tensor::from_fn(DType::F32, &[3, 3], |p| match p[0] {
        2 => updates.at(&[0, p[1]]),
        0 => updates.at(&[1, p[1]]),
        _ => x.at(p),
    });
    for dtype in [DType::F32, DType::F16, DType::I32] {
        let keep = |v: f64| if dtype == DType::I32 { v.trunc() } else { v };
        let y = run_one(&[x.clone(), at.clone(), updates.clone()], |b, ids| {
            let ids = [b.cast(ids[0], dtype), ids[1], b.cast(ids[2], dtype)];
            let y = build(ScatterMode::Nd, 0)(b, &ids);
            b.cast(y, DType::F32)
        });
        assert_close(&y, &expected.map(keep), 0.0);
    }
}

#[test]
fn one_hot() {
    let at = Tensor::new(DType::I32, &[2, 3], &[0.0, 3.0, 1.0, -1.0, 9.0, -9.0]);
    for axis in 0..3usize {
        let mut dims = vec![2, 3];
        dims.insert(axis, 4);
        for (dtype, off, on) in [(DType::F32, -1.0, 2.5), (DType::I64, 0.0, 7.0), (DType::F16, 0.0, 1.0)] {
            let expected = Tensor::from_fn(DType::F32, &dims, |p| {
                let mut rest = p.to_vec();
                let class = rest.remove(axis);
                let index = at.at(&rest);
                let index = if index < 0.0 { index + 4.0 } else { index };
                if index == class as f64 { on } else { off }
            });
            let y = run_one(&[at.clone()], |b, ids| {
                let parts = vec![b.scalar(dtype, 1, off), b.scalar(dtype, 1, on)];
                let values = b.one(Layer::Concatenation { xs: parts, axis: 0 });
                let depth = b.scalar(DType::I32, 0, 4.0);
                let y = b.one(Layer::OneHot { indices: ids[0], values, depth, axis: axis as u32 });
                b.cast(y, DType::F32)
            });
            assert_close(&y, &expected, 0.0);
        }
    }
}

#[test]
fn reverses_sequences() {
    let x = Tensor::noise(&[4, 2, 3], 7);
    let axes = [(0, 1), (1, 0), (2, 0), (1, 2), (2, 1)];
    for (batch, sequence) in axes {
        let lengths: Vec<f64> =
            (0..x.dims[batch]).map(|k| ((k + 1) % (x.dims[sequence] + 1)).max(1) as f64).collect();
        let expected = Tensor::from_fn(DType::F32, &x.dims, |p| {
            let n = lengths[p[batch]] as usize;
            let mut from = p.to_vec();
            if p[sequence] < n {
                from[sequence] = n - 1 - p[sequence];
            }
            x.at(&from)
        });
        let lengths = Tensor::new(DType::I32, &[lengths.len()], &lengths);
        let y = run_one(&[x.clone(), lengths], |b, ids| {
            b.one(Layer::ReverseSequence {
                x: ids[0],
                lengths: ids[1],
                batch_axis: batch as u32,
                sequence_axis: sequence as u32,
            })
        });
        assert_close(&y, &expected, 0.0);
    }
}

#[test]
fn top_k() {
    // No ties: TensorRT does not order them.
    let x =
        Tensor::from_fn(DType::F32, &[3, 5, 2], |p| ((p[0] * 7 + p[1] * 11 + p[2] * 3) % 31) as f64 - 12.0);
    for (op, sign) in [(TopKOp::Max, -1.0), (TopKOp::Min, 1.0)] {
        let ordered = |p: &[usize]| {
            let mut column: Vec<(f64, usize)> = (0..5).map(|k| (x.at(&[p[0], k, p[2]]), k)).collect();
            column.sort_by(|a, b| (sign * a.0).total_cmp(&(sign * b.0)));
            column[p[1]]
        };
        let values = Tensor::from_fn(DType::F32, &[3, 2, 2], |p| ordered(p).0);
        for to in [DType::I32, DType::I64] {
            let places = Tensor::from_fn(to, &[3, 2, 2], |p| ordered(p).1 as f64);
            for tensor in [false, true] {
                for dtype in [DType::F32, DType::F16] {
                    let y = run_static(&[x.clone(), Tensor::i64(&[], &[2.0])], |b, ids| {
                        let x = b.cast(ids[0], dtype);
                        let k = if tensor { Count::Tensor(ids[1]) } else { Count::Static(2) };
                        let y = b.layer(Layer::TopK { x, op, k, axis: 1, indices: to });
                        vec![b.cast(y[0], DType::F32), y[1]]
                    });
                    assert_close(&y[0], &values, 0.0);
                    assert_close(&y[1], &places, 0.0);
                }
            }
        }
    }
}

#[test]
fn non_zero() {
    let x = Tensor::f32(&[2, 3], &[0.0, 1.5, 0.0, -2.0, 0.0, 3.0]);
    for (dtype, to) in [(DType::F32, DType::I64), (DType::Bool, DType::I32), (DType::F16, DType::I32)] {
        let y = run_one(&[x.clone()], |b, ids| {
            let x = b.cast(ids[0], dtype);
            b.one(Layer::NonZero { x, to })
        });
        assert_close(&y, &Tensor::new(to, &[2, 3], &[0.0, 1.0, 1.0, 1.0, 0.0, 2.0]), 0.0);
    }
}

/// Selection per batch item and class in falling order of score, then the order that TensorRT promises.
fn suppressed(
    boxes: &dyn Fn(usize, usize, usize) -> [f64; 4],
    scores: &Tensor,
    most: usize,
    iou_limit: f64,
    score_limit: f64,
) -> Vec<f64> {
    let (batches, count, classes) = (scores.dims[0], scores.dims[1], scores.dims[2]);
    let overlap = |a: [f64; 4], b: [f64; 4]| {
        let span = |q: [f64; 4], k: usize| (q[k].min(q[k + 2]), q[k].max(q[k + 2]));
        let area = |q: [f64; 4]| (span(q, 0).1 - span(q, 0).0) * (span(q, 1).1 - span(q, 1).0);
        let side = |k| (span(a, k).1.min(span(b, k).1) - span(a, k).0.max(span(b, k).0)).max(0.0);
        let common = side(0) * side(1);
        common / (area(a) + area(b) - common)
    };
    let mut rows = Vec::new();
    for batch in 0..batches {
        let mut selected = Vec::new();
        for class in 0..classes {
            let mut order: Vec<usize> =
                (0..count).filter(|&k| scores.at(&[batch, k, class]) > score_limit).collect();
            order.sort_by(|&a, &b| scores.at(&[batch, b, class]).total_cmp(&scores.at(&[batch, a, class])));
            let mut kept: Vec<usize> = Vec::new();
            for k in order {
                let here = boxes(batch, k, class);
                if kept.len() < most
                    && kept.iter().all(|&j| overlap(boxes(batch, j, class), here) <= iou_limit)
                {
                    kept.push(k);
                    selected.push((scores.at(&[batch, k, class]), class, k));
                }
            }
        }
        selected.sort_by(|a, b| b.0.total_cmp(&a.0));
        rows.extend(selected.into_iter().flat_map(|(_, class, k)| [batch as f64, class as f64, k as f64]));
    }
    rows
}

#[test]
fn nms() {
    // Scores all differ, so that the order is determined.
    let scores =
        Tensor::from_fn(DType::F32, &[2, 6, 2], |p| ((p[0] * 5 + p[1] * 7 + p[2] * 12) % 25) as f64 / 25.0);
    let corners = Tensor::from_fn(DType::F32, &[2, 6, 4], |p| {
        let origin = ((p[1] * 3 + p[0]) % 7) as f64;
        [origin, origin * 0.5, origin + 3.0, origin * 0.5 + 2.0][p[2]]
    });
    let per_class = Tensor::from_fn(DType::F32, &[2, 6, 2, 4], |p| {
        corners.at(&[p[0], p[1], p[3]]) * (1.0 + p[2] as f64 * p[1] as f64)
    });
    for (to, format) in [(DType::I32, BoxFormat::CornerPairs), (DType::I64, BoxFormat::CenterSizes)] {
        for limits in [Some((0.3, 0.2)), None, Some((0.5, 2.0))] {
            for classes in [false, true] {
                let boxes = if classes { &per_class } else { &corners };
                let at = |batch: usize, k: usize, class: usize| {
                    let q: Vec<f64> =
                        (0..4)
                            .map(|c| {
                                if classes {
                                    boxes.at(&[batch, k, class, c])
                                } else {
                                    boxes.at(&[batch, k, c])
                                }
                            })
                            .collect();
                    match format {
                        BoxFormat::CornerPairs => [q[0], q[1], q[2], q[3]],
                        BoxFormat::CenterSizes => {
                            [q[0] - q[2] / 2.0, q[1] - q[3] / 2.0, q[0] + q[2] / 2.0, q[1] + q[3] / 2.0]
                        }
                    }
                };
                let (iou, score) = limits.unwrap_or((0.0, 0.0));
                let expected = suppressed(&at, &scores, 3, iou, score);
                let count = expected.len() / 3;
                let y = run(&[boxes.clone(), scores.clone()], |b, ids| {
                    let max_output_boxes = b.scalar(DType::I32, 0, 3.0);
                    let (iou_threshold, score_threshold) = match limits {
                        Some((iou, score)) => {
                            (Some(b.scalar(DType::F32, 0, iou)), Some(b.scalar(DType::F32, 0, score)))
                        }
                        None => (None, None),
                    };
                    b.layer(Layer::Nms {
                        boxes: ids[0],
                        scores: ids[1],
                        max_output_boxes,
                        iou_threshold,
                        score_threshold,
                        format,
                        to,
                    })
                });
                assert_close(&y[0], &Tensor::new(to, &[count, 3], &expected), 0.0);
                assert_close(&y[1], &Tensor::new(DType::I32, &[], &[count as f64]), 0.0);
            }
        }
    }
}

//! If and Loop.

use crate::harness::*;
use trtc_bundle::DType;
use trtc_network::layer::*;
use trtc_network::{Layer, NetworkBuilder, TensorId};

fn branch(b: &mut NetworkBuilder, build: impl FnOnce(&mut NetworkBuilder) -> Vec<TensorId>) -> Region {
    b.open_region();
    let outputs = build(b);
    b.close_region(outputs)
}

#[test]
fn a_branch_is_chosen() {
    let (x, c) = (Tensor::noise(&[2, 3], 1), Tensor::noise(&[2, 3], 2));
    for condition in [0.0, 1.0] {
        let inputs = [Tensor::bool(&[], &[condition]), x.clone(), c.clone()];
        let y = run(&inputs, |b, ids| {
            let inner: Vec<TensorId> =
                ids[1..].iter().map(|&id| b.tensor(b.dtype(id), b.dims(id).to_vec())).collect();
            let captures =
                ids[1..].iter().zip(&inner).map(|(&outer, &inner)| Capture { outer, inner }).collect();
            // One branch hands out a capture as it is, and a tensor of another length.
            let then_branch = branch(b, |b| {
                let sum = b.elementwise(inner[0], inner[1], ElementWiseOp::Sum);
                let flat = b.reshape(sum, vec![-1]);
                vec![inner[0], flat]
            });
            let else_branch = branch(b, |b| {
                let product = b.elementwise(inner[0], inner[1], ElementWiseOp::Prod);
                let short = b.reshape(product, vec![-1]);
                let fixed = |v| Extent::Static(vec![v]);
                let (start, size, stride) = (fixed(1), fixed(2), fixed(1));
                let short = b.one(Layer::Slice {
                    x: short,
                    start,
                    size,
                    stride,
                    mode: SampleMode::Strict,
                    fill: None,
                });
                vec![product, short]
            });
            b.layer(Layer::If { condition: ids[0], captures, then_branch, else_branch })
        });
        let both = |f: fn(f64, f64) -> f64| Tensor::from_fn(DType::F32, &[2, 3], |p| f(x.at(p), c.at(p)));
        if condition == 1.0 {
            assert_close(&y[0], &x, 0.0);
            assert_close(&y[1], &Tensor { dims: vec![6], ..both(|a, b| a + b) }, 0.0);
        } else {
            let product = both(|a, b| a * b);
            assert_close(&y[0], &product, 0.0);
            assert_close(&y[1], &Tensor::f32(&[2], &product.values[1..3]), 0.0);
        }
    }
}

#[test]
fn branches_nest_and_make_constants() {
    for (outer, inner, expected) in [(1.0, 1.0, 11.0), (1.0, 0.0, 12.0), (0.0, 1.0, 3.0)] {
        let inputs = [Tensor::bool(&[], &[outer]), Tensor::bool(&[], &[inner]), Tensor::f32(&[1], &[1.0])];
        let y = run_one(&inputs, |b, ids| {
            let plus = |b: &mut NetworkBuilder, x, v| {
                let constant = b.scalar(DType::F32, 1, v);
                b.elementwise(x, constant, ElementWiseOp::Sum)
            };
            let then_branch = branch(b, |b| {
                let first = branch(b, |b| vec![plus(b, ids[2], 10.0)]);
                let second = branch(b, |b| vec![plus(b, ids[2], 11.0)]);
                b.layer(Layer::If {
                    condition: ids[1],
                    captures: vec![],
                    then_branch: first,
                    else_branch: second,
                })
            });
            let else_branch = branch(b, |b| vec![plus(b, ids[2], 2.0)]);
            b.one(Layer::If { condition: ids[0], captures: vec![], then_branch, else_branch })
        });
        assert_close(&y, &Tensor::f32(&[1], &[expected]), 0.0);
    }
}

/// What a loop walks, carries and hands out.
struct Loop {
    limits: Vec<(TripLimit, TensorId)>,
    recurrences: Vec<Recurrence>,
    iterators: Vec<LoopIterator>,
    results: Vec<LoopOutput>,
}

/// A loop whose body `build` emits.
fn loop_layer(b: &mut NetworkBuilder, build: impl FnOnce(&mut NetworkBuilder) -> Loop) -> Vec<TensorId> {
    b.open_region();
    let Loop { limits, recurrences, iterators, results } = build(b);
    let body = b.close_region(vec![]).layers;
    b.layer(Layer::Loop { limits, recurrences, iterators, body, results })
}

#[test]
fn a_counted_loop_walks_carries_and_collects() {
    let x = Tensor::noise(&[2, 4, 3], 3);
    for axis in 0..3usize {
        for reverse in [false, true] {
            for kind in [LoopOutputKind::Concatenate, LoopOutputKind::Reverse] {
                for (out_axis, dtype) in [(0, DType::F32), (1, DType::I32), (2, DType::I64), (0, DType::F16)]
                {
                    let trips = x.dims[axis];
                    let mut rest = x.dims.clone();
                    rest.remove(axis);
                    // sum ← sum + x[i] along the axis, from 1.
                    let slice = |step: usize, p: &[usize]| {
                        let mut at = p.to_vec();
                        at.insert(axis, if reverse { trips - 1 - step } else { step });
                        x.at(&at)
                    };
                    let after =
                        |steps: usize, p: &[usize]| 1.0 + (0..steps).map(|k| slice(k, p)).sum::<f64>();
                    let last = Tensor::from_fn(DType::F32, &rest, |p| after(trips, p));
                    let mut dims = rest.clone();
                    dims.insert(out_axis, trips);
                    let all = Tensor::from_fn(DType::F32, &dims, |p| {
                        let mut at = p.to_vec();
                        let step = at.remove(out_axis);
                        after(if kind == LoopOutputKind::Reverse { trips - step } else { step + 1 }, &at)
                    });
                    let half = dtype == DType::F16;
                    let count = Tensor::new(if half { DType::I64 } else { dtype }, &[], &[trips as f64]);
                    let counts =
                        if count.dtype == DType::F32 { Tensor::i64(&[], &count.values) } else { count };
                    let initial = Tensor::from_fn(DType::F32, &rest, |_| 1.0);
                    let y = run(&[x.clone(), initial, counts], |b, ids| {
                        let (x, initial) = match half {
                            true => (b.cast(ids[0], DType::F16), b.cast(ids[1], DType::F16)),
                            false => (ids[0], ids[1]),
                        };
                        let outputs = loop_layer(b, |b| {
                            let current = b.tensor(b.dtype(initial), b.dims(initial).to_vec());
                            let element = b.tensor(b.dtype(initial), b.dims(initial).to_vec());
                            let next = b.elementwise(current, element, ElementWiseOp::Sum);
                            let collected =
                                LoopOutput { kind, value: next, axis: out_axis as u32, length: Some(ids[2]) };
                            let carried = LoopOutput {
                                kind: LoopOutputKind::LastValue,
                                value: current,
                                axis: 0,
                                length: None,
                            };
                            Loop {
                                limits: vec![(TripLimit::Count, ids[2])],
                                recurrences: vec![Recurrence { initial, current, next }],
                                iterators: vec![LoopIterator {
                                    x,
                                    current: element,
                                    axis: axis as u32,
                                    reverse,
                                }],
                                results: vec![collected, carried],
                            }
                        });
                        outputs.into_iter().map(|id| b.cast(id, DType::F32)).collect()
                    });
                    // Sums of sixteenths below 16: exact in f16.
                    assert_close(&y[0], &all, 0.0);
                    assert_close(&y[1], &last, 0.0);
                }
            }
        }
    }
}

/// Doubles a number while it is below `limit`, at most `count` times when that is given.
fn doubling(start: f64, limit: f64, count: Option<f64>, length: f64) -> Vec<Tensor> {
    let inputs = [
        Tensor::f32(&[], &[start]),
        Tensor::f32(&[], &[limit]),
        Tensor::i64(&[], &[count.unwrap_or(0.0)]),
        Tensor::i64(&[], &[length]),
    ];
    run(&inputs, |b, ids| {
        loop_layer(b, |b| {
            let current = b.tensor(DType::F32, vec![]);
            let below = b.elementwise(current, ids[1], ElementWiseOp::Less);
            let two = b.scalar(DType::F32, 0, 2.0);
            let next = b.elementwise(current, two, ElementWiseOp::Prod);
            let mut limits = vec![(TripLimit::While, below)];
            if count.is_some() {
                limits.push((TripLimit::Count, ids[2]));
            }
            let output = |kind, value, length| LoopOutput { kind, value, axis: 0, length };
            Loop {
                limits,
                recurrences: vec![Recurrence { initial: ids[0], current, next }],
                iterators: vec![],
                results: vec![
                    output(LoopOutputKind::LastValue, current, None),
                    output(LoopOutputKind::Concatenate, next, Some(ids[3])),
                ],
            }
        })
    })
}

#[test]
fn a_while_is_asked_before_each_iteration() {
    for (start, limit, count, length) in [
        (1.0, 9.0, None, 4),
        (20.0, 9.0, None, 2),
        (1.0, 9.0, Some(2.0), 2),
        (1.0, 9.0, Some(7.0), 6),
        (1.0, 100.0, Some(0.0), 1),
    ] {
        let (mut value, mut seen): (f64, Vec<f64>) = (start, Vec::new());
        while value < limit && count.is_none_or(|count| (seen.len() as f64) < count) {
            value *= 2.0;
            seen.push(value);
        }
        let y = doubling(start, limit, count, length as f64);
        assert_close(&y[0], &Tensor::f32(&[], &[value]), 0.0);
        assert_eq!(y[1].dims, [length]);
        // Past the last iteration TensorRT promises nothing.
        assert_eq!(y[1].values[..seen.len()], seen[..]);
    }
}

#[test]
fn a_while_over_a_condition_that_an_if_makes() {
    // n ← n + 1 while (n < 3 if flag else n < 5)
    for (flag, expected) in [(1.0, 3.0), (0.0, 5.0)] {
        let inputs = [Tensor::bool(&[], &[flag]), Tensor::i64(&[], &[0.0])];
        let y = run_one(&inputs, |b, ids| {
            loop_layer(b, |b| {
                let current = b.tensor(DType::I64, vec![]);
                let below = |b: &mut NetworkBuilder, v| {
                    let limit = b.scalar(DType::I64, 0, v);
                    vec![b.elementwise(current, limit, ElementWiseOp::Less)]
                };
                let then_branch = branch(b, |b| below(b, 3.0));
                let else_branch = branch(b, |b| below(b, 5.0));
                let going =
                    b.one(Layer::If { condition: ids[0], captures: vec![], then_branch, else_branch });
                let one = b.scalar(DType::I64, 0, 1.0);
                let next = b.elementwise(current, one, ElementWiseOp::Sum);
                Loop {
                    limits: vec![(TripLimit::While, going)],
                    recurrences: vec![Recurrence { initial: ids[1], current, next }],
                    iterators: vec![],
                    results: vec![LoopOutput {
                        kind: LoopOutputKind::LastValue,
                        value: current,
                        axis: 0,
                        length: None,
                    }],
                }
            })[0]
        });
        assert_close(&y, &Tensor::i64(&[], &[expected]), 0.0);
    }
}

#[test]
fn loops_nest() {
    // Rows of a matrix, each summed by an inner loop over its elements, plus a tensor of the outside.
    let x = Tensor::noise(&[3, 4], 5);
    let expected = Tensor::from_fn(DType::F32, &[3], |p| (0..4).map(|k| x.at(&[p[0], k])).sum::<f64>() + 0.5);
    let inputs = [x, Tensor::f32(&[], &[0.5]), Tensor::i64(&[], &[3.0]), Tensor::i64(&[], &[4.0])];
    let y = run_one(&inputs, |b, ids| {
        loop_layer(b, |b| {
            let width = b.dims(ids[0])[1];
            let row = b.tensor(DType::F32, vec![width]);
            let sum = loop_layer(b, |b| {
                let current = b.tensor(DType::F32, vec![]);
                let element = b.tensor(DType::F32, vec![]);
                let next = b.elementwise(current, element, ElementWiseOp::Sum);
                Loop {
                    limits: vec![(TripLimit::Count, ids[3])],
                    recurrences: vec![Recurrence { initial: ids[1], current, next }],
                    iterators: vec![LoopIterator { x: row, current: element, axis: 0, reverse: false }],
                    results: vec![LoopOutput {
                        kind: LoopOutputKind::LastValue,
                        value: current,
                        axis: 0,
                        length: None,
                    }],
                }
            })[0];
            Loop {
                limits: vec![(TripLimit::Count, ids[2])],
                recurrences: vec![],
                iterators: vec![LoopIterator { x: ids[0], current: row, axis: 0, reverse: false }],
                results: vec![LoopOutput {
                    kind: LoopOutputKind::Concatenate,
                    value: sum,
                    axis: 0,
                    length: Some(ids[2]),
                }],
            }
        })[0]
    });
    assert_close(&y, &expected, 0.0);
}

#[test]
fn a_promised_length_cuts_or_fills() {
    for length in [2usize, 5] {
        let x = Tensor::noise(&[3, 2], 6);
        let inputs = [x.clone(), Tensor::i64(&[], &[3.0]), Tensor::i64(&[], &[length as f64])];
        let y = run_one(&inputs, |b, ids| {
            loop_layer(b, |b| {
                let width = b.dims(ids[0])[1];
                let row = b.tensor(DType::F32, vec![width]);
                let value = b.unary(row, UnaryOp::Neg);
                Loop {
                    limits: vec![(TripLimit::Count, ids[1])],
                    recurrences: vec![],
                    iterators: vec![LoopIterator { x: ids[0], current: row, axis: 0, reverse: false }],
                    results: vec![LoopOutput {
                        kind: LoopOutputKind::Concatenate,
                        value,
                        axis: 1,
                        length: Some(ids[2]),
                    }],
                }
            })[0]
        });
        assert_eq!(y.dims, [2, length]);
        for p in positions(&[2, length.min(3)]) {
            assert_eq!(y.at(&p), -x.at(&[p[1], p[0]]));
        }
    }
}

//! `If` and `Loop` through the real TensorRT-RTX builder, for sm89.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use common::{build, dynamic, floats, network};
use trtc_bundle::DType;
use trtc_network::{InputProfile, Layer, Lowered, NetworkBuilder, Region, TensorId, layer::*};

fn output(b: &mut NetworkBuilder, y: TensorId) {
    b.mark_output(y, "y");
}

fn result(kind: LoopOutputKind, value: TensorId, length: Option<TensorId>) -> LoopOutput {
    LoopOutput { kind, value, axis: 0, length }
}

fn region(b: &mut NetworkBuilder, fill: impl FnOnce(&mut NetworkBuilder) -> TensorId) -> Region {
    b.open_region();
    let y = fill(b);
    b.close_region(vec![y])
}

fn conditional() -> Lowered {
    network("if", |b| {
        let x = dynamic(b, &[-1, 3]);
        let c = b.add_input("c", DType::Bool, vec![]);
        let inner = b.tensor(DType::F32, vec![-1, 3]);
        let captures = vec![Capture { outer: x, inner }];
        b.open_region();
        let then_y = b.activation(inner, ActivationKind::Relu, 0.0, 0.0);
        let then_branch = b.close_region(vec![then_y]);
        b.open_region();
        let two = b.scalar(DType::F32, 2, 2.0);
        let else_y = b.elementwise(inner, two, ElementWiseOp::Prod);
        let else_branch = b.close_region(vec![else_y]);
        let y = b.one(Layer::If { condition: c, captures, then_branch, else_branch });
        output(b, y);
    })
}

/// Three times: sum += x[k]; all sums stacked, in both directions.
fn repeat_by_count() -> Lowered {
    network("loop by count", |b| {
        let x = b.add_input("x", DType::F32, vec![3, 4]);
        let initial = floats(b, &[4]);
        let trips = b.scalar(DType::I64, 0, 3.0);
        let sum = b.tensor(DType::F32, vec![4]);
        let row = b.tensor(DType::F32, vec![4]);
        b.open_region();
        let next = b.elementwise(sum, row, ElementWiseOp::Sum);
        let body = b.close_region(vec![next]).layers;
        let ys = b.layer(Layer::Loop {
            limits: vec![(TripLimit::Count, trips)],
            recurrences: vec![Recurrence { initial, current: sum, next }],
            iterators: vec![LoopIterator { x, current: row, axis: 0, reverse: false }],
            body,
            results: vec![
                result(LoopOutputKind::LastValue, sum, None),
                result(LoopOutputKind::Concatenate, next, Some(trips)),
                result(LoopOutputKind::Reverse, next, Some(trips)),
            ],
        });
        for (k, y) in ys.into_iter().enumerate() {
            b.mark_output(y, &format!("y{k}"));
        }
    })
}

/// While k < 5: k += 1.
fn repeat_while() -> Lowered {
    network("loop while", |b| {
        let initial = b.add_input("x", DType::I64, vec![]);
        let k = b.tensor(DType::I64, vec![]);
        b.open_region();
        let (one, five) = (b.scalar(DType::I64, 0, 1.0), b.scalar(DType::I64, 0, 5.0));
        let next = b.elementwise(k, one, ElementWiseOp::Sum);
        let go_on = b.elementwise(k, five, ElementWiseOp::Less);
        let body = b.close_region(vec![next]).layers;
        let y = b.one(Layer::Loop {
            limits: vec![(TripLimit::While, go_on)],
            recurrences: vec![Recurrence { initial, current: k, next }],
            iterators: vec![],
            body,
            results: vec![LoopOutput { kind: LoopOutputKind::LastValue, value: k, axis: 0, length: None }],
        });
        output(b, y);
    })
}

/// Branches that hand out a captured tensor, a tensor from outside and a constant as they are.
fn conditional_without_layers() -> Vec<Lowered> {
    let relu = |b: &mut NetworkBuilder, x| region(b, |b| b.activation(x, ActivationKind::Relu, 0.0, 0.0));
    vec![
        network("if hands out its capture", |b| {
            let x = b.add_input("x", DType::F32, vec![2, 3]);
            let condition = b.add_input("c", DType::Bool, vec![]);
            let inner = b.tensor(DType::F32, vec![2, 3]);
            let then_branch = region(b, |_| inner);
            let else_branch = relu(b, inner);
            let captures = vec![Capture { outer: x, inner }];
            let y = b.one(Layer::If { condition, captures, then_branch, else_branch });
            output(b, y);
        }),
        network("if hands out an outer tensor", |b| {
            let x = b.add_input("x", DType::F32, vec![2, 3]);
            let condition = b.add_input("c", DType::Bool, vec![]);
            let then_branch = region(b, |_| x);
            let else_branch = relu(b, x);
            let y = b.one(Layer::If { condition, captures: vec![], then_branch, else_branch });
            output(b, y);
        }),
        network("if hands out a constant", |b| {
            let x = b.add_input("x", DType::F32, vec![2, 3]);
            let condition = b.add_input("c", DType::Bool, vec![]);
            let then_branch = region(b, |b| floats(b, &[2, 3]));
            let else_branch = relu(b, x);
            let y = b.one(Layer::If { condition, captures: vec![], then_branch, else_branch });
            output(b, y);
        }),
    ]
}

/// A count that only the run knows (i32: with a condition beside it, TensorRT-RTX 1.7 mixes an i64 count with i32).
fn repeat_by_count_and_while() -> Lowered {
    network("loop by count and while", |b| {
        let trips = b.add_input("n", DType::I32, vec![]);
        let values = Some([vec![1], vec![3], vec![9]]);
        b.add_profile(InputProfile { name: "n".to_owned(), dims: None, values });
        let (x, go) = (b.add_input("x", DType::F32, vec![4]), b.add_input("go", DType::Bool, vec![]));
        let (state, going) = (b.tensor(DType::F32, vec![4]), b.tensor(DType::Bool, vec![]));
        b.open_region();
        let one = b.scalar(DType::F32, 1, 1.0);
        let next = b.elementwise(state, one, ElementWiseOp::Sum);
        let top = b.one(Layer::Reduce { x: next, op: ReduceOp::Max, axes: vec![0], keep_dims: false });
        let ten = b.scalar(DType::F32, 0, 10.0);
        let go_on = b.elementwise(top, ten, ElementWiseOp::Less);
        let body = b.close_region(vec![]).layers;
        let ys = b.layer(Layer::Loop {
            limits: vec![(TripLimit::Count, trips), (TripLimit::While, going)],
            recurrences: vec![
                Recurrence { initial: x, current: state, next },
                Recurrence { initial: go, current: going, next: go_on },
            ],
            iterators: vec![],
            body,
            results: vec![
                result(LoopOutputKind::LastValue, state, None),
                result(LoopOutputKind::Concatenate, next, Some(trips)),
            ],
        });
        b.mark_output(ys[0], "last");
        b.mark_output(ys[1], "all");
    })
}

/// No layer in the body: a state that never changes, one that takes an iterator's slice, one from outside.
fn repeat_without_body() -> Lowered {
    network("loop without a body", |b| {
        let x = b.add_input("x", DType::F32, vec![3, 4]);
        let (initial, outer) = (floats(b, &[4]), floats(b, &[4]));
        let trips = b.scalar(DType::I64, 0, 3.0);
        let [same, slice, fixed, row] = [(); 4].map(|()| b.tensor(DType::F32, vec![4]));
        let ys = b.layer(Layer::Loop {
            limits: vec![(TripLimit::Count, trips)],
            recurrences: vec![
                Recurrence { initial, current: same, next: same },
                Recurrence { initial, current: slice, next: row },
                Recurrence { initial, current: fixed, next: outer },
            ],
            iterators: vec![LoopIterator { x, current: row, axis: 0, reverse: true }],
            body: vec![],
            results: vec![
                result(LoopOutputKind::LastValue, same, None),
                result(LoopOutputKind::LastValue, slice, None),
                result(LoopOutputKind::LastValue, fixed, None),
                result(LoopOutputKind::Concatenate, row, Some(trips)),
            ],
        });
        for (k, y) in ys.into_iter().enumerate() {
            b.mark_output(y, &format!("y{k}"));
        }
    })
}

/// Negates three times.
fn three_negations(b: &mut NetworkBuilder, initial: TensorId) -> TensorId {
    let trips = b.scalar(DType::I64, 0, 3.0);
    let state = b.tensor(DType::F32, vec![4]);
    b.open_region();
    let next = b.unary(state, UnaryOp::Neg);
    let body = b.close_region(vec![]).layers;
    b.one(Layer::Loop {
        limits: vec![(TripLimit::Count, trips)],
        recurrences: vec![Recurrence { initial, current: state, next }],
        iterators: vec![],
        body,
        results: vec![result(LoopOutputKind::LastValue, state, None)],
    })
}

fn nested() -> Vec<Lowered> {
    vec![
        network("loop in if", |b| {
            let x = b.add_input("x", DType::F32, vec![4]);
            let condition = b.add_input("c", DType::Bool, vec![]);
            let then_branch = region(b, |b| b.unary(x, UnaryOp::Abs));
            let else_branch = region(b, |b| three_negations(b, x));
            let y = b.one(Layer::If { condition, captures: vec![], then_branch, else_branch });
            output(b, y);
        }),
        network("if in loop", |b| {
            let initial = b.add_input("x", DType::F32, vec![4]);
            let condition = b.add_input("c", DType::Bool, vec![]);
            let trips = b.scalar(DType::I64, 0, 3.0);
            let state = b.tensor(DType::F32, vec![4]);
            b.open_region();
            let then_branch = region(b, |b| b.unary(state, UnaryOp::Abs));
            let else_branch = region(b, |b| b.unary(state, UnaryOp::Neg));
            let next = b.one(Layer::If { condition, captures: vec![], then_branch, else_branch });
            let body = b.close_region(vec![]).layers;
            let y = b.one(Layer::Loop {
                limits: vec![(TripLimit::Count, trips)],
                recurrences: vec![Recurrence { initial, current: state, next }],
                iterators: vec![],
                body,
                results: vec![result(LoopOutputKind::LastValue, state, None)],
            });
            output(b, y);
        }),
    ]
}

#[test]
fn control_flow_builds() {
    let Some(library) = common::rtx() else { return };
    let mut cases = vec![
        conditional(),
        repeat_by_count(),
        repeat_while(),
        repeat_by_count_and_while(),
        repeat_without_body(),
    ];
    cases.extend(conditional_without_layers());
    cases.extend(nested());
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|lowered| {
            build(&library, lowered).err().map(|e| format!("{}: {e}", lowered.network.name))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! Activation, Unary, ElementWise, Cast, Select, ParametricReLU, Identity.

use crate::harness::*;
use trtc_bundle::DType;
use trtc_network::layer::{ActivationKind, ElementWiseOp, UnaryOp};
use trtc_network::{Layer, TensorId};

/// Abramowitz and Stegun's series for erf, good to 1e-12 in the range of the tests.
fn erf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn activations() {
    let x = Tensor::noise(&[3, 17], 1).map(|v| v * 1.5);
    let (alpha, beta) = (0.3f32, 0.7f32);
    let (a, b) = (f64::from(alpha), f64::from(beta));
    type Formula = Box<dyn Fn(f64) -> f64>;
    let cases: Vec<(ActivationKind, Formula)> = vec![
        (ActivationKind::Relu, Box::new(|x| x.max(0.0))),
        (ActivationKind::Sigmoid, Box::new(|x| 1.0 / (1.0 + (-x).exp()))),
        (ActivationKind::Tanh, Box::new(f64::tanh)),
        (ActivationKind::LeakyRelu, Box::new(move |x| if x >= 0.0 { x } else { a * x })),
        (ActivationKind::Elu, Box::new(move |x| if x >= 0.0 { x } else { a * (x.exp() - 1.0) })),
        (ActivationKind::Selu, Box::new(move |x| if x > 0.0 { b * x } else { b * (a * x.exp() - a) })),
        (ActivationKind::Softsign, Box::new(|x| x / (1.0 + x.abs()))),
        (ActivationKind::Softplus, Box::new(move |x| a * ((b * x).exp() + 1.0).ln())),
        (ActivationKind::Clip, Box::new(move |x| a.max(b.min(x)))),
        (ActivationKind::HardSigmoid, Box::new(move |x| (a * x + b).clamp(0.0, 1.0))),
        (ActivationKind::ScaledTanh, Box::new(move |x| a * (b * x).tanh())),
        (ActivationKind::ThresholdedRelu, Box::new(move |x| if x > a { x } else { 0.0 })),
        (ActivationKind::GeluErf, Box::new(|x| 0.5 * x * (1.0 + erf(0.5f64.sqrt() * x)))),
        (
            ActivationKind::GeluTanh,
            Box::new(|x| {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (0.044715 * x.powi(3) + x);
                0.5 * x * (1.0 + inner.tanh())
            }),
        ),
    ];
    for (kind, formula) in cases {
        let expected = x.map(&formula);
        let y = run_one(&[x.clone()], |b, ids| b.activation(ids[0], kind, alpha, beta));
        assert_close(&y, &expected, 1e-5);
        // f16 and bf16 have 11 and 8 bits: half a unit of the input and half of the result.
        for (dtype, tolerance) in [(DType::F16, 2e-3), (DType::Bf16, 2e-2)] {
            let y = run_one(&[x.clone()], |b, ids| {
                let x = b.cast(ids[0], dtype);
                let y = b.activation(x, kind, alpha, beta);
                b.cast(y, DType::F32)
            });
            assert_close(&y, &expected, tolerance);
        }
    }
}

#[test]
fn a_clip_with_bounds_crossed_gives_the_lower_one() {
    let x = Tensor::f32(&[3], &[-5.0, 0.5, 5.0]);
    let y = run_one(&[x], |b, ids| b.activation(ids[0], ActivationKind::Clip, 2.0, 1.0));
    assert_close(&y, &Tensor::f32(&[3], &[2.0, 2.0, 2.0]), 0.0);
}

#[test]
fn integer_relu_and_clip() {
    for dtype in [DType::I32, DType::I64] {
        let x = Tensor::new(dtype, &[4], &[-7.0, -1.0, 0.0, 9.0]);
        let y = run_one(&[x.clone()], |b, ids| b.activation(ids[0], ActivationKind::Relu, 0.0, 0.0));
        assert_close(&y, &x.map(|v| v.max(0.0)), 0.0);
        let y = run_one(&[x.clone()], |b, ids| b.activation(ids[0], ActivationKind::Clip, -2.0, 3.0));
        assert_close(&y, &x.map(|v| v.clamp(-2.0, 3.0)), 0.0);
    }
}

#[test]
fn unaries() {
    let any = Tensor::noise(&[2, 3, 7], 2);
    let positive = any.map(|v| v.abs() + 0.125);
    let unit = any.map(|v| v * 0.49);
    let above_one = any.map(|v| v.abs() + 1.0);
    let halves = Tensor::f32(&[8], &[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49, -3.7]);
    let even = |v: f64| {
        let r = v.round();
        if (v - v.trunc()).abs() == 0.5 { 2.0 * (v / 2.0).round() } else { r }
    };
    type Case<'a> = (UnaryOp, &'a Tensor, Box<dyn Fn(f64) -> f64>);
    let cases: Vec<Case<'_>> = vec![
        (UnaryOp::Exp, &any, Box::new(f64::exp)),
        (UnaryOp::Log, &positive, Box::new(f64::ln)),
        (UnaryOp::Sqrt, &positive, Box::new(f64::sqrt)),
        (UnaryOp::Recip, &positive, Box::new(|v| 1.0 / v)),
        (UnaryOp::Abs, &any, Box::new(f64::abs)),
        (UnaryOp::Neg, &any, Box::new(|v| -v)),
        (UnaryOp::Sin, &any, Box::new(f64::sin)),
        (UnaryOp::Cos, &any, Box::new(f64::cos)),
        (UnaryOp::Tan, &unit, Box::new(f64::tan)),
        (UnaryOp::Sinh, &any, Box::new(f64::sinh)),
        (UnaryOp::Cosh, &any, Box::new(f64::cosh)),
        (UnaryOp::Asin, &unit, Box::new(f64::asin)),
        (UnaryOp::Acos, &unit, Box::new(f64::acos)),
        (UnaryOp::Atan, &any, Box::new(f64::atan)),
        (UnaryOp::Asinh, &any, Box::new(f64::asinh)),
        (UnaryOp::Acosh, &above_one, Box::new(f64::acosh)),
        (UnaryOp::Atanh, &unit, Box::new(f64::atanh)),
        (UnaryOp::Ceil, &any, Box::new(f64::ceil)),
        (UnaryOp::Floor, &any, Box::new(f64::floor)),
        (UnaryOp::Erf, &any, Box::new(erf)),
        (UnaryOp::Sign, &any, Box::new(|v| if v == 0.0 { 0.0 } else { v.signum() })),
        (UnaryOp::Round, &halves, Box::new(even)),
    ];
    for (op, x, formula) in cases {
        let y = run_one(&[x.clone()], |b, ids| b.unary(ids[0], op));
        assert_close(&y, &x.map(&formula), 1e-5);
        let half = run_one(&[x.clone()], |b, ids| {
            let x = b.cast(ids[0], DType::F16);
            let y = b.unary(x, op);
            b.cast(y, DType::F32)
        });
        // Results near 1 of a steep function: one unit of f16 in the input.
        assert_close(&half, &x.map(&formula), 4e-3);
    }
}

#[test]
fn unaries_of_other_types() {
    let odd = Tensor::f32(&[5], &[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, 1.0]);
    let y = run(&[odd], |b, ids| vec![b.unary(ids[0], UnaryOp::IsInf), b.unary(ids[0], UnaryOp::IsNan)]);
    assert_close(&y[0], &Tensor::bool(&[5], &[1.0, 1.0, 0.0, 0.0, 0.0]), 0.0);
    assert_close(&y[1], &Tensor::bool(&[5], &[0.0, 0.0, 1.0, 0.0, 0.0]), 0.0);

    let truth = Tensor::bool(&[2], &[1.0, 0.0]);
    let y = run_one(&[truth], |b, ids| b.unary(ids[0], UnaryOp::Not));
    assert_close(&y, &Tensor::bool(&[2], &[0.0, 1.0]), 0.0);

    for dtype in [DType::I32, DType::I64] {
        let x = Tensor::new(dtype, &[3], &[-4.0, 0.0, 6.0]);
        for (op, expected) in [
            (UnaryOp::Abs, [4.0, 0.0, 6.0]),
            (UnaryOp::Neg, [4.0, 0.0, -6.0]),
            (UnaryOp::Sign, [-1.0, 0.0, 1.0]),
        ] {
            let y = run_one(&[x.clone()], |b, ids| b.unary(ids[0], op));
            assert_close(&y, &Tensor::new(dtype, &[3], &expected), 0.0);
        }
    }
}

#[test]
fn binaries_broadcast() {
    let a = Tensor::noise(&[2, 3, 1], 3).map(|v| v + 0.03125);
    let c = Tensor::noise(&[1, 3, 4], 4).map(|v| if v == 0.0 { 0.5 } else { v });
    type Formula = Box<dyn Fn(f64, f64) -> f64>;
    let cases: Vec<(ElementWiseOp, Formula)> = vec![
        (ElementWiseOp::Sum, Box::new(|a, b| a + b)),
        (ElementWiseOp::Prod, Box::new(|a, b| a * b)),
        (ElementWiseOp::Max, Box::new(f64::max)),
        (ElementWiseOp::Min, Box::new(f64::min)),
        (ElementWiseOp::Sub, Box::new(|a, b| a - b)),
        (ElementWiseOp::Div, Box::new(|a, b| a / b)),
        (ElementWiseOp::FloorDiv, Box::new(|a, b| (a / b).floor())),
        (ElementWiseOp::Pow, Box::new(|a, b| a.abs().powf(b))),
        (ElementWiseOp::Equal, Box::new(|a, b| f64::from(a == b))),
        (ElementWiseOp::Greater, Box::new(|a, b| f64::from(a > b))),
        (ElementWiseOp::Less, Box::new(|a, b| f64::from(a < b))),
    ];
    for (op, formula) in cases {
        let left = if op == ElementWiseOp::Pow { a.map(f64::abs) } else { a.clone() };
        let logical = matches!(op, ElementWiseOp::Equal | ElementWiseOp::Greater | ElementWiseOp::Less);
        let dtype = if logical { DType::Bool } else { DType::F32 };
        let expected =
            Tensor::from_fn(dtype, &[2, 3, 4], |at| formula(left.broadcast_at(at), c.broadcast_at(at)));
        let y = run_one(&[left, c.clone()], |b, ids| b.elementwise(ids[0], ids[1], op));
        assert_close(&y, &expected, 1e-5);
    }
}

#[test]
fn integer_binaries() {
    let left = [7.0, -7.0, 7.0, -7.0, 6.0, -6.0];
    let right = [2.0, 2.0, -2.0, -2.0, 3.0, 3.0];
    for dtype in [DType::I32, DType::I64] {
        let (a, c) = (Tensor::new(dtype, &[6], &left), Tensor::new(dtype, &[6], &right));
        for (op, expected) in [
            (ElementWiseOp::Sum, [9.0, -5.0, 5.0, -9.0, 9.0, -3.0]),
            (ElementWiseOp::Sub, [5.0, -9.0, 9.0, -5.0, 3.0, -9.0]),
            (ElementWiseOp::Prod, [14.0, -14.0, -14.0, 14.0, 18.0, -18.0]),
            // Towards zero, and down: what TensorRT's own evaluator of constants gives.
            (ElementWiseOp::Div, [3.0, -3.0, -3.0, 3.0, 2.0, -2.0]),
            (ElementWiseOp::FloorDiv, [3.0, -4.0, -4.0, 3.0, 2.0, -2.0]),
            (ElementWiseOp::Max, [7.0, 2.0, 7.0, -2.0, 6.0, 3.0]),
            (ElementWiseOp::Min, [2.0, -7.0, -2.0, -7.0, 3.0, -6.0]),
        ] {
            let y = run_one(&[a.clone(), c.clone()], |b, ids| b.elementwise(ids[0], ids[1], op));
            assert_close(&y, &Tensor::new(dtype, &[6], &expected), 0.0);
        }
        // A quotient by 0 may be anything; the others stand beside it.
        let holes = Tensor::new(dtype, &[6], &[2.0, 0.0, -2.0, 0.0, 3.0, 3.0]);
        for (op, third) in [(ElementWiseOp::Div, -3.0), (ElementWiseOp::FloorDiv, -4.0)] {
            let y = run_one(&[a.clone(), holes.clone()], |b, ids| b.elementwise(ids[0], ids[1], op));
            assert_eq!([y.values[0], y.values[2], y.values[4], y.values[5]], [3.0, third, 2.0, -2.0]);
        }
        let powers = Tensor::new(dtype, &[6], &[2.0, 3.0, 0.0, 1.0, 2.0, 2.0]);
        let y = run_one(&[c.clone(), powers], |b, ids| b.elementwise(ids[0], ids[1], ElementWiseOp::Pow));
        assert_close(&y, &Tensor::new(dtype, &[6], &[4.0, 8.0, 1.0, -2.0, 9.0, 9.0]), 0.0);
    }
}

#[test]
fn logic() {
    let a = Tensor::bool(&[4], &[0.0, 0.0, 1.0, 1.0]);
    let c = Tensor::bool(&[4], &[0.0, 1.0, 0.0, 1.0]);
    for (op, expected) in [
        (ElementWiseOp::And, [0.0, 0.0, 0.0, 1.0]),
        (ElementWiseOp::Or, [0.0, 1.0, 1.0, 1.0]),
        (ElementWiseOp::Xor, [0.0, 1.0, 1.0, 0.0]),
        (ElementWiseOp::Equal, [1.0, 0.0, 0.0, 1.0]),
    ] {
        let y = run_one(&[a.clone(), c.clone()], |b, ids| b.elementwise(ids[0], ids[1], op));
        assert_close(&y, &Tensor::bool(&[4], &expected), 0.0);
    }
}

#[test]
fn each_layer_rounds_to_its_dtype() {
    // In f16 1024 + 0.25 is 1024 again, so that the difference is 0; computed in f32 throughout it would be 0.25.
    let (x, c) = (Tensor::f32(&[1], &[1024.0]), Tensor::f32(&[1], &[0.25]));
    for dtype in [DType::F16, DType::Bf16] {
        let y = run_one(&[x.clone(), c.clone()], |b, ids| {
            let (x, c) = (b.cast(ids[0], dtype), b.cast(ids[1], dtype));
            let sum = b.elementwise(x, c, ElementWiseOp::Sum);
            let rest = b.elementwise(sum, x, ElementWiseOp::Sub);
            b.cast(rest, DType::F32)
        });
        assert_close(&y, &Tensor::f32(&[1], &[0.0]), 0.0);
    }
}

#[test]
fn casts() {
    let x = Tensor::f32(&[6], &[-2.7, -0.5, 0.0, 0.5, 2.7, 100.9]);
    let truncated = [-2.0, 0.0, 0.0, 0.0, 2.0, 100.0];
    for dtype in [DType::I32, DType::I64, DType::I8] {
        let y = run_one(&[x.clone()], |b, ids| b.cast(ids[0], dtype));
        assert_close(&y, &Tensor::new(dtype, &[6], &truncated), 0.0);
    }
    let y = run_one(&[x.clone()], |b, ids| b.cast(ids[0], DType::Bool));
    assert_close(&y, &Tensor::bool(&[6], &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0]), 0.0);
    for dtype in [DType::F32, DType::I32, DType::I64] {
        let y = run_one(&[Tensor::bool(&[2], &[1.0, 0.0])], |b, ids| b.cast(ids[0], dtype));
        assert_close(&y, &Tensor::new(dtype, &[2], &[1.0, 0.0]), 0.0);
    }
    let y = run_one(&[x.clone()], |b, ids| {
        let narrow = b.cast(ids[0], DType::Bf16);
        b.cast(narrow, DType::F32)
    });
    let nearest = x.map(|v| f64::from(half::bf16::from_f64(v)));
    assert_close(&y, &nearest, 0.0);
    let y = run_one(&[Tensor::new(DType::U8, &[2], &[255.0, 3.0])], |b, ids| b.cast(ids[0], DType::F32));
    assert_close(&y, &Tensor::f32(&[2], &[255.0, 3.0]), 0.0);
}

#[test]
fn selects() {
    let condition = Tensor::bool(&[2, 1], &[1.0, 0.0]);
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I64, DType::I32, DType::Bool, DType::I8] {
        let a = Tensor::f32(&[1, 3], &[1.0, 0.0, 5.0]);
        let c = Tensor::f32(&[2, 3], &[0.0, 1.0, 0.0, 4.0, 0.0, 6.0]);
        let expected = [1.0, 0.0, 5.0, 4.0, 0.0, 6.0]
            .map(|v| if dtype == DType::Bool { f64::from(v != 0.0) } else { v });
        let y = run_one(&[condition.clone(), a, c], |b, ids| {
            let (a, c) = (b.cast(ids[1], dtype), b.cast(ids[2], dtype));
            let y = b.one(Layer::Select { condition: ids[0], then_input: a, else_input: c });
            b.cast(y, DType::F32)
        });
        assert_close(&y, &Tensor::f32(&[2, 3], &expected), 0.0);
    }
}

#[test]
fn parametric_relu() {
    let x = Tensor::noise(&[2, 3, 4], 5);
    let slopes = Tensor::noise(&[1, 3, 1], 6);
    let expected = Tensor::from_fn(DType::F32, &[2, 3, 4], |at| {
        let v = x.at(at);
        if v >= 0.0 { v } else { v * slopes.broadcast_at(at) }
    });
    let build = |b: &mut trtc_network::NetworkBuilder, ids: &[TensorId]| {
        b.one(Layer::ParametricRelu { x: ids[0], slopes: ids[1] })
    };
    assert_close(&run_one(&[x.clone(), slopes.clone()], build), &expected, 1e-6);
    let y = run_one(&[x, slopes], |b, ids| {
        let ids = [b.cast(ids[0], DType::F16), b.cast(ids[1], DType::F16)];
        let y = build(b, &ids);
        b.cast(y, DType::F32)
    });
    assert_close(&y, &expected, 1e-3);
}

#[test]
fn identity_of_an_input_that_is_an_output_too() {
    let x = Tensor::noise(&[2], 7);
    let y = run(&[x.clone()], |b, ids| {
        let same = b.one(Layer::Identity { x: ids[0] });
        vec![same, ids[0], same]
    });
    y.iter().for_each(|y| assert_close(y, &x, 0.0));
}

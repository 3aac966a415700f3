//! Quantize and Dequantize.

use crate::harness::*;
use trtc_bundle::DType;
use trtc_network::Layer;

/// To nearest even.
fn round_even(v: f64) -> f64 {
    if (v - v.trunc()).abs() == 0.5 { 2.0 * (v / 2.0).round() } else { v.round() }
}

/// The nearest e4m3 value: 3 bits after the leading one, exponents from −6 (subnormal below), 448 at most.
fn e4m3(v: f64) -> f64 {
    if v == 0.0 {
        return 0.0;
    }
    let exponent = v.abs().log2().floor().max(-6.0);
    let unit = (exponent - 3.0).exp2();
    (round_even(v / unit) * unit).clamp(-448.0, 448.0)
}

#[test]
fn int8_per_tensor() {
    // Halves fall between two integers; the ends are clamped.
    let x = Tensor::f32(&[2, 4], &[0.25, -0.25, 0.75, 1.25, 100.0, -100.0, 0.3, 0.0]);
    let expected = x.map(|v| round_even(v / 0.5).clamp(-128.0, 127.0) * 0.5);
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for rank in [0, 1] {
            let y = run(&[x.clone()], |b, ids| {
                let x = b.cast(ids[0], dtype);
                let scale = b.scalar(dtype, rank, 0.5);
                let q = b.one(Layer::Quantize { x, scale, axis: None, to: DType::I8 });
                let y = b.one(Layer::Dequantize { x: q, scale, axis: None, to: dtype });
                vec![b.cast(y, DType::F32), q]
            });
            assert_close(&y[0], &expected, 0.0);
            assert_close(&y[1].map(|v| v * 0.5), &Tensor { dtype: DType::I8, ..expected.clone() }, 0.0);
        }
    }
}

#[test]
fn int8_per_channel() {
    let x = Tensor::noise(&[2, 3, 2], 1).map(|v| v * 10.0);
    let scales = [0.5, 0.125, 2.0];
    let expected = Tensor::from_fn(DType::F32, &[2, 3, 2], |p| {
        let scale = scales[p[1]];
        round_even(x.at(p) / scale).clamp(-128.0, 127.0) * scale
    });
    let y = run_static(&[x, Tensor::f32(&[3], &scales)], |b, ids| {
        let q = b.one(Layer::Quantize { x: ids[0], scale: ids[1], axis: Some(1), to: DType::I8 });
        vec![b.one(Layer::Dequantize { x: q, scale: ids[1], axis: Some(1), to: DType::F32 })]
    });
    assert_close(&y[0], &expected, 0.0);
}

#[test]
fn int8_weights_are_dequantized() {
    let values: Vec<u8> = [-128i8, 127, 3, -5, 0, 9].iter().map(|v| v.to_le_bytes()[0]).collect();
    let y = run_static(&[Tensor::f32(&[2], &[0.5, 0.25])], |b, ids| {
        let weights = b.constant(DType::I8, vec![2, 3], values.clone().into());
        vec![b.one(Layer::Dequantize { x: weights, scale: ids[0], axis: Some(0), to: DType::F32 })]
    });
    assert_close(&y[0], &Tensor::f32(&[2, 3], &[-64.0, 63.5, 1.5, -1.25, 0.0, 2.25]), 0.0);
}

#[test]
fn fp8() {
    let x = Tensor::noise(&[4, 33], 2).map(|v| v * v * v * 80.0);
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let y = run_one(&[x.clone()], |b, ids| {
            let x = b.cast(ids[0], dtype);
            let scale = b.scalar(dtype, 0, 0.5);
            let q = b.one(Layer::Quantize { x, scale, axis: None, to: DType::F8E4M3 });
            let moved = b.transpose(q, vec![1, 0]);
            let picked = b.one(Layer::Concatenation { xs: vec![moved], axis: 0 });
            let back = b.transpose(picked, vec![1, 0]);
            let y = b.one(Layer::Dequantize { x: back, scale, axis: None, to: DType::F32 });
            b.cast(y, DType::F32)
        });
        let rounded = |v: f64| match dtype {
            DType::F16 => f64::from(half::f16::from_f64(v)),
            DType::Bf16 => f64::from(half::bf16::from_f64(v)),
            _ => v,
        };
        assert_close(&y, &x.map(|v| e4m3(rounded(v) / 0.5) * 0.5), 0.0);
    }
}

#[test]
fn int4_blocks() {
    // Rows of four, blocks of two rows; two elements a byte, the lower nibble first.
    let values: Vec<i8> = (0..16).map(|k| (k * 5 % 16) as i8 - 8).collect();
    let packed: Vec<u8> =
        values.chunks(2).map(|pair| (pair[0] as u8 & 15) | ((pair[1] as u8 & 15) << 4)).collect();
    let scales = Tensor::noise(&[2, 4], 3).map(|v| v.abs() + 0.25);
    let expected = Tensor::from_fn(DType::F32, &[4, 4], |p| {
        f64::from(values[p[0] * 4 + p[1]]) * scales.at(&[p[0] / 2, p[1]])
    });
    let y = run_static(&[scales], |b, ids| {
        let weights = b.constant(DType::I4, vec![4, 4], packed.clone().into());
        vec![b.one(Layer::Dequantize { x: weights, scale: ids[0], axis: None, to: DType::F32 })]
    });
    assert_close(&y[0], &expected, 1e-6);
}

//! Convolution, Deconvolution, Pooling, LRN, Resize, GridSample.

use crate::harness::*;
use trtc_bundle::DType;
use trtc_network::layer::*;
use trtc_network::{Layer, NetworkBuilder, TensorId};

struct Case {
    x: &'static [usize],
    kernel: &'static [usize],
    window: Window,
    groups: usize,
}

fn window(kernel: &[i64], stride: &[i64], pre: &[i64], post: &[i64], dilation: &[i64]) -> Window {
    Window {
        kernel: kernel.to_vec(),
        stride: stride.to_vec(),
        pre_padding: pre.to_vec(),
        post_padding: post.to_vec(),
        dilation: dilation.to_vec(),
    }
}

fn convolution_cases() -> Vec<Case> {
    vec![
        Case {
            x: &[2, 4, 6, 5],
            kernel: &[6, 2, 3, 2],
            window: window(&[3, 2], &[2, 1], &[1, 0], &[2, 1], &[1, 2]),
            groups: 2,
        },
        Case {
            x: &[1, 3, 4, 4],
            kernel: &[3, 1, 1, 1],
            window: window(&[1, 1], &[1, 1], &[0, 0], &[0, 0], &[1, 1]),
            groups: 3,
        },
        Case {
            x: &[1, 2, 3, 4, 3],
            kernel: &[2, 2, 2, 3, 2],
            window: window(&[2, 3, 2], &[1, 2, 1], &[0, 1, 1], &[1, 1, 0], &[1, 1, 1]),
            groups: 1,
        },
    ]
}

/// Position in the unpadded input of tap `tap` of window `out`; `None` in the padding.
fn tap(window: &Window, out: &[usize], tap: &[usize], dims: &[usize]) -> Option<Vec<usize>> {
    (0..out.len())
        .map(|k| {
            let at =
                out[k] as i64 * window.stride[k] - window.pre_padding[k] + tap[k] as i64 * window.dilation[k];
            usize::try_from(at).ok().filter(|&at| at < dims[k])
        })
        .collect()
}

fn out_dims(window: &Window, dims: &[usize]) -> Vec<usize> {
    (0..dims.len())
        .map(|k| {
            let padded = dims[k] as i64 + window.pre_padding[k] + window.post_padding[k];
            ((padded - (window.kernel[k] - 1) * window.dilation[k] - 1) / window.stride[k] + 1) as usize
        })
        .collect()
}

#[test]
fn convolutions() {
    for case in convolution_cases() {
        let Case { x, kernel, window, groups } = case;
        let (input, weights) = (Tensor::noise(x, 1), Tensor::noise(kernel, 2));
        let bias = Tensor::noise(&[kernel[0]], 3);
        let dims = [&[x[0], kernel[0]], out_dims(&window, &x[2..]).as_slice()].concat();
        let expected = Tensor::from_fn(DType::F32, &dims, |p| {
            let group = p[1] / (kernel[0] / groups);
            let mut sum = bias.at(&[p[1]]);
            for t in positions(&kernel[2..]) {
                let Some(from) = tap(&window, &p[2..], &t, &x[2..]) else { continue };
                for c in 0..kernel[1] {
                    sum += input.at(&[&[p[0], group * kernel[1] + c], from.as_slice()].concat())
                        * weights.at(&[&[p[1], c], t.as_slice()].concat());
                }
            }
            sum
        });
        for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::Bf16, 2e-2)] {
            let y = run_static(&[input.clone(), weights.clone(), bias.clone()], |b, ids| {
                let (x, kernel, bias) = (b.cast(ids[0], dtype), b.cast(ids[1], dtype), b.cast(ids[2], dtype));
                let wide = b.one(Layer::Unsqueeze { x: bias, axes: vec![0] });
                let layer = |bias| Layer::Convolution {
                    x,
                    kernel,
                    bias,
                    window: window.clone(),
                    groups: groups as i64,
                };
                let with = b.one(layer(Some(bias)));
                let without = b.one(layer(None));
                let with_wide = b.one(layer(Some(wide)));
                vec![b.cast(with, DType::F32), b.cast(without, DType::F32), b.cast(with_wide, DType::F32)]
            });
            assert_close(&y[0], &expected, tolerance);
            assert_close(&y[2], &expected, tolerance);
            let bare = Tensor::from_fn(DType::F32, &dims, |p| expected.at(p) - bias.at(&[p[1]]));
            assert_close(&y[1], &bare, tolerance);
        }
    }
}

#[test]
fn deconvolutions() {
    let cases = [
        (&[2, 4, 3, 3][..], &[4, 3, 3, 2][..], window(&[3, 2], &[2, 3], &[1, 0], &[0, 1], &[1, 2]), 2),
        (&[1, 2, 4, 3], &[2, 3, 2, 2], window(&[2, 2], &[1, 2], &[0, 0], &[0, 0], &[1, 1]), 1),
        (
            &[1, 2, 2, 3, 2],
            &[2, 1, 2, 2, 3],
            window(&[2, 2, 3], &[2, 1, 1], &[0, 1, 1], &[1, 0, 1], &[1; 3]),
            1,
        ),
    ];
    for (x, kernel, window, groups) in cases {
        let (input, weights) = (Tensor::noise(x, 4), Tensor::noise(kernel, 5));
        let maps = kernel[1] * groups;
        let bias = Tensor::noise(&[maps], 6);
        let spatial: Vec<usize> = (0..x.len() - 2)
            .map(|k| {
                let full = (x[2 + k] as i64 - 1) * window.stride[k]
                    + (window.kernel[k] - 1) * window.dilation[k]
                    + 1;
                (full - window.pre_padding[k] - window.post_padding[k]) as usize
            })
            .collect();
        let mut expected =
            Tensor::from_fn(DType::F32, &[&[x[0], maps], spatial.as_slice()].concat(), |p| bias.at(&[p[1]]));
        // Each input element spreads the kernel over the result, of which the padding is cut off.
        for p in positions(x) {
            let group = p[1] / (x[1] / groups);
            for t in positions(&kernel[2..]) {
                let to: Option<Vec<usize>> = (0..spatial.len())
                    .map(|k| {
                        let at = p[2 + k] as i64 * window.stride[k] + t[k] as i64 * window.dilation[k]
                            - window.pre_padding[k];
                        usize::try_from(at).ok().filter(|&at| at < spatial[k])
                    })
                    .collect();
                let Some(to) = to else { continue };
                for m in 0..kernel[1] {
                    let out = [&[p[0], group * kernel[1] + m], to.as_slice()].concat();
                    let flat = out.iter().zip(&expected.dims).fold(0, |flat, (&o, &d)| flat * d + o);
                    expected.values[flat] += input.at(&p) * weights.at(&[&[p[1], m], t.as_slice()].concat());
                }
            }
        }
        let y = run_static(&[input, weights, bias], |b, ids| {
            let (x, kernel, bias) = (ids[0], ids[1], Some(ids[2]));
            vec![b.one(Layer::Deconvolution {
                x,
                kernel,
                bias,
                window: window.clone(),
                groups: groups as i64,
            })]
        });
        assert_close(&y[0], &expected, 1e-5);
    }
}

#[test]
fn poolings() {
    let windows = [
        (&[2, 3, 7, 6][..], window(&[3, 2], &[2, 2], &[1, 0], &[2, 1], &[1, 1])),
        (&[1, 2, 4, 5, 3], window(&[2, 3, 2], &[1, 2, 3], &[0, 1, 1], &[0, 0, 1], &[1, 1, 1])),
    ];
    for (dims, window) in windows {
        let x = Tensor::noise(dims, 7);
        let out = [&dims[..2], out_dims(&window, &dims[2..]).as_slice()].concat();
        let taps: Vec<usize> = window.kernel.iter().map(|&k| k as usize).collect();
        for exclude_padding in [false, true] {
            for kind in [PoolKind::Max, PoolKind::Average, PoolKind::MaxAverageBlend] {
                let expected = Tensor::from_fn(DType::F32, &out, |p| {
                    let values: Vec<f64> = positions(&taps)
                        .filter_map(|t| tap(&window, &p[2..], &t, &dims[2..]))
                        .map(|from| x.at(&[&p[..2], from.as_slice()].concat()))
                        .collect();
                    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let count = if exclude_padding { values.len() } else { taps.iter().product() };
                    let average = values.iter().sum::<f64>() / count as f64;
                    match kind {
                        PoolKind::Max => max,
                        PoolKind::Average => average,
                        PoolKind::MaxAverageBlend => 0.75 * max + 0.25 * average,
                    }
                });
                for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F16, 1e-3)] {
                    let y = run_one(&[x.clone()], |b, ids| {
                        let x = b.cast(ids[0], dtype);
                        let window = window.clone();
                        let y = b.one(Layer::Pooling { x, kind, window, exclude_padding, blend: 0.25 });
                        b.cast(y, DType::F32)
                    });
                    assert_close(&y, &expected, tolerance);
                }
            }
        }
    }
}

#[test]
fn lrn() {
    for dims in [&[2, 5, 3, 2][..], &[2, 5, 3], &[1, 4, 2, 2, 2]] {
        let x = Tensor::noise(dims, 8);
        let (size, alpha, beta, k) = (3usize, 0.5, 0.75, 1.25);
        let expected = Tensor::from_fn(DType::F32, dims, |p| {
            let (from, to) = (p[1].saturating_sub(size / 2), (p[1] + size / 2).min(dims[1] - 1));
            let sum: f64 = (from..=to)
                .map(|c| {
                    let mut q = p.to_vec();
                    q[1] = c;
                    x.at(&q).powi(2)
                })
                .sum();
            x.at(p) / (k + alpha / size as f64 * sum).powf(beta)
        });
        let y = run_one(&[x], |b, ids| {
            let (alpha, beta, k) = (alpha as f32, beta as f32, k as f32);
            b.one(Layer::Lrn { x: ids[0], window: size as i64, alpha, beta, k })
        });
        assert_close(&y, &expected, 1e-5);
    }
}

/// Resize of one axis: weights of the input positions for each output position.
fn resize_weights(from: usize, to: usize, scale: Option<f64>, layer: &Layer) -> Vec<Vec<(i64, f64)>> {
    let Layer::Resize { interpolation, coordinates, selector, round, cubic_coeff, exclude_outside, .. } =
        layer
    else {
        unreachable!()
    };
    (0..to)
        .map(|out| {
            // A scale that gives a length which is not whole stays what it is.
            let ratio = scale.map_or(from as f64 / to as f64, |scale| 1.0 / scale);
            let x = match coordinates {
                _ if to == 1 && *selector == ResizeSelector::Upper => 0.0,
                Coordinates::AlignCorners if to == 1 => 0.0,
                Coordinates::AlignCorners => out as f64 * (from as f64 - 1.0) / (to as f64 - 1.0),
                Coordinates::Asymmetric => out as f64 * ratio,
                Coordinates::HalfPixel => (out as f64 + 0.5) * ratio - 0.5,
            };
            match interpolation {
                Interpolation::Nearest => {
                    let at = match round {
                        ResizeRound::HalfUp => (x + 0.5).floor(),
                        ResizeRound::HalfDown => (x - 0.5).ceil(),
                        ResizeRound::Floor => x.floor(),
                        ResizeRound::Ceil => x.ceil(),
                    };
                    vec![(at as i64, 1.0)]
                }
                Interpolation::Linear => {
                    // Outside, the border repeats.
                    let x = x.clamp(0.0, from as f64 - 1.0);
                    vec![(x.floor() as i64, 1.0 - x.fract()), (x.floor() as i64 + 1, x.fract())]
                }
                Interpolation::Cubic => {
                    let a = f64::from(*cubic_coeff);
                    let weight = |d: f64| match d.abs() {
                        d if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
                        d if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
                        _ => 0.0,
                    };
                    let base = x.floor() as i64;
                    let mut taps: Vec<(i64, f64)> =
                        (base - 1..=base + 2).map(|k| (k, weight(x - k as f64))).collect();
                    if *exclude_outside {
                        taps.retain(|&(k, _)| (0..from as i64).contains(&k));
                        let sum: f64 = taps.iter().map(|tap| tap.1).sum();
                        taps.iter_mut().for_each(|tap| tap.1 /= sum);
                    }
                    taps
                }
            }
        })
        .collect()
}

fn resized(x: &Tensor, dims: &[usize], scales: Option<&[f32]>, layer: &Layer) -> Tensor {
    let weights: Vec<_> = (0..dims.len())
        .map(|k| match x.dims[k] == dims[k] {
            true => (0..dims[k]).map(|p| vec![(p as i64, 1.0)]).collect(),
            false => resize_weights(x.dims[k], dims[k], scales.map(|s| f64::from(s[k])), layer),
        })
        .collect();
    Tensor::from_fn(DType::F32, dims, |p| {
        let mut terms = vec![(Vec::new(), 1.0)];
        for (k, &at) in p.iter().enumerate() {
            let last = x.dims[k] as i64 - 1;
            terms = terms
                .iter()
                .flat_map(|(from, w)| {
                    weights[k][at].iter().map(move |&(tap, weight)| {
                        let mut from: Vec<usize> = from.clone();
                        from.push(tap.clamp(0, last) as usize);
                        (from, w * weight)
                    })
                })
                .collect();
        }
        terms.iter().map(|(from, weight)| x.at(from) * weight).sum()
    })
}

#[test]
fn resizes() {
    let resize = |x, to, interpolation, coordinates, selector, round, exclude_outside| Layer::Resize {
        x,
        to,
        interpolation,
        coordinates,
        selector,
        round,
        cubic_coeff: -0.75,
        exclude_outside,
    };
    let rounds = [ResizeRound::HalfUp, ResizeRound::HalfDown, ResizeRound::Floor, ResizeRound::Ceil];
    type Target<'a> = (&'a [usize], &'a [usize], Option<&'a [f32]>);
    let targets: [Target<'_>; 11] = [
        (&[1, 2, 4, 3], &[1, 2, 8, 5], None),
        (&[1, 2, 5, 6], &[1, 2, 3, 2], None),
        (&[1, 1, 4, 4], &[1, 1, 1, 6], None),
        (&[1, 2, 4, 4], &[1, 2, 8, 12], Some(&[1.0, 1.0, 2.0, 3.0])),
        (&[1, 2, 4, 4], &[1, 2, 2, 5], Some(&[1.0, 1.0, 0.55, 1.3])),
        (&[2, 2, 5], &[2, 2, 9], None),
        (&[5], &[9], None),
        (&[3, 5], &[6, 7], None),
        (&[1, 2, 3, 4, 3], &[1, 2, 5, 4, 6], None),
        (&[3, 2, 4], &[2, 3, 6], None),
        (&[1, 2, 3, 4], &[1, 3, 5, 6], None),
    ];
    for coordinates in [Coordinates::AlignCorners, Coordinates::Asymmetric, Coordinates::HalfPixel] {
        for selector in [ResizeSelector::Formula, ResizeSelector::Upper] {
            for interpolation in [Interpolation::Nearest, Interpolation::Linear, Interpolation::Cubic] {
                for (number, &round) in rounds.iter().enumerate() {
                    for &(from, to, scales) in &targets {
                        // Rounding is for nearest, exclusion for cubic.
                        let exclude_outside = match interpolation {
                            Interpolation::Nearest => false,
                            Interpolation::Cubic if number < 2 => number == 1,
                            _ if number == 0 => false,
                            _ => continue,
                        };
                        let x = Tensor::noise(from, 9);
                        let layer = |x, to| {
                            resize(x, to, interpolation, coordinates, selector, round, exclude_outside)
                        };
                        let probe = layer(TensorId(0), ResizeTo::Scales(vec![]));
                        let expected = resized(&x, to, scales, &probe);
                        let sizes = to.iter().map(|&d| d as i64).collect::<Vec<_>>();
                        let shape =
                            Tensor::i64(&[to.len()], &to.iter().map(|&d| d as f64).collect::<Vec<_>>());
                        let build = |b: &mut NetworkBuilder, ids: &[TensorId]| match scales {
                            Some(scales) => vec![b.one(layer(ids[0], ResizeTo::Scales(scales.to_vec())))],
                            None => {
                                let mut ends = vec![Extent::Static(sizes.clone())];
                                // The length of a shape tensor is known.
                                if b.dims(ids[1])[0] >= 0 {
                                    ends.push(Extent::Tensor(ids[1]));
                                }
                                ends.into_iter().map(|to| b.one(layer(ids[0], ResizeTo::Sizes(to)))).collect()
                            }
                        };
                        let inputs = [x, shape];
                        for dynamic in [false, true] {
                            for y in run_lowered(&network(&inputs, dynamic, build), &inputs) {
                                assert_close(&y, &expected, 1e-5);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn grid_samples() {
    let x = Tensor::noise(&[2, 2, 4, 5], 10);
    let grid = Tensor::noise(&[2, 3, 3, 2], 11).map(|v| v * 0.7 + 0.0123);
    let deep = Tensor::from_fn(DType::F32, &[2, 1, 3, 3, 3], |p| match p[4] {
        2 => 0.0,
        k => grid.at(&[p[0], p[2], p[3], k]),
    });
    for align_corners in [false, true] {
        for mode in [SampleMode::Fill, SampleMode::Clamp, SampleMode::Reflect] {
            for interpolation in [Interpolation::Nearest, Interpolation::Linear] {
                let expected = Tensor::from_fn(DType::F32, &[2, 2, 3, 3], |p| {
                    // The grid's last dim is (x, y), −1 and 1 the ends of the image.
                    let place = |k: usize, size: usize| {
                        let g = grid.at(&[p[0], p[2], p[3], k]);
                        let size = size as f64;
                        let at = if align_corners {
                            (g + 1.0) / 2.0 * (size - 1.0)
                        } else {
                            ((g + 1.0) * size - 1.0) / 2.0
                        };
                        match mode {
                            SampleMode::Clamp => at.clamp(0.0, size - 1.0),
                            SampleMode::Reflect => {
                                let (low, high) =
                                    if align_corners { (0.0, size - 1.0) } else { (-0.5, size - 0.5) };
                                let mut at = at;
                                while at < low || at > high {
                                    at = if at < low { 2.0 * low - at } else { 2.0 * high - at };
                                }
                                at.clamp(0.0, size - 1.0)
                            }
                            _ => at,
                        }
                    };
                    let (column, row) = (place(0, 5), place(1, 4));
                    let pixel = |r: f64, c: f64| match r >= 0.0 && c >= 0.0 && r < 4.0 && c < 5.0 {
                        true => x.at(&[p[0], p[1], r as usize, c as usize]),
                        false => 0.0,
                    };
                    if interpolation == Interpolation::Nearest {
                        return pixel(row.round(), column.round());
                    }
                    let (r, c) = (row.floor(), column.floor());
                    let (fr, fc) = (row - r, column - c);
                    pixel(r, c) * (1.0 - fr) * (1.0 - fc)
                        + pixel(r, c + 1.0) * (1.0 - fr) * fc
                        + pixel(r + 1.0, c) * fr * (1.0 - fc)
                        + pixel(r + 1.0, c + 1.0) * fr * fc
                });
                for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 1e-2)] {
                    if dtype == DType::F16 && interpolation == Interpolation::Nearest {
                        continue;
                    }
                    let y = run(&[x.clone(), grid.clone(), deep.clone()], |b, ids| {
                        let (x, grid) = (b.cast(ids[0], dtype), b.cast(ids[1], dtype));
                        let flat = b.one(Layer::GridSample { x, grid, interpolation, align_corners, mode });
                        // The same image as a volume of depth 1.
                        let x = b.one(Layer::Unsqueeze { x, axes: vec![2] });
                        let grid = b.cast(ids[2], dtype);
                        let y = b.one(Layer::GridSample { x, grid, interpolation, align_corners, mode });
                        let y = b.one(Layer::Squeeze { x: y, axes: vec![2] });
                        vec![b.cast(flat, DType::F32), b.cast(y, DType::F32)]
                    });
                    assert_close(&y[0], &expected, tolerance);
                    assert_close(&y[1], &expected, tolerance);
                }
            }
        }
    }
}

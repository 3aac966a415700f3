//! DFT: discrete Fourier transform along an axis.
//!
//! input [d0..dn, 1 or 2] T, dft_length [] i (optional), axis [] i64 (optional)  ->  output [d0..L or L/2+1..dn, 2] T
//! (onesided and inverse: [d0..L..dn, 1])
//! Opsets: 17 axis as attribute; 20 as input, inverse of half a spectrum.     TensorRT: IMatrixMultiplyLayer.
//! Limits: the axis's length known; axis constant, or one of several that the declared dims leave; f16, bf16 run in f32.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{axes, check, dims, floats, fourier::Transform, matrix, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, TensorId};

/// The converter.
#[derive(Debug)]
pub struct Dft;

/// Transforms that it may be; the run picks one when they are several.
#[derive(Debug)]
pub struct Plan(Vec<(usize, Transform)>);

/// Axes whose transforms are computed for the run to pick from.
const MOST_CHOICES: usize = 4;

fn flags(node: NodeView<'_>) -> (bool, bool) {
    (node.int("inverse", 0) != 0, node.int("onesided", 0) != 0)
}

/// The axis; `Ok(None)` when only the run knows it.
fn axis(node: NodeView<'_>, rank: usize) -> Result<Option<usize>, Diag> {
    let axis = match node.input(2) {
        None => -2,
        Some(view) => match view.const_i64s().as_deref() {
            Some([axis]) => *axis,
            Some(_) => return Err(Diag::invalid("one axis is needed").slot("axis")),
            None => return Ok(None),
        },
    };
    let at = shape::axis(axis, rank).map_err(|diag| diag.slot("axis"))?;
    if at + 1 == rank {
        return Err(Diag::invalid("the last axis holds the parts of the numbers").slot("axis"));
    }
    Ok(Some(at))
}

/// Length of the transform of an axis of `n` numbers.
fn length(node: NodeView<'_>, n: &Dim) -> Dim {
    match (node.input(1), flags(node)) {
        (Some(_), _) => dims::scalar(node, 1).cloned().unwrap_or(Dim::Unknown),
        (None, (true, true)) => n.sub(&Dim::Known(1)).mul(&Dim::Known(2)),
        (None, _) => n.clone(),
    }
}

/// Dims of the result of a transform along `axis`.
fn result(node: NodeView<'_>, x: &[Dim], axis: usize) -> Vec<Dim> {
    let length = length(node, &x[axis]);
    let (inverse, onesided) = flags(node);
    let mut to = x.to_vec();
    to[axis] = match onesided && !inverse {
        true => length.floor_div(&Dim::Known(2)).add(&Dim::Known(1)),
        false => length,
    };
    to[x.len() - 1] = Dim::Known(if inverse && onesided { 1 } else { 2 });
    to
}

/// The transform along `axis`.
fn transform(node: NodeView<'_>, x: &[Dim], axis: usize) -> Result<Transform, Refusal> {
    let known = |dim: &Dim, slot: &str| {
        dim.known().ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "the length of the transform is not known before the run")
                .slot(slot)
                .help("give the input's shape with --shape")
        })
    };
    let n = known(&x[axis], "input")?;
    let parts = known(&x[x.len() - 1], "input")?;
    if !(1..=2).contains(&parts) {
        return Err(Refusal::new(Code::INVALID, format!("numbers of {parts} parts")).slot("input"));
    }
    // A run-time length of a whole transform stands in the declared dims.
    let told = dims::declared(node, Dim::Unknown, 0, axis);
    let (inverse, onesided) = flags(node);
    let length = match length(node, &x[axis]) {
        Dim::Unknown if !onesided || inverse => known(&told, "dft_length")?,
        dim => known(&dim, "dft_length")?,
    };
    let halved = inverse && onesided;
    let used = if halved { length / 2 + 1 } else { length };
    let bins = if onesided && !inverse { length / 2 + 1 } else { length };
    let transform = Transform { read: n.min(used), parts, length, bins, inverse, halved };
    transform.check()?;
    Ok(transform)
}

impl Converter for Dft {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("DFT", 20)],
        dtypes: check::FLOATS,
        layers: "IMatrixMultiplyLayer",
        limits: "length known; axis constant, or one of 4 that the declared result leaves; not for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::NOT_CONSTANT,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        if x.len() < 2 {
            return Err(Diag::invalid(format!("rank {}; two dims are needed", x.len())).slot("input"));
        }
        let to = match axis(node, x.len())? {
            Some(axis) => {
                let to = result(node, x, axis);
                if to[axis].known().is_some_and(|n| n < 1) && x[axis] != Dim::Known(0) {
                    return Err(Diag::invalid("a transform of no numbers").slot("dft_length"));
                }
                to
            }
            None => vec![Dim::Unknown; x.len()],
        };
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::FLOATS, target)?;
        check::never_empty(&x, "input")?;
        if x.rank() < 2 {
            return Err(Refusal::new(Code::INVALID, "two dims are needed").slot("input"));
        }
        matrix::gemm_gate(DType::F32, target)?;
        let axes = match axis(node, x.rank()).map_err(crate::ctx::window::refused)? {
            Some(axis) => vec![axis],
            None => {
                let refused = || Refusal::new(Code::NOT_CONSTANT, "must be a constant").slot("axis");
                let to = dims::of_output(node, 0).ok_or_else(refused)?;
                let fits = |axis: &usize| {
                    let told = result(node, x.shape, *axis);
                    told.iter().zip(&to).all(|(a, b)| a.known().is_none_or(|a| a == *b))
                };
                let axes: Vec<usize> = (0..x.rank() - 1).filter(fits).collect();
                if !(1..=MOST_CHOICES).contains(&axes.len()) || x.shape.iter().any(|d| d.known().is_none()) {
                    return Err(refused());
                }
                check::operand(node, 2, "axis", &[DType::I32, DType::I64], target)?;
                axes
            }
        };
        let plans = axes.into_iter().map(|axis| Ok((axis, transform(node, x.shape, axis)?)));
        Ok(Plan(plans.collect::<Result<_, Refusal>>()?))
    }

    fn emit(&self, Plan(choices): Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let (dtype, rank) = (cx.dtype(x), cx.rank(x));
        let x = floats::widened(cx, x);
        let mut result: Option<TensorId> = None;
        for (axis, transform) in choices {
            let mut order: Vec<u32> = (0..rank as u32).filter(|&k| k as usize != axis).collect();
            order.insert(rank - 2, axis as u32);
            let line = cx.transpose(x, order.clone());
            let y = transform.emit(cx, line);
            let mut back = vec![0; rank];
            order.iter().zip(0..).for_each(|(&from, to)| back[from as usize] = to);
            let y = cx.transpose(y, back);
            result = Some(match result {
                None => y,
                Some(other) => {
                    let condition = axes::named(cx, 2, axis, rank);
                    let condition = cx.reshape(condition, vec![1; rank]);
                    cx.one(Layer::Select { condition, then_input: y, else_input: other })
                }
            });
        }
        let Some(y) = result else { return Outputs::new() };
        vec![cx.cast(y, dtype)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    /// Sums of a dozen products.
    const SUMS: Tolerance = Tolerance::Near { rtol: 1e-4, atol: 1e-5 };

    fn dft(dims: [i64; 4]) -> Case {
        Case::new("DFT", 20).input(noise(dims))
    }

    fn scalar(v: i64) -> Tensor {
        Tensor::scalar_i64(v)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("DFT", 20).input(x(&[4, 1])));
        dft([1, 4, 3, 1]).dynamic(0, ["1", "0", "3", "1"]).refused(Code::SHAPE);
        dft([1, 4, 3, 1]).dynamic(0, ["1", "4", "N", "1"]).refused(Code::DIM_UNKNOWN);
        dft([1, 4, 3, 1]).absent().input(scalar(1)).refused(Code::NOT_CONSTANT);
        dft([1, 4, 3, 1]).input(scalar(4)).refused(Code::DIM_UNKNOWN);
        dft([1, 4, 3, 1]).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        dft([1, 4, 3, 3]).refused(Code::INVALID);
        Case::new("DFT", 20).input(noise([1; 9])).refused(Code::RANK);
    }

    #[test]
    fn types() {
        let open = dft([2, 4, 3, 1]).dynamic(0, ["N", "L", "3", "1"]).absent().constant(scalar(1));
        assert_eq!(open.types(), ["f32[N x L x 3 x 2]"]);
        assert_eq!(open.clone().int("onesided", 1).types(), ["f32[N x floordiv(L, 2) + 1 x 3 x 2]"]);
        let both = open.int("onesided", 1).int("inverse", 1);
        assert_eq!(both.types(), ["f32[N x 2*L - 2 x 3 x 1]"]);
        assert_eq!(dft([2, 4, 3, 1]).constant(scalar(7)).types(), ["f32[2 x 4 x 7 x 2]"]);
        assert!(dft([2, 4, 3, 1]).absent().constant(scalar(3)).invalid().contains("parts"));
        assert!(dft([2, 4, 3, 1]).absent().constant(list(&[0, 1])).invalid().contains("one axis"));
        assert!(Case::new("DFT", 20).input(noise([2])).invalid().contains("two dims"));
        assert!(dft([2, 4, 3, 1]).constant(scalar(0)).invalid().contains("no numbers"));
    }

    #[test]
    fn numbers() {
        for parts in [1, 2] {
            for axis in [0, 1, -2] {
                let case = || dft([3, 5, 4, parts]);
                case().absent().constant(scalar(axis)).check(SUMS);
                case().absent().constant(scalar(axis)).int("inverse", 1).check(SUMS);
                case().constant(scalar(7)).constant(scalar(axis)).check(SUMS);
                case().constant(scalar(2)).constant(scalar(axis)).check(SUMS);
            }
        }
        let half = |n: i64| dft([2, n, 3, 1]).int("onesided", 1).absent().constant(scalar(1));
        half(6).dynamic(0, ["N", "6", "M", "1"]).check(SUMS);
        half(7).check(SUMS);
        dft([2, 5, 3, 1]).int("onesided", 1).constant(scalar(9)).constant(scalar(1)).check(SUMS);
        Case::new("DFT", 20).input(noise16([2, 6, 1])).check(F16);
        Case::new("DFT", 20).input(noise([6, 2])).check(SUMS);
    }

    /// Of a half spectrum and back: ONNX Runtime does not run it.
    #[test]
    fn there_and_back() {
        // 1, 2, 3, 4 and 1, 2, 3: half spectra by hand.
        let even = f32s([1, 3, 2], &[10.0, 0.0, -2.0, 2.0, -2.0, 0.0]);
        let back = |x: Tensor| Case::new("DFT", 20).input(x).int("onesided", 1).int("inverse", 1);
        back(even).gives(SUMS, &[f32s([1, 4, 1], &[1.0, 2.0, 3.0, 4.0])]);
        let odd = f32s([1, 2, 2], &[6.0, 0.0, -1.5, 0.8660254]);
        back(odd).constant(scalar(3)).gives(SUMS, &[f32s([1, 3, 1], &[1.0, 2.0, 3.0])]);
    }

    #[test]
    fn axis_of_the_run() {
        for axis in [1, 2, -3] {
            let case = dft([1, 4, 4, 2]).absent().input(scalar(axis)).declared(0, &[1, 4, 4, 2]);
            case.check(SUMS);
        }
        let half = dft([1, 6, 5, 1]).int("onesided", 1).absent().input(scalar(1));
        half.declared(0, &[1, 4, 5, 2]).check(SUMS);
        dft([1, 4, 3, 1]).input(scalar(6)).constant(scalar(1)).declared(0, &[1, 6, 3, 2]).check(SUMS);
    }
}

//! STFT: discrete Fourier transforms of parts of a signal.
//!
//! signal [b, n, 1 or 2] T, frame_step [] i, window [L] T (optional), frame_length [] i (optional)
//! -> output [b, (n − L) / step + 1, L or L/2+1, 2] T
//! Opsets: 17.     TensorRT: IGatherLayer, IMatrixMultiplyLayer.
//! Limits: frame_length known (or told by the declared dims); f16, bf16 run in f32.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, dims,
        extent::{self, DimPlan},
        floats,
        fourier::Transform,
        iota, matrix, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, GatherMode},
};

/// The converter.
#[derive(Debug)]
pub struct Stft;

/// Where the parts start, and what becomes of each.
#[derive(Debug)]
pub struct Plan {
    frames: DimPlan,
    step: DimPlan,
    transform: Transform,
}

fn onesided(node: NodeView<'_>) -> bool {
    node.int("onesided", 1) != 0
}

/// Length of a part, as the inputs say.
fn length(node: NodeView<'_>, signal: &[Dim]) -> Dim {
    match (node.input(3), node.input(2)) {
        (Some(_), window) => {
            let told = dims::scalar(node, 3).cloned().unwrap_or(Dim::Unknown);
            match (told, window.and_then(|w| w.dim(0))) {
                (Dim::Unknown, Some(dim)) => dim.clone(),
                (told, _) => told,
            }
        }
        (None, Some(window)) => window.dim(0).cloned().unwrap_or(Dim::Unknown),
        (None, None) => signal[1].clone(),
    }
}

fn bins(node: NodeView<'_>, length: &Dim) -> Dim {
    match onesided(node) {
        true => length.floor_div(&Dim::Known(2)).add(&Dim::Known(1)),
        false => length.clone(),
    }
}

fn frames(signal: &Dim, length: &Dim, step: &Dim) -> Dim {
    signal.sub(length).floor_div(step).add(&Dim::Known(1))
}

/// Length and step that are the only ones with the dims that the model declares.
fn told(node: NodeView<'_>, signal: &[Dim]) -> Option<(i64, i64)> {
    let n = signal[1].known()?;
    let to = dims::of_output(node, 0)?;
    let (count, bins) = (*to.get(1)?, *to.get(2)?);
    let lengths = match length(node, signal).known() {
        Some(length) => vec![length],
        None if onesided(node) => vec![2 * bins - 2, 2 * bins - 1],
        None => vec![bins],
    };
    let mut found = None;
    for length in lengths.into_iter().filter(|length| (1..=n).contains(length)) {
        let steps = match dims::scalar(node, 1).and_then(Dim::known) {
            Some(step) => step..step.checked_add(1)?,
            // (n − length) / step is count − 1 when rounded down.
            None => (n - length) / count.max(1)..((n - length) / (count - 1).max(1)).checked_add(1)?,
        };
        for step in steps.filter(|&step| step >= 1 && (n - length) / step + 1 == count) {
            if found.replace((length, step)).is_some() {
                return None;
            }
        }
    }
    found
}

impl Converter for Stft {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("STFT", 17)],
        dtypes: check::FLOATS,
        layers: "IGatherLayer, IMatrixMultiplyLayer",
        limits: "frame_length known, or told by the declared result; not for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(signal) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        if signal.len() != 3 {
            return Err(Diag::invalid(format!("rank {}, not 3", signal.len())).slot("signal"));
        }
        let length = length(node, signal);
        let step = dims::scalar(node, 1).cloned().unwrap_or(Dim::Unknown);
        if step.known().is_some_and(|step| step < 1) {
            return Err(Diag::invalid("a step that is not positive").slot("frame_step"));
        }
        if length.known().is_some_and(|length| length < 1) {
            return Err(Diag::invalid("parts without elements").slot("frame_length"));
        }
        let frames = frames(&signal[1], &length, &step);
        if frames.known().is_some_and(|frames| frames < 1) {
            return Err(Diag::invalid("the signal is shorter than a part").slot("signal"));
        }
        if let Dim::Expr(_) = &frames {
            cx.require(ConstraintKind::AtLeast(frames.clone(), 1));
        }
        let to = vec![signal[0].clone(), frames, bins(node, &length), Dim::Known(2)];
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "signal", check::FLOATS, target)?;
        check::never_empty(&x, "signal")?;
        if x.rank() != 3 {
            return Err(Refusal::new(Code::INVALID, format!("rank {}, not 3", x.rank())).slot("signal"));
        }
        matrix::gemm_gate(DType::F32, target)?;
        let parts = x.shape[2].known().filter(|parts| (1..=2).contains(parts)).ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "not known to be numbers of one or two parts").slot("signal")
        })?;
        let unknown = |name: &str| {
            Refusal::new(Code::SHAPE_VALUE, "not known before the run, nor from the declared dims").slot(name)
        };
        let told = told(node, x.shape);
        let length = length(node, x.shape).known().or(told.map(|told| told.0));
        let length = length.ok_or_else(|| unknown("frame_length"))?;
        if let Some(window) = node.input(2) {
            let window_view = check::operand(node, 2, "window", check::FLOATS, target)?;
            if window_view.shape != [Dim::Known(length)] || window.dtype() != Some(x.dtype) {
                let why = format!("must be {length} numbers of {}", x.dtype);
                return Err(Refusal::new(Code::INVALID, why).slot("window"));
            }
        }
        let step = dims::scalar(node, 1).cloned().or(told.map(|told| Dim::Known(told.1)));
        let step = step.ok_or_else(|| unknown("frame_step"))?;
        let frames = frames(&x.shape[1], &Dim::Known(length), &step);
        let bins = if onesided(node) { length / 2 + 1 } else { length };
        let transform = Transform { read: length, parts, length, bins, inverse: false, halved: false };
        transform.check()?;
        Ok(Plan {
            frames: extent::require_dim(node, &frames, "signal")?,
            step: extent::require_dim(node, &step, "frame_step")?,
            transform,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let dtype = cx.dtype(x);
        let x = floats::widened(cx, x);
        let starts = iota::along(cx, &plan.frames, 0, 2);
        let step = cx.dim(&plan.step);
        let step = cx.with_rank(step, 2);
        let starts = cx.elementwise(starts, step, ElementWiseOp::Prod);
        let within = iota::along(cx, &DimPlan::Fixed(plan.transform.length), 1, 2);
        let indices = cx.elementwise(starts, within, ElementWiseOp::Sum);
        let mode = GatherMode::Default;
        let mut parts = cx.one(Layer::Gather { data: x, indices, axis: 1, mode, batch_dims: 0 });
        if let Some(window) = cx.optional(2) {
            let window = floats::widened(cx, window);
            let window = cx.reshape(window, vec![1, 1, plan.transform.length, 1]);
            parts = cx.elementwise(parts, window, ElementWiseOp::Prod);
        }
        let y = plan.transform.emit(cx, parts);
        vec![cx.cast(y, dtype)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    /// Sums of a dozen products.
    const SUMS: Tolerance = Tolerance::Near { rtol: 1e-4, atol: 1e-5 };

    fn scalar(v: i64) -> Tensor {
        Tensor::scalar_i64(v)
    }

    fn stft(signal: Tensor, step: i64) -> Case {
        Case::new("STFT", 17).input(signal).constant(scalar(step))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let case = Case::new("STFT", 17).input(x(&[1, 8, 1])).constant(scalar(2));
            case.absent().constant(scalar(4))
        });
        let usual = || stft(noise([1, 8, 1]), 2).absent();
        usual().constant(scalar(4)).dynamic(0, ["0", "8", "1"]).refused(Code::SHAPE);
        usual().constant(scalar(4)).dynamic(0, ["1", "8", "P"]).refused(Code::DIM_UNKNOWN);
        usual().input(scalar(4)).refused(Code::SHAPE_VALUE);
        usual().constant(scalar(4)).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        stft(noise([1, 8, 1]), 2).input(noise([5])).constant(scalar(4)).refused(Code::INVALID);
        Case::new("STFT", 17).input(noise([1; 9])).unranked(0).refused(Code::RANK_UNKNOWN);
        let wide = Case::new("STFT", 17).input(noise([1, 8, 1])).dynamic(0, ["1", "1", "1"]);
        assert!(wide.dynamic(0, ["1", "8", "1",]).constant(scalar(0)).invalid().contains("not positive"));
    }

    #[test]
    fn ranks() {
        assert!(stft(noise([8, 1]), 2).invalid().contains("rank 2"));
    }

    #[test]
    fn types() {
        let open = stft(noise([2, 8, 1]), 3).absent().constant(scalar(4)).dynamic(0, ["N", "L", "1"]);
        assert_eq!(open.types(), ["f32[N x floordiv(L + 2, 3) - 1 x 3 x 2]"]);
        assert_eq!(open.int("onesided", 0).types(), ["f32[N x floordiv(L + 2, 3) - 1 x 4 x 2]"]);
        let short = stft(noise([1, 3, 1]), 1).absent().constant(scalar(4));
        assert!(short.invalid().contains("shorter"));
    }

    #[test]
    fn numbers() {
        let window = || noise([5]);
        stft(noise([2, 17, 1]), 3).input(window()).check(SUMS);
        stft(noise([2, 17, 1]), 3).constant(window()).int("onesided", 0).check(SUMS);
        stft(noise([1, 16, 1]), 4).absent().constant(scalar(6)).check(SUMS);
        stft(noise([1, 16, 2]), 4).absent().constant(scalar(6)).int("onesided", 0).check(SUMS);
        let open = stft(noise([2, 14, 1]), 3).constant(window()).dynamic(0, ["N", "L", "1"]);
        open.check(SUMS);
    }

    #[test]
    fn told_by_the_declared_dims() {
        let open = || Case::new("STFT", 17).input(noise([1, 128, 1])).input(scalar(8));
        open().absent().input(scalar(16)).declared(0, &[1, 15, 9, 2]).check(SUMS);
        open().input(noise([16])).declared(0, &[1, 15, 9, 2]).check(SUMS);
        open().absent().input(scalar(16)).declared(0, &[1, 2, 9, 2]).refused(Code::SHAPE_VALUE);
    }
}

//! BatchNormalization: with the statistics of training, or (training_mode) with those of the batch.
//!
//! X [N, C, d..] T, scale, B [C] T1, input_mean, input_var [C] T2
//!   ->  Y [N, C, d..] T, (running_mean, running_var [C] T2: training_mode)
//! Opsets: 1, 6, 7, 9, 14 (training_mode), 15 (types).     TensorRT: IElementWiseLayer (product, sum); IReduceLayer.
//! Limits: training_mode: not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, floats, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, ReduceOp, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct BatchNormalization;

/// Y = X · factor + offset.
#[derive(Debug)]
pub enum Plan {
    /// From constants: factor and offset of each channel.
    Folded(Vec<f64>, Vec<f64>),
    /// From tensors of the run, with this ε.
    Computed(f32),
    /// From the batch, with this ε and this share of the old running statistics.
    Trained(f32, f32),
}

impl Converter for BatchNormalization {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("BatchNormalization", 15)],
        dtypes: check::FLOATS,
        layers: "IElementWiseLayer, IReduceLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::OUTPUTS,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        if let Some(x) = node.input(0).and_then(|x| x.shape()) {
            let channels = x.get(1).and_then(Dim::known);
            for (slot, name) in [(1, "scale"), (2, "B"), (3, "input_mean"), (4, "input_var")] {
                let n = node.input(slot).and_then(|p| p.dim(0)).and_then(Dim::known);
                if let (Some(c), Some(n)) = (channels, n)
                    && c != n
                {
                    return Err(Diag::invalid(format!("{n} values for {c} channels")).slot(name));
                }
                if let Some(channels) = x.get(1) {
                    shape::demand(node, (slot, 0), channels, cx)?;
                }
            }
        }
        let statistics = |slot| shape::same_as_input(node, slot);
        Ok(shape::types([shape::same_as_input(node, 0), statistics(3), statistics(4)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        if x.rank() < 2 {
            return Err(Refusal::new(Code::RANK, "a tensor without channels").slot("X"));
        }
        let trains = node.int("training_mode", 0) != 0;
        if trains {
            check::never_empty(&x, "X")?;
        }
        if node.output_count() > 1 && !trains {
            return Err(Refusal::new(Code::OUTPUTS, "running statistics are an output of training only"));
        }
        let mut lists = Vec::new();
        for (slot, name) in [(1, "scale"), (2, "B"), (3, "input_mean"), (4, "input_var")] {
            let parameter = check::operand(node, slot, name, check::FLOATS, target)?;
            lists.push(parameter.view.constant().and_then(|tensor| tensor.to_f64s()));
        }
        let epsilon = node.float("epsilon", 1e-5);
        if trains {
            return Ok(Plan::Trained(epsilon, node.float("momentum", 0.9)));
        }
        let [Some(scale), Some(bias), Some(mean), Some(variance)] = &lists[..] else {
            return Ok(Plan::Computed(epsilon));
        };
        let factor: Vec<f64> =
            scale.iter().zip(variance).map(|(scale, v)| scale / (v + f64::from(epsilon)).sqrt()).collect();
        let offset =
            bias.iter().zip(mean).zip(&factor).map(|((bias, mean), factor)| bias - mean * factor).collect();
        Ok(Plan::Folded(factor, offset))
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let (dtype, rank) = (cx.dtype(x), cx.rank(x));
        let along = |channels: i64| {
            let mut dims = vec![1; rank];
            dims[1] = channels;
            dims
        };
        let (factor, offset) = match plan {
            Plan::Trained(epsilon, momentum) => return trained(cx, x, epsilon, momentum),
            Plan::Folded(factor, offset) => {
                let dims = along(factor.len() as i64);
                let factor = floats::constant(cx, dtype, dims.clone(), &factor);
                (factor, floats::constant(cx, dtype, dims, &offset))
            }
            Plan::Computed(epsilon) => {
                let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|slot| {
                    let p = cx.input(slot);
                    cx.cast(p, DType::F32)
                });
                let epsilon = cx.scalar(DType::F32, 1, f64::from(epsilon));
                let variance = cx.elementwise(variance, epsilon, ElementWiseOp::Sum);
                let deviation = cx.unary(variance, UnaryOp::Sqrt);
                let factor = cx.elementwise(scale, deviation, ElementWiseOp::Div);
                let shift = cx.elementwise(mean, factor, ElementWiseOp::Prod);
                let offset = cx.elementwise(bias, shift, ElementWiseOp::Sub);
                let mut spread = |p| {
                    let p = cx.reshape(p, along(-1));
                    cx.cast(p, dtype)
                };
                (spread(factor), spread(offset))
            }
        };
        let y = cx.elementwise(x, factor, ElementWiseOp::Prod);
        vec![cx.elementwise(y, offset, ElementWiseOp::Sum)]
    }
}

/// Statistics of the batch, in f32; the running ones are moved towards them.
fn trained(cx: &mut Emit<'_>, x: TensorId, epsilon: f32, momentum: f32) -> Outputs {
    let (dtype, rank) = (cx.dtype(x), cx.rank(x));
    let axes: Vec<u32> = (0..rank as u32).filter(|&axis| axis != 1).collect();
    let mut along = vec![1; rank];
    along[1] = -1;
    let average = |cx: &mut Emit<'_>, x: TensorId| {
        cx.one(Layer::Reduce { x, op: ReduceOp::Avg, axes: axes.clone(), keep_dims: true })
    };
    let wide = floats::widened(cx, x);
    let mean = average(cx, wide);
    let centred = cx.elementwise(wide, mean, ElementWiseOp::Sub);
    let squares = cx.elementwise(centred, centred, ElementWiseOp::Prod);
    let variance = average(cx, squares);
    let epsilon = cx.scalar(DType::F32, rank, f64::from(epsilon));
    let spread = cx.elementwise(variance, epsilon, ElementWiseOp::Sum);
    let deviation = cx.unary(spread, UnaryOp::Sqrt);
    let [scale, bias] = [1, 2].map(|slot| {
        let p = cx.input(slot);
        let p = cx.cast(p, DType::F32);
        cx.reshape(p, along.clone())
    });
    let y = cx.elementwise(centred, deviation, ElementWiseOp::Div);
    let y = cx.elementwise(y, scale, ElementWiseOp::Prod);
    let y = cx.elementwise(y, bias, ElementWiseOp::Sum);
    let [running_mean, running_variance] = [(3, mean), (4, variance)].map(|(slot, new)| {
        let old = cx.input(slot);
        let narrow = cx.dtype(old);
        let old = cx.cast(old, DType::F32);
        let new = cx.reshape(new, vec![-1]);
        let [a, b] = [(old, momentum), (new, 1.0 - momentum)].map(|(x, share)| {
            let share = cx.scalar(DType::F32, 1, share.into());
            cx.elementwise(x, share, ElementWiseOp::Prod)
        });
        let sum = cx.elementwise(a, b, ElementWiseOp::Sum);
        cx.cast(sum, narrow)
    });
    vec![cx.cast(y, dtype), running_mean, running_variance]
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::Tensor;

    fn case(constant: bool, x: Tensor, p: fn(&[f32]) -> Tensor) -> Case {
        let lists: [&[f32]; 4] = [&[1.0, -2.0, 0.5], &[0.25, 0.0, -1.0], &[0.1, -0.2, 0.3], &[1.0, 0.5, 2.0]];
        lists.iter().fold(Case::new("BatchNormalization", 15).input(x), |case, list| {
            if constant { case.constant(p(list)) } else { case.input(p(list)) }
        })
    }

    fn wide(values: &[f32]) -> Tensor {
        f32s([3], values)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let p = || x(&[1]);
            Case::new("BatchNormalization", 15).input(x(&[1, 1])).input(p()).input(p()).input(p()).input(p())
        });
        let empty = case(true, noise([2, 3]), wide).dynamic(0, ["0", "3"]).int("training_mode", 1);
        empty.refused(Code::SHAPE);
        case(true, noise([2, 3]), wide).outputs(3).refused(Code::OUTPUTS);
        case(true, noise([3]), wide).refused(Code::RANK);
        Case::new("BatchNormalization", 15).input(noise([2, 3])).refused(Code::INVALID);
    }

    #[test]
    fn types() {
        assert_eq!(
            case(true, noise([2, 3, 4]), wide).dynamic(0, ["N", "3", "?"]).types(),
            ["f32[N x 3 x ?]"]
        );
        assert_eq!(case(true, noise([2, 3]), wide).dynamic(0, ["2", "C"]).equalities(), ["3 = C"]);
        assert!(case(true, noise([2, 4]), wide).invalid().contains("3 values for 4 channels"));
    }

    #[test]
    fn numbers() {
        for constant in [true, false] {
            case(constant, noise([2, 3, 4, 5]), wide).check(F32);
            case(constant, noise([2, 3]), wide).float("epsilon", 0.1).check(F32);
            case(constant, noise([2, 3, 4]), wide).dynamic(0, ["N", "3", "L"]).check(F32);
            case(constant, noise16([2, 3, 4]), |v| f16s([3], v)).check(F16);
        }
    }

    #[test]
    fn training() {
        // Each channel is -1, 1, -1, 1 about its mean: the variance is 1.
        let x = |d: f32| f32s([2, 2, 2], &[3.0 - d, 3.0 + d, -1.0, 1.0, 3.0 - d, 3.0 + d, -1.0, 1.0]);
        let case = Case::new("BatchNormalization", 15).input(x(1.0)).constant(f32s([2], &[2.0, 1.0]));
        let case =
            case.constant(f32s([2], &[0.5, 0.0])).input(f32s([2], &[1.0, 1.0])).input(f32s([2], &[5.0, 2.0]));
        let case = case.int("training_mode", 1).float("epsilon", 0.0).float("momentum", 0.75).outputs(3);
        let want = [
            f32s([2, 2, 2], &[-1.5, 2.5, -1.0, 1.0, -1.5, 2.5, -1.0, 1.0]),
            f32s([2], &[1.5, 0.75]),
            f32s([2], &[4.0, 1.75]),
        ];
        case.gives(F32, &want);
        case.dynamic(0, ["N", "2", "L"]).gives(F32, &want);
    }
}

//! GroupNorm, SkipGroupNorm (com.microsoft): normalisation of groups of channels, after a sum, before a Swish.
//!
//! X [n, h, w, c] T (channels_last, the default) or [n, c, h, w] T, gamma, beta [c] M,
//! (skip [n, h, w, c] or [n, 1, 1, c] or [n, c] T), (bias [c] T)
//!   ->  Y like X, (S = X + skip + bias, like X)
//! Opsets: 1.     TensorRT: INormalizationLayer in f32, IElementWiseLayer, IActivationLayer.
//! Limits: channels known; SkipGroupNorm: channels_last.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, shape, window},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ActivationKind, ElementWiseOp},
};

/// The converters.
#[derive(Debug)]
pub struct GroupNorm;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    last: bool,
    groups: i64,
    epsilon: f32,
    swish: bool,
    /// Rank of what is added first.
    skip: Option<usize>,
}

impl Converter for GroupNorm {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "GroupNorm", 1), Key::of("com.microsoft", "SkipGroupNorm", 1)],
        dtypes: check::FLOATS,
        layers: "INormalizationLayer, IElementWiseLayer, IActivationLayer",
        limits: "channels known",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let x = shape::same_as_input(node, 0);
        let dims = x.shape().unwrap_or(&[]);
        let last = node.int("channels_last", 1) != 0;
        let channels = dims.get(if last { 3 } else { 1 }).cloned().unwrap_or(Dim::Unknown);
        for slot in [1, 2, 4] {
            shape::demand(node, (slot, 0), &channels, cx)?;
        }
        match node.input(3).and_then(|skip| skip.rank()) {
            Some(2) => {
                shape::demand(node, (3, 0), dims.first().unwrap_or(&Dim::Unknown), cx)?;
                shape::demand(node, (3, 1), &channels, cx)?;
            }
            _ => shape::demand_fits(node, 3, dims, cx)?,
        }
        Ok(shape::types([x.clone(), x]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        if x.rank() != 4 {
            return Err(Refusal::new(Code::RANK, format!("rank {}, not 4", x.rank())).slot("X"));
        }
        let last = node.int("channels_last", 1) != 0;
        let channels = &x.shape[if last { 3 } else { 1 }];
        window::known_channels(channels, "X")?;
        let channels = channels.known().unwrap_or(0);
        let groups = node.int("groups", 0);
        if groups < 1 || channels % groups != 0 {
            let why = format!("{groups} groups do not divide {channels} channels");
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("groups"));
        }
        let swish = match node.int("activation", 0) {
            0 => false,
            1 => true,
            other => {
                return Err(Refusal::new(Code::ATTRIBUTE, format!("activation {other}")).slot("activation"));
            }
        };
        for (slot, name) in [(1, "gamma"), (2, "beta")] {
            let parameter = check::operand(node, slot, name, check::FLOATS, target)?;
            if parameter.rank() != 1 {
                return Err(Refusal::new(Code::RANK, format!("rank {}, not 1", parameter.rank())).slot(name));
            }
        }
        let mut skip = None;
        if node.op() == "SkipGroupNorm" {
            if !last {
                let why = "a skip of which the layout is not defined";
                return Err(Refusal::new(Code::ATTRIBUTE, why).slot("channels_last"));
            }
            let operand = check::operand(node, 3, "skip", &[x.dtype], target)?;
            if !matches!(operand.rank(), 2 | 4) {
                return Err(Refusal::new(Code::RANK, format!("rank {}", operand.rank())).slot("skip"));
            }
            skip = Some(operand.rank());
            if node.input(4).is_some() {
                check::operand(node, 4, "bias", &[x.dtype], target)?;
            }
        }
        Ok(Plan { last, groups, epsilon: node.float("epsilon", 1e-5), swish, skip })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut x = cx.input(0);
        let dtype = cx.dtype(x);
        if let Some(rank) = plan.skip {
            let mut skip = cx.input(3);
            if rank == 2 {
                skip = cx.one(Layer::Unsqueeze { x: skip, axes: vec![1, 2] });
            }
            x = cx.elementwise(x, skip, ElementWiseOp::Sum);
            if let Some(bias) = cx.optional(4) {
                let bias = cx.with_rank(bias, 4);
                x = cx.elementwise(x, bias, ElementWiseOp::Sum);
            }
        }
        let sum = x;
        let mut y = cx.cast(sum, DType::F32);
        if plan.last {
            y = cx.transpose(y, vec![0, 3, 1, 2]);
        }
        let [scale, bias] = [1, 2].map(|slot| {
            let p = cx.input(slot);
            let p = cx.cast(p, DType::F32);
            cx.reshape(p, vec![1, -1, 1, 1])
        });
        let Plan { groups, epsilon, .. } = plan;
        y = cx.one(Layer::Normalization { x: y, scale, bias, axes: vec![2, 3], epsilon, groups });
        if plan.swish {
            let gate = cx.activation(y, ActivationKind::Sigmoid, 0.0, 0.0);
            y = cx.elementwise(y, gate, ElementWiseOp::Prod);
        }
        if plan.last {
            y = cx.transpose(y, vec![0, 2, 3, 1]);
        }
        vec![cx.cast(y, dtype), sum]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    fn of(op: &str, x: Tensor, channels: i64) -> Case {
        let ones = f32s([channels], &vec![1.0; channels as usize]);
        let zeros = f32s([channels], &vec![0.0; channels as usize]);
        Case::of("com.microsoft", op, 1)
            .int("groups", 2)
            .float("epsilon", 0.0)
            .input(x)
            .constant(ones)
            .constant(zeros)
    }

    /// Two pixels of four channels in two groups: each group of 1, 3, 3, 1 has mean 2 and deviation 1.
    const PIXELS: [f32; 8] = [1.0, 3.0, 11.0, 13.0, 3.0, 1.0, 13.0, 11.0];
    const NORMAL: [f32; 8] = [-1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0];

    #[test]
    fn numbers() {
        let case = of("GroupNorm", f32s([1, 1, 2, 4], &PIXELS), 4);
        case.gives(F32, &[f32s([1, 1, 2, 4], &NORMAL)]);
        let swish = NORMAL.map(|v| v / (1.0 + (-v).exp()));
        case.clone().int("activation", 1).gives(F32, &[f32s([1, 1, 2, 4], &swish)]);
        case.dynamic(0, ["N", "H", "2", "4"]).gives(F32, &[f32s([1, 1, 2, 4], &NORMAL)]);
        let first: Vec<f32> = (0..8).map(|k| PIXELS[k % 2 * 4 + k / 2]).collect();
        let normal: Vec<f32> = (0..8).map(|k| NORMAL[k % 2 * 4 + k / 2]).collect();
        let first = of("GroupNorm", f16s([1, 4, 1, 2], &first), 4).int("channels_last", 0);
        first.gives(F16, &[f16s([1, 4, 1, 2], &normal)]);
    }

    #[test]
    fn sums() {
        let half = PIXELS.map(|v| v / 2.0);
        let case = of("SkipGroupNorm", f32s([1, 1, 2, 4], &half), 4).outputs(2);
        let want = [f32s([1, 1, 2, 4], &NORMAL), f32s([1, 1, 2, 4], &PIXELS)];
        case.clone().input(f32s([1, 1, 2, 4], &half)).gives(F32, &want);
        let shift = case.input(f32s([1, 4], &[1.0; 4])).constant(f32s([4], &[2.0; 4]));
        let sum = half.map(|v| v + 3.0);
        shift.gives(F32, &[f32s([1, 1, 2, 4], &NORMAL), f32s([1, 1, 2, 4], &sum)]);
    }

    #[test]
    fn dims_that_agree() {
        let case = of("SkipGroupNorm", f32s([1, 1, 2, 4], &PIXELS), 4).input(f32s([1, 4], &[1.0; 4]));
        let open = case.dynamic(0, ["N", "H", "2", "C"]).dynamic(3, ["M", "D"]);
        assert_eq!(open.equalities(), ["4 = C", "M = N", "D = C"]);
        let few = of("GroupNorm", f32s([1, 1, 2, 4], &PIXELS), 3);
        assert!(few.invalid().contains("axis 0 of input 1"));
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let case = Case::of("com.microsoft", "GroupNorm", 1).int("groups", 1);
            case.input(x(&[1, 1, 1, 1])).input(x(&[1])).input(x(&[1]))
        });
        let case = of("GroupNorm", f32s([1, 1, 2, 4], &PIXELS), 4);
        case.clone().int("groups", 3).refused(Code::ATTRIBUTE);
        case.clone().int("activation", 2).refused(Code::ATTRIBUTE);
        case.clone().dynamic(0, ["1", "1", "2", "C"]).refused(Code::DIM_UNKNOWN);
        case.clone().dynamic(0, ["0", "1", "2", "4"]).refused(Code::SHAPE);
        case.dynamic(0, ["1", "1", "8"]).refused(Code::RANK);
        of("SkipGroupNorm", f32s([1, 1, 2, 4], &PIXELS), 4).refused(Code::INVALID);
        let skip = of("SkipGroupNorm", f32s([1, 1, 2, 4], &PIXELS), 4).input(f32s([1, 2, 4], &[1.0; 8]));
        skip.refused(Code::RANK);
        let first = of("SkipGroupNorm", f32s([1, 4, 1, 2], &PIXELS), 4).input(f32s([1, 4, 1, 2], &PIXELS));
        first.int("channels_last", 0).refused(Code::ATTRIBUTE);
    }
}

//! InstanceNormalization and GroupNormalization: over the spatial axes, for each channel or group of channels.
//!
//! X [n, c, d..] T, scale, bias [c] T  ->  Y [n, c, d..] T
//! Opsets: InstanceNormalization 1, 6, 22; GroupNormalization 21 (18 had one scale a group).     TensorRT: INormalizationLayer;
//! over one element IElementWiseLayer.
//! Limits: channels known.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, shape, window},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::ElementWiseOp};

/// The converter of both.
#[derive(Debug)]
pub struct InstanceNormalization;

/// First axis, groups of the layer, and ε.
#[derive(Debug)]
pub struct Plan {
    first: u32,
    groups: i64,
    epsilon: f32,
    /// Each mean is that of one element.
    single: bool,
}

impl Converter for InstanceNormalization {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("InstanceNormalization", 22), Key::onnx("GroupNormalization", 21)],
        dtypes: check::FLOATS,
        layers: "INormalizationLayer",
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
        let dim = node.input(0).and_then(|x| x.dim(1));
        let channels = dim.and_then(Dim::known);
        for (slot, name) in [(1, "scale"), (2, "bias")] {
            let n = node.input(slot).and_then(|p| p.dim(0)).and_then(Dim::known);
            if let (Some(c), Some(n)) = (channels, n)
                && c != n
            {
                return Err(Diag::invalid(format!("{n} values for {c} channels")).slot(name));
            }
            if let Some(dim) = dim {
                shape::demand(node, (slot, 0), dim, cx)?;
            }
        }
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = window::maps(node, target)?;
        for (slot, name) in [(1, "scale"), (2, "bias")] {
            let parameter = check::operand(node, slot, name, &[x.dtype], target)?;
            if parameter.rank() != 1 {
                return Err(Refusal::new(Code::RANK, format!("rank {}, not 1", parameter.rank())).slot(name));
            }
        }
        window::known_channels(&x.shape[1], "X")?;
        let channels = x.shape[1].known().unwrap_or(0);
        let groups = if node.op() == "GroupNormalization" { node.int("num_groups", 0) } else { channels };
        if groups < 1 || channels % groups != 0 {
            let why = format!("{groups} groups do not divide {channels} channels");
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("num_groups"));
        }
        // Channels that are apart, or all together, are a matter of the axes alone.
        let (first, groups) = match groups {
            groups if groups == channels => (2, 1),
            1 => (1, 1),
            groups => (2, groups),
        };
        let single = groups == 1 && x.shape[first as usize..].iter().all(|dim| *dim == Dim::Known(1));
        Ok(Plan { first, groups, epsilon: node.float("epsilon", 1e-5), single })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let rank = cx.rank(x);
        let mut along = vec![1; rank];
        along[1] = -1;
        let mut parameter = |slot: usize| {
            let p = cx.input(slot);
            cx.reshape(p, along.clone())
        };
        let (scale, bias) = (parameter(1), parameter(2));
        let Plan { first, groups, epsilon, single } = plan;
        if single {
            // TensorRT refuses to normalise one element; nothing of it but NaN is left beside the bias.
            let rest = cx.elementwise(x, x, ElementWiseOp::Sub);
            let rest = cx.elementwise(rest, scale, ElementWiseOp::Prod);
            return vec![cx.elementwise(rest, bias, ElementWiseOp::Sum)];
        }
        let axes = (first..rank as u32).collect();
        vec![cx.one(Layer::Normalization { x, scale, bias, axes, epsilon, groups })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn instance() -> Case {
        Case::new("InstanceNormalization", 22)
            .input(noise([2, 4, 3, 2]))
            .constant(noise([4]))
            .constant(noise([4]))
    }

    fn group(groups: i64) -> Case {
        let case = Case::new("GroupNormalization", 21).input(noise([2, 4, 3, 2]));
        case.constant(noise([4])).constant(noise([4])).int("num_groups", groups)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            Case::new("InstanceNormalization", 22).input(x(&[1, 1, 2])).input(x(&[1])).input(x(&[1]))
        });
        instance().dynamic(0, ["2", "4", "0", "2"]).refused(Code::SHAPE);
        instance().dynamic(0, ["2", "C", "3", "2"]).refused(Code::DIM_UNKNOWN);
        group(3).refused(Code::ATTRIBUTE);
        group(0).refused(Code::ATTRIBUTE);
        Case::new("InstanceNormalization", 22).input(noise([2, 4])).refused(Code::RANK);
        Case::new("InstanceNormalization", 22).input(noise([2, 4, 3])).refused(Code::INVALID);
    }

    #[test]
    fn numbers() {
        assert_eq!(instance().dynamic(0, ["N", "4", "H", "W"]).types(), ["f32[N x 4 x H x W]"]);
        assert_eq!(instance().dynamic(0, ["N", "C", "H", "W"]).equalities(), ["4 = C"]);
        instance().check(F32);
        instance().float("epsilon", 0.1).dynamic(0, ["N", "4", "H", "W"]).check(F32);
        for groups in [1, 2, 4] {
            group(groups).check(F32);
            group(groups).dynamic(0, ["N", "4", "H", "W"]).check(F32);
        }
        let flat = Case::new("InstanceNormalization", 22)
            .input(noise([2, 3, 5]))
            .input(noise([3]))
            .input(noise([3]));
        flat.check(F32);
        let deep = Case::new("GroupNormalization", 21).input(noise([2, 4, 2, 3, 2])).constant(noise([4]));
        deep.constant(noise([4])).int("num_groups", 2).check(F32);
        let half = Case::new("InstanceNormalization", 22).input(noise16([2, 3, 5])).constant(noise16([3]));
        half.constant(noise16([3])).check(F16);
        for op in ["InstanceNormalization", "GroupNormalization"] {
            let x = f32s([2, 2, 1], &[1.0, -2.0, f32::INFINITY, 0.5]);
            let one = Case::new(op, if op.starts_with('I') { 22 } else { 21 }).input(x).int("num_groups", 2);
            let one = one.constant(f32s([2], &[2.0, 3.0])).constant(f32s([2], &[0.5, -1.0]));
            one.clone().gives(F32, &[f32s([2, 2, 1], &[0.5, -1.0, f32::NAN, -1.0])]);
            one.dynamic(0, ["N", "2", "1"]).gives(F32, &[f32s([2, 2, 1], &[0.5, -1.0, f32::NAN, -1.0])]);
        }
        let wrong = Case::new("InstanceNormalization", 22).input(noise([2, 3, 5])).constant(noise([4]));
        assert!(wrong.invalid().contains("4 values for 3 channels"));
    }
}

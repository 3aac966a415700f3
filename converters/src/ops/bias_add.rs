//! BiasAdd, BiasSplitGelu (com.microsoft): sums of diffusion models.
//!
//! BiasAdd: X [n, s, c] T, bias [c] T, skip [n, s, c] T  ->  Y = X + bias + skip [n, s, c] T
//! BiasSplitGelu: X [n, s, d] T, bias [d] T  ->  Y [n, s, d/2] T, the first half of X + bias times Gelu of the second.
//! Opsets: 1.     TensorRT: IElementWiseLayer, ISliceLayer, IActivationLayer GELU_ERF.
//! Limits: BiasSplitGelu: the last dim known.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, elementwise,
        extent::{self, DimPlan, ExtentPlan},
        shape,
    },
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ActivationKind, ElementWiseOp, Extent, SampleMode},
};

/// The converters.
#[derive(Debug)]
pub struct BiasAdd;

/// What follows the sum with the bias.
#[derive(Debug)]
pub enum Plan {
    /// Another sum.
    Skip,
    /// A product of halves, of these dims.
    Halves(Vec<DimPlan>, i64),
}

impl Converter for BiasAdd {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "BiasAdd", 1), Key::of("com.microsoft", "BiasSplitGelu", 1)],
        dtypes: check::FLOATS,
        layers: "IElementWiseLayer, ISliceLayer, IActivationLayer",
        limits: "BiasSplitGelu: the last dim known",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
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
        for (axis, dim) in x.shape().unwrap_or(&[]).iter().enumerate() {
            shape::demand(node, (2, axis), dim, cx)?;
            if axis == 2 {
                shape::demand(node, (1, 0), dim, cx)?;
            }
        }
        if node.op() == "BiasAdd" {
            return Ok(shape::types([x]));
        }
        let dims = x.shape().filter(|dims| dims.len() == 3).map(|dims| {
            let mut dims = dims.to_vec();
            dims[2] = dims[2].floor_div(&Dim::Known(2));
            dims
        });
        Ok(shape::types([shape::typed(x.dtype(), dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let skip = node.op() == "BiasAdd";
        let names: &[&str] = if skip { &["X", "bias", "skip"] } else { &["X", "bias"] };
        elementwise::gates(node, names, check::FLOATS, target)?;
        let rank = |slot: usize| node.input(slot).and_then(|x| x.rank()).unwrap_or(0);
        for (slot, name, want) in [(0, "X", 3), (1, "bias", 1), (2, "skip", 3)] {
            if slot < names.len() && rank(slot) != want {
                return Err(Refusal::new(Code::RANK, format!("rank {}, not {want}", rank(slot))).slot(name));
            }
        }
        if skip {
            return Ok(Plan::Skip);
        }
        let mut dims = extent::own_dims(node, 0);
        let Some(whole) = dims.pop().and_then(|last| last.fixed()) else {
            return Err(Refusal::new(Code::DIM_UNKNOWN, "the last dim is not known before the run").slot("X"));
        };
        if whole % 2 != 0 {
            return Err(Refusal::new(Code::INVALID, format!("no halves of {whole}")).slot("X"));
        }
        Ok(Plan::Halves(dims, whole / 2))
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let bias = elementwise::input(cx, 1, 3);
        let x = cx.elementwise(x, bias, ElementWiseOp::Sum);
        let Plan::Halves(mut dims, half) = plan else {
            let skip = cx.input(2);
            return vec![cx.elementwise(x, skip, ElementWiseOp::Sum)];
        };
        dims.push(DimPlan::Fixed(half));
        let size = cx.extent(&ExtentPlan::Dims(dims));
        let [left, right] = [0, half].map(|from| {
            let (start, stride) = (Extent::Static(vec![0, 0, from]), Extent::Static(vec![1; 3]));
            let mode = SampleMode::Strict;
            cx.one(Layer::Slice { x, start, size: size.clone(), stride, mode, fill: None })
        });
        let gate = cx.activation(right, ActivationKind::GeluErf, 0.0, 0.0);
        vec![cx.elementwise(left, gate, ElementWiseOp::Prod)]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_ir::{Code, Tensor};

    fn of(op: &str, x: Tensor) -> Case {
        Case::of("com.microsoft", op, 1).input(x)
    }

    #[test]
    fn numbers() {
        let add = of("BiasAdd", f32s([1, 2, 2], &[1.0, 2.0, 3.0, 4.0])).constant(f32s([2], &[10.0, 20.0]));
        let add = add.input(f32s([1, 2, 2], &[0.5, 0.25, -1.0, -2.0]));
        let want = [f32s([1, 2, 2], &[11.5, 22.25, 12.0, 22.0])];
        add.gives(F32, &want);
        let open = add.clone().dynamic(0, ["N", "S", "C"]).dynamic(2, ["M", "T", "D"]);
        assert_eq!(open.equalities(), ["M = N", "T = S", "D = C", "2 = C"]);
        add.dynamic(0, ["N", "S", "2"]).dynamic(2, ["N", "S", "2"]).gives(F32, &want);
        // Gelu of 0 is 0, of 3 is 3 · Φ(3).
        let split = of("BiasSplitGelu", f32s([1, 2, 2], &[2.0, 2.0, -4.0, -1.0]));
        let split = split.constant(f32s([2], &[0.0, 1.0]));
        let want = [f32s([1, 2, 1], &[2.0 * 3.0 * 0.998_650_1, 0.0])];
        split.gives(F32, &want);
        let open = split.dynamic(0, ["N", "S", "2"]);
        assert_eq!(open.types(), ["f32[N x S x 1]"]);
        open.gives(F32, &want);
    }

    #[test]
    fn refusals() {
        let one = || f32s([1], &[1.0]);
        of("BiasAdd", one()).input(one()).input(one()).gates(i32s([1], &[1]));
        of("BiasSplitGelu", one()).input(one()).gates(i32s([1], &[1]));
        let split = |dims: [i64; 3]| {
            of("BiasSplitGelu", f32s(dims, &vec![1.0; dims.iter().product::<i64>() as usize]))
        };
        split([1, 1, 3]).constant(f32s([3], &[1.0; 3])).refused(Code::INVALID);
        split([1, 1, 2]).input(f32s([2], &[1.0; 2])).dynamic(0, ["1", "1", "D"]).refused(Code::DIM_UNKNOWN);
        split([1, 1, 1]).constant(f32s([1, 2], &[1.0; 2])).refused(Code::RANK);
    }
}

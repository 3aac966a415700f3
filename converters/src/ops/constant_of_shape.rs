//! ConstantOfShape: a tensor of one value.
//!
//! input [r] i64  ->  output [e0..er] T, filled with attribute `value` (0 f32 unless given)
//! Opsets: 9; 20, 21, 23, 24, 25 wider types.     TensorRT: IConstantLayer, ISliceLayer with strides of 0.
//! Limits: the shape constant, or computed from dims, or bounded.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check,
        extent::{self, ExtentPlan},
        shape,
    },
    emit::carrier,
};
use bytes::Bytes;
use trtc_bundle::{DType, Target, widened};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, graph::MAX_ELEMENTS};
use trtc_network::{
    Layer,
    layer::{Extent, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct ConstantOfShape;

/// The value, and dims of the result.
#[derive(Debug)]
pub struct Plan {
    dtype: DType,
    bytes: Bytes,
    rank: usize,
    size: ExtentPlan,
}

impl Converter for ConstantOfShape {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("ConstantOfShape", 25)],
        dtypes: check::CARRIED,
        layers: "IConstantLayer, ISliceLayer",
        limits: "shape constant, or computed from dims, or bounded",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let value = node.attrs().tensor("value");
        if value.is_some_and(|value| value.count() != 1) {
            return Err(Diag::invalid("must be one element").slot("value"));
        }
        let dtype = value.map_or(DType::F32, |value| value.dtype());
        let input = node.input(0);
        let to = match input.and_then(|input| input.elements()) {
            Some(list) if list.iter().any(|d| d.known().is_some_and(|d| d < 0)) => {
                return Err(Diag::invalid("a negative dim").slot("input"));
            }
            Some(list) => Some(list.to_vec()),
            None => input
                .and_then(|input| input.dim(0)?.known())
                .filter(|rank| (0..=64).contains(rank))
                .map(|rank| vec![Dim::Unknown; rank as usize]),
        };
        let element = value.filter(|v| v.dtype().is_int()).and_then(|v| v.to_i64s()?.first().copied());
        let elements = match (element, to.as_deref()) {
            (Some(v), Some([])) => Some(vec![Dim::Known(v)]),
            (Some(v), Some([Dim::Known(n)])) if (0..=MAX_ELEMENTS as i64).contains(n) => {
                Some(vec![Dim::Known(v); *n as usize])
            }
            _ => None,
        };
        Ok(vec![Inferred { ty: shape::typed(Some(dtype), to), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (dtype, bytes) = match node.attrs().tensor("value") {
            None => (DType::F32, Bytes::from_static(&[0; 4])),
            Some(value) => {
                check::dtype_gate(value.dtype(), "value", check::CARRIED, target)?;
                let bytes = value
                    .bytes()
                    .filter(|_| value.count() == 1)
                    .ok_or_else(|| Refusal::new(Code::SHAPE, "must be one number").slot("value"))?;
                let wide = widened(value.dtype(), 1, bytes);
                let wide = wide.ok_or_else(|| Refusal::new(Code::INVALID, "no number").slot("value"))?;
                (carrier(value.dtype()), wide.into())
            }
        };
        let to = node.output(0).and_then(|y| y.shape()).ok_or_else(|| {
            Refusal::new(Code::RANK_UNKNOWN, "the rank of the result is not known before the run")
                .slot("input")
        })?;
        if to.len() > 8 {
            return Err(Refusal::new(
                Code::RANK,
                format!("rank {}; TensorRT holds at most 8 dims", to.len()),
            ));
        }
        if to.contains(&Dim::Known(0)) {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        let size = extent::plan_extent(node, to, Some((0, "input")))?;
        Ok(Plan { dtype, bytes, rank: to.len(), size })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.constant(plan.dtype, vec![1; plan.rank], plan.bytes);
        if plan.rank == 0 {
            return vec![x];
        }
        let size = cx.extent(&plan.size);
        let zeros = Extent::Static(vec![0; plan.rank]);
        let mode = SampleMode::Strict;
        vec![cx.one(Layer::Slice { x, start: zeros.clone(), size, stride: zeros, mode, fill: None })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::{Attr, Tensor};

    fn of(value: Tensor, shape: Tensor) -> Case {
        Case::new("ConstantOfShape", 25).input(shape).attr("value", Attr::Tensor(value))
    }

    #[test]
    fn refusals() {
        let one = list(&[1]);
        of(f64s([1], &[1.0]), one.clone()).refused(Code::DTYPE_UNREPRESENTABLE);
        of(unheld(), one.clone()).refused(Code::DTYPE_KERNEL);
        of(bf16s([1], &[1.0]), one.clone()).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        of(noise([1]), one.clone()).unranked(0).refused(Code::RANK_UNKNOWN);
        of(noise([1]), list(&[1; 9])).refused(Code::RANK);
        of(noise([1]), one.clone()).sizes(0, ["0"]).refused(Code::SHAPE);
        of(noise([1]), one).refused(Code::SHAPE_VALUE);
    }

    #[test]
    fn types() {
        let case = of(list(&[3]), list(&[2])).sizes(0, ["2"]);
        assert_eq!(case.types(), ["i64[2] = [3, 3]"]);
        assert_eq!(of(noise([1]), list(&[2, 3])).sizes(0, ["N", "3"]).types(), ["f32[N x 3]"]);
        assert_eq!(Case::new("ConstantOfShape", 25).input(list(&[2, 3])).types(), ["f32[? x ?]"]);
        assert!(of(list(&[1, 2]), list(&[1])).invalid().contains("one element"));
        assert!(of(list(&[1]), list(&[1])).sizes(0, ["-1"]).invalid().contains("negative"));
    }

    #[test]
    fn numbers() {
        of(noise([1]), list(&[2, 3])).sizes(0, ["N", "3"]).check(Tolerance::Exact);
        of(bools([1], &[true]), list(&[4])).sizes(0, ["N"]).check(Tolerance::Exact);
        of(list(&[-7]), list(&[4])).sizes(0, ["4"]).check(Tolerance::Exact);
    }
}

//! Size: number of elements.
//!
//! data [d0..dn] T  ->  size [] i64
//! Opsets: 1; 13, 19, 21, 23, 24, 25 wider types.     TensorRT: IShapeLayer, IReduceLayer (product).
//! Limits: none.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::ReduceOp};

/// The converter.
#[derive(Debug)]
pub struct Size;

/// Whether the tensor is a scalar, of size 1.
#[derive(Debug)]
pub struct Plan(bool);

impl Converter for Size {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Size", 25)],
        dtypes: check::CARRIED,
        layers: "IShapeLayer, IReduceLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let ty = shape::typed(Some(DType::I64), Some(Vec::new()));
        let elements = node.input(0).and_then(|x| x.shape()).map(|x| vec![dims::product(x)]);
        Ok(vec![Inferred { ty, elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        Ok(Plan(check::operand(node, 0, "data", check::CARRIED, target)?.rank() == 0))
    }

    fn emit(&self, Plan(scalar): Plan, cx: &mut Emit<'_>) -> Outputs {
        if scalar {
            return vec![cx.scalar(DType::I64, 0, 1.0)];
        }
        let x = cx.input(0);
        let x = cx.one(Layer::Shape { x });
        vec![cx.one(Layer::Reduce { x, op: ReduceOp::Prod, axes: vec![0], keep_dims: false })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    #[test]
    fn refusals() {
        Case::new("Size", 25).input(f64s([1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        Case::new("Size", 25).input(unheld()).refused(Code::DTYPE_KERNEL);
        Case::new("Size", 25).input(noise([1])).untyped(0).refused(Code::DTYPE_UNKNOWN);
        Case::new("Size", 25).input(noise([1])).unranked(0).refused(Code::RANK_UNKNOWN);
        Case::new("Size", 25).input(noise([1; 9])).refused(Code::RANK);
        Case::new("Size", 25)
            .input(bf16s([1], &[1.0]))
            .target("rtx-1.7:sm75")
            .refused(Code::COMPUTE_CAPABILITY);
        Case::new("Size", 25).absent().refused(Code::INVALID);
    }

    #[test]
    fn types() {
        let case = Case::new("Size", 25).input(noise([2, 3, 4]));
        assert_eq!(case.types(), ["i64[] = [24]"]);
        assert_eq!(case.dynamic(0, ["N", "3", "N"]).types(), ["i64[] = [3*N*N]"]);
    }

    #[test]
    fn numbers() {
        Case::new("Size", 25).input(noise([2, 3, 4])).dynamic(0, ["N", "3", "M"]).check(Tolerance::Exact);
        Case::new("Size", 25).input(noise([])).check(Tolerance::Exact);
    }
}

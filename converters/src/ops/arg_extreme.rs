//! ArgMax, ArgMin: position of the largest or smallest element along an axis.
//!
//! x [d0..dn] T  ->  y [d0..dn with 1, or without the axis] i64
//! Opsets: 1; 11 negative axis; 12 select_last_index; 13 bf16.
//! TensorRT: IReduceLayer, IElementWiseLayer, ISelectLayer (TopK would leave ties in any order).
//! Limits: f32, f16, bf16, i32, i64, u8, i8; rank ≥ 1; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, first, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::ReduceOp};

/// The converter.
#[derive(Debug)]
pub struct ArgExtreme;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    op: ReduceOp,
    axis: u32,
    keep_dims: bool,
    last: bool,
}

impl Converter for ArgExtreme {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("ArgMax", 13), Key::onnx("ArgMin", 13)],
        dtypes: check::WITH_NARROW,
        layers: "IReduceLayer, IElementWiseLayer, ISelectLayer",
        limits: "",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        let Some(mut dims) = dims else { return Ok(shape::types([shape::typed(Some(DType::I64), None)])) };
        let axis = shape::axis(node.int("axis", 0), dims.len()).map_err(|diag| diag.slot("axis"))?;
        match node.int("keepdims", 1) {
            0 => {
                dims.remove(axis);
            }
            _ => dims[axis] = Dim::Known(1),
        }
        Ok(shape::types([shape::typed(Some(DType::I64), Some(dims))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "data", check::WITH_NARROW, target)?;
        check::never_empty(&x, "data")?;
        Ok(Plan {
            op: if node.op() == "ArgMax" { ReduceOp::Max } else { ReduceOp::Min },
            axis: check::axis(node.int("axis", 0), x.rank(), "axis")? as u32,
            keep_dims: node.int("keepdims", 1) != 0,
            last: node.int("select_last_index", 0) != 0,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let y = first::extreme_position(cx, x, plan.axis, plan.op, plan.last);
        vec![if plan.keep_dims { y } else { cx.one(Layer::Squeeze { x: y, axes: vec![plan.axis] }) }]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;

    #[test]
    fn numbers() {
        // Every row has its extreme twice.
        let values = [1.0, 3.0, 3.0, 1.0, -2.0, -2.0, 0.0, 0.0, 5.0, 4.0, 5.0, 4.0];
        for op in ["ArgMax", "ArgMin"] {
            for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64] {
                let case = Case::new(op, 13).input(of_dtype(dtype, [3, 4], &values));
                case.clone().int("axis", 1).check(Tolerance::Exact);
                case.clone().int("axis", -1).int("select_last_index", 1).check(Tolerance::Exact);
                let dynamic = case.dynamic(0, ["N", "M"]).int("keepdims", 0);
                dynamic.check(Tolerance::Exact);
                dynamic.int("select_last_index", 1).check(Tolerance::Exact);
            }
            Case::new(op, 13).input(u8s([3], &[1, 200, 200])).check(Tolerance::Exact);
            Case::new(op, 13).input(i8s([3], &[-1, 100, 100])).check(Tolerance::Exact);
            Case::new(op, 13).input(f32s([3], &[1.0, 2.0, 2.0])).int("keepdims", 0).check(Tolerance::Exact);
        }
    }

    #[test]
    fn types() {
        let case = Case::new("ArgMax", 13).input(f32s([2, 3], &[0.0; 6])).dynamic(0, ["N", "3"]);
        assert_eq!(case.types(), ["i64[1 x 3]"]);
        assert_eq!(case.clone().int("axis", -1).int("keepdims", 0).types(), ["i64[N]"]);
        assert_eq!(case.int("axis", 2).invalid(), "axis 2 is out of range for rank 2");
    }

    #[test]
    fn refusals() {
        for op in ["ArgMax", "ArgMin"] {
            Case::new(op, 13).input(f32s([1], &[1.0])).gates(bools([1], &[true]));
        }
    }
}

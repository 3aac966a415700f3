//! Softmax, LogSoftmax, Hardmax over one axis.
//!
//! x [d0..dn] T  ->  y [d0..dn] T
//! Opsets: 1, 11 flatten to 2-D (upgraded by the front end); 13 one axis.
//! TensorRT: ISoftMaxLayer; LogSoftmax: x − max − log Σ exp(x − max), in f32; Hardmax: the first largest element.
//! Limits: f32, f16, bf16; rank ≥ 1; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, first, floats, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::ReduceOp};

/// The converter.
#[derive(Debug)]
pub struct Softmax;

/// Which of the three.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Soft,
    Log,
    Hard,
}

/// Kind and axis.
#[derive(Debug)]
pub struct Plan {
    kind: Kind,
    axis: u32,
}

impl Converter for Softmax {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Softmax", 13), Key::onnx("LogSoftmax", 13), Key::onnx("Hardmax", 13)],
        dtypes: check::FLOATS,
        layers: "ISoftMaxLayer, IReduceLayer, IElementWiseLayer, IUnaryLayer",
        limits: "",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let ty = shape::same_as_input(node, 0);
        if let Some(dims) = ty.shape() {
            shape::axis(node.int("axis", -1), dims.len()).map_err(|diag| diag.slot("axis"))?;
        }
        Ok(shape::types([ty]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "input", check::FLOATS, target)?;
        check::never_empty(&x, "input")?;
        let axis = check::axis(node.int("axis", -1), x.rank(), "axis")? as u32;
        let kind = match node.op() {
            "Softmax" => Kind::Soft,
            "LogSoftmax" => Kind::Log,
            _ => Kind::Hard,
        };
        Ok(Plan { kind, axis })
    }

    fn emit(&self, Plan { kind, axis }: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        vec![match kind {
            Kind::Soft if cx.rank(x) == 1 => {
                let wide = cx.with_rank(x, 2);
                let y = cx.one(Layer::SoftMax { x: wide, axis: 1 });
                cx.one(Layer::Squeeze { x: y, axes: vec![0] })
            }
            Kind::Soft => cx.one(Layer::SoftMax { x, axis }),
            Kind::Log => {
                let dtype = cx.dtype(x);
                let wide = floats::widened(cx, x);
                let y = floats::log_softmax(cx, wide, axis);
                cx.cast(y, dtype)
            }
            Kind::Hard => {
                let dtype = cx.dtype(x);
                let chosen = first::is_first_extreme(cx, x, axis, ReduceOp::Max);
                cx.cast(chosen, dtype)
            }
        }]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;

    #[test]
    fn numbers() {
        let values = [1.0, 3.0, 2.0, 3.0, -60.0, 60.0, 0.5, 0.5, -1.0, 0.0, 3.0, 3.0];
        for op in ["Softmax", "LogSoftmax", "Hardmax"] {
            for dtype in [DType::F32, DType::F16, DType::Bf16] {
                let case = Case::new(op, 13).input(of_dtype(dtype, [2, 3, 2], &values));
                for axis in [-1, 0, 1, 2] {
                    case.clone().int("axis", axis).check(near(dtype));
                }
                case.clone().dynamic(0, ["N", "M", "K"]).check(near(dtype));
                let vector = Case::new(op, 13).input(of_dtype(dtype, [4], &values[..4]));
                vector.check(near(dtype));
            }
        }
    }

    #[test]
    fn types() {
        let case = Case::new("Softmax", 13).input(f32s([2], &[0.0; 2]));
        assert_eq!(case.clone().int("axis", 1).invalid(), "axis 1 is out of range for rank 1");
        assert_eq!(case.types(), ["f32[2]"]);
    }

    #[test]
    fn refusals() {
        for op in ["Softmax", "LogSoftmax", "Hardmax"] {
            Case::new(op, 13).input(f32s([1], &[1.0])).gates(i32s([1], &[1]));
        }
    }
}

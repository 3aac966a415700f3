//! Clip: min(max, max(x, min)).
//!
//! x [d0..dn] T, (min [] T), (max [] T)  ->  y [d0..dn] T
//! Opsets: 1, 6 bounds as attributes; 11 as inputs; 12 integers; 13 bf16.
//! TensorRT: IActivationLayer CLIP for constant bounds of floats; otherwise IElementWiseLayer MAX, MIN.
//! Limits: f32, f16, bf16, i32, i64, u8, i8; not empty. Either bound may be absent or known only at run time.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, elementwise, shape, small},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Tensor};
use trtc_network::layer::{ActivationKind, ElementWiseOp};

/// The converter.
#[derive(Debug)]
pub struct Clip;

/// How the bounds are applied.
#[derive(Debug)]
pub enum Plan {
    /// Constant bounds in order.
    Layer(f32, f32),
    /// By the bounds that are there, on a tensor of this rank.
    Bounds {
        /// Whether there is a lower bound.
        min: bool,
        /// Whether there is an upper bound.
        max: bool,
        /// Rank.
        rank: usize,
    },
}

impl Converter for Clip {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Clip", 13)],
        dtypes: check::WITH_NARROW,
        layers: "IActivationLayer, IElementWiseLayer",
        limits: "",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let ty = shape::same_as_input(node, 0);
        let elements = small::settled(elements(node), ty.dtype(), node.symbols());
        Ok(vec![Inferred { ty, elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "input", check::WITH_NARROW, target)?;
        let mut present = [false; 2];
        let mut values = [None; 2];
        for (k, name) in ["min", "max"].into_iter().enumerate() {
            let Some(view) = node.input(k + 1) else { continue };
            let bound = elementwise::gate(node, k + 1, name, check::WITH_NARROW, target)?;
            let one = bound.shape.iter().all(|dim| *dim == Dim::Known(1));
            if bound.dtype != x.dtype || !one {
                let why = format!("a bound must be one {}", x.dtype);
                return Err(Refusal::new(Code::INVALID, why).slot(name));
            }
            present[k] = true;
            values[k] = view.constant().and_then(Tensor::scalar_f64);
        }
        if let (true, [Some(min), Some(max)]) = (x.dtype.is_float(), values)
            && min <= max
        {
            return Ok(Plan::Layer(min as f32, max as f32));
        }
        Ok(Plan::Bounds { min: present[0], max: present[1], rank: x.rank() })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut y = cx.input(0);
        match plan {
            Plan::Layer(min, max) => y = cx.activation(y, ActivationKind::Clip, min, max),
            Plan::Bounds { min, max, rank } => {
                for (slot, there, op) in [(1, min, ElementWiseOp::Max), (2, max, ElementWiseOp::Min)] {
                    if there {
                        let bound = cx.input(slot);
                        let bound = cx.reshape(bound, vec![1; rank]);
                        y = cx.elementwise(y, bound, op);
                    }
                }
            }
        }
        vec![y]
    }
}

fn elements(node: NodeView<'_>) -> Option<Vec<Dim>> {
    let mut list = small::elements(node, 0)?;
    for (slot, f) in [(1, dims::max as fn(NodeView<'_>, &Dim, &Dim) -> Dim), (2, dims::min)] {
        if node.input(slot).is_some() {
            list = small::zip_lists(&list, &small::elements(node, slot)?, |a, b| f(node, a, b))?;
        }
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    #[test]
    fn numbers() {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64] {
            let x = Case::new("Clip", 13).input(of_dtype(dtype, [2, 3], &[-5.0, -1.0, 0.0, 1.0, 2.0, 7.0]));
            let one = |v: f64| of_dtype(dtype, [], &[v]);
            x.check(Tolerance::Exact);
            x.clone().constant(one(-1.0)).constant(one(2.0)).dynamic(0, ["N", "3"]).check(Tolerance::Exact);
            x.clone().constant(one(-1.0)).check(Tolerance::Exact);
            x.clone().absent().constant(one(2.0)).check(Tolerance::Exact);
            x.clone().input(one(-1.0)).input(one(2.0)).check(Tolerance::Exact);
            // The upper bound wins.
            x.constant(one(2.0)).constant(one(-1.0)).check(Tolerance::Exact);
        }
    }

    #[test]
    fn bytes() {
        let case = Case::new("Clip", 13).input(u8s([3], &[0, 200, 255]));
        case.constant(u8s([], &[100])).constant(u8s([], &[220])).check(Tolerance::Exact);
        let case = Case::new("Clip", 13).input(i8s([3], &[-128, 5, 127]));
        case.constant(i8s([], &[-10])).input(i8s([], &[20])).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        let case = Case::new("Clip", 13).input(i64s([2], &[0; 2])).sizes(0, ["N", "-7"]);
        assert_eq!(case.constant(i64s([], &[1])).types(), ["i64[2] = [N, 1]"]);
    }

    #[test]
    fn refusals() {
        let case = Case::new("Clip", 13).input(f32s([1], &[1.0]));
        case.gates(bools([1], &[true]));
        case.clone().constant(f32s([2], &[1.0, 2.0])).refused(Code::INVALID);
        case.constant(f16s([], &[1.0])).refused(Code::INVALID);
    }
}

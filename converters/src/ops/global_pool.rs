//! GlobalAveragePool, GlobalMaxPool, GlobalLpPool: one number for each channel.
//!
//! X [N, C, d..] T  ->  Y [N, C, 1..] T
//! Opsets: 1, 2 (GlobalLpPool: integer p); 22 bf16.     TensorRT: IReduceLayer.
//! Limits: none. f16 and bf16 are averaged in f32.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, floats, shape, window},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::ReduceOp};

/// The converter of the three.
#[derive(Debug)]
pub struct GlobalPool;

/// What is computed over the spatial axes.
#[derive(Debug)]
pub struct Plan {
    kind: Kind,
    axes: Vec<u32>,
}

#[derive(Debug)]
enum Kind {
    Average,
    Max,
    /// (Σ |x|ᵖ)^(1/p)
    Lp(i64),
}

impl Converter for GlobalPool {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::onnx("GlobalAveragePool", 22),
            Key::onnx("GlobalMaxPool", 22),
            Key::onnx("GlobalLpPool", 22),
        ],
        dtypes: check::FLOATS,
        layers: "IReduceLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let to = match node.input(0).and_then(|x| x.shape()) {
            Some(x) if x.len() < 2 => {
                return Err(Diag::invalid(format!("rank {} has no channels", x.len())).slot("X"));
            }
            Some(x) => {
                let mut to = vec![Dim::Known(1); x.len()];
                to[..2].clone_from_slice(&x[..2]);
                Some(to)
            }
            None => None,
        };
        Ok(shape::types([shape::typed(shape::dtype_of(node, 0), to)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = window::maps(node, target)?;
        let kind = match node.op() {
            "GlobalAveragePool" => Kind::Average,
            "GlobalMaxPool" => Kind::Max,
            _ => match node.int("p", 2) {
                p if p >= 1 => Kind::Lp(p),
                p => return Err(Refusal::new(Code::ATTRIBUTE, format!("a norm of order {p}")).slot("p")),
            },
        };
        Ok(Plan { kind, axes: (2..x.rank() as u32).collect() })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let dtype = cx.dtype(x);
        let axes = plan.axes;
        let keep_dims = true;
        let y = match plan.kind {
            Kind::Max => return vec![cx.one(Layer::Reduce { x, op: ReduceOp::Max, axes, keep_dims })],
            Kind::Average => {
                let x = floats::widened(cx, x);
                cx.one(Layer::Reduce { x, op: ReduceOp::Avg, axes, keep_dims })
            }
            Kind::Lp(p) => {
                let x = floats::widened(cx, x);
                floats::norm(cx, x, p, axes)
            }
        };
        vec![cx.cast(y, dtype)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    const ALL: [&str; 3] = ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"];

    #[test]
    fn refusals() {
        for op in ALL {
            refused_dtypes(|x| Case::new(op, 22).input(x(&[1, 1, 2])));
            Case::new(op, 22).input(noise([2, 3])).refused(Code::RANK);
            Case::new(op, 22).input(noise([2, 3, 4])).dynamic(0, ["2", "3", "0"]).refused(Code::SHAPE);
            Case::new(op, 22).absent().refused(Code::INVALID);
        }
        Case::new("GlobalLpPool", 22).input(noise([2, 3, 4])).int("p", 0).refused(Code::ATTRIBUTE);
    }

    #[test]
    fn numbers() {
        for op in ALL {
            let case = Case::new(op, 22).input(noise([2, 3, 4, 5])).dynamic(0, ["N", "C", "H", "5"]);
            assert_eq!(case.types(), ["f32[N x C x 1 x 1]"]);
            case.check(F32);
            Case::new(op, 22).input(noise([2, 3, 4])).check(F32);
            Case::new(op, 22).input(noise16([2, 3, 4, 2])).check(F16);
        }
        for p in [1, 3] {
            Case::new("GlobalLpPool", 22).input(noise([2, 3, 4])).int("p", p).check(F32);
        }
        assert!(Case::new(ALL[0], 22).input(noise([2])).invalid().contains("no channels"));
    }
}

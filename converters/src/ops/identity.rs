//! Identity, and Dropout at inference: the input itself; the mask is all true.
//!
//! x [d0..dn] T, (ratio [] f), (training_mode [] bool, constant false)  ->  y [d0..dn] T, (mask [d0..dn] bool)
//! Opsets: Identity 1, types widen; Dropout 7 without a mode; 12 ratio and training_mode as inputs.
//! TensorRT: none; the mask: IElementWiseLayer LESS of the input with itself, NOT.
//! Limits: f32, f16, bf16, i32, i64, bool, u8, i8; Dropout: floats, training_mode constant and false or ratio 0; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::{ElementWiseOp, UnaryOp};

/// The converter.
#[derive(Debug)]
pub struct Identity;

/// Whether the mask is wanted.
#[derive(Debug)]
pub struct Plan {
    mask: bool,
}

impl Converter for Identity {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Identity", 25), Key::onnx("Dropout", 22)],
        dtypes: check::CARRIED,
        layers: "",
        limits: "Dropout: not in training mode, unless the ratio is 0",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::NOT_CONSTANT,
            Code::CONSTANT_VALUE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let ty = shape::same_as_input(node, 0);
        let elements = node.input(0).and_then(|view| view.elements()).map(<[Dim]>::to_vec);
        let mask = shape::typed(Some(DType::Bool), ty.shape().map(<[Dim]>::to_vec));
        Ok(match node.op() {
            "Dropout" => vec![Inferred { ty, elements }, Inferred::from(mask)],
            _ => vec![Inferred { ty, elements }],
        })
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        if node.op() != "Dropout" {
            elementwise::gate(node, 0, "input", check::CARRIED, target)?;
            return Ok(Plan { mask: false });
        }
        elementwise::gate(node, 0, "data", check::FLOATS, target)?;
        // With a ratio of 0 training drops nothing and scales by 1.
        let ratio = node.input(1).and_then(|ratio| ratio.constant()?.to_f64s());
        if node.input(2).is_some() && ratio.as_deref() != Some(&[0.0]) {
            let Some(mode) = node.input(2).and_then(|mode| mode.const_i64s()) else {
                let why = "only the run knows whether it trains: then it drops elements at random";
                return Err(Refusal::new(Code::NOT_CONSTANT, why)
                    .slot("training_mode")
                    .help("export the model for inference"));
            };
            if mode != [0] {
                let why = "drops elements at random";
                return Err(Refusal::new(Code::CONSTANT_VALUE, why).slot("training_mode"));
            }
        }
        Ok(Plan { mask: node.output(1).is_some() })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        if !plan.mask {
            return vec![x];
        }
        let never = cx.elementwise(x, x, ElementWiseOp::Less);
        vec![x, cx.unary(never, UnaryOp::Not)]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_ir::Code;

    #[test]
    fn numbers() {
        for &dtype in crate::ctx::check::CARRIED {
            let x = of_dtype(dtype, [2, 2], &[0.0, 1.0, 2.0, 3.0]);
            let case = Case::new("Identity", 25).input(x.clone());
            case.gives(Tolerance::Exact, std::slice::from_ref(&x));
            case.dynamic(0, ["N", "2"]).gives(Tolerance::Exact, &[x]);
        }
        let case =
            Case::new("Dropout", 22).input(f32s([3], &[0.0, f32::NAN, 2.0])).constant(f32s([], &[0.5]));
        case.clone().outputs(2).check(Tolerance::Exact);
        case.constant(bools([], &[false])).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        let case = Case::new("Identity", 25).input(i64s([2], &[0; 2])).sizes(0, ["N", "3"]);
        assert_eq!(case.types(), ["i64[2] = [N, 3]"]);
        let dropout = Case::new("Dropout", 22).input(f16s([2], &[0.0; 2])).outputs(2);
        assert_eq!(dropout.types(), ["f16[2]", "bool[2]"]);
    }

    #[test]
    fn refusals() {
        Case::new("Identity", 25).input(f32s([1], &[1.0])).gates(unheld());
        let dropout = Case::new("Dropout", 22).input(f32s([1], &[1.0]));
        dropout.gates(i32s([1], &[1]));
        let moded = dropout.absent();
        moded.clone().input(bools([], &[false])).refused(Code::NOT_CONSTANT);
        let kept = Case::new("Dropout", 22).input(f32s([2], &[1.0, -0.0])).constant(f32s([], &[0.0]));
        kept.input(bools([], &[true])).outputs(2).check(Tolerance::Exact);
        moded.constant(bools([], &[true])).refused(Code::CONSTANT_VALUE);
    }
}

//! NonZero: where a tensor is not zero.
//!
//! X [d0..dn] T  ->  Y [n+1, count] i64
//! Opsets: 9; 13 wider types.     TensorRT: INonZeroLayer.
//! Limits: TensorRT only: the TensorRT-RTX builder has no runner for it.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, shape},
};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, Interval, NodeView, Refusal};
use trtc_network::Layer;

/// The converter.
#[derive(Debug)]
pub struct NonZero;

/// Nothing is left to decide.
#[derive(Debug)]
pub struct Plan;

impl Converter for NonZero {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("NonZero", 13)],
        dtypes: check::CARRIED,
        layers: "INonZeroLayer",
        limits: "not TensorRT-RTX, whose builder has no runner for it",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::PRODUCT,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let x = node.input(0).and_then(|x| x.shape());
        let most = x.and_then(|x| node.symbols().interval(&dims::product(x)).max);
        let count = cx.unbacked("count", Interval { min: Some(0), max: most });
        // A scalar counts as a tensor of one dim.
        let rank = x.map_or(Dim::Unknown, |x| Dim::Known(x.len().max(1) as i64));
        Ok(shape::types([shape::typed(Some(DType::I64), Some(vec![rank, count]))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        if target.product() == Product::Rtx {
            let why = "the TensorRT-RTX builder has no runner for NonZero";
            return Err(Refusal::new(Code::PRODUCT, why).help("compile for tensorrt-11.3, which has one"));
        }
        let x = check::operand(node, 0, "X", check::CARRIED, target)?;
        check::never_empty(&x, "X")?;
        if x.rank() == 0 {
            return Err(Refusal::new(Code::RANK, "a scalar has no indices").slot("X"));
        }
        Ok(Plan)
    }

    fn emit(&self, _: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        vec![cx.one(Layer::NonZero { x, to: DType::I64 })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    const TENSORRT: &str = "tensorrt-11.3:sm75";

    #[test]
    fn refusals() {
        Case::new("NonZero", 13).input(noise([2])).refused(Code::PRODUCT);
        let case = |x| Case::new("NonZero", 13).input(x).target(TENSORRT);
        case(f64s([1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        case(unheld()).refused(Code::DTYPE_KERNEL);
        case(bf16s([1], &[1.0])).refused(Code::COMPUTE_CAPABILITY);
        case(noise([1])).untyped(0).refused(Code::DTYPE_UNKNOWN);
        case(noise([1])).unranked(0).refused(Code::RANK_UNKNOWN);
        case(noise([])).refused(Code::RANK);
        case(noise([1])).dynamic(0, ["0"]).refused(Code::SHAPE);
        Case::new("NonZero", 13).absent().target(TENSORRT).refused(Code::INVALID);
    }

    #[test]
    fn layers() {
        let case = Case::new("NonZero", 13).input(noise([2, 3])).dynamic(0, ["N", "3"]).target(TENSORRT);
        assert_eq!(case.types(), ["i64[2 x node.count]"]);
        assert_eq!(case.layers(), ["NonZero"]);
    }
}

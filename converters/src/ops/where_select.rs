//! Where: elements of one input or the other, with broadcasting.
//!
//! condition [..] bool, x [..] T, y [..] T  ->  z [broadcast] T
//! Opsets: 9; 16 bf16.     TensorRT: ISelectLayer.
//! Limits: f32, f16, bf16, i32, i64, u8, i8, bool; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, small},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::Layer;

/// The converter.
#[derive(Debug)]
pub struct Where;

/// Rank of the result.
#[derive(Debug)]
pub struct Plan(usize);

impl Converter for Where {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Where", 16)],
        dtypes: check::CARRIED,
        layers: "ISelectLayer",
        limits: "",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        if let Some(dtype) = node.input(0).and_then(|view| view.dtype())
            && dtype != DType::Bool
        {
            return Err(Diag::invalid(format!("a condition of {dtype}")).slot("condition"));
        }
        let values = elementwise::broadcast(node, &[1, 2], None, cx)?;
        let shape = elementwise::broadcast_shape(node, &[0, 1, 2], cx)?;
        let elements = small::settled(elements(node), values.dtype(), node.symbols());
        Ok(vec![Inferred { ty: crate::ctx::shape::typed(values.dtype(), shape), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let condition = elementwise::gate(node, 0, "condition", &[DType::Bool], target)?;
        let x = elementwise::gate(node, 1, "X", check::CARRIED, target)?;
        let y = elementwise::gate(node, 2, "Y", check::CARRIED, target)?;
        if x.dtype != y.dtype {
            return Err(Refusal::new(Code::INVALID, format!("{} beside {}", y.dtype, x.dtype)).slot("Y"));
        }
        Ok(Plan(condition.rank().max(x.rank()).max(y.rank())))
    }

    fn emit(&self, Plan(rank): Plan, cx: &mut Emit<'_>) -> Outputs {
        let [condition, then_input, else_input] = [0, 1, 2].map(|slot| elementwise::input(cx, slot, rank));
        vec![cx.one(Layer::Select { condition, then_input, else_input })]
    }
}

fn elements(node: NodeView<'_>) -> Option<Vec<Dim>> {
    let (x, y) = (small::elements(node, 1)?, small::elements(node, 2)?);
    let pick = |list: &[Dim], k: usize| list.get(if list.len() == 1 { 0 } else { k }).cloned();
    let condition = small::elements(node, 0)?;
    let n = [condition.len(), x.len(), y.len()].into_iter().find(|&n| n != 1).unwrap_or(1);
    (0..n)
        .map(|k| {
            let (x, y) = (pick(&x, k)?, pick(&y, k)?);
            Some(match pick(&condition, k)? {
                Dim::Known(0) => y,
                Dim::Known(_) => x,
                _ if x == y => x,
                _ => Dim::Unknown,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    fn case(dtype: DType) -> Case {
        Case::new("Where", 16)
            .input(bools([2, 1], &[true, false]))
            .input(of_dtype(dtype, [2, 3], &[1.0, 0.0, 3.0, 0.0, 5.0, 6.0]))
            .input(of_dtype(dtype, [3], &[0.0, 1.0, -1.0]))
    }

    #[test]
    fn numbers() {
        // ONNX Runtime has no Where of bool: condition 1 takes the first row of x, 0 takes y.
        case(DType::Bool).gives(Tolerance::Exact, &[bools([2, 3], &[true, false, true, false, true, true])]);
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64, DType::U8, DType::I8] {
            case(dtype).check(Tolerance::Exact);
            case(dtype).dynamic(0, ["N", "1"]).dynamic(1, ["N", "3"]).check(Tolerance::Exact);
        }
    }

    #[test]
    fn types() {
        let case = Case::new("Where", 16).input(bools([3], &[true; 3])).sizes(0, ["0", "1", "?"]);
        let case = case.input(i64s([3], &[0; 3])).sizes(1, ["N", "M", "7"]);
        assert_eq!(case.constant(i64s([1], &[7])).types(), ["i64[3] = [7, M, 7]"]);
        let bad = Case::new("Where", 16).input(f32s([1], &[1.0])).input(f32s([1], &[1.0]));
        assert_eq!(bad.invalid(), "a condition of f32");
    }

    #[test]
    fn refusals() {
        let bit = || Case::new("Where", 16).input(bools([1], &[true]));
        let x = || f32s([1], &[1.0]);
        bit().input(f64s([1], &[1.0])).input(f64s([1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        bit().input(unheld()).input(unheld()).refused(Code::DTYPE_KERNEL);
        bit().input(x()).untyped(1).input(x()).refused(Code::DTYPE_UNKNOWN);
        bit().input(x()).input(x()).unranked(2).refused(Code::RANK_UNKNOWN);
        bit().input(x()).input(x()).dynamic(0, ["1"; 9]).refused(Code::RANK);
        bit().input(x()).input(x()).dynamic(2, ["0"]).refused(Code::SHAPE);
        let bf16 = || bf16s([1], &[1.0]);
        bit().input(bf16()).input(bf16()).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        bit().input(x()).refused(Code::INVALID);
    }
}

//! Trilu and EyeLike: what lies on one side of a diagonal, or on it.
//!
//! Trilu: input [.., r, c] T, k [] i64 -> output [.., r, c] T       EyeLike: input [r, c] T1 -> output [r, c] T2
//! Opsets: Trilu 14; EyeLike 9, 22 wider types.     TensorRT: IElementWiseLayer (greater, less, equal), ISelectLayer.
//! Limits: none.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check,
        extent::{self, DimPlan},
        iota, shape,
    },
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, TensorId, layer::ElementWiseOp};

/// Trilu.
#[derive(Debug)]
pub struct Trilu;

/// EyeLike.
#[derive(Debug)]
pub struct EyeLike;

/// Rows, columns, and what is kept.
#[derive(Debug)]
pub struct Plan {
    rows: DimPlan,
    columns: DimPlan,
    rank: usize,
    upper: bool,
}

/// Diagonal of an identity.
#[derive(Debug)]
pub struct EyePlan {
    rows: DimPlan,
    columns: DimPlan,
    k: i64,
    dtype: DType,
}

/// column − row, over [1.., r, c] of i64.
fn distance(cx: &mut Emit<'_>, rows: &DimPlan, columns: &DimPlan, rank: usize) -> TensorId {
    let rows = iota::along(cx, rows, rank - 2, rank);
    let columns = iota::along(cx, columns, rank - 1, rank);
    cx.elementwise(columns, rows, ElementWiseOp::Sub)
}

impl Converter for Trilu {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Trilu", 14)],
        dtypes: check::CARRIED,
        layers: "IElementWiseLayer, ISelectLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        if let Some(rank) = node.input(0).and_then(|x| x.rank()).filter(|&rank| rank < 2) {
            return Err(Diag::invalid(format!("rank {rank} has no matrices")).slot("input"));
        }
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::CARRIED, target)?;
        check::not_empty(&x, "input")?;
        let rank = x.rank();
        if rank < 2 {
            return Err(Refusal::new(Code::INVALID, format!("rank {rank} has no matrices")).slot("input"));
        }
        if node.input(1).is_some() {
            let k = check::operand(node, 1, "k", &[DType::I64], target)?;
            if k.shape.iter().any(|dim| dim.known() != Some(1)) {
                return Err(Refusal::new(Code::SHAPE, "must be one element").slot("k"));
            }
        }
        let (rows, columns) = (extent::own_dim(node, 0, rank - 2), extent::own_dim(node, 0, rank - 1));
        Ok(Plan { rows, columns, rank, upper: node.int("upper", 1) != 0 })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let rank = plan.rank;
        let distance = distance(cx, &plan.rows, &plan.columns, rank);
        let k = match cx.optional(1) {
            Some(k) => cx.reshape(k, vec![1; rank]),
            None => cx.scalar(DType::I64, rank, 0.0),
        };
        // Upper keeps distance ≥ k, lower distance ≤ k: what is dropped is the strict comparison.
        let op = if plan.upper { ElementWiseOp::Less } else { ElementWiseOp::Greater };
        let condition = cx.elementwise(distance, k, op);
        let dtype = cx.dtype(x);
        let then_input = cx.scalar(dtype, rank, 0.0);
        vec![cx.one(Layer::Select { condition, then_input, else_input: x })]
    }
}

impl Converter for EyeLike {
    type Plan = EyePlan;

    const DEF: Def = Def {
        keys: &[Key::onnx("EyeLike", 22)],
        dtypes: check::CARRIED,
        layers: "IElementWiseLayer, ISelectLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let shape = node.input(0).and_then(|x| x.shape());
        if let Some(shape) = shape.filter(|shape| shape.len() != 2) {
            return Err(Diag::invalid(format!("rank {}, not 2", shape.len())).slot("input"));
        }
        Ok(shape::types([shape::typed(eye_dtype(node), shape.map(<[_]>::to_vec))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<EyePlan, Refusal> {
        let x = check::operand(node, 0, "input", check::CARRIED, target)?;
        check::not_empty(&x, "input")?;
        if x.rank() != 2 {
            return Err(Refusal::new(Code::RANK, format!("rank {}, not 2", x.rank())).slot("input"));
        }
        let dtype = eye_dtype(node)
            .ok_or_else(|| Refusal::new(Code::DTYPE_UNKNOWN, "no such dtype").slot("dtype"))?;
        check::dtype_gate(dtype, "dtype", check::CARRIED, target)?;
        let (rows, columns) = (extent::own_dim(node, 0, 0), extent::own_dim(node, 0, 1));
        Ok(EyePlan { rows, columns, k: node.int("k", 0), dtype })
    }

    fn emit(&self, plan: EyePlan, cx: &mut Emit<'_>) -> Outputs {
        let distance = distance(cx, &plan.rows, &plan.columns, 2);
        let k = cx.i64s(&[plan.k]);
        let k = cx.with_rank(k, 2);
        let condition = cx.elementwise(distance, k, ElementWiseOp::Equal);
        let dtype = carrier(plan.dtype);
        let (one, zero) = (cx.scalar(dtype, 2, 1.0), cx.scalar(dtype, 2, 0.0));
        vec![cx.one(Layer::Select { condition, then_input: one, else_input: zero })]
    }
}

fn eye_dtype(node: NodeView<'_>) -> Option<DType> {
    match node.attrs().int("dtype") {
        Some(number) => DType::from_onnx(i32::try_from(number).ok()?),
        None => shape::dtype_of(node, 0),
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn trilu(upper: i64) -> Case {
        Case::new("Trilu", 14).input(noise([2, 4, 3])).int("upper", upper)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("Trilu", 14).input(x(&[2, 2])));
        Case::new("Trilu", 14).input(noise([1; 9])).refused(Code::RANK);
        trilu(1).constant(list(&[1, 2])).refused(Code::SHAPE);
        Case::new("Trilu", 14).absent().refused(Code::INVALID);
        refused_dtypes(|x| Case::new("EyeLike", 22).input(x(&[2, 2])));
        Case::new("EyeLike", 22).absent().refused(Code::INVALID);
        let eye = Case::new("EyeLike", 22).input(noise([2, 2]));
        eye.clone().int("dtype", 99).refused(Code::DTYPE_UNKNOWN);
        eye.dynamic(0, ["0", "2"]).refused(Code::SHAPE);
    }

    #[test]
    fn types() {
        assert_eq!(trilu(1).dynamic(0, ["N", "?", "3"]).types(), ["f32[N x ? x 3]"]);
        assert!(Case::new("Trilu", 14).input(noise([2])).invalid().contains("no matrices"));
        let eye = Case::new("EyeLike", 22).input(noise([2, 3])).dynamic(0, ["N", "3"]);
        assert_eq!(eye.types(), ["f32[N x 3]"]);
        assert_eq!(eye.int("dtype", 7).types(), ["i64[N x 3]"]);
        assert!(Case::new("EyeLike", 22).input(noise([2])).invalid().contains("not 2"));
    }

    #[test]
    fn triangles() {
        for upper in [0, 1] {
            for k in [-5, -1, 0, 2, 5] {
                trilu(upper).constant(i64s([], &[k])).check(Tolerance::Exact);
            }
            trilu(upper).check(Tolerance::Exact);
            trilu(upper).input(list(&[1])).dynamic(0, ["N", "R", "C"]).check(Tolerance::Exact);
            let whole = Case::new("Trilu", 14).input(counting([3, 3])).int("upper", upper);
            whole.check(Tolerance::Exact);
            let bool = Case::new("Trilu", 14).input(bools([3, 3], &[true; 9])).int("upper", upper);
            bool.check(Tolerance::Exact);
        }
    }

    #[test]
    fn identities() {
        for k in [-1, 0, 2] {
            Case::new("EyeLike", 22).input(noise([4, 3])).int("k", k).check(Tolerance::Exact);
        }
        let open = Case::new("EyeLike", 22).input(noise([4, 3])).dynamic(0, ["N", "M"]);
        open.int("dtype", 7).check(Tolerance::Exact);
    }
}

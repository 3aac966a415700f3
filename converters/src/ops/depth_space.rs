//! DepthToSpace and SpaceToDepth: blocks of pixels to channels, and back.
//!
//! DepthToSpace: [n, c, h, w] T -> [n, c/b², h·b, w·b] T        SpaceToDepth: [n, c, h, w] T -> [n, c·b², h/b, w/b] T
//! Opsets: 1; 11 mode (DepthToSpace), 13 types; 28 types, mode (SpaceToDepth).     TensorRT: IShuffleLayer.
//! Limits: channels known (DepthToSpace); no dim may be 0.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check,
        extent::{self, DimPlan, SizeOp},
        reshape::{self, ReshapePlan},
        shape,
    },
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};

/// The converter of both.
#[derive(Debug)]
pub struct DepthSpace;

/// Split, permute, join.
#[derive(Debug)]
pub struct Plan {
    split: ReshapePlan,
    order: Vec<u32>,
    join: ReshapePlan,
}

fn block(node: NodeView<'_>) -> Result<i64, Diag> {
    match node.attrs().int("blocksize") {
        Some(b) if (1..1 << 15).contains(&b) => Ok(b),
        Some(b) => Err(Diag::invalid(format!("blocks of {b}")).slot("blocksize")),
        None => Err(Diag::invalid("the attribute is missing").slot("blocksize")),
    }
}

/// Blocks come first among the channels (DCR), not last (CRD).
fn blocks_first(node: NodeView<'_>) -> Result<bool, Diag> {
    match node.str("mode", "DCR") {
        "DCR" => Ok(true),
        "CRD" => Ok(false),
        other => Err(Diag::invalid(format!("`{other}` is no mode")).slot("mode")),
    }
}

impl Converter for DepthSpace {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("DepthToSpace", 28), Key::onnx("SpaceToDepth", 28)],
        dtypes: check::CARRIED,
        layers: "IShuffleLayer",
        limits: "no dim may be 0",
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

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let b = Dim::Known(block(node)?);
        blocks_first(node)?;
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, Some(vec![Dim::Unknown; 4]))]));
        };
        let [n, c, h, w] = x else {
            return Err(Diag::invalid(format!("rank {}, not 4", x.len())).slot("input"));
        };
        let mut divided = |dim: &Dim, by: &Dim| -> Result<Dim, Diag> {
            let quotient = dim.floor_div(by);
            if let (Dim::Known(d), Dim::Known(b)) = (dim, by)
                && d % b != 0
            {
                return Err(Diag::invalid(format!("{d} is no multiple of {b}")).slot("blocksize"));
            }
            if quotient.mul(by) != *dim && *dim != Dim::Unknown {
                cx.require(ConstraintKind::Equal(quotient.mul(by), dim.clone()));
            }
            Ok(quotient)
        };
        let square = b.mul(&b);
        let to = match node.op() {
            "DepthToSpace" => vec![n.clone(), divided(c, &square)?, h.mul(&b), w.mul(&b)],
            _ => vec![n.clone(), c.mul(&square), divided(h, &b)?, divided(w, &b)?],
        };
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::CARRIED, target)?;
        check::never_empty(&x, "input")?;
        if x.rank() != 4 {
            return Err(Refusal::new(Code::RANK, format!("rank {}, not 4", x.rank())).slot("input"));
        }
        let b = block(node).map_err(crate::ctx::window::refused)?;
        let blocks_first = blocks_first(node).map_err(crate::ctx::window::refused)?;
        let [n, c, h, w] = [0, 1, 2, 3].map(|axis| extent::own_dim(node, 0, axis));
        let block = DimPlan::Fixed(b);
        let divided = |dim: &DimPlan, by: i64| match dim.fixed() {
            Some(d) => DimPlan::Fixed(d / by),
            None => DimPlan::Op(SizeOp::FloorDiv, Box::new(dim.clone()), Box::new(DimPlan::Fixed(by))),
        };
        let (split, order, join) = if node.op() == "DepthToSpace" {
            let rest = divided(&c, b * b);
            let join =
                vec![n.clone(), rest.clone(), h.clone().times(block.clone()), w.clone().times(block.clone())];
            match blocks_first {
                true => (vec![n, block.clone(), block, rest, h, w], vec![0, 3, 4, 1, 5, 2], join),
                false => (vec![n, rest, block.clone(), block, h, w], vec![0, 1, 4, 2, 5, 3], join),
            }
        } else {
            let (rows, columns) = (divided(&h, b), divided(&w, b));
            let all = c.clone().times(DimPlan::Fixed(b * b));
            let split = vec![n.clone(), c, rows.clone(), block.clone(), columns.clone(), block];
            let order = if blocks_first { vec![0, 3, 5, 1, 2, 4] } else { vec![0, 1, 3, 5, 2, 4] };
            (split, order, vec![n, all, rows, columns])
        };
        Ok(Plan { split: reshape::of_dims(split), order, join: reshape::of_dims(join) })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let x = reshape::emit(cx, x, &plan.split);
        let x = cx.transpose(x, plan.order);
        vec![reshape::emit(cx, x, &plan.join)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn case(op: &str, dims: [i64; 4]) -> Case {
        Case::new(op, 28).input(noise(dims)).int("blocksize", 2)
    }

    const BOTH: [&str; 2] = ["DepthToSpace", "SpaceToDepth"];

    #[test]
    fn refusals() {
        for op in BOTH {
            refused_dtypes(|x| Case::new(op, 28).input(x(&[1, 4, 2, 2])).int("blocksize", 2));
            case(op, [1, 4, 2, 2]).dynamic(0, ["0", "4", "2", "2"]).refused(Code::SHAPE);
            Case::new(op, 28).absent().int("blocksize", 2).refused(Code::INVALID);
        }
        let _ = Code::RANK;
    }

    #[test]
    fn types() {
        let deep = case(BOTH[0], [1, 8, 3, 4]).dynamic(0, ["N", "8", "H", "W"]);
        assert_eq!(deep.types(), ["f32[N x 2 x 2*H x 2*W]"]);
        let wide = case(BOTH[1], [1, 2, 6, 4]).dynamic(0, ["N", "2", "H", "4"]);
        assert_eq!(wide.types(), ["f32[N x 8 x floordiv(H, 2) x 2]"]);
        assert!(case(BOTH[0], [1, 6, 2, 2]).invalid().contains("no multiple"));
        assert!(Case::new(BOTH[0], 28).input(noise([1])).invalid().contains("missing"));
        assert!(case(BOTH[0], [1, 4, 2, 2]).int("blocksize", 0).invalid().contains("blocks of 0"));
        assert!(case(BOTH[0], [1, 4, 2, 2]).str("mode", "ABC").invalid().contains("ABC"));
    }

    #[test]
    fn numbers() {
        for mode in ["DCR", "CRD"] {
            case(BOTH[0], [2, 8, 3, 2]).str("mode", mode).check(Tolerance::Exact);
            let open = case(BOTH[0], [2, 8, 3, 2]).str("mode", mode).dynamic(0, ["N", "8", "H", "W"]);
            open.check(Tolerance::Exact);
        }
        case(BOTH[1], [2, 3, 4, 6]).check(Tolerance::Exact);
        case(BOTH[1], [2, 3, 4, 6]).dynamic(0, ["N", "C", "4", "6"]).check(Tolerance::Exact);
    }

    /// The schema's own formula, by hand: channels are ordered c, row, column.
    #[test]
    fn space_to_depth_by_columns() {
        let x = f32s([1, 2, 2, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let y = f32s([1, 8, 1, 1], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let case = Case::new(BOTH[1], 28).input(x).int("blocksize", 2).str("mode", "CRD");
        case.gives(Tolerance::Exact, &[y]);
    }
}

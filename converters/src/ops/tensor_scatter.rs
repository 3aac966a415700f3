//! TensorScatter: new keys or values written into a cache, at a place of their own in each row of the batch.
//!
//! past_cache [n, .., m, ..] T, update [n, .., s, ..] T, (write_indices [n] i64)  ->  present_cache [n, .., m, ..] T
//! Opsets: 24.     TensorRT: IScatterLayer (ND mode).
//! Limits: no dim is 0 at run time.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check,
        extent::{self, DimPlan},
        iota, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, ScatterMode},
};

/// The converter.
#[derive(Debug)]
pub struct TensorScatter;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    axis: usize,
    rank: usize,
    batch: DimPlan,
    written: DimPlan,
    /// Length of the cache, where places wrap around.
    around: Option<DimPlan>,
}

impl Converter for TensorScatter {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("TensorScatter", 24)],
        dtypes: check::CARRIED,
        layers: "IScatterLayer, IElementWiseLayer",
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

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        if let Some(batch) = node.input(0).and_then(|past| past.dim(0)) {
            shape::demand(node, (2, 0), batch, cx)?;
        }
        if let Some(past) = node.input(0).and_then(|past| past.shape()) {
            let axis = shape::axis(node.int("axis", -2), past.len()).map_err(|diag| diag.slot("axis"))?;
            for (k, dim) in past.iter().enumerate() {
                // Known ones are compared by the plan.
                let known =
                    node.input(1).and_then(|update| update.dim(k)).and_then(Dim::known).and(dim.known());
                if k != axis && known.is_none() {
                    shape::demand(node, (1, k), dim, cx)?;
                }
            }
        }
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let past = check::operand(node, 0, "past_cache", check::CARRIED, target)?;
        check::never_empty(&past, "past_cache")?;
        let update = check::operand(node, 1, "update", &[past.dtype], target)?;
        check::never_empty(&update, "update")?;
        let axis = check::axis(node.int("axis", -2), past.rank(), "axis")?;
        if axis == 0 {
            return Err(Refusal::new(Code::INVALID, "the axis of the batch").slot("axis"));
        }
        if update.rank() != past.rank() {
            let why = format!("rank {} for a cache of rank {}", update.rank(), past.rank());
            return Err(Refusal::new(Code::INVALID, why).slot("update"));
        }
        for (k, pair) in past.shape.iter().zip(update.shape).enumerate() {
            if let (Dim::Known(a), Dim::Known(b)) = pair
                && (k == axis && b > a || k != axis && a != b)
            {
                let why = format!("axis {k} has size {b}, in the cache {a}");
                return Err(Refusal::new(Code::INVALID, why).slot("update"));
            }
        }
        if node.input(2).is_some() {
            let at = check::operand(node, 2, "write_indices", &[DType::I64], target)?;
            if at.rank() != 1 {
                return Err(Refusal::new(Code::INVALID, "no list").slot("write_indices"));
            }
        }
        let around = match node.str("mode", "linear") {
            "linear" => None,
            "circular" => Some(extent::own_dim(node, 0, axis)),
            other => {
                return Err(Refusal::new(Code::INVALID, format!("there is no mode `{other}`")).slot("mode"));
            }
        };
        let (batch, written) = (extent::own_dim(node, 0, 0), extent::own_dim(node, 1, axis));
        Ok(Plan { axis, rank: past.rank(), batch, written, around })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        // Tuples (row of the batch, place) name slices once the axis stands second.
        let mut order: Vec<u32> = (0..plan.rank as u32).collect();
        order[1..=plan.axis].rotate_right(1);
        let mut back: Vec<u32> = (0..plan.rank as u32).collect();
        back[1..=plan.axis].rotate_left(1);
        let [data, updates] = [0, 1].map(|slot| {
            let x = cx.input(slot);
            cx.transpose(x, order.clone())
        });
        let row = iota::along(cx, &plan.batch, 0, 3);
        let mut place = iota::along(cx, &plan.written, 1, 3);
        if let Some(first) = cx.optional(2) {
            let first = cx.reshape(first, vec![-1, 1, 1]);
            place = cx.elementwise(place, first, ElementWiseOp::Sum);
        }
        if let Some(length) = &plan.around {
            let length = cx.dim(length);
            let length = cx.with_rank(length, 3);
            let rounds = cx.elementwise(place, length, ElementWiseOp::FloorDiv);
            let whole = cx.elementwise(rounds, length, ElementWiseOp::Prod);
            place = cx.elementwise(place, whole, ElementWiseOp::Sub);
        }
        let zero = cx.scalar(DType::I64, 3, 0.0);
        let mut xs = Vec::new();
        for (x, other) in [(row, place), (place, row)] {
            let nothing = cx.elementwise(other, zero, ElementWiseOp::Prod);
            xs.push(cx.elementwise(x, nothing, ElementWiseOp::Sum));
        }
        let indices = cx.one(Layer::Concatenation { xs, axis: 2 });
        let y = cx.one(Layer::Scatter { data, indices, updates, mode: ScatterMode::Nd, axis: 0 });
        vec![cx.transpose(y, back)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    fn of(past: Tensor, update: Tensor) -> Case {
        Case::new("TensorScatter", 24).input(past).input(update)
    }

    #[test]
    fn numbers() {
        let case = of(noise([2, 3, 5, 4]), noise([2, 3, 2, 4]));
        case.check(Tolerance::Exact);
        let placed = case.clone().input(i64s([2], &[3, 1]));
        placed.check(Tolerance::Exact);
        placed.clone().str("mode", "circular").check(Tolerance::Exact);
        case.input(i64s([2], &[4, 3])).str("mode", "circular").check(Tolerance::Exact);
        let open = placed.dynamic(0, ["N", "3", "M", "4"]).dynamic(1, ["N", "3", "2", "4"]).dynamic(2, ["N"]);
        open.check(Tolerance::Exact);
        let apart = open.dynamic(0, ["N", "H", "M", "D"]).dynamic(1, ["A", "B", "2", "C"]).dynamic(2, ["N"]);
        assert_eq!(apart.equalities(), ["A = N", "B = H", "C = D"]);
        let last = of(noise([2, 3, 5]), noise([2, 3, 2])).int("axis", 2).input(i64s([2], &[3, 0]));
        last.check(Tolerance::Exact);
        let second = of(noise([2, 5, 3]), noise([2, 2, 3])).int("axis", 1).input(i64s([2], &[3, 0]));
        second.check(Tolerance::Exact);
        for dtype in [DType::F16, DType::I64, DType::Bool, DType::U8] {
            let past = of_dtype(dtype, [1, 4, 1], &[1.0, 0.0, 1.0, 1.0]);
            let update = of_dtype(dtype, [1, 2, 1], &[0.0, 1.0]);
            of(past, update).input(i64s([1], &[2])).check(Tolerance::Exact);
        }
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| of(x(&[1, 2, 1]), x(&[1, 1, 1])));
        of(noise([1, 2, 1]), noise([1, 3, 1])).refused(Code::INVALID);
        of(noise([2, 2, 1]), noise([1, 2, 1])).refused(Code::INVALID);
        of(noise([2, 2, 1]), noise([2, 1])).refused(Code::INVALID);
        of(noise([2, 2, 1]), noise([2, 1, 1])).int("axis", 0).refused(Code::INVALID);
        of(noise([2, 2, 1]), noise([2, 1, 1])).str("mode", "square").refused(Code::INVALID);
        of(noise([2, 2, 1]), noise([2, 1, 1])).input(i64s([2, 1], &[0, 0])).refused(Code::INVALID);
        of(noise([2, 2, 1]), noise([2, 1, 1])).dynamic(0, ["2", "0", "1"]).refused(Code::SHAPE);
        let high = noise([1; 9]);
        of(high.clone(), high).refused(Code::RANK);
    }
}

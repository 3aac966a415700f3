//! ScatterElements: replace single elements along one axis, or combine with them.
//!
//! data [d0..dn] T, indices [q0..qn] i32|i64, updates [q0..qn] T  ->  output [d0..dn] T
//! Opsets: 11; 13 wider types; 16 add, mul; 18 max, min.     TensorRT: IScatterLayer (element mode); a reduction is made of
//! IMatrixMultiplyLayer (sums of floats over whole rows), or ISelectLayer and IReduceLayer.
//! Limits: a reduction needs bounded dims, and indices as long as the data along other axes.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, extent, indices, reshape, scatter, shape},
};
use trtc_bundle::{Product, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::ScatterMode};

/// The converter.
#[derive(Debug)]
pub struct ScatterElements;

/// Axis, how the indices become non-negative, and the reduction.
#[derive(Debug)]
pub struct Plan {
    axis: usize,
    indices: indices::IndexPlan,
    combine: Option<(scatter::CombinePlan, bool, reshape::ReshapePlan)>,
}

/// Whether the indices differ along `axis` only: one axis, a constant, or an Expand of such.
fn differ_along_axis_only(node: NodeView<'_>, axis: usize) -> bool {
    let Some(view) = node.input(1) else { return false };
    let Some(rank) = view.rank() else { return false };
    if rank == 1 {
        return true;
    }
    let ones = |shape: &[Dim]| {
        let offset = rank - shape.len().min(rank);
        shape.len() <= rank && (0..shape.len()).all(|k| k + offset == axis || shape[k] == Dim::Known(1))
    };
    let expanded = || {
        let (producer, _) = view.value().producer()?;
        let producer = NodeView::new(node.graph(), node.symbols(), producer);
        (producer.op() == "Expand" && producer.domain().is_empty()).then_some(())?;
        Some(ones(producer.input(0)?.shape()?))
    };
    let constant = || {
        let tensor = view.constant()?;
        let values = tensor.to_i64s()?;
        let inner: i64 = tensor.dims().get(axis + 1..)?.iter().product();
        let length = *tensor.dims().get(axis)?;
        // The element with the same place along the axis and 0 elsewhere.
        let first = |at: usize| (at as i64 / inner.max(1)) % length.max(1) * inner;
        Some((0..values.len()).all(|at| values.get(first(at) as usize) == values.get(at)))
    };
    expanded().or_else(constant).unwrap_or(false)
}

impl Converter for ScatterElements {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("ScatterElements", 18)],
        dtypes: check::CARRIED,
        layers: "IScatterLayer, IMatrixMultiplyLayer, ISelectLayer",
        limits: "a reduction needs bounded dims",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let rank = |slot: usize| node.input(slot).and_then(|view| view.rank());
        if let Some(r) = rank(0) {
            shape::axis(node.int("axis", 0), r).map_err(|diag| diag.slot("axis"))?;
            if let Some(other) = rank(1).filter(|&q| q != r).or(rank(2).filter(|&q| q != r)) {
                return Err(Diag::invalid(format!("indices or updates of rank {other} for rank {r}")));
            }
        }
        Ok(shape::types([shape::same_as_input(node, 0)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let combine = scatter::combine(node)?;
        let allowed = if combine.is_some() { check::NUMBERS } else { check::CARRIED };
        let x = check::operand(node, 0, "data", allowed, target)?;
        check::never_empty(&x, "data")?;
        let updates = check::operand(node, 2, "updates", &[x.dtype], target)?;
        check::not_empty(&updates, "updates")?;
        let axis = check::axis(node.int("axis", 0), x.rank(), "axis")?;
        let indices = indices::plan(node, 1, &[axis], false, target)?;
        let Some(how) = combine else { return Ok(Plan { axis, indices, combine: None }) };
        let others = |k: &usize| *k != axis;
        let q = node.input(1).and_then(|view| view.shape()).unwrap_or_default();
        if q.len() != x.rank()
            || (0..x.rank()).filter(others).any(|k| q[k] != x.shape[k] || q[k] == Dim::Unknown)
        {
            let why = "with a reduction, the indices must be as long as the data along the other axes";
            return Err(Refusal::new(Code::SHAPE, why).slot("indices"));
        }
        let whole_rows = differ_along_axis_only(node, axis);
        let width = dims::product((0..x.rank()).filter(others).map(|k| &x.shape[k]));
        let rows = (&x.shape[axis], extent::own_dim(node, 0, axis));
        let plan = scatter::plan(node, how, x.dtype, rows, (&q[axis], &width), whole_rows)?;
        if whole_rows && x.dtype.is_float() && target.product() == Product::Rtx && target.sms().contains(&75)
        {
            let why = "a sum takes an f32 matrix product, which TensorRT-RTX lacks for sm75";
            return Err(Refusal::new(Code::COMPUTE_CAPABILITY, why)
                .slot("reduction")
                .help("leave out sm75, or compile it as a target of its own"));
        }
        let mut moved = extent::own_dims(node, 0);
        let first = moved.remove(axis);
        moved.insert(0, first);
        Ok(Plan { axis, indices, combine: Some((plan, whole_rows, reshape::of_dims(moved))) })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let data = cx.input(0);
        let indices = indices::emit(cx, 1, &plan.indices);
        let updates = cx.input(2);
        let Some((combine, whole_rows, dims)) = plan.combine else {
            let (mode, axis) = (ScatterMode::Element, plan.axis as u32);
            return vec![cx.one(Layer::Scatter { data, indices, updates, mode, axis })];
        };
        // The axis goes first, the others become one.
        let rank = cx.rank(data) as u32;
        let mut order: Vec<u32> = (0..rank).collect();
        let axis = order.remove(plan.axis);
        order.insert(0, axis);
        let [data, mut indices, updates] = [data, indices, updates].map(|x| {
            let x = cx.transpose(x, order.clone());
            scatter::matrix(cx, x)
        });
        if whole_rows {
            indices = scatter::first_column(cx, indices);
        }
        let y = scatter::emit(cx, &combine, data, indices, updates);
        let y = if rank == 2 { y } else { reshape::emit(cx, y, &dims) };
        let mut back: Vec<u32> = (1..rank).collect();
        back.insert(plan.axis, 0);
        vec![cx.transpose(y, back)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn scatter(indices: trtc_ir::Tensor) -> Case {
        Case::new("ScatterElements", 18)
            .input(noise([3, 4]))
            .input(indices)
            .input(noise([3, 2]))
            .int("axis", 1)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("ScatterElements", 18).input(x(&[2])).input(list(&[0])).input(x(&[1])));
        let case = Case::new("ScatterElements", 18).input(noise([2])).input(list(&[0])).input(noise([1]));
        case.clone().str("reduction", "xor").refused(Code::ATTRIBUTE);
        case.clone().str("reduction", "add").target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        case.clone().str("reduction", "max").dynamic(0, ["N?"]).refused(Code::SHAPE);
        let short = Case::new("ScatterElements", 18).input(noise([2, 3])).input(i64s([1, 2], &[0, 1]));
        short.input(noise([1, 2])).str("reduction", "add").refused(Code::SHAPE);
        case.dynamic(0, ["0"]).refused(Code::SHAPE);
        let case = Case::new("ScatterElements", 18).input(noise([2])).constant(list(&[2])).input(noise([1]));
        case.refused(Code::CONSTANT_VALUE);
    }

    #[test]
    fn types() {
        assert_eq!(scatter(i64s([3, 2], &[0; 6])).dynamic(0, ["N", "4"]).types(), ["f32[N x 4]"]);
        assert!(scatter(list(&[0])).invalid().contains("rank 1 for rank 2"));
    }

    #[test]
    fn numbers() {
        let indices = [0, 1, -1, 2, 3, 0];
        scatter(i64s([3, 2], &indices)).check(Tolerance::Exact);
        let dynamic = scatter(i64s([3, 2], &indices)).dynamic(0, ["N", "4"]).dynamic(1, ["N", "2"]);
        dynamic.dynamic(2, ["N", "2"]).check(Tolerance::Exact);
        let case = Case::new("ScatterElements", 18).input(noise([3, 4])).constant(i64s([1, 2], &[-1, 0]));
        case.input(noise([1, 2])).check(Tolerance::Exact);
        let bool = Case::new("ScatterElements", 18).input(bools([3], &[false; 3])).input(list(&[1]));
        bool.input(bools([1], &[true])).check(Tolerance::Exact);
    }

    #[test]
    fn reductions() {
        for reduction in ["add", "mul", "max", "min"] {
            let with = |case: Case| case.str("reduction", reduction);
            let single = Case::new("ScatterElements", 18).input(noise([4])).input(list(&[1, -1, 1, 0, 1]));
            with(single.input(noise([5]))).check(F32);
            let indices = i64s([3, 4], &[0, 1, 0, 2, 1, 1, 2, 0, -1, 0, 1, 1]);
            let wide = |axis| {
                let case = Case::new("ScatterElements", 18).input(noise([3, 4])).input(indices.clone());
                case.input(noise([3, 4])).int("axis", axis)
            };
            with(wide(0)).check(F32);
            with(wide(1)).check(F32);
            with(wide(0)).dynamic(0, ["3", "M"]).dynamic(1, ["3", "M"]).dynamic(2, ["3", "M"]).check(F32);
            let rows = i64s([2, 5, 2], &[0, 0, 1, 1, 1, 1, 0, 0, 2, 2, 0, 0, 1, 1, 1, 1, 0, 0, 2, 2]);
            let rows = Case::new("ScatterElements", 18).input(noise([2, 3, 2])).constant(rows);
            with(rows.input(noise([2, 5, 2])).int("axis", 1)).check(F32);
            let whole = Case::new("ScatterElements", 18).input(counting([4])).input(list(&[1, 1, 3]));
            with(whole.input(list(&[5, -6, 7]))).check(Tolerance::Exact);
        }
    }

    #[test]
    fn infinities_stay_in_their_rows() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let updates = [1.0, inf, 2.0, -inf, inf, -inf, nan, 5.0];
        let case = Case::new("ScatterElements", 18).input(noise([6])).input(list(&[0, 1, 1, 2, 3, 3, 4, 5]));
        case.input(f32s([8], &updates)).str("reduction", "add").check(F32);
        let mut many = vec![1.0; 5000];
        many[7] = inf;
        many[9] = -inf;
        let rows: Vec<i64> = (0..5000).map(|k| k % 4).collect();
        let case = Case::new("ScatterElements", 18).input(noise([4])).input(list(&rows));
        case.input(f32s([5000], &many)).str("reduction", "add").check(F32);
    }

    #[test]
    fn gates() {
        let case = |x: Case| x.input(i64s([1; 9], &[0])).input(noise([1; 9]));
        case(Case::new("ScatterElements", 18).input(noise([1; 9]))).refused(Code::RANK);
        case(Case::new("ScatterElements", 18).absent()).refused(Code::INVALID);
    }
}

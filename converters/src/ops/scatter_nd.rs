//! ScatterND: replace slices named by index tuples, or combine with them.
//!
//! data [d0..dn] T, indices [q.., k] i64, updates [q.., dk..dn] T  ->  output [d0..dn] T
//! Opsets: 11; 13 wider types; 16 add, mul; 18 max, min.     TensorRT: IScatterLayer (ND mode); a reduction is made of
//! IMatrixMultiplyLayer (sums of floats), or ISelectLayer and IReduceLayer.
//! Limits: the last dim of the indices known; a reduction needs bounded dims.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, dims,
        extent::{self, DimPlan, ExtentPlan},
        indices,
        reshape::{self, ReshapePlan},
        scatter, shape,
    },
};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, Extent, ReduceOp, ScatterMode},
};

/// The converter.
#[derive(Debug)]
pub struct ScatterNd;

/// How the indices become non-negative, and the reduction.
#[derive(Debug)]
pub struct Plan {
    indices: indices::IndexPlan,
    combine: Option<CombineParts>,
}

/// A reduction over rows: the slices that tuples name.
#[derive(Debug)]
pub struct CombineParts {
    plan: scatter::CombinePlan,
    /// Elements to the next index of each place of a tuple.
    strides: ExtentPlan,
    length: i64,
    /// Data as [rows, f].
    rows: ReshapePlan,
    /// Updates as [e, f].
    updates: ReshapePlan,
    whole: ReshapePlan,
}

impl Converter for ScatterNd {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("ScatterND", 18)],
        dtypes: check::CARRIED,
        layers: "IScatterLayer, IMatrixMultiplyLayer, ISelectLayer",
        limits: "last dim of the indices known; a reduction needs bounded dims",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        if let (Some(rank), Some(Dim::Known(length))) = (
            node.input(0).and_then(|x| x.rank()),
            node.input(1).and_then(|indices| indices.shape()).and_then(<[Dim]>::last),
        ) && !(1..=rank as i64).contains(length)
        {
            return Err(Diag::invalid(format!("tuples of {length} indices into rank {rank}")).slot("indices"));
        }
        // One slice of the data for each tuple.
        let shape_of = |slot: usize| node.input(slot).and_then(|view| view.shape());
        if let (Some(x), Some([tuples @ .., Dim::Known(length)])) = (shape_of(0), shape_of(1)) {
            let slice = x.iter().skip(usize::try_from(*length).unwrap_or(0));
            for (axis, dim) in tuples.iter().chain(slice).enumerate() {
                shape::demand(node, (2, axis), dim, cx)?;
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
        let q = check::operand(node, 1, "indices", &[DType::I64, DType::I32], target)?;
        let length = q.shape.last().and_then(Dim::known).and_then(|n| usize::try_from(n).ok());
        let length = length.filter(|n| (1..=x.rank()).contains(n)).ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "the number of indices in a tuple is not known").slot("indices")
        })?;
        let axes: Vec<usize> = (0..length).collect();
        let indices = indices::plan(node, 1, &axes, true, target)?;
        let Some(how) = combine else { return Ok(Plan { indices, combine: None }) };
        let rows = dims::product(&x.shape[..length]);
        let tuples = dims::product(&q.shape[..q.rank() - 1]);
        let width = dims::product(&x.shape[length..]);
        let own = |axis: usize| extent::own_dim(node, 0, axis);
        let product =
            |range: std::ops::Range<usize>| range.fold(DimPlan::Fixed(1), |p, axis| p.times(own(axis)));
        let row_plan = product(0..length);
        let plan = scatter::plan(node, how, x.dtype, (&rows, row_plan.clone()), (&tuples, &width), true)?;
        if x.dtype.is_float() && target.product() == Product::Rtx && target.sms().contains(&75) {
            let why = "a sum takes an f32 matrix product, which TensorRT-RTX lacks for sm75";
            return Err(Refusal::new(Code::COMPUTE_CAPABILITY, why)
                .slot("reduction")
                .help("leave out sm75, or compile it as a target of its own"));
        }
        let strides = (0..length).map(|k| product(k + 1..length)).collect();
        let width = product(length..x.rank());
        let combine = CombineParts {
            plan,
            strides: ExtentPlan::Dims(strides),
            length: length as i64,
            rows: reshape::of_dims(vec![row_plan, width.clone()]),
            updates: reshape::of_dims(vec![DimPlan::Fixed(-1), width]),
            whole: reshape::of_dims(extent::own_dims(node, 0)),
        };
        Ok(Plan { indices, combine: Some(combine) })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let data = cx.input(0);
        let indices = indices::emit(cx, 1, &plan.indices);
        let updates = cx.input(2);
        let Some(parts) = plan.combine else {
            return vec![cx.one(Layer::Scatter { data, indices, updates, mode: ScatterMode::Nd, axis: 0 })];
        };
        let tuples = cx.reshape(indices, vec![-1, parts.length]);
        let tuples = cx.cast(tuples, DType::I64);
        let strides = match cx.extent(&parts.strides) {
            Extent::Static(values) => cx.i64s(&values),
            Extent::Tensor(tensor) => tensor,
        };
        let strides = cx.with_rank(strides, 2);
        let x = cx.elementwise(tuples, strides, ElementWiseOp::Prod);
        let indices = cx.one(Layer::Reduce { x, op: ReduceOp::Sum, axes: vec![1], keep_dims: false });
        let data = reshape::emit(cx, data, &parts.rows);
        let updates = reshape::emit(cx, updates, &parts.updates);
        let y = scatter::emit(cx, &parts.plan, data, indices, updates);
        vec![reshape::emit(cx, y, &parts.whole)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn scatter(indices: trtc_ir::Tensor, updates: trtc_ir::Tensor) -> Case {
        Case::new("ScatterND", 18).input(noise([3, 4])).input(indices).input(updates)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            Case::new("ScatterND", 18).input(x(&[2])).input(i64s([1, 1], &[0])).input(x(&[1]))
        });
        let case = Case::new("ScatterND", 18).input(noise([2])).input(i64s([1, 1], &[0])).input(noise([1]));
        case.clone().str("reduction", "xor").refused(Code::ATTRIBUTE);
        case.clone().str("reduction", "add").target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        case.clone().str("reduction", "max").dynamic(0, ["N?"]).refused(Code::SHAPE);
        case.clone().dynamic(1, ["1", "k"]).refused(Code::DIM_UNKNOWN);
        case.dynamic(0, ["0"]).refused(Code::SHAPE);
        let case =
            Case::new("ScatterND", 18).input(noise([2])).constant(i64s([1, 1], &[2])).input(noise([1]));
        case.refused(Code::CONSTANT_VALUE);
    }

    #[test]
    fn types() {
        let case = scatter(i64s([1, 1], &[0]), noise([1, 4])).dynamic(0, ["N", "4"]);
        assert_eq!(case.types(), ["f32[N x 4]"]);
        let open = case.dynamic(0, ["3", "D"]).dynamic(1, ["N", "1"]).dynamic(2, ["M", "E"]);
        assert_eq!(open.equalities(), ["M = N", "E = D"]);
        assert!(scatter(i64s([1, 3], &[0; 3]), noise([1])).invalid().contains("3 indices into rank 2"));
    }

    #[test]
    fn numbers() {
        scatter(i64s([2, 1], &[-1, 0]), noise([2, 4])).check(Tolerance::Exact);
        scatter(i64s([2, 2], &[-1, 0, 1, -2]), noise([2])).dynamic(0, ["N", "4"]).check(Tolerance::Exact);
    }

    #[test]
    fn bytes() {
        let x = u8s([3], &[0, 255, 128]);
        let case = Case::new("ScatterND", 18).input(x).input(i64s([1, 1], &[-1]));
        case.input(u8s([1], &[7])).check(Tolerance::Exact);
    }

    #[test]
    fn reductions() {
        for reduction in ["add", "mul", "max", "min"] {
            let with = |case: Case| case.str("reduction", reduction);
            with(scatter(i64s([4, 1], &[-1, 0, 0, 1]), noise([4, 4]))).check(F32);
            with(scatter(i64s([4, 2], &[-1, 0, 0, -2, 0, 2, 1, 1]), noise([4]))).check(F32);
            let open = scatter(i64s([2, 2, 1], &[2, 0, 0, 1]), noise([2, 2, 4])).dynamic(0, ["3", "M"]);
            with(open.dynamic(2, ["2", "2", "M"])).check(F32);
        }
    }

    #[test]
    fn gates() {
        let case = |x: Case| x.input(i64s([1; 9], &[0])).input(noise([1; 9]));
        case(Case::new("ScatterND", 18).input(noise([1; 9]))).refused(Code::RANK);
        case(Case::new("ScatterND", 18).absent()).refused(Code::INVALID);
    }
}

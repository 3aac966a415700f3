//! TopK: the k largest or smallest elements along an axis, and their positions.
//!
//! x [d0..dn] T, k [1] i64  ->  values [d0..k..dn] T, indices [d0..k..dn] i64
//! Opsets: 1 k as attribute; 10 as input; 11 largest, sorted; 24 bf16.     TensorRT: ITopKLayer; k = 1: IReduceLayer.
//! Limits: f32, f16, bf16, i32, i64, u8, i8; 1 ≤ k ≤ 3840; rank ≥ 1; not empty. Equal elements come in any order (k = 1: the first).

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, dims, elementwise,
        extent::{self, ExtentPlan},
        first, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Type, infer::ConstraintKind};
use trtc_network::{
    Layer, TensorId,
    layer::{Count, Extent, ReduceOp, TopKOp},
};

/// The converter.
#[derive(Debug)]
pub struct TopK;

/// Largest k of TensorRT's layer.
const MAX_K: i64 = 3840;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    largest: bool,
    axis: u32,
    k: ExtentPlan,
}

fn k_of(node: NodeView<'_>) -> Dim {
    match node.input(1).and_then(|view| view.elements()) {
        Some([k]) => k.clone(),
        _ => Dim::Unknown,
    }
}

impl Converter for TopK {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("TopK", 24)],
        dtypes: check::WITH_NARROW,
        layers: "ITopKLayer",
        limits: "k from 1 to 3840; equal elements in any order",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::SHAPE_VALUE,
            Code::CONSTANT_VALUE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let both = |dims: Option<Vec<Dim>>| -> [Type; 2] {
            [shape::typed(dtype, dims.clone()), shape::typed(Some(DType::I64), dims)]
        };
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        let Some(mut dims) = dims else { return Ok(shape::types(both(None))) };
        let axis = shape::axis(node.int("axis", -1), dims.len()).map_err(|diag| diag.slot("axis"))?;
        let k = k_of(node);
        match (&k, &dims[axis]) {
            (Dim::Known(k), _) if *k < 0 => return Err(Diag::invalid(format!("k is {k}")).slot("K")),
            (Dim::Known(k), Dim::Known(d)) if k > d => {
                return Err(Diag::invalid(format!("k is {k}, of {d} elements")).slot("K"));
            }
            (k, d) => {
                let rest = d.sub(k);
                if matches!(rest, Dim::Expr(_)) {
                    cx.require(ConstraintKind::AtLeast(rest, 0));
                }
            }
        }
        dims[axis] = k;
        Ok(shape::types(both(Some(dims))))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "X", check::WITH_NARROW, target)?;
        check::never_empty(&x, "X")?;
        let axis = check::axis(node.int("axis", -1), x.rank(), "axis")?;
        let k = dims::declared(node, k_of(node), 0, axis);
        let k = dims::declared(node, k, 1, axis);
        let range = node.symbols().interval(&k);
        if range.min.is_some_and(|min| min < 1) || range.max.is_some_and(|max| max > MAX_K) {
            let text = node.symbols().show(&k);
            let why = format!("k is {text}; TensorRT's layer takes 1 to {MAX_K}");
            return Err(Refusal::new(Code::CONSTANT_VALUE, why).slot("K"));
        }
        if range.min.is_none() || range.max.is_none() {
            return Err(Refusal::new(Code::SHAPE_VALUE, "nothing bounds the number of elements").slot("K"));
        }
        Ok(Plan {
            largest: node.int("largest", 1) != 0,
            axis: axis as u32,
            k: extent::plan_extent(node, &[k], Some((1, "K")))?,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let k = match cx.extent(&plan.k) {
            Extent::Static(list) => Count::Static(list.first().copied().unwrap_or(1)),
            Extent::Tensor(k) => Count::Tensor(cx.reshape(k, Vec::new())),
        };
        if k == Count::Static(1) {
            return one(cx, x, plan.axis, plan.largest);
        }
        let op = if plan.largest { TopKOp::Max } else { TopKOp::Min };
        // The layer wants two dims.
        let vector = cx.rank(x) == 1;
        let (x, axis) = if vector { (cx.with_rank(x, 2), 1) } else { (x, plan.axis) };
        let found = cx.layer(Layer::TopK { x, op, k, axis, indices: DType::I64 });
        match vector {
            true => found.into_iter().map(|x| cx.one(Layer::Squeeze { x, axes: vec![0] })).collect(),
            false => found,
        }
    }
}

/// The extreme itself, and the first position that has it.
fn one(cx: &mut Emit<'_>, x: TensorId, axis: u32, largest: bool) -> Outputs {
    let op = if largest { ReduceOp::Max } else { ReduceOp::Min };
    let value = cx.one(Layer::Reduce { x, op, axes: vec![axis], keep_dims: true });
    let index = match cx.node().output(1).is_some() {
        true => first::extreme_position(cx, x, axis, op, false),
        false => value,
    };
    vec![value, index]
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    const VALUES: [f64; 12] = [1.0, 3.0, 2.0, 5.0, -4.0, 6.0, 8.0, 0.0, 7.0, 11.0, -2.0, 9.0];

    fn case(dtype: DType) -> Case {
        Case::new("TopK", 24).input(of_dtype(dtype, [3, 4], &VALUES)).outputs(2)
    }

    #[test]
    fn numbers() {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64, DType::I8] {
            let k = |k| case(dtype).constant(i64s([1], &[k]));
            k(2).check(Tolerance::Exact);
            k(2).int("axis", 0).int("largest", 0).dynamic(0, ["N", "M"]).check(Tolerance::Exact);
            k(4).check(Tolerance::Exact);
            k(1).dynamic(0, ["N", "M"]).check(Tolerance::Exact);
            k(1).outputs(1).int("largest", 0).check(Tolerance::Exact);
        }
        let line = Case::new("TopK", 24).input(f32s([4], &[1.0, 3.0, 2.0, 5.0])).constant(i64s([1], &[3]));
        line.outputs(2).check(Tolerance::Exact);
        // Ties of one element: the first.
        let ties = Case::new("TopK", 24).input(f32s([4], &[1.0, 3.0, 3.0, 1.0])).constant(i64s([1], &[1]));
        ties.outputs(2).gives(Tolerance::Exact, &[f32s([1], &[3.0]), i64s([1], &[1])]);
    }

    #[test]
    fn k_of_the_run() {
        let case = case(DType::F32).dynamic(0, ["3", "N"]).input(i64s([1], &[4])).sizes(1, ["N"]);
        assert_eq!(case.types(), ["f32[3 x N]", "i64[3 x N]"]);
        case.layers();
        let told = Case::new("TopK", 24).input(of_dtype(DType::F32, [3, 4], &VALUES)).input(i64s([1], &[2]));
        let told = told.outputs(2).declared(1, &[3, 2]);
        told.check(Tolerance::Exact);
        // With an open dim the numbers may be those of an example.
        told.dynamic(0, ["N", "4"]).refused(Code::SHAPE_VALUE);
    }

    #[test]
    fn types() {
        let case = case(DType::F32);
        assert_eq!(case.clone().input(i64s([1], &[2])).types(), ["f32[3 x ?]", "i64[3 x ?]"]);
        assert_eq!(case.clone().constant(i64s([1], &[5])).invalid(), "k is 5, of 4 elements");
        assert_eq!(case.constant(i64s([1], &[-5])).invalid(), "k is -5");
    }

    #[test]
    fn refusals() {
        let none = Case::new("TopK", 24).input(f32s([1], &[1.0])).constant(i64s([1], &[0]));
        none.gates(bools([1], &[true]));
        let wide = case(DType::F32).dynamic(0, ["3", "N?"]);
        wide.clone().constant(i64s([1], &[4000])).refused(Code::CONSTANT_VALUE);
        wide.clone().constant(i64s([1], &[0])).refused(Code::CONSTANT_VALUE);
        wide.clone().input(i64s([1], &[4])).refused(Code::SHAPE_VALUE);
        wide.input(i64s([1], &[4])).sizes(1, ["N?"]).refused(Code::SHAPE_VALUE);
    }
}

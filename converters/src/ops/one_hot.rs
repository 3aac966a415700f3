//! OneHot: a vector for each index, with one element set.
//!
//! indices [d0..dn] N, depth [] N, values [2] T  ->  output [d.., depth at axis, ..d] T
//! Opsets: 9; 11 negative indices; 28 wider types.     TensorRT: IElementWiseLayer (equal), ISelectLayer.
//! Limits: depth constant, or computed from dims, or bounded, or the model declares the result's dims.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check, dims,
        extent::{self, DimPlan},
        iota, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, Extent, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct OneHot;

/// Where the new axis stands, and how long it is.
#[derive(Debug)]
pub struct Plan {
    axis: usize,
    depth: DimPlan,
}

fn axis(node: NodeView<'_>, rank: usize) -> Result<usize, Diag> {
    shape::axis(node.int("axis", -1), rank + 1).map_err(|diag| diag.slot("axis"))
}

fn depth(node: NodeView<'_>) -> Dim {
    let known = dims::scalar(node, 1).cloned();
    let float = || node.input(1)?.constant()?.scalar_f64().map(|depth| Dim::Known(depth as i64));
    known.or_else(float).unwrap_or(Dim::Unknown)
}

impl Converter for OneHot {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("OneHot", 28)],
        dtypes: check::NUMBERS,
        layers: "IElementWiseLayer, ISelectLayer",
        limits: "depth constant, or computed from dims, or bounded, or told by the declared result",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 2);
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let depth = depth(node);
        if depth.known().is_some_and(|depth| depth < 0) {
            return Err(Diag::invalid("a negative depth").slot("depth"));
        }
        let mut to = x.to_vec();
        to.insert(axis(node, x.len())?, depth);
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "indices", check::NUMBERS, target)?;
        check::not_empty(&x, "indices")?;
        let values = check::operand(node, 2, "values", check::CARRIED, target)?;
        if values.shape != [Dim::Known(2)] {
            return Err(Refusal::new(Code::SHAPE, "must be two elements").slot("values"));
        }
        if x.rank() > 7 {
            return Err(Refusal::new(Code::RANK, "TensorRT holds at most 8 dims").slot("indices"));
        }
        let axis = axis(node, x.rank()).map_err(crate::ctx::window::refused)?;
        let depth = dims::declared(node, depth(node), 0, axis);
        if depth == Dim::Known(0) {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        Ok(Plan { axis, depth: extent::require_dim(node, &depth, "depth")? })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let (indices, values) = (cx.input(0), cx.input(2));
        let indices = cx.cast(indices, DType::I64);
        let indices = cx.one(Layer::Unsqueeze { x: indices, axes: vec![plan.axis as u32] });
        let rank = cx.rank(indices);
        // Negative indices count from the end; what is still outside meets no place.
        let depth = cx.dim(&plan.depth);
        let depth = cx.with_rank(depth, rank);
        let zero = cx.scalar(DType::I64, rank, 0.0);
        let negative = cx.elementwise(indices, zero, ElementWiseOp::Less);
        let wrapped = cx.elementwise(indices, depth, ElementWiseOp::Sum);
        let indices = cx.one(Layer::Select { condition: negative, then_input: wrapped, else_input: indices });
        let places = iota::along(cx, &plan.depth, plan.axis, rank);
        let condition = cx.elementwise(indices, places, ElementWiseOp::Equal);
        let mut value = |at: i64| {
            let fixed = |v: i64| Extent::Static(vec![v]);
            let (start, size, stride, mode) = (fixed(at), fixed(1), fixed(1), SampleMode::Strict);
            let value = cx.one(Layer::Slice { x: values, start, size, stride, mode, fill: None });
            cx.with_rank(value, rank)
        };
        let (off, on) = (value(0), value(1));
        vec![cx.one(Layer::Select { condition, then_input: on, else_input: off })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::Tensor;

    fn case(indices: Tensor, depth: Tensor, values: Tensor) -> Case {
        Case::new("OneHot", 28).input(indices).constant(depth).constant(values)
    }

    fn usual() -> Case {
        case(i64s([2, 3], &[0, 1, -1, 5, -6, 3]), i64s([], &[4]), f32s([2], &[0.5, 2.0]))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("OneHot", 28).input(x(&[2])).constant(list(&[3])).constant(x(&[2])));
        case(list(&[1]), list(&[3]), noise([3])).refused(Code::SHAPE);
        case(i64s([1; 8], &[1]), list(&[3]), noise([2])).refused(Code::RANK);
        Case::new("OneHot", 28)
            .input(list(&[1]))
            .input(list(&[3]))
            .constant(noise([2]))
            .refused(Code::SHAPE_VALUE);
        Case::new("OneHot", 28).input(list(&[1])).constant(list(&[3])).refused(Code::INVALID);
    }

    #[test]
    fn types() {
        assert_eq!(usual().dynamic(0, ["N", "3"]).types(), ["f32[N x 3 x 4]"]);
        assert_eq!(usual().int("axis", 0).types(), ["f32[4 x 2 x 3]"]);
        let open =
            Case::new("OneHot", 28).input(list(&[1])).input(list(&[3])).sizes(1, ["N"]).constant(noise([2]));
        assert_eq!(open.types(), ["f32[1 x N]"]);
        assert!(usual().int("axis", 3).invalid().contains("out of range"));
    }

    #[test]
    fn numbers() {
        usual().check(Tolerance::Exact);
        usual().int("axis", 0).dynamic(0, ["N", "3"]).check(Tolerance::Exact);
        usual().int("axis", 1).check(Tolerance::Exact);
        // ONNX Runtime takes no scalar.
        let scalar = case(i64s([], &[2]), list(&[4]), i64s([2], &[0, 7]));
        scalar.gives(Tolerance::Exact, &[list(&[0, 0, 7, 0])]);
        case(f32s([3], &[0.0, 1.0, -1.0]), f32s([1], &[3.0]), f32s([2], &[0.0, 1.0])).check(Tolerance::Exact);
        // ONNX Runtime takes the depth at run time; here the declared dims tell it.
        let open = Case::new("OneHot", 28).input(i64s([3], &[1, -1, 9])).input(f32s([], &[3.0]));
        open.constant(f32s([2], &[0.0, 1.0])).declared(0, &[3, 3]).check(Tolerance::Exact);
        let bool = case(i64s([2], &[0, 1]), list(&[2]), bools([2], &[false, true]));
        bool.gives(Tolerance::Exact, &[bools([2, 2], &[true, false, false, true])]);
    }
}

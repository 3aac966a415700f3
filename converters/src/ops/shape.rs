//! Shape: dims of a tensor as a tensor.
//!
//! data [d0..dn] T  ->  shape [end-start] i64
//! Opsets: 1; 13, 19, 21, 23, 24, 25 wider types; 15 start and end.     TensorRT: IShapeLayer, ISliceLayer.
//! Limits: none.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer,
    layer::{Extent, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct Shape;

/// First dim and number of dims; `None` for all of them.
#[derive(Debug)]
pub struct Plan(Option<(i64, i64)>);

/// First dim and one past the last, clamped as the schema says.
fn range(node: NodeView<'_>, rank: usize) -> (usize, usize) {
    let rank = rank as i64;
    let clamp = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (start, end) = (clamp(node.int("start", 0)), clamp(node.int("end", rank)));
    (start, end.max(start))
}

impl Converter for Shape {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Shape", 25)],
        dtypes: check::CARRIED,
        layers: "IShapeLayer, ISliceLayer",
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
        let Some(dims) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(Some(DType::I64), Some(vec![Dim::Unknown]))]));
        };
        let (start, end) = range(node, dims.len());
        let elements = dims[start..end].to_vec();
        let ty = shape::typed(Some(DType::I64), Some(vec![Dim::Known(elements.len() as i64)]));
        Ok(vec![Inferred { ty, elements: Some(elements) }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "data", check::CARRIED, target)?;
        let (start, end) = range(node, x.rank());
        if start == end {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        let all = start == 0 && end == x.rank();
        Ok(Plan((!all).then_some((start as i64, (end - start) as i64))))
    }

    fn emit(&self, Plan(part): Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let x = cx.one(Layer::Shape { x });
        let Some((start, count)) = part else { return vec![x] };
        let fixed = |v: i64| Extent::Static(vec![v]);
        vec![cx.one(Layer::Slice {
            x,
            start: fixed(start),
            size: fixed(count),
            stride: fixed(1),
            mode: SampleMode::Strict,
            fill: None,
        })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("Shape", 25).input(x(&[2])));
        Case::new("Shape", 25).input(noise([2, 3])).int("start", 5).refused(Code::SHAPE);
    }

    #[test]
    fn types() {
        let case = Case::new("Shape", 25).input(noise([2, 3, 4])).dynamic(0, ["N", "3", "?"]);
        assert_eq!(case.types(), ["i64[3] = [N, 3, ?]"]);
        assert_eq!(case.clone().int("start", 1).types(), ["i64[2] = [3, ?]"]);
        assert_eq!(case.clone().int("start", -1).types(), ["i64[1] = [?]"]);
        assert_eq!(case.clone().int("end", -1).types(), ["i64[2] = [N, 3]"]);
        assert_eq!(case.int("start", 2).int("end", 1).types(), ["i64[0] = []"]);
        assert_eq!(Case::new("Shape", 25).input(noise([2])).unranked(0).types(), ["i64[?]"]);
    }

    #[test]
    fn numbers() {
        let case = Case::new("Shape", 25).input(noise([2, 3, 4])).dynamic(0, ["N", "3", "M"]);
        case.check(Tolerance::Exact);
        case.int("start", 1).int("end", 3).check(Tolerance::Exact);
        Case::new("Shape", 25).input(bools([2, 2], &[true; 4])).check(Tolerance::Exact);
    }

    #[test]
    fn gates() {
        Case::new("Shape", 25).input(noise([1; 9])).refused(Code::RANK);
        Case::new("Shape", 25).absent().refused(Code::INVALID);
    }
}

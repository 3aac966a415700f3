//! Unique: a result whose size only the run knows. Only its shape rule.
//!
//! X [d0..dn] T -> Y [u] T (or [d.., u, ..d] along axis), indices [u], inverse_indices [d], counts [u] i64
//! Opsets: 11, 28.     TensorRT: none.     Limits: host only.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{dims, shape},
};
use std::convert::Infallible;
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, Interval, NodeView, Refusal};

/// The shape rule.
#[derive(Debug)]
pub struct Unique;

impl Converter for Unique {
    type Plan = Infallible;

    const DEF: Def = Def {
        keys: &[Key::onnx("Unique", 28)],
        dtypes: &[],
        layers: "",
        limits: "host only",
        refusals: &[Code::HOST_ONLY],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let x = node.input(0).and_then(|x| x.shape());
        let axis = match (node.attrs().int("axis"), x) {
            (Some(axis), Some(x)) => Some(shape::axis(axis, x.len()).map_err(|diag| diag.slot("axis"))?),
            _ => None,
        };
        let along = x.map(|x| axis.map_or_else(|| dims::product(x), |axis| x[axis].clone()));
        let most = along.as_ref().and_then(|dim| node.symbols().interval(dim).max);
        let count = cx.unbacked("count", Interval { min: Some(0), max: most });
        let to = match (node.attrs().int("axis"), x, axis) {
            (None, _, _) => Some(vec![count.clone()]),
            (Some(_), Some(x), Some(axis)) => {
                let mut to = x.to_vec();
                to[axis] = count.clone();
                Some(to)
            }
            _ => None,
        };
        let i64s = |dim: Dim| shape::typed(Some(DType::I64), Some(vec![dim]));
        Ok(shape::types([
            shape::typed(dtype, to),
            i64s(count.clone()),
            i64s(along.unwrap_or(Dim::Unknown)),
            i64s(count),
        ]))
    }

    fn plan(&self, node: NodeView<'_>, _: &Target) -> Result<Infallible, Refusal> {
        let why = format!("TensorRT has no counterpart of {}", node.op());
        Err(Refusal::new(Code::HOST_ONLY, why))
    }

    fn emit(&self, plan: Infallible, _: &mut Emit<'_>) -> Outputs {
        match plan {}
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    #[test]
    fn shapes() {
        Case::new("Unique", 28).input(noise([2, 3])).refused(Code::HOST_ONLY);
        let unique = Case::new("Unique", 28).input(noise([2, 3])).outputs(4);
        let count = "node.count";
        assert_eq!(
            unique.types(),
            [format!("f32[{count}]"), format!("i64[{count}]"), "i64[6]".into(), format!("i64[{count}]")]
        );
        let along = unique.int("axis", 1).types();
        assert_eq!(along[..1], [format!("f32[2 x {count}]")]);
        let wrong = Case::new("Unique", 28).input(noise([2])).int("axis", 3);
        assert!(wrong.invalid().contains("out of range"));
    }
}

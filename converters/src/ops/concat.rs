//! Concat: join along an axis.
//!
//! inputs [d0..dn] T each, equal but for the axis  ->  concat_result [d0..Σd(axis)..dn] T
//! Opsets: 1; 4 axis required; 11 negative axis; 13 wider types.     TensorRT: IConcatenationLayer.
//! Limits: none; empty inputs are left out.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, shape},
};
use trtc_bundle::Target;
use trtc_ir::{
    Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, graph::MAX_ELEMENTS, infer::ConstraintKind,
};
use trtc_network::Layer;

/// The converter.
#[derive(Debug)]
pub struct Concat;

/// Axis, and the inputs that are not empty.
#[derive(Debug)]
pub struct Plan {
    axis: u32,
    slots: Vec<usize>,
}

impl Converter for Concat {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Concat", 13)],
        dtypes: check::CARRIED,
        layers: "IConcatenationLayer",
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
        let views: Vec<_> = (0..node.input_count()).filter_map(|slot| node.input(slot)).collect();
        let dtype = views.iter().find_map(|view| view.dtype());
        let Some(first) = views.iter().find_map(|view| view.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let axis =
            node.attrs().int("axis").ok_or_else(|| Diag::invalid("the attribute is missing").slot("axis"))?;
        let axis = shape::axis(axis, first.len()).map_err(|diag| diag.slot("axis"))?;
        let mut to = first.to_vec();
        to[axis] = Dim::Known(0);
        for view in &views {
            let Some(dims) = view.shape() else {
                to[axis] = Dim::Unknown;
                continue;
            };
            if dims.len() != to.len() {
                return Err(Diag::invalid(format!("inputs of rank {} and {}", to.len(), dims.len())));
            }
            for (k, (slot, dim)) in to.iter_mut().zip(dims).enumerate() {
                if k == axis {
                    *slot = slot.add(dim);
                    continue;
                }
                match (&*slot, dim) {
                    (a, b) if a == b => {}
                    (Dim::Unknown, _) => *slot = dim.clone(),
                    (_, Dim::Unknown) => {}
                    (Dim::Known(a), Dim::Known(b)) => {
                        return Err(Diag::invalid(format!("axis {k} has sizes {a} and {b}")));
                    }
                    (a, b) => {
                        cx.require(ConstraintKind::Equal(a.clone(), b.clone()));
                        if let Dim::Known(_) = b {
                            *slot = b.clone();
                        }
                    }
                }
            }
        }
        let elements = if to.len() == 1 { joined(&views) } else { None };
        Ok(vec![Inferred { ty: shape::typed(dtype, Some(to)), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let mut slots = Vec::new();
        let mut axis = 0;
        for slot in 0..node.input_count() {
            let x = check::operand(node, slot, "inputs", check::CARRIED, target)?;
            axis = check::axis(node.int("axis", 0), x.rank(), "axis")?;
            if x.shape[axis] != Dim::Known(0) {
                check::not_empty(&x, "inputs")?;
                slots.push(slot);
            }
        }
        if node.input_count() == 0 {
            return Err(Refusal::new(Code::INVALID, "no inputs").slot("inputs"));
        }
        if slots.is_empty() {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        Ok(Plan { axis: axis as u32, slots })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let xs: Vec<_> = plan.slots.iter().map(|&slot| cx.input(slot)).collect();
        match xs.as_slice() {
            [one] => vec![*one],
            _ => vec![cx.one(Layer::Concatenation { xs, axis: plan.axis })],
        }
    }
}

fn joined(views: &[trtc_ir::ValueView<'_>]) -> Option<Vec<Dim>> {
    let mut elements: Vec<Dim> = Vec::new();
    for view in views {
        match (view.elements(), dims::product(view.shape()?)) {
            (Some(list), _) => elements.extend_from_slice(list),
            // Values that nobody knows still keep the others in their places.
            (None, Dim::Known(n)) => {
                let n = usize::try_from(n).ok().filter(|&n| n <= MAX_ELEMENTS)?;
                elements.extend(std::iter::repeat_n(Dim::Unknown, n));
            }
            _ => return None,
        }
    }
    let useful = elements.iter().any(|dim| *dim != Dim::Unknown);
    (useful && elements.len() <= MAX_ELEMENTS && views.iter().all(|v| v.dtype().is_some_and(|d| d.is_int())))
        .then_some(elements)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};

    fn concat() -> Case {
        Case::new("Concat", 13).input(noise([2, 3])).input(noise([2, 1])).int("axis", 1)
    }

    #[test]
    fn refusals() {
        Case::new("Concat", 13).input(noise([1])).int("axis", 0).gates(unheld());
    }

    #[test]
    fn types() {
        assert_eq!(concat().dynamic(0, ["N", "M"]).dynamic(1, ["N", "1"]).types(), ["f32[N x M + 1]"]);
        assert_eq!(concat().dynamic(0, ["?", "3"]).types(), ["f32[2 x 4]"]);
        assert!(concat().int("axis", 0).invalid().contains("sizes 3 and 1"));
        let shape =
            Case::new("Concat", 13).input(list(&[1])).sizes(0, ["N"]).constant(list(&[-1, 4])).int("axis", 0);
        assert_eq!(shape.types(), ["i64[3] = [N, -1, 4]"]);
        let half = Case::new("Concat", 13).input(list(&[1, 1])).constant(list(&[-1])).int("axis", 0);
        assert_eq!(half.types(), ["i64[3] = [?, ?, -1]"]);
    }

    #[test]
    fn numbers() {
        concat().dynamic(0, ["N", "M"]).dynamic(1, ["N", "1"]).check(Tolerance::Exact);
        concat().int("axis", -1).constant(noise([2, 2])).check(Tolerance::Exact);
        Case::new("Concat", 13)
            .input(list(&[1, 2]))
            .constant(list(&[]))
            .int("axis", 0)
            .check(Tolerance::Exact);
        let bool = |v| bools([1, 2], &[v, !v]);
        Case::new("Concat", 13).input(bool(true)).input(bool(false)).int("axis", 0).check(Tolerance::Exact);
    }

    #[test]
    fn bytes() {
        let x = u8s([2, 2], &[0, 255, 128, 3]);
        Case::new("Concat", 13).input(x.clone()).constant(x).int("axis", 1).check(Tolerance::Exact);
    }
}

//! What Loop and Scan share: states that are carried, parts that are stacked.

use crate::{
    Emit,
    ctx::{body, check, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, Graph, Inferred, NodeView, Refusal, Type, ValueId};
use trtc_network::TensorId;

/// The body.
///
/// # Errors
/// It is missing.
pub fn body_of(node: NodeView<'_>) -> Result<&Graph, Diag> {
    node.attrs().graph("body").ok_or_else(|| Diag::invalid("the attribute is missing").slot("body"))
}

/// What a state is in every iteration: what it starts as, as far as the body leaves it so.
pub fn state_type(initial: &Type, next: Option<&Type>) -> Type {
    let (Some(a), Some(b)) = (initial.as_tensor(), next.and_then(Type::as_tensor)) else {
        return initial.clone();
    };
    let dims = match (&a.shape, &b.shape) {
        (Some(a), Some(b)) if a.len() == b.len() => {
            Some(a.iter().zip(b).map(|(a, b)| if a == b { a.clone() } else { Dim::Unknown }).collect())
        }
        (Some(a), None) => Some(a.clone()),
        _ => None,
    };
    shape::typed(a.dtype.or(b.dtype), dims)
}

/// Types of the states: input slots `slots`, body outputs from `first` on. The first pass knows no body.
pub fn states(
    node: NodeView<'_>,
    body: &Graph,
    slots: std::ops::Range<usize>,
    first: usize,
    pass: usize,
) -> Vec<Inferred> {
    slots
        .enumerate()
        .map(|(k, slot)| {
            let initial = shape::same_as_input(node, slot);
            let next = body.outputs().get(first + k).map(|&id| &body[id].ty).filter(|_| pass > 0);
            Inferred::from(state_type(&initial, next))
        })
        .collect()
}

/// A state's shape must be the same before and after each iteration, and known as such.
///
/// # Errors
/// `E0702`, or a state that TensorRT does not hold.
pub fn check_states(
    node: NodeView<'_>,
    body: &Graph,
    slots: std::ops::Range<usize>,
    first: usize,
    target: &Target,
) -> Result<(), Refusal> {
    for (k, slot) in slots.enumerate() {
        let x = check::operand(node, slot, "v_initial", check::CARRIED, target)?;
        check::not_empty(&x, "v_initial")?;
        let Some(&next) = body.outputs().get(first + k) else {
            return Err(Refusal::new(Code::INVALID, "the body has too few outputs").slot("body"));
        };
        let next = &body[next].ty;
        let same = next.shape() == Some(x.shape) && !x.shape.contains(&Dim::Unknown);
        if !same || next.dtype() != Some(x.dtype) {
            let show = |ty: &Type| ty.show(node.symbols());
            let why = format!(
                "state {k} is {} before an iteration and {} after",
                show(&x.view.value().ty),
                show(next)
            );
            return Err(Refusal::new(Code::CONTROL_FLOW, why)
                .slot("v_initial")
                .help("TensorRT's loops carry states of one shape only"));
        }
    }
    Ok(())
}

/// What is stacked must be a tensor of known type.
///
/// # Errors
/// `E0702`, or a tensor that TensorRT does not hold.
pub fn check_stacked(body: &Graph, outputs: &[ValueId], target: &Target) -> Result<(), Refusal> {
    for &output in outputs {
        let ty = &body[output].ty;
        let (Some(dtype), Some(dims)) = (ty.dtype(), ty.shape()) else {
            return Err(
                Refusal::new(Code::CONTROL_FLOW, "what is stacked has no known dtype and rank").slot("body")
            );
        };
        check::dtype_gate(dtype, "body", check::CARRIED, target)?;
        if dims.len() > 7 {
            return Err(Refusal::new(Code::RANK, "TensorRT holds at most 8 dims").slot("body"));
        }
        if dims.contains(&Dim::Known(0)) {
            return Err(Refusal::new(Code::SHAPE, "what is stacked is an empty tensor").slot("body"));
        }
    }
    Ok(())
}

/// Recurrences of states, with what stands for them in the body.
#[derive(Debug)]
pub struct Carried {
    /// What they start as.
    pub initial: Vec<TensorId>,
    /// What they are at the start of an iteration.
    pub current: Vec<TensorId>,
}

/// Tensors for the states inside.
pub fn carry(cx: &mut Emit<'_>, initial: Vec<TensorId>) -> Carried {
    let current = initial
        .iter()
        .map(|&x| {
            let info = cx.info(x).clone();
            cx.tensor(info.dtype, info.dims)
        })
        .collect();
    Carried { initial, current }
}

/// Captured values of the body are tensors around the loop.
pub fn bind_captures(
    cx: &mut Emit<'_>,
    node: NodeView<'_>,
    body: &Graph,
    bind: &mut Vec<(ValueId, TensorId)>,
) {
    let outers = body::captured(node, &[body]);
    let tensors: Vec<TensorId> = outers.iter().map(|&outer| cx.outer(outer)).collect();
    bind.extend(body::bindings(body, &outers, &tensors));
}

/// The type of parts that are stacked along `axis`.
pub fn stacked(part: &Type, trips: &Dim, axis: i64) -> Type {
    let Some(part) = part.as_tensor() else { return Type::Unknown };
    let dims = part.shape.as_ref().and_then(|dims| {
        let mut dims = dims.clone();
        let at = shape::axis(axis, dims.len() + 1).ok()?;
        dims.insert(at, trips.clone());
        Some(dims)
    });
    shape::typed(part.dtype, dims)
}

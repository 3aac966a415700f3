//! Matrix products.

use crate::ctx::shape;
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, NodeView, Refusal, infer::ConstraintKind};

/// TensorRT-RTX has no f32 matrix product for sm75.
///
/// # Errors
/// `E0501`.
pub fn gemm_gate(dtype: DType, target: &Target) -> Result<(), Refusal> {
    let turing = target.min_sm().filter(|&sm| sm < 80 && target.product() == Product::Rtx);
    match turing {
        Some(sm) if dtype == DType::F32 => Err(Refusal::new(
            Code::COMPUTE_CAPABILITY,
            format!("TensorRT-RTX has no f32 matrix product for sm{sm}"),
        )
        .help(format!("leave out sm{sm}, compile it as a target of its own, or give the model in f16"))),
        _ => Ok(()),
    }
}

/// Whether an attribute transposes the last two dims of operand 0 or 1.
pub fn transposed(node: NodeView<'_>, operand: usize) -> bool {
    let name = if operand == 0 { "transA" } else { "transB" };
    node.int(name, 0) != 0
}

/// Shape of a product of the inputs in slots `a` and `b`, as numpy's matmul, with the attributes transA and transB where
/// the operator has them; `None` when a rank is unknown.
///
/// # Errors
/// Unequal inner dims, a scalar, leading dims that do not broadcast.
pub fn product_shape(
    node: NodeView<'_>,
    a: usize,
    b: usize,
    cx: &mut InferCx<'_>,
) -> Result<Option<Vec<Dim>>, Diag> {
    let of = |slot: usize| node.input(slot).and_then(|view| view.shape());
    let (Some(a), Some(b)) = (of(a), of(b)) else { return Ok(None) };
    let split = |dims: &[Dim], operand: usize| -> Result<(Vec<Dim>, Vec<Dim>), Diag> {
        match dims.len() {
            0 => Err(Diag::invalid("a scalar in a matrix product")),
            1 => Ok((Vec::new(), dims.to_vec())),
            rank => {
                let (lead, matrix) = dims.split_at(rank - 2);
                let mut matrix = matrix.to_vec();
                if transposed(node, operand) {
                    matrix.reverse();
                }
                Ok((lead.to_vec(), matrix))
            }
        }
    };
    let ((lead_a, core_a), (lead_b, core_b)) = (split(a, 0)?, split(b, 1)?);
    inner(&core_a[core_a.len() - 1], &core_b[0], cx)?;
    let mut dims = shape::broadcast(&[Some(&lead_a), Some(&lead_b)], cx)?.unwrap_or_default();
    dims.extend_from_slice(&core_a[..core_a.len() - 1]);
    dims.extend_from_slice(&core_b[1..]);
    Ok(Some(dims))
}

/// Demands that two inner dims are equal.
///
/// # Errors
/// They are known and differ.
pub fn inner(a: &Dim, b: &Dim, cx: &mut InferCx<'_>) -> Result<(), Diag> {
    match (a, b) {
        (Dim::Known(a), Dim::Known(b)) if a != b => {
            Err(Diag::invalid(format!("the inner dims {a} and {b} differ")))
        }
        (Dim::Unknown, _) | (_, Dim::Unknown) => Ok(()),
        (a, b) => {
            if a != b {
                cx.require(ConstraintKind::Equal(a.clone(), b.clone()));
            }
            Ok(())
        }
    }
}

//! 0, 1, 2, … as a tensor.

use crate::{
    Emit,
    ctx::extent::{DimPlan, ExtentPlan},
};
use trtc_bundle::DType;
use trtc_network::{
    TensorId,
    layer::{FillOp, Layer},
};

/// Longest one that is written out as a constant.
const WRITTEN_OUT: i64 = 1 << 12;

/// 0 .. n as i64 along `axis` of a tensor of rank `rank` whose other dims are 1.
pub fn along(cx: &mut Emit<'_>, n: &DimPlan, axis: usize, rank: usize) -> TensorId {
    if let Some(n) = n.fixed().filter(|n| (0..=WRITTEN_OUT).contains(n)) {
        let bytes: Vec<u8> = (0..n).flat_map(i64::to_le_bytes).collect();
        let mut dims = vec![1; rank];
        if let Some(dim) = dims.get_mut(axis) {
            *dim = n;
        }
        return cx.constant(DType::I64, dims, bytes.into());
    }
    let shape = cx.extent(&ExtentPlan::Dims(vec![n.clone()]));
    let (alpha, beta) = (cx.scalar(DType::I64, 0, 0.0), cx.scalar(DType::I64, 1, 1.0));
    let line = cx.one(Layer::Fill { shape, op: FillOp::Linspace, alpha, beta, to: DType::I64 });
    let axes: Vec<u32> = (0..rank as u32).filter(|&k| k as usize != axis).collect();
    if axes.is_empty() { line } else { cx.one(Layer::Unsqueeze { x: line, axes }) }
}

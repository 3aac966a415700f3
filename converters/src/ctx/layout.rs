//! Channels at the end (n, spatial.., c), as quantised operators of com.microsoft may have them, and behind the batch, where
//! TensorRT wants them (n, c, spatial..).

use crate::Emit;
use trtc_ir::NodeView;
use trtc_network::TensorId;

/// Whether the node's channels are at the end.
pub fn channels_last(node: NodeView<'_>) -> bool {
    node.int("channels_last", 0) != 0
}

/// Dims with the channels moved from the end to behind the batch.
pub fn to_first<T: Clone>(dims: &[T]) -> Vec<T> {
    let mut dims = dims.to_vec();
    if let Some(rest) = dims.get_mut(1..) {
        rest.rotate_right(1.min(rest.len()));
    }
    dims
}

/// Dims with the channels moved from behind the batch to the end.
pub fn to_last<T: Clone>(dims: &[T]) -> Vec<T> {
    let mut dims = dims.to_vec();
    if let Some(rest) = dims.get_mut(1..) {
        rest.rotate_left(1.min(rest.len()));
    }
    dims
}

/// A tensor with its channels moved from the end to behind the batch.
pub fn moved_to_first(cx: &mut Emit<'_>, x: TensorId) -> TensorId {
    let axes: Vec<u32> = (0..cx.rank(x) as u32).collect();
    cx.transpose(x, to_first(&axes))
}

/// A tensor with its channels moved from behind the batch to the end.
pub fn moved_to_last(cx: &mut Emit<'_>, x: TensorId) -> TensorId {
    let axes: Vec<u32> = (0..cx.rank(x) as u32).collect();
    cx.transpose(x, to_last(&axes))
}

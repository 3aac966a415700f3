//! Shapes that are known: a Shape or Size of static dims, and any small integer value whose elements inference knows,
//! become constants.

use super::{Ledger, sweep_all};
use crate::{
    dim::Dim,
    eval::shape_range,
    graph::{Graph, Module, NodeId, ValueId},
    symbols::Symbols,
    tensor::Tensor,
    view::NodeView,
};
use trtc_bundle::DType;

/// Makes constants of what inference left known. `true` when anything changed.
pub fn run(module: &mut Module, ledger: &mut Ledger) -> bool {
    sweep_all(module, &mut |graph, symbols, id, path| node(graph, symbols, id, path, ledger))
}

/// Makes constants of a node's known outputs; `true` when it makes nothing else.
pub(super) fn node(
    graph: &mut Graph,
    symbols: &Symbols,
    id: NodeId,
    path: &str,
    ledger: &mut Ledger,
) -> bool {
    let mut changed = false;
    let outputs: Vec<Option<ValueId>> = graph[id].outputs().to_vec();
    for (slot, output) in outputs.into_iter().enumerate() {
        let Some(output) = output else { continue };
        if let Some(tensor) = shape_of(graph, symbols, id, slot).or_else(|| known_elements(graph, output)) {
            graph.set_constant(output, tensor);
            changed = true;
        }
    }
    let is_folded = changed && graph[id].outputs().iter().all(Option::is_none);
    if is_folded {
        ledger.fold(graph, id, path, "its value is known from shapes");
    }
    is_folded
}

/// What a Shape or Size of static dims gives.
fn shape_of(graph: &Graph, symbols: &Symbols, id: NodeId, slot: usize) -> Option<Tensor> {
    let node = &graph[id];
    if !node.op.domain.is_empty() || slot > 0 {
        return None;
    }
    match &*node.op.op_type {
        "Shape" => {
            let shape = graph[node.input(0)?].ty.shape()?;
            let (start, end) = shape_range(NodeView::new(graph, symbols, id), shape.len());
            let dims = shape.get(start..end).unwrap_or(&[]);
            Some(Tensor::from_i64s(&dims.iter().map(Dim::known).collect::<Option<Vec<i64>>>()?))
        }
        "Size" => {
            let dims = graph[node.input(0)?].ty.static_shape()?;
            Some(Tensor::scalar_i64(i64::try_from(crate::tensor::element_count(&dims)?).ok()?))
        }
        _ => None,
    }
}

/// The elements of a small integer or bool value, when each is a number and the dims are known.
fn known_elements(graph: &Graph, output: ValueId) -> Option<Tensor> {
    let value = &graph[output];
    let list = value.elements.as_ref()?.iter().map(Dim::known).collect::<Option<Vec<i64>>>()?;
    let dims = match value.ty.shape()? {
        [] if list.len() == 1 => vec![],
        // A declared dim may be a symbol although the elements are counted.
        [_] => vec![list.len() as i64],
        _ => return None,
    };
    let dtype = value.ty.dtype()?;
    if dtype == DType::I64 {
        return Tensor::from_i64s(&list).with_dims(dims);
    }
    let bytes: Option<Vec<u8>> = list.iter().try_fold(Vec::new(), |mut bytes, &v| {
        match dtype {
            DType::Bool => bytes.push(u8::from(v != 0)),
            DType::U8 => bytes.push(u8::try_from(v).ok()?),
            DType::I8 => bytes.push(i8::try_from(v).ok()? as u8),
            DType::I16 => bytes.extend(i16::try_from(v).ok()?.to_le_bytes()),
            DType::U16 => bytes.extend(u16::try_from(v).ok()?.to_le_bytes()),
            DType::I32 => bytes.extend(i32::try_from(v).ok()?.to_le_bytes()),
            DType::U32 => bytes.extend(u32::try_from(v).ok()?.to_le_bytes()),
            DType::U64 => bytes.extend(u64::try_from(v).ok()?.to_le_bytes()),
            _ => return None,
        }
        Some(bytes)
    });
    Tensor::new(dtype, dims, bytes?.into())
}

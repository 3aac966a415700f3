//! Statically empty tensors: a value with a 0 in its static shape becomes an empty constant, and what a reduction or a
//! product makes of empty ones a constant of its neutral element.
//!
//! No converter ever meets a genuinely empty dimension. Graph inputs stay as they are.

use super::{Ledger, each_graph};
use crate::{
    graph::{Graph, Module, NodeId, ValueId},
    tensor::{Tensor, element_count},
};
use bytes::Bytes;
use half::{bf16, f16};
use trtc_bundle::DType;

/// Makes empty constants; takes out nodes that make nothing else. `true` when anything changed.
pub fn run(module: &mut Module, ledger: &mut Ledger) -> bool {
    each_graph(module, &mut |graph, _, path| {
        let ids: Vec<NodeId> = graph.node_ids().collect();
        let (mut changed, mut gone) = (false, Vec::new());
        for id in ids {
            if node(graph, id) {
                changed = true;
                if graph[id].outputs().iter().all(Option::is_none) {
                    ledger.fold(graph, id, path, "nothing goes in or comes out");
                    gone.push(id);
                }
            }
        }
        graph.remove_nodes(&gone);
        changed
    })
}

fn node(graph: &mut Graph, id: NodeId) -> bool {
    let outputs: Vec<Option<ValueId>> = graph[id].outputs().to_vec();
    let mut changed = false;
    for output in outputs.into_iter().flatten() {
        let ty = &graph[output].ty;
        if let (Some(dtype), Some(dims)) = (ty.dtype(), ty.static_shape())
            && let Some(tensor) = Tensor::empty(dtype, dims)
        {
            graph.set_constant(output, tensor);
            changed = true;
        } else if let Some(tensor) = of_nothing(graph, id, output) {
            graph.set_constant(output, tensor);
            changed = true;
        }
    }
    changed
}

/// What an operator makes of an empty input.
fn of_nothing(graph: &Graph, id: NodeId, output: ValueId) -> Option<Tensor> {
    /// More elements than this are no constant worth having.
    const MOST: usize = 1 << 20;
    let node = &graph[id];
    let x = node.input(0)?;
    if !node.op.domain.is_empty() || !graph[x].ty.static_shape()?.contains(&0) {
        return None;
    }
    let (dtype, dims) = (graph[output].ty.dtype()?, graph[output].ty.static_shape()?);
    let element = neutral(&node.op.op_type, dtype)?;
    let count = element_count(&dims).filter(|count| (1..=MOST).contains(count))?;
    Tensor::new(dtype, dims, Bytes::from(element.repeat(count)))
}

/// The element that a reduction over nothing gives, as ONNX defines it; `None` where it is not defined or not known here.
fn neutral(op: &str, dtype: DType) -> Option<Vec<u8>> {
    match op {
        "ReduceSum" | "ReduceL1" | "ReduceL2" | "ReduceSumSquare" | "MatMul" => number(dtype, 0.0),
        "ReduceProd" => number(dtype, 1.0),
        "ReduceLogSum" | "ReduceLogSumExp" if dtype.is_float() => number(dtype, f64::NEG_INFINITY),
        "ReduceMax" => Some(least(dtype)?.0),
        "ReduceMin" => Some(least(dtype)?.1),
        _ => None,
    }
}

/// A small number, or an infinity, as an element.
fn number(dtype: DType, value: f64) -> Option<Vec<u8>> {
    Some(match dtype {
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        DType::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        DType::I64 | DType::U64 => (value as i64).to_le_bytes().to_vec(),
        DType::I32 | DType::U32 => (value as i32).to_le_bytes().to_vec(),
        DType::I16 | DType::U16 => (value as i16).to_le_bytes().to_vec(),
        DType::I8 | DType::U8 => (value as i8).to_le_bytes().to_vec(),
        _ => return None,
    })
}

/// The least and the greatest element of a type.
fn least(dtype: DType) -> Option<(Vec<u8>, Vec<u8>)> {
    macro_rules! integers {
        ($type:ty) => {
            (<$type>::MIN.to_le_bytes().to_vec(), <$type>::MAX.to_le_bytes().to_vec())
        };
    }
    Some(match dtype {
        DType::Bool => (vec![0], vec![1]),
        DType::I64 => integers!(i64),
        DType::I32 => integers!(i32),
        DType::I16 => integers!(i16),
        DType::I8 => integers!(i8),
        DType::U64 => integers!(u64),
        DType::U32 => integers!(u32),
        DType::U16 => integers!(u16),
        DType::U8 => integers!(u8),
        _ => (number(dtype, f64::NEG_INFINITY)?, number(dtype, f64::INFINITY)?),
    })
}

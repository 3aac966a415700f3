//! Nodes that change nothing: their users take the input instead.
//!
//! Only exact no-ops count: the same elements, dtype and dims on every input that the types allow. A graph output keeps
//! its name, so the node stays where input and output both have a name that is seen outside.

use super::{Ledger, Outside, each_graph};
use crate::{
    dim::Dim,
    graph::{Graph, Module, NodeId, ValueId},
    tensor::Tensor,
};
use trtc_bundle::DType;

/// Takes no-ops out, and inputs that are empty out of Concat. `true` when anything changed. O(nodes + uses).
pub fn run(module: &mut Module, ledger: &mut Ledger) -> bool {
    each_graph(module, &mut |graph, _, path| {
        let Ok(order) = graph.topo_order() else { return false };
        let mut outside = Outside::of(graph);
        let (mut changed, mut gone) = (false, Vec::new());
        for id in order {
            changed |= drop_empty_parts(graph, id);
            if let Some((slot, why)) = no_op(graph, id)
                && let (Some(x), Some(y)) = (graph[id].input(slot), graph[id].output(0))
                && outside.replace(graph, y, x)
            {
                ledger.remove(graph, id, path, why);
                gone.push(id);
            }
        }
        graph.remove_nodes(&gone);
        changed || !gone.is_empty()
    })
}

/// The input that a node hands on unchanged as its only wanted output, and why.
fn no_op(graph: &Graph, id: NodeId) -> Option<(usize, &'static str)> {
    let node = &graph[id];
    if !node.op.domain.is_empty() || node.outputs().iter().skip(1).any(Option::is_some) {
        return None;
    }
    let (x, y) = (node.input(0)?, node.output(0)?);
    let constant = |slot: usize| node.input(slot).and_then(|id| graph[id].constant.as_ref());
    let all = |slot: usize, wanted: f64| constant(slot).is_some_and(|tensor| holds_only(tensor, wanted));
    let same_shape = || same_dims(graph, x, y);
    match &*node.op.op_type {
        "Identity" => Some((0, "Identity")),
        // With a ratio of 0 training drops nothing and scales by 1.
        "Dropout" => (node.input(2).is_none() || all(2, 0.0) || all(1, 0.0))
            .then_some((0, "Dropout that drops nothing")),
        "Cast" => {
            let to = node.attrs.int("to").and_then(|n| i32::try_from(n).ok()).and_then(DType::from_onnx);
            (to.is_some() && to == graph[x].ty.dtype()).then_some((0, "Cast to the dtype that it has"))
        }
        "CastLike" => {
            let dtype = graph[x].ty.dtype();
            (dtype.is_some() && dtype == graph[node.input(1)?].ty.dtype())
                .then_some((0, "CastLike to the dtype that it has"))
        }
        "Transpose" => {
            let identity = match node.attrs.ints("perm") {
                Some(perm) => perm.iter().enumerate().all(|(k, &p)| p == k as i64),
                None => graph[x].ty.shape()?.len() <= 1,
            };
            identity.then_some((0, "Transpose that keeps the order"))
        }
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Expand" | "Tile" => {
            same_shape().then_some((0, "the shape stays the same"))
        }
        "Concat" | "Sum" | "Mean" | "Max" | "Min" => {
            (node.inputs().len() == 1).then_some((0, "only one input"))
        }
        "Split" => {
            let parts = node.attrs.int("num_outputs").unwrap_or(node.outputs().len() as i64);
            (parts == 1 && same_shape()).then_some((0, "only one part"))
        }
        "Slice" => {
            let forward = node.input(4).is_none() || all(4, 1.0);
            (forward && same_shape()).then_some((0, "the slice takes everything"))
        }
        "Pad" => all(1, 0.0).then_some((0, "no padding")),
        "Resize" => {
            let exact = matches!(node.attrs.str("mode"), None | Some("nearest" | "linear"))
                && node.attrs.int("antialias").unwrap_or(0) == 0
                && node.attrs.str("coordinate_transformation_mode") != Some("tf_crop_and_resize");
            let unscaled = (node.input(2).is_some() && all(2, 1.0))
                || (node.input(2).is_none() && node.input(3).is_some() && same_shape());
            (exact && unscaled).then_some((0, "the size stays the same"))
        }
        _ => None,
    }
}

fn holds_only(tensor: &Tensor, wanted: f64) -> bool {
    tensor.count() <= 1024 && tensor.to_f64s().is_some_and(|list| list.iter().all(|&v| v == wanted))
}

/// Whether two values have the same dims on every run.
fn same_dims(graph: &Graph, x: ValueId, y: ValueId) -> bool {
    match (graph[x].ty.shape(), graph[y].ty.shape()) {
        (Some(a), Some(b)) => a == b && !a.contains(&Dim::Unknown),
        _ => false,
    }
}

/// Takes inputs out of a Concat that have nothing along its axis. `true` when any went.
fn drop_empty_parts(graph: &mut Graph, id: NodeId) -> bool {
    let node = &graph[id];
    if &*node.op.op_type != "Concat" || !node.op.domain.is_empty() {
        return false;
    }
    let Some(axis) = node.attrs.int("axis") else { return false };
    let empty = |input: &Option<ValueId>| {
        let Some(shape) = input.and_then(|id| graph[id].ty.shape()) else { return false };
        let at = if axis < 0 { axis + shape.len() as i64 } else { axis };
        usize::try_from(at).ok().and_then(|at| shape.get(at)) == Some(&Dim::Known(0))
    };
    let kept: Vec<Option<ValueId>> = node.inputs().iter().filter(|input| !empty(input)).copied().collect();
    if kept.len() == node.inputs().len() || kept.is_empty() {
        return false;
    }
    graph.set_inputs_of(id, kept);
    true
}

//! Which opsets suit: by what the older forms can say, and by the kernels that ONNX Runtime has.

use super::{ExportError, ExportRequest};
use crate::onnx::{
    draft::{Arg, Draft},
    ops,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};
use trtc_bundle::DType;
use trtc_ir::{Attr, Attrs, Graph, Node, NodeId};
use trtc_onnx::{
    kernels::{Support, form_opsets, support},
    schema::{self, Opsets, PREFERRED_OPSET, choose_opset, opsets_in_force},
};

/// The versions of operator sets to write.
pub(super) struct Plan {
    /// Of ai.onnx.
    pub(super) opset: u32,
    /// Of other domains that are used.
    pub(super) others: BTreeMap<String, u32>,
}

/// The nodes to export, in topological order. O(nodes · log nodes) in the nodes that are wanted.
pub(super) fn selected(graph: &Graph, nodes: Option<&[NodeId]>) -> Result<Vec<NodeId>, ExportError> {
    let Some(nodes) = nodes else {
        return graph.topo_order().map_err(|cycle| in_cycle(graph, &cycle));
    };
    let mut waiting: BTreeMap<NodeId, usize> = nodes.iter().map(|&id| (id, 0)).collect();
    for &id in nodes {
        let inside = graph.predecessors(id).filter(|before| waiting.contains_key(before)).count();
        waiting.insert(id, inside);
    }
    let ready = waiting.iter().filter(|(_, count)| **count == 0);
    let mut ready: BinaryHeap<Reverse<NodeId>> = ready.map(|(&id, _)| Reverse(id)).collect();
    let mut order = Vec::with_capacity(waiting.len());
    while let Some(Reverse(id)) = ready.pop() {
        order.push(id);
        for next in graph.successors(id) {
            if let Some(count) = waiting.get_mut(&next) {
                *count -= 1;
                if *count == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
    }
    if order.len() == waiting.len() {
        return Ok(order);
    }
    let stuck: Vec<NodeId> = waiting.into_iter().filter(|(_, count)| *count > 0).map(|(id, _)| id).collect();
    Err(in_cycle(graph, &stuck))
}

fn in_cycle(graph: &Graph, nodes: &[NodeId]) -> ExportError {
    ExportError::Cycle { names: nodes.iter().map(|&id| graph[id].name.to_string()).collect() }
}

pub(super) fn plan(request: &ExportRequest<'_>, order: &[NodeId]) -> Result<Plan, ExportError> {
    let graph = request.graph;
    let mut masks = Vec::with_capacity(order.len());
    let mut others: BTreeMap<String, u32> = BTreeMap::new();
    for &id in order {
        let mut mask = Opsets::ALL;
        let path = graph[id].name.to_string();
        node_mask(graph, &graph[id], &path, &mut mask, &mut others, request.opsets).map_err(|misfit| {
            ExportError::NoKernel { node: id, name: misfit.path, op: misfit.op, dtypes: misfit.dtypes }
        })?;
        masks.push(mask);
    }
    let conflict = |positions: Vec<usize>| {
        let nodes: Vec<NodeId> = positions.iter().map(|&at| order[at]).collect();
        let names = nodes.iter().map(|&id| graph[id].name.to_string()).collect();
        ExportError::Conflict { nodes, names }
    };
    // ONNX Runtime 1.32 turns int8 quantisation into uint8 on some machines, and then trips over QuantizeLinear-21.
    let careful: Vec<Opsets> = order
        .iter()
        .zip(&masks)
        .map(|(&id, &mask)| {
            let old = mask.and(Opsets::range(1, 20));
            let quantises = matches!(&*graph[id].op.op_type, "QuantizeLinear" | "DequantizeLinear");
            if quantises && !old.is_empty() { old } else { mask }
        })
        .collect();
    let opset = match request.opset {
        None => {
            choose_opset(&careful).or_else(|_| choose_opset(&masks)).map_err(|found| conflict(found.nodes))?
        }
        Some(opset) => {
            let against: Vec<usize> = (0..masks.len()).filter(|&at| !masks[at].contains(opset)).collect();
            if !against.is_empty() {
                return Err(conflict(against));
            }
            opset
        }
    };
    Ok(Plan { opset, others })
}

/// Groups of nodes, each of which one opset suits, so that each can be exported on its own; `None` when all can be
/// together, and when a node cannot be exported at all. `nodes` are in topological order, and so are the groups and the
/// nodes in each.
pub fn opset_groups(graph: &Graph, nodes: &[NodeId], opsets: &[(String, u32)]) -> Option<Vec<Vec<NodeId>>> {
    if nodes.iter().all(|&id| suits_preferred(graph, &graph[id])) {
        return None;
    }
    let mut groups: Vec<Vec<NodeId>> = Vec::new();
    let mut suits = Opsets::NONE;
    let mut others = BTreeMap::new();
    for &id in nodes {
        let mut mask = Opsets::ALL;
        let path = graph[id].name.to_string();
        node_mask(graph, &graph[id], &path, &mut mask, &mut others, opsets).ok()?;
        if mask.is_empty() {
            return None;
        }
        let both = suits.and(mask);
        match groups.last_mut() {
            Some(group) if !both.is_empty() => {
                group.push(id);
                suits = both;
            }
            _ => {
                groups.push(vec![id]);
                suits = mask;
            }
        }
    }
    (groups.len() > 1).then_some(groups)
}

/// Whether ONNX Runtime runs a node as it is at the preferred opset, as nearly all do; `false` when that takes a closer
/// look.
fn suits_preferred(graph: &Graph, node: &Node) -> bool {
    if !node.op.domain.is_empty() {
        return node.attrs.graphs().next().is_none();
    }
    let history = schema::history("", &node.op.op_type);
    let in_force = history.iter().rev().find(|&&version| version <= PREFERRED_OPSET);
    in_force.is_some_and(|&version| {
        version <= node.since_version
            && node.attrs.graphs().next().is_none()
            && run(graph, node, version) == Run::Native
            && runs_at(graph, node, version).contains(PREFERRED_OPSET)
            && ops::downgrade(graph, &draft_of(node), version).is_ok()
    })
}

/// A node that runs at no opset.
struct Nowhere {
    path: String,
    op: String,
    dtypes: Vec<String>,
}

/// Narrows `mask` to the opsets at which a node, and all nodes of its subgraphs, can be written and run.
fn node_mask(
    graph: &Graph,
    node: &Node,
    path: &str,
    mask: &mut Opsets,
    others: &mut BTreeMap<String, u32>,
    imports: &[(String, u32)],
) -> Result<(), Nowhere> {
    let nowhere = |path: &str| Nowhere {
        path: path.to_owned(),
        op: node.op.to_string(),
        dtypes: dtypes(graph, node).0.iter().flatten().map(|dtype| dtype.name().to_owned()).collect(),
    };
    if node.op.domain.is_empty() {
        let own = opsets(graph, node);
        if own.is_empty() {
            return Err(nowhere(path));
        }
        *mask = mask.and(own);
    } else {
        // Forms of other domains are never changed: the newest one in use decides, and what imports say of unknown ones.
        let imported =
            imports.iter().find(|(domain, _)| **domain == *node.op.domain).map(|(_, version)| *version);
        let known = !schema::history(&node.op.domain, &node.op.op_type).is_empty();
        let version = if known { node.since_version } else { imported.unwrap_or(node.since_version) };
        if known && run(graph, node, node.since_version) == Run::Nowhere {
            return Err(nowhere(path));
        }
        let slot = others.entry(node.op.domain.to_string()).or_insert(1);
        *slot = (*slot).max(version);
    }
    for (name, body) in node.attrs.graphs() {
        let Ok(order) = body.topo_order() else { return Err(nowhere(&format!("{path}/{name}"))) };
        for id in order {
            let inner = &body[id];
            node_mask(body, inner, &format!("{path}/{name}/{}", inner.name), mask, others, imports)?;
        }
    }
    Ok(())
}

/// Opsets at which ONNX Runtime runs a node of the default domain: without casts of ours if there are any, else with them.
fn opsets(graph: &Graph, node: &Node) -> Opsets {
    let op_type = &*node.op.op_type;
    let history = schema::history("", op_type);
    if history.is_empty() {
        // Nobody can register an operator in ONNX's own domain.
        return if ops::is_experimental(&node.op) {
            Opsets::range(1, ops::LAST_EXPERIMENTAL)
        } else {
            Opsets::NONE
        };
    }
    let draft = draft_of(node);
    let mut native = Opsets::NONE;
    let mut widened = Opsets::NONE;
    for &version in history.iter().filter(|&&version| version <= node.since_version) {
        if ops::downgrade(graph, &draft, version).is_err() {
            continue;
        }
        let range = opsets_in_force("", op_type, version);
        match run(graph, node, version) {
            Run::Native => native = native.or(range.and(runs_at(graph, node, version))),
            Run::Widened => widened = widened.or(range),
            Run::Nowhere => {}
        }
    }
    if native.is_empty() { widened } else { native }
}

/// Opsets at which ONNX Runtime runs the form since `version` of a node of the default domain as it is.
fn runs_at(graph: &Graph, node: &Node, version: u32) -> Opsets {
    let op_type = &*node.op.op_type;
    let Some(schema) = schema::lookup("", op_type, version) else { return Opsets::ALL };
    let (inputs, outputs) = dtypes(graph, node);
    form_opsets("", op_type, version, &|name| schema.bound(name, &inputs, &outputs))
}

/// How ONNX Runtime runs a form of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// As it is.
    Native,
    /// In a wider type between casts of ours.
    Widened,
    /// Not at all.
    Nowhere,
}

/// How ONNX Runtime runs a node in the form since `version`.
pub(super) fn run(graph: &Graph, node: &Node, version: u32) -> Run {
    let Some(schema) = schema::lookup(&node.op.domain, &node.op.op_type, version) else { return Run::Native };
    if refused_in_the_run(graph, node) {
        return Run::Nowhere;
    }
    let (inputs, outputs) = dtypes(graph, node);
    let types = |name: &str| schema.bound(name, &inputs, &outputs);
    // Unknown types count as allowed, and outputs at the end that nobody wants are added when the node is written.
    let allows = |inputs: &[Option<DType>], outputs: &[Option<DType>]| {
        let fits = |types: &[Option<DType>], formal: &dyn Fn(usize) -> Option<schema::Param>| {
            types.iter().enumerate().all(|(at, dtype)| {
                let (Some(dtype), Some(param)) = (dtype, formal(at)) else { return true };
                schema.type_set(&param).is_none_or(|set| set.has(*dtype))
            })
        };
        fits(inputs, &|at| schema.input(at).copied()) && fits(outputs, &|at| schema.output(at).copied())
    };
    let try_types = |types: &dyn Fn(&str) -> Option<DType>| {
        support(&node.op.domain, &node.op.op_type, version, types) != Support::None
    };
    let widened = |dtype: DType| wide(&node.op.op_type, dtype).unwrap_or(dtype);
    let wide_type = |name: &str| types(name).map(widened);
    let narrow = inputs.iter().chain(&outputs).flatten().any(|&dtype| widened(dtype) != dtype);
    let widen = |list: &[Option<DType>]| -> Vec<Option<DType>> {
        list.iter().map(|dtype| dtype.map(widened)).collect()
    };
    if allows(&inputs, &outputs) && try_types(&types) {
        Run::Native
    } else if narrow
        && node.op.domain.is_empty()
        && allows(&widen(&inputs), &widen(&outputs))
        && try_types(&wide_type)
    {
        Run::Widened
    } else {
        Run::Nowhere
    }
}

/// Whether a kernel that is there refuses the node when it runs: only images are sampled by cubics.
fn refused_in_the_run(graph: &Graph, node: &Node) -> bool {
    let rank = node.inputs().first().copied().flatten().and_then(|id| graph[id].ty.shape()).map(<[_]>::len);
    (&*node.op.domain, &*node.op.op_type) == ("", "GridSample")
        && node.attrs.str("mode").is_some_and(|mode| mode.ends_with("cubic"))
        && rank.is_some_and(|rank| rank != 4)
}

/// The type in which an operator computes instead of one that hardly any CPU kernel knows: with the same result for integers,
/// rounded once for floats.
pub(super) fn wide(op_type: &str, dtype: DType) -> Option<DType> {
    Some(match (op_type, dtype) {
        (_, DType::Bf16 | DType::F8E4M3 | DType::F8E4M3Uz | DType::F8E5M2 | DType::F8E5M2Uz) => DType::F32,
        ("Max" | "Min" | "Pow", DType::I8 | DType::U8 | DType::I16 | DType::U16) => DType::I32,
        ("Relu" | "CenterCropPad", DType::I16 | DType::U16) => DType::I32,
        // ONNX Runtime casts for inputs of f16; these have only outputs of it.
        (
            "EyeLike" | "MelWeightMatrix" | "RandomNormal" | "RandomNormalLike" | "RandomUniform"
            | "RandomUniformLike",
            DType::F16,
        ) => DType::F32,
        // Only exponents have these types.
        ("Pow", DType::U32) => DType::I64,
        ("Pow", DType::U64) => DType::F64,
        _ => return None,
    })
}

/// Element types of a node's inputs and outputs.
pub(super) fn dtypes(graph: &Graph, node: &Node) -> (Vec<Option<DType>>, Vec<Option<DType>>) {
    let dtype = |id: &Option<trtc_ir::ValueId>| id.and_then(|id| graph[id].ty.dtype());
    (node.inputs().iter().map(dtype).collect(), node.outputs().iter().map(dtype).collect())
}

/// A node as a draft. Subgraphs are left empty: rules do not look into them.
pub(super) fn draft_of(node: &Node) -> Draft {
    let mut attrs = Attrs::new();
    for (name, attr) in node.attrs.iter() {
        let light = match attr {
            Attr::Graph(_) => Attr::Graph(Box::default()),
            Attr::Graphs(_) => Attr::Graphs(Vec::new()),
            other => other.clone(),
        };
        attrs.set(name, light);
    }
    let inputs = node.inputs().iter().map(|input| input.map_or(Arg::None, Arg::Value)).collect();
    let mut outputs = node.outputs().len();
    if node.op.domain.is_empty() && &*node.op.op_type == "Split" {
        // Parts at the end that nobody wants are parts all the same.
        outputs = outputs.max(attrs.int("num_outputs").and_then(|n| usize::try_from(n).ok()).unwrap_or(0));
    }
    Draft {
        op: node.op.clone(),
        since: node.since_version,
        attrs,
        inputs,
        outputs,
        wanted: node.outputs().iter().map(Option::is_some).collect(),
    }
}

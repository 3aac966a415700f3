//! Subgraphs of control flow: whether an engine can hold them, and what they use from outside.

use crate::{Emit, Registry};
use trtc_bundle::{Product, Target};
use trtc_ir::{
    Code, Graph, NodeView, Oracle, Refusal, Rules, ValueId,
    infer::{self, ConstraintKind},
};
use trtc_network::TensorId;

/// Plans every node of a subgraph, those of its own subgraphs included.
///
/// # Errors
/// `E0701` with the node that no engine can hold, and its reason; `E0401`… never by themselves.
pub fn plan(node: NodeView<'_>, body: &Graph, name: &str, target: &Target) -> Result<(), Refusal> {
    let order =
        body.topo_order().map_err(|_| Refusal::new(Code::INVALID, "the subgraph has a cycle").slot(name))?;
    for id in order {
        let inner = NodeView::new(body, node.symbols(), id);
        if let Err(refusal) = Registry::get().admit(inner, target) {
            let why = format!("{} `{}` in it: {} {refusal}", inner.node().op, inner.name(), refusal.code);
            let mut outer = Refusal::new(Code::BODY, why).slot(name);
            outer.help = refusal.help;
            return Err(outer);
        }
    }
    for capture in &body.captures {
        let outer = node.value(capture.outer);
        if outer.constant().is_none() && (outer.dtype().is_none() || outer.rank().is_none()) {
            let why = format!("`{}`, which it uses, has no known dtype and rank", outer.name());
            return Err(Refusal::new(Code::CONTROL_FLOW, why).slot(name));
        }
    }
    Ok(())
}

/// A control-flow node among `ops` of a subgraph that uses a value of the run which `outer` picks, by its name and the
/// value's.
pub fn using<'a>(
    body: &'a Graph,
    ops: &[&str],
    outer: impl Fn(ValueId) -> bool,
) -> Option<(&'a str, &'a str)> {
    let nodes = body.node_ids().filter(|&id| {
        let op = &body[id].op;
        op.domain.is_empty() && ops.contains(&&*op.op_type)
    });
    nodes.into_iter().find_map(|id| {
        let mut captures = body[id].attrs.graphs().flat_map(|(_, nested)| &nested.captures);
        let found =
            captures.find(|capture| body[capture.outer].constant.is_none() && outer(capture.outer))?;
        Some((&*body[id].name, &*body[found.outer].name))
    })
}

/// An If in a loop's body that uses values from around the loop: TensorRT-RTX 1.7 takes it for a cycle.
///
/// # Errors
/// `E0503`.
pub fn check_branches(body: &Graph, target: &Target) -> Result<(), Refusal> {
    let outside = |value: ValueId| body.captures.iter().any(|capture| capture.inner == value);
    match using(body, &["If"], outside).filter(|_| target.product() == Product::Rtx) {
        Some((node, value)) => {
            let why = format!(
                "`{node}` in it uses `{value}` from around the loop, which TensorRT-RTX 1.7 takes for a cycle"
            );
            Err(Refusal::new(Code::KNOWN_FAULT, why).slot("body").help("carry the value as a state"))
        }
        None => Ok(()),
    }
}

/// What the nodes of a subgraph demand of sizes, those of its own subgraphs included.
pub fn demands(node: NodeView<'_>, body: &Graph) -> Vec<ConstraintKind> {
    let mut list = Vec::new();
    for id in body.node_ids() {
        let inner = NodeView::new(body, node.symbols(), id);
        if let Some(rule) = Registry::get().rule(inner.domain(), inner.op()) {
            list.extend(infer::demands(rule, inner));
        }
        list.extend(inner.attrs().graphs().flat_map(|(_, nested)| demands(inner, nested)));
    }
    list
}

/// Values of the outer graph that the subgraphs use and that are no constants, each once, in order.
pub fn captured(node: NodeView<'_>, bodies: &[&Graph]) -> Vec<ValueId> {
    let mut list: Vec<ValueId> =
        bodies.iter().flat_map(|body| &body.captures).map(|capture| capture.outer).collect();
    list.sort_unstable();
    list.dedup();
    list.retain(|&outer| node.value(outer).constant().is_none());
    list
}

/// What stands for each of `outers` inside `body`, given the tensors that stand for them.
pub fn bindings(body: &Graph, outers: &[ValueId], tensors: &[TensorId]) -> Vec<(ValueId, TensorId)> {
    let tensor = |outer: ValueId| outers.iter().position(|&o| o == outer).map(|k| tensors[k]);
    body.captures.iter().filter_map(|capture| Some((capture.inner, tensor(capture.outer)?))).collect()
}

/// The condition in slot `slot` as a rank-0 bool.
pub fn condition(cx: &mut Emit<'_>, slot: usize) -> TensorId {
    let condition = cx.input(slot);
    if cx.rank(condition) == 0 { condition } else { cx.reshape(condition, Vec::new()) }
}

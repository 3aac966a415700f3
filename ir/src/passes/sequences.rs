//! Sequences and optionals of static structure: who takes an element takes the tensor itself.
//!
//! A sequence is known when it is made by SequenceConstruct, SequenceEmpty, SequenceInsert and SequenceErase at constant
//! places, or by SplitToSequence. SequenceAt then becomes the element (or a Gather or Slice of what was split),
//! SequenceLength a number, ConcatFromSequence a Concat. The makers go when nobody is left that needs the sequence. What
//! crosses the border of a subgraph is the work of `hoist` and `unroll`.

use super::{Ledger, Outside, each_graph, splice::Names};
use crate::{
    attr::{Attr, Attrs},
    graph::{Graph, Module, Node, NodeId, OpKey, ValueId},
    tensor::Tensor,
    types::Type,
};
use std::collections::HashMap;
use trtc_bundle::DType;

/// Resolves what is static. `true` when anything changed. O(nodes + elements of sequences).
pub fn run(module: &mut Module, ledger: &mut Ledger) -> bool {
    each_graph(module, &mut |graph, _, path| {
        let is_ours = |id: NodeId| {
            let op = &graph[id].op;
            op.domain.is_empty() && (op.op_type.contains("Sequence") || op.op_type.starts_with("Optional"))
        };
        if !graph.node_ids().any(is_ours) {
            return false;
        }
        let Ok(mut order) = graph.topo_order() else { return false };
        let mut known: HashMap<ValueId, Sequence> = HashMap::new();
        let mut outside = Outside::of(graph);
        let (mut changed, mut gone) = (take_apart(graph), Vec::new());
        if changed {
            order = graph.topo_order().unwrap_or_default();
        }
        for id in order {
            if !graph[id].op.domain.is_empty() {
                continue;
            }
            if let Some(sequence) = made_by(graph, id, &known)
                && let Some(output) = graph[id].output(0)
            {
                known.insert(output, sequence);
                continue;
            }
            match resolve(graph, id, &known, &mut outside) {
                Resolved::No => {}
                Resolved::Rewritten => changed = true,
                Resolved::Gone(why) => {
                    ledger.remove(graph, id, path, why);
                    gone.push(id);
                }
                Resolved::Folded(why) => {
                    ledger.fold(graph, id, path, why);
                    gone.push(id);
                }
            }
        }
        graph.remove_nodes(&gone);
        changed || !gone.is_empty()
    })
}

/// Every sequence of a graph that is known. O(nodes + elements).
pub(super) fn known(graph: &Graph) -> HashMap<ValueId, Sequence> {
    let mut known = HashMap::new();
    for id in graph.topo_order().unwrap_or_default() {
        if graph[id].op.domain.is_empty()
            && let Some(sequence) = made_by(graph, id, &known)
            && let Some(output) = graph[id].output(0)
        {
            known.insert(output, sequence);
        }
    }
    known
}

/// A SplitToSequence whose parts are put together anew becomes the sequence of its parts.
fn take_apart(graph: &mut Graph) -> bool {
    let is_mixed = |id: &NodeId| {
        let mixes = |user: &NodeId| {
            matches!(&*graph[*user].op.op_type, "SequenceInsert" | "SequenceErase" | "ConcatFromSequence")
        };
        let node = &graph[*id];
        let output = node.output(0).filter(|_| &*node.op.op_type == "SplitToSequence");
        output.is_some_and(|output| graph[output].users().iter().any(mixes))
    };
    let mixed: Vec<NodeId> = graph.node_ids().filter(is_mixed).collect();
    let mut changed = false;
    for id in mixed {
        let name = graph[id].name.to_string();
        let sequence = made_by(graph, id, &HashMap::new());
        if let Some(list) = sequence.and_then(|sequence| elements(graph, &name, &sequence)) {
            rewrite(graph, id, "SequenceConstruct", 11, Attrs::new(), &list);
            changed = true;
        }
    }
    changed
}

/// The elements of a sequence as values; parts of a tensor are taken by new nodes. `None`, and nothing is done, where there
/// is none, or more than [`MAX_PARTS`] parts.
pub(super) fn elements(graph: &mut Graph, name: &str, sequence: &Sequence) -> Option<Vec<ValueId>> {
    let Sequence::Split { x, axis, parts } = sequence else {
        let Sequence::List(list) = sequence else { return None };
        return (!list.is_empty()).then(|| list.clone());
    };
    let count = length(graph, sequence).filter(|&count| (1..=MAX_PARTS).contains(&count))?;
    let cuts: Vec<Part> = (0..count).map(|at| part(graph, *x, *axis, parts, at)).collect::<Option<_>>()?;
    let mut names = Names::of(graph);
    let mut list = Vec::new();
    for (k, cut) in cuts.into_iter().enumerate() {
        let label = names.free(&format!("{name}#part_{k}"), &graph[*x].name);
        let taken = taken(graph, &label, *x, *axis, cut);
        let value = graph.add_value(&label, Type::Unknown);
        let inputs = taken.inputs.into_iter().map(Some);
        let op = OpKey::new("", taken.op);
        graph.add_node(Node::new(&label, op, 13, taken.attrs, inputs, [Some(value)]));
        list.push(value);
    }
    Some(list)
}

/// Most parts of a split that become nodes.
const MAX_PARTS: i64 = 64;

/// What is known of a sequence.
#[derive(Clone)]
pub(super) enum Sequence {
    /// Its elements. Capped in length by [`MAX_LENGTH`].
    List(Vec<ValueId>),
    /// Parts of `x` along an axis.
    Split { x: ValueId, axis: i64, parts: Parts },
}

/// How a tensor is split.
#[derive(Clone)]
pub(super) enum Parts {
    /// Slices of size 1 without the axis.
    Squeezed,
    /// Slices of one size; the last may be smaller.
    Even(i64),
    /// Slices of these sizes.
    Sizes(Vec<i64>),
}

/// Longest sequence that is followed: each insertion copies the list.
const MAX_LENGTH: usize = 512;

enum Resolved {
    No,
    Rewritten,
    Gone(&'static str),
    Folded(&'static str),
}

fn made_by(graph: &Graph, id: NodeId, known: &HashMap<ValueId, Sequence>) -> Option<Sequence> {
    let node = &graph[id];
    let list = || match known.get(&node.input(0)?)? {
        Sequence::List(list) => Some(list.clone()),
        Sequence::Split { .. } => None,
    };
    match &*node.op.op_type {
        "SequenceEmpty" => Some(Sequence::List(Vec::new())),
        "SequenceConstruct" => {
            let list = node.inputs().iter().copied().collect::<Option<Vec<ValueId>>>()?;
            (list.len() <= MAX_LENGTH).then_some(Sequence::List(list))
        }
        "SequenceInsert" => {
            let mut list = list()?;
            let at = match node.input(2) {
                Some(_) => place(constant(graph, id, 2)?, list.len(), list.len() + 1)?,
                None => list.len(),
            };
            list.insert(at, node.input(1)?);
            (list.len() <= MAX_LENGTH).then_some(Sequence::List(list))
        }
        "SequenceErase" => {
            let mut list = list()?;
            let last = list.len().checked_sub(1)?;
            let at = match node.input(1) {
                Some(_) => place(constant(graph, id, 1)?, list.len(), list.len())?,
                None => last,
            };
            list.remove(at);
            Some(Sequence::List(list))
        }
        "SplitToSequence" => {
            let axis = node.attrs.int("axis").unwrap_or(0);
            let parts = match node.input(1) {
                None if node.attrs.int("keepdims") == Some(0) => Parts::Squeezed,
                None => Parts::Even(1),
                Some(split) => {
                    let split = graph[split].constant.as_ref()?;
                    let sizes = split.to_i64s()?;
                    match (split.dims(), sizes.as_slice()) {
                        ([], &[size]) if size > 0 => Parts::Even(size),
                        ([_], _) if sizes.iter().all(|&size| size >= 0) => Parts::Sizes(sizes),
                        _ => return None,
                    }
                }
            };
            Some(Sequence::Split { x: node.input(0)?, axis, parts })
        }
        "Identity" => known.get(&node.input(0)?).cloned(),
        _ => None,
    }
}

/// A constant integer input of one element.
fn constant(graph: &Graph, id: NodeId, slot: usize) -> Option<i64> {
    match graph[graph[id].input(slot)?].constant.as_ref()?.to_i64s()?[..] {
        [value] => Some(value),
        _ => None,
    }
}

/// A place in `0..bound` from one that may be negative, counted from `length`.
fn place(value: i64, length: usize, bound: usize) -> Option<usize> {
    let at = if value < 0 { value.checked_add(length as i64)? } else { value };
    usize::try_from(at).ok().filter(|&at| at < bound)
}

fn resolve(
    graph: &mut Graph,
    id: NodeId,
    known: &HashMap<ValueId, Sequence>,
    outside: &mut Outside,
) -> Resolved {
    let node = &graph[id];
    let Some(output) = node.output(0) else { return Resolved::No };
    let sequence = node.input(0).and_then(|input| known.get(&input));
    match (&*node.op.op_type, sequence) {
        ("SequenceAt", Some(Sequence::List(list))) => {
            let at = constant(graph, id, 1).and_then(|at| place(at, list.len(), list.len()));
            match at {
                Some(at) if outside.replace(graph, output, list[at]) => {
                    Resolved::Gone("an element of a static sequence")
                }
                _ => Resolved::No,
            }
        }
        ("SequenceAt", Some(Sequence::Split { x, axis, parts })) => {
            let (x, axis) = (*x, *axis);
            match constant(graph, id, 1).and_then(|at| part(graph, x, axis, parts, at)) {
                Some(part) => {
                    take_part(graph, id, x, axis, part);
                    Resolved::Rewritten
                }
                None => Resolved::No,
            }
        }
        ("SequenceLength", Some(sequence)) => match length(graph, sequence) {
            Some(length) => {
                graph.set_constant(output, Tensor::scalar_i64(length));
                Resolved::Folded("the length of a static sequence")
            }
            None => Resolved::No,
        },
        ("ConcatFromSequence", Some(Sequence::List(list))) if !list.is_empty() => {
            let Some(axis) = node.attrs.int("axis") else { return Resolved::No };
            let mut attrs = Attrs::new();
            attrs.set("axis", Attr::Int(axis));
            let name = node.name.clone();
            let list = match node.attrs.int("new_axis") {
                None | Some(0) => list.clone(),
                Some(_) => with_new_axis(graph, &name, axis, list),
            };
            rewrite(graph, id, "Concat", 13, attrs, &list);
            Resolved::Rewritten
        }
        ("OptionalHasElement", _) => match has_element(graph, id) {
            Some(has) => {
                let tensor = Tensor::new(DType::Bool, vec![], vec![u8::from(has)].into());
                let Some(tensor) = tensor else { return Resolved::No };
                graph.set_constant(output, tensor);
                Resolved::Folded("whether there is an element is known")
            }
            None => Resolved::No,
        },
        ("OptionalGetElement", _) => match element(graph, id) {
            Some(x) if outside.replace(graph, output, x) => Resolved::Gone("the element of an optional"),
            // Input and output of the model both keep their names.
            Some(x) => {
                rewrite(graph, id, "Identity", 25, Attrs::new(), &[x]);
                Resolved::Rewritten
            }
            None => Resolved::No,
        },
        _ => Resolved::No,
    }
}

/// Number of elements, if it is known.
pub(super) fn length(graph: &Graph, sequence: &Sequence) -> Option<i64> {
    match sequence {
        Sequence::List(list) => i64::try_from(list.len()).ok(),
        Sequence::Split { parts: Parts::Sizes(sizes), .. } => i64::try_from(sizes.len()).ok(),
        Sequence::Split { x, axis, parts } => {
            let size = split_dim(graph, *x, *axis)?;
            let each = if let Parts::Even(each) = parts { *each } else { 1 };
            Some(size / each + i64::from(size % each != 0))
        }
    }
}

fn split_dim(graph: &Graph, x: ValueId, axis: i64) -> Option<i64> {
    let shape = graph[x].ty.shape()?;
    shape.get(place(axis, shape.len(), shape.len())?)?.known()
}

/// A part of a split tensor.
enum Part {
    Index(i64),
    Range(i64, i64),
}

fn part(graph: &Graph, x: ValueId, axis: i64, parts: &Parts, at: i64) -> Option<Part> {
    match parts {
        Parts::Squeezed => Some(Part::Index(at)),
        Parts::Sizes(sizes) => {
            let at = place(at, sizes.len(), sizes.len())?;
            let start: i64 = sizes[..at].iter().sum();
            Some(Part::Range(start, start + sizes[at]))
        }
        Parts::Even(each) => {
            let at = match at {
                0.. => at,
                _ => {
                    let split = Sequence::Split { x, axis, parts: parts.clone() };
                    at.checked_add(length(graph, &split)?).filter(|&at| at >= 0)?
                }
            };
            let start = at.checked_mul(*each)?;
            // Past the end the run fails, which a slice would not.
            if split_dim(graph, x, axis).is_some_and(|size| start >= size) {
                return None;
            }
            Some(Part::Range(start, start.checked_add(*each)?))
        }
    }
}

/// A node that takes a part of a tensor.
struct Taken {
    op: &'static str,
    attrs: Attrs,
    inputs: Vec<ValueId>,
}

/// What takes `part` of `x`; its constants are named after `name`.
fn taken(graph: &mut Graph, name: &str, x: ValueId, axis: i64, part: Part) -> Taken {
    let mut add = |what: &str, tensor: Tensor| graph.add_constant(&format!("{name}/{what}"), tensor);
    match part {
        Part::Index(index) => {
            let mut attrs = Attrs::new();
            attrs.set("axis", Attr::Int(axis));
            Taken { op: "Gather", attrs, inputs: vec![x, add("index", Tensor::scalar_i64(index))] }
        }
        Part::Range(start, end) => {
            let inputs = vec![
                x,
                add("starts", Tensor::from_i64s(&[start])),
                add("ends", Tensor::from_i64s(&[end])),
                add("axes", Tensor::from_i64s(&[axis])),
            ];
            Taken { op: "Slice", attrs: Attrs::new(), inputs }
        }
    }
}

/// Makes the node take its part of `x` itself.
fn take_part(graph: &mut Graph, id: NodeId, x: ValueId, axis: i64, part: Part) {
    let name = graph[id].name.clone();
    let taken = taken(graph, &name, x, axis, part);
    rewrite(graph, id, taken.op, 13, taken.attrs, &taken.inputs);
}

/// Gives each tensor a dim of 1 at `axis`.
fn with_new_axis(graph: &mut Graph, name: &str, axis: i64, list: &[ValueId]) -> Vec<ValueId> {
    let axes = graph.add_constant(&format!("{name}/axes"), Tensor::from_i64s(&[axis]));
    let mut wide = Vec::new();
    for (k, &x) in list.iter().enumerate() {
        let label = format!("{name}#wide_{k}");
        let y = graph.add_value(&label, Type::Unknown);
        let op = OpKey::new("", "Unsqueeze");
        graph.add_node(Node::new(&label, op, 25, Attrs::new(), [Some(x), Some(axes)], [Some(y)]));
        wide.push(y);
    }
    wide
}

/// Turns a node into another operator; its name and output stay.
fn rewrite(graph: &mut Graph, id: NodeId, op_type: &str, since: u32, attrs: Attrs, inputs: &[ValueId]) {
    graph.set_inputs_of(id, inputs.iter().copied().map(Some));
    if let Some(node) = graph.node_mut(id) {
        node.op = OpKey::new("", op_type);
        node.since_version = since;
        node.attrs = attrs;
    }
}

/// The Optional node that makes a node's input.
fn optional(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let (producer, _) = graph[graph[id].input(0)?].producer()?;
    (&*graph[producer].op.op_type == "Optional").then_some(producer)
}

fn has_element(graph: &Graph, id: NodeId) -> Option<bool> {
    let Some(input) = graph[id].input(0) else { return Some(false) };
    if let Some(maker) = optional(graph, id) {
        return Some(graph[maker].input(0).is_some());
    }
    matches!(graph[input].ty, Type::Tensor(_) | Type::Sequence(_)).then_some(true)
}

fn element(graph: &Graph, id: NodeId) -> Option<ValueId> {
    let input = graph[id].input(0)?;
    if let Some(maker) = optional(graph, id) {
        return graph[maker].input(0);
    }
    matches!(graph[input].ty, Type::Tensor(_) | Type::Sequence(_)).then_some(input)
}

//! What to do about a value that only the run gives, when it is an input of the model or follows from one.

use trtc_bundle::DType;
use trtc_ir::{Code, Dim, Graph, NodeView, Refusal, ValueId};

/// Most values that are looked at on the way from a node to the model's inputs.
const MOST: usize = 64;

/// The refusal with a hint at `--value`, unless it has one of its own or no input of the model is to blame.
pub(crate) fn with_hint(node: NodeView<'_>, refusal: Refusal) -> Refusal {
    let about_values = matches!(
        refusal.code,
        Code::NOT_CONSTANT | Code::SHAPE_VALUE | Code::RANK_UNKNOWN | Code::DIM_UNKNOWN
    );
    // What goes into a body is no input of the model.
    if refusal.help.is_some() || !about_values || !node.graph().captures.is_empty() {
        return refusal;
    }
    let inputs = sources(node);
    let [first, ..] = &inputs[..] else { return refusal };
    let graph = node.graph();
    let asked = |element: &str| {
        let one = |&id: &ValueId| format!("--value {}={}", graph[id].name, elements(graph, id, element));
        inputs.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    let mut help = format!("{} makes it a constant", asked("N"));
    let is_size = |&id: &ValueId| matches!(graph[id].ty.dtype(), Some(DType::I32 | DType::I64));
    if refusal.code != Code::NOT_CONSTANT && inputs.iter().all(is_size) {
        help += &format!("; where it is a size, {} gives its range", asked("MIN..MAX"));
    }
    if graph[*first].ty.shape().is_none_or(|shape| shape.iter().any(|dim| dim.known().is_none())) {
        help += ", an element at a time";
    }
    refusal.help(help)
}

/// Inputs of the model that the node's small operands are, or follow from by arithmetic of small integers.
fn sources(node: NodeView<'_>) -> Vec<ValueId> {
    let graph = node.graph();
    let is_small = |id: ValueId| {
        let value = &graph[id];
        let is_list = value.ty.shape().is_none_or(|shape| shape.len() <= 1);
        value.constant.is_none() && value.elements.is_none() && is_list
    };
    let is_int = |id: ValueId| matches!(graph[id].ty.dtype(), Some(DType::I32 | DType::I64 | DType::Bool));
    // Floats are data in the first slot, and may be scales behind it.
    let operands = node.node().inputs().iter().enumerate().filter_map(|(slot, input)| {
        let id = (*input)?;
        (is_small(id) && (is_int(id) || (slot > 0 && graph.inputs().contains(&id)))).then_some(id)
    });
    let mut open: Vec<ValueId> = operands.collect();
    let (mut seen, mut found) = (Vec::new(), Vec::new());
    while let Some(id) = open.pop() {
        if seen.contains(&id) || seen.len() > MOST {
            continue;
        }
        seen.push(id);
        if graph.inputs().contains(&id) {
            found.push(id);
        } else if let Some((maker, _)) = graph[id].producer() {
            open.extend(graph[maker].inputs().iter().flatten().filter(|&&id| is_small(id) && is_int(id)));
        }
    }
    found.sort_unstable();
    found
}

/// As many elements as the input has: `N,N`.
fn elements(graph: &Graph, id: ValueId, element: &str) -> String {
    let count = match graph[id].ty.shape() {
        Some([Dim::Known(count)]) => usize::try_from(*count).unwrap_or(1).clamp(1, 8),
        _ => 1,
    };
    vec![element; count].join(",")
}

//! Inputs of a network that lend a size to control flow and are never read.
//!
//! The builder of TensorRT-RTX 1.7 recurses without end where a layer inside a loop or a branch is sized by a tensor that
//! comes from the shape of such an input (a Slice, TopK or Resize; a Fill builds). It builds where the input is read, too,
//! or another one that is read has a dim of the same name.

use std::collections::{HashMap, HashSet};
use trtc_network::{
    Network, TensorId,
    layer::{Count, Extent, Layer, LayerEntry, ResizeTo},
};

/// A layer with control flow, as an index into `network.nodes`, and the name of the input that sizes something in it.
/// O(layers).
pub(crate) fn find(network: &Network) -> Option<(usize, &str)> {
    if !network.layers.iter().any(|entry| is_control(&entry.layer)) {
        return None;
    }
    let mut uses = Uses::default();
    uses.block(&network.layers);
    let read = uses.behind(network.outputs.iter().map(|output| output.tensor), false);
    let (read, unread): (Vec<_>, Vec<_>) =
        network.inputs.iter().partition(|input| read.contains(&input.tensor));
    let names: HashSet<&String> = read.iter().flat_map(|input| &input.dim_names).collect();
    let unread: Vec<_> = unread
        .into_iter()
        .filter(|input| input.dim_names.iter().any(|name| !name.is_empty() && !names.contains(name)))
        .collect();
    if unread.is_empty() {
        return None;
    }
    network.layers.iter().filter(|entry| is_control(&entry.layer)).find_map(|entry| {
        let mut sizes = Vec::new();
        inside(&entry.layer, &mut sizes);
        let behind = uses.behind(sizes.into_iter(), true);
        let input = unread.iter().find(|input| behind.contains(&input.tensor))?;
        Some((entry.node as usize, input.name.as_str()))
    })
}

fn is_control(layer: &Layer) -> bool {
    matches!(layer, Layer::Loop { .. } | Layer::If { .. })
}

/// What each tensor is made of.
#[derive(Default)]
struct Uses {
    of: HashMap<TensorId, Vec<TensorId>>,
    /// Tensors of which only the shape is taken by what they are made into.
    shapes: HashSet<TensorId>,
}

impl Uses {
    fn block(&mut self, layers: &[LayerEntry]) {
        for entry in layers {
            let mut inputs = Vec::new();
            match &entry.layer {
                Layer::If { condition, captures, then_branch, else_branch } => {
                    for capture in captures {
                        self.add(capture.inner, [capture.outer]);
                    }
                    self.block(&then_branch.layers);
                    self.block(&else_branch.layers);
                    for (k, &output) in entry.outputs.iter().enumerate() {
                        let ends = [then_branch, else_branch].map(|region| region.outputs.get(k).copied());
                        self.add(output, ends.into_iter().flatten().chain([*condition]));
                    }
                    continue;
                }
                Layer::Loop { limits, recurrences, iterators, body, results } => {
                    for state in recurrences {
                        self.add(state.current, [state.initial, state.next]);
                    }
                    for iterator in iterators {
                        self.add(iterator.current, [iterator.x]);
                    }
                    self.block(body);
                    for (&output, result) in entry.outputs.iter().zip(results) {
                        let counts = limits.iter().map(|limit| limit.1);
                        self.add(output, counts.chain(result.length).chain([result.value]));
                    }
                    continue;
                }
                layer => layer.for_each_input(&mut |x| inputs.push(x)),
            }
            for &output in &entry.outputs {
                self.add(output, inputs.iter().copied());
                if matches!(entry.layer, Layer::Shape { .. }) {
                    self.shapes.insert(output);
                }
            }
        }
    }

    fn add(&mut self, tensor: TensorId, from: impl IntoIterator<Item = TensorId>) {
        self.of.entry(tensor).or_default().extend(from);
    }

    /// Everything that `from` is made of, itself included; with `shapes` also what only a shape is taken of.
    fn behind(&self, from: impl Iterator<Item = TensorId>, shapes: bool) -> HashSet<TensorId> {
        let mut waiting: Vec<TensorId> = from.collect();
        let mut seen = HashSet::new();
        while let Some(tensor) = waiting.pop() {
            if seen.insert(tensor) && (shapes || !self.shapes.contains(&tensor)) {
                waiting.extend(self.of.get(&tensor).into_iter().flatten());
            }
        }
        seen
    }
}

/// The tensors that size layers inside control flow.
fn inside(layer: &Layer, sizes: &mut Vec<TensorId>) {
    let blocks: [&[LayerEntry]; 2] = match layer {
        Layer::If { then_branch, else_branch, .. } => [&then_branch.layers, &else_branch.layers],
        Layer::Loop { body, .. } => [body, &[]],
        _ => return,
    };
    for entry in blocks.into_iter().flatten() {
        let mut extent = |extent: &Extent| {
            if let Extent::Tensor(id) = extent {
                sizes.push(*id);
            }
        };
        match &entry.layer {
            Layer::Shuffle { reshape: Some(sizes), .. } => extent(sizes),
            Layer::Slice { start, size, stride, .. } => [start, size, stride].into_iter().for_each(extent),
            Layer::Resize { to: ResizeTo::Sizes(sizes), .. } => extent(sizes),
            Layer::TopK { k: Count::Tensor(id), .. } => sizes.push(*id),
            layer => inside(layer, sizes),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{LowerError, samples::*, testing::*};
    use trtc_ir::{Attr, Code, Graph, Type, ValueId};

    /// The first rows of `x`, as many as `z` has; `read`: those of `z` are added up and multiplied with them.
    fn branch(read: bool) -> Graph {
        let mut graph = Graph::new("branch");
        let x = graph.add_capture(ValueId(1), "x", Type::Unknown);
        let z = graph.add_capture(ValueId(2), "z", Type::Unknown);
        let zero = graph.add_constant("zero", list(&[0]));
        let shape = node(&mut graph, "Shape", 25, &[z]);
        let one = graph.add_constant("one", list(&[1]));
        let rows = node(&mut graph, "Slice", 13, &[shape, zero, one]);
        let top = node(&mut graph, "Slice", 13, &[x, zero, rows, zero]);
        let y = match read {
            true => {
                let all = node(&mut graph, "ReduceMax", 20, &[z]);
                node(&mut graph, "Mul", 14, &[top, all])
            }
            false => node(&mut graph, "Neg", 13, &[top]),
        };
        graph.add_output(y);
        graph
    }

    fn other() -> Graph {
        let mut graph = Graph::new("other");
        let x = graph.add_capture(ValueId(1), "x", Type::Unknown);
        let y = node(&mut graph, "Exp", 13, &[x]);
        graph.add_output(y);
        graph
    }

    fn case(read: bool, rows: i64) -> Case {
        Case::new("If", 25)
            .input(bools([], &[false]))
            .outside(noise([rows, 3]))
            .outside(noise([2, 3]))
            .dynamic(1, ["N", "3"])
            .dynamic(2, ["M", "3"])
            .attr("then_branch", Attr::Graph(Box::new(other())))
            .attr("else_branch", Attr::Graph(Box::new(branch(read))))
    }

    #[test]
    fn sizes_of_what_is_not_read() {
        let refused = case(false, 4).lowers().unwrap_err();
        let LowerError::Refused { refusal, .. } = refused else { panic!("{refused}") };
        assert_eq!(refusal.code, Code::KNOWN_FAULT);
        assert!(refusal.why.contains("without end"), "{refusal}");
        case(false, 4).target("tensorrt-11.3:sm89").lowers().unwrap();
        case(true, 4).check(F32);
        // Another input that is read has the size.
        case(false, 2).dynamic(1, ["M", "3"]).check(F32);
    }
}

//! Changes to the graph; uses, producers and edges follow each change.

use super::{Capture, Graph, MAX_ELEMENTS, Node, NodeId, ValueId, captured_by};
use crate::{dim::Dim, tensor::Tensor, types::Type};
use petgraph::{Direction, visit::EdgeRef};

impl Graph {
    /// Makes a value a constant; type and small elements follow. Its producer, if any, no longer makes it.
    pub fn set_constant(&mut self, id: ValueId, tensor: Tensor) {
        self.detach(id);
        let value = &mut self.values[id.index()];
        value.ty = Type::tensor(tensor.dtype(), tensor.dims().iter().map(|&d| Dim::Known(d)).collect());
        value.elements =
            (tensor.dims().len() <= 1 && tensor.count() <= MAX_ELEMENTS && tensor.dtype().is_int())
                .then(|| tensor.to_i64s().map(|list| list.into_iter().map(Dim::Known).collect()))
                .flatten();
        value.constant = Some(tensor);
    }

    fn detach(&mut self, id: ValueId) {
        if let Some((node, slot)) = self.values[id.index()].producer.take() {
            if let Some(node) = self.inner.node_weight_mut(node.0) {
                node.outputs[slot as usize] = None;
            }
            self.remove_edges(node, id);
        }
    }

    /// Removes the edges that carry `value` out of its producer, in the order of petgraph's list: O(1) each.
    fn remove_edges(&mut self, producer: NodeId, value: ValueId) {
        let edges = self.inner.edges(producer.0);
        let stale: Vec<_> = edges.filter(|edge| *edge.weight() == value).map(|edge| edge.id()).collect();
        for edge in stale {
            self.inner.remove_edge(edge);
        }
    }

    /// Adds a node and becomes the producer of its outputs. Inputs may be made later: order is not insertion.
    pub fn add_node(&mut self, node: Node) -> NodeId {
        let outputs = node.outputs.clone();
        let id = NodeId(self.inner.add_node(node));
        for (slot, output) in outputs.iter().enumerate() {
            if let Some(output) = *output {
                self.values[output.index()].producer = Some((id, slot as u32));
                for user in self.values[output.index()].users.clone() {
                    self.inner.add_edge(id.0, user.0, output);
                }
            }
        }
        self.connect(id);
        id
    }

    fn connect(&mut self, id: NodeId) {
        let uses: Vec<ValueId> = self.inner[id.0].uses().collect();
        for value in uses {
            self.values[value.index()].users.push(id);
            if let Some((producer, _)) = self.values[value.index()].producer {
                self.inner.add_edge(producer.0, id.0, value);
            }
        }
    }

    fn disconnect(&mut self, id: NodeId) {
        let uses: Vec<ValueId> = self.inner[id.0].uses().collect();
        for value in uses {
            let users = &mut self.values[value.index()].users;
            if let Some(at) = users.iter().rposition(|&user| user == id) {
                users.remove(at);
            }
        }
        let mut walker = self.inner.neighbors_directed(id.0, Direction::Incoming).detach();
        while let Some(edge) = walker.next_edge(&self.inner) {
            self.inner.remove_edge(edge);
        }
    }

    /// Removes a node. Its outputs stay as values without a producer. O(degree).
    pub fn remove_node(&mut self, id: NodeId) {
        if !self.inner.contains_node(id.0) {
            return;
        }
        self.disconnect(id);
        if let Some(node) = self.inner.remove_node(id.0) {
            for output in node.outputs.into_iter().flatten() {
                self.values[output.index()].producer = None;
            }
        }
    }

    /// Removes many nodes. O(their uses, and the users of what they use), whatever the order.
    pub fn remove_nodes(&mut self, ids: &[NodeId]) {
        let mut doomed = vec![false; self.node_bound()];
        for id in ids {
            doomed[id.index()] = true;
        }
        let mut used: Vec<ValueId> = ids.iter().filter_map(|&id| self.get(id)).flat_map(Node::uses).collect();
        used.sort_unstable();
        used.dedup();
        for value in used {
            self.values[value.index()].users.retain(|user| !doomed[user.index()]);
        }
        // The newest edges stand first in petgraph's lists: going backwards finds each at once.
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        for id in ids.into_iter().rev() {
            if let Some(node) = self.inner.remove_node(id.0) {
                for output in node.outputs.into_iter().flatten() {
                    self.values[output.index()].producer = None;
                }
            }
        }
    }

    /// Sets an input of a node (growing the list when the slot is new).
    pub fn set_input(&mut self, id: NodeId, slot: usize, value: Option<ValueId>) {
        self.disconnect(id);
        let inputs = &mut self.inner[id.0].inputs;
        while inputs.len() <= slot {
            inputs.push(None);
        }
        inputs[slot] = value;
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
        self.connect(id);
    }

    /// Replaces all inputs of a node.
    pub fn set_inputs_of(&mut self, id: NodeId, inputs: impl IntoIterator<Item = Option<ValueId>>) {
        self.disconnect(id);
        let list = &mut self.inner[id.0].inputs;
        list.clear();
        list.extend(inputs);
        while list.last() == Some(&None) {
            list.pop();
        }
        self.connect(id);
    }

    /// Makes a node the producer of `value` in a slot (growing the list when the slot is new). The value that the slot
    /// made before stays as a value without a producer, and so does the slot that made `value` before.
    pub fn set_output(&mut self, id: NodeId, slot: usize, value: ValueId) {
        if let Some(before) = self.inner[id.0].output(slot) {
            self.detach(before);
        }
        self.detach(value);
        let outputs = &mut self.inner[id.0].outputs;
        while outputs.len() <= slot {
            outputs.push(None);
        }
        outputs[slot] = Some(value);
        self.values[value.index()].producer = Some((id, slot as u32));
        for user in self.values[value.index()].users.clone() {
            self.inner.add_edge(id.0, user.0, value);
        }
    }

    /// Makes a value one without a producer; the node's slot becomes absent.
    pub fn drop_output(&mut self, id: ValueId) {
        self.detach(id);
    }

    /// Makes every use of `old` a use of `new`: inputs, captures, graph outputs. O(uses of `old`).
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) {
        if old == new {
            return;
        }
        if let Some((producer, _)) = self.values[old.index()].producer {
            self.remove_edges(producer, old);
        }
        let mut users = std::mem::take(&mut self.values[old.index()].users);
        users.sort_unstable();
        users.dedup();
        for user in users {
            let node = &mut self.inner[user.0];
            let before = node.uses().filter(|&value| value == new).count();
            for input in node.inputs.iter_mut().filter(|input| **input == Some(old)) {
                *input = Some(new);
            }
            if !node.captured.is_empty() {
                for (_, graph) in node.attrs.graphs_mut() {
                    graph.recapture(old, new);
                }
                node.captured = captured_by(&node.attrs);
            }
            let after = node.uses().filter(|&value| value == new).count();
            let value = &mut self.values[new.index()];
            for _ in before..after {
                value.users.push(user);
                if let Some((producer, _)) = value.producer {
                    self.inner.add_edge(producer.0, user.0, new);
                }
            }
        }
        for output in self.outputs.iter_mut().filter(|output| **output == old) {
            *output = new;
        }
    }

    /// Captures `new` instead of `old`; one capture is enough for both.
    fn recapture(&mut self, old: ValueId, new: ValueId) {
        let Some(at) = self.captures.iter().position(|capture| capture.outer == old) else { return };
        match self.captures.iter().find(|capture| capture.outer == new).copied() {
            Some(Capture { inner, .. }) => {
                let gone = self.captures.remove(at);
                self.replace_uses(gone.inner, inner);
            }
            None => self.captures[at].outer = new,
        }
    }

    /// Recomputes what a node's subgraphs use after they were changed.
    pub fn refresh_captures(&mut self, id: NodeId) {
        self.disconnect(id);
        let node = &mut self.inner[id.0];
        node.captured = captured_by(&node.attrs);
        self.connect(id);
    }
}

//! The graph: nodes, values, uses, subgraphs. petgraph keeps nodes and edges and is not visible outside.

use crate::{attr::Attrs, dim::Dim, symbols::Symbols, tensor::Tensor, types::Type};
use petgraph::{
    Direction,
    stable_graph::{NodeIndex, StableDiGraph},
};
use smallvec::SmallVec;
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fmt,
    ops::{Index, IndexMut},
    sync::Arc,
};

/// A node of one graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(NodeIndex);

/// A value of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl NodeId {
    /// Number of the node: its place in the order of insertion, with gaps for removed nodes.
    pub fn index(self) -> usize {
        self.0.index()
    }
}

impl ValueId {
    /// Number of the value.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.index())
    }
}

/// Which operator a node is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OpKey {
    /// Domain; empty for the default one (`ai.onnx` is written as empty).
    pub domain: Arc<str>,
    /// Operator type.
    pub op_type: Arc<str>,
}

impl OpKey {
    /// A key. `ai.onnx` becomes the empty domain.
    pub fn new(domain: &str, op_type: &str) -> OpKey {
        let domain = if domain == "ai.onnx" { "" } else { domain };
        OpKey { domain: domain.into(), op_type: op_type.into() }
    }
}

impl fmt::Display for OpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.domain {
            "" => f.write_str(&self.op_type),
            domain => write!(f, "{domain}.{}", self.op_type),
        }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Unique within the graph; `graph/path/Op_k` where the model gave none.
    pub name: Arc<str>,
    /// Operator.
    pub op: OpKey,
    /// Schema version that attributes and inputs follow; 0 for a domain without versions.
    pub since_version: u32,
    /// Attributes; subgraphs are among them.
    pub attrs: Attrs,
    inputs: SmallVec<[Option<ValueId>; 4]>,
    outputs: SmallVec<[Option<ValueId>; 2]>,
    captured: Vec<ValueId>,
}

impl Node {
    /// A node that is in no graph yet. Trailing absent inputs and outputs are dropped.
    pub fn new(
        name: &str,
        op: OpKey,
        since_version: u32,
        attrs: Attrs,
        inputs: impl IntoIterator<Item = Option<ValueId>>,
        outputs: impl IntoIterator<Item = Option<ValueId>>,
    ) -> Node {
        let mut inputs: SmallVec<[Option<ValueId>; 4]> = inputs.into_iter().collect();
        let mut outputs: SmallVec<[Option<ValueId>; 2]> = outputs.into_iter().collect();
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
        while outputs.last() == Some(&None) {
            outputs.pop();
        }
        let captured = captured_by(&attrs);
        Node { name: name.into(), op, since_version, attrs, inputs, outputs, captured }
    }

    /// Inputs by slot.
    pub fn inputs(&self) -> &[Option<ValueId>] {
        &self.inputs
    }

    /// Outputs by slot.
    pub fn outputs(&self) -> &[Option<ValueId>] {
        &self.outputs
    }

    /// Input of a slot; `None` when absent.
    pub fn input(&self, slot: usize) -> Option<ValueId> {
        self.inputs.get(slot).copied().flatten()
    }

    /// Output of a slot; `None` when absent.
    pub fn output(&self, slot: usize) -> Option<ValueId> {
        self.outputs.get(slot).copied().flatten()
    }

    /// Values that the subgraphs use from outside, each once.
    pub fn captured(&self) -> &[ValueId] {
        &self.captured
    }

    /// Everything that the node reads: inputs and captures. A value may occur more than once.
    pub fn uses(&self) -> impl Iterator<Item = ValueId> {
        self.inputs.iter().flatten().copied().chain(self.captured.iter().copied())
    }
}

fn captured_by(attrs: &Attrs) -> Vec<ValueId> {
    let mut list: Vec<ValueId> = Vec::new();
    for (_, graph) in attrs.graphs() {
        list.extend(graph.captures.iter().map(|capture| capture.outer));
    }
    list.sort_unstable();
    list.dedup();
    list
}

/// A value.
#[derive(Clone, Debug)]
pub struct Value {
    /// Unique within the graph.
    pub name: Arc<str>,
    /// Type.
    pub ty: Type,
    /// The constant that the value is: an initializer, or folded. Such a value has no producer.
    pub constant: Option<Tensor>,
    /// Elements of a small integer tensor of rank 0 or 1, where they are known at least partly.
    pub elements: Option<Vec<Dim>>,
    producer: Option<(NodeId, u32)>,
    users: Vec<NodeId>,
}

impl Value {
    /// The node that makes the value, and its output slot.
    pub fn producer(&self) -> Option<(NodeId, usize)> {
        self.producer.map(|(node, slot)| (node, slot as usize))
    }

    /// Nodes that read the value, once for each use (captures count once a node).
    pub fn users(&self) -> &[NodeId] {
        &self.users
    }
}

/// A value of the outer graph that a subgraph uses, under its name inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// In the outer graph.
    pub outer: ValueId,
    /// In the subgraph: a value without a producer.
    pub inner: ValueId,
}

/// A graph: the model's own, or a subgraph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Name.
    pub name: String,
    /// What a subgraph uses from the graph around it; empty for the model's own graph.
    pub captures: Vec<Capture>,
    inner: StableDiGraph<Node, ValueId>,
    values: Vec<Value>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
}

/// One model.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// The model's graph.
    pub graph: Graph,
    /// Symbols that dims of this graph and its subgraphs mention.
    pub symbols: Symbols,
    /// Opset versions by domain, as the model imports them.
    pub opsets: Vec<(String, u32)>,
    /// Metadata of the model.
    pub metadata: Vec<(String, String)>,
    /// Producer, IR version and the like, for reports: (`producer`, `pytorch 2.5`).
    pub origin: Vec<(String, String)>,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: &str) -> Graph {
        Graph { name: name.to_owned(), ..Graph::default() }
    }

    /// A value without producer. Uniqueness of names is the caller's.
    pub fn add_value(&mut self, name: &str, ty: Type) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        let value = Value {
            name: name.into(),
            ty,
            constant: None,
            elements: None,
            producer: None,
            users: Vec::new(),
        };
        self.values.push(value);
        id
    }

    /// A graph input.
    pub fn add_input(&mut self, name: &str, ty: Type) -> ValueId {
        let id = self.add_value(name, ty);
        self.inputs.push(id);
        id
    }

    /// An initializer or folded constant.
    pub fn add_constant(&mut self, name: &str, tensor: Tensor) -> ValueId {
        let id = self.add_value(name, Type::Unknown);
        self.set_constant(id, tensor);
        id
    }

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
            let stale: Vec<_> = self
                .inner
                .edges(node.0)
                .filter(|e| *e.weight() == id)
                .map(|e| petgraph::visit::EdgeRef::id(&e))
                .collect();
            for edge in stale {
                self.inner.remove_edge(edge);
            }
        }
    }

    /// A value of the outer graph, under a name inside this subgraph. The same outer value gives the same inner one.
    pub fn add_capture(&mut self, outer: ValueId, name: &str, ty: Type) -> ValueId {
        if let Some(capture) = self.captures.iter().find(|c| c.outer == outer) {
            return capture.inner;
        }
        let inner = self.add_value(name, ty);
        self.captures.push(Capture { outer, inner });
        inner
    }

    /// Appends a graph output. A value may be an output more than once.
    pub fn add_output(&mut self, id: ValueId) {
        self.outputs.push(id);
    }

    /// Replaces the list of graph outputs.
    pub fn set_outputs(&mut self, outputs: Vec<ValueId>) {
        self.outputs = outputs;
    }

    /// Replaces the list of graph inputs.
    pub fn set_inputs(&mut self, inputs: Vec<ValueId>) {
        self.inputs = inputs;
    }

    /// Graph inputs, in order. Initializers are not among them.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// Graph outputs, in order.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
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

    /// Makes every use of `old` a use of `new`: inputs, captures, graph outputs.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) {
        let mut users = self.values[old.index()].users.clone();
        users.sort_unstable();
        users.dedup();
        for user in users {
            self.disconnect(user);
            let node = &mut self.inner[user.0];
            for input in node.inputs.iter_mut().filter(|input| **input == Some(old)) {
                *input = Some(new);
            }
            for (_, graph) in node.attrs.graphs_mut() {
                for capture in graph.captures.iter_mut().filter(|capture| capture.outer == old) {
                    capture.outer = new;
                }
            }
            node.captured = captured_by(&node.attrs);
            self.connect(user);
        }
        for output in self.outputs.iter_mut().filter(|output| **output == old) {
            *output = new;
        }
    }

    /// Recomputes what a node's subgraphs use after they were changed.
    pub fn refresh_captures(&mut self, id: NodeId) {
        self.disconnect(id);
        let node = &mut self.inner[id.0];
        node.captured = captured_by(&node.attrs);
        self.connect(id);
    }

    /// Number of nodes, without those of subgraphs.
    pub fn node_count(&self) -> usize {
        self.inner.node_count()
    }

    /// Number of values, dead ones included.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// One past the largest [`NodeId::index`].
    pub fn node_bound(&self) -> usize {
        use petgraph::visit::NodeIndexable;
        self.inner.node_bound()
    }

    /// A node, unless it was removed.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.inner.node_weight(id.0)
    }

    /// Nodes in the order of insertion.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> {
        self.inner.node_indices().map(NodeId)
    }

    /// Values in the order in which they were made.
    pub fn value_ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    /// Nodes that make what `id` uses, each once for each edge.
    pub fn predecessors(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        self.inner.neighbors_directed(id.0, Direction::Incoming).map(NodeId)
    }

    /// Nodes that use what `id` makes, each once for each edge.
    pub fn successors(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        self.inner.neighbors_directed(id.0, Direction::Outgoing).map(NodeId)
    }

    /// Nodes so that every value is made before it is used; among those that are free, insertion order decides.
    ///
    /// # Errors
    /// The nodes of a cycle, when there is one. O((nodes + edges) · log nodes).
    pub fn topo_order(&self) -> Result<Vec<NodeId>, Vec<NodeId>> {
        let mut waiting = vec![0u32; self.node_bound()];
        let mut ready = BinaryHeap::new();
        for id in self.node_ids() {
            let n = self.inner.edges_directed(id.0, Direction::Incoming).count() as u32;
            waiting[id.index()] = n;
            if n == 0 {
                ready.push(Reverse(id));
            }
        }
        let mut order = Vec::with_capacity(self.node_count());
        while let Some(Reverse(id)) = ready.pop() {
            order.push(id);
            for next in self.successors(id) {
                waiting[next.index()] -= 1;
                if waiting[next.index()] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        if order.len() == self.node_count() { Ok(order) } else { Err(self.find_cycle(&waiting)) }
    }

    /// Walks backwards among the nodes that never became free until one repeats.
    fn find_cycle(&self, waiting: &[u32]) -> Vec<NodeId> {
        let stuck = |id: &NodeId| waiting[id.index()] > 0;
        let Some(mut at) = self.node_ids().find(stuck) else { return Vec::new() };
        let mut path: Vec<NodeId> = Vec::new();
        let mut place = vec![usize::MAX; self.node_bound()];
        while place[at.index()] == usize::MAX {
            place[at.index()] = path.len();
            path.push(at);
            match self.predecessors(at).find(stuck) {
                Some(next) => at = next,
                None => return path,
            }
        }
        let mut cycle = path.split_off(place[at.index()]);
        cycle.reverse();
        cycle
    }
}

/// Longest integer tensor whose elements are kept as facts.
pub const MAX_ELEMENTS: usize = 256;

impl Index<NodeId> for Graph {
    type Output = Node;

    fn index(&self, id: NodeId) -> &Node {
        &self.inner[id.0]
    }
}

impl Graph {
    /// A node's name, version and attributes to change. Inputs and outputs change through the graph.
    pub fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.inner.node_weight_mut(id.0)
    }
}

impl Index<ValueId> for Graph {
    type Output = Value;

    fn index(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }
}

impl IndexMut<ValueId> for Graph {
    fn index_mut(&mut self, id: ValueId) -> &mut Value {
        &mut self.values[id.index()]
    }
}

//! The graph: nodes, values, uses, subgraphs. petgraph keeps nodes and edges and is not visible outside.

mod edit;
mod order;

use crate::{attr::Attrs, dim::Dim, infer::Declared, symbols::Symbols, tensor::Tensor, types::Type};
use petgraph::{
    Direction,
    stable_graph::{NodeIndex, StableDiGraph},
};
use smallvec::SmallVec;
use std::{
    collections::BTreeMap,
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

    /// Dims, and known elements.
    pub fn sizes(&self) -> impl Iterator<Item = &Dim> {
        self.ty.shape().into_iter().flatten().chain(self.elements.iter().flatten())
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
    /// Outputs of nodes of the model's own graph, by the node's name and the slot, whose sizes inference took from what the
    /// model declares: a run has to check them. Nodes that are gone since then are among them.
    pub declared: BTreeMap<(Arc<str>, usize), Declared>,
    /// Takes no sizes from what the model declares.
    pub distrusts: bool,
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

#[cfg(test)]
mod tests;

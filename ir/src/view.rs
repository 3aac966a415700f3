//! What a converter sees of a node: known rank and dtypes, constants and small values, ranges. Nothing else.

use crate::{
    attr::Attrs,
    dim::{Dim, Interval},
    graph::{Graph, Node, NodeId, Value, ValueId},
    symbols::Symbols,
    tensor::Tensor,
};
use trtc_bundle::DType;

/// A node in its graph. `Copy`: pass it by value.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    graph: &'a Graph,
    symbols: &'a Symbols,
    id: NodeId,
    node: &'a Node,
}

/// A value of the graph that a [`NodeView`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct ValueView<'a> {
    value: &'a Value,
    symbols: &'a Symbols,
    id: ValueId,
}

impl<'a> NodeView<'a> {
    /// View of a node that exists.
    pub fn new(graph: &'a Graph, symbols: &'a Symbols, id: NodeId) -> NodeView<'a> {
        NodeView { graph, symbols, id, node: &graph[id] }
    }

    /// The node's id.
    pub fn id(self) -> NodeId {
        self.id
    }

    /// The node itself.
    pub fn node(self) -> &'a Node {
        self.node
    }

    /// The graph around it.
    pub fn graph(self) -> &'a Graph {
        self.graph
    }

    /// Symbols of the module.
    pub fn symbols(self) -> &'a Symbols {
        self.symbols
    }

    /// Name of the node.
    pub fn name(self) -> &'a str {
        &self.node.name
    }

    /// Domain; empty for the default one.
    pub fn domain(self) -> &'a str {
        &self.node.op.domain
    }

    /// Operator type.
    pub fn op(self) -> &'a str {
        &self.node.op.op_type
    }

    /// Attributes.
    pub fn attrs(self) -> &'a Attrs {
        &self.node.attrs
    }

    /// An integer attribute or its default.
    pub fn int(self, name: &str, default: i64) -> i64 {
        self.node.attrs.int(name).unwrap_or(default)
    }

    /// A float attribute or its default.
    pub fn float(self, name: &str, default: f32) -> f32 {
        self.node.attrs.float(name).unwrap_or(default)
    }

    /// A string attribute or its default.
    pub fn str(self, name: &str, default: &'static str) -> &'a str {
        self.node.attrs.str(name).unwrap_or(default)
    }

    /// Number of input slots in use (absent ones in the middle count).
    pub fn input_count(self) -> usize {
        self.node.inputs().len()
    }

    /// Number of output slots in use.
    pub fn output_count(self) -> usize {
        self.node.outputs().len()
    }

    /// An input; `None` when absent.
    pub fn input(self, slot: usize) -> Option<ValueView<'a>> {
        self.node.input(slot).map(|id| self.value(id))
    }

    /// An output; `None` when nobody wants it.
    pub fn output(self, slot: usize) -> Option<ValueView<'a>> {
        self.node.output(slot).map(|id| self.value(id))
    }

    /// Any value of the graph.
    pub fn value(self, id: ValueId) -> ValueView<'a> {
        ValueView { value: &self.graph[id], symbols: self.symbols, id }
    }
}

impl<'a> ValueView<'a> {
    /// The value's id.
    pub fn id(self) -> ValueId {
        self.id
    }

    /// Name.
    pub fn name(self) -> &'a str {
        &self.value.name
    }

    /// The value itself.
    pub fn value(self) -> &'a Value {
        self.value
    }

    /// Element type.
    pub fn dtype(self) -> Option<DType> {
        self.value.ty.dtype()
    }

    /// Dims of a tensor of known rank.
    pub fn shape(self) -> Option<&'a [Dim]> {
        self.value.ty.shape()
    }

    /// Rank.
    pub fn rank(self) -> Option<usize> {
        self.shape().map(<[Dim]>::len)
    }

    /// One dim.
    pub fn dim(self, axis: usize) -> Option<&'a Dim> {
        self.shape()?.get(axis)
    }

    /// The constant.
    pub fn constant(self) -> Option<&'a Tensor> {
        self.value.constant.as_ref()
    }

    /// The constant's elements as integers.
    pub fn const_i64s(self) -> Option<Vec<i64>> {
        self.constant()?.to_i64s()
    }

    /// Elements of a small integer tensor, where they are known at least partly.
    pub fn elements(self) -> Option<&'a [Dim]> {
        self.value.elements.as_deref()
    }

    /// Range of one element of a small integer tensor.
    pub fn element_range(self, k: usize) -> Interval {
        self.elements().and_then(|list| list.get(k)).map_or(Interval::ANY, |dim| self.symbols.interval(dim))
    }

    /// Whether every element is bounded above and below: the value can be a shape tensor with a profile.
    pub fn is_bounded(self) -> bool {
        self.elements().is_some_and(|list| {
            list.iter().all(|dim| {
                let range = self.symbols.interval(dim);
                range.min.is_some() && range.max.is_some()
            })
        })
    }

    /// Range of a dim.
    pub fn dim_range(self, axis: usize) -> Interval {
        self.dim(axis).map_or(Interval::ANY, |dim| self.symbols.interval(dim))
    }
}

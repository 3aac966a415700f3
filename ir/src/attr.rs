//! Attributes of nodes.

use crate::{graph::Graph, tensor::Tensor, types::Type};
use bytes::Bytes;

/// Value of an attribute.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the variants are ONNX's attribute types")]
pub enum Attr {
    Int(i64),
    Float(f32),
    Str(Bytes),
    Tensor(Tensor),
    Graph(Box<Graph>),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strs(Vec<Bytes>),
    Tensors(Vec<Tensor>),
    Graphs(Vec<Graph>),
    Type(Type),
    /// Anything else, as encoded in the model (an `AttributeProto`): carried, never looked into.
    Opaque(Bytes),
}

/// Attributes by name, in a fixed order.
#[derive(Clone, Debug, Default)]
pub struct Attrs(Vec<(Box<str>, Attr)>);

impl Attrs {
    /// No attributes.
    pub fn new() -> Attrs {
        Attrs::default()
    }

    /// An attribute.
    pub fn get(&self, name: &str) -> Option<&Attr> {
        self.0.iter().find(|(n, _)| &**n == name).map(|(_, attr)| attr)
    }

    /// An attribute to change. Changing a graph's captures needs [`Graph::refresh_captures`] afterwards.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Attr> {
        self.0.iter_mut().find(|(n, _)| &**n == name).map(|(_, attr)| attr)
    }

    /// Sets an attribute; names stay sorted.
    pub fn set(&mut self, name: &str, attr: Attr) {
        match self.0.binary_search_by(|(n, _)| (**n).cmp(name)) {
            Ok(at) => self.0[at].1 = attr,
            Err(at) => self.0.insert(at, (name.into(), attr)),
        }
    }

    /// Takes an attribute out.
    pub fn remove(&mut self, name: &str) -> Option<Attr> {
        let at = self.0.iter().position(|(n, _)| &**n == name)?;
        Some(self.0.remove(at).1)
    }

    /// All of them, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attr)> {
        self.0.iter().map(|(name, attr)| (&**name, attr))
    }

    /// All of them, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Attr)> {
        self.0.iter_mut().map(|(name, attr)| (&**name, attr))
    }

    /// The subgraphs, with the attributes' names.
    pub fn graphs(&self) -> impl Iterator<Item = (&str, &Graph)> {
        self.iter().flat_map(|(name, attr)| {
            let list: &[Graph] = match attr {
                Attr::Graph(graph) => std::slice::from_ref(&**graph),
                Attr::Graphs(graphs) => graphs,
                _ => &[],
            };
            list.iter().map(move |graph| (name, graph))
        })
    }

    /// The subgraphs, to change.
    pub fn graphs_mut(&mut self) -> impl Iterator<Item = (&str, &mut Graph)> {
        self.iter_mut().flat_map(|(name, attr)| {
            let list: &mut [Graph] = match attr {
                Attr::Graph(graph) => std::slice::from_mut(&mut **graph),
                Attr::Graphs(graphs) => graphs,
                _ => &mut [],
            };
            list.iter_mut().map(move |graph| (name, graph))
        })
    }

    /// An integer attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        if let Some(Attr::Int(value)) = self.get(name) { Some(*value) } else { None }
    }

    /// A float attribute.
    pub fn float(&self, name: &str) -> Option<f32> {
        if let Some(Attr::Float(value)) = self.get(name) { Some(*value) } else { None }
    }

    /// A list of integers.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        if let Some(Attr::Ints(values)) = self.get(name) { Some(values) } else { None }
    }

    /// A list of floats.
    pub fn floats(&self, name: &str) -> Option<&[f32]> {
        if let Some(Attr::Floats(values)) = self.get(name) { Some(values) } else { None }
    }

    /// A string attribute that is UTF-8.
    pub fn str(&self, name: &str) -> Option<&str> {
        if let Some(Attr::Str(bytes)) = self.get(name) { std::str::from_utf8(bytes).ok() } else { None }
    }

    /// A tensor attribute.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        if let Some(Attr::Tensor(tensor)) = self.get(name) { Some(tensor) } else { None }
    }

    /// A graph attribute.
    pub fn graph(&self, name: &str) -> Option<&Graph> {
        if let Some(Attr::Graph(graph)) = self.get(name) { Some(graph) } else { None }
    }
}

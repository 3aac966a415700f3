//! Graphs: inputs, initializers, nodes, outputs.

use super::{
    Frame, Importer, Imports,
    order::order,
    types::{Place, read_type},
};
use crate::onnx::draft::Level;
use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};
use trtc_ir::{Diag, Graph, Tensor, Type, ValueId};
use trtc_onnx::{GraphProto, NodeProto, ValueInfoProto};

impl<'a> Importer<'a> {
    /// The model's own graph.
    pub(super) fn model_graph(&mut self, proto: &'a GraphProto, opsets: Imports) -> Graph {
        let frame = Frame {
            level: 0,
            values: HashMap::new(),
            closed: true,
            prefix: String::new(),
            opsets,
            bound: Rc::default(),
        };
        self.graph(proto, frame, String::new())
    }

    /// A subgraph of a node of the graph under construction; `path` is that of the subgraph.
    pub(super) fn subgraph(&mut self, proto: &'a GraphProto, path: String) -> Graph {
        let (opsets, bound) = match self.frames.last() {
            Some(frame) => (frame.opsets.clone(), frame.bound.clone()),
            None => Default::default(),
        };
        let level = self.levels.len();
        let frame =
            Frame { level, values: HashMap::new(), closed: false, prefix: String::new(), opsets, bound };
        self.graph(proto, frame, path)
    }

    fn graph(&mut self, proto: &'a GraphProto, frame: Frame<'a>, path: String) -> Graph {
        let inner = !self.levels.is_empty();
        let graph = Graph::new(proto.name.as_deref().unwrap_or(""));
        self.levels.push(Level { graph, path, ..Level::default() });
        self.frames.push(frame);

        let initializers = self.initializers(proto);
        self.inputs(proto, &initializers, inner);
        for (name, tensor) in initializers {
            if self.bind_new(name, None) {
                self.make_constant(name, tensor);
            }
        }
        // One that cannot be read was reported above; the nodes that read it are not to be reported too.
        let sparse = proto.sparse_initializer.iter().map(|tensor| tensor.name());
        for name in proto.initializer.iter().map(|tensor| tensor.name()).chain(sparse) {
            if !name.is_empty() && self.bind_new(name, None) {
                let id = self.level().add_value(name, Type::Unknown);
                self.bind(name, Some(id));
            }
        }
        let types = self.declared_types(proto.value_info.iter().chain(&proto.output), inner);
        self.body(&proto.node, &types);
        for output in &proto.output {
            let name = output.name.as_deref().unwrap_or("");
            match self.resolve(name).flatten() {
                Some(id) => self.level().graph.add_output(id),
                None => self.report(self.graph_diag(format!("graph output `{name}` is made by nothing"))),
            }
        }
        self.frames.pop();
        let mut level = self.levels.pop().unwrap_or_default();
        level.facts.write_types(&mut level.graph);
        level.graph
    }

    /// A diagnostic about the graph under construction.
    pub(super) fn graph_diag(&self, why: String) -> Diag {
        match self.levels.last() {
            Some(level) if !level.path.is_empty() => {
                Diag::invalid(format!("subgraph `{}`: {why}", level.path))
            }
            _ => Diag::invalid(why),
        }
    }

    fn initializers(&mut self, proto: &'a GraphProto) -> Vec<(&'a str, Tensor)> {
        let mut list: Vec<(&'a str, Tensor)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let dense = proto.initializer.iter().map(|tensor| (tensor.name(), self.tensor(tensor)));
        let sparse = proto.sparse_initializer.iter().map(|tensor| (tensor.name(), self.dense(tensor)));
        let read: Vec<_> = dense.chain(sparse).collect();
        for (name, tensor) in read {
            match tensor {
                Err(why) => self.report(self.graph_diag(why)),
                Ok(_) if name.is_empty() => {
                    self.report(self.graph_diag("an initializer has no name".to_owned()))
                }
                Ok(tensor) => match places.get(name) {
                    Some(&at) if list[at].1 == tensor => {}
                    Some(_) => self.report(
                        self.graph_diag(format!("initializer `{name}` stands twice, with different content")),
                    ),
                    None => {
                        places.insert(name, list.len());
                        list.push((name, tensor));
                    }
                },
            }
        }
        list
    }

    fn inputs(&mut self, proto: &'a GraphProto, initializers: &[(&'a str, Tensor)], inner: bool) {
        let constant: HashSet<&str> = initializers.iter().map(|(name, _)| *name).collect();
        for input in &proto.input {
            let name = input.name.as_deref().unwrap_or("");
            if name.is_empty() {
                self.report(self.graph_diag("a graph input has no name".to_owned()));
                continue;
            }
            // An input with an initializer has a default. Nobody gives another value here, so that it is a constant, as it is in every
            // model before IR version 4. What feeds a subgraph always gives a value.
            if !inner && constant.contains(name) {
                continue;
            }
            if self.frames.last().is_some_and(|frame| frame.values.contains_key(name)) {
                self.report(self.graph_diag(format!("graph input `{name}` stands twice")));
                continue;
            }
            let place = if inner { Place::Inner } else { Place::Input(name) };
            let ty = match read_type(input.r#type.as_ref(), &mut self.symbols, place) {
                Ok(ty) => ty,
                Err(why) => {
                    self.report(self.graph_diag(format!("graph input `{name}`: {why}")));
                    Type::Unknown
                }
            };
            let id = self.level().add_input(name, ty);
            self.bind(name, Some(id));
        }
    }

    fn bind(&mut self, name: &'a str, id: Option<ValueId>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.values.insert(name, id);
        }
    }

    /// Whether a name is new in this scope. The defaults of a subgraph's inputs are not.
    fn bind_new(&mut self, name: &'a str, id: Option<ValueId>) -> bool {
        let new = self.frames.last().is_some_and(|frame| !frame.values.contains_key(name));
        if new {
            self.bind(name, id);
        }
        new
    }

    fn make_constant(&mut self, name: &'a str, tensor: Tensor) {
        let id = self.level().add_constant(name, tensor);
        self.bind(name, Some(id));
    }

    /// Types that a graph or function declares for its values.
    pub(super) fn declared_types(
        &mut self,
        values: impl Iterator<Item = &'a ValueInfoProto>,
        inner: bool,
    ) -> HashMap<&'a str, Type> {
        let place = if inner { Place::Inner } else { Place::Value };
        let mut types: HashMap<&str, Type> = HashMap::new();
        for value in values {
            let name = value.name.as_deref().unwrap_or("");
            match read_type(value.r#type.as_ref(), &mut self.symbols, place) {
                Ok(ty) => types.entry(name).or_default().refine(&ty),
                Err(why) => self.report(self.graph_diag(format!("value `{name}`: {why}"))),
            }
        }
        types
    }

    /// The nodes of a graph or function: declares what they make, sorts them, and adds them to the graph under construction.
    pub(super) fn body(&mut self, nodes: &'a [NodeProto], types: &HashMap<&'a str, Type>) {
        let names = self.node_names(nodes);
        let mut makers: HashMap<&str, usize> = HashMap::new();
        let faults = self.diags.len();
        for (at, node) in nodes.iter().enumerate() {
            for output in node.output.iter().map(String::as_str).filter(|name| !name.is_empty()) {
                self.declare(output, at, nodes, &names, types, &mut makers);
            }
        }
        let order = match order(nodes) {
            Ok(order) => order,
            // Names that clash make cycles of their own.
            Err(_) if self.diags.len() > faults => return,
            Err(cycle) => {
                let shown: Vec<String> = cycle.iter().map(|&at| format!("`{}`", names[at])).collect();
                let first = shown.first().cloned().unwrap_or_default();
                let why = format!("the graph has a cycle: {} -> {first}", shown.join(" -> "));
                self.report(self.graph_diag(why));
                return;
            }
        };
        for at in order {
            self.node(&nodes[at], &names[at]);
        }
    }

    fn declare(
        &mut self,
        output: &'a str,
        at: usize,
        nodes: &'a [NodeProto],
        names: &[String],
        types: &HashMap<&'a str, Type>,
        makers: &mut HashMap<&'a str, usize>,
    ) {
        let show = |at: usize| {
            format!("node `{}` ({})", names[at], nodes[at].op_type.as_deref().unwrap_or("no operator"))
        };
        if let Some(&other) = makers.get(output) {
            let why = format!("value `{output}` is made twice: by {} and by {}", show(other), show(at));
            return self.report(self.graph_diag(why));
        }
        makers.insert(output, at);
        let Some(frame) = self.frames.last() else { return };
        // A function's outputs are bound to what the call makes before its body is read.
        if let Some(Some(bound)) = frame.values.get(output).copied() {
            if self.level().graph[bound].constant.is_some() || self.is_taken(bound) {
                let why = format!(
                    "value `{output}` is made by {}, but it is an input or initializer too",
                    show(at)
                );
                self.report(self.graph_diag(why));
            }
            return;
        }
        let ty = types.get(output).cloned().unwrap_or_default();
        let name = format!("{}{output}", frame.prefix);
        let id = self.level().add_value(&name, ty);
        self.bind(output, Some(id));
    }

    /// Whether a bound name is an input: of the graph, or of the function that is being inlined.
    fn is_taken(&mut self, id: ValueId) -> bool {
        let level = self.level();
        level.graph.inputs().contains(&id)
            || level.graph[id].producer().is_some()
            || level.graph.captures.iter().any(|capture| capture.inner == id)
    }

    /// Unique names, paths apart: given ones keep theirs, others are called `Op_k` after their place.
    fn node_names(&mut self, nodes: &[NodeProto]) -> Vec<String> {
        let prefix = self.frames.last().map(|frame| frame.prefix.clone()).unwrap_or_default();
        let level = self.level();
        let mut names: Vec<Option<String>> = vec![None; nodes.len()];
        for (name, node) in names.iter_mut().zip(nodes) {
            if let Some(given) = node.name.as_deref().filter(|name| !name.is_empty()) {
                let given = format!("{prefix}{given}");
                *name = level.node_names.take(&given).then_some(given);
            }
        }
        let name = |(at, (name, node)): (usize, (Option<String>, &NodeProto))| match name {
            Some(name) => name,
            None => level.node_names.unique(&match node.name.as_deref().unwrap_or("") {
                "" => format!("{prefix}{}_{at}", node.op_type.as_deref().unwrap_or("node")),
                given => format!("{prefix}{given}"),
            }),
        };
        names.into_iter().zip(nodes).enumerate().map(name).collect()
    }
}

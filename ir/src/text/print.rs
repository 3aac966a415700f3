//! The printer.

use super::{
    is_plain, is_word,
    literal::{elements, float, quote},
};
use crate::{
    attr::Attr,
    dim::{Dim, Symbol},
    graph::{Graph, Module, NodeId, ValueId},
    symbols::Symbols,
    tensor::Tensor,
    types::{TensorType, Type},
};
use std::{collections::HashSet, fmt::Write};
use trtc_bundle::DType;

/// How much is printed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Style {
    /// Largest constant, in elements, whose elements are printed.
    pub max_inline: usize,
    /// Whether types and known elements are printed behind nodes.
    pub types: bool,
}

impl Default for Style {
    fn default() -> Style {
        Style { max_inline: 16, types: true }
    }
}

impl Style {
    /// Prints every constant in full: such a text reads back without help.
    pub fn in_full() -> Style {
        Style { max_inline: usize::MAX, ..Style::default() }
    }

    /// Leaves out what inference finds.
    pub fn without_types(mut self) -> Style {
        self.types = false;
        self
    }
}

pub(super) fn print(module: &Module, style: &Style) -> String {
    let mut printer = Printer { symbols: &module.symbols, style, text: String::new() };
    for (domain, version) in &module.opsets {
        printer.line(0, &format!("opset {} {version}", quote(domain.as_bytes())));
    }
    for (kind, pairs) in [("metadata", &module.metadata), ("origin", &module.origin)] {
        for (key, value) in pairs {
            printer.line(0, &format!("{kind} {} {}", quote(key.as_bytes()), quote(value.as_bytes())));
        }
    }
    for (symbol, info) in module.symbols.iter() {
        let mut line = format!("symbol {} ", printer.symbol(symbol));
        if let Some(min) = info.range.min {
            line += &min.to_string();
        }
        line += "..";
        if let Some(max) = info.range.max {
            line += &max.to_string();
        }
        if let Some(opt) = info.opt {
            let _ = write!(line, " opt {opt}");
        }
        if info.unbacked {
            line += " unbacked";
        }
        printer.line(0, &line);
    }
    printer.graph(&module.graph, "", 0);
    printer.text.push('\n');
    printer.text
}

struct Printer<'a> {
    symbols: &'a Symbols,
    style: &'a Style,
    text: String,
}

fn name(sigil: char, name: &str) -> String {
    if is_plain(name) { format!("{sigil}{name}") } else { format!("{sigil}{}", quote(name.as_bytes())) }
}

fn value(graph: &Graph, id: ValueId) -> String {
    name('%', &graph[id].name)
}

impl Printer<'_> {
    fn line(&mut self, depth: usize, line: &str) {
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn symbol(&self, symbol: Symbol) -> String {
        let name = self.symbols.name(symbol);
        if is_word(&name) { name } else { quote(name.as_bytes()) }
    }

    fn dim(&self, dim: &Dim) -> String {
        match dim {
            Dim::Known(value) => value.to_string(),
            Dim::Expr(expr) => expr.write(&|symbol| self.symbol(symbol)),
            Dim::Unknown => "?".to_owned(),
        }
    }

    fn tensor_type(&self, ty: &TensorType) -> String {
        let dtype = ty.dtype.map_or("?", DType::name);
        match &ty.shape {
            None => format!("{dtype}[..]"),
            Some(dims) => {
                let dims: Vec<String> = dims.iter().map(|dim| self.dim(dim)).collect();
                format!("{dtype}[{}]", dims.join(" x "))
            }
        }
    }

    fn ty(&self, ty: &Type) -> String {
        match ty {
            Type::Unknown => "?".to_owned(),
            Type::Tensor(tensor) => self.tensor_type(tensor),
            Type::SparseTensor(tensor) => format!("sparse({})", self.tensor_type(tensor)),
            Type::Sequence(inner) => format!("seq({})", self.ty(inner)),
            Type::Optional(inner) => format!("opt({})", self.ty(inner)),
            Type::Map(key, inner) => format!("map({key}, {})", self.ty(inner)),
        }
    }

    /// The type of a value, with its known elements.
    fn facts(&self, graph: &Graph, id: ValueId) -> String {
        let value = &graph[id];
        let mut text = self.ty(&value.ty);
        if let (Some(list), None) = (&value.elements, &value.constant) {
            let list: Vec<String> = list.iter().map(|dim| self.dim(dim)).collect();
            let _ = write!(text, " elements({})", list.join(", "));
        }
        text
    }

    fn constant(&self, tensor: &Tensor) -> String {
        let dims: Vec<String> = tensor.dims().iter().map(i64::to_string).collect();
        let elements = elements(tensor, self.style.max_inline);
        format!("{}[{}] = {elements}", tensor.dtype(), dims.join(" x "))
    }

    /// From `graph` to the closing brace, without a line end. `captures` stands behind the inputs.
    fn graph(&mut self, graph: &Graph, captures: &str, depth: usize) {
        let list = |ids: &[ValueId]| {
            ids.iter().map(|&id| format!("{}: {}", value(graph, id), self.facts(graph, id))).collect()
        };
        let inputs: Vec<String> = list(graph.inputs());
        let title = if is_word(&graph.name) { graph.name.clone() } else { quote(graph.name.as_bytes()) };
        let _ = writeln!(self.text, "graph {title}({}){captures} {{", inputs.join(", "));
        let is_captured: HashSet<ValueId> = graph.captures.iter().map(|capture| capture.inner).collect();
        let is_output: HashSet<ValueId> = graph.outputs().iter().copied().collect();
        for id in graph.value_ids() {
            let here = &graph[id];
            if let Some(tensor) = &here.constant
                && !is_captured.contains(&id)
                && (!here.users().is_empty() || is_output.contains(&id))
            {
                let line = format!("const {}: {}", value(graph, id), self.constant(tensor));
                self.line(depth + 1, &line);
            }
        }
        let order = graph.topo_order().unwrap_or_else(|_| graph.node_ids().collect());
        for id in order {
            self.node(graph, id, depth + 1);
        }
        if !graph.outputs().is_empty() {
            let outputs: Vec<String> = graph.outputs().iter().map(|&id| value(graph, id)).collect();
            self.line(depth + 1, &format!("return {}", outputs.join(", ")));
        }
        self.text.push_str(&"  ".repeat(depth));
        self.text.push('}');
    }

    fn node(&mut self, graph: &Graph, id: NodeId, depth: usize) {
        let node = &graph[id];
        let slots = |list: &[Option<ValueId>]| -> String {
            let list: Vec<String> =
                list.iter().map(|slot| slot.map_or("_".to_owned(), |id| value(graph, id))).collect();
            list.join(", ")
        };
        let outputs = if node.outputs().is_empty() { "_".to_owned() } else { slots(node.outputs()) };
        let mut head = format!("{}{outputs} = ", "  ".repeat(depth));
        let operator =
            if node.op.domain.is_empty() { node.op.op_type.to_string() } else { node.op.to_string() };
        let is_operator = !operator.is_empty() && operator.split('.').all(is_word);
        head += &if is_operator { operator } else { quote(node.op.to_string().as_bytes()) };
        if node.since_version != 0 {
            let _ = write!(head, "-{}", node.since_version);
        }
        let _ = write!(head, "({})", slots(node.inputs()));
        let first = node.outputs().iter().flatten().next();
        if first.is_none_or(|&id| graph[id].name != node.name) {
            let _ = write!(head, " {}", name('@', &node.name));
        }
        self.text.push_str(&head);
        let mut open = false;
        for (key, attr) in node.attrs.iter() {
            self.text.push_str(if open { ", " } else { " {" });
            open = true;
            let key = if is_word(key) { key.to_owned() } else { quote(key.as_bytes()) };
            self.text.push_str(&key);
            self.text.push('=');
            self.attr(graph, attr, depth);
        }
        if open {
            self.text.push('}');
        }
        let is_known = |id: &ValueId| graph[*id].ty != Type::Unknown || graph[*id].elements.is_some();
        if self.style.types && node.outputs().iter().flatten().any(is_known) {
            let types: Vec<String> = node
                .outputs()
                .iter()
                .map(|slot| slot.map_or("?".to_owned(), |id| self.facts(graph, id)))
                .collect();
            let _ = write!(self.text, " : {}", types.join(", "));
        }
        self.text.push('\n');
    }

    fn attr(&mut self, outer: &Graph, attr: &Attr, depth: usize) {
        fn list<T>(kind: &str, items: &[T], show: impl Fn(&T) -> String) -> String {
            let parts: Vec<String> = items.iter().map(show).collect();
            if items.is_empty() { format!("{kind}[]") } else { format!("[{}]", parts.join(", ")) }
        }
        let text = match attr {
            Attr::Int(value) => value.to_string(),
            Attr::Float(value) => float((*value).into(), true),
            Attr::Str(bytes) => quote(bytes),
            Attr::Ints(values) => list("ints", values, i64::to_string),
            Attr::Floats(values) => list("floats", values, |v| float((*v).into(), true)),
            Attr::Strs(values) => list("strs", values, |bytes| quote(bytes)),
            Attr::Tensor(tensor) => format!("tensor({})", self.constant(tensor)),
            Attr::Tensors(list) => {
                let list: Vec<String> = list.iter().map(|tensor| self.constant(tensor)).collect();
                format!("tensors({})", list.join(", "))
            }
            Attr::Type(ty) => format!("type({})", self.ty(ty)),
            Attr::Opaque(bytes) => format!("opaque({})", quote(bytes)),
            Attr::Graph(body) => return self.body(outer, body, depth),
            Attr::Graphs(list) => {
                self.text.push_str("graphs(");
                for (k, body) in list.iter().enumerate() {
                    if k > 0 {
                        self.text.push_str(", ");
                    }
                    self.body(outer, body, depth);
                }
                self.text.push(')');
                return;
            }
        };
        self.text.push_str(&text);
    }

    /// A subgraph, with what it captures from `outer`.
    fn body(&mut self, outer: &Graph, body: &Graph, depth: usize) {
        let captures: Vec<String> = body
            .captures
            .iter()
            .map(|c| {
                format!("{}: {} = {}", value(body, c.inner), self.facts(body, c.inner), value(outer, c.outer))
            })
            .collect();
        let captures =
            if captures.is_empty() { String::new() } else { format!(" captures({})", captures.join(", ")) };
        self.graph(body, &captures, depth);
    }
}

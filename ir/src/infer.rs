//! Type and small-value inference: the traits, and the driver that walks a module.

use crate::{
    diag::Diag,
    dim::{Dim, Interval, Symbol},
    graph::{Graph, Module, NodeId, ValueId},
    symbols::Symbols,
    types::Type,
    view::NodeView,
};

/// What a rule says of one output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inferred {
    /// Type; may be partly unknown.
    pub ty: Type,
    /// Elements of a small integer output of rank 0 or 1.
    pub elements: Option<Vec<Dim>>,
}

impl From<Type> for Inferred {
    fn from(ty: Type) -> Inferred {
        Inferred { ty, elements: None }
    }
}

/// What rules may do besides looking.
#[derive(Debug)]
pub struct InferCx<'a> {
    constraints: &'a mut Vec<Constraint>,
    wanted: Vec<(String, Interval)>,
    node: String,
}

/// Something that must hold for the model to run at all; the ranges of symbols are derived from these.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    /// Node that demands it.
    pub node: String,
    /// What must hold.
    pub kind: ConstraintKind,
}

/// Kinds of [`Constraint`].
#[derive(Clone, Debug, PartialEq)]
pub enum ConstraintKind {
    /// The dim is at least the number.
    AtLeast(Dim, i64),
    /// Both are equal.
    Equal(Dim, Dim),
    /// The dims broadcast: equal, or one of them is 1.
    Broadcast(Dim, Dim),
}

impl InferCx<'_> {
    /// A dim that only the run decides, between `range`. The driver gives it a symbol named after the node.
    pub fn unbacked(&mut self, hint: &str, range: Interval) -> Dim {
        self.wanted.push((hint.to_owned(), range));
        Dim::symbol(Symbol(FRESH + self.wanted.len() as u32 - 1))
    }

    /// Demands something of symbolic dims. Known dims are checked by the rule itself.
    pub fn require(&mut self, kind: ConstraintKind) {
        self.constraints.push(Constraint { node: self.node.clone(), kind });
    }
}

/// Symbols from here on are placeholders of one call of a rule.
const FRESH: u32 = 1 << 31;

/// The shape rule of an operator.
pub trait Infer: Sync {
    /// Types (and small values) of the outputs, one for each output slot that the operator has; shorter is allowed.
    ///
    /// # Errors
    /// The node breaks its operator's schema: wrong rank, dtype, attribute, dims that can never fit.
    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag>;

    /// For an operator with subgraphs whose inputs it feeds (Loop, Scan): types of the subgraph's inputs, given the
    /// node. `pass` counts up while the driver iterates to a fixpoint, at most 3 times.
    fn body_inputs(&self, node: NodeView<'_>, attr: &str, pass: usize) -> Vec<Inferred> {
        let _ = (node, attr, pass);
        Vec::new()
    }
}

/// Finds the rule of an operator.
pub trait Rules: Sync {
    /// The rule; `None` leaves the outputs as the model declares them.
    fn rule(&self, domain: &str, op_type: &str) -> Option<&dyn Infer>;
}

/// Infers types and small values of every node of the module, subgraphs included, and collects what must hold.
///
/// Declared types (value_info, outputs) refine what the rules say. Diagnostics are collected, one a node at most.
pub fn infer_module(module: &mut Module, rules: &dyn Rules) -> Result<Vec<Constraint>, Vec<Diag>> {
    let mut driver =
        Driver { rules, symbols: &mut module.symbols, constraints: Vec::new(), diags: Vec::new() };
    driver.graph(&mut module.graph, "");
    if driver.diags.is_empty() { Ok(driver.constraints) } else { Err(driver.diags) }
}

struct Driver<'a> {
    rules: &'a dyn Rules,
    symbols: &'a mut Symbols,
    constraints: Vec<Constraint>,
    diags: Vec<Diag>,
}

impl Driver<'_> {
    fn graph(&mut self, graph: &mut Graph, path: &str) {
        let order = match graph.topo_order() {
            Ok(order) => order,
            Err(cycle) => {
                let names: Vec<String> = cycle.iter().map(|&id| format!("`{}`", graph[id].name)).collect();
                self.diags.push(Diag::invalid(format!("the graph has a cycle: {}", names.join(" -> "))));
                return;
            }
        };
        for id in order {
            self.node(graph, id, path);
        }
    }

    fn node(&mut self, graph: &mut Graph, id: NodeId, path: &str) {
        let label =
            if path.is_empty() { graph[id].name.to_string() } else { format!("{path}/{}", graph[id].name) };
        let op = graph[id].op.clone();
        let rule = self.rules.rule(&op.domain, &op.op_type);
        let bodies: Vec<String> = graph[id].attrs.graphs().map(|(name, _)| name.to_owned()).collect();
        if !bodies.is_empty() {
            self.bodies(graph, id, rule, &bodies, &label);
        }
        let Some(rule) = rule else { return };
        let mut cx = InferCx { constraints: &mut self.constraints, wanted: Vec::new(), node: label.clone() };
        let result = rule.infer(NodeView::new(graph, self.symbols, id), &mut cx);
        let wanted = std::mem::take(&mut cx.wanted);
        match result {
            Ok(list) => {
                let fresh: Vec<Symbol> = wanted
                    .iter()
                    .map(|(hint, range)| {
                        self.symbols.fresh(&format!("{}.{hint}", graph[id].name), *range, true)
                    })
                    .collect();
                let outputs: Vec<Option<ValueId>> = graph[id].outputs().to_vec();
                for (output, inferred) in outputs.into_iter().zip(list) {
                    if let Some(output) = output {
                        apply(graph, output, inferred, &fresh);
                    }
                }
            }
            Err(diag) => {
                self.diags.push(Diag { node: label, op: op.to_string(), ..diag });
            }
        }
    }

    fn bodies(
        &mut self,
        graph: &mut Graph,
        id: NodeId,
        rule: Option<&dyn Infer>,
        names: &[String],
        label: &str,
    ) {
        let passes = if rule.is_some() { 2 } else { 1 };
        for pass in 0..passes {
            let fed: Vec<Vec<Inferred>> = names
                .iter()
                .map(|name| {
                    rule.map_or_else(Vec::new, |rule| {
                        rule.body_inputs(NodeView::new(graph, self.symbols, id), name, pass)
                    })
                })
                .collect();
            if pass > 0 && fed.iter().all(Vec::is_empty) {
                break;
            }
            let Some(node) = graph.node_mut(id) else { return };
            let mut attrs = std::mem::take(&mut node.attrs);
            for ((name, body), inputs) in attrs.graphs_mut().zip(fed) {
                for capture in body.captures.clone() {
                    let outer = &graph[capture.outer];
                    let (ty, constant, elements) =
                        (outer.ty.clone(), outer.constant.clone(), outer.elements.clone());
                    let inner = &mut body[capture.inner];
                    inner.ty = ty;
                    inner.constant = constant;
                    inner.elements = elements;
                }
                for (input, inferred) in body.inputs().to_vec().into_iter().zip(inputs) {
                    body[input].ty = inferred.ty;
                    body[input].elements = inferred.elements;
                }
                self.graph(body, &format!("{label}/{name}"));
            }
            if let Some(node) = graph.node_mut(id) {
                node.attrs = attrs;
            }
        }
    }
}

fn apply(graph: &mut Graph, output: ValueId, inferred: Inferred, fresh: &[Symbol]) {
    let settle = |dim: Dim| {
        dim.substitute(&|symbol| match symbol.0.checked_sub(FRESH) {
            Some(k) => fresh.get(k as usize).map_or(Dim::Unknown, |&symbol| Dim::symbol(symbol)),
            None => Dim::symbol(symbol),
        })
    };
    let mut ty = inferred.ty;
    if let Type::Tensor(tensor) = &mut ty
        && let Some(shape) = &mut tensor.shape
    {
        for dim in shape.iter_mut() {
            *dim = settle(std::mem::replace(dim, Dim::Unknown));
        }
    }
    ty.refine(&graph[output].ty);
    let value = &mut graph[output];
    value.ty = ty;
    value.elements = inferred.elements.map(|list| list.into_iter().map(settle).collect());
}

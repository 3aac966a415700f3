//! The walk over a module that asks each node's rule.

use super::{Constraint, Declared, FRESH, Infer, InferCx, Inferred, Rules, node_path};
use crate::{
    attr::Attrs,
    diag::Diag,
    dim::{Dim, Symbol},
    graph::{Graph, Module, NodeId, ValueId},
    symbols::Symbols,
    types::Type,
    view::NodeView,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// Changes nodes during the walk, where their inputs are inferred already and their users not yet: a chain of any
/// length folds in one walk.
pub(crate) trait Visitor {
    /// Before the rule is asked; `true` when the node is gone and nothing is left to infer.
    fn before(&mut self, graph: &mut Graph, symbols: &Symbols, id: NodeId, path: &str) -> bool;

    /// After the outputs have their types.
    fn after(&mut self, graph: &mut Graph, symbols: &Symbols, id: NodeId, path: &str);

    /// Before the nodes of a graph are visited.
    fn enter(&mut self);

    /// After all nodes of the graph.
    fn leave(&mut self, graph: &mut Graph);
}

/// [`super::infer_module`], with a visitor.
pub(crate) fn infer_with(
    module: &mut Module,
    rules: &dyn Rules,
    visitor: Option<&mut dyn Visitor>,
) -> Result<Vec<Constraint>, Vec<Diag>> {
    let (constraints, diags) = walk(module, rules, visitor, false);
    if diags.is_empty() { Ok(constraints) } else { Err(diags) }
}

/// What is wrong anywhere, in branches that a run may never take as well.
pub(crate) fn every_diag(module: &mut Module, rules: &dyn Rules) -> Vec<Diag> {
    walk(module, rules, None, true).1
}

/// Refuses results of a negative size, which come of sizes that attributes and inputs give.
fn sized(list: Vec<Inferred>) -> Result<Vec<Inferred>, Diag> {
    let shape = |ty: &Type| match ty {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => tensor.shape.clone(),
        _ => None,
    };
    let mut dims = list.iter().filter_map(|inferred| shape(&inferred.ty)).flatten();
    match dims.find_map(|dim| dim.known().filter(|&dim| dim < 0)) {
        Some(dim) => Err(Diag::invalid(format!("a dim of the result would be {dim}"))),
        None => Ok(list),
    }
}

fn walk(
    module: &mut Module,
    rules: &dyn Rules,
    visitor: Option<&mut dyn Visitor>,
    in_branches: bool,
) -> (Vec<Constraint>, Vec<Diag>) {
    let mut backed = HashSet::new();
    for &input in module.graph.inputs() {
        for dim in module.graph[input].sizes() {
            dim.for_each_symbol(&mut |symbol| {
                backed.insert(symbol);
            });
        }
    }
    let mut driver = Driver {
        rules,
        symbols: &mut module.symbols,
        visitor,
        visiting: true,
        in_branches,
        backed,
        declared: (!module.distrusts).then_some(&mut module.declared),
        constraints: Vec::new(),
        diags: Vec::new(),
    };
    driver.graph(&mut module.graph, "");
    (driver.constraints, driver.diags)
}

struct Driver<'a, 'v> {
    rules: &'a dyn Rules,
    symbols: &'a mut Symbols,
    visitor: Option<&'v mut dyn Visitor>,
    /// Off while the types of a loop's states are still being looked for.
    visiting: bool,
    /// Whether what is wrong in a branch counts.
    in_branches: bool,
    /// Symbols that are dims or elements of the model's inputs.
    backed: HashSet<Symbol>,
    /// What is believed of the model's declarations; `None` where nothing is.
    declared: Option<&'a mut BTreeMap<(Arc<str>, usize), Declared>>,
    constraints: Vec<Constraint>,
    diags: Vec<Diag>,
}

impl Driver<'_, '_> {
    fn graph(&mut self, graph: &mut Graph, path: &str) {
        let order = match graph.topo_order() {
            Ok(order) => order,
            Err(cycle) => {
                let names: Vec<String> = cycle.iter().map(|&id| format!("`{}`", graph[id].name)).collect();
                self.diags.push(Diag::invalid(format!("the graph has a cycle: {}", names.join(" -> "))));
                return;
            }
        };
        if self.visiting
            && let Some(visitor) = &mut self.visitor
        {
            visitor.enter();
        }
        for id in order {
            if self.visiting
                && let Some(visitor) = &mut self.visitor
                && visitor.before(graph, self.symbols, id, path)
            {
                continue;
            }
            self.node(graph, id, path);
            if self.visiting
                && let Some(visitor) = &mut self.visitor
            {
                visitor.after(graph, self.symbols, id, path);
            }
        }
        if self.visiting
            && let Some(visitor) = &mut self.visitor
        {
            visitor.leave(graph);
        }
    }

    fn node(&mut self, graph: &mut Graph, id: NodeId, path: &str) {
        let op = graph[id].op.clone();
        let rule = self.rules.rule(&op.domain, &op.op_type);
        if graph[id].attrs.graphs().next().is_some() {
            let label = node_path(path, &graph[id].name);
            if let Some(branch) = taken_branch(graph, id) {
                self.only_branch(graph, id, branch, &label);
                return;
            }
            self.bodies(graph, id, rule, &label);
        }
        let Some(rule) = rule else { return };
        let name = graph[id].name.clone();
        let mut cx = InferCx { constraints: &mut self.constraints, wanted: Vec::new(), path, name };
        let result = rule.infer(NodeView::new(graph, self.symbols, id), &mut cx).and_then(sized);
        let wanted = std::mem::take(&mut cx.wanted);
        match result {
            Ok(list) => {
                let mut fresh: Vec<Symbol> = Vec::new();
                for (hint, range) in &wanted {
                    let name = format!("{}.{hint}", node_path(path, &graph[id].name));
                    fresh.push(self.symbols.unbacked(&name, *range, &fresh));
                }
                let outputs: Vec<Option<ValueId>> = graph[id].outputs().to_vec();
                for (slot, (output, inferred)) in outputs.into_iter().zip(list).enumerate() {
                    let Some(output) = output else { continue };
                    let may_believe = path.is_empty() && self.backed.is_empty() && self.declared.is_some();
                    let believed = self.apply(graph, output, inferred, &fresh, may_believe);
                    if let (true, Some(declared)) = (may_believe, &mut self.declared) {
                        let key = (graph[id].name.clone(), slot);
                        match believed.then(|| Declared::of(graph, id, output)).flatten() {
                            Some(found) => drop(declared.insert(key, found)),
                            // It is known by now without the declaration.
                            None => drop(declared.remove(&key)),
                        }
                    }
                }
            }
            Err(diag) => {
                let node = node_path(path, &graph[id].name);
                self.diags.push(Diag { node, op: op.to_string(), ..diag });
            }
        }
    }

    /// An If whose condition is constant has the types of the branch that is taken.
    fn only_branch(&mut self, graph: &mut Graph, id: NodeId, branch: &'static str, label: &str) {
        let Some(mut attrs) = take_attrs(graph, id) else { return };
        let mut types = Vec::new();
        for (name, body) in attrs.graphs_mut() {
            if name == branch {
                feed_captures(graph, body);
                self.graph(body, &format!("{label}/{name}"));
                types = body
                    .outputs()
                    .iter()
                    .map(|&id| Inferred { ty: body[id].ty.clone(), elements: body[id].elements.clone() })
                    .collect();
            }
        }
        put_attrs(graph, id, attrs);
        let outputs: Vec<Option<ValueId>> = graph[id].outputs().to_vec();
        for (output, inferred) in outputs.into_iter().zip(types) {
            if let Some(output) = output {
                self.apply(graph, output, inferred, &[], false);
            }
        }
    }

    /// Infers the subgraphs of a node. A loop's states are iterated until their types repeat.
    fn bodies(&mut self, graph: &mut Graph, id: NodeId, rule: Option<&dyn Infer>, label: &str) {
        let names: Vec<String> = graph[id].attrs.graphs().map(|(name, _)| name.to_owned()).collect();
        let ask = |graph: &Graph, symbols: &Symbols, pass: usize| -> Vec<Vec<Inferred>> {
            let view = NodeView::new(graph, symbols, id);
            let ask = |name: &String| rule.map_or_else(Vec::new, |rule| rule.body_inputs(view, name, pass));
            names.iter().map(ask).collect()
        };
        let mut fed = ask(graph, self.symbols, 0);
        if fed.iter().all(Vec::is_empty) {
            let known = self.diags.len();
            self.pass(graph, id, &fed, label);
            // A branch that these inputs never take may hold what would fail with them: it is only not known then.
            let is_if = &*graph[id].op.op_type == "If" && graph[id].op.domain.is_empty();
            if is_if && !self.in_branches {
                self.diags.truncate(known);
            }
            return;
        }
        let saved: Vec<Saved> = graph[id].attrs.graphs().map(|(_, body)| Saved::of(body)).collect();
        let marks = (self.constraints.len(), self.diags.len());
        let visiting = std::mem::replace(&mut self.visiting, false);
        for pass in 1..=MAX_PASSES {
            self.pass(graph, id, &fed, label);
            let next = ask(graph, self.symbols, pass);
            let settled = next == fed;
            if settled && !(visiting && self.visitor.is_some()) {
                self.visiting = visiting;
                return;
            }
            // What was found for narrower states does not hold for wider ones.
            self.restore(graph, id, &saved);
            self.constraints.truncate(marks.0);
            self.diags.truncate(marks.1);
            fed = next;
            if settled {
                break;
            }
            if pass == MAX_PASSES {
                fed.iter_mut().flatten().for_each(weaken);
            }
        }
        self.visiting = visiting;
        self.pass(graph, id, &fed, label);
    }

    fn pass(&mut self, graph: &mut Graph, id: NodeId, fed: &[Vec<Inferred>], label: &str) {
        let Some(mut attrs) = take_attrs(graph, id) else { return };
        for ((name, body), inputs) in attrs.graphs_mut().zip(fed) {
            feed_captures(graph, body);
            for (input, inferred) in body.inputs().to_vec().into_iter().zip(inputs) {
                body[input].ty = inferred.ty.clone();
                body[input].elements = inferred.elements.clone();
            }
            self.graph(body, &format!("{label}/{name}"));
        }
        put_attrs(graph, id, attrs);
    }

    fn restore(&mut self, graph: &mut Graph, id: NodeId, saved: &[Saved]) {
        if let Some(node) = graph.node_mut(id) {
            for ((_, body), saved) in node.attrs.graphs_mut().zip(saved) {
                saved.put_back(body);
            }
        }
    }

    /// Gives an output what was inferred of it, and what may be taken from its declaration; whether a size was.
    fn apply(
        &self,
        graph: &mut Graph,
        output: ValueId,
        inferred: Inferred,
        fresh: &[Symbol],
        may_believe: bool,
    ) -> bool {
        let settle = |dim: Dim| match dim {
            Dim::Expr(expr) if !fresh.is_empty() => {
                Dim::Expr(expr).substitute(&|symbol| match symbol.0.checked_sub(FRESH) {
                    Some(k) => fresh.get(k as usize).map_or(Dim::Unknown, |&symbol| Dim::symbol(symbol)),
                    None => Dim::symbol(symbol),
                })
            }
            other => other,
        };
        let mut ty = inferred.ty;
        settle_type(&mut ty, &settle);
        let believed = self.refine(&mut ty, &graph[output].ty, may_believe);
        let value = &mut graph[output];
        value.ty = ty;
        value.elements = inferred.elements.map(|list| list.into_iter().map(settle).collect());
        believed
    }

    /// Adds what the model declares. A number says what a size of the run will be where `may_believe`: models with open
    /// dims keep the numbers of the example that they were exported with, and inside of bodies nothing checks them. Whether
    /// a number was taken. Of a declaration that is wrong in one number, nothing is believed. Arithmetic over the sizes of
    /// the inputs, and sizes that only data decide, stand as they are.
    fn refine(&self, ty: &mut Type, declared: &Type, may_believe: bool) -> bool {
        let (Type::Tensor(ours), Type::Tensor(declared)) = (&mut *ty, declared) else {
            ty.refine(declared);
            return false;
        };
        ours.dtype = ours.dtype.or(declared.dtype);
        let Some(declared) = &declared.shape else { return false };
        let ours = ours.shape.get_or_insert_with(|| vec![Dim::Unknown; declared.len()]);
        let wrong =
            |(ours, declared): (&Dim, &Dim)| ours.known().zip(declared.known()).is_some_and(|(a, b)| a != b);
        if ours.len() != declared.len() || ours.iter().zip(declared).any(wrong) {
            return false;
        }
        let mut believed = false;
        for (dim, declared) in ours.iter_mut().zip(declared).filter(|(dim, _)| **dim == Dim::Unknown) {
            // That a size is one of the inputs' is as much of a promise as a number; another name says nothing.
            let mut is_name = true;
            declared.for_each_symbol(&mut |symbol| is_name &= !self.backed.contains(&symbol));
            match declared {
                Dim::Known(_) if !may_believe => {}
                Dim::Known(_) => {
                    *dim = declared.clone();
                    believed = true;
                }
                declared if is_name => *dim = declared.clone(),
                _ => {}
            }
        }
        believed
    }
}

impl Declared {
    /// An output of a node, whose dims are known; `None` where one is not.
    fn of(graph: &Graph, id: NodeId, output: ValueId) -> Option<Declared> {
        let input = |value: &Option<ValueId>| {
            let ty = &graph[(*value)?].ty;
            Some((ty.dtype()?, ty.static_shape()?))
        };
        let inputs = graph[id].inputs().iter().map(input).collect();
        let known = |dim: &Dim| dim.known();
        Some(Declared { dims: graph[output].ty.shape()?.iter().map(known).collect(), inputs })
    }
}

/// Passes over a loop's body before its states are given up as unknown.
const MAX_PASSES: usize = 3;

fn weaken(inferred: &mut Inferred) {
    inferred.elements = None;
    if let Type::Tensor(tensor) = &mut inferred.ty {
        tensor.shape = None;
    }
}

fn settle_type(ty: &mut Type, settle: &dyn Fn(Dim) -> Dim) {
    match ty {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => {
            for dim in tensor.shape.iter_mut().flatten() {
                *dim = settle(std::mem::replace(dim, Dim::Unknown));
            }
        }
        Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => settle_type(inner, settle),
        Type::Unknown => {}
    }
}

/// The attribute name of the branch that an If with a constant condition takes.
pub(crate) fn taken_branch(graph: &Graph, id: NodeId) -> Option<&'static str> {
    let node = &graph[id];
    if &*node.op.op_type != "If" || !node.op.domain.is_empty() {
        return None;
    }
    let condition = graph[node.input(0)?].constant.as_ref()?;
    match condition.to_i64s()?[..] {
        [0] => Some("else_branch"),
        [_] => Some("then_branch"),
        _ => None,
    }
}

/// A node's attributes, out of the graph while their subgraphs are worked on.
pub(crate) fn take_attrs(graph: &mut Graph, id: NodeId) -> Option<Attrs> {
    graph.node_mut(id).map(|node| std::mem::take(&mut node.attrs))
}

/// Puts [`take_attrs`]'s attributes back.
pub(crate) fn put_attrs(graph: &mut Graph, id: NodeId, attrs: Attrs) {
    if let Some(node) = graph.node_mut(id) {
        node.attrs = attrs;
    }
}

/// Types, constants and elements of captures, from the graph around.
fn feed_captures(graph: &Graph, body: &mut Graph) {
    for capture in body.captures.clone() {
        let outer = &graph[capture.outer];
        let inner = &mut body[capture.inner];
        inner.ty = outer.ty.clone();
        inner.constant = outer.constant.clone();
        inner.elements = outer.elements.clone();
    }
}

/// Types and elements of a graph's values, to start a pass afresh.
struct Saved {
    values: Vec<(Type, Option<Vec<Dim>>)>,
    nested: Vec<Saved>,
}

impl Saved {
    fn of(graph: &Graph) -> Saved {
        let facts = |id: ValueId| (graph[id].ty.clone(), graph[id].elements.clone());
        Saved {
            values: graph.value_ids().map(facts).collect(),
            nested: graph
                .node_ids()
                .flat_map(|id| graph[id].attrs.graphs())
                .map(|(_, body)| Saved::of(body))
                .collect(),
        }
    }

    fn put_back(&self, graph: &mut Graph) {
        for (id, (ty, elements)) in graph.value_ids().zip(&self.values) {
            graph[id].ty = ty.clone();
            graph[id].elements = elements.clone();
        }
        let mut nested = self.nested.iter();
        for id in graph.node_ids().collect::<Vec<NodeId>>() {
            if let Some(node) = graph.node_mut(id) {
                for (_, body) in node.attrs.graphs_mut() {
                    if let Some(saved) = nested.next() {
                        saved.put_back(body);
                    }
                }
            }
        }
    }
}

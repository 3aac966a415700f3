//! Passes: one a file. Each leaves a module that [`crate::verify()`] accepts.
//!
//! | pass | what it does |
//! |---|---|
//! | [`fold`] | nodes over constants become constants (the evaluator of [`crate::eval`]) |
//! | [`shapes`] | values whose elements or shapes are known become constants |
//! | [`branches`] | an If with a constant condition becomes the branch that is taken |
//! | [`unroll`] | loops over sequences of static structure become their turns |
//! | [`hoist`] | sequences and optionals cross the borders of subgraphs as their elements |
//! | [`choices`] | an If of which only one branch gives what is read gets a constant condition |
//! | [`identity`] | nodes that change nothing go |
//! | [`sequences`] | sequences and optionals of static structure become their elements |
//! | [`empties`] | statically empty values become empty constants |
//! | [`dce`] | nodes that nobody needs go |
//!
//! [`run_all`] runs them to a fixpoint. A [`Ledger`] says what became of every node that is gone.

pub mod branches;
pub mod choices;
pub mod dce;
pub mod empties;
pub mod fold;
pub mod hoist;
pub mod identity;
pub mod names;
pub mod narrow;
pub mod pin;
pub mod sequences;
pub mod shapes;
mod splice;
pub mod unroll;

use crate::{
    diag::Diag,
    graph::{Graph, Module, NodeId, ValueId},
    infer::{Constraint, Rules, Visitor, infer_with, node_path, put_attrs, take_attrs},
    ranges::{self, RangeReport, ShapeSpec},
    symbols::Symbols,
    verify::debug_verify,
};

/// A node that is no longer in the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Path through subgraphs (`loop_3/body/Add_7`).
    pub node: String,
    /// Operator.
    pub op: String,
    /// Why, in a few words.
    pub reason: String,
}

/// What became of the nodes that passes took out; each stands once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Nodes whose outputs became constants, in the order in which that happened.
    pub folded: Vec<Gone>,
    /// Nodes that changed nothing, or that nobody needs.
    pub removed: Vec<Gone>,
}

impl Ledger {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.folded.len() + self.removed.len()
    }

    /// No entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes a node that is folded; nodes of its subgraphs count as removed. Taking it out is the caller's.
    pub(crate) fn fold(&mut self, graph: &Graph, id: NodeId, path: &str, reason: &str) {
        self.folded.push(gone(graph, id, path, reason));
        self.inside(graph, id, path, "its node became a constant");
    }

    /// Notes a node that is removed, and those of its subgraphs. Taking it out is the caller's.
    pub(crate) fn remove(&mut self, graph: &Graph, id: NodeId, path: &str, reason: &str) {
        self.removed.push(gone(graph, id, path, reason));
        self.inside(graph, id, path, reason);
    }

    fn inside(&mut self, graph: &Graph, id: NodeId, path: &str, reason: &str) {
        for (name, body) in graph[id].attrs.graphs() {
            let label = node_path(path, &graph[id].name);
            self.bury(body, &format!("{label}/{name}"), reason);
        }
    }

    /// Notes every node of a graph that goes as a whole.
    pub(crate) fn bury(&mut self, graph: &Graph, path: &str, reason: &str) {
        for id in graph.node_ids() {
            self.remove(graph, id, path, reason);
        }
    }
}

fn gone(graph: &Graph, id: NodeId, path: &str, reason: &str) -> Gone {
    let node = &graph[id];
    Gone { node: node_path(path, &node.name), op: node.op.to_string(), reason: reason.to_owned() }
}

/// What [`run_all`] found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What became of the nodes that are gone.
    pub ledger: Ledger,
    /// What must hold of the symbols, as the nodes that are left demand.
    pub constraints: Vec<Constraint>,
    /// What became of the symbols of the inputs; empty after [`run_all`].
    pub ranges: RangeReport,
}

impl Ledger {
    fn append(&mut self, mut later: Ledger) {
        self.folded.append(&mut later.folded);
        self.removed.append(&mut later.removed);
    }
}

/// [`run_all`] with the shapes that the user wants; every open dim of the inputs gets its range, and what the ranges
/// settle is simplified once more.
///
/// # Errors
/// What inference says against the model, or what the model says against the shapes.
pub fn prepare(module: &mut Module, shapes: &[ShapeSpec], rules: &dyn Rules) -> Result<Report, Vec<Diag>> {
    let asked = ranges::apply(module, shapes)?;
    let first = run_all(module, rules)?;
    let ranges = ranges::derive(module, &asked, &first.constraints)?;
    if ranges.symbols.is_empty() {
        return Ok(Report { ranges, ..first });
    }
    let mut ledger = first.ledger;
    let second = run_all(module, rules)?;
    ledger.append(second.ledger);
    Ok(Report { ledger, constraints: second.constraints, ranges })
}

/// Most rounds of [`run_all`]. A round folds chains of any length; another is needed only behind a branch that was
/// resolved or a type that became better.
const MAX_ROUNDS: usize = 12;

/// Infers and simplifies until nothing changes. Each round is linear in nodes and uses.
///
/// # Errors
/// What inference says against the model.
pub fn run_all(module: &mut Module, rules: &dyn Rules) -> Result<Report, Vec<Diag>> {
    let mut ledger = Ledger::default();
    debug_verify(module, "import");
    let mut constraints = simplify(module, rules, &mut ledger)?;
    for _ in 0..MAX_ROUNDS {
        if !choices::run(module, rules) {
            break;
        }
        constraints = simplify(module, rules, &mut ledger)?;
    }
    Ok(Report { ledger, constraints, ..Report::default() })
}

/// The fixpoint of inference, folding and [`PASSES`].
fn simplify(
    module: &mut Module,
    rules: &dyn Rules,
    ledger: &mut Ledger,
) -> Result<Vec<Constraint>, Vec<Diag>> {
    for _ in 0..MAX_ROUNDS {
        let mut folding = Folding { ledger: &mut *ledger, folded: Vec::new() };
        let constraints = infer_with(module, rules, Some(&mut folding))?;
        debug_verify(module, "inference and folding");
        let mut changed = false;
        for (name, pass) in PASSES {
            changed |= pass(module, ledger);
            debug_verify(module, name);
        }
        if !changed {
            return Ok(constraints);
        }
    }
    infer_with(module, rules, None)
}

type Pass = fn(&mut Module, &mut Ledger) -> bool;

const PASSES: [(&str, Pass); 7] = [
    ("branches", branches::run),
    ("unroll", unroll::run),
    ("hoist", hoist::run),
    ("sequences", sequences::run),
    ("identity", identity::run),
    ("empties", empties::run),
    ("dce", dce::run),
];

/// Folds during inference, so that what is folded is known to the nodes that come after.
struct Folding<'a> {
    ledger: &'a mut Ledger,
    /// Folded nodes of the graphs that the walk is in, outermost first.
    folded: Vec<Vec<NodeId>>,
}

impl Folding<'_> {
    fn note(&mut self, is_folded: bool, id: NodeId) -> bool {
        if is_folded && let Some(list) = self.folded.last_mut() {
            list.push(id);
        }
        is_folded
    }
}

impl Visitor for Folding<'_> {
    fn before(&mut self, graph: &mut Graph, symbols: &Symbols, id: NodeId, path: &str) -> bool {
        let is_folded = fold::node(graph, symbols, id, path, self.ledger);
        self.note(is_folded, id)
    }

    fn after(&mut self, graph: &mut Graph, symbols: &Symbols, id: NodeId, path: &str) {
        let is_folded = shapes::node(graph, symbols, id, path, self.ledger);
        self.note(is_folded, id);
    }

    fn enter(&mut self) {
        self.folded.push(Vec::new());
    }

    fn leave(&mut self, graph: &mut Graph) {
        graph.remove_nodes(&self.folded.pop().unwrap_or_default());
    }
}

/// Calls `f` on every graph of the module with its path, subgraphs before the graph around them. `true` when any call
/// was; then the captures of the nodes around are brought up to date.
pub(crate) fn each_graph(module: &mut Module, f: &mut dyn FnMut(&mut Graph, &Symbols, &str) -> bool) -> bool {
    each(&mut module.graph, &module.symbols, "", f)
}

fn each(
    graph: &mut Graph,
    symbols: &Symbols,
    path: &str,
    f: &mut dyn FnMut(&mut Graph, &Symbols, &str) -> bool,
) -> bool {
    let mut changed = false;
    let outer: Vec<NodeId> =
        graph.node_ids().filter(|&id| graph[id].attrs.graphs().next().is_some()).collect();
    for id in outer {
        let label = node_path(path, &graph[id].name);
        let Some(mut attrs) = take_attrs(graph, id) else { continue };
        let mut inside = false;
        for (name, body) in attrs.graphs_mut() {
            inside |= each(body, symbols, &format!("{label}/{name}"), f);
        }
        put_attrs(graph, id, attrs);
        if inside {
            graph.refresh_captures(id);
            changed = true;
        }
    }
    f(graph, symbols, path) || changed
}

/// Calls `f` on each node in topological order and takes out those that it says are gone.
pub(crate) fn sweep(graph: &mut Graph, f: &mut dyn FnMut(&mut Graph, NodeId) -> bool) -> bool {
    let Ok(order) = graph.topo_order() else { return false };
    let gone: Vec<NodeId> = order.into_iter().filter(|&id| f(graph, id)).collect();
    graph.remove_nodes(&gone);
    !gone.is_empty()
}

/// [`sweep`] over every graph of the module, with its symbols and path.
pub(crate) fn sweep_all(
    module: &mut Module,
    f: &mut dyn FnMut(&mut Graph, &Symbols, NodeId, &str) -> bool,
) -> bool {
    each_graph(module, &mut |graph, symbols, path| sweep(graph, &mut |graph, id| f(graph, symbols, id, path)))
}

/// Whether removing a node changes nothing: it has no output that anybody needs.
pub(crate) fn is_dead(graph: &Graph, id: NodeId, is_output: &[bool]) -> bool {
    graph[id]
        .outputs()
        .iter()
        .flatten()
        .all(|&value| graph[value].users().is_empty() && !is_output[value.index()])
}

/// Which values have names that are seen outside of their graph.
pub(crate) struct Outside {
    is_output: Vec<bool>,
    is_fixed: Vec<bool>,
}

impl Outside {
    pub(crate) fn of(graph: &Graph) -> Outside {
        let is_output = output_flags(graph);
        let mut is_fixed = is_output.clone();
        for &input in graph.inputs() {
            is_fixed[input.index()] = true;
        }
        Outside { is_output, is_fixed }
    }

    /// Makes every use of `y` one of `x`, which has the same value. An output keeps its name: the producer of `x` takes
    /// it over. `false`, and nothing is done, where both names are seen outside.
    pub(crate) fn replace(&mut self, graph: &mut Graph, y: ValueId, x: ValueId) -> bool {
        if self.is_output[y.index()] {
            if self.is_fixed[x.index()] || graph[x].producer().is_none() {
                return false;
            }
            let name = graph[y].name.clone();
            graph[y].name = std::mem::replace(&mut graph[x].name, name);
            self.is_output.swap(x.index(), y.index());
            self.is_fixed.swap(x.index(), y.index());
        }
        let ty = graph[y].ty.clone();
        if graph[x].constant.is_none() {
            graph[x].ty.refine(&ty);
            if graph[x].elements.is_none() {
                graph[x].elements = graph[y].elements.clone();
            }
        }
        graph.replace_uses(y, x);
        true
    }
}

/// For each value whether it is an output of the graph.
pub(crate) fn output_flags(graph: &Graph) -> Vec<bool> {
    let mut flags = vec![false; graph.value_count()];
    for &id in graph.outputs() {
        flags[id.index()] = true;
    }
    flags
}

#[cfg(test)]
mod sequence_tests;
#[cfg(test)]
mod tests;

//! Type and small-value inference: the traits, and the driver that walks a module.

mod driver;

use crate::{
    diag::Diag,
    dim::{Dim, Interval, Symbol},
    graph::Module,
    types::Type,
    view::NodeView,
};
use std::sync::Arc;
use trtc_bundle::DType;

pub(crate) use driver::{Visitor, every_diag, infer_with, put_attrs, take_attrs, taken_branch};

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

/// An output of a node whose sizes only the run tells, and the model declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its dims; `None` for those that are not known for all that.
    pub dims: Vec<Option<i64>>,
    /// Dtype and dims of the node's inputs, where they are known.
    pub inputs: Vec<Option<(DType, Vec<i64>)>>,
}

/// What rules may do besides looking.
#[derive(Debug)]
pub struct InferCx<'a> {
    constraints: &'a mut Vec<Constraint>,
    wanted: Vec<(String, Interval)>,
    path: &'a str,
    name: Arc<str>,
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConstraintKind {
    /// The dim is at least the number.
    AtLeast(Dim, i64),
    /// Both are equal.
    Equal(Dim, Dim),
    /// The dims broadcast: equal, or one of them is 1.
    Broadcast(Dim, Dim),
}

impl InferCx<'_> {
    /// A dim that only the run decides, between `range`. The driver gives it a symbol named after the node, the same
    /// one each time that the node is inferred.
    pub fn unbacked(&mut self, hint: &str, range: Interval) -> Dim {
        self.wanted.push((hint.to_owned(), range));
        Dim::symbol(Symbol(FRESH + self.wanted.len() as u32 - 1))
    }

    /// Demands something of symbolic dims. Known dims are checked by the rule itself.
    pub fn require(&mut self, kind: ConstraintKind) {
        self.constraints.push(Constraint { node: node_path(self.path, &self.name), kind });
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
    /// node. `pass` counts up while the driver iterates until they repeat, at most 3 times; a rule widens what differs
    /// between the state that goes in and the state that comes out (the body's outputs hold the types of the pass before).
    fn body_inputs(&self, node: NodeView<'_>, attr: &str, pass: usize) -> Vec<Inferred> {
        let _ = (node, attr, pass);
        Vec::new()
    }
}

/// What a node demands of sizes, by itself: its subgraphs and the nodes around it left out.
pub fn demands(rule: &dyn Infer, node: NodeView<'_>) -> Vec<ConstraintKind> {
    let mut constraints = Vec::new();
    let name = node.node().name.clone();
    let mut cx = InferCx { constraints: &mut constraints, wanted: Vec::new(), path: "", name };
    // What is wrong with the node is said where the module is inferred.
    drop(rule.infer(node, &mut cx));
    constraints.into_iter().map(|constraint| constraint.kind).collect()
}

/// Finds the rule of an operator.
pub trait Rules: Sync {
    /// The rule; `None` leaves the outputs as the model declares them.
    fn rule(&self, domain: &str, op_type: &str) -> Option<&dyn Infer>;
}

/// Where a node stands: `path` is the path of its graph (`loop_3/body`), empty for the model's own.
pub fn node_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// Infers types and small values of every node of the module, subgraphs included, and collects what must hold.
///
/// Declared types (value_info, outputs) refine what the rules say. Of an If whose condition is constant only the branch
/// that is taken counts. Running it again after a change gives the same symbols again.
///
/// # Errors
/// Diagnostics are collected, one a node at most.
pub fn infer_module(module: &mut Module, rules: &dyn Rules) -> Result<Vec<Constraint>, Vec<Diag>> {
    driver::infer_with(module, rules, None)
}

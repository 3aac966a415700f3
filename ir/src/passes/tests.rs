//! Passes on small graphs. Every run checks that each source node stands exactly once: in the module or in the ledger.

use super::*;
use crate::{
    Attr, Attrs, Dim, Infer, InferCx, Inferred, Interval, Node, NodeView, OpKey, Tensor, Type, ValueId,
    verify,
};
use std::collections::BTreeSet;
use trtc_bundle::DType;

mod declared;

type Named = (&'static str, Attr);

fn int(name: &'static str, value: i64) -> Named {
    (name, Attr::Int(value))
}

fn add(graph: &mut Graph, name: &str, op: &str, attrs: Vec<Named>, inputs: &[ValueId]) -> ValueId {
    let mut list = Attrs::new();
    for (name, attr) in attrs {
        list.set(name, attr);
    }
    let y = graph.add_value(&format!("{name}_y"), Type::Unknown);
    let key = OpKey::new("", op);
    graph.add_node(Node::new(name, key, 13, list, inputs.iter().copied().map(Some), [Some(y)]));
    y
}

fn known(dims: &[i64]) -> Vec<Dim> {
    dims.iter().map(|&d| Dim::Known(d)).collect()
}

fn f32_type(dims: &[i64]) -> Type {
    Type::tensor(DType::F32, known(dims))
}

/// Shape rules of a few operators, as the converters would give them.
struct Toy;

impl Rules for Toy {
    fn rule(&self, _: &str, op_type: &str) -> Option<&dyn Infer> {
        match op_type {
            "Relu" | "Identity" => Some(&Same),
            "NonZero" => Some(&Unbacked),
            "Open" => Some(&Open),
            "Loop" => Some(&ToyLoop),
            "Grow" => Some(&Grow),
            "Row" => Some(&Row),
            "OfRows" => Some(&OfRows),
            "If" => Some(&ToyIf),
            _ => None,
        }
    }
}

struct Same;

impl Infer for Same {
    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let x = node.input(0).unwrap().value();
        Ok(vec![Inferred { ty: x.ty.clone(), elements: x.elements.clone() }])
    }
}

struct Unbacked;

impl Infer for Unbacked {
    fn infer(&self, _: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let n = cx.unbacked("n", Interval::new(0, 10));
        Ok(vec![Type::tensor(DType::I64, vec![Dim::Known(1), n]).into()])
    }
}

/// A size that the run gives as a value.
struct Open;

impl Infer for Open {
    fn infer(&self, _: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        Ok(vec![Type::tensor(DType::I64, vec![Dim::Known(1), Dim::Unknown]).into()])
    }
}

/// Adds one row.
struct Grow;

impl Infer for Grow {
    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dims = node.input(0).unwrap().shape().map(|d| vec![d[0].add(&Dim::Known(1))]);
        let unranked = Type::unranked(DType::F32);
        Ok(vec![dims.map_or(unranked, |dims| Type::tensor(DType::F32, dims)).into()])
    }
}

/// Gives rank 1.
struct Row;

impl Infer for Row {
    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        Ok(vec![f32_type(&[node.int("size", 4)]).into()])
    }
}

/// Takes rank 1 alone.
struct OfRows;

impl Infer for OfRows {
    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        match node.input(0).and_then(|x| x.shape()) {
            Some(dims) if dims.len() != 1 => Err(Diag::invalid("rank 1 is wanted")),
            _ => Ok(vec![f32_type(&[4]).into()]),
        }
    }
}

/// An If with one output, of unknown type where its branches differ.
struct ToyIf;

impl Infer for ToyIf {
    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let of = |name: &str| node.attrs().graph(name).map(|body| body[body.outputs()[0]].ty.clone());
        let [then, other] = ["then_branch", "else_branch"].map(of);
        Ok(vec![if then == other { then.unwrap_or(Type::Unknown) } else { Type::Unknown }.into()])
    }
}

/// A Loop with one state: widens a dim that the body changes.
struct ToyLoop;

impl Infer for ToyLoop {
    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let body = node.attrs().graph("body").unwrap();
        Ok(vec![body[body.outputs()[1]].ty.clone().into()])
    }

    fn body_inputs(&self, node: NodeView<'_>, _: &str, pass: usize) -> Vec<Inferred> {
        let body = node.attrs().graph("body").unwrap();
        let mut state = node.input(2).unwrap().value().ty.clone();
        if pass > 0 {
            let before = body[body.inputs()[2]].ty.clone();
            let after = &body[body.outputs()[1]].ty;
            state = if before == *after { before } else { Type::tensor(DType::F32, vec![Dim::Unknown]) };
        }
        let scalar = |dtype| Inferred::from(Type::tensor(dtype, vec![]));
        vec![scalar(DType::I64), scalar(DType::Bool), state.into()]
    }
}

fn paths(graph: &Graph, path: &str, list: &mut Vec<String>) {
    for id in graph.node_ids() {
        let label = node_path(path, &graph[id].name);
        for (name, body) in graph[id].attrs.graphs() {
            paths(body, &format!("{label}/{name}"), list);
        }
        list.push(label);
    }
}

fn run(module: &mut Module) -> Ledger {
    let (ledger, new) = run_that_adds(module);
    assert_eq!(new, BTreeSet::new());
    ledger
}

/// Runs the passes; every node before is there after, or in the ledger. What is new beside them.
pub(super) fn run_that_adds(module: &mut Module) -> (Ledger, BTreeSet<String>) {
    let mut before = Vec::new();
    paths(&module.graph, "", &mut before);
    let report = run_all(module, &Toy).unwrap();
    let mut after = Vec::new();
    paths(&module.graph, "", &mut after);
    let ledger = &report.ledger;
    after.extend(ledger.folded.iter().chain(&ledger.removed).map(|gone| gone.node.clone()));
    let unique: BTreeSet<&String> = after.iter().collect();
    assert_eq!(unique.len(), after.len(), "a node stands twice: {after:?}");
    let before: BTreeSet<&String> = before.iter().collect();
    assert!(before.is_subset(&unique), "{before:?} {unique:?}");
    assert_eq!(verify(module), []);
    let new = unique.difference(&before).map(|&name| name.clone()).collect();
    (report.ledger, new)
}

fn names(list: &[Gone]) -> Vec<&str> {
    list.iter().map(|gone| gone.node.as_str()).collect()
}

#[test]
fn shape_arithmetic_folds_in_one_walk() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", f32_type(&[2, 3, 4]));
    let shape = add(g, "shape", "Shape", vec![], &[x]);
    let one = g.add_constant("one", Tensor::scalar_i64(1));
    let picked = add(g, "pick", "Gather", vec![], &[shape, one]);
    let zero = g.add_constant("zero", Tensor::from_i64s(&[0]));
    let list = add(g, "list", "Unsqueeze", vec![], &[picked, zero]);
    let rest = g.add_constant("rest", Tensor::from_i64s(&[-1]));
    let to = add(g, "to", "Concat", vec![int("axis", 0)], &[list, rest]);
    let y = add(g, "reshape", "Reshape", vec![], &[x, to]);
    g.add_output(y);
    let ledger = run(&mut module);
    assert_eq!(names(&ledger.folded), ["shape", "pick", "list", "to"]);
    assert_eq!(ledger.folded[1].reason, "all of its inputs are constant");
    let g = &module.graph;
    assert_eq!(g[to].constant, Some(Tensor::from_i64s(&[3, -1])));
    assert_eq!(g[to].elements, Some(vec![Dim::Known(3), Dim::Known(-1)]));
    assert_eq!(g.node_count(), 1);
}

#[test]
fn a_negative_size_is_the_node_s_fault() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", f32_type(&[2]));
    let y = add(g, "row", "Row", vec![int("size", -4)], &[x]);
    g.add_output(y);
    let said = run_all(&mut module, &Toy).unwrap_err();
    assert_eq!(said.len(), 1);
    assert_eq!((said[0].node.as_str(), said[0].why.as_str()), ("row", "a dim of the result would be -4"));
    assert_eq!(verify(&module), []);
}

#[test]
fn a_shape_that_is_partly_known_folds_where_it_is() {
    let mut module = Module::default();
    let n = Dim::symbol(module.symbols.named("N"));
    let g = &mut module.graph;
    let x = g.add_input("x", Type::tensor(DType::F32, vec![n.clone(), Dim::Known(5)]));
    let tail = add(g, "tail", "Shape", vec![int("start", 1)], &[x]);
    let whole = add(g, "whole", "Shape", vec![], &[x]);
    g.add_output(tail);
    g.add_output(whole);
    let ledger = run(&mut module);
    assert_eq!(names(&ledger.folded), ["tail"]);
    assert_eq!(module.graph[tail].constant, Some(Tensor::from_i64s(&[5])));
    assert_eq!(module.graph[whole].constant, None);
}

#[test]
fn identities_keep_the_names_of_outputs() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", f32_type(&[2, 3]));
    let direct = add(g, "direct", "Identity", vec![], &[x]);
    let a = add(g, "a", "Relu", vec![], &[x]);
    let b = add(g, "b", "Identity", vec![], &[a]);
    let c = add(g, "c", "Relu", vec![], &[b]);
    let d = add(g, "d", "Cast", vec![int("to", 1)], &[c]);
    let e = add(g, "e", "Identity", vec![], &[c]);
    for output in [direct, d, e, b] {
        g.add_output(output);
    }
    let wanted: Vec<String> = g.outputs().iter().map(|&id| g[id].name.to_string()).collect();
    let ledger = run(&mut module);
    let g = &module.graph;
    // `direct` joins a graph input and an output, `e` joins two outputs.
    assert_eq!(names(&ledger.removed), ["b", "d"]);
    let got: Vec<String> = g.outputs().iter().map(|&id| g[id].name.to_string()).collect();
    assert_eq!(got, wanted);
}

#[test]
fn only_exact_no_ops_go() {
    let mut module = Module::default();
    let n = Dim::symbol(module.symbols.named("N"));
    let ty = Type::tensor(DType::F32, vec![n, Dim::Known(3)]);
    let g = &mut module.graph;
    let x = g.add_input("x", ty.clone());
    let declared = |g: &mut Graph, id: ValueId| g[id].ty = ty.clone();
    let shape = g.add_constant("shape", Tensor::from_i64s(&[-1, 3]));
    let zeros = g.add_constant("zeros", Tensor::from_i64s(&[0, 0]));
    let maxes = g.add_constant("maxes", Tensor::from_i64s(&[i64::MAX, i64::MAX]));
    let back = g.add_constant("back", Tensor::from_i64s(&[1, -1]));
    let axes = g.add_constant("axes", Tensor::from_i64s(&[0, 1]));
    let y = add(g, "reshape", "Reshape", vec![], &[x, shape]);
    declared(g, y);
    let y = add(g, "slice", "Slice", vec![], &[y, zeros, maxes]);
    declared(g, y);
    let y = add(g, "perm", "Transpose", vec![("perm", Attr::Ints(vec![0, 1]))], &[y]);
    let y = add(g, "drop", "Dropout", vec![], &[y]);
    let pads = g.add_constant("pads", Tensor::from_i64s(&[0, 0, 0, 0]));
    let y = add(g, "pad", "Pad", vec![], &[y, pads]);
    let y = add(g, "concat", "Concat", vec![int("axis", 1)], &[y]);
    let y = add(g, "relu", "Relu", vec![], &[y]);
    let y = add(g, "reverse", "Slice", vec![], &[y, zeros, maxes, axes, back]);
    declared(g, y);
    let y = add(g, "cast", "Cast", vec![int("to", 10)], &[y]);
    g.add_output(y);
    let ledger = run(&mut module);
    assert_eq!(names(&ledger.removed), ["reshape", "slice", "perm", "drop", "pad", "concat"]);
    assert_eq!(module.graph.node_count(), 3);
}

#[test]
fn empty_values_become_constants_and_leave_concat() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", f32_type(&[2, 3]));
    let past = g.add_input("past", f32_type(&[2, 0]));
    let scaled = add(g, "scaled", "Relu", vec![], &[past]);
    let joined = add(g, "joined", "Concat", vec![int("axis", -1)], &[scaled, x]);
    let y = add(g, "y", "Relu", vec![], &[joined]);
    g.add_output(y);
    let ledger = run(&mut module);
    assert_eq!(names(&ledger.folded), ["scaled"]);
    assert_eq!(names(&ledger.removed), ["joined"]);
    assert_eq!(module.graph[scaled].constant, Tensor::empty(DType::F32, vec![2, 0]));
}

/// `name`: an If over `condition` whose branches hold `Relu` or `Neg` of the captured `x`, and a dead node.
fn add_if(g: &mut Graph, name: &str, condition: ValueId, x: ValueId) -> ValueId {
    let branch = |op: &str| {
        let mut body = Graph::new(op);
        let inner = body.add_capture(x, "x_inside", Type::Unknown);
        let y = add(&mut body, "work", op, vec![], &[inner]);
        let dead = add(&mut body, "dead", "Relu", vec![], &[y]);
        let _ = dead;
        body.add_output(y);
        Attr::Graph(Box::new(body))
    };
    let attrs = vec![("then_branch", branch("Relu")), ("else_branch", branch("Neg"))];
    add(g, name, "If", attrs, &[condition])
}

fn truth(value: bool) -> Tensor {
    Tensor::new(DType::Bool, vec![], vec![u8::from(value)].into()).unwrap()
}

#[test]
fn branches_that_are_taken_are_spliced_in() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", f32_type(&[2]));
    let yes = g.add_constant("yes", truth(true));
    let no = g.add_constant("no", truth(false));
    let first = add_if(g, "first", yes, x);
    let middle = add(g, "middle", "Relu", vec![], &[first]);
    let second = add_if(g, "second", no, middle);
    g.add_output(second);
    let ledger = run(&mut module);
    let g = &module.graph;
    let left: Vec<String> =
        g.topo_order().unwrap().into_iter().map(|id| format!("{} {}", g[id].name, g[id].op)).collect();
    assert_eq!(left, ["first/then_branch/work Relu", "middle Relu", "second/else_branch/work Neg"]);
    assert_eq!(&*g[g.outputs()[0]].name, "second_y");
    assert_eq!(g[middle].ty, f32_type(&[2]));
    assert_eq!(names(&ledger.folded), ["first", "second"]);
    assert_eq!(ledger.folded[0].reason, "its condition is constant: then_branch is taken");
}

#[test]
fn an_unknown_condition_keeps_both_branches_but_not_their_dead_nodes() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", f32_type(&[2]));
    let condition = g.add_input("condition", Type::tensor(DType::Bool, vec![]));
    let y = add_if(g, "choice", condition, x);
    g.add_output(y);
    let ledger = run(&mut module);
    assert_eq!(names(&ledger.removed), ["choice/else_branch/dead", "choice/then_branch/dead"]);
}

/// An If over an unknown condition: `Row` of a matrix, or the matrix.
fn row_or_matrix(g: &mut Graph, name: &str, condition: ValueId, x: ValueId) -> ValueId {
    let branch = |op: &str| {
        let mut body = Graph::new(op);
        let inner = body.add_capture(x, "x_inside", Type::Unknown);
        let y = add(&mut body, "work", op, vec![], &[inner]);
        body.add_output(y);
        Attr::Graph(Box::new(body))
    };
    add(g, name, "If", vec![("then_branch", branch("Row")), ("else_branch", branch("Relu"))], &[condition])
}

#[test]
fn a_branch_of_the_only_rank_that_is_read_is_taken() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", f32_type(&[2, 2]));
    let condition = g.add_input("condition", Type::tensor(DType::Bool, vec![]));
    let either = row_or_matrix(g, "choice", condition, x);
    let y = add(g, "reader", "OfRows", vec![], &[either]);
    g.add_output(y);
    run(&mut module);
    let g = &module.graph;
    let left: Vec<String> =
        g.topo_order().unwrap().into_iter().map(|id| format!("{} {}", g[id].name, g[id].op)).collect();
    assert_eq!(left, ["choice/then_branch/work Row", "reader OfRows"]);
}

#[test]
fn a_reader_that_may_not_run_decides_nothing() {
    // Nobody reads it, and a reader in the branch of another If.
    for inside in [false, true] {
        let mut module = Module::default();
        let g = &mut module.graph;
        let x = g.add_input("x", f32_type(&[2, 2]));
        let condition = g.add_input("condition", Type::tensor(DType::Bool, vec![]));
        let either = row_or_matrix(g, "choice", condition, x);
        if inside {
            let branch = |op: &str| {
                let mut body = Graph::new(op);
                let inner = body.add_capture(either, "either_inside", Type::Unknown);
                let y = add(&mut body, "work", op, vec![], &[inner]);
                body.add_output(y);
                Attr::Graph(Box::new(body))
            };
            let attrs = vec![("then_branch", branch("OfRows")), ("else_branch", branch("Row"))];
            let y = add(g, "second", "If", attrs, &[condition]);
            g.add_output(y);
        }
        g.add_output(either);
        run(&mut module);
        let left: Vec<_> = module.graph.node_ids().map(|id| module.graph[id].op.to_string()).collect();
        assert!(left.iter().all(|op| op == "If"), "{left:?}");
    }
}

#[test]
fn a_branch_that_hands_a_graph_input_on_leaves_an_identity() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", f32_type(&[2]));
    let yes = g.add_constant("yes", truth(true));
    let branch = || {
        let mut body = Graph::new("b");
        let inner = body.add_capture(x, "x", Type::Unknown);
        body.add_output(inner);
        Attr::Graph(Box::new(body))
    };
    let y = add(g, "pass", "If", vec![("then_branch", branch()), ("else_branch", branch())], &[yes]);
    g.add_output(y);
    let ledger = run(&mut module);
    assert!(ledger.is_empty());
    let g = &module.graph;
    let id = g.node_ids().next().unwrap();
    assert_eq!((&*g[id].name, &*g[id].op.op_type), ("pass", "Identity"));
    assert_eq!(&*g[g.outputs()[0]].name, "pass_y");
}

fn loop_body(op: &str) -> Attr {
    let mut body = Graph::new("body");
    body.add_input("i", Type::Unknown);
    let condition = body.add_input("c", Type::Unknown);
    let state = body.add_input("s", Type::Unknown);
    let next = add(&mut body, "next", op, vec![], &[state]);
    let shape = add(&mut body, "shape", "Shape", vec![], &[state]);
    let keep = add(&mut body, "keep", "Mystery", vec![], &[next, shape]);
    body.add_output(condition);
    body.add_output(next);
    body.add_output(keep);
    Attr::Graph(Box::new(body))
}

#[test]
fn a_loop_state_that_changes_is_not_folded_into_the_body() {
    for (op, folded) in [("Grow", false), ("Relu", true)] {
        let mut module = Module::default();
        let g = &mut module.graph;
        let trips = g.add_input("trips", Type::tensor(DType::I64, vec![]));
        let go = g.add_constant("go", truth(true));
        let start = g.add_input("start", f32_type(&[4]));
        let y = add(g, "loop", "Loop", vec![("body", loop_body(op))], &[trips, go, start]);
        g.add_output(y);
        let ledger = run(&mut module);
        let found = names(&ledger.folded).contains(&"loop/body/shape");
        assert_eq!(found, folded, "{op}");
        let wanted = if folded { Dim::Known(4) } else { Dim::Unknown };
        assert_eq!(module.graph[y].ty.shape().unwrap(), [wanted]);
    }
}

#[test]
fn run_time_sizes_keep_their_symbol_over_rounds() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", f32_type(&[4]));
    let same = add(g, "same", "Identity", vec![], &[x]);
    let y = add(g, "where", "NonZero", vec![], &[same]);
    g.add_output(y);
    run(&mut module);
    let symbols: Vec<&str> = module.symbols.iter().map(|(_, info)| info.name.as_str()).collect();
    assert_eq!(symbols, ["where.n"]);
    assert_eq!(module.graph[y].ty.show(&module.symbols), "i64[1 x where.n]");
}

#[test]
fn dead_nodes_go_with_their_subgraphs() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", f32_type(&[2]));
    let condition = g.add_input("condition", Type::tensor(DType::Bool, vec![]));
    let a = add(g, "a", "Relu", vec![], &[x]);
    add_if(g, "unused", condition, a);
    let y = add(g, "y", "Relu", vec![], &[x]);
    g.add_output(y);
    let ledger = run(&mut module);
    assert_eq!(ledger.removed.len(), 6);
    assert_eq!(module.graph.node_count(), 1);
    assert!(module.graph[x].users().len() == 1);
}

#[test]
fn long_chains_take_one_walk() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let mut y = g.add_input("x", f32_type(&[2]));
    let one = g.add_constant("one", Tensor::scalar_i64(1));
    let mut n = g.add_constant("zero", Tensor::scalar_i64(0));
    for k in 0..5_000 {
        y = add(g, &format!("r{k}"), ["Relu", "Identity"][k % 2], vec![], &[y]);
        n = add(g, &format!("a{k}"), "Add", vec![], &[n, one]);
    }
    g.add_output(y);
    g.add_output(n);
    let ledger = run(&mut module);
    assert_eq!(ledger.folded.len(), 5_000);
    assert_eq!(ledger.removed.len(), 2_500);
    assert_eq!(module.graph[n].constant, Some(Tensor::scalar_i64(5_000)));
}

/// Runs the passes on a text; what is left, without types.
fn simplified(text: &str) -> (String, Ledger) {
    let mut module = crate::text::parse(text).unwrap();
    let ledger = run(&mut module);
    (printed(&module), ledger)
}

/// A module without types and without its head.
pub(super) fn printed(module: &Module) -> String {
    let style = crate::text::Style::default().without_types();
    let text = crate::text::print_as(module, &style);
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("graph")).skip(1).collect();
    lines.join("\n")
}

#[test]
fn static_sequences_become_their_elements() {
    let (left, ledger) = simplified(
        "graph g(%a: f32[2], %b: f32[2]) {
           const %zero: i64[] = [0]
           const %last: i64[] = [-1]
           %s = SequenceConstruct-11(%a, %b)
           %c = Relu-14(%a)
           %t = SequenceInsert-11(%s, %c, %zero)
           %u = SequenceErase-11(%t, %last)
           %n = SequenceLength-11(%u)
           %first = SequenceAt-11(%u, %zero)
           %y = Relu-14(%first)
           %z = ConcatFromSequence-11(%t) {axis=0}
           return %y, %z, %n
         }",
    );
    let wanted = "  const %n: i64[] = [2]
  %c = Relu-14(%a)
  %y = Relu-14(%c)
  %z = Concat-13(%c, %a, %b) {axis=0}
  return %y, %z, %n
}";
    assert_eq!(left, wanted);
    assert_eq!(names(&ledger.folded), ["n"]);
}

#[test]
fn parts_of_a_split_are_taken_from_the_whole() {
    let (left, _) = simplified(
        "graph g(%x: f32[7 x 3]) {
           const %one: i64[] = [1]
           const %last: i64[] = [-1]
           const %two: i64[] = [2]
           const %sizes: i64[2] = [3, 4]
           %s = SplitToSequence-11(%x) {axis=1, keepdims=0}
           %t = SplitToSequence-11(%x, %two)
           %u = SplitToSequence-11(%x, %sizes)
           %a = SequenceAt-11(%s, %last)
           %b = SequenceAt-11(%t, %last)
           %c = SequenceAt-11(%u, %one)
           %n = SequenceLength-11(%t)
           return %a, %b, %c, %n
         }",
    );
    let wanted = "  const %n: i64[] = [4]
  const %a/index: i64[] = [-1]
  const %b/starts: i64[1] = [6]
  const %b/ends: i64[1] = [8]
  const %b/axes: i64[1] = [0]
  const %c/starts: i64[1] = [3]
  const %c/ends: i64[1] = [7]
  const %c/axes: i64[1] = [0]
  %a = Gather-13(%x, %a/index) {axis=1}
  %b = Slice-13(%x, %b/starts, %b/ends, %b/axes)
  %c = Slice-13(%x, %c/starts, %c/ends, %c/axes)
  return %a, %b, %c, %n
}";
    assert_eq!(left, wanted);
}

#[test]
fn optionals_of_known_content_are_resolved() {
    let (left, ledger) = simplified(
        "graph g(%x: f32[2], %o: opt(f32[2])) {
           %some = Optional-15(%x)
           %none = Optional-15() {type=type(f32[2])}
           %has = OptionalHasElement-18(%some)
           %hasnt = OptionalHasElement-18(%none)
           %open = OptionalHasElement-18(%o)
           %got = OptionalGetElement-18(%some)
           %y = Relu-14(%got)
           %z = OptionalGetElement-18(%x)
           return %y, %has, %hasnt, %open, %z
         }",
    );
    let wanted = "  const %has: bool[] = [true]
  const %hasnt: bool[] = [false]
  %open = OptionalHasElement-18(%o)
  %y = Relu-14(%x)
  %z = Identity-25(%x)
  return %y, %has, %hasnt, %open, %z
}";
    assert_eq!(left, wanted);
    assert_eq!(names(&ledger.removed), ["got", "none", "some"]);
}

#[test]
fn a_dropout_whose_mask_nobody_wants_goes() {
    let (left, ledger) = simplified(
        "graph g(%x: f32[2]) {
           %d, %mask = Dropout-7(%x)
           %y = Relu-14(%d)
           return %y
         }",
    );
    assert_eq!(left, "  %y = Relu-14(%x)\n  return %y\n}");
    assert_eq!(names(&ledger.removed), ["d"]);
}

#[test]
fn reductions_of_nothing_are_constants() {
    let mut module = Module::default();
    let graph = &mut module.graph;
    let x = graph.add_value("x", f32_type(&[2, 0, 3]));
    let flags = graph.add_value("flags", Type::tensor(DType::Bool, known(&[2, 0])));
    graph.set_inputs(vec![x, flags]);
    let mut outputs = Vec::new();
    for op in ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceLogSumExp", "ReduceMean"] {
        let y = add(graph, op, op, vec![], &[x]);
        graph[y].ty = f32_type(&[2, 1]);
        outputs.push(y);
    }
    let all = add(graph, "all", "ReduceMin", vec![], &[flags]);
    graph[all].ty = Type::tensor(DType::Bool, known(&[2]));
    outputs.push(all);
    graph.set_outputs(outputs.clone());
    assert!(empties::run(&mut module, &mut Ledger::default()));
    let value = |id: ValueId| {
        let list = module.graph[id].constant.as_ref().and_then(Tensor::to_f64s);
        list.map(|list| (list.len(), list[0]))
    };
    let found: Vec<_> = outputs[..5].iter().map(|&id| value(id)).collect();
    let infinity = f64::INFINITY;
    // The mean of nothing is not defined.
    assert_eq!(found, [Some((2, 0.0)), Some((2, 1.0)), Some((2, -infinity)), Some((2, -infinity)), None]);
    assert_eq!(module.graph[all].constant.as_ref().unwrap().bytes().unwrap()[..], [1, 1]);
}

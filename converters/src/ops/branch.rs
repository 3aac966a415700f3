//! If: one of two subgraphs.
//!
//! cond [] bool  ->  outputs of then_branch or else_branch
//! Opsets: 1, 11, 13 (sequences), 16 (optional), 19, 21, 23, 24, 25 wider types.     TensorRT: IIfConditional.
//! Limits: every node of both branches fits an engine; outputs of equal dtype and rank; both branches demand the same of sizes.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{body, check, shape},
};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{
    Code, Diag, Dim, Graph, InferCx, Inferred, Interval, NodeView, Refusal, Type, ValueId,
    infer::ConstraintKind,
};
use trtc_network::layer::{Capture, Layer};

/// The converter.
#[derive(Debug)]
pub struct If;

/// Nothing is left to decide.
#[derive(Debug)]
pub struct Plan;

const BRANCHES: [&str; 2] = ["then_branch", "else_branch"];

fn branches(node: NodeView<'_>) -> Result<[&Graph; 2], Diag> {
    let branch = |name: &str| {
        let graph = node.attrs().graph(name);
        let graph = graph.ok_or_else(|| Diag::invalid("the attribute is missing").slot(name))?;
        match graph.outputs().len() >= node.output_count() {
            true => Ok(graph),
            false => Err(Diag::invalid(format!("{} outputs are needed", node.output_count())).slot(name)),
        }
    };
    Ok([branch(BRANCHES[0])?, branch(BRANCHES[1])?])
}

/// What both types say.
fn joined(a: &Type, b: &Type, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Type {
    let (Some(x), Some(y)) = (a.as_tensor(), b.as_tensor()) else {
        return if a == b { a.clone() } else { Type::Unknown };
    };
    let dtype = x.dtype.filter(|_| x.dtype == y.dtype);
    let dims = match (&x.shape, &y.shape) {
        (Some(a), Some(b)) if a.len() == b.len() => {
            Some(a.iter().zip(b).map(|(a, b)| either(a, b, node, cx)).collect())
        }
        _ => None,
    };
    shape::typed(dtype, dims)
}

/// A dim that is the one or the other: between both, where these are bounded.
fn either(a: &Dim, b: &Dim, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Dim {
    if a == b {
        return a.clone();
    }
    let (x, y) = (node.symbols().interval(a), node.symbols().interval(b));
    match (x.min.zip(y.min), x.max.zip(y.max)) {
        (Some((a, b)), Some((c, d))) => cx.unbacked("branch", Interval::new(a.min(b), c.max(d))),
        _ => Dim::Unknown,
    }
}

/// TensorRT checks the sizes of both branches in every run: what one of them demands must hold whichever is taken.
fn check_demands(node: NodeView<'_>, bodies: [&Graph; 2]) -> Result<(), Refusal> {
    let demands = bodies.map(|body| body::demands(node, body));
    for (own, other) in [(0, 1), (1, 0)] {
        let open =
            demands[own].iter().find(|demand| !demands[other].contains(demand) && !holds(node, demand));
        if let Some(ConstraintKind::Equal(a, b) | ConstraintKind::Broadcast(a, b)) = open {
            let [a, b] = [a, b].map(|dim| node.symbols().show(dim));
            let why = format!(
                "only one branch demands that {a} and {b} agree, and TensorRT demands it in every run"
            );
            return Err(Refusal::new(Code::CONTROL_FLOW, why)
                .slot(BRANCHES[own])
                .help("give both the same symbol, or --shape with which they agree"));
        }
    }
    Ok(())
}

/// What the builder of TensorRT-RTX 1.7 fails at.
fn check_faults(node: NodeView<'_>, bodies: [&Graph; 2]) -> Result<(), Refusal> {
    let fault = |why: String| Refusal::new(Code::KNOWN_FAULT, why);
    for (body, name) in bodies.into_iter().zip(BRANCHES) {
        if let Some((inner, value)) = body::using(body, &["Loop", "Scan"], |_| true) {
            let why = format!(
                "`{inner}` in it, a loop, uses `{value}` from around it, for which TensorRT-RTX 1.7 finds no scope"
            );
            return Err(fault(why).slot(name).help("carry the value as a state"));
        }
    }
    for (body, name) in bodies.into_iter().zip(BRANCHES) {
        for id in body.node_ids().filter(|&id| body[id].op.domain.is_empty()) {
            let inner = &body[id];
            let outputs = || inner.outputs().iter().flatten();
            let is_open = |id: &ValueId| {
                body[*id].ty.shape().is_none_or(|dims| dims.iter().any(|d| d.known().is_none()))
            };
            let is_unread = |id: &ValueId| body[*id].users().is_empty() && !body.outputs().contains(id);
            let why = match &*inner.op.op_type {
                "If" if outputs().any(is_open) => {
                    "with open dims, which TensorRT-RTX 1.7 does not build inside another If"
                }
                "Loop" | "Scan" if outputs().any(is_unread) => {
                    "of which a result is not read, for which TensorRT-RTX 1.7 finds no scope"
                }
                _ => continue,
            };
            return Err(fault(format!("`{}` in it is one {why}", inner.name)).slot(name));
        }
    }
    for slot in 0..node.output_count() {
        let [Some(a), Some(b)] = bodies.map(|body| body[body.outputs()[slot]].ty.shape()) else { continue };
        let pairs = || a.iter().zip(b);
        let differs = pairs().any(|(a, b)| a != b);
        if let Some((dim, _)) = pairs().find(|(a, b)| differs && a == b && a.known().is_none()) {
            let why = format!(
                "the branches differ in one dim of output {slot} and have {} in another, which TensorRT-RTX 1.7 does not build",
                node.symbols().show(dim)
            );
            return Err(fault(why).help("make the dims that are the same static with --shape"));
        }
    }
    Ok(())
}

/// Whether a demand holds for all sizes in range. A lower bound always does: it decides the range.
fn holds(node: NodeView<'_>, demand: &ConstraintKind) -> bool {
    let fixed = |dim: &Dim| {
        let range = node.symbols().interval(dim);
        range.min.filter(|_| range.min == range.max)
    };
    match demand {
        ConstraintKind::AtLeast(..) => true,
        ConstraintKind::Equal(a, b) => a == b || fixed(a).is_some_and(|size| fixed(b) == Some(size)),
        ConstraintKind::Broadcast(a, b) => {
            let (x, y) = (fixed(a), fixed(b));
            a == b || x == Some(1) || y == Some(1) || x.is_some_and(|size| y == Some(size))
        }
    }
}

impl Converter for If {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("If", 25)],
        dtypes: &[DType::Bool],
        layers: "IIfConditional",
        limits: "every node of both branches fits an engine; outputs of equal dtype and rank; both branches demand the same of sizes",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::KNOWN_FAULT,
            Code::BODY,
            Code::CONTROL_FLOW,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let [then, other] = branches(node)?;
        let mut results = Vec::new();
        for slot in 0..node.output_count() {
            let (a, b) = (&then[then.outputs()[slot]], &other[other.outputs()[slot]]);
            let elements = match (&a.elements, &b.elements) {
                (Some(a), Some(b)) if a.len() == b.len() => {
                    let same = |(a, b): (&Dim, &Dim)| if a == b { a.clone() } else { Dim::Unknown };
                    Some(a.iter().zip(b).map(same).collect())
                }
                _ => None,
            };
            results.push(Inferred { ty: joined(&a.ty, &b.ty, node, cx), elements });
        }
        Ok(results)
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let condition = check::operand(node, 0, "cond", &[DType::Bool], target)?;
        if condition.shape.iter().any(|dim| *dim != Dim::Known(1)) {
            return Err(Refusal::new(Code::SHAPE, "must be one element").slot("cond"));
        }
        let bodies = branches(node).map_err(crate::ctx::window::refused)?;
        for (body, name) in bodies.into_iter().zip(BRANCHES) {
            body::plan(node, body, name, target)?;
        }
        check_demands(node, bodies)?;
        if target.product() == Product::Rtx {
            check_faults(node, bodies)?;
        }
        for slot in 0..node.output_count() {
            let [a, b] = bodies.map(|body| &body[body.outputs()[slot]]);
            let (Some(x), Some(y)) = (a.ty.shape(), b.ty.shape()) else {
                return Err(Refusal::new(
                    Code::CONTROL_FLOW,
                    format!("the rank of output {slot} is not known"),
                ));
            };
            if x.len() != y.len() {
                let why =
                    format!("output {slot} has rank {} in one branch and {} in the other", x.len(), y.len());
                return Err(
                    Refusal::new(Code::CONTROL_FLOW, why).help("make both branches give the same rank")
                );
            }
            if x.len() > 8 {
                return Err(Refusal::new(Code::RANK, "TensorRT holds at most 8 dims"));
            }
            let (Some(s), Some(t)) = (a.ty.dtype(), b.ty.dtype()) else {
                return Err(Refusal::new(
                    Code::CONTROL_FLOW,
                    format!("the dtype of output {slot} is not known"),
                ));
            };
            if s != t {
                return Err(Refusal::new(
                    Code::CONTROL_FLOW,
                    format!("output {slot} is {s} in one branch, {t} in the other"),
                ));
            }
            check::dtype_gate(s, "outputs", check::CARRIED, target)?;
            if x.contains(&Dim::Known(0)) || y.contains(&Dim::Known(0)) {
                return Err(Refusal::new(
                    Code::SHAPE,
                    format!("output {slot} is an empty tensor in a branch"),
                ));
            }
        }
        Ok(Plan)
    }

    fn emit(&self, _: Plan, cx: &mut Emit<'_>) -> Outputs {
        let node = cx.node();
        let condition = body::condition(cx, 0);
        let Ok(bodies) = branches(node) else {
            cx.fault("a branch is missing");
            return Outputs::new();
        };
        let outers = body::captured(node, &bodies);
        let mut captures = Vec::new();
        for &outer in &outers {
            let outer = cx.outer(outer);
            let info = cx.info(outer).clone();
            captures.push(Capture { outer, inner: cx.tensor(info.dtype, info.dims) });
        }
        let inners: Vec<_> = captures.iter().map(|capture| capture.inner).collect();
        let [then_branch, else_branch] = bodies.map(|body| {
            let mut region = cx.region(body, &body::bindings(body, &outers, &inners));
            region.outputs.truncate(node.output_count());
            region
        });
        cx.layer(Layer::If { condition, captures, then_branch, else_branch })
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::{Attr, Attrs, Graph, Node, OpKey, Tensor, Type, ValueId};

    fn node(graph: &mut Graph, op: &str, since: u32, inputs: &[ValueId]) -> ValueId {
        let y = graph.add_value(&format!("{op}_y"), Type::Unknown);
        let inputs = inputs.iter().copied().map(Some);
        graph.add_node(Node::new(op, OpKey::new("", op), since, Attrs::new(), inputs, [Some(y)]));
        y
    }

    /// A branch that applies `op` to the outer value 1 (f32[N, 3]).
    fn branch(op: &str, since: u32) -> Graph {
        let mut graph = Graph::new(op);
        let x = graph.add_capture(ValueId(1), "x", Type::Unknown);
        let y = node(&mut graph, op, since, &[x]);
        graph.add_output(y);
        graph
    }

    fn constant(tensor: Tensor) -> Graph {
        let mut graph = Graph::new("constant");
        let y = graph.add_constant("c", tensor);
        graph.add_output(y);
        graph
    }

    fn either(condition: bool, then: Graph, other: Graph) -> Case {
        Case::new("If", 25)
            .input(bools([], &[condition]))
            .outside(noise([2, 3]))
            .attr("then_branch", Attr::Graph(Box::new(then)))
            .attr("else_branch", Attr::Graph(Box::new(other)))
    }

    #[test]
    fn refusals() {
        let both = || (branch("Exp", 13), branch("Neg", 13));
        let case = |x: Tensor| {
            let (then, other) = both();
            Case::new("If", 25)
                .input(x)
                .outside(noise([2, 3]))
                .attr("then_branch", Attr::Graph(Box::new(then)))
                .attr("else_branch", Attr::Graph(Box::new(other)))
        };
        case(noise([])).refused(Code::DTYPE_KERNEL);
        case(f64s([], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        case(bools([1; 9], &[true])).refused(Code::RANK);
        case(bools([2], &[true; 2])).refused(Code::SHAPE);
        case(bools([], &[true])).unranked(0).refused(Code::RANK_UNKNOWN);
        case(bools([], &[true])).untyped(0).refused(Code::DTYPE_UNKNOWN);
        either(true, branch("Exp", 13), branch("StringNormalizer", 10)).refused(Code::BODY);
        either(true, branch("Exp", 13), constant(noise([3]))).refused(Code::CONTROL_FLOW);
        either(true, branch("Exp", 13), constant(i64s([1, 1], &[3]))).refused(Code::CONTROL_FLOW);
        either(true, constant(noise([0])), constant(noise([3]))).refused(Code::SHAPE);
        either(true, constant(unheld()), constant(unheld())).refused(Code::DTYPE_KERNEL);
        either(true, constant(bf16s([1], &[1.0])), constant(bf16s([1], &[2.0])))
            .target("rtx-1.7:sm75")
            .refused(Code::COMPUTE_CAPABILITY);
        let refusal = either(true, branch("Exp", 13), branch("Mystery", 1)).refused(Code::BODY);
        assert!(refusal.why.contains("Mystery"), "{refusal}");
    }

    #[test]
    fn broadcasts_in_a_branch() {
        let sum = |second: ValueId| {
            let mut graph = Graph::new("sum");
            let x = graph.add_capture(ValueId(1), "x", Type::Unknown);
            let z = match second == ValueId(1) {
                true => x,
                false => graph.add_capture(second, "z", Type::Unknown),
            };
            let y = node(&mut graph, "Add", 14, &[x, z]);
            graph.add_output(y);
            graph
        };
        let case = |second, z: &str| {
            either(true, branch("Neg", 13), sum(ValueId(second)))
                .outside(noise([2, 3]))
                .dynamic(1, ["N", "3"])
                .dynamic(2, [z, "3"])
        };
        // Only one branch wants N = M, or N = 2.
        case(2, "M").refused(Code::CONTROL_FLOW);
        case(2, "2").refused(Code::CONTROL_FLOW);
        case(2, "N").check(F32);
        case(1, "M").check(F32);
        // Both do.
        let both = either(true, sum(ValueId(2)), sum(ValueId(2))).outside(noise([2, 3]));
        both.dynamic(1, ["N", "3"]).dynamic(2, ["M", "3"]).check(F32);
    }

    #[test]
    fn faults() {
        // One dim is the same and open, another one differs.
        let twice = |axis: i64| {
            let mut graph = Graph::new("twice");
            let x = graph.add_capture(ValueId(1), "x", Type::Unknown);
            let y = graph.add_value("y", Type::Unknown);
            let mut attrs = Attrs::new();
            attrs.set("axis", Attr::Int(axis));
            let op = OpKey::new("", "Concat");
            graph.add_node(Node::new("concat", op, 13, attrs, [Some(x), Some(x)], [Some(y)]));
            graph.add_output(y);
            either(true, branch("Neg", 13), graph)
        };
        twice(1).dynamic(1, ["N", "3"]).refused(Code::KNOWN_FAULT);
        twice(0).dynamic(1, ["N", "3"]).check(F32);
        twice(1).check(F32);
        // A loop in a branch that reads what is around it.
        let looped = |captures: bool, stacks: bool| {
            let mut body = Graph::new("body");
            body.add_input("i", Type::Unknown);
            let go = body.add_input("go", Type::Unknown);
            let state = body.add_input("state", Type::Unknown);
            let mut graph = Graph::new("looped");
            let x = graph.add_capture(ValueId(1), "x", Type::Unknown);
            let y = match captures {
                true => body.add_capture(x, "x", Type::Unknown),
                false => state,
            };
            let next = node(&mut body, "Mul", 14, &[state, y]);
            body.add_output(go);
            body.add_output(next);
            if stacks {
                body.add_output(next);
            }
            let count = graph.add_constant("count", i64s([], &[3]));
            let y = graph.add_value("y", Type::Unknown);
            let mut attrs = Attrs::new();
            attrs.set("body", Attr::Graph(Box::new(body)));
            let mut outputs = vec![Some(y)];
            if stacks {
                outputs.push(Some(graph.add_value("all", Type::Unknown)));
            }
            let op = OpKey::new("", "Loop");
            graph.add_node(Node::new("loop", op, 25, attrs, [Some(count), None, Some(x)], outputs));
            graph.add_output(y);
            either(true, branch("Neg", 13), graph)
        };
        looped(false, false).check(F32);
        assert!(looped(false, true).refused(Code::KNOWN_FAULT).why.contains("not read"));
        let refusal = looped(true, false).refused(Code::KNOWN_FAULT);
        assert!(refusal.why.contains("`loop`"), "{refusal}");
        looped(true, false).target("tensorrt-11.3:sm89").layers();
    }

    #[test]
    fn types() {
        let case = either(true, branch("Exp", 13), branch("Neg", 13)).dynamic(1, ["N", "3"]);
        assert_eq!(case.types(), ["f32[N x 3]"]);
        let case = either(true, branch("Exp", 13), constant(noise([4, 3])));
        assert_eq!(case.types(), ["f32[node.branch x 3]"]);
        assert_eq!(either(true, constant(noise([1])), constant(noise([1, 1]))).types(), ["f32[..]"]);
        assert!(Case::new("If", 25).input(bools([], &[true])).invalid().contains("missing"));
        assert!(either(true, Graph::new("empty"), Graph::new("empty")).invalid().contains("1 outputs"));
    }

    #[test]
    fn numbers() {
        for condition in [true, false] {
            either(condition, branch("Exp", 13), branch("Neg", 13)).check(F32);
            either(condition, branch("Exp", 13), branch("Neg", 13)).dynamic(1, ["N", "3"]).check(F32);
            either(condition, branch("Exp", 13), constant(noise([4, 3]))).check(F32);
            either(condition, constant(noise([2, 3])), constant(noise([2, 3]))).check(F32);
            // What is captured goes out as it is.
            let mut same = Graph::new("same");
            let x = same.add_capture(ValueId(1), "x", Type::Unknown);
            same.add_output(x);
            either(condition, same, branch("Neg", 13)).check(F32);
        }
    }

    #[test]
    fn nested() {
        let mut outer = Graph::new("outer");
        let flag = outer.add_capture(ValueId(0), "flag", Type::Unknown);
        let x = outer.add_capture(ValueId(1), "x", Type::Unknown);
        let inner = |op: &str| {
            let mut graph = Graph::new(op);
            let x = graph.add_capture(x, "x_inner", Type::Unknown);
            let y = node(&mut graph, op, 13, &[x]);
            graph.add_output(y);
            graph
        };
        let mut attrs = Attrs::new();
        attrs.set("then_branch", Attr::Graph(Box::new(inner("Exp"))));
        attrs.set("else_branch", Attr::Graph(Box::new(inner("Neg"))));
        let y = outer.add_value("inner_y", Type::Unknown);
        outer.add_node(Node::new("inner", OpKey::new("", "If"), 25, attrs, [Some(flag)], [Some(y)]));
        outer.add_output(y);
        let open = either(true, outer.clone(), branch("Abs", 13)).dynamic(1, ["N", "3"]);
        assert!(open.refused(Code::KNOWN_FAULT).why.contains("open dims"));
        either(true, outer.clone(), branch("Abs", 13)).check(F32);
        either(false, outer, branch("Abs", 13)).check(F32);
    }

    #[test]
    fn gates() {
        let constant = || Attr::Graph(Box::new(constant(noise([2]))));
        let case = Case::new("If", 25).absent().attr("then_branch", constant());
        case.attr("else_branch", constant()).refused(Code::INVALID);
    }
}

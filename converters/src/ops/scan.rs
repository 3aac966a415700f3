//! Scan: a subgraph along axes of tensors.
//!
//! states.., scanned [..s..]..  ->  states.., stacked [..s..]..        body: states.., parts.. -> states.., parts..
//! Opsets: 9, 11, 16, 19, 21, 23, 24, 25 wider types (8 had a batch axis).     TensorRT: ILoop.
//! Limits: every node of the body fits an engine; states keep their shapes.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        body, check,
        extent::{self, DimPlan},
        iterate::{bind_captures, body_of, carry, check_stacked, check_states, stacked, states},
        shape,
    },
};
use trtc_bundle::{Product, Target};
use trtc_ir::{Code, Diag, Dim, Graph, InferCx, Inferred, NodeView, Refusal, ValueId};
use trtc_network::{
    TensorId,
    layer::{Layer, LoopIterator, LoopOutput, LoopOutputKind, Recurrence, TripLimit},
};

/// The converter.
#[derive(Debug)]
pub struct Scan;

/// Axes and directions of what is scanned and stacked.
#[derive(Debug)]
pub struct ScanPlan {
    states: usize,
    length: DimPlan,
    scanned: Vec<(u32, bool)>,
    stacked: Vec<(u32, bool)>,
}

/// Numbers of states and of scanned inputs.
fn counts(node: NodeView<'_>, body: &Graph) -> Result<(usize, usize), Diag> {
    let all = node.input_count();
    let scanned = usize::try_from(node.int("num_scan_inputs", 0)).ok().filter(|&n| (1..=all).contains(&n));
    let scanned = scanned.ok_or_else(|| Diag::invalid(format!("of {all} inputs")).slot("num_scan_inputs"))?;
    let states = all - scanned;
    if body.inputs().len() != all || body.outputs().len() < states {
        let why = format!(
            "{} inputs and {} outputs for {states} states",
            body.inputs().len(),
            body.outputs().len()
        );
        return Err(Diag::invalid(why).slot("body"));
    }
    Ok((states, scanned))
}

/// Entry `k` of a list attribute; 0 unless it is given.
fn entry(node: NodeView<'_>, name: &str, k: usize) -> i64 {
    node.attrs().ints(name).and_then(|list| list.get(k)).copied().unwrap_or(0)
}

impl Converter for Scan {
    type Plan = ScanPlan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Scan", 25)],
        dtypes: check::CARRIED,
        layers: "ILoop",
        limits: "every node of the body fits an engine; states keep their shapes",
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

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let body = body_of(node)?;
        let (count, scanned) = counts(node, body)?;
        let mut results = states(node, body, 0..count, 0, 1);
        let mut trips = Dim::Unknown;
        for k in 0..scanned {
            let Some(x) = node.input(count + k).and_then(|x| x.shape()) else { continue };
            let axis = shape::axis(entry(node, "scan_input_axes", k), x.len());
            let dim = &x[axis.map_err(|diag| diag.slot("scan_input_axes"))?];
            match (&trips, dim) {
                (Dim::Known(a), Dim::Known(b)) if a != b => {
                    return Err(Diag::invalid(format!("inputs of {a} and {b} steps")));
                }
                (Dim::Known(_), _) => {}
                _ => trips = dim.clone(),
            }
        }
        for (k, &output) in body.outputs()[count..].iter().enumerate() {
            results.push(stacked(&body[output].ty, &trips, entry(node, "scan_output_axes", k)).into());
        }
        Ok(results)
    }

    fn body_inputs(&self, node: NodeView<'_>, _: &str, pass: usize) -> Vec<Inferred> {
        let Ok(body) = body_of(node) else { return Vec::new() };
        let Ok((count, scanned)) = counts(node, body) else { return Vec::new() };
        let mut list = states(node, body, 0..count, 0, pass);
        for k in 0..scanned {
            let x = node.input(count + k);
            let dims = x.and_then(|x| x.shape()).and_then(|dims| {
                let axis = shape::axis(entry(node, "scan_input_axes", k), dims.len()).ok()?;
                let mut dims = dims.to_vec();
                dims.remove(axis);
                Some(dims)
            });
            list.push(shape::typed(x.and_then(|x| x.dtype()), dims).into());
        }
        list
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<ScanPlan, Refusal> {
        let refused = crate::ctx::window::refused;
        let body = body_of(node).map_err(refused)?;
        let (states, count) = counts(node, body).map_err(refused)?;
        check_states(node, body, 0..states, 0, target)?;
        let outputs = &body.outputs()[states..];
        check_stacked(body, outputs, target)?;
        let mut scanned = Vec::new();
        for k in 0..count {
            let x = check::operand(node, states + k, "scan_inputs", check::CARRIED, target)?;
            check::never_empty(&x, "scan_inputs")?;
            let axis = check::axis(entry(node, "scan_input_axes", k), x.rank(), "scan_input_axes")?;
            scanned.push((axis as u32, entry(node, "scan_input_directions", k) != 0));
        }
        let mut stacked = Vec::new();
        for (k, &output) in outputs.iter().enumerate() {
            let rank = body[output].ty.shape().map_or(0, <[Dim]>::len) + 1;
            let axis = check::axis(entry(node, "scan_output_axes", k), rank, "scan_output_axes")?;
            stacked.push((axis as u32, entry(node, "scan_output_directions", k) != 0));
        }
        let is_read = |&input: &ValueId| !body[input].users().is_empty() || body.outputs().contains(&input);
        let turned = stacked.iter().any(|(_, reverse)| *reverse);
        if target.product() == Product::Rtx && turned && !body.inputs()[states..].iter().any(is_read) {
            let why = "TensorRT-RTX 1.7 does not find the length of what is stacked from the end where nothing scanned is read";
            return Err(Refusal::new(Code::KNOWN_FAULT, why).slot("scan_output_directions"));
        }
        body::check_branches(body, target)?;
        body::plan(node, body, "body", target)?;
        let length = extent::own_dim(node, states, scanned[0].0 as usize);
        Ok(ScanPlan { states, length, scanned, stacked })
    }

    fn emit(&self, plan: ScanPlan, cx: &mut Emit<'_>) -> Outputs {
        let node = cx.node();
        let Ok(body) = body_of(node) else {
            cx.fault("no body");
            return Outputs::new();
        };
        let count = cx.dim(&plan.length);
        let count = cx.reshape(count, Vec::new());
        let initial = (0..plan.states).map(|k| cx.input(k)).collect();
        let states = carry(cx, initial);
        let mut iterators = Vec::new();
        for (k, &(axis, reverse)) in plan.scanned.iter().enumerate() {
            let x = cx.input(plan.states + k);
            let mut info = cx.info(x).clone();
            if info.dims.len() <= axis as usize {
                cx.fault("a scanned input of another rank");
                return Outputs::new();
            }
            info.dims.remove(axis as usize);
            let current = cx.tensor(info.dtype, info.dims);
            iterators.push(LoopIterator { x, current, axis, reverse });
        }
        let currents = states.current.iter().copied().chain(iterators.iter().map(|it| it.current));
        let mut bind: Vec<(ValueId, TensorId)> = body.inputs().iter().copied().zip(currents).collect();
        bind_captures(cx, node, body, &mut bind);
        let region = cx.region(body, &bind);
        let at = |k: usize| region.outputs.get(k).copied().unwrap_or(TensorId(u32::MAX));
        let (mut recurrences, mut results) = (Vec::new(), Vec::new());
        for k in 0..plan.states {
            let (initial, current) = (states.initial[k], states.current[k]);
            recurrences.push(Recurrence { initial, current, next: at(k) });
            results.push(LoopOutput {
                kind: LoopOutputKind::LastValue,
                value: current,
                axis: 0,
                length: None,
            });
        }
        for (k, &(axis, reverse)) in plan.stacked.iter().enumerate() {
            let kind = if reverse { LoopOutputKind::Reverse } else { LoopOutputKind::Concatenate };
            results.push(LoopOutput { kind, value: at(plan.states + k), axis, length: Some(count) });
        }
        let limits = vec![(TripLimit::Count, count)];
        cx.layer(Layer::Loop { limits, recurrences, iterators, body: region.layers, results })
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::{Attr, Attrs, Graph, Node, OpKey, Tensor, Type, ValueId};

    /// state [2] = state + part; stacks state * part.
    fn scan_body() -> Graph {
        let mut g = Graph::new("body");
        let state = g.add_input("state", Type::Unknown);
        let part = g.add_input("part", Type::Unknown);
        let next = node(&mut g, "Add", 14, &[state, part]);
        let shown = node(&mut g, "Mul", 14, &[state, part]);
        g.add_output(next);
        g.add_output(shown);
        g
    }

    fn scan(x: Tensor) -> Case {
        let body = Attr::Graph(Box::new(scan_body()));
        Case::new("Scan", 25)
            .input(noise([2]))
            .input(x)
            .attr("body", body)
            .int("num_scan_inputs", 1)
            .outputs(2)
    }

    #[test]
    fn scans() {
        scan(noise([4, 2])).check(F32);
        scan(noise([4, 2])).dynamic(1, ["S", "2"]).check(F32);
        scan(noise([4, 2])).ints("scan_input_directions", &[1]).check(F32);
        scan(noise([4, 2])).ints("scan_output_directions", &[1]).check(F32);
        scan(noise([2, 4])).ints("scan_input_axes", &[1]).ints("scan_output_axes", &[-1]).check(F32);
        let open = scan(noise([2, 4])).ints("scan_input_axes", &[1]).ints("scan_output_axes", &[1]);
        assert_eq!(open.dynamic(1, ["2", "S"]).types(), ["f32[2]", "f32[2 x S]"]);
    }

    #[test]
    fn scan_refusals() {
        refused_dtypes(|x| {
            let body = Attr::Graph(Box::new(scan_body()));
            Case::new("Scan", 25)
                .input(x(&[2]))
                .input(x(&[4, 2]))
                .attr("body", body)
                .int("num_scan_inputs", 1)
        });
        scan(noise([4, 2])).dynamic(1, ["0", "2"]).refused(Code::SHAPE);
        scan(noise([4, 1])).dynamic(0, ["1"]).dynamic(1, ["4", "2"]).refused(Code::CONTROL_FLOW);
        let mut strange = scan_body();
        let part = strange.inputs()[1];
        node(&mut strange, "Mystery", 1, &[part]);
        let strange = Attr::Graph(Box::new(strange));
        scan(noise([4, 2])).attr("body", strange).refused(Code::BODY);
        let body = Attr::Graph(Box::new(scan_body()));
        let high = Case::new("Scan", 25).input(noise([1; 9])).input(noise([1, 1])).attr("body", body);
        high.int("num_scan_inputs", 1).refused(Code::RANK);
        let none = scan(noise([4, 2])).int("num_scan_inputs", 3);
        assert!(none.invalid().contains("of 2 inputs"));
        assert!(Case::new("Scan", 25).input(noise([2])).invalid().contains("missing"));
    }

    #[test]
    fn faults() {
        // The state alone is stacked, from the end.
        let unread = |direction: i64| {
            let mut g = Graph::new("body");
            let state = g.add_input("state", Type::Unknown);
            g.add_input("part", Type::Unknown);
            let next = node(&mut g, "Neg", 13, &[state]);
            let shown = node(&mut g, "Exp", 13, &[state]);
            g.add_output(next);
            g.add_output(shown);
            let case = scan(noise([4, 2])).attr("body", Attr::Graph(Box::new(g)));
            case.ints("scan_output_directions", &[direction])
        };
        unread(0).check(F32);
        unread(1).refused(Code::KNOWN_FAULT);
        // An If that uses what is around the loop.
        let chosen = |outside: bool| {
            let mut g = Graph::new("body");
            let state = g.add_input("state", Type::Unknown);
            let part = g.add_input("part", Type::Unknown);
            let used = if outside { g.add_capture(ValueId(2), "outer", Type::Unknown) } else { part };
            let limit = g.add_constant("limit", f32s([], &[0.5]));
            let largest = node(&mut g, "ReduceMax", 20, &[part]);
            let axes = g.add_constant("axes", list(&[0]));
            let largest = node(&mut g, "Squeeze", 25, &[largest, axes]);
            let small = node(&mut g, "Less", 13, &[largest, limit]);
            let branch = |op: &str| {
                let mut branch = Graph::new(op);
                let x = branch.add_capture(used, "x", Type::Unknown);
                let y = node(&mut branch, op, 13, &[x]);
                branch.add_output(y);
                Attr::Graph(Box::new(branch))
            };
            let mut attrs = Attrs::new();
            attrs.set("then_branch", branch("Neg"));
            attrs.set("else_branch", branch("Exp"));
            let y = g.add_value("chosen", Type::Unknown);
            g.add_node(Node::new("choice", OpKey::new("", "If"), 25, attrs, [Some(small)], [Some(y)]));
            let next = node(&mut g, "Add", 14, &[state, y]);
            g.add_output(next);
            g.add_output(y);
            scan(noise([4, 2])).outside(noise([2])).attr("body", Attr::Graph(Box::new(g)))
        };
        chosen(false).check(F32);
        let refusal = chosen(true).refused(Code::KNOWN_FAULT);
        assert!(refusal.why.contains("`outer`"), "{refusal}");
    }

    #[test]
    fn gates() {
        let body = Attr::Graph(Box::new(scan_body()));
        let case = Case::new("Scan", 25).absent().input(noise([4, 2])).attr("body", body);
        case.int("num_scan_inputs", 1).refused(Code::INVALID);
    }
}

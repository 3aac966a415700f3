//! Control flow in partitions of random graphs, with an oracle that knows only operator names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use trtc_bundle::{DType, Target};
use trtc_ir::{
    Attr, Attrs, Code, Dim, Graph, Node, NodeId, NodeView, OpKey, Oracle, Refusal, Symbols, Type, ValueId,
};
use trtc_partitioner::{
    CostModel, Forced, Partition, Placement, SegmentKind, body_graph, partition_with, split_segments,
    target_report,
};

/// Refuses operators whose name starts with `Host`, and what has one in a body.
struct Names;

fn fits(graph: &Graph, id: NodeId) -> bool {
    let node = &graph[id];
    let mut bodies = node.attrs.graphs();
    !node.op.op_type.starts_with("Host") && bodies.all(|(_, body)| body.node_ids().all(|id| fits(body, id)))
}

impl Oracle for Names {
    fn admit(&self, node: NodeView<'_>, _: &Target) -> Result<(), Refusal> {
        match fits(node.graph(), node.id()) {
            true => Ok(()),
            false => Err(Refusal::new(Code::NO_CONVERTER, "by name")),
        }
    }
}

fn tensor() -> Type {
    Type::tensor(DType::F32, vec![Dim::Known(64), Dim::Known(64)])
}

/// A node of a drawn graph: what it is, what it reads (of the values before it), and its bodies.
#[derive(Clone, Debug)]
struct Spec {
    kind: u8,
    inputs: Vec<usize>,
    bodies: Vec<Vec<Spec>>,
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let leaf = (0..4u8, prop::collection::vec(0..1000usize, 1..3)).prop_map(|(kind, inputs)| Spec {
        kind,
        inputs,
        bodies: Vec::new(),
    });
    let node = leaf.clone().prop_recursive(3, 40, 5, move |inner| {
        let body = prop::collection::vec(prop_oneof![3 => leaf.clone(), 1 => inner], 1..5);
        (prop::collection::vec(0..1000usize, 1..3), body.clone(), body).prop_map(|(inputs, a, b)| Spec {
            kind: 9,
            inputs,
            bodies: vec![a, b],
        })
    });
    prop::collection::vec(node, 1..8)
}

/// Adds nodes that read `values`; the values afterwards.
fn fill(graph: &mut Graph, specs: &[Spec], mut values: Vec<ValueId>, condition: ValueId) -> Vec<ValueId> {
    for (k, spec) in specs.iter().enumerate() {
        let inputs: Vec<Option<ValueId>> =
            spec.inputs.iter().map(|i| Some(values[i % values.len()])).collect();
        let output = graph.add_value(&format!("v{k}"), tensor());
        let mut attrs = Attrs::new();
        let (op, inputs) = match spec.kind {
            0 => ("HostOp", inputs),
            1 => ("MatMul", inputs),
            9 => {
                for (name, specs) in ["else_branch", "then_branch"].into_iter().zip(&spec.bodies) {
                    let mut body = Graph::new(name);
                    let inner: Vec<ValueId> = inputs
                        .iter()
                        .flatten()
                        .map(|&outer| body.add_capture(outer, &format!("c{}", outer.0), tensor()))
                        .collect();
                    let flag = body.add_capture(condition, "flag", Type::tensor(DType::Bool, vec![]));
                    let made = fill(&mut body, specs, inner, flag);
                    body.add_output(*made.last().unwrap());
                    attrs.set(name, Attr::Graph(Box::new(body)));
                }
                ("If", vec![Some(condition)])
            }
            _ => ("Relu", inputs),
        };
        let name = format!("n{k}");
        graph.add_node(Node::new(&name, OpKey::new("", op), 1, attrs, inputs, [Some(output)]));
        values.push(output);
    }
    values
}

fn build(specs: &[Spec]) -> Graph {
    let mut graph = Graph::new("g");
    let x = graph.add_input("x", tensor());
    let flag = graph.add_input("flag", Type::tensor(DType::Bool, vec![]));
    let values = fill(&mut graph, specs, vec![x], flag);
    let unused: Vec<ValueId> = values.iter().copied().filter(|&v| graph[v].users().is_empty()).collect();
    unused.iter().for_each(|&value| graph.add_output(value));
    graph
}

fn run(graph: &Graph, cost: &CostModel) -> Partition {
    let target = Target::default_target();
    partition_with(graph, &Symbols::default(), &target, &Names, &Forced::new(), cost).expect("acyclic")
}

/// Every segment has what it reads when its turn comes, scheduled nodes stand alone, and each node has one place.
fn check(graph: &Graph, partition: &Partition, ids: &mut HashSet<String>) {
    let mut made: HashSet<ValueId> = graph.inputs().iter().copied().collect();
    made.extend(graph.captures.iter().map(|capture| capture.inner));
    for (k, segment) in partition.segments.iter().enumerate() {
        assert!(ids.insert(segment.id.clone()), "{} twice", segment.id);
        assert!(segment.inputs.iter().all(|value| made.contains(value)), "{} is too early", segment.id);
        made.extend(&segment.outputs);
        if segment.kind == SegmentKind::Schedule {
            let [node] = segment.nodes[..] else { panic!("{} nodes in one step", segment.nodes.len()) };
            assert!(matches!(&partition.placement[&node], Placement::Schedule(at, _) if *at == k));
            for body in &segment.bodies {
                check(body_graph(graph, node, &body.attr).unwrap(), &body.partition, ids);
            }
        } else {
            assert!(segment.bodies.is_empty());
        }
    }
    assert_eq!(partition.placement.len(), graph.node_count());
    let homes: HashMap<NodeId, usize> =
        partition.placement.iter().map(|(id, at)| (*id, at.segment())).collect();
    assert!(homes.iter().all(|(id, &at)| partition.segments[at].nodes.contains(id)));
    assert!(graph.outputs().iter().all(|value| made.contains(value)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_schedule_is_one_and_never_dearer(specs in specs()) {
        let graph = build(&specs);
        for cost in [CostModel::default(), CostModel::maximal_clusters()] {
            let mut partition = run(&graph, &cost);
            check(&graph, &partition, &mut HashSet::new());
            let target = Target::default_target();
            let report = target_report(&graph, &Symbols::default(), &target, &partition, &Names, &[]);
            let t = &report.totals;
            prop_assert_eq!(t.nodes, t.engine_nodes + t.host_nodes + t.schedule_nodes);
            let parts = partition.parts(&graph).len();
            prop_assert_eq!(parts, report.segments.len());
            split_segments(&graph, &Symbols::default(), &mut partition, &|_, segment| {
                (segment.kind != SegmentKind::Schedule).then(|| segment.nodes.iter().map(|&id| vec![id]).collect())
            });
            check(&graph, &partition, &mut HashSet::new());
        }
        let e = run(&graph, &CostModel::default()).estimate;
        prop_assert!(e.total_ns <= e.maximal_ns, "{:?}", e);
        let any_host = graph.node_ids().any(|id| !fits(&graph, id));
        prop_assert!(!any_host || e.total_ns <= e.host_ns, "{:?}", e);
    }
}

#[test]
fn a_branch_worth_an_engine_gets_one() {
    let leaf = |kind, inputs: &[usize]| Spec { kind, inputs: inputs.to_vec(), bodies: Vec::new() };
    let then = vec![leaf(1, &[0, 0]), leaf(1, &[1, 1]), leaf(0, &[2])];
    let graph = build(&[Spec { kind: 9, inputs: vec![0], bodies: vec![vec![leaf(2, &[0])], then] }]);
    let partition = run(&graph, &CostModel::default());
    let [step] = &partition.segments[..] else { panic!("{:?}", partition.segments) };
    assert_eq!((step.kind, step.id.as_str()), (SegmentKind::Schedule, "n0"));
    let ids = |k: usize| -> Vec<&str> {
        step.bodies[k].partition.segments.iter().map(|segment| segment.id.as_str()).collect()
    };
    // A lone Relu is not worth a launch.
    assert_eq!(
        (ids(0), ids(1)),
        (vec!["n0/else_branch/host_0"], vec!["n0/then_branch/engine_0", "n0/then_branch/host_0"])
    );
    let path = &step.bodies[1].partition.graph;
    let product = body_graph(&graph, step.nodes[0], "then_branch").unwrap().node_ids().next().unwrap();
    let forced: Forced = [((path.clone(), product), Refusal::new(Code::BUILD_REFUSED, "no"))].into();
    let target = Target::default_target();
    let without =
        partition_with(&graph, &Symbols::default(), &target, &Names, &forced, &CostModel::default()).unwrap();
    let body = &without.segments[0].bodies[1].partition;
    assert!(matches!(&body.placement[&product], Placement::Host(_, refusal) if refusal.why == "no"));
}

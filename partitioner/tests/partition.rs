//! Partitions of small and random graphs, with an oracle that knows only operator names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use proptest::prelude::*;
use std::collections::HashMap;
use trtc_bundle::{DType, Target};
use trtc_ir::{
    Attrs, Code, Dim, Graph, Interval, Node, NodeId, NodeView, OpKey, Oracle, Refusal, Symbols, Type,
    ValueId, oracle::SegmentRefusal,
};
use trtc_partitioner::{CostModel, Forced, Partition, Placement, SegmentKind, partition_with, target_report};

/// Refuses operators whose name starts with `Host`.
struct Names;

impl Oracle for Names {
    fn admit(&self, node: NodeView<'_>, _: &Target) -> Result<(), Refusal> {
        match node.op().starts_with("Host") {
            true => Err(Refusal::new(Code::NO_CONVERTER, "by name")),
            false => Ok(()),
        }
    }
}

fn tensor() -> Type {
    Type::tensor(DType::F32, vec![Dim::Known(4)])
}

/// A graph from `(operator, inputs)`; input k names node k, and a node without inputs reads the graph input.
fn graph(nodes: &[(&str, &[usize])]) -> (Graph, Vec<NodeId>) {
    let mut graph = Graph::new("g");
    let x = graph.add_input("x", tensor());
    let mut values: Vec<ValueId> = Vec::new();
    let mut ids = Vec::new();
    for (k, (op, inputs)) in nodes.iter().enumerate() {
        let output = graph.add_value(&format!("v{k}"), tensor());
        let inputs: Vec<Option<ValueId>> = match inputs.is_empty() {
            true => vec![Some(x)],
            false => inputs.iter().map(|&i| Some(values[i])).collect(),
        };
        let node = Node::new(&format!("n{k}"), OpKey::new("", op), 1, Attrs::new(), inputs, [Some(output)]);
        ids.push(graph.add_node(node));
        values.push(output);
    }
    let used: Vec<bool> = values.iter().map(|&v| graph[v].users().is_empty()).collect();
    for (value, _) in values.iter().zip(used).filter(|(_, unused)| *unused) {
        graph.add_output(*value);
    }
    (graph, ids)
}

/// Whatever an engine takes is worth an engine: these tests are about clusters, not about cost.
fn dear_host() -> CostModel {
    CostModel::with_changes("[base]\nengine_launch_us = 0\n[base.host.node_us]\nother = 1000").expect("valid")
}

fn run_with(graph: &Graph, forced: &Forced) -> Partition {
    let target = Target::default_target();
    partition_with(graph, &Symbols::default(), &target, &Names, forced, &dear_host()).expect("acyclic")
}

fn run(graph: &Graph) -> Partition {
    run_with(graph, &Forced::new())
}

fn shape(partition: &Partition) -> Vec<(String, usize)> {
    partition.segments.iter().map(|segment| (segment.id.clone(), segment.nodes.len())).collect()
}

#[test]
fn everything_supported_is_one_engine() {
    let (graph, _) = graph(&[("A", &[]), ("B", &[0]), ("C", &[0, 1]), ("D", &[])]);
    assert_eq!(shape(&run(&graph)), [("engine_0".to_owned(), 4)]);
}

#[test]
fn a_diamond_around_a_host_node_does_not_become_a_cycle() {
    // A feeds both the host node and D; D also reads the host node: A and D must not share an engine.
    let (graph, ids) = graph(&[("A", &[]), ("HostB", &[0]), ("D", &[0, 1])]);
    let partition = run(&graph);
    assert_eq!(
        shape(&partition),
        [("engine_0".to_owned(), 1), ("host_0".to_owned(), 1), ("engine_1".to_owned(), 1)]
    );
    assert!(matches!(partition.placement[&ids[1]], Placement::Host(1, _)));
}

#[test]
fn parallel_branches_share_engines() {
    // Two branches with a host node each: two engines and one host segment, not four engines.
    let (graph, _) = graph(&[
        ("A", &[]),
        ("HostA", &[0]),
        ("B", &[]),
        ("HostB", &[2]),
        ("C", &[1]),
        ("D", &[3]),
        ("E", &[4, 5]),
    ]);
    let kinds: Vec<_> = run(&graph).segments.iter().map(|segment| segment.kind).collect();
    assert_eq!(kinds, [SegmentKind::Engine, SegmentKind::Host, SegmentKind::Engine]);
}

#[test]
fn a_node_needed_late_stands_where_it_is_needed() {
    // B reads the graph input and is used only after the host node: it belongs to the second engine.
    let (graph, ids) = graph(&[("A", &[]), ("HostA", &[0]), ("B", &[]), ("C", &[1, 2])]);
    let partition = run(&graph);
    assert_eq!(partition.placement[&ids[2]], partition.placement[&ids[3]]);
    assert_eq!(partition.segments[0].outputs.len(), 1);
}

#[test]
fn forced_nodes_go_to_the_host_with_their_reason() {
    let (graph, ids) = graph(&[("A", &[]), ("B", &[0])]);
    let reason = Refusal::new(Code::BUILD_REFUSED, "the builder said no");
    let forced = Forced::from([((Vec::new(), ids[1]), reason.clone())]);
    let partition = run_with(&graph, &forced);
    assert_eq!(partition.placement[&ids[1]], Placement::Host(1, reason));
}

#[test]
fn the_report_counts_each_node_once() {
    let (graph, _) = graph(&[("A", &[]), ("HostA", &[0]), ("B", &[1])]);
    let partition = run(&graph);
    let target = Target::default_target();
    let report = target_report(&graph, &Symbols::default(), &target, &partition, &Names, &[]);
    let t = &report.totals;
    assert_eq!((t.nodes, t.engine_nodes, t.host_nodes, t.engines, t.host_segments), (3, 2, 1, 2, 1));
    assert_eq!(t.boundary_bytes, 32);
    let reasons: Vec<_> = report.nodes.iter().filter_map(|row| row.reason.as_deref()).collect();
    assert_eq!(reasons, ["by name"]);
}

/// Every value that a segment reads is made by an earlier segment, and every node stands in exactly one segment.
fn check(graph: &Graph, partition: &Partition) {
    let mut place: HashMap<NodeId, usize> = HashMap::new();
    for (k, segment) in partition.segments.iter().enumerate() {
        for &node in &segment.nodes {
            assert!(place.insert(node, k).is_none());
        }
        for &input in &segment.inputs {
            if let Some((maker, _)) = graph[input].producer() {
                assert!(place.get(&maker).is_some_and(|&at| at < k), "an input is made later");
                assert!(partition.segments[place[&maker]].outputs.contains(&input));
            }
        }
    }
    assert_eq!(place.len(), graph.node_count());
    for id in graph.node_ids() {
        let host = graph[id].op.op_type.starts_with("Host");
        assert_eq!(partition.segments[place[&id]].kind == SegmentKind::Host, host);
    }
}

/// The fewest segments: the longest alternation of kinds on any path, counted by brute force over the edges.
fn longest_alternation(graph: &Graph) -> usize {
    let mut best: HashMap<NodeId, usize> = HashMap::new();
    for id in graph.topo_order().expect("acyclic") {
        let host = |id: NodeId| graph[id].op.op_type.starts_with("Host");
        let over = graph.predecessors(id).map(|p| best[&p] + usize::from(host(p) != host(id))).max();
        best.insert(id, over.unwrap_or(1));
    }
    best.values().copied().max().unwrap_or(0)
}

proptest! {
    #[test]
    fn random_graphs_are_partitioned_without_cycles(
        spec in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<prop::sample::Index>(), 0..3)), 1..60)
    ) {
        let mut nodes: Vec<(&str, Vec<usize>)> = Vec::new();
        for (k, (host, picks)) in spec.iter().enumerate() {
            let inputs = if k == 0 { Vec::new() } else { picks.iter().map(|pick| pick.index(k)).collect() };
            nodes.push((if *host { "Host" } else { "A" }, inputs));
        }
        let list: Vec<(&str, &[usize])> = nodes.iter().map(|(op, inputs)| (*op, inputs.as_slice())).collect();
        let (graph, _) = graph(&list);
        let partition = run(&graph);
        check(&graph, &partition);
        let alternation = longest_alternation(&graph);
        // One more when the first level of the engines is empty on the longest path's side.
        prop_assert!(partition.segments.len() <= alternation + 1);
    }
}

/// Refuses engine inputs with a dim that nothing bounds, and counts how often it is asked.
#[derive(Default)]
struct Bounded(std::sync::atomic::AtomicUsize);

impl Oracle for Bounded {
    fn admit(&self, node: NodeView<'_>, target: &Target) -> Result<(), Refusal> {
        Names.admit(node, target)
    }

    fn check_segment(
        &self,
        graph: &Graph,
        symbols: &Symbols,
        _: &[NodeId],
        inputs: &[ValueId],
        _: &[ValueId],
        _: &Target,
    ) -> Result<(), SegmentRefusal> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let unbounded = |value: &&ValueId| {
            graph[**value].ty.shape().unwrap().iter().any(|dim| symbols.interval(dim).max.is_none())
        };
        match inputs.iter().find(unbounded) {
            Some(&value) => {
                Err(SegmentRefusal::Value(value, Refusal::new(Code::SHAPE_VALUE, "no upper bound")))
            }
            None => Ok(()),
        }
    }
}

#[test]
fn a_chain_of_unbounded_sizes_leaves_at_once() {
    // Host -> 500 nodes on an unbounded dim -> one that makes it known -> 3 more.
    let mut symbols = Symbols::default();
    let count = symbols.unbacked("count", Interval { min: Some(0), max: None }, &[]);
    let mut graph = Graph::new("g");
    let mut last = graph.add_input("x", tensor());
    for k in 0..504 {
        let unbounded = k < 500;
        let dim = if unbounded { Dim::symbol(count) } else { Dim::Known(4) };
        let output = graph.add_value(&format!("v{k}"), Type::tensor(DType::F32, vec![dim]));
        let op = OpKey::new("", if k == 0 { "HostNonZero" } else { "A" });
        graph.add_node(Node::new(&format!("n{k}"), op, 1, Attrs::new(), [Some(last)], [Some(output)]));
        last = output;
    }
    graph.add_output(last);
    let oracle = Bounded::default();
    let target = Target::default_target();
    let partition =
        partition_with(&graph, &symbols, &target, &oracle, &Forced::new(), &dear_host()).expect("acyclic");
    // The node that makes the size known reads an unbounded one, and leaves too.
    assert_eq!(shape(&partition), [("host_0".to_owned(), 501), ("engine_0".to_owned(), 3)]);
    assert!(oracle.0.into_inner() <= 3);
}

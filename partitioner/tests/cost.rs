//! Placement by cost: small graphs whose best partition is plain, and properties of random ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use trtc_bundle::{DType, Target};
use trtc_ir::{
    Attrs, Code, Dim, Graph, Node, NodeId, NodeView, OpKey, Oracle, Refusal, Symbols, Tensor, Type, ValueId,
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

/// A graph by hand: values by name.
#[derive(Default)]
struct Draft {
    graph: Graph,
    values: HashMap<String, ValueId>,
    nodes: HashMap<String, NodeId>,
}

impl Draft {
    fn input(&mut self, name: &str, elements: i64) {
        let ty = Type::tensor(DType::F32, vec![Dim::Known(elements)]);
        self.values.insert(name.to_owned(), self.graph.add_input(name, ty));
    }

    fn constant(&mut self, name: &str) {
        let tensor = Tensor::from_f32s(vec![2], &[1.0, 2.0]).expect("two elements");
        self.values.insert(name.to_owned(), self.graph.add_constant(name, tensor));
    }

    /// The node and its output share a name.
    fn node(&mut self, name: &str, op: &str, inputs: &[&str], elements: i64) {
        let output = self.graph.add_value(name, Type::tensor(DType::F32, vec![Dim::Known(elements)]));
        let inputs: Vec<_> = inputs.iter().map(|name| Some(self.values[*name])).collect();
        let node = Node::new(name, OpKey::new("", op), 1, Attrs::new(), inputs, [Some(output)]);
        self.nodes.insert(name.to_owned(), self.graph.add_node(node));
        self.values.insert(name.to_owned(), output);
    }

    fn outputs(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.graph.add_output(self.values[*name]));
    }

    fn run(&self) -> Partition {
        self.run_with(&CostModel::default())
    }

    fn run_with(&self, cost: &CostModel) -> Partition {
        let target = Target::default_target();
        partition_with(&self.graph, &Symbols::default(), &target, &Names, &Forced::new(), cost)
            .expect("acyclic")
    }

    /// Segments as `engine_0: a b`.
    fn show(&self, partition: &Partition) -> Vec<String> {
        let names = |nodes: &[NodeId]| {
            nodes.iter().map(|&id| self.graph[id].name.to_string()).collect::<Vec<_>>().join(" ")
        };
        partition.segments.iter().map(|s| format!("{}: {}", s.id, names(&s.nodes))).collect()
    }

    fn code(&self, partition: &Partition, node: &str) -> Option<Code> {
        match &partition.placement[&self.nodes[node]] {
            Placement::Engine(_) => None,
            Placement::Host(_, refusal) | Placement::Schedule(_, refusal) => Some(refusal.code),
        }
    }
}

#[test]
fn a_lone_reshape_between_host_nodes_stays_on_the_host() {
    let mut g = Draft::default();
    g.input("x", 1000);
    g.node("a", "HostA", &["x"], 1000);
    g.node("r", "Reshape", &["a"], 1000);
    g.node("b", "HostB", &["r"], 1000);
    g.outputs(&["b"]);
    let partition = g.run();
    assert_eq!(g.show(&partition), ["host_0: a r b"]);
    assert_eq!(g.code(&partition, "r"), Some(Code::COST));
    let Placement::Host(_, refusal) = &partition.placement[&g.nodes["r"]] else { panic!("on the host") };
    // An engine: 25 us to launch, 12 for a second host segment, two copies of 8 us and 4 KB at 10 GB/s, 0.2 for the
    // node. The host: 1 us.
    assert!(refusal.why.contains("1.0 us there, 54.0 us in an engine"), "{}", refusal.why);
    assert!(refusal.help.is_some());
}

#[test]
fn contractions_between_host_nodes_are_worth_an_engine() {
    let mut g = Draft::default();
    g.input("x", 100);
    g.constant("w");
    g.node("a", "HostA", &["x"], 100);
    g.node("c", "Conv", &["a", "w"], 100);
    g.node("r", "Relu", &["c"], 100);
    g.node("b", "HostB", &["r"], 100);
    g.outputs(&["b"]);
    assert_eq!(g.show(&g.run()), ["host_0: a", "engine_0: c r", "host_1: b"]);
}

#[test]
fn a_graph_without_host_nodes_stays_in_its_engine_whatever_it_costs() {
    let mut g = Draft::default();
    g.input("x", 10);
    g.node("r", "Reshape", &["x"], 10);
    g.outputs(&["r"]);
    let partition = g.run();
    assert_eq!(g.show(&partition), ["engine_0: r"]);
    assert!(partition.estimate.host_ns < partition.estimate.total_ns);
}

#[test]
fn a_reshape_beside_a_large_engine_leaves_it() {
    // c and r would share a level; only r touches the host.
    let mut g = Draft::default();
    g.input("x", 1000);
    g.constant("w");
    g.node("a", "HostA", &["x"], 1000);
    g.node("r", "Reshape", &["a"], 1000);
    g.node("c", "Conv", &["x", "w"], 1000);
    g.node("b", "HostB", &["r", "c"], 1000);
    g.outputs(&["b"]);
    assert_eq!(g.show(&g.run()), ["engine_0: c", "host_0: a r b"]);
}

#[test]
fn shape_arithmetic_on_a_host_value_stays_there() {
    // s and g read a host value and feed a host node; the same host value goes to a convolution too.
    let mut g = Draft::default();
    g.input("x", 1000);
    g.constant("w");
    g.node("a", "HostA", &["x"], 1000);
    g.node("s", "Shape", &["a"], 4);
    g.node("g", "Gather", &["s"], 1);
    g.node("c", "Conv", &["a", "w"], 1000);
    g.node("b", "HostB", &["c", "g"], 1000);
    g.outputs(&["b"]);
    let partition = g.run();
    assert_eq!(g.show(&partition), ["host_0: a s g", "engine_0: c", "host_1: b"]);
    assert_eq!(g.code(&partition, "g"), Some(Code::COST));
}

#[test]
fn shape_arithmetic_on_an_engine_value_stays_in_the_engine() {
    // Only a few bytes cross, not the large value.
    let mut g = Draft::default();
    g.input("x", 1_000_000);
    g.constant("w");
    g.node("c", "Conv", &["x", "w"], 1_000_000);
    g.node("s", "Shape", &["c"], 4);
    g.node("b", "HostB", &["s"], 4);
    g.node("d", "Conv", &["c", "w"], 1_000_000);
    g.outputs(&["b", "d"]);
    let partition = g.run();
    assert_eq!(g.code(&partition, "s"), None);
}

#[test]
fn constant_only_producers_are_computed_on_both_sides() {
    let mut g = Draft::default();
    g.input("x", 1000);
    g.constant("w");
    g.constant("k");
    g.node("t", "Transpose", &["k"], 1000);
    g.node("c", "Conv", &["x", "w"], 1000);
    g.node("m", "Mul", &["c", "t"], 1000);
    g.node("b", "HostB", &["m", "t"], 1000);
    g.node("d", "Conv", &["b", "w"], 1000);
    g.node("e", "Mul", &["d", "t"], 1000);
    g.outputs(&["e"]);
    let partition = g.run();
    assert_eq!(g.show(&partition), ["engine_0: t c m", "host_0: t b", "engine_1: t d e"]);
    let t = g.values["t"];
    assert!(partition.segments.iter().all(|s| !s.inputs.contains(&t) && !s.outputs.contains(&t)));
    // One row a source node, copies or not.
    let target = Target::default_target();
    let report = target_report(&g.graph, &Symbols::default(), &target, &partition, &Names, &[]);
    assert_eq!(report.nodes.len(), 6);
    assert_eq!(report.totals.nodes, 6);
}

#[test]
fn a_cheap_node_is_computed_twice_rather_than_shipped() {
    // r reads a host value that both sides have; its result is wanted on both.
    let mut g = Draft::default();
    g.input("x", 1000);
    g.constant("w");
    g.node("a", "HostA", &["x"], 1000);
    g.node("r", "Relu", &["a"], 1000);
    g.node("c", "Conv", &["r", "w"], 1000);
    g.node("b", "HostB", &["c", "r"], 1000);
    g.outputs(&["b"]);
    let partition = g.run();
    let r = g.values["r"];
    assert!(
        partition
            .segments
            .iter()
            .all(|segment| segment.kind == SegmentKind::Host || !segment.outputs.contains(&r))
    );
    assert!(partition.estimate.total_ns < partition.estimate.maximal_ns);
}

#[test]
fn a_cheap_node_between_two_engines_is_computed_in_both() {
    // y is in the second engine anyway (d reads it); r = Relu(y) is wanted in both engines.
    let mut g = Draft::default();
    g.input("x", 100_000);
    g.constant("w");
    g.node("r", "Relu", &["x"], 100_000);
    g.node("c", "Conv", &["r", "w"], 100);
    g.node("b", "HostB", &["c"], 100);
    g.node("d", "Conv", &["b", "w"], 100_000);
    g.node("e", "Add", &["d", "r"], 100_000);
    g.node("f", "Add", &["e", "x"], 100_000);
    g.outputs(&["f"]);
    assert_eq!(g.show(&g.run()), ["engine_0: r c", "host_0: b", "engine_1: r d e f"]);
}

#[test]
fn small_models_with_host_nodes_run_on_the_host_as_a_whole() {
    let mut g = Draft::default();
    g.input("x", 10);
    g.node("s", "Softmax", &["x"], 10);
    g.node("b", "HostB", &["s"], 10);
    g.outputs(&["b"]);
    let partition = g.run();
    assert_eq!(g.show(&partition), ["host_0: s b"]);
    assert_eq!(partition.estimate.total_ns, partition.estimate.host_ns);
}

#[test]
fn the_model_decides() {
    let mut g = Draft::default();
    g.input("x", 1000);
    g.node("a", "HostA", &["x"], 1000);
    g.node("r", "Reshape", &["a"], 1000);
    g.node("b", "HostB", &["r"], 1000);
    g.outputs(&["b"]);
    let cheap = CostModel::with_changes("[base.host.node_us]\nview = 5000").expect("valid");
    assert_eq!(g.show(&g.run_with(&cheap)), ["host_0: a", "engine_0: r", "host_1: b"]);
}

const OPS: [&str; 9] =
    ["HostA", "HostB", "Conv", "MatMul", "Relu", "Reshape", "Shape", "Softmax", "Transpose"];

#[derive(Clone)]
struct Spec(Vec<(usize, Vec<prop::sample::Index>, u32)>);

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        random(self, &OPS).fmt(f)
    }
}

/// A random graph: operator, inputs among the values before, size as a power of two. Value 0 is an input, 1 a constant.
fn random(spec: &Spec, ops: &[&str]) -> Draft {
    let mut g = Draft::default();
    g.input("v0", 1 << 12);
    g.constant("v1");
    let mut used = HashSet::new();
    for (k, (op, picks, size)) in spec.0.iter().enumerate() {
        let inputs: Vec<String> = match picks.is_empty() {
            true => vec!["v0".to_owned()],
            false => picks.iter().map(|pick| format!("v{}", pick.index(k + 2))).collect(),
        };
        used.extend(inputs.iter().cloned());
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        g.node(&format!("v{}", k + 2), ops[op % ops.len()], &inputs, 1 << (size % 21));
    }
    let unused: Vec<String> =
        (2..spec.0.len() + 2).map(|k| format!("v{k}")).filter(|v| !used.contains(v)).collect();
    g.outputs(&unused.iter().map(String::as_str).collect::<Vec<_>>());
    g
}

fn spec() -> impl Strategy<Value = Spec> {
    let node = (0..OPS.len(), prop::collection::vec(any::<prop::sample::Index>(), 0..3), 0u32..21);
    prop::collection::vec(node, 1..80).prop_map(Spec)
}

/// Every value that a segment reads is made by an earlier one, each node is at home in one segment, and every output of
/// the graph is handed out once.
fn check(g: &Draft, partition: &Partition) {
    let graph = &g.graph;
    let mut maker: HashMap<ValueId, usize> = HashMap::new();
    for (k, segment) in partition.segments.iter().enumerate() {
        let inside: HashSet<ValueId> =
            segment.nodes.iter().flat_map(|&id| graph[id].outputs().iter().flatten().copied()).collect();
        let reads: HashSet<ValueId> = segment
            .nodes
            .iter()
            .flat_map(|&id| graph[id].uses())
            .filter(|v| !inside.contains(v) && graph[*v].constant.is_none())
            .collect();
        assert_eq!(reads, segment.inputs.iter().copied().collect());
        for input in &segment.inputs {
            assert!(graph.inputs().contains(input) || maker.contains_key(input), "made later");
        }
        for &output in &segment.outputs {
            assert!(maker.insert(output, k).is_none(), "handed out twice");
            assert!(inside.contains(&output));
        }
        for &id in &segment.nodes {
            assert!(segment.kind == SegmentKind::Host || !graph[id].op.op_type.starts_with("Host"));
        }
    }
    for output in graph.outputs() {
        assert!(maker.contains_key(output), "an output of the graph is not handed out");
    }
    assert_eq!(partition.placement.len(), graph.node_count());
    for (id, placement) in &partition.placement {
        assert!(partition.segments[placement.segment()].nodes.contains(id));
        if let Placement::Host(_, refusal) = placement {
            let own = graph[*id].op.op_type.starts_with("Host");
            assert_eq!(refusal.code, if own { Code::NO_CONVERTER } else { Code::COST });
        }
    }
}

/// Constants without sizes, so that a partition's cost can be counted on fingers: 25 us an engine, 12 a host segment, 8 a
/// copy, 1 a handover, 1 a node in an engine and 3 on the host (contractions: 100), nothing for what constants decide.
fn plain() -> CostModel {
    let times = |contraction: u32, other: u32| {
        ["window", "elementwise", "movement", "view", "shape", "other"]
            .iter()
            .fold(format!("contraction = {contraction}\n"), |text, class| {
                text + &format!("{class} = {other}\n")
            })
    };
    let rates = "gflop_s = 1e15\nmemory_gb_s = 1e15\n";
    let text = format!(
        "[base]\nengine_launch_us = 25\nhost_run_us = 12\ncopy_us = 8\nto_device_gb_s = 1e15\nto_host_gb_s = 1e15\n\
         handover_us = 1\n[base.device]\n{rates}[base.device.node_us]\n{}[base.host]\n{rates}[base.host.node_us]\n{}\
         [rtx.sm86.device]\n{rates}",
        times(1, 1),
        times(100, 3)
    );
    CostModel::with_changes(&text).expect("valid")
}

/// The cost of a partition under [`plain`], in microseconds, counted from its segments.
fn count(g: &Draft, partition: &Partition) -> u64 {
    let graph = &g.graph;
    let mut constant: HashSet<NodeId> = HashSet::new();
    for id in graph.topo_order().expect("acyclic") {
        let known = |v: ValueId| {
            graph[v].producer().map_or(graph[v].constant.is_some(), |(m, _)| constant.contains(&m))
        };
        if graph[id].uses().all(known) {
            constant.insert(id);
        }
    }
    let node = |id: NodeId, kind: SegmentKind| match (kind, &*graph[id].op.op_type) {
        _ if constant.contains(&id) => 0,
        (SegmentKind::Engine, _) => 1,
        (SegmentKind::Host, "Conv" | "MatMul") => 100,
        (SegmentKind::Host | SegmentKind::Schedule, _) => 3,
    };
    let mut cost = 0;
    let mut home: HashMap<ValueId, SegmentKind> =
        graph.inputs().iter().map(|&v| (v, SegmentKind::Host)).collect();
    for segment in &partition.segments {
        home.extend(segment.outputs.iter().map(|&v| (v, segment.kind)));
        cost += if segment.kind == SegmentKind::Engine { 25 } else { 12 };
        cost += segment.nodes.iter().map(|&id| node(id, segment.kind)).sum::<u64>();
    }
    let mut ways: HashSet<(ValueId, SegmentKind)> = HashSet::new();
    for segment in &partition.segments {
        ways.extend(segment.inputs.iter().map(|&v| (v, segment.kind)));
    }
    ways.extend(graph.outputs().iter().map(|&v| (v, SegmentKind::Host)));
    for (value, to) in ways {
        cost += match (home[&value], to) {
            (SegmentKind::Host, SegmentKind::Host) => 0,
            (SegmentKind::Engine, SegmentKind::Engine) => 1,
            _ => 8,
        };
    }
    cost
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for id in self.graph.node_ids() {
            let node = &self.graph[id];
            let inputs: Vec<_> = node.uses().map(|v| self.graph[v].name.to_string()).collect();
            writeln!(f, "{} = {}({})", node.name, node.op, inputs.join(", "))?;
        }
        Ok(())
    }
}

static DEFAULT: LazyLock<CostModel> = LazyLock::new(CostModel::default);
static PLAIN: LazyLock<CostModel> = LazyLock::new(plain);

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_dearer_than_maximal_clusters_or_the_host_alone(spec in spec()) {
        let g = random(&spec, &OPS);
        for model in [&*DEFAULT, &*PLAIN] {
            let partition = g.run_with(model);
            check(&g, &partition);
            let estimate = partition.estimate;
            prop_assert!(estimate.total_ns <= estimate.maximal_ns);
            let any_host = g.graph.node_ids().any(|id| g.graph[id].op.op_type.starts_with("Host"));
            prop_assert!(!any_host || estimate.total_ns <= estimate.host_ns);
            // Again: the same.
            prop_assert_eq!(g.show(&g.run_with(model)), g.show(&partition));
        }
    }

    #[test]
    fn the_estimate_is_what_the_segments_cost(spec in spec()) {
        let g = random(&spec, &OPS);
        let partition = g.run_with(&PLAIN);
        prop_assert_eq!(partition.estimate.total_ns, count(&g, &partition) * 1000, "{:?}{:#?}", g, g.show(&partition));
    }

    #[test]
    fn graphs_without_host_nodes_are_one_engine(spec in spec()) {
        let g = random(&spec, &OPS[2..]);
        let partition = g.run_with(&DEFAULT);
        prop_assert_eq!(partition.segments.len(), 1);
        prop_assert_eq!(partition.segments[0].kind, SegmentKind::Engine);
    }
}

/// `x -> a -> Host -> b`, all of one dtype.
fn casts_of(dtype: DType) -> usize {
    let mut graph = Graph::new("g");
    let mut last = graph.add_input("x", Type::tensor(dtype, vec![Dim::Known(4)]));
    for (name, op) in [("a", "Conv"), ("h", "Host"), ("b", "Conv")] {
        let output = graph.add_value(name, Type::tensor(dtype, vec![Dim::Known(4)]));
        graph.add_node(Node::new(name, OpKey::new("", op), 1, Attrs::new(), [Some(last)], [Some(output)]));
        last = output;
    }
    graph.add_output(last);
    let (symbols, target) = (Symbols::default(), Target::default_target());
    let model = CostModel::maximal_clusters();
    let partition =
        partition_with(&graph, &symbols, &target, &Names, &Forced::new(), &model).expect("acyclic");
    target_report(&graph, &symbols, &target, &partition, &Names, &[]).totals.boundary_casts
}

#[test]
fn casts_at_boundaries_are_counted() {
    assert_eq!(casts_of(DType::F32), 0);
    // An engine carries u8 as i32: in and out of each engine.
    assert_eq!(casts_of(DType::U8), 4);
    assert_eq!(casts_of(DType::U32), 4);
    // The host computes bf16 in f32: what comes from the first engine and goes to the second.
    assert_eq!(casts_of(DType::Bf16), 2);
}

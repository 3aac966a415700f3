//! Segments split: by long runs, and as the caller wants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use trtc_bundle::{DType, Target};
use trtc_ir::{
    Attrs, Code, Dim, Graph, Node, NodeId, NodeView, OpKey, Oracle, Refusal, Symbols, Type, ValueId,
    oracle::SegmentRefusal,
};
use trtc_partitioner::{
    Forced, Partition, Placement, Segment, SegmentKind, boundary, partition, split_long_runs, split_segments,
};

/// Refuses operators whose name starts with `Host`, and segments of fewer nodes than it says.
struct Names(usize);

impl Oracle for Names {
    fn admit(&self, node: NodeView<'_>, _: &Target) -> Result<(), Refusal> {
        match node.op().starts_with("Host") {
            true => Err(Refusal::new(Code::NO_CONVERTER, "by name")),
            false => Ok(()),
        }
    }

    fn check_segment(
        &self,
        _: &Graph,
        _: &Symbols,
        nodes: &[NodeId],
        _: &[ValueId],
        _: &[ValueId],
        _: &Target,
    ) -> Result<(), SegmentRefusal> {
        match nodes.len() < self.0 {
            true => Err(SegmentRefusal::Node(nodes[0], Refusal::new(Code::BOUNDARY, "too small"))),
            false => Ok(()),
        }
    }
}

/// A graph from `(operator, inputs, elements of the output)`; input k names node k, and a node without inputs reads the
/// graph's.
fn graph(nodes: impl IntoIterator<Item = (String, Vec<usize>, i64)>) -> Graph {
    let tensor = |elements| Type::tensor(DType::F32, vec![Dim::Known(elements)]);
    let mut graph = Graph::new("g");
    let x = graph.add_input("x", tensor(4));
    let mut values: Vec<ValueId> = Vec::new();
    for (k, (op, inputs, elements)) in nodes.into_iter().enumerate() {
        let output = graph.add_value(&format!("v{k}"), tensor(elements));
        let inputs: Vec<Option<ValueId>> = match inputs.is_empty() {
            true => vec![Some(x)],
            false => inputs.iter().map(|&i| Some(values[i])).collect(),
        };
        graph.add_node(Node::new(
            &format!("n{k}"),
            OpKey::new("", &op),
            1,
            Attrs::new(),
            inputs,
            [Some(output)],
        ));
        values.push(output);
    }
    for value in values {
        if graph[value].users().is_empty() {
            graph.add_output(value);
        }
    }
    graph
}

/// A chain; `op` and `elements` say what stands at each place.
fn chain(count: usize, op: impl Fn(usize) -> &'static str, elements: impl Fn(usize) -> i64) -> Graph {
    let before = |k: usize| if k == 0 { Vec::new() } else { vec![k - 1] };
    graph((0..count).map(|k| (op(k).to_owned(), before(k), elements(k))))
}

fn whole(graph: &Graph) -> Partition {
    let (symbols, target) = (Symbols::default(), Target::default_target());
    partition(graph, &symbols, &target, &Names(0), &Forced::new()).expect("acyclic")
}

fn split(graph: &Graph, least: usize) -> Partition {
    let mut partition = whole(graph);
    split_long_runs(graph, &Symbols::default(), &Target::default_target(), &Names(least), &mut partition);
    check(graph, &partition);
    partition
}

fn sizes(partition: &Partition) -> Vec<usize> {
    partition.segments.iter().map(|segment| segment.nodes.len()).collect()
}

/// Every value is there before it is used, each segment says what it needs and makes, and placements lead home.
fn check(graph: &Graph, partition: &Partition) {
    let mut there: HashSet<ValueId> = graph.inputs().iter().copied().collect();
    let mut seen: HashMap<NodeId, usize> = HashMap::new();
    for (k, segment) in partition.segments.iter().enumerate() {
        assert!(segment.inputs.iter().all(|value| there.contains(value)), "{}", segment.id);
        let mut inside: HashSet<ValueId> = segment.inputs.iter().copied().collect();
        for &node in &segment.nodes {
            assert!(graph[node].uses().all(|value| inside.contains(&value)), "{}", graph[node].name);
            inside.extend(graph[node].outputs().iter().flatten());
            seen.insert(node, k);
        }
        assert!(segment.outputs.iter().all(|value| inside.contains(value)));
        there.extend(&segment.outputs);
    }
    assert!(graph.outputs().iter().all(|value| there.contains(value)));
    assert_eq!(seen.len(), graph.node_count());
    for (node, place) in &partition.placement {
        let k = &place.segment();
        assert!(partition.segments[*k].nodes.contains(node));
        let kind =
            if matches!(place, Placement::Engine(_)) { SegmentKind::Engine } else { SegmentKind::Host };
        assert_eq!(partition.segments[*k].kind, kind);
    }
    let ids: HashSet<&String> = partition.segments.iter().map(|segment| &segment.id).collect();
    assert_eq!(ids.len(), partition.segments.len());
}

#[test]
fn short_runs_stay_whole() {
    let graph = chain(1000, |_| "Relu", |_| 4);
    assert_eq!(split(&graph, 0), whole(&graph));
    // Matrix products end runs.
    let graph = chain(5000, |k| if k % 100 == 0 { "MatMul" } else { "Relu" }, |_| 4);
    assert_eq!(sizes(&split(&graph, 0)), [5000]);
    // Many short branches are no run.
    let wide = graph_of_branches(50, 100);
    assert_eq!(split(&wide, 0).segments.len(), 1);
}

/// Branches of equal length from one input, joined by one node.
fn graph_of_branches(count: usize, length: usize) -> Graph {
    let last: Vec<usize> = (0..count).map(|b| b * length + length - 1).collect();
    let one =
        |k: usize| ("Relu".to_owned(), if k.is_multiple_of(length) { Vec::new() } else { vec![k - 1] }, 4);
    graph((0..count * length).map(one).chain([("Sum".to_owned(), last, 4)]))
}

#[test]
fn long_runs_are_split_where_little_crosses() {
    assert_eq!(sizes(&split(&chain(1001, |_| "Relu", |_| 4), 0)), [334, 334, 333]);
    assert_eq!(sizes(&split(&chain(2500, |_| "Relu", |_| 4), 0)), [500; 5]);
    // Every 400th value is smaller than the rest.
    let graph = chain(2800, |_| "Relu", |k| if k % 400 == 399 { 1 } else { 1000 });
    assert_eq!(sizes(&split(&graph, 0)), [400; 7]);
    // Reductions weigh more.
    assert_eq!(sizes(&split(&chain(200, |_| "ReduceMean", |_| 4), 0)), [50; 4]);
}

#[test]
fn a_residual_stream_counts_along_its_longest_path() {
    // 600 blocks of x + relu(matmul(x)): the path over the sums is 600 nodes long, the network three times that.
    let nodes = (0..1800).map(|k| match k % 3 {
        0 => ("MatMul".to_owned(), if k == 0 { vec![] } else { vec![k - 1] }, 4),
        1 => ("Relu".to_owned(), vec![k - 1], 4),
        _ => ("Add".to_owned(), if k == 2 { vec![1] } else { vec![k - 1, k - 3] }, 4),
    });
    assert_eq!(split(&graph(nodes), 0).segments.len(), 1);
}

#[test]
fn parts_that_cannot_stand_alone_are_not_split_off() {
    assert_eq!(sizes(&split(&chain(1001, |_| "Relu", |_| 4), 334)), [1001]);
    assert_eq!(sizes(&split(&chain(1001, |_| "Relu", |_| 4), 333)), [334, 334, 333]);
}

#[test]
fn host_nodes_stay_where_they_are() {
    let graph = chain(3000, |k| if k == 1500 { "HostOnly" } else { "Relu" }, |_| 4);
    let partition = split(&graph, 0);
    assert_eq!(sizes(&partition), [500, 500, 500, 1, 500, 500, 499]);
    let ids: Vec<&str> = partition.segments.iter().map(|segment| segment.id.as_str()).collect();
    assert_eq!(ids, ["engine_0", "engine_1", "engine_2", "host_0", "engine_3", "engine_4", "engine_5"]);
}

#[test]
fn twenty_thousand_layers_are_split_at_once() {
    let graph = chain(20_000, |_| "Relu", |_| 4);
    let start = std::time::Instant::now();
    let partition = split(&graph, 0);
    assert_eq!(partition.segments.len(), 40);
    assert!(start.elapsed().as_secs_f64() < 5.0, "{:?}", start.elapsed());
}

#[test]
fn nothing_is_touched_where_nothing_is_split() {
    let graph = chain(10, |_| "Relu", |_| 4);
    let mut partition = whole(&graph);
    let before = partition.clone();
    assert!(!split_segments(&graph, &Symbols::default(), &mut partition, &|_, s| Some(vec![
        s.nodes.clone()
    ])));
    assert_eq!(partition, before);
}

#[test]
fn copies_go_with_each_part_that_needs_them() {
    // n1 stands in engine_0 and, for n3 and n4, again in the host segment.
    let graph = graph([
        ("Relu".to_owned(), vec![], 4),
        ("Relu".to_owned(), vec![0], 4),
        ("Relu".to_owned(), vec![1], 4),
        ("HostA".to_owned(), vec![1], 4),
        ("HostB".to_owned(), vec![3, 1], 4),
    ]);
    let ids: Vec<NodeId> = graph.topo_order().expect("acyclic");
    let output = |k: usize| graph[ids[k]].outputs()[0].expect("an output");
    let host = 1;
    let segment = |kind, nodes: &[NodeId], outputs: Vec<ValueId>| Segment {
        id: format!("{kind:?}"),
        kind,
        nodes: nodes.to_vec(),
        inputs: boundary(&graph, nodes).0,
        outputs,
        bytes_in: None,
        bytes_out: None,
        bodies: Vec::new(),
    };
    let mut partition = Partition {
        segments: vec![
            segment(SegmentKind::Engine, &ids[..3], vec![output(0), output(2)]),
            segment(SegmentKind::Host, &[ids[1], ids[3], ids[4]], vec![output(4)]),
        ],
        ..Partition::default()
    };
    for (k, &id) in ids.iter().enumerate() {
        let place = match k < 3 {
            true => Placement::Engine(0),
            false => Placement::Host(1, Refusal::new(Code::NO_CONVERTER, "by name")),
        };
        partition.placement.insert(id, place);
    }
    check(&graph, &partition);
    let split = split_segments(&graph, &Symbols::default(), &mut partition, &|k, segment| {
        (k == host).then(|| vec![segment.nodes[..2].to_vec(), segment.nodes[2..].to_vec()])
    });
    assert!(split);
    check(&graph, &partition);
    let hosts: Vec<&[NodeId]> = partition
        .segments
        .iter()
        .filter(|segment| segment.kind == SegmentKind::Host)
        .map(|segment| segment.nodes.as_slice())
        .collect();
    assert_eq!(hosts, [&[ids[1], ids[3]][..], &[ids[1], ids[4]][..]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is cut wherever, the schedule stays one.
    #[test]
    fn random_cuts_keep_the_schedule(
        nodes in prop::collection::vec((0..4u8, prop::collection::vec(0..1000usize, 0..3)), 1..60),
        every in 1..7usize,
    ) {
        let graph = graph(nodes.into_iter().enumerate().map(|(k, (op, inputs))| {
            let inputs = if k == 0 { Vec::new() } else { inputs.into_iter().map(|i| i % k).collect() };
            (if op == 0 { "Host" } else { "Relu" }.to_owned(), inputs, 4)
        }));
        let mut partition = whole(&graph);
        check(&graph, &partition);
        split_segments(&graph, &Symbols::default(), &mut partition, &|_, segment| {
            Some(segment.nodes.chunks(every).map(<[NodeId]>::to_vec).collect())
        });
        check(&graph, &partition);
        prop_assert!(partition.segments.iter().all(|segment| segment.nodes.len() <= every));
    }
}

//! Partitioning is near linear: long chains, and unsupported nodes scattered over large graphs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::time::{Duration, Instant};
use trtc_bundle::{DType, Target};
use trtc_ir::{Attrs, Code, Dim, Graph, Node, NodeView, OpKey, Oracle, Refusal, Symbols, Type};
use trtc_partitioner::{Forced, Partition, partition};

/// Unoptimised code is given a smaller graph, not more time.
const NODES: usize = if cfg!(debug_assertions) { 10_000 } else { 80_000 };

struct Names;

impl Oracle for Names {
    fn admit(&self, node: NodeView<'_>, _: &Target) -> Result<(), Refusal> {
        match node.op() {
            "Host" => Err(Refusal::new(Code::NO_CONVERTER, "by name")),
            _ => Ok(()),
        }
    }
}

/// A small deterministic generator: the graphs are the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// `count` nodes, each of which reads one or two of the `reach` values before it; `host` in a hundred are unsupported.
fn graph(count: usize, reach: u64, host: u64) -> Graph {
    let ops = ["Conv", "Relu", "Add", "Reshape", "Transpose", "Softmax", "Shape", "MatMul"];
    let mut numbers = Numbers(1);
    let mut graph = Graph::new("g");
    let mut values = vec![graph.add_input("x", Type::tensor(DType::F32, vec![Dim::Known(1000)]))];
    for k in 0..count {
        let dims = vec![Dim::Known(1 << numbers.below(16))];
        let output = graph.add_value(&format!("v{k}"), Type::tensor(DType::F32, dims));
        let op = match numbers.below(100) < host {
            true => "Host",
            false => ops[numbers.below(8) as usize],
        };
        let inputs: Vec<_> = (0..=numbers.below(2).min(reach - 1))
            .map(|_| Some(values[values.len() - 1 - numbers.below(reach.min(values.len() as u64)) as usize]))
            .collect();
        graph.add_node(Node::new(
            &format!("n{k}"),
            OpKey::new("", op),
            1,
            Attrs::new(),
            inputs,
            [Some(output)],
        ));
        values.push(output);
    }
    let unused: Vec<_> = values.into_iter().filter(|&v| graph[v].users().is_empty()).collect();
    unused.into_iter().for_each(|value| graph.add_output(value));
    graph
}

fn timed(graph: &Graph) -> (Partition, Duration) {
    let start = Instant::now();
    let target = Target::default_target();
    let partition = partition(graph, &Symbols::default(), &target, &Names, &Forced::new()).expect("acyclic");
    (partition, start.elapsed())
}

#[test]
fn a_large_graph_with_a_tenth_unsupported() {
    for reach in [4, 50, 5000, NODES as u64] {
        let (partition, took) = timed(&graph(NODES, reach, 10));
        let estimate = partition.estimate;
        println!("reach {reach}: {} segments, {took:?}, {estimate:?}", partition.segments.len());
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(estimate.total_ns <= estimate.maximal_ns.min(estimate.host_ns));
    }
}

#[test]
fn a_chain_is_one_engine_in_linear_time() {
    let times = [NODES / 16, NODES / 4, NODES].map(|count| {
        let (partition, took) = timed(&graph(count, 1, 0));
        assert_eq!(partition.segments.len(), 1);
        took
    });
    println!("{times:?}");
    assert!(times[2] < Duration::from_secs(1), "{times:?}");
}

#[test]
fn a_chain_with_a_tenth_unsupported() {
    let (partition, took) = timed(&graph(NODES, 1, 10));
    println!("{} segments, {took:?}", partition.segments.len());
    assert!(took < Duration::from_secs(5), "{took:?}");
}

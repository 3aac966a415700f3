//! Random edits: users, producers and edges agree after each.

use super::{Graph, Node, NodeId, OpKey, ValueId};
use crate::{Attr, Attrs, Module, Tensor, Type, verify};
use proptest::prelude::*;

/// Two inputs, a constant, and `n` nodes that read what stands before them; every third captures into a body.
fn graph(n: usize, picks: &[usize]) -> Graph {
    let mut graph = Graph::new("g");
    let mut values = vec![graph.add_input("a", Type::Unknown), graph.add_input("b", Type::Unknown)];
    values.push(graph.add_constant("c", Tensor::scalar_i64(1)));
    for k in 0..n {
        let at = |j: usize| values[picks[(3 * k + j) % picks.len()] % values.len()];
        let mut attrs = Attrs::new();
        if k % 3 == 2 {
            let mut body = Graph::new("body");
            for j in 0..3 {
                let inner = body.add_capture(at(j), &format!("i{j}"), Type::Unknown);
                body.add_output(inner);
            }
            attrs.set("body", Attr::Graph(Box::new(body)));
        }
        let outputs: Vec<_> =
            (0..2).map(|j| Some(graph.add_value(&format!("v{k}_{j}"), Type::Unknown))).collect();
        let key = OpKey::new("", "Op");
        graph.add_node(Node::new(
            &format!("n{k}"),
            key,
            1,
            attrs,
            [Some(at(0)), None, Some(at(1))],
            outputs.clone(),
        ));
        values.extend(outputs.into_iter().flatten());
    }
    graph.add_output(values[values.len() - 1]);
    graph
}

/// What the verifier says of the bookkeeping; that a use has lost its producer is the edit's own doing.
fn faults(graph: &Graph) -> Vec<String> {
    let module = Module { graph: graph.clone(), ..Module::default() };
    let all = verify(&module).into_iter().map(|diag| diag.to_string());
    all.filter(|why| !why.contains("nothing makes") && !why.contains("a cycle")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn edits_keep_the_books(
        n in 1usize..9,
        picks in prop::collection::vec(0usize..50, 30),
        edits in prop::collection::vec((0u8..8, 0usize..50, 0usize..50), 1..12),
    ) {
        let mut graph = graph(n, &picks);
        prop_assert_eq!(faults(&graph), Vec::<String>::new());
        for (kind, a, b) in edits {
            let nodes: Vec<NodeId> = graph.node_ids().collect();
            let values: Vec<ValueId> = graph.value_ids().collect();
            let (x, y) = (values[a % values.len()], values[b % values.len()]);
            match (kind, nodes.get(a % nodes.len().max(1)).copied()) {
                (0, _) => graph.replace_uses(x, y),
                (1, Some(id)) => graph.set_input(id, b % 4, (a % 2 == 0).then_some(y)),
                (2, Some(id)) => graph.remove_node(id),
                (3, Some(id)) => graph.remove_nodes(&[id, nodes[b % nodes.len()]]),
                (4, Some(id)) if graph[y].constant.is_none() && !graph.inputs().contains(&y) => {
                    graph.set_output(id, b % 3, y);
                }
                (5, _) => graph.drop_output(y),
                (6, _) if !graph.inputs().contains(&y) => graph.set_constant(y, Tensor::scalar_i64(3)),
                (7, Some(id)) => graph.set_inputs_of(id, [Some(x), Some(y), None]),
                _ => {}
            }
            prop_assert_eq!(faults(&graph), Vec::<String>::new());
        }
    }
}

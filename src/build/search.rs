//! Delta debugging: the smallest sets of nodes whose network still fails.
//!
//! A contiguous part of a topological order is convex, so each part that is tried is a network that a partition could
//! ask for. Halving finds nodes that fail on their own with O(culprits · log nodes) builds, most of them small; only when
//! neither half fails is the failing part narrowed from both ends.

use trtc_ir::NodeId;

/// What a trial build says.
#[derive(Debug)]
pub(crate) enum Verdict<F> {
    /// The builder makes an engine of it.
    Builds,
    /// It fails as the whole does.
    Fails(F),
    /// It says nothing: the part cannot stand alone, or fails otherwise.
    Unresolved,
}

/// Trial builds.
pub(crate) trait Trials {
    /// How a network failed.
    type Failure;

    /// Builds the network of some nodes, in topological order.
    fn build(&mut self, nodes: &[NodeId]) -> Verdict<Self::Failure>;

    /// Whether the time for trials is used up.
    fn spent(&self) -> bool;

    /// Those of `nodes` that lie on a path from the first to the last, with both.
    fn between(&self, nodes: &[NodeId]) -> Vec<NodeId>;
}

/// What has to be done about a failure.
#[derive(Debug, PartialEq)]
pub(crate) enum Finding<F> {
    /// These nodes together make a network fail.
    Nodes(Vec<NodeId>, F),
    /// The network is too much at once: it has to end before this node, and another one begins there.
    Cut(NodeId, F),
}

/// A failing set of more nodes than this, and of more than a quarter of the network, is cut in two.
const LARGE_SET: usize = 8;
/// In sets up to this size, each node is tried without.
const SMALL_SET: usize = 16;

/// Finds out which of `nodes` (in topological order) make their network fail. `hints` are nodes that the builder's
/// words name. With `by_size` it is the size of the network that is to blame when both halves build.
pub(crate) fn search<T: Trials>(
    nodes: &[NodeId],
    failure: T::Failure,
    hints: &[NodeId],
    by_size: bool,
    trials: &mut T,
) -> Vec<Finding<T::Failure>> {
    let mut search = Search { total: nodes.len(), by_size, trials, found: Vec::new() };
    if nodes.len() > 1 {
        for &hint in hints.iter().filter(|hint| nodes.contains(hint)) {
            if search.trials.spent() {
                break;
            }
            if let Verdict::Fails(failure) = search.trials.build(&[hint]) {
                search.found.push(Finding::Nodes(vec![hint], failure));
            }
        }
    }
    if search.found.is_empty() {
        search.halve(nodes, failure);
    }
    search.found
}

struct Search<'a, T: Trials> {
    total: usize,
    by_size: bool,
    trials: &'a mut T,
    found: Vec<Finding<T::Failure>>,
}

impl<T: Trials> Search<'_, T> {
    /// `nodes` fail with `failure`.
    fn halve(&mut self, nodes: &[NodeId], failure: T::Failure) {
        if nodes.len() < 2 || self.trials.spent() {
            self.found.push(Finding::Nodes(nodes.to_vec(), failure));
            return;
        }
        let (first, second) = nodes.split_at(nodes.len() / 2);
        let verdicts = (self.trials.build(first), self.trials.build(second));
        match verdicts {
            (Verdict::Fails(a), Verdict::Fails(b)) => {
                self.halve(first, a);
                self.halve(second, b);
            }
            (Verdict::Fails(a), _) => self.halve(first, a),
            (_, Verdict::Fails(b)) => self.halve(second, b),
            (Verdict::Builds, Verdict::Builds) if self.by_size => {
                self.found.push(Finding::Cut(second[0], failure));
            }
            _ => self.narrow(nodes, failure),
        }
    }

    /// `nodes` fail with `failure`, and neither half does.
    fn narrow(&mut self, nodes: &[NodeId], mut failure: T::Failure) {
        let middle = nodes.len() / 2;
        // nodes[..low] do not fail, nodes[..end] do.
        let (mut low, mut end) = (middle, nodes.len());
        while end - low > 1 && !self.trials.spent() {
            let at = low.midpoint(end);
            match self.trials.build(&nodes[..at]) {
                Verdict::Fails(smaller) => (end, failure) = (at, smaller),
                _ => low = at,
            }
        }
        // nodes[start..end] fail, nodes[high..end] do not.
        let (mut start, mut high) = (0, middle);
        while high - start > 1 && !self.trials.spent() {
            let at = start.midpoint(high);
            match self.trials.build(&nodes[at..end]) {
                Verdict::Fails(smaller) => (start, failure) = (at, smaller),
                _ => high = at,
            }
        }
        let mut set = nodes[start..end].to_vec();
        let between = self.trials.between(&set);
        if between.len() < set.len()
            && !self.trials.spent()
            && let Verdict::Fails(smaller) = self.trials.build(&between)
        {
            (set, failure) = (between, smaller);
        }
        let mut at = 0;
        while set.len() <= SMALL_SET && set.len() > 1 && at < set.len() && !self.trials.spent() {
            let mut without = set.clone();
            without.remove(at);
            match self.trials.build(&without) {
                Verdict::Fails(smaller) => (set, failure) = (without, smaller),
                _ => at += 1,
            }
        }
        if set.len() > LARGE_SET.max(self.total / 4) {
            self.found.push(Finding::Cut(set[set.len() / 2], failure));
        } else {
            self.found.push(Finding::Nodes(set, failure));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Finding, Trials, Verdict, search};
    use std::collections::HashSet;
    use trtc_bundle::DType;
    use trtc_ir::{Attrs, Dim, Graph, Node, NodeId, OpKey, Type};

    /// Ids of `n` nodes.
    fn nodes(n: usize) -> Vec<NodeId> {
        let mut graph = Graph::new("g");
        let mut add = |k: usize| {
            let value = graph.add_value(&format!("v{k}"), Type::tensor(DType::F32, vec![Dim::Known(1)]));
            graph.add_node(Node::new(
                &format!("n{k}"),
                OpKey::new("", "A"),
                1,
                Attrs::new(),
                [],
                [Some(value)],
            ))
        };
        (0..n).map(&mut add).collect()
    }

    /// A builder that fails on a network which holds all nodes of one of `bad`, or more than `most` nodes.
    struct Fake {
        bad: Vec<Vec<NodeId>>,
        most: usize,
        built: Vec<usize>,
        budget: usize,
        path: Vec<NodeId>,
    }

    impl Trials for Fake {
        type Failure = usize;

        fn build(&mut self, nodes: &[NodeId]) -> Verdict<usize> {
            self.built.push(nodes.len());
            let held: HashSet<&NodeId> = nodes.iter().collect();
            let fails = self.bad.iter().any(|bad| bad.iter().all(|node| held.contains(node)));
            if fails || nodes.len() > self.most { Verdict::Fails(nodes.len()) } else { Verdict::Builds }
        }

        fn spent(&self) -> bool {
            self.built.len() >= self.budget
        }

        fn between(&self, nodes: &[NodeId]) -> Vec<NodeId> {
            nodes.iter().copied().filter(|node| self.path.contains(node)).collect()
        }
    }

    fn fake(bad: &[&[NodeId]]) -> Fake {
        let bad: Vec<Vec<NodeId>> = bad.iter().map(|set| set.to_vec()).collect();
        let path = bad.concat();
        Fake { bad, most: usize::MAX, built: Vec::new(), budget: usize::MAX, path }
    }

    fn sets(found: &[Finding<usize>]) -> Vec<Vec<NodeId>> {
        found
            .iter()
            .map(|finding| match finding {
                Finding::Nodes(nodes, _) => nodes.clone(),
                Finding::Cut(..) => panic!("{finding:?}"),
            })
            .collect()
    }

    #[test]
    fn one_node_is_found_in_logarithmic_time() {
        let nodes = nodes(1000);
        for at in [0, 1, 333, 500, 999] {
            let mut builder = fake(&[&nodes[at..=at]]);
            let found = search(&nodes, 0, &[], false, &mut builder);
            assert_eq!(sets(&found), [[nodes[at]]]);
            assert!(builder.built.len() <= 20, "{}", builder.built.len());
            // What is built is no more than twice the network.
            assert!(builder.built.iter().sum::<usize>() <= 2000);
        }
    }

    #[test]
    fn several_nodes_are_found_at_once() {
        let nodes = nodes(100);
        let found = search(&nodes, 0, &[], false, &mut fake(&[&nodes[3..4], &nodes[4..5], &nodes[90..91]]));
        assert_eq!(sets(&found), [[nodes[3]], [nodes[4]], [nodes[90]]]);
    }

    #[test]
    fn a_hint_costs_one_build_and_a_wrong_one_does_no_harm() {
        let nodes = nodes(100);
        let mut builder = fake(&[&nodes[42..43]]);
        assert_eq!(sets(&search(&nodes, 0, &[nodes[42]], false, &mut builder)), [[nodes[42]]]);
        assert_eq!(builder.built, [1]);
        let mut builder = fake(&[&nodes[42..43]]);
        assert_eq!(sets(&search(&nodes, 0, &[nodes[7]], false, &mut builder)), [[nodes[42]]]);
    }

    #[test]
    fn nodes_that_fail_together_are_found_together() {
        let nodes = nodes(64);
        for (a, b) in [(0, 63), (10, 50), (31, 32), (5, 33)] {
            let mut builder = fake(&[&[nodes[a], nodes[b]]]);
            assert_eq!(sets(&search(&nodes, 0, &[], false, &mut builder)), [[nodes[a], nodes[b]]]);
        }
        // And when the path between them is of no help.
        let mut builder = fake(&[&[nodes[28], nodes[30], nodes[36]]]);
        builder.path = nodes.clone();
        assert_eq!(sets(&search(&nodes, 0, &[], false, &mut builder)), [[nodes[28], nodes[30], nodes[36]]]);
    }

    #[test]
    fn too_much_at_once_is_cut() {
        let nodes = nodes(64);
        let mut builder = fake(&[]);
        builder.most = 40;
        let found = search(&nodes, 0, &[], true, &mut builder);
        assert_eq!(found, [Finding::Cut(nodes[32], 0)]);
        assert_eq!(builder.built, [32, 32]);
        // A refusal for size, which does not say so.
        builder.path = nodes.clone();
        let found = search(&nodes, 0, &[], false, &mut builder);
        assert!(matches!(found[..], [Finding::Cut(..)]), "{found:?}");
    }

    #[test]
    fn when_time_is_up_all_that_may_be_to_blame_is_named() {
        let nodes = nodes(64);
        let mut builder = fake(&[&nodes[9..10]]);
        builder.budget = 4;
        assert_eq!(sets(&search(&nodes, 0, &[], false, &mut builder)), [nodes[..16].to_vec()]);
        builder.budget = 0;
        assert_eq!(sets(&search(&nodes, 0, &[], false, &mut builder)), std::slice::from_ref(&nodes));
    }
}

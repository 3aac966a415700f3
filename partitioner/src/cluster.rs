//! Acyclic clustering by levels.
//!
//! Each node gets a level: the largest number of changes between host and engine on any path that ends in it. Nodes of
//! one kind on one level are one segment. An edge never goes to a lower level, and between nodes of different kinds it
//! goes to a higher one, so the segments form a chain: no cycle can arise, each is convex, and there are no more
//! segments than the longest alternation in the graph demands. O(nodes + edges).

use trtc_ir::{Graph, NodeId};

/// Level of each node (by [`NodeId::index`]) given whether it may go into an engine. Even levels hold engine nodes,
/// odd ones host nodes.
pub(crate) fn levels(graph: &Graph, order: &[NodeId], engine: &[bool]) -> Vec<u32> {
    let mut levels = vec![0u32; graph.node_bound()];
    for &id in order {
        let mine = engine[id.index()];
        let mut level = u32::from(!mine);
        for pred in graph.predecessors(id) {
            let (kind, at) = (engine[pred.index()], levels[pred.index()]);
            level = level.max(if kind == mine { at } else { at + 1 });
        }
        levels[id.index()] = level;
    }
    levels
}

/// Moves nodes to a later level of their kind when fewer bytes cross then: a node whose results are first needed on a
/// later level stands there, unless what it reads from its own level is larger than what it makes.
pub(crate) fn sink(
    graph: &Graph,
    order: &[NodeId],
    engine: &[bool],
    levels: &mut [u32],
    bytes: &dyn Fn(trtc_ir::ValueId) -> u64,
) {
    let is_output: std::collections::HashSet<_> = graph.outputs().iter().copied().collect();
    for &id in order.iter().rev() {
        let node = &graph[id];
        if node.outputs().iter().flatten().any(|output| is_output.contains(output)) {
            continue;
        }
        let (mine, at) = (engine[id.index()], levels[id.index()]);
        // The latest level that all users allow: theirs when of the same kind, one below otherwise.
        let latest = graph
            .successors(id)
            .map(|next| {
                let level = levels[next.index()];
                if engine[next.index()] == mine { level } else { level.saturating_sub(1) }
            })
            .min();
        let Some(latest) = latest.filter(|&latest| latest > at) else { continue };
        let made: u64 = node.outputs().iter().flatten().map(|&value| bytes(value)).sum();
        // Values from earlier levels cross anyway; values from this level would cross anew, unless all who read them
        // move as well (users are visited first, so their levels are settled).
        let read: u64 = node
            .uses()
            .filter(|&value| {
                graph[value].producer().is_some_and(|(maker, _)| {
                    engine[maker.index()] == mine
                        && levels[maker.index()] == at
                        && !graph[value].users().iter().any(|user| *user != id && levels[user.index()] > at)
                })
            })
            .map(bytes)
            .sum();
        if read <= made {
            levels[id.index()] = latest;
        }
    }
}

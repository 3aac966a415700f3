//! Orders over the graph.

use super::{Graph, NodeId};
use petgraph::Direction;
use std::{cmp::Reverse, collections::BinaryHeap};

impl Graph {
    /// Nodes so that every value is made before it is used; among those that are free, insertion order decides.
    ///
    /// # Errors
    /// The nodes of a cycle, when there is one. O((nodes + edges) · log nodes).
    pub fn topo_order(&self) -> Result<Vec<NodeId>, Vec<NodeId>> {
        let mut waiting = vec![0u32; self.node_bound()];
        let mut ready = BinaryHeap::new();
        for id in self.node_ids() {
            let n = self.inner.edges_directed(id.0, Direction::Incoming).count() as u32;
            waiting[id.index()] = n;
            if n == 0 {
                ready.push(Reverse(id));
            }
        }
        let mut order = Vec::with_capacity(self.node_count());
        while let Some(Reverse(id)) = ready.pop() {
            order.push(id);
            for next in self.successors(id) {
                waiting[next.index()] -= 1;
                if waiting[next.index()] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        if order.len() == self.node_count() { Ok(order) } else { Err(self.find_cycle(&waiting)) }
    }

    /// Walks backwards among the nodes that never became free until one repeats.
    fn find_cycle(&self, waiting: &[u32]) -> Vec<NodeId> {
        let stuck = |id: &NodeId| waiting[id.index()] > 0;
        let Some(mut at) = self.node_ids().find(stuck) else { return Vec::new() };
        let mut path: Vec<NodeId> = Vec::new();
        let mut place = vec![usize::MAX; self.node_bound()];
        while place[at.index()] == usize::MAX {
            place[at.index()] = path.len();
            path.push(at);
            match self.predecessors(at).find(stuck) {
                Some(next) => at = next,
                None => return path,
            }
        }
        let mut cycle = path.split_off(place[at.index()]);
        cycle.reverse();
        cycle
    }
}

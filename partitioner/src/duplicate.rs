//! Nodes that are computed twice rather than shipped: cheap ones whose inputs are there already, and those that depend on
//! constants only.
//!
//! A segment that wants such a node's outputs gets a copy of it for its own use; on each side, all segments do or none.
//! A copy reads what the node reads, made earlier, so no cycle can arise.

use crate::{
    choose::Request,
    cost::{DEVICE, Estimator, HOST, OpClass},
    layout::Layout,
    refine::Moved,
};
use smallvec::SmallVec;
use std::collections::HashMap;
use trtc_ir::{Graph, NodeId, ValueId};

/// A node whose outputs have more users than this is left alone.
const USERS: usize = 64;
/// Most copies of a node that does not depend on constants only.
const COPIES: usize = 4;

struct Duplicate<'a> {
    graph: &'a Graph,
    estimator: &'a Estimator,
    layout: &'a mut Layout,
    /// Whether a value is on the device, on the host already, by value.
    present: Vec<[bool; 2]>,
}

/// Copies nodes while the estimate falls, users first. O(nodes + edges).
pub(crate) fn duplicate(
    request: &Request<'_>,
    estimator: &Estimator,
    layout: &mut Layout,
    moved: &mut HashMap<NodeId, Moved>,
) {
    let Request { graph, order, admitted, scheduled, .. } = *request;
    let mut present = vec![[false; 2]; graph.value_count()];
    for &input in graph.inputs() {
        present[input.index()][HOST] = true;
    }
    for &output in graph.outputs() {
        present[output.index()][HOST] = true;
    }
    for &id in order {
        let side = side(layout.at(id));
        graph[id].outputs().iter().flatten().for_each(|value| present[value.index()][side] = true);
        graph[id].uses().for_each(|value| present[value.index()][side] = true);
    }
    let mut state = Duplicate { graph, estimator, layout, present };
    for &id in order.iter().rev() {
        // The schedule computes nothing itself: what it and its bodies read is made by a segment before it.
        if graph.successors(id).any(scheduled) {
            continue;
        }
        state.consider(id, admitted, moved);
    }
    layout.close_gaps(order);
}

fn side(at: u32) -> usize {
    if Layout::is_engine(at) { DEVICE } else { HOST }
}

impl Duplicate<'_> {
    fn consider(
        &mut self,
        id: NodeId,
        admitted: &dyn Fn(NodeId) -> bool,
        moved: &mut HashMap<NodeId, Moved>,
    ) {
        let constant = self.estimator.is_constant(id);
        let cheap = matches!(
            self.estimator.class(id),
            OpClass::Elementwise | OpClass::Movement | OpClass::View | OpClass::Shape
        );
        if !(constant || cheap) || self.graph[id].attrs.graphs().next().is_some() {
            return;
        }
        for to in [HOST, DEVICE] {
            let home = self.layout.at(id);
            let (wanted, stays) = self.wanted(id, to);
            let few = wanted.len() <= if constant { USERS } else { COPIES };
            // Between two host segments nothing is shipped.
            if wanted.is_empty()
                || !few
                || (to == HOST && side(home) == HOST)
                || (to == DEVICE && !admitted(id))
            {
                continue;
            }
            let (saved, added) = self.price(id, to, &wanted, stays);
            if added >= saved {
                continue;
            }
            self.layout.copy(id, &wanted);
            self.graph[id].uses().for_each(|value| self.present[value.index()][to] = true);
            if !stays {
                self.layout.promote_copy(id);
                if side(self.layout.at(id)) == DEVICE {
                    moved.remove(&id);
                } else {
                    moved.insert(id, Moved { before: saved, after: added, nodes: 1 });
                }
            }
        }
    }

    /// Segments of a side that get the node's outputs from its own segment, and whether anyone else does.
    fn wanted(&self, id: NodeId, to: usize) -> (SmallVec<[u32; 4]>, bool) {
        let home = self.layout.at(id);
        let mut wanted: SmallVec<[u32; 4]> = SmallVec::new();
        let mut stays = false;
        for &value in self.graph[id].outputs().iter().flatten() {
            stays |= self.estimator.is_output(value);
            let users = self.graph[value].users();
            if users.len() > USERS {
                return (SmallVec::new(), true);
            }
            for at in users.iter().flat_map(|&user| self.layout.places(user)) {
                if at != home && self.layout.has(id, at) {
                    continue;
                }
                if at == home || side(at) != to {
                    stays = true;
                } else if !wanted.contains(&at) {
                    wanted.push(at);
                }
            }
        }
        wanted.sort_unstable();
        (wanted, stays)
    }

    /// What copies save, and what they cost.
    fn price(&self, id: NodeId, to: usize, wanted: &[u32], stays: bool) -> (u64, u64) {
        let home = self.layout.at(id);
        let here = side(home);
        let work = self.estimator.work(id);
        let ship = |value: ValueId| {
            let crossing = self.estimator.crossing(value);
            match (here, to) {
                (DEVICE, HOST) if self.estimator.is_output(value) => 0,
                (DEVICE, HOST) => crossing.to_host,
                (HOST, DEVICE) => crossing.to_device,
                (DEVICE, _) => crossing.handover,
                _ => 0,
            }
        };
        let is_wanted = |value: ValueId| {
            let mut places = self.graph[value].users().iter().flat_map(|&user| self.layout.places(user));
            places.any(|at| wanted.contains(&at))
        };
        let outputs = self.graph[id].outputs().iter().flatten().copied();
        let mut saved: u64 = outputs.filter(|&value| is_wanted(value)).map(ship).sum();
        if !stays {
            saved += work[here];
        }
        let mut added = work[to] * wanted.len() as u64;
        let mut read: SmallVec<[ValueId; 4]> = self.graph[id].uses().collect();
        read.sort_unstable();
        read.dedup();
        for value in read.into_iter().filter(|&value| self.graph[value].constant.is_none()) {
            let crossing = self.estimator.crossing(value);
            let maker = self.graph[value].producer().map(|(maker, _)| maker);
            if maker.is_some_and(|maker| wanted.iter().all(|&at| self.layout.has(maker, at))) {
                continue;
            }
            let made_on = maker.map_or(HOST, |maker| side(self.layout.at(maker)));
            added += match (made_on, to) {
                (DEVICE, DEVICE) => crossing.handover,
                (HOST, DEVICE) if !self.present[value.index()][DEVICE] => crossing.to_device,
                (DEVICE, HOST) if !self.present[value.index()][HOST] => crossing.to_host,
                _ => 0,
            };
        }
        (saved, added)
    }
}

//! Engines shrink where they are not worth it: sets of nodes of one engine move to a host segment next to it.
//!
//! Only nodes that touch a host node move, so a graph without host nodes stays in its engine. Each move lowers the
//! estimate, which is counted exactly from counters that each value keeps of its users; a move never adds a segment, and
//! goes to a segment next to the engine's, so no cycle can arise.

use crate::{cost::Estimator, layout::Layout};
use std::collections::HashMap;
use trtc_ir::{Graph, NodeId, ValueId};

/// What a node was moved for, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moved {
    /// What went away: work in the engine, copies, launches.
    pub before: u64,
    /// What came: work on the host, copies.
    pub after: u64,
    /// Nodes that moved together.
    pub nodes: usize,
}

/// Longest chain that leaves the edge of an engine at once.
const PEEL: usize = 6;
/// A value with more users than this is not looked through.
const FAN_OUT: usize = 16;

/// Users of a value by where they are.
#[derive(Clone, Copy, Default)]
struct Users {
    host: u32,
    /// In the engine that makes it.
    same: u32,
    /// In other engines.
    other: u32,
}

struct Shrink<'a> {
    graph: &'a Graph,
    estimator: &'a Estimator,
    layout: &'a mut Layout,
    moved: &'a mut HashMap<NodeId, Moved>,
    users: Vec<Users>,
    population: Vec<u32>,
    /// Uses of a value by the set that is looked at.
    uses: Vec<u32>,
    touched: Vec<ValueId>,
    /// The set that is looked at, by stamp.
    stamp: Vec<u32>,
    now: u32,
}

/// Moves sets of engine nodes to the host while the estimate falls; says whether any moved. O(nodes + edges).
pub(crate) fn shrink(
    graph: &Graph,
    order: &[NodeId],
    estimator: &Estimator,
    layout: &mut Layout,
    moved: &mut HashMap<NodeId, Moved>,
) -> bool {
    let before = moved.len();
    let components = components(graph, order, layout);
    let mut users = vec![Users::default(); graph.value_count()];
    let mut population = vec![0u32; layout.bound() as usize + 2];
    for &id in order {
        let at = layout.at(id);
        population[at as usize] += 1;
        for value in graph[id].uses() {
            let home = graph[value].producer().map(|(maker, _)| layout.at(maker));
            let users = &mut users[value.index()];
            match (Layout::is_engine(at), home == Some(at)) {
                (false, _) => users.host += 1,
                (true, true) => users.same += 1,
                (true, false) => users.other += 1,
            }
        }
    }
    let mut state = Shrink {
        graph,
        estimator,
        layout,
        moved,
        users,
        population,
        uses: vec![0; graph.value_count()],
        touched: Vec::new(),
        stamp: vec![0; graph.node_bound()],
        now: 0,
    };
    for engine in &components {
        state.components_of(engine);
    }
    for &id in order {
        state.peel(id, Side::Front);
    }
    for &id in order.iter().rev() {
        state.peel(id, Side::Back);
    }
    layout.close_gaps(order);
    moved.len() > before
}

/// Connected sets of nodes of each engine, engines in order.
fn components(graph: &Graph, order: &[NodeId], layout: &Layout) -> Vec<Vec<Vec<NodeId>>> {
    let mut parent: Vec<u32> = (0..graph.node_bound() as u32).collect();
    fn root(parent: &mut [u32], mut k: u32) -> u32 {
        while parent[k as usize] != k {
            parent[k as usize] = parent[parent[k as usize] as usize];
            k = parent[k as usize];
        }
        k
    }
    for &id in order.iter().filter(|&&id| Layout::is_engine(layout.at(id))) {
        for pred in graph.predecessors(id).filter(|&pred| layout.at(pred) == layout.at(id)) {
            let (a, b) = (root(&mut parent, id.index() as u32), root(&mut parent, pred.index() as u32));
            parent[a.max(b) as usize] = a.min(b);
        }
    }
    let mut engines: Vec<Vec<Vec<NodeId>>> = vec![Vec::new(); layout.bound().div_ceil(2) as usize];
    let mut place: HashMap<u32, usize> = HashMap::new();
    for &id in order.iter().filter(|&&id| Layout::is_engine(layout.at(id))) {
        let sets = &mut engines[layout.at(id) as usize / 2];
        let k = *place.entry(root(&mut parent, id.index() as u32)).or_insert(sets.len());
        if k == sets.len() {
            sets.push(Vec::new());
        }
        sets[k].push(id);
    }
    engines
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    /// Nodes that read nothing from their engine go to the host segment before it.
    Front,
    /// Nodes whose engine reads nothing from them go to the one after it.
    Back,
}

impl Shrink<'_> {
    /// Connected parts of one engine, one by one, then all that is left of it.
    fn components_of(&mut self, sets: &[Vec<NodeId>]) {
        let Some(&first) = sets.first().and_then(|set| set.first()) else { return };
        let engine = self.layout.at(first);
        let Some(host) = self.host_beside(engine) else { return };
        let mut rest: Vec<&Vec<NodeId>> = Vec::new();
        for set in sets {
            if !self.touches_host(set) || !self.take(set, host) {
                rest.push(set);
            }
        }
        if rest.len() > 1 && rest.iter().all(|set| self.touches_host(set)) {
            let all: Vec<NodeId> = rest.into_iter().flatten().copied().collect();
            self.take(&all, host);
        }
    }

    /// The host segment before an engine, or the one after the first.
    fn host_beside(&self, engine: u32) -> Option<u32> {
        let exists = |at: u32| self.population.get(at as usize).is_some_and(|&n| n > 0);
        engine.checked_sub(1).filter(|&at| exists(at)).or(Some(engine + 1).filter(|&at| exists(at)))
    }

    fn touches_host(&self, set: &[NodeId]) -> bool {
        set.iter().any(|&id| {
            let node = &self.graph[id];
            let reads = node.uses().any(|value| {
                self.graph[value]
                    .producer()
                    .is_some_and(|(maker, _)| !Layout::is_engine(self.layout.at(maker)))
            });
            reads || node.outputs().iter().flatten().any(|value| self.users[value.index()].host > 0)
        })
    }

    /// Moves a set when that lowers the estimate.
    fn take(&mut self, set: &[NodeId], to: u32) -> bool {
        let (before, after) = self.change(set);
        if after >= before {
            return false;
        }
        self.apply(set, to);
        self.moved.extend(set.iter().map(|&id| (id, Moved { before, after, nodes: set.len() })));
        true
    }

    /// What would go and what would come if a set of one engine's nodes moved to the host.
    fn change(&mut self, set: &[NodeId]) -> (u64, u64) {
        self.now += 1;
        let (mut before, mut after) = (0, 0);
        let engine = set.first().map_or(0, |&id| self.layout.at(id));
        for &id in set {
            self.stamp[id.index()] = self.now;
            let [device, host] = self.estimator.work(id);
            before += device;
            after += host;
            for value in self.graph[id].uses() {
                if self.uses[value.index()] == 0 {
                    self.touched.push(value);
                }
                self.uses[value.index()] += 1;
            }
        }
        for value in std::mem::take(&mut self.touched) {
            let moving = std::mem::take(&mut self.uses[value.index()]);
            if self.graph[value].constant.is_some() {
                continue;
            }
            let maker = self.graph[value].producer().map(|(maker, _)| maker);
            if maker.is_some_and(|maker| self.stamp[maker.index()] == self.now) {
                // Uses inside the set; the value is looked at as an output below, where it needs them.
                self.uses[value.index()] = moving;
                continue;
            }
            let Users { host, same, other } = self.users[value.index()];
            let crossing = self.estimator.crossing(value);
            let out = self.estimator.is_output(value);
            match maker.map(|maker| self.layout.at(maker)).filter(|&at| Layout::is_engine(at)) {
                // On the host: no longer wanted on the device, perhaps.
                None => before += if same + other == moving { crossing.to_device } else { 0 },
                Some(home) => {
                    after += if host == 0 && !out { crossing.to_host } else { 0 };
                    before += if home != engine && other == moving { crossing.handover } else { 0 };
                }
            }
        }
        for &id in set {
            for &value in self.graph[id].outputs().iter().flatten() {
                let inside = std::mem::take(&mut self.uses[value.index()]);
                let Users { host, same, other } = self.users[value.index()];
                let crossing = self.estimator.crossing(value);
                before += if host > 0 || self.estimator.is_output(value) { crossing.to_host } else { 0 };
                before += if other > 0 { crossing.handover } else { 0 };
                after += if same + other > inside { crossing.to_device } else { 0 };
            }
        }
        if self.population[engine as usize] as usize == set.len() {
            before += self.estimator.launch;
            // The host segments on both sides become one.
            let beside = [engine.checked_sub(1), Some(engine + 1)];
            let is_there = |at: &Option<u32>| {
                at.is_some_and(|at| self.population.get(at as usize).is_some_and(|&n| n > 0))
            };
            before += if beside.iter().all(is_there) { self.estimator.host_run } else { 0 };
        }
        (before, after)
    }

    fn apply(&mut self, set: &[NodeId], to: u32) {
        for &id in set {
            let at = self.layout.at(id);
            for value in self.graph[id].uses() {
                let home = self.graph[value].producer().map(|(maker, _)| maker);
                let users = &mut self.users[value.index()];
                users.host += 1;
                // A maker that has moved already has no `same` users left.
                if home.is_some_and(|maker| self.layout.at(maker) == at) {
                    users.same -= 1;
                } else {
                    users.other -= 1;
                }
            }
            for value in self.graph[id].outputs().iter().flatten() {
                let users = &mut self.users[value.index()];
                users.other += std::mem::take(&mut users.same);
            }
            self.population[at as usize] -= 1;
            self.population[to as usize] += 1;
            self.layout.set(id, to);
        }
    }

    /// A chain of up to [`PEEL`] nodes from the edge of an engine.
    fn peel(&mut self, first: NodeId, side: Side) {
        let engine = self.layout.at(first);
        if !Layout::is_engine(engine) || !self.touches_host(&[first]) {
            return;
        }
        let to = match side {
            Side::Front => engine.checked_sub(1),
            Side::Back => Some(engine + 1),
        };
        let there = |&to: &u32| self.population.get(to as usize).is_some_and(|&n| n > 0);
        let Some(to) = to.filter(there) else { return };
        let mut set = Vec::new();
        let mut best = (0, 0i64);
        let mut next = self.is_edge(first, engine, &set, side).then_some(first);
        while let Some(id) = next {
            set.push(id);
            let (before, after) = self.change(&set);
            let gain = before as i64 - after as i64;
            if gain > best.1 {
                best = (set.len(), gain);
            }
            if set.len() == PEEL {
                break;
            }
            next = self.beyond(id, engine, &set, side);
        }
        set.truncate(best.0);
        if !set.is_empty() {
            self.take(&set, to);
        }
    }

    fn beyond(&self, id: NodeId, engine: u32, set: &[NodeId], side: Side) -> Option<NodeId> {
        let mine = |&id: &NodeId| self.layout.at(id) == engine && !set.contains(&id);
        let ok = |&id: &NodeId| self.is_edge(id, engine, set, side);
        match side {
            Side::Front => self.graph.successors(id).take(FAN_OUT).filter(mine).filter(ok).min(),
            Side::Back => self.graph.predecessors(id).take(FAN_OUT).filter(mine).filter(ok).max(),
        }
    }

    /// Whether nothing of the engine but the set lies on this side of the node.
    fn is_edge(&self, id: NodeId, engine: u32, set: &[NodeId], side: Side) -> bool {
        let outside = |other: NodeId| self.layout.at(other) != engine || set.contains(&other);
        match side {
            Side::Front => self.graph.predecessors(id).all(outside),
            Side::Back => {
                let few = self.graph[id]
                    .outputs()
                    .iter()
                    .flatten()
                    .all(|&v| self.graph[v].users().len() <= FAN_OUT);
                few && self.graph.successors(id).all(outside)
            }
        }
    }
}

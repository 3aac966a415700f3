//! Estimates of nodes, values and whole layouts, in nanoseconds. Integers: sums do not depend on their order.

use super::{
    Constants, OpClass, Side,
    work::{Work, class, work},
};
use crate::{
    layout::Layout,
    partition::{Partition, Placement, SegmentKind},
    sizes::binding_bytes,
};
use smallvec::SmallVec;
use trtc_ir::{Graph, NodeId, Symbols, ValueId};

/// Index of the device in pairs `[device, host]`.
pub(crate) const DEVICE: usize = 0;
/// Index of the host.
pub(crate) const HOST: usize = 1;

/// What everything in one graph costs.
pub(crate) struct Estimator {
    /// Starting an engine and waiting for it.
    pub launch: u64,
    /// Calling the host backend.
    pub host_run: u64,
    work: Vec<[u64; 2]>,
    values: Vec<Crossing>,
    class: Vec<OpClass>,
    constant: Vec<bool>,
    output: Vec<bool>,
}

/// What it costs that a value crosses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crossing {
    /// From the host to the device.
    pub to_device: u64,
    /// From the device to the host.
    pub to_host: u64,
    /// From one engine to another.
    pub handover: u64,
}

/// What a body captures: it comes from host memory, as its inputs do.
fn captured(graph: &Graph) -> impl Iterator<Item = ValueId> {
    graph.captures.iter().map(|capture| capture.inner).filter(|&value| graph[value].constant.is_none())
}

fn ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

impl Estimator {
    /// Looks at every node and value once. `order` is topological.
    pub fn new(graph: &Graph, symbols: &Symbols, order: &[NodeId], constants: &Constants) -> Estimator {
        let bound = graph.node_bound();
        let mut estimator = Estimator {
            launch: ns(constants.engine_launch_us),
            host_run: ns(constants.host_run_us),
            work: vec![[0; 2]; bound],
            values: vec![Crossing::default(); graph.value_count()],
            class: vec![OpClass::Other; bound],
            constant: vec![false; bound],
            output: vec![false; graph.value_count()],
        };
        for &value in graph.outputs() {
            estimator.output[value.index()] = true;
        }
        let mut crossing = |value: ValueId| {
            let bytes = binding_bytes(graph, symbols, value).unwrap_or(constants.unknown_bytes) as f64;
            estimator.values[value.index()] = Crossing {
                to_device: ns(constants.copy_us + bytes / constants.to_device_gb_s / 1000.0),
                to_host: ns(constants.copy_us + bytes / constants.to_host_gb_s / 1000.0),
                handover: ns(constants.handover_us + 2.0 * bytes / constants.device.memory_gb_s / 1000.0),
            };
        };
        captured(graph).for_each(&mut crossing);
        graph.inputs().iter().for_each(|&value| crossing(value));
        for &id in order {
            graph[id].outputs().iter().flatten().for_each(|&value| crossing(value));
        }
        for &id in order {
            let k = id.index();
            estimator.class[k] = class(&graph[id].op.op_type);
            estimator.constant[k] = is_constant(graph, id, &estimator.constant);
            if !estimator.constant[k] {
                estimator.work[k] = node_ns(graph, symbols, id, constants);
            }
        }
        estimator
    }

    /// Nanoseconds of a node on the device and on the host.
    pub fn work(&self, id: NodeId) -> [u64; 2] {
        self.work[id.index()]
    }

    /// Sets what a node costs on the host: control flow that the schedule runs stands there.
    pub fn set_host_work(&mut self, id: NodeId, ns: u64) {
        self.work[id.index()][HOST] = ns;
    }

    /// What a value's crossing costs.
    pub fn crossing(&self, value: ValueId) -> Crossing {
        self.values[value.index()]
    }

    /// Class of a node.
    pub fn class(&self, id: NodeId) -> OpClass {
        self.class[id.index()]
    }

    /// Whether a node depends on constants only: builders and host backends evaluate it ahead of the run.
    pub fn is_constant(&self, id: NodeId) -> bool {
        self.constant[id.index()]
    }

    /// Whether a value is an output of the graph.
    pub fn is_output(&self, value: ValueId) -> bool {
        self.output[value.index()]
    }

    /// Everything that a layout costs: segments, nodes (copies too), and each value once for each way that it goes.
    pub fn total(&self, graph: &Graph, order: &[NodeId], layout: &Layout) -> u64 {
        let mut total = 0u64;
        let mut seen = vec![false; layout.bound() as usize];
        for &id in order {
            for at in layout.places(id) {
                let engine = Layout::is_engine(at);
                total += self.work(id)[if engine { DEVICE } else { HOST }];
                if !std::mem::replace(&mut seen[at as usize], true) {
                    total += if engine { self.launch } else { self.host_run };
                }
            }
        }
        let made = order.iter().flat_map(|&id| graph[id].outputs().iter().flatten().copied());
        for value in graph.inputs().iter().copied().chain(captured(graph)).chain(made) {
            total += self.ways(graph, layout, value);
        }
        total
    }

    fn ways(&self, graph: &Graph, layout: &Layout, value: ValueId) -> u64 {
        let maker = graph[value].producer().map(|(maker, _)| maker);
        let on_device = maker.is_some_and(|maker| Layout::is_engine(layout.at(maker)));
        let users = graph[value].users().iter().flat_map(|&user| layout.places(user));
        let to = users.filter(|&at| maker.is_none_or(|maker| !layout.has(maker, at))).map(Layout::is_engine);
        self.way(value, on_device, to)
    }

    /// The ways of a value that is made on one side and read in segments of which `to` says whether they are engines.
    fn way(&self, value: ValueId, on_device: bool, to: impl Iterator<Item = bool>) -> u64 {
        let (mut up, mut down, mut over) = (false, on_device && self.is_output(value), false);
        for engine in to {
            match (on_device, engine) {
                (false, true) => up = true,
                (true, false) => down = true,
                (true, true) => over = true,
                (false, false) => {}
            }
        }
        let crossing = self.crossing(value);
        [(up, crossing.to_device), (down, crossing.to_host), (over, crossing.handover)]
            .into_iter()
            .filter_map(|(goes, cost)| goes.then_some(cost))
            .sum()
    }
}

/// Whether a node depends on constants only. `constant` knows the nodes before it.
fn is_constant(graph: &Graph, id: NodeId, constant: &[bool]) -> bool {
    let node = &graph[id];
    let random = [
        "RandomNormal",
        "RandomUniform",
        "RandomNormalLike",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
    ];
    node.op.domain.is_empty()
        && node.attrs.graphs().next().is_none()
        && !random.contains(&&*node.op.op_type)
        && node.uses().all(|value| match graph[value].producer() {
            Some((maker, _)) => constant[maker.index()],
            None => graph[value].constant.is_some(),
        })
}

/// Nanoseconds of a node on the device and on the host, with its subgraphs.
fn node_ns(graph: &Graph, symbols: &Symbols, id: NodeId, constants: &Constants) -> [u64; 2] {
    let node = &graph[id];
    let class = class(&node.op.op_type);
    let own = work(graph, symbols, id, class, constants.unknown_bytes);
    // Engines fuse elementwise layers with the next one: the result is not written.
    let fused = if class == OpClass::Elementwise { Work { written: 0.0, ..own } } else { own };
    let mut sum = [side_ns(&constants.device, class, fused), side_ns(&constants.host, class, own)];
    let mut inside = [0u64; 2];
    let mut bodies = 0;
    for (_, body) in node.attrs.graphs() {
        bodies += 1;
        for inner in body.node_ids() {
            for (sum, inner) in inside.iter_mut().zip(node_ns(body, symbols, inner, constants)) {
                *sum = sum.saturating_add(inner);
            }
        }
    }
    for (sum, inside) in sum.iter_mut().zip(inside) {
        *sum = sum.saturating_add(body_share(&node.op.op_type, bodies, inside, constants));
    }
    sum
}

/// What control flow takes of all that its bodies take together: an If runs one of its branches, a loop its body again
/// and again.
pub(crate) fn body_share(op_type: &str, bodies: usize, inside_ns: u64, constants: &Constants) -> u64 {
    match op_type {
        "Loop" | "Scan" => inside_ns.saturating_mul(constants.loop_trips),
        "If" => inside_ns / bodies.max(1) as u64,
        _ => inside_ns,
    }
}

/// Everything that a partition costs, with the bodies that the schedule runs: what [`Estimator::total`] says of a layout.
pub(crate) fn total(graph: &Graph, symbols: &Symbols, constants: &Constants, partition: &Partition) -> u64 {
    let nodes = || partition.segments.iter().flat_map(|segment| segment.nodes.iter().copied());
    let order: Vec<NodeId> = match graph.topo_order() {
        Ok(order) => order,
        Err(_) => nodes().collect(),
    };
    let estimator = Estimator::new(graph, symbols, &order, constants);
    let mut total = 0u64;
    // Segments in which each node stands, by node; and whether a segment is an engine.
    let mut places: Vec<SmallVec<[u32; 1]>> = vec![SmallVec::new(); graph.node_bound()];
    let engine: Vec<bool> =
        partition.segments.iter().map(|segment| segment.kind == SegmentKind::Engine).collect();
    for (at, segment) in partition.segments.iter().enumerate() {
        for &id in &segment.nodes {
            places[id.index()].push(at as u32);
        }
        if let (SegmentKind::Schedule, Some(&id)) = (segment.kind, segment.nodes.first()) {
            let inside = segment.bodies.iter().map(|body| body.partition.estimate.total_ns).sum();
            total += body_share(&graph[id].op.op_type, segment.bodies.len(), inside, constants);
            continue;
        }
        let side = if engine[at] { DEVICE } else { HOST };
        total += if engine[at] { estimator.launch } else { estimator.host_run };
        total += segment.nodes.iter().map(|&id| estimator.work(id)[side]).sum::<u64>();
    }
    let made = order.iter().flat_map(|&id| graph[id].outputs().iter().flatten().copied());
    for value in graph.inputs().iter().copied().chain(captured(graph)).chain(made) {
        let maker = graph[value].producer().map(|(maker, _)| maker);
        let home = maker.and_then(|maker| partition.placement.get(&maker)).map(Placement::segment);
        let on_device = home.is_some_and(|home| engine.get(home) == Some(&true));
        let mine = maker.map(|maker| places[maker.index()].as_slice()).unwrap_or_default();
        let users = graph[value].users().iter().flat_map(|user| places[user.index()].iter());
        let to = users.filter(|at| !mine.contains(at)).map(|&at| engine[at as usize]);
        total += estimator.way(value, on_device, to);
    }
    total
}

fn side_ns(side: &Side, class: OpClass, work: Work) -> u64 {
    // 10^9 a second is one a nanosecond.
    let busy = (work.flops / side.gflop_s).max((work.read + work.written) / side.memory_gb_s);
    // A millennium is enough, and leaves room for sums.
    (busy.round() as u64).min(1 << 50) + ns(side.node_us.of(class))
}

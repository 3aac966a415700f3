//! Estimates of nodes, values and whole layouts, in nanoseconds. Integers: sums do not depend on their order.

use super::{
    Constants, OpClass, Side,
    work::{Work, class, work},
};
use crate::{layout::Layout, sizes::binding_bytes};
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
        for value in graph.inputs().iter().copied().chain(made) {
            total += self.ways(graph, layout, value);
        }
        total
    }

    fn ways(&self, graph: &Graph, layout: &Layout, value: ValueId) -> u64 {
        let maker = graph[value].producer().map(|(maker, _)| maker);
        let home = maker.map(|maker| layout.at(maker));
        let on_device = home.is_some_and(Layout::is_engine);
        let (mut up, mut down, mut over) = (false, on_device && self.is_output(value), false);
        for &user in graph[value].users() {
            for at in layout.places(user) {
                if maker.is_some_and(|maker| layout.has(maker, at)) {
                    continue;
                }
                match (on_device, Layout::is_engine(at)) {
                    (false, true) => up = true,
                    (true, false) => down = true,
                    (true, true) => over = true,
                    (false, false) => {}
                }
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
    let trips = match &*node.op.op_type {
        "Loop" | "Scan" => constants.loop_trips,
        _ => 1,
    };
    for (_, body) in node.attrs.graphs() {
        for inner in body.node_ids() {
            let inner = node_ns(body, symbols, inner, constants);
            for (sum, inner) in sum.iter_mut().zip(inner) {
                *sum = sum.saturating_add(inner.saturating_mul(trips));
            }
        }
    }
    sum
}

fn side_ns(side: &Side, class: OpClass, work: Work) -> u64 {
    // 10^9 a second is one a nanosecond.
    let busy = (work.flops / side.gflop_s).max((work.read + work.written) / side.memory_gb_s);
    // A millennium is enough, and leaves room for sums.
    (busy.round() as u64).min(1 << 50) + ns(side.node_us.of(class))
}

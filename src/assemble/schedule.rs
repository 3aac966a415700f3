//! The schedule of a plan: segments in order, control flow with the steps of its bodies.

use super::{Assembly, Ids, IrValue, carried};
use crate::{Error, build::BuiltSegment};
use std::{collections::HashSet, slice::Iter};
use trtc_bundle::{Block, ScanAxis, Segment, SegmentId, Step, TargetPlan, ValueId};
use trtc_ir::{Graph, Module, Node, NodeView, infer::node_path};
use trtc_partitioner::{Partition, SegmentKind, body_graph};

/// A graph with its partition.
type Partitioned<'a> = (&'a Graph, &'a Partition);

impl Assembly {
    /// Steps of one graph. `built` stands at the graph's first segment and is left behind its last.
    pub(super) fn steps(
        &mut self,
        module: &Module,
        (graph, partition): Partitioned<'_>,
        plan: &mut TargetPlan,
        ids: &mut Ids,
        built: &mut Iter<'_, BuiltSegment>,
    ) -> Result<Vec<Step>, Error> {
        let mut steps = Vec::new();
        let constants = constants(graph, partition);
        if !constants.is_empty() {
            let mut entry =
                self.constants(&node_path(&partition.path, "folded"), module, graph, &constants)?;
            entry.outputs = self.ids(module, graph, plan, ids, &constants);
            steps.push(run(plan, entry));
        }
        for segment in &partition.segments {
            if segment.kind == SegmentKind::Schedule {
                steps.push(self.control_flow(module, graph, segment, plan, ids, built)?);
                continue;
            }
            let built = built.next().ok_or_else(|| Error::bug("a segment that was not built"))?;
            let inputs = self.ids(module, graph, plan, ids, &segment.inputs);
            let outputs = self.ids(module, graph, plan, ids, &segment.outputs);
            let mut entry = self.segment(module, graph, segment, built)?;
            (entry.inputs, entry.outputs) = (inputs, outputs);
            if let BuiltSegment::Engine { lowered, .. } = built {
                entry.carried = carried(graph, segment, lowered, ids);
            }
            steps.push(run(plan, entry));
        }
        Ok(steps)
    }

    /// The plan's id of a value, which is added to the plan when it is new.
    pub(super) fn id(
        &mut self,
        module: &Module,
        graph: &Graph,
        plan: &mut TargetPlan,
        ids: &mut Ids,
        value: IrValue,
    ) -> ValueId {
        if let Some(&id) = ids.get(&value) {
            return id;
        }
        let id = self.fresh(module, graph, plan, value);
        ids.insert(value, id);
        id
    }

    fn ids(
        &mut self,
        module: &Module,
        graph: &Graph,
        plan: &mut TargetPlan,
        ids: &mut Ids,
        values: &[IrValue],
    ) -> Vec<ValueId> {
        values.iter().map(|&value| self.id(module, graph, plan, ids, value)).collect()
    }

    /// A new value of the plan, of the type of `value`.
    fn fresh(&mut self, module: &Module, graph: &Graph, plan: &mut TargetPlan, value: IrValue) -> ValueId {
        let info = self.value_info(graph, &module.symbols, value);
        plan.values.push(info);
        ValueId(plan.values.len() as u32 - 1)
    }

    fn control_flow(
        &mut self,
        module: &Module,
        graph: &Graph,
        segment: &trtc_partitioner::Segment,
        plan: &mut TargetPlan,
        ids: &mut Ids,
        built: &mut Iter<'_, BuiltSegment>,
    ) -> Result<Step, Error> {
        let broken = || Error::bug(format!("`{}` cannot be run by the schedule", segment.id));
        let id = *segment.nodes.first().ok_or_else(broken)?;
        let node = &graph[id];
        let inputs: Vec<Option<ValueId>> = node
            .inputs()
            .iter()
            .map(|input| input.map(|value| self.id(module, graph, plan, ids, value)))
            .collect();
        let present = |inputs: &[Option<ValueId>]| inputs.iter().copied().collect::<Option<Vec<ValueId>>>();
        let mut blocks = Vec::new();
        for body in &segment.bodies {
            let inner = body_graph(graph, id, &body.attr).ok_or_else(broken)?;
            // What is captured is the same value inside: nothing is copied.
            let mut inner_ids = Ids::new();
            for capture in inner.captures.iter().filter(|capture| inner[capture.inner].constant.is_none()) {
                inner_ids.insert(capture.inner, self.id(module, graph, plan, ids, capture.outer));
            }
            let entering = self.ids(module, inner, plan, &mut inner_ids, inner.inputs());
            let steps = self.steps(module, (inner, &body.partition), plan, &mut inner_ids, built)?;
            let leaving = self.ids(module, inner, plan, &mut inner_ids, inner.outputs());
            blocks.push(Inner { graph: inner, attr: &body.attr, entering, steps, leaving });
        }
        let mut take = |attr: &str| {
            let at = blocks.iter().position(|block| block.attr == attr)?;
            Some(blocks.swap_remove(at))
        };
        match &*node.op.op_type {
            "If" => {
                let condition = inputs.first().copied().flatten().ok_or_else(broken)?;
                let then_block = take("then_branch").ok_or_else(broken)?;
                let else_block = take("else_branch").ok_or_else(broken)?;
                let slots: Vec<usize> = wanted(node, 0).collect();
                let outputs = slots.iter().filter_map(|&slot| node.output(slot));
                let outputs = outputs.map(|value| self.id(module, graph, plan, ids, value)).collect();
                let [then_block, else_block] =
                    [then_block, else_block].map(|block| block.ending_with(&slots));
                Ok(Step::If { condition, then_block, else_block, outputs })
            }
            "Loop" => {
                let body = take("body").ok_or_else(broken)?;
                let initial = present(inputs.get(2..).unwrap_or_default()).ok_or_else(broken)?;
                let states = initial.len();
                let mut outputs = Vec::new();
                for slot in 0..states {
                    outputs.push(match node.output(slot) {
                        Some(value) => self.id(module, graph, plan, ids, value),
                        None => self.fresh(module, body.graph, plan, body.graph.outputs()[slot + 1]),
                    });
                }
                let stacked: Vec<usize> = wanted(node, states).collect();
                let values = stacked.iter().filter_map(|&slot| node.output(slot));
                outputs.extend(values.map(|value| self.id(module, graph, plan, ids, value)));
                let ends: Vec<usize> = (0..=states).chain(stacked.into_iter().map(|slot| slot + 1)).collect();
                let entering = body.entering.clone();
                Ok(Step::Loop {
                    trip_count: inputs.first().copied().flatten(),
                    condition: inputs.get(1).copied().flatten(),
                    initial,
                    inputs: entering,
                    body: body.ending_with(&ends),
                    outputs,
                })
            }
            _ => {
                let body = take("body").ok_or_else(broken)?;
                let view = NodeView::new(graph, &module.symbols, id);
                let scanned = usize::try_from(view.int("num_scan_inputs", 0)).map_err(|_| broken())?;
                let states = inputs.len().checked_sub(scanned).ok_or_else(broken)?;
                let initial = present(&inputs[..states]).ok_or_else(broken)?;
                let mut parts = Vec::new();
                for (k, value) in present(&inputs[states..]).ok_or_else(broken)?.into_iter().enumerate() {
                    let rank = view.input(states + k).and_then(|x| x.rank()).ok_or_else(broken)?;
                    parts.push(axis_of(view, "scan_input", k, rank, value).ok_or_else(broken)?);
                }
                let mut outputs = Vec::new();
                for slot in 0..states {
                    outputs.push(match node.output(slot) {
                        Some(value) => self.id(module, graph, plan, ids, value),
                        None => self.fresh(module, body.graph, plan, body.graph.outputs()[slot]),
                    });
                }
                let slots: Vec<usize> = wanted(node, states).collect();
                let mut stacked = Vec::new();
                for &slot in &slots {
                    let part = body.graph.outputs()[slot];
                    let rank = body.graph[part].ty.shape().ok_or_else(broken)?.len() + 1;
                    let Some(value) = node.output(slot) else { continue };
                    let value = self.id(module, graph, plan, ids, value);
                    stacked
                        .push(axis_of(view, "scan_output", slot - states, rank, value).ok_or_else(broken)?);
                }
                let ends: Vec<usize> = (0..states).chain(slots).collect();
                let entering = body.entering.clone();
                let body = body.ending_with(&ends);
                Ok(Step::Scan { initial, scanned: parts, inputs: entering, body, outputs, stacked })
            }
        }
    }
}

/// A body on its way into a step.
struct Inner<'a> {
    graph: &'a Graph,
    attr: &'a str,
    entering: Vec<ValueId>,
    steps: Vec<Step>,
    leaving: Vec<ValueId>,
}

impl Inner<'_> {
    /// The block that hands out these of the body's outputs.
    fn ending_with(self, slots: &[usize]) -> Block {
        let outputs = slots.iter().filter_map(|&slot| self.leaving.get(slot).copied()).collect();
        Block::new(self.steps, outputs)
    }
}

/// Output slots from `first` on that somebody wants.
fn wanted(node: &Node, first: usize) -> impl Iterator<Item = usize> {
    (first..node.outputs().len()).filter(|&slot| node.output(slot).is_some())
}

/// Entry `k` of `scan_input_axes` and `scan_input_directions`, or those of outputs.
fn axis_of(node: NodeView<'_>, what: &str, k: usize, rank: usize, value: ValueId) -> Option<ScanAxis> {
    let entry = |list: &str| {
        let list = node.attrs().ints(&format!("{what}_{list}"));
        list.and_then(|list| list.get(k)).copied().unwrap_or(0)
    };
    let axis = entry("axes");
    let axis = if axis < 0 { axis + rank as i64 } else { axis };
    let axis = u32::try_from(axis).ok().filter(|&axis| (axis as usize) < rank)?;
    Some(ScanAxis::new(value, axis, entry("directions") != 0))
}

fn run(plan: &mut TargetPlan, segment: Segment) -> Step {
    plan.segments.push(segment);
    Step::Run { segment: SegmentId(plan.segments.len() as u32 - 1) }
}

/// Constants that leave the graph, or that control flow reads as they are.
fn constants(graph: &Graph, partition: &Partition) -> Vec<IrValue> {
    let mut values = graph.outputs().to_vec();
    for segment in partition.segments.iter().filter(|segment| segment.kind == SegmentKind::Schedule) {
        for &id in &segment.nodes {
            values.extend(graph[id].inputs().iter().flatten());
            // A body knows most constants that it captures, and has them as its own.
            for (_, body) in graph[id].attrs.graphs() {
                let unknown = body.captures.iter().filter(|capture| body[capture.inner].constant.is_none());
                values.extend(unknown.map(|capture| capture.outer));
            }
        }
    }
    let mut seen = HashSet::new();
    values.retain(|&value| graph[value].constant.is_some() && seen.insert(value));
    values
}

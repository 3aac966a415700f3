//! A plan made ready to run: every name looked up, every place decided.

use super::arena::{Request, place};
use crate::{error::RunError, host::HostGraph, value::Value};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};
use trtc_bundle::{Block, DType, Dim, ScanAxis, SegmentKind, Step, TargetPlan, ValueId, ValueInfo};

pub(super) struct Program {
    pub slots: Vec<Slot>,
    pub segments: Vec<Runnable>,
    pub steps: Vec<Op>,
    /// Slot of each model output.
    pub outputs: Vec<usize>,
    pub arena_len: usize,
}

/// A value of the plan, and where it is kept during a run.
pub(super) struct Slot {
    pub name: String,
    pub dtype: DType,
    /// Dims of a value that is kept in memory of ours; otherwise empty.
    pub dims: Vec<usize>,
    /// Dims of a stack of no parts, for a loop without a turn: 0 along the axis, else what is known, 0 for the rest.
    pub none: Vec<usize>,
    pub place: Place,
}

pub(super) enum Place {
    /// An input of the model.
    Input(usize),
    /// Computed by the compiler.
    Constant(Value),
    /// Written straight into an output of the model.
    Output(usize),
    /// A range of the arena.
    Arena(Range<usize>),
    /// A tensor of ours that control flow hands on: its memory is written again in later turns and runs.
    Kept,
    /// Wherever the host backend put it.
    Free,
}

/// A segment with its graph. Inputs and outputs are slots, in the graph's order.
pub(super) struct Runnable {
    pub id: String,
    pub kind: SegmentKind,
    pub graph: Option<Arc<dyn HostGraph>>,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    /// Slots in the arena that it uses, ascending and apart.
    pub pieces: Vec<usize>,
    /// Its outputs have other sizes than the model says: the backend finds memory for them.
    pub surprising: AtomicBool,
    pub runs: AtomicU64,
    pub nanos: AtomicU64,
}

pub(super) enum Op {
    Run {
        segment: usize,
        /// When it is run, on the clock of [`Life`].
        at: usize,
        /// Slots whose content nobody needs any more.
        drop: Vec<usize>,
    },
    If {
        condition: usize,
        then_block: Body,
        else_block: Body,
        outputs: Vec<usize>,
    },
    Loop(Turns),
    Scan {
        initial: Vec<usize>,
        scanned: Vec<Axis>,
        /// States, then parts.
        inputs: Vec<usize>,
        body: Body,
        /// States.
        outputs: Vec<usize>,
        stacked: Vec<Axis>,
    },
}

pub(super) struct Turns {
    pub trip_count: Option<usize>,
    pub condition: Option<usize>,
    pub initial: Vec<usize>,
    /// Number of the turn, condition, states.
    pub inputs: Vec<usize>,
    pub body: Body,
    /// States, then stacks.
    pub outputs: Vec<usize>,
}

/// A tensor that is taken apart or put together.
pub(super) struct Axis {
    pub slot: usize,
    pub axis: usize,
    pub reverse: bool,
}

pub(super) struct Body {
    pub steps: Vec<Op>,
    pub outputs: Vec<Leaving>,
}

/// A value that leaves a body.
#[derive(Clone, Copy)]
pub(super) struct Leaving {
    pub slot: usize,
    /// Whether the body makes it, and hands it out once: then it moves, and else it is shared.
    pub own: bool,
}

/// When a value is needed.
#[derive(Clone, Copy, Default)]
struct Life {
    first: usize,
    last: usize,
    seen: bool,
    written: bool,
    /// Moved by control flow, so it has no place of its own.
    moves: bool,
}

struct Builder<'a> {
    plan: &'a TargetPlan,
    lives: Vec<Life>,
    /// Slots in the order in which they were touched.
    touched: Vec<usize>,
    clock: usize,
}

/// What runs a segment, and what its constant outputs are.
pub(super) struct Parts {
    pub graphs: Vec<Option<Arc<dyn HostGraph>>>,
    pub constants: Vec<Vec<Value>>,
}

impl Program {
    /// `parts` stand in the order of the plan's segments.
    pub fn new(plan: &TargetPlan, parts: Parts) -> Result<Program, RunError> {
        let slots = plan.values.len();
        let mut builder =
            Builder { plan, lives: vec![Life::default(); slots], touched: Vec::new(), clock: 0 };
        let mut steps = builder.steps(&plan.schedule)?;
        let mut places: Vec<Place> = (0..slots).map(|_| Place::Free).collect();
        for (segment, constants) in plan.segments.iter().zip(parts.constants) {
            for (output, value) in segment.outputs.iter().zip(constants) {
                builder.fixed(&mut places[output.index()], output.index(), Place::Constant(value))?;
            }
        }
        for (k, input) in plan.inputs.iter().enumerate() {
            builder.fixed(&mut places[input.index()], input.index(), Place::Input(k))?;
        }
        let arena_len = builder.place(&mut places)?;
        builder.drops(&mut steps, &places);
        let mut axes = vec![0; slots];
        stacked_axes(&steps, &mut axes);
        let made = plan.segments.iter().zip(parts.graphs);
        let segments = made.map(|(segment, graph)| runnable(plan, segment, graph, &places));
        let slot = |((info, place), axis): ((&ValueInfo, Place), usize)| Slot {
            name: info.name.clone(),
            dtype: info.dtype,
            dims: match place {
                Place::Output(_) | Place::Arena(_) | Place::Kept => info.static_dims().unwrap_or_default(),
                _ => Vec::new(),
            },
            none: none(info.dims.as_deref().unwrap_or_default(), axis),
            place,
        };
        Ok(Program {
            segments: segments.collect::<Result<_, _>>()?,
            slots: plan.values.iter().zip(places).zip(axes).map(slot).collect(),
            steps,
            outputs: plan.outputs.iter().map(|id| id.index()).collect(),
            arena_len,
        })
    }
}

fn none(dims: &[Dim], axis: usize) -> Vec<usize> {
    let number = |(at, dim): (usize, &Dim)| match dim {
        Dim::Known(dim) if at != axis => usize::try_from(*dim).unwrap_or(0),
        _ => 0,
    };
    let mut none: Vec<usize> = dims.iter().enumerate().map(number).collect();
    // Of unknown rank: a stack of scalars.
    if none.is_empty() {
        none.push(0);
    }
    none
}

/// Axes along which scans stack; loops do along the first.
fn stacked_axes(steps: &[Op], axes: &mut [usize]) {
    for step in steps {
        match step {
            Op::Run { .. } => {}
            Op::If { then_block, else_block, .. } => {
                stacked_axes(&then_block.steps, axes);
                stacked_axes(&else_block.steps, axes);
            }
            Op::Loop(Turns { body, .. }) => stacked_axes(&body.steps, axes),
            Op::Scan { body, stacked, .. } => {
                stacked.iter().for_each(|axis| axes[axis.slot] = axis.axis);
                stacked_axes(&body.steps, axes);
            }
        }
    }
}

impl Builder<'_> {
    fn name(&self, slot: usize) -> &str {
        &self.plan.values[slot].name
    }

    fn touch(&mut self, id: ValueId) -> usize {
        let (slot, at) = (id.index(), self.clock);
        let life = &mut self.lives[slot];
        if !life.seen {
            (life.first, life.last, life.seen) = (at, at, true);
        }
        life.last = life.last.max(at);
        self.touched.push(slot);
        slot
    }

    fn write(&mut self, id: ValueId) -> usize {
        let slot = self.touch(id);
        self.lives[slot].written = true;
        slot
    }

    fn moved(&mut self, ids: &[ValueId]) -> Vec<usize> {
        let mut slot = |&id: &ValueId| {
            let slot = self.touch(id);
            self.lives[slot].moves = true;
            slot
        };
        ids.iter().map(&mut slot).collect()
    }

    fn moved_into(&mut self, ids: &[ValueId]) -> Vec<usize> {
        for &id in ids {
            self.write(id);
        }
        self.moved(ids)
    }

    fn steps(&mut self, steps: &[Step]) -> Result<Vec<Op>, RunError> {
        steps.iter().map(|step| self.step(step)).collect()
    }

    fn body(&mut self, block: &Block) -> Result<Body, RunError> {
        let steps = self.steps(&block.steps)?;
        let outputs = self.moved(&block.outputs);
        self.clock += 1;
        let made = |slot: usize| steps.iter().any(|step| self.makes(step, slot));
        let once = |slot: usize| outputs.iter().filter(|&&other| other == slot).count() == 1;
        let outputs = outputs.iter().map(|&slot| Leaving { slot, own: once(slot) && made(slot) }).collect();
        Ok(Body { steps, outputs })
    }

    /// Whether a step itself makes a value.
    fn makes(&self, step: &Op, slot: usize) -> bool {
        match step {
            Op::Run { segment, .. } => {
                let segment = &self.plan.segments[*segment];
                segment.kind != SegmentKind::Constant && segment.outputs.iter().any(|id| id.index() == slot)
            }
            Op::If { outputs, .. } => outputs.contains(&slot),
            Op::Loop(turns) => turns.outputs.contains(&slot),
            Op::Scan { outputs, stacked, .. } => {
                outputs.contains(&slot) || stacked.iter().any(|axis| axis.slot == slot)
            }
        }
    }

    fn touched(&mut self, ids: &[ValueId]) -> Vec<usize> {
        ids.iter().map(|&id| self.touch(id)).collect()
    }

    fn axes(&mut self, axes: &[ScanAxis], written: bool) -> Vec<Axis> {
        let axis = |axis: &ScanAxis| {
            let slot = if written { self.moved_into(&[axis.value])[0] } else { self.touch(axis.value) };
            Axis { slot, axis: axis.axis as usize, reverse: axis.reverse }
        };
        axes.iter().map(axis).collect()
    }

    /// A body that is run again and again: what a turn uses must last for all turns.
    fn turns(&mut self, start: usize, block: &Block) -> Result<Body, RunError> {
        let from = self.touched.len();
        let body = self.body(block)?;
        for &slot in &self.touched[from..] {
            let life = &mut self.lives[slot];
            (life.first, life.last) = (life.first.min(start), life.last.max(self.clock));
        }
        Ok(body)
    }

    fn step(&mut self, step: &Step) -> Result<Op, RunError> {
        let plan = self.plan;
        let op = match step {
            Step::Run { segment } => {
                let index = segment.index();
                let segment = &plan.segments[index];
                if let Some(both) = segment.inputs.iter().find(|id| segment.outputs.contains(id)) {
                    let name = self.name(both.index());
                    return Err(RunError::Plan(format!(
                        "segment {} reads `{name}`, which it writes",
                        segment.id
                    )));
                }
                // A constant is there from the beginning.
                if segment.kind != SegmentKind::Constant {
                    for &id in &segment.inputs {
                        self.touch(id);
                    }
                    for &id in &segment.outputs {
                        self.write(id);
                    }
                }
                Op::Run { segment: index, at: self.clock, drop: Vec::new() }
            }
            Step::If { condition, then_block, else_block, outputs } => {
                let condition = self.touch(*condition);
                self.clock += 1;
                let (then_block, else_block) = (self.body(then_block)?, self.body(else_block)?);
                Op::If { condition, then_block, else_block, outputs: self.moved_into(outputs) }
            }
            Step::Loop { trip_count, condition, initial, inputs, body, outputs } => {
                let start = self.clock;
                let trip_count = trip_count.map(|id| self.touch(id));
                let condition = condition.map(|id| self.touch(id));
                let initial = self.touched(initial);
                self.clock += 1;
                let inputs = self.moved_into(inputs);
                let body = self.turns(start, body)?;
                let outputs = self.moved_into(outputs);
                Op::Loop(Turns { trip_count, condition, initial, inputs, body, outputs })
            }
            Step::Scan { initial, scanned, inputs, body, outputs, stacked } => {
                let start = self.clock;
                let initial = self.touched(initial);
                let scanned = self.axes(scanned, false);
                let first = scanned.iter().map(|axis| axis.slot).collect::<Vec<_>>();
                self.clock += 1;
                let inputs = self.moved_into(inputs);
                let body = self.turns(start, body)?;
                // Parts are taken to the last turn.
                for slot in first {
                    self.lives[slot].last = self.clock;
                }
                let (outputs, stacked) = (self.moved_into(outputs), self.axes(stacked, true));
                Op::Scan { initial, scanned, inputs, body, outputs, stacked }
            }
            _ => return Err(RunError::Plan("its schedule has a step of a later version".into())),
        };
        self.clock += 1;
        Ok(op)
    }

    /// Inputs and constants are never written.
    fn fixed(&mut self, place: &mut Place, slot: usize, to: Place) -> Result<(), RunError> {
        if self.lives[slot].written || !matches!(place, Place::Free) {
            return Err(RunError::Plan(format!("`{}` is made twice", self.name(slot))));
        }
        *place = to;
        Ok(())
    }

    /// Decides on everything that is still free and whose size is known.
    fn place(&self, places: &mut [Place]) -> Result<usize, RunError> {
        let bytes = |slot: usize| self.plan.values[slot].static_bytes().filter(|&bytes| bytes > 0);
        for (k, output) in self.plan.outputs.iter().enumerate() {
            let (slot, life) = (output.index(), self.lives[output.index()]);
            if !life.written && matches!(places[slot], Place::Free) {
                return Err(RunError::Plan(format!("nothing makes the output `{}`", self.name(slot))));
            }
            if !life.moves && bytes(slot).is_some() && matches!(places[slot], Place::Free) {
                places[slot] = Place::Output(k);
            }
        }
        for (slot, life) in self.lives.iter().enumerate() {
            if life.written && life.moves && bytes(slot).is_some() && matches!(places[slot], Place::Free) {
                places[slot] = Place::Kept;
            }
        }
        let (mut slots, mut requests) = (Vec::new(), Vec::new());
        for (slot, life) in self.lives.iter().enumerate() {
            if let (true, false, Place::Free, Some(len)) =
                (life.written, life.moves, &places[slot], bytes(slot))
            {
                slots.push(slot);
                requests.push(Request { len, first: life.first, last: life.last });
            }
        }
        let (offsets, total) = place(&requests);
        for ((slot, request), offset) in slots.into_iter().zip(requests).zip(offsets) {
            places[slot] = Place::Arena(offset..offset + request.len);
        }
        Ok(total)
    }

    /// Values that the host backend allocated are given back after their last use.
    fn drops(&self, steps: &mut [Op], places: &[Place]) {
        for step in steps {
            match step {
                Op::Run { at, drop, .. } => {
                    let unused = |slot: &usize| {
                        let life = self.lives[*slot];
                        life.seen
                            && life.last == *at
                            && matches!(places[*slot], Place::Free)
                            && self.plan.outputs.iter().all(|output| output.index() != *slot)
                    };
                    *drop = (0..places.len()).filter(unused).collect();
                }
                Op::If { then_block, else_block, .. } => {
                    self.drops(&mut then_block.steps, places);
                    self.drops(&mut else_block.steps, places);
                }
                Op::Loop(Turns { body, .. }) | Op::Scan { body, .. } => self.drops(&mut body.steps, places),
            }
        }
    }
}

fn runnable(
    plan: &TargetPlan,
    segment: &trtc_bundle::Segment,
    graph: Option<Arc<dyn HostGraph>>,
    places: &[Place],
) -> Result<Runnable, RunError> {
    let mut made = Runnable {
        id: segment.id.clone(),
        kind: segment.kind,
        graph,
        inputs: Vec::new(),
        outputs: Vec::new(),
        pieces: Vec::new(),
        surprising: AtomicBool::new(false),
        runs: AtomicU64::new(0),
        nanos: AtomicU64::new(0),
    };
    let Some(graph) = &made.graph else { return Ok(made) };
    let look_up = |ids: &[ValueId], ports: &[ValueInfo], what: &str| {
        let slot = |port: &ValueInfo| {
            let id = ids.iter().find(|id| plan.values[id.index()].name == port.name);
            id.map(|id| id.index()).ok_or_else(|| {
                let text = format!("segment {} has no {what} `{}`, but its graph has", segment.id, port.name);
                RunError::Plan(text)
            })
        };
        ports.iter().map(slot).collect::<Result<Vec<usize>, RunError>>()
    };
    made.inputs = look_up(&segment.inputs, graph.inputs(), "input")?;
    made.outputs = look_up(&segment.outputs, graph.outputs(), "output")?;
    if let Some(missing) = segment.outputs.iter().find(|id| !made.outputs.contains(&id.index())) {
        let name = &plan.values[missing.index()].name;
        return Err(RunError::Plan(format!("the graph of segment {} does not make `{name}`", segment.id)));
    }
    let start = |slot: &usize| match &places[*slot] {
        Place::Arena(range) => Some(range.start),
        _ => None,
    };
    made.pieces =
        made.inputs.iter().chain(&made.outputs).copied().filter(|slot| start(slot).is_some()).collect();
    made.pieces.sort_by_key(start);
    made.pieces.dedup();
    Ok(made)
}

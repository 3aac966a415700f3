//! What a manifest must keep to, checked before it is written and again when it is read.

use crate::{
    Block, BundleError, DType, Dim, LOCATION_LEN, Manifest, ScanAxis, SectionId, SectionKind, Segment,
    SegmentKind, Step, TargetPlan, ValueId, ValueInfo, ValueKind, WeightsId, header::HEADER_LEN,
};

/// Every part begins at a multiple of this many bytes.
pub(crate) const ALIGN: u64 = 64;

type Check = Result<(), BundleError>;

fn wrong(what: impl Into<String>) -> BundleError {
    BundleError::Manifest(what.into())
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(wrong(what())) }
}

/// Checks that every part lies between the header and `end`, overlaps no other, and that every index leads somewhere.
pub(crate) fn check(manifest: &Manifest, end: u64) -> Check {
    ranges(manifest, end)?;
    let section = |id: SectionId, kind: SectionKind| {
        let found = manifest.sections.get(id.index()).map(|section| section.kind);
        ensure(found == Some(kind), || format!("section {} is not a {kind}", id.0))
    };
    if let Some(id) = manifest.whole_model {
        section(id, SectionKind::Graph)?;
    }
    for symbol in &manifest.symbols {
        ensure(symbol.min <= symbol.opt && symbol.opt <= symbol.max, || {
            format!("`{}` ranges over {}..{}..{}", symbol.text, symbol.min, symbol.opt, symbol.max)
        })?;
    }
    if let Some(declared) = &manifest.declared {
        section(declared.graph, SectionKind::Graph)?;
    }
    for input in &manifest.inputs {
        let Some(elements) = &input.elements else { continue };
        let count =
            input.static_dims().filter(|dims| dims.len() <= 1).map(|dims| dims.iter().product::<usize>());
        let is_size = matches!(input.dtype, DType::I32 | DType::I64);
        ensure(is_size && count == Some(elements.len()), || {
            format!("`{}` cannot have {} elements of its own", input.name, elements.len())
        })?;
    }
    for pinned in &manifest.pinned {
        let len = manifest.weights.get(pinned.weights.index()).map(|weights| weights.len);
        ensure(len.is_some() && pinned.value.static_bytes().map(|bytes| bytes as u64) == len, || {
            format!("the value of `{}` is not of its type", pinned.value.name)
        })?;
    }
    for plan in &manifest.targets {
        Plan { manifest, plan, section: &section }
            .check()
            .map_err(|error| wrong(format!("target {}: {error}", plan.target)))?;
    }
    Ok(())
}

fn ranges(manifest: &Manifest, end: u64) -> Check {
    let sections = manifest.sections.iter().map(|section| (section.offset, section.len));
    let mut parts: Vec<(u64, u64)> =
        sections.chain(manifest.weights.iter().map(|weights| (weights.offset, weights.len))).collect();
    parts.sort_unstable();
    let mut from = HEADER_LEN as u64;
    for (offset, len) in parts {
        let stop = offset.checked_add(len).filter(|&stop| stop <= end);
        let stop = stop.ok_or_else(|| wrong(format!("a part of {len} bytes at {offset} leaves the file")))?;
        ensure(offset >= from, || format!("parts overlap at byte {offset}"))?;
        ensure(offset % ALIGN == 0, || format!("a part begins at {offset}, no multiple of {ALIGN}"))?;
        from = stop;
    }
    for section in &manifest.sections {
        // Ascending and apart, so that patching one does not touch another.
        let mut from = 0;
        for &location in &section.locations {
            let stop = location.checked_add(LOCATION_LEN as u64).filter(|&stop| stop <= section.len);
            let stop = stop.ok_or_else(|| wrong(format!("a location at {location} leaves its graph")))?;
            ensure(location >= from, || format!("locations overlap at byte {location}"))?;
            from = stop;
        }
        ensure(section.locations.is_empty() || section.kind == SectionKind::Graph, || {
            format!("a section of kind {} has locations", section.kind)
        })?;
    }
    Ok(())
}

struct Plan<'a> {
    manifest: &'a Manifest,
    plan: &'a TargetPlan,
    section: &'a dyn Fn(SectionId, SectionKind) -> Check,
}

impl Plan<'_> {
    fn check(&self) -> Check {
        let plan = self.plan;
        for (what, ids, ports) in [
            ("inputs", &plan.inputs, &self.manifest.inputs),
            ("outputs", &plan.outputs, &self.manifest.outputs),
        ] {
            ensure(ids.len() == ports.len(), || {
                format!("{} {what}, but the model has {}", ids.len(), ports.len())
            })?;
            self.values(ids)?;
        }
        if let Some(report) = plan.report {
            (self.section)(report, SectionKind::Report)?;
        }
        for segment in &plan.segments {
            self.segment(segment).map_err(|error| wrong(format!("segment {}: {error}", segment.id)))?;
        }
        let none = vec![false; plan.values.len()];
        let mut made = Made { is: none.clone(), ever: none, open: Vec::new() };
        let constants = plan.segments.iter().filter(|segment| segment.kind == SegmentKind::Constant);
        for &id in constants.flat_map(|segment| &segment.outputs).chain(&plan.inputs) {
            self.make(id, &mut made)?;
        }
        self.steps(&plan.schedule, &mut made)
    }

    fn value(&self, id: ValueId) -> Result<&ValueInfo, BundleError> {
        self.plan.values.get(id.index()).ok_or_else(|| wrong(format!("there is no value {}", id.0)))
    }

    fn values(&self, ids: &[ValueId]) -> Check {
        ids.iter().try_for_each(|&id| self.value(id).map(drop))
    }

    fn weights(&self, id: WeightsId) -> Result<u64, BundleError> {
        let entry = self.manifest.weights.get(id.index());
        entry.map(|entry| entry.len).ok_or_else(|| wrong(format!("there are no weights {}", id.0)))
    }

    fn segment(&self, segment: &Segment) -> Check {
        self.values(&segment.inputs)?;
        self.values(&segment.outputs)?;
        for (id, kind) in [(segment.engine, SectionKind::Engine), (segment.graph, SectionKind::Graph)] {
            id.map_or(Ok(()), |id| (self.section)(id, kind))?;
        }
        if let Some(network) = &segment.network {
            (self.section)(network.section, SectionKind::Network)?;
            network.weights.iter().try_for_each(|&id| self.weights(id).map(drop))?;
        }
        for carried in &segment.carried {
            let value = self.value(carried.value)?;
            let crosses = segment.inputs.contains(&carried.value) || segment.outputs.contains(&carried.value);
            let fits = crosses && segment.kind == SegmentKind::Engine;
            ensure(fits && value.dtype.carrier() == Some(carried.dtype), || {
                format!("`{}` is no {} that a binding of {} carries", value.name, value.dtype, carried.dtype)
            })?;
        }
        match segment.kind {
            SegmentKind::Engine => ensure(segment.engine.is_some() || segment.network.is_some(), || {
                "it has neither an engine nor a network".into()
            }),
            SegmentKind::Host => ensure(segment.graph.is_some(), || "it has no graph".into()),
            SegmentKind::Constant => self.constant(segment),
        }
    }

    fn constant(&self, segment: &Segment) -> Check {
        ensure(segment.constants.len() == segment.outputs.len(), || {
            format!("{} constants for {} outputs", segment.constants.len(), segment.outputs.len())
        })?;
        for (&output, &weights) in segment.outputs.iter().zip(&segment.constants) {
            let (value, len) = (self.value(output)?, self.weights(weights)?);
            ensure(value.static_bytes().is_some_and(|bytes| bytes as u64 == len), || {
                format!("`{}` is a constant of {len} bytes, which its type is not", value.name)
            })?;
        }
        Ok(())
    }

    fn steps(&self, steps: &[Step], made: &mut Made) -> Check {
        steps.iter().try_for_each(|step| self.step(step, made))
    }

    /// Notes that a value is made; nothing makes one twice.
    fn make(&self, id: ValueId, made: &mut Made) -> Check {
        let name = &self.value(id)?.name;
        ensure(!made.ever[id.index()], || format!("`{name}` is made twice"))?;
        (made.is[id.index()], made.ever[id.index()]) = (true, true);
        made.open.push(id);
        Ok(())
    }

    /// A value that is read must have been made, in this block or before one that it stands in.
    fn read(&self, ids: &[ValueId], made: &Made) -> Check {
        for &id in ids {
            let name = &self.value(id)?.name;
            ensure(made.is[id.index()], || format!("`{name}` is read where nothing has made it"))?;
        }
        Ok(())
    }

    /// Steps with values of their own, which are forgotten behind it. `inputs` are given by what runs the block; its outputs
    /// must be of the types of `outputs`, where there is one for it.
    fn block(
        &self,
        block: &Block,
        inputs: &[ValueId],
        outputs: &[Option<ValueId>],
        made: &mut Made,
    ) -> Check {
        ensure(block.outputs.len() == outputs.len(), || {
            format!("a block ends with {} values instead of {}", block.outputs.len(), outputs.len())
        })?;
        let before = made.open.len();
        for &id in inputs {
            self.make(id, made)?;
        }
        self.steps(&block.steps, made)?;
        self.read(&block.outputs, made)?;
        for (&from, to) in block.outputs.iter().zip(outputs) {
            to.map_or(Ok(()), |to| self.same_type(from, to))?;
        }
        for id in made.open.drain(before..) {
            made.is[id.index()] = false;
        }
        Ok(())
    }

    fn same_type(&self, from: ValueId, to: ValueId) -> Check {
        let (a, b) = (self.value(from)?, self.value(to)?);
        ensure((a.kind, a.dtype) == (b.kind, b.dtype), || {
            format!("`{}` becomes `{}`, which is of another type", a.name, b.name)
        })
    }

    /// One number, as far as its dims are known.
    fn scalar(&self, id: ValueId, dtype: DType) -> Check {
        let value = self.value(id)?;
        let one = value.dims.iter().flatten().all(|dim| !matches!(dim, Dim::Known(n) if *n != 1));
        ensure(value.kind == ValueKind::Tensor && value.dtype == dtype && one, || {
            format!("`{}` steers control flow, but is not one {dtype}", value.name)
        })
    }

    fn step(&self, step: &Step, made: &mut Made) -> Check {
        match step {
            Step::Run { segment } => {
                let segment = self.plan.segments.get(segment.index()).ok_or_else(|| {
                    wrong(format!("the schedule runs segment {}, which is not there", segment.0))
                })?;
                if segment.kind == SegmentKind::Constant {
                    return Ok(());
                }
                let of = |error: BundleError| wrong(format!("segment {}: {error}", segment.id));
                self.read(&segment.inputs, made).map_err(of)?;
                segment.outputs.iter().try_for_each(|&id| self.make(id, made)).map_err(of)
            }
            Step::If { condition, then_block, else_block, outputs } => {
                self.read(&[*condition], made)?;
                self.scalar(*condition, DType::Bool)?;
                self.values(outputs)?;
                let to: Vec<Option<ValueId>> = outputs.iter().copied().map(Some).collect();
                self.block(then_block, &[], &to, made)?;
                self.block(else_block, &[], &to, made)?;
                outputs.iter().try_for_each(|&id| self.make(id, made))
            }
            Step::Loop { trip_count, condition, initial, inputs, body, outputs } => {
                for ids in [trip_count.as_slice(), condition.as_slice(), initial] {
                    self.read(ids, made)?;
                }
                trip_count.map_or(Ok(()), |id| self.scalar(id, DType::I64))?;
                condition.map_or(Ok(()), |id| self.scalar(id, DType::Bool))?;
                self.values(outputs)?;
                ensure(inputs.len() == initial.len() + 2 && outputs.len() >= initial.len(), || {
                    "a loop's inputs, outputs and initial values do not fit together".into()
                })?;
                self.values(inputs)?;
                self.scalar(inputs[0], DType::I64)?;
                self.scalar(inputs[1], DType::Bool)?;
                self.states(initial, &inputs[2..], outputs)?;
                let to: Vec<Option<ValueId>> =
                    [Some(inputs[1])].into_iter().chain(inputs[2..].iter().copied().map(Some)).collect();
                let parts = outputs.len() - initial.len();
                let to: Vec<Option<ValueId>> =
                    to.into_iter().chain(std::iter::repeat_n(None, parts)).collect();
                self.block(body, inputs, &to, made)?;
                self.stacked(&outputs[initial.len()..], body.outputs.get(initial.len() + 1..))?;
                outputs.iter().try_for_each(|&id| self.make(id, made))
            }
            Step::Scan { initial, scanned, inputs, body, outputs, stacked } => {
                let of = |axes: &[ScanAxis]| axes.iter().map(|axis| axis.value).collect::<Vec<ValueId>>();
                let (scanned_values, stacked_values) = (of(scanned), of(stacked));
                self.read(initial, made)?;
                self.read(&scanned_values, made)?;
                for ids in [inputs, outputs, &stacked_values] {
                    self.values(ids)?;
                }
                ensure(
                    inputs.len() == initial.len() + scanned.len()
                        && outputs.len() == initial.len()
                        && !scanned.is_empty(),
                    || "a scan's inputs, outputs and initial values do not fit together".into(),
                )?;
                for axis in scanned.iter().chain(stacked) {
                    let value = self.value(axis.value)?;
                    let rank = value.dims.as_ref().map(Vec::len);
                    ensure(rank.is_some_and(|rank| (axis.axis as usize) < rank), || {
                        format!("`{}` has no axis {}", value.name, axis.axis)
                    })?;
                }
                let (states, parts) = inputs.split_at(initial.len());
                self.states(initial, states, outputs)?;
                self.stacked(&scanned_values, Some(parts))?;
                let to =
                    states.iter().copied().map(Some).chain(stacked.iter().map(|_| None)).collect::<Vec<_>>();
                self.block(body, inputs, &to, made)?;
                self.stacked(&stacked_values, body.outputs.get(initial.len()..))?;
                outputs.iter().chain(&stacked_values).try_for_each(|&id| self.make(id, made))
            }
        }
    }

    fn states(&self, initial: &[ValueId], inside: &[ValueId], outputs: &[ValueId]) -> Check {
        for ((&first, &state), &last) in initial.iter().zip(inside).zip(outputs) {
            self.same_type(first, state)?;
            self.same_type(state, last)?;
        }
        Ok(())
    }

    /// Tensors, and the parts that they are put together from.
    fn stacked(&self, wholes: &[ValueId], parts: Option<&[ValueId]>) -> Check {
        for (&whole, &part) in wholes.iter().zip(parts.unwrap_or_default()) {
            self.same_type(part, whole)?;
            let value = self.value(whole)?;
            ensure(
                value.kind == ValueKind::Tensor && value.dtype.bits() > 0 && value.dtype.bits() % 8 == 0,
                || format!("`{}` cannot be put together from parts", value.name),
            )?;
        }
        Ok(())
    }
}

/// Values that are made at a place in the schedule, and those to be forgotten where their blocks end.
struct Made {
    is: Vec<bool>,
    /// Those of other blocks too.
    ever: Vec<bool>,
    open: Vec<ValueId>,
}

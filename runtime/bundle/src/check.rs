//! What a manifest must keep to, checked before it is written and again when it is read.

use crate::{
    Block, BundleError, LOCATION_LEN, Manifest, SectionId, SectionKind, Segment, SegmentKind, Step,
    TargetPlan, ValueId, ValueInfo, WeightsId, header::HEADER_LEN,
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
        self.steps(&plan.schedule)
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

    fn steps(&self, steps: &[Step]) -> Check {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn block(&self, block: &Block, outputs: usize) -> Check {
        ensure(block.outputs.len() == outputs, || {
            format!("a block ends with {} values instead of {outputs}", block.outputs.len())
        })?;
        self.values(&block.outputs)?;
        self.steps(&block.steps)
    }

    fn step(&self, step: &Step) -> Check {
        match step {
            Step::Run { segment } => ensure(segment.index() < self.plan.segments.len(), || {
                format!("the schedule runs segment {}, which is not there", segment.0)
            }),
            Step::If { condition, then_block, else_block, outputs } => {
                self.value(*condition)?;
                self.values(outputs)?;
                self.block(then_block, outputs.len())?;
                self.block(else_block, outputs.len())
            }
            Step::Loop { trip_count, condition, initial, inputs, body, outputs } => {
                for ids in [trip_count.as_slice(), condition.as_slice(), initial, inputs, outputs] {
                    self.values(ids)?;
                }
                ensure(inputs.len() == initial.len() + 2 && outputs.len() >= initial.len(), || {
                    "a loop's inputs, outputs and initial values do not fit together".into()
                })?;
                self.block(body, outputs.len() + 1)
            }
        }
    }
}

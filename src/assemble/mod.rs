//! From partitions to a bundle file: graphs, networks, engines, weights once, manifest.

mod schedule;

use crate::{
    Error,
    build::BuiltSegment,
    declared::{Size, SizeCheck},
    prepare::Source,
};
use bytes::Bytes;
use std::{
    collections::{HashMap, HashSet},
    path::Path,
};
use trtc_bundle::{
    BundleWriter, Carried, DType, Declared, DeclaredValue, Element, LOCATION, Manifest, NetworkRef, Pinned,
    Segment, SegmentKind, TargetPlan, ValueId, ValueInfo, ValueKind, WeightsRef,
};
use trtc_frontends::onnx::export::{ExportError, ExportRequest, Exported, WeightPlacement, export};
use trtc_ir::{Dim, Graph, Module, NodeId, Symbols, Tensor, Type, ValueId as IrValue};
use trtc_network::{Lowered, WeightsId, raise};
use trtc_onnx::ModelProto;
use trtc_partitioner::{Partition, TargetReport};

/// A bundle under construction.
pub(crate) struct Assembly {
    writer: BundleWriter,
    manifest: Manifest,
    /// Weights that are written already, by the place of their bytes in memory: nothing is hashed twice.
    written: HashMap<(usize, usize), WeightsRef>,
    /// Keeps those places from being reused.
    kept: Vec<Bytes>,
    symbols: HashMap<String, (i64, i64, i64)>,
    /// Those of them that are elements of inputs: sizes that were folded follow from them on the host as well.
    elements: HashSet<String>,
}

/// Nodes of a graph that become one host graph.
struct Part<'a> {
    name: &'a str,
    graph: &'a Graph,
    nodes: Option<&'a [NodeId]>,
    inputs: &'a [IrValue],
    outputs: &'a [IrValue],
}

/// The plan's ids of a graph's values.
type Ids = HashMap<IrValue, ValueId>;

/// What is known of a target when its plan is written.
pub(crate) struct TargetParts<'a> {
    pub partition: &'a Partition,
    /// In the order of [`Partition::parts`].
    pub segments: &'a [BuiltSegment],
    pub report: &'a TargetReport,
}

impl Assembly {
    /// Begins a bundle at `path`.
    pub fn create(path: &Path, source: &Source) -> Result<Assembly, Error> {
        let writer = BundleWriter::create(path).map_err(cannot_write)?;
        let info = trtc_bundle::ModelInfo::new(source.name(), "onnx", source.hash());
        let manifest = Manifest::new(crate::PRODUCER, info);
        Ok(Assembly {
            writer,
            manifest,
            written: HashMap::new(),
            kept: Vec::new(),
            symbols: HashMap::new(),
            elements: HashSet::new(),
        })
    }

    /// What a run compares before it starts.
    pub fn sizes(&mut self, check: &SizeCheck) -> Result<(), Error> {
        let graph = &check.module.graph;
        let part =
            Part { name: "sizes", graph, nodes: None, inputs: graph.inputs(), outputs: graph.outputs() };
        let exported = self.export(&check.module, part)?.map_err(|error| no_host(&error))?;
        let graph = self.graph(&exported.model)?;
        let dim = |dim: &Option<i64>| {
            let number = dim.and_then(|dim| u64::try_from(dim).ok());
            number.map_or(trtc_bundle::Dim::Unknown, trtc_bundle::Dim::Known)
        };
        let value = |size: &Size| {
            DeclaredValue::new(&size.value, size.dims.iter().map(dim).collect(), size.inputs.clone())
        };
        self.manifest.declared = Some(Declared::new(graph, check.sizes.iter().map(value).collect()));
        Ok(())
    }

    /// The whole model as one graph, for machines without a device, and the model's inputs and outputs.
    pub fn whole_model(&mut self, source: &Source, module: &Module) -> Result<(), Error> {
        let original = &source.loaded.module;
        let graph = &original.graph;
        let part =
            Part { name: &graph.name, graph, nodes: None, inputs: graph.inputs(), outputs: graph.outputs() };
        match self.export(original, part)? {
            Ok(exported) => self.manifest.whole_model = Some(self.graph(&exported.model)?),
            // No one opset suits all operators: such a model runs segment by segment.
            Err(ExportError::Conflict { names, .. }) => {
                tracing::info!("no whole-model graph: {} need different opsets", names.join(", "));
            }
            // A node that passes take out needs no kernel; another one is named with its segment.
            Err(error @ ExportError::NoKernel { .. }) => tracing::info!("no whole-model graph: {error}"),
            Err(error) => return Err(no_host(&error)),
        }
        for (list, values) in [(true, module.graph.inputs()), (false, module.graph.outputs())] {
            for &value in values {
                let info = self.value_info(&module.graph, &module.symbols, value);
                if list {
                    let info = self.with_elements(info, &module.graph, &module.symbols, value);
                    self.manifest.inputs.push(info);
                } else {
                    self.manifest.outputs.push(info);
                }
            }
        }
        for &value in &source.pinned {
            let Some(tensor) = &graph[value].constant else { continue };
            let info = self.value_info(graph, &original.symbols, value);
            let weights = self.weights(tensor)?.id;
            self.manifest.pinned.push(Pinned::new(info, weights));
        }
        Ok(())
    }

    /// One target's plan.
    pub fn target(&mut self, module: &Module, parts: TargetParts<'_>) -> Result<(), Error> {
        let graph = &module.graph;
        let mut plan = TargetPlan::new(parts.report.target.clone());
        plan.tf32 = parts.report.tf32;
        let mut ids = Ids::new();
        for &value in graph.inputs() {
            let id = self.id(module, graph, &mut plan, &mut ids, value);
            plan.inputs.push(id);
        }
        let mut built = parts.segments.iter();
        plan.schedule = self.steps(module, (graph, parts.partition), &mut plan, &mut ids, &mut built)?;
        for &value in graph.outputs() {
            let id = self.id(module, graph, &mut plan, &mut ids, value);
            plan.outputs.push(id);
        }
        let report = serde_json::to_vec(parts.report).map_err(|e| Error::bug(format!("report: {e}")))?;
        plan.report = Some(self.writer.add_report(&report).map_err(cannot_write)?);
        self.manifest.targets.push(plan);
        Ok(())
    }

    /// Writes the manifest and gives the bundle its name.
    pub fn finish(mut self) -> Result<(), Error> {
        let is_engine = |segment: &Segment| segment.kind == SegmentKind::Engine;
        let has_engine = self.manifest.targets.iter().flat_map(|plan| &plan.segments).any(is_engine);
        // Ranges are what engines are built for; the host takes any size.
        let is_kept = |text: &String| has_engine || self.elements.contains(text);
        let mut symbols: Vec<_> = self.symbols.into_iter().filter(|(text, _)| is_kept(text)).collect();
        symbols.sort();
        self.manifest.symbols = symbols
            .into_iter()
            .map(|(text, (min, opt, max))| trtc_bundle::Symbol::new(text, min as u64, opt as u64, max as u64))
            .collect();
        self.writer.finish(self.manifest).map_err(cannot_write)
    }

    /// A segment that runs, of nodes.
    fn segment(
        &mut self,
        module: &Module,
        graph: &Graph,
        segment: &trtc_partitioner::Segment,
        built: &BuiltSegment,
    ) -> Result<Segment, Error> {
        let mut entry = Segment::new(&segment.id, SegmentKind::Host);
        if let BuiltSegment::Constant(tensors) = built {
            entry.kind = SegmentKind::Constant;
            for tensor in tensors {
                entry.constants.push(self.weights(tensor)?.id);
            }
            return Ok(entry);
        }
        let part = Part {
            name: &segment.id,
            graph,
            nodes: Some(&segment.nodes),
            inputs: &segment.inputs,
            outputs: &segment.outputs,
        };
        let model = match (self.export(module, part)?, built) {
            (Ok(exported), _) => exported.model,
            // ONNX Runtime runs the layers of what it has no kernel for.
            (Err(error @ ExportError::NoKernel { .. }), BuiltSegment::Engine { lowered, .. }) => {
                self.raised(graph, segment, lowered)?.ok_or_else(|| no_host(&error))?
            }
            (Err(error), _) => return Err(no_host(&error)),
        };
        entry.graph = Some(self.graph(&model)?);
        if let BuiltSegment::Engine { lowered, engine } = built {
            entry.kind = SegmentKind::Engine;
            entry.network = Some(self.network(lowered)?);
            if let Some(engine) = engine {
                entry.engine = Some(self.writer.add_engine(&engine.bytes).map_err(cannot_write)?);
            }
        }
        Ok(entry)
    }

    /// An engine's layers as an ONNX model; `None` where ONNX has no counterpart, or where a binding has another dtype than
    /// its value.
    fn raised(
        &mut self,
        graph: &Graph,
        segment: &trtc_partitioner::Segment,
        lowered: &Lowered,
    ) -> Result<Option<ModelProto>, Error> {
        let dtypes: HashMap<&str, DType> = bindings(lowered);
        let own = |&value: &IrValue| {
            let binding = dtypes.get(&*graph[value].name);
            binding.is_none_or(|&dtype| graph[value].ty.dtype() == Some(dtype))
        };
        if !segment.inputs.iter().chain(&segment.outputs).all(own) {
            return Ok(None);
        }
        let places: Vec<WeightsRef> =
            lowered.weights.iter().map(|bytes| self.bytes(bytes)).collect::<Result<_, _>>()?;
        let place = |id: WeightsId| match places.get(id.index()) {
            None => raise::WeightsPlacement::Inline,
            Some(at) => raise::WeightsPlacement::External {
                location: LOCATION.to_owned(),
                offset: at.offset,
                length: at.len,
            },
        };
        Ok(raise::raise(lowered, &raise::RaiseOptions::with_weights(&place)).ok())
    }

    /// Constants that are handed out as they are, by a segment without nodes.
    fn constants(
        &mut self,
        id: &str,
        module: &Module,
        graph: &Graph,
        values: &[IrValue],
    ) -> Result<Segment, Error> {
        let mut entry = Segment::new(id, SegmentKind::Constant);
        if values.iter().any(|&v| graph[v].ty.dtype() == Some(DType::Str)) {
            // Strings have no fixed width: a graph that hands out its initializers holds them.
            entry.kind = SegmentKind::Host;
            let part = Part { name: id, graph, nodes: Some(&[]), inputs: &[], outputs: values };
            let exported = self.export(module, part)?.map_err(|error| no_host(&error))?;
            entry.graph = Some(self.graph(&exported.model)?);
            return Ok(entry);
        }
        for &value in values {
            if let Some(tensor) = &graph[value].constant {
                entry.constants.push(self.weights(tensor)?.id);
            }
        }
        Ok(entry)
    }

    fn graph(&mut self, model: &ModelProto) -> Result<trtc_bundle::SectionId, Error> {
        let bytes = trtc_onnx::write::encode(model).map_err(|e| Error::bug(format!("a host graph: {e}")))?;
        self.writer.add_graph(&bytes).map_err(cannot_write)
    }

    fn network(&mut self, lowered: &Lowered) -> Result<NetworkRef, Error> {
        let json = serde_json::to_vec(&lowered.network).map_err(|e| Error::bug(format!("network: {e}")))?;
        let section = self.writer.add_network(&json).map_err(cannot_write)?;
        let mut weights = Vec::with_capacity(lowered.weights.len());
        for bytes in &lowered.weights {
            weights.push(self.bytes(bytes)?.id);
        }
        Ok(NetworkRef::new(section, weights))
    }

    fn weights(&mut self, tensor: &Tensor) -> Result<WeightsRef, Error> {
        match tensor.bytes() {
            Some(bytes) => self.bytes(bytes),
            None => Err(Error::bug("strings among the weights")),
        }
    }

    fn bytes(&mut self, bytes: &Bytes) -> Result<WeightsRef, Error> {
        let place = (bytes.as_ptr() as usize, bytes.len());
        if let Some(&known) = self.written.get(&place) {
            return Ok(known);
        }
        let written = self.writer.add_weights(bytes).map_err(cannot_write)?;
        self.written.insert(place, written);
        self.kept.push(bytes.clone());
        Ok(written)
    }

    /// A part of a graph as an ONNX model whose large weights lie in the bundle.
    fn export(&mut self, module: &Module, part: Part<'_>) -> Result<Result<Exported, ExportError>, Error> {
        let mut failed = None;
        let mut weights = |tensor: &Tensor, _: &str| match tensor.bytes().map(|bytes| self.bytes(bytes)) {
            Some(Ok(at)) => {
                WeightPlacement::External { location: LOCATION.to_owned(), offset: at.offset, length: at.len }
            }
            Some(Err(error)) => {
                failed = Some(error);
                WeightPlacement::Inline
            }
            None => WeightPlacement::Inline,
        };
        let request = ExportRequest {
            name: part.name,
            graph: part.graph,
            symbols: &module.symbols,
            nodes: part.nodes,
            inputs: part.inputs,
            outputs: part.outputs,
            opset: None,
            opsets: &module.opsets,
            weights: &mut weights,
        };
        let exported = export(request);
        match failed {
            Some(error) => Err(error),
            None => Ok(exported),
        }
    }

    fn value_info(&mut self, graph: &Graph, symbols: &Symbols, value: IrValue) -> ValueInfo {
        let value = &graph[value];
        let (kind, ty) = match &value.ty {
            Type::Sequence(inner) => (ValueKind::Sequence, &**inner),
            Type::Optional(inner) => match &**inner {
                Type::Sequence(inner) => (ValueKind::OptionalSequence, &**inner),
                inner => (ValueKind::Optional, inner),
            },
            Type::Map(_, inner) => (ValueKind::Map, &**inner),
            ty => (ValueKind::Tensor, ty),
        };
        let dims = ty.shape().map(|shape| shape.iter().map(|dim| self.dim(symbols, dim)).collect());
        let (name, dtype) = (value.name.to_string(), ty.dtype().unwrap_or(DType::F32));
        match kind {
            ValueKind::Tensor => ValueInfo::tensor(name, dtype, dims),
            kind => ValueInfo::other(name, kind, dtype),
        }
    }

    /// The input with what is known of its elements.
    fn with_elements(
        &mut self,
        info: ValueInfo,
        graph: &Graph,
        symbols: &Symbols,
        value: IrValue,
    ) -> ValueInfo {
        let Some(list) = &graph[value].elements else { return info };
        let mut element = |dim: &Dim| match dim {
            Dim::Known(number) => Element::Known(*number),
            dim => match self.dim(symbols, dim) {
                trtc_bundle::Dim::Text(text) => {
                    self.elements.insert(text.clone());
                    Element::Text(text)
                }
                _ => Element::Unknown,
            },
        };
        let list = list.iter().map(&mut element).collect();
        info.with_elements(list)
    }

    fn dim(&mut self, symbols: &Symbols, dim: &Dim) -> trtc_bundle::Dim {
        match dim {
            Dim::Known(n) => u64::try_from(*n).map_or(trtc_bundle::Dim::Unknown, trtc_bundle::Dim::Known),
            Dim::Unknown => trtc_bundle::Dim::Unknown,
            Dim::Expr(_) => {
                let text = symbols.show(dim);
                if let Some([min, opt, max]) = trtc_converters::lower::dim_range(symbols, dim) {
                    self.symbols.insert(text.clone(), (min.max(0), opt.max(0), max.max(0)));
                }
                trtc_bundle::Dim::Text(text)
            }
        }
    }
}

/// Bindings of a network in another dtype than their value's.
pub(super) fn carried(
    graph: &Graph,
    segment: &trtc_partitioner::Segment,
    lowered: &Lowered,
    ids: &Ids,
) -> Vec<Carried> {
    let bindings = bindings(lowered);
    let carried = |&value: &IrValue| {
        let binding = bindings.get(&*graph[value].name).copied()?;
        let differs = graph[value].ty.dtype().is_some_and(|dtype| dtype != binding);
        ids.get(&value).filter(|_| differs).map(|&id| Carried::new(id, binding))
    };
    segment.inputs.iter().chain(&segment.outputs).filter_map(carried).collect()
}

/// Dtypes of a network's inputs and outputs, by name.
fn bindings(lowered: &Lowered) -> HashMap<&str, DType> {
    let network = &lowered.network;
    let inputs = network.inputs.iter().map(|input| (&input.name, input.tensor));
    inputs
        .chain(network.outputs.iter().map(|output| (&output.name, output.tensor)))
        .filter_map(|(name, tensor)| Some((name.as_str(), network.tensor(tensor)?.dtype)))
        .collect()
}

fn cannot_write(error: trtc_bundle::BundleError) -> Error {
    Error::input(error.to_string())
}

/// An operator that neither side can run ends the compile.
fn no_host(error: &ExportError) -> Error {
    match error {
        ExportError::NoKernel { .. } => Error::input(error.to_string()),
        _ => Error::bug(format!("a host graph cannot be written: {error}")),
    }
}

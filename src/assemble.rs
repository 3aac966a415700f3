//! From partitions to a bundle file: graphs, networks, engines, weights once, manifest.

use crate::{Error, build::BuiltSegment, prepare::Source};
use bytes::Bytes;
use std::{collections::HashMap, path::Path};
use trtc_bundle::{
    BundleWriter, Carried, DType, LOCATION, Manifest, NetworkRef, Segment, SegmentId, SegmentKind, Step,
    TargetPlan, ValueId, ValueInfo, ValueKind, WeightsRef,
};
use trtc_frontends::onnx::export::{ExportError, ExportRequest, Exported, WeightPlacement, export};
use trtc_ir::{Dim, Graph, Module, NodeId, Symbols, Tensor, Type};
use trtc_network::Lowered;
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
}

/// Nodes of a graph that become one host graph.
struct Part<'a> {
    name: &'a str,
    nodes: Option<&'a [NodeId]>,
    inputs: &'a [trtc_ir::ValueId],
    outputs: &'a [trtc_ir::ValueId],
}

/// What is known of a target when its plan is written.
pub(crate) struct TargetParts<'a> {
    pub partition: &'a Partition,
    pub segments: &'a [BuiltSegment],
    pub report: &'a TargetReport,
}

impl Assembly {
    /// Begins a bundle at `path`.
    pub fn create(path: &Path, source: &Source) -> Result<Assembly, Error> {
        let writer = BundleWriter::create(path).map_err(cannot_write)?;
        let info = trtc_bundle::ModelInfo::new(source.name(), "onnx", source.hash());
        let manifest = Manifest::new(crate::PRODUCER, info);
        Ok(Assembly { writer, manifest, written: HashMap::new(), kept: Vec::new(), symbols: HashMap::new() })
    }

    /// The whole model as one graph, for machines without a device, and the model's inputs and outputs.
    pub fn whole_model(&mut self, source: &Source, module: &Module) -> Result<(), Error> {
        let original = &source.loaded.module;
        let graph = &original.graph;
        let part = Part { name: &graph.name, nodes: None, inputs: graph.inputs(), outputs: graph.outputs() };
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
                if list { self.manifest.inputs.push(info) } else { self.manifest.outputs.push(info) }
            }
        }
        Ok(())
    }

    /// One target's plan.
    pub fn target(&mut self, module: &Module, parts: TargetParts<'_>) -> Result<(), Error> {
        let (graph, symbols) = (&module.graph, &module.symbols);
        let mut values = Values::default();
        let mut plan_segments = Vec::new();
        let inputs: Vec<ValueId> = graph.inputs().iter().map(|&v| values.id(v)).collect();
        let folded: Vec<trtc_ir::ValueId> =
            graph.outputs().iter().copied().filter(|&v| graph[v].constant.is_some()).collect();
        if !folded.is_empty() {
            plan_segments.push(self.constants("folded", module, &folded, &mut values)?);
        }
        for (segment, built) in parts.partition.segments.iter().zip(parts.segments) {
            let mut entry = Segment::new(&segment.id, SegmentKind::Host);
            entry.inputs = segment.inputs.iter().map(|&v| values.id(v)).collect();
            entry.outputs = segment.outputs.iter().map(|&v| values.id(v)).collect();
            if let BuiltSegment::Constant(tensors) = built {
                entry.kind = SegmentKind::Constant;
                for tensor in tensors {
                    entry.constants.push(self.weights(tensor)?.id);
                }
            } else {
                let part = Part {
                    name: &segment.id,
                    nodes: Some(&segment.nodes),
                    inputs: &segment.inputs,
                    outputs: &segment.outputs,
                };
                let exported = self.export(module, part)?.map_err(|error| no_host(&error))?;
                entry.graph = Some(self.graph(&exported.model)?);
            }
            if let BuiltSegment::Engine { lowered, engine } = built {
                entry.kind = SegmentKind::Engine;
                entry.network = Some(self.network(lowered)?);
                entry.carried = carried(graph, segment, lowered, &mut values);
                if let Some(engine) = engine {
                    entry.engine = Some(self.writer.add_engine(&engine.bytes).map_err(cannot_write)?);
                }
            }
            plan_segments.push(entry);
        }
        let outputs: Vec<ValueId> = graph.outputs().iter().map(|&v| values.id(v)).collect();
        let infos = values.list.iter().map(|&v| self.value_info(graph, symbols, v)).collect();
        let report = serde_json::to_vec(parts.report).map_err(|e| Error::bug(format!("report: {e}")))?;
        let report = self.writer.add_report(&report).map_err(cannot_write)?;
        let mut plan = TargetPlan::new(parts.report.target.clone());
        plan.schedule =
            (0..plan_segments.len() as u32).map(|k| Step::Run { segment: SegmentId(k) }).collect();
        plan.values = infos;
        plan.inputs = inputs;
        plan.outputs = outputs;
        plan.segments = plan_segments;
        plan.report = Some(report);
        self.manifest.targets.push(plan);
        Ok(())
    }

    /// Writes the manifest and gives the bundle its name.
    pub fn finish(mut self) -> Result<(), Error> {
        let is_engine = |segment: &Segment| segment.kind == SegmentKind::Engine;
        let has_engine = self.manifest.targets.iter().flat_map(|plan| &plan.segments).any(is_engine);
        // Ranges are what engines are built for; the host takes any size.
        let mut symbols: Vec<_> = self.symbols.into_iter().filter(|_| has_engine).collect();
        symbols.sort();
        self.manifest.symbols = symbols
            .into_iter()
            .map(|(text, (min, opt, max))| trtc_bundle::Symbol::new(text, min as u64, opt as u64, max as u64))
            .collect();
        self.writer.finish(self.manifest).map_err(cannot_write)
    }

    fn constants(
        &mut self,
        id: &str,
        module: &Module,
        outputs: &[trtc_ir::ValueId],
        values: &mut Values,
    ) -> Result<Segment, Error> {
        let graph = &module.graph;
        let is_string = |&&v: &&trtc_ir::ValueId| graph[v].ty.dtype() == Some(DType::Str);
        let mut entry = Segment::new(id, SegmentKind::Constant);
        entry.outputs = outputs.iter().map(|&v| values.id(v)).collect();
        if outputs.iter().any(|v| is_string(&v)) {
            // Strings have no fixed width: a graph that hands out its initializers holds them.
            entry.kind = SegmentKind::Host;
            let part = Part { name: id, nodes: Some(&[]), inputs: &[], outputs };
            let exported = self.export(module, part)?.map_err(|error| no_host(&error))?;
            entry.graph = Some(self.graph(&exported.model)?);
            return Ok(entry);
        }
        for &output in outputs {
            if let Some(tensor) = &graph[output].constant {
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
            graph: &module.graph,
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

    fn value_info(&mut self, graph: &Graph, symbols: &Symbols, value: trtc_ir::ValueId) -> ValueInfo {
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
fn carried(
    graph: &Graph,
    segment: &trtc_partitioner::Segment,
    lowered: &Lowered,
    values: &mut Values,
) -> Vec<Carried> {
    let network = &lowered.network;
    let inputs = network.inputs.iter().map(|input| (&input.name, input.tensor));
    let bindings: HashMap<&str, DType> = inputs
        .chain(network.outputs.iter().map(|output| (&output.name, output.tensor)))
        .filter_map(|(name, tensor)| Some((name.as_str(), network.tensor(tensor)?.dtype)))
        .collect();
    let carried = |&value: &trtc_ir::ValueId| {
        let binding = bindings.get(&*graph[value].name).copied()?;
        let differs = graph[value].ty.dtype().is_some_and(|dtype| dtype != binding);
        differs.then(|| Carried::new(values.id(value), binding))
    };
    segment.inputs.iter().chain(&segment.outputs).filter_map(carried).collect()
}

/// Ids of the values that a plan mentions, in order of first mention.
#[derive(Default)]
struct Values {
    list: Vec<trtc_ir::ValueId>,
    ids: HashMap<trtc_ir::ValueId, ValueId>,
}

impl Values {
    fn id(&mut self, value: trtc_ir::ValueId) -> ValueId {
        *self.ids.entry(value).or_insert_with(|| {
            self.list.push(value);
            ValueId(self.list.len() as u32 - 1)
        })
    }
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

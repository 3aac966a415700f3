//! Heavy constants, computed by ONNX Runtime at compile time.
//!
//! Only host segments without inputs are computed, after partitioning: what runs where does not depend on it. Without
//! ONNX Runtime they stay what they are.

use super::{BuiltSegment, BuiltTarget};
use crate::{Options, plan::is_pure, plan::is_worth_folding, prepare::Prepared};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use trtc_bundle::DType;
use trtc_frontends::onnx::export::{ExportRequest, WeightPlacement, export};
use trtc_ir::{Graph, Tensor};
use trtc_partitioner::{Part, Segment, SegmentKind};
use trtc_runtime::{
    Value,
    host::{GraphOptions, HostBackend, HostOutput, ModelSource, OrtBackend, OrtOptions},
};

/// Most bytes of constants that a segment may read: they are handed over inside the model.
const MOST_BYTES: u64 = 1 << 30;

/// Runs host segments that depend on nothing.
pub(crate) struct Folder<'a> {
    options: &'a Options,
    /// Loaded when there is something to compute.
    backend: OnceLock<Option<Arc<dyn HostBackend>>>,
}

impl<'a> Folder<'a> {
    /// Loads nothing yet.
    pub fn new(options: &'a Options) -> Folder<'a> {
        Folder { options, backend: OnceLock::new() }
    }

    /// Replaces host segments by their outputs where that can be done.
    pub fn fold(&self, prepared: &Prepared, built: &mut BuiltTarget) {
        let parts = built.partition.parts(&prepared.module.graph);
        for (Part { graph, segment, .. }, outcome) in parts.into_iter().zip(&mut built.segments) {
            if segment.kind == SegmentKind::Host
                && segment.inputs.is_empty()
                && let Some(tensors) = self.outputs(prepared, graph, segment)
            {
                *outcome = BuiltSegment::Constant(tensors);
            }
        }
    }

    fn backend(&self) -> Option<&dyn HostBackend> {
        let load = || {
            let mut options = OrtOptions::default();
            if let Some(path) = &self.options.ort_library {
                options = options.library(path);
            }
            match OrtBackend::load(&options) {
                Ok(backend) => Some(Arc::new(backend) as Arc<dyn HostBackend>),
                Err(error) => {
                    tracing::info!("constants are not folded: {error}");
                    None
                }
            }
        };
        self.backend.get_or_init(load).as_deref()
    }

    fn outputs(&self, prepared: &Prepared, graph: &Graph, segment: &Segment) -> Option<Vec<Tensor>> {
        let symbols = &prepared.module.symbols;
        let numeric = |dtype: DType| dtype != DType::Str;
        let plain = segment.outputs.iter().all(|&v| graph[v].ty.dtype().is_some_and(numeric));
        let pure = segment.nodes.iter().all(|&id| is_pure(&graph[id]));
        if !plain || !pure || !is_worth_folding(graph, symbols, &segment.nodes) {
            return None;
        }
        let mut bytes = 0u64;
        let exported = export(ExportRequest {
            name: &segment.id,
            graph,
            symbols,
            nodes: Some(&segment.nodes),
            inputs: &[],
            outputs: &segment.outputs,
            opset: None,
            opsets: &prepared.module.opsets,
            weights: &mut |tensor, _| {
                bytes += tensor.bytes().map_or(0, |bytes| bytes.len() as u64);
                WeightPlacement::Inline
            },
        });
        let model = exported.ok().filter(|_| bytes <= MOST_BYTES)?.model;
        let model = trtc_onnx::write::encode(&model).ok()?;
        let source = ModelSource::Bytes { model: &model, folder: None };
        let graph_ready = self.backend()?.load(source, &GraphOptions::default().optimize(false)).ok()?;
        let mut outputs: Vec<HostOutput<'_>> =
            segment.outputs.iter().map(|_| HostOutput::New(Value::Nothing)).collect();
        if let Err(error) = graph_ready.run(&[], &mut outputs) {
            tracing::info!("{} is not folded: {error}", segment.id);
            return None;
        }
        let tensors = outputs.into_iter().zip(&segment.outputs).map(|(output, &value)| {
            let HostOutput::New(Value::Tensor(tensor)) = output else { return None };
            let dims: Vec<i64> = tensor.dims().iter().map(|&dim| dim as i64).collect();
            let known: Option<Vec<i64>> = graph[value].ty.shape()?.iter().map(|dim| dim.known()).collect();
            // What inference says is what the plan promises to the next segment.
            let fits = known.as_ref() == Some(&dims) && graph[value].ty.dtype() == Some(tensor.dtype());
            Tensor::new(tensor.dtype(), dims, Bytes::copy_from_slice(tensor.bytes())).filter(|_| fits)
        });
        tensors.collect()
    }
}

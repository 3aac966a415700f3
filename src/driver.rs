//! The pipeline, a line a stage.

use crate::{
    Error, Options,
    prepare::{Source, prepare},
};
use std::path::Path;
use trtc_converters::Registry;
use trtc_partitioner::{Forced, ModelInfo, Report, TargetReport, target_report};

/// Partitions a model without building anything: needs no library. `-` reads the model from standard input.
///
/// # Errors
/// [`crate::ErrorKind::Input`] for a file that is no valid model, or options that do not fit it.
pub fn partition(model: &Path, options: &Options) -> Result<Report, Error> {
    let source = Source::open(model)?;
    let prepared = prepare(&source, options)?;
    let (graph, symbols) = (&prepared.module.graph, &prepared.module.symbols);
    let mut targets: Vec<TargetReport> = Vec::new();
    for target in options.targets_or_default() {
        let partition = trtc_partitioner::partition(graph, symbols, &target, Registry::get(), &Forced::new())
            .map_err(|_| Error::bug("a cycle after the passes"))?;
        targets.push(target_report(graph, symbols, &target, &partition, Registry::get(), &prepared.sources));
    }
    let model = ModelInfo {
        path: model.display().to_string(),
        format: "onnx".to_owned(),
        nodes: prepared.sources.len(),
    };
    Ok(Report { schema_version: 1, model, ranges: prepared.ranges, targets, timings: None })
}

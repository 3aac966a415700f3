//! `trtc inspect`: what a bundle holds.

use super::{
    args::{InspectArgs, TextFormat},
    failure::{Failure, Result},
    out::Out,
};
use serde_json::{Value, json};
use std::path::Path;
use trtc_bundle::{
    Block, Bundle, BundleError, DType, Manifest, SectionId, Segment, SegmentKind, Step, TargetPlan,
    ValueInfo, ValueKind,
};
use trtc_onnx::OnnxFile;

pub fn run(args: &InspectArgs) -> Result<()> {
    let bundle = open(&args.bundle)?;
    let mut out = Out::stdout();
    match args.format {
        TextFormat::Text => text(&bundle, &args.bundle, &mut out)?,
        TextFormat::Json => out.json(&as_json(&bundle, &args.bundle)?)?,
    }
    out.finish()
}

/// Opens a bundle.
pub fn open(path: &Path) -> Result<Bundle> {
    Bundle::open(path).map_err(|error| refused(path, &error))
}

/// Why a bundle cannot be used, naming the file.
pub fn refused(path: &Path, error: &BundleError) -> Failure {
    let (shown, text) = (path.display().to_string(), error.to_string());
    let failure = Failure::input(if text.contains(&shown) { text } else { format!("{shown}: {text}") });
    match error {
        BundleError::NotABundle => failure.help("`trtc compile MODEL` makes a bundle"),
        _ => failure,
    }
}

/// A value as text: `x f32[N x 3 x 224]`.
pub fn show_type(value: &ValueInfo) -> String {
    let dims = match &value.dims {
        None => "..".to_owned(),
        Some(dims) => dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x "),
    };
    let elements = value.elements.iter().map(|elements| {
        format!(" = [{}]", elements.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    });
    let tensor = format!("{}[{dims}]{}", value.dtype, elements.collect::<String>());
    match value.kind {
        ValueKind::Tensor => tensor,
        ValueKind::Sequence => format!("sequence of {}", value.dtype),
        ValueKind::Optional => format!("optional {}", value.dtype),
        ValueKind::OptionalSequence => format!("optional sequence of {}", value.dtype),
        _ => "map".to_owned(),
    }
}

/// A dtype with dims: `f32[1 x 3]`.
pub fn typed(dtype: DType, dims: &[usize]) -> String {
    format!("{dtype}[{}]", dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x "))
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

struct Part {
    bytes: u64,
    hash: String,
}

fn part(manifest: &Manifest, id: Option<SectionId>) -> Option<Part> {
    let section = manifest.sections.get(id?.index())?;
    Some(Part { bytes: section.len, hash: section.hash.to_string() })
}

/// The opsets that a host graph imports: `17`, `17, com.microsoft 1`.
fn opsets(bundle: &Bundle, graph: SectionId) -> Result<Vec<(String, i64)>> {
    let bytes = bundle.graph(graph).map_err(|error| refused(bundle.path(), &error))?;
    let file = OnnxFile::from_bytes(bytes, None).map_err(|error| {
        Failure::input(format!("{}: a host graph is damaged: {error}", bundle.path().display()))
    })?;
    Ok(file.opsets().into_iter().collect())
}

fn kind_name(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Engine => "engine",
        SegmentKind::Host => "host",
        _ => "constant",
    }
}

/// What has become of an engine segment.
fn status(segment: &Segment) -> &'static str {
    match segment.kind {
        SegmentKind::Engine if segment.engine.is_none() => "deferred",
        SegmentKind::Engine => "built",
        SegmentKind::Host => "host",
        _ => "constant",
    }
}

fn as_json(bundle: &Bundle, path: &Path) -> Result<Value> {
    let manifest = bundle.manifest();
    let section = |id: Option<SectionId>| {
        part(manifest, id).map(|part| json!({"bytes": part.bytes, "hash": part.hash}))
    };
    let graph = |id: Option<SectionId>| -> Result<Value> {
        let Some(section) = id.and_then(|id| section(Some(id)).map(|part| (id, part))) else {
            return Ok(Value::Null);
        };
        let (id, mut part) = section;
        let opsets: serde_json::Map<_, _> = opsets(bundle, id)?
            .into_iter()
            .map(|(domain, version)| (named(&domain), version.into()))
            .collect();
        part["opsets"] = opsets.into();
        Ok(part)
    };
    let mut targets = Vec::new();
    for plan in &manifest.targets {
        let names = |ids: &[trtc_bundle::ValueId]| -> Vec<&str> {
            ids.iter().filter_map(|id| plan.values.get(id.index())).map(|value| value.name.as_str()).collect()
        };
        let mut segments = Vec::new();
        for segment in &plan.segments {
            segments.push(json!({
                "id": segment.id,
                "kind": kind_name(segment.kind),
                "status": status(segment),
                "inputs": names(&segment.inputs),
                "outputs": names(&segment.outputs),
                "engine": section(segment.engine),
                "network": section(segment.network.as_ref().map(|network| network.section)),
                "graph": graph(segment.graph)?,
            }));
        }
        targets.push(json!({
            "target": plan.target,
            "tf32": plan.tf32,
            "values": plan.values,
            "segments": segments,
            "schedule": plan.schedule,
        }));
    }
    Ok(json!({
        "path": path.display().to_string(),
        "bytes": bundle.len_bytes(),
        "producer": manifest.producer,
        "signed": bundle.is_signed(),
        "model": manifest.model,
        "inputs": manifest.inputs,
        "outputs": manifest.outputs,
        "symbols": manifest.symbols,
        "declared": manifest.declared.as_ref().map(|declared| &declared.values),
        "pinned": manifest.pinned.iter().map(|pinned| &pinned.value).collect::<Vec<_>>(),
        "whole_model": graph(manifest.whole_model)?,
        "weights": {
            "count": manifest.weights.len(),
            "bytes": manifest.weights.iter().map(|entry| entry.len).sum::<u64>(),
        },
        "targets": targets,
    }))
}

fn named(domain: &str) -> String {
    if domain.is_empty() { "ai.onnx".to_owned() } else { domain.to_owned() }
}

fn text(bundle: &Bundle, path: &Path, out: &mut Out) -> Result<()> {
    let manifest = bundle.manifest();
    let signed = if bundle.is_signed() { ", signed" } else { "" };
    out.line(format_args!("bundle   {} ({}{signed})", path.display(), size(bundle.len_bytes())))?;
    out.line(format_args!("made by  {}", manifest.producer))?;
    out.line(format_args!(
        "model    {} ({}), hash {}",
        manifest.model.name, manifest.model.format, manifest.model.hash
    ))?;
    for (what, values) in [("input", &manifest.inputs), ("output", &manifest.outputs)] {
        for value in values {
            out.line(format_args!("{what:<8} {}  {}", value.name, show_type(value)))?;
        }
    }
    for pinned in &manifest.pinned {
        let (name, shown) = (&pinned.value.name, show_type(&pinned.value));
        out.line(format_args!("constant {name}  {shown}, an input of the model"))?;
    }
    for value in manifest.declared.iter().flat_map(|declared| &declared.values) {
        let dims: Vec<String> = value.dims.iter().map(ToString::to_string).collect();
        let (name, dims) = (&value.name, dims.join(" x "));
        out.line(format_args!("declared {name}  [{dims}], compared before each run"))?;
    }
    for symbol in &manifest.symbols {
        out.line(format_args!("range    {} = {}..{}..{}", symbol.text, symbol.min, symbol.opt, symbol.max))?;
    }
    let weights: u64 = manifest.weights.iter().map(|entry| entry.len).sum();
    out.line(format_args!(
        "weights  {} in {} blocks, shared by all targets",
        size(weights),
        manifest.weights.len()
    ))?;
    if let (Some(id), Some(part)) = (manifest.whole_model, part(manifest, manifest.whole_model)) {
        let opsets = show_opsets(&opsets(bundle, id)?);
        out.line(format_args!(
            "whole    {} as a host graph, opset {opsets}, hash {}",
            size(part.bytes),
            part.hash
        ))?;
    }
    for plan in &manifest.targets {
        target(bundle, plan, out)?;
    }
    Ok(())
}

fn show_opsets(opsets: &[(String, i64)]) -> String {
    let one = |(domain, version): &(String, i64)| match domain.as_str() {
        "" => version.to_string(),
        domain => format!("{domain} {version}"),
    };
    opsets.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn target(bundle: &Bundle, plan: &TargetPlan, out: &mut Out) -> Result<()> {
    let manifest = bundle.manifest();
    out.line(format_args!("\ntarget   {}", plan.target))?;
    if plan.tf32 {
        out.line(format_args!("tf32     products of f32 may round their operands to 10 bits of mantissa"))?;
    }
    let width = plan.segments.iter().map(|segment| segment.id.chars().count()).max().unwrap_or(0);
    // Paths of nested bodies may be longer than a line.
    let width = width.clamp(12, 48);
    out.line(format_args!(
        "  {:<width$} {:<9} {:>10}  {:<10} {}",
        "segment", "status", "bytes", "opset", "hash"
    ))?;
    for segment in &plan.segments {
        let network = segment.network.as_ref().map(|network| network.section);
        let main = part(manifest, segment.engine.or(network).filter(|_| segment.kind == SegmentKind::Engine));
        let main = main.or_else(|| part(manifest, segment.graph));
        let (bytes, hash) = main.map_or_else(Default::default, |part| (size(part.bytes), part.hash));
        let opset = match segment.graph {
            Some(graph) => show_opsets(&opsets(bundle, graph)?),
            None => "-".to_owned(),
        };
        let hash = hash.get(..16).unwrap_or(&hash);
        let (id, status) = (&segment.id, status(segment));
        out.line(format_args!("  {id:<width$} {status:<9} {bytes:>10}  {opset:<10} {hash}"))?;
        for (arrow, ids) in [("<-", &segment.inputs), ("->", &segment.outputs)] {
            for value in ids.iter().filter_map(|id| plan.values.get(id.index())) {
                out.line(format_args!("    {arrow} {}  {}", value.name, show_type(value)))?;
            }
        }
    }
    out.line(format_args!("  schedule"))?;
    steps(plan, &plan.schedule, 2, out)
}

fn steps(plan: &TargetPlan, steps: &[Step], depth: usize, out: &mut Out) -> Result<()> {
    let pad = "  ".repeat(depth);
    let value =
        |id: trtc_bundle::ValueId| plan.values.get(id.index()).map_or("?", |value| value.name.as_str());
    let block = |block: &Block, out: &mut Out| self::steps(plan, &block.steps, depth + 1, out);
    for step in steps {
        match step {
            Step::Run { segment } => {
                let id = plan.segments.get(segment.index()).map_or("?", |segment| segment.id.as_str());
                out.line(format_args!("{pad}run {id}"))?;
            }
            Step::If { condition, then_block, else_block, .. } => {
                out.line(format_args!("{pad}if {}", value(*condition)))?;
                block(then_block, out)?;
                out.line(format_args!("{pad}else"))?;
                block(else_block, out)?;
            }
            Step::Loop { trip_count, body, .. } => {
                let count = trip_count.map_or("until its condition ends it", value);
                out.line(format_args!("{pad}loop {count}"))?;
                block(body, out)?;
            }
            Step::Scan { scanned, body, .. } => {
                let parts: Vec<&str> = scanned.iter().map(|part| value(part.value)).collect();
                out.line(format_args!("{pad}scan {}", parts.join(", ")))?;
                block(body, out)?;
            }
            _ => out.line(format_args!("{pad}a step that this version does not know"))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{show_type, size, typed};
    use trtc_bundle::{DType, Dim, Element, ValueInfo, ValueKind};

    #[test]
    fn sizes_and_types_are_short() {
        assert_eq!([size(9_999), size(1_250_000), size(51_000_000)], ["9999 B", "1250.0 kB", "51.0 MB"]);
        let dims = vec![Dim::Text("N".into()), Dim::Known(3), Dim::Unknown];
        assert_eq!(show_type(&ValueInfo::tensor("x", DType::F32, Some(dims))), "f32[N x 3 x ?]");
        assert_eq!(show_type(&ValueInfo::tensor("x", DType::I64, None)), "i64[..]");
        let sizes = ValueInfo::tensor("x", DType::I64, Some(vec![Dim::Known(2)]));
        let sizes = sizes.with_elements(vec![Element::Known(-1), Element::Text("x[1]".into())]);
        assert_eq!(show_type(&sizes), "i64[2] = [-1, x[1]]");
        assert_eq!(typed(DType::I8, &[2, 3]), "i8[2 x 3]");
        assert_eq!(show_type(&ValueInfo::other("x", ValueKind::Sequence, DType::F32)), "sequence of f32");
    }
}

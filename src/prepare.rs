//! From a file to a module that is ready to be partitioned.

use crate::{
    Error, Options,
    declared::{SizeCheck, size_check},
};
use std::{
    collections::HashSet,
    io::Read,
    path::{Path, PathBuf},
};
use trtc_bundle::{Hash, MappedFile};
use trtc_converters::Registry;
use trtc_frontends::onnx::{self, LoadError, Loaded};
use trtc_ir::{
    Module, ValueId,
    passes::{self, pin::ValueSpec},
    ranges::ShapeSpec,
};
use trtc_onnx::OnnxFile;
use trtc_partitioner::{PlacementName, SourceNode};

/// An opened model.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path as given.
    pub path: PathBuf,
    /// As imported, without the inputs that always have one value.
    pub loaded: Loaded,
    /// Those inputs.
    pub pinned: Vec<ValueId>,
}

impl Source {
    /// Opens `path`; `-` is standard input, kept in memory. Inputs of [`Options::value`] become constants, or have symbols as
    /// elements, at once, so that all that is made of the model agrees on its inputs.
    pub fn open(path: &Path, options: &Options) -> Result<Source, Error> {
        let file = if path == Path::new("-") {
            read_stdin()?
        } else {
            OnnxFile::open(path).map_err(|e| bad_file(path, &e))?
        };
        let mut loaded = onnx::load_file(&file).map_err(|error| match error {
            LoadError::Invalid(diags) => Error::invalid(&path.display().to_string(), diags),
            other => bad_file(path, &other),
        })?;
        let values = options.values.iter().map(|text| ValueSpec::parse(text)).collect::<Result<Vec<_>, _>>();
        let values = values.map_err(|error| Error::input(format!("--value {error}")))?;
        let pinned = passes::pin::run(&mut loaded.module, &values)
            .map_err(|diags| Error::invalid(&path.display().to_string(), diags))?;
        Ok(Source { path: path.to_owned(), loaded, pinned })
    }

    /// File name without folders; `stdin` for standard input.
    pub fn name(&self) -> String {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.filter(|&name| name != "-").unwrap_or("stdin").to_owned()
    }

    /// Hash of the model file and its external data.
    pub fn hash(&self) -> Hash {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let files = &self.loaded.files;
        let external: Vec<(String, bytes::Bytes)> = files
            .iter()
            .skip(1)
            .map(|file| {
                let name = file.path().strip_prefix(folder).unwrap_or(file.path());
                (name.display().to_string(), file.bytes())
            })
            .collect();
        let external: Vec<(&str, bytes::Bytes)> =
            external.iter().map(|(n, b)| (n.as_str(), b.clone())).collect();
        let model = files.first().map(MappedFile::bytes).unwrap_or_default();
        Hash::of_model(&model, &external)
    }
}

fn bad_file(path: &Path, error: &dyn std::fmt::Display) -> Error {
    let (shown, text) = (path.display().to_string(), error.to_string());
    // Most file errors name the file themselves.
    Error::input(if text.contains(&shown) { text } else { format!("{shown}: {text}") })
}

fn read_stdin() -> Result<OnnxFile, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::input(format!("standard input: {error}"));
    let fd = rustix::fs::memfd_create("model", rustix::fs::MemfdFlags::CLOEXEC).map_err(|e| failed(&e))?;
    let mut file = std::fs::File::from(fd);
    std::io::copy(&mut std::io::stdin().lock().take(u64::MAX), &mut file).map_err(|e| failed(&e))?;
    let mapped = MappedFile::from_file(file, "-").map_err(|e| failed(&e))?;
    let folder = std::env::current_dir().map_err(|e| failed(&e))?;
    OnnxFile::from_mapped(mapped, Some(folder)).map_err(|e| failed(&e))
}

/// A module after inference, ranges and passes.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The module.
    pub module: Module,
    /// Source nodes, with what became of those that the passes took away.
    pub sources: Vec<SourceNode>,
    /// Ranges of symbols, a line each.
    pub ranges: Vec<String>,
    /// Sizes that a run has to check.
    pub sizes: Option<SizeCheck>,
}

/// Infers, sets ranges, runs the passes.
pub(crate) fn prepare(source: &Source, options: &Options) -> Result<Prepared, Error> {
    let invalid = |diags| Error::invalid(&source.path.display().to_string(), diags);
    let mut before = source.loaded.module.clone();
    if options.allow_f64_as_f32 {
        passes::narrow::run(&mut before);
    }
    let shapes = options.shapes.iter().map(|text| ShapeSpec::parse(text)).collect::<Result<Vec<_>, _>>();
    let shapes = shapes.map_err(|error| Error::input(format!("--shape {error}")))?;
    let passed = |before: &Module| {
        let mut module = before.clone();
        let report = passes::prepare(&mut module, &shapes, Registry::get()).map_err(invalid)?;
        Ok::<_, Error>((module, report))
    };
    let (mut module, mut report) = passed(&before)?;
    let sizes = match size_check(&before, &module) {
        Ok(sizes) => sizes,
        Err(()) => {
            // Declarations that no run can check are not believed.
            before.distrusts = true;
            (module, report) = passed(&before)?;
            None
        }
    };
    passes::names::run(&mut module);
    let folded: HashSet<&str> = report.ledger.folded.iter().map(|gone| gone.node.as_str()).collect();
    let otherwise = |nodes: &[String]| match nodes.is_empty()
        || nodes.iter().any(|node| folded.contains(node.as_str()))
    {
        true => PlacementName::Folded,
        false => PlacementName::Removed,
    };
    let sources = source.loaded.sources.iter().map(|node| SourceNode {
        name: node.name.clone(),
        op: node.op.clone(),
        otherwise: otherwise(&node.nodes),
        nodes: node.nodes.clone(),
    });
    Ok(Prepared { module, sources: sources.collect(), ranges: report.ranges.lines(), sizes })
}

//! ONNX messages to IR. What is wrong is collected, each with the node and field that it is about.

mod attrs;
mod check;
mod constant;
mod function;
mod graph;
mod node;
mod order;
mod types;

use crate::onnx::draft::Level;
use attrs::Bound;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    rc::Rc,
};
use trtc_ir::{Diag, Module, Symbols, ValueId};
use trtc_onnx::{FunctionProto, OnnxFile, schema};

/// A model as IR.
#[derive(Debug)]
pub struct Imported {
    /// The model.
    pub module: Module,
    /// What became of each node of the model, in the order of the file, nested ones after the node around them. Calls of local
    /// functions are not among them; the nodes of the function are, once for each call.
    pub sources: Vec<Source>,
}

/// What became of one node of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Path: the node's name, after `node/attribute/` of each subgraph around it. Unique.
    pub name: String,
    /// Operator, as the model writes it.
    pub op: String,
    /// Paths of the nodes of the IR that stand for it, the one that does the work first; none for a constant.
    pub nodes: Vec<String>,
}

/// Reads a model: values, constants (in place in the file, nothing is copied), subgraphs; local functions are inlined and every
/// node is brought to the canonical version of its operator.
///
/// # Errors
/// Everything that is wrong with the model.
pub fn import(file: &OnnxFile) -> Result<Imported, Vec<Diag>> {
    let mut importer = Importer {
        file,
        symbols: Symbols::default(),
        diags: Vec::new(),
        sources: Vec::new(),
        functions: HashMap::new(),
        calls: Vec::new(),
        levels: Vec::new(),
        frames: Vec::new(),
        unversioned: HashSet::new(),
        nodes: 0,
        halted: false,
    };
    let opsets = importer.imports(&file.model.opset_import, "");
    importer.collect_functions();
    let model = &file.model;
    let graph = match &model.graph {
        Some(graph) if importer.diags.is_empty() => importer.model_graph(graph, opsets.clone()),
        Some(_) => return Err(importer.diags),
        None => return Err(vec![Diag::invalid("the model has no graph")]),
    };
    if !importer.diags.is_empty() {
        return Err(importer.diags);
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let entries = [
        ("producer", text(&model.producer_name)),
        ("producer_version", text(&model.producer_version)),
        ("ir_version", model.ir_version.map(|version| version.to_string()).unwrap_or_default()),
        ("model_version", model.model_version.map(|version| version.to_string()).unwrap_or_default()),
        ("domain", text(&model.domain)),
    ];
    let module = Module {
        graph,
        symbols: importer.symbols,
        opsets: opsets.iter().map(|(domain, version)| (domain.clone(), *version)).collect(),
        metadata: model.metadata_props.iter().map(|entry| (text(&entry.key), text(&entry.value))).collect(),
        origin: entries
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        ..Module::default()
    };
    Ok(Imported { module, sources: importer.sources })
}

/// Versions of operator sets by domain.
type Imports = Rc<BTreeMap<String, u32>>;

struct Importer<'a> {
    file: &'a OnnxFile,
    symbols: Symbols,
    diags: Vec<Diag>,
    sources: Vec<Source>,
    /// By domain, name, overload.
    functions: HashMap<(&'a str, &'a str, &'a str), &'a FunctionProto>,
    /// Functions that are being inlined, outermost first.
    calls: Vec<&'a FunctionProto>,
    /// Graphs under construction, outermost first.
    levels: Vec<Level>,
    /// Scopes of names, outermost first.
    frames: Vec<Frame<'a>>,
    /// Domains whose missing import has been reported.
    unversioned: HashSet<String>,
    /// Nodes made so far, to stop functions that call each other without bound.
    nodes: usize,
    /// A function was called beyond a limit: nothing more is read.
    halted: bool,
}

/// A scope of names: a graph, or one call of a function.
struct Frame<'a> {
    /// The graph that its values are in.
    level: usize,
    /// Values by name; `None` for an input that the call of a function omits.
    values: HashMap<&'a str, Option<ValueId>>,
    /// A function does not see names around its call.
    closed: bool,
    /// What stands before names of a function's nodes and values.
    prefix: String,
    opsets: Imports,
    bound: Bound<'a>,
}

/// More diagnostics than these help nobody.
const DIAG_LIMIT: usize = 100;

impl<'a> Importer<'a> {
    fn report(&mut self, diag: Diag) {
        if self.diags.len() < DIAG_LIMIT {
            self.diags.push(diag);
        }
    }

    /// Checks and collects imports of operator sets; `whose` is empty for the model's.
    fn imports(&mut self, entries: &[trtc_onnx::OperatorSetIdProto], whose: &str) -> Imports {
        let mut imports = BTreeMap::new();
        let whose = if whose.is_empty() { "the model".to_owned() } else { format!("function `{whose}`") };
        for (domain, version) in trtc_onnx::opsets(entries) {
            let shown = if domain.is_empty() { "ai.onnx" } else { &domain };
            match u32::try_from(version) {
                Ok(version) if domain.is_empty() && version > schema::MAX_OPSET => {
                    let mut diag = Diag::invalid(format!(
                        "{whose} imports opset {version} of ai.onnx, which is newer than the newest known one, {}",
                        schema::MAX_OPSET
                    ));
                    diag.help = Some(format!("export the model at opset {} or older", schema::MAX_OPSET));
                    self.report(diag);
                }
                Ok(version @ 1..) => drop(imports.insert(domain, version)),
                _ => self.report(Diag::invalid(format!(
                    "{whose} imports version {version} of {shown}; versions start at 1"
                ))),
            }
        }
        Rc::new(imports)
    }

    /// The graph under construction.
    fn level(&mut self) -> &mut Level {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    /// The value that a name stands for here: captured through all graphs in between when it comes from outside. `Some(None)` is an
    /// input that the call of a function omits, `None` a name that nothing makes.
    fn resolve(&mut self, name: &str) -> Option<Option<ValueId>> {
        for at in (0..self.frames.len()).rev() {
            let frame = &self.frames[at];
            if let Some(&found) = frame.values.get(name) {
                let level = frame.level;
                return Some(found.map(|id| self.capture(level, id)));
            }
            if frame.closed {
                break;
            }
        }
        None
    }

    fn capture(&mut self, level: usize, mut id: ValueId) -> ValueId {
        for at in level + 1..self.levels.len() {
            let (outer, inner) = self.levels.split_at_mut(at);
            let (Some(outer), Some(inner)) = (outer.last(), inner.first_mut()) else { continue };
            if let Some(known) = inner.graph.captures.iter().find(|capture| capture.outer == id) {
                id = known.inner;
                continue;
            }
            let value = &outer.graph[id];
            let name = inner.value_names.unique(&value.name);
            let captured = inner.graph.add_capture(id, &name, value.ty.clone());
            inner.graph[captured].constant = value.constant.clone();
            inner.graph[captured].elements = value.elements.clone();
            inner.facts.learn_from(captured, outer.facts.rank(id), outer.facts.dtype(id));
            id = captured;
        }
        id
    }
}

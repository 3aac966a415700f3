//! Ranges of the symbols in the model's inputs: what the user says, what the model allows, documented defaults.
//!
//! Every open dim gets min, opt and max so that all three keep every dim of the model valid, jointly over all symbols:
//!
//! * **min** is the smallest value for which everything that the nodes demand holds (at least 1): `32` for a network that
//!   halves five times and adds, `48` where a later reshape needs just that.
//! * **opt** and **max** are the valid values nearest to a default by role:
//!
//! | role of the symbol | how it is told | opt | max |
//! |---|---|---|---|
//! | batch | first axis of every input of rank ≥ 2 that has it, or named so | 1 | 8 |
//! | sequence | its name (`seq`, `len`, `token`, `past`, …), or axis 1 of integers of rank 2 | 128 | 512 |
//! | spatial | axis ≥ 2 (or 1, channels last) of an input of rank ≥ 4 | 640 | 1024 |
//! | other | | 256 | 4096 |
//!
//! The defaults shrink where a value of the model would have more than 2²⁸ elements. Two symbols that the model needs to be
//! equal become one, two that broadcast stay two and are equal at opt and max; a symbol with a single valid value becomes that number. What a user asks for and the model cannot
//! do is an error; a default never is.

mod roles;
mod search;
mod solve;
mod spec;
mod ties;

use crate::{
    diag::Diag,
    dim::{Dim, Interval, Symbol},
    graph::{Graph, Module},
    infer::{Constraint, ConstraintKind, Rules},
    passes,
    types::Type,
};
use std::{collections::HashMap, fmt};

pub use spec::{DimSpec, ShapeSpec, SpecError};
pub(crate) use spec::{range, span};

/// Where a range comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user gave it.
    User,
    /// The model file has it.
    Model,
    /// What the nodes demand decides it, at least in part.
    Derived,
    /// The documented default of its role.
    Default,
}

/// What a symbol of the inputs became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// One number; the symbol is gone from the module.
    Fixed(i64),
    /// The same as another symbol; the symbol is gone from the module.
    SameAs(String),
    /// A range of which every `step`-th value is valid, as far as one symbol alone can tell.
    Range {
        /// Smallest value.
        min: i64,
        /// Value that engines are tuned for.
        opt: i64,
        /// Largest value.
        max: i64,
        /// Distance between valid values; 1 where all are valid or they are not evenly spaced.
        step: i64,
    },
}

/// A symbol and what it became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolRange {
    /// Name of the symbol.
    pub name: String,
    /// What it became.
    pub outcome: Outcome,
    /// Where that comes from.
    pub source: Source,
}

/// What became of every symbol of the inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeReport {
    /// One entry a symbol, in the order in which the inputs mention them.
    pub symbols: Vec<SymbolRange>,
    /// Demands of nodes that no sizes meet; they are left to the run.
    pub unmet: Vec<String>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::User => "user",
            Source::Model => "model",
            Source::Derived => "derived",
            Source::Default => "default",
        })
    }
}

impl fmt::Display for SymbolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SymbolRange { name, outcome, source } = self;
        match outcome {
            Outcome::Fixed(value) => write!(f, "{name} = {value} ({source})"),
            Outcome::SameAs(other) => write!(f, "{name} = {other} ({source})"),
            Outcome::Range { min, opt, max, step: 1 } => write!(f, "{name}: {min}..{opt}..{max} ({source})"),
            Outcome::Range { min, opt, max, step } => {
                write!(f, "{name}: {min}..{opt}..{max} step {step} ({source})")
            }
        }
    }
}

impl RangeReport {
    /// One line a symbol (`x.2: 32..640..1024 step 32 (derived)`), then one a demand that nothing meets.
    pub fn lines(&self) -> Vec<String> {
        let unmet = self.unmet.iter().map(|why| format!("not met by any size: {why}"));
        self.symbols.iter().map(SymbolRange::to_string).chain(unmet).collect()
    }
}

/// What the user asked for, after [`apply`].
#[derive(Clone, Debug, Default)]
pub struct Asked {
    ranges: HashMap<Symbol, (i64, Option<i64>, i64)>,
    fixed: Vec<(Symbol, String, i64)>,
    demands: Vec<Constraint>,
}

/// Puts the user's shapes into the module: sizes replace symbols everywhere, ranges are set. Dims of inputs that nothing
/// is known of become symbols (`x.2`). Inference has to run (again) afterwards.
///
/// # Errors
/// A name that is no input and no symbol, another rank, a size that differs from the model's.
pub fn apply(module: &mut Module, specs: &[ShapeSpec]) -> Result<Asked, Vec<Diag>> {
    name_open_dims(module);
    let mut asked = Asked::default();
    let mut diags = Vec::new();
    let mut fixed: HashMap<Symbol, i64> = HashMap::new();
    for spec in specs {
        let targets = match targets(module, spec) {
            Ok(targets) => targets,
            Err(diag) => {
                diags.push(diag);
                continue;
            }
        };
        for (place, dim, &wanted) in targets.iter().zip(&spec.dims).map(|((p, d), w)| (p, d, w)) {
            if let Err(why) = want(&mut asked, &mut fixed, dim, wanted, place) {
                diags.push(Diag::invalid(format!("{place}: {why}")));
            }
        }
    }
    if !diags.is_empty() {
        return Err(diags);
    }
    for (symbol, info) in module.symbols.iter() {
        if let Some(range) = info.asked {
            asked.ranges.insert(symbol, range);
        }
    }
    for (&symbol, &(min, _, max)) in &asked.ranges {
        if fixed.get(&symbol).is_some_and(|&value| value < min || value > max) {
            let name = module.symbols.name(symbol);
            return Err(vec![Diag::invalid(format!("{name} is given a size outside its own range"))]);
        }
        module.symbols.set_range(symbol, Interval::new(min, max));
    }
    let mut order: Vec<(Symbol, i64)> = fixed.into_iter().collect();
    order.sort_unstable();
    asked.fixed = order.iter().map(|&(s, value)| (s, module.symbols.name(s), value)).collect();
    asked.ranges.retain(|symbol, _| !order.iter().any(|(fixed, _)| fixed == symbol));
    let map = order.into_iter().map(|(symbol, value)| (symbol, Dim::Known(value))).collect();
    substitute(module, &map);
    // An engine takes no empty tensors: sizes start at 1.
    for symbol in input_symbols(module) {
        let range = module.symbols.range(symbol);
        // Unless the user says that the element of a value may be 0.
        if range.min.is_none_or(|min| min < 1) && !asked.ranges.contains_key(&symbol) {
            module.symbols.set_range(symbol, Interval { min: Some(1), max: range.max });
        }
    }
    Ok(asked)
}

/// Gives every symbol of the inputs its range, over what inference found that the nodes demand. Symbols that turn out to
/// be a number or equal to another are replaced everywhere; inference has to run again then.
///
/// # Errors
/// The user's sizes break what a node demands.
pub fn derive(
    module: &mut Module,
    asked: &Asked,
    constraints: &[Constraint],
) -> Result<RangeReport, Vec<Diag>> {
    let mentioned = input_symbols(module);
    let all: Vec<Symbol> = module.symbols.iter().map(|(symbol, _)| symbol).collect();
    for symbol in all {
        if !mentioned.contains(&symbol) {
            module.symbols.set_unbacked(symbol);
        }
    }
    let mut report = RangeReport::default();
    for (_, name, value) in &asked.fixed {
        let outcome = Outcome::Fixed(*value);
        report.symbols.push(SymbolRange { name: name.clone(), outcome, source: Source::User });
    }
    let solution = solve::solve(module, &mentioned, asked, constraints)?;
    let mut map = HashMap::new();
    for (symbol, found) in solution.symbols {
        let name = module.symbols.name(symbol);
        match &found.outcome {
            Outcome::Fixed(value) => {
                map.insert(symbol, Dim::Known(*value));
            }
            Outcome::SameAs(other) => {
                if let Some(other) = module.symbols.find(other) {
                    map.insert(symbol, Dim::symbol(other));
                }
            }
            Outcome::Range { min, opt, max, .. } => {
                module.symbols.set_range(symbol, Interval::new(*min, *max));
                module.symbols.set_opt(symbol, *opt);
            }
        }
        report.symbols.push(SymbolRange { name, ..found });
    }
    // `a = b` and `b = 48` in one go: names of numbers first.
    let resolved: HashMap<Symbol, Dim> = map
        .iter()
        .map(|(&s, dim)| (s, dim.substitute(&|t| map.get(&t).cloned().unwrap_or(Dim::symbol(t)))))
        .collect();
    substitute(module, &resolved);
    report.unmet = solution.unmet;
    Ok(report)
}

/// [`apply`], inference (on a copy, with folding, so that what a node demands is as exact as it gets), [`derive()`].
///
/// # Errors
/// What the user's shapes or the model get wrong.
pub fn resolve(
    module: &mut Module,
    specs: &[ShapeSpec],
    rules: &dyn Rules,
) -> Result<RangeReport, Vec<Diag>> {
    let asked = apply(module, specs)?;
    let mut copy = module.clone();
    let constraints = passes::run_all(&mut copy, rules)?.constraints;
    derive(module, &asked, &constraints)
}

/// Gives a symbol to each dim of an input that nothing is known of.
fn name_open_dims(module: &mut Module) {
    for input in module.graph.inputs().to_vec() {
        let name = module.graph[input].name.clone();
        if let Type::Tensor(tensor) = &mut module.graph[input].ty {
            for (axis, dim) in tensor.shape.iter_mut().flatten().enumerate() {
                if *dim == Dim::Unknown {
                    let range = Interval { min: Some(1), max: None };
                    *dim = Dim::symbol(module.symbols.fresh(&format!("{name}.{axis}"), range, false));
                }
            }
        }
    }
}

/// The dims that a spec speaks of, each with a name for messages.
fn targets(module: &mut Module, spec: &ShapeSpec) -> Result<Vec<(String, Dim)>, Diag> {
    let found = module.graph.inputs().iter().copied().find(|&id| *module.graph[id].name == *spec.name);
    let Some(input) = found else {
        if let (Some(symbol), 1) = (module.symbols.find(&spec.name), spec.dims.len()) {
            return Ok(vec![(spec.name.clone(), Dim::symbol(symbol))]);
        }
        let names: Vec<&str> = module.graph.inputs().iter().map(|&id| &*module.graph[id].name).collect();
        return Err(Diag::invalid(format!(
            "--shape {spec}: no input and no dim has this name; the inputs are {}",
            names.join(", ")
        )));
    };
    let rank = spec.dims.len();
    if module.graph[input].ty.shape().is_none() {
        let range = Interval { min: Some(1), max: None };
        let dims: Vec<Dim> = (0..rank)
            .map(|axis| Dim::symbol(module.symbols.fresh(&format!("{}.{axis}", spec.name), range, false)))
            .collect();
        match &mut module.graph[input].ty {
            Type::Tensor(tensor) => tensor.shape = Some(dims),
            _ => return Err(Diag::invalid(format!("--shape {spec}: the input is no tensor"))),
        }
    }
    let shape = module.graph[input].ty.shape().unwrap_or_default();
    if shape.len() != rank {
        return Err(Diag::invalid(format!("--shape {spec}: the input has rank {}", shape.len())));
    }
    let place = |axis: usize| format!("--shape {spec}, axis {axis}");
    Ok(shape.iter().enumerate().map(|(axis, dim)| (place(axis), dim.clone())).collect())
}

fn want(
    asked: &mut Asked,
    fixed: &mut HashMap<Symbol, i64>,
    dim: &Dim,
    wanted: DimSpec,
    place: &str,
) -> Result<(), String> {
    match (dim, wanted) {
        (_, DimSpec::Open) => Ok(()),
        (Dim::Known(model), DimSpec::Fixed(value)) if *model == value => Ok(()),
        (Dim::Known(model), _) => Err(format!("{wanted} is asked for, but the model has {model} there")),
        (dim, DimSpec::Fixed(value)) => match dim.as_symbol() {
            Some(symbol) => match fixed.insert(symbol, value) {
                Some(other) if other != value => Err(format!("{value} is asked for, and {other} elsewhere")),
                _ => Ok(()),
            },
            None => {
                let kind = ConstraintKind::Equal(dim.clone(), Dim::Known(value));
                asked.demands.push(Constraint { node: place.to_owned(), kind });
                Ok(())
            }
        },
        (dim, DimSpec::Range { min, opt, max }) => {
            let symbol =
                dim.as_symbol().ok_or("a range is asked for, but the dim is computed from another")?;
            match asked.ranges.insert(symbol, (min, opt, max)) {
                Some(other) if other != (min, opt, max) => {
                    Err("a range is asked for, and another one elsewhere".to_owned())
                }
                _ => Ok(()),
            }
        }
    }
}

/// Symbols that dims and elements of the inputs mention, in the order in which they do.
fn input_symbols(module: &Module) -> Vec<Symbol> {
    let mut list = Vec::new();
    for &input in module.graph.inputs() {
        for dim in module.graph[input].sizes() {
            dim.for_each_symbol(&mut |symbol| {
                if !list.contains(&symbol) {
                    list.push(symbol);
                }
            });
        }
    }
    list
}

/// Replaces symbols in every type and small value of the module.
fn substitute(module: &mut Module, map: &HashMap<Symbol, Dim>) {
    if !map.is_empty() {
        substitute_graph(&mut module.graph, &|symbol| {
            map.get(&symbol).cloned().unwrap_or_else(|| Dim::symbol(symbol))
        });
    }
}

fn substitute_graph(graph: &mut Graph, f: &dyn Fn(Symbol) -> Dim) {
    for id in graph.value_ids() {
        let value = &mut graph[id];
        substitute_type(&mut value.ty, f);
        for dim in value.elements.iter_mut().flatten() {
            *dim = dim.substitute(f);
        }
    }
    for id in graph.node_ids().collect::<Vec<_>>() {
        if let Some(node) = graph.node_mut(id) {
            node.attrs.graphs_mut().for_each(|(_, body)| substitute_graph(body, f));
        }
    }
}

fn substitute_type(ty: &mut Type, f: &dyn Fn(Symbol) -> Dim) {
    match ty {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => {
            for dim in tensor.shape.iter_mut().flatten() {
                *dim = dim.substitute(f);
            }
        }
        Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => substitute_type(inner, f),
        Type::Unknown => {}
    }
}

#[cfg(test)]
mod tests;

//! Sizes that meet what the nodes demand: alone by trying every value, jointly by a bounded search.

use super::{Asked, Outcome, Source, SymbolRange, roles, ties::Merged};
use crate::{
    diag::Diag,
    dim::{Dim, Interval, Symbol},
    graph::{Graph, Module},
    infer::{Constraint, ConstraintKind},
    symbols::Symbols,
};
use std::collections::{HashMap, HashSet};

/// Values that are tried for one symbol, unless the user or the model allow more.
const LIMIT: i64 = 4096;
/// Values that are tried where none up to [`LIMIT`] is valid.
const FAR_LIMIT: i64 = 1 << 16;
/// Elements of the largest value that the defaults may lead to.
const LARGEST: i128 = 1 << 28;

/// Symbols with what is known of each, and what has to hold.
pub(super) struct Problem {
    pub(super) vars: Vec<Var>,
    pub(super) demands: Vec<Demand>,
    /// Symbols that are the same as another.
    merged: Vec<(Symbol, Symbol)>,
}

pub(super) struct Var {
    pub(super) symbol: Symbol,
    /// The user's range.
    pub(super) asked: Option<(i64, Option<i64>, i64)>,
    /// The model's range.
    model: Interval,
    opt: i64,
    max: i64,
    /// Meant to be equal to another symbol.
    tied: bool,
    /// Valid values on their own, ascending.
    pub(super) valid: Vec<i64>,
}

pub(super) struct Demand {
    text: String,
    node: String,
    pub(super) kind: ConstraintKind,
    /// The weaker form of a broadcast that is taken as an equality at first.
    relaxed: Option<ConstraintKind>,
    pub(super) vars: Vec<usize>,
    /// May be given up when nothing meets it.
    soft: bool,
}

pub(super) struct Solution {
    pub symbols: Vec<(Symbol, SymbolRange)>,
    pub unmet: Vec<String>,
}

/// Smallest, best and largest size of each symbol.
struct Points {
    min: Vec<i64>,
    opt: Vec<i64>,
    max: Vec<i64>,
}

/// Sizes of the symbols that the inputs mention.
pub(super) fn solve(
    module: &Module,
    mentioned: &[Symbol],
    asked: &Asked,
    constraints: &[Constraint],
) -> Result<Solution, Vec<Diag>> {
    let same = Merged::equal(mentioned, constraints);
    // A dim that is 1 by itself or by the user's will broadcasts with any.
    let is_one = |symbol: &Symbol| {
        let own = module.symbols.range(*symbol).max == Some(1);
        own || asked.ranges.get(symbol).is_some_and(|&(.., max)| max == 1)
    };
    let open: Vec<Symbol> = mentioned.iter().copied().filter(|symbol| !is_one(symbol)).collect();
    let tied = same.tied(&open, constraints);
    let problem = |merged: &Merged| Problem::new(module, mentioned, asked, constraints, merged);
    let mut own = problem(&same);
    for var in &mut own.vars {
        let mut mates = mentioned.iter().filter(|&&mate| tied.root(mate) == tied.root(var.symbol));
        var.tied = mates.any(|&mate| same.root(mate) != var.symbol);
    }
    own.solve(module, (tied != same).then(|| (problem(&tied), &tied)))
}

impl Problem {
    /// Symbols that are the same in `merged` are one.
    fn new(
        module: &Module,
        mentioned: &[Symbol],
        asked: &Asked,
        constraints: &[Constraint],
        merged: &Merged,
    ) -> Problem {
        let kept: Vec<Symbol> = mentioned.iter().copied().filter(|&s| merged.root(s) == s).collect();
        let index: HashMap<Symbol, usize> = kept.iter().enumerate().map(|(k, &s)| (s, k)).collect();
        let vars = kept
            .iter()
            .map(|&symbol| {
                let mates = || mentioned.iter().filter(|&&s| merged.root(s) == symbol);
                // The smallest default is that of the symbol of which most is known.
                let defaults = mates().map(|&mate| roles::defaults(module, mate)).min_by_key(|d| d.max);
                let defaults = defaults.unwrap_or_else(|| roles::defaults(module, symbol));
                let asked = mates().filter_map(|mate| asked.ranges.get(mate)).copied().reduce(narrower);
                let mut model = module.symbols.range(symbol);
                // "Up to 2^63" says nothing.
                model.max = model.max.filter(|&max| max <= FAR_LIMIT);
                let (opt, max) = (defaults.opt, defaults.max);
                Var { symbol, asked, model, opt, max, tied: false, valid: Vec::new() }
            })
            .collect();
        let mut problem = Problem {
            vars,
            demands: Vec::new(),
            merged: mentioned
                .iter()
                .map(|&s| (s, merged.root(s)))
                .filter(|(symbol, root)| symbol != root)
                .collect(),
        };
        let mut seen = HashSet::new();
        let branches: HashSet<&str> = constraints.iter().flat_map(|c| enclosing(&c.node)).collect();
        let hard = asked.demands.iter().map(|c| (c, false));
        for (constraint, soft) in hard.chain(constraints.iter().map(|c| (c, true))) {
            // Where the other branch demands nothing, the run may go there instead: `squeeze if the dim is 1`. A lower
            // bound is kept all the same, so that the branch can be built.
            let is_avoidable = || enclosing(&constraint.node).any(|b| !branches.contains(&*sibling(b)));
            if !matches!(constraint.kind, ConstraintKind::AtLeast(..)) && is_avoidable() {
                continue;
            }
            let kind = renamed(&constraint.kind, merged);
            problem.demand(&module.symbols, &index, &mut seen, &constraint.node, kind, soft);
        }
        // No value may be empty.
        let mut dims = HashSet::new();
        symbolic_dims(&module.graph, &mut dims);
        let mut dims: Vec<(String, Dim)> =
            dims.iter().map(|dim| (module.symbols.show(dim), rename(dim, merged))).collect();
        dims.sort_by(|a, b| a.0.cmp(&b.0));
        for (_, dim) in dims {
            problem.demand(&module.symbols, &index, &mut seen, "", ConstraintKind::AtLeast(dim, 1), true);
        }
        problem
    }

    fn demand(
        &mut self,
        symbols: &Symbols,
        index: &HashMap<Symbol, usize>,
        seen: &mut HashSet<ConstraintKind>,
        node: &str,
        kind: ConstraintKind,
        soft: bool,
    ) {
        if !seen.insert(kind.clone()) {
            return;
        }
        let mut vars = Vec::new();
        let mut foreign = false;
        each_dim(&kind, &mut |dim| {
            foreign |= *dim == Dim::Unknown;
            dim.for_each_symbol(&mut |symbol| match index.get(&symbol) {
                Some(&var) if !vars.contains(&var) => vars.push(var),
                Some(_) => {}
                None => foreign = true,
            });
        });
        if foreign || vars.is_empty() || always(&kind, symbols) {
            return;
        }
        vars.sort_unstable();
        let text = show(&kind, symbols);
        // Sizes that differ because one of them happens to be 1 are hardly ever meant: a pyramid of 1 x 1 pixels adds up.
        let (kind, relaxed) = match kind {
            ConstraintKind::Broadcast(a @ Dim::Expr(_), b @ Dim::Expr(_)) => {
                (ConstraintKind::Equal(a.clone(), b.clone()), Some(ConstraintKind::Broadcast(a, b)))
            }
            kind => (kind, None),
        };
        self.demands.push(Demand { text, node: node.to_owned(), kind, relaxed, vars, soft });
    }

    /// Values of each symbol alone, and the demands on several that can be met; what cannot is told.
    fn settle(&mut self, module: &Module, unmet: &mut Vec<String>) -> Result<Vec<usize>, Vec<Diag>> {
        let mut diags = Vec::new();
        for var in 0..self.vars.len() {
            if !self.has_values(var) {
                self.relax(|demand| demand.vars == [var]);
            }
            self.alone(var, unmet, &mut diags, &module.symbols);
        }
        if !diags.is_empty() {
            return Err(diags);
        }
        let joint: Vec<usize> = (0..self.demands.len()).filter(|&d| self.demands[d].vars.len() > 1).collect();
        // What can only be 1 broadcasts with any size.
        let ones: Vec<usize> = (0..self.vars.len()).filter(|&k| self.vars[k].valid == [1]).collect();
        self.relax(|demand| demand.vars.len() > 1 && demand.vars.iter().any(|var| ones.contains(var)));
        if self.search(&joint, &|_, value| Some(value), &[]).is_none() {
            self.relax(|demand| demand.vars.len() > 1);
        }
        let joint = self.satisfiable(joint, unmet, &mut diags);
        if diags.is_empty() { Ok(joint) } else { Err(diags) }
    }

    /// [`Problem::points`] that lead to no huge values.
    fn moderate_points(&mut self, module: &Module, joint: &[usize]) -> Points {
        let mut points = self.points(joint);
        for _ in 0..24 {
            let Some(worst) = self.too_large(module, &points.max) else { break };
            self.vars[worst].max /= 2;
            self.vars[worst].opt = self.vars[worst].opt.min(self.vars[worst].max);
            points = self.points(joint);
        }
        points
    }

    /// Sizes of every symbol. `tied` is the same problem with the symbols that are meant to be equal as one.
    fn solve(mut self, module: &Module, tied: Option<(Problem, &Merged)>) -> Result<Solution, Vec<Diag>> {
        let mut unmet = Vec::new();
        let mut diags = Vec::new();
        let joint = self.settle(module, &mut unmet)?;
        let points = match tied.and_then(|(tied, merged)| self.equal_points(module, &joint, tied, merged)) {
            Some(points) => points,
            None => self.moderate_points(module, &joint),
        };
        for (k, var) in self.vars.iter().enumerate() {
            if let Some((min, opt, max)) = var.asked
                && (points.min[k] != min
                    || points.max[k] != max
                    || opt.is_some_and(|opt| opt != points.opt[k]))
            {
                let name = module.symbols.name(var.symbol);
                let why = joint.iter().find(|&&d| self.demands[d].vars.contains(&k));
                let why = why.map_or(String::new(), |&d| self.demands[d].describe());
                let asked = opt.map_or(format!("{min}..{max}"), |opt| format!("{min}..{opt}..{max}"));
                diags.push(Diag::invalid(format!(
                    "{name} = {asked} is asked for, but with the ranges of the other dims {why}"
                )));
            }
        }
        if diags.is_empty() { Ok(self.solution(module, points, unmet)) } else { Err(diags) }
    }

    /// Lets broadcasts be broadcasts.
    fn relax(&mut self, which: impl Fn(&Demand) -> bool) {
        for demand in self.demands.iter_mut().filter(|demand| which(demand)) {
            if let Some(kind) = demand.relaxed.take() {
                demand.kind = kind;
            }
        }
    }

    /// Whether the demands on a symbol alone leave it a value, and the user's numbers.
    fn has_values(&self, at: usize) -> bool {
        let fits = |value: i64| {
            let mut own = self.demands.iter().filter(|demand| demand.vars == [at]);
            own.all(|demand| holds(&demand.kind, &|_| Some(value)))
        };
        match self.vars[at].asked {
            Some((min, opt, max)) => [min, max].into_iter().chain(opt).all(fits),
            None => {
                let model = self.vars[at].model;
                (model.min.unwrap_or(1).max(1)..=model.max.unwrap_or(LIMIT)).take(LIMIT as usize).any(fits)
            }
        }
    }

    /// Values that meet every demand on one symbol alone.
    fn alone(&mut self, at: usize, unmet: &mut Vec<String>, diags: &mut Vec<Diag>, symbols: &Symbols) {
        let own: Vec<usize> = (0..self.demands.len()).filter(|&d| self.demands[d].vars == [at]).collect();
        let var = &self.vars[at];
        let (low, high) = match var.asked {
            Some((min, _, max)) => (min, max),
            None => {
                let low = var.model.min.unwrap_or(1).max(1);
                (low, var.model.max.unwrap_or(LIMIT.max(low.saturating_mul(4))).max(low))
            }
        };
        let valid = |demands: &[usize], high: i64| -> Vec<i64> {
            let near = high.min(low.saturating_add(FAR_LIMIT));
            // Of what lies farther only what the user names.
            let far = var.asked.into_iter().flat_map(|(_, opt, max)| opt.into_iter().chain([max]));
            let mut values: Vec<i64> = (low..=near).chain(far.filter(|&value| value > near)).collect();
            values.dedup();
            for &d in demands {
                let kind = &self.demands[d].kind;
                values.retain(|&value| holds(kind, &|_| Some(value)));
            }
            values
        };
        let bounded = var.asked.is_some() || var.model.max.is_some();
        let mut found = valid(&own, high);
        if found.is_empty() && !bounded {
            found = valid(&own, FAR_LIMIT);
        }
        if let Some((min, opt, max)) = var.asked {
            // The user's own numbers have to be valid.
            let broken = [min, max].into_iter().chain(opt).find(|value| found.binary_search(value).is_err());
            if let Some(value) = broken {
                let demand = own.iter().find(|&&d| !holds(&self.demands[d].kind, &|_| Some(value)));
                let why = demand.map_or(String::new(), |&d| self.demands[d].describe());
                let name = symbols.name(var.symbol);
                let near = nearest(&found, value).map_or(String::new(), |v| format!("; {v} would do"));
                diags.push(Diag::invalid(format!("{name} = {value} is asked for, but {why}{near}")));
                return;
            }
        }
        if found.is_empty() {
            // What no size meets is given up, what the nodes say last: it is rather our view of them that is wrong.
            let mut kept: Vec<usize> = Vec::new();
            let mut order = own.clone();
            order.sort_by_key(|&d| (self.demands[d].soft, self.demands[d].node.is_empty()));
            for d in order {
                kept.push(d);
                let trial = valid(&kept, if bounded { high } else { FAR_LIMIT });
                if trial.is_empty() {
                    kept.pop();
                    let describe = self.demands[d].describe();
                    if self.demands[d].soft {
                        unmet.push(describe)
                    } else {
                        diags.push(Diag::invalid(describe))
                    }
                }
            }
            found = valid(&kept, high);
        }
        self.vars[at].valid = found;
    }

    /// Drops joint demands that nothing meets.
    fn satisfiable(&self, joint: Vec<usize>, unmet: &mut Vec<String>, diags: &mut Vec<Diag>) -> Vec<usize> {
        if self.search(&joint, &|_, value| Some(value), &[]).is_some() {
            return joint;
        }
        let mut kept = Vec::new();
        for d in joint {
            kept.push(d);
            if self.search(&kept, &|_, value| Some(value), &[]).is_none() {
                kept.pop();
                let describe = self.demands[d].describe();
                if self.demands[d].soft { unmet.push(describe) } else { diags.push(Diag::invalid(describe)) }
            }
        }
        kept
    }

    /// Min, opt and max of each symbol.
    fn points(&self, joint: &[usize]) -> Points {
        let fallback = || self.vars.iter().map(|var| var.valid.first().copied().unwrap_or(1)).collect();
        let asked =
            |k: usize, pick: fn((i64, Option<i64>, i64)) -> Option<i64>| self.vars[k].asked.and_then(pick);
        let least = |k: usize, value: i64| {
            Some(asked(k, |(min, ..)| Some(min)).map_or(value, |min| (value - min).abs()))
        };
        let min: Vec<i64> = self.search(joint, &least, &[]).unwrap_or_else(fallback);
        let ceiling =
            |k: usize| asked(k, |(.., max)| Some(max)).or(self.vars[k].model.max).unwrap_or(self.vars[k].max);
        // What lies above the ceiling only where nothing below it will do.
        let best = |cost: &dyn Fn(usize, i64) -> i64, floor: &[i64]| {
            let below = |k: usize, value: i64| (value <= ceiling(k)).then(|| cost(k, value));
            let found = self.search(joint, &below, floor);
            found.or_else(|| self.search(joint, &|k, value| Some(cost(k, value)), floor))
        };
        let target = |k: usize| asked(k, |(_, opt, _)| opt).unwrap_or(self.vars[k].opt);
        let opt = best(&|k, value| (value - target(k)).abs(), &min).unwrap_or_else(|| min.clone());
        let rank = |k: usize, value: i64| {
            if value <= ceiling(k) { ceiling(k) - value } else { i64::MAX / 2 + value }
        };
        let max = best(&rank, &opt).unwrap_or_else(|| opt.clone());
        Points { min, opt, max }
    }

    /// The points of `tied`, in which the symbols of one dim in `merged` are equal, as points of this problem; each symbol
    /// may be as small as it can be by itself. `None` where they do not meet what is demanded or asked for here.
    fn equal_points(
        &self,
        module: &Module,
        joint: &[usize],
        mut tied: Problem,
        merged: &Merged,
    ) -> Option<Points> {
        let kept = tied.settle(module, &mut Vec::new()).ok()?;
        let found = tied.moderate_points(module, &kept);
        let place = |var: &Var| tied.vars.iter().position(|v| v.symbol == merged.root(var.symbol));
        let places = self.vars.iter().map(place).collect::<Option<Vec<usize>>>()?;
        let pick = |list: &[i64]| places.iter().map(|&at| list[at]).collect::<Vec<i64>>();
        let mut points = Points { min: pick(&found.min), opt: pick(&found.opt), max: pick(&found.max) };
        let fits = |values: &[i64]| {
            joint.iter().all(|&d| {
                let demand = &self.demands[d];
                self.holds(demand.relaxed.as_ref().unwrap_or(&demand.kind), values)
            })
        };
        for (k, var) in self.vars.iter().enumerate() {
            if let (true, Some(&least)) = (var.tied, var.valid.first()) {
                let before = std::mem::replace(&mut points.min[k], least);
                if !fits(&points.min) {
                    points.min[k] = before;
                }
            }
        }
        let is_valid = |values: &[i64]| {
            let mut each = self.vars.iter().zip(values);
            each.all(|(var, value)| var.valid.binary_search(value).is_ok()) && fits(values)
        };
        let is_asked = |(k, var): (usize, &Var)| {
            var.asked.is_none_or(|(min, opt, max)| {
                let opt = opt.unwrap_or(points.opt[k]);
                (points.min[k], points.opt[k], points.max[k]) == (min, opt, max)
            })
        };
        let all = [&points.min, &points.opt, &points.max];
        (all.iter().all(|values| is_valid(values)) && self.vars.iter().enumerate().all(is_asked))
            .then_some(points)
    }

    pub(super) fn holds(&self, kind: &ConstraintKind, assigned: &[i64]) -> bool {
        holds(kind, &|symbol| {
            let at = self.vars.iter().position(|var| var.symbol == symbol)?;
            assigned.get(at).copied()
        })
    }

    /// The symbol to shrink when a value of the model is too large at `max`.
    fn too_large(&self, module: &Module, max: &[i64]) -> Option<usize> {
        let value_of = |symbol: Symbol| {
            let root = self.merged.iter().find(|(s, _)| *s == symbol).map_or(symbol, |(_, root)| *root);
            let at = self.vars.iter().position(|var| var.symbol == root)?;
            max.get(at).copied()
        };
        let mut worst: Option<usize> = None;
        let mut ratio = 1;
        for id in module.graph.value_ids() {
            let Some(shape) = module.graph[id].ty.shape() else { continue };
            if shape.iter().all(|dim| dim.known().is_some()) {
                continue;
            }
            let count = shape
                .iter()
                .try_fold(1i128, |count, dim| count.checked_mul(i128::from(dim.eval(&value_of)?)));
            if count.is_none_or(|count| count <= LARGEST) {
                continue;
            }
            for dim in shape {
                dim.for_each_symbol(&mut |symbol| {
                    let root = self.merged.iter().find(|(s, _)| *s == symbol).map_or(symbol, |(_, r)| *r);
                    let Some(at) = self.vars.iter().position(|var| var.symbol == root) else { return };
                    let var = &self.vars[at];
                    let least = var.valid.first().copied().unwrap_or(1).max(1);
                    let is_default = var.asked.is_none() && var.model.max.is_none();
                    if is_default && max[at] > least && max[at] / least > ratio {
                        ratio = max[at] / least;
                        worst = Some(at);
                    }
                });
            }
        }
        worst
    }

    fn solution(self, module: &Module, Points { min, opt, max }: Points, unmet: Vec<String>) -> Solution {
        let mut symbols = Vec::new();
        for (k, var) in self.vars.iter().enumerate() {
            let least = if var.asked.is_some() { var.valid.first().copied() } else { Some(1) };
            let (low, high) = (min[k], max[k]);
            let spaced: Vec<i64> =
                var.valid.iter().copied().filter(|&v| v >= low && v <= high.max(low + 1)).collect();
            let step = spacing(&spaced);
            let only = var.valid.len() == 1 && var.asked.is_none_or(|(min, _, max)| min == max);
            let (outcome, source) = if only {
                let source = if var.asked.is_some() { Source::User } else { Source::Derived };
                (Outcome::Fixed(var.valid[0]), source)
            } else {
                let source = match () {
                    () if var.asked.is_some() => Source::User,
                    () if var.model.max.is_some() => Source::Model,
                    () if Some(low) != least || step > 1 || var.tied => Source::Derived,
                    () => Source::Default,
                };
                (Outcome::Range { min: low, opt: opt[k], max: high, step }, source)
            };
            symbols.push((var.symbol, SymbolRange { name: String::new(), outcome, source }));
        }
        for &(symbol, root) in &self.merged {
            let outcome = Outcome::SameAs(module.symbols.name(root));
            symbols.push((symbol, SymbolRange { name: String::new(), outcome, source: Source::Derived }));
        }
        Solution { symbols, unmet }
    }
}

impl Demand {
    fn describe(&self) -> String {
        match self.node.is_empty() {
            true => self.text.clone(),
            false => format!("node `{}` needs {}", self.node, self.text),
        }
    }
}

fn rename(dim: &Dim, merged: &Merged) -> Dim {
    dim.substitute(&|symbol| Dim::symbol(merged.root(symbol)))
}

/// The same of the symbols that stand for others.
pub(super) fn renamed(kind: &ConstraintKind, merged: &Merged) -> ConstraintKind {
    match kind {
        ConstraintKind::AtLeast(dim, least) => ConstraintKind::AtLeast(rename(dim, merged), *least),
        ConstraintKind::Equal(a, b) => ConstraintKind::Equal(rename(a, merged), rename(b, merged)),
        ConstraintKind::Broadcast(a, b) => ConstraintKind::Broadcast(rename(a, merged), rename(b, merged)),
    }
}

fn narrower(a: (i64, Option<i64>, i64), b: (i64, Option<i64>, i64)) -> (i64, Option<i64>, i64) {
    let (min, max) = (a.0.max(b.0), a.2.min(b.2));
    (min, a.1.or(b.1).map(|opt| opt.clamp(min, max.max(min))), max)
}

fn nearest(values: &[i64], to: i64) -> Option<i64> {
    values.iter().copied().min_by_key(|&v| (v - to).abs())
}

/// Distance between values that are evenly spaced; 1 otherwise.
fn spacing(values: &[i64]) -> i64 {
    let [first, second, ..] = values else { return 1 };
    let step = second - first;
    if values.windows(2).all(|pair| pair[1] - pair[0] == step) { step } else { 1 }
}

/// Whether a node stands in a branch: what it demands holds only when the branch is taken.
pub(super) fn is_conditional(node: &str) -> bool {
    enclosing(node).next().is_some()
}

const BRANCHES: [&str; 2] = ["/then_branch/", "/else_branch/"];

/// Paths of the branches that a node stands in.
fn enclosing(node: &str) -> impl Iterator<Item = &str> {
    BRANCHES.iter().flat_map(|part| node.match_indices(part).map(|(at, _)| &node[..at + part.len()]))
}

/// The path of the other branch.
fn sibling(branch: &str) -> String {
    let [then, other] = BRANCHES;
    match branch.strip_suffix(then) {
        Some(path) => format!("{path}{other}"),
        None => format!("{}{then}", branch.strip_suffix(other).unwrap_or(branch)),
    }
}

fn each_dim(kind: &ConstraintKind, f: &mut dyn FnMut(&Dim)) {
    match kind {
        ConstraintKind::AtLeast(dim, _) => f(dim),
        ConstraintKind::Equal(a, b) | ConstraintKind::Broadcast(a, b) => {
            f(a);
            f(b);
        }
    }
}

fn holds(kind: &ConstraintKind, value: &dyn Fn(Symbol) -> Option<i64>) -> bool {
    let pair = |a: &Dim, b: &Dim| Some((a.eval(value)?, b.eval(value)?));
    match kind {
        ConstraintKind::AtLeast(dim, least) => dim.eval(value).is_some_and(|v| v >= *least),
        ConstraintKind::Equal(a, b) => pair(a, b).is_some_and(|(a, b)| a == b),
        ConstraintKind::Broadcast(a, b) => pair(a, b).is_some_and(|(a, b)| a == b || a == 1 || b == 1),
    }
}

/// Whether the ranges of symbols alone prove it.
fn always(kind: &ConstraintKind, symbols: &Symbols) -> bool {
    match kind {
        ConstraintKind::AtLeast(dim, least) => symbols.interval(dim).min.is_some_and(|min| min >= *least),
        ConstraintKind::Equal(a, b) => a == b,
        ConstraintKind::Broadcast(a, b) => a == b || *a == Dim::Known(1) || *b == Dim::Known(1),
    }
}

fn show(kind: &ConstraintKind, symbols: &Symbols) -> String {
    match kind {
        ConstraintKind::AtLeast(dim, least) => format!("{} ≥ {least}", symbols.show(dim)),
        ConstraintKind::Equal(a, b) => format!("{} = {}", symbols.show(a), symbols.show(b)),
        ConstraintKind::Broadcast(a, b) => {
            format!("{} = {}, or one of them 1", symbols.show(a), symbols.show(b))
        }
    }
}

fn symbolic_dims(graph: &Graph, dims: &mut HashSet<Dim>) {
    for id in graph.value_ids() {
        for dim in graph[id].ty.shape().into_iter().flatten() {
            if matches!(dim, Dim::Expr(_)) && !dims.contains(dim) {
                dims.insert(dim.clone());
            }
        }
    }
    for id in graph.node_ids() {
        for (_, body) in graph[id].attrs.graphs() {
            symbolic_dims(body, dims);
        }
    }
}

//! Names and ranges of the symbols of a module.

use crate::dim::{Dim, Interval, Symbol};
use std::collections::HashMap;

/// A symbol's name, range and origin.
#[derive(Clone, Debug, PartialEq)]
pub struct SymbolInfo {
    /// Unique name: the model's `dim_param`, or made from the value and axis (`x.0`).
    pub name: String,
    /// Values that the symbol takes.
    pub range: Interval,
    /// Value that engines are tuned for; within the range.
    pub opt: Option<i64>,
    /// Only the run of some node (NonZero, NMS, …) decides it: no graph input has it as a dim or as an element.
    pub unbacked: bool,
    /// The range that the user wants of an element of an input's value: smallest, the one to tune for, largest.
    pub asked: Option<(i64, Option<i64>, i64)>,
}

/// The symbols of a module.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    infos: Vec<SymbolInfo>,
    by_name: HashMap<String, Symbol>,
}

impl Symbols {
    /// The symbol called `name`, made with the range 0.. when it is new. O(1).
    pub fn named(&mut self, name: &str) -> Symbol {
        if let Some(&symbol) = self.by_name.get(name) {
            return symbol;
        }
        self.push(name.to_owned(), Interval { min: Some(0), max: None }, false)
    }

    /// A new symbol whose name starts with `hint`.
    pub fn fresh(&mut self, hint: &str, range: Interval, unbacked: bool) -> Symbol {
        let mut name = hint.to_owned();
        let mut k = 1;
        while self.by_name.contains_key(&name) {
            k += 1;
            name = format!("{hint}_{k}");
        }
        self.push(name, range, unbacked)
    }

    /// The symbol `name` of a size that only the run decides: the one made before under this name, unless it is among
    /// `taken`, else a new one. Its range is replaced.
    pub fn unbacked(&mut self, name: &str, range: Interval, taken: &[Symbol]) -> Symbol {
        let mut candidate = name.to_owned();
        let mut k = 1;
        while let Some(&symbol) = self.by_name.get(&candidate) {
            if self.infos[symbol.0 as usize].unbacked && !taken.contains(&symbol) {
                self.infos[symbol.0 as usize].range = range;
                return symbol;
            }
            k += 1;
            candidate = format!("{name}_{k}");
        }
        self.push(candidate, range, true)
    }

    fn push(&mut self, name: String, range: Interval, unbacked: bool) -> Symbol {
        let symbol = Symbol(self.infos.len() as u32);
        self.by_name.insert(name.clone(), symbol);
        self.infos.push(SymbolInfo { name, range, opt: None, unbacked, asked: None });
        symbol
    }

    /// A symbol by its name.
    pub fn find(&self, name: &str) -> Option<Symbol> {
        self.by_name.get(name).copied()
    }

    /// Name, range and origin.
    pub fn info(&self, symbol: Symbol) -> Option<&SymbolInfo> {
        self.infos.get(symbol.0 as usize)
    }

    /// The name; `s7` for a symbol of another module.
    pub fn name(&self, symbol: Symbol) -> String {
        self.info(symbol).map_or_else(|| format!("s{}", symbol.0), |info| info.name.clone())
    }

    /// The range; unbounded for a symbol of another module.
    pub fn range(&self, symbol: Symbol) -> Interval {
        self.info(symbol).map_or(Interval::ANY, |info| info.range)
    }

    /// Sets the range of a symbol.
    pub fn set_range(&mut self, symbol: Symbol, range: Interval) {
        if let Some(info) = self.infos.get_mut(symbol.0 as usize) {
            info.range = range;
        }
    }

    /// Sets the value that engines are tuned for.
    pub fn set_opt(&mut self, symbol: Symbol, opt: i64) {
        if let Some(info) = self.infos.get_mut(symbol.0 as usize) {
            info.opt = Some(opt);
        }
    }

    /// Notes the range that the user wants of an element.
    pub fn set_asked(&mut self, symbol: Symbol, range: (i64, Option<i64>, i64)) {
        if let Some(info) = self.infos.get_mut(symbol.0 as usize) {
            info.asked = Some(range);
        }
    }

    /// Marks a symbol that no graph input has as a dim or as an element.
    pub fn set_unbacked(&mut self, symbol: Symbol) {
        if let Some(info) = self.infos.get_mut(symbol.0 as usize) {
            info.unbacked = true;
        }
    }

    /// Range of a dim.
    pub fn interval(&self, dim: &Dim) -> Interval {
        dim.interval(&|symbol| self.range(symbol))
    }

    /// All symbols in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = (Symbol, &SymbolInfo)> {
        self.infos.iter().enumerate().map(|(k, info)| (Symbol(k as u32), info))
    }

    /// A dim as text: `3`, `N`, `2*H + 1`, `?`.
    pub fn show(&self, dim: &Dim) -> String {
        match dim {
            Dim::Known(value) => value.to_string(),
            Dim::Expr(expr) => expr.write(&|symbol| self.name(symbol)),
            Dim::Unknown => "?".to_owned(),
        }
    }
}

//! Which symbols of the inputs are the same, and which are meant to be.
//!
//! Operands of which one has the dim `a` and the other `b` broadcast: ONNX takes `a = b`, and 1 for either. Both stay
//! symbols, so that an engine takes all of that; but the sizes that an engine is tuned for and reaches up to are those at
//! which they are equal, for only a few users mean a dim that is 1 by chance.

use super::solve::{is_conditional, renamed};
use crate::{
    dim::{Dim, Symbol},
    infer::{Constraint, ConstraintKind},
};
use std::collections::HashMap;

/// Which symbols go together; the earliest made stands for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Merged(HashMap<Symbol, Symbol>);

impl Merged {
    /// Symbols that nodes demand to be equal, whatever branch is taken.
    pub fn equal(mentioned: &[Symbol], constraints: &[Constraint]) -> Merged {
        let mut merged = Merged::default();
        for constraint in constraints.iter().filter(|constraint| !is_conditional(&constraint.node)) {
            if let ConstraintKind::Equal(a, b) = &constraint.kind {
                merged.join_dims(a, b, mentioned);
            }
        }
        merged
    }

    /// These, and symbols of dims that broadcast, or that a branch demands to be equal.
    pub fn tied(&self, mentioned: &[Symbol], constraints: &[Constraint]) -> Merged {
        let mut tied = self.clone();
        // `max(a, b)` is `a` once both are tied, and may tie another symbol then.
        loop {
            let mut joined = false;
            for constraint in constraints {
                if let ConstraintKind::Equal(a, b) | ConstraintKind::Broadcast(a, b) =
                    renamed(&constraint.kind, &tied)
                {
                    joined |= tied.join_dims(&a, &b, mentioned);
                }
            }
            if !joined {
                return tied;
            }
        }
    }

    /// The symbol that stands for `symbol`.
    pub fn root(&self, symbol: Symbol) -> Symbol {
        let mut at = symbol;
        while let Some(&next) = self.0.get(&at) {
            at = next;
        }
        at
    }

    /// Whether two dims were two symbols of the inputs, and are one now.
    fn join_dims(&mut self, a: &Dim, b: &Dim, mentioned: &[Symbol]) -> bool {
        match (a.as_symbol(), b.as_symbol()) {
            (Some(a), Some(b)) if mentioned.contains(&a) && mentioned.contains(&b) => self.join(a, b),
            _ => false,
        }
    }

    fn join(&mut self, a: Symbol, b: Symbol) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.0.insert(a.max(b), a.min(b));
        }
        a != b
    }
}

//! Symbolic dims: integer polynomials over symbols and opaque quotients, in one normal form.
//!
//! Two expressions that are equal as polynomials (over the same atoms) are equal as values. Arithmetic that overflows
//! i64 gives [`Dim::Unknown`], never a wrong number.

mod expr;
mod interval;

pub use expr::{Atom, Expr};
pub use interval::Interval;

/// A named size that only the run knows. Its name and range are in [`crate::Symbols`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub u32);

/// One dim, or one element of a small integer tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A number.
    Known(i64),
    /// Arithmetic over symbols; never a plain number (that is `Known`).
    Expr(Expr),
    /// Nothing is known.
    Unknown,
}

impl Dim {
    /// The number, when it is one.
    pub fn known(&self) -> Option<i64> {
        if let Dim::Known(value) = self { Some(*value) } else { None }
    }

    /// A symbol as a dim.
    pub fn symbol(symbol: Symbol) -> Dim {
        Dim::Expr(Expr::symbol(symbol))
    }

    /// The symbol, when the dim is exactly one.
    pub fn as_symbol(&self) -> Option<Symbol> {
        let Dim::Expr(expr) = self else { return None };
        match expr.as_atom()? {
            Atom::Symbol(symbol) => Some(*symbol),
            _ => None,
        }
    }

    fn expr(&self) -> Option<Expr> {
        match self {
            Dim::Known(value) => Some(Expr::constant(*value)),
            Dim::Expr(expr) => Some(expr.clone()),
            Dim::Unknown => None,
        }
    }

    fn lift(&self, other: &Dim, f: impl FnOnce(&Expr, &Expr) -> Option<Expr>) -> Dim {
        match (self.expr(), other.expr()) {
            (Some(a), Some(b)) => f(&a, &b).map_or(Dim::Unknown, Expr::into_dim),
            _ => Dim::Unknown,
        }
    }

    /// Sum.
    pub fn add(&self, other: &Dim) -> Dim {
        self.lift(other, Expr::add)
    }

    /// Difference.
    pub fn sub(&self, other: &Dim) -> Dim {
        self.lift(other, |a, b| a.add(&b.scale(-1)?))
    }

    /// Product.
    pub fn mul(&self, other: &Dim) -> Dim {
        match (self, other) {
            (Dim::Known(0), _) | (_, Dim::Known(0)) => Dim::Known(0),
            _ => self.lift(other, Expr::mul),
        }
    }

    /// Quotient rounded down. Unknown for a divisor of 0; a symbolic divisor is taken not to be 0.
    pub fn floor_div(&self, other: &Dim) -> Dim {
        self.lift(other, |a, b| a.quotient(b))
    }

    /// Quotient rounded up.
    pub fn ceil_div(&self, other: &Dim) -> Dim {
        self.add(&other.sub(&Dim::Known(1))).floor_div(other)
    }

    /// Remainder with the sign of the divisor. Unknown for a divisor of 0.
    pub fn modulo(&self, other: &Dim) -> Dim {
        self.lift(other, Expr::remainder)
    }

    /// The larger one.
    pub fn max(&self, other: &Dim) -> Dim {
        self.lift(other, Expr::larger)
    }

    /// The smaller one.
    pub fn min(&self, other: &Dim) -> Dim {
        self.lift(other, Expr::smaller)
    }

    /// Value at `symbols`; `None` when unknown, or the arithmetic fails.
    pub fn eval(&self, symbols: &dyn Fn(Symbol) -> Option<i64>) -> Option<i64> {
        match self {
            Dim::Known(value) => Some(*value),
            Dim::Expr(expr) => expr.eval(symbols),
            Dim::Unknown => None,
        }
    }

    /// Range when each symbol stays in its range.
    pub fn interval(&self, symbols: &dyn Fn(Symbol) -> Interval) -> Interval {
        match self {
            Dim::Known(value) => Interval::point(*value),
            Dim::Expr(expr) => expr.interval(symbols),
            Dim::Unknown => Interval::ANY,
        }
    }

    /// Calls `f` with every symbol that is mentioned.
    pub fn for_each_symbol(&self, f: &mut dyn FnMut(Symbol)) {
        if let Dim::Expr(expr) = self {
            expr.for_each_symbol(f);
        }
    }

    /// Replaces symbols; used when a range is a point, or when two symbols turn out equal.
    pub fn substitute(&self, f: &dyn Fn(Symbol) -> Dim) -> Dim {
        match self {
            Dim::Expr(expr) => expr.substitute(f),
            other => other.clone(),
        }
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim::Known(value)
    }
}

#[cfg(test)]
mod tests;

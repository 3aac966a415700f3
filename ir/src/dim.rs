//! Symbolic dims: integer polynomials over symbols and opaque quotients, in one normal form.
//!
//! Two expressions that are equal as polynomials (over the same atoms) are equal as values. Arithmetic that overflows
//! i64 gives [`Dim::Unknown`], never a wrong number.

use smallvec::SmallVec;
use std::{collections::BTreeMap, fmt, sync::Arc};

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

/// A polynomial with integer coefficients over [`Atom`]s, normalised: monomials sorted, no zero coefficient.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Expr(Arc<BTreeMap<Monomial, i64>>);

/// A product of atoms, sorted; empty for the constant term.
type Monomial = SmallVec<[Atom; 2]>;

/// What a polynomial is made of.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Atom {
    /// A symbol.
    Symbol(Symbol),
    /// `floor(a / b)`.
    FloorDiv(Expr, Expr),
    /// `a − b · floor(a / b)`.
    Mod(Expr, Expr),
    /// The larger one.
    Max(Expr, Expr),
    /// The smaller one.
    Min(Expr, Expr),
}

/// Inclusive range of an integer; `None` is unbounded on that side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    /// Smallest value.
    pub min: Option<i64>,
    /// Largest value.
    pub max: Option<i64>,
}

impl Interval {
    /// Just `value`.
    pub const fn point(value: i64) -> Interval {
        Interval { min: Some(value), max: Some(value) }
    }

    /// From `min` to `max`.
    pub const fn new(min: i64, max: i64) -> Interval {
        Interval { min: Some(min), max: Some(max) }
    }

    /// Nothing known.
    pub const ANY: Interval = Interval { min: None, max: None };

    /// Whether `value` lies inside.
    pub fn contains(&self, value: i64) -> bool {
        self.min.is_none_or(|min| min <= value) && self.max.is_none_or(|max| value <= max)
    }

    fn zip(
        self,
        other: Interval,
        min: impl Fn(i64, i64) -> Option<i64>,
        max: impl Fn(i64, i64) -> Option<i64>,
    ) -> Interval {
        let both = |a: Option<i64>, b: Option<i64>, f: &dyn Fn(i64, i64) -> Option<i64>| f(a?, b?);
        Interval { min: both(self.min, other.min, &min), max: both(self.max, other.max, &max) }
    }

    fn add(self, other: Interval) -> Interval {
        self.zip(other, i64::checked_add, i64::checked_add)
    }

    fn mul(self, other: Interval) -> Interval {
        if let (Some(a), Some(b), Some(c), Some(d)) = (self.min, self.max, other.min, other.max) {
            let corners = [a.checked_mul(c), a.checked_mul(d), b.checked_mul(c), b.checked_mul(d)];
            if let Some(corners) = corners.into_iter().collect::<Option<Vec<i64>>>() {
                return Interval { min: corners.iter().min().copied(), max: corners.iter().max().copied() };
            }
        }
        // Half-open products of non-negative ranges stay useful: the lower corner is the least.
        match (self.min, other.min) {
            (Some(a), Some(c)) if a >= 0 && c >= 0 => Interval { min: a.checked_mul(c), max: None },
            _ => Interval::ANY,
        }
    }

    fn floor_div(self, other: Interval) -> Interval {
        let (Some(c), d) = (other.min, other.max) else { return Interval::ANY };
        if c <= 0 {
            return Interval::ANY;
        }
        let low = |a: i64| if a >= 0 { d.map_or(0, |d| a.div_euclid(d)) } else { a.div_euclid(c) };
        let high = |b: i64| if b >= 0 { b.div_euclid(c) } else { d.map_or(-1, |d| b.div_euclid(d)) };
        Interval { min: self.min.map(low), max: self.max.map(high) }
    }
}

impl Dim {
    /// The number, when it is one.
    pub fn known(&self) -> Option<i64> {
        if let Dim::Known(value) = self { Some(*value) } else { None }
    }

    /// A symbol as a dim.
    pub fn symbol(symbol: Symbol) -> Dim {
        Dim::Expr(Expr::atom(Atom::Symbol(symbol)))
    }

    /// The symbol, when the dim is exactly one.
    pub fn as_symbol(&self) -> Option<Symbol> {
        let Dim::Expr(expr) = self else { return None };
        let (monomial, &1) = expr.0.iter().next()? else { return None };
        match (expr.0.len(), monomial.as_slice()) {
            (1, [Atom::Symbol(symbol)]) => Some(*symbol),
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

    /// Quotient rounded down. Unknown for a divisor of 0.
    pub fn floor_div(&self, other: &Dim) -> Dim {
        self.lift(other, |a, b| a.quotient(b))
    }

    /// Quotient rounded up.
    pub fn ceil_div(&self, other: &Dim) -> Dim {
        self.add(&other.sub(&Dim::Known(1))).floor_div(other)
    }

    /// Remainder with the sign of the divisor.
    pub fn modulo(&self, other: &Dim) -> Dim {
        if let (Dim::Known(a), Dim::Known(b)) = (self, other) {
            let rest = floor_div(*a, *b).and_then(|q| a.checked_sub(b.checked_mul(q)?));
            return rest.map_or(Dim::Unknown, Dim::Known);
        }
        if self.sub(&self.floor_div(other).mul(other)) == Dim::Known(0) {
            return Dim::Known(0);
        }
        self.lift(other, |a, b| Some(Expr::atom(Atom::Mod(a.clone(), b.clone()))))
    }

    /// The larger one.
    pub fn max(&self, other: &Dim) -> Dim {
        self.lift(other, |a, b| a.extreme(b, Atom::Max, i64::max))
    }

    /// The smaller one.
    pub fn min(&self, other: &Dim) -> Dim {
        self.lift(other, |a, b| a.extreme(b, Atom::Min, i64::min))
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

impl Expr {
    fn constant(value: i64) -> Expr {
        let mut terms = BTreeMap::new();
        if value != 0 {
            terms.insert(Monomial::new(), value);
        }
        Expr(Arc::new(terms))
    }

    fn atom(atom: Atom) -> Expr {
        Expr(Arc::new(BTreeMap::from([(Monomial::from_iter([atom]), 1)])))
    }

    fn as_constant(&self) -> Option<i64> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&Monomial::new()).copied(),
            _ => None,
        }
    }

    fn into_dim(self) -> Dim {
        self.as_constant().map_or(Dim::Expr(self), Dim::Known)
    }

    /// The monomials with their coefficients.
    pub fn terms(&self) -> impl Iterator<Item = (&[Atom], i64)> {
        self.0.iter().map(|(atoms, &factor)| (atoms.as_slice(), factor))
    }

    /// The expression as a dim.
    pub fn to_dim(&self) -> Dim {
        self.clone().into_dim()
    }

    fn add(&self, other: &Expr) -> Option<Expr> {
        let mut terms = (*self.0).clone();
        for (monomial, &factor) in other.0.iter() {
            let slot = terms.entry(monomial.clone()).or_insert(0);
            *slot = slot.checked_add(factor)?;
            if *slot == 0 {
                terms.remove(monomial);
            }
        }
        Some(Expr(Arc::new(terms)))
    }

    fn scale(&self, factor: i64) -> Option<Expr> {
        if factor == 0 {
            return Some(Expr::constant(0));
        }
        let scaled = self.0.iter().map(|(m, &f)| Some((m.clone(), f.checked_mul(factor)?)));
        Some(Expr(Arc::new(scaled.collect::<Option<_>>()?)))
    }

    fn mul(&self, other: &Expr) -> Option<Expr> {
        // A product of large sums says nothing that is useful, and could grow without end.
        if self.0.len() * other.0.len() > 64 {
            return None;
        }
        let mut terms: BTreeMap<Monomial, i64> = BTreeMap::new();
        for (a, &fa) in self.0.iter() {
            for (b, &fb) in other.0.iter() {
                let mut monomial: Monomial = a.iter().chain(b).cloned().collect();
                monomial.sort();
                if monomial.len() > 16 {
                    return None;
                }
                let slot = terms.entry(monomial).or_insert(0);
                *slot = slot.checked_add(fa.checked_mul(fb)?)?;
            }
        }
        terms.retain(|_, factor| *factor != 0);
        Some(Expr(Arc::new(terms)))
    }

    fn quotient(&self, by: &Expr) -> Option<Expr> {
        if let Some(divisor) = by.as_constant() {
            if divisor == 0 {
                return None;
            }
            if divisor == 1 {
                return Some(self.clone());
            }
            if let Some(value) = self.as_constant() {
                return floor_div(value, divisor).map(Expr::constant);
            }
            // floor((d·q + r) / d) = q + floor(r / d): terms that divide leave the quotient.
            let (mut whole, mut rest) = (BTreeMap::new(), BTreeMap::new());
            for (monomial, &factor) in self.0.iter() {
                if factor % divisor == 0 {
                    whole.insert(monomial.clone(), factor / divisor);
                } else if monomial.is_empty() && divisor > 0 {
                    whole.insert(monomial.clone(), factor.div_euclid(divisor));
                    rest.insert(monomial.clone(), factor.rem_euclid(divisor));
                } else {
                    rest.insert(monomial.clone(), factor);
                }
            }
            whole.retain(|_, factor| *factor != 0);
            let (whole, rest) = (Expr(Arc::new(whole)), Expr(Arc::new(rest)));
            return match rest.as_constant() {
                Some(rest) => whole.add(&Expr::constant(floor_div(rest, divisor)?)),
                None => {
                    // floor(floor(x / a) / b) = floor(x / (a·b)) for positive a, b.
                    if let (Some((inner, a)), true) = (rest.as_floor_div(), divisor > 0)
                        && let Some(a) = a.as_constant().filter(|&a| a > 0)
                    {
                        let joint = Expr::constant(a.checked_mul(divisor)?);
                        return whole.add(&inner.quotient(&joint)?);
                    }
                    whole.add(&Expr::atom(Atom::FloorDiv(rest, by.clone())))
                }
            };
        }
        // A divisor that is one monomial may cancel.
        if by.0.len() == 1
            && let Some((divisor, &factor)) = by.0.iter().next()
        {
            let mut terms = BTreeMap::new();
            for (monomial, &f) in self.0.iter() {
                let mut left = monomial.clone();
                for atom in divisor {
                    let at = left.iter().position(|a| a == atom);
                    let Some(at) = at else {
                        return Some(Expr::atom(Atom::FloorDiv(self.clone(), by.clone())));
                    };
                    left.remove(at);
                }
                if f % factor != 0 {
                    return Some(Expr::atom(Atom::FloorDiv(self.clone(), by.clone())));
                }
                terms.insert(left, f / factor);
            }
            return Some(Expr(Arc::new(terms)));
        }
        if self == by {
            return Some(Expr::constant(1));
        }
        Some(Expr::atom(Atom::FloorDiv(self.clone(), by.clone())))
    }

    fn as_floor_div(&self) -> Option<(&Expr, &Expr)> {
        let (monomial, &1) = self.0.iter().next()? else { return None };
        match (self.0.len(), monomial.as_slice()) {
            (1, [Atom::FloorDiv(a, b)]) => Some((a, b)),
            _ => None,
        }
    }

    fn extreme(&self, other: &Expr, atom: fn(Expr, Expr) -> Atom, fold: fn(i64, i64) -> i64) -> Option<Expr> {
        if self == other {
            return Some(self.clone());
        }
        if let (Some(a), Some(b)) = (self.as_constant(), other.as_constant()) {
            return Some(Expr::constant(fold(a, b)));
        }
        // A constant distance decides without knowing the symbols.
        if let Some(distance) = self.add(&other.scale(-1)?)?.as_constant() {
            let first = fold(distance, 0) == distance;
            return Some(if first { self.clone() } else { other.clone() });
        }
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        Some(Expr::atom(atom(a.clone(), b.clone())))
    }

    fn eval(&self, symbols: &dyn Fn(Symbol) -> Option<i64>) -> Option<i64> {
        let mut sum = 0i64;
        for (monomial, &factor) in self.0.iter() {
            let mut product = factor;
            for atom in monomial {
                product = product.checked_mul(atom.eval(symbols)?)?;
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }

    fn interval(&self, symbols: &dyn Fn(Symbol) -> Interval) -> Interval {
        let mut sum = Interval::point(0);
        for (monomial, &factor) in self.0.iter() {
            let mut product = Interval::point(1);
            for atom in monomial {
                product = product.mul(atom.interval(symbols));
            }
            let scaled = if factor >= 0 || product.max.is_some() {
                product.mul(Interval::point(factor))
            } else {
                Interval { min: None, max: product.min.and_then(|m| m.checked_mul(factor)) }
            };
            sum = sum.add(scaled);
        }
        sum
    }

    fn for_each_symbol(&self, f: &mut dyn FnMut(Symbol)) {
        for atom in self.0.keys().flatten() {
            match atom {
                Atom::Symbol(symbol) => f(*symbol),
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    a.for_each_symbol(f);
                    b.for_each_symbol(f);
                }
            }
        }
    }

    fn substitute(&self, f: &dyn Fn(Symbol) -> Dim) -> Dim {
        let mut sum = Dim::Known(0);
        for (monomial, &factor) in self.0.iter() {
            let mut product = Dim::Known(factor);
            for atom in monomial {
                let value = match atom {
                    Atom::Symbol(symbol) => f(*symbol),
                    Atom::FloorDiv(a, b) => a.substitute(f).floor_div(&b.substitute(f)),
                    Atom::Mod(a, b) => a.substitute(f).modulo(&b.substitute(f)),
                    Atom::Max(a, b) => a.substitute(f).max(&b.substitute(f)),
                    Atom::Min(a, b) => a.substitute(f).min(&b.substitute(f)),
                };
                product = product.mul(&value);
            }
            sum = sum.add(&product);
        }
        sum
    }

    /// Writes the expression with names of symbols from `name`.
    pub fn write(&self, name: &dyn Fn(Symbol) -> String) -> String {
        let mut text = String::new();
        // The constant term stands last: `2*H + 1`.
        let ordered =
            self.0.iter().filter(|(m, _)| !m.is_empty()).chain(self.0.iter().filter(|(m, _)| m.is_empty()));
        for (monomial, &factor) in ordered {
            let sign = if factor < 0 { "-" } else { "+" };
            match (text.is_empty(), factor < 0) {
                (true, true) => text.push('-'),
                (true, false) => {}
                _ => text.push_str(&format!(" {sign} ")),
            }
            let mut parts: Vec<String> = Vec::new();
            if monomial.is_empty() || factor.unsigned_abs() != 1 {
                parts.push(factor.unsigned_abs().to_string());
            }
            parts.extend(monomial.iter().map(|atom| atom.write(name)));
            text.push_str(&parts.join("*"));
        }
        text
    }
}

/// Quotient rounded down; `None` for a divisor of 0 and on overflow.
fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

impl Atom {
    fn eval(&self, symbols: &dyn Fn(Symbol) -> Option<i64>) -> Option<i64> {
        let pair = |a: &Expr, b: &Expr| Some((a.eval(symbols)?, b.eval(symbols)?));
        match self {
            Atom::Symbol(symbol) => symbols(*symbol),
            Atom::FloorDiv(a, b) => {
                let (a, b) = pair(a, b)?;
                floor_div(a, b)
            }
            Atom::Mod(a, b) => {
                let (a, b) = pair(a, b)?;
                a.checked_sub(b.checked_mul(floor_div(a, b)?)?)
            }
            Atom::Max(a, b) => pair(a, b).map(|(a, b)| a.max(b)),
            Atom::Min(a, b) => pair(a, b).map(|(a, b)| a.min(b)),
        }
    }

    fn interval(&self, symbols: &dyn Fn(Symbol) -> Interval) -> Interval {
        match self {
            Atom::Symbol(symbol) => symbols(*symbol),
            Atom::FloorDiv(a, b) => a.interval(symbols).floor_div(b.interval(symbols)),
            Atom::Mod(_, b) => match b.interval(symbols) {
                Interval { min: Some(min), max } if min > 0 => {
                    Interval { min: Some(0), max: max.map(|max| max - 1) }
                }
                _ => Interval::ANY,
            },
            Atom::Max(a, b) => {
                let (a, b) = (a.interval(symbols), b.interval(symbols));
                let min = match (a.min, b.min) {
                    (Some(x), Some(y)) => Some(x.max(y)),
                    (one, other) => one.or(other),
                };
                Interval { min, max: a.max.zip(b.max).map(|(x, y)| x.max(y)) }
            }
            Atom::Min(a, b) => {
                let (a, b) = (a.interval(symbols), b.interval(symbols));
                let max = match (a.max, b.max) {
                    (Some(x), Some(y)) => Some(x.min(y)),
                    (one, other) => one.or(other),
                };
                Interval { min: a.min.zip(b.min).map(|(x, y)| x.min(y)), max }
            }
        }
    }

    fn write(&self, name: &dyn Fn(Symbol) -> String) -> String {
        let call = |f: &str, a: &Expr, b: &Expr| {
            let show = |e: &Expr| e.as_constant().map_or_else(|| e.write(name), |v| v.to_string());
            format!("{f}({}, {})", show(a), show(b))
        };
        match self {
            Atom::Symbol(symbol) => name(*symbol),
            Atom::FloorDiv(a, b) => call("floordiv", a, b),
            Atom::Mod(a, b) => call("mod", a, b),
            Atom::Max(a, b) => call("max", a, b),
            Atom::Min(a, b) => call("min", a, b),
        }
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.write(&|symbol| format!("s{}", symbol.0)))
    }
}

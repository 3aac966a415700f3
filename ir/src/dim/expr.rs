//! Polynomials over symbols and opaque quotients, in their normal form.

use super::{Dim, Interval, Symbol};
use smallvec::SmallVec;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Most terms of a sum.
const MAX_TERMS: usize = 128;
/// Most symbols and operations inside one quotient, remainder or extreme.
const MAX_WEIGHT: usize = 256;

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

impl Expr {
    pub(super) fn constant(value: i64) -> Expr {
        let mut terms = BTreeMap::new();
        if value != 0 {
            terms.insert(Monomial::new(), value);
        }
        Expr(Arc::new(terms))
    }

    pub(super) fn symbol(symbol: Symbol) -> Expr {
        Expr::atom(Atom::Symbol(symbol))
    }

    fn atom(atom: Atom) -> Expr {
        Expr(Arc::new(BTreeMap::from([(Monomial::from_iter([atom]), 1)])))
    }

    /// An atom over expressions; `None` when it would be too large to be of any use.
    fn nested(atom: Atom) -> Option<Expr> {
        (atom.weight() <= MAX_WEIGHT).then(|| Expr::atom(atom))
    }

    fn weight(&self) -> usize {
        self.0.keys().map(|monomial| 1 + monomial.iter().map(Atom::weight).sum::<usize>()).sum()
    }

    pub(super) fn as_constant(&self) -> Option<i64> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&Monomial::new()).copied(),
            _ => None,
        }
    }

    pub(super) fn into_dim(self) -> Dim {
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

    pub(super) fn add(&self, other: &Expr) -> Option<Expr> {
        let mut terms = (*self.0).clone();
        for (monomial, &factor) in other.0.iter() {
            let slot = terms.entry(monomial.clone()).or_insert(0);
            *slot = slot.checked_add(factor)?;
            if *slot == 0 {
                terms.remove(monomial);
            }
        }
        (terms.len() <= MAX_TERMS).then(|| Expr(Arc::new(terms)))
    }

    pub(super) fn scale(&self, factor: i64) -> Option<Expr> {
        if factor == 0 {
            return Some(Expr::constant(0));
        }
        let scaled = self.0.iter().map(|(m, &f)| Some((m.clone(), f.checked_mul(factor)?)));
        Some(Expr(Arc::new(scaled.collect::<Option<_>>()?)))
    }

    pub(super) fn mul(&self, other: &Expr) -> Option<Expr> {
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

    /// Quotient rounded down. A divisor that is not a number is taken not to be 0.
    pub(super) fn quotient(&self, by: &Expr) -> Option<Expr> {
        if self == by {
            return (by.as_constant() != Some(0)).then(|| Expr::constant(1));
        }
        let is_negative = by.0.len() == 1 && by.0.values().all(|&factor| factor < 0);
        if is_negative {
            return self.scale(-1)?.quotient(&by.scale(-1)?);
        }
        match by.as_constant() {
            Some(0) => None,
            Some(divisor) => self.quotient_by_number(divisor),
            None => self.quotient_by_terms(by),
        }
    }

    /// `divisor` > 0.
    fn quotient_by_number(&self, divisor: i64) -> Option<Expr> {
        // floor((d·q + r) / d) = q + floor(r / d): what divides leaves the quotient, term by term.
        let (mut whole, mut rest, mut left) = (BTreeMap::new(), BTreeMap::new(), 0);
        for (monomial, &factor) in self.0.iter() {
            let (q, r) = if monomial.is_empty() {
                left = factor.rem_euclid(divisor);
                (factor.div_euclid(divisor), 0)
            } else {
                (factor / divisor, factor % divisor)
            };
            if q != 0 {
                whole.insert(monomial.clone(), q);
            }
            if r != 0 {
                rest.insert(monomial.clone(), r);
            }
        }
        let whole = Expr(Arc::new(whole));
        if rest.is_empty() {
            return Some(whole);
        }
        // floor((g·a + c) / (g·d)) = floor((a + floor(c / g)) / d).
        let common = rest.values().fold(divisor, |g, &factor| gcd(g, factor));
        rest.values_mut().for_each(|factor| *factor /= common);
        let (divisor, left) = (divisor / common, left.div_euclid(common));
        let rest = Expr(Arc::new(rest));
        // floor((floor(x / a) + c) / d) = floor((x + c·a) / (a·d)) for positive a, d.
        if let Some((inner, a)) = rest.as_floor_div()
            && let Some(a) = a.as_constant().filter(|&a| a > 0)
            && let Some(joint) = a.checked_mul(divisor)
        {
            let inner = inner.add(&Expr::constant(left.checked_mul(a)?))?;
            return whole.add(&inner.quotient_by_number(joint)?);
        }
        let rest = rest.add(&Expr::constant(left))?;
        whole.add(&Expr::nested(Atom::FloorDiv(rest, Expr::constant(divisor)))?)
    }

    fn quotient_by_terms(&self, by: &Expr) -> Option<Expr> {
        if let Some(exact) = self.exact_quotient(by) {
            return Some(exact);
        }
        let mut terms = by.0.iter();
        let (Some((divisor, &factor)), None) = (terms.next(), terms.next()) else {
            return Expr::nested(Atom::FloorDiv(self.clone(), by.clone()));
        };
        let (mut whole, mut rest) = (BTreeMap::new(), BTreeMap::new());
        for (monomial, &f) in self.0.iter() {
            match without(monomial, divisor) {
                Some(left) if f % factor == 0 => {
                    whole.insert(left, f / factor);
                }
                _ => {
                    rest.insert(monomial.clone(), f);
                }
            }
        }
        let whole = Expr(Arc::new(whole));
        // What numerator and divisor have in common cancels.
        let shared = divisor.iter().enumerate().filter(|&(k, atom)| {
            let wanted = divisor[..=k].iter().filter(|a| *a == atom).count();
            rest.keys().all(|m| m.iter().filter(|a| *a == atom).count() >= wanted)
        });
        let shared: Monomial = shared.map(|(_, atom)| atom.clone()).collect();
        let common = rest.values().fold(factor, |g, &f| gcd(g, f));
        let reduced: Option<BTreeMap<Monomial, i64>> =
            rest.iter().map(|(m, &f)| Some((without(m, &shared)?, f / common))).collect();
        let rest = Expr(Arc::new(reduced?));
        let by = Expr(Arc::new(BTreeMap::from([(without(divisor, &shared)?, factor / common)])));
        let quotient = if by.as_constant().is_some() {
            rest.quotient(&by)?
        } else {
            Expr::nested(Atom::FloorDiv(rest, by))?
        };
        whole.add(&quotient)
    }

    /// The polynomial that times `by` gives this one.
    fn exact_quotient(&self, by: &Expr) -> Option<Expr> {
        let (lead, factor) = by.lead()?;
        let mut rest = self.clone();
        let mut quotient = Expr::constant(0);
        for _ in 0..MAX_TERMS {
            let Some((monomial, f)) = rest.lead() else { return Some(quotient) };
            if f.checked_rem(factor)? != 0 {
                return None;
            }
            let term = BTreeMap::from([(without(monomial, lead)?, f.checked_div(factor)?)]);
            let term = Expr(Arc::new(term));
            rest = rest.add(&term.mul(by)?.scale(-1)?)?;
            quotient = quotient.add(&term)?;
        }
        None
    }

    /// The leading term by degree, then lexicographically: an order that products respect.
    fn lead(&self) -> Option<(&Monomial, i64)> {
        let larger = |a: &Monomial, b: &Monomial| a.len().cmp(&b.len()).then_with(|| b.cmp(a));
        self.0.iter().max_by(|a, b| larger(a.0, b.0)).map(|(monomial, &factor)| (monomial, factor))
    }

    pub(super) fn remainder(&self, by: &Expr) -> Option<Expr> {
        let rest = self.add(&self.quotient(by)?.mul(by)?.scale(-1)?)?;
        if rest.as_constant().is_some() {
            return Some(rest);
        }
        match by.as_constant() {
            // Coefficients count modulo the divisor only.
            Some(divisor) if divisor > 0 => {
                let reduced = self.0.iter().map(|(m, &f)| (m.clone(), f.rem_euclid(divisor)));
                let reduced = reduced.filter(|(_, f)| *f != 0).collect();
                Expr::nested(Atom::Mod(Expr(Arc::new(reduced)), by.clone()))
            }
            _ => Expr::nested(Atom::Mod(self.clone(), by.clone())),
        }
    }

    fn as_floor_div(&self) -> Option<(&Expr, &Expr)> {
        match self.as_atom()? {
            Atom::FloorDiv(a, b) => Some((a, b)),
            _ => None,
        }
    }

    /// The atom, when the expression is exactly one.
    pub(super) fn as_atom(&self) -> Option<&Atom> {
        let (monomial, &1) = self.0.iter().next()? else { return None };
        match (self.0.len(), monomial.as_slice()) {
            (1, [atom]) => Some(atom),
            _ => None,
        }
    }

    pub(super) fn larger(&self, other: &Expr) -> Option<Expr> {
        let parts = |e: &Expr| match e.as_atom() {
            Some(Atom::Max(a, b)) => Some((a.clone(), b.clone())),
            _ => None,
        };
        self.extreme(other, Atom::Max, i64::max, parts)
    }

    pub(super) fn smaller(&self, other: &Expr) -> Option<Expr> {
        let parts = |e: &Expr| match e.as_atom() {
            Some(Atom::Min(a, b)) => Some((a.clone(), b.clone())),
            _ => None,
        };
        self.extreme(other, Atom::Min, i64::min, parts)
    }

    fn extreme(
        &self,
        other: &Expr,
        atom: fn(Expr, Expr) -> Atom,
        fold: fn(i64, i64) -> i64,
        parts: impl Fn(&Expr) -> Option<(Expr, Expr)>,
    ) -> Option<Expr> {
        // A constant distance decides without knowing the symbols.
        if let Some(distance) = self.add(&other.scale(-1)?)?.as_constant() {
            return Some(if fold(distance, 0) == distance { self.clone() } else { other.clone() });
        }
        // max(max(a, b), a) = max(a, b).
        for (one, two) in [(self, other), (other, self)] {
            if parts(one).is_some_and(|(a, b)| a == *two || b == *two) {
                return Some(one.clone());
            }
        }
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        Expr::nested(atom(a.clone(), b.clone()))
    }

    pub(super) fn eval(&self, symbols: &dyn Fn(Symbol) -> Option<i64>) -> Option<i64> {
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

    pub(super) fn interval(&self, symbols: &dyn Fn(Symbol) -> Interval) -> Interval {
        let mut sum = Interval::point(0);
        for (monomial, &factor) in self.0.iter() {
            let mut product = Interval::point(1);
            for atom in monomial {
                product = product.mul(atom.interval(symbols));
            }
            sum = sum.add(product.mul(Interval::point(factor)));
        }
        sum
    }

    pub(super) fn for_each_symbol(&self, f: &mut dyn FnMut(Symbol)) {
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

    pub(super) fn substitute(&self, f: &dyn Fn(Symbol) -> Dim) -> Dim {
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

/// The monomial without the atoms of another; `None` unless it has them all.
fn without(monomial: &Monomial, atoms: &Monomial) -> Option<Monomial> {
    let mut left = monomial.clone();
    for atom in atoms {
        let at = left.iter().position(|a| a == atom)?;
        left.remove(at);
    }
    Some(left)
}

/// Greatest common divisor; positive unless both are 0.
fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}

/// Quotient rounded down; `None` for a divisor of 0 and on overflow.
fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

impl Atom {
    fn weight(&self) -> usize {
        match self {
            Atom::Symbol(_) => 1,
            Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                1 + a.weight() + b.weight()
            }
        }
    }

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
            Atom::Mod(a, b) => match (a.interval(symbols), b.interval(symbols)) {
                // A divisor of 0 has no remainder.
                (a, Interval { min: Some(min), max }) if min >= 0 => {
                    let least = max.map(|max| (max - 1).max(0));
                    // A remainder of something not negative is not larger than it.
                    let bound = a.max.filter(|_| a.min.is_some_and(|min| min >= 0));
                    Interval { min: Some(0), max: [least, bound].into_iter().flatten().min() }
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

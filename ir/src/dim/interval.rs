//! Ranges of integers, each side open or closed by a number.

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

    pub(super) fn add(self, other: Interval) -> Interval {
        let both = |a: Option<i64>, b: Option<i64>| a?.checked_add(b?);
        Interval { min: both(self.min, other.min), max: both(self.max, other.max) }
    }

    pub(super) fn mul(self, other: Interval) -> Interval {
        // Corners, with an open side as an infinity: 0 times it is 0.
        let corner = |a: Bound, b: Bound| match (a, b) {
            (Bound::Number(a), Bound::Number(b)) => Bound::Number(a * b),
            (Bound::Number(0), _) | (_, Bound::Number(0)) => Bound::Number(0),
            (a, b) if a.is_negative() == b.is_negative() => Bound::Above,
            _ => Bound::Below,
        };
        let (low, high) = (
            |i: Interval| i.min.map_or(Bound::Below, Bound::from),
            |i: Interval| i.max.map_or(Bound::Above, Bound::from),
        );
        let sides = |i: Interval| [low(i), high(i)];
        let corners = sides(self).into_iter().flat_map(|a| sides(other).map(|b| corner(a, b)));
        let (mut least, mut most) = (Bound::Above, Bound::Below);
        for bound in corners {
            least = least.min(bound);
            most = most.max(bound);
        }
        Interval { min: least.number(), max: most.number() }
    }

    pub(super) fn floor_div(self, other: Interval) -> Interval {
        // A divisor of 0 has no quotient.
        let (Some(c), d) = (other.min.map(|c| if c == 0 { 1 } else { c }), other.max) else {
            return Interval::ANY;
        };
        if c < 0 || d.is_some_and(|d| d < c) {
            return Interval::ANY;
        }
        let low = |a: i64| if a >= 0 { d.map_or(0, |d| a.div_euclid(d)) } else { a.div_euclid(c) };
        let high = |b: i64| if b >= 0 { b.div_euclid(c) } else { d.map_or(-1, |d| b.div_euclid(d)) };
        Interval { min: self.min.map(low), max: self.max.map(high) }
    }
}

/// A number or an infinity, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bound {
    Below,
    Number(i128),
    Above,
}

impl From<i64> for Bound {
    fn from(value: i64) -> Bound {
        Bound::Number(value.into())
    }
}

impl Bound {
    fn is_negative(self) -> bool {
        self < Bound::Number(0)
    }

    /// `None` for an infinity, and past i64.
    fn number(self) -> Option<i64> {
        if let Bound::Number(value) = self { i64::try_from(value).ok() } else { None }
    }
}

//! A bounded search for sizes that meet demands on several symbols together.

use super::solve::Problem;
use crate::infer::ConstraintKind;

/// Steps of a search before it gives up.
const BUDGET: usize = 60_000;
/// Most values that are looked at of a symbol whose demands all earlier symbols are part of.
const CANDIDATES: usize = 384;

/// What a value of a symbol costs; `None` for one that is not wanted.
pub(super) type Cost<'a> = &'a dyn Fn(usize, i64) -> Option<i64>;

struct Search<'a> {
    problem: &'a Problem,
    /// Demands on several symbols.
    joint: &'a [usize],
    cost: Cost<'a>,
    /// Values of each symbol, the cheapest first.
    candidates: Vec<Vec<i64>>,
    /// Least value of each symbol, which is a candidate whatever it costs.
    least: Vec<i64>,
    assigned: Vec<i64>,
    budget: usize,
}

/// What the values of earlier symbols leave of the next one.
enum Left {
    /// All of its candidates.
    All,
    /// One value.
    One(i64),
    /// Nothing.
    Nothing,
}

impl Problem {
    /// One value a symbol, at least `floor`, that meets the joint demands; earlier symbols get their cheapest first.
    pub(super) fn search(&self, joint: &[usize], cost: Cost<'_>, floor: &[i64]) -> Option<Vec<i64>> {
        let first = |k: usize| self.vars[k].asked.map_or(1, |(min, ..)| min.min(1));
        let least: Vec<i64> =
            (0..self.vars.len()).map(|k| floor.get(k).copied().unwrap_or_else(|| first(k))).collect();
        let candidates = self.vars.iter().zip(&least).enumerate().map(|(k, (var, &least))| {
            let costs = var.valid.iter().filter(|&&v| v >= least).filter_map(|&v| Some((cost(k, v)?, v)));
            let mut list: Vec<(i64, i64)> = costs.collect();
            list.sort_by_key(|&(cost, _)| cost);
            let mut list: Vec<i64> = list.into_iter().map(|(_, value)| value).collect();
            if !joint.iter().any(|&d| self.demands[d].vars.contains(&k)) {
                list.truncate(1);
            } else if joint.iter().any(|&d| self.demands[d].vars.last() == Some(&k)) {
                list.truncate(CANDIDATES);
            }
            // What was valid before stays within reach.
            if list.is_empty() || (!floor.is_empty() && !list.contains(&least)) {
                list.push(least);
            }
            list
        });
        let candidates = candidates.collect();
        let assigned = Vec::with_capacity(self.vars.len());
        let mut search = Search { problem: self, joint, cost, candidates, least, assigned, budget: BUDGET };
        search.descend().then_some(search.assigned)
    }
}

impl Search<'_> {
    fn descend(&mut self) -> bool {
        let at = self.assigned.len();
        if at == self.candidates.len() {
            return true;
        }
        match self.left() {
            Left::Nothing => {
                self.budget = self.budget.saturating_sub(1);
                false
            }
            Left::One(value) => self.takes(value),
            Left::All => {
                for k in 0..self.candidates[at].len() {
                    if self.takes(self.candidates[at][k]) {
                        return true;
                    }
                    if self.budget == 0 {
                        break;
                    }
                }
                false
            }
        }
    }

    /// Gives the next symbol this value, and the ones after it values that go with it.
    fn takes(&mut self, value: i64) -> bool {
        let at = self.assigned.len();
        self.assigned.push(value);
        let fits =
            self.closing(at).all(|d| self.problem.holds(&self.problem.demands[d].kind, &self.assigned));
        self.budget = self.budget.saturating_sub(1 + self.closing(at).count());
        if fits && self.descend() {
            return true;
        }
        self.assigned.pop();
        false
    }

    /// Demands of which this symbol is the last.
    fn closing(&self, at: usize) -> impl Iterator<Item = usize> {
        let problem = self.problem;
        self.joint.iter().copied().filter(move |&d| problem.demands[d].vars.last() == Some(&at))
    }

    /// What equations leave of the next symbol, where it stands in them with a factor and a summand only.
    fn left(&self) -> Left {
        /// Far enough that no quotient or remainder looks like a straight line.
        const FAR: i64 = 100_003;
        let at = self.assigned.len();
        let problem = self.problem;
        for d in self.closing(at) {
            let ConstraintKind::Equal(a, b) = &problem.demands[d].kind else { continue };
            let difference = |value: i64| {
                let of = |symbol| {
                    let place = problem.vars.iter().position(|var| var.symbol == symbol)?;
                    if place == at { Some(value) } else { self.assigned.get(place).copied() }
                };
                a.eval(&of)?.checked_sub(b.eval(&of)?)
            };
            let line = [0, 1, 2, FAR].map(difference);
            let [Some(start), Some(one), Some(two), Some(far)] = line else { continue };
            let slope = one - start;
            if slope == 0 || two - one != slope || slope.checked_mul(FAR) != far.checked_sub(start) {
                continue;
            }
            let value = start.checked_neg().map_or(0, |start| start / slope);
            let wanted = problem.vars[at].valid.binary_search(&value).is_ok()
                && (value == self.least[at] || (value > self.least[at] && (self.cost)(at, value).is_some()));
            return if start % slope == 0 && wanted { Left::One(value) } else { Left::Nothing };
        }
        Left::All
    }
}

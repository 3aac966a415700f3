//! Sets of opset versions, and the choice of one for a host segment.

use super::history;

/// Highest opset of ai.onnx that the tables know.
pub const MAX_OPSET: u32 = 28;

/// Opset that host segments take when they can: old enough for ONNX Runtimes of the last years.
pub const PREFERRED_OPSET: u32 = 21;

/// Opsets (1 to [`MAX_OPSET`]) of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opsets(u32);

impl Opsets {
    /// Every opset.
    pub const ALL: Opsets = Opsets((2 << MAX_OPSET) - 2);
    /// None.
    pub const NONE: Opsets = Opsets(0);

    /// Opsets `first..=last`, those that exist.
    pub fn range(first: u32, last: u32) -> Opsets {
        (first..=last.min(MAX_OPSET)).collect()
    }

    /// Whether `opset` is in it.
    pub fn contains(self, opset: u32) -> bool {
        opset <= MAX_OPSET && self.0 & 1 << opset != 0
    }

    /// In both.
    pub fn and(self, other: Opsets) -> Opsets {
        Opsets(self.0 & other.0)
    }

    /// In either.
    pub fn or(self, other: Opsets) -> Opsets {
        Opsets(self.0 | other.0)
    }

    /// Whether none is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Ascending.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (1..=MAX_OPSET).filter(move |&opset| self.contains(opset))
    }

    /// The one to write a segment at: the highest up to [`PREFERRED_OPSET`], else the lowest above.
    pub fn preferred(self) -> Option<u32> {
        let old = (1..=PREFERRED_OPSET).rev().find(|&opset| self.contains(opset));
        old.or_else(|| self.iter().next())
    }
}

impl FromIterator<u32> for Opsets {
    fn from_iter<I: IntoIterator<Item = u32>>(opsets: I) -> Opsets {
        let known = opsets.into_iter().filter(|opset| (1..=MAX_OPSET).contains(opset));
        Opsets(known.fold(0, |bits, opset| bits | 1 << opset))
    }
}

/// Opsets at which the form since `since_version` of an operator holds: up to the next version. Every opset for an
/// operator that nobody knows, since no opset changes its meaning.
pub fn opsets_in_force(domain: &str, op_type: &str, since_version: u32) -> Opsets {
    let versions = history(domain, op_type);
    if versions.is_empty() {
        return Opsets::ALL;
    }
    if !versions.contains(&since_version) {
        return Opsets::NONE;
    }
    let next = versions.iter().find(|&&version| version > since_version);
    Opsets::range(since_version, next.map_or(MAX_OPSET, |next| next - 1))
}

/// Nodes that no opset suits together; without any one of them there would be one. They are positions in what
/// [`choose_opset`] was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no opset suits nodes {nodes:?} together")]
pub struct Conflict {
    /// Positions, ascending. A single one: that node has no opset at all.
    pub nodes: Vec<usize>,
}

/// One opset that suits every node: the highest up to [`PREFERRED_OPSET`], else the lowest above it.
///
/// # Errors
/// The nodes of a conflict, to split the segment between them.
pub fn choose_opset(nodes: &[Opsets]) -> Result<u32, Conflict> {
    let all = |nodes: &mut dyn Iterator<Item = Opsets>| nodes.fold(Opsets::ALL, Opsets::and);
    if let Some(opset) = all(&mut nodes.iter().copied()).preferred() {
        return Ok(opset);
    }
    // Drop every node whose absence leaves the conflict in place.
    let mut kept: Vec<usize> = (0..nodes.len()).collect();
    let distinct = |at: &usize| nodes[..*at].iter().all(|earlier| *earlier != nodes[*at]);
    kept.retain(distinct);
    let mut at = 0;
    while at < kept.len() {
        let mut others = kept.iter().enumerate().filter(|(k, _)| *k != at).map(|(_, node)| nodes[*node]);
        if all(&mut others).is_empty() {
            kept.remove(at);
        } else {
            at += 1;
        }
    }
    Err(Conflict { nodes: kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_old_opset_wins_then_the_lowest_new_one() {
        assert_eq!(choose_opset(&[]), Ok(21));
        assert_eq!(choose_opset(&[Opsets::range(13, 28), Opsets::range(1, 18)]), Ok(18));
        assert_eq!(choose_opset(&[Opsets::range(23, 28), Opsets::range(1, 25)]), Ok(23));
    }

    #[test]
    fn a_conflict_is_minimal() {
        let nodes = [Opsets::range(1, 28), Opsets::range(1, 12), Opsets::range(5, 20), Opsets::range(13, 28)];
        assert_eq!(choose_opset(&nodes), Err(Conflict { nodes: vec![1, 3] }));
        let triangle: [Opsets; 3] =
            [[1, 2].into_iter().collect(), [2, 3].into_iter().collect(), [1, 3].into_iter().collect()];
        assert_eq!(choose_opset(&triangle), Err(Conflict { nodes: vec![0, 1, 2] }));
        assert_eq!(choose_opset(&[Opsets::ALL, Opsets::NONE]), Err(Conflict { nodes: vec![1] }));
    }

    #[test]
    fn sets_stay_within_the_known_opsets() {
        assert_eq!(Opsets::ALL.iter().count(), MAX_OPSET as usize);
        assert_eq!(Opsets::range(0, 100), Opsets::ALL);
        assert!(!Opsets::ALL.contains(0) && !Opsets::ALL.contains(33));
        assert_eq!(Opsets::range(3, 4).or(Opsets::range(7, 7)).iter().collect::<Vec<_>>(), [3, 4, 7]);
    }
}

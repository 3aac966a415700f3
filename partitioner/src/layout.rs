//! Which node stands in which segment.

use std::collections::{BTreeMap, HashMap};
use trtc_ir::{Graph, NodeId};

/// A place for every node: segments run in the order of their numbers, even ones are engines, odd ones run on the host.
/// A node may have copies in further segments, for those segments' own use.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Layout {
    at: Vec<u32>,
    copies: HashMap<NodeId, Vec<u32>>,
}

impl Layout {
    /// From levels by [`NodeId::index`]; neighbours of one kind become one segment.
    pub fn new(order: &[NodeId], levels: &[u32]) -> Layout {
        let mut layout = Layout { at: levels.to_vec(), copies: HashMap::new() };
        layout.close_gaps(order);
        layout
    }

    /// Everything in one segment on the host.
    pub fn all_host(graph: &Graph) -> Layout {
        Layout { at: vec![1; graph.node_bound()], copies: HashMap::new() }
    }

    /// Whether a segment's number is an engine's.
    pub const fn is_engine(at: u32) -> bool {
        at.is_multiple_of(2)
    }

    /// Segment of a node.
    pub fn at(&self, id: NodeId) -> u32 {
        self.at[id.index()]
    }

    /// Moves a node.
    pub fn set(&mut self, id: NodeId, at: u32) {
        self.at[id.index()] = at;
    }

    /// The node's segment and those of its copies.
    pub fn places(&self, id: NodeId) -> impl Iterator<Item = u32> {
        let copies = self.copies.get(&id).map(Vec::as_slice).unwrap_or_default();
        std::iter::once(self.at(id)).chain(copies.iter().copied())
    }

    /// Whether the node or a copy of it stands in a segment.
    pub fn has(&self, id: NodeId, at: u32) -> bool {
        self.at(id) == at || (!self.copies.is_empty() && self.places(id).any(|place| place == at))
    }

    /// Adds copies of a node.
    pub fn copy(&mut self, id: NodeId, to: &[u32]) {
        let copies = self.copies.entry(id).or_default();
        copies.extend(to);
        copies.sort_unstable();
        copies.dedup();
    }

    /// Gives up the node's own place: its first copy takes over, the first one in an engine if there is any.
    pub fn promote_copy(&mut self, id: NodeId) {
        let Some(copies) = self.copies.get_mut(&id).filter(|copies| !copies.is_empty()) else { return };
        let first = copies.iter().position(|&at| Layout::is_engine(at)).unwrap_or(0);
        self.at[id.index()] = copies.remove(first);
        if copies.is_empty() {
            self.copies.remove(&id);
        }
    }

    /// One past the largest number of a segment.
    pub fn bound(&self) -> u32 {
        self.at.iter().copied().max().map_or(0, |max| max + 1)
    }

    /// Renumbers segments so that kinds alternate.
    pub fn close_gaps(&mut self, order: &[NodeId]) {
        let mut used: BTreeMap<u32, u32> = BTreeMap::new();
        for &id in order {
            for at in self.places(id) {
                used.insert(at, 0);
            }
        }
        let mut last: Option<u32> = None;
        for (&old, new) in &mut used {
            let parity = old % 2;
            *new = match last {
                None => parity,
                Some(last) if last % 2 == parity => last,
                Some(last) => last + 1,
            };
            last = Some(*new);
        }
        for &id in order {
            let at = &mut self.at[id.index()];
            *at = used.get(at).copied().unwrap_or(*at);
        }
        for (id, copies) in &mut self.copies {
            for copy in &mut *copies {
                *copy = used.get(copy).copied().unwrap_or(*copy);
            }
            copies.sort_unstable();
            copies.dedup();
            copies.retain(|&copy| copy != self.at[id.index()]);
        }
        self.copies.retain(|_, copies| !copies.is_empty());
    }
}

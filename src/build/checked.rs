//! Networks of the segments that the partitioner checked, kept until they are built.
//!
//! A check lowers the whole segment, and weights that are converted on the way (u8 to f32) can take seconds: what passes is
//! built as it is. A new partition after a failed build asks only of nodes and segments that are new, too.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use trtc_bundle::Target;
use trtc_converters::{Registry, SegmentIo, lower};
use trtc_ir::{Graph, NodeId, NodeView, Oracle, Refusal, Symbols, ValueId, oracle::SegmentRefusal};
use trtc_network::Lowered;
use trtc_partitioner::Part;

/// A graph of the module by its address: a module does not change while it is compiled.
type GraphAt = usize;
/// A segment by what it holds.
type Key = (GraphAt, Vec<NodeId>, Vec<ValueId>, Vec<ValueId>);

/// The converters, for one target and one module, with what they said before.
#[derive(Default)]
pub(crate) struct Checked {
    admitted: Mutex<HashMap<(GraphAt, NodeId), Result<(), Refusal>>>,
    /// Segments that passed; `None` where the network was taken or is not wanted.
    segments: Mutex<HashMap<Key, Option<Lowered>>>,
}

impl Checked {
    /// The network of a segment, if its check made one. Each is handed out once.
    pub fn take(&self, part: &Part<'_>) -> Option<Lowered> {
        let mut lowered = self.segments().get_mut(&key(part))?.take()?;
        lowered.network.name.clone_from(&part.segment.id);
        Some(lowered)
    }

    /// Lets go of the networks of all other segments: they were tried on the way.
    pub fn keep_only(&self, parts: &[Part<'_>]) {
        let wanted: Vec<Key> = parts.iter().map(key).collect();
        let mut segments = self.segments();
        let mut kept: Vec<Option<Lowered>> =
            wanted.iter().map(|key| segments.get_mut(key).and_then(Option::take)).collect();
        segments.values_mut().for_each(|network| *network = None);
        for (key, network) in wanted.iter().zip(&mut kept) {
            if let Some(slot) = segments.get_mut(key) {
                *slot = network.take();
            }
        }
    }

    fn segments(&self) -> MutexGuard<'_, HashMap<Key, Option<Lowered>>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn at(graph: &Graph) -> GraphAt {
    std::ptr::from_ref(graph) as usize
}

fn key(Part { graph, segment, .. }: &Part<'_>) -> Key {
    (at(graph), segment.nodes.clone(), segment.inputs.clone(), segment.outputs.clone())
}

impl Oracle for Checked {
    fn admit(&self, node: NodeView<'_>, target: &Target) -> Result<(), Refusal> {
        let admitted = || self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (at(node.graph()), node.id());
        if let Some(known) = admitted().get(&place) {
            return known.clone();
        }
        let answer = Registry::get().admit(node, target);
        admitted().insert(place, answer.clone());
        answer
    }

    fn check_segment(
        &self,
        graph: &Graph,
        symbols: &Symbols,
        nodes: &[NodeId],
        inputs: &[ValueId],
        outputs: &[ValueId],
        target: &Target,
    ) -> Result<(), SegmentRefusal> {
        let key = (at(graph), nodes.to_vec(), inputs.to_vec(), outputs.to_vec());
        if self.segments().contains_key(&key) {
            return Ok(());
        }
        let lowered = lower(graph, symbols, SegmentIo { name: "check", nodes, inputs, outputs }, target);
        let lowered = lowered.map_err(|error| error.of_segment(graph, nodes))?;
        self.segments().insert(key, Some(lowered));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Checked;
    use crate::{
        Options,
        plan::{Cuts, plan},
        prepare::{Source, prepare},
    };
    use trtc_bundle::DType;
    use trtc_ir::Oracle;
    use trtc_onnx::write::*;
    use trtc_partitioner::Forced;

    #[test]
    fn what_passed_its_check_is_handed_out_once() {
        let tensor = |name| value_info(name, DType::F32, [4i64, 4]);
        let nodes = [node("Abs", &["x"], &["h"], []), node("Neg", &["h"], &["y"], [])];
        let model = model(17, graph("two", nodes, [tensor("x")], [tensor("y")], []));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, encode(&model).unwrap()).unwrap();
        let options = Options::default();
        let prepared = prepare(&Source::open(&path, &options).unwrap(), &options).unwrap();
        let target = "rtx-1.7:sm89".parse().unwrap();

        let checked = Checked::default();
        let graph = &prepared.module.graph;
        let partition = plan(&prepared, &target, &Forced::new(), &Cuts::new(), &options, &checked).unwrap();
        let parts = partition.parts(graph);
        // Another segment, tried on the way.
        let first = &parts[0].segment.nodes[..1];
        let (inputs, outputs) = trtc_partitioner::boundary(graph, first);
        let check = |nodes: &[_], inputs: &[_], outputs: &[_]| {
            checked.check_segment(graph, &prepared.module.symbols, nodes, inputs, outputs, &target)
        };
        check(first, &inputs, &outputs).unwrap();
        let held = || checked.segments().values().filter(|network| network.is_some()).count();
        assert_eq!(held(), 2);
        checked.keep_only(&parts);
        assert_eq!(held(), 1);

        let lowered = checked.take(&parts[0]).unwrap();
        assert_eq!((&*lowered.network.name, lowered.network.layers.len()), (&*parts[0].segment.id, 2));
        assert!(checked.take(&parts[0]).is_none());
        // It is still known to pass, and not lowered again.
        let segment = parts[0].segment;
        check(&segment.nodes, &segment.inputs, &segment.outputs).unwrap();
        assert_eq!(held(), 0);
    }
}

//! Finds converters, and stands in for the traits by which inference and the partitioner reach them.

use crate::{
    converter::{Def, Erased},
    hint::with_hint,
    lower::{SegmentIo, lower},
    ops::OPS,
};
use std::{collections::HashMap, sync::OnceLock};
use trtc_bundle::{Product, Target};
use trtc_ir::{
    Code, Diag, Infer, InferCx, Inferred, NodeId, NodeView, Oracle, Refusal, Rules, ValueId,
    oracle::SegmentRefusal,
};

/// All converters.
pub struct Registry {
    by_domain: HashMap<&'static str, HashMap<&'static str, Entry>>,
}

struct Entry {
    converter: &'static dyn Erased,
    since: u32,
}

impl Registry {
    /// The one registry.
    pub fn get() -> &'static Registry {
        static REGISTRY: OnceLock<Registry> = OnceLock::new();
        REGISTRY.get_or_init(|| {
            let mut by_domain: HashMap<_, HashMap<_, _>> = HashMap::new();
            for &converter in OPS {
                for key in converter.def().keys {
                    let entry = Entry { converter, since: key.since };
                    by_domain.entry(key.domain).or_default().insert(key.op, entry);
                }
            }
            Registry { by_domain }
        })
    }

    /// Definitions of all converters, sorted by their first key.
    pub fn defs(&self) -> Vec<&'static Def> {
        let mut defs: Vec<&'static Def> = OPS.iter().map(|converter| converter.def()).collect();
        defs.sort_by_key(|def| def.keys.first().map(|key| (key.domain, key.op)));
        defs
    }

    fn entry(&self, domain: &str, op: &str) -> Option<&Entry> {
        self.by_domain.get(domain)?.get(op)
    }

    /// The converter of a node at its version.
    pub(crate) fn converter(&self, node: NodeView<'_>) -> Result<&'static dyn Erased, Refusal> {
        let entry = self.entry(node.domain(), node.op()).ok_or_else(|| {
            Refusal::new(Code::NO_CONVERTER, format!("no converter for {}", node.node().op))
        })?;
        if !entry.serves(node) {
            return Err(Refusal::new(
                Code::VERSION,
                format!(
                    "{} is at version {}; the converter knows {}",
                    node.node().op,
                    node.node().since_version,
                    entry.since
                ),
            ));
        }
        Ok(entry.converter)
    }
}

impl Entry {
    /// Whether the node is of the converter's version. Newer versions of ai.onnx.ml's operators only add attributes, and
    /// the front end leaves those nodes as they are.
    fn serves(&self, node: NodeView<'_>) -> bool {
        let version = node.node().since_version;
        version == self.since || (node.domain() == "ai.onnx.ml" && version < self.since)
    }
}

impl Infer for Entry {
    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        if !self.serves(node) {
            return Ok(Vec::new());
        }
        self.converter.infer(node, cx)
    }

    fn body_inputs(&self, node: NodeView<'_>, attr: &str, pass: usize) -> Vec<Inferred> {
        self.converter.body_inputs(node, attr, pass)
    }
}

impl Rules for Registry {
    fn rule(&self, domain: &str, op_type: &str) -> Option<&dyn Infer> {
        self.entry(domain, op_type).map(|entry| entry as &dyn Infer)
    }
}

impl Oracle for Registry {
    fn admit(&self, node: NodeView<'_>, target: &Target) -> Result<(), Refusal> {
        if target.product() == Product::Host {
            return Err(Refusal::new(Code::HOST_TARGET, "the target has no engines"));
        }
        self.converter(node)?.plan(node, target).map(drop).map_err(|refusal| with_hint(node, refusal))
    }

    fn check_segment(
        &self,
        graph: &trtc_ir::Graph,
        symbols: &trtc_ir::Symbols,
        nodes: &[NodeId],
        inputs: &[ValueId],
        outputs: &[ValueId],
        target: &Target,
    ) -> Result<(), SegmentRefusal> {
        let lowered = lower(graph, symbols, SegmentIo { name: "check", nodes, inputs, outputs }, target);
        lowered.map(drop).map_err(|error| error.of_segment(graph, nodes))
    }
}

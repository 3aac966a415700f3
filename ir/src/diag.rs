//! Diagnostics and refusals as data. Rendering is the command line's.

use std::fmt;

/// Stable code of a refusal or diagnostic, written `E0107`.
///
/// | range | about |
/// |---|---|
/// | E00xx | the operator: no converter, another version, host only |
/// | E01xx | dtypes |
/// | E02xx | attributes and modes |
/// | E03xx | ranks and shapes |
/// | E04xx | inputs that must be constant, or have a bounded shape value |
/// | E05xx | the target: compute capability, product, version, known faults |
/// | E06xx | segment boundaries |
/// | E07xx | control flow |
/// | E08xx | the model itself is wrong |
/// | E09xx | placed on the host for cost |
/// | E90xx | a promise of ours that broke: admitted, but refused or wrong later |
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Codes that more than one operator uses.
impl Code {
    /// No converter for this operator.
    pub const NO_CONVERTER: Code = Code(1);
    /// The node's schema version is not the one that the converter knows.
    pub const VERSION: Code = Code(2);
    /// The operator runs on the host only.
    pub const HOST_ONLY: Code = Code(3);
    /// The target has no engines.
    pub const HOST_TARGET: Code = Code(4);
    /// The dtype cannot be represented in TensorRT.
    pub const DTYPE_UNREPRESENTABLE: Code = Code(101);
    /// TensorRT has no kernel of this operator for the dtype.
    pub const DTYPE_KERNEL: Code = Code(102);
    /// The dtype is not known.
    pub const DTYPE_UNKNOWN: Code = Code(103);
    /// An attribute or mode that TensorRT does not have.
    pub const ATTRIBUTE: Code = Code(201);
    /// More outputs are used than can be made.
    pub const OUTPUTS: Code = Code(202);
    /// The rank is not known.
    pub const RANK_UNKNOWN: Code = Code(301);
    /// A rank that TensorRT does not take.
    pub const RANK: Code = Code(302);
    /// A dim that must be known is not.
    pub const DIM_UNKNOWN: Code = Code(303);
    /// A shape that TensorRT does not take.
    pub const SHAPE: Code = Code(304);
    /// An input that must be constant is not.
    pub const NOT_CONSTANT: Code = Code(401);
    /// A shape-like input whose values nobody can bound.
    pub const SHAPE_VALUE: Code = Code(402);
    /// A constant value that TensorRT does not take.
    pub const CONSTANT_VALUE: Code = Code(403);
    /// A compute capability of the target lacks it.
    pub const COMPUTE_CAPABILITY: Code = Code(501);
    /// The product cannot build the layer.
    pub const PRODUCT: Code = Code(502);
    /// A known wrong result or crash of the product's version is avoided.
    pub const KNOWN_FAULT: Code = Code(503);
    /// A boundary value has no representable type.
    pub const BOUNDARY: Code = Code(601);
    /// A subgraph holds a node that no engine can hold.
    pub const BODY: Code = Code(701);
    /// The branches or states of control flow do not fit TensorRT.
    pub const CONTROL_FLOW: Code = Code(702);
    /// The node does not obey its operator's schema.
    pub const INVALID: Code = Code(801);
    /// An engine would take the node, but it is cheaper on the host.
    pub const COST: Code = Code(901);
    /// The builder refused an admitted network.
    pub const BUILD_REFUSED: Code = Code(9001);
    /// The builder crashed on an admitted network.
    pub const BUILD_CRASHED: Code = Code(9002);
    /// The builder ran past its time limit.
    pub const BUILD_TIMED_OUT: Code = Code(9003);
    /// Lowering an admitted node failed.
    pub const LOWERING: Code = Code(9004);
}

/// Why a node cannot go into an engine. Data, not text to parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Stable code.
    pub code: Code,
    /// The input (`x`, `indices`) or attribute (`mode`) concerned.
    pub slot: Option<String>,
    /// What is in the way, in the field's words.
    pub why: String,
    /// What would move the node to the engine.
    pub help: Option<String>,
}

impl Refusal {
    /// A refusal.
    pub fn new(code: Code, why: impl Into<String>) -> Refusal {
        Refusal { code, slot: None, why: why.into(), help: None }
    }

    /// Names the input or attribute.
    pub fn slot(mut self, slot: impl Into<String>) -> Refusal {
        self.slot = Some(slot.into());
        self
    }

    /// Says what would help.
    pub fn help(mut self, help: impl Into<String>) -> Refusal {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.slot {
            Some(slot) => write!(f, "{slot}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// Something wrong with the model, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Diag {
    /// Stable code.
    pub code: Code,
    /// Node (path through subgraphs), or empty for the model as a whole.
    pub node: String,
    /// Operator of the node.
    pub op: String,
    /// Input, output or attribute concerned.
    pub slot: Option<String>,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub help: Option<String>,
}

impl Diag {
    /// A diagnostic; the driver fills in node and operator.
    pub fn new(code: Code, why: impl Into<String>) -> Diag {
        Diag { code, node: String::new(), op: String::new(), slot: None, why: why.into(), help: None }
    }

    /// The node breaks its operator's schema.
    pub fn invalid(why: impl Into<String>) -> Diag {
        Diag::new(Code::INVALID, why)
    }

    /// Names the input, output or attribute.
    pub fn slot(mut self, slot: impl Into<String>) -> Diag {
        self.slot = Some(slot.into());
        self
    }
}

impl fmt::Display for Diag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.node.is_empty() {
            write!(f, "node `{}` ({}): ", self.node, self.op)?;
        }
        if let Some(slot) = &self.slot {
            write!(f, "{slot}: ")?;
        }
        f.write_str(&self.why)
    }
}

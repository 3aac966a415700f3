//! The manifest: what a bundle holds and how it is run, as JSON at the end of the file.
//!
//! Lists refer to each other by index. A reader ignores keys that it does not know.

use crate::{DType, Hash, Target};
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in its list.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// An index into [`Manifest::sections`].
    SectionId;
    /// An index into [`Manifest::weights`].
    WeightsId;
    /// An index into [`TargetPlan::values`].
    ValueId;
    /// An index into [`TargetPlan::segments`].
    SegmentId;
}

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SectionKind {
    /// A serialised engine.
    Engine,
    /// JSON of a TensorRT network, without weights.
    Network,
    /// An ONNX model whose large weights are external, in this file.
    Graph,
    /// JSON of a compile report.
    Report,
}

impl fmt::Display for SectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SectionKind::Engine => "engine",
            SectionKind::Network => "network",
            SectionKind::Graph => "graph",
            SectionKind::Report => "report",
        })
    }
}

/// A part of the file. Offsets are from its beginning, multiples of 64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Section {
    /// What it holds.
    pub kind: SectionKind,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Hash of its bytes.
    pub hash: Hash,
    /// Of a graph: offsets within the section where the file's name goes ([`crate::LOCATION`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<u64>,
}

/// One block of weights: little-endian, packed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WeightsEntry {
    /// Offset in bytes, a multiple of 64.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Hash of its bytes.
    pub hash: Hash,
}

/// Everything that a bundle says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Manifest {
    /// Program that compiled it, with its version and commit.
    pub producer: String,
    /// The model that it was compiled from.
    pub model: ModelInfo,
    /// Inputs of the model, in its order. Their dims are what a run may be given.
    pub inputs: Vec<ValueInfo>,
    /// Outputs of the model, in its order.
    pub outputs: Vec<ValueInfo>,
    /// Ranges of the dims and elements that are written as text.
    #[serde(default)]
    pub symbols: Vec<Symbol>,
    /// Inputs of the source model that were given one value for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<Pinned>,
    /// Sizes that are known because the model declares them, and what computes them from the inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Declared>,
    /// The whole model as one host graph, for machines without a device.
    #[serde(default)]
    pub whole_model: Option<SectionId>,
    /// One plan for each target, in the order asked for.
    pub targets: Vec<TargetPlan>,
    /// Sections, ascending by offset. Filled in by the writer.
    #[serde(default)]
    pub sections: Vec<Section>,
    /// Weights, ascending by offset. Filled in by the writer.
    #[serde(default)]
    pub weights: Vec<WeightsEntry>,
}

/// The source model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// File name, without folders.
    pub name: String,
    /// `onnx`, `pt2` or `fx`.
    pub format: String,
    /// [`Hash::of_model`].
    pub hash: Hash,
}

/// A dim that the manifest names, with what it may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Symbol {
    /// Text as in [`Dim::Text`]: a symbol's name or an expression.
    pub text: String,
    /// Smallest value.
    pub min: u64,
    /// Value that engines are tuned for.
    pub opt: u64,
    /// Greatest value.
    pub max: u64,
}

/// One dim of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Dim {
    /// A number: `224`.
    Known(u64),
    /// A symbol or an expression: `"batch"`, `"2*n+1"`. Equal texts in one run are equal numbers.
    Text(String),
    /// `null`: only the run knows.
    Unknown,
}

/// What a value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ValueKind {
    /// A tensor.
    #[default]
    Tensor,
    /// A sequence of tensors.
    Sequence,
    /// A tensor or nothing.
    Optional,
    /// A sequence of tensors or nothing.
    OptionalSequence,
    /// A map, or a sequence of maps.
    Map,
}

impl ValueKind {
    fn is_tensor(&self) -> bool {
        *self == ValueKind::Tensor
    }
}

/// A value: a model's input or output, or what flows between segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ValueInfo {
    /// Name: the graph's input or output, or the engine's binding, of the segments that use it.
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "ValueKind::is_tensor")]
    pub kind: ValueKind,
    /// Element type; of a sequence or optional, that of its tensors.
    pub dtype: DType,
    /// Dims; `null` when even the rank is unknown.
    pub dims: Option<Vec<Dim>>,
    /// Of an input of the model: what its elements have to be, because sizes follow from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<Vec<Element>>,
}

/// One element of an integer value of rank 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Element {
    /// This number: `-1`.
    Known(i64),
    /// A symbol (`"sizes[2]"`), as in [`Dim::Text`]; its range is among [`Manifest::symbols`].
    Text(String),
    /// `null`: any number.
    Unknown,
}

/// Sizes that plans take for granted because the model declares them. Whoever runs a plan compares first; the whole-model
/// graph needs none of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Declared {
    /// A host graph from inputs of the model, by their names, to the dims of each of `values` (i64), in their order.
    pub graph: SectionId,
    /// What is declared.
    pub values: Vec<DeclaredValue>,
}

/// A value whose dims the model declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeclaredValue {
    /// Its name.
    pub name: String,
    /// Its dims; [`Dim::Unknown`] where they may be anything.
    pub dims: Vec<Dim>,
    /// Inputs of the model that they follow from.
    pub inputs: Vec<String>,
}

impl Declared {
    /// A graph, and what its outputs have to be.
    pub fn new(graph: SectionId, values: Vec<DeclaredValue>) -> Declared {
        Declared { graph, values }
    }
}

impl DeclaredValue {
    /// A value, its dims, and the inputs that they follow from.
    pub fn new(name: impl Into<String>, dims: Vec<Dim>, inputs: Vec<String>) -> DeclaredValue {
        DeclaredValue { name: name.into(), dims, inputs }
    }
}

/// An input of the source model that always has the same value, and so is no input of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pinned {
    /// The input, with known dims.
    pub value: ValueInfo,
    /// Its bytes.
    pub weights: WeightsId,
}

impl Pinned {
    /// An input and its bytes.
    pub fn new(value: ValueInfo, weights: WeightsId) -> Pinned {
        Pinned { value, weights }
    }
}

/// How the model runs on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TargetPlan {
    /// The target.
    pub target: Target,
    /// Whether engines may round the operands of f32 products to TF32; the deferred ones are built so, too.
    #[serde(default)]
    pub tf32: bool,
    /// Every value that crosses a segment's boundary.
    pub values: Vec<ValueInfo>,
    /// The value of each of [`Manifest::inputs`].
    pub inputs: Vec<ValueId>,
    /// The value of each of [`Manifest::outputs`].
    pub outputs: Vec<ValueId>,
    /// Segments.
    pub segments: Vec<Segment>,
    /// What to run, in order.
    pub schedule: Vec<Step>,
    /// The compile report.
    #[serde(default)]
    pub report: Option<SectionId>,
}

/// Where a segment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SegmentKind {
    /// In a TensorRT engine; on machines without one, as the host graph of the same nodes (its twin).
    Engine,
    /// On the host.
    Host,
    /// Nowhere: its outputs were computed by the compiler.
    Constant,
}

/// Part of the model that runs as one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Segment {
    /// Name as in the report.
    pub id: String,
    /// Where it runs.
    pub kind: SegmentKind,
    /// Inputs. An engine's bindings and a graph's inputs have the names of these values.
    pub inputs: Vec<ValueId>,
    /// Outputs, likewise.
    pub outputs: Vec<ValueId>,
    /// The engine; `null` when it is not built yet (deferred).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<SectionId>,
    /// The engine's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkRef>,
    /// The segment's nodes as a host graph; of an engine, its twin, or its layers where the host has no kernel of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<SectionId>,
    /// Of a constant segment: the bytes of each output, whose dims are known numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constants: Vec<WeightsId>,
    /// Of an engine: bindings that hold their values in another dtype than the value's own, which TensorRT does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<Carried>,
}

/// A binding whose dtype is the carrier of its value's ([`DType::carrier`]): whoever runs the engine converts
/// ([`crate::widened`] on the way in, [`crate::narrowed`] on the way out).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Carried {
    /// One of the segment's inputs or outputs.
    pub value: ValueId,
    /// Dtype of the binding.
    pub dtype: DType,
}

impl Carried {
    /// A binding of dtype `dtype` for `value`.
    pub fn new(value: ValueId, dtype: DType) -> Carried {
        Carried { value, dtype }
    }
}

/// A network without its weights, and the weights by their index in the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NetworkRef {
    /// The network's JSON.
    pub section: SectionId,
    /// `weights[k]` belongs to the network's weights `k`.
    pub weights: Vec<WeightsId>,
}

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Step {
    /// Run a segment.
    Run {
        /// The segment.
        segment: SegmentId,
    },
    /// ONNX `If`.
    If {
        /// One bool.
        condition: ValueId,
        /// Run when it is true. Its outputs become `outputs`.
        #[serde(rename = "then")]
        then_block: Block,
        /// Run when it is false.
        #[serde(rename = "else")]
        else_block: Block,
        /// Outputs of the `If`.
        outputs: Vec<ValueId>,
    },
    /// ONNX `Loop`.
    Loop {
        /// One i64: the greatest number of turns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trip_count: Option<ValueId>,
        /// One bool: whether to begin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        condition: Option<ValueId>,
        /// What the carried values are at first.
        initial: Vec<ValueId>,
        /// Values that the body reads: turn number (i64), condition (bool), carried values.
        inputs: Vec<ValueId>,
        /// The body; its outputs: condition, carried values, one slice of each scan output.
        body: Block,
        /// Outputs of the `Loop`: carried values, then scan outputs (slices stacked along a new first axis).
        outputs: Vec<ValueId>,
    },
    /// ONNX `Scan`: one turn for each part of what is scanned.
    Scan {
        /// What the states are at first.
        initial: Vec<ValueId>,
        /// Tensors that are taken apart; all have the same length along their axes.
        scanned: Vec<ScanAxis>,
        /// Values that the body reads: states, then one part (without its axis) of each scanned tensor.
        inputs: Vec<ValueId>,
        /// The body; its outputs: states, then one part of each stacked tensor.
        body: Block,
        /// What the states are in the end.
        outputs: Vec<ValueId>,
        /// Outputs that are put together from parts along a new axis.
        stacked: Vec<ScanAxis>,
    },
}

/// A tensor that a `Scan` takes apart or puts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScanAxis {
    /// The tensor.
    pub value: ValueId,
    /// Its axis, from 0.
    pub axis: u32,
    /// From the last part to the first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverse: bool,
}

impl ScanAxis {
    /// An axis of a tensor, from its first part to its last or the other way.
    pub fn new(value: ValueId, axis: u32, reverse: bool) -> ScanAxis {
        ScanAxis { value, axis, reverse }
    }
}

/// The steps of a branch or a loop's body, and what they end with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Block {
    /// Steps, in order.
    pub steps: Vec<Step>,
    /// Values that leave the block.
    pub outputs: Vec<ValueId>,
}

impl Manifest {
    /// A manifest of a model without inputs, outputs and targets, to be filled in.
    pub fn new(producer: impl Into<String>, model: ModelInfo) -> Manifest {
        Manifest {
            producer: producer.into(),
            model,
            inputs: Vec::new(),
            outputs: Vec::new(),
            symbols: Vec::new(),
            pinned: Vec::new(),
            declared: None,
            whole_model: None,
            targets: Vec::new(),
            sections: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// Range of a dim that is written as `text`.
    pub fn symbol(&self, text: &str) -> Option<&Symbol> {
        self.symbols.iter().find(|symbol| symbol.text == text)
    }
}

impl ModelInfo {
    /// A model called `name` (file name without folders) in `format` (`onnx`, `pt2`, `fx`).
    pub fn new(name: impl Into<String>, format: impl Into<String>, hash: Hash) -> ModelInfo {
        ModelInfo { name: name.into(), format: format.into(), hash }
    }
}

impl Symbol {
    /// A symbol with `min ≤ opt ≤ max`.
    pub fn new(text: impl Into<String>, min: u64, opt: u64, max: u64) -> Symbol {
        Symbol { text: text.into(), min, opt, max }
    }
}

impl ValueInfo {
    /// A tensor; `None` for an unknown rank.
    pub fn tensor(name: impl Into<String>, dtype: DType, dims: Option<Vec<Dim>>) -> ValueInfo {
        ValueInfo { name: name.into(), kind: ValueKind::Tensor, dtype, dims, elements: None }
    }

    /// Something else made of tensors of `dtype`.
    pub fn other(name: impl Into<String>, kind: ValueKind, dtype: DType) -> ValueInfo {
        ValueInfo { name: name.into(), kind, dtype, dims: None, elements: None }
    }

    /// As given, with what its elements have to be.
    pub fn with_elements(mut self, elements: Vec<Element>) -> ValueInfo {
        self.elements = Some(elements);
        self
    }

    /// Its dims, when all are known numbers that fit in memory.
    pub fn static_dims(&self) -> Option<Vec<usize>> {
        let dims = self.dims.as_ref().filter(|_| self.kind == ValueKind::Tensor)?;
        let number = |dim: &Dim| match dim {
            Dim::Known(dim) => usize::try_from(*dim).ok(),
            _ => None,
        };
        dims.iter().map(number).collect()
    }

    /// Its length in bytes, when that does not depend on the run.
    pub fn static_bytes(&self) -> Option<usize> {
        let count = self.static_dims()?.into_iter().try_fold(1usize, usize::checked_mul)?;
        self.dtype.bytes_for(count)
    }
}

impl TargetPlan {
    /// An empty plan, to be filled in.
    pub fn new(target: Target) -> TargetPlan {
        TargetPlan {
            target,
            tf32: false,
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            segments: Vec::new(),
            schedule: Vec::new(),
            report: None,
        }
    }
}

impl Segment {
    /// A segment without inputs, outputs and content, to be filled in.
    pub fn new(id: impl Into<String>, kind: SegmentKind) -> Segment {
        Segment {
            id: id.into(),
            kind,
            inputs: Vec::new(),
            outputs: Vec::new(),
            engine: None,
            network: None,
            graph: None,
            constants: Vec::new(),
            carried: Vec::new(),
        }
    }
}

impl NetworkRef {
    /// A network and its weights.
    pub fn new(section: SectionId, weights: Vec<WeightsId>) -> NetworkRef {
        NetworkRef { section, weights }
    }
}

impl Block {
    /// Steps and the values that leave them.
    pub fn new(steps: Vec<Step>, outputs: Vec<ValueId>) -> Block {
        Block { steps, outputs }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Known(number) => write!(f, "{number}"),
            Element::Text(text) => f.write_str(text),
            Element::Unknown => f.write_str("?"),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Known(dim) => write!(f, "{dim}"),
            Dim::Text(text) => f.write_str(text),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

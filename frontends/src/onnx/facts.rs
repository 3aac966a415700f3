//! Ranks and element types as far as they are plain to see while a graph is read.
//!
//! A few old operator forms mean something that depends on them (Softmax before 13, broadcasting before 7). Real inference comes
//! later and over the canonical forms; this is a table of the usual operators, and what it does not know stays unknown.

use crate::onnx::draft::Draft;
use trtc_bundle::DType;
use trtc_ir::{Graph, ValueId};

/// Ranks and element types by value.
#[derive(Debug, Default)]
pub(crate) struct Facts(Vec<Fact>);

#[derive(Clone, Copy, Debug, Default)]
struct Fact {
    rank: Option<usize>,
    dtype: Option<DType>,
}

impl Facts {
    fn get(&self, id: ValueId) -> Fact {
        self.0.get(id.index()).copied().unwrap_or_default()
    }

    /// Rank of a value.
    pub(crate) fn rank(&self, id: ValueId) -> Option<usize> {
        self.get(id).rank
    }

    /// Element type of a value.
    pub(crate) fn dtype(&self, id: ValueId) -> Option<DType> {
        self.get(id).dtype
    }

    fn learn(&mut self, id: ValueId, fact: Fact) {
        if self.0.len() <= id.index() {
            self.0.resize(id.index() + 1, Fact::default());
        }
        let known = &mut self.0[id.index()];
        known.rank = known.rank.or(fact.rank);
        known.dtype = known.dtype.or(fact.dtype);
    }

    /// Takes what is known of a value elsewhere.
    pub(crate) fn learn_from(&mut self, id: ValueId, rank: Option<usize>, dtype: Option<DType>) {
        self.learn(id, Fact { rank, dtype });
    }

    /// Takes what the type of a value says.
    pub(crate) fn learn_type(&mut self, graph: &Graph, id: ValueId) {
        let ty = &graph[id].ty;
        self.learn(id, Fact { rank: ty.shape().map(<[_]>::len), dtype: ty.dtype() });
    }

    /// Works out the outputs of a node in its canonical form.
    pub(crate) fn learn_node(
        &mut self,
        graph: &Graph,
        draft: &Draft,
        inputs: &[Option<ValueId>],
        outputs: &[Option<ValueId>],
    ) {
        if !draft.op.domain.is_empty() {
            return;
        }
        for (slot, output) in outputs.iter().enumerate() {
            if let Some(output) = *output {
                let fact = self.output(graph, draft, inputs, slot);
                self.learn(output, fact);
            }
        }
    }

    fn output(&self, graph: &Graph, draft: &Draft, inputs: &[Option<ValueId>], slot: usize) -> Fact {
        let input = |slot: usize| inputs.get(slot).copied().flatten();
        let fact = |slot: usize| input(slot).map_or(Fact::default(), |id| self.get(id));
        let constant = |slot: usize| input(slot).and_then(|id| graph[id].constant.as_ref());
        let int = |name: &str, default: i64| draft.attrs.int(name).unwrap_or(default);
        let known = |rank: Option<usize>, dtype: Option<DType>| Fact { rank, dtype };
        let broadcast = || {
            let ranks = (0..inputs.len()).map(|slot| fact(slot).rank);
            ranks.reduce(|a, b| Some(a?.max(b?))).flatten()
        };
        // Number of axes that an input lists.
        let listed = |slot: usize| constant(slot).map(|tensor| tensor.count());
        match (&*draft.op.op_type, slot) {
            (
                "Relu"
                | "Sigmoid"
                | "Tanh"
                | "LeakyRelu"
                | "Elu"
                | "Selu"
                | "Celu"
                | "Gelu"
                | "Mish"
                | "HardSigmoid"
                | "HardSwish"
                | "Softplus"
                | "Softsign"
                | "Exp"
                | "Log"
                | "Sqrt"
                | "Abs"
                | "Neg"
                | "Ceil"
                | "Floor"
                | "Round"
                | "Erf"
                | "Sign"
                | "Reciprocal"
                | "Sin"
                | "Cos"
                | "Tan"
                | "Asin"
                | "Acos"
                | "Atan"
                | "Sinh"
                | "Cosh"
                | "Asinh"
                | "Acosh"
                | "Atanh"
                | "Not"
                | "Identity"
                | "Dropout"
                | "BatchNormalization"
                | "InstanceNormalization"
                | "GroupNormalization"
                | "LayerNormalization"
                | "LRN"
                | "LpNormalization"
                | "MeanVarianceNormalization"
                | "Softmax"
                | "LogSoftmax"
                | "Hardmax"
                | "Clip"
                | "Transpose"
                | "Conv"
                | "ConvTranspose"
                | "MaxPool"
                | "AveragePool"
                | "LpPool"
                | "GlobalAveragePool"
                | "GlobalMaxPool"
                | "GlobalLpPool"
                | "Pad"
                | "Slice"
                | "Concat"
                | "Resize"
                | "Tile"
                | "CumSum"
                | "PRelu"
                | "ThresholdedRelu"
                | "DepthToSpace"
                | "SpaceToDepth"
                | "ScatterElements"
                | "ScatterND"
                | "Shrink"
                | "ReverseSequence"
                | "Trilu"
                | "TopK",
                0,
            )
            | ("Split", _) => fact(0),
            ("TopK", 1) => known(fact(0).rank, Some(DType::I64)),
            ("Cast", _) => {
                let to = draft.attrs.int("to").and_then(|n| i32::try_from(n).ok());
                known(fact(0).rank, to.and_then(DType::from_onnx))
            }
            ("CastLike", _) => known(fact(0).rank, fact(1).dtype),
            ("QuantizeLinear", _) => known(fact(0).rank, fact(2).dtype),
            ("DequantizeLinear", _) => known(fact(0).rank, fact(1).dtype),
            ("Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod" | "Max" | "Min" | "Mean" | "Sum", _) => {
                known(broadcast(), fact(0).dtype)
            }
            ("And" | "Or" | "Xor" | "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual", _) => {
                known(broadcast(), Some(DType::Bool))
            }
            ("Where", _) => known(broadcast(), fact(1).dtype),
            ("Shape" | "NonZero", _) => {
                known(Some(if &*draft.op.op_type == "Shape" { 1 } else { 2 }), Some(DType::I64))
            }
            ("Size", _) => known(Some(0), Some(DType::I64)),
            ("Flatten" | "Gemm", _) => known(Some(2), fact(0).dtype),
            ("MatMul", _) => {
                let rank = fact(0).rank.zip(fact(1).rank).filter(|(a, b)| *a >= 2 && *b >= 2);
                known(rank.map(|(a, b)| a.max(b)), fact(0).dtype)
            }
            ("Reshape", _) => known(listed(1), fact(0).dtype),
            ("Expand", _) => {
                known(fact(0).rank.zip(listed(1)).map(|(rank, shape)| rank.max(shape)), fact(0).dtype)
            }
            ("Unsqueeze", _) => {
                known(fact(0).rank.zip(listed(1)).map(|(rank, axes)| rank + axes), fact(0).dtype)
            }
            ("Squeeze", _) => {
                let rank = fact(0).rank.zip(listed(1)).and_then(|(rank, axes)| rank.checked_sub(axes));
                known(rank, fact(0).dtype)
            }
            ("ArgMax" | "ArgMin", _) => {
                let gone = usize::from(int("keepdims", 1) == 0);
                known(fact(0).rank.and_then(|rank| rank.checked_sub(gone)), Some(DType::I64))
            }
            (op, _) if op.starts_with("Reduce") => {
                let rank = if int("keepdims", 1) != 0 {
                    fact(0).rank
                } else {
                    fact(0).rank.zip(listed(1)).and_then(|(rank, axes)| rank.checked_sub(axes))
                };
                known(rank, fact(0).dtype)
            }
            ("Gather", _) => {
                let rank = fact(0).rank.zip(fact(1).rank).and_then(|(a, b)| (a + b).checked_sub(1));
                known(rank, fact(0).dtype)
            }
            ("GatherElements", _) => known(fact(1).rank, fact(0).dtype),
            ("ConstantOfShape", _) => {
                let value = draft.attrs.tensor("value").map_or(DType::F32, trtc_ir::Tensor::dtype);
                known(listed(0), Some(value))
            }
            ("LSTM" | "GRU" | "RNN", 0) => known(Some(4), fact(0).dtype),
            ("LSTM" | "GRU" | "RNN", _) => known(Some(3), fact(0).dtype),
            _ => Fact::default(),
        }
    }
}

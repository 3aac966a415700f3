//! Ranks and element types as far as they are plain to see while a graph is read.
//!
//! A few old operator forms mean something that depends on them (Softmax before 13, broadcasting before 7). Real inference comes
//! later and over the canonical forms; this is a table of the usual operators, and what it does not know stays unknown.

use crate::onnx::draft::Draft;
use trtc_bundle::DType;
use trtc_ir::{Dim, Graph, TensorType, Type, ValueId};
use trtc_onnx::schema;

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
        let schema = schema::lookup(&draft.op.domain, &draft.op.op_type, draft.since);
        let dtypes: Vec<Option<DType>> = inputs.iter().map(|id| id.and_then(|id| self.dtype(id))).collect();
        for (slot, output) in outputs.iter().enumerate() {
            let Some(output) = *output else { continue };
            let rank =
                if draft.op.domain.is_empty() { self.output_rank(graph, draft, inputs, slot) } else { None };
            let told = schema.and_then(|schema| {
                let param = schema.output(slot)?;
                let fixed = DType::from_name(param.type_name);
                fixed.or_else(|| schema.bound(param.type_name, &dtypes, &[]))
            });
            let dtype = dtype_of_attributes(draft, &dtypes, slot).or(told);
            self.learn(output, Fact { rank, dtype });
        }
    }

    /// Writes what is known into the types of a graph's values.
    pub(crate) fn write_types(&self, graph: &mut Graph) {
        for (index, fact) in self.0.iter().enumerate() {
            let id = ValueId(index as u32);
            if fact.dtype.is_some() && matches!(graph[id].ty, Type::Unknown | Type::Tensor(_)) {
                let shape = fact.rank.map(|rank| vec![Dim::Unknown; rank]);
                graph[id].ty.refine(&Type::Tensor(TensorType { dtype: fact.dtype, shape }));
            }
        }
    }

    /// Rank of an output of an operator of the default domain.
    fn output_rank(
        &self,
        graph: &Graph,
        draft: &Draft,
        inputs: &[Option<ValueId>],
        slot: usize,
    ) -> Option<usize> {
        let input = |slot: usize| inputs.get(slot).copied().flatten();
        let rank = |slot: usize| input(slot).and_then(|id| self.rank(id));
        // Number of axes or sizes that a constant input lists.
        let listed =
            |slot: usize| input(slot).and_then(|id| graph[id].constant.as_ref()).map(|tensor| tensor.count());
        let keeps = draft.attrs.int("keepdims").unwrap_or(1) != 0;
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
                | "TopK"
                | "Cast"
                | "CastLike"
                | "QuantizeLinear"
                | "DequantizeLinear"
                | "IsNaN"
                | "IsInf",
                _,
            )
            | ("Split", _) => rank(0),
            (
                "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod" | "Max" | "Min" | "Mean" | "Sum" | "And" | "Or"
                | "Xor" | "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "Where",
                _,
            ) => (0..inputs.len()).map(rank).reduce(|a, b| Some(a?.max(b?))).flatten(),
            ("Size", _) => Some(0),
            ("Shape", _) => Some(1),
            ("Flatten" | "Gemm" | "NonZero", _) => Some(2),
            ("MatMul", _) => {
                let ranks = rank(0).zip(rank(1)).filter(|(a, b)| *a >= 2 && *b >= 2);
                ranks.map(|(a, b)| a.max(b))
            }
            ("Reshape", _) => listed(1),
            ("ConstantOfShape", _) => listed(0),
            ("Expand", _) => Some(rank(0)?.max(listed(1)?)),
            ("Unsqueeze", _) => Some(rank(0)? + listed(1)?),
            ("Squeeze", _) => rank(0)?.checked_sub(listed(1)?),
            ("ArgMax" | "ArgMin", _) => rank(0)?.checked_sub(usize::from(!keeps)),
            (op, _) if op.starts_with("Reduce") => {
                if keeps {
                    rank(0)
                } else {
                    rank(0)?.checked_sub(listed(1)?)
                }
            }
            ("Gather", _) => (rank(0)? + rank(1)?).checked_sub(1),
            ("GatherElements", _) => rank(1),
            ("LSTM" | "GRU" | "RNN", 0) => Some(4),
            ("LSTM" | "GRU" | "RNN", _) => Some(3),
            _ => None,
        }
    }
}

/// Element type of an output that an attribute decides, for the operators where one does.
fn dtype_of_attributes(draft: &Draft, inputs: &[Option<DType>], slot: usize) -> Option<DType> {
    if !draft.op.domain.is_empty() {
        return None;
    }
    let given = |name: &str| {
        let number = draft.attrs.int(name).and_then(|number| i32::try_from(number).ok());
        number.and_then(DType::from_onnx)
    };
    let made = |body: &str, slot: usize| {
        let graph = draft.attrs.graph(body)?;
        graph[*graph.outputs().get(slot)?].ty.dtype()
    };
    match &*draft.op.op_type {
        "If" => made("then_branch", slot).or_else(|| made("else_branch", slot)),
        // The first output of the body is the condition.
        "Loop" => made("body", slot + 1),
        "Scan" => made("body", slot),
        "Cast" | "BitCast" => given("to"),
        "ConstantOfShape" => Some(draft.attrs.tensor("value").map_or(DType::F32, trtc_ir::Tensor::dtype)),
        "QuantizeLinear" => given("output_dtype")
            .or(inputs.get(2).copied().flatten())
            .or((inputs.len() < 3).then_some(DType::U8)),
        "DequantizeLinear" => given("output_dtype"),
        "RandomNormal" | "RandomUniform" => given("dtype").or(Some(DType::F32)),
        "RandomNormalLike" | "RandomUniformLike" | "Bernoulli" | "EyeLike" => {
            given("dtype").or(inputs.first().copied().flatten())
        }
        "Multinomial" => given("dtype").or(Some(DType::I32)),
        "HannWindow" | "HammingWindow" | "BlackmanWindow" | "MelWeightMatrix" => {
            given("output_datatype").or(Some(DType::F32))
        }
        _ => None,
    }
}

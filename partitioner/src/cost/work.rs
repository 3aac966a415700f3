//! Work of a node: arithmetic and memory traffic from shapes at the optimum of the ranges.

use crate::sizes::{element_count, value_bytes};
use trtc_ir::{Graph, Node, NodeId, Symbols, ValueId};

/// What kind of work an operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpClass {
    /// Multiplications and sums over an axis: what engines are for.
    Contraction,
    /// Looks at many elements for one: pools, normalizations, reductions, sorting.
    Window,
    /// One element at a time.
    Elementwise,
    /// Copies elements.
    Movement,
    /// The same bytes under another shape.
    View,
    /// Reads a shape, not the elements.
    Shape,
    /// Everything else.
    Other,
}

/// The class of an operator, by its type; contrib operators share the names of their work.
pub(crate) fn class(op_type: &str) -> OpClass {
    match op_type {
        "Conv"
        | "ConvTranspose"
        | "ConvInteger"
        | "QLinearConv"
        | "DeformConv"
        | "FusedConv"
        | "MatMul"
        | "Gemm"
        | "MatMulInteger"
        | "QLinearMatMul"
        | "FusedMatMul"
        | "FusedGemm"
        | "MatMulIntegerToFloat"
        | "DynamicQuantizeMatMul"
        | "MatMulNBits"
        | "Einsum"
        | "LSTM"
        | "GRU"
        | "RNN"
        | "DynamicQuantizeLSTM"
        | "Attention"
        | "MultiHeadAttention"
        | "GroupQueryAttention"
        | "QAttention"
        | "Det"
        | "DFT"
        | "STFT" => OpClass::Contraction,
        "Shape" | "Size" => OpClass::Shape,
        "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" | "Identity" => OpClass::View,
        "Transpose" | "Slice" | "Concat" | "Split" | "Gather" | "GatherElements" | "GatherND" | "Pad"
        | "Expand" | "Tile" | "ScatterElements" | "ScatterND" | "DepthToSpace" | "SpaceToDepth"
        | "ConstantOfShape" | "Range" | "EyeLike" | "OneHot" | "Trilu" | "ReverseSequence" | "Compress"
        | "CenterCropPad" => OpClass::Movement,
        "MaxPool"
        | "AveragePool"
        | "LpPool"
        | "GlobalAveragePool"
        | "GlobalMaxPool"
        | "GlobalLpPool"
        | "BatchNormalization"
        | "LayerNormalization"
        | "InstanceNormalization"
        | "GroupNormalization"
        | "RMSNormalization"
        | "SimplifiedLayerNormalization"
        | "SkipLayerNormalization"
        | "LpNormalization"
        | "MeanVarianceNormalization"
        | "LRN"
        | "Softmax"
        | "LogSoftmax"
        | "Hardmax"
        | "ArgMax"
        | "ArgMin"
        | "TopK"
        | "CumSum"
        | "CumProd"
        | "Resize"
        | "Upsample"
        | "GridSample"
        | "RoiAlign"
        | "MaxRoiPool"
        | "DynamicQuantizeLinear" => OpClass::Window,
        _ if op_type.starts_with("Reduce") => OpClass::Window,
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod" | "Neg" | "Abs" | "Sqrt" | "Exp" | "Log"
        | "Reciprocal" | "Floor" | "Ceil" | "Round" | "Sign" | "Erf" | "Sin" | "Cos" | "Tan" | "Asin"
        | "Acos" | "Atan" | "Sinh" | "Cosh" | "Tanh" | "Asinh" | "Acosh" | "Atanh" | "Relu" | "LeakyRelu"
        | "PRelu" | "Elu" | "Selu" | "Celu" | "Sigmoid" | "HardSigmoid" | "HardSwish" | "Swish"
        | "Softplus" | "Softsign" | "ThresholdedRelu" | "Gelu" | "FastGelu" | "QuickGelu" | "BiasGelu"
        | "Mish" | "Shrink" | "Clip" | "Cast" | "CastLike" | "Where" | "Equal" | "Greater"
        | "GreaterOrEqual" | "Less" | "LessOrEqual" | "And" | "Or" | "Xor" | "Not" | "BitwiseAnd"
        | "BitwiseOr" | "BitwiseXor" | "BitwiseNot" | "BitShift" | "IsNaN" | "IsInf" | "Max" | "Min"
        | "Mean" | "Sum" | "QuantizeLinear" | "DequantizeLinear" | "Dropout" => OpClass::Elementwise,
        _ => OpClass::Other,
    }
}

/// Arithmetic and memory traffic of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Floating-point (or integer) operations.
    pub flops: f64,
    /// Bytes read.
    pub read: f64,
    /// Bytes written.
    pub written: f64,
}

/// Work of one node without its subgraphs.
pub(crate) fn work(graph: &Graph, symbols: &Symbols, id: NodeId, class: OpClass, unknown: u64) -> Work {
    let node = &graph[id];
    let size = |value: ValueId| value_bytes(graph, symbols, value).unwrap_or(unknown) as f64;
    let out: f64 = node.outputs().iter().flatten().map(|&value| size(value)).sum();
    let input = || -> f64 { node.inputs().iter().flatten().map(|&value| size(value)).sum() };
    let elements = || -> f64 { count(graph, symbols, node.output(0)) };
    match class {
        OpClass::Shape | OpClass::View => Work::default(),
        // A gather or slice reads what it writes.
        OpClass::Movement => Work { flops: 0.0, read: out, written: out },
        OpClass::Elementwise => Work { flops: elements(), read: input(), written: out },
        OpClass::Window | OpClass::Other => Work { flops: 4.0 * elements(), read: input(), written: out },
        OpClass::Contraction => {
            Work { flops: contraction(graph, symbols, node), read: input(), written: out }
        }
    }
}

fn count(graph: &Graph, symbols: &Symbols, value: Option<ValueId>) -> f64 {
    value.and_then(|value| element_count(graph, symbols, value)).unwrap_or(0) as f64
}

fn contraction(graph: &Graph, symbols: &Symbols, node: &Node) -> f64 {
    let at = |slot| count(graph, symbols, node.input(slot));
    let out = count(graph, symbols, node.output(0));
    let axis = |slot: usize, axis: usize, last: bool| -> f64 {
        let shape = node.input(slot).and_then(|value| graph[value].ty.shape());
        let dim =
            shape.and_then(|shape| shape.get(if last { shape.len().checked_sub(1 + axis)? } else { axis }));
        dim.and_then(|dim| crate::sizes::at_optimum(symbols, dim)).map_or(1.0, |n| n.max(1) as f64)
    };
    match &*node.op.op_type {
        // Weights [out, in / groups, k..]: each output element meets one row of them.
        "Conv" | "ConvInteger" | "FusedConv" | "DeformConv" => 2.0 * out * at(1) / axis(1, 0, false),
        "QLinearConv" => 2.0 * out * at(3) / axis(3, 0, false),
        // Weights [in, out / groups, k..]: each input element meets one row.
        "ConvTranspose" => 2.0 * at(0) * at(1) / axis(1, 0, false),
        // Each step multiplies both weight matrices (all directions) with one vector a batch row.
        "LSTM" | "GRU" | "RNN" | "DynamicQuantizeLSTM" => {
            2.0 * axis(0, 0, false) * axis(0, 1, false) * (at(1) + at(2))
        }
        // Scores and sums over keys: two products of the queries' size times the keys' length.
        "Attention" | "MultiHeadAttention" | "GroupQueryAttention" => 4.0 * out * axis(1, 1, true),
        "Gemm" | "FusedGemm" => {
            let transposed = node.attrs.int("transA").unwrap_or(0) != 0;
            2.0 * out * axis(0, usize::from(transposed), true)
        }
        "Det" => out * axis(0, 0, true).powi(3),
        _ => 2.0 * out * axis(0, 0, true),
    }
}

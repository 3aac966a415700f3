//! The messages of onnx.proto (IR version 14), field by field.
//!
//! Field numbers and names are those of onnx.proto. Everything of a known file survives decoding and encoding; parts that
//! the compiler never looks into (training, device placement) are kept as the bytes that they came in. Byte fields are
//! [`Bytes`], so that decoding from a mapped file copies no weight. [`TensorProto`] is in `tensor_proto.rs`.

use crate::TensorProto;
use bytes::Bytes;
use prost::{Message, Oneof};

/// A model: the top-level message of an ONNX file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the ONNX IR that the file is written in.
    #[prost(int64, optional, tag = "1")]
    pub ir_version: Option<i64>,
    /// Name of the tool that wrote the model.
    #[prost(string, optional, tag = "2")]
    pub producer_name: Option<String>,
    /// Version of that tool.
    #[prost(string, optional, tag = "3")]
    pub producer_version: Option<String>,
    /// Reverse-DNS domain of the model.
    #[prost(string, optional, tag = "4")]
    pub domain: Option<String>,
    /// Version of the model.
    #[prost(int64, optional, tag = "5")]
    pub model_version: Option<i64>,
    /// Documentation (bytes, since writers do not always keep to UTF-8).
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub doc_string: Option<Bytes>,
    /// The graph that is run.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Operator sets that the graph uses, one a domain.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Named metadata.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// `TrainingInfoProto` messages, encoded.
    #[prost(bytes = "bytes", repeated, tag = "20")]
    pub training_info: Vec<Bytes>,
    /// Functions local to the model.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
    /// `DeviceConfigurationProto` messages, encoded.
    #[prost(bytes = "bytes", repeated, tag = "26")]
    pub configuration: Vec<Bytes>,
}

/// Operators in topological order, with the values that flow between them.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Nodes, sorted topologically.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// Name of the graph.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Constants, or defaults of the inputs of the same names.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Documentation.
    #[prost(bytes = "bytes", optional, tag = "10")]
    pub doc_string: Option<Bytes>,
    /// Inputs.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Types of values in between.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    /// Quantization parameters of values.
    #[prost(message, repeated, tag = "14")]
    pub quantization_annotation: Vec<TensorAnnotation>,
    /// Constants with few non-zero elements; the name is that of `values`.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
    /// Named metadata.
    #[prost(message, repeated, tag = "16")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// One call of an operator or function.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of inputs; an empty one stands for an omitted optional input.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of outputs; an empty one stands for an output that nobody needs.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Name, may be absent.
    #[prost(string, optional, tag = "3")]
    pub name: Option<String>,
    /// Operator, for example `Conv`.
    #[prost(string, optional, tag = "4")]
    pub op_type: Option<String>,
    /// Attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Documentation.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub doc_string: Option<Bytes>,
    /// Domain of the operator; absent or empty for ai.onnx.
    #[prost(string, optional, tag = "7")]
    pub domain: Option<String>,
    /// Which of several functions of one name.
    #[prost(string, optional, tag = "8")]
    pub overload: Option<String>,
    /// Named metadata.
    #[prost(message, repeated, tag = "9")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// `NodeDeviceConfigurationProto` messages, encoded.
    #[prost(bytes = "bytes", repeated, tag = "10")]
    pub device_configurations: Vec<Bytes>,
}

/// Which field of an [`AttributeProto`] holds its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AttributeType {
    /// Not said (files before IR version 4): the field that is set.
    Undefined = 0,
    /// `f`.
    Float = 1,
    /// `i`.
    Int = 2,
    /// `s`.
    String = 3,
    /// `t`.
    Tensor = 4,
    /// `g`.
    Graph = 5,
    /// `floats`.
    Floats = 6,
    /// `ints`.
    Ints = 7,
    /// `strings`.
    Strings = 8,
    /// `tensors`.
    Tensors = 9,
    /// `graphs`.
    Graphs = 10,
    /// `sparse_tensor`.
    SparseTensor = 11,
    /// `sparse_tensors`.
    SparseTensors = 12,
    /// `tp`.
    TypeProto = 13,
    /// `type_protos`.
    TypeProtos = 14,
}

/// A named attribute of a node.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// A float.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// An integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// A string.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub s: Option<Bytes>,
    /// A tensor.
    #[prost(message, optional, boxed, tag = "5")]
    pub t: Option<Box<TensorProto>>,
    /// A graph.
    #[prost(message, optional, boxed, tag = "6")]
    pub g: Option<Box<GraphProto>>,
    /// Floats.
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    /// Strings.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
    /// Tensors.
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    /// Graphs.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// Documentation.
    #[prost(bytes = "bytes", optional, tag = "13")]
    pub doc_string: Option<Bytes>,
    /// A type.
    #[prost(message, optional, boxed, tag = "14")]
    pub tp: Option<Box<TypeProto>>,
    /// Types.
    #[prost(message, repeated, tag = "15")]
    pub type_protos: Vec<TypeProto>,
    /// Number of an [`AttributeType`].
    #[prost(int32, optional, tag = "20")]
    pub r#type: Option<i32>,
    /// Inside a function: the function's attribute whose value this takes.
    #[prost(string, optional, tag = "21")]
    pub ref_attr_name: Option<String>,
    /// A sparse tensor.
    #[prost(message, optional, boxed, tag = "22")]
    pub sparse_tensor: Option<Box<SparseTensorProto>>,
    /// Sparse tensors.
    #[prost(message, repeated, tag = "23")]
    pub sparse_tensors: Vec<SparseTensorProto>,
}

impl AttributeProto {
    /// Kind of the value: what `type` says, else (files before IR version 4) the one field that is set; `None` for a
    /// number that ONNX does not define and for an attribute without any value and type.
    pub fn kind(&self) -> Option<AttributeType> {
        match self.r#type {
            None | Some(0) => {}
            Some(number) => return AttributeType::try_from(number).ok(),
        }
        let set = [
            (self.f.is_some(), AttributeType::Float),
            (self.i.is_some(), AttributeType::Int),
            (self.s.is_some(), AttributeType::String),
            (self.t.is_some(), AttributeType::Tensor),
            (self.g.is_some(), AttributeType::Graph),
            (!self.floats.is_empty(), AttributeType::Floats),
            (!self.ints.is_empty(), AttributeType::Ints),
            (!self.strings.is_empty(), AttributeType::Strings),
            (!self.tensors.is_empty(), AttributeType::Tensors),
            (!self.graphs.is_empty(), AttributeType::Graphs),
            (self.sparse_tensor.is_some(), AttributeType::SparseTensor),
            (!self.sparse_tensors.is_empty(), AttributeType::SparseTensors),
            (self.tp.is_some(), AttributeType::TypeProto),
            (!self.type_protos.is_empty(), AttributeType::TypeProtos),
        ];
        set.iter().find(|(is_set, _)| *is_set).map(|(_, kind)| *kind)
    }
}

/// A named value with its type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// Name of the value.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
    /// Documentation.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub doc_string: Option<Bytes>,
    /// Named metadata.
    #[prost(message, repeated, tag = "4")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StringStringEntryProto {
    /// Key.
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    /// Value.
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// A domain and the version of its operator set.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OperatorSetIdProto {
    /// Domain; absent or empty for ai.onnx.
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    /// Version.
    #[prost(int64, optional, tag = "2")]
    pub version: Option<i64>,
}

/// A function local to a model.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// Name, what nodes call as `op_type`.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Names of inputs.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names of outputs.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Names of attributes without a default.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// Nodes, sorted topologically.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// Documentation.
    #[prost(bytes = "bytes", optional, tag = "8")]
    pub doc_string: Option<Bytes>,
    /// Operator sets that the nodes use.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Domain of the function.
    #[prost(string, optional, tag = "10")]
    pub domain: Option<String>,
    /// Attributes with a default.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
    /// Types of values inside.
    #[prost(message, repeated, tag = "12")]
    pub value_info: Vec<ValueInfoProto>,
    /// Which of several functions of one name.
    #[prost(string, optional, tag = "13")]
    pub overload: Option<String>,
    /// Named metadata.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// Quantization parameters of a value.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TensorAnnotation {
    /// Name of the value.
    #[prost(string, optional, tag = "1")]
    pub tensor_name: Option<String>,
    /// Parameter (`SCALE_TENSOR`, `ZERO_POINT_TENSOR`) and the name of the tensor that holds it.
    #[prost(message, repeated, tag = "2")]
    pub quant_parameter_tensor_names: Vec<StringStringEntryProto>,
}

/// A tensor in coordinate form.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// The `NNZ` elements that are not the default, shape `[NNZ]`.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Their places, i64: linear `[NNZ]`, or coordinates `[NNZ, rank]`.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// Shape of the dense tensor.
    #[prost(int64, repeated, packed = "false", tag = "3")]
    pub dims: Vec<i64>,
}

/// Type of a value.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// Which type.
    #[prost(oneof = "TypeValue", tags = "1, 4, 5, 7, 8, 9")]
    pub value: Option<TypeValue>,
    /// What the value means, for example `IMAGE`.
    #[prost(string, optional, tag = "6")]
    pub denotation: Option<String>,
}

/// The cases of a [`TypeProto`].
#[derive(Clone, PartialEq, Oneof)]
pub enum TypeValue {
    /// A dense tensor.
    #[prost(message, tag = "1")]
    Tensor(TensorType),
    /// A sequence.
    #[prost(message, tag = "4")]
    Sequence(Box<SequenceType>),
    /// A map.
    #[prost(message, tag = "5")]
    Map(Box<MapType>),
    /// A type that only its domain knows.
    #[prost(message, tag = "7")]
    Opaque(OpaqueType),
    /// A sparse tensor.
    #[prost(message, tag = "8")]
    SparseTensor(TensorType),
    /// An optional value.
    #[prost(message, tag = "9")]
    Optional(Box<OptionalType>),
}

/// Element type and shape of a dense or sparse tensor.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TensorType {
    /// Number of the element type.
    #[prost(int32, optional, tag = "1")]
    pub elem_type: Option<i32>,
    /// Shape; absent when the rank is unknown.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// Type of a sequence.
#[derive(Clone, PartialEq, Message)]
pub struct SequenceType {
    /// Type of its elements.
    #[prost(message, optional, boxed, tag = "1")]
    pub elem_type: Option<Box<TypeProto>>,
}

/// Type of a map.
#[derive(Clone, PartialEq, Message)]
pub struct MapType {
    /// Number of the keys' type: an integer type or string.
    #[prost(int32, optional, tag = "1")]
    pub key_type: Option<i32>,
    /// Type of the values.
    #[prost(message, optional, boxed, tag = "2")]
    pub value_type: Option<Box<TypeProto>>,
}

/// Type of an optional.
#[derive(Clone, PartialEq, Message)]
pub struct OptionalType {
    /// Type of the element.
    #[prost(message, optional, boxed, tag = "1")]
    pub elem_type: Option<Box<TypeProto>>,
}

/// Name of a type that only its domain knows.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OpaqueType {
    /// Domain.
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    /// Name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// Shape of a tensor.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TensorShapeProto {
    /// Dimensions; none for a scalar.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// One dimension.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Dimension {
    /// Its size; absent when unknown.
    #[prost(oneof = "DimValue", tags = "1, 2")]
    pub value: Option<DimValue>,
    /// What the dimension means, for example `DATA_BATCH`.
    #[prost(string, optional, tag = "3")]
    pub denotation: Option<String>,
}

/// The cases of a [`Dimension`].
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum DimValue {
    /// A number.
    #[prost(int64, tag = "1")]
    Value(i64),
    /// A symbol.
    #[prost(string, tag = "2")]
    Param(String),
}

//! Operator schemas by version: what each operator's inputs, outputs, attributes and types were at each opset.
//!
//! The tables `schema/*.tsv` are written by `xtask/gen/schemas.py` from the onnx 1.23.2 package (com.microsoft: from ONNX Runtime
//! 1.32, which defines that domain) and parsed once, on first use. A domain is written `""` (or `ai.onnx`), `ai.onnx.ml`, ….

mod opsets;
mod table;

use crate::AttributeType;
use trtc_bundle::DType;

pub use opsets::{Conflict, MAX_OPSET, Opsets, PREFERRED_OPSET, choose_opset, opsets_in_force};
pub(crate) use table::{domain_name, kernels};

/// One version of an operator.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Domain, `""` for ai.onnx.
    pub domain: &'static str,
    /// Name.
    pub op_type: &'static str,
    /// First opset of the domain in which this form holds.
    pub since_version: u32,
    /// From this version on the operator no longer exists.
    pub deprecated: bool,
    /// It has a function body in terms of other operators (com.microsoft: not known).
    pub function: bool,
    /// Fewest inputs, counting omitted ones in front of the last.
    pub min_inputs: usize,
    /// Most inputs; `usize::MAX` when there is no limit.
    pub max_inputs: usize,
    /// Fewest outputs.
    pub min_outputs: usize,
    /// Most outputs; `usize::MAX` when there is no limit.
    pub max_outputs: usize,
    /// Formal inputs.
    pub inputs: Vec<Param>,
    /// Formal outputs.
    pub outputs: Vec<Param>,
    /// Type parameters (`T`) with the types that they allow.
    pub types: Vec<(&'static str, TypeSet)>,
    /// Attributes, by name.
    pub attributes: Vec<Attribute>,
}

/// A formal input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name.
    pub name: &'static str,
    /// Type parameter, or the name of one type (`i64`, `seq(f32)`).
    pub type_name: &'static str,
    /// How often it may stand.
    pub kind: ParamKind,
}

/// How often a formal input or output may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Once.
    Single,
    /// Once or not at all.
    Optional,
    /// The last one: any number of times, all of one type.
    Variadic,
    /// The last one: any number of times, each with its own type.
    Mixed,
}

/// An attribute of a schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Name.
    pub name: &'static str,
    /// Kind of its value.
    pub kind: AttributeType,
    /// Whether a node must give it.
    pub required: bool,
    /// What holds when a node does not give it.
    pub default: Option<DefaultValue>,
}

/// Default of an attribute.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the variants are ONNX's attribute types")]
pub enum DefaultValue {
    Float(f32),
    Int(i64),
    String(&'static str),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Strings(Vec<&'static str>),
}

/// A set of types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeSet {
    /// Bit `n`: tensors of the type that ONNX numbers `n`.
    pub(crate) tensors: u32,
    /// The same for sequences of tensors.
    pub(crate) sequences: u32,
    /// Optionals, maps, sparse tensors or opaque types.
    pub(crate) other: bool,
}

impl TypeSet {
    /// Whether tensors of `dtype` are in it.
    pub fn has(self, dtype: DType) -> bool {
        self.tensors & 1 << dtype.onnx() != 0
    }

    /// Whether sequences of tensors of `dtype` are in it.
    pub fn has_sequence(self, dtype: DType) -> bool {
        self.sequences & 1 << dtype.onnx() != 0
    }

    /// Whether optionals, maps, sparse tensors or opaque types are in it.
    pub fn has_other(self) -> bool {
        self.other
    }

    /// Element types of the tensors in it, in the order of ONNX's numbers.
    pub fn tensors(self) -> impl Iterator<Item = DType> {
        DType::ALL.iter().copied().filter(move |&dtype| self.has(dtype))
    }
}

impl Schema {
    /// An attribute.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        let at = self.attributes.binary_search_by(|attribute| attribute.name.cmp(name)).ok()?;
        self.attributes.get(at)
    }

    /// Formal input that the input at `index` stands for (a variadic one repeats).
    pub fn input(&self, index: usize) -> Option<&Param> {
        formal(&self.inputs, index)
    }

    /// Formal output that the output at `index` stands for (a variadic one repeats).
    pub fn output(&self, index: usize) -> Option<&Param> {
        formal(&self.outputs, index)
    }

    /// Tensor element types that a formal input or output allows; `None` for a type that is no tensor's, like `seq(f32)`.
    pub fn type_set(&self, param: &Param) -> Option<TypeSet> {
        if let Some((_, set)) = self.types.iter().find(|(name, _)| *name == param.type_name) {
            return Some(*set);
        }
        let dtype = DType::from_name(param.type_name)?;
        Some(TypeSet { tensors: 1 << dtype.onnx(), ..TypeSet::default() })
    }

    /// What a type parameter (`T`), or a formal input or output by its name, is for a node with these element types; `None` when
    /// no value bound to it has a known one, or when each value of a list may have its own. `inputs` and `outputs` are by position, `None` for an omitted value, a value of
    /// unknown type, and a value that is not a tensor.
    pub fn bound(&self, name: &str, inputs: &[Option<DType>], outputs: &[Option<DType>]) -> Option<DType> {
        let inputs = inputs.iter().enumerate().map(|(at, dtype)| (self.input(at), *dtype));
        let outputs = outputs.iter().enumerate().map(|(at, dtype)| (self.output(at), *dtype));
        inputs.chain(outputs).find_map(|(param, dtype)| {
            let param = param.filter(|param| param.kind != ParamKind::Mixed)?;
            dtype.filter(|_| param.type_name == name || param.name == name)
        })
    }

    /// Whether this version allows a node with these counts and element types of inputs and outputs (as [`Schema::bound`] takes
    /// them; an unknown type is allowed). Of inputs that share a type parameter each is looked at alone.
    pub fn allows(&self, inputs: &[Option<DType>], outputs: &[Option<DType>]) -> bool {
        let side = |types: &[Option<DType>], most: usize, formal: &dyn Fn(usize) -> Option<Param>| {
            types.len() <= most
                && types.iter().enumerate().all(|(at, dtype)| match (dtype, formal(at)) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(dtype), Some(param)) => self.type_set(&param).is_some_and(|set| set.has(*dtype)),
                })
        };
        !self.deprecated
            && inputs.len() >= self.min_inputs
            && side(inputs, self.max_inputs, &|at| self.input(at).copied())
            && side(outputs, self.max_outputs, &|at| self.output(at).copied())
    }
}

fn formal(params: &[Param], index: usize) -> Option<&Param> {
    params.get(index).or_else(|| {
        params.last().filter(|param| matches!(param.kind, ParamKind::Variadic | ParamKind::Mixed))
    })
}

/// Versions of an operator, ascending; empty for an operator that nobody knows.
pub fn history(domain: &str, op_type: &str) -> &'static [u32] {
    table::operator(domain, op_type).map_or(&[], |operator| &operator.versions)
}

/// The version of an operator that holds at `opset` of its domain: the highest that is not above it. `None` for an
/// operator that nobody knows or that came later. A deprecated form counts: see [`Schema::deprecated`].
pub fn since_version(domain: &str, op_type: &str, opset: u32) -> Option<u32> {
    history(domain, op_type).iter().rev().find(|&&version| version <= opset).copied()
}

/// The form of an operator since exactly `since_version`.
pub fn lookup(domain: &str, op_type: &str, since_version: u32) -> Option<&'static Schema> {
    let operator = table::operator(domain, op_type)?;
    let at = operator.versions.binary_search(&since_version).ok()?;
    operator.schemas.get(at)
}

/// The form of an operator that holds at `opset`, as [`since_version`] chooses it.
pub fn in_force(domain: &str, op_type: &str, opset: u32) -> Option<&'static Schema> {
    lookup(domain, op_type, since_version(domain, op_type, opset)?)
}

/// Every operator: (domain, name), sorted.
pub fn operators() -> Vec<(&'static str, &'static str)> {
    table::operators()
}

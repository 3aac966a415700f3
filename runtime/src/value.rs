//! What flows into, through and out of a run.

use crate::{
    host::HostError,
    tensor::{Tensor, TensorView},
};
use std::{any::Any, fmt, sync::Arc};

/// A value: a tensor, or one of the things that ONNX has besides.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Value {
    /// An optional that holds nothing.
    #[default]
    Nothing,
    /// A tensor of a type with fixed width.
    Tensor(Tensor),
    /// A tensor of strings.
    Strings(StringTensor),
    /// A sequence.
    Sequence(Vec<Value>),
    /// A map: a tensor of keys and a tensor of as many values.
    Map(Box<(Value, Value)>),
    /// Something that a host backend holds and that was not asked for yet.
    Opaque(Opaque),
}

/// A tensor of strings, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringTensor {
    /// Dims, outermost first.
    pub dims: Vec<usize>,
    /// As many strings as the product of the dims.
    pub strings: Vec<String>,
}

/// A value in the hands of a host backend. Clones share it.
#[derive(Clone)]
pub struct Opaque(pub(crate) Arc<dyn OpaqueValue>);

/// What a backend must be able to do with a value of its own.
pub trait OpaqueValue: Any + Send + Sync {
    /// What it is.
    ///
    /// # Errors
    /// The backend cannot read it.
    fn read(&self) -> Result<Value, HostError>;
}

impl Opaque {
    /// A value of a backend.
    pub fn new(value: impl OpaqueValue) -> Opaque {
        Opaque(Arc::new(value))
    }

    /// The backend's own type; `None` for a value of another backend.
    pub fn downcast<T: OpaqueValue>(&self) -> Option<&T> {
        (&*self.0 as &dyn Any).downcast_ref()
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opaque")
    }
}

impl Value {
    /// The tensor; `None` for anything else.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// What it is, in words, for messages.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Value::Nothing => "nothing",
            Value::Tensor(_) => "a tensor",
            Value::Strings(_) => "a tensor of strings",
            Value::Sequence(_) => "a sequence",
            Value::Map(_) => "a map",
            Value::Opaque(_) => "a value of the host backend",
        }
    }

    /// The value with everything opaque read.
    pub(crate) fn into_read(self) -> Result<Value, HostError> {
        match self {
            Value::Opaque(value) => value.0.read(),
            other => Ok(other),
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(tensor)
    }
}

/// An input of a run, borrowed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// A tensor.
    Tensor(TensorView<'a>),
    /// Anything.
    Value(&'a Value),
}

impl<'a> From<&'a Tensor> for Input<'a> {
    fn from(tensor: &'a Tensor) -> Input<'a> {
        Input::Tensor(tensor.view())
    }
}

impl<'a> From<TensorView<'a>> for Input<'a> {
    fn from(tensor: TensorView<'a>) -> Input<'a> {
        Input::Tensor(tensor)
    }
}

impl<'a> From<&'a Value> for Input<'a> {
    fn from(value: &'a Value) -> Input<'a> {
        match value {
            Value::Tensor(tensor) => Input::Tensor(tensor.view()),
            other => Input::Value(other),
        }
    }
}

impl Input<'_> {
    /// A value that lives as long as it likes.
    pub(crate) fn to_value(self) -> Value {
        match self {
            Input::Tensor(tensor) => Value::Tensor(tensor.to_tensor()),
            Input::Value(value) => value.clone(),
        }
    }
}

//! Types of values.

use crate::{dim::Dim, symbols::Symbols};
use trtc_bundle::DType;

/// Type of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// Nothing is known.
    #[default]
    Unknown,
    /// A dense tensor.
    Tensor(TensorType),
    /// A sequence of values of one type.
    Sequence(Box<Type>),
    /// A value that may be absent.
    Optional(Box<Type>),
    /// A map (ai.onnx.ml), with the dtype of its keys.
    Map(DType, Box<Type>),
    /// A sparse tensor; carried to the host, never looked into.
    SparseTensor(TensorType),
}

/// Element type and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// Element type; `None` where nothing told it.
    pub dtype: Option<DType>,
    /// Dims; `None` for an unknown rank.
    pub shape: Option<Vec<Dim>>,
}

impl Type {
    /// A tensor of known dtype and rank.
    pub fn tensor(dtype: DType, shape: Vec<Dim>) -> Type {
        Type::Tensor(TensorType { dtype: Some(dtype), shape: Some(shape) })
    }

    /// A tensor of known dtype and unknown rank.
    pub fn unranked(dtype: DType) -> Type {
        Type::Tensor(TensorType { dtype: Some(dtype), shape: None })
    }

    /// The tensor type, when it is one.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        if let Type::Tensor(tensor) = self { Some(tensor) } else { None }
    }

    /// Element type of a tensor.
    pub fn dtype(&self) -> Option<DType> {
        self.as_tensor()?.dtype
    }

    /// Dims of a tensor of known rank.
    pub fn shape(&self) -> Option<&[Dim]> {
        self.as_tensor()?.shape.as_deref()
    }

    /// Dims when every one is a number.
    pub fn static_shape(&self) -> Option<Vec<i64>> {
        self.shape()?.iter().map(Dim::known).collect()
    }

    /// Takes what `other` knows more. Contradictions keep `self` (inference checks them where they matter).
    pub fn refine(&mut self, other: &Type) {
        match (&mut *self, other) {
            (Type::Unknown, other) => *self = other.clone(),
            (Type::Tensor(a), Type::Tensor(b)) => {
                a.dtype = a.dtype.or(b.dtype);
                match (&mut a.shape, &b.shape) {
                    (None, shape) => a.shape = shape.clone(),
                    (Some(a), Some(b)) if a.len() == b.len() => {
                        for (a, b) in a.iter_mut().zip(b) {
                            match (&*a, b) {
                                (Dim::Unknown, _) | (Dim::Expr(_), Dim::Known(_)) => *a = b.clone(),
                                _ => {}
                            }
                        }
                    }
                    _ => {}
                }
            }
            (Type::Sequence(a), Type::Sequence(b)) | (Type::Optional(a), Type::Optional(b)) => a.refine(b),
            _ => {}
        }
    }

    /// As text: `f32[N x 3 x 224]`, `seq(i64[?])`.
    pub fn show(&self, symbols: &Symbols) -> String {
        let tensor = |t: &TensorType| {
            let dtype = t.dtype.map_or("?", DType::name);
            match &t.shape {
                None => format!("{dtype}[..]"),
                Some(dims) => {
                    let dims: Vec<String> = dims.iter().map(|d| symbols.show(d)).collect();
                    format!("{dtype}[{}]", dims.join(" x "))
                }
            }
        };
        match self {
            Type::Unknown => "?".to_owned(),
            Type::Tensor(t) => tensor(t),
            Type::SparseTensor(t) => format!("sparse({})", tensor(t)),
            Type::Sequence(t) => format!("seq({})", t.show(symbols)),
            Type::Optional(t) => format!("opt({})", t.show(symbols)),
            Type::Map(key, t) => format!("map({key}, {})", t.show(symbols)),
        }
    }
}

//! Shapes given to TensorRT: build-time numbers where they are known, otherwise arithmetic over the dims of the node's
//! own inputs, otherwise the shape input itself as a shape tensor.

use trtc_bundle::DType;
use trtc_ir::{Code, Dim, NodeView, Refusal, dim::Atom, dim::Expr, dim::Symbol};

/// How an extent is emitted ([`crate::Emit::extent`]).
#[derive(Clone, Debug, PartialEq)]
pub enum ExtentPlan {
    /// Each dim by itself.
    Dims(Vec<DimPlan>),
    /// The input of this slot, which is a bounded shape value.
    Input(usize),
}

/// How one dim is emitted ([`crate::Emit::dim`]).
#[derive(Clone, Debug, PartialEq)]
pub enum DimPlan {
    /// A number.
    Fixed(i64),
    /// The dim of an input of the node.
    OfInput {
        /// Input slot.
        slot: usize,
        /// Axis of that input.
        axis: usize,
    },
    /// An element of an integer input of rank 0 or 1, which is a bounded shape value.
    Element {
        /// Input slot.
        slot: usize,
        /// Place in that input.
        index: usize,
    },
    /// Arithmetic.
    Op(SizeOp, Box<DimPlan>, Box<DimPlan>),
}

/// Arithmetic that shape tensors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "plain names")]
pub enum SizeOp {
    Add,
    Mul,
    FloorDiv,
    Max,
    Min,
}

impl DimPlan {
    /// The number, when it is one.
    pub fn fixed(&self) -> Option<i64> {
        if let DimPlan::Fixed(value) = self { Some(*value) } else { None }
    }
}

impl DimPlan {
    /// `self + other`, folded where both are numbers.
    pub fn plus(self, other: DimPlan) -> DimPlan {
        match (self.fixed(), other.fixed()) {
            (Some(a), Some(b)) if a.checked_add(b).is_some() => DimPlan::Fixed(a + b),
            (_, Some(0)) => self,
            (Some(0), _) => other,
            _ => DimPlan::Op(SizeOp::Add, Box::new(self), Box::new(other)),
        }
    }

    /// `self · other`, folded where both are numbers.
    pub fn times(self, other: DimPlan) -> DimPlan {
        match (self.fixed(), other.fixed()) {
            (Some(a), Some(b)) if a.checked_mul(b).is_some() => DimPlan::Fixed(a * b),
            (_, Some(1)) => self,
            (Some(1), _) => other,
            _ => DimPlan::Op(SizeOp::Mul, Box::new(self), Box::new(other)),
        }
    }
}

impl ExtentPlan {
    /// Build-time numbers.
    pub fn fixed(values: &[i64]) -> ExtentPlan {
        ExtentPlan::Dims(values.iter().map(|&v| DimPlan::Fixed(v)).collect())
    }

    /// The numbers, when all of them are.
    pub fn as_fixed(&self) -> Option<Vec<i64>> {
        match self {
            ExtentPlan::Dims(dims) => dims.iter().map(DimPlan::fixed).collect(),
            ExtentPlan::Input(_) => None,
        }
    }
}

/// Plans `dims` (say, a node's output shape, or the elements of its shape input). When a symbol is a dim of none of the
/// node's inputs, the input `fallback` is used as a shape tensor, provided that its elements are bounded.
///
/// # Errors
/// `E0402` when neither is possible.
pub fn plan_extent(
    node: NodeView<'_>,
    dims: &[Dim],
    fallback: Option<(usize, &str)>,
) -> Result<ExtentPlan, Refusal> {
    if let Some(list) = dims.iter().map(|dim| plan_dim(node, dim)).collect::<Option<Vec<_>>>() {
        return Ok(ExtentPlan::Dims(list));
    }
    match fallback {
        Some((slot, _)) if node.input(slot).is_some_and(|view| view.is_bounded()) => {
            Ok(ExtentPlan::Input(slot))
        }
        _ => {
            let names: Vec<String> = dims.iter().map(|dim| node.symbols().show(dim)).collect();
            let refusal = Refusal::new(
                Code::SHAPE_VALUE,
                format!("the sizes [{}] are not a bounded function of input dims", names.join(", ")),
            );
            Err(match fallback {
                Some((_, name)) => refusal.slot(name),
                None => refusal,
            })
        }
    }
}

/// Plans one dim; `None` when it mentions a symbol that no input's dim is, and no element of a bounded integer input.
pub fn plan_dim(node: NodeView<'_>, dim: &Dim) -> Option<DimPlan> {
    match dim {
        Dim::Known(value) => Some(DimPlan::Fixed(*value)),
        Dim::Unknown => None,
        Dim::Expr(expr) => {
            dim_of_input(node, dim).or_else(|| plan_expr(node, expr)).or_else(|| element_of_input(node, dim))
        }
    }
}

/// The dim of one of the node's own inputs: a number, or read from the tensor. Needs no name for the dim.
pub fn own_dim(node: NodeView<'_>, slot: usize, axis: usize) -> DimPlan {
    match node.input(slot).and_then(|view| view.dim(axis)) {
        Some(Dim::Known(value)) => DimPlan::Fixed(*value),
        _ => DimPlan::OfInput { slot, axis },
    }
}

/// [`own_dim`] for every axis.
pub fn own_dims(node: NodeView<'_>, slot: usize) -> Vec<DimPlan> {
    let rank = node.input(slot).and_then(|view| view.rank()).unwrap_or(0);
    (0..rank).map(|axis| own_dim(node, slot, axis)).collect()
}

/// Plans one dim, or says which one nobody can bound.
///
/// # Errors
/// `E0402`.
pub fn require_dim(node: NodeView<'_>, dim: &Dim, slot: &str) -> Result<DimPlan, Refusal> {
    plan_dim(node, dim).ok_or_else(|| {
        let text = node.symbols().show(dim);
        Refusal::new(Code::SHAPE_VALUE, format!("the size {text} is not a bounded function of input dims"))
            .slot(slot)
    })
}

fn element_of_input(node: NodeView<'_>, dim: &Dim) -> Option<DimPlan> {
    (0..node.input_count()).find_map(|slot| {
        let view = node.input(slot)?;
        let index = view.elements()?.iter().position(|element| element == dim)?;
        let is_size = matches!(view.dtype(), Some(DType::I32 | DType::I64));
        (is_size && view.is_bounded()).then_some(DimPlan::Element { slot, index })
    })
}

fn dim_of_input(node: NodeView<'_>, dim: &Dim) -> Option<DimPlan> {
    (0..node.input_count()).find_map(|slot| {
        let axis = node.input(slot)?.shape()?.iter().position(|d| d == dim)?;
        Some(DimPlan::OfInput { slot, axis })
    })
}

fn plan_expr(node: NodeView<'_>, expr: &Expr) -> Option<DimPlan> {
    let mut sum: Option<DimPlan> = None;
    for (atoms, factor) in expr.terms() {
        let mut product = if factor == 1 && !atoms.is_empty() { None } else { Some(DimPlan::Fixed(factor)) };
        for atom in atoms {
            let value = plan_atom(node, atom)?;
            product = Some(match product {
                Some(p) => DimPlan::Op(SizeOp::Mul, Box::new(p), Box::new(value)),
                None => value,
            });
        }
        let product = product?;
        sum = Some(match sum {
            Some(s) => DimPlan::Op(SizeOp::Add, Box::new(s), Box::new(product)),
            None => product,
        });
    }
    sum
}

fn plan_atom(node: NodeView<'_>, atom: &Atom) -> Option<DimPlan> {
    let pair = |op, a: &Expr, b: &Expr| {
        let (a, b) = (plan_dim(node, &a.to_dim())?, plan_dim(node, &b.to_dim())?);
        Some(DimPlan::Op(op, Box::new(a), Box::new(b)))
    };
    match atom {
        Atom::Symbol(symbol) => plan_symbol(node, *symbol),
        Atom::FloorDiv(a, b) => pair(SizeOp::FloorDiv, a, b),
        Atom::Max(a, b) => pair(SizeOp::Max, a, b),
        Atom::Min(a, b) => pair(SizeOp::Min, a, b),
        Atom::Mod(a, b) => {
            // a mod b = a + −1 · (b · floor(a / b))
            let whole = pair(SizeOp::FloorDiv, a, b)?;
            let (a, b) = (plan_dim(node, &a.to_dim())?, plan_dim(node, &b.to_dim())?);
            let times = DimPlan::Op(SizeOp::Mul, Box::new(b), Box::new(whole));
            let minus = DimPlan::Op(SizeOp::Mul, Box::new(DimPlan::Fixed(-1)), Box::new(times));
            Some(DimPlan::Op(SizeOp::Add, Box::new(a), Box::new(minus)))
        }
    }
}

fn plan_symbol(node: NodeView<'_>, symbol: Symbol) -> Option<DimPlan> {
    let dim = Dim::symbol(symbol);
    dim_of_input(node, &dim).or_else(|| element_of_input(node, &dim))
}

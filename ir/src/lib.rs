//! The intermediate representation.
//!
//! A [`Module`] is one model: a [`Graph`] of ONNX-shaped nodes, and the [`Symbols`] that its dims mention.
//!
//! * A **node** is `(domain, op_type, since_version)` with attributes, optional inputs and outputs. There is no enum
//!   of operators: an operator that nobody here knows still travels to the host untouched.
//! * A **value** has one producer (or is a graph input, an initializer, or a capture), a [`Type`], and perhaps facts:
//!   its constant, or the symbolic elements of a small integer tensor ([`Value::elements`]).
//! * A **dim** is known, an expression over symbols, or unknown ([`Dim`]). Symbols have ranges.
//! * A **subgraph** (If, Loop, Scan) is a graph attribute. What it uses from outside it names in
//!   [`Graph::captures`]; these are uses of the outer node too, so that every order over the outer graph respects them.
//!
//! petgraph is inside [`Graph`] and stays there.

pub mod attr;
pub mod diag;
pub mod dim;
pub mod eval;
pub mod graph;
pub mod infer;
pub mod oracle;
pub mod passes;
pub mod ranges;
pub mod symbols;
pub mod tensor;
pub mod text;
pub mod types;
pub mod verify;
pub mod view;

pub use attr::{Attr, Attrs};
pub use diag::{Code, Diag, Refusal};
pub use dim::{Dim, Expr, Interval, Symbol};
pub use graph::{Capture, Graph, Module, Node, NodeId, OpKey, Value, ValueId};
pub use infer::{Infer, InferCx, Inferred, Rules};
pub use oracle::Oracle;
pub use symbols::{SymbolInfo, Symbols};
pub use tensor::{Tensor, TensorData};
pub use types::{TensorType, Type};
pub use verify::verify;
pub use view::{NodeView, ValueView};

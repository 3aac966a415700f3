//! The contract of an operator file.

use crate::emit::Emit;
use std::any::Any;
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::TensorId;

/// An operator that a converter serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Domain; empty for ai.onnx.
    pub domain: &'static str,
    /// Operator type.
    pub op: &'static str,
    /// Canonical schema version: the only one that reaches the converter.
    pub since: u32,
}

impl Key {
    /// An operator of ai.onnx.
    pub const fn onnx(op: &'static str, since: u32) -> Key {
        Key { domain: "", op, since }
    }

    /// An operator of another domain.
    pub const fn of(domain: &'static str, op: &'static str, since: u32) -> Key {
        Key { domain, op, since }
    }
}

/// What is fixed about a converter: the operator table and `docs/operators.md` are made of these.
#[derive(Clone, Copy, Debug)]
pub struct Def {
    /// Operators served.
    pub keys: &'static [Key],
    /// Dtypes of the main input that engines take; empty for an operator that only the host runs.
    pub dtypes: &'static [DType],
    /// TensorRT layers that are emitted, for the documentation.
    pub layers: &'static str,
    /// Limits in one sentence, for the documentation.
    pub limits: &'static str,
    /// Every code with which `plan` refuses. The tests of the operator cover each.
    pub refusals: &'static [Code],
}

/// Results of `emit`, one for each output slot that the node uses, by slot; slots that nobody uses may be left out at
/// the end or filled with anything.
pub type Outputs = Vec<TensorId>;

/// One operator (or family): shape rule, refusals, plan, emit.
pub trait Converter: Sync + 'static {
    /// All that `emit` needs, decided by `plan`.
    type Plan: 'static;

    /// Keys, dtypes, limits, refusal codes.
    const DEF: Def;

    /// Ranks, dtypes, symbolic dims, small values of the outputs.
    ///
    /// # Errors
    /// The node breaks its schema.
    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag>;

    /// Types of the inputs of a subgraph ([`trtc_ir::Infer::body_inputs`]).
    fn body_inputs(&self, node: NodeView<'_>, attr: &str, pass: usize) -> Vec<Inferred> {
        let _ = (node, attr, pass);
        Vec::new()
    }

    /// Decides how the node is emitted for every compute capability of the target.
    ///
    /// # Errors
    /// Why the node stays on the host.
    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Self::Plan, Refusal>;

    /// Emits layers. Cannot refuse; a layer that TensorRT could not hold becomes a numbered fault.
    fn emit(&self, plan: Self::Plan, cx: &mut Emit<'_>) -> Outputs;
}

/// A [`Converter`] without its plan's type.
pub(crate) trait Erased: Sync {
    fn def(&self) -> &'static Def;
    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag>;
    fn body_inputs(&self, node: NodeView<'_>, attr: &str, pass: usize) -> Vec<Inferred>;
    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Box<dyn Any>, Refusal>;
    fn emit(&self, plan: Box<dyn Any>, cx: &mut Emit<'_>) -> Outputs;
}

impl<C: Converter> Erased for C {
    fn def(&self) -> &'static Def {
        const { &C::DEF }
    }

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        Converter::infer(self, node, cx)
    }

    fn body_inputs(&self, node: NodeView<'_>, attr: &str, pass: usize) -> Vec<Inferred> {
        Converter::body_inputs(self, node, attr, pass)
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Box<dyn Any>, Refusal> {
        Ok(Box::new(Converter::plan(self, node, target)?))
    }

    fn emit(&self, plan: Box<dyn Any>, cx: &mut Emit<'_>) -> Outputs {
        match plan.downcast::<C::Plan>() {
            Ok(plan) => Converter::emit(self, *plan, cx),
            Err(_) => {
                cx.fault("a plan of another converter");
                Outputs::new()
            }
        }
    }
}

//! Lengths of the rows of a recurrence.

use super::Plan;
use crate::{Emit, ctx::extent::ExtentPlan};
use trtc_bundle::DType;
use trtc_network::{
    TensorId,
    layer::{ElementWiseOp, FillOp, Layer, ReduceOp},
};

/// What the lengths of the rows say.
pub(super) struct Lengths {
    /// [b] i32
    pub(super) lengths: TensorId,
    /// [s, 1, 1] i32
    steps: TensorId,
    /// [s, b, 1] bool: whether step k lies within the row's length; of a quantised LSTM also whether the one before it does.
    pub(super) masks: Vec<TensorId>,
    /// [b, 1] bool: whether the row has any step.
    pub(super) some: TensorId,
}

impl Lengths {
    /// Of input 4.
    pub(super) fn emit(cx: &mut Emit<'_>, plan: &Plan) -> Lengths {
        let lengths = cx.input(4);
        let shape = cx.extent(&ExtentPlan::Dims(vec![plan.length.clone()]));
        let (alpha, beta) = (cx.scalar(DType::I32, 0, 0.0), cx.scalar(DType::I32, 1, 1.0));
        let steps = cx.one(Layer::Fill { shape, op: FillOp::Linspace, alpha, beta, to: DType::I32 });
        let steps = cx.one(Layer::Unsqueeze { x: steps, axes: vec![1, 2] });
        let each = cx.one(Layer::Unsqueeze { x: lengths, axes: vec![0, 2] });
        let mut masks = vec![cx.elementwise(steps, each, ElementWiseOp::Less)];
        if plan.quantised.is_some() {
            let one = cx.scalar(DType::I32, 3, 1.0);
            let more = cx.elementwise(each, one, ElementWiseOp::Sum);
            masks.push(cx.elementwise(steps, more, ElementWiseOp::Less));
        }
        let each = cx.one(Layer::Unsqueeze { x: lengths, axes: vec![1] });
        let zero = cx.scalar(DType::I32, 2, 0.0);
        let some = cx.elementwise(each, zero, ElementWiseOp::Greater);
        Lengths { lengths, steps, masks, some }
    }

    /// X [s, b, i] with zeros behind the longest row: those steps have no share in its range.
    pub(super) fn shown(&self, cx: &mut Emit<'_>, x: TensorId) -> TensorId {
        let (op, axes) = (ReduceOp::Max, vec![0]);
        let longest = cx.one(Layer::Reduce { x: self.lengths, op, axes, keep_dims: true });
        let longest = cx.with_rank(longest, 3);
        let condition = cx.elementwise(self.steps, longest, ElementWiseOp::Less);
        let else_input = cx.scalar(DType::F32, 3, 0.0);
        cx.one(Layer::Select { condition, then_input: x, else_input })
    }
}

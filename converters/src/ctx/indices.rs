//! Indices of gathers and scatters: ONNX counts negative ones from the end, TensorRT does not.

use crate::{
    Emit,
    ctx::{
        check::{self, Operand},
        extent::{self, DimPlan},
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Dim, NodeView, Refusal, Tensor};
use trtc_network::{
    TensorId,
    layer::{ElementWiseOp, GatherMode, Layer},
};

/// How indices are made non-negative.
#[derive(Debug)]
pub enum IndexPlan {
    /// They are already.
    Fine,
    /// A constant that was made so here.
    Constant(Tensor),
    /// Select(i < 0, i + size, i), with the sizes of the indexed axes: one, or one for each entry of the last dim.
    Wrap(Vec<DimPlan>),
}

/// A gather along one axis of data, input 0, by indices, input 1.
#[derive(Debug)]
pub struct AlongAxis {
    axis: u32,
    indices: IndexPlan,
}

impl AlongAxis {
    /// The data, the axis, and the plan.
    ///
    /// # Errors
    /// Those of [`plan`]; data that an engine does not hold, an axis out of range.
    pub fn plan<'a>(node: NodeView<'a>, target: &Target) -> Result<(Operand<'a>, usize, AlongAxis), Refusal> {
        let data = check::operand(node, 0, "data", check::CARRIED, target)?;
        check::not_empty(&data, "data")?;
        let axis = check::axis(node.int("axis", 0), data.rank(), "axis")?;
        let indices = plan(node, 1, &[axis], false, target)?;
        Ok((data, axis, AlongAxis { axis: axis as u32, indices }))
    }

    /// The layer.
    pub fn emit(&self, cx: &mut Emit<'_>, mode: GatherMode) -> TensorId {
        let data = cx.input(0);
        let indices = emit(cx, 1, &self.indices);
        cx.one(Layer::Gather { data, indices, axis: self.axis, mode, batch_dims: 0 })
    }
}

/// Plans the indices in `slot` into `axes` of input 0. With several axes the last dim of the indices runs over them.
///
/// # Errors
/// A dtype that is no index, an unknown rank, a constant out of range, an empty tensor.
pub fn plan(
    node: NodeView<'_>,
    slot: usize,
    axes: &[usize],
    nd: bool,
    target: &Target,
) -> Result<IndexPlan, Refusal> {
    let indices = check::operand(node, slot, "indices", &[DType::I32, DType::I64], target)?;
    check::not_empty(&indices, "indices")?;
    let data = node.input(0).and_then(|view| view.shape()).unwrap_or_default();
    if let Some(constant) = indices.view.constant() {
        let values = constant
            .to_i64s()
            .ok_or_else(|| Refusal::new(Code::CONSTANT_VALUE, "must be integers").slot("indices"))?;
        let size = |k: usize| data.get(axes[if nd { k % axes.len() } else { 0 }]).and_then(Dim::known);
        for (k, &value) in values.iter().enumerate() {
            if let Some(size) = size(k)
                && !(-size..size).contains(&value)
            {
                return Err(Refusal::new(
                    Code::CONSTANT_VALUE,
                    format!("index {value} is out of range for a dim of {size}"),
                )
                .slot("indices"));
            }
        }
        if values.iter().all(|&value| value >= 0) {
            return Ok(IndexPlan::Fine);
        }
        let wrapped: Option<Vec<i64>> = values
            .iter()
            .enumerate()
            .map(|(k, &value)| if value < 0 { size(k).map(|size| value + size) } else { Some(value) })
            .collect();
        if let Some(constant) =
            wrapped.and_then(|values| Tensor::from_i64s(&values).with_dims(constant.dims().to_vec()))
        {
            return Ok(IndexPlan::Constant(constant));
        }
    } else if let Some(list) = indices.view.elements()
        && list.iter().all(|dim| node.symbols().interval(dim).min.is_some_and(|min| min >= 0))
    {
        return Ok(IndexPlan::Fine);
    }
    Ok(IndexPlan::Wrap(axes.iter().map(|&axis| extent::own_dim(node, 0, axis)).collect()))
}

/// The indices in `slot`, made non-negative.
pub fn emit(cx: &mut Emit<'_>, slot: usize, plan: &IndexPlan) -> TensorId {
    let sizes = match plan {
        IndexPlan::Fine => return cx.input(slot),
        IndexPlan::Constant(tensor) => {
            return match tensor.bytes() {
                Some(bytes) => cx.constant(tensor.dtype(), tensor.dims().to_vec(), bytes.clone()),
                None => cx.input(slot),
            };
        }
        IndexPlan::Wrap(sizes) => sizes,
    };
    let indices = cx.input(slot);
    let (dtype, rank) = (cx.dtype(indices), cx.rank(indices));
    let size = cx.extent_tensor(sizes);
    let size = cx.cast(size, dtype);
    let size = if rank == 0 { cx.reshape(size, Vec::new()) } else { cx.with_rank(size, rank) };
    let zero = cx.scalar(dtype, rank, 0.0);
    let condition = cx.elementwise(indices, zero, ElementWiseOp::Less);
    let then_input = cx.elementwise(indices, size, ElementWiseOp::Sum);
    cx.one(Layer::Select { condition, then_input, else_input: indices })
}

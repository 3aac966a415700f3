//! Products of an LSTM with 8-bit weights: what is multiplied is quantised to u8 by its own range, X as a whole, the state anew in
//! every step, over the whole batch.
//!
//! The arithmetic is ONNX Runtime's, rounding by rounding: whole sums, then times (scale of x · scale of the weights), X's product
//! plus the state's, and the bias last of all. A last place that differs would make whole quanta of difference a step later.
//! ONNX Runtime's own range is over fewer rows where it shares out the batch over threads.

use crate::{
    Emit,
    ctx::{
        check,
        integers::{self, Along, Factor, Layout, Sums},
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode, MatrixOp},
};

/// What is multiplied: by X, by the state.
#[derive(Debug)]
pub struct Plan([Part; 2]);

#[derive(Debug)]
struct Part {
    weights: Factor,
    sums: Sums,
    /// Slot of the scale.
    scale: usize,
}

/// Weights of one direction.
pub struct Quantised {
    /// [k, n] f32: whole numbers.
    weights: TensorId,
    /// [1, 1] or [1, n] f32
    scale: TensorId,
    sums: Sums,
}

/// Weights [d, inputs, 4·hidden] and [d, hidden, 4·hidden] whose dims are checked.
pub fn plan(node: NodeView<'_>, inputs: i64, hidden: i64, target: &Target) -> Result<Plan, Refusal> {
    let part = |slot: usize, name: &str, terms: i64, scale: usize, scale_name: &str| {
        let zero = (scale + 1, if slot == 1 { "W_zero_point" } else { "R_zero_point" });
        let (weights, operand) = integers::factor(node, (slot, name), zero, Along::Stack, target)?;
        let dims: Vec<i64> = operand.shape.iter().filter_map(|dim| dim.known()).collect();
        let fits = |shape: &[trtc_ir::Dim]| match shape {
            [d] => d.known() == Some(dims[0]),
            [d, n] => d.known() == Some(dims[0]) && n.known() == Some(dims[2]),
            _ => false,
        };
        let s = check::operand(node, scale, scale_name, &[DType::F32], target)?;
        let zeros = node.input(zero.0).and_then(|zero| zero.shape());
        if !fits(s.shape) || zeros.is_some_and(|zeros| !fits(zeros)) {
            let why = "scales and zero points are neither one for each direction nor one for each column";
            return Err(Refusal::new(Code::SHAPE, why).slot(scale_name));
        }
        let size = |d: i64| usize::try_from(d).unwrap_or(0);
        let layout = Layout { outer: size(dims[0]), terms: size(terms), inner: size(dims[2]) };
        // u8 with a zero point in 0 … 255.
        let own = Factor::of_magnitude(255.0);
        let sums = integers::sums(node, [&own, &weights], Some(terms), 1, Some(layout))?;
        Ok(Part { weights, sums, scale })
    };
    Ok(Plan([part(1, "W", inputs, 8, "W_scale")?, part(2, "R", hidden, 10, "R_scale")?]))
}

impl Plan {
    /// Weights of direction `k`.
    pub fn direction(&self, cx: &mut Emit<'_>, k: usize) -> [Quantised; 2] {
        self.0.each_ref().map(|part| {
            let all = integers::emit(cx, &part.weights);
            let weights = of_direction(cx, all, k);
            let scale = cx.input(part.scale);
            let scale = of_direction(cx, scale, k);
            Quantised { weights, scale: cx.with_rank(scale, 2), sums: part.sums.clone() }
        })
    }
}

fn of_direction(cx: &mut Emit<'_>, data: TensorId, k: usize) -> TensorId {
    let indices = cx.scalar(DType::I64, 0, k as f64);
    cx.one(Layer::Gather { data, indices, axis: 0, mode: GatherMode::Default, batch_dims: 0 })
}

impl Quantised {
    /// x [.., k] · weights [.., n].
    pub fn product(&self, cx: &mut Emit<'_>, x: TensorId) -> TensorId {
        let rank = cx.rank(x);
        let found = integers::dynamic(cx, x);
        let levels = cx.elementwise(found.y, found.zero, ElementWiseOp::Sub);
        let weights = cx.with_rank(self.weights, rank);
        let (op_a, op_b) = (MatrixOp::None, MatrixOp::None);
        let y = integers::total(cx, &self.sums, [levels, weights], |cx, a, b, part| {
            let a = integers::taken(cx, a, rank - 1, 1, part);
            let b = integers::taken(cx, b, rank - 2, 1, part);
            cx.one(Layer::MatrixMultiply { a, op_a, b, op_b })
        });
        let y = cx.cast(y, DType::F32);
        let scale = cx.with_rank(self.scale, rank);
        let scale = cx.elementwise(found.scale, scale, ElementWiseOp::Prod);
        cx.elementwise(y, scale, ElementWiseOp::Prod)
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use bytes::Bytes;
    use trtc_bundle::DType;
    use trtc_ir::{Attr, Code, Tensor};

    /// Levels without pattern.
    fn levels(dtype: DType, dims: [i64; 3]) -> Tensor {
        let n = dims.iter().product::<i64>() as usize;
        let least = if dtype == DType::I8 { -128.0 } else { 0.0 };
        let list: Vec<f64> = values(n).iter().map(|v| least + (f64::from(*v + 2.0) * 63.9).floor()).collect();
        of_dtype(dtype, dims, &list)
    }

    fn scales(n: usize) -> Tensor {
        Tensor::from_f32s(
            vec![n as i64],
            &values(n).iter().map(|v| 0.004 + v.abs() * 0.003).collect::<Vec<_>>(),
        )
        .unwrap()
    }

    /// i = 3, h = 2, b = 2, up to initial_h.
    fn front(steps: i64, d: i64, dtype: DType) -> Case {
        let case = Case::of("com.microsoft", "DynamicQuantizeLSTM", 1).input(noise([steps, 2, 3]));
        let case = case.constant(levels(dtype, [d, 3, 8])).constant(levels(dtype, [d, 2, 8]));
        let case = if d == 2 { case.str("direction", "bidirectional") } else { case };
        case.int("hidden_size", 2).outputs(3)
    }

    /// Scales and zero points, one for each direction.
    fn scaled(case: Case, d: usize, dtype: DType) -> Case {
        let zero = |a: f64| of_dtype(dtype, [d as i64], &[a, 7.0][..d]);
        let case = case.constant(scales(d)).constant(zero(120.0));
        case.constant(scales(d)).constant(zero(99.0))
    }

    fn plain(steps: i64, d: usize, dtype: DType) -> Case {
        scaled(front(steps, d as i64, dtype).absent().absent().absent().absent().absent(), d, dtype)
    }

    #[test]
    fn numbers() {
        for dtype in [DType::U8, DType::I8] {
            for steps in [1, 3, 10] {
                plain(steps, 1, dtype).check(Tolerance::Exact);
                plain(steps, 1, dtype).str("direction", "reverse").check(Tolerance::Exact);
                let both = front(steps, 2, dtype).constant(noise([2, 16])).absent().input(noise([2, 2, 2]));
                let both = both.input(noise([2, 2, 2])).constant(noise([2, 6]));
                scaled(both, 2, dtype).check(Tolerance::Exact);
            }
        }
        plain(10, 1, DType::U8).dynamic(0, ["S", "N", "3"]).check(Tolerance::Exact);
        plain(3, 2, DType::U8).dynamic(0, ["3", "N", "3"]).float("clip", 0.2).check(Tolerance::Exact);
    }

    #[test]
    fn columns() {
        let none = front(10, 1, DType::I8).absent().absent().absent().absent().absent();
        let scale = || scales(8).with_dims(vec![1, 8]).unwrap();
        let with = |zero: i8| {
            let zeros = || i8s([1, 8], &[zero; 8]);
            none.clone().constant(scale()).constant(zeros()).constant(scale()).constant(zeros())
        };
        with(0).check(Tolerance::Exact);
        with(0).int("input_forget", 1).check(Tolerance::Exact);
    }

    #[test]
    fn lengths() {
        for steps in [4, 10] {
            for lengths in [[2, 3], [0, 3], [4, 1]] {
                for direction in ["forward", "reverse"] {
                    let case = front(steps, 1, DType::U8).constant(noise([1, 16])).input(i32s([2], &lengths));
                    let case = case.input(noise([1, 2, 2])).absent().absent();
                    scaled(case, 1, DType::U8).str("direction", direction).check(Tolerance::Exact);
                }
            }
        }
    }

    #[test]
    fn weights_of_the_run() {
        let case = Case::of("com.microsoft", "DynamicQuantizeLSTM", 1).input(noise([3, 1, 600]));
        let case = case.input(levels(DType::U8, [1, 600, 8])).input(levels(DType::U8, [1, 2, 8]));
        let case = case.absent().absent().absent().absent().absent().int("hidden_size", 2).outputs(3);
        let case = case.input(f32s([1], &[0.01])).input(u8s([1], &[3]));
        case.input(f32s([1], &[0.02])).input(u8s([1], &[200])).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        let open = plain(5, 2, DType::U8).dynamic(0, ["T", "N", "3"]);
        assert_eq!(open.types(), ["f32[T x 2 x N x 2]", "f32[2 x N x 2]", "f32[2 x N x 2]"]);
        let bare = Case::of("com.microsoft", "DynamicQuantizeLSTM", 1).input(noise([5, 1, 3]));
        assert_eq!(bare.types(), ["f32[5 x 1 x 1 x ?]"]);
    }

    #[test]
    fn refusals() {
        let good = plain(3, 1, DType::U8);
        good.clone().target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        good.clone().dynamic(0, ["3", "0", "3"]).refused(Code::SHAPE);
        good.clone().untyped(0).refused(Code::DTYPE_UNKNOWN);
        good.clone().unranked(0).refused(Code::RANK_UNKNOWN);
        good.clone()
            .attr("activations", Attr::Strs(vec![Bytes::from_static(b"Swish"); 3]))
            .refused(Code::ATTRIBUTE);
        let of = |x: Tensor, w: Tensor| {
            let case = Case::of("com.microsoft", "DynamicQuantizeLSTM", 1).input(x).input(w);
            case.input(levels(DType::U8, [1, 2, 8]))
        };
        let w = || levels(DType::U8, [1, 3, 8]);
        of(noise([1, 2, 3]), w()).refused(Code::INVALID);
        of(noise([1, 2, 3]), noise([1, 3, 8])).refused(Code::DTYPE_KERNEL);
        of(noise16([1, 2, 3]), w()).refused(Code::DTYPE_KERNEL);
        of(f64s([1, 2, 3], &[0.0; 6]), w()).refused(Code::DTYPE_UNREPRESENTABLE);
        assert!(of(noise([1, 2, 3]), levels(DType::U8, [1, 8, 3])).invalid().contains("size 8, not 3"));
        of(noise([1, 2, 3]), w()).dynamic(1, ["1", "k", "8"]).refused(Code::DIM_UNKNOWN);
        of(noise([1, 2, 3]), u8s([1, 3, 1, 1, 1, 1, 1, 1, 1], &[1; 3])).refused(Code::RANK);
        let odd = front(3, 1, DType::U8).absent().absent().absent().absent().absent();
        odd.constant(f32s([3], &[1.0; 3])).refused(Code::SHAPE);
    }
}

//! Attention, QAttention (com.microsoft): self-attention that projects its input with merged weights of queries, keys and
//! values.
//!
//! input [n, s, i] T, weights [i, q + q + v] T, (bias [q + q + v] T), (mask_index i32), (past [2, n, h, p, d] T),
//! (attention_bias [n or 1, h or 1, s, p+s] T)
//!   ->  output [n, s, v] T, (present [2, n, h, p+s, d] T)
//! QAttention: input u8 | i8, weights u8 | i8, bias f32, input_scale, weight_scale [] | [q + q + v] f32, (mask_index i32),
//! (input_zero_point), (weight_zero_point), (past)  ->  the same in f32
//! Masks: ctx/key_mask.rs.     Opsets: 1.
//! TensorRT: IMatrixMultiplyLayer, ISoftMaxLayer, IElementWiseLayer, ISelectLayer, ISliceLayer.
//! Limits: weights' dims known; no rotary embedding, no shared buffer; QAttention: sums exact (ctx/integers.rs).

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention, check,
        extent::{self, DimPlan},
        integers::{self, Along, Factor, Layout, Sums},
        key_mask::{self, Dims, Extents, Weighing},
        matrix, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode, MatrixOp},
};

/// The converters.
#[derive(Debug)]
pub struct PackedAttention;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    heads: i64,
    /// Hidden sizes of queries, keys, values.
    parts: [i64; 3],
    quantised: Option<Quantised>,
    /// Slot of the past, when there is one.
    past: Option<usize>,
    weighing: Weighing,
}

/// Factors of whole numbers.
#[derive(Debug)]
struct Quantised {
    input: Factor,
    weights: Factor,
    sums: Sums,
}

/// Where mask and bias are, and the past.
fn slots(node: NodeView<'_>) -> (key_mask::Slots, usize) {
    match is_quantised(node) {
        true => (key_mask::Slots { mask: (5, "mask_index"), bias: None }, 8),
        false => (key_mask::Slots { mask: (3, "mask_index"), bias: Some(5) }, 4),
    }
}

fn is_quantised(node: NodeView<'_>) -> bool {
    node.op() == "QAttention"
}

fn past_keys(node: NodeView<'_>) -> Dim {
    attention::past_keys(node, slots(node).1, 3)
}

/// What a sum of the products of input and weights is made of.
fn quantised(node: NodeView<'_>, target: &Target) -> Result<Quantised, Refusal> {
    let names = ((0, "input"), (6, "input_zero_point"));
    let (input, x) = integers::factor(node, names.0, names.1, Along::FromEnd(2), target)?;
    let names = ((1, "weight"), (7, "weight_zero_point"));
    let (weights, w) = integers::factor(node, names.0, names.1, Along::FromEnd(1), target)?;
    for (slot, name) in [(2, "bias"), (3, "input_scale"), (4, "weight_scale")] {
        let operand = check::operand(node, slot, name, &[DType::F32], target)?;
        if operand.rank() > 1 {
            return Err(Refusal::new(Code::INVALID, format!("rank {}", operand.rank())).slot(name));
        }
    }
    let size = |axis: usize| w.shape.get(axis).and_then(Dim::known);
    let terms = size(0).or_else(|| x.shape.last().and_then(Dim::known));
    let layout = size(0).zip(size(1)).and_then(|(terms, inner)| {
        Some(Layout { outer: 1, terms: terms.try_into().ok()?, inner: inner.try_into().ok()? })
    });
    let sums = integers::sums(node, [&input, &weights], terms, 1, layout)?;
    Ok(Quantised { input, weights, sums })
}

impl Converter for PackedAttention {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "Attention", 1), Key::of("com.microsoft", "QAttention", 1)],
        dtypes: check::FLOATS,
        layers: "IMatrixMultiplyLayer, ISoftMaxLayer, IElementWiseLayer, ISelectLayer, ISliceLayer",
        limits: "weights' dims known; no rotary embedding, no shared buffer; no f32 for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let (weights, past) = slots(node);
        let dtype = shape::dtype_of(node, if is_quantised(node) { 2 } else { 0 });
        let heads = attention::heads(node, "num_heads")?;
        let at = |axis: usize| shape::dim_of(node, 0, axis);
        let parts = attention::merged_parts(node, 1)?;
        let value = parts.map_or(Dim::Unknown, |parts| Dim::Known(parts[2]));
        let head = parts.map_or(Dim::Unknown, |parts| Dim::Known(parts[0] / heads));
        let keys = past_keys(node).add(&at(1));
        shape::demand(node, (1, 0), &at(2), cx)?;
        for (axis, dim) in [(1, &at(0)), (2, &Dim::Known(heads)), (4, &head)] {
            shape::demand(node, (past, axis), dim, cx)?;
        }
        let of = Dims { batch: &at(0), heads, queries: &at(1), keys: &keys };
        key_mask::demand(node, weights, of, cx);
        let present = vec![Dim::Known(2), at(0), Dim::Known(heads), keys, head];
        Ok(shape::types([
            shape::typed(dtype, Some(vec![at(0), at(1), value])),
            shape::typed(dtype, Some(present)),
        ]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (weights, past_slot) = slots(node);
        let bytes = is_quantised(node);
        let dtypes = if bytes { integers::BYTES } else { check::FLOATS };
        let x = check::operand(node, 0, "input", dtypes, target)?;
        check::never_empty(&x, "input")?;
        let own = [x.dtype];
        let w = check::operand(node, 1, "weights", if bytes { dtypes } else { &own }, target)?;
        check::not_empty(&w, "weights")?;
        let dtype = if bytes { DType::F32 } else { x.dtype };
        if x.rank() != 3 || w.rank() != 2 {
            let why = format!("an input of rank {} and weights of rank {}", x.rank(), w.rank());
            return Err(Refusal::new(Code::INVALID, why));
        }
        matrix::gemm_gate(dtype, target)?;
        key_mask::only(
            node,
            &[
                ("do_rotary", 0, "a rotary embedding, which ONNX Runtime's own kernels take differently"),
                ("past_present_share_buffer", 0, "a buffer that is shared"),
            ],
        )?;
        if !bytes {
            key_mask::without(node, &[(6, "past_sequence_length", "a buffer that is shared")])?;
        }
        let quantised = if bytes { Some(quantised(node, target)?) } else { None };
        let parts = attention::merged_parts(node, 1).map_err(crate::ctx::window::refused)?;
        let (heads, parts) = (
            attention::heads(node, "num_heads").map_err(crate::ctx::window::refused)?,
            parts.ok_or_else(|| {
                Refusal::new(Code::DIM_UNKNOWN, "the hidden sizes are not known before the run")
                    .slot("weights")
            })?,
        );
        if node.input(2).is_some() {
            let bias = check::operand(node, 2, "bias", &[dtype], target)?;
            if bias.shape != [Dim::Known(parts.iter().sum())] {
                return Err(Refusal::new(Code::INVALID, format!("not {parts:?} elements")).slot("bias"));
            }
        }
        let present = node.output(1).is_some();
        if (present || node.input(past_slot).is_some()) && parts[0] != parts[2] {
            let why = "one tensor for keys and values of different sizes";
            return Err(Refusal::new(Code::INVALID, why).slot("past"));
        }
        let mut past = false;
        if node.input(past_slot).is_some() {
            let operand = check::operand(node, past_slot, "past", &[dtype], target)?;
            if operand.rank() != 5 {
                return Err(
                    Refusal::new(Code::INVALID, format!("rank {}, not 5", operand.rank())).slot("past")
                );
            }
            past = operand.shape[3] != Dim::Known(0);
            if past {
                check::not_empty(&operand, "past")?;
            }
        }
        let keys = past_keys(node).add(&x.shape[1]);
        let of = Dims { batch: &x.shape[0], heads, queries: &x.shape[1], keys: &keys };
        let queries = extent::own_dim(node, 0, 1);
        let past_keys = if past { extent::own_dim(node, past_slot, 3) } else { DimPlan::Fixed(0) };
        let extents = Extents {
            batch: extent::own_dim(node, 0, 0),
            keys: queries.clone().plus(past_keys.clone()),
            queries,
            past: past_keys,
        };
        let weighing = Weighing::plan(node, weights, of, extents, (dtype, parts[0] / heads), target)?;
        Ok(Plan { heads, parts, quantised, past: past.then_some(past_slot), weighing })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut merged = match &plan.quantised {
            Some(quantised) => product(cx, quantised),
            None => {
                let (x, weights) = (cx.input(0), cx.input(1));
                let weights = cx.with_rank(weights, 3);
                attention::times(cx, x, weights)
            }
        };
        if let Some(bias) = cx.optional(2) {
            let bias = cx.with_rank(bias, 3);
            merged = cx.elementwise(merged, bias, ElementWiseOp::Sum);
        }
        let [q, k, v] = [0, 1, 2].map(|k| {
            let Extents { batch, queries, .. } = &plan.weighing.extents;
            let x = attention::part(cx, merged, [batch, queries], plan.parts, k);
            attention::split_heads(cx, x, plan.heads)
        });
        let [past_key, past_value] = [0.0, 1.0].map(|k| {
            plan.past.map(|slot| {
                let data = cx.input(slot);
                let indices = cx.scalar(DType::I64, 0, k);
                let mode = GatherMode::Default;
                cx.one(Layer::Gather { data, indices, axis: 0, mode, batch_dims: 0 })
            })
        });
        let k = attention::joined(cx, past_key, k);
        let v = attention::joined(cx, past_value, v);
        let done = plan.weighing.attend(cx, [q, k, v], None);
        let y = attention::merge_heads(cx, done.y);
        if cx.node().output(1).is_none() {
            return vec![y];
        }
        let xs = [k, v].map(|x| cx.one(Layer::Unsqueeze { x, axes: vec![0] }));
        vec![y, cx.one(Layer::Concatenation { xs: xs.to_vec(), axis: 0 })]
    }
}

/// The scaled product of whole numbers.
fn product(cx: &mut Emit<'_>, quantised: &Quantised) -> TensorId {
    let x = integers::emit(cx, &quantised.input);
    let weights = integers::emit(cx, &quantised.weights);
    let weights = cx.with_rank(weights, 3);
    let (op_a, op_b) = (MatrixOp::None, MatrixOp::None);
    let y = integers::total(cx, &quantised.sums, [x, weights], |cx, a, b, part| {
        let a = integers::taken(cx, a, 2, 1, part);
        let b = integers::taken(cx, b, 1, 1, part);
        cx.one(Layer::MatrixMultiply { a, op_a, b, op_b })
    });
    let y = cx.cast(y, DType::F32);
    let [a, b] = [3, 4].map(|slot| {
        let x = cx.input(slot);
        cx.reshape(x, vec![1, 1, -1])
    });
    let scale = cx.elementwise(a, b, ElementWiseOp::Prod);
    cx.elementwise(y, scale, ElementWiseOp::Prod)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    /// 2 rows, 4 tokens of 6; 3 heads of 4.
    fn plain() -> Case {
        let case = Case::of("com.microsoft", "Attention", 1).int("num_heads", 3);
        case.input(noise([2, 4, 6])).constant(noise([6, 36])).constant(noise([36]))
    }

    #[test]
    fn numbers() {
        plain().check(F32);
        plain().float("scale", 0.3).int("unidirectional", 1).check(F32);
        plain().dynamic(0, ["N", "S", "6"]).int("unidirectional", 1).check(F32);
        let case = Case::of("com.microsoft", "Attention", 1).int("num_heads", 3);
        let case = case.input(noise([2, 4, 6])).constant(noise([6, 30])).constant(noise([30]));
        case.ints("qkv_hidden_sizes", &[12, 12, 6]).check(F32);
    }

    #[test]
    fn masks() {
        plain().input(i32s([2], &[4, 2])).check(F32);
        plain().input(i32s([4], &[4, 3, 1, 0])).check(F32);
        plain().input(i32s([2, 4], &[1, 1, 0, 1, 0, 0, 1, 1])).check(F32);
        plain().input(i32s([2, 4], &[0, 0, 1, 1, 1, 1, 1, 0])).int("unidirectional", 1).check(F32);
        let pairs: Vec<i32> = (0..32).map(|k| i32::from(k % 3 != 1)).collect();
        plain().input(i32s([2, 4, 4], &pairs)).check(F32);
        plain().absent().absent().input(noise([2, 3, 4, 4])).float("scale", 0.1).check(F32);
        plain().float("scale", -0.3).input(i32s([8], &[4, 2, 0, 4, 8, 0, 4, 6])).check(F32);
        let open = plain().input(i32s([4], &[4, 3, 1, 0])).dynamic(0, ["2", "S", "6"]);
        open.check(F32);
    }

    /// Masks by position say the same as those of pairs from the first query on.
    #[test]
    fn masks_by_position() {
        let seen = |q: i64, k: i64| i32::from(k <= q && (q + k) % 3 != 1);
        let with = |mask: Tensor| {
            let case = Case::of("com.microsoft", "Attention", 1)
                .int("num_heads", 1)
                .input(f32s([1, 2, 1], &[0.0; 2]));
            let case =
                case.constant(f32s([1, 3], &[0.0; 3])).constant(f32s([3], &[0.0, 0.0, 4.0])).input(mask);
            case.input(f32s([2, 1, 1, 3, 1], &[0.0, 0.0, 0.0, 1.0, 2.0, 3.0]))
        };
        let list = |from: i64, to: i64, keys: i64| -> Vec<i32> {
            (from..to).flat_map(|q| (0..keys).map(move |k| seen(q, k))).collect()
        };
        // Query 3 sees keys 0, 2, 3 and query 4 keys 1, 2, 4.
        let want = [f32s([1, 2, 1], &[(1.0 + 3.0 + 4.0) / 3.0, (2.0 + 3.0 + 4.0) / 3.0])];
        with(i32s([1, 1, 6, 6], &list(0, 6, 6))).gives(F32, &want);
        with(i32s([1, 2, 5], &list(3, 5, 5))).gives(F32, &want);
    }

    /// 2 rows, 4 tokens of 6 bytes; 3 heads of 4.
    fn quantised(columns: i64) -> Case {
        let bytes: Vec<u8> = (0..48).map(|k| (k * 37 % 251) as u8).collect();
        let weights: Vec<i8> = (0..216).map(|k| (k * 53 % 255 - 127) as i8).collect();
        let scales: Vec<f32> = (0..columns).map(|k| 0.004 + 0.0001 * k as f32).collect();
        let case = Case::of("com.microsoft", "QAttention", 1).int("num_heads", 3);
        let case = case.input(u8s([2, 4, 6], &bytes)).constant(i8s([6, 36], &weights)).constant(noise([36]));
        case.constant(f32s([], &[0.01])).constant(f32s([columns], &scales))
    }

    #[test]
    fn quantised_projections() {
        quantised(1).check(F32);
        let zeros = |case: Case| case.constant(u8s([], &[7])).constant(i8s([], &[3]));
        zeros(quantised(1).input(i32s([2], &[4, 2]))).int("unidirectional", 1).check(F32);
        let past = zeros(quantised(36).absent()).input(noise([2, 2, 3, 5, 4])).outputs(2);
        past.check(F32);
        let open = past.dynamic(0, ["N", "S", "6"]).dynamic(8, ["2", "N", "3", "P", "4"]);
        assert_eq!(open.types(), ["f32[N x S x 12]", "f32[2 x N x 3 x S + P x 4]"]);
        open.check(F32);
        let wide = Case::of("com.microsoft", "QAttention", 1).int("num_heads", 3);
        let wide = wide.input(u8s([2, 4, 6], &[1; 48])).input(i8s([6, 36], &[1; 216])).constant(noise([36]));
        wide.constant(f32s([], &[0.01])).constant(f32s([1, 1], &[0.1])).refused(Code::INVALID);
    }

    #[test]
    fn the_past() {
        let with = plain().absent().input(noise([2, 2, 3, 5, 4])).outputs(2);
        with.check(F32);
        let open = with.dynamic(0, ["N", "S", "6"]).dynamic(4, ["2", "N", "3", "P", "4"]);
        assert_eq!(open.types(), ["f32[N x S x 12]", "f32[2 x N x 3 x S + P x 4]"]);
        open.int("unidirectional", 1).check(F32);
        plain().outputs(2).check(F32);
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let case = Case::of("com.microsoft", "Attention", 1).int("num_heads", 1);
            case.input(x(&[1, 1, 1])).input(x(&[1, 3]))
        });
        plain().target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        plain().int("do_rotary", 1).refused(Code::ATTRIBUTE);
        plain().dynamic(0, ["2", "0", "6"]).refused(Code::SHAPE);
        plain().input(i32s([7], &[1; 7])).refused(Code::SHAPE);
        plain().input(i32s([2, 2, 4, 4], &[1; 64])).refused(Code::SHAPE);
        plain().absent().input(noise([2, 2, 3, 4])).refused(Code::INVALID);
        let shared = plain().absent().absent().absent().input(i32s([1], &[1]));
        shared.refused(Code::ATTRIBUTE);
        let case = Case::of("com.microsoft", "Attention", 1).int("num_heads", 3).input(noise([2, 4, 6]));
        case.clone().input(noise([6, 36])).dynamic(1, ["6", "H"]).refused(Code::DIM_UNKNOWN);
        case.clone().input(noise([6])).refused(Code::INVALID);
        case.clone().constant(noise([6, 36])).constant(noise([35])).refused(Code::INVALID);
        assert!(case.clone().constant(noise([6, 35])).invalid().contains("three"));
        assert!(
            case.constant(noise([6, 36])).ints("qkv_hidden_sizes", &[12, 12, 6]).invalid().contains("12")
        );
    }
}

//! Attention (com.microsoft): self-attention that projects its input with merged weights of queries, keys and values.
//!
//! input [n, s, i] T, weights [i, q + q + v] T, (bias [q + q + v] T), (mask_index i32), (past [2, n, h, p, d] T),
//! (attention_bias [n or 1, h or 1, s, p+s] T)
//!   ->  output [n, s, v] T, (present [2, n, h, p+s, d] T)
//! Masks: ctx/key_mask.rs.     Opsets: 1.
//! TensorRT: IMatrixMultiplyLayer, ISoftMaxLayer, IElementWiseLayer, ISelectLayer, ISliceLayer.
//! Limits: weights' dims known; no rotary embedding, no shared buffer.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention::{self, Scoring},
        check,
        extent::{self, DimPlan, ExtentPlan},
        key_mask::{self, Dims, KeyMask},
        matrix, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, GatherMode, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct PackedAttention;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    heads: i64,
    /// Hidden sizes of queries, keys, values.
    parts: [i64; 3],
    mask: Option<KeyMask>,
    added: bool,
    past: bool,
    causal: bool,
    batch: DimPlan,
    queries: DimPlan,
    keys: DimPlan,
    past_keys: DimPlan,
    hidden: f64,
    scale: f64,
}

/// Hidden sizes of queries, keys and values; `None` where the weights' dim is unknown.
fn parts(node: NodeView<'_>) -> Result<Option<[i64; 3]>, Diag> {
    let heads = attention::heads(node, "num_heads")?;
    let whole = node.input(1).and_then(|w| w.dim(1)).and_then(Dim::known);
    let parts = match (node.attrs().ints("qkv_hidden_sizes"), whole) {
        (Some([q, k, v]), _) => [*q, *k, *v],
        (Some([]) | None, Some(whole)) if whole % 3 == 0 => [whole / 3; 3],
        (Some([]) | None, None) => return Ok(None),
        _ => return Err(Diag::invalid("weights that do not fall into three").slot("weights")),
    };
    let sum = parts.iter().try_fold(0i64, |sum, &part| sum.checked_add(part));
    let fits = parts.iter().all(|&part| part > 0 && part % heads == 0)
        && parts[0] == parts[1]
        && whole.is_none_or(|whole| sum == Some(whole));
    match fits {
        true => Ok(Some(parts)),
        false => {
            Err(Diag::invalid(format!("hidden sizes {parts:?} for {heads} heads")).slot("qkv_hidden_sizes"))
        }
    }
}

fn past_keys(node: NodeView<'_>) -> Dim {
    attention::past_keys(node, 4, 3)
}

impl Converter for PackedAttention {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "Attention", 1)],
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
        let dtype = shape::dtype_of(node, 0);
        let heads = attention::heads(node, "num_heads")?;
        let at = |axis: usize| shape::dim_of(node, 0, axis);
        let parts = parts(node)?;
        let value = parts.map_or(Dim::Unknown, |parts| Dim::Known(parts[2]));
        let head = parts.map_or(Dim::Unknown, |parts| Dim::Known(parts[0] / heads));
        let keys = past_keys(node).add(&at(1));
        shape::demand(node, (4, 1), &at(0), cx)?;
        key_mask::demand(node, 3, 5, Dims { batch: &at(0), queries: &at(1), keys: &keys }, cx);
        let present = vec![Dim::Known(2), at(0), Dim::Known(heads), keys, head];
        Ok(shape::types([
            shape::typed(dtype, Some(vec![at(0), at(1), value])),
            shape::typed(dtype, Some(present)),
        ]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::FLOATS, target)?;
        check::never_empty(&x, "input")?;
        let w = check::operand(node, 1, "weights", &[x.dtype], target)?;
        check::not_empty(&w, "weights")?;
        if x.rank() != 3 || w.rank() != 2 {
            let why = format!("an input of rank {} and weights of rank {}", x.rank(), w.rank());
            return Err(Refusal::new(Code::INVALID, why));
        }
        matrix::gemm_gate(x.dtype, target)?;
        key_mask::only(
            node,
            &[
                ("do_rotary", 0, "a rotary embedding, which ONNX Runtime's own kernels take differently"),
                ("past_present_share_buffer", 0, "a buffer that is shared"),
            ],
        )?;
        key_mask::without(node, &[(6, "past_sequence_length", "a buffer that is shared")])?;
        let parts = parts(node).map_err(crate::ctx::window::refused)?;
        let (heads, parts) = (
            attention::heads(node, "num_heads").map_err(crate::ctx::window::refused)?,
            parts.ok_or_else(|| {
                Refusal::new(Code::DIM_UNKNOWN, "the hidden sizes are not known before the run")
                    .slot("weights")
            })?,
        );
        if node.input(2).is_some() {
            let bias = check::operand(node, 2, "bias", &[x.dtype], target)?;
            if bias.shape != [Dim::Known(parts.iter().sum())] {
                return Err(Refusal::new(Code::INVALID, format!("not {parts:?} elements")).slot("bias"));
            }
        }
        let present = node.output(1).is_some();
        if (present || node.input(4).is_some()) && parts[0] != parts[2] {
            let why = "one tensor for keys and values of different sizes";
            return Err(Refusal::new(Code::INVALID, why).slot("past"));
        }
        let mut past = false;
        if node.input(4).is_some() {
            let operand = check::operand(node, 4, "past", &[x.dtype], target)?;
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
        let of = Dims { batch: &x.shape[0], queries: &x.shape[1], keys: &keys };
        let mask = key_mask::plan(node, 3, "mask_index", of, target)?;
        let added = key_mask::attention_bias(node, 5, x.dtype, of, target)?;
        let queries = extent::own_dim(node, 0, 1);
        let past_keys = if past { extent::own_dim(node, 4, 3) } else { DimPlan::Fixed(0) };
        Ok(Plan {
            heads,
            parts,
            mask,
            added,
            past,
            causal: node.int("unidirectional", 0) != 0,
            batch: extent::own_dim(node, 0, 0),
            keys: queries.clone().plus(past_keys.clone()),
            queries,
            past_keys,
            hidden: key_mask::hidden(node, x.dtype),
            scale: key_mask::scale(node, parts[0] / heads)?,
        })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let dtype = cx.dtype(x);
        let weights = cx.input(1);
        let weights = cx.with_rank(weights, 3);
        let mut merged = attention::times(cx, x, weights);
        if let Some(bias) = cx.optional(2) {
            let bias = cx.with_rank(bias, 3);
            merged = cx.elementwise(merged, bias, ElementWiseOp::Sum);
        }
        let [q, k, v] = [0, 1, 2].map(|k| {
            let x = part(cx, &plan, merged, k);
            attention::split_heads(cx, x, plan.heads)
        });
        let [past_key, past_value] = [0.0, 1.0].map(|k| {
            plan.past.then(|| {
                let data = cx.input(4);
                let indices = cx.scalar(DType::I64, 0, k);
                let mode = GatherMode::Default;
                cx.one(Layer::Gather { data, indices, axis: 0, mode, batch_dims: 0 })
            })
        });
        let k = attention::joined(cx, past_key, k);
        let v = attention::joined(cx, past_value, v);
        let mask = plan.mask.map(|mask| key_mask::bias(cx, mask, 3, &plan.keys, dtype, plan.hidden));
        let later = match plan.causal {
            true => key_mask::causal(cx, &plan.queries, &plan.keys, &plan.past_keys, dtype),
            false => None,
        };
        let added = plan.added.then(|| cx.input(5));
        let bias = attention::summed(cx, mask, later);
        let bias = attention::summed(cx, bias, added);
        let how = Scoring { scale: plan.scale, softcap: 0.0, precision: None, guard: false };
        let done = attention::attend(cx, [q, k, v], bias, how);
        let y = attention::merge_heads(cx, done.y);
        if cx.node().output(1).is_none() {
            return vec![y];
        }
        let xs = [k, v].map(|x| cx.one(Layer::Unsqueeze { x, axes: vec![0] }));
        vec![y, cx.one(Layer::Concatenation { xs: xs.to_vec(), axis: 0 })]
    }
}

/// Queries, keys or values of the projection.
fn part(cx: &mut Emit<'_>, plan: &Plan, x: TensorId, k: usize) -> TensorId {
    let start = Extent::Static(vec![0, 0, plan.parts[..k].iter().sum()]);
    let dims = vec![plan.batch.clone(), plan.queries.clone(), DimPlan::Fixed(plan.parts[k])];
    let size = cx.extent(&ExtentPlan::Dims(dims));
    let stride = Extent::Static(vec![1; 3]);
    cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None })
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

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
        let open = plain().input(i32s([4], &[4, 3, 1, 0])).dynamic(0, ["2", "S", "6"]);
        open.check(F32);
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
        plain().float("scale", -1.0).refused(Code::ATTRIBUTE);
        plain().dynamic(0, ["2", "0", "6"]).refused(Code::SHAPE);
        plain().input(i32s([8], &[1; 8])).refused(Code::SHAPE);
        plain().input(i32s([2, 1, 4, 4], &[1; 32])).refused(Code::SHAPE);
        plain().absent().input(noise([2, 2, 5, 4])).refused(Code::INVALID);
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

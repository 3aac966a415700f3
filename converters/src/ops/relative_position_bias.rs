//! RelativePositionBias, GatedRelativePositionBias (com.microsoft): what T5 and WavLM add to the scores of attention.
//!
//! RelativePositionBias: bias_table of b buckets, h heads [b, h] T, by head (h lists of b, whatever the dims say),
//! query_length [1] i64, key_length [1] i64  ->  output [1, h, q, k] T
//! GatedRelativePositionBias: query [n, s, h·d] T, query_bias [h·d] T, rel_pos [1, h, s, s] T, weight [d, e] T, bias [e] T,
//! eco_a [1, h, 1, 1] T  ->  output [n, h, s, s] T
//! Opsets: 1.     TensorRT: IGatherLayer; IMatrixMultiplyLayer, IReduceLayer, IElementWiseLayer.
//! Limits: lengths computed from dims; heads and their size known; no packed tokens.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        attention, check, dims, elementwise,
        extent::{self, DimPlan},
        iota, matrix, reshape, shape,
    },
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ActivationKind, ElementWiseOp, GatherMode, ReduceOp},
};

/// The converters.
#[derive(Debug)]
pub struct RelativePositionBias;

/// Everything that `emit` needs.
#[derive(Debug)]
pub enum Plan {
    /// Rows of a table.
    Buckets {
        /// Lengths of queries and keys.
        lengths: [DimPlan; 2],
        /// Dims of the table.
        table: [i64; 2],
        /// The bucket of each distance from −`furthest` to `furthest`.
        buckets: Vec<i64>,
        /// Everything further away is in the bucket of this distance.
        furthest: i64,
    },
    /// A gate on given biases.
    Gate {
        /// Heads.
        heads: i64,
        /// Columns of the weights.
        columns: i64,
    },
}

/// Furthest distance of which the bucket is written down.
const FURTHEST: i64 = 1 << 16;

/// The bucket of a key `distance` behind the query, as T5 has it: near ones have one each, the further ones share.
fn bucket(distance: i64, count: i64, furthest: i64, both_ways: bool) -> i64 {
    let (count, first) = match both_ways {
        true => (count / 2, if distance > 0 { count / 2 } else { 0 }),
        false => (count, 0),
    };
    let distance = if both_ways { distance.abs() } else { (-distance).max(0) };
    let exact = count / 2;
    if distance < exact {
        return first + distance;
    }
    let part = (distance as f32 / exact as f32).ln() / (furthest as f32 / exact as f32).ln();
    first + (exact + (part * (count - exact) as f32) as i64).min(count - 1)
}

fn is_gate(node: NodeView<'_>) -> bool {
    node.op() == "GatedRelativePositionBias"
}

fn length(node: NodeView<'_>, slot: usize) -> Dim {
    dims::scalar(node, slot).cloned().unwrap_or(Dim::Unknown)
}

impl Converter for RelativePositionBias {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::of("com.microsoft", "RelativePositionBias", 1),
            Key::of("com.microsoft", "GatedRelativePositionBias", 1),
        ],
        dtypes: check::FLOATS,
        layers: "IGatherLayer, IMatrixMultiplyLayer, IReduceLayer, IElementWiseLayer",
        limits: "lengths computed from dims; heads and their size known; no packed tokens",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let at = |slot: usize, axis: usize| shape::dim_of(node, slot, axis);
        if !is_gate(node) {
            let dims = vec![Dim::Known(1), at(0, 1), length(node, 1), length(node, 2)];
            return Ok(shape::types([shape::typed(dtype, Some(dims))]));
        }
        let heads = Dim::Known(attention::heads(node, "num_heads")?);
        let (hidden, tokens) = (at(0, 2), at(2, 2));
        if node.input(6).is_none() {
            shape::demand(node, (0, 1), &tokens, cx)?;
        }
        for (slot, axis, dim) in [
            (1, 0, &hidden),
            (2, 0, &Dim::Known(1)),
            (2, 1, &heads),
            (2, 3, &tokens),
            (4, 0, &at(3, 1)),
            (5, 1, &heads),
        ] {
            shape::demand(node, (slot, axis), dim, cx)?;
        }
        let batch = if node.input(6).is_some() { at(6, 0) } else { at(0, 0) };
        Ok(shape::types([shape::typed(dtype, Some(vec![batch, heads, tokens.clone(), tokens]))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let ranked = |slot: usize, name: &str, dtypes: &[DType], rank: usize| {
            let x = check::operand(node, slot, name, dtypes, target)?;
            check::never_empty(&x, name)?;
            match x.rank() == rank {
                true => Ok(x),
                false => {
                    let why = format!("rank {}, not {rank}", x.rank());
                    Err(Refusal::new(Code::RANK, why).slot(name))
                }
            }
        };
        if is_gate(node) {
            let x = ranked(0, "query_layer", check::FLOATS, 3)?;
            if node.input(6).is_some() {
                let why = "tokens without padding, of which the run tells where they belong";
                return Err(Refusal::new(Code::ATTRIBUTE, why).slot("token_offset"));
            }
            let rest = [("query_bias", 1), ("rel_pos", 4), ("weight", 2), ("bias", 1), ("eco_a", 4)];
            for (slot, (name, rank)) in rest.into_iter().enumerate() {
                ranked(slot + 1, name, &[x.dtype], rank)?;
            }
            matrix::gemm_gate(x.dtype, target)?;
            let heads = attention::heads(node, "num_heads").map_err(crate::ctx::window::refused)?;
            let known = |slot: usize, axis: usize, name: &str| {
                shape::dim_of(node, slot, axis).known().ok_or_else(|| {
                    Refusal::new(Code::DIM_UNKNOWN, "the head size is not known before the run").slot(name)
                })
            };
            let (hidden, head, columns) =
                (known(0, 2, "query_layer")?, known(3, 0, "weight")?, known(3, 1, "weight")?);
            if columns % 2 != 0 || head.checked_mul(heads) != Some(hidden) {
                let why = format!("weights [{head}, {columns}] for {heads} heads of a dim of {hidden}");
                return Err(Refusal::new(Code::INVALID, why).slot("weight"));
            }
            return Ok(Plan::Gate { heads, columns });
        }
        let table = ranked(0, "bias_table", check::FLOATS, 2)?;
        let [Dim::Known(count), Dim::Known(heads)] = *table.shape else {
            let why = "the number of buckets or heads is not known before the run";
            return Err(Refusal::new(Code::DIM_UNKNOWN, why).slot("bias_table"));
        };
        let both_ways = node.int("is_bidirectional", 0) != 0;
        let furthest = node.int("max_distance", 0);
        let exact = if both_ways { count / 4 } else { count / 2 };
        if exact < 1 || furthest <= exact || furthest > FURTHEST {
            let why = format!("{count} buckets for distances up to {furthest}");
            return Err(Refusal::new(Code::INVALID, why).slot("max_distance"));
        }
        let mut lengths = [DimPlan::Fixed(0), DimPlan::Fixed(0)];
        for (k, name) in ["query_length", "key_length"].into_iter().enumerate() {
            check::operand(node, k + 1, name, &[DType::I64], target)?;
            lengths[k] = extent::require_dim(node, &length(node, k + 1), name)?;
        }
        let buckets = (-furthest..=furthest).map(|d| bucket(d, count, furthest, both_ways)).collect();
        Ok(Plan::Buckets { lengths, table: [count, heads], buckets, furthest })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        match plan {
            Plan::Gate { heads, columns } => vec![gated(cx, heads, columns)],
            Plan::Buckets { lengths: [queries, keys], table: [count, heads], buckets, furthest } => {
                let (query, key) = (iota::along(cx, &queries, 0, 2), iota::along(cx, &keys, 1, 2));
                let mut place = cx.elementwise(key, query, ElementWiseOp::Sub);
                for (bound, op) in [(furthest, ElementWiseOp::Min), (-furthest, ElementWiseOp::Max)] {
                    let bound = cx.scalar(DType::I64, 2, bound as f64);
                    place = cx.elementwise(place, bound, op);
                }
                let shift = cx.scalar(DType::I64, 2, furthest as f64);
                let place = cx.elementwise(place, shift, ElementWiseOp::Sum);
                let buckets = cx.i64s(&buckets);
                let bucket = taken(cx, buckets, place, 0);
                let table = cx.input(0);
                let table = cx.reshape(table, vec![heads, count]);
                let x = taken(cx, table, bucket, 1);
                vec![cx.one(Layer::Unsqueeze { x, axes: vec![0] })]
            }
        }
    }
}

fn taken(cx: &mut Emit<'_>, data: TensorId, indices: TensorId, axis: u32) -> TensorId {
    cx.one(Layer::Gather { data, indices, axis, mode: GatherMode::Default, batch_dims: 0 })
}

fn gated(cx: &mut Emit<'_>, heads: i64, columns: i64) -> TensorId {
    let x = cx.input(0);
    let bias = elementwise::input(cx, 1, 3);
    let x = cx.elementwise(x, bias, ElementWiseOp::Sum);
    let x = attention::split_heads(cx, x, heads);
    let weight = elementwise::input(cx, 3, 4);
    let product = attention::times(cx, x, weight);
    let bias = elementwise::input(cx, 4, 4);
    let sums = cx.elementwise(product, bias, ElementWiseOp::Sum);
    let pairs = reshape::copying(cx, sums, vec![0, 0, 0, 2, columns / 2]);
    let gates = cx.one(Layer::Reduce { x: pairs, op: ReduceOp::Sum, axes: vec![4], keep_dims: false });
    let gates = cx.activation(gates, ActivationKind::Sigmoid, 0.0, 0.0);
    let [update, reset] = [0.0, 1.0].map(|k| {
        let index = cx.scalar(DType::I64, 1, k);
        taken(cx, gates, index, 3)
    });
    let [one, two] = [1.0, 2.0].map(|value| elementwise::scalar_like(cx, gates, value));
    let factor = cx.input(5);
    let reset = cx.elementwise(reset, factor, ElementWiseOp::Prod);
    let reset = cx.elementwise(reset, one, ElementWiseOp::Sub);
    let gate = cx.elementwise(update, reset, ElementWiseOp::Prod);
    let gate = cx.elementwise(gate, two, ElementWiseOp::Sum);
    let given = cx.input(2);
    cx.elementwise(gate, given, ElementWiseOp::Prod)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    /// 8 buckets: 0, 1, 2, 3 are distances, the others are shared up to 16. Two heads, the second tenfold.
    fn table() -> Case {
        let values: Vec<f32> = (0..16).map(|k| (k % 8) as f32 * if k < 8 { 1.0 } else { 10.0 }).collect();
        Case::of("com.microsoft", "RelativePositionBias", 1).constant(f32s([8, 2], &values))
    }

    #[test]
    fn buckets() {
        // ln(7/4) / ln 4 · 4 = 1.6, ln(8/4) / ln 4 · 4 = 2, ln(12/4) / ln 4 · 4 = 3.2.
        let one_way = table().int("max_distance", 16).constant(i64s([1], &[13])).constant(i64s([1], &[1]));
        let want: Vec<f32> = vec![0.0, 1.0, 2.0, 3.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0, 6.0, 6.0, 7.0];
        let tens: Vec<f32> = want.iter().map(|v| v * 10.0).collect();
        one_way.gives(F32, &[f32s([1, 2, 13, 1], &[want, tens].concat())]);
        // 2 exact ones each way, then ln(2/2) = 0 and ln(3/2) / ln 8 · 2 = 0.4 in the same one.
        let both = table().int("max_distance", 16).int("is_bidirectional", 1);
        let both = both.constant(i64s([1], &[1])).constant(i64s([1], &[4]));
        let want = [0.0, 5.0, 6.0, 6.0, 0.0, 50.0, 60.0, 60.0];
        both.gives(F32, &[f32s([1, 2, 1, 4], &want)]);
    }

    #[test]
    fn lengths_of_the_run() {
        let open = table().int("max_distance", 16).input(i64s([1], &[3])).input(i64s([1], &[3]));
        open.clone().refused(Code::SHAPE_VALUE);
        let open = open.sizes(1, ["S"]).sizes(2, ["S"]);
        assert_eq!(open.types(), ["f32[1 x 2 x S x S]"]);
        let want = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 2.0, 1.0, 0.0];
        let tens = want.map(|v| v * 10.0);
        open.gives(F32, &[f32s([1, 2, 3, 3], &[want, tens].concat())]);
    }

    /// One head of one element.
    fn gate(x: f32, bias: f32) -> Case {
        let case = Case::of("com.microsoft", "GatedRelativePositionBias", 1).int("num_heads", 1);
        let case = case.input(f32s([1, 1, 1], &[x])).constant(f32s([1], &[bias]));
        let case = case.input(f32s([1, 1, 1, 1], &[3.0])).constant(f32s([1, 2], &[1.0, -2.0]));
        case.constant(f32s([2], &[0.5, 0.25])).constant(f32s([1, 1, 1, 1], &[4.0]))
    }

    #[test]
    fn gates() {
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let (u, r) = (sigmoid(2.5), sigmoid(-3.75));
        let want = [f32s([1, 1, 1, 1], &[3.0 * (u * (r * 4.0 - 1.0) + 2.0)])];
        gate(1.5, 0.5).gives(F32, &want);
        let open = gate(1.5, 0.5).dynamic(0, ["N", "S", "1"]).dynamic(2, ["1", "1", "T", "U"]);
        assert_eq!(open.equalities(), ["S = T", "U = T"]);
        assert_eq!(open.types(), ["f32[N x 1 x T x T]"]);
        open.gives(F32, &want);
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let case = Case::of("com.microsoft", "RelativePositionBias", 1).int("max_distance", 16);
            case.input(x(&[8, 2])).constant(i64s([1], &[1])).constant(i64s([1], &[1]))
        });
        let lengths = |case: Case| case.constant(i64s([1], &[1])).constant(i64s([1], &[1]));
        lengths(table()).refused(Code::INVALID);
        let open = Case::of("com.microsoft", "RelativePositionBias", 1).int("max_distance", 16);
        lengths(open.clone().input(noise([8, 2])).dynamic(0, ["8", "H"])).refused(Code::DIM_UNKNOWN);
        lengths(open.clone().input(noise([8, 2])).dynamic(0, ["8", "0"])).refused(Code::SHAPE);
        lengths(open.input(noise([8]))).refused(Code::RANK);
        gate(1.0, 1.0).int("num_heads", 1).input(i32s([1, 1], &[0])).refused(Code::ATTRIBUTE);
    }
}

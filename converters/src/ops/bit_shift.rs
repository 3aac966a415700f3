//! BitShift: integers times and by powers of two.
//!
//! x [..] T, y [..] T  ->  z [broadcast] T
//! Opsets: 11 unsigned; 28 signed, any amount.     TensorRT: none; IGatherLayer (2ⁿ), IElementWiseLayer FLOOR_DIV, PROD.
//! To the right x / 2ⁿ rounded down, which keeps the sign; to the left x · 2ⁿ less the bits that leave. An amount below 0 or
//! of the width and above leaves the sign (right) or nothing.
//! Limits: i32, i64, u8, i8, u16, i16, u32; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, wrap},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode, UnaryOp},
};

/// The converter.
#[derive(Debug)]
pub struct BitShift;

/// Which way, of what.
#[derive(Debug)]
pub struct Plan {
    left: bool,
    dtype: DType,
    rank: usize,
}

impl Converter for BitShift {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("BitShift", 28)],
        dtypes: check::INTEGERS,
        layers: "IGatherLayer, IElementWiseLayer, ISelectLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::INVALID,
            Code::ATTRIBUTE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let ty = elementwise::broadcast(node, &[0, 1], None, cx)?;
        Ok(vec![Inferred::from(ty)])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (dtype, rank) = elementwise::gates(node, &["X", "Y"], check::INTEGERS, target)?;
        let left = match node.str("direction", "") {
            "LEFT" => true,
            "RIGHT" => false,
            other => {
                return Err(
                    Refusal::new(Code::ATTRIBUTE, format!("no direction `{other}`")).slot("direction")
                );
            }
        };
        Ok(Plan { left, dtype, rank })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let (dtype, rank) = (plan.dtype, plan.rank);
        let width = dtype.bits() as i64;
        let x = elementwise::input(cx, 0, rank);
        let amount = amount(cx, width);
        let power = |n: i64| 1i64.checked_shl(n as u32).unwrap_or(0);
        if dtype != DType::I64 {
            // Twice the width of the dtype holds every product.
            let own = cx.dtype(x);
            let x = if dtype == DType::I32 { cx.cast(x, DType::I64) } else { x };
            let wide = cx.dtype(x);
            let far = |n: i64| if plan.left && n == width { 0 } else { power(n) };
            let by = table(cx, amount, (0..=width).map(far), wide, rank);
            if !plan.left {
                let y = cx.elementwise(x, by, ElementWiseOp::FloorDiv);
                return vec![cx.cast(y, own)];
            }
            let y = cx.elementwise(x, by, ElementWiseOp::Prod);
            return vec![wrap::wrapped(cx, y, dtype)];
        }
        if !plan.left {
            // 2⁶³ and 2⁶⁴ as two divisors; what is left after 2⁶³ is the sign.
            let most = table(cx, amount, (0..=width).map(|n| power(n.min(62))), DType::I64, rank);
            let rest = table(cx, amount, (0..=width).map(|n| power((n - 62).max(0))), DType::I64, rank);
            let y = cx.elementwise(x, most, ElementWiseOp::FloorDiv);
            return vec![cx.elementwise(y, rest, ElementWiseOp::FloorDiv)];
        }
        // x = q · 2⁶³⁻ⁿ + t: t · 2ⁿ are the bits below the sign, and q is odd where the sign is set.
        let unit = table(cx, amount, (0..=width).map(|n| power((63 - n).clamp(0, 62))), DType::I64, rank);
        let by = table(cx, amount, (0..=width).map(|n| if n < 63 { power(n) } else { 0 }), DType::I64, rank);
        let stays = table(cx, amount, (0..=width).map(|n| i64::from(n == 0)), DType::I64, rank);
        let lost = table(cx, amount, (0..=width).map(|n| i64::from(n == width)), DType::I64, rank);
        let q = cx.elementwise(x, unit, ElementWiseOp::FloorDiv);
        let whole = cx.elementwise(q, unit, ElementWiseOp::Prod);
        let t = cx.elementwise(x, whole, ElementWiseOp::Sub);
        let below = cx.elementwise(t, by, ElementWiseOp::Prod);
        let odd = wrap::low_bits(cx, q, 1);
        let sign = elementwise::scalar_like(cx, below, -(2f64.powi(63)));
        let signed = cx.elementwise(below, sign, ElementWiseOp::Sum);
        let zero = elementwise::scalar_like(cx, x, 0.0);
        let [odd, stays, lost] = [odd, stays, lost].map(|flag| {
            let off = cx.elementwise(flag, zero, ElementWiseOp::Equal);
            cx.unary(off, UnaryOp::Not)
        });
        let select = |cx: &mut Emit<'_>, condition, then_input, else_input| {
            cx.one(Layer::Select { condition, then_input, else_input })
        };
        let y = select(cx, odd, signed, below);
        let y = select(cx, stays, x, y);
        vec![select(cx, lost, zero, y)]
    }
}

/// The amounts, in their own shape; `width` stands for every one outside of 0 … width − 1.
fn amount(cx: &mut Emit<'_>, width: i64) -> TensorId {
    let y = cx.input(1);
    let most = elementwise::scalar_like(cx, y, width as f64);
    let zero = elementwise::scalar_like(cx, y, 0.0);
    let below = cx.elementwise(y, zero, ElementWiseOp::Less);
    let high = cx.elementwise(y, most, ElementWiseOp::Min);
    cx.one(Layer::Select { condition: below, then_input: most, else_input: high })
}

/// `values[amount]`, of rank `rank`.
fn table(
    cx: &mut Emit<'_>,
    amount: TensorId,
    values: impl Iterator<Item = i64>,
    dtype: DType,
    rank: usize,
) -> TensorId {
    let values: Vec<i64> = values.collect();
    let bytes: Vec<u8> = match dtype {
        DType::I64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        _ => values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
    };
    let data = cx.constant(dtype, vec![values.len() as i64], bytes.into());
    let mode = GatherMode::Default;
    let found = cx.one(Layer::Gather { data, indices: amount, axis: 0, mode, batch_dims: 0 });
    cx.with_rank(found, rank)
}

#[cfg(test)]
mod tests {
    use crate::{ctx::check, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    fn tensor(dtype: DType, values: &[i128]) -> Tensor {
        let bytes =
            values.iter().flat_map(|v| v.to_le_bytes()[..dtype.bits() / 8].to_vec()).collect::<Vec<u8>>();
        Tensor::new(dtype, vec![values.len() as i64], bytes.into()).unwrap()
    }

    fn signed(dtype: DType) -> bool {
        matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    // Against the specification: an infinitely wide two's complement, cut to the width.
    #[test]
    fn numbers() {
        for &dtype in check::INTEGERS {
            let width = dtype.bits() as i128;
            let (low, high) = match signed(dtype) {
                true => (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1),
                false => (0, (1i128 << width) - 1),
            };
            let wraps = |v: i128| (v - low).rem_euclid(1 << width) + low;
            let some = [low, high, 0, 1, wraps(0x5a5a_5a5a_5a5a_5a5a), wraps(-3), high / 3];
            let mut amounts: Vec<i128> = (0..=width + 1).collect();
            if signed(dtype) {
                amounts.extend([-1, low]);
            }
            let pairs: Vec<(i128, i128)> =
                some.iter().flat_map(|&x| amounts.iter().map(move |&n| (x, n))).collect();
            let of = |f: &dyn Fn((i128, i128)) -> i128| {
                tensor(dtype, &pairs.iter().map(|&pair| f(pair)).collect::<Vec<_>>())
            };
            for left in [true, false] {
                let result = |(x, n): (i128, i128)| match ((0..width).contains(&n), left) {
                    (true, true) => wraps(x << n),
                    (true, false) => x >> n,
                    (false, true) => 0,
                    (false, false) => -i128::from(x < 0),
                };
                let case = Case::new("BitShift", 28).input(of(&|pair| pair.0)).input(of(&|pair| pair.1));
                let case = case.str("direction", if left { "LEFT" } else { "RIGHT" });
                case.gives(Tolerance::Exact, &[of(&result)]);
            }
        }
    }

    #[test]
    fn shapes() {
        let case = Case::new("BitShift", 28).input(u8s([2, 1], &[16, 4])).input(u8s([3], &[1, 2, 3]));
        let case = case.str("direction", "RIGHT");
        assert_eq!(case.types(), ["u8[2 x 3]"]);
        case.check(Tolerance::Exact);
        case.dynamic(0, ["N", "1"]).check(Tolerance::Exact);
        let scalar = Case::new("BitShift", 28).input(of_dtype(DType::U32, [2], &[1.0, 7.0]));
        scalar.constant(of_dtype(DType::U32, [], &[31.0])).str("direction", "LEFT").check(Tolerance::Exact);
    }

    #[test]
    fn refusals() {
        let case = Case::new("BitShift", 28).input(u8s([1], &[1])).input(u8s([1], &[1]));
        case.refused(Code::ATTRIBUTE);
        case.str("direction", "LEFT").gates_of_f32(f32s([1], &[1.0]));
    }
}

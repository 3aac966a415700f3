//! Add, Sub, Mul, Div: elementwise arithmetic with broadcasting. Integers are divided towards zero.
//!
//! a [..] T, b [..] T  ->  c [broadcast] T
//! Opsets: 7 broadcasting; 13 bf16; 14 more integers.     TensorRT: IElementWiseLayer SUM, SUB, PROD, DIV.
//! Limits: f32, f16, bf16, i32, i64; u8, i8, u16, i16, u32 wrap; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape, small, wrap},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::ElementWiseOp;

/// The converter.
#[derive(Debug)]
pub struct Arithmetic;

/// Operation, and rank of the result.
#[derive(Debug)]
pub struct Plan {
    op: ElementWiseOp,
    rank: usize,
    dtype: DType,
}

fn op_of(node: NodeView<'_>) -> ElementWiseOp {
    match node.op() {
        "Add" => ElementWiseOp::Sum,
        "Sub" => ElementWiseOp::Sub,
        "Mul" => ElementWiseOp::Prod,
        _ => ElementWiseOp::Div,
    }
}

impl Converter for Arithmetic {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Add", 14), Key::onnx("Sub", 14), Key::onnx("Mul", 14), Key::onnx("Div", 14)],
        dtypes: check::WITH_NARROW,
        layers: "IElementWiseLayer",
        limits: "",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let ty = elementwise::broadcast(node, &[0, 1], None, cx)?;
        let whole = shape::dtype_of(node, 0).is_some_and(DType::is_int);
        let elements = small::zip(node, [0, 1], |a, b| match op_of(node) {
            ElementWiseOp::Sum => a.add(b),
            ElementWiseOp::Sub => a.sub(b),
            ElementWiseOp::Prod => a.mul(b),
            _ if whole => small::truncating_div(a, b, node.symbols()),
            _ if *b == Dim::Known(0) => Dim::Unknown,
            _ => small::exact_div(a, b),
        });
        let elements = small::settled(elements, ty.dtype(), node.symbols());
        Ok(vec![Inferred { ty, elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (dtype, rank) = elementwise::gates(node, &["A", "B"], check::WITH_NARROW, target)?;
        Ok(Plan { op: op_of(node), rank, dtype })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let [a, b] = [0, 1].map(|slot| elementwise::input(cx, slot, plan.rank));
        if plan.op == ElementWiseOp::Prod {
            return vec![wrap::product(cx, a, b, plan.dtype)];
        }
        let y = cx.elementwise(a, b, plan.op);
        vec![wrap::wrapped(cx, y, plan.dtype)]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;

    const OPS: [&str; 4] = ["Add", "Sub", "Mul", "Div"];

    #[test]
    fn numbers() {
        let a = [7.0, -7.0, 6.0, -6.0, 1.0, 0.0];
        let b = [2.0, -2.0, 3.0];
        for op in OPS {
            for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64] {
                let case =
                    Case::new(op, 14).input(of_dtype(dtype, [2, 3], &a)).input(of_dtype(dtype, [3], &b));
                case.check(near(dtype));
                case.dynamic(0, ["N", "3"]).check(near(dtype));
            }
        }
        Case::new("Add", 14)
            .input(f32s([2, 1], &[1.0, 2.0]))
            .constant(f32s([], &[0.5]))
            .check(Tolerance::Exact);
        Case::new("Mul", 14).input(f32s([], &[3.0])).input(f32s([], &[0.5])).check(Tolerance::Exact);
    }

    // ONNX Runtime has no arithmetic of bytes; these wrap as numpy's do.
    #[test]
    fn bytes() {
        let gives = |op: &str, unsigned: [u8; 4], signed: [i8; 4]| {
            let case = Case::new(op, 14).input(u8s([4], &[7, 200, 255, 3]));
            case.constant(u8s([4], &[2, 100, 255, 5])).gives(Tolerance::Exact, &[u8s([4], &unsigned)]);
            let case = Case::new(op, 14).input(i8s([4], &[7, -100, 127, -3]));
            case.constant(i8s([4], &[2, 100, -1, 5])).gives(Tolerance::Exact, &[i8s([4], &signed)]);
        };
        gives("Add", [9, 44, 254, 8], [9, 0, 126, 2]);
        gives("Sub", [5, 100, 0, 254], [5, 56, -128, -8]);
        gives("Mul", [14, 32, 1, 15], [14, -16, -127, -15]);
        gives("Div", [3, 2, 1, 0], [3, -1, -127, 0]);
    }

    // Both ends of each range, against the arithmetic of the type in Rust.
    #[test]
    fn narrow_integers_wrap() {
        let ends = |dtype: DType| match dtype {
            DType::U8 => (0, 255),
            DType::I8 => (-128, 127),
            DType::U16 => (0, 65_535),
            DType::I16 => (-32_768, 32_767),
            _ => (0, i128::from(u32::MAX)),
        };
        for dtype in [DType::U8, DType::I8, DType::U16, DType::I16, DType::U32] {
            let (low, high) = ends(dtype);
            let some = [low, low + 1, low / 2 + 7, 3, 5, high / 2 - 9, high - 1, high];
            let pairs: Vec<(i128, i128)> =
                some.iter().flat_map(|&a| some.map(|b| (a, b))).filter(|&(_, b)| b != 0).collect();
            let tensor = |f: &dyn Fn((i128, i128)) -> i128| {
                let at = |k: usize| pairs.get(k).copied().unwrap_or((0, 1));
                of_dtype(dtype, [64], &std::array::from_fn::<f64, 64, _>(|k| f(at(k)) as f64))
            };
            let wraps = |v: i128| (v - low).rem_euclid(high - low + 1) + low;
            for op in OPS {
                let result = |(a, b): (i128, i128)| match op {
                    "Add" => wraps(a + b),
                    "Sub" => wraps(a - b),
                    "Mul" => wraps(a * b),
                    _ => wraps(a / b),
                };
                let case = Case::new(op, 14).input(tensor(&|pair| pair.0)).input(tensor(&|pair| pair.1));
                case.gives(Tolerance::Exact, &[tensor(&result)]);
            }
        }
    }

    #[test]
    fn types() {
        let case = Case::new("Add", 14).input(f32s([2, 3], &[0.0; 6])).input(f32s([3], &[0.0; 3]));
        assert_eq!(case.types(), ["f32[2 x 3]"]);
        assert_eq!(case.dynamic(0, ["N", "3"]).dynamic(1, ["M"]).types(), ["f32[N x 3]"]);
        let bad = Case::new("Add", 14).input(f32s([2], &[0.0; 2])).input(f32s([3], &[0.0; 3]));
        assert_eq!(bad.invalid(), "dims 2 and 3 do not broadcast");
        let bad = Case::new("Add", 14).input(f32s([1], &[0.0])).input(i64s([1], &[0]));
        assert_eq!(bad.invalid(), "inputs of dtypes f32 and i64");
    }

    #[test]
    fn shape_arithmetic() {
        let of = |op: &str, by: i64| {
            let case =
                Case::new(op, 14).input(i64s([2], &[4, 3])).sizes(0, ["N", "-7"]).constant(i64s([], &[by]));
            case.types()[0].clone()
        };
        assert_eq!(of("Add", 2), "i64[2] = [N + 2, -5]");
        assert_eq!(of("Sub", 2), "i64[2] = [N - 2, -9]");
        assert_eq!(of("Mul", 2), "i64[2] = [2*N, -14]");
        // Towards zero: −7 / 2 = −3.
        assert_eq!(of("Div", 2), "i64[2] = [floordiv(N, 2), -3]");
        assert_eq!(of("Div", -2), "i64[2] = [?, 3]");
        assert_eq!(of("Div", 0), "i64[2]");
        assert_eq!(of("Mul", i64::MAX), "i64[2] = [9223372036854775807*N, ?]");
    }

    #[test]
    fn refusals() {
        for op in OPS {
            Case::new(op, 14).input(f32s([1], &[1.0])).input(f32s([1], &[1.0])).gates(bools([1], &[true]));
        }
    }
}

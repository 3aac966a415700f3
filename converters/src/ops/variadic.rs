//! Max, Min, Sum, Mean of any number of inputs, with broadcasting.
//!
//! x0 [..] T, x1 [..] T, …  ->  y [broadcast] T
//! Opsets: 8 broadcasting; 12 integers (Max, Min); 13 bf16.     TensorRT: IElementWiseLayer MAX, MIN, SUM.
//! Limits: Max, Min: f32, f16, bf16, i32, i64, u8, i8, u16, i16, u32; Sum, Mean: floats; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, elementwise, small},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::ElementWiseOp;

/// The converter.
#[derive(Debug)]
pub struct Variadic;

/// Operation, number of inputs, rank of the result, and whether the sum is divided.
#[derive(Debug)]
pub struct Plan {
    op: ElementWiseOp,
    count: usize,
    rank: usize,
    mean: bool,
}

impl Converter for Variadic {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Max", 13), Key::onnx("Min", 13), Key::onnx("Sum", 13), Key::onnx("Mean", 13)],
        dtypes: check::WITH_NARROW,
        layers: "IElementWiseLayer",
        limits: "Sum, Mean: floating point",
        refusals: elementwise::REFUSALS,
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        if node.input_count() == 0 {
            return Err(Diag::invalid("no inputs"));
        }
        let slots: Vec<usize> = (0..node.input_count()).collect();
        let ty = elementwise::broadcast(node, &slots, None, cx)?;
        let elements = small::settled(elements(node), ty.dtype(), node.symbols());
        Ok(vec![Inferred { ty, elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let (op, allowed) = match node.op() {
            "Max" => (ElementWiseOp::Max, check::WITH_NARROW),
            "Min" => (ElementWiseOp::Min, check::WITH_NARROW),
            _ => (ElementWiseOp::Sum, check::FLOATS),
        };
        let count = node.input_count();
        if count == 0 {
            return Err(Refusal::new(Code::INVALID, "no inputs"));
        }
        let names: Vec<String> = (0..count).map(|k| format!("data_{k}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (_, rank) = elementwise::gates(node, &names, allowed, target)?;
        Ok(Plan { op, count, rank, mean: node.op() == "Mean" })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut y = elementwise::input(cx, 0, plan.rank);
        for slot in 1..plan.count {
            let x = elementwise::input(cx, slot, plan.rank);
            y = cx.elementwise(y, x, plan.op);
        }
        if plan.mean && plan.count > 1 {
            let count = elementwise::scalar_like(cx, y, plan.count as f64);
            y = cx.elementwise(y, count, ElementWiseOp::Div);
        }
        vec![y]
    }
}

/// Known elements of Max and Min.
fn elements(node: NodeView<'_>) -> Option<Vec<Dim>> {
    let dtype = node.input(0)?.dtype()?;
    let f = match node.op() {
        "Max" => dims::max,
        "Min" => dims::min,
        _ => return None,
    };
    let mut list = small::elements(node, 0).filter(|_| dtype != DType::Bool)?;
    for slot in 1..node.input_count() {
        list = small::zip_lists(&list, &small::elements(node, slot)?, |a, b| f(node, a, b))?;
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;

    #[test]
    fn numbers() {
        for op in ["Max", "Min", "Sum", "Mean"] {
            let integers = matches!(op, "Max" | "Min");
            for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64] {
                if !dtype.is_float() && !integers {
                    continue;
                }
                let one = Case::new(op, 13).input(of_dtype(dtype, [2, 3], &[1.0, -2.0, 3.0, -4.0, 5.0, 0.0]));
                one.check(near(dtype));
                let three = one.input(of_dtype(dtype, [3], &[2.0, -1.0, 0.5])).input(of_dtype(
                    dtype,
                    [2, 1],
                    &[0.25, -8.0],
                ));
                three.check(near(dtype));
                three.dynamic(0, ["N", "3"]).dynamic(2, ["N", "1"]).check(near(dtype));
            }
            if integers {
                let bytes = Case::new(op, 13).input(u8s([3], &[0, 200, 255]));
                bytes.constant(u8s([1], &[128])).check(Tolerance::Exact);
                let bytes = Case::new(op, 13).input(i8s([3], &[-128, 5, 127]));
                bytes.constant(i8s([1], &[-1])).check(Tolerance::Exact);
            }
        }
    }

    #[test]
    fn types() {
        let of = |op: &str| {
            let case = Case::new(op, 13).input(i64s([2], &[0; 2])).sizes(0, ["N", "-7"]);
            case.constant(i64s([1], &[1])).types()[0].clone()
        };
        assert_eq!(of("Max"), "i64[2] = [N, 1]");
        assert_eq!(of("Min"), "i64[2] = [1, -7]");
        assert_eq!(Case::new("Sum", 13).invalid(), "no inputs");
    }

    #[test]
    fn refusals() {
        for op in ["Max", "Min"] {
            Case::new(op, 13).input(f32s([1], &[1.0])).input(f32s([1], &[1.0])).gates(bools([1], &[true]));
        }
        for op in ["Sum", "Mean"] {
            Case::new(op, 13).input(f32s([1], &[1.0])).input(f32s([1], &[1.0])).gates(i32s([1], &[1]));
        }
    }
}

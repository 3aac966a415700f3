//! HannWindow, HammingWindow, BlackmanWindow: weights of a window.
//!
//! size [] i  ->  output [size] T
//! Opsets: 17.     TensorRT: IConstantLayer.
//! Limits: size known, or told by the declared dims; f32, f16, bf16.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, floats, shape},
};
use std::f64::consts::TAU;
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The converter of all three.
#[derive(Debug)]
pub struct WindowFunction;

/// The weights.
#[derive(Debug)]
pub struct Plan(DType, Vec<f64>);

/// Longest window that is written out.
const LONGEST: i64 = 1 << 20;

fn dtype(node: NodeView<'_>) -> Option<DType> {
    i32::try_from(node.int("output_datatype", 1)).ok().and_then(DType::from_onnx)
}

/// Coefficients of cos(0), cos(x), cos(2x).
fn coefficients(node: NodeView<'_>) -> [f64; 3] {
    match node.op() {
        "HannWindow" => [0.5, -0.5, 0.0],
        "HammingWindow" => [25.0 / 46.0, -21.0 / 46.0, 0.0],
        _ => [0.42, -0.5, 0.08],
    }
}

impl Converter for WindowFunction {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("HannWindow", 17), Key::onnx("HammingWindow", 17), Key::onnx("BlackmanWindow", 17)],
        dtypes: &[DType::I32, DType::I64],
        layers: "IConstantLayer",
        limits: "size known, or told by the declared result",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let size = dims::scalar(node, 0).cloned().unwrap_or(Dim::Unknown);
        if size.known().is_some_and(|size| size < 0) {
            return Err(Diag::invalid("a negative size").slot("size"));
        }
        Ok(shape::types([shape::typed(dtype(node), Some(vec![size]))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let dtype = dtype(node)
            .ok_or_else(|| Refusal::new(Code::DTYPE_UNKNOWN, "no such dtype").slot("output_datatype"))?;
        check::dtype_gate(dtype, "output_datatype", check::FLOATS, target)?;
        let size = dims::scalar(node, 0).cloned().unwrap_or(Dim::Unknown);
        let size = dims::declared(node, size, 0, 0).known().ok_or_else(|| {
            Refusal::new(Code::SHAPE_VALUE, "not known before the run, nor from the declared dims")
                .slot("size")
        })?;
        if !(1..=LONGEST).contains(&size) {
            return Err(Refusal::new(Code::SHAPE, format!("a window of {size}")).slot("size"));
        }
        let periodic = node.int("periodic", 1) != 0;
        let steps = if periodic { size } else { size - 1 };
        if steps < 1 {
            return Err(
                Refusal::new(Code::CONSTANT_VALUE, "a symmetric window of one weight is 0 / 0").slot("size")
            );
        }
        let [a, b, c] = coefficients(node);
        let weight = |k: i64| {
            let x = TAU * k as f64 / steps as f64;
            a + b * x.cos() + c * (2.0 * x).cos()
        };
        Ok(Plan(dtype, (0..size).map(weight).collect()))
    }

    fn emit(&self, Plan(dtype, weights): Plan, cx: &mut Emit<'_>) -> Outputs {
        vec![floats::constant(cx, dtype, vec![weights.len() as i64], &weights)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    const ALL: [&str; 3] = ["HannWindow", "HammingWindow", "BlackmanWindow"];

    fn window(op: &str, size: i64) -> Case {
        Case::new(op, 17).input(Tensor::scalar_i64(size)).declared(0, &[size])
    }

    #[test]
    fn refusals() {
        let usual = || window("HannWindow", 10);
        usual().int("output_datatype", 11).refused(Code::DTYPE_UNREPRESENTABLE);
        usual().int("output_datatype", 6).refused(Code::DTYPE_KERNEL);
        usual().int("output_datatype", 999).refused(Code::DTYPE_UNKNOWN);
        usual().int("output_datatype", 16).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        Case::new("HannWindow", 17).input(Tensor::scalar_i64(4)).refused(Code::SHAPE_VALUE);
        window("HannWindow", 0).refused(Code::SHAPE);
        window("HannWindow", 1).int("periodic", 0).refused(Code::CONSTANT_VALUE);
    }

    #[test]
    fn numbers() {
        let sized = Case::new("HannWindow", 17).input(Tensor::scalar_i64(4)).sizes(0, ["N"]);
        assert_eq!(sized.types(), ["f32[N]"]);
        assert!(Case::new("HannWindow", 17).constant(Tensor::scalar_i64(-4)).invalid().contains("negative"));
        for op in ALL {
            for periodic in [0, 1] {
                let near = Tolerance::Near { rtol: 1e-4, atol: 1e-6 };
                window(op, 9).int("periodic", periodic).check(near);
                Case::new(op, 17).constant(list(&[12])).int("periodic", periodic).lowered();
            }
            window(op, 7).int("output_datatype", 10).lowered();
        }
    }
}

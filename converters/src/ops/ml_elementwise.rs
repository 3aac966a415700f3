//! Scaler, Binarizer, Imputer, Normalizer (ai.onnx.ml): preparation of features.
//!
//! Scaler: x [.., f] T -> (x − offset) · scale, f32           Normalizer: x [n, f] | [f] T -> x / norm of the row, f32
//! Binarizer: x [..] T -> x > threshold as T                  Imputer: x [.., f] T -> x, or what replaces a missing value
//! Opsets: 1.     TensorRT: IElementWiseLayer, ISelectLayer, IReduceLayer.
//! Limits: f32, i32, i64 (Imputer, Binarizer of floats: f32); offsets and the like one for all or one a feature; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, floats, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, ReduceOp, UnaryOp},
};

/// The converters.
#[derive(Debug)]
pub struct MlElementwise;

/// What is emitted, with its constants.
#[derive(Debug)]
pub enum Plan {
    /// Offsets and factors.
    Scale(Vec<f32>, Vec<f32>),
    /// Threshold.
    Binarize(f32),
    /// The value that is missing (NaN for NaN), and what stands in for it.
    Impute(Vec<f64>, f64, DType),
    /// Norm over the last axis.
    Normalize(Norm),
}

/// Norm of a row.
#[derive(Clone, Copy, Debug)]
pub enum Norm {
    /// Largest element.
    Max,
    /// Sum of magnitudes.
    L1,
    /// Root of the sum of squares.
    L2,
}

const ALLOWED: &[DType] = &[DType::F32, DType::I32, DType::I64];

impl Converter for MlElementwise {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::of("ai.onnx.ml", "Scaler", 1),
            Key::of("ai.onnx.ml", "Binarizer", 1),
            Key::of("ai.onnx.ml", "Imputer", 1),
            Key::of("ai.onnx.ml", "Normalizer", 1),
        ],
        dtypes: ALLOWED,
        layers: "IElementWiseLayer, ISelectLayer, IReduceLayer",
        limits: "",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::INVALID,
            Code::DIM_UNKNOWN,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let ty = shape::same_as_input(node, 0);
        let dims = ty.shape().map(<[_]>::to_vec);
        Ok(shape::types([match node.op() {
            "Scaler" | "Normalizer" => shape::typed(Some(DType::F32), dims),
            _ => ty,
        }]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "X", ALLOWED, target)?;
        let invalid = |why: &str, slot: &str| Refusal::new(Code::INVALID, why).slot(slot);
        let fits = |name: &str, count: usize| match count {
            0 => Err(invalid("the attribute is missing", name)),
            1 => Ok(()),
            n => match x.shape.last() {
                Some(dim) if dim.known() == i64::try_from(n).ok() => Ok(()),
                Some(dim) if dim.known().is_none() => {
                    let why = "the number of features is not known before the run";
                    Err(Refusal::new(Code::DIM_UNKNOWN, why).slot("X"))
                }
                _ => Err(invalid(&format!("{n} values for another number of features"), name)),
            },
        };
        let list = |name: &str| node.attrs().floats(name).unwrap_or_default().to_vec();
        match node.op() {
            "Scaler" => {
                let (offset, scale) = (list("offset"), list("scale"));
                fits("offset", offset.len())?;
                fits("scale", scale.len())?;
                Ok(Plan::Scale(offset, scale))
            }
            "Binarizer" => Ok(Plan::Binarize(node.float("threshold", 0.0))),
            "Imputer" if x.dtype == DType::F32 => {
                let by: Vec<f64> = list("imputed_value_floats").into_iter().map(f64::from).collect();
                fits("imputed_value_floats", by.len())?;
                Ok(Plan::Impute(by, node.float("replaced_value_float", 0.0).into(), x.dtype))
            }
            "Imputer" => {
                let by = node.attrs().ints("imputed_value_int64s").unwrap_or_default();
                let by: Vec<f64> = by.iter().map(|&v| v as f64).collect();
                fits("imputed_value_int64s", by.len())?;
                Ok(Plan::Impute(by, node.int("replaced_value_int64", 0) as f64, x.dtype))
            }
            _ => {
                check::never_empty(&x, "X")?;
                if x.rank() == 0 {
                    return Err(Refusal::new(Code::RANK, "a scalar has no row").slot("X"));
                }
                match node.str("norm", "MAX") {
                    "MAX" => Ok(Plan::Normalize(Norm::Max)),
                    "L1" => Ok(Plan::Normalize(Norm::L1)),
                    "L2" => Ok(Plan::Normalize(Norm::L2)),
                    other => Err(invalid(&format!("no norm `{other}`"), "norm")),
                }
            }
        }
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        vec![match plan {
            Plan::Scale(offset, scale) => {
                let x = cx.cast(x, DType::F32);
                let rank = cx.rank(x);
                let offset = by_feature(cx, DType::F32, &wide(&offset), rank);
                let x = cx.elementwise(x, offset, ElementWiseOp::Sub);
                let scale = by_feature(cx, DType::F32, &wide(&scale), rank);
                cx.elementwise(x, scale, ElementWiseOp::Prod)
            }
            Plan::Binarize(threshold) => {
                let dtype = cx.dtype(x);
                let wide = cx.cast(x, DType::F32);
                let threshold = elementwise::scalar_like(cx, wide, threshold.into());
                let above = cx.elementwise(wide, threshold, ElementWiseOp::Greater);
                cx.cast(above, dtype)
            }
            Plan::Impute(by, missing, dtype) => {
                let condition = if missing.is_nan() {
                    cx.unary(x, UnaryOp::IsNan)
                } else {
                    let missing = elementwise::scalar_like(cx, x, missing);
                    cx.elementwise(x, missing, ElementWiseOp::Equal)
                };
                let rank = cx.rank(x);
                let then_input = by_feature(cx, dtype, &by, rank);
                cx.one(Layer::Select { condition, then_input, else_input: x })
            }
            Plan::Normalize(norm) => normalized(cx, x, norm),
        }]
    }
}

fn wide(list: &[f32]) -> Vec<f64> {
    list.iter().map(|&v| v.into()).collect()
}

/// Values along the last axis of a tensor of rank `rank`, or one for all.
fn by_feature(cx: &mut Emit<'_>, dtype: DType, values: &[f64], rank: usize) -> TensorId {
    let mut dims = vec![1; rank];
    if let Some(last) = dims.last_mut() {
        *last = values.len() as i64;
    }
    let bytes: Vec<u8> = match dtype {
        DType::I64 => values.iter().flat_map(|&v| (v as i64).to_le_bytes()).collect(),
        DType::I32 => values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
        _ => return floats::constant(cx, dtype, dims, values),
    };
    cx.constant(dtype, dims, bytes.into())
}

/// A row whose norm is 0 stays as it is.
fn normalized(cx: &mut Emit<'_>, x: TensorId, norm: Norm) -> TensorId {
    let x = cx.cast(x, DType::F32);
    let (terms, op) = match norm {
        Norm::Max => (x, ReduceOp::Max),
        Norm::L1 => (cx.unary(x, UnaryOp::Abs), ReduceOp::Sum),
        Norm::L2 => (cx.elementwise(x, x, ElementWiseOp::Prod), ReduceOp::Sum),
    };
    let axes = vec![cx.rank(x) as u32 - 1];
    let mut size = cx.one(Layer::Reduce { x: terms, op, axes, keep_dims: true });
    if matches!(norm, Norm::L2) {
        size = cx.unary(size, UnaryOp::Sqrt);
    }
    let (zero, one) = (elementwise::scalar_like(cx, size, 0.0), elementwise::scalar_like(cx, size, 1.0));
    let nothing = cx.elementwise(size, zero, ElementWiseOp::Equal);
    let size = cx.one(Layer::Select { condition: nothing, then_input: one, else_input: size });
    cx.elementwise(x, size, ElementWiseOp::Div)
}

#[cfg(test)]
mod tests {
    use super::MlElementwise;
    use crate::{Converter, testing::*};
    use trtc_bundle::DType;
    use trtc_ir::{Attr, Code};

    const X: [f64; 6] = [1.0, -2.0, 3.0, 0.0, 5.0, -6.0];

    fn case(op: &str, dtype: DType) -> Case {
        Case::of("ai.onnx.ml", op, 1).input(of_dtype(dtype, [2, 3], &X))
    }

    fn floats(list: &[f32]) -> Attr {
        Attr::Floats(list.to_vec())
    }

    #[test]
    fn numbers() {
        for dtype in [DType::F32, DType::I64, DType::I32] {
            let scaler = case("Scaler", dtype).attr("offset", floats(&[0.5, 1.0, -2.0]));
            scaler.clone().attr("scale", floats(&[2.0, 0.5, 3.0])).check(F32);
            let one = scaler.attr("offset", floats(&[0.5])).attr("scale", floats(&[2.0]));
            one.dynamic(0, ["N", "M"]).check(F32);
            for norm in ["MAX", "L1", "L2"] {
                case("Normalizer", dtype).str("norm", norm).dynamic(0, ["N", "3"]).check(F32);
            }
        }
        case("Binarizer", DType::F32).float("threshold", 1.0).check(Tolerance::Exact);
        let imputer = case("Imputer", DType::F32).attr("imputed_value_floats", floats(&[7.0, 8.0, 9.0]));
        imputer.float("replaced_value_float", -2.0).check(Tolerance::Exact);
        let nan = Case::of("ai.onnx.ml", "Imputer", 1).input(f32s([1, 2], &[f32::NAN, 1.0]));
        let nan = nan.attr("imputed_value_floats", floats(&[7.0])).float("replaced_value_float", f32::NAN);
        nan.check(Tolerance::Exact);
        let whole = case("Imputer", DType::I64).ints("imputed_value_int64s", &[7]);
        whole.int("replaced_value_int64", -2).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        assert_eq!(case("Scaler", DType::I64).dynamic(0, ["N", "3"]).types(), ["f32[N x 3]"]);
        assert_eq!(case("Imputer", DType::I64).types(), ["i64[2 x 3]"]);
    }

    #[test]
    fn refusals() {
        for key in MlElementwise::DEF.keys {
            Case::of(key.domain, key.op, 1).input(f32s([1], &[1.0])).gates_of_f32(bools([1], &[true]));
        }
        let scaler = case("Scaler", DType::F32).attr("scale", floats(&[2.0]));
        scaler.refused(Code::INVALID);
        let offset = scaler.attr("offset", floats(&[0.5, 1.0, -2.0]));
        offset.clone().dynamic(0, ["2", "N"]).refused(Code::DIM_UNKNOWN);
        offset.attr("offset", floats(&[0.5, 1.0])).refused(Code::INVALID);
        case("Normalizer", DType::F32).str("norm", "L3").refused(Code::INVALID);
        Case::of("ai.onnx.ml", "Normalizer", 1).input(f32s([], &[1.0])).refused(Code::RANK);
    }
}

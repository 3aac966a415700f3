//! ArrayFeatureExtractor, FeatureVectorizer (ai.onnx.ml): features picked, features side by side.
//!
//! ArrayFeatureExtractor: x [.., f] T, y [..] i64 with k elements -> z [.., k] T (x [f]: z [1, k])
//! FeatureVectorizer: x0 [n, f0] T, … -> y [n, Σ fi] f32 (xi [fi]: a row)
//! Opsets: 1.     TensorRT: IGatherLayer; ICastLayer, IConcatenationLayer.
//! Limits: f32, i32, i64; FeatureVectorizer: rank 1 or 2, the declared widths; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, elementwise, shape, small},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::GatherMode};

/// The converters.
#[derive(Debug)]
pub struct MlFeatures;

/// Whether features are picked.
#[derive(Debug)]
pub struct Plan {
    extract: bool,
}

const ALLOWED: &[DType] = &[DType::F32, DType::I32, DType::I64];

impl Converter for MlFeatures {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[
            Key::of("ai.onnx.ml", "ArrayFeatureExtractor", 1),
            Key::of("ai.onnx.ml", "FeatureVectorizer", 1),
        ],
        dtypes: ALLOWED,
        layers: "IGatherLayer, IConcatenationLayer",
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
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        Ok(shape::types([match node.op() {
            "ArrayFeatureExtractor" => shape::typed(shape::dtype_of(node, 0), extracted(node, dims)),
            _ => {
                let rows = match dims.as_deref() {
                    Some([_]) => Dim::Known(1),
                    Some([n, ..]) => n.clone(),
                    _ => Dim::Unknown,
                };
                let width = match node.attrs().ints("inputdimensions") {
                    Some(list) => list.iter().fold(Dim::Known(0), |sum, &d| sum.add(&small::size(Some(d)))),
                    None => Dim::Unknown,
                };
                shape::typed(Some(DType::F32), Some(vec![rows, width]))
            }
        }]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = elementwise::gate(node, 0, "X", ALLOWED, target)?;
        check::never_empty(&x, "X")?;
        if node.op() == "ArrayFeatureExtractor" {
            let y = elementwise::gate(node, 1, "Y", &[DType::I64], target)?;
            check::never_empty(&y, "Y")?;
            if x.rank() == 0 {
                return Err(Refusal::new(Code::RANK, "a scalar has no features").slot("X"));
            }
            return Ok(Plan { extract: true });
        }
        let widths = node.attrs().ints("inputdimensions").unwrap_or_default();
        for slot in 0..node.input_count() {
            let x = elementwise::gate(node, slot, "X", ALLOWED, target)?;
            check::never_empty(&x, "X")?;
            if !matches!(x.rank(), 1 | 2) {
                return Err(Refusal::new(Code::RANK, format!("features of rank {}", x.rank())).slot("X"));
            }
            let width = x.shape.last().and_then(Dim::known).ok_or_else(|| {
                Refusal::new(Code::DIM_UNKNOWN, "the number of features is not known before the run")
                    .slot("X")
            })?;
            // ONNX Runtime fills or cuts where they differ.
            if widths.get(slot) != Some(&width) {
                let why = format!("input {slot} has {width} features, declared otherwise");
                return Err(Refusal::new(Code::INVALID, why).slot("inputdimensions"));
            }
        }
        Ok(Plan { extract: false })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        if plan.extract {
            let (x, indices) = (cx.input(0), cx.input(1));
            let data = cx.with_rank(x, 2);
            let indices = cx.reshape(indices, vec![-1]);
            let axis = cx.rank(data) as u32 - 1;
            return vec![cx.one(Layer::Gather {
                data,
                indices,
                axis,
                mode: GatherMode::Default,
                batch_dims: 0,
            })];
        }
        let xs: Vec<_> = cx.inputs();
        let xs: Vec<_> = xs
            .into_iter()
            .map(|x| {
                let x = cx.with_rank(x, 2);
                cx.cast(x, DType::F32)
            })
            .collect();
        vec![match xs.as_slice() {
            [one] => *one,
            _ => cx.one(Layer::Concatenation { xs, axis: 1 }),
        }]
    }
}

/// The last dim becomes the number of indices; a single row stays a row.
fn extracted(node: NodeView<'_>, shape: Option<Vec<Dim>>) -> Option<Vec<Dim>> {
    let mut shape = shape?;
    let count = dims::product(node.input(1)?.shape()?);
    match shape.len() {
        0 => None,
        1 => Some(vec![Dim::Known(1), count]),
        rank => {
            shape[rank - 1] = count;
            Some(shape)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    const X: [f64; 6] = [1.0, -2.0, 3.0, 0.0, 5.0, -6.0];

    fn pick(dtype: DType) -> Case {
        Case::of("ai.onnx.ml", "ArrayFeatureExtractor", 1).input(of_dtype(dtype, [2, 3], &X))
    }

    fn beside(dtype: DType) -> Case {
        Case::of("ai.onnx.ml", "FeatureVectorizer", 1).input(of_dtype(dtype, [2, 3], &X))
    }

    #[test]
    fn numbers() {
        for dtype in [DType::F32, DType::I32, DType::I64] {
            pick(dtype).constant(i64s([2], &[2, 0])).dynamic(0, ["N", "3"]).check(Tolerance::Exact);
            pick(dtype).input(i64s([1, 2], &[1, 1])).check(Tolerance::Exact);
            let two = beside(dtype).input(of_dtype(dtype, [2, 1], &[7.0, 8.0]));
            two.ints("inputdimensions", &[3, 1]).dynamic(0, ["N", "3"]).dynamic(1, ["N", "1"]).layers();
            let expected = f32s([2, 4], &[1.0, -2.0, 3.0, 7.0, 0.0, 5.0, -6.0, 8.0]);
            let two = beside(dtype).input(of_dtype(dtype, [2, 1], &[7.0, 8.0]));
            two.ints("inputdimensions", &[3, 1]).gives(Tolerance::Exact, &[expected]);
        }
        let row = Case::of("ai.onnx.ml", "ArrayFeatureExtractor", 1).input(f32s([3], &[1.0, 2.0, 3.0]));
        row.constant(i64s([2], &[2, 0])).check(Tolerance::Exact);
    }

    #[test]
    fn types() {
        assert_eq!(pick(DType::F32).input(i64s([2], &[0, 1])).types(), ["f32[2 x 2]"]);
        let two = beside(DType::F32).dynamic(0, ["N", "3"]).ints("inputdimensions", &[3, 2]);
        assert_eq!(two.types(), ["f32[N x 5]"]);
        Case::of("ai.onnx.ml", "ArrayFeatureExtractor", 1).types();
        Case::of("ai.onnx.ml", "FeatureVectorizer", 1).types();
    }

    #[test]
    fn refusals() {
        let one = |op| Case::of("ai.onnx.ml", op, 1).input(f32s([1], &[1.0]));
        one("ArrayFeatureExtractor").constant(i64s([1], &[0])).gates_of_f32(bools([1], &[true]));
        one("FeatureVectorizer").ints("inputdimensions", &[1]).gates_of_f32(bools([1], &[true]));
        one("FeatureVectorizer").ints("inputdimensions", &[2]).refused(Code::INVALID);
        beside(DType::F32).dynamic(0, ["2", "N"]).refused(Code::DIM_UNKNOWN);
        beside(DType::F32).dynamic(0, ["1", "2", "3"]).refused(Code::RANK);
        let scalar = Case::of("ai.onnx.ml", "ArrayFeatureExtractor", 1).input(f32s([], &[1.0]));
        scalar.constant(i64s([1], &[0])).refused(Code::RANK);
    }
}

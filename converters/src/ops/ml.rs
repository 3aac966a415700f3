//! Classical machine learning (ai.onnx.ml): trees, classifiers, support-vector models, categories. Only shape rules.
//!
//! LabelEncoder, CategoryMapper: x [..] -> y [..]          OneHotEncoder: x [..] -> y [.., categories] f32
//! classifiers: x [n, f] | [f] -> label [n], scores [n, classes] f32       regressors: x -> y [n, targets]
//! ZipMap: x [n, classes] f32 -> sequence of maps          CastMap, DictVectorizer: a map -> y [1, n]
//! Opsets: as listed.     TensorRT: none.     Limits: host only.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{shape, small},
};
use std::convert::Infallible;
use trtc_bundle::{DType, Target};
use trtc_ir::{Attr, Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Type};

/// The shape rules.
#[derive(Debug)]
pub struct Ml;

impl Converter for Ml {
    type Plan = Infallible;

    const DEF: Def = Def {
        keys: &[
            ml("CastMap", 1),
            ml("CategoryMapper", 1),
            ml("DictVectorizer", 1),
            ml("LabelEncoder", 4),
            ml("LinearClassifier", 1),
            ml("OneHotEncoder", 1),
            ml("SVMClassifier", 1),
            ml("SVMRegressor", 1),
            ml("TreeEnsemble", 5),
            ml("TreeEnsembleClassifier", 3),
            ml("TreeEnsembleRegressor", 3),
            ml("ZipMap", 1),
        ],
        dtypes: &[],
        layers: "",
        limits: "host only",
        refusals: &[Code::HOST_ONLY],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        let own = shape::dtype_of(node, 0);
        let f32s = |dims| shape::typed(Some(DType::F32), dims);
        Ok(shape::types(match node.op() {
            "LabelEncoder" => vec![shape::typed(label_dtype(node), dims)],
            "CategoryMapper" => {
                let other = own.map(|dtype| if dtype == DType::Str { DType::I64 } else { DType::Str });
                vec![shape::typed(other, dims)]
            }
            "OneHotEncoder" => {
                let categories = longest(node, &["cats_int64s", "cats_strings"]);
                let with = |mut dims: Vec<Dim>| {
                    dims.push(categories);
                    dims
                };
                vec![f32s(dims.map(with))]
            }
            "LinearClassifier" | "SVMClassifier" => classifier(node, "classlabels_ints", dims),
            "TreeEnsembleClassifier" => classifier(node, "classlabels_int64s", dims),
            "SVMRegressor" => vec![f32s(Some(vec![rows(dims.as_deref()), Dim::Known(1)]))],
            "TreeEnsembleRegressor" => {
                let targets = small::size(node.attrs().int("n_targets"));
                vec![f32s(Some(vec![rows(dims.as_deref()), targets]))]
            }
            "TreeEnsemble" => {
                let targets = small::size(node.attrs().int("n_targets"));
                vec![shape::typed(own, Some(vec![rows(dims.as_deref()), targets]))]
            }
            "ZipMap" => {
                let key = if has(node, "classlabels_strings") { DType::Str } else { DType::I64 };
                let score = Type::tensor(DType::F32, Vec::new());
                vec![Type::Sequence(Box::new(Type::Map(key, Box::new(score))))]
            }
            "CastMap" => {
                let dtype = match node.str("cast_to", "TO_FLOAT") {
                    "TO_STRING" => DType::Str,
                    "TO_INT64" => DType::I64,
                    _ => DType::F32,
                };
                vec![shape::typed(Some(dtype), Some(vec![Dim::Known(1), Dim::Unknown]))]
            }
            _ => {
                let words = longest(node, &["int64_vocabulary", "string_vocabulary"]);
                vec![shape::typed(None, Some(vec![Dim::Known(1), words]))]
            }
        }))
    }

    fn plan(&self, _: NodeView<'_>, _: &Target) -> Result<Infallible, Refusal> {
        Err(Refusal::new(Code::HOST_ONLY, "TensorRT has no operators of classical machine learning"))
    }

    fn emit(&self, plan: Infallible, _: &mut Emit<'_>) -> Outputs {
        match plan {}
    }
}

const fn ml(op: &'static str, since: u32) -> Key {
    Key::of("ai.onnx.ml", op, since)
}

fn has(node: NodeView<'_>, name: &str) -> bool {
    length(node, name) > 0
}

fn length(node: NodeView<'_>, name: &str) -> usize {
    match node.attrs().get(name) {
        Some(Attr::Ints(list)) => list.len(),
        Some(Attr::Floats(list)) => list.len(),
        Some(Attr::Strs(list)) => list.len(),
        Some(Attr::Tensor(tensor)) => tensor.count(),
        _ => 0,
    }
}

/// Length of the longest of the lists; unknown when none is there.
fn longest(node: NodeView<'_>, names: &[&str]) -> Dim {
    match names.iter().map(|name| length(node, name)).max() {
        Some(n) if n > 0 => Dim::Known(n as i64),
        _ => Dim::Unknown,
    }
}

/// Rows of a batch: the first dim, or 1 for a single row of features.
fn rows(dims: Option<&[Dim]>) -> Dim {
    match dims {
        Some([_]) => Dim::Known(1),
        Some([n, ..]) => n.clone(),
        _ => Dim::Unknown,
    }
}

/// Label [n] and scores [n, classes].
fn classifier(node: NodeView<'_>, integers: &str, dims: Option<Vec<Dim>>) -> Vec<Type> {
    let classes = longest(node, &[integers, "classlabels_strings"]);
    let label = if has(node, "classlabels_strings") { DType::Str } else { DType::I64 };
    let n = rows(dims.as_deref());
    // Two classes may be scored by one column; ONNX Runtime writes both.
    vec![
        shape::typed(Some(label), Some(vec![n.clone()])),
        shape::typed(Some(DType::F32), Some(vec![n, classes])),
    ]
}

fn label_dtype(node: NodeView<'_>) -> Option<DType> {
    if let Some(tensor) = node.attrs().tensor("values_tensor") {
        return Some(tensor.dtype());
    }
    let lists =
        [("values_strings", DType::Str), ("values_int64s", DType::I64), ("values_floats", DType::F32)];
    lists.into_iter().find(|(name, _)| has(node, name)).map(|(_, dtype)| dtype)
}

#[cfg(test)]
mod tests {
    use super::Ml;
    use crate::{Converter, testing::*};
    use bytes::Bytes;
    use trtc_ir::{Attr, Code};

    fn case(op: &str, since: u32) -> Case {
        Case::of("ai.onnx.ml", op, since).input(f32s([2, 3], &[0.0; 6])).dynamic(0, ["N", "3"])
    }

    fn strings(list: &[&'static str]) -> Attr {
        Attr::Strs(list.iter().map(|s| Bytes::from_static(s.as_bytes())).collect())
    }

    #[test]
    fn types() {
        // An old version of the operator has the same results.
        let trees = case("TreeEnsembleClassifier", 1).ints("classlabels_int64s", &[0, 1, 2]).outputs(2);
        assert_eq!(trees.types(), ["i64[N]", "f32[N x 3]"]);
        let linear = case("LinearClassifier", 1).attr("classlabels_strings", strings(&["a", "b"])).outputs(2);
        assert_eq!(linear.types(), ["str[N]", "f32[N x 2]"]);
        assert_eq!(case("TreeEnsembleRegressor", 3).int("n_targets", 4).types(), ["f32[N x 4]"]);
        assert_eq!(case("TreeEnsemble", 5).types(), ["f32[N x ?]"]);
        assert_eq!(case("SVMRegressor", 1).types(), ["f32[N x 1]"]);
        assert_eq!(case("OneHotEncoder", 1).ints("cats_int64s", &[7, 8]).types(), ["f32[N x 3 x 2]"]);
        assert_eq!(case("LabelEncoder", 4).ints("values_int64s", &[7, 8]).types(), ["i64[N x 3]"]);
        let zip = case("ZipMap", 1).ints("classlabels_int64s", &[0, 1, 2]);
        assert_eq!(zip.types(), ["seq(map(i64, f32[]))"]);
        let row = Case::of("ai.onnx.ml", "TreeEnsembleRegressor", 3).input(f32s([3], &[0.0; 3]));
        assert_eq!(row.types(), ["f32[1 x ?]"]);
    }

    #[test]
    fn hostile() {
        for key in Ml::DEF.keys {
            Case::of(key.domain, key.op, key.since).outputs(2).types();
            Case::of(key.domain, key.op, key.since).input(f32s([], &[0.0])).input(f32s([], &[0.0])).types();
        }
    }

    #[test]
    fn refusals() {
        for key in Ml::DEF.keys {
            case(key.op, key.since).refused(Code::HOST_ONLY);
        }
    }
}

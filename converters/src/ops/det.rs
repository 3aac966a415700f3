//! Det: determinants.
//!
//! X [.., n, n] T  ->  Y [..] T
//! Opsets: 11; 22 bf16.     TensorRT: ISliceLayer, IElementWiseLayer.
//! Limits: n from 1 to 4; f16 and bf16 run in f32. By minors of two rows, as sums of products.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, floats, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, infer::ConstraintKind};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, GatherMode},
};

/// The converter.
#[derive(Debug)]
pub struct Det;

/// n.
#[derive(Debug)]
pub struct Plan(usize);

/// Largest n: beyond, sums of products lose what an elimination with pivots keeps.
const LARGEST: i64 = 4;

impl Converter for Det {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Det", 22)],
        dtypes: check::FLOATS,
        layers: "IGatherLayer, IElementWiseLayer",
        limits: "matrices of 1 to 4 rows",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let [lead @ .., a, b] = x else {
            return Err(Diag::invalid(format!("rank {} is no matrix", x.len())).slot("X"));
        };
        match (a, b) {
            (Dim::Known(a), Dim::Known(b)) if a != b => {
                return Err(Diag::invalid(format!("a matrix of {a} x {b}")).slot("X"));
            }
            (Dim::Unknown, _) | (_, Dim::Unknown) => {}
            (a, b) if a != b => cx.require(ConstraintKind::Equal(a.clone(), b.clone())),
            _ => {}
        }
        Ok(shape::types([shape::typed(dtype, Some(lead.to_vec()))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        let [.., a, b] = x.shape else {
            return Err(Refusal::new(Code::INVALID, "no matrix").slot("X"));
        };
        let n = a.known().or(b.known()).ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "the size of the matrices is not known before the run")
                .slot("X")
                .help("give the input's shape with --shape")
        })?;
        if !(1..=LARGEST).contains(&n) {
            return Err(
                Refusal::new(Code::SHAPE, format!("matrices of {n} rows; at most {LARGEST}")).slot("X")
            );
        }
        Ok(Plan(n as usize))
    }

    fn emit(&self, Plan(n): Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let dtype = cx.dtype(x);
        let x = floats::widened(cx, x);
        let axis = cx.rank(x).saturating_sub(2) as u32;
        // Rows as tensors without their axis, and elements without theirs.
        let mut elements = Vec::new();
        for row in 0..n {
            let row = taken(cx, x, axis, row);
            elements.push((0..n).map(|column| taken(cx, row, axis, column)).collect::<Vec<_>>());
        }
        let columns: Vec<usize> = (0..n).collect();
        let y = minor(cx, &elements, &columns);
        vec![cx.cast(y, dtype)]
    }
}

fn taken(cx: &mut Emit<'_>, data: TensorId, axis: u32, index: usize) -> TensorId {
    let indices =
        cx.constant(trtc_bundle::DType::I64, Vec::new(), (index as i64).to_le_bytes().to_vec().into());
    cx.one(Layer::Gather { data, indices, axis, mode: GatherMode::Default, batch_dims: 0 })
}

/// Determinant of the rows and the columns named. Four rows: Σ ± minors of the first two and the last two rows, which are
/// a third fewer products, and sums of fewer roundings, than rows one by one.
fn minor(cx: &mut Emit<'_>, rows: &[Vec<TensorId>], columns: &[usize]) -> TensorId {
    match columns {
        [only] => rows[0][*only],
        [a, b] => {
            let one = cx.elementwise(rows[0][*a], rows[1][*b], ElementWiseOp::Prod);
            let other = cx.elementwise(rows[0][*b], rows[1][*a], ElementWiseOp::Prod);
            cx.elementwise(one, other, ElementWiseOp::Sub)
        }
        _ => {
            let take = if columns.len() == 4 { 2 } else { 1 };
            let mut sum: Option<TensorId> = None;
            for (first, rest, positive) in splits(columns, take) {
                let first = minor(cx, &rows[..take], &first);
                let rest = minor(cx, &rows[take..], &rest);
                let product = cx.elementwise(first, rest, ElementWiseOp::Prod);
                sum = Some(match (sum, positive) {
                    (None, _) => product,
                    (Some(sum), true) => cx.elementwise(sum, product, ElementWiseOp::Sum),
                    (Some(sum), false) => cx.elementwise(sum, product, ElementWiseOp::Sub),
                });
            }
            sum.unwrap_or(rows[0][0])
        }
    }
}

/// Ways to take so many of the columns, what is left, and whether the permutation is even; the first way is.
fn splits(columns: &[usize], take: usize) -> Vec<(Vec<usize>, Vec<usize>, bool)> {
    let n = columns.len();
    let sets = (0u32..1 << n).filter(|set| set.count_ones() as usize == take);
    let mut list: Vec<_> = sets
        .map(|set| {
            let inside = |k: &usize| set >> k & 1 == 1;
            let first: Vec<usize> = (0..n).filter(inside).collect();
            // Each of them moves over those before it that are left.
            let moves: usize = first.iter().enumerate().map(|(k, at)| at - k).sum();
            let rest = (0..n).filter(|k| !inside(k)).map(|k| columns[k]).collect();
            (first.into_iter().map(|k| columns[k]).collect::<Vec<usize>>(), rest, moves.is_multiple_of(2))
        })
        .collect();
    list.sort_by_key(|(first, _, _)| first.clone());
    list
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn det<const R: usize>(dims: [i64; R]) -> Case {
        Case::new("Det", 22).input(noise(dims))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("Det", 22).input(x(&[2, 2])));
        det([5, 5]).refused(Code::SHAPE);
        det([2, 2]).dynamic(0, ["N", "N"]).refused(Code::DIM_UNKNOWN);
        det([1; 9]).refused(Code::RANK);
        Case::new("Det", 22).absent().refused(Code::INVALID);
    }

    #[test]
    fn numbers() {
        assert_eq!(det([3, 2, 2]).dynamic(0, ["N", "2", "2"]).types(), ["f32[N]"]);
        assert!(det([2, 3]).invalid().contains("2 x 3"));
        assert!(det([2]).invalid().contains("no matrix"));
        const NEAR: Tolerance = Tolerance::Near { rtol: 1e-4, atol: 1e-5 };
        for n in 1..=4 {
            det([n, n]).check(NEAR);
            det([3, 2, n, n]).check(NEAR);
        }
        det([3, 3, 3]).dynamic(0, ["N", "3", "3"]).check(NEAR);
        let half = f16s([2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 0.5, 0.0, 7.0, -4.0]);
        Case::new("Det", 22).input(half).gives(F16, &[f16s([2], &[-2.0, -2.0])]);
    }
}

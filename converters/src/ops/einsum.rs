//! Einsum: sums of products over labelled dims.
//!
//! x0, x1, … T, one dim a label  ->  y [labels of the result] T
//! Opsets: 12; 28 bf16.     TensorRT: IEinsumLayer, with an equation that is explicit, has no ellipsis and lower-case labels;
//! operands of one element that have no label (left) are IElementWiseLayer factors of the result.
//! Limits: f32 (of two or more operands not for sm75), f16, bf16; at most 26 labels; not empty.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, matrix, shape},
};
use std::collections::BTreeMap;
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{Layer, layer::ElementWiseOp};

/// The converter.
#[derive(Debug)]
pub struct Einsum;

/// The equation for TensorRT.
#[derive(Debug)]
pub struct Plan {
    /// Over the operands that have labels.
    equation: String,
    /// Axes of 1 that each operand loses first, and whether it keeps labels.
    operands: Vec<(Vec<u32>, bool)>,
    /// Rank of the result.
    rank: usize,
}

/// A dim's label: a letter, or the k-th dim of the ellipsis counted from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// An equation without ellipsis and implied result.
struct Equation {
    terms: Vec<Vec<Label>>,
    result: Vec<Label>,
}

/// Labels of a term before its ellipsis, and after it where it has one.
type Term = (Vec<char>, Option<Vec<char>>);

fn term(text: &str) -> Result<Term, Diag> {
    let letters = |part: &str| {
        let list: Vec<char> = part.chars().filter(|c| *c != ' ').collect();
        match list.iter().find(|c| !c.is_ascii_alphabetic()) {
            Some(c) => Err(Diag::invalid(format!("`{c}` is no label")).slot("equation")),
            None => Ok(list),
        }
    };
    match text.split_once("...") {
        None => Ok((letters(text)?, None)),
        Some((before, after)) => Ok((letters(before)?, Some(letters(after)?))),
    }
}

/// Reads the equation against the operands' ranks.
fn equation(text: &str, ranks: &[usize]) -> Result<Equation, Diag> {
    let fail = |why: String| Diag::invalid(why).slot("equation");
    let (left, right) = match text.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (text, None),
    };
    let terms = left.split(',').map(term).collect::<Result<Vec<Term>, Diag>>()?;
    if terms.len() != ranks.len() {
        return Err(fail(format!("{} terms for {} inputs", terms.len(), ranks.len())));
    }
    let mut hidden = None;
    for ((before, after), &rank) in terms.iter().zip(ranks) {
        let named = before.len() + after.as_ref().map_or(0, Vec::len);
        match (after, rank.checked_sub(named)) {
            (None, Some(0)) => {}
            (Some(_), Some(rest)) if *hidden.get_or_insert(rest) == rest => {}
            (Some(_), Some(_)) => return Err(fail("the ellipsis stands for unequal numbers of dims".into())),
            _ => return Err(fail(format!("a term of {named} labels for rank {rank}"))),
        }
    }
    let hidden = hidden.unwrap_or(0);
    let spread = |(before, after): &Term, ellipsis: usize| -> Vec<Label> {
        let mut list: Vec<Label> = before.iter().map(|&c| Label::Letter(c)).collect();
        if let Some(after) = after {
            list.extend((0..ellipsis).rev().map(Label::Ellipsis));
            list.extend(after.iter().map(|&c| Label::Letter(c)));
        }
        list
    };
    let terms: Vec<Vec<Label>> = terms
        .iter()
        .zip(ranks)
        .map(|(term, &rank)| {
            let named = term.0.len() + term.1.as_ref().map_or(0, Vec::len);
            spread(term, rank - named)
        })
        .collect();
    let mut uses: BTreeMap<Label, usize> = BTreeMap::new();
    terms.iter().flatten().for_each(|&label| *uses.entry(label).or_insert(0) += 1);
    let result = match right {
        Some(right) => spread(&term(right)?, hidden),
        None => {
            let once = uses.iter().filter(|(label, n)| matches!(label, Label::Letter(_)) && **n == 1);
            (0..hidden).rev().map(Label::Ellipsis).chain(once.map(|(&label, _)| label)).collect()
        }
    };
    let mut sorted = result.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(fail("a label stands twice in the result".into()));
    }
    if result.iter().any(|label| !uses.contains_key(label)) {
        return Err(fail("a label of the result that no input has".into()));
    }
    Ok(Equation { terms, result })
}

impl Equation {
    /// Of the terms that have labels, as a, b, … in order of their first use; `None` when they are more than 26.
    fn text(&self) -> Option<String> {
        let mut names: BTreeMap<Label, char> = BTreeMap::new();
        let mut write = |labels: &[Label]| -> Option<String> {
            let name = |&label: &Label| {
                let next = u8::try_from(names.len()).ok().filter(|&n| n < 26).map(|n| (b'a' + n).into());
                match names.get(&label) {
                    Some(&name) => Some(name),
                    None => {
                        names.insert(label, next?);
                        next
                    }
                }
            };
            labels.iter().map(name).collect()
        };
        let terms = self.terms.iter().filter(|labels| !labels.is_empty());
        let left = terms.map(|labels| write(labels)).collect::<Option<Vec<String>>>()?;
        Some(format!("{}->{}", left.join(","), write(&self.result)?))
    }
}

fn ranks(node: NodeView<'_>) -> Option<Vec<usize>> {
    (0..node.input_count()).map(|slot| node.input(slot)?.rank()).collect()
}

/// Takes a label that is 1 in one operand and more in another away from the first: TensorRT does not always broadcast. The axes that each
/// operand so loses.
fn narrowed(node: NodeView<'_>, equation: &mut Equation) -> Vec<Vec<u32>> {
    let known =
        |slot: usize, axis: usize| node.input(slot).and_then(|view| view.dim(axis)).and_then(Dim::known);
    let mut largest: BTreeMap<Label, i64> = BTreeMap::new();
    for (slot, labels) in equation.terms.iter().enumerate() {
        for (axis, label) in labels.iter().enumerate() {
            let size = largest.entry(*label).or_insert(1);
            *size = known(slot, axis).map_or(i64::MAX, |dim| dim.max(*size));
        }
    }
    let lost = |slot: usize, labels: &[Label]| -> Vec<u32> {
        let axes = labels.iter().enumerate().filter(|(axis, label)| {
            known(slot, *axis) == Some(1) && largest.get(label).is_some_and(|size| *size > 1)
        });
        axes.map(|(axis, _)| axis as u32).collect()
    };
    let lost: Vec<Vec<u32>> =
        equation.terms.iter().enumerate().map(|(slot, labels)| lost(slot, labels)).collect();
    for (labels, lost) in equation.terms.iter_mut().zip(&lost) {
        let mut axis = 0..;
        labels.retain(|_| axis.next().is_none_or(|axis| !lost.contains(&axis)));
    }
    lost
}

impl Converter for Einsum {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Einsum", 28)],
        dtypes: check::FLOATS,
        layers: "IEinsumLayer",
        limits: "at most 26 labels; no f32 of two or more operands for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::ATTRIBUTE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let text = node
            .attrs()
            .str("equation")
            .ok_or_else(|| Diag::invalid("the attribute is missing").slot("equation"))?;
        let Some(ranks) = ranks(node).filter(|list| !list.is_empty()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let equation = equation(text, &ranks)?;
        let mut sizes: BTreeMap<Label, Dim> = BTreeMap::new();
        for (slot, labels) in equation.terms.iter().enumerate() {
            let dims = node.input(slot).and_then(|view| view.shape()).unwrap_or_default();
            for (label, dim) in labels.iter().zip(dims) {
                let size = match sizes.get(label) {
                    Some(size) => shape::broadcast_dim(size, dim, cx)?,
                    None => dim.clone(),
                };
                sizes.insert(*label, size);
            }
        }
        let dims = equation.result.iter().map(|label| sizes.get(label).cloned().unwrap_or(Dim::Unknown));
        Ok(shape::types([shape::typed(dtype, Some(dims.collect()))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let names: Vec<String> = (0..node.input_count()).map(|k| format!("Inputs_{k}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (dtype, _) = elementwise::gates(node, &names, check::FLOATS, target)?;
        if names.len() > 1 {
            matrix::gemm_gate(dtype, target)?;
        }
        let invalid = |why: &str| Refusal::new(Code::INVALID, why).slot("equation");
        let text = node.attrs().str("equation").ok_or_else(|| invalid("the attribute is missing"))?;
        let mut equation =
            equation(text, &ranks(node).unwrap_or_default()).map_err(|diag| invalid(&diag.why))?;
        let lost = narrowed(node, &mut equation);
        if equation.result.len() > 8 {
            return Err(Refusal::new(Code::RANK, "the result has more than 8 dims").slot("equation"));
        }
        let text = equation.text().ok_or_else(|| {
            Refusal::new(Code::ATTRIBUTE, "more than 26 labels, dims of the ellipsis included")
                .slot("equation")
        })?;
        let labelled = equation.terms.iter().map(|labels| !labels.is_empty());
        let operands = lost.into_iter().zip(labelled).collect();
        Ok(Plan { equation: text, operands, rank: equation.result.len() })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let (mut xs, mut factors) = (Vec::new(), Vec::new());
        for (x, (axes, labelled)) in cx.inputs().into_iter().zip(plan.operands) {
            if !labelled {
                factors.push(cx.reshape(x, vec![1; plan.rank]));
            } else if axes.is_empty() {
                xs.push(x);
            } else {
                xs.push(cx.one(Layer::Squeeze { x, axes }));
            }
        }
        let sum = (!xs.is_empty()).then(|| cx.one(Layer::Einsum { xs, equation: plan.equation }));
        let product = sum.into_iter().chain(factors).reduce(|a, b| cx.elementwise(a, b, ElementWiseOp::Prod));
        product.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::Code;

    const VALUES: [f64; 24] = [
        1.0, -2.0, 3.0, 0.5, 5.0, -6.0, 0.25, 8.0, -1.0, 2.0, 0.0, 4.0, 2.0, 1.0, -3.0, 0.5, 1.5, 2.5, -0.5,
        3.0, 1.0, 1.0, 2.0, -2.0,
    ];

    fn case(equation: &str, dtype: DType, shapes: &[&[i64]]) -> Case {
        shapes.iter().fold(Case::new("Einsum", 28).str("equation", equation), |case, dims| {
            let n = dims.iter().product::<i64>() as usize;
            case.input(of_dtype(dtype, [n as i64], &VALUES[..n]).with_dims(dims.to_vec()).unwrap())
        })
    }

    #[test]
    fn numbers() {
        let cases: &[(&str, &[&[i64]])] = &[
            ("ij,jk->ik", &[&[2, 3], &[3, 4]]),
            ("ij , jk", &[&[2, 3], &[3, 4]]),
            ("ba", &[&[2, 3]]),
            ("ij->ji", &[&[2, 3]]),
            ("ij->", &[&[2, 3]]),
            ("i,i->", &[&[3], &[3]]),
            ("i,j->ij", &[&[3], &[2]]),
            ("bij,bjk->bik", &[&[2, 2, 3], &[2, 3, 2]]),
            ("...ij,...jk->...ik", &[&[2, 1, 2, 3], &[1, 2, 3, 2]]),
            ("...ij,jk", &[&[2, 2, 3], &[3, 2]]),
            ("bhqd,bhkd->bhqk", &[&[1, 2, 3, 2], &[1, 2, 2, 2]]),
            ("ij,jk,kl->il", &[&[2, 3], &[3, 2], &[2, 2]]),
            ("ab,Ab->aA", &[&[2, 3], &[4, 3]]),
        ];
        for (equation, shapes) in cases {
            for dtype in [DType::F32, DType::F16] {
                case(equation, dtype, shapes).check(near(dtype));
            }
        }
        case("ij,jk->ik", DType::Bf16, &[&[2, 3], &[3, 4]]).check(BF16);
        let dynamic = case("bij,bjk->bik", DType::F32, &[&[2, 2, 3], &[2, 3, 2]]);
        dynamic.dynamic(0, ["B", "N", "3"]).dynamic(1, ["B", "3", "2"]).check(F32);
    }

    /// ONNX Runtime broadcasts letters, too.
    #[test]
    fn letters_of_1() {
        case("bik,bkj->bij", DType::F32, &[&[1, 3, 2], &[2, 2, 4]]).check(F32);
        case("bik,bkj->bij", DType::F32, &[&[1, 3, 2], &[2, 1, 4]]).check(F32);
        case("bij,bjk->bik", DType::F32, &[&[1, 3, 1], &[2, 2, 1]]).check(F32);
        case("i,ij->ij", DType::F32, &[&[1], &[3, 2]]).check(F32);
        let open = case("bij,bjk->bik", DType::F32, &[&[1, 3, 2], &[2, 2, 2]]);
        open.dynamic(1, ["B", "2", "2"]).check(F32);
    }

    #[test]
    fn operands_without_labels() {
        case(",ab->ba", DType::F32, &[&[], &[2, 3]]).check(F32);
        case(",...,c...d->...", DType::F32, &[&[], &[1, 1], &[2, 1, 2, 1]]).check(F32);
        case("abc,d,->bac", DType::F16, &[&[3, 1, 2], &[4], &[]]).check(F16);
        case(",->", DType::F32, &[&[], &[]]).check(F32);
        case("...,->...", DType::F32, &[&[3], &[]]).dynamic(0, ["N"]).check(F32);
    }

    #[test]
    fn types() {
        let of = |equation: &str, shapes: &[&[i64]]| case(equation, DType::F32, shapes).types()[0].clone();
        assert_eq!(of("...ii->...i", &[&[2, 3, 3]]), "f32[2 x 3]");
        assert_eq!(of("bA,Ac", &[&[2, 3], &[3, 4]]), "f32[2 x 4]");
        let wrong = |equation: &str| case(equation, DType::F32, &[&[2, 3]]).invalid();
        assert_eq!(wrong("ij,jk"), "2 terms for 1 inputs");
        assert_eq!(wrong("ijk->i"), "a term of 3 labels for rank 2");
        assert_eq!(wrong("ij->ii"), "a label stands twice in the result");
        assert_eq!(wrong("ij->k"), "a label of the result that no input has");
        let uneven = case("...i,...i", DType::F32, &[&[2, 3], &[3]]).invalid();
        assert_eq!(uneven, "the ellipsis stands for unequal numbers of dims");
        assert_eq!(wrong("i1->i"), "`1` is no label");
        assert_eq!(Case::new("Einsum", 28).input(f32s([1], &[1.0])).invalid(), "the attribute is missing");
    }

    #[test]
    fn refusals() {
        case("...->...", DType::F32, &[&[1]]).gates(i32s([1], &[1]));
        let product = case("i,i->", DType::F32, &[&[3], &[3]]);
        product.target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        let outer = case("abcde,fghij->abcdefghij", DType::F32, &[&[1; 5], &[1; 5]]);
        outer.refused(Code::RANK);
        let many =
            case("abcdefgh,ijklmnop,qrstuvwx,yzABCDEF->a", DType::F32, &[&[1; 8], &[1; 8], &[1; 8], &[1; 8]]);
        many.refused(Code::ATTRIBUTE);
    }
}

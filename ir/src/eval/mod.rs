//! The small evaluator: integer, shape and data-movement operators over constants.
//!
//! It computes only what every implementation computes bit for bit alike: integer arithmetic, data movement, and the
//! correctly rounded float operations (`+ − × ÷ √`, rounding to integers, comparisons). Nodes follow the canonical
//! schema versions; a node in an older form (an input that used to be an attribute) is left alone unless both forms
//! mean the same.
//!
//! Results are bounded: at most [`MAX_BYTES`], or any size when the result shares the bytes of its input.

mod arith;
mod cast;
mod data;
mod index;
mod numbers;
mod reduce;
mod shape;

pub(crate) use shape::shape_range;

use crate::{diag::Diag, tensor::Tensor, view::NodeView};

/// Largest result in bytes that is computed; views of an input are not bounded.
pub const MAX_BYTES: usize = 1 << 20;

/// Largest number of elements that arithmetic makes.
pub const MAX_COUNT: usize = 1 << 16;

/// Most elements that one evaluation reads.
pub(crate) const MAX_WORK: usize = 1 << 22;

/// Evaluates a node over constant inputs (`None` for an absent slot).
///
/// `None` when the operator is not one of the evaluator's, the result would be too large, or the result is not the
/// same on every implementation (a float past the range of the integer it is cast to, a division by zero). Otherwise
/// one tensor for each output slot of the node.
///
/// # Errors
/// The constants break the operator's schema: an index or axis out of range, shapes that do not fit.
pub fn evaluate(node: NodeView<'_>, inputs: &[Option<&Tensor>]) -> Option<Result<Vec<Tensor>, Diag>> {
    if !node.domain().is_empty() {
        return None;
    }
    let args = Args { node, inputs };
    match dispatch(&args) {
        Ok(outputs) => Some(Ok(outputs)),
        Err(Stop::Invalid(why)) => Some(Err(Diag {
            node: node.name().to_owned(),
            op: node.node().op.to_string(),
            ..Diag::invalid(why)
        })),
        Err(Stop::Skip) => None,
    }
}

/// Whether the evaluator knows the operator at all; a cheap test before inputs are gathered.
pub fn knows(domain: &str, op_type: &str) -> bool {
    domain.is_empty() && KNOWN.binary_search(&op_type).is_ok()
}

/// Operators of [`dispatch`], sorted.
const KNOWN: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CastLike",
    "Ceil",
    "Clip",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "CumSum",
    "Div",
    "Dropout",
    "Equal",
    "Expand",
    "EyeLike",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Greater",
    "GreaterOrEqual",
    "Identity",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Neg",
    "NonZero",
    "Not",
    "OneHot",
    "Or",
    "Pad",
    "Pow",
    "Range",
    "Reciprocal",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Relu",
    "Reshape",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Shape",
    "Sign",
    "Size",
    "Slice",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Tile",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
    "Xor",
];

fn dispatch(args: &Args<'_>) -> Out<Vec<Tensor>> {
    let one = |tensor: Tensor| vec![tensor];
    match args.node.op() {
        "Constant" => shape::constant(args).map(one),
        "ConstantOfShape" => shape::constant_of_shape(args).map(one),
        "EyeLike" => shape::eye_like(args).map(one),
        "Shape" => shape::shape(args).map(one),
        "Size" => shape::size(args).map(one),
        "Range" => shape::range(args).map(one),
        "Identity" | "Dropout" => shape::identity(args),
        "Reshape" => shape::reshape(args).map(one),
        "Flatten" => shape::flatten(args).map(one),
        "Squeeze" => shape::squeeze(args).map(one),
        "Unsqueeze" => shape::unsqueeze(args).map(one),

        "Transpose" => data::transpose(args).map(one),
        "Slice" => data::slice(args).map(one),
        "Concat" => data::concat(args).map(one),
        "Split" => data::split(args),
        "Expand" => data::expand(args).map(one),
        "Tile" => data::tile(args).map(one),
        "Pad" => data::pad(args).map(one),
        "Where" => data::select(args).map(one),
        "Trilu" => data::trilu(args).map(one),

        "Gather" => index::gather(args).map(one),
        "GatherElements" => index::gather_elements(args).map(one),
        "GatherND" => index::gather_nd(args).map(one),
        "ScatterND" => index::scatter_nd(args).map(one),
        "ScatterElements" => index::scatter_elements(args).map(one),
        "NonZero" => index::non_zero(args).map(one),
        "OneHot" => index::one_hot(args).map(one),

        "Cast" | "CastLike" => cast::cast(args).map(one),

        "ReduceSum" | "ReduceProd" | "ReduceMin" | "ReduceMax" => reduce::reduce(args).map(one),
        "ArgMax" | "ArgMin" => reduce::arg_extreme(args).map(one),
        "CumSum" => reduce::cum_sum(args).map(one),

        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Pow" | "Min" | "Max" | "BitShift" | "BitwiseAnd"
        | "BitwiseOr" | "BitwiseXor" => arith::binary(args).map(one),
        "Abs" | "Neg" | "Sign" | "Sqrt" | "Floor" | "Ceil" | "Round" | "Reciprocal" | "Relu"
        | "BitwiseNot" => arith::unary(args).map(one),
        "Clip" => arith::clip(args).map(one),
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => arith::compare(args).map(one),
        "And" | "Or" | "Xor" | "Not" | "IsNaN" | "IsInf" => arith::logic(args).map(one),
        _ => Err(Stop::Skip),
    }
}

/// Why an evaluation ended without a result.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Not ours to evaluate.
    Skip,
    /// The node is wrong.
    Invalid(String),
}

pub(crate) type Out<T> = Result<T, Stop>;

pub(crate) fn invalid<T>(why: impl Into<String>) -> Out<T> {
    Err(Stop::Invalid(why.into()))
}

/// `Skip` for an absent part.
pub(crate) trait OrSkip<T> {
    fn or_skip(self) -> Out<T>;
}

impl<T> OrSkip<T> for Option<T> {
    fn or_skip(self) -> Out<T> {
        self.ok_or(Stop::Skip)
    }
}

/// A node and its constant inputs.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a> {
    pub(crate) node: NodeView<'a>,
    pub(crate) inputs: &'a [Option<&'a Tensor>],
}

impl<'a> Args<'a> {
    pub(crate) fn opt(&self, slot: usize) -> Option<&'a Tensor> {
        self.inputs.get(slot).copied().flatten()
    }

    pub(crate) fn need(&self, slot: usize) -> Out<&'a Tensor> {
        self.opt(slot).or_skip()
    }

    pub(crate) fn ints(&self, slot: usize) -> Out<Vec<i64>> {
        let tensor = self.need(slot)?;
        within(tensor.count(), MAX_WORK)?;
        tensor.to_i64s().or_skip()
    }

    pub(crate) fn opt_ints(&self, slot: usize) -> Out<Option<Vec<i64>>> {
        self.opt(slot).map(|_| self.ints(slot)).transpose()
    }

    /// A list that older versions have as the attribute `name`.
    pub(crate) fn ints_or_attr(&self, slot: usize, name: &str) -> Out<Option<Vec<i64>>> {
        match self.opt_ints(slot)? {
            None => Ok(self.node.attrs().ints(name).map(<[i64]>::to_vec)),
            list => Ok(list),
        }
    }

    pub(crate) fn scalar(&self, slot: usize) -> Out<i64> {
        match self.ints(slot)?.as_slice() {
            [value] => Ok(*value),
            _ => invalid(format!("input {slot} has to hold one element")),
        }
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.node.int(name, default)
    }
}

/// Skips work past a limit.
pub(crate) fn within(count: usize, limit: usize) -> Out<()> {
    if count <= limit { Ok(()) } else { Err(Stop::Skip) }
}

/// An axis in `0..rank`, from a possibly negative one.
pub(crate) fn axis(value: i64, rank: usize) -> Out<usize> {
    let wrapped = if value < 0 { value + rank as i64 } else { value };
    match usize::try_from(wrapped) {
        Ok(axis) if axis < rank => Ok(axis),
        _ => invalid(format!("axis {value} is out of range for rank {rank}")),
    }
}

/// Axes in `0..rank`, each once, in the order given.
pub(crate) fn axes(values: &[i64], rank: usize) -> Out<Vec<usize>> {
    let list = values.iter().map(|&v| axis(v, rank)).collect::<Out<Vec<usize>>>()?;
    for (k, one) in list.iter().enumerate() {
        if list[..k].contains(one) {
            return invalid(format!("axis {one} stands twice"));
        }
    }
    Ok(list)
}

/// Dims as unsigned numbers; a constant has no negative ones.
pub(crate) fn sizes(tensor: &Tensor) -> Vec<usize> {
    tensor.dims().iter().map(|&d| d as usize).collect()
}

/// Dims as signed numbers.
pub(crate) fn signed(sizes: &[usize]) -> Vec<i64> {
    sizes.iter().map(|&d| d as i64).collect()
}

/// Dims that two shapes broadcast to, by numpy's rule.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Out<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], k: usize| (k + dims.len()).checked_sub(rank).map_or(1, |k| dims[k]);
    (0..rank)
        .map(|k| match (at(a, k), at(b, k)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            (x, y) => invalid(format!("dims {x} and {y} do not broadcast")),
        })
        .collect()
}

#[cfg(test)]
mod tests;

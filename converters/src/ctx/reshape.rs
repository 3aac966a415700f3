//! Reshapes: build-time dims, with 0 as "copy this dim" and one −1 where that says enough, a shape tensor otherwise.

use crate::{
    Emit,
    ctx::{
        dims,
        extent::{DimPlan, ExtentPlan, plan_extent},
    },
};
use trtc_ir::{Code, Dim, NodeView, Refusal, SymbolInfo};
use trtc_network::{
    TensorId,
    layer::{Extent, Layer},
};

/// A reshape that `plan` decided.
#[derive(Clone, Debug, PartialEq)]
pub enum ReshapePlan {
    /// Build-time dims; −1 once; 0 copies the dim when `placeholder`.
    Dims {
        /// The dims.
        dims: Vec<i64>,
        /// What 0 means.
        placeholder: bool,
    },
    /// Dims of which some are known only at run time.
    Extent {
        /// The dims.
        to: ExtentPlan,
        /// Whether 0 in a shape tensor copies the dim.
        placeholder: bool,
    },
}

/// What a reshape says of one dim of its result.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// The dim, known or symbolic.
    Dim(Dim),
    /// The dim of the input at the same place.
    Copy,
    /// Whatever is left.
    Rest,
}

/// Dims of the first output as the model declares them, all known, when they hold just what a tensor of dims `from` holds:
/// whatever else the run says of a reshape.
pub fn declared(node: NodeView<'_>, from: &[Dim]) -> Option<Vec<i64>> {
    let to = dims::of_output(node, 0)?;
    let count = to.iter().try_fold(1i64, |n, &d| n.checked_mul(d))?;
    (count > 0 && dims::product(from).known() == Some(count)).then_some(to)
}

/// Plans the reshape of a tensor of dims `from` to `to`. `fallback` is the shape input, used as it is when nothing else
/// gives the dims; a 0 in it copies the dim unless `allow_zero`.
///
/// # Errors
/// `E0402`: the sizes are known only at run time and nobody can bound them.
pub fn plan(
    node: NodeView<'_>,
    from: &[Dim],
    to: &[Part],
    fallback: Option<(usize, &str)>,
    allow_zero: bool,
) -> Result<ReshapePlan, Refusal> {
    let mut dims = Vec::with_capacity(to.len());
    let mut rests = 0;
    for (axis, part) in to.iter().enumerate() {
        dims.push(match part {
            Part::Dim(Dim::Known(value)) => *value,
            Part::Copy => 0,
            Part::Dim(dim) if *dim != Dim::Unknown && from.get(axis) == Some(dim) => 0,
            Part::Dim(_) | Part::Rest => {
                rests += 1;
                -1
            }
        });
    }
    let sizes: Vec<Dim> = to
        .iter()
        .enumerate()
        .map(|(axis, part)| match part {
            Part::Dim(dim) => dim.clone(),
            Part::Copy => from.get(axis).cloned().unwrap_or(Dim::Unknown),
            Part::Rest => Dim::Unknown,
        })
        .collect();
    let (wanted, given) = (dims::product(&sizes), dims::product(from));
    let unequal = || {
        let why = "the sizes are not known to hold as many elements as the tensor has";
        let refusal = Refusal::new(Code::SHAPE_VALUE, why);
        fallback.map_or(refusal.clone(), |(_, name)| refusal.slot(name))
    };
    if rests <= 1 {
        // Nothing is left for TensorRT to find: it looks whether the numbers of elements agree at the profile's sizes.
        let difference = node.symbols().interval(&given.sub(&wanted));
        if rests == 0 && wanted != given && (difference.min, difference.max) != (Some(0), Some(0)) {
            return Err(unequal());
        }
        let placeholder = dims.contains(&0);
        return Ok(ReshapePlan::Dims { dims, placeholder });
    }
    let plan = plan_extent(node, &sizes, fallback)?;
    // Values that come from outside the segment get a range of their own. They fit the tensor's range only where both
    // follow from the same symbols, or from such that were chosen to fit.
    if wanted != given && !agrees(node, &given, &wanted) {
        return Err(unequal());
    }
    let placeholder = matches!(plan, ExtentPlan::Input(_)) && !allow_zero;
    Ok(ReshapePlan::Extent { to: plan, placeholder })
}

/// Whether `wanted` and `given` are equal at the least, the optimal and the greatest values of their symbols, at which
/// TensorRT looks: all are dims and elements of the model's inputs, whose ranges were chosen together.
fn agrees(node: NodeView<'_>, given: &Dim, wanted: &Dim) -> bool {
    let symbols = node.symbols();
    let mut backed = true;
    for dim in [given, wanted] {
        dim.for_each_symbol(&mut |symbol| backed &= symbols.info(symbol).is_some_and(|info| !info.unbacked));
    }
    let at = |pick: &dyn Fn(&SymbolInfo) -> Option<i64>| {
        let value = |dim: &Dim| dim.eval(&|symbol| symbols.info(symbol).and_then(pick));
        value(given).is_some_and(|given| value(wanted) == Some(given))
    };
    backed && at(&|info| info.range.min) && at(&|info| info.opt) && at(&|info| info.range.max)
}

/// A reshape to dims that are planned one by one.
pub fn of_dims(dims: Vec<DimPlan>) -> ReshapePlan {
    match dims.iter().map(DimPlan::fixed).collect() {
        Some(dims) => ReshapePlan::Dims { dims, placeholder: false },
        None => ReshapePlan::Extent { to: ExtentPlan::Dims(dims), placeholder: false },
    }
}

/// A reshape to build-time dims in which 0 copies the dim of `x` at the same place, and −1 stands for the rest.
pub fn copying(cx: &mut Emit<'_>, x: TensorId, dims: Vec<i64>) -> TensorId {
    emit(cx, x, &ReshapePlan::Dims { dims, placeholder: true })
}

/// Emits the reshape of `x`.
pub fn emit(cx: &mut Emit<'_>, x: TensorId, plan: &ReshapePlan) -> TensorId {
    let (reshape, zero_is_placeholder) = match plan {
        ReshapePlan::Dims { dims, placeholder } => (Extent::Static(dims.clone()), *placeholder),
        ReshapePlan::Extent { to, placeholder } => (cx.extent(to), *placeholder),
    };
    cx.one(Layer::Shuffle { x, first: None, reshape: Some(reshape), zero_is_placeholder, second: None })
}

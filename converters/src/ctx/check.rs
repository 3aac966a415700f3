//! Gates on dtypes, ranks and constants, with the refusals that they give.

use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Dim, NodeView, Refusal, Tensor, ValueView};

/// Dtypes that TensorRT computes with as floats.
pub const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::Bf16];
/// Floats and the integers that TensorRT computes with.
pub const NUMBERS: &[DType] = &[DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64];

// What is exact on carriers. TensorRT holds the dtypes that it does not have in others ([`DType::carrier`]); an operator
// that takes one reads a tensor's dtype from the network ([`trtc_network::NetworkBuilder::dtype`]), not from the IR.

/// What data movement takes: everything that has a carrier, and a zero to fill with (f8e8m0 has none). Values are moved, chosen and repeated, never changed.
pub const CARRIED: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::I32,
    DType::I64,
    DType::Bool,
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::U4,
    DType::I4,
    DType::U2,
    DType::I2,
    DType::F8E4M3,
    DType::F8E4M3Uz,
    DType::F8E5M2,
    DType::F8E5M2Uz,
];

/// [`NUMBERS`] and the integers that are carried in wider ones. Comparisons and extremes are exact as they are; what can
/// leave the dtype's range wraps (`ctx::wrap`).
pub const WITH_NARROW: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
];

/// [`WITH_NARROW`] and bool.
pub const WITH_BOOL: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::Bool,
];

/// The integers among [`WITH_NARROW`].
pub const INTEGERS: &[DType] =
    &[DType::I32, DType::I64, DType::U8, DType::I8, DType::U16, DType::I16, DType::U32];

/// A present input of known dtype and rank.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// The value.
    pub view: ValueView<'a>,
    /// Element type.
    pub dtype: DType,
    /// Dims.
    pub shape: &'a [Dim],
}

impl Operand<'_> {
    /// Rank.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
}

/// An input that must be there, with dtype and rank known, and the dtype one of `allowed`.
pub fn operand<'a>(
    node: NodeView<'a>,
    slot: usize,
    name: &str,
    allowed: &[DType],
    target: &Target,
) -> Result<Operand<'a>, Refusal> {
    let view =
        node.input(slot).ok_or_else(|| Refusal::new(Code::INVALID, "the input is absent").slot(name))?;
    let dtype = view.dtype().ok_or_else(|| {
        Refusal::new(Code::DTYPE_UNKNOWN, "the dtype is not known before the run").slot(name)
    })?;
    let shape = view.shape().ok_or_else(|| {
        Refusal::new(Code::RANK_UNKNOWN, "the rank is not known before the run")
            .slot(name)
            .help("give the input's shape with --shape")
    })?;
    dtype_gate(dtype, name, allowed, target)?;
    if shape.len() > 8 {
        return Err(Refusal::new(Code::RANK, format!("rank {}; TensorRT holds at most 8 dims", shape.len()))
            .slot(name));
    }
    Ok(Operand { view, dtype, shape })
}

/// A dtype that TensorRT can represent, that the operator takes, and that every compute capability has.
pub fn dtype_gate(dtype: DType, name: &str, allowed: &[DType], target: &Target) -> Result<(), Refusal> {
    if !representable(dtype) {
        let mut refusal =
            Refusal::new(Code::DTYPE_UNREPRESENTABLE, format!("TensorRT has no dtype {dtype}")).slot(name);
        if dtype == DType::F64 {
            refusal = refusal.help("--allow-f64-as-f32 computes in f32");
        }
        return Err(refusal);
    }
    if !allowed.contains(&dtype) {
        return Err(
            Refusal::new(Code::DTYPE_KERNEL, format!("TensorRT does not compute this in {dtype}")).slot(name)
        );
    }
    capability(dtype, if dtype == DType::Bf16 { 80 } else { 0 }, name, target)
}

/// A dtype in which TensorRT's own quantising layers make and take values, for every compute capability.
///
/// # Errors
/// `E0501`.
pub fn native_gate(dtype: DType, name: &str, target: &Target) -> Result<(), Refusal> {
    let least = match dtype {
        DType::I4 => 80,
        DType::F8E4M3 => 89,
        _ => 0,
    };
    capability(dtype, least, name, target)
}

fn capability(dtype: DType, least: u16, name: &str, target: &Target) -> Result<(), Refusal> {
    if let Some(sm) = target.min_sm().filter(|&sm| sm < least) {
        return Err(Refusal::new(
            Code::COMPUTE_CAPABILITY,
            format!("{dtype} needs sm{least}; the target has sm{sm}"),
        )
        .slot(name)
        .help(format!("leave out sm{sm}, or compile it as a target of its own")));
    }
    Ok(())
}

/// Dtypes whose values a TensorRT tensor can hold.
pub fn representable(dtype: DType) -> bool {
    dtype.carrier().is_some() || dtype == DType::F4E2M1
}

/// A constant input.
pub fn constant<'a>(node: NodeView<'a>, slot: usize, name: &str) -> Result<&'a Tensor, Refusal> {
    node.input(slot)
        .and_then(|view| view.constant())
        .ok_or_else(|| Refusal::new(Code::NOT_CONSTANT, "must be a constant").slot(name))
}

/// A constant input of integers.
pub fn constant_i64s(node: NodeView<'_>, slot: usize, name: &str) -> Result<Vec<i64>, Refusal> {
    constant(node, slot, name)?
        .to_i64s()
        .ok_or_else(|| Refusal::new(Code::CONSTANT_VALUE, "must be integers").slot(name))
}

/// A non-negative axis, or the refusal for one out of range.
pub fn axis(axis: i64, rank: usize, name: &str) -> Result<usize, Refusal> {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(at)
        .ok()
        .filter(|&at| at < rank)
        .ok_or_else(|| Refusal::new(Code::INVALID, format!("axis {axis} of rank {rank}")).slot(name))
}

/// Refuses a genuinely empty tensor: a 0 in the static shape. These are resolved in the IR and never reach TensorRT.
pub fn not_empty(operand: &Operand<'_>, name: &str) -> Result<(), Refusal> {
    if operand.shape.contains(&Dim::Known(0)) {
        return Err(Refusal::new(Code::SHAPE, "an empty tensor").slot(name));
    }
    Ok(())
}

/// Refuses a tensor that is empty, or of which a dim may be 0 at run time: for layers that TensorRT does not define over
/// nothing.
pub fn never_empty(operand: &Operand<'_>, name: &str) -> Result<(), Refusal> {
    not_empty(operand, name)?;
    let may_be_0 = |axis: &usize| operand.view.dim_range(*axis).min.is_some_and(|min| min < 1);
    match (0..operand.rank()).find(may_be_0) {
        Some(axis) => Err(Refusal::new(Code::SHAPE, format!("dim {axis} may be 0 at run time"))
            .slot(name)
            .help("give it a range that starts at 1 with --shape")),
        None => Ok(()),
    }
}

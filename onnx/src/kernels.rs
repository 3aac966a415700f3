//! Which nodes ONNX Runtime can run on the CPU, without asking it.
//!
//! ONNX Runtime 1.32 looks a node up by the version of its schema: a kernel registered for versions `a` to `b` serves every version in
//! between, and one registered open-ended from `a` serves version `a` alone. So a newer opset can lose a kernel that an older
//! one has (RoiAlign at 22), and a host segment is written at an opset that suits all of its nodes.

use crate::schema::{self, Opsets, domain_name, opsets_in_force};
use trtc_bundle::DType;

/// How ONNX Runtime runs a node on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// A kernel.
    Kernel,
    /// A kernel for f32, with casts around it that ONNX Runtime adds on its own, which it does for inputs of f16 only.
    WidenedHalf,
    /// Its function body, which ONNX Runtime puts in its place.
    Function,
    /// Not at all.
    None,
}

/// Functions whose bodies need kernels that do not exist either, or that ONNX Runtime does not expand.
const NOT_EXPANDED: &[(&str, &str, u32)] =
    &[("", "Bernoulli", 22), ("", "SwiGLU", 28), ("ai.onnx.preview", "FlexAttention", 1)];

/// Functions whose bodies ONNX Runtime expands, for these types of `T` (windows: `T2`), at these opsets only: a body holds together with the
/// versions of the operators in it, and some of those have no kernel of the type. Not at all where the last opset is 0.
/// (`onnx/tests/all/function_sessions.tsv` has what ONNX Runtime says.)
const EXPANDED_AT: &[(&str, u32, &[DType], u32, u32)] = &[
    ("BlackmanWindow", 17, &[DType::F16], 17, 18),
    ("CenterCropPad", 18, &[DType::I16, DType::U16, DType::Str], 1, 0),
    ("Elu", 6, &[DType::F64], 18, 18),
    ("Elu", 22, &[DType::F64], 1, 0),
    ("Gelu", 20, &[DType::F64], 1, 0),
    ("HammingWindow", 17, &[DType::F16], 17, 18),
    ("HannWindow", 17, &[DType::F16], 17, 18),
    ("HardSigmoid", 6, &[DType::F64], 18, 18),
    ("HardSigmoid", 22, &[DType::F64], 1, 0),
    ("HardSwish", 14, &[DType::F64], 18, 18),
    ("HardSwish", 22, &[DType::F64], 1, 0),
    ("LeakyRelu", 16, &[DType::F64], 16, 18),
    ("MeanVarianceNormalization", 9, &[DType::F64], 1, 0),
    ("MeanVarianceNormalization", 13, &[DType::F64], 1, 0),
    ("Mish", 18, &[DType::F64], 18, 18),
    ("Mish", 22, &[DType::F64], 1, 0),
    ("PRelu", 16, &[DType::F64, DType::I32, DType::I64, DType::U32], 16, 18),
    ("PRelu", 16, &[DType::U64], 1, 0),
    ("ReduceL1", 18, &[DType::U32, DType::U64], 1, 0),
    ("ReduceL2", 18, &[DType::U32, DType::U64], 1, 0),
    ("ReduceLogSum", 18, &[DType::U32, DType::U64], 1, 0),
    ("ReduceLogSumExp", 18, &[DType::U32, DType::U64], 18, 18),
    ("ReduceSumSquare", 18, &[DType::U32, DType::U64], 1, 0),
    ("Relu", 14, &[DType::I64], 18, 18),
    ("Relu", 14, &[DType::I16], 1, 0),
    ("Selu", 6, &[DType::F64], 18, 18),
    ("Selu", 22, &[DType::F64], 1, 0),
    ("Softplus", 1, &[DType::F64], 18, 18),
    ("Softplus", 22, &[DType::F64], 1, 0),
    ("Softsign", 1, &[DType::F64], 18, 18),
    ("Softsign", 22, &[DType::F64], 1, 0),
    ("Swish", 24, &[DType::F32, DType::F64, DType::F16], 24, 24),
    ("ThresholdedRelu", 10, &[DType::F64], 18, 18),
    ("ThresholdedRelu", 22, &[DType::F64], 1, 0),
];

/// Functions whose bodies compute in f32 whatever the type.
const COMPUTE_IN_F32: &[(&str, &str, u32)] = &[("", "Range", 27)];

/// Whether ONNX Runtime has a CPU kernel for the form since `since_version` of an operator.
///
/// `type_of` gives the element type bound to a type parameter (`T`) or to a formal input or output by its name, as
/// [`schema::Schema::bound`] does; `None`, for what is unknown or no tensor, is taken to fit. `Constant` counts: its value becomes an initializer.
pub fn cpu_kernel(
    domain: &str,
    op_type: &str,
    since_version: u32,
    type_of: &dyn Fn(&str) -> Option<DType>,
) -> bool {
    if (domain_name(domain), op_type) == ("", "Constant") {
        return true;
    }
    schema::kernels(domain, op_type).iter().any(|kernel| {
        let serves = match kernel.last {
            Some(last) => (kernel.first..=last).contains(&since_version),
            None => kernel.first == since_version,
        };
        serves && kernel.types.iter().all(|(name, set)| type_of(name).is_none_or(|dtype| set.has(dtype)))
    })
}

/// The opsets of [`EXPANDED_AT`] for a form with these types; every opset for what is not in it.
fn expanded_at(
    domain: &str,
    op_type: &str,
    since_version: u32,
    type_of: &dyn Fn(&str) -> Option<DType>,
) -> Opsets {
    let row = EXPANDED_AT.iter().find(|(op, since, dtypes, ..)| {
        (domain, op_type, since_version) == ("", *op, *since)
            && type_of("T").or_else(|| type_of("T2")).is_some_and(|dtype| dtypes.contains(&dtype))
    });
    row.map_or(Opsets::ALL, |&(_, _, _, first, last)| Opsets::range(first, last))
}

/// Opsets at which ONNX Runtime runs the form since `since_version` of an operator; `type_of` as for [`cpu_kernel`].
pub fn form_opsets(
    domain: &str,
    op_type: &str,
    since_version: u32,
    type_of: &dyn Fn(&str) -> Option<DType>,
) -> Opsets {
    let domain = domain_name(domain);
    let in_force = opsets_in_force(domain, op_type, since_version);
    match support(domain, op_type, since_version, type_of) {
        Support::None => Opsets::NONE,
        Support::Function => in_force.and(expanded_at(domain, op_type, since_version, type_of)),
        Support::Kernel | Support::WidenedHalf => in_force,
    }
}

/// How ONNX Runtime runs the form since `since_version` of an operator; `type_of` as for [`cpu_kernel`].
pub fn support(
    domain: &str,
    op_type: &str,
    since_version: u32,
    type_of: &dyn Fn(&str) -> Option<DType>,
) -> Support {
    let domain = domain_name(domain);
    if cpu_kernel(domain, op_type, since_version, type_of) {
        return Support::Kernel;
    }
    let widened =
        |name: &str| type_of(name).map(|dtype| if dtype == DType::F16 { DType::F32 } else { dtype });
    let schema = schema::lookup(domain, op_type, since_version);
    let is_half = |name: &str| type_of(name) == Some(DType::F16);
    let takes_half = schema.is_none_or(|schema| {
        schema.inputs.iter().any(|param| is_half(param.type_name) || is_half(param.name))
    });
    if takes_half && cpu_kernel(domain, op_type, since_version, &widened) {
        return Support::WidenedHalf;
    }
    let Some(schema) = schema.filter(|schema| schema.function) else {
        return Support::None;
    };
    let expands = if (domain, op_type) == ("", "CastLike") {
        schema::since_version("", "Cast", since_version)
            .is_some_and(|version| cpu_kernel("", "Cast", version, type_of))
    } else {
        // The operators of a body know f16 (widened), f32 and mostly f64, but nothing narrower.
        let narrow = schema
            .types
            .iter()
            .filter_map(|(name, _)| type_of(name))
            .any(|dtype| dtype.is_float() && !matches!(dtype, DType::F16 | DType::F32 | DType::F64));
        let form = (domain, op_type, since_version);
        (!narrow || COMPUTE_IN_F32.contains(&form))
            && !NOT_EXPANDED.contains(&form)
            && !expanded_at(domain, op_type, since_version, type_of).is_empty()
    };
    if expands { Support::Function } else { Support::None }
}

/// Opsets at which ONNX Runtime runs a node that can be expressed in each of `versions` of its operator. An operator whose schema
/// nobody knows is the business of whoever registers it: every opset.
pub fn host_opsets(
    domain: &str,
    op_type: &str,
    versions: impl IntoIterator<Item = u32>,
    type_of: &dyn Fn(&str) -> Option<DType>,
) -> Opsets {
    if schema::history(domain, op_type).is_empty() {
        return Opsets::ALL;
    }
    versions
        .into_iter()
        .map(|version| form_opsets(domain, op_type, version, type_of))
        .fold(Opsets::NONE, Opsets::or)
}

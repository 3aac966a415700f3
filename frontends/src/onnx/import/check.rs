//! A node against its operator's schema.

use trtc_ir::{Diag, ValueId};
use trtc_onnx::{
    AttributeProto,
    schema::{ParamKind, Schema},
};

/// Checks counts of inputs and outputs, required inputs, and names, kinds and presence of attributes.
pub(super) fn check(
    schema: &Schema,
    attrs: &[(&str, &AttributeProto)],
    inputs: &[Option<ValueId>],
    outputs: usize,
) -> Result<(), Diag> {
    let form = format!("{}-{}", schema.op_type, schema.since_version);
    let limits = |least: usize, most: usize| match most {
        usize::MAX => format!("at least {least}"),
        most if most == least => format!("{least}"),
        most => format!("{least} to {most}"),
    };
    for (what, given, least, most) in [
        ("inputs", inputs.len(), schema.min_inputs, schema.max_inputs),
        ("outputs", outputs, schema.min_outputs, schema.max_outputs),
    ] {
        if given < least || given > most {
            let takes = limits(least, most);
            return Err(Diag::invalid(format!("it has {given} {what}, {form} takes {takes}")));
        }
    }
    for (slot, param) in schema.inputs.iter().enumerate().take(schema.min_inputs) {
        if param.kind == ParamKind::Single && inputs.get(slot).copied().flatten().is_none() {
            return Err(
                Diag::invalid(format!("input {slot} is required by {form}, but omitted")).slot(param.name)
            );
        }
    }
    for (name, attr) in attrs {
        let Some(known) = schema.attribute(name) else {
            return Err(Diag::invalid(format!("{form} has no such attribute")).slot(*name));
        };
        if let Some(kind) = attr.kind()
            && kind != known.kind
        {
            let why = format!("the attribute is {kind:?}, {form} takes {:?}", known.kind);
            return Err(Diag::invalid(why).slot(*name));
        }
    }
    let given = |name: &str| attrs.iter().any(|(given, _)| *given == name);
    match schema.attributes.iter().find(|attr| attr.required && !given(attr.name)) {
        Some(missing) => {
            Err(Diag::invalid(format!("the attribute is required by {form}")).slot(missing.name))
        }
        None => Ok(()),
    }
}

//! Operator families whose forms differ between opsets: upgrade to the canonical version and downgrade from it, side by side.
//!
//! A family's rules change inputs, attributes and the operator itself; the frame here does what schemas tell:
//! `consumed_inputs` goes, defaults that changed are written out, attributes that an older version lacks may go when they hold their default.

mod attention;
mod axes;
mod batch_norm;
mod broadcast;
mod cast;
mod clip;
mod control;
mod dft;
mod dropout;
mod grid_sample;
mod group_norm;
mod modulo;
mod pad;
mod pool;
mod prelu;
mod quantize;
mod reshape;
mod resize;
mod rnn;
mod roi_align;
mod scatter;
mod slice;
mod softmax;
mod split;
mod swiglu;
mod topk;

use crate::onnx::draft::{Draft, Upgrade};
use std::{collections::HashMap, sync::LazyLock};
use trtc_ir::{Attr, Diag, Graph, OpKey};
use trtc_onnx::schema::{self, DefaultValue, Schema};

/// Rules of one operator family.
pub(crate) struct Family {
    /// Operators of the default domain, under their old names too.
    pub(crate) ops: &'static [&'static str],
    /// Brings a draft to its canonical form. It may leave `since` to the frame.
    pub(crate) upgrade: fn(&mut Upgrade<'_>, &mut Draft) -> Result<Step, Diag>,
    /// Brings a draft from its canonical form to the form since a version.
    pub(crate) downgrade: fn(&Graph, &mut Draft, u32) -> Result<(), Misfit>,
}

/// How an upgrade went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The draft has the form of the newest version.
    Canonical,
    /// The newest version cannot say it: the node keeps its version.
    Keep,
}

/// The older version cannot say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit;

static FAMILIES: &[&Family] = &[
    &attention::FAMILY,
    &axes::FAMILY,
    &batch_norm::FAMILY,
    &broadcast::FAMILY,
    &cast::FAMILY,
    &clip::FAMILY,
    &control::FAMILY,
    &dft::FAMILY,
    &dropout::FAMILY,
    &grid_sample::FAMILY,
    &group_norm::FAMILY,
    &modulo::FAMILY,
    &pad::FAMILY,
    &pool::FAMILY,
    &prelu::FAMILY,
    &quantize::FAMILY,
    &reshape::FAMILY,
    &resize::FAMILY,
    &rnn::FAMILY,
    &roi_align::FAMILY,
    &scatter::FAMILY,
    &slice::FAMILY,
    &softmax::FAMILY,
    &split::FAMILY,
    &swiglu::FAMILY,
    &topk::FAMILY,
];

static BY_OP: LazyLock<HashMap<&'static str, &'static Family>> =
    LazyLock::new(|| FAMILIES.iter().flat_map(|family| family.ops.iter().map(|op| (*op, *family))).collect());

fn family(op: &OpKey) -> Option<&'static Family> {
    if op.domain.is_empty() { BY_OP.get(&*op.op_type).copied() } else { None }
}

/// Operators of the first ONNX releases that never got beyond the experiment, and ended with opset 10. ONNX Runtime has some still.
const EXPERIMENTAL: &[&str] = &[
    "Affine",
    "Crop",
    "DynamicSlice",
    "GRUUnit",
    "GivenTensorFill",
    "ImageScaler",
    "ParametricSoftplus",
    "Scale",
    "ScaledTanh",
];

/// Last opset of [`EXPERIMENTAL`] operators.
pub(crate) const LAST_EXPERIMENTAL: u32 = 9;

/// Whether an operator is an experiment of old, in its only version 1.
pub(crate) fn is_experimental(op: &OpKey) -> bool {
    op.domain.is_empty() && EXPERIMENTAL.contains(&&*op.op_type)
}

/// The newest version of an operator that is not one that abolishes it.
fn newest(op: &OpKey) -> Option<&'static Schema> {
    schema::in_force(&op.domain, &op.op_type, schema::MAX_OPSET).filter(|schema| !schema.deprecated)
}

/// Brings a node to the canonical version of its operator; one that cannot be keeps its version, as do operators that the
/// schema tables do not know and those of other domains.
///
/// # Errors
/// The node's form is not valid at its version.
pub(crate) fn upgrade(cx: &mut Upgrade<'_>, draft: Draft) -> Result<Draft, Diag> {
    if !draft.op.domain.is_empty() {
        return Ok(draft);
    }
    let Some(old) = schema::lookup("", &draft.op.op_type, draft.since) else { return Ok(draft) };
    let mut new = draft.clone();
    new.attrs.remove("consumed_inputs");
    if let Some(family) = family(&draft.op)
        && (family.upgrade)(cx, &mut new)? == Step::Keep
    {
        return Ok(draft);
    }
    let Some(schema) = newest(&new.op) else { return Ok(draft) };
    new.trim();
    write_changed_defaults(&mut new, old, schema);
    let fits = new.inputs.len() <= schema.max_inputs
        && new.inputs.len() >= schema.min_inputs
        && new.outputs <= schema.max_outputs
        && new.attrs.iter().all(|(name, _)| schema.attribute(name).is_some());
    if !fits {
        return Ok(draft);
    }
    new.since = schema.since_version;
    Ok(new)
}

/// Writes out what an absent attribute meant, when it means something else now.
fn write_changed_defaults(draft: &mut Draft, old: &Schema, new: &Schema) {
    if old.op_type != new.op_type {
        return;
    }
    for attr in &old.attributes {
        let changed = new.attribute(attr.name).is_some_and(|now| now.default != attr.default);
        if changed
            && draft.attrs.get(attr.name).is_none()
            && let Some(default) = &attr.default
        {
            draft.attrs.set(attr.name, default_attr(default));
        }
    }
}

fn default_attr(default: &DefaultValue) -> Attr {
    match default {
        DefaultValue::Float(value) => Attr::Float(*value),
        DefaultValue::Int(value) => Attr::Int(*value),
        DefaultValue::String(value) => Attr::Str((*value).into()),
        DefaultValue::Floats(values) => Attr::Floats(values.clone()),
        DefaultValue::Ints(values) => Attr::Ints(values.clone()),
        DefaultValue::Strings(values) => Attr::Strs(values.iter().map(|value| (*value).into()).collect()),
    }
}

fn is_default(attr: &Attr, default: &DefaultValue) -> bool {
    match (attr, default) {
        (Attr::Float(a), DefaultValue::Float(b)) => a == b,
        (Attr::Int(a), DefaultValue::Int(b)) => a == b,
        (Attr::Str(a), DefaultValue::String(b)) => a == b.as_bytes(),
        (Attr::Floats(a), DefaultValue::Floats(b)) => a == b,
        (Attr::Ints(a), DefaultValue::Ints(b)) => a == b,
        (Attr::Strs(a), DefaultValue::Strings(b)) => a.iter().eq(b.iter().map(|text| text.as_bytes())),
        _ => false,
    }
}

/// Brings a node to the form since `version` of its operator.
///
/// # Errors
/// That version cannot say it.
pub(crate) fn downgrade(graph: &Graph, draft: &Draft, version: u32) -> Result<Draft, Misfit> {
    let mut old = draft.clone();
    if !draft.op.domain.is_empty() || draft.since == version {
        return if draft.since == version { Ok(old) } else { Err(Misfit) };
    }
    let canonical = newest(&draft.op).is_some_and(|schema| schema.since_version == draft.since);
    if !canonical || version > draft.since {
        return Err(Misfit);
    }
    if let Some(family) = family(&draft.op) {
        (family.downgrade)(graph, &mut old, version)?;
    }
    let schema =
        schema::lookup("", &old.op.op_type, version).filter(|schema| !schema.deprecated).ok_or(Misfit)?;
    let newest = newest(&draft.op).ok_or(Misfit)?;
    drop_defaults(&mut old, newest, schema)?;
    old.trim();
    let inputs = schema.min_inputs..=schema.max_inputs;
    if !inputs.contains(&old.inputs.len()) || old.outputs > schema.max_outputs {
        return Err(Misfit);
    }
    if schema.attributes.iter().any(|attr| attr.required && old.attrs.get(attr.name).is_none()) {
        return Err(Misfit);
    }
    old.since = version;
    Ok(old)
}

/// Removes attributes that the older version lacks, when they say what that version means anyway, and writes out defaults that
/// were other ones.
fn drop_defaults(draft: &mut Draft, new: &Schema, old: &Schema) -> Result<(), Misfit> {
    let extra: Vec<String> = draft
        .attrs
        .iter()
        .filter(|(name, _)| old.attribute(name).is_none())
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in extra {
        let neutral =
            match (draft.attrs.get(&name), new.attribute(&name).and_then(|attr| attr.default.as_ref())) {
                (Some(attr), Some(default)) => is_default(attr, default),
                (Some(Attr::Ints(values)), None) if name == "dilations" => {
                    values.iter().all(|&value| value == 1)
                }
                _ => false,
            };
        if !neutral {
            return Err(Misfit);
        }
        draft.attrs.remove(&name);
    }
    if old.op_type == new.op_type {
        write_changed_defaults(draft, new, old);
    }
    Ok(())
}

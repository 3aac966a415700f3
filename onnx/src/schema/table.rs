//! The tables, parsed.

use super::{Attribute, DefaultValue, Param, ParamKind, Schema, TypeSet};
use crate::AttributeType;
use std::{collections::HashMap, sync::LazyLock};
use trtc_bundle::DType;

const SCHEMAS: &str = include_str!("schemas.tsv");
const KERNELS: &str = include_str!("kernels.tsv");

/// All versions of one operator.
#[derive(Default)]
pub(super) struct Operator {
    pub(super) versions: Vec<u32>,
    pub(super) schemas: Vec<Schema>,
}

/// One CPU kernel of ONNX Runtime.
pub(crate) struct Kernel {
    pub(crate) first: u32,
    /// `None`: open-ended.
    pub(crate) last: Option<u32>,
    pub(crate) types: Vec<(&'static str, TypeSet)>,
}

/// By domain, then by operator.
type ByOperator<T> = HashMap<&'static str, HashMap<&'static str, T>>;

static OPERATORS: LazyLock<ByOperator<Operator>> = LazyLock::new(|| {
    let sets = type_sets(SCHEMAS);
    let mut operators: ByOperator<Operator> = HashMap::new();
    for schema in rows(SCHEMAS).filter_map(|row| schema(row, &sets)) {
        let operator = operators.entry(schema.domain).or_default().entry(schema.op_type).or_default();
        operator.versions.push(schema.since_version);
        operator.schemas.push(schema);
    }
    operators
});

static CPU_KERNELS: LazyLock<ByOperator<Vec<Kernel>>> = LazyLock::new(|| {
    let sets = type_sets(KERNELS);
    let mut kernels: ByOperator<Vec<Kernel>> = HashMap::new();
    for ((domain, op_type), kernel) in rows(KERNELS).filter_map(|row| kernel(row, &sets)) {
        kernels.entry(domain).or_default().entry(op_type).or_default().push(kernel);
    }
    kernels
});

/// `ai.onnx` is another name of the domain `""`.
pub(crate) fn domain_name(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

pub(super) fn operator(domain: &str, op_type: &str) -> Option<&'static Operator> {
    OPERATORS.get(domain_name(domain))?.get(op_type)
}

pub(super) fn operators() -> Vec<(&'static str, &'static str)> {
    let in_domain = |(domain, operators): (&&'static str, &HashMap<&'static str, Operator>)| {
        operators.keys().map(|op_type| (*domain, *op_type)).collect::<Vec<_>>()
    };
    let mut names: Vec<_> = OPERATORS.iter().flat_map(in_domain).collect();
    names.sort_unstable();
    names
}

/// CPU kernels of an operator.
pub(crate) fn kernels(domain: &str, op_type: &str) -> &'static [Kernel] {
    CPU_KERNELS
        .get(domain_name(domain))
        .and_then(|operators| operators.get(op_type))
        .map_or(&[], Vec::as_slice)
}

fn rows(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.starts_with(['#', '@']))
}

/// Lines `@number, tensors, sequences, other`, in order of their numbers.
fn type_sets(table: &'static str) -> Vec<TypeSet> {
    let bits = |names: &str| {
        let names = names.split(',').filter_map(DType::from_name);
        names.fold(0, |bits, dtype| bits | 1u32 << dtype.onnx())
    };
    let lines = table.lines().filter(|line| line.starts_with('@'));
    let set = |line: &str| {
        let mut columns = line.split('\t').skip(1);
        let (tensors, sequences) = (columns.next().map_or(0, bits), columns.next().map_or(0, bits));
        TypeSet { tensors, sequences, other: columns.next().is_some() }
    };
    lines.map(set).collect()
}

fn schema(row: &'static str, sets: &[TypeSet]) -> Option<Schema> {
    let mut columns = row.split('\t');
    let mut next = || columns.next();
    let (domain, op_type, since_version, flags) = (next()?, next()?, next()?.parse().ok()?, next()?);
    let ((min_inputs, max_inputs), (min_outputs, max_outputs)) = (range(next()?)?, range(next()?)?);
    let (inputs, outputs, types) = (params(next()?)?, params(next()?)?, constraints(next()?, sets)?);
    Some(Schema {
        domain,
        op_type,
        since_version,
        deprecated: flags.contains('d'),
        function: flags.contains('f'),
        min_inputs,
        max_inputs,
        min_outputs,
        max_outputs,
        inputs,
        outputs,
        types,
        attributes: columns.map(attribute).collect::<Option<_>>()?,
    })
}

fn kernel(row: &'static str, sets: &[TypeSet]) -> Option<((&'static str, &'static str), Kernel)> {
    let mut columns = row.split('\t');
    let mut next = || columns.next();
    let (key, first, last) = ((next()?, next()?), next()?.parse().ok()?, next()?);
    let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
    Some((key, Kernel { first, last, types: constraints(next()?, sets)? }))
}

/// `1..3`, `1..*`.
fn range(text: &str) -> Option<(usize, usize)> {
    let (least, most) = text.split_once("..")?;
    Some((least.parse().ok()?, if most == "*" { usize::MAX } else { most.parse().ok()? }))
}

/// `X:T B:T?`.
fn params(text: &'static str) -> Option<Vec<Param>> {
    let param = |item: &'static str| {
        let (name, rest) = item.split_once(':')?;
        let type_name = rest.trim_end_matches(['?', '*', '~']);
        let kind = match &rest[type_name.len()..] {
            "" => ParamKind::Single,
            "?" => ParamKind::Optional,
            "*" => ParamKind::Variadic,
            _ => ParamKind::Mixed,
        };
        Some(Param { name, type_name, kind })
    };
    text.split_whitespace().map(param).collect()
}

/// `T@3 T1@0`.
fn constraints(text: &'static str, sets: &[TypeSet]) -> Option<Vec<(&'static str, TypeSet)>> {
    let constraint = |item: &'static str| {
        let (name, number) = item.split_once('@')?;
        Some((name, *sets.get(number.parse::<usize>().ok()?)?))
    };
    text.split_whitespace().map(constraint).collect()
}

/// `axis:i!`, `alpha:f=0.2`.
fn attribute(text: &'static str) -> Option<Attribute> {
    let (head, default) = match text.split_once('=') {
        Some((head, default)) => (head, Some(default)),
        None => (text, None),
    };
    let (name, kind) = head.split_once(':')?;
    let (kind, required) = match kind.strip_suffix('!') {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    let kind = match kind {
        "f" => AttributeType::Float,
        "i" => AttributeType::Int,
        "s" => AttributeType::String,
        "t" => AttributeType::Tensor,
        "g" => AttributeType::Graph,
        "fs" => AttributeType::Floats,
        "is" => AttributeType::Ints,
        "ss" => AttributeType::Strings,
        "ts" => AttributeType::Tensors,
        "gs" => AttributeType::Graphs,
        "sp" => AttributeType::SparseTensor,
        "sps" => AttributeType::SparseTensors,
        "tp" => AttributeType::TypeProto,
        "tps" => AttributeType::TypeProtos,
        _ => return None,
    };
    let default = match default {
        None => None,
        Some(text) => Some(default_value(kind, text)?),
    };
    Some(Attribute { name, kind, required, default })
}

fn default_value(kind: AttributeType, text: &'static str) -> Option<DefaultValue> {
    let items = || text.split(',').filter(|item| !item.is_empty());
    Some(match kind {
        AttributeType::Float => DefaultValue::Float(text.parse().ok()?),
        AttributeType::Int => DefaultValue::Int(text.parse().ok()?),
        AttributeType::String => DefaultValue::String(text),
        AttributeType::Floats => {
            DefaultValue::Floats(items().map(|item| item.parse().ok()).collect::<Option<_>>()?)
        }
        AttributeType::Ints => {
            DefaultValue::Ints(items().map(|item| item.parse().ok()).collect::<Option<_>>()?)
        }
        AttributeType::Strings => DefaultValue::Strings(items().collect()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_parses_and_versions_ascend() {
        let kept: usize =
            OPERATORS.values().flat_map(HashMap::values).map(|operator| operator.schemas.len()).sum();
        assert_eq!(kept, rows(SCHEMAS).count());
        let kept: usize = CPU_KERNELS.values().flat_map(HashMap::values).map(Vec::len).sum();
        assert_eq!(kept, rows(KERNELS).count());
        for (name, operator) in OPERATORS.values().flatten() {
            assert!(operator.versions.is_sorted_by(|a, b| a < b), "{name:?}");
            for schema in &operator.schemas {
                assert!(schema.attributes.is_sorted_by(|a, b| a.name < b.name), "{name:?}");
                for param in schema.inputs.iter().chain(&schema.outputs) {
                    let known = schema.type_set(param).is_some()
                        || param.type_name.starts_with("seq(")
                        || param.type_name == "other";
                    assert!(known, "{name:?} {param:?}");
                }
            }
        }
    }

    #[test]
    fn sets_know_every_type_name() {
        for line in [SCHEMAS, KERNELS].into_iter().flat_map(str::lines).filter(|line| line.starts_with('@')) {
            let names = line.split('\t').skip(1).take(2).flat_map(|column| column.split(','));
            for name in names.filter(|name| !name.is_empty()) {
                assert!(DType::from_name(name).is_some(), "{line}");
            }
        }
    }
}

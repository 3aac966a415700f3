//! Host nodes: what the exporter writes for an operator and an element type, ONNX Runtime must load.

use super::numbers::{load, onnxruntime};
use std::collections::BTreeMap;
use trtc_bundle::DType;
use trtc_frontends::onnx::export::{ExportRequest, WeightPlacement, export};
use trtc_ir::{Attr, Attrs, Module, Node, OpKey, Type};
use trtc_onnx::{
    AttributeType,
    schema::{self, ParamKind, Schema},
};

/// A node with as few inputs and outputs as its schema allows, the first type parameter `dtype`; `None` where a type is none of
/// a tensor, or an attribute has no value that suits every operator.
fn node(schema: &Schema, dtype: DType) -> Option<Module> {
    let ports = || schema.inputs.iter().chain(&schema.outputs);
    let set = |name: &str| schema.types.iter().find(|(ty, _)| *ty == name).map(|(_, set)| *set);
    let first = ports().map(|param| param.type_name).find(|name| set(name).is_some())?;
    if !set(first)?.has(dtype) {
        return None;
    }
    let own = dtype.is_float().then_some(dtype);
    let mut bound: BTreeMap<&str, DType> = BTreeMap::new();
    for (name, set) in &schema.types {
        let usual = own.into_iter().chain([DType::I64, DType::F32, DType::Bool]);
        bound.insert(name, usual.chain(set.tensors()).find(|&dtype| set.has(dtype))?);
    }
    bound.insert(first, dtype);
    let ty = |name: &str| bound.get(name).copied().or_else(|| DType::from_name(name));
    let mut module = Module { opsets: vec![(String::new(), schema::MAX_OPSET)], ..Module::default() };
    let count = schema.inputs.iter().filter(|param| param.kind != ParamKind::Optional).count();
    let mut inputs = Vec::new();
    for (k, param) in schema.inputs.iter().take(count.max(schema.min_inputs)).enumerate() {
        inputs.push(Some(module.graph.add_input(&format!("x{k}"), Type::unranked(ty(param.type_name)?))));
    }
    let mut outputs = Vec::new();
    for (k, param) in schema.outputs.iter().take(schema.min_outputs.max(1)).enumerate() {
        outputs.push(module.graph.add_value(&format!("y{k}"), Type::unranked(ty(param.type_name)?)));
    }
    let mut attrs = Attrs::new();
    for attribute in schema.attributes.iter().filter(|attribute| attribute.required) {
        let value = match attribute.kind {
            AttributeType::Int => Attr::Int(1),
            AttributeType::Float => Attr::Float(1.0),
            AttributeType::Ints => Attr::Ints(vec![1]),
            _ => return None,
        };
        attrs.set(attribute.name, value);
    }
    let op = OpKey::new("", schema.op_type);
    let used = outputs.iter().copied().map(Some);
    module.graph.add_node(Node::new("node", op, schema.since_version, attrs, inputs, used));
    module.graph.set_outputs(outputs);
    Some(module)
}

/// Whether the exporter takes the node, and what ONNX Runtime says of what it writes.
fn verdict(module: &Module) -> Option<Result<u32, String>> {
    let graph = &module.graph;
    let exported = export(ExportRequest {
        name: "case",
        graph,
        symbols: &module.symbols,
        nodes: None,
        inputs: graph.inputs(),
        outputs: graph.outputs(),
        opset: None,
        opsets: &module.opsets,
        weights: &mut |_, _| WeightPlacement::Inline,
    });
    let exported = exported.ok()?;
    let loaded = load(onnxruntime()?, &exported.model);
    Some(loaded.map(|_| exported.opset).map_err(|error| format!("opset {}: {error}", exported.opset)))
}

/// What ONNX Runtime says for want of a kernel. A bare node may lack more: a rank, the value of an attribute.
const NO_KERNEL: [&str; 2] = ["find an implementation", "find kernel"];

/// Its body is made with the ranks of its inputs, which a bare node does not say.
const WANTS_RANKS: &[&str] = &["CausalConvWithState"];

#[test]
fn what_is_exported_loads() {
    if onnxruntime().is_none() {
        return;
    }
    let (mut loaded, mut wrong) = (BTreeMap::<u32, usize>::new(), Vec::new());
    for (domain, op_type) in schema::operators() {
        let Some(&newest) = schema::history(domain, op_type).last() else { continue };
        let Some(schema) = schema::lookup(domain, op_type, newest).filter(|schema| !schema.deprecated) else {
            continue;
        };
        if !domain.is_empty() || WANTS_RANKS.contains(&op_type) {
            continue;
        }
        for &dtype in DType::ALL {
            match node(schema, dtype).as_ref().and_then(verdict) {
                Some(Ok(opset)) => *loaded.entry(opset).or_default() += 1,
                Some(Err(error)) if NO_KERNEL.iter().any(|text| error.contains(text)) => {
                    wrong.push(format!("{op_type} {dtype}: {error}"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{} do not load:\n{}", wrong.len(), wrong.join("\n"));
    // Most at the preferred opset, some below it and some above.
    let preferred = schema::PREFERRED_OPSET;
    assert!(loaded[&preferred] > 500, "{loaded:?}");
    assert!(loaded.range(..preferred).map(|(_, n)| n).sum::<usize>() > 5, "{loaded:?}");
    assert!(loaded.range(preferred + 1..).map(|(_, n)| n).sum::<usize>() > 10, "{loaded:?}");
}

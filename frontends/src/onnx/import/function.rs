//! Local functions, put in place of their calls.

use super::{Frame, Importer};
use std::{collections::HashMap, rc::Rc};
use trtc_ir::{Attrs, Diag, ValueId};
use trtc_onnx::{AttributeProto, AttributeType, FunctionProto, NodeProto, schema};

/// Calls inside of calls.
const DEPTH_LIMIT: usize = 100;
/// Nodes of a model with its functions in place; more are the work of functions that double at each level.
const NODE_LIMIT: usize = 4_000_000;

impl<'a> Importer<'a> {
    /// Indexes the model's functions.
    pub(super) fn collect_functions(&mut self) {
        let file = self.file;
        for function in &file.model.functions {
            let name = function.name.as_deref().unwrap_or("");
            let key = (domain(function.domain.as_deref()), name, function.overload.as_deref().unwrap_or(""));
            if self.functions.insert(key, function).is_some() {
                self.report(Diag::invalid(format!("function `{}` is defined twice", show(function))));
            }
        }
    }

    /// The function that a node calls. Functions that define standard operators are left alone: those are known.
    pub(super) fn called(&self, proto: &NodeProto) -> Option<&'a FunctionProto> {
        let domain = domain(proto.domain.as_deref());
        let op_type = proto.op_type.as_deref().unwrap_or("");
        if domain.is_empty() {
            return None;
        }
        self.functions.get(&(domain, op_type, proto.overload.as_deref().unwrap_or(""))).copied()
    }

    /// Puts a function's nodes in place of its call.
    pub(super) fn call(
        &mut self,
        function: &'a FunctionProto,
        name: &str,
        inputs: &[Option<ValueId>],
        outputs: &[Option<ValueId>],
        given: &[(&'a str, &'a AttributeProto)],
    ) -> Result<(), Diag> {
        if self.calls.iter().any(|&active| std::ptr::eq(active, function)) {
            let chain: Vec<String> =
                self.calls.iter().chain([&function]).map(|f| format!("`{}`", show(f))).collect();
            self.halted = true;
            return Err(Diag::invalid(format!("functions call themselves: {}", chain.join(" -> "))));
        }
        if self.calls.len() >= DEPTH_LIMIT {
            self.halted = true;
            return Err(Diag::invalid(format!("functions call each other more than {DEPTH_LIMIT} deep")));
        }
        self.nodes += function.node.len();
        if self.nodes > NODE_LIMIT {
            self.halted = true;
            return Err(Diag::invalid(format!(
                "the model has more than {NODE_LIMIT} nodes with its functions inlined"
            )));
        }
        for (what, given, known) in [
            ("inputs", inputs.len(), function.input.len()),
            ("outputs", outputs.len(), function.output.len()),
        ] {
            if given > known {
                return Err(Diag::invalid(format!(
                    "{given} {what} are given, function `{}` has {known}",
                    show(function)
                )));
            }
        }
        let bound = bind_attributes(function, given)?;
        let opsets = if function.opset_import.is_empty() {
            self.frames.last().map(|frame| frame.opsets.clone()).unwrap_or_default()
        } else {
            self.imports(&function.opset_import, &show(function))
        };
        let mut values: HashMap<&'a str, Option<ValueId>> = HashMap::new();
        for (slot, input) in function.input.iter().enumerate() {
            values.insert(input, inputs.get(slot).copied().flatten());
        }
        // What the body makes directly becomes the call's output; what it hands through is copied below.
        let mut copies: Vec<(&'a str, ValueId)> = Vec::new();
        for (output, id) in function.output.iter().zip(outputs) {
            let Some(id) = *id else { continue };
            let made = function.node.iter().any(|node| node.output.contains(output));
            if made && !values.contains_key(output.as_str()) {
                values.insert(output, Some(id));
            } else {
                copies.push((output, id));
            }
        }
        let frame = Frame {
            level: self.levels.len().saturating_sub(1),
            values,
            closed: true,
            prefix: format!("{name}/"),
            opsets,
            bound: Rc::new(bound),
        };
        self.calls.push(function);
        self.frames.push(frame);
        let types = self.declared_types(function.value_info.iter(), true);
        self.body(&function.node, &types);
        let mut missing = None;
        for (output, id) in copies {
            match self.resolve(output).flatten() {
                Some(value) => self.copy(value, id, name),
                None => missing = Some(output),
            }
        }
        self.frames.pop();
        self.calls.pop();
        match missing {
            None => Ok(()),
            Some(output) => Err(Diag::invalid(format!(
                "function `{}`: output `{output}` is made by nothing",
                show(function)
            ))),
        }
    }

    /// An Identity node that makes `to`.
    fn copy(&mut self, from: ValueId, to: ValueId, name: &str) {
        let level = self.level();
        let name = level.node_names.unique(&format!("{name}/Identity"));
        let draft = crate::onnx::draft::Draft {
            op: trtc_ir::OpKey::new("", "Identity"),
            since: schema::since_version("", "Identity", schema::MAX_OPSET).unwrap_or(1),
            attrs: Attrs::new(),
            inputs: vec![crate::onnx::draft::Arg::Value(from)],
            outputs: 1,
            wanted: vec![true],
        };
        level.add_draft(&name, draft, &[Some(to)]);
    }
}

/// A function's attributes with what a call, else the function itself, gives.
fn bind_attributes<'a>(
    function: &'a FunctionProto,
    given: &[(&'a str, &'a AttributeProto)],
) -> Result<HashMap<&'a str, &'a AttributeProto>, Diag> {
    let defaults = function.attribute_proto.iter().map(|attr| (attr.name.as_deref().unwrap_or(""), attr));
    let mut bound: HashMap<&str, &AttributeProto> = defaults.collect();
    for &(name, attr) in given {
        if !bound.contains_key(name) && !function.attribute.iter().any(|known| known == name) {
            return Err(
                Diag::invalid(format!("function `{}` has no such attribute", show(function))).slot(name)
            );
        }
        // The subgraph would see the names inside of the function instead of those around the call.
        if matches!(attr.kind(), Some(AttributeType::Graph | AttributeType::Graphs)) {
            return Err(Diag::invalid("a function cannot be given a subgraph").slot(name));
        }
        bound.insert(name, attr);
    }
    Ok(bound)
}

fn domain(domain: Option<&str>) -> &str {
    match domain {
        None | Some("ai.onnx") => "",
        Some(domain) => domain,
    }
}

fn show(function: &FunctionProto) -> String {
    format!("{}.{}", function.domain.as_deref().unwrap_or(""), function.name.as_deref().unwrap_or(""))
}

//! One node: its operator and version, inputs, attributes, and its way to the canonical form.

use super::{Importer, Source, check::check};
use crate::onnx::{
    draft::{Arg, Draft, Upgrade},
    ops,
};
use trtc_ir::{Diag, OpKey, ValueId};
use trtc_onnx::{NodeProto, schema};

impl<'a> Importer<'a> {
    /// Adds a node (or what stands for it) to the graph under construction; `name` is unique in it.
    pub(super) fn node(&mut self, proto: &'a NodeProto, name: &str) {
        if self.halted {
            return;
        }
        let op_type = proto.op_type.as_deref().unwrap_or("");
        let op = OpKey::new(proto.domain.as_deref().unwrap_or(""), op_type);
        let label = self.level().label(name);
        let result = match op_type {
            "" => Err(Diag::invalid("the node has no operator (op_type)")),
            _ => self.checked_node(proto, name, &label, op.clone()),
        };
        if let Err(diag) = result {
            self.report(Diag { node: label, op: op.to_string(), ..diag });
        }
    }

    fn checked_node(&mut self, proto: &'a NodeProto, name: &str, label: &str, op: OpKey) -> Result<(), Diag> {
        let inputs = self.node_inputs(proto)?;
        let mut outputs: Vec<Option<ValueId>> = Vec::with_capacity(proto.output.len());
        for output in &proto.output {
            let declared = self.frames.last().and_then(|frame| frame.values.get(output.as_str()));
            outputs.push(declared.copied().flatten());
        }
        let literals = self.literals(proto);
        if let Some(function) = self.called(proto) {
            return self.call(function, name, &inputs, &outputs, &literals);
        }
        self.nodes += 1;
        let Some(opset) = self.opset(&op) else { return Ok(()) };
        let source = self.sources.len();
        self.sources.push(Source { name: label.to_owned(), op: op.to_string(), nodes: Vec::new() });
        if op.domain.is_empty() && &*op.op_type == "Constant" {
            let tensor = self.constant(&literals)?;
            if let Some(output) = outputs.first().copied().flatten() {
                self.level().set_constant(output, tensor);
            }
            return Ok(());
        }
        let since = self.since(&op, opset)?;
        if let Some(schema) = schema::lookup(&op.domain, &op.op_type, since) {
            check(schema, &literals, &inputs, proto.output.len())?;
        }
        let attrs = self.attrs(&literals, label)?;
        if op.domain.is_empty() && &*op.op_type == "If" {
            // What a branch needs it captures: there is nothing that could feed an input.
            let fed = attrs.graphs().find(|(_, branch)| !branch.inputs().is_empty());
            if let Some((name, branch)) = fed {
                let why = format!("a branch takes no inputs, this one has {}", branch.inputs().len());
                return Err(Diag::invalid(why).slot(name));
            }
        }
        let wanted = outputs.iter().map(Option::is_some).collect();
        let inputs = inputs.into_iter().map(|input| input.map_or(Arg::None, Arg::Value)).collect();
        let draft = Draft { op, since, attrs, inputs, outputs: proto.output.len(), wanted };
        let level = self.level();
        let mut cx = Upgrade { level, name: name.to_owned(), added: Vec::new(), outputs };
        let draft = ops::upgrade(&mut cx, draft)?;
        let (last, mut added, mut outputs) = (cx.name, cx.added, cx.outputs);
        // Rules drop outputs at the end only.
        outputs.truncate(draft.wanted.len());
        level.add_draft(&last, draft, &outputs);
        added.push(last);
        added.sort_by_key(|added| added != name);
        let labels = added.iter().map(|name| level.label(name)).collect();
        self.sources[source].nodes = labels;
        Ok(())
    }

    fn node_inputs(&mut self, proto: &'a NodeProto) -> Result<Vec<Option<ValueId>>, Diag> {
        let mut inputs = Vec::with_capacity(proto.input.len());
        for (slot, input) in proto.input.iter().enumerate() {
            inputs.push(match input.as_str() {
                "" => None,
                name => self
                    .resolve(name)
                    .ok_or_else(|| Diag::invalid(format!("input {slot} `{name}` is made by nothing")))?,
            });
        }
        Ok(inputs)
    }

    /// Version of the operator set that a node's operator is from. A known domain that nobody imports is taken at its newest version, as
    /// ONNX Runtime does; a missing import of another one is reported, once.
    fn opset(&mut self, op: &OpKey) -> Option<u32> {
        if let Some(opset) = self.frames.last().and_then(|frame| frame.opsets.get(&*op.domain).copied()) {
            return Some(opset);
        }
        let newest = match &*op.domain {
            "" => Some(schema::MAX_OPSET),
            _ => schema::history(&op.domain, &op.op_type).last().copied(),
        };
        if newest.is_none() && self.unversioned.insert(op.domain.to_string()) {
            let why =
                format!("operator {op} is used, but no operator set of domain `{}` is imported", op.domain);
            self.report(self.graph_diag(why));
        }
        newest
    }

    fn since(&self, op: &OpKey, opset: u32) -> Result<u32, Diag> {
        let history = schema::history(&op.domain, &op.op_type);
        // ONNX Runtime had it, in this form and domain, before ONNX did.
        if op.domain.is_empty() && &*op.op_type == "LayerNormalization" {
            return Ok(history
                .iter()
                .rev()
                .find(|&&version| version <= opset)
                .or(history.first())
                .copied()
                .unwrap_or(opset));
        }
        match (schema::since_version(&op.domain, &op.op_type, opset), history.first()) {
            (Some(since), _) => Ok(since),
            (None, Some(first)) => Err(Diag::invalid(format!(
                "the operator exists since opset {first}, the model imports opset {opset}"
            ))),
            (None, None) if ops::is_experimental(op) => Ok(1),
            (None, None) => Ok(opset),
        }
    }
}

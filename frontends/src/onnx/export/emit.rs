//! The messages of a planned export.

use super::{
    ExportError, ExportRequest, Exported, INLINE_BYTES, INLINE_SHAPE_BYTES, WeightPlacement,
    names::ValueNames,
    plan::{Plan, Run, draft_of, run, wide},
    proto::{attribute, byte_count, inline, is_shape_like, type_proto, value_info},
    repair::Repair,
};
use crate::onnx::{
    draft::{Arg, Draft, Names},
    ops,
};
use std::collections::{HashMap, HashSet};
use trtc_bundle::DType;
use trtc_ir::{Attr, Graph, Node, NodeId, Symbols, Tensor, ValueId};
use trtc_onnx::{
    AttributeProto, AttributeType, GraphProto, ModelProto, NodeProto, TensorProto,
    schema::{self, ParamKind},
    write::{IR_VERSION, attr_i, node as node_proto, opset_import},
};

pub(super) fn emit(
    request: ExportRequest<'_>,
    order: &[NodeId],
    plan: Plan,
) -> Result<Exported, ExportError> {
    let ExportRequest { name, graph, symbols, inputs, outputs, weights, .. } = request;
    let mut emitter =
        Emitter { opset: plan.opset, names: Names::default(), symbols, weights, widened: Vec::new() };
    let mut body = Body::default();
    // Names of inputs and outputs are the caller's; they are taken before any other.
    let mut input_names = Vec::new();
    for &id in inputs {
        let known = body.made.contains(&id);
        let name = body.names.get(graph, id, &mut emitter.names);
        if !known {
            if type_proto(&graph[id].ty, Some(symbols)).is_none() {
                return Err(ExportError::UntypedInput { value: name });
            }
            body.made.insert(id);
            body.proto.input.push(value_info(&name, &graph[id].ty, Some(symbols)));
        }
        input_names.push(name);
    }
    let mut output_names: Vec<String> = Vec::new();
    let mut copies: Vec<(ValueId, String)> = Vec::new();
    let mut wanted: HashSet<ValueId> = HashSet::new();
    for &id in outputs {
        let twice = !wanted.insert(id);
        let name = if twice || body.made.contains(&id) || graph[id].constant.is_some() {
            let hint = if twice || body.made.contains(&id) {
                format!("{}/copy", graph[id].name)
            } else {
                graph[id].name.to_string()
            };
            let name = emitter.names.unique(&hint);
            copies.push((id, name.clone()));
            name
        } else {
            body.names.get(graph, id, &mut emitter.names)
        };
        body.proto.output.push(value_info(&name, &graph[id].ty, Some(symbols)));
        output_names.push(name);
    }
    for &id in order {
        emitter.node(graph, &graph[id], &graph[id].name.clone(), &mut body)?;
    }
    for (id, name) in copies {
        let source = emitter.used(graph, id, "", &mut body)?;
        body.proto.node.push(node_proto("Identity", &[&source], &[&name], []));
    }
    for &id in outputs {
        emitter.used(graph, id, "", &mut body)?;
    }
    body.proto.name = Some(if name.is_empty() { "graph".to_owned() } else { name.to_owned() });
    let others = plan.others.iter().map(|(domain, version)| opset_import(domain, i64::from(*version)));
    let model = ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: Some("trtc".to_owned()),
        opset_import: std::iter::once(opset_import("", i64::from(plan.opset))).chain(others).collect(),
        graph: Some(body.proto),
        ..ModelProto::default()
    };
    Ok(Exported {
        model,
        opset: plan.opset,
        inputs: input_names,
        outputs: output_names,
        widened: emitter.widened,
    })
}

struct Emitter<'a> {
    opset: u32,
    names: Names,
    symbols: &'a Symbols,
    weights: &'a mut dyn FnMut(&Tensor, &str) -> WeightPlacement,
    widened: Vec<String>,
}

/// A graph that is being written.
#[derive(Default)]
struct Body {
    proto: GraphProto,
    names: ValueNames,
    /// Values that exist: inputs, captures, outputs of nodes, initializers.
    made: HashSet<ValueId>,
    /// Copies of narrow values in a wider type.
    wide: HashMap<(ValueId, DType), String>,
}

impl Emitter<'_> {
    /// Name of a value that is read; a constant becomes an initializer on its first use.
    fn used(
        &mut self,
        graph: &Graph,
        id: ValueId,
        node: &str,
        body: &mut Body,
    ) -> Result<String, ExportError> {
        let name = body.names.get(graph, id, &mut self.names);
        if !body.made.contains(&id) {
            let Some(tensor) = &graph[id].constant else {
                let value = graph[id].name.to_string();
                return Err(ExportError::MissingInput { node: node.to_owned(), value });
            };
            body.made.insert(id);
            let initializer = self.initializer(tensor, &name);
            body.proto.initializer.push(initializer);
        }
        Ok(name)
    }

    fn initializer(&mut self, tensor: &Tensor, name: &str) -> TensorProto {
        let bytes = byte_count(tensor);
        let small = bytes <= INLINE_BYTES || (bytes <= INLINE_SHAPE_BYTES && is_shape_like(tensor));
        if small || tensor.bytes().is_none() {
            return inline(name, tensor);
        }
        match (self.weights)(tensor, name) {
            WeightPlacement::Inline => inline(name, tensor),
            WeightPlacement::External { location, offset, length } => {
                TensorProto::external(name, tensor.dtype(), tensor.dims(), &location, offset, length)
            }
        }
    }

    /// Writes a node in the form of the chosen opset.
    fn node(&mut self, graph: &Graph, node: &Node, path: &str, body: &mut Body) -> Result<(), ExportError> {
        let draft = draft_of(node);
        let version = match &*node.op.domain {
            "" => schema::since_version("", &node.op.op_type, self.opset).unwrap_or(node.since_version),
            _ => node.since_version,
        };
        let no_kernel = || ExportError::Conflict { nodes: Vec::new(), names: vec![path.to_owned()] };
        let known = !schema::history(&node.op.domain, &node.op.op_type).is_empty();
        let draft =
            if known { ops::downgrade(graph, &draft, version).map_err(|_| no_kernel())? } else { draft };
        let widen = run(graph, node, version) == Run::Widened;
        if widen {
            self.widened.push(path.to_owned());
        }
        let mut proto = NodeProto {
            name: Some(node.name.to_string()),
            op_type: Some(draft.op.op_type.to_string()),
            domain: (!draft.op.domain.is_empty()).then(|| draft.op.domain.to_string()),
            ..NodeProto::default()
        };
        for arg in &draft.inputs {
            let name = match arg {
                Arg::None => String::new(),
                Arg::Value(id) => {
                    let dtype = graph[*id].ty.dtype().filter(|_| widen);
                    match dtype.and_then(|dtype| wide(&node.op.op_type, dtype)) {
                        Some(to) => self.widened_input(graph, *id, to, path, body)?,
                        None => self.used(graph, *id, path, body)?,
                    }
                }
                Arg::Const(tensor) => {
                    let name = self.names.unique(&format!("{}/constant", node.name));
                    body.proto.initializer.push(inline(&name, tensor));
                    name
                }
            };
            proto.input.push(name);
        }
        for (name, attr) in draft.attrs.iter() {
            let attr = self.attr(graph, node, name, attr, widen, path, body)?;
            proto.attribute.push(attr);
        }
        self.outputs(graph, node, &draft, proto, widen, body);
        Ok(())
    }

    fn outputs(
        &mut self,
        graph: &Graph,
        node: &Node,
        draft: &Draft,
        mut proto: NodeProto,
        widen: bool,
        body: &mut Body,
    ) {
        let mut casts = Vec::new();
        let schema = schema::in_force(&draft.op.domain, &draft.op.op_type, draft.since);
        let has_past = has_past(node);
        for (slot, output) in node.outputs().iter().enumerate() {
            let Some(id) = *output else {
                // ONNX Runtime trips over an output that is not there unless its schema calls it optional.
                let formal = schema.and_then(|schema| schema.output(slot));
                let optional = formal.is_none_or(|param| param.kind == ParamKind::Optional) && !has_past;
                proto.output.push(match optional {
                    true => String::new(),
                    false => self.names.unique(&format!("{}/unused", node.name)),
                });
                continue;
            };
            let name = body.names.get(graph, id, &mut self.names);
            body.made.insert(id);
            let dtype = graph[id].ty.dtype();
            match dtype.filter(|&dtype| widen && wide(&node.op.op_type, dtype).is_some()) {
                None => proto.output.push(name),
                Some(dtype) => {
                    // Rounded to its type before anybody reads it.
                    let wide = self.names.unique(&format!("{name}/unrounded"));
                    casts.push(cast(&wide, &name, dtype));
                    proto.output.push(wide);
                }
            }
        }
        let least = schema.map_or(0, |schema| schema.min_outputs);
        let count = draft.outputs.max(least).max(if has_past { 3 } else { 0 });
        while proto.output.len() < count {
            proto.output.push(self.names.unique(&format!("{}/unused", node.name)));
        }
        let initializers = &mut body.proto.initializer;
        let mut repair = Repair { graph, node, widened: widen, names: &mut self.names, initializers };
        let nodes = repair.nodes(proto);
        body.proto.node.extend(nodes);
        body.proto.node.append(&mut casts);
    }

    /// The copy of a narrow value in a wider type.
    fn widened_input(
        &mut self,
        graph: &Graph,
        id: ValueId,
        to: DType,
        node: &str,
        body: &mut Body,
    ) -> Result<String, ExportError> {
        let name = self.used(graph, id, node, body)?;
        if let Some(wide) = body.wide.get(&(id, to)) {
            return Ok(wide.clone());
        }
        let wide = self.names.unique(&format!("{name}/{to}"));
        body.proto.node.push(cast(&name, &wide, to));
        body.wide.insert((id, to), wide.clone());
        Ok(wide)
    }

    #[allow(clippy::too_many_arguments, reason = "one call site")]
    fn attr(
        &mut self,
        graph: &Graph,
        node: &Node,
        name: &str,
        attr: &Attr,
        widen: bool,
        path: &str,
        body: &mut Body,
    ) -> Result<AttributeProto, ExportError> {
        let mut proto = attribute(name, attr);
        match node.attrs.get(name) {
            Some(Attr::Graph(subgraph)) => {
                let written = self.subgraph(graph, node, subgraph, &format!("{path}/{name}"), body)?;
                proto.g = Some(Box::new(written));
            }
            Some(Attr::Graphs(subgraphs)) => {
                for subgraph in subgraphs {
                    let written = self.subgraph(graph, node, subgraph, &format!("{path}/{name}"), body)?;
                    proto.graphs.push(written);
                }
            }
            // The type of an output that is computed in a wider one after all.
            Some(Attr::Int(number)) if widen && (name.ends_with("dtype") || name == "output_datatype") => {
                let dtype = i32::try_from(*number).ok().and_then(DType::from_onnx);
                if let Some(to) = dtype.and_then(|dtype| wide(&node.op.op_type, dtype)) {
                    proto.i = Some(to.onnx().into());
                }
            }
            _ => {}
        }
        debug_assert_ne!(proto.r#type, Some(AttributeType::Undefined as i32));
        Ok(proto)
    }

    fn subgraph(
        &mut self,
        outer: &Graph,
        owner: &Node,
        graph: &Graph,
        path: &str,
        around: &mut Body,
    ) -> Result<GraphProto, ExportError> {
        let mut body = Body::default();
        let mut captured = Vec::new();
        for capture in &graph.captures {
            let name = self.used(outer, capture.outer, path, around)?;
            body.names.set(capture.inner, name.clone());
            body.made.insert(capture.inner);
            captured.push(name);
        }
        // Operators of other domains (BeamSearch) look at the names and shapes of what goes in and out.
        let foreign = !owner.op.domain.is_empty();
        let around_names = foreign.then(|| {
            let mut names = Names::default();
            for name in &captured {
                names.take(name);
            }
            std::mem::replace(&mut self.names, names)
        });
        let result = self.subgraph_body(owner, graph, path, body);
        if let Some(names) = around_names {
            self.names = names;
        }
        result
    }

    fn subgraph_body(
        &mut self,
        owner: &Node,
        graph: &Graph,
        path: &str,
        mut body: Body,
    ) -> Result<GraphProto, ExportError> {
        let foreign = !owner.op.domain.is_empty();
        // Elsewhere sizes may change from one iteration to the next, except for Loop's counter and condition.
        let fixed_inputs = if &*owner.op.op_type == "Loop" { 2 } else { 0 };
        let symbols = self.symbols;
        let mut fixed: HashSet<ValueId> = body.made.clone();
        for (slot, &id) in graph.inputs().iter().enumerate() {
            let name = body.names.get(graph, id, &mut self.names);
            body.made.insert(id);
            fixed.insert(id);
            let shaped = foreign || slot < fixed_inputs;
            body.proto.input.push(value_info(&name, &graph[id].ty, shaped.then_some(symbols)));
        }
        let order = graph.topo_order().map_err(|cycle| ExportError::Cycle {
            names: cycle.iter().map(|&id| format!("{path}/{}", graph[id].name)).collect(),
        })?;
        for id in order {
            self.node(graph, &graph[id], &format!("{path}/{}", graph[id].name), &mut body)?;
        }
        // What a Loop collects has one shape in every iteration, and in none.
        let carried =
            if &*owner.op.op_type == "Loop" { graph.inputs().len().saturating_sub(1) } else { usize::MAX };
        for (slot, &id) in graph.outputs().iter().enumerate() {
            let source = self.used(graph, id, path, &mut body)?;
            // An output must be made inside, and once.
            let name = if !fixed.insert(id) || graph[id].constant.is_some() {
                let name = self.names.unique(&format!("{source}/copy"));
                body.proto.node.push(node_proto("Identity", &[&source], &[&name], []));
                name
            } else {
                source
            };
            let shaped = foreign || slot >= carried;
            body.proto.output.push(value_info(&name, &graph[id].ty, shaped.then_some(symbols)));
        }
        body.proto.name = Some(if graph.name.is_empty() { "body".to_owned() } else { graph.name.clone() });
        Ok(body.proto)
    }
}

/// Whether a node attends to a past. ONNX Runtime's kernels put it in front of the new keys where they make the presents,
/// and nowhere else.
fn has_past(node: &Node) -> bool {
    let slot = match (&*node.op.domain, &*node.op.op_type) {
        ("", "Attention") => 4,
        ("com.microsoft", "MultiHeadAttention") => 6,
        _ => return false,
    };
    node.inputs().get(slot).is_some_and(Option::is_some)
}

fn cast(from: &str, to: &str, dtype: DType) -> NodeProto {
    node_proto("Cast", &[from], &[to], [attr_i("to", dtype.onnx().into())])
}

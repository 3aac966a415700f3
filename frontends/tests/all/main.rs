//! Import and export of ONNX models, against what ONNX's specification says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod downgrade;
mod export;
mod functions;
mod invalid;
mod repair;
mod subgraphs;
mod upgrade;
mod values;

use trtc_frontends::onnx::{Imported, import};
use trtc_ir::{Attr, Diag, Graph, Symbols, TensorData, ValueId};
use trtc_onnx::{GraphProto, ModelProto, NodeProto, OnnxFile, TensorProto, ValueInfoProto, write};

fn try_import(model: &ModelProto) -> Result<Imported, Vec<Diag>> {
    import(&OnnxFile::from_bytes(write::encode(model).unwrap(), None).unwrap())
}

fn imported(model: &ModelProto) -> Imported {
    try_import(model).unwrap_or_else(|diags| panic!("{}", diags[0]))
}

/// A model of nodes from the f32 inputs `x` [2,3,4] (and others given) to the outputs named.
fn model(
    opset: i64,
    nodes: Vec<NodeProto>,
    inputs: Vec<ValueInfoProto>,
    outputs: &[&str],
    initializers: Vec<TensorProto>,
) -> ModelProto {
    let outputs =
        outputs.iter().map(|name| ValueInfoProto { name: Some((*name).to_owned()), ..Default::default() });
    write::model(opset, write::graph("g", nodes, inputs, outputs, initializers))
}

/// Nodes of a graph, one a line: `y = Squeeze-25(x, [0, 2]) {axis=1}`. Constants are written by value.
fn show(graph: &Graph) -> Vec<String> {
    let order = graph.topo_order().unwrap();
    order
        .into_iter()
        .map(|id| {
            let node = &graph[id];
            let list = |ids: &[Option<ValueId>]| -> String {
                let shown: Vec<String> =
                    ids.iter().map(|id| id.map_or("_".to_owned(), |id| show_value(graph, id))).collect();
                shown.join(", ")
            };
            let attrs: Vec<String> =
                node.attrs.iter().map(|(name, attr)| format!("{name}={}", show_attr(attr))).collect();
            let attrs = if attrs.is_empty() { String::new() } else { format!(" {{{}}}", attrs.join(" ")) };
            let (made, used) = (list(node.outputs()), list(node.inputs()));
            format!("{made} = {}-{}({used}){attrs}", node.op, node.since_version)
        })
        .collect()
}

fn show_value(graph: &Graph, id: ValueId) -> String {
    match &graph[id].constant {
        Some(tensor) if graph.captures.iter().all(|capture| capture.inner != id) => {
            if let Some(values) = tensor.to_i64s() {
                return if tensor.dims().is_empty() {
                    format!("{}", values[0])
                } else {
                    format!("{values:?}")
                };
            }
            match (tensor.to_f64s(), tensor.data()) {
                (Some(values), _) if tensor.dims().is_empty() => format!("{:?}", values[0]),
                (Some(values), _) => format!("{values:?}"),
                (None, TensorData::Strings(strings)) => format!("{strings:?}"),
                (None, _) => format!("{}{:?}", tensor.dtype(), tensor.dims()),
            }
        }
        _ => graph[id].name.to_string(),
    }
}

fn show_attr(attr: &Attr) -> String {
    match attr {
        Attr::Int(value) => value.to_string(),
        Attr::Float(value) => format!("{value:?}"),
        Attr::Str(value) => String::from_utf8_lossy(value).into_owned(),
        Attr::Ints(values) => format!("{values:?}"),
        Attr::Floats(values) => format!("{values:?}"),
        Attr::Graph(graph) => format!("[{}]", show(graph).join("; ")),
        other => format!("{other:?}"),
    }
}

fn type_of(graph: &Graph, symbols: &Symbols, name: &str) -> String {
    graph[value(graph, name)].ty.show(symbols)
}

fn value(graph: &Graph, name: &str) -> ValueId {
    graph.value_ids().find(|&id| &*graph[id].name == name).unwrap_or_else(|| panic!("no value {name}"))
}

fn graph_of(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().unwrap()
}

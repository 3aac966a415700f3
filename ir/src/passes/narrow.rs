//! f64 as f32: what `--allow-f64-as-f32` asks for, since engines have no f64.
//!
//! Every f64 value becomes f32. Graph inputs and outputs keep their f64: a Cast stands between. Not part of
//! [`super::run_all`]; run before it, so that constants fold in the narrow type.

use crate::{
    attr::{Attr, Attrs},
    graph::{Graph, Module, Node, OpKey, ValueId},
    tensor::Tensor,
    types::Type,
};
use trtc_bundle::DType;

/// Computes f64 in f32 throughout the module; `true` when there was any. O(values + bytes of f64 constants).
pub fn run(module: &mut Module) -> bool {
    let graph = &mut module.graph;
    let is_wide = |graph: &Graph, id: ValueId| narrow_type(&mut graph[id].ty.clone());
    let wide_inputs: Vec<ValueId> =
        graph.inputs().iter().copied().filter(|&input| is_wide(graph, input)).collect();
    let wide_outputs: Vec<ValueId> = graph
        .outputs()
        .iter()
        .copied()
        .filter(|&output| is_wide(graph, output) && !wide_inputs.contains(&output))
        .collect();
    let mut changed = false;
    narrow_graph(graph, &mut changed);
    for input in wide_inputs {
        let name = format!("{}/f32", graph[input].name);
        let ty = graph[input].ty.clone();
        let narrow = graph.add_value(&name, ty);
        graph.replace_uses(input, narrow);
        // An output that was the input itself stays the input.
        let outputs = graph.outputs().iter().map(|&o| if o == narrow { input } else { o }).collect();
        graph.set_outputs(outputs);
        widen_type(&mut graph[input].ty);
        graph.add_node(cast(&name, input, narrow, DType::F32));
    }
    let mut outputs = graph.outputs().to_vec();
    for output in wide_outputs {
        // The name that is seen outside goes to the widened value.
        let name = graph[output].name.clone();
        graph[output].name = format!("{name}/f32").into();
        let mut ty = graph[output].ty.clone();
        widen_type(&mut ty);
        let wide = graph.add_value(&name, ty);
        outputs.iter_mut().filter(|o| **o == output).for_each(|o| *o = wide);
        graph.add_node(cast(&format!("{name}/f64"), output, wide, DType::F64));
    }
    graph.set_outputs(outputs);
    changed
}

fn narrow_graph(graph: &mut Graph, changed: &mut bool) {
    for id in graph.value_ids() {
        if let Some(tensor) = graph[id].constant.as_ref().and_then(narrow_tensor) {
            graph.set_constant(id, tensor);
            *changed = true;
        }
        *changed |= narrow_type(&mut graph[id].ty);
    }
    let nodes: Vec<_> = graph.node_ids().collect();
    for id in nodes {
        let Some(node) = graph.node_mut(id) else { continue };
        for (name, attr) in node.attrs.iter_mut() {
            match attr {
                Attr::Int(dtype) if *dtype == i64::from(DType::F64.onnx()) && DTYPE_ATTRS.contains(&name) => {
                    *dtype = DType::F32.onnx().into();
                    *changed = true;
                }
                Attr::Tensor(tensor) => {
                    if let Some(narrow) = narrow_tensor(tensor) {
                        *tensor = narrow;
                        *changed = true;
                    }
                }
                _ => {}
            }
        }
        for (_, body) in node.attrs.graphs_mut() {
            narrow_graph(body, changed);
        }
    }
}

/// Canonical version of Cast.
const CAST_VERSION: u32 = 28;

/// Attributes that hold a dtype's number.
const DTYPE_ATTRS: &[&str] = &["to", "dtype", "output_dtype", "output_datatype", "stash_type"];

fn cast(name: &str, from: ValueId, to: ValueId, dtype: DType) -> Node {
    let mut attrs = Attrs::new();
    attrs.set("to", Attr::Int(dtype.onnx().into()));
    Node::new(name, OpKey::new("", "Cast"), CAST_VERSION, attrs, [Some(from)], [Some(to)])
}

fn narrow_tensor(tensor: &Tensor) -> Option<Tensor> {
    if tensor.dtype() != DType::F64 {
        return None;
    }
    let values: Vec<f32> = tensor.to_f64s()?.into_iter().map(|v| v as f32).collect();
    Tensor::from_f32s(tensor.dims().to_vec(), &values)
}

/// `true` when the type was f64.
fn narrow_type(ty: &mut Type) -> bool {
    match ty {
        Type::Tensor(tensor) if tensor.dtype == Some(DType::F64) => {
            tensor.dtype = Some(DType::F32);
            true
        }
        Type::Sequence(inner) | Type::Optional(inner) => narrow_type(inner),
        _ => false,
    }
}

fn widen_type(ty: &mut Type) {
    match ty {
        Type::Tensor(tensor) => tensor.dtype = Some(DType::F64),
        Type::Sequence(inner) | Type::Optional(inner) => widen_type(inner),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dim, symbols::Symbols};

    #[test]
    fn inputs_and_outputs_keep_f64() {
        let mut module = Module::default();
        let f64s = || Type::tensor(DType::F64, vec![Dim::Known(2)]);
        let graph = &mut module.graph;
        let x = graph.add_input("x", f64s());
        let bytes: Vec<u8> = [1.5f64, 2.5].iter().flat_map(|v| v.to_le_bytes()).collect();
        let w = graph.add_constant("w", Tensor::new(DType::F64, vec![2], bytes.into()).unwrap());
        let y = graph.add_value("y", f64s());
        let add = Node::new("add", OpKey::new("", "Add"), 14, Attrs::new(), [Some(x), Some(w)], [Some(y)]);
        let add = graph.add_node(add);
        graph.add_output(y);
        assert!(run(&mut module));
        let graph = &module.graph;
        assert_eq!(graph[w].constant.as_ref().unwrap().to_f64s(), Some(vec![1.5, 2.5]));
        assert_eq!(graph[w].ty.dtype(), Some(DType::F32));
        let sum = graph[add].output(0).unwrap();
        assert_eq!((&*graph[sum].name, graph[sum].ty.dtype()), ("y/f32", Some(DType::F32)));
        let out = graph.outputs()[0];
        assert_eq!((&*graph[out].name, graph[out].ty.show(&Symbols::default())), ("y", "f64[2]".to_owned()));
        let read = graph[add].input(0).unwrap();
        assert_eq!(graph[read].ty.dtype(), Some(DType::F32));
        assert_eq!(graph[graph.inputs()[0]].ty.dtype(), Some(DType::F64));
        let ops: Vec<_> = graph.node_ids().map(|id| graph[id].op.to_string()).collect();
        assert_eq!(ops, ["Add", "Cast", "Cast"]);
        assert!(!run(&mut Module::default()));
    }
}

//! Sizes that were taken from what the model declares, as a graph that computes them from the inputs: a run compares.
//!
//! Each node whose result has such a size is copied, without its data: what is only moved about or computed with is
//! zeros of the same dims. The integers that its sizes follow from are computed as in the model.

use std::collections::{HashMap, HashSet};
use trtc_bundle::DType;
use trtc_frontends::onnx::export::{ExportRequest, WeightPlacement, export};
use trtc_ir::{
    Attr, Attrs, Graph, Module, Node, NodeId, OpKey, Tensor, Type, ValueId, infer::Declared,
    tensor::element_count,
};

/// What a run checks before it starts.
#[derive(Debug)]
pub(crate) struct SizeCheck {
    /// A graph from inputs of the model to the dims of each of [`SizeCheck::sizes`], i64.
    pub module: Module,
    /// What is expected of each output of the graph.
    pub sizes: Vec<Size>,
}

/// A value whose dims the model declares.
#[derive(Debug)]
pub(crate) struct Size {
    /// Its name.
    pub value: String,
    /// Its dims; `None` for those that are not declared.
    pub dims: Vec<Option<i64>>,
    /// Inputs of the model that they follow from.
    pub inputs: Vec<String>,
}

/// The check of everything in [`Module::declared`] of `prepared`. `before` is the module before the passes. `Ok(None)` where
/// nothing is to be checked.
///
/// # Errors
/// Something cannot be checked so.
pub(crate) fn size_check(before: &Module, prepared: &Module) -> Result<Option<SizeCheck>, ()> {
    if prepared.declared.is_empty() {
        return Ok(None);
    }
    let named = |graph: &Graph, id: NodeId| (graph[id].name.to_string(), id);
    let nodes: HashMap<String, NodeId> = before.graph.node_ids().map(|id| named(&before.graph, id)).collect();
    let constants = prepared.graph.value_ids().filter_map(|id| {
        let value = &prepared.graph[id];
        Some((value.name.to_string(), value.constant.clone()?))
    });
    let mut copy = Copy {
        from: &before.graph,
        constants: constants.collect(),
        to: Graph::new("sizes"),
        made: HashMap::new(),
        inputs: Vec::new(),
        count: 0,
    };
    let mut sizes = Vec::new();
    for ((name, slot), declared) in &prepared.declared {
        let node = *nodes.get(&**name).ok_or(())?;
        sizes.push(copy.size(node, *slot, declared).ok_or(())?);
    }
    let mut module = Module {
        graph: copy.to,
        symbols: before.symbols.clone(),
        opsets: before.opsets.clone(),
        ..Module::default()
    };
    module.graph.set_inputs(copy.inputs.iter().map(|(_, id)| *id).collect());
    let mut placed = |_: &Tensor, _: &str| WeightPlacement::Inline;
    export(request(&module, &mut placed)).map_err(drop)?;
    Ok(Some(SizeCheck { module, sizes }))
}

/// How the graph of a check is written.
pub(crate) fn request<'a>(
    module: &'a Module,
    weights: &'a mut dyn FnMut(&Tensor, &str) -> WeightPlacement,
) -> ExportRequest<'a> {
    let graph = &module.graph;
    ExportRequest {
        name: "sizes",
        graph,
        symbols: &module.symbols,
        nodes: None,
        inputs: graph.inputs(),
        outputs: graph.outputs(),
        opset: None,
        opsets: &module.opsets,
        weights,
    }
}

/// Operators whose sizes follow from floats.
const OF_FLOATS: [&str; 5] = ["Resize", "Upsample", "OneHot", "Range", "MelWeightMatrix"];
/// Most nodes of a check.
const MOST_NODES: usize = 1000;
/// Zeros of more bytes are made by the graph.
const SMALL_BYTES: usize = 1024;

struct Copy<'a> {
    from: &'a Graph,
    /// What the passes found out, by name.
    constants: HashMap<String, Tensor>,
    to: Graph,
    made: HashMap<ValueId, ValueId>,
    /// Inputs that are used: in `from`, and in `to`.
    inputs: Vec<(ValueId, ValueId)>,
    count: usize,
}

impl Copy<'_> {
    /// Adds the dims of an output of a node; `None` when they cannot be had.
    fn size(&mut self, node: NodeId, slot: usize, declared: &Declared) -> Option<Size> {
        let from = self.from;
        let has_bodies = from[node].attrs.graphs().next().is_some();
        // The sizes of a reduction are those of a sum, which takes empty tensors whatever their elements are.
        let is_reduction = from[node].op.op_type.starts_with("Reduce") && from[node].op.domain.is_empty();
        let is_zeros = |k: usize| is_reduction && k == 0;
        let op = (is_reduction && declared.inputs.first().is_some_and(Option::is_some))
            .then(|| (OpKey::new("", "ReduceSum"), 13));
        let mut inputs = Vec::new();
        let mut operands: Vec<ValueId> = Vec::new();
        for (k, input) in from[node].inputs().iter().enumerate() {
            let Some(input) = *input else {
                inputs.push(None);
                continue;
            };
            let known = declared.inputs.get(k).and_then(Option::as_ref);
            let made = match known {
                Some((_, dims)) if is_zeros(k) => self.zeros(DType::F32, dims)?,
                Some((dtype, dims)) if !has_bodies && !self.is_size(node, input, *dtype, dims.len()) => {
                    self.zeros(*dtype, dims)?
                }
                _ => {
                    operands.push(input);
                    self.value(input)?
                }
            };
            inputs.push(Some(made));
        }
        operands.extend(from[node].captured());
        let outputs = self.copy(node, inputs, op)?;
        let y = *outputs.get(slot)?.as_ref()?;
        self.count += 1;
        let dims = self.to.add_value(
            &format!("dims_{}", self.count),
            Type::tensor(DType::I64, vec![(declared.dims.len() as i64).into()]),
        );
        self.add("Shape", 25, Attrs::new(), [Some(y)], [Some(dims)]);
        self.to.add_output(dims);
        Some(Size {
            value: from[from[node].output(slot)?].name.to_string(),
            dims: declared.dims.clone(),
            inputs: self.sources(operands),
        })
    }

    /// Whether sizes of the result may follow from an input's value.
    fn is_size(&self, node: NodeId, input: ValueId, dtype: DType, rank: usize) -> bool {
        let is_at_hand = self.from[input].constant.is_some() || self.from.inputs().contains(&input);
        rank <= 1
            && match dtype {
                DType::I32 | DType::I64 | DType::Bool => true,
                _ => OF_FLOATS.contains(&&*self.from[node].op.op_type) || (rank == 0 && is_at_hand),
            }
    }

    /// A value as the model computes it.
    fn value(&mut self, id: ValueId) -> Option<ValueId> {
        if let Some(&made) = self.made.get(&id) {
            return Some(made);
        }
        let value = &self.from[id];
        let constant = value.constant.clone().or_else(|| self.constants.get(&*value.name).cloned());
        let is_input = self.from.inputs().contains(&id);
        let made = if is_input {
            let made = self.to.add_value(&value.name, value.ty.clone());
            self.inputs.push((id, made));
            made
        } else if let Some(tensor) = constant {
            self.count += 1;
            self.to.add_constant(&format!("constant_{}", self.count), tensor)
        } else {
            let (node, slot) = value.producer()?;
            let inputs = self.from[node].inputs().to_vec();
            let inputs = inputs
                .into_iter()
                .map(|input| input.map_or(Some(None), |input| self.value(input).map(Some)))
                .collect::<Option<Vec<_>>>()?;
            let outputs = self.copy(node, inputs, None)?;
            for (from, to) in self.from[node].outputs().to_vec().into_iter().zip(&outputs) {
                if let (Some(from), Some(to)) = (from, to) {
                    self.made.insert(from, *to);
                }
            }
            *outputs.get(slot)?.as_ref()?
        };
        self.made.insert(id, made);
        Some(made)
    }

    /// A copy of a node with other inputs, and perhaps of another operator; its outputs.
    fn copy(
        &mut self,
        id: NodeId,
        inputs: Vec<Option<ValueId>>,
        op: Option<(OpKey, u32)>,
    ) -> Option<Vec<Option<ValueId>>> {
        self.count += 1;
        if self.count > MOST_NODES {
            return None;
        }
        let node = &self.from[id];
        let mut attrs = node.attrs.clone();
        let captured: HashMap<ValueId, ValueId> =
            node.captured().iter().map(|&outer| Some((outer, self.value(outer)?))).collect::<Option<_>>()?;
        for (_, body) in attrs.graphs_mut() {
            for capture in &mut body.captures {
                capture.outer = *captured.get(&capture.outer)?;
            }
        }
        let at = self.count;
        let outputs: Vec<Option<ValueId>> = node
            .outputs()
            .iter()
            .enumerate()
            .map(|(slot, output)| {
                // The dims that the model declares are what is in question.
                let dtype = match &op {
                    Some(_) => Some(DType::F32),
                    None => self.from[(*output)?].ty.dtype(),
                };
                let ty = dtype.map_or(Type::Unknown, Type::unranked);
                Some(self.to.add_value(&format!("value_{at}_{slot}"), ty))
            })
            .collect();
        let (op, version) = op.unwrap_or_else(|| (node.op.clone(), node.since_version));
        let name = format!("{}/{at}", node.name);
        self.to.add_node(Node::new(&name, op, version, attrs, inputs, outputs.iter().copied()));
        Some(outputs)
    }

    /// Zeros in the place of data.
    fn zeros(&mut self, dtype: DType, dims: &[i64]) -> Option<ValueId> {
        self.count += 1;
        let name = format!("zeros_{}", self.count);
        let bytes = dtype.bytes_for(element_count(dims)?).filter(|_| dtype != DType::Str)?;
        if bytes <= SMALL_BYTES {
            return Some(
                self.to.add_constant(&name, Tensor::new(dtype, dims.to_vec(), vec![0; bytes].into())?),
            );
        }
        let zero = Tensor::new(dtype, vec![1], vec![0; dtype.bytes_for(1)?].into())?;
        let shape = self.to.add_constant(&format!("{name}_dims"), Tensor::from_i64s(dims));
        let made = self.to.add_value(&name, Type::tensor(dtype, dims.iter().map(|&d| d.into()).collect()));
        let mut attrs = Attrs::new();
        attrs.set("value", Attr::Tensor(zero));
        self.add("ConstantOfShape", 25, attrs, [Some(shape)], [Some(made)]);
        Some(made)
    }

    fn add<const N: usize>(
        &mut self,
        op: &str,
        version: u32,
        attrs: Attrs,
        inputs: [Option<ValueId>; N],
        outputs: [Option<ValueId>; 1],
    ) {
        self.count += 1;
        let name = format!("{op}/{}", self.count);
        self.to.add_node(Node::new(&name, OpKey::new("", op), version, attrs, inputs, outputs));
    }

    /// Inputs of the model that values are computed from.
    fn sources(&self, mut list: Vec<ValueId>) -> Vec<String> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        while let Some(id) = list.pop() {
            if !seen.insert(id) {
                continue;
            }
            if self.from.inputs().contains(&id) {
                found.push(self.from[id].name.to_string());
            } else if let Some((node, _)) = self.from[id].producer() {
                list.extend(self.from[node].uses());
            }
        }
        found.sort();
        found
    }
}

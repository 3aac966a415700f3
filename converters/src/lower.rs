//! A set of nodes as a TensorRT network.

use crate::{
    emit::{Scope, emit_node, known_or_dynamic},
    unread,
};
use std::collections::{HashMap, HashSet};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{Code, Dim, Graph, Interval, NodeId, Refusal, Symbols, ValueId, oracle::SegmentRefusal};
use trtc_network::{
    Fault, InputProfile, Lowered, Network, NetworkBuilder, TensorId,
    layer::{Count, Extent, Layer, LayerEntry, ResizeTo},
};

/// Nodes of a segment in an order in which every value is made before it is used, and what crosses its boundary.
#[derive(Clone, Copy, Debug)]
pub struct SegmentIo<'a> {
    /// Name, for messages.
    pub name: &'a str,
    /// Nodes.
    pub nodes: &'a [NodeId],
    /// Values made outside (no constants).
    pub inputs: &'a [ValueId],
    /// Values wanted outside.
    pub outputs: &'a [ValueId],
}

/// Why a segment could not be lowered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LowerError {
    /// A node is refused in this segment.
    #[error("node `{name}`: {refusal}")]
    Refused {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
        /// Why.
        refusal: Refusal,
    },
    /// A value cannot cross the boundary.
    #[error("value `{name}`: {refusal}")]
    Boundary {
        /// The value.
        value: ValueId,
        /// Its name.
        name: String,
        /// Why.
        refusal: Refusal,
    },
    /// A promise of ours broke.
    #[error("{0}")]
    Fault(#[from] Fault),
}

impl LowerError {
    /// What has to leave a segment of `nodes` (not none) for it.
    pub fn of_segment(self, graph: &Graph, nodes: &[NodeId]) -> SegmentRefusal {
        match self {
            LowerError::Refused { node, refusal, .. } => SegmentRefusal::Node(node, refusal),
            LowerError::Boundary { value, refusal, .. } => SegmentRefusal::Value(value, refusal),
            LowerError::Fault(fault) => {
                let at = nodes.iter().copied().find(|&id| *graph[id].name == *fault.node);
                let refusal = Refusal::new(Code::LOWERING, format!("a fault of ours: {}", fault.what));
                SegmentRefusal::Node(at.unwrap_or(nodes[0]), refusal)
            }
        }
    }

    pub(crate) fn internal(what: &str) -> LowerError {
        LowerError::Fault(Fault { node: String::new(), what: what.to_owned() })
    }
}

/// Lowers a segment for `target`. Copies no weights. O(nodes + values).
///
/// # Errors
/// See [`LowerError`].
pub fn lower(
    graph: &Graph,
    symbols: &Symbols,
    segment: SegmentIo<'_>,
    target: &Target,
) -> Result<Lowered, LowerError> {
    let mut net = NetworkBuilder::new(segment.name);
    let mut scope = Scope::default();
    for &input in segment.inputs {
        let value = &graph[input];
        let boundary = |code, why: String| LowerError::Boundary {
            value: input,
            name: value.name.to_string(),
            refusal: Refusal::new(code, why),
        };
        let dtype =
            value.ty.dtype().ok_or_else(|| boundary(Code::BOUNDARY, "its dtype is not known".into()))?;
        let shape =
            value.ty.shape().ok_or_else(|| boundary(Code::BOUNDARY, "its rank is not known".into()))?;
        if shape.len() > 8 {
            return Err(boundary(
                Code::BOUNDARY,
                format!("rank {}; TensorRT holds at most 8 dims", shape.len()),
            ));
        }
        let binding = dtype
            .binding()
            .ok_or_else(|| boundary(Code::BOUNDARY, format!("no binding holds values of {dtype}")))?;
        let tensor = net.add_input(&value.name, binding, shape.iter().map(known_or_dynamic).collect());
        scope.tensors.insert(input, tensor);
    }
    for &id in segment.nodes {
        emit_node(&mut net, &mut scope, graph, symbols, id, target)?;
    }
    net.begin_node("outputs");
    let mut marked: HashSet<TensorId> =
        segment.inputs.iter().filter_map(|value| scope.tensors.get(value).copied()).collect();
    for &output in segment.outputs {
        let Some(&tensor) = scope.tensors.get(&output) else {
            return Err(LowerError::internal("an output of the segment is made by none of its nodes"));
        };
        let binding = graph[output].ty.dtype().and_then(DType::binding).unwrap_or(net.dtype(tensor));
        let tensor = match binding {
            binding if binding == net.dtype(tensor) => tensor,
            DType::U8 => {
                let float = net.cast(tensor, DType::F32);
                net.cast(float, DType::U8)
            }
            DType::I8 => net.cast(tensor, DType::I8),
            _ => scope.carried(&mut net, graph, output).unwrap_or(tensor),
        };
        // A binding has one name: an input, or a tensor that is an output already, goes out through an identity.
        let tensor = if marked.insert(tensor) { tensor } else { net.one(Layer::Identity { x: tensor }) };
        marked.insert(tensor);
        net.mark_output(tensor, &graph[output].name);
    }
    let mut lowered = net.finish()?;
    name_dims(graph, symbols, segment.inputs, &mut lowered.network);
    if target.product() == Product::Rtx
        && let Some((at, input)) = unread::find(&lowered.network)
    {
        let name = lowered.network.nodes.get(at).cloned().unwrap_or_default();
        let node = segment.nodes.iter().copied().find(|&id| *graph[id].name == *name);
        let node = node.ok_or_else(|| LowerError::internal("control flow of no node"))?;
        let why = format!(
            "the builder of TensorRT-RTX 1.7 recurses without end where `{input}`, which nothing in the engine reads, sizes \
             something inside control flow"
        );
        let refusal =
            Refusal::new(Code::KNOWN_FAULT, why).help("give the size another way than as that of a tensor");
        return Err(LowerError::Refused { node, name, refusal });
    }
    let shape_inputs = shape_tensor_inputs(&lowered.network);
    for (k, &input) in segment.inputs.iter().enumerate() {
        let own = lowered.network.inputs.get(k);
        let is_shape = own.is_some_and(|own| shape_inputs.contains(&own.tensor));
        if let Some(profile) = profile(graph, symbols, input, is_shape)? {
            lowered.network.profile.push(profile);
        }
    }
    Ok(lowered)
}

/// Tells which dims of inputs are the same size, where control flow needs it: of sizes in a loop that are equal in every
/// run, but not known to be, the builder of TensorRT-RTX 1.7 finds out without end.
fn name_dims(graph: &Graph, symbols: &Symbols, inputs: &[ValueId], network: &mut Network) {
    if !network.layers.iter().any(|entry| matches!(entry.layer, Layer::Loop { .. } | Layer::If { .. })) {
        return;
    }
    for (own, &input) in network.inputs.iter_mut().zip(inputs) {
        let shape = graph[input].ty.shape().unwrap_or_default();
        if shape.iter().any(|dim| matches!(dim, Dim::Expr(_))) {
            let name = |dim: &Dim| if let Dim::Expr(_) = dim { symbols.show(dim) } else { String::new() };
            own.dim_names = shape.iter().map(name).collect();
        }
    }
}

/// Ranges of an input: of its dims when one is dynamic, of its values when TensorRT reads it as a shape tensor.
fn profile(
    graph: &Graph,
    symbols: &Symbols,
    input: ValueId,
    is_shape: bool,
) -> Result<Option<InputProfile>, LowerError> {
    let value = &graph[input];
    let refuse = |why: String| LowerError::Boundary {
        value: input,
        name: value.name.to_string(),
        refusal: Refusal::new(Code::SHAPE_VALUE, why),
    };
    let shape = value.ty.shape().unwrap_or_default();
    let mut dims = None;
    if shape.iter().any(|dim| dim.known().is_none()) {
        let ranges = shape.iter().map(|dim| dim_range(symbols, dim)).collect::<Option<Vec<_>>>();
        let ranges = ranges.ok_or_else(|| {
            let text: Vec<String> = shape.iter().map(|dim| symbols.show(dim)).collect();
            refuse(format!("its dims [{}] have no upper bound", text.join(" x ")))
        })?;
        if ranges.iter().any(|[_, _, max]| *max < 0) {
            let text: Vec<String> = shape.iter().map(|dim| symbols.show(dim)).collect();
            return Err(refuse(format!("its dims [{}] are negative", text.join(" x "))));
        }
        // A difference of two sizes may be below 0 as far as their ranges tell; as a dim it never is.
        dims = Some([0, 1, 2].map(|k| ranges.iter().map(|range| range[k].max(0)).collect()));
    }
    let mut values = None;
    if is_shape {
        let elements =
            value.elements.as_deref().ok_or_else(|| refuse("its values are not known to be sizes".into()))?;
        let ranges = elements.iter().map(|dim| dim_range(symbols, dim)).collect::<Option<Vec<_>>>();
        let ranges = ranges.ok_or_else(|| refuse("its values have no bounds".into()))?;
        values = Some([0, 1, 2].map(|k| ranges.iter().map(|range| range[k]).collect()));
    }
    let name = value.name.to_string();
    Ok((dims.is_some() || values.is_some()).then_some(InputProfile { name, dims, values }))
}

/// Minimum, optimum, maximum of a dim; `None` when it is unbounded.
pub fn dim_range(symbols: &Symbols, dim: &Dim) -> Option<[i64; 3]> {
    let Interval { min: Some(min), max: Some(max) } = symbols.interval(dim) else { return None };
    // Interval arithmetic is wider than the truth when a symbol occurs twice; the ends of the symbols' own ranges are
    // values that do occur.
    let at =
        |pick: &dyn Fn(&trtc_ir::SymbolInfo) -> Option<i64>| dim.eval(&|s| symbols.info(s).and_then(pick));
    let ends = [at(&|info| info.range.min), at(&|info| info.range.max)];
    let (low, high) = match ends {
        [Some(a), Some(b)] if monotone(symbols, dim) => (a.min(b), a.max(b)),
        _ => (min, max),
    };
    let opt = at(&|info| info.opt.or_else(|| info.range.min.zip(info.range.max).map(|(a, b)| a.midpoint(b))))
        .unwrap_or(low.midpoint(high))
        .clamp(low, high);
    Some([low, opt, high])
}

/// Whether the dim takes its extremes where all symbols take theirs: no negative coefficient, no remainder.
fn monotone(symbols: &Symbols, dim: &Dim) -> bool {
    let Dim::Expr(expr) = dim else { return true };
    let _ = symbols;
    expr.terms().all(|(atoms, factor)| {
        (factor > 0 || atoms.is_empty())
            && atoms.iter().all(|atom| match atom {
                trtc_ir::dim::Atom::Symbol(_) => true,
                trtc_ir::dim::Atom::FloorDiv(a, b) => {
                    monotone(symbols, &a.to_dim()) && matches!(b.to_dim(), Dim::Known(_))
                }
                trtc_ir::dim::Atom::Mod(..) => false,
                trtc_ir::dim::Atom::Max(a, b) | trtc_ir::dim::Atom::Min(a, b) => {
                    monotone(symbols, &a.to_dim()) && monotone(symbols, &b.to_dim())
                }
            })
    })
}

/// Network inputs whose *values* TensorRT needs while it plans shapes: everything that reaches an extent or a count
/// without passing through a `Shape` layer.
pub fn shape_tensor_inputs(network: &Network) -> HashSet<TensorId> {
    let mut makers: HashMap<TensorId, &Layer> = HashMap::new();
    let mut roots: Vec<TensorId> = Vec::new();
    collect(&network.layers, &mut makers, &mut roots);
    let inputs: HashSet<TensorId> = network.inputs.iter().map(|input| input.tensor).collect();
    let mut seen = HashSet::new();
    let mut found = HashSet::new();
    while let Some(tensor) = roots.pop() {
        if !seen.insert(tensor) {
            continue;
        }
        if inputs.contains(&tensor) {
            found.insert(tensor);
        }
        match makers.get(&tensor) {
            None | Some(Layer::Shape { .. }) => {}
            Some(layer) => layer.for_each_input(&mut |x| roots.push(x)),
        }
    }
    found
}

fn collect<'a>(
    entries: &'a [LayerEntry],
    makers: &mut HashMap<TensorId, &'a Layer>,
    roots: &mut Vec<TensorId>,
) {
    for entry in entries {
        for &output in &entry.outputs {
            makers.insert(output, &entry.layer);
        }
        let mut extent = |extent: &Extent| {
            if let Extent::Tensor(id) = extent {
                roots.push(*id);
            }
        };
        match &entry.layer {
            Layer::Shuffle { reshape: Some(e), .. } => extent(e),
            Layer::Slice { start, size, stride, .. } => [start, size, stride].into_iter().for_each(extent),
            Layer::Fill { shape, .. } => extent(shape),
            Layer::Resize { to: ResizeTo::Sizes(e), .. } => extent(e),
            Layer::TopK { k: Count::Tensor(id), .. } => roots.push(*id),
            Layer::OneHot { depth, .. } => roots.push(*depth),
            Layer::Loop { limits, results, body, .. } => {
                roots.extend(results.iter().filter_map(|result| result.length));
                roots.extend(
                    limits.iter().filter(|l| l.0 == trtc_network::layer::TripLimit::Count).map(|l| l.1),
                );
                collect(body, makers, roots);
            }
            Layer::If { then_branch, else_branch, .. } => {
                collect(&then_branch.layers, makers, roots);
                collect(&else_branch.layers, makers, roots);
            }
            _ => {}
        }
    }
}

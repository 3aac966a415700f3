//! What `emit` works with: the network under construction and the node's inputs as tensors of it.

use crate::{
    ctx::extent::{DimPlan, ExtentPlan, SizeOp},
    lower::LowerError,
    registry::Registry,
};
use std::{
    collections::HashMap,
    ops::{Deref, DerefMut},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Dim, Graph, NodeId, NodeView, Symbols, Tensor, ValueId};
use trtc_network::{
    NetworkBuilder, Region, TensorId,
    layer::{ElementWiseOp, Extent, Layer, SampleMode},
};

/// The network under construction, seen from one node. Dereferences to [`NetworkBuilder`].
#[derive(Debug)]
pub struct Emit<'a> {
    net: &'a mut NetworkBuilder,
    scope: &'a mut Scope,
    node: NodeView<'a>,
    target: &'a Target,
}

/// Tensors of one graph's values. A subgraph has its own.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// As their makers left them: in the carrier, or in a dtype of TensorRT's that only its quantising layers and bindings
    /// have.
    pub(crate) tensors: HashMap<ValueId, TensorId>,
    /// Those of the latter kind, in their carriers, where an operator wanted them so.
    carried: HashMap<ValueId, TensorId>,
}

impl Scope {
    /// A value's tensor in the dtype that carries it.
    pub(crate) fn carried(
        &mut self,
        net: &mut NetworkBuilder,
        graph: &Graph,
        value: ValueId,
    ) -> Option<TensorId> {
        let tensor = *self.tensors.get(&value)?;
        let dtype = graph[value].ty.dtype().map(carrier);
        if dtype.is_none_or(|dtype| dtype == net.dtype(tensor)) {
            return Some(tensor);
        }
        if let Some(&tensor) = self.carried.get(&value) {
            return Some(tensor);
        }
        let wide = carried(net, tensor, dtype?);
        self.carried.insert(value, wide);
        Some(wide)
    }
}

impl Deref for Emit<'_> {
    type Target = NetworkBuilder;

    fn deref(&self) -> &NetworkBuilder {
        self.net
    }
}

impl DerefMut for Emit<'_> {
    fn deref_mut(&mut self) -> &mut NetworkBuilder {
        self.net
    }
}

impl<'a> Emit<'a> {
    pub(crate) fn new(
        net: &'a mut NetworkBuilder,
        scope: &'a mut Scope,
        node: NodeView<'a>,
        target: &'a Target,
    ) -> Emit<'a> {
        Emit { net, scope, node, target }
    }

    /// The node that is emitted.
    pub fn node(&self) -> NodeView<'a> {
        self.node
    }

    /// The tensor of an input slot, in the dtype that carries it. Constants are put into the network at their first use.
    pub fn input(&mut self, slot: usize) -> TensorId {
        match self.node.node().input(slot) {
            Some(value) => self.value(value),
            None => {
                self.fault(format!("input {slot} is absent"));
                TensorId(u32::MAX)
            }
        }
    }

    /// The tensor of an input slot that may be absent.
    pub fn optional(&mut self, slot: usize) -> Option<TensorId> {
        self.node.node().input(slot).map(|value| self.value(value))
    }

    /// All inputs of a variadic operator.
    pub fn inputs(&mut self) -> Vec<TensorId> {
        (0..self.node.input_count()).map(|slot| self.input(slot)).collect()
    }

    /// The tensor of an input slot in the value's own dtype, where it travels in that and the dtype is not its carrier:
    /// i8, i4 or f8e4m3 as a quantising layer left it, i8 as the segment's input.
    pub fn native(&mut self, slot: usize) -> Option<TensorId> {
        let value = self.node.node().input(slot)?;
        let (tensor, dtype) = (*self.scope.tensors.get(&value)?, self.node.graph()[value].ty.dtype()?);
        (self.net.dtype(tensor) == dtype && carrier(dtype) != dtype).then_some(tensor)
    }

    fn value(&mut self, value: ValueId) -> TensorId {
        if let Some(tensor) = self.scope.carried(self.net, self.node.graph(), value) {
            return tensor;
        }
        let graph = self.node.graph();
        let tensor = match graph[value].constant.as_ref() {
            Some(constant) => match constant_tensor(self.net, constant) {
                Some(tensor) => tensor,
                None => {
                    self.fault("a constant of strings");
                    TensorId(u32::MAX)
                }
            },
            None => {
                self.fault(format!("value `{}` is made by no node of the segment", graph[value].name));
                TensorId(u32::MAX)
            }
        };
        self.scope.tensors.insert(value, tensor);
        tensor
    }

    /// An extent that `plan` decided: build-time numbers, or an i64 shape tensor computed from the dims of the node's
    /// own inputs.
    pub fn extent(&mut self, plan: &ExtentPlan) -> Extent {
        match plan {
            ExtentPlan::Dims(dims) => match dims.iter().map(DimPlan::fixed).collect::<Option<Vec<i64>>>() {
                Some(values) => Extent::Static(values),
                None => Extent::Tensor(self.extent_tensor(dims)),
            },
            ExtentPlan::Input(slot) => {
                let tensor = self.input(*slot);
                Extent::Tensor(self.net.cast(tensor, DType::I64))
            }
        }
    }

    /// Dims as an i64 tensor of rank 1.
    pub fn extent_tensor(&mut self, dims: &[DimPlan]) -> TensorId {
        let parts: Vec<TensorId> = dims.iter().map(|dim| self.dim(dim)).collect();
        match parts.as_slice() {
            [] => self.net.i64s(&[]),
            [one] => *one,
            _ => self.net.one(Layer::Concatenation { xs: parts, axis: 0 }),
        }
    }

    /// One dim as an i64 tensor of dims \[1\].
    pub fn dim(&mut self, dim: &DimPlan) -> TensorId {
        match dim {
            DimPlan::Fixed(value) => self.net.i64s(&[*value]),
            DimPlan::OfInput { slot, axis } => {
                let x = self.input(*slot);
                self.net.dim_of(x, *axis)
            }
            DimPlan::Element { slot, index } => {
                let x = self.input(*slot);
                let x = self.net.cast(x, DType::I64);
                if self.net.rank(x) == 0 {
                    return self.net.reshape(x, vec![1]);
                }
                let fixed = |v: i64| Extent::Static(vec![v]);
                self.net.one(Layer::Slice {
                    x,
                    start: fixed(*index as i64),
                    size: fixed(1),
                    stride: fixed(1),
                    mode: SampleMode::Strict,
                    fill: None,
                })
            }
            DimPlan::Op(op, a, b) => {
                let (a, b) = (self.dim(a), self.dim(b));
                let op = match op {
                    SizeOp::Add => ElementWiseOp::Sum,
                    SizeOp::Mul => ElementWiseOp::Prod,
                    SizeOp::FloorDiv => ElementWiseOp::FloorDiv,
                    SizeOp::Max => ElementWiseOp::Max,
                    SizeOp::Min => ElementWiseOp::Min,
                };
                self.net.elementwise(a, b, op)
            }
        }
    }

    /// Emits a subgraph as a region. `bind` gives tensors to the subgraph's captures and inputs.
    pub fn region(&mut self, graph: &Graph, bind: &[(ValueId, TensorId)]) -> Region {
        let mut scope = Scope::default();
        scope.tensors.extend(bind.iter().copied());
        self.net.open_region();
        let outputs = match emit_graph(self.net, &mut scope, graph, self.node.symbols(), self.target) {
            // What comes in and goes out unchanged, or goes out twice, still needs a layer of the region.
            Ok(outputs) => {
                let mut seen: Vec<TensorId> = bind.iter().map(|b| b.1).collect();
                let mut settled = Vec::new();
                for x in outputs {
                    let own = !seen.contains(&x);
                    seen.push(x);
                    settled.push(if own { x } else { self.net.one(Layer::Identity { x }) });
                }
                settled
            }
            Err(error) => {
                self.fault(error.to_string());
                Vec::new()
            }
        };
        self.net.close_region(outputs)
    }

    /// The tensor of a value of the node's own graph: for captures of subgraphs.
    pub fn outer(&mut self, value: ValueId) -> TensorId {
        self.value(value)
    }
}

/// Emits every node of `graph` and returns its outputs' tensors.
fn emit_graph(
    net: &mut NetworkBuilder,
    scope: &mut Scope,
    graph: &Graph,
    symbols: &Symbols,
    target: &Target,
) -> Result<Vec<TensorId>, LowerError> {
    let order = graph.topo_order().map_err(|_| LowerError::internal("a subgraph has a cycle"))?;
    for id in order {
        emit_node(net, scope, graph, symbols, id, target)?;
    }
    let mut outputs = Vec::new();
    for &output in graph.outputs() {
        if let Some(tensor) = scope.carried(net, graph, output) {
            outputs.push(tensor);
        } else if let Some(constant) = &graph[output].constant
            && let Some(tensor) = constant_tensor(net, constant)
        {
            outputs.push(tensor);
        } else {
            return Err(LowerError::internal("a subgraph's output is made by nothing"));
        }
    }
    Ok(outputs)
}

/// Plans and emits one node; its outputs become tensors of the scope.
pub(crate) fn emit_node(
    net: &mut NetworkBuilder,
    scope: &mut Scope,
    graph: &Graph,
    symbols: &Symbols,
    id: NodeId,
    target: &Target,
) -> Result<(), LowerError> {
    let node = NodeView::new(graph, symbols, id);
    let refused = |refusal| LowerError::Refused { node: id, name: node.name().to_owned(), refusal };
    let converter = Registry::get().converter(node).map_err(refused)?;
    let plan = converter.plan(node, target).map_err(refused)?;
    net.begin_node(node.name());
    let outputs = converter.emit(plan, &mut Emit::new(net, scope, node, target));
    for (slot, value) in node.node().outputs().iter().enumerate() {
        let Some(value) = *value else { continue };
        let Some(&tensor) = outputs.get(slot) else {
            net.fault(format!("output {slot} was not emitted"));
            continue;
        };
        if let Some(shape) = graph[value].ty.shape() {
            let dims: Vec<i64> = shape.iter().map(|dim| dim.known().unwrap_or(-1)).collect();
            check_output(net, graph, value, tensor, &dims);
            net.refine(tensor, &dims);
        }
        scope.tensors.insert(value, tensor);
    }
    Ok(())
}

/// What was emitted must be what inference said; everything that follows relies on it.
fn check_output(net: &mut NetworkBuilder, graph: &Graph, value: ValueId, tensor: TensorId, dims: &[i64]) {
    let info = net.info(tensor).clone();
    let fits = |(&a, &b): (&i64, &i64)| a < 0 || b < 0 || a == b;
    let shape_ok = info.dims.len() == dims.len() && info.dims.iter().zip(dims).all(fits);
    let dtype = graph[value].ty.dtype();
    let native = |dtype| dtype == info.dtype && matches!(dtype, DType::I8 | DType::I4 | DType::F8E4M3);
    if !shape_ok || dtype.is_some_and(|dtype| carrier(dtype) != info.dtype && !native(dtype)) {
        let name = &graph[value].name;
        let want = dtype.map_or("?", DType::name);
        net.fault(format!(
            "`{name}` was emitted as {} {:?}, inferred as {want} {dims:?}",
            info.dtype, info.dims
        ));
    }
}

/// A constant in the dtype that carries it; `None` for strings.
fn constant_tensor(net: &mut NetworkBuilder, constant: &Tensor) -> Option<TensorId> {
    let (bytes, dims, dtype) = (constant.bytes()?, constant.dims().to_vec(), constant.dtype());
    if carrier(dtype) == dtype {
        return Some(net.constant(dtype, dims, bytes.clone()));
    }
    let wide = trtc_bundle::widened(dtype, constant.count(), bytes)?;
    Some(net.constant(carrier(dtype), dims, wide.into()))
}

/// The dtype in which values travel inside a network ([`DType::carrier`]); `dtype` itself where there is none.
pub const fn carrier(dtype: DType) -> DType {
    match dtype.carrier() {
        Some(carrier) => carrier,
        None => dtype,
    }
}

/// A tensor in the carrier of its dtype. Bytes are cast; u8 by way of f32, to and from which TensorRT documents casts of
/// it. What a quantising layer made can only be undone by another.
fn carried(net: &mut NetworkBuilder, tensor: TensorId, carrier: DType) -> TensorId {
    let tensor = match net.dtype(tensor) {
        DType::U8 => net.cast(tensor, DType::F32),
        DType::F8E4M3 | DType::I4 => {
            let scale = net.scalar(DType::F32, 0, 1.0);
            net.one(Layer::Dequantize { x: tensor, scale, axis: None, to: DType::F32 })
        }
        _ => tensor,
    };
    net.cast(tensor, carrier)
}

/// A dim as a number where it is one.
pub fn known_or_dynamic(dim: &Dim) -> i64 {
    dim.known().unwrap_or(-1)
}

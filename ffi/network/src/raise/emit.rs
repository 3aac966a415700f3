//! The raiser: names of tensors, open graphs, constants, and one way to emit a node.

use super::kernels::{self, Typed};
use super::{INLINE_BYTES, RaiseError, RaiseOptions, Result, WeightsPlacement};
use crate::layer::{Extent, LayerEntry};
use crate::network::{Lowered, Network, TensorId, WeightsId};
use bytes::Bytes;
use std::collections::HashMap;
use trtc_bundle::DType;
use trtc_onnx::{AttributeProto, Dimension, GraphProto, ModelProto, NodeProto, TensorProto, write};

/// A value of the ONNX graph.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    /// Unique over all graphs of the model.
    pub name: String,
    /// Element type.
    pub dtype: DType,
}

/// State of one raise.
pub(super) struct Raiser<'a> {
    pub network: &'a Network,
    bytes: &'a [Bytes],
    options: &'a RaiseOptions<'a>,
    /// Starts every name of ours, and no binding's.
    prefix: String,
    fresh: usize,
    emitted: usize,
    /// What a tensor is called at the moment, by id; the layers of a loop's condition are emitted under several names.
    names: Vec<Option<Value>>,
    /// Names that were replaced since the outermost open [`Raiser::mark`].
    replaced: Vec<(usize, Option<Value>)>,
    marks: usize,
    /// Nodes of the open graphs, innermost last; the first is the model's own.
    graphs: Vec<Vec<NodeProto>>,
    /// All constants are the outermost graph's: every graph sees them.
    initializers: Vec<TensorProto>,
    small: HashMap<(DType, Vec<i64>, Vec<u8>), Value>,
    placed: HashMap<(WeightsId, Vec<i64>), Value>,
    /// The layers being emitted, innermost last: name and source node.
    at: Vec<(&'static str, u32)>,
}

impl<'a> Raiser<'a> {
    pub fn new(lowered: &'a Lowered, options: &'a RaiseOptions<'a>) -> Raiser<'a> {
        let network = &lowered.network;
        let bindings: Vec<&str> = (network.inputs.iter().map(|input| input.name.as_str()))
            .chain(network.outputs.iter().map(|output| output.name.as_str()))
            .collect();
        let mut prefix = "t".to_owned();
        while bindings.iter().any(|name| name.starts_with(&prefix)) {
            prefix.push('_');
        }
        Raiser {
            network,
            bytes: &lowered.weights,
            options,
            prefix,
            fresh: 0,
            emitted: 0,
            names: vec![None; network.tensors.len()],
            replaced: Vec::new(),
            marks: 0,
            graphs: vec![Vec::new()],
            initializers: Vec::new(),
            small: HashMap::new(),
            placed: HashMap::new(),
            at: Vec::new(),
        }
    }

    /// Names the network's inputs.
    pub fn inputs(&mut self) -> Result<()> {
        for input in &self.network.inputs {
            let dtype = self.dtype(input.tensor)?;
            self.bind(input.tensor, Value { name: input.name.clone(), dtype })?;
        }
        Ok(())
    }

    /// The model, once every layer is emitted.
    pub fn finish(mut self) -> Result<ModelProto> {
        let mut inputs = Vec::new();
        for input in &self.network.inputs {
            let info = self.value_info(&input.name, self.dtype(input.tensor)?, self.dims(input.tensor)?);
            inputs.push(info);
        }
        let mut outputs = Vec::new();
        for output in &self.network.outputs {
            let value = self.get(output.tensor)?;
            self.push(write::node("Identity", &[&value.name], &[&output.name], []));
            outputs.push(self.value_info(&output.name, value.dtype, self.dims(output.tensor)?));
        }
        let nodes = self.graphs.pop().unwrap_or_default();
        let name = if self.network.name.is_empty() { "network" } else { &self.network.name };
        let graph = write::graph(name, nodes, inputs, outputs, self.initializers);
        Ok(write::model(super::OPSET, graph))
    }

    // Where we are, and what to say when it goes wrong.

    pub fn enter(&mut self, entry: &LayerEntry) {
        self.at.push((entry.layer.name(), entry.node));
    }

    pub fn leave(&mut self) {
        self.at.pop();
    }

    fn place(&self) -> (&'static str, String) {
        match self.at.last() {
            Some(&(layer, node)) => {
                (layer, self.network.nodes.get(node as usize).cloned().unwrap_or_default())
            }
            None => ("Network", String::new()),
        }
    }

    pub fn no_counterpart(&self, what: impl Into<String>) -> RaiseError {
        let (layer, node) = self.place();
        RaiseError::NoCounterpart { layer, node, what: what.into() }
    }

    pub fn malformed(&self, what: impl Into<String>) -> RaiseError {
        let (layer, node) = self.place();
        RaiseError::Malformed { layer, node, what: what.into() }
    }

    // Tensors of the network.

    /// The value of a tensor that is made already.
    pub fn get(&self, id: TensorId) -> Result<Value> {
        let value = self.names.get(id.index()).and_then(Clone::clone);
        value.ok_or_else(|| self.malformed(format!("tensor {} is used before it is made", id.0)))
    }

    pub fn dtype(&self, id: TensorId) -> Result<DType> {
        let info = self.network.tensor(id);
        Ok(info.ok_or_else(|| self.malformed(format!("there is no tensor {}", id.0)))?.dtype)
    }

    pub fn dims(&self, id: TensorId) -> Result<&'a [i64]> {
        let info = self.network.tensor(id);
        Ok(&info.ok_or_else(|| self.malformed(format!("there is no tensor {}", id.0)))?.dims)
    }

    /// Says what a tensor is called.
    pub fn bind(&mut self, id: TensorId, value: Value) -> Result<()> {
        let dtype = self.dtype(id)?;
        if dtype != value.dtype {
            return Err(self.malformed(format!(
                "tensor {} is {dtype} in the network, but the layer gives {}",
                id.0, value.dtype
            )));
        }
        let Some(name) = self.names.get_mut(id.index()) else {
            return Err(self.malformed(format!("there is no tensor {}", id.0)));
        };
        let before = name.replace(value);
        if self.marks > 0 {
            self.replaced.push((id.index(), before));
        }
        Ok(())
    }

    /// From here on names are remembered, to be given back by [`Raiser::restore`]: what a body makes is not seen outside.
    pub fn mark(&mut self) -> usize {
        self.marks += 1;
        self.replaced.len()
    }

    /// Gives back the names of the matching [`Raiser::mark`].
    pub fn restore(&mut self, mark: usize) {
        self.marks -= 1;
        for (id, before) in self.replaced.drain(mark..).rev() {
            if let Some(name) = self.names.get_mut(id) {
                *name = before;
            }
        }
    }

    /// Says what the outputs of a layer are called.
    pub fn bind_all(&mut self, entry: &LayerEntry, values: Vec<Value>) -> Result<()> {
        if entry.outputs.len() != values.len() {
            let (gives, has) = (values.len(), entry.outputs.len());
            return Err(self.malformed(format!("the layer gives {gives} tensors, the network has {has}")));
        }
        entry.outputs.iter().zip(values).try_for_each(|(&id, value)| self.bind(id, value))
    }

    pub fn value_info(&self, name: &str, dtype: DType, dims: &[i64]) -> trtc_onnx::ValueInfoProto {
        let dim = |&d: &i64| if d < 0 { Dimension::default() } else { Dimension::from(d) };
        write::value_info(name, dtype, dims.iter().map(dim))
    }

    // Graphs and nodes.

    pub fn fresh(&mut self) -> String {
        self.fresh += 1;
        format!("{}{}", self.prefix, self.fresh)
    }

    pub fn push(&mut self, node: NodeProto) {
        let (layer, source) = self.place();
        self.emitted += 1;
        let named = node.named(&format!("{source}/{layer}_{}", self.emitted));
        if let Some(graph) = self.graphs.last_mut() {
            graph.push(named);
        }
    }

    /// Opens the body of an `If` or `Loop`.
    pub fn open(&mut self) {
        self.graphs.push(Vec::new());
    }

    /// Closes the innermost body. Each output is copied: ONNX wants outputs that the body itself makes.
    pub fn close(
        &mut self,
        inputs: Vec<trtc_onnx::ValueInfoProto>,
        outputs: &[(Value, Option<&[i64]>)],
    ) -> GraphProto {
        let mut infos = Vec::new();
        for (value, dims) in outputs {
            let name = self.fresh();
            self.push(write::node("Identity", &[&value.name], &[&name], []));
            infos.push(match dims {
                Some(dims) => self.value_info(&name, value.dtype, dims),
                None => write::typed_value(&name, write::tensor_type(value.dtype, None::<[Dimension; 0]>)),
            });
        }
        let nodes = self.graphs.pop().unwrap_or_default();
        write::graph("body", nodes, inputs, infos, [])
    }

    /// Starts a node.
    pub fn call(&mut self, op: &'static str) -> Call<'_, 'a> {
        Call { raiser: self, op, inputs: Vec::new(), attributes: Vec::new() }
    }

    /// `value` in another type (ONNX Cast: to integers by truncation, to narrower floats to nearest even, to bool by ≠ 0).
    pub fn cast(&mut self, value: &Value, to: DType) -> Value {
        if value.dtype == to {
            return value.clone();
        }
        let name = self.fresh();
        let to_attribute = write::attr_i("to", i64::from(to.onnx()));
        self.push(write::node("Cast", &[&value.name], &[&name], [to_attribute]));
        Value { name, dtype: to }
    }

    /// `value` in f32, in which functions of several operators are computed; f64 and integers stay.
    pub fn in_f32(&mut self, value: &Value) -> Value {
        match value.dtype {
            DType::F16 | DType::Bf16 | DType::F8E4M3 | DType::F8E5M2 => self.cast(value, DType::F32),
            _ => value.clone(),
        }
    }

    // Constants.

    /// The initializer of a constant layer.
    pub fn weights(&mut self, id: WeightsId, dims: &[i64]) -> Result<Value> {
        let key = (id, dims.to_vec());
        if let Some(value) = self.placed.get(&key) {
            return Ok(value.clone());
        }
        let (Some(info), Some(bytes)) = (self.network.weights.get(id.index()), self.bytes.get(id.index()))
        else {
            return Err(self.malformed(format!("there are no weights {}", id.0)));
        };
        if info.dtype.bytes_for(info.count as usize) != Some(bytes.len()) {
            return Err(self.malformed(format!("{} bytes for {} {}", bytes.len(), info.count, info.dtype)));
        }
        if matches!(info.dtype, DType::F4E2M1 | DType::F6E2M3 | DType::F6E3M2 | DType::F8E8M0) {
            return Err(self.no_counterpart(format!("a constant of {}", info.dtype)));
        }
        let name = self.fresh();
        let placement = match bytes.len() {
            0..=INLINE_BYTES => WeightsPlacement::Inline,
            _ => (self.options.weights)(id),
        };
        let tensor = match placement {
            WeightsPlacement::Inline => TensorProto::raw(&name, info.dtype, dims, bytes.clone()),
            WeightsPlacement::External { location, offset, length } => {
                if length != bytes.len() as u64 {
                    let have = bytes.len();
                    return Err(self.malformed(format!("weights of {have} bytes placed in {length}")));
                }
                TensorProto::external(&name, info.dtype, dims, &location, offset, length)
            }
        };
        self.initializers.push(tensor);
        let value = Value { name, dtype: info.dtype };
        self.placed.insert(key, value.clone());
        Ok(value)
    }

    /// A constant over packed bytes.
    pub fn constant(&mut self, dtype: DType, dims: Vec<i64>, bytes: Vec<u8>) -> Value {
        let key = (dtype, dims, bytes);
        if let Some(value) = self.small.get(&key) {
            return value.clone();
        }
        let value = Value { name: self.fresh(), dtype };
        self.initializers.push(TensorProto::raw(&value.name, dtype, &key.1, key.2.clone()));
        self.small.insert(key, value.clone());
        value
    }

    /// A rank-1 i64 constant.
    pub fn i64s(&mut self, values: &[i64]) -> Value {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(DType::I64, vec![values.len() as i64], bytes)
    }

    /// A rank-1 f32 constant.
    pub fn f32s(&mut self, values: &[f32]) -> Value {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(DType::F32, vec![values.len() as i64], bytes)
    }

    /// A rank-0 constant of `dtype`.
    pub fn scalar(&mut self, dtype: DType, value: f64) -> Value {
        let bytes = match dtype {
            DType::F64 => value.to_le_bytes().to_vec(),
            DType::I64 => (value as i64).to_le_bytes().to_vec(),
            DType::I32 => (value as i32).to_le_bytes().to_vec(),
            DType::Bool => vec![u8::from(value != 0.0)],
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            _ => {
                let wide = self.constant(DType::F32, Vec::new(), (value as f32).to_le_bytes().to_vec());
                return self.cast(&wide, dtype);
            }
        };
        self.constant(dtype, Vec::new(), bytes)
    }

    // Short forms.

    /// A node of two data inputs of one dtype.
    pub fn binary(&mut self, op: &'static str, a: &Value, b: &Value) -> Result<Value> {
        self.call(op).data(a).data(b).value()
    }

    /// Equal, Greater or Less.
    pub fn compare(&mut self, op: &'static str, a: &Value, b: &Value) -> Result<Value> {
        self.call(op).data(a).data(b).value_of(DType::Bool)
    }

    pub fn apply(&mut self, op: &'static str, x: &Value) -> Result<Value> {
        self.call(op).data(x).value()
    }

    /// `x op constant`.
    pub fn with_scalar(&mut self, op: &'static str, x: &Value, constant: f64) -> Result<Value> {
        let constant = self.scalar(x.dtype, constant);
        self.binary(op, x, &constant)
    }

    pub fn choose(&mut self, condition: &Value, a: &Value, b: &Value) -> Result<Value> {
        self.call("Where").plain(condition).data(a).data(b).value()
    }

    pub fn transpose(&mut self, x: &Value, order: &[u32]) -> Result<Value> {
        if order.iter().enumerate().all(|(k, &axis)| k == axis as usize) {
            return Ok(x.clone());
        }
        let order: Vec<i64> = order.iter().map(|&axis| i64::from(axis)).collect();
        self.call("Transpose").data(x).attr(write::attr_ints("perm", &order)).value()
    }

    /// Reshape to an i64 tensor; 0 copies a dim unless `zeros`.
    pub fn reshape_to(&mut self, x: &Value, dims: &Value, zeros: bool) -> Result<Value> {
        self.call("Reshape").data(x).plain(dims).attr(write::attr_i("allowzero", i64::from(zeros))).value()
    }

    pub fn reshape(&mut self, x: &Value, dims: &[i64]) -> Result<Value> {
        let dims = self.i64s(dims);
        self.reshape_to(x, &dims, false)
    }

    pub fn unsqueeze(&mut self, x: &Value, axes: &[u32]) -> Result<Value> {
        self.with_axes("Unsqueeze", x, axes)
    }

    pub fn squeeze(&mut self, x: &Value, axes: &[u32]) -> Result<Value> {
        self.with_axes("Squeeze", x, axes)
    }

    /// No axes means none, where ONNX takes an empty list as "all".
    fn with_axes(&mut self, op: &'static str, x: &Value, axes: &[u32]) -> Result<Value> {
        if axes.is_empty() {
            return Ok(x.clone());
        }
        let axes: Vec<i64> = axes.iter().map(|&axis| i64::from(axis)).collect();
        let axes = self.i64s(&axes);
        self.call(op).data(x).plain(&axes).value()
    }

    /// Joins rank-1 i64 values; one of them is itself.
    pub fn join(&mut self, parts: &[Value]) -> Result<Value> {
        match parts {
            [one] => Ok(one.clone()),
            _ => {
                let mut call = self.call("Concat").attr(write::attr_i("axis", 0));
                for part in parts {
                    call = call.data(part);
                }
                call.value()
            }
        }
    }

    /// Elements `indices` (i64, any rank) of `x` along `axis`.
    pub fn take(&mut self, x: &Value, indices: &Value, axis: usize) -> Result<Value> {
        self.call("Gather").data(x).plain(indices).attr(write::attr_i("axis", axis as i64)).value()
    }

    /// Dims `from..to` of `x`, whose static dims are `dims`: i64, rank 1.
    pub fn sizes(&mut self, x: &Value, dims: &[i64], axes: std::ops::Range<usize>) -> Result<Value> {
        match dims.get(axes.clone()) {
            Some(part) if part.iter().all(|&d| d >= 0) => Ok(self.i64s(part)),
            _ => {
                let range =
                    [write::attr_i("start", axes.start as i64), write::attr_i("end", axes.end as i64)];
                let mut call = self.call("Shape").data(x);
                for attribute in range {
                    call = call.attr(attribute);
                }
                call.value_of(DType::I64)
            }
        }
    }

    /// An extent as i64, rank 1.
    pub fn extent(&mut self, extent: &Extent) -> Result<Value> {
        match extent {
            Extent::Static(values) => Ok(self.i64s(values)),
            Extent::Tensor(id) => {
                let value = self.get(*id)?;
                Ok(self.cast(&value, DType::I64))
            }
        }
    }
}

enum Arg {
    Data(Value),
    Plain(Value),
    Absent,
}

impl Arg {
    fn dtype(&self) -> Option<DType> {
        match self {
            Arg::Data(value) | Arg::Plain(value) => Some(value.dtype),
            Arg::Absent => None,
        }
    }
}

/// One node in the making. *Data* inputs share the dtype that the operator computes in; the node runs in a type that ONNX
/// Runtime has a kernel for.
pub(super) struct Call<'r, 'a> {
    raiser: &'r mut Raiser<'a>,
    op: &'static str,
    inputs: Vec<Arg>,
    attributes: Vec<AttributeProto>,
}

impl Call<'_, '_> {
    /// An input of the type that the operator computes in.
    pub fn data(mut self, value: &Value) -> Self {
        self.inputs.push(Arg::Data(value.clone()));
        self
    }

    /// An input of a fixed type: indices, shapes, conditions.
    pub fn plain(mut self, value: &Value) -> Self {
        self.inputs.push(Arg::Plain(value.clone()));
        self
    }

    /// An optional input left out.
    pub fn absent(mut self) -> Self {
        self.inputs.push(Arg::Absent);
        self
    }

    pub fn attr(mut self, attribute: AttributeProto) -> Self {
        self.attributes.push(attribute);
        self
    }

    /// Emits a node with one output of the data's dtype.
    pub fn value(self) -> Result<Value> {
        let mut values = self.values(&[None])?;
        Ok(values.remove(0))
    }

    /// Emits a node with one output of a fixed dtype.
    pub fn value_of(self, dtype: DType) -> Result<Value> {
        let mut values = self.values(&[Some(dtype)])?;
        Ok(values.remove(0))
    }

    /// Emits a node; `None` stands for an output of the data's dtype.
    pub fn values(self, outputs: &[Option<DType>]) -> Result<Vec<Value>> {
        let Call { raiser, op, inputs, attributes } = self;
        let mut types = inputs.iter().filter_map(|arg| match arg {
            Arg::Data(value) => Some(value.dtype),
            Arg::Plain(_) | Arg::Absent => None,
        });
        let data = types.next();
        if let Some(other) = types.find(|&dtype| Some(dtype) != data) {
            let data = data.map_or("nothing", DType::name);
            return Err(raiser.malformed(format!("operands of {data} and {other}")));
        }
        let typed: Vec<Typed> = inputs
            .iter()
            .map(|arg| match arg {
                Arg::Data(_) => Typed::Data,
                Arg::Plain(value) => Typed::Fixed(value.dtype),
                Arg::Absent => Typed::Absent,
            })
            .collect();
        let results: Vec<Typed> =
            outputs.iter().map(|fixed| fixed.map_or(Typed::Data, Typed::Fixed)).collect();
        // Without data any type will do.
        let dtype = data.unwrap_or(DType::F32);
        let Some(run) = kernels::run_as(op, dtype, &typed, &results) else {
            let types: Vec<&str> = inputs.iter().filter_map(|arg| arg.dtype()).map(DType::name).collect();
            return Err(raiser.no_counterpart(format!("ONNX {op} over {}", types.join(", "))));
        };
        let names: Vec<String> = inputs
            .into_iter()
            .map(|arg| match arg {
                Arg::Data(value) => raiser.cast(&value, run).name,
                Arg::Plain(value) => value.name,
                Arg::Absent => String::new(),
            })
            .collect();
        let results: Vec<Value> =
            outputs.iter().map(|fixed| Value { name: raiser.fresh(), dtype: fixed.unwrap_or(run) }).collect();
        let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let output_names: Vec<&str> = results.iter().map(|value| value.name.as_str()).collect();
        raiser.push(write::node(op, &inputs, &output_names, attributes));
        Ok(results
            .iter()
            .zip(outputs)
            .map(|(value, fixed)| if fixed.is_some() { value.clone() } else { raiser.cast(value, dtype) })
            .collect())
    }
}

//! A node on its way between two schema versions.

use crate::onnx::facts::Facts;
use std::collections::HashMap;
use trtc_bundle::DType;
use trtc_ir::{Attr, Attrs, Graph, Node, OpKey, Tensor, Type, ValueId};
use trtc_onnx::schema;

/// A node whose form is being changed.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// Operator; a rule may rename it (Upsample becomes Resize).
    pub(crate) op: OpKey,
    /// Version that the form follows.
    pub(crate) since: u32,
    /// Attributes.
    pub(crate) attrs: Attrs,
    /// Inputs by slot.
    pub(crate) inputs: Vec<Arg>,
    /// Number of output slots that the model gives, trailing omitted ones included.
    pub(crate) outputs: usize,
    /// Output slots that somebody wants.
    pub(crate) wanted: Vec<bool>,
}

/// An input of a [`Draft`].
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    /// Omitted.
    None,
    /// A value of the graph.
    Value(ValueId),
    /// A constant that the rule brings in.
    Const(Tensor),
}

impl Draft {
    /// An input; omitted when the list is shorter.
    pub(crate) fn input(&self, slot: usize) -> &Arg {
        self.inputs.get(slot).unwrap_or(&Arg::None)
    }

    /// Whether an input is given.
    pub(crate) fn has(&self, slot: usize) -> bool {
        !matches!(self.input(slot), Arg::None)
    }

    /// Sets an input.
    pub(crate) fn set_input(&mut self, slot: usize, arg: Arg) {
        if self.inputs.len() <= slot {
            self.inputs.resize(slot + 1, Arg::None);
        }
        self.inputs[slot] = arg;
    }

    /// Drops omitted inputs at the end.
    pub(crate) fn trim(&mut self) {
        while matches!(self.inputs.last(), Some(Arg::None)) {
            self.inputs.pop();
        }
    }

    /// Whether somebody wants an output.
    pub(crate) fn wants(&self, slot: usize) -> bool {
        self.wanted.get(slot).copied().unwrap_or(false)
    }

    /// The attribute `ints`, moved to an input as i64 tensor when it is there.
    pub(crate) fn ints_to_input(&mut self, attr: &str, slot: usize) {
        if let Some(Attr::Ints(values)) = self.attrs.remove(attr) {
            self.set_input(slot, Arg::Const(Tensor::from_i64s(&values)));
        }
    }
}

/// Names in use, and new ones that are not.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, u32>);

impl Names {
    /// Takes `name` when it is free.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        !self.0.contains_key(name) && self.0.insert(name.to_owned(), 1).is_none()
    }

    /// `name`, or `name_2`, `name_3`, … when it is in use.
    pub(crate) fn unique(&mut self, name: &str) -> String {
        if self.take(name) {
            return name.to_owned();
        }
        loop {
            let count = self.0.entry(name.to_owned()).or_insert(1);
            *count += 1;
            let numbered = format!("{name}_{count}");
            if self.take(&numbered) {
                return numbered;
            }
        }
    }
}

/// A graph under construction.
#[derive(Debug, Default)]
pub(crate) struct Level {
    pub(crate) graph: Graph,
    pub(crate) value_names: Names,
    pub(crate) node_names: Names,
    pub(crate) facts: Facts,
    /// Path of the graph: empty for the model's own, else `node/attribute` through all levels.
    pub(crate) path: String,
}

impl Level {
    /// A value with a unique name.
    pub(crate) fn add_value(&mut self, name: &str, ty: Type) -> ValueId {
        let name = self.value_names.unique(name);
        let id = self.graph.add_value(&name, ty);
        self.facts.learn_type(&self.graph, id);
        id
    }

    /// A graph input.
    pub(crate) fn add_input(&mut self, name: &str, ty: Type) -> ValueId {
        let name = self.value_names.unique(name);
        let id = self.graph.add_input(&name, ty);
        self.facts.learn_type(&self.graph, id);
        id
    }

    /// A constant with a unique name.
    pub(crate) fn add_constant(&mut self, name: &str, tensor: Tensor) -> ValueId {
        let id = self.add_value(name, Type::Unknown);
        self.set_constant(id, tensor);
        id
    }

    /// Makes a value a constant.
    pub(crate) fn set_constant(&mut self, id: ValueId, tensor: Tensor) {
        self.graph.set_constant(id, tensor);
        self.facts.learn_type(&self.graph, id);
    }

    /// Path of a node of this graph.
    pub(crate) fn label(&self, node: &str) -> String {
        if self.path.is_empty() { node.to_owned() } else { format!("{}/{node}", self.path) }
    }
}

/// What an upgrade may look at and add.
pub(crate) struct Upgrade<'a> {
    pub(crate) level: &'a mut Level,
    /// Name of the node; taken by whichever node of the new form does the work.
    pub(crate) name: String,
    /// Names of the nodes that were added.
    pub(crate) added: Vec<String>,
    /// What the node makes; a rule may put nodes behind it.
    pub(crate) outputs: Vec<Option<ValueId>>,
}

impl Upgrade<'_> {
    /// Rank, when it is known.
    pub(crate) fn rank(&self, arg: &Arg) -> Option<usize> {
        match arg {
            Arg::None => None,
            Arg::Value(id) => self.level.facts.rank(*id),
            Arg::Const(tensor) => Some(tensor.dims().len()),
        }
    }

    /// Element type, when it is known.
    pub(crate) fn dtype(&self, arg: &Arg) -> Option<DType> {
        match arg {
            Arg::None => None,
            Arg::Value(id) => self.level.facts.dtype(*id),
            Arg::Const(tensor) => Some(tensor.dtype()),
        }
    }

    /// The constant that an input is.
    pub(crate) fn constant<'s>(&'s self, arg: &'s Arg) -> Option<&'s Tensor> {
        match arg {
            Arg::None => None,
            Arg::Value(id) => self.level.graph[*id].constant.as_ref(),
            Arg::Const(tensor) => Some(tensor),
        }
    }

    /// Adds a node of one output, at the newest version of its operator, in front of the node that is upgraded. `last` gives it the
    /// node's name, for the one that does the work; the last one is then called after its own operator, `last`.
    pub(crate) fn emit(&mut self, op_type: &str, attrs: Attrs, inputs: Vec<Arg>, last: Option<&str>) -> Arg {
        let hint = format!("{}/{op_type}", self.name);
        let name = match last {
            Some(last) => {
                let own = self.level.node_names.unique(&format!("{}/{last}", self.name));
                std::mem::replace(&mut self.name, own)
            }
            None => self.level.node_names.unique(&hint),
        };
        let output = self.level.add_value(&hint, Type::Unknown);
        self.add(name, op_type, attrs, inputs, output);
        Arg::Value(output)
    }

    /// Adds a node behind the node that is upgraded: it makes what was the output of a slot, out of what the node makes from now on.
    pub(crate) fn emit_behind(&mut self, slot: usize, op_type: &str, attrs: Attrs) {
        let Some(output) = self.outputs.get(slot).copied().flatten() else { return };
        let hint = format!("{}/{op_type}", self.name);
        let name = self.level.node_names.unique(&hint);
        let inner = self.level.add_value(&hint, Type::Unknown);
        self.outputs[slot] = Some(inner);
        self.add(name, op_type, attrs, vec![Arg::Value(inner)], output);
    }

    fn add(&mut self, name: String, op_type: &str, attrs: Attrs, inputs: Vec<Arg>, output: ValueId) {
        let mut draft = Draft {
            op: OpKey::new("", op_type),
            since: schema::since_version("", op_type, schema::MAX_OPSET).unwrap_or(1),
            attrs,
            inputs,
            outputs: 1,
            wanted: vec![true],
        };
        draft.trim();
        self.level.add_draft(&name, draft, &[Some(output)]);
        self.added.push(name);
    }

    /// A constant scalar of the dtype of `like`: exact for the small numbers that attributes hold.
    pub(crate) fn scalar_like(&mut self, value: f32, like: &Arg) -> Arg {
        let scalar = |dtype| scalar_of(value, dtype).map(Arg::Const);
        match self.dtype(like) {
            Some(dtype) => scalar(dtype).unwrap_or(Arg::None),
            None => match scalar(DType::F32) {
                Some(scalar) => self.emit("CastLike", Attrs::new(), vec![scalar, like.clone()], None),
                None => Arg::None,
            },
        }
    }
}

/// A scalar of a dtype; `None` for strings and packed types.
pub(crate) fn scalar_of(value: f32, dtype: DType) -> Option<Tensor> {
    let bytes: Vec<u8> = match dtype {
        DType::F32 => value.to_le_bytes().to_vec(),
        DType::F64 => f64::from(value).to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f32(value).to_le_bytes().to_vec(),
        DType::Bf16 => half::bf16::from_f32(value).to_le_bytes().to_vec(),
        DType::Bool => vec![u8::from(value != 0.0)],
        DType::U8 => vec![value as u8],
        DType::I8 => (value as i8).to_le_bytes().to_vec(),
        DType::U16 => (value as u16).to_le_bytes().to_vec(),
        DType::I16 => (value as i16).to_le_bytes().to_vec(),
        DType::U32 => (value as u32).to_le_bytes().to_vec(),
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::U64 => (value as u64).to_le_bytes().to_vec(),
        DType::I64 => (value as i64).to_le_bytes().to_vec(),
        _ => return None,
    };
    Tensor::new(dtype, Vec::new(), bytes.into())
}

impl Level {
    /// Adds a node from its final form; constants that a rule brought in become initializers.
    pub(crate) fn add_draft(&mut self, name: &str, draft: Draft, outputs: &[Option<ValueId>]) {
        let mut inputs = Vec::with_capacity(draft.inputs.len());
        for (slot, arg) in draft.inputs.iter().enumerate() {
            inputs.push(match arg {
                Arg::None => None,
                Arg::Value(id) => Some(*id),
                Arg::Const(tensor) => {
                    let formal = schema::lookup(&draft.op.domain, &draft.op.op_type, draft.since)
                        .and_then(|schema| schema.input(slot))
                        .map_or("constant", |param| param.name);
                    Some(self.add_constant(&format!("{name}/{formal}"), tensor.clone()))
                }
            });
        }
        self.facts.learn_node(&self.graph, &draft, &inputs, outputs);
        let outputs = outputs.iter().copied();
        self.graph.add_node(Node::new(name, draft.op, draft.since, draft.attrs, inputs, outputs));
    }
}

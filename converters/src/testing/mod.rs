//! Cases of one node for the tests of operator files.
//!
//! A [`Case`] builds a graph of one node, runs inference, and then either expects a refusal, shows the inferred types, or lowers
//! the node and checks the network.

mod hosts;
mod numbers;

use crate::{LowerError, Registry, SegmentIo, lower};
use bytes::Bytes;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{
    Attr, Attrs, Code, Dim, Interval, Module, Node, NodeId, NodeView, OpKey, Oracle, Refusal, Tensor,
    TensorType, Type,
    infer::{ConstraintKind, infer_module},
};
use trtc_network::Lowered;
use trtc_tensorrt::{BuildOptions, Library};

/// How close results must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Equal, NaN to NaN.
    Exact,
    /// |a − b| ≤ atol + rtol · |b|.
    Near { rtol: f64, atol: f64 },
}

/// A few roundings of f32.
pub const F32: Tolerance = Tolerance::Near { rtol: 1e-5, atol: 1e-6 };
/// A few roundings of f16.
pub const F16: Tolerance = Tolerance::Near { rtol: 4e-3, atol: 1e-3 };
/// A few roundings of bf16.
pub const BF16: Tolerance = Tolerance::Near { rtol: 2e-2, atol: 1e-2 };

/// Largest value of a symbol in a case.
const SYMBOL_MAX: i64 = 16;

#[derive(Clone, Debug)]
struct Slot {
    tensor: Tensor,
    constant: bool,
    /// Dims of the type: a number, or the name of a symbol.
    dims: Option<Vec<String>>,
    unranked: bool,
    untyped: bool,
    /// Symbolic elements.
    sizes: Option<Vec<String>>,
    /// No input of the node: a value that its subgraphs use.
    outside: bool,
}

/// One node under test.
#[derive(Clone, Debug)]
pub struct Case {
    op: OpKey,
    since: u32,
    attrs: Attrs,
    slots: Vec<Option<Slot>>,
    outputs: usize,
    /// Dims of outputs, as the model declares them.
    declared: Vec<(usize, Vec<i64>)>,
    target: Target,
}

/// A case as IR.
pub struct Built {
    pub module: Module,
    pub node: NodeId,
}

impl Case {
    /// An operator of ai.onnx at its canonical version.
    pub fn new(op: &str, since: u32) -> Case {
        Case::of("", op, since)
    }

    /// An operator of another domain.
    pub fn of(domain: &str, op: &str, since: u32) -> Case {
        Case {
            op: OpKey::new(domain, op),
            since,
            attrs: Attrs::new(),
            slots: Vec::new(),
            outputs: 1,
            declared: Vec::new(),
            target: "rtx-1.7:sm89".parse().unwrap(),
        }
    }

    fn slot(mut self, tensor: Tensor, constant: bool) -> Case {
        self.slots.push(Some(Slot {
            tensor,
            constant,
            dims: None,
            unranked: false,
            untyped: false,
            sizes: None,
            outside: false,
        }));
        self
    }

    /// A value that is no input of the node but that its subgraphs may capture: `ValueId(slot)` when no slot is absent.
    /// Such slots come last.
    pub fn outside(self, tensor: Tensor) -> Case {
        let mut case = self.input(tensor);
        if let Some(Some(slot)) = case.slots.last_mut() {
            slot.outside = true;
        }
        case
    }

    /// The next input slot, given at run time.
    pub fn input(self, tensor: Tensor) -> Case {
        self.slot(tensor, false)
    }

    /// The next input slot, a constant.
    pub fn constant(self, tensor: Tensor) -> Case {
        self.slot(tensor, true)
    }

    /// The next input slot, absent.
    pub fn absent(mut self) -> Case {
        self.slots.push(None);
        self
    }

    fn last(&mut self, slot: usize) -> &mut Slot {
        self.slots[slot].as_mut().unwrap()
    }

    /// Dims of a slot's type: numbers, or names of symbols (1 to 16; `name?` has no upper bound, `?` is unknown).
    pub fn dynamic<const N: usize>(mut self, slot: usize, dims: [&str; N]) -> Case {
        self.last(slot).dims = Some(dims.map(str::to_owned).to_vec());
        self
    }

    /// The elements of a slot, known as numbers and symbols.
    pub fn sizes<const N: usize>(mut self, slot: usize, sizes: [&str; N]) -> Case {
        self.last(slot).sizes = Some(sizes.map(str::to_owned).to_vec());
        self
    }

    /// The slot's rank is not known.
    pub fn unranked(mut self, slot: usize) -> Case {
        self.last(slot).unranked = true;
        self
    }

    /// Nothing is known of the slot.
    pub fn untyped(mut self, slot: usize) -> Case {
        self.last(slot).untyped = true;
        self
    }

    /// An attribute.
    pub fn attr(mut self, name: &str, value: Attr) -> Case {
        self.attrs.set(name, value);
        self
    }

    /// An integer attribute.
    pub fn int(self, name: &str, value: i64) -> Case {
        self.attr(name, Attr::Int(value))
    }

    /// A float attribute.
    pub fn float(self, name: &str, value: f32) -> Case {
        self.attr(name, Attr::Float(value))
    }

    /// A string attribute.
    pub fn str(self, name: &str, value: &str) -> Case {
        self.attr(name, Attr::Str(Bytes::copy_from_slice(value.as_bytes())))
    }

    /// A list of integers as attribute.
    pub fn ints(self, name: &str, value: &[i64]) -> Case {
        self.attr(name, Attr::Ints(value.to_vec()))
    }

    /// Number of outputs in use; 1 unless said.
    pub fn outputs(mut self, n: usize) -> Case {
        self.outputs = n;
        self
    }

    /// Dims of an output, as the model declares them.
    pub fn declared(mut self, output: usize, dims: &[i64]) -> Case {
        self.declared.push((output, dims.to_vec()));
        self
    }

    /// The target; `rtx-1.7:sm89` unless said.
    pub fn target(mut self, text: &str) -> Case {
        self.target = text.parse().unwrap();
        self
    }

    fn graph(&self) -> Built {
        let mut module = Module { opsets: vec![(String::new(), 24)], ..Module::default() };
        let mut inputs = Vec::new();
        for (k, slot) in self.slots.iter().enumerate() {
            let value = slot.as_ref().map(|slot| self.value(&mut module, k, slot));
            if !slot.as_ref().is_some_and(|slot| slot.outside) {
                inputs.push(value);
            }
        }
        let declared = |k: usize| match self.declared.iter().find(|(output, _)| *output == k) {
            None => Type::Unknown,
            Some((_, dims)) => {
                let shape = Some(dims.iter().map(|&d| Dim::Known(d)).collect());
                Type::Tensor(TensorType { dtype: None, shape })
            }
        };
        let outputs: Vec<_> =
            (0..self.outputs).map(|k| module.graph.add_value(&format!("y{k}"), declared(k))).collect();
        let node = Node::new(
            "node",
            self.op.clone(),
            self.since,
            self.attrs.clone(),
            inputs,
            outputs.iter().copied().map(Some),
        );
        let node = module.graph.add_node(node);
        module.graph.set_outputs(outputs);
        Built { module, node }
    }

    fn value(&self, module: &mut Module, k: usize, slot: &Slot) -> trtc_ir::ValueId {
        let Module { graph, symbols, .. } = module;
        if slot.constant {
            return graph.add_constant(&format!("c{k}"), slot.tensor.clone());
        }
        let mut dim = |text: &str| match text.parse::<i64>() {
            Ok(value) => Dim::Known(value),
            Err(_) if text == "?" => Dim::Unknown,
            Err(_) => {
                let symbol = symbols.named(text.trim_end_matches('?'));
                let max = (!text.ends_with('?')).then_some(SYMBOL_MAX);
                symbols.set_range(symbol, Interval { min: Some(1), max });
                Dim::symbol(symbol)
            }
        };
        let dims = match &slot.dims {
            Some(list) => list.iter().map(|text| dim(text)).collect(),
            None => slot.tensor.dims().iter().map(|&d| Dim::Known(d)).collect(),
        };
        let sizes: Option<Vec<Dim>> =
            slot.sizes.as_ref().map(|list| list.iter().map(|text| dim(text)).collect());
        let ty = match (slot.untyped, slot.unranked) {
            (true, _) => Type::Unknown,
            (_, true) => Type::unranked(slot.tensor.dtype()),
            _ => Type::tensor(slot.tensor.dtype(), dims),
        };
        let id = graph.add_input(&format!("x{k}"), ty);
        graph[id].elements = sizes;
        id
    }

    /// The case as IR after inference.
    pub fn built(&self) -> Built {
        let mut built = self.graph();
        infer_module(&mut built.module, Registry::get()).expect("inference accepts the node");
        built
    }

    fn admit(&self, built: &Built) -> Result<(), Refusal> {
        let view = NodeView::new(&built.module.graph, &built.module.symbols, built.node);
        let verdict = Registry::get().admit(view, &self.target);
        if let Err(refusal) = &verdict {
            let op = (&*self.op.domain, &*self.op.op_type);
            let def = Registry::get()
                .defs()
                .into_iter()
                .find(|def| def.keys.iter().any(|key| (key.domain, key.op) == op))
                .expect("a converter");
            assert!(def.refusals.contains(&refusal.code), "{} is not among DEF.refusals", refusal.code);
        }
        verdict
    }

    /// Expects that `plan` refuses with `code`.
    #[track_caller]
    pub fn refused(&self, code: Code) -> Refusal {
        match self.admit(&self.built()) {
            Ok(()) => panic!("{} was admitted, not refused with {code}", self.op),
            Err(refusal) => {
                assert_eq!(refusal.code, code, "{refusal}");
                refusal
            }
        }
    }

    /// Checks every refusal of `ctx::elementwise::gate` on slot 0: `wrong` is a tensor of a dtype that the operator does
    /// not take. An operator that does not take bf16 has no compute-capability gate.
    #[track_caller]
    pub fn gates(&self, wrong: Tensor) {
        self.gates_of_f32(wrong);
        let mut narrow = self.clone();
        for slot in narrow.slots.iter_mut().flatten().filter(|slot| slot.tensor.dtype() == DType::F32) {
            slot.tensor = bf16s([1], &[1.0]);
            narrow.target = "rtx-1.7:sm75".parse().unwrap();
        }
        if narrow.target.sms() == [75] {
            narrow.refused(Code::COMPUTE_CAPABILITY);
        }
    }

    /// As [`Case::gates`], of an operator that takes no other float than f32.
    #[track_caller]
    pub fn gates_of_f32(&self, wrong: Tensor) {
        let with = |change: &dyn Fn(&mut Slot)| {
            let mut case = self.clone();
            let same = self.slots[0].as_ref().unwrap().tensor.dtype();
            for slot in case.slots.iter_mut().flatten().filter(|slot| slot.tensor.dtype() == same) {
                slot.constant = false;
                change(slot);
            }
            case
        };
        let dtype = |tensor: Tensor| with(&|slot| slot.tensor = tensor.clone());
        let shaped = |dims: [&str; 9], n: usize| {
            with(&|slot| slot.dims = Some(dims[..n].iter().map(|&d| d.to_owned()).collect()))
        };
        dtype(f64s([1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        let wrong = dtype(wrong).refused(Code::DTYPE_KERNEL);
        assert!(wrong.slot.is_some());
        with(&|slot| slot.untyped = true).refused(Code::DTYPE_UNKNOWN);
        with(&|slot| slot.unranked = true).refused(Code::RANK_UNKNOWN);
        shaped(["1"; 9], 9).refused(Code::RANK);
        shaped(["0"; 9], 1).refused(Code::SHAPE);
        let mut absent = self.clone();
        absent.slots[0] = None;
        absent.refused(Code::INVALID);
    }

    /// Expects that inference rejects the node; the reason.
    #[track_caller]
    pub fn invalid(&self) -> String {
        let mut built = self.graph();
        match infer_module(&mut built.module, Registry::get()) {
            Ok(_) => panic!("{} passed inference", self.op),
            Err(diags) => diags[0].why.clone(),
        }
    }

    /// Inferred types of the outputs, with known elements: `i64[2] = [N, 3]`.
    pub fn types(&self) -> Vec<String> {
        let Built { module, .. } = self.built();
        let show = |&id: &trtc_ir::ValueId| {
            let value = &module.graph[id];
            let mut text = value.ty.show(&module.symbols);
            if let Some(elements) = &value.elements {
                let list: Vec<String> = elements.iter().map(|d| module.symbols.show(d)).collect();
                text.push_str(&format!(" = [{}]", list.join(", ")));
            }
            text
        };
        module.graph.outputs().iter().map(show).collect()
    }

    /// Pairs of dims that the node demands to be equal: `N = M`.
    pub fn equalities(&self) -> Vec<String> {
        let mut built = self.graph();
        let constraints = infer_module(&mut built.module, Registry::get()).unwrap();
        let show = |dim: &Dim| built.module.symbols.show(dim);
        let mut list: Vec<String> = constraints
            .iter()
            .filter_map(|constraint| match &constraint.kind {
                ConstraintKind::Equal(a, b) => Some(format!("{} = {}", show(a), show(b))),
                _ => None,
            })
            .collect();
        list.dedup();
        list
    }

    /// Plans and lowers the node.
    #[track_caller]
    pub fn lowered(&self) -> Lowered {
        self.lower(&self.built())
    }

    #[track_caller]
    fn lower(&self, built: &Built) -> Lowered {
        if let Err(refusal) = self.admit(built) {
            panic!("{} was refused: {} {refusal}", self.op, refusal.code);
        }
        match self.lowers_to(built) {
            Ok(lowered) => lowered,
            Err(error) => panic!("{} does not lower: {error}", self.op),
        }
    }

    fn lowers_to(&self, built: &Built) -> Result<Lowered, LowerError> {
        let graph = &built.module.graph;
        let outputs: Vec<_> =
            graph.outputs().iter().copied().filter(|&id| graph[id].constant.is_none()).collect();
        let io = SegmentIo { name: "case", nodes: &[built.node], inputs: graph.inputs(), outputs: &outputs };
        lower(graph, &built.module.symbols, io, &self.target)
    }

    /// Lowers the node, which is not asked before whether it may.
    ///
    /// # Errors
    /// The network or its boundary is refused.
    pub fn lowers(&self) -> Result<Lowered, LowerError> {
        self.lowers_to(&self.built())
    }

    /// TensorRT's names of the layers, constants left out.
    #[track_caller]
    pub fn layers(&self) -> Vec<&'static str> {
        let lowered = self.lowered();
        lowered.network.layers.iter().map(|entry| entry.layer.name()).filter(|&n| n != "Constant").collect()
    }

    /// Lowers the case and checks the network at the sizes of the given tensors and, when a dim is dynamic, at others.
    #[track_caller]
    pub fn check(&self, tolerance: Tolerance) {
        let built = self.built();
        let lowered = self.lower(&built);
        self.build(&lowered);
        numbers::compare(self, &lowered, tolerance);
    }

    /// As [`Case::check`], against outputs from elsewhere (the specification, a sum by hand), at the given sizes only.
    #[track_caller]
    pub fn gives(&self, tolerance: Tolerance, expected: &[Tensor]) {
        let lowered = self.lowered();
        self.build(&lowered);
        numbers::compare_with(self, &lowered, tolerance, expected);
    }

    /// The same case in other dtypes.
    fn widened(&self, widen: numbers::Widen) -> Case {
        let mut case = self.clone();
        for slot in case.slots.iter_mut().flatten() {
            slot.tensor = widen.apply(&slot.tensor);
        }
        case
    }

    /// Builds an engine with the real builder, where the SDK is.
    #[track_caller]
    fn build(&self, lowered: &Lowered) {
        let Some(library) = rtx() else { return };
        let weights: Vec<&[u8]> = lowered.weights.iter().map(|bytes| &bytes[..]).collect();
        let result =
            library.builder().build(&lowered.network, &weights, &self.target, &BuildOptions::default());
        if let Err(error) = result {
            panic!("{} does not build: {error}\n{}", self.op, lowered.network);
        }
    }

    /// Tensors of the run-time inputs by slot, with every symbol larger by `grown` than in the given tensors.
    fn tensors(&self, grown: i64) -> Vec<(usize, Tensor)> {
        let tensor = |slot: &Slot| match &slot.dims {
            Some(dims) if grown > 0 => {
                let size =
                    |(text, &d): (&String, &i64)| if text.parse::<i64>().is_ok() { d } else { d + grown };
                repeated(&slot.tensor, dims.iter().zip(slot.tensor.dims()).map(size).collect())
            }
            _ => slot.tensor.clone(),
        };
        let present = self.slots.iter().enumerate().filter_map(|(k, slot)| Some((k, slot.as_ref()?)));
        present.filter(|(_, slot)| !slot.constant).map(|(k, slot)| (k, tensor(slot))).collect()
    }
}

/// The TensorRT-RTX library of the SDK; `None` where nobody fetched it.
fn rtx() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let open = || {
        let path = sdk()?.join("lib/libtensorrt_rtx.so.1");
        Some(Library::open(Product::Rtx, &path).expect("the SDK's library opens"))
    };
    LIBRARY
        .get_or_init(|| {
            open().or_else(|| {
                eprintln!("no SDK: nothing is built");
                None
            })
        })
        .as_ref()
}

/// The folder `.sdk` of the checkout.
fn sdk() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|folder| folder.join(".sdk")).find(|folder| folder.join("lib").is_dir())
}

/// The same elements over again, in other dims.
pub fn repeated(tensor: &Tensor, dims: Vec<i64>) -> Tensor {
    let (dtype, count) = (tensor.dtype(), dims.iter().product::<i64>() as usize);
    // Elements below a byte are packed anew.
    let carrier = dtype.carrier().filter(|_| dtype.bits() < 8);
    let bytes = match carrier {
        Some(_) => trtc_bundle::widened(dtype, tensor.count(), tensor.bytes().unwrap()).unwrap(),
        None => tensor.bytes().unwrap().to_vec(),
    };
    let wanted = carrier.unwrap_or(dtype).bytes_for(count).unwrap();
    let all: Vec<u8> = bytes.iter().copied().cycle().take(wanted).collect();
    let all = if carrier.is_some() { trtc_bundle::narrowed(dtype, count, &all).unwrap() } else { all };
    Tensor::new(dtype, dims, all.into()).unwrap()
}

macro_rules! makers {
    ($($name:ident $type:ty, $dtype:ident, $bytes:expr;)*) => {$(
        /// A tensor.
        pub fn $name<const R: usize>(dims: [i64; R], values: &[$type]) -> Tensor {
            let bytes: Vec<u8> = values.iter().flat_map($bytes).collect();
            Tensor::new(DType::$dtype, dims.to_vec(), bytes.into()).expect("as many values as the dims hold")
        }
    )*};
}

makers! {
    f32s f32, F32, |v| v.to_le_bytes();
    f64s f64, F64, |v| v.to_le_bytes();
    f16s f32, F16, |&v| half::f16::from_f32(v).to_le_bytes();
    bf16s f32, Bf16, |&v| half::bf16::from_f32(v).to_le_bytes();
    i64s i64, I64, |v| v.to_le_bytes();
    i32s i32, I32, |v| v.to_le_bytes();
    i8s i8, I8, |v| v.to_le_bytes();
    u8s u8, U8, |v| v.to_le_bytes();
    i16s i16, I16, |v| v.to_le_bytes();
    f8s u8, F8E4M3, |v| v.to_le_bytes();
    bools bool, Bool, |&v| [u8::from(v)];
}

/// Values of `dtype` from f64: integers keep their lowest bits, floats of 8 bits must be values that they have.
pub fn of_dtype<const R: usize>(dtype: DType, dims: [i64; R], values: &[f64]) -> Tensor {
    let f: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    match dtype {
        DType::F32 => f32s(dims, &f),
        DType::F16 => f16s(dims, &f),
        DType::Bf16 => bf16s(dims, &f),
        DType::F64 => f64s(dims, values),
        DType::I64 => i64s(dims, &values.iter().map(|&v| v as i64).collect::<Vec<_>>()),
        DType::I32 => i32s(dims, &values.iter().map(|&v| v as i32).collect::<Vec<_>>()),
        DType::I8 => i8s(dims, &values.iter().map(|&v| v as i64 as i8).collect::<Vec<_>>()),
        DType::U8 => u8s(dims, &values.iter().map(|&v| v as i64 as u8).collect::<Vec<_>>()),
        DType::I16 => i16s(dims, &values.iter().map(|&v| v as i64 as i16).collect::<Vec<_>>()),
        DType::Bool => bools(dims, &values.iter().map(|&v| v != 0.0).collect::<Vec<_>>()),
        other => {
            let wide = of_dtype(other.carrier().expect("a dtype with a carrier"), dims, values);
            let bytes = trtc_bundle::narrowed(other, wide.count(), wide.bytes().unwrap());
            Tensor::new(other, dims.to_vec(), bytes.expect("values of the dtype").into()).unwrap()
        }
    }
}

/// A tensor of f4e2m1, which no operator takes.
pub fn unheld() -> Tensor {
    Tensor::new(DType::F4E2M1, vec![1], vec![1].into()).expect("one half byte")
}

/// Tolerance of a dtype after a few roundings.
pub fn near(dtype: DType) -> Tolerance {
    match dtype {
        DType::F32 => F32,
        DType::F16 => F16,
        DType::Bf16 => BF16,
        _ => Tolerance::Exact,
    }
}

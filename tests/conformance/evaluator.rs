//! TensorRT's own evaluation of the layers that the converters emit.
//!
//! Inputs become constants. The library evaluates what follows from them wherever a shape depends on it, so each result,
//! scaled to whole numbers, becomes the dims of a `Fill` layer, and those can be read without a build. It does not evaluate
//! every layer: then it answers −1.

use crate::{
    cases::{DataSet, Facts},
    result::Status,
};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use std::{path::Path, sync::OnceLock};
use trtc::Bundle;
use trtc_bundle::{DType, Product};
use trtc_network::{
    Layer, LayerEntry, Lowered, Network, Output, TensorId, TensorInfo, WeightsId, WeightsInfo,
    layer::{ElementWiseOp, Extent, FillOp, SampleMode},
};
use trtc_runtime::{Tensor, Value};
use trtc_tensorrt::{Builder, Library, Use, locate};

/// Elements of an output that are looked at, evenly spread.
const MOST: usize = 48;
/// Elements whose sizes one `Fill` has: the number of its elements must fit 63 bits.
const TOGETHER: usize = 2;
/// Magnitude to which results are scaled.
const UNIT: f64 = (1u64 << 27) as f64;
/// Added to results, as no dim is negative.
const OFFSET: i64 = 1 << 28;

/// Compares what the library makes of the case's only engine with the expected outputs.
pub fn run_evaluator(bundle: &Bundle, sets: &[DataSet], facts: Facts) -> Status {
    let segments = bundle.manifest().targets.first().map_or(&[][..], |target| &target.segments);
    let [segment] = segments else { return Status::Skipped("not one engine".into()) };
    let Some(reference) = &segment.network else { return Status::Skipped("no engine".into()) };
    let Some(set) = sets.first() else { return Status::Skipped("no data".into()) };
    let builder = match builder() {
        Ok(builder) => builder,
        Err(why) => return Status::Skipped(why.clone()),
    };
    let lowered = match trtc::network(bundle, reference) {
        Ok(lowered) => lowered,
        Err(error) => return Status::wrong("setup", error),
    };
    let rounds =
        |entry: &LayerEntry| matches!(entry.layer, Layer::Quantize { .. } | Layer::Dequantize { .. });
    if lowered.network.layers.iter().any(rounds) {
        return Status::Skipped("the library's evaluation leaves quantisation out".into());
    }
    match Question::of(lowered, set) {
        Ok(question) => question.ask(builder, facts),
        Err(why) => Status::Skipped(why.to_string()),
    }
}

fn builder() -> Result<&'static Builder, &'static String> {
    static BUILDER: OnceLock<Result<Builder, String>> = OnceLock::new();
    let open = || {
        let path = locate(Product::Rtx, Use::Build, None).map_err(|error| error.to_string())?;
        let library = Library::open(Product::Rtx, Path::new(&path)).map_err(|error| error.to_string())?;
        Ok(library.builder())
    };
    BUILDER.get_or_init(open).as_ref()
}

/// A network whose outputs' dims are the results of another one.
struct Question {
    lowered: Lowered,
    /// Of each element asked for: output, index, expected value, and what it was multiplied by.
    elements: Vec<(String, usize, f64, f64)>,
}

impl Question {
    fn of(lowered: Lowered, set: &DataSet) -> Result<Question> {
        let mut question = Question { lowered, elements: Vec::new() };
        let mut constants = Vec::new();
        for input in std::mem::take(&mut question.network().inputs) {
            let value = set.inputs.iter().find(|(name, _)| *name == input.name);
            let tensor =
                value.and_then(|(_, value)| value.as_tensor()).context("an input that is not given")?;
            let dims: Vec<i64> = tensor.dims().iter().map(|&dim| dim as i64).collect();
            let known = &question.network().tensors[input.tensor.index()];
            anyhow::ensure!(tensor.dtype().binding() == Some(known.dtype), "an input of another dtype");
            let (dtype, bytes) = carried(tensor).context("an input that nothing carries")?;
            // TensorRT has no constants of bytes: the cast behind the binding is left out.
            question.network().tensors[input.tensor.index()].dtype = dtype;
            let layer = question.constant_layer(dtype, dims, bytes);
            constants.push(LayerEntry { layer, outputs: vec![input.tensor], node: 0 });
        }
        question.network().layers.splice(0..0, constants);
        question.network().profile.clear();
        for output in std::mem::take(&mut question.network().outputs) {
            let expected = set.outputs.iter().find(|(name, _)| *name == output.name);
            if let Some((name, Value::Tensor(expected))) = expected {
                question.output(output.tensor, name, expected)?;
            }
        }
        anyhow::ensure!(!question.elements.is_empty(), "nothing to ask for");
        Ok(question)
    }

    fn network(&mut self) -> &mut Network {
        &mut self.lowered.network
    }

    /// Asks for elements of one output.
    fn output(&mut self, tensor: TensorId, name: &str, expected: &Tensor) -> Result<()> {
        let binding = self.network().tensors[tensor.index()].dtype;
        anyhow::ensure!(expected.dtype().binding() == Some(binding), "an output of another dtype");
        let tensor = self.before_bytes(tensor);
        let info = self.network().tensors[tensor.index()].clone();
        let values = numbers(expected).context("a dtype that is not read here")?;
        let count = values.len();
        let largest = values.iter().filter(|value| value.is_finite()).fold(0.0f64, |a, &b| a.max(b.abs()));
        let whole = !info.dtype.is_float();
        anyhow::ensure!(count > 0, "an empty output");
        anyhow::ensure!(!whole || largest < UNIT, "integers that are too large to be dims");
        let scale = if whole || largest == 0.0 { 1.0 } else { (UNIT / largest).log2().floor().exp2() };
        let add = |question: &mut Question, layer: Layer, dtype: DType, dims: &[i64]| {
            let tensors = &mut question.network().tensors;
            tensors.push(TensorInfo { dtype, dims: dims.to_vec() });
            let id = TensorId(tensors.len() as u32 - 1);
            question.network().layers.push(LayerEntry { layer, outputs: vec![id], node: 0 });
            id
        };
        let numbers = |n: usize| Extent::Static(vec![n as i64]);
        let (first, second, x) = (None, None, tensor);
        let flat =
            Layer::Shuffle { x, first, reshape: Some(numbers(count)), zero_is_placeholder: false, second };
        let flat = add(self, flat, info.dtype, &[count as i64]);
        let step = count.div_ceil(MOST);
        let wanted: Vec<usize> = (0..count).step_by(step).filter(|&k| values[k].is_finite()).collect();
        for together in wanted.chunks(TOGETHER) {
            // Not all are neighbours: an infinity between them is left out.
            let stride = together.get(1).map_or(1, |next| next - together[0]);
            let (start, size, stride) = (numbers(together[0]), numbers(together.len()), numbers(stride));
            let dims = [together.len() as i64];
            let layer = Layer::Slice { x: flat, start, size, stride, mode: SampleMode::Strict, fill: None };
            let mut x = add(self, layer, info.dtype, &dims);
            if info.dtype == DType::Bool {
                x = add(self, Layer::Cast { x, to: DType::I32 }, DType::I32, &dims);
            }
            if !whole {
                if info.dtype != DType::F32 {
                    x = add(self, Layer::Cast { x, to: DType::F32 }, DType::F32, &dims);
                }
                let layer = self.constant_layer(DType::F32, vec![1], (scale as f32).to_le_bytes().to_vec());
                let b = add(self, layer, DType::F32, &[1]);
                x = add(self, Layer::ElementWise { a: x, b, op: ElementWiseOp::Prod }, DType::F32, &dims);
            }
            if info.dtype != DType::I64 {
                x = add(self, Layer::Cast { x, to: DType::I64 }, DType::I64, &dims);
            }
            let layer = self.constant_layer(DType::I64, vec![1], OFFSET.to_le_bytes().to_vec());
            let b = add(self, layer, DType::I64, &[1]);
            let sizes = add(self, Layer::ElementWise { a: x, b, op: ElementWiseOp::Sum }, DType::I64, &dims);
            let layer = self.constant_layer(DType::I64, Vec::new(), vec![0; 8]);
            let alpha = add(self, layer, DType::I64, &[]);
            let layer = self.constant_layer(DType::I64, dims.to_vec(), vec![0; 8 * together.len()]);
            let beta = add(self, layer, DType::I64, &dims);
            let shape = Extent::Tensor(sizes);
            let layer = Layer::Fill { shape, op: FillOp::Linspace, alpha, beta, to: DType::I64 };
            let tensor = add(self, layer, DType::I64, &vec![-1; together.len()]);
            let number = self.network().outputs.len();
            self.network().outputs.push(Output { name: format!("fill {number}"), tensor });
            self.elements.extend(together.iter().map(|&k| (name.to_owned(), k, values[k], scale)));
        }
        Ok(())
    }

    /// The i32 that is cast to bytes for a binding, to u8 by way of f32; other tensors themselves.
    fn before_bytes(&mut self, mut tensor: TensorId) -> TensorId {
        let network = self.network();
        let casts = match network.tensors[tensor.index()].dtype {
            DType::U8 => 2,
            DType::I8 => 1,
            _ => 0,
        };
        for _ in 0..casts {
            let maker = network.layers.iter().find(|entry| entry.outputs.contains(&tensor));
            if let Some(Layer::Cast { x, .. }) = maker.map(|entry| &entry.layer) {
                tensor = *x;
            }
        }
        tensor
    }

    /// A constant; its bytes join the weights.
    fn constant_layer(&mut self, dtype: DType, dims: Vec<i64>, bytes: Vec<u8>) -> Layer {
        let count = dims.iter().product::<i64>() as u64;
        self.lowered.network.weights.push(WeightsInfo { dtype, count });
        self.lowered.weights.push(Bytes::from(bytes));
        Layer::Constant { dims, weights: WeightsId(self.lowered.weights.len() as u32 - 1) }
    }

    fn ask(&self, builder: &Builder, facts: Facts) -> Status {
        let weights: Vec<&[u8]> = self.lowered.weights.iter().map(|bytes| &bytes[..]).collect();
        let answers = match builder.outputs(&self.lowered.network, &weights) {
            Ok(infos) => infos,
            // Limits of dims, which no result need keep.
            Err(error) => return Status::Skipped(format!("not answered: {error}")),
        };
        let dims: Vec<i64> = answers.iter().flat_map(|info| info.dims.iter().copied()).collect();
        if dims.len() != self.elements.len() || dims.contains(&-1) {
            return Status::Skipped("not answered".into());
        }
        for (&dim, (name, index, expected, scale)) in dims.iter().zip(&self.elements) {
            let found = (dim - OFFSET) as f64 / scale;
            // The cast to whole numbers cuts off less than one.
            let allowed = facts.atol.max(2e-6) + facts.rtol * expected.abs() + 1.0 / scale;
            if (found - expected).abs() > if *scale == 1.0 { 0.0 } else { allowed } {
                return Status::wrong(
                    "differs",
                    format!("{name}, element {index}: {found} instead of {expected}"),
                );
            }
        }
        Status::Right
    }
}

/// Elements as numbers; `None` for dtypes that have none that are exact.
fn numbers(tensor: &Tensor) -> Option<Vec<f64>> {
    let (dtype, bytes) = carried(tensor)?;
    Some(match dtype {
        DType::F32 => {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect()
        }
        DType::F16 => bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).into()).collect(),
        DType::I32 => {
            bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect()
        }
        DType::I64 => {
            let read = |b: &[u8]| b.try_into().map(i64::from_le_bytes).map(|v| v as f64).ok();
            bytes.chunks_exact(8).map(read).collect::<Option<Vec<f64>>>()?
        }
        DType::Bool => bytes.iter().map(|&b| b.into()).collect(),
        _ => return None,
    })
}

/// The dtype that carries a tensor's elements in a network, and their bytes in it.
fn carried(tensor: &Tensor) -> Option<(DType, Vec<u8>)> {
    let count = tensor.dims().iter().product();
    Some((tensor.dtype().carrier()?, trtc_bundle::widened(tensor.dtype(), count, tensor.bytes())?))
}

//! Builds small networks, runs them raised, and compares tensors.

use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::Tensor as OrtTensor;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trtc_bundle::DType;
use trtc_network::raise::{RaiseOptions, raise};
use trtc_network::{Lowered, NetworkBuilder, TensorId};

/// A dense tensor; values of any dtype as f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub dtype: DType,
    pub dims: Vec<usize>,
    pub values: Vec<f64>,
}

impl Tensor {
    pub fn new(dtype: DType, dims: &[usize], values: &[f64]) -> Tensor {
        assert_eq!(dims.iter().product::<usize>(), values.len());
        Tensor { dtype, dims: dims.to_vec(), values: values.to_vec() }
    }

    /// An f32 tensor.
    pub fn f32(dims: &[usize], values: &[f64]) -> Tensor {
        Tensor::new(DType::F32, dims, values)
    }

    pub fn i64(dims: &[usize], values: &[f64]) -> Tensor {
        Tensor::new(DType::I64, dims, values)
    }

    pub fn bool(dims: &[usize], values: &[f64]) -> Tensor {
        Tensor::new(DType::Bool, dims, values)
    }

    /// Element by element from its position.
    pub fn from_fn(dtype: DType, dims: &[usize], mut f: impl FnMut(&[usize]) -> f64) -> Tensor {
        let values = positions(dims).map(|at| f(&at)).collect();
        Tensor { dtype, dims: dims.to_vec(), values }
    }

    /// f32 values in [-2, 2], multiples of 1/16: sums and products of a few are exact.
    pub fn noise(dims: &[usize], seed: u64) -> Tensor {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Tensor::from_fn(DType::F32, dims, |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % 65) as f64 / 16.0 - 2.0
        })
    }

    pub fn at(&self, position: &[usize]) -> f64 {
        assert_eq!(position.len(), self.dims.len());
        let flat = position.iter().zip(&self.dims).fold(0, |flat, (&p, &d)| {
            assert!(p < d, "{position:?} of {:?}", self.dims);
            flat * d + p
        });
        self.values[flat]
    }

    /// The element at a position of a larger tensor: dims of 1 repeat.
    pub fn broadcast_at(&self, position: &[usize]) -> f64 {
        let own: Vec<usize> =
            position.iter().zip(&self.dims).map(|(&p, &d)| if d == 1 { 0 } else { p }).collect();
        self.at(&own)
    }

    pub fn map(&self, f: impl Fn(f64) -> f64) -> Tensor {
        Tensor { values: self.values.iter().map(|&v| f(v)).collect(), ..self.clone() }
    }
}

/// Every position of a tensor of these dims, last axis fastest.
pub fn positions(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let dims = dims.to_vec();
    (0..dims.iter().product::<usize>()).map(move |mut flat| {
        let mut at = vec![0; dims.len()];
        for (p, d) in at.iter_mut().zip(&dims).rev() {
            *p = flat % d;
            flat /= d;
        }
        at
    })
}

/// Equal dtype and dims, and values within `tolerance` · (1 + |expected|); NaN equals NaN.
#[track_caller]
pub fn assert_close(got: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!((got.dtype, &got.dims), (expected.dtype, &expected.dims));
    for (k, (&g, &e)) in got.values.iter().zip(&expected.values).enumerate() {
        let close = g == e || (g.is_nan() && e.is_nan()) || (g - e).abs() <= tolerance * (1.0 + e.abs());
        assert!(
            close,
            "element {k}: {g}, expected {e}\n got {:?}\n expected {:?}",
            got.values, expected.values
        );
    }
}

/// Makes a network of `inputs` and what `build` adds, once with its dims known and once with all of them dynamic, and runs both;
/// they must agree.
#[track_caller]
pub fn run(
    inputs: &[Tensor],
    build: impl Fn(&mut NetworkBuilder, &[TensorId]) -> Vec<TensorId>,
) -> Vec<Tensor> {
    let fixed = run_static(inputs, &build);
    let dynamic = run_lowered(&network(inputs, true, &build), inputs);
    assert_eq!(fixed.len(), dynamic.len());
    for (a, b) in fixed.iter().zip(&dynamic) {
        assert_close(b, a, 0.0);
    }
    fixed
}

/// The one output of [`run`].
#[track_caller]
pub fn run_one(inputs: &[Tensor], build: impl Fn(&mut NetworkBuilder, &[TensorId]) -> TensorId) -> Tensor {
    run(inputs, |b, ids| vec![build(b, ids)]).remove(0)
}

/// Runs with known dims only.
#[track_caller]
pub fn run_static(
    inputs: &[Tensor],
    build: impl Fn(&mut NetworkBuilder, &[TensorId]) -> Vec<TensorId>,
) -> Vec<Tensor> {
    run_lowered(&network(inputs, false, build), inputs)
}

/// A network whose inputs are `in0`, `in1`, … and whose outputs are `out0`, ….
#[track_caller]
pub fn network(
    inputs: &[Tensor],
    dynamic: bool,
    build: impl Fn(&mut NetworkBuilder, &[TensorId]) -> Vec<TensorId>,
) -> Lowered {
    let mut builder = NetworkBuilder::new("test");
    builder.begin_node("node");
    let mut ids = Vec::new();
    for (k, input) in inputs.iter().enumerate() {
        let dims = input.dims.iter().map(|&d| if dynamic { -1 } else { d as i64 }).collect();
        ids.push(builder.add_input(&format!("in{k}"), input.dtype, dims));
    }
    for (k, output) in build(&mut builder, &ids).into_iter().enumerate() {
        builder.mark_output(output, &format!("out{k}"));
    }
    builder.finish().expect("a network that TensorRT can hold")
}

#[track_caller]
pub fn run_lowered(lowered: &Lowered, inputs: &[Tensor]) -> Vec<Tensor> {
    let model = raise(lowered, &RaiseOptions::new()).expect("raised");
    run_model(&model, None, inputs)
}

/// Runs a model in ONNX Runtime; `folder` holds its external data. Outputs have the dtype and dims that the model declares.
#[track_caller]
pub fn run_model(model: &trtc_onnx::ModelProto, folder: Option<&Path>, inputs: &[Tensor]) -> Vec<Tensor> {
    let bytes = trtc_onnx::write::encode(model).expect("encoded");
    let mut builder = Session::builder(environment())
        .and_then(|b| Ok(b.with_log_level(LogLevel::Error)?.with_intra_threads(1)?))
        .expect("session options");
    if let Some(folder) = folder {
        let folder = folder.to_str().expect("a UTF-8 path");
        builder = builder
            .with_config_entry("session.model_external_initializers_file_folder_path", folder)
            .expect("session option");
    }
    let mut session =
        builder.commit_from_memory(&bytes).unwrap_or_else(|error| panic!("{error}\n{}", listing(model)));
    let feeds: Vec<(String, SessionInputValue<'_>)> =
        inputs.iter().enumerate().map(|(k, input)| (format!("in{k}"), feed(input))).collect();
    let outputs = session.run(feeds).unwrap_or_else(|error| panic!("{error}\n{}", listing(model)));
    let graph = model.graph.as_ref().expect("a graph");
    graph.output.iter().enumerate().map(|(k, info)| fetch(&outputs[k], info)).collect()
}

fn feed(input: &Tensor) -> SessionInputValue<'static> {
    fn tensor<T: ort::value::PrimitiveTensorElementType + Clone + std::fmt::Debug + 'static>(
        input: &Tensor,
        f: impl Fn(f64) -> T,
    ) -> SessionInputValue<'static> {
        let dims: Vec<i64> = input.dims.iter().map(|&d| d as i64).collect();
        let values: Vec<T> = input.values.iter().map(|&v| f(v)).collect();
        OrtTensor::from_array((dims, values)).expect("an input tensor").into()
    }
    match input.dtype {
        DType::F32 => tensor(input, |v| v as f32),
        DType::I64 => tensor(input, |v| v as i64),
        DType::I32 => tensor(input, |v| v as i32),
        DType::I8 => tensor(input, |v| v as i8),
        DType::U8 => tensor(input, |v| v as u8),
        DType::Bool => tensor(input, |v| v != 0.0),
        other => panic!("inputs of {other}: cast inside the network"),
    }
}

fn fetch(value: &ort::value::DynValue, info: &trtc_onnx::ValueInfoProto) -> Tensor {
    let Some(trtc_onnx::TypeValue::Tensor(declared)) = info.r#type.as_ref().and_then(|t| t.value.as_ref())
    else {
        panic!("an output that is no tensor");
    };
    let dtype = declared.elem_type.and_then(DType::from_onnx).expect("an element type");
    macro_rules! extract {
        ($type:ty, $convert:expr) => {{
            let (shape, values) = value.try_extract_tensor::<$type>().expect("an output tensor");
            (shape.to_vec(), values.iter().map($convert).collect())
        }};
    }
    let (shape, values): (Vec<i64>, Vec<f64>) = match dtype {
        DType::F32 => extract!(f32, |&v| f64::from(v)),
        DType::I64 => extract!(i64, |&v| v as f64),
        DType::I32 => extract!(i32, |&v| f64::from(v)),
        DType::I8 => extract!(i8, |&v| f64::from(v)),
        DType::U8 => extract!(u8, |&v| f64::from(v)),
        DType::Bool => extract!(bool, |&v| f64::from(u8::from(v))),
        other => panic!("outputs of {other}: cast inside the network"),
    };
    let declared = declared.shape.as_ref().expect("a shape");
    assert_eq!(declared.dim.len(), shape.len(), "declared rank of {:?}", info.name);
    for (dim, &size) in declared.dim.iter().zip(&shape) {
        if let Some(trtc_onnx::DimValue::Value(promised)) = dim.value {
            assert_eq!(promised, size, "declared dims of {:?} against {shape:?}", info.name);
        }
    }
    Tensor { dtype, dims: shape.iter().map(|&d| d as usize).collect(), values }
}

/// The nodes of a model, for a failure's message.
fn listing(model: &trtc_onnx::ModelProto) -> String {
    let nodes = model.graph.iter().flat_map(|graph| &graph.node);
    nodes
        .map(|node| {
            format!("{:?} = {}{:?}\n", node.output, node.op_type.as_deref().unwrap_or(""), node.input)
        })
        .collect()
}

/// One environment a process: ONNX Runtime allows no second one.
fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let library = library().unwrap_or_else(|| {
            panic!("no .sdk/lib/{LIBRARY} above this test or this crate: run `make sdk` first")
        });
        let builder = ort::init_from(&library).expect("ONNX Runtime loads");
        builder.with_telemetry(false).build().expect("an environment")
    })
}

const LIBRARY: &str = "libonnxruntime.so.1.32.0";

fn library() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok();
    let starts = [executable.as_deref(), Some(Path::new(env!("CARGO_MANIFEST_DIR")))];
    let mut candidates = starts
        .into_iter()
        .flatten()
        .flat_map(Path::ancestors)
        .map(|folder| folder.join(".sdk/lib").join(LIBRARY));
    candidates.find(|path| path.is_file())
}

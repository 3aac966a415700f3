//! Engines to results.

use crate::{
    Library,
    numbers::{Api, dtype_of},
};
use cxx::UniquePtr;
use std::sync::Arc;
use trtc_bundle::DType;
use trtc_tensorrt_sys::{OutputSink, ffi};

/// Number of CUDA devices; 0 without a driver. Initialises the driver and creates no CUDA context.
pub fn cuda_devices() -> usize {
    usize::try_from(ffi::cuda_devices()).unwrap_or(0)
}

/// Why an engine does not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// libcuda.so.1 is missing, or finds no device.
    #[error("no CUDA driver with a device on this machine")]
    NoDriver,
    /// The library refused; its own words.
    #[error("{what}: {}", .words.join("; "))]
    Failed {
        /// What was tried.
        what: String,
        /// Error lines of the library's log.
        words: Vec<String>,
    },
    /// A binding that the engine does not have, or not in that way.
    #[error("binding `{name}`: {why}")]
    Binding {
        /// Name of the binding.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Runs engines of one library.
#[derive(Clone)]
pub struct Runtime {
    library: Library,
    ffi: Arc<Shared<ffi::Runtime>>,
}

/// A shim object that any thread may use; which calls may overlap is said where it is used.
struct Shared<T: cxx::memory::UniquePtrTarget>(UniquePtr<T>);

// SAFETY: IRuntime and ICudaEngine may be used from any thread; those of their methods that the shim calls are listed as
// thread-safe in NvInferRuntime.h or only read.
unsafe impl<T: cxx::memory::UniquePtrTarget> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: cxx::memory::UniquePtrTarget> Sync for Shared<T> {}

impl Runtime {
    /// The caller has made sure that there is a driver.
    pub(crate) fn new(library: Library) -> Result<Runtime, RuntimeError> {
        let made = library.inner.ffi.runtime().map_err(|e| failed(&library, "no runtime", &e))?;
        Ok(Runtime { library, ffi: Arc::new(Shared(made)) })
    }

    /// Makes an engine of its bytes.
    ///
    /// An engine is code: `bytes` must come from someone who may run code here, and must not change meanwhile.
    ///
    /// # Errors
    /// [`RuntimeError::Failed`] with the library's words: another version, another GPU, damaged bytes.
    pub fn deserialize(&self, bytes: &[u8]) -> Result<Engine, RuntimeError> {
        self.library.inner.log.clear();
        let engine = self.ffi.0.deserialize(bytes);
        let engine = engine.map_err(|e| failed(&self.library, "the engine does not load", &e))?;
        Engine::new(self.clone(), engine)
    }
}

fn failed(library: &Library, what: &str, e: &cxx::Exception) -> RuntimeError {
    let mut words = library.inner.log.raw();
    words.dedup();
    if words.is_empty() {
        words.push(e.what().to_owned());
    }
    RuntimeError::Failed { what: what.to_owned(), words }
}

/// Input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The caller fills it.
    Input,
    /// The engine fills it.
    Output,
}

/// What an engine says of one of its inputs or outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Binding {
    /// Name.
    pub name: String,
    /// Input or output.
    pub mode: Mode,
    /// Element type.
    pub dtype: DType,
    /// Dims; −1 where the run decides.
    pub dims: Vec<i64>,
    /// Its address is host memory (a shape tensor), not device memory.
    pub on_host: bool,
    /// An input whose values, or an output whose values, take part in shape inference.
    pub is_shape: bool,
    /// Minimum, optimum, maximum dims of an input.
    pub profile_dims: Option<[Vec<i64>; 3]>,
    /// Minimum, optimum, maximum values of a shape tensor input.
    pub profile_values: Option<[Vec<i64>; 3]>,
}

/// A deserialized engine. Clones share it.
#[derive(Clone)]
pub struct Engine {
    runtime: Runtime,
    ffi: Arc<Shared<ffi::Engine>>,
    bindings: Arc<[Binding]>,
}

impl Engine {
    fn new(runtime: Runtime, engine: UniquePtr<ffi::Engine>) -> Result<Engine, RuntimeError> {
        let api = runtime.library.inner.api;
        let mut bindings = Vec::new();
        for index in 0..engine.io_count() {
            let name = engine.io_name(index);
            let name = name.map_err(|e| failed(&runtime.library, "a binding without a name", &e))?;
            bindings.push(binding(api, &engine, name)?);
        }
        Ok(Engine { runtime, ffi: Arc::new(Shared(engine)), bindings: bindings.into() })
    }

    /// Inputs and outputs, in the engine's order.
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    /// Activation memory that a context needs on the device, in bytes, whatever the dims.
    pub fn device_memory_bytes(&self) -> u64 {
        u64::try_from(self.ffi.0.device_memory_bytes()).unwrap_or(0)
    }

    /// A context, which runs one inference at a time. With `user_memory` the caller gives the activation memory
    /// ([`Context::set_device_memory`]), otherwise the library takes it now.
    ///
    /// # Errors
    /// [`RuntimeError::Failed`] with the library's words.
    pub fn context(&self, user_memory: bool) -> Result<Context, RuntimeError> {
        let library = &self.runtime.library;
        let context = self.ffi.0.context(user_memory);
        let context = context.map_err(|e| failed(library, "no execution context", &e))?;
        Ok(Context { ffi: context, engine: self.clone() })
    }
}

fn binding(api: Api, engine: &ffi::Engine, name: String) -> Result<Binding, RuntimeError> {
    let wrong = |why: String| RuntimeError::Binding { name: name.clone(), why };
    let desc = engine.io_desc(&name).map_err(|e| wrong(e.what().to_owned()))?;
    let dtype =
        dtype_of(api, desc.dtype).ok_or_else(|| wrong(format!("unknown element type {}", desc.dtype)))?;
    let dims = dims(&desc).ok_or_else(|| wrong("no dims".to_owned()))?;
    // TensorIOMode: 1 input, 2 output. TensorLocation: 1 host.
    let mode = match engine.io_mode(&name) {
        1 => Mode::Input,
        2 => Mode::Output,
        other => return Err(wrong(format!("neither input nor output ({other})"))),
    };
    let (on_host, is_shape) = (engine.io_location(&name) == 1, engine.io_is_shape(&name));
    let mut profile_dims = None;
    let mut profile_values = None;
    if mode == Mode::Input {
        let at = |select| self::dims(&engine.profile_dims(&name, select));
        if let (Some(min), Some(opt), Some(max)) = (at(0), at(1), at(2)) {
            profile_dims = Some([min, opt, max]);
        }
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
        if let (true, Some(count)) = (is_shape, count) {
            let values = [0, 1, 2].map(|select| engine.profile_values(&name, select, count));
            profile_values = values.iter().all(|v| v.len() == count).then_some(values);
        }
    }
    Ok(Binding { mode, dtype, dims, on_host, is_shape, profile_dims, profile_values, name })
}

fn dims(desc: &ffi::TensorDesc) -> Option<Vec<i64>> {
    desc.dims.get(..usize::try_from(desc.rank).ok()?).map(<[i64]>::to_vec)
}

/// Gives memory to an output whose size only the run knows. Called on the thread that enqueues.
pub trait OutputAllocator: Send + Sync {
    /// Device memory of at least `bytes` bytes at a multiple of `alignment`, usable in the order of `stream`; 0 makes
    /// the run fail. A block given before is not needed any more once work queued so far is done.
    fn allocate(&self, bytes: u64, alignment: u64, stream: usize) -> usize;
    /// The final dims.
    fn shape(&self, dims: &[i64]);
}

/// One inference at a time: input dims, addresses, enqueue.
pub struct Context {
    ffi: UniquePtr<ffi::Context>,
    engine: Engine,
}

// SAFETY: an IExecutionContext may move between threads; `&mut self` keeps its calls apart.
unsafe impl Send for Context {}

impl Context {
    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Sets the dims of an input, all known.
    ///
    /// # Errors
    /// [`RuntimeError::Binding`] for dims outside the profile.
    pub fn set_input_dims(&mut self, name: &str, dims: &[i64]) -> Result<(), RuntimeError> {
        self.engine.runtime.library.inner.log.clear();
        if self.ffi.pin_mut().set_input_dims(name, dims) {
            return Ok(());
        }
        let words = self.engine.runtime.library.inner.log.raw().join("; ");
        Err(RuntimeError::Binding {
            name: name.to_owned(),
            why: format!("dims {dims:?} are refused: {words}"),
        })
    }

    /// Dims of a binding under the input dims set so far; −1 where only the run knows, `None` for an unknown name.
    pub fn dims(&self, name: &str) -> Option<Vec<i64>> {
        dims(&self.ffi.tensor_dims(name))
    }

    /// Names of inputs whose dims (or values, for shape tensors) are still missing.
    ///
    /// # Errors
    /// [`RuntimeError::Failed`] for dims that do not fit together.
    pub fn infer_shapes(&mut self) -> Result<Vec<String>, RuntimeError> {
        let missing = self.ffi.pin_mut().infer_shapes();
        missing.map_err(|e| failed(&self.engine.runtime.library, "shape inference", &e))
    }

    /// Upper bound of an output's size under the input dims set so far, in bytes; `None` where there is none.
    pub fn max_output_bytes(&self, name: &str) -> Option<u64> {
        u64::try_from(self.ffi.max_output_bytes(name)).ok()
    }

    /// Activation memory that the input dims set so far need, in bytes.
    pub fn needed_device_memory(&mut self) -> u64 {
        self.ffi.pin_mut().needed_device_memory() as u64
    }

    /// Sets the address of a binding: device memory, or host memory where [`Binding::on_host`]. 0 takes it back.
    ///
    /// # Safety
    /// The memory fits the binding's dims and dtype, is aligned to 256 bytes, and lives until the work that uses it is
    /// done.
    ///
    /// # Errors
    /// [`RuntimeError::Binding`] for a name that the engine does not have.
    pub unsafe fn set_address(&mut self, name: &str, address: usize) -> Result<(), RuntimeError> {
        // SAFETY: the caller promises what the shim asks for.
        if unsafe { self.ffi.pin_mut().set_address(name, address) } {
            return Ok(());
        }
        Err(RuntimeError::Binding { name: name.to_owned(), why: "it takes no address".to_owned() })
    }

    /// Lets `allocator` give memory to an output when its size is known.
    ///
    /// # Errors
    /// [`RuntimeError::Binding`] for a name that is not an output.
    pub fn set_output_allocator(
        &mut self,
        name: &str,
        allocator: Arc<dyn OutputAllocator>,
    ) -> Result<(), RuntimeError> {
        let shape = allocator.clone();
        let sink = OutputSink::new(
            move |bytes, alignment, stream| allocator.allocate(bytes, alignment, stream),
            move |dims| shape.shape(dims),
        );
        let set = self.ffi.pin_mut().set_output_sink(name, sink);
        set.map_err(|e| RuntimeError::Binding { name: name.to_owned(), why: e.what().to_owned() })
    }

    /// Gives the activation memory of a context made with `user_memory`.
    ///
    /// # Safety
    /// `address` is device memory of `bytes` bytes (at least [`Context::needed_device_memory`]), aligned to 256, that no
    /// other running context uses and that outlives the work enqueued here.
    pub unsafe fn set_device_memory(&mut self, address: usize, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // SAFETY: the caller promises what the shim asks for.
        unsafe { self.ffi.pin_mut().set_device_memory(address, bytes) }
    }

    /// Puts one inference on `stream` (a `CUstream`).
    ///
    /// # Safety
    /// The stream belongs to the engine's device, every address is set and stays valid until the work is done, and no
    /// work of this context is still running on another stream.
    ///
    /// # Errors
    /// [`RuntimeError::Failed`] with the library's words.
    pub unsafe fn enqueue(&mut self, stream: usize) -> Result<(), RuntimeError> {
        // SAFETY: the caller promises what the shim asks for.
        if unsafe { self.ffi.pin_mut().enqueue(stream) } {
            return Ok(());
        }
        let words = self.engine.runtime.library.inner.log.raw();
        Err(RuntimeError::Failed { what: "enqueue".to_owned(), words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Use, locate};
    use trtc_bundle::Product;

    /// Around the guard, on purpose: TensorRT-RTX 1.7 hands out a real runtime without a driver, which loads nothing.
    #[test]
    fn a_runtime_without_a_driver_says_why_it_loads_nothing() {
        let Ok(path) = locate(Product::Rtx, Use::Run, None) else {
            println!("skipped: no TensorRT-RTX library (run `make sdk`)");
            return;
        };
        if cuda_devices() > 0 {
            println!("skipped: this machine has a CUDA driver");
            return;
        }
        let library = Library::open(Product::Rtx, &path).unwrap();
        assert_eq!(library.runtime().err(), Some(RuntimeError::NoDriver));
        let runtime = Runtime::new(library).unwrap();
        let error = runtime.deserialize(&[0; 256]).err().unwrap();
        let RuntimeError::Failed { what, words } = error else { panic!("{error}") };
        assert_eq!(what, "the engine does not load");
        assert!(!words.is_empty());
        println!("{words:?}");
    }
}

//! ONNX Runtime through its C API: one environment a process, loaded when it is first needed.
//!
//! `ort` gives the loading, the environment and the bindings; sessions and runs go straight to the C API, because `ort`
//! wants a session by `&mut` for a run, panics on types that it does not know, and copies what can be borrowed.
#![allow(unsafe_code)]

mod dtype;
mod empty;
mod graph;
mod value;

use super::{
    GraphOptions, HostBackend, HostError, HostGraph, ModelSource,
    find::{Library, Via, find_onnxruntime},
};
use ::ort::{
    environment::{Environment, GlobalThreadPoolOptions},
    logging::LogLevel,
    sys,
};
use std::{
    ffi::CStr,
    fmt,
    path::{Path, PathBuf},
    ptr::{self, NonNull},
    sync::{Arc, Mutex, PoisonError},
};

/// ONNX Runtime. Clones share it; it stays loaded until the process ends.
#[derive(Clone)]
pub struct OrtBackend {
    shared: Arc<Shared>,
}

struct Shared {
    environment: Environment,
    library: Option<PathBuf>,
    version: String,
    global_threads: bool,
    /// "Memory of the CPU", for tensors over memory of ours.
    cpu: NonNull<sys::OrtMemoryInfo>,
}

// SAFETY: the environment is `Send + Sync`; an `OrtMemoryInfo` is never changed after it was made.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// How ONNX Runtime is loaded. Only the first load in a process decides.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OrtOptions {
    /// The library, or the folder that it lies in; otherwise it is searched for ([`find_onnxruntime`]).
    pub library: Option<PathBuf>,
    /// Threads that all graphs of the process share; 0 for one a core.
    pub threads: usize,
}

impl OrtOptions {
    /// As given, with the library (or its folder) named.
    pub fn library(mut self, path: impl Into<PathBuf>) -> OrtOptions {
        self.library = Some(path.into());
        self
    }

    /// As given, with a number of threads; 0 for one a core.
    pub fn threads(mut self, threads: usize) -> OrtOptions {
        self.threads = threads;
        self
    }
}

/// There can be one environment a process, even after it was dropped.
static LOADED: Mutex<Option<OrtBackend>> = Mutex::new(None);

/// Oldest version whose C API has what is used here: 1.23.
const OLDEST_MINOR: u32 = 23;

impl OrtBackend {
    /// ONNX Runtime as it is loaded already, else loaded now.
    ///
    /// All graphs share one pool of threads, which do not spin while they wait: spinning takes time from everything else in
    /// the process. Telemetry is off; messages go to `tracing` under the target `onnxruntime`.
    ///
    /// # Errors
    /// [`HostError::NotFound`]; [`HostError::Library`] when the library cannot be loaded or is older than 1.23, or when
    /// another one than `options` names is loaded already.
    pub fn load(options: &OrtOptions) -> Result<OrtBackend, HostError> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = &*loaded {
            backend.check_same(options)?;
            return Ok(backend.clone());
        }
        let (library, version) = match find_onnxruntime(options.library.as_deref()) {
            Ok(library) => {
                let version = version(&library.path)?;
                (library, version)
            }
            Err(HostError::NotFound { searched }) => system().ok_or(HostError::NotFound { searched })?,
            Err(error) => return Err(error),
        };
        let backend = start(&library.path, version, options.threads)
            .map_err(|why| HostError::Library { path: library.path, why })?;
        *loaded = Some(backend.clone());
        Ok(backend)
    }

    /// ONNX Runtime as a program set it up that uses `ort` itself. Every later [`OrtBackend::load`] gives this one.
    ///
    /// `global_threads`: whether the environment was made with a global thread pool.
    ///
    /// # Errors
    /// [`HostError::Library`] when the library refuses.
    pub fn with_environment(environment: Environment, global_threads: bool) -> Result<OrtBackend, HostError> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let backend = finish(environment, None, "of this process".into(), global_threads)
            .map_err(|why| HostError::Library { path: "libonnxruntime.so".into(), why })?;
        *loaded = Some(backend.clone());
        Ok(backend)
    }

    /// Version of the library: `1.32.0`.
    pub fn version(&self) -> &str {
        &self.shared.version
    }

    /// The library; `None` when the program loaded it itself.
    pub fn library(&self) -> Option<&Path> {
        self.shared.library.as_deref()
    }

    fn check_same(&self, options: &OrtOptions) -> Result<(), HostError> {
        let Some(wanted) = &options.library else { return Ok(()) };
        let wanted = find_onnxruntime(Some(wanted))?.path;
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match &self.shared.library {
            Some(library) if real(library) != real(&wanted) => Err(HostError::Library {
                path: wanted,
                why: format!("this process has loaded ONNX Runtime from {} already", library.display()),
            }),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for OrtBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: made by `CreateCpuMemoryInfo`, released once.
        unsafe { (::ort::api().ReleaseMemoryInfo)(self.cpu.as_ptr()) }
    }
}

impl HostBackend for OrtBackend {
    fn describe(&self) -> String {
        let place = self.library().map(|path| format!(" ({})", path.display())).unwrap_or_default();
        format!("ONNX Runtime {}{place}", self.version())
    }

    fn load(&self, model: ModelSource<'_>, options: &GraphOptions) -> Result<Arc<dyn HostGraph>, HostError> {
        Ok(Arc::new(graph::OrtGraph::new(self, model, options)?))
    }
}

/// The system's own library, if there is one that can be used.
fn system() -> Option<(Library, String)> {
    ["libonnxruntime.so.1", "libonnxruntime.so"].iter().find_map(|name| {
        let path = PathBuf::from(name);
        let version = version(&path).ok()?;
        Some((Library { path, via: Via::System }, version))
    })
}

/// Version of the library at `path`, which is loaded for it, or why it cannot be used.
fn version(path: &Path) -> Result<String, HostError> {
    let fail = |why: String| HostError::Library { path: path.to_owned(), why };
    // SAFETY: a library's initialisers run when it is loaded. It is one that the user installed or named.
    let library = unsafe { libloading::Library::new(path) };
    let library = library.map_err(|error| fail(format!("it cannot be loaded: {error}")))?;
    // SAFETY: `OrtGetApiBase` has had this signature in every version; the base and the text are static in the library,
    // which is still loaded when they are read.
    let version = unsafe {
        let base: Result<libloading::Symbol<'_, unsafe extern "C" fn() -> *const sys::OrtApiBase>, _> =
            library.get(b"OrtGetApiBase");
        let base = base.map_err(|_| fail("it is not ONNX Runtime: OrtGetApiBase is missing".into()))?();
        let base = base.as_ref().ok_or_else(|| fail("it gives no API".into()))?;
        CStr::from_ptr((base.GetVersionString)()).to_string_lossy().into_owned()
    };
    let minor = version.strip_prefix("1.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    if minor.is_none_or(|minor| minor < OLDEST_MINOR) {
        return Err(fail(format!("it is ONNX Runtime {version}; 1.{OLDEST_MINOR} or a later 1.x is needed")));
    }
    Ok(version)
}

fn start(path: &Path, version: String, threads: usize) -> Result<OrtBackend, String> {
    let text = |error: ::ort::Error| error.to_string();
    // First of all: any other call of `ort` would load a library of its own choice, and panic when there is none.
    let builder = ::ort::init_from(path).map_err(|error| error.to_string())?;
    let pool = GlobalThreadPoolOptions::default()
        .with_intra_threads(threads)
        .and_then(|pool| pool.with_inter_threads(1)) // Operators run one after another.
        .and_then(|pool| pool.with_spin_control(false))
        .map_err(text)?;
    let log = |level: LogLevel, _category: &str, _id: &str, place: &str, message: &str| match level {
        LogLevel::Error | LogLevel::Fatal => tracing::error!(target: "onnxruntime", place, "{message}"),
        LogLevel::Warning => tracing::warn!(target: "onnxruntime", place, "{message}"),
        _ => tracing::debug!(target: "onnxruntime", place, "{message}"),
    };
    let environment = builder
        .with_name("trtc")
        .with_telemetry(false)
        .with_logger(Arc::new(log))
        .with_global_thread_pool(pool)
        .build()
        .map_err(text)?;
    environment.set_log_level(LogLevel::Warning);
    finish(environment, Some(path.to_owned()), version, true)
}

fn finish(
    environment: Environment,
    library: Option<PathBuf>,
    version: String,
    global_threads: bool,
) -> Result<OrtBackend, String> {
    let mut cpu = ptr::null_mut();
    // SAFETY: the API is loaded, since there is an environment; `cpu` is written on success.
    check(unsafe {
        (::ort::api().CreateCpuMemoryInfo)(
            sys::OrtAllocatorType::OrtDeviceAllocator,
            sys::OrtMemType::OrtMemTypeDefault,
            &mut cpu,
        )
    })?;
    let cpu = NonNull::new(cpu).ok_or("no CPU memory")?;
    Ok(OrtBackend { shared: Arc::new(Shared { environment, library, version, global_threads, cpu }) })
}

/// The message of a failed call; releases the status.
fn check(status: sys::OrtStatusPtr) -> Result<(), String> {
    if status.0.is_null() {
        return Ok(());
    }
    // SAFETY: a status that is not null is ours; its message lives until it is released.
    unsafe {
        let api = ::ort::api();
        let message = CStr::from_ptr((api.GetErrorMessage)(status.0)).to_string_lossy().into_owned();
        (api.ReleaseStatus)(status.0);
        Err(message)
    }
}

//! A loaded library.

use crate::{
    builder::Builder,
    locate::product_name,
    log::{Log, LogHandler},
    numbers::Api,
    runtime::{Runtime, RuntimeError, cuda_devices},
};
use cxx::UniquePtr;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use trtc_bundle::Product;
use trtc_tensorrt_sys::ffi;

/// A library's version, as the library itself says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// Major.
    pub major: u16,
    /// Minor.
    pub minor: u16,
    /// Patch.
    pub patch: u16,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Why a library could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The dynamic loader's words.
    #[error("{path}: {why}", path = .path.display())]
    Load {
        /// File that was opened.
        path: PathBuf,
        /// What the loader said.
        why: String,
    },
    /// It is of another major version, or older than what the shim was compiled for.
    #[error("{path} is {product} {found}; {needed} is needed", path = .path.display())]
    Version {
        /// File that was opened.
        path: PathBuf,
        /// Name of the product.
        product: &'static str,
        /// Version that the library gave.
        found: Version,
        /// Versions that work.
        needed: &'static str,
    },
    /// [`Product::Host`] has no library.
    #[error("the host has no TensorRT library")]
    Host,
}

/// A loaded library of one product. It stays loaded until the process ends. Clones share it.
#[derive(Clone)]
pub struct Library {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    product: Product,
    pub api: Api,
    path: PathBuf,
    version: Version,
    pub log: Log,
    /// One build at a time, because the log belongs to the whole library.
    pub building: Mutex<()>,
    pub ffi: UniquePtr<ffi::Library>,
}

// SAFETY: the shim's library object is immutable after `open`; its methods only read symbols of a library that stays
// loaded and make new objects, which TensorRT allows from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Library {
    /// Opens the library at `path` (a file, as [`crate::locate()`] finds it).
    ///
    /// # Errors
    /// [`OpenError`]: not loadable, or of a version that the shim cannot call.
    pub fn open(product: Product, path: &Path) -> Result<Library, OpenError> {
        Library::open_with(product, path, None)
    }

    /// As [`Library::open`]; each line of the log goes to `log` instead of to `tracing`.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_with(product: Product, path: &Path, log: Option<LogHandler>) -> Result<Library, OpenError> {
        let api = match product {
            Product::Rtx => Api::Rtx,
            Product::TensorRt => Api::TensorRt,
            _ => return Err(OpenError::Host),
        };
        let load = |why: String| OpenError::Load { path: path.to_owned(), why };
        let text = path.to_str().ok_or_else(|| load("the path is not UTF-8".to_owned()))?;
        let kept = Log::default();
        let ffi = ffi::open(api == Api::Rtx, text, kept.sink(log)).map_err(|e| load(e.what().to_owned()))?;
        let number = u32::try_from(ffi.version()).unwrap_or(0);
        let version = Version {
            major: (number / 10_000) as u16,
            minor: (number / 100 % 100) as u16,
            patch: (number % 100) as u16,
        };
        // Below these, methods that the shim calls may be missing from the class tables; a new major version may
        // move them.
        let (known, needed) = match api {
            Api::Rtx => (version.major == 1 && version.minor >= 7, "1.7 or a later 1.x"),
            Api::TensorRt => (version.major == 11, "11.x"),
        };
        if !known {
            let product = product_name(product);
            return Err(OpenError::Version { path: path.to_owned(), product, found: version, needed });
        }
        let path = path.to_owned();
        let inner = Inner { product, api, path, version, log: kept, building: Mutex::new(()), ffi };
        Ok(Library { inner: Arc::new(inner) })
    }

    /// Which product it is.
    pub fn product(&self) -> Product {
        self.inner.product
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// What it says of itself.
    pub fn version(&self) -> Version {
        self.inner.version
    }

    /// Whether it can build engines (TensorRT's lean and dispatch libraries only run them).
    pub fn has_builder(&self) -> bool {
        self.inner.ffi.has_builder()
    }

    /// Builds engines with this library.
    pub fn builder(&self) -> Builder {
        Builder::new(self.clone())
    }

    /// Runs engines with this library.
    ///
    /// # Errors
    /// [`RuntimeError::NoDriver`] without a CUDA driver and device: TensorRT would hand out a garbage pointer there.
    pub fn runtime(&self) -> Result<Runtime, RuntimeError> {
        if cuda_devices() == 0 {
            return Err(RuntimeError::NoDriver);
        }
        Runtime::new(self.clone())
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Library({} {} at {})", product_name(self.product()), self.version(), self.path().display())
    }
}

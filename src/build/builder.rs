//! The real builder: workers with the products' libraries.

use super::{backend::Failure, cache::Settings};
use crate::{
    Error, Options,
    worker::{BuildOptions, BuildRequest, WorkerFailure, WorkerPool},
};
use bytes::Bytes;
use std::{path::PathBuf, sync::OnceLock, time::Duration};
use trtc_bundle::{MappedFile, Product, Target};
use trtc_ir::Code;
use trtc_network::Lowered;

/// Workers of both products, started with the first engine: a model without engines needs no library.
pub(crate) struct Builder<'a> {
    options: &'a Options,
    files: &'a [MappedFile],
    pools: [OnceLock<Result<(PathBuf, WorkerPool), Error>>; 2],
}

/// What a worker made.
pub(crate) struct Built {
    pub bytes: Bytes,
    pub seconds: f64,
    pub peak_bytes: u64,
}

impl<'a> Builder<'a> {
    /// Starts nothing yet. Weights that are slices of `files` are not copied.
    pub fn new(options: &'a Options, files: &'a [MappedFile]) -> Builder<'a> {
        Builder { options, files, pools: Default::default() }
    }

    /// What decides engines besides networks.
    pub fn settings(&self) -> Settings {
        Settings { tf32: self.options.tf32, ..Settings::default() }
    }

    /// The library that builds for a product.
    ///
    /// # Errors
    /// There is none on this machine.
    pub fn library(&self, product: Product) -> Result<PathBuf, Error> {
        self.pool(product).map(|(library, _)| library.clone())
    }

    fn pool(&self, product: Product) -> Result<&(PathBuf, WorkerPool), Error> {
        let (slot, explicit) = match product {
            Product::Rtx => (&self.pools[0], self.options.rtx_library.as_deref()),
            _ => (&self.pools[1], None),
        };
        let pool = slot.get_or_init(|| {
            let library = trtc_tensorrt::locate(product, trtc_tensorrt::Use::Build, explicit)
                .map_err(|e| Error::missing(e.to_string()).help(advice(product)))?;
            let mut build = BuildOptions::new(&library);
            build.executable = self.options.worker.clone();
            build.tf32 = self.options.tf32;
            #[cfg(debug_assertions)]
            build.inject.clone_from(&self.options.inject);
            Ok((library, WorkerPool::new(build)))
        });
        pool.as_ref().map_err(Clone::clone)
    }

    /// Builds an engine.
    ///
    /// # Errors
    /// Something is missing on this machine. Failures of the network are in the inner result.
    pub fn build(
        &self,
        lowered: &Lowered,
        target: &Target,
        limit: Duration,
    ) -> Result<Result<Built, Failure>, Error> {
        let (_, pool) = self.pool(target.product())?;
        let failure = match pool.build_within(BuildRequest { lowered, target }, self.files, limit) {
            Ok(output) => {
                let bytes = output.engine.bytes();
                let (seconds, peak_bytes) = (output.build_s, output.peak_rss_bytes);
                return Ok(Ok(Built { bytes, seconds, peak_bytes }));
            }
            Err(failure) => failure,
        };
        let words = failure.to_string();
        let fail = |code, nodes, by_size| Failure {
            code,
            words: words.clone(),
            nodes,
            by_size,
            ..Failure::default()
        };
        Ok(Err(match failure {
            WorkerFailure::Missing { .. } | WorkerFailure::Start(_) => return Err(Error::missing(words)),
            WorkerFailure::Refused { nodes, .. } => fail(Code::BUILD_REFUSED, nodes, false),
            WorkerFailure::TimedOut { .. } => fail(Code::BUILD_TIMED_OUT, Vec::new(), true),
            WorkerFailure::Fault(fault) => fail(Code::LOWERING, vec![fault.node], false),
            WorkerFailure::Crashed { how, log } => {
                // What the builder said last may name the layer that it was at.
                let named = lowered.network.nodes.iter();
                let named = named.filter(|name| name.len() > 2 && log.contains(name.as_str())).take(4);
                let out_of_memory = how.contains("SIGKILL") || log.contains("memory");
                fail(Code::BUILD_CRASHED, named.cloned().collect(), out_of_memory)
            }
            _ => fail(Code::BUILD_CRASHED, Vec::new(), false),
        }))
    }
}

fn advice(product: Product) -> &'static str {
    match product {
        Product::Rtx => "`make sdk` fetches it; `trtc doctor` shows what is found",
        _ => {
            "TensorRT builds engines on the GPU that runs them: install it there and run `trtc build` on that machine"
        }
    }
}

//! From a network to an engine: out of the cache, or built when there is room.

use super::{
    builder::{Builder, Built},
    cache::{Blamed, Cache, DEFAULT_LIMIT_BYTES, Verdict},
    hashing::Hashes,
    permits::{Permits, memory_of},
};
use crate::{Error, Events, Options};
use bytes::Bytes;
use std::{
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use trtc_bundle::{Hash, MappedFile, Product, Target};
use trtc_ir::Code;
use trtc_network::Lowered;

/// A built engine.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub bytes: Bytes,
    /// What its build took, in seconds, in this compile or an earlier one.
    pub seconds: f64,
    /// Whether it comes from the engine cache.
    pub cached: bool,
}

/// Why there is no engine of a network.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub code: Code,
    pub words: String,
    /// Source nodes that the words name.
    pub nodes: Vec<String>,
    /// Whether the size of the network may be to blame: time or memory ran out.
    pub by_size: bool,
    /// What an earlier compile found to be to blame.
    pub blamed: Vec<Blamed>,
}

impl Failure {
    /// Whether the same network fails the same way each time: a refusal, or a crash in the builder's own code.
    fn is_lasting(&self) -> bool {
        match self.code {
            Code::BUILD_REFUSED => !self.by_size && !self.words.to_lowercase().contains("memory"),
            Code::BUILD_CRASHED => !self.by_size && self.words.contains("SIGSEGV"),
            _ => false,
        }
    }
}

impl From<Verdict> for Failure {
    fn from(Verdict { code, words, nodes, blamed }: Verdict) -> Failure {
        Failure { code: Code(code), words, nodes, by_size: false, blamed }
    }
}

impl Default for Failure {
    fn default() -> Failure {
        Failure {
            code: Code::BUILD_REFUSED,
            words: String::new(),
            nodes: Vec::new(),
            by_size: false,
            blamed: Vec::new(),
        }
    }
}

/// What became of a network.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// An engine.
    Engine(Engine),
    /// It cannot be built.
    Failed(Failure),
}

/// Builds engines, several at a time.
pub(crate) struct Backend<'a> {
    options: &'a Options,
    builder: Builder<'a>,
    cache: Option<Cache>,
    hashes: Hashes<'a>,
    libraries: [OnceLock<Option<Hash>>; 2],
    permits: Permits,
    busy: Mutex<Busy>,
}

/// Time during which anything was built.
#[derive(Debug, Default)]
struct Busy {
    builds: usize,
    since: Option<Instant>,
    total: Duration,
}

/// Limit of one build, unless the user sets another.
const TIME_LIMIT: Duration = Duration::from_secs(600);

impl<'a> Backend<'a> {
    /// Starts nothing yet. Weights that are slices of `files` are not copied.
    pub fn new(options: &'a Options, files: &'a [MappedFile], events: &dyn Events) -> Backend<'a> {
        let limit = options.cache_limit_bytes.unwrap_or(DEFAULT_LIMIT_BYTES);
        let open = |folder: &std::path::PathBuf| match Cache::open(folder, limit) {
            Ok(cache) => Some(cache),
            Err(error) => {
                events.warning(&format!("no engine cache in {}: {error}", folder.display()));
                None
            }
        };
        Backend {
            options,
            builder: Builder::new(options, files),
            cache: options.cache_dir.as_ref().and_then(open),
            hashes: Hashes::new(files),
            libraries: Default::default(),
            permits: Permits::of_machine(),
            busy: Mutex::default(),
        }
    }

    /// Builds that may run at once.
    pub fn cores(&self) -> usize {
        self.permits.cores()
    }

    /// Wall-clock limit of one build.
    pub fn time_limit(&self) -> Duration {
        self.options.build_time_limit.unwrap_or(TIME_LIMIT)
    }

    /// Finds the library that builds for a product.
    ///
    /// # Errors
    /// There is none on this machine.
    pub fn library(&self, product: Product) -> Result<(), Error> {
        self.builder.library(product).map(drop)
    }

    /// Whether engines for a target are built on this machine by a compile.
    pub fn builds(&self, target: &Target) -> bool {
        target.product() == Product::Rtx && !self.options.defer
    }

    /// Takes an engine from the cache or builds it.
    ///
    /// # Errors
    /// Something is missing on this machine.
    pub fn build(&self, lowered: &Lowered, target: &Target) -> Result<Outcome, Error> {
        let Some((cache, key)) = self.cached(lowered, target)? else {
            return self.build_now(lowered, target, self.time_limit());
        };
        let known = || {
            if let Some(verdict) = cache.verdict(self.refused(key)) {
                return Some(Outcome::Failed(verdict.into()));
            }
            let hit = cache.get(key)?;
            let engine = Engine { bytes: hit.engine.into(), seconds: hit.build_s, cached: true };
            Some(Outcome::Engine(engine))
        };
        if let Some(outcome) = known() {
            return Ok(outcome);
        }
        let claim = cache.claim(key, self.time_limit());
        // Another compile may have built it meanwhile.
        if let Some(outcome) = claim.is_some().then(known).flatten() {
            return Ok(outcome);
        }
        let outcome = self.build_now(lowered, target, self.time_limit())?;
        if let Outcome::Engine(engine) = &outcome {
            cache.put(key, &engine.bytes, engine.seconds);
        }
        Ok(outcome)
    }

    /// Keeps an engine that a trial build made.
    pub fn keep(&self, lowered: &Lowered, target: &Target, engine: &Engine) {
        if let Ok(Some((cache, key))) = self.cached(lowered, target)
            && cache.get(key).is_none()
        {
            cache.put(key, &engine.bytes, engine.seconds);
        }
    }

    /// Remembers which nodes made a network fail, if it fails so each time.
    pub fn blame(&self, lowered: &Lowered, target: &Target, failure: &Failure, blamed: Vec<Blamed>) {
        // TensorRT's builder measures on the GPU, and what it makes of a network depends on it.
        if target.product() == Product::Rtx
            && failure.is_lasting()
            && let Ok(Some((cache, key))) = self.cached(lowered, target)
        {
            let Failure { code, words, nodes, .. } = failure.clone();
            cache.put_verdict(self.refused(key), &Verdict { code: code.0, words, nodes, blamed });
        }
    }

    /// Name of what is known of a network that fails.
    fn refused(&self, key: Hash) -> Hash {
        // What tests make workers refuse is no fault of the network.
        #[cfg(all(feature = "tensorrt", debug_assertions))]
        if !self.options.inject.is_empty() {
            return Hash::of(format!("{key}{:?}", self.options.inject).as_bytes());
        }
        key
    }

    /// Builds, whatever the cache holds.
    ///
    /// # Errors
    /// Something is missing on this machine.
    pub fn build_now(&self, lowered: &Lowered, target: &Target, limit: Duration) -> Result<Outcome, Error> {
        let _permit = self.permits.acquire(memory_of(lowered));
        self.busy(true);
        let built = self.builder.build(lowered, target, limit);
        self.busy(false);
        Ok(match built? {
            Ok(Built { bytes, seconds, peak_bytes }) => {
                tracing::debug!(
                    "{}: built in {seconds:.2} s, {} MiB",
                    lowered.network.name,
                    peak_bytes >> 20
                );
                Outcome::Engine(Engine { bytes, seconds, cached: false })
            }
            Err(failure) => Outcome::Failed(failure),
        })
    }

    /// Seconds during which anything was built.
    pub fn busy_s(&self) -> f64 {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).total.as_secs_f64()
    }

    fn busy(&self, begins: bool) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if begins {
            busy.builds += 1;
            busy.since.get_or_insert_with(Instant::now);
        } else {
            busy.builds -= 1;
            if busy.builds == 0
                && let Some(since) = busy.since.take()
            {
                busy.total += since.elapsed();
            }
        }
    }

    fn cached(&self, lowered: &Lowered, target: &Target) -> Result<Option<(&Cache, Hash)>, Error> {
        let Some(cache) = &self.cache else { return Ok(None) };
        let library = self.builder.library(target.product())?;
        let slot = usize::from(target.product() != Product::Rtx);
        let library = self.libraries[slot].get_or_init(|| {
            let hash = cache.library(&library);
            hash.inspect_err(|error| tracing::warn!("{}: {error}", library.display())).ok()
        });
        let Some(library) = *library else { return Ok(None) };
        let key = Cache::key(lowered, target, library, self.builder.settings(), &self.hashes);
        let key = key.map_err(|error| Error::bug(format!("name of an engine: {error}")))?;
        Ok(Some((cache, key)))
    }
}

//! Engines kept across compiles, by the content that they were built from.
//!
//! An entry's name is a hash of all that decides an engine: the network (its layers, tensors, bindings, profile and the
//! names of its nodes, which stand in the engine; not the name of its segment), the bytes of its weights, product,
//! version and compute capabilities, the build options, the content of the library, and this program's version. What
//! changes any of these asks for another name, so nothing stale is ever served.
//!
//! An engine is code, and the folder must be as trustworthy as the executable: it is made for its owner alone. An entry
//! carries the hash of its engine and is checked in the copy that is handed out; a damaged one is thrown away. Entries
//! appear whole, by a rename. A cache that cannot be read or written never stops a compile. What the builder refuses is
//! kept under the same names ([`Verdict`]).

mod verdicts;

use super::hashing::Hashes;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};
use trtc_bundle::{Hash, Target};
use trtc_network::{Lowered, Network};

pub(crate) use verdicts::{Blamed, Verdict};

/// First bytes of an entry; the number is the layout's.
const MAGIC: &[u8; 8] = b"trtceng1";
/// Magic, hash of the engine, length of the engine, nanoseconds of its build.
const HEAD_LEN: usize = 8 + 32 + 8 + 8;
/// Bytes of all entries together, unless the user sets another limit: 10 GiB.
pub(crate) const DEFAULT_LIMIT_BYTES: u64 = 10 << 30;
/// Unfinished files of a process that died are left alone for this long.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// A folder of engines.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    limit_bytes: u64,
}

/// Settings of the builder that decide an engine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub workspace_bytes: Option<u64>,
    pub max_threads: Option<u32>,
    pub tf32: bool,
}

/// An engine out of the cache.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hit {
    pub engine: Vec<u8>,
    /// What its build took, in seconds.
    pub build_s: f64,
}

/// What a cache holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheUse {
    /// Its folder.
    pub dir: PathBuf,
    /// Engines.
    pub entries: usize,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Networks that the builder refused.
    pub refusals: usize,
}

/// What is in the engine cache `dir`: nothing when it is not there or cannot be read.
pub fn cache_use(dir: &Path) -> CacheUse {
    let entries = entries(&dir.join("engines")).unwrap_or_default();
    CacheUse {
        dir: dir.to_owned(),
        entries: entries.len(),
        bytes: entries.iter().map(|entry| entry.len).sum(),
        refusals: std::fs::read_dir(dir.join("refusals")).map_or(0, Iterator::count),
    }
}

impl Cache {
    /// A cache in `root`, which is made when it is not there.
    pub fn open(root: &Path, limit_bytes: u64) -> io::Result<Cache> {
        for folder in ["engines", "locks", "refusals"] {
            DirBuilder::new().recursive(true).mode(0o700).create(root.join(folder))?;
        }
        Ok(Cache { root: root.to_owned(), limit_bytes })
    }

    /// Name of the engine of a network. `hashes` knows the weights' hashes; `library` is the hash of the library.
    pub fn key(
        lowered: &Lowered,
        target: &Target,
        library: Hash,
        settings: Settings,
        hashes: &Hashes<'_>,
    ) -> io::Result<Hash> {
        // Every field is named, so that a new one is not forgotten here.
        let Network { name: _, tensors, inputs, weights, layers, outputs, profile, nodes } = &lowered.network;
        let Settings { workspace_bytes, max_threads, tf32 } = settings;
        let mut hasher = blake3::Hasher::new();
        hasher.write_all(b"trtc engine\0")?;
        hasher.write_all(library.as_bytes())?;
        let program = env!("TRTC_VERSION");
        let head = (program, target.to_string(), workspace_bytes, max_threads, tf32);
        serde_json::to_writer(&mut hasher, &head)?;
        let network = (tensors, inputs, weights, layers, outputs, profile, nodes);
        serde_json::to_writer(io::BufWriter::new(&mut hasher), &network)?;
        for bytes in &lowered.weights {
            hasher.write_all(hashes.of(bytes).as_bytes())?;
        }
        Ok(Hash::from_bytes(*hasher.finalize().as_bytes()))
    }

    /// The engine of that name.
    pub fn get(&self, key: Hash) -> Option<Hit> {
        let path = self.path(key);
        let read = || -> io::Result<Option<Hit>> {
            let mut file = File::open(&path)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let hit = decode(bytes);
            if hit.is_some() {
                // The time of the last use decides what goes first when the cache is full.
                file.set_modified(SystemTime::now()).ok();
            }
            Ok(hit)
        };
        match read() {
            Ok(Some(hit)) => Some(hit),
            Ok(None) => {
                tracing::warn!("engine cache: {} is damaged and thrown away", path.display());
                std::fs::remove_file(&path).ok();
                None
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!("engine cache: {}: {error}", path.display());
                }
                None
            }
        }
    }

    /// Keeps an engine, and makes room for it.
    pub fn put(&self, key: Hash, engine: &[u8], build_s: f64) {
        if engine.len() as u64 > self.limit_bytes {
            return;
        }
        let write = || -> io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(self.root.join("engines"))?;
            let nanoseconds = Duration::try_from_secs_f64(build_s).unwrap_or_default().as_nanos();
            file.write_all(MAGIC)?;
            file.write_all(Hash::of(engine).as_bytes())?;
            file.write_all(&(engine.len() as u64).to_le_bytes())?;
            file.write_all(&u64::try_from(nanoseconds).unwrap_or(u64::MAX).to_le_bytes())?;
            file.write_all(engine)?;
            file.persist(self.path(key)).map_err(|error| error.error)?;
            self.make_room()
        };
        if let Err(error) = write() {
            tracing::warn!("engine cache {}: {error}", self.root.display());
        }
    }

    /// Keeps others from building the engine of that name at the same time, for as long as the result lives; waits for
    /// one who does, though no longer than `patience`.
    pub fn claim(&self, key: Hash, patience: Duration) -> Option<File> {
        // One of 256 files: they are never removed, so that nobody locks a file that has gone.
        let path = self.root.join("locks").join(format!("{:02x}", key.as_bytes()[0]));
        let file = lock_file(&path).ok()?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Some(file),
                Err(std::fs::TryLockError::WouldBlock) if start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(_) => return None,
            }
        }
    }

    /// Hash of a library's content. It is kept with what the file system says of the file, so that an unchanged library
    /// is read once.
    pub fn library(&self, path: &Path) -> io::Result<Hash> {
        let path = path.canonicalize()?;
        let metadata = path.metadata()?;
        let m = &metadata;
        let seen = format!(
            "{}:{}:{}:{}.{:09}:{}.{:09}",
            m.dev(),
            m.ino(),
            m.len(),
            m.mtime(),
            m.mtime_nsec(),
            m.ctime(),
            m.ctime_nsec()
        );
        let list = self.root.join("libraries.json");
        let read = || serde_json::from_slice(&std::fs::read(&list).ok()?).ok();
        let mut known: BTreeMap<PathBuf, Library> = read().unwrap_or_default();
        if let Some(library) = known.get(&path).filter(|library| library.seen == seen) {
            return Ok(library.hash);
        }
        let hash = Hash::of(&trtc_bundle::MappedFile::open(&path)?.bytes());
        known.insert(path, Library { seen, hash });
        let write = || -> io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.root)?;
            file.write_all(&serde_json::to_vec_pretty(&known)?)?;
            file.persist(&list).map(drop).map_err(|error| error.error)
        };
        if let Err(error) = write() {
            tracing::warn!("engine cache {}: {error}", list.display());
        }
        Ok(hash)
    }

    /// Removes the engines that were not used for longest, until the rest fits.
    fn make_room(&self) -> io::Result<()> {
        let folder = self.root.join("engines");
        let lock = lock_file(&self.root.join("locks/room"))?;
        lock.lock()?;
        let mut entries = entries(&folder)?;
        let mut total: u64 = entries.iter().map(|entry| entry.len).sum();
        entries.sort_by_key(|entry| entry.used);
        for entry in entries {
            if total <= self.limit_bytes {
                break;
            }
            std::fs::remove_file(&entry.path)?;
            total -= entry.len;
        }
        for file in std::fs::read_dir(&folder)?.flatten() {
            let old = |m: std::fs::Metadata| m.modified().ok()?.elapsed().ok().map(|age| age > STALE);
            if !is_entry(&file.path()) && file.metadata().ok().and_then(old) == Some(true) {
                std::fs::remove_file(file.path()).ok();
            }
        }
        Ok(())
    }

    fn path(&self, key: Hash) -> PathBuf {
        self.root.join("engines").join(format!("{key}.engine"))
    }
}

/// What is remembered of a library's file.
#[derive(Debug, Serialize, Deserialize)]
struct Library {
    seen: String,
    hash: Hash,
}

/// The engine in an entry's bytes, if they are what was written.
fn decode(mut bytes: Vec<u8>) -> Option<Hit> {
    let head = bytes.first_chunk::<HEAD_LEN>()?;
    let (magic, rest) = head.split_first_chunk::<8>()?;
    let (hash, rest) = rest.split_first_chunk::<32>()?;
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let nanoseconds = u64::from_le_bytes(*rest.first_chunk()?);
    let (magic_fits, hash) = (magic == MAGIC, Hash::from_bytes(*hash));
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    bytes.drain(..HEAD_LEN);
    let whole = magic_fits && bytes.len() == len && Hash::of(&bytes) == hash;
    whole.then_some(Hit { engine: bytes, build_s: nanoseconds as f64 / 1e9 })
}

fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

struct Entry {
    path: PathBuf,
    len: u64,
    used: SystemTime,
}

fn is_entry(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "engine")
}

fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut list = Vec::new();
    for file in std::fs::read_dir(folder)?.flatten() {
        let path = file.path();
        if is_entry(&path)
            && let Ok(metadata) = file.metadata()
        {
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            list.push(Entry { path, len: metadata.len(), used });
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests;

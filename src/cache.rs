//! Engines kept across compiles, by the content that they were built from.
//!
//! A file's name is the hash of network, weights, target and library; it holds the hash of the engine and the engine. An
//! engine is code: the folder must be as trustworthy as the executable.

use std::{
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use trtc_bundle::{MappedFile, Target};
use trtc_network::Lowered;

const HASH_LEN: usize = blake3::OUT_LEN;

/// A folder of engines.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    library: Vec<u8>,
}

/// Name of an engine in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(blake3::Hash);

impl Cache {
    /// A cache in `folder`, which need not be there yet, of engines that `library` builds.
    pub fn new(folder: &Path, library: &Path) -> Cache {
        Cache { folder: folder.to_owned(), library: identity(library) }
    }

    /// Name of the engine of a network.
    pub fn key(&self, lowered: &Lowered, target: &Target) -> Option<Key> {
        let network = serde_json::to_vec(&lowered.network).ok()?;
        let mut hasher = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        part(concat!("trtc engine ", env!("CARGO_PKG_VERSION")).as_bytes());
        part(target.to_string().as_bytes());
        part(&self.library);
        part(&network);
        lowered.weights.iter().for_each(|weights| part(weights));
        Some(Key(hasher.finalize()))
    }

    /// The engine of that name. A damaged file is none.
    pub fn get(&self, key: Key) -> Option<bytes::Bytes> {
        let bytes = MappedFile::open(self.path(key)).ok()?.bytes();
        if bytes.len() <= HASH_LEN {
            return None;
        }
        // A copy that is hashed, so that a later write to the file cannot reach it.
        let engine = bytes::Bytes::copy_from_slice(&bytes[HASH_LEN..]);
        let hash: [u8; HASH_LEN] = bytes[..HASH_LEN].try_into().ok()?;
        (blake3::hash(&engine) == blake3::Hash::from_bytes(hash)).then_some(engine)
    }

    /// Keeps an engine. A cache that cannot be written is no error: the next compile builds again.
    pub fn put(&self, key: Key, engine: &[u8]) {
        let write = || {
            std::fs::create_dir_all(&self.folder)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(blake3::hash(engine).as_bytes())?;
            file.write_all(engine)?;
            file.persist(self.path(key)).map(drop).map_err(|error| error.error)
        };
        if let Err(error) = write() {
            tracing::warn!("engine cache {}: {error}", self.folder.display());
        }
    }

    fn path(&self, key: Key) -> PathBuf {
        self.folder.join(format!("{}.engine", key.0.to_hex()))
    }
}

/// What tells one build of a library from another, without reading it all.
fn identity(library: &Path) -> Vec<u8> {
    let real = std::fs::canonicalize(library).unwrap_or_else(|_| library.to_owned());
    let (len, modified) = std::fs::metadata(&real).map_or((0, 0), |file| (file.len(), file.mtime()));
    format!("{} {len} {modified}", real.display()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::Cache;
    use trtc_bundle::DType;
    use trtc_network::{Lowered, NetworkBuilder, layer::ActivationKind};

    fn lowered(bias: f32) -> Lowered {
        let mut network = NetworkBuilder::new("n");
        network.begin_node("relu");
        let x = network.add_input("x", DType::F32, vec![1]);
        let bias = network.constant(DType::F32, vec![1], bias.to_le_bytes().to_vec().into());
        let sum = network.elementwise(x, bias, trtc_network::layer::ElementWiseOp::Sum);
        let y = network.activation(sum, ActivationKind::Relu, 0.0, 0.0);
        network.mark_output(y, "y");
        network.finish().unwrap()
    }

    #[test]
    fn an_engine_is_found_by_all_that_it_was_built_from() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("lib.so");
        std::fs::write(&library, b"1").unwrap();
        let cache = Cache::new(&folder.path().join("cache"), &library);
        let target = |text: &str| text.parse().unwrap();
        let key = cache.key(&lowered(1.0), &target("rtx-1.7:sm89")).unwrap();
        assert_eq!(cache.get(key), None);
        cache.put(key, b"engine");
        assert_eq!(cache.get(key).as_deref(), Some(&b"engine"[..]));
        assert_eq!(cache.key(&lowered(1.0), &target("rtx-1.7:sm89")), Some(key));
        assert_ne!(cache.key(&lowered(2.0), &target("rtx-1.7:sm89")), Some(key));
        assert_ne!(cache.key(&lowered(1.0), &target("rtx-1.7:sm86")), Some(key));
        std::fs::write(&library, b"22").unwrap();
        let other = Cache::new(&folder.path().join("cache"), &library);
        assert_ne!(other.key(&lowered(1.0), &target("rtx-1.7:sm89")), Some(key));
        // A damaged engine is built again.
        let path = cache.path(key);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(cache.get(key), None);
        std::fs::write(&path, b"").unwrap();
        assert_eq!(cache.get(key), None);
    }
}

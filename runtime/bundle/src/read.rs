//! Opening and reading a bundle. The file may be hostile: every place is checked before it is used.

use crate::{
    BundleError, Hash, LOCATION_LEN, Manifest, MappedFile, Section, SectionId, SectionKind, WeightsEntry,
    WeightsId, WeightsRef,
    check::check,
    header::{HEADER_LEN, Header, SIGNED},
    location::{find_locations, location_of},
    write::MANIFEST_LIMIT,
};
use bytes::Bytes;
use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// An open bundle: its file, mapped, and its manifest. Clones share both.
#[derive(Clone, Debug)]
pub struct Bundle {
    map: MappedFile,
    path: Arc<Path>,
    location: [u8; LOCATION_LEN],
    header: Header,
    manifest: Arc<Manifest>,
}

impl Bundle {
    /// Maps the file, checks its header, its length, the manifest and every range in it, and the hashes of its graphs.
    ///
    /// Weights are not read: [`Bundle::verify`] checks them. An engine is checked each time that it is handed out.
    ///
    /// # Errors
    /// [`BundleError`]: what is wrong with the file, or what the system says when it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Bundle, BundleError> {
        let path = path.as_ref();
        let io = |action| BundleError::io(path, action);
        // ONNX Runtime refuses weights that it would reach over a symbolic link.
        let path = std::fs::canonicalize(path).map_err(io("open"))?;
        let location =
            location_of(file_name(&path)?).ok_or(BundleError::FileName("longer than 255 bytes"))?;
        let map = match MappedFile::open(&path) {
            Ok(map) => map,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(BundleError::NotABundle);
            }
            Err(error) => return Err(BundleError::io(path, "open")(error)),
        };
        let bytes = map.bytes();
        let header = Header::decode(&bytes)?;
        let manifest = read_manifest(&header, &bytes)?;
        let bundle = Bundle { map, path: path.into(), location, header, manifest: Arc::new(manifest) };
        for section in bundle.manifest.sections.iter().filter(|section| section.kind == SectionKind::Graph) {
            bundle.checked(section)?;
        }
        Ok(bundle)
    }

    /// What the bundle says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The mapped file: what [`Bundle::weights`] gives are slices of it.
    pub fn file(&self) -> &MappedFile {
        &self.map
    }

    /// Its path, absolute and without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that it lies in: what the locations in its graphs are relative to.
    pub fn folder(&self) -> PathBuf {
        self.path.parent().map(Path::to_owned).unwrap_or_default()
    }

    /// Length of the file in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.header.file_len
    }

    /// An ONNX model that names this file, as it is called now, as the place of its weights.
    ///
    /// # Errors
    /// [`BundleError::Manifest`] when the section is not a graph.
    pub fn graph(&self, id: SectionId) -> Result<Vec<u8>, BundleError> {
        let section = self.section(id, SectionKind::Graph)?;
        let mut graph = self.slice(section.offset, section.len).to_vec();
        for &location in &section.locations {
            let at = location as usize; // Checked against the section's length at opening.
            graph[at..at + LOCATION_LEN].copy_from_slice(&self.location);
        }
        Ok(graph)
    }

    /// An ONNX model with every [`crate::LOCATION`] in it replaced by the place of this file, as in [`Bundle::graph`]. For
    /// models made later whose weights are those of the bundle.
    pub fn locate(&self, mut model: Vec<u8>) -> Vec<u8> {
        for at in find_locations(&model) {
            let at = at as usize;
            model[at..at + LOCATION_LEN].copy_from_slice(&self.location);
        }
        model
    }

    /// A copy of a serialised engine. An engine is code, so it is the copy that is hashed: a later write to the file
    /// cannot reach it.
    ///
    /// # Errors
    /// [`BundleError::Manifest`] when the section is not an engine, [`BundleError::Damaged`] when its hash is not the manifest's.
    pub fn engine(&self, id: SectionId) -> Result<Vec<u8>, BundleError> {
        let section = self.section(id, SectionKind::Engine)?;
        let engine = self.slice(section.offset, section.len).to_vec();
        matches(section, &engine)?;
        Ok(engine)
    }

    /// The JSON of a network without its weights.
    ///
    /// # Errors
    /// [`BundleError::Manifest`] when the section is not a network, [`BundleError::Damaged`] when its hash is not the manifest's.
    pub fn network(&self, id: SectionId) -> Result<Bytes, BundleError> {
        self.checked(self.section(id, SectionKind::Network)?)
    }

    /// The JSON of a compile report.
    ///
    /// # Errors
    /// As [`Bundle::network`].
    pub fn report(&self, id: SectionId) -> Result<Bytes, BundleError> {
        self.checked(self.section(id, SectionKind::Report)?)
    }

    /// A block of weights in the mapped file, not checked against its hash.
    ///
    /// # Errors
    /// [`BundleError::Manifest`] when there is no such block.
    pub fn weights(&self, id: WeightsId) -> Result<Bytes, BundleError> {
        let entry = self.weights_entry(id)?;
        Ok(self.slice(entry.offset, entry.len))
    }

    /// Where a block of weights lies.
    ///
    /// # Errors
    /// [`BundleError::Manifest`] when there is no such block.
    pub fn weights_ref(&self, id: WeightsId) -> Result<WeightsRef, BundleError> {
        let entry = self.weights_entry(id)?;
        Ok(WeightsRef { id, offset: entry.offset, len: entry.len })
    }

    /// Reads the whole file and checks every hash, and that nothing hides between the parts.
    ///
    /// # Errors
    /// [`BundleError::Damaged`].
    pub fn verify(&self) -> Result<(), BundleError> {
        let mut parts = Vec::new();
        for section in &self.manifest.sections {
            self.checked(section)?;
            parts.push((section.offset, section.len));
        }
        for (k, entry) in self.manifest.weights.iter().enumerate() {
            if Hash::of(&self.slice(entry.offset, entry.len)) != entry.hash {
                return Err(BundleError::Damaged(format!("weights {k} do not match their hash")));
            }
            parts.push((entry.offset, entry.len));
        }
        parts.sort_unstable();
        parts.push((self.header.manifest_offset, 0));
        let mut from = HEADER_LEN as u64;
        for (offset, len) in parts {
            if self.slice(from, offset - from).iter().any(|&byte| byte != 0) {
                return Err(BundleError::Damaged(format!("bytes {from}..{offset} should be zero")));
            }
            from = offset + len;
        }
        Ok(())
    }

    /// Whether the bundle carries a signature (of anybody).
    pub fn is_signed(&self) -> bool {
        self.header.flags & SIGNED != 0
    }

    /// Checks that the bundle was signed with the private part of `key`, and every hash ([`Bundle::verify`]).
    ///
    /// # Errors
    /// [`BundleError::Signature`], [`BundleError::Damaged`].
    #[cfg(feature = "sign")]
    pub fn verify_signature(&self, key: &ed25519_dalek::VerifyingKey) -> Result<(), BundleError> {
        if !self.is_signed() {
            return Err(BundleError::Signature("the bundle has none"));
        }
        let bytes = self.map.bytes();
        let header = bytes.first_chunk().ok_or(BundleError::NotABundle)?;
        let len = crate::header::SIGNATURE_LEN;
        crate::sign::verify(header, &self.slice(self.header.file_len - len, len), key)?;
        self.verify()
    }

    /// Checks that the path still leads to the mapped file: ONNX Runtime opens it again by path.
    ///
    /// # Errors
    /// [`BundleError::Replaced`], or [`BundleError::Io`] when there is nothing at the path.
    pub fn check_in_place(&self) -> Result<(), BundleError> {
        let io = || BundleError::io(&*self.path, "open");
        let (now, mapped) =
            (std::fs::metadata(&self.path).map_err(io())?, self.map.file().metadata().map_err(io())?);
        if (now.dev(), now.ino()) == (mapped.dev(), mapped.ino()) {
            return Ok(());
        }
        Err(BundleError::Replaced(self.path.to_path_buf()))
    }

    /// Header, sections and weights: everything before the manifest.
    pub(crate) fn parts(&self) -> Bytes {
        self.slice(0, self.header.manifest_offset)
    }

    fn section(&self, id: SectionId, kind: SectionKind) -> Result<&Section, BundleError> {
        let section = self.manifest.sections.get(id.index()).filter(|section| section.kind == kind);
        section.ok_or_else(|| BundleError::Manifest(format!("section {} is not a {kind}", id.0)))
    }

    fn weights_entry(&self, id: WeightsId) -> Result<&WeightsEntry, BundleError> {
        let entry = self.manifest.weights.get(id.index());
        entry.ok_or_else(|| BundleError::Manifest(format!("there are no weights {}", id.0)))
    }

    /// A range that was checked at opening.
    fn slice(&self, offset: u64, len: u64) -> Bytes {
        self.map.bytes().slice(offset as usize..(offset + len) as usize)
    }

    fn checked(&self, section: &Section) -> Result<Bytes, BundleError> {
        let bytes = self.slice(section.offset, section.len);
        matches(section, &bytes)?;
        Ok(bytes)
    }
}

fn matches(section: &Section, bytes: &[u8]) -> Result<(), BundleError> {
    if Hash::of(bytes) == section.hash {
        return Ok(());
    }
    Err(BundleError::Damaged(format!(
        "the {} at byte {} does not match its hash",
        section.kind, section.offset
    )))
}

fn read_manifest(header: &Header, bytes: &Bytes) -> Result<Manifest, BundleError> {
    if header.manifest_len > MANIFEST_LIMIT {
        return Err(BundleError::ManifestTooLarge { len: header.manifest_len, limit: MANIFEST_LIMIT });
    }
    let range = header.manifest_offset as usize..(header.manifest_offset + header.manifest_len) as usize;
    let json = &bytes[range];
    if Hash::of(json) != header.manifest_hash {
        return Err(BundleError::Damaged("the manifest does not match its hash".into()));
    }
    let manifest: Manifest =
        serde_json::from_slice(json).map_err(|error| BundleError::Manifest(error.to_string()))?;
    check(&manifest, header.manifest_offset)?;
    Ok(manifest)
}

/// The name that graphs will refer to.
pub(crate) fn file_name(path: &Path) -> Result<&str, BundleError> {
    let name = path.file_name().ok_or(BundleError::FileName("missing"))?;
    let name = name.to_str().ok_or(BundleError::FileName("not UTF-8"))?;
    if name.len() > 255 {
        return Err(BundleError::FileName("longer than 255 bytes"));
    }
    Ok(name)
}

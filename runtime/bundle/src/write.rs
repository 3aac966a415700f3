//! Writing a bundle: one pass, into a temporary file that takes the final name at the end.

use crate::{
    Bundle, BundleError, Hash, Manifest, Section, SectionId, SectionKind, WeightsEntry, WeightsId,
    check::{ALIGN, check},
    header::{HEADER_LEN, Header},
    location::find_locations,
};
use bytes::Bytes;
use std::{
    collections::HashMap,
    fs::{File, Permissions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;

/// Greatest length of a manifest in bytes.
pub(crate) const MANIFEST_LIMIT: u64 = 32 << 20;

/// Where a block of weights lies in the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WeightsRef {
    /// Its index in the manifest.
    pub id: WeightsId,
    /// Offset from the beginning of the file in bytes, a multiple of 64: final as soon as it is returned.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Writes a bundle.
///
/// Parts may be added in any order; each is written at once, and nothing is kept in memory but places and hashes. Until
/// [`BundleWriter::finish`] the path is left alone, and dropping the writer leaves nothing behind.
#[derive(Debug)]
pub struct BundleWriter {
    path: PathBuf,
    file: NamedTempFile,
    /// Length of the file so far.
    at: u64,
    sections: Vec<Section>,
    weights: Vec<WeightsEntry>,
    known_weights: HashMap<Hash, WeightsId>,
}

impl BundleWriter {
    /// Begins a bundle that will be called `path`. Its folder must exist, since the temporary file is made there.
    ///
    /// # Errors
    /// [`BundleError::FileName`] for a name that is not UTF-8 or has more than 255 bytes; [`BundleError::Io`].
    pub fn create(path: impl AsRef<Path>) -> Result<BundleWriter, BundleError> {
        let path = path.as_ref();
        crate::read::file_name(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".trtc-")
            .suffix(".partial")
            // As for any file that a program makes: the user's umask decides.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(BundleError::io(folder, "make a file in"))?;
        let mut writer = BundleWriter {
            path: path.to_owned(),
            file,
            at: 0,
            sections: Vec::new(),
            weights: Vec::new(),
            known_weights: HashMap::new(),
        };
        writer.append(&[0; HEADER_LEN])?;
        Ok(writer)
    }

    /// Begins a bundle with the parts of `bundle`, all under the same ids, to which others are added. `path` may be that of
    /// `bundle` itself.
    ///
    /// # Errors
    /// As [`BundleWriter::create`].
    pub fn extend(bundle: &Bundle, path: impl AsRef<Path>) -> Result<BundleWriter, BundleError> {
        let mut writer = BundleWriter::create(path)?;
        writer.append(&bundle.parts()[HEADER_LEN..])?;
        writer.sections = bundle.manifest().sections.clone();
        writer.weights = bundle.manifest().weights.clone();
        let ids = (0u32..).map(WeightsId);
        writer.known_weights = writer.weights.iter().zip(ids).map(|(entry, id)| (entry.hash, id)).collect();
        Ok(writer)
    }

    /// Writes weights, unless the same bytes are there already.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn add_weights(&mut self, bytes: &Bytes) -> Result<WeightsRef, BundleError> {
        let hash = Hash::of(bytes);
        let id = match self.known_weights.get(&hash) {
            Some(&id) => id,
            None => {
                let offset = self.append_aligned(bytes)?;
                let id = WeightsId(index(self.weights.len())?);
                self.weights.push(WeightsEntry { offset, len: bytes.len() as u64, hash });
                self.known_weights.insert(hash, id);
                id
            }
        };
        let entry = &self.weights[id.index()];
        Ok(WeightsRef { id, offset: entry.offset, len: entry.len })
    }

    /// Writes a serialised engine.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn add_engine(&mut self, engine: &[u8]) -> Result<SectionId, BundleError> {
        self.add(SectionKind::Engine, engine)
    }

    /// Writes the JSON of a network without its weights.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn add_network(&mut self, json: &[u8]) -> Result<SectionId, BundleError> {
        self.add(SectionKind::Network, json)
    }

    /// Writes an ONNX model whose external weights have [`crate::LOCATION`] as location and the offset and length of a
    /// [`WeightsRef`].
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn add_graph(&mut self, model: &[u8]) -> Result<SectionId, BundleError> {
        let id = self.add(SectionKind::Graph, model)?;
        self.sections[id.index()].locations = find_locations(model);
        Ok(id)
    }

    /// Writes the JSON of a compile report.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn add_report(&mut self, json: &[u8]) -> Result<SectionId, BundleError> {
        self.add(SectionKind::Report, json)
    }

    /// Ends the bundle and gives it its name, in place of any file that has it now.
    ///
    /// `manifest.sections` and `manifest.weights` are filled in.
    ///
    /// # Errors
    /// [`BundleError::Manifest`] when an index leads nowhere or a plan contradicts itself; [`BundleError::Io`]. Nothing is
    /// left behind then.
    pub fn finish(self, manifest: Manifest) -> Result<(), BundleError> {
        self.end(manifest, 0, |_| Vec::new())
    }

    /// As [`BundleWriter::finish`], signed: whoever has the public key can check that these bytes come from the key's owner.
    ///
    /// # Errors
    /// As [`BundleWriter::finish`].
    #[cfg(feature = "sign")]
    pub fn finish_signed(
        self,
        manifest: Manifest,
        key: &ed25519_dalek::SigningKey,
    ) -> Result<(), BundleError> {
        self.end(manifest, crate::header::SIGNED, |header| crate::sign::block(header, key))
    }

    fn end(
        mut self,
        mut manifest: Manifest,
        flags: u64,
        tail: impl Fn(&[u8; HEADER_LEN]) -> Vec<u8>,
    ) -> Result<(), BundleError> {
        manifest.sections = std::mem::take(&mut self.sections);
        manifest.weights = std::mem::take(&mut self.weights);
        check(&manifest, self.at)?;
        let json = serde_json::to_vec(&manifest).map_err(|error| BundleError::Manifest(error.to_string()))?;
        let len = json.len() as u64;
        if len > MANIFEST_LIMIT {
            return Err(BundleError::ManifestTooLarge { len, limit: MANIFEST_LIMIT });
        }
        let manifest_offset = self.append_aligned(&json)?;
        let header = Header {
            producer: manifest.producer,
            file_len: self.at + if flags == 0 { 0 } else { crate::header::SIGNATURE_LEN },
            manifest_offset,
            manifest_len: len,
            manifest_hash: Hash::of(&json),
            flags,
        }
        .encode();
        self.append(&tail(&header))?;
        let io = |action| BundleError::io(&self.path, action);
        let file = self.file.as_file_mut();
        file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&header)).map_err(io("write"))?;
        file.sync_all().map_err(io("write"))?;
        let folder = self.file.path().parent().map(Path::to_owned).unwrap_or_default();
        self.file.persist(&self.path).map_err(|error| io("rename a temporary file to")(error.error))?;
        // The name is safe on disk only when the folder is; a folder that cannot be synced is no reason to fail.
        File::open(folder).and_then(|folder| folder.sync_all()).ok();
        Ok(())
    }

    fn add(&mut self, kind: SectionKind, bytes: &[u8]) -> Result<SectionId, BundleError> {
        let offset = self.append_aligned(bytes)?;
        let id = SectionId(index(self.sections.len())?);
        let (len, hash) = (bytes.len() as u64, Hash::of(bytes));
        self.sections.push(Section { kind, offset, len, hash, locations: Vec::new() });
        Ok(id)
    }

    fn append_aligned(&mut self, bytes: &[u8]) -> Result<u64, BundleError> {
        let fill = (self.at.next_multiple_of(ALIGN) - self.at) as usize;
        self.append(&[0; ALIGN as usize][..fill])?;
        let offset = self.at;
        self.append(bytes)?;
        Ok(offset)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        self.file.write_all(bytes).map_err(BundleError::io(&self.path, "write"))?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

fn index(len: usize) -> Result<u32, BundleError> {
    u32::try_from(len).map_err(|_| BundleError::Manifest("more than 4294967295 parts".into()))
}

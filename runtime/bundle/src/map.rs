//! Files mapped into memory, read only: the one place that maps.
#![allow(unsafe_code)]

use bytes::Bytes;
use memmap2::{Mmap, UncheckedAdvice};
use std::{
    fs::File,
    io,
    ops::Range,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A regular file (or memfd), mapped whole and read only.
///
/// Clones are cheap and share one mapping, which lives until the last clone and the last slice of [`MappedFile::bytes`]
/// are gone. The mapping is private to no one: whoever writes to the file while it is mapped changes what is read here,
/// and whoever truncates it makes a later read end in SIGBUS, as with any mapped file.
#[derive(Clone)]
pub struct MappedFile {
    path: Arc<Path>,
    file: Arc<File>,
    map: Arc<Mmap>,
    bytes: Bytes,
}

/// Keeps a mapping alive for the slices that were cut from it.
struct Owner(Arc<Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl MappedFile {
    /// Opens and maps `path`.
    ///
    /// # Errors
    /// What the system says when the file cannot be opened or mapped; [`io::ErrorKind::IsADirectory`] for a folder,
    /// [`io::ErrorKind::InvalidInput`] for anything else that is not a regular file (without opening it, since opening a
    /// pipe would wait for its writer), [`io::ErrorKind::InvalidData`] for an empty file. The message does not repeat the path.
    pub fn open(path: impl AsRef<Path>) -> io::Result<MappedFile> {
        let path = path.as_ref();
        regular(&std::fs::metadata(path)?)?;
        MappedFile::from_file(File::open(path)?, path)
    }

    /// Maps an open file; `path` is what [`MappedFile::path`] will say.
    ///
    /// # Errors
    /// As [`MappedFile::open`].
    pub fn from_file(file: File, path: impl Into<PathBuf>) -> io::Result<MappedFile> {
        let metadata = file.metadata()?;
        regular(&metadata)?;
        if metadata.len() == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
        }
        // SAFETY: the mapping is read only and of a regular file, whose length the system gives. That nobody writes to
        // or truncates the file meanwhile is the documented contract of this type; memory safety of this process does not
        // hang on the content, because every reader treats it as untrusted bytes and bounds-checks it.
        let map = Arc::new(unsafe { Mmap::map(&file)? });
        let bytes = Bytes::from_owner(Owner(Arc::clone(&map)));
        Ok(MappedFile { path: path.into().into(), file: Arc::new(file), map, bytes })
    }

    /// Maps what a descriptor (a file, a memfd) refers to; `path` is what [`MappedFile::path`] will say.
    ///
    /// # Errors
    /// As [`MappedFile::open`].
    pub fn from_fd(fd: OwnedFd, path: impl Into<PathBuf>) -> io::Result<MappedFile> {
        MappedFile::from_file(File::from(fd), path)
    }

    /// The whole content. A clone and its slices keep the mapping alive and copy nothing.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Path that it was opened under.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, to hand its descriptor to another process.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Length in bytes; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Gives back the memory of pages that were read; what is read again comes from the page cache. For whoever reads a
    /// large file once: the pages would stay in this process until somebody else needs memory.
    pub fn release_pages(&self) {
        // SAFETY: the mapping is shared and read only, so it holds no changes that could be lost: a dropped page is read
        // from the file again, with the same bytes (or, as ever, those of whoever writes to the file).
        let advised = unsafe { self.map.unchecked_advise(UncheckedAdvice::DontNeed) };
        // Advice that the system does not take costs memory, nothing else.
        drop(advised);
    }

    /// Where in the file `slice` lies, in bytes; `None` when it is a copy or comes from elsewhere.
    ///
    /// An empty slice has a place only when it was cut from [`MappedFile::bytes`].
    pub fn offset_of(&self, slice: &Bytes) -> Option<Range<u64>> {
        let start = (slice.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        let end = start.checked_add(slice.len())?;
        (end <= self.bytes.len()).then_some(start as u64..end as u64)
    }
}

impl std::fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappedFile").field("path", &self.path).field("len", &self.len()).finish()
    }
}

fn regular(metadata: &std::fs::Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder, not a file"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::MappedFile;
    use bytes::Bytes;
    use std::io::{ErrorKind, Write};

    #[test]
    fn released_pages_are_read_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        file.write_all(&content).unwrap();
        let mapped = MappedFile::open(file.path()).unwrap();
        let slice = mapped.bytes().slice(5000..300_000);
        assert_eq!(slice, content[5000..300_000]);
        mapped.release_pages();
        assert_eq!(slice, content[5000..300_000]);
        drop(mapped);
        assert_eq!(slice, content[5000..300_000]);
    }

    #[test]
    fn slices_know_their_place_and_outlive_the_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"0123456789").unwrap();
        let map = MappedFile::open(file.path()).unwrap();
        assert_eq!((map.len(), map.path()), (10, file.path()));
        let slice = map.bytes().slice(3..7);
        assert_eq!(map.offset_of(&slice), Some(3..7));
        assert_eq!(map.offset_of(&map.bytes()), Some(0..10));
        assert_eq!(map.offset_of(&Bytes::copy_from_slice(b"3456")), None);
        drop((map, file));
        assert_eq!(&slice[..], b"3456");
    }

    #[test]
    fn a_descriptor_is_mapped_too() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let map = MappedFile::from_fd(file.into(), "-").unwrap();
        assert_eq!(&map.bytes()[..], b"abc");
    }

    #[test]
    fn what_is_not_a_file_with_content_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |path: &std::path::Path| MappedFile::open(path).unwrap_err().kind();
        assert_eq!(kind(folder.path()), ErrorKind::IsADirectory);
        assert_eq!(kind(&folder.path().join("absent")), ErrorKind::NotFound);
        assert_eq!(kind(std::path::Path::new("/dev/null")), ErrorKind::InvalidInput);
        let empty = folder.path().join("empty");
        std::fs::write(&empty, b"").unwrap();
        assert_eq!(kind(&empty), ErrorKind::InvalidData);
    }
}

//! Hashes of weights, each computed once.

use bytes::Bytes;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};
use trtc_bundle::{Hash, MappedFile};

/// Hashes of weights. Those that lie in one of the mapped files are remembered by their place: the file stays mapped, so
/// the place keeps its meaning.
#[derive(Debug)]
pub(crate) struct Hashes<'a> {
    files: &'a [MappedFile],
    known: Mutex<HashMap<(usize, usize), Hash>>,
}

impl<'a> Hashes<'a> {
    /// Remembers slices of `files`.
    pub fn new(files: &'a [MappedFile]) -> Hashes<'a> {
        Hashes { files, known: Mutex::default() }
    }

    /// Hash of `bytes`.
    pub fn of(&self, bytes: &Bytes) -> Hash {
        let Some(file) = self.files.iter().find(|file| file.offset_of(bytes).is_some()) else {
            return Hash::of(bytes);
        };
        let place = (bytes.as_ptr() as usize, bytes.len());
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&hash) = known().get(&place) {
            return hash;
        }
        let hash = Hash::of(bytes);
        // The worker maps the same weights: they need not stay in this process as well while it builds.
        file.release_pages();
        known().insert(place, hash);
        hash
    }
}

//! BLAKE3 hashes as values: hexadecimal in JSON.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A BLAKE3 hash of 32 bytes, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash([u8; 32]);

impl Hash {
    /// Hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(*blake3::hash(bytes).as_bytes())
    }

    /// The hash with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Hash {
        Hash(bytes)
    }

    /// Its 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Identity of a source model: its file, and the files that hold its external data, by name.
    ///
    /// Without external data it is the hash of the file itself (what `b3sum` prints); otherwise the order of `external`
    /// does not matter.
    pub fn of_model(model: &[u8], external: &[(&str, Bytes)]) -> Hash {
        let own = Hash::of(model);
        if external.is_empty() {
            return own;
        }
        let mut files: Vec<(&str, Hash)> =
            external.iter().map(|(name, bytes)| (*name, Hash::of(bytes))).collect();
        files.sort_unstable();
        let mut all = blake3::Hasher::new();
        all.update(own.as_bytes());
        for (name, hash) in files {
            all.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes()).update(hash.as_bytes());
        }
        Hash(*all.finalize().as_bytes())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a BLAKE3 hash of 64 hexadecimal digits")]
pub struct HashError(String);

impl FromStr for Hash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Hash, HashError> {
        blake3::Hash::from_hex(text)
            .map(|hash| Hash(*hash.as_bytes()))
            .map_err(|_| HashError(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for Hash {
    type Error = HashError;

    fn try_from(text: String) -> Result<Hash, HashError> {
        text.parse()
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> String {
        hash.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::Hash;
    use bytes::Bytes;

    #[test]
    fn text_round_trips_and_is_blake3() {
        // The empty input of BLAKE3's published test vectors.
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Hash::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Hash::of(b"")));
        assert!("af13".parse::<Hash>().is_err());
    }

    #[test]
    fn a_model_is_its_file_and_its_external_files() {
        let (a, b) = (("a", Bytes::from_static(b"1")), ("b", Bytes::from_static(b"2")));
        let both = Hash::of_model(b"m", &[a.clone(), b.clone()]);
        assert_eq!(Hash::of_model(b"m", &[]), Hash::of(b"m"));
        assert_eq!(both, Hash::of_model(b"m", &[b.clone(), a.clone()]));
        assert_ne!(both, Hash::of_model(b"m", &[("a", b.1), ("b", a.1)]));
    }
}

//! The first 128 bytes of a bundle: read before anything else, so that a mismatch reads well.
//!
//! | bytes | content (little-endian) |
//! |---|---|
//! | 0..8 | mark: `89 54 52 54 43 0d 0a 1a` (`\x89TRTC\r\n\x1a`: a transfer in text mode shows) |
//! | 8..12 | format version of the writer |
//! | 12..16 | lowest format version that a reader must know |
//! | 16..48 | program that wrote it, UTF-8, filled with zeros |
//! | 48..56 | length of the file |
//! | 56..64, 64..72 | manifest: offset, length |
//! | 72..104 | manifest: BLAKE3 |
//! | 104..112 | flags: bit 0: the last 96 bytes are a public key and an Ed25519 signature |
//! | 112..128 | first half of the BLAKE3 of bytes 0..112 |
//!
//! Bytes 0..48 keep their place and meaning in every later version.

use crate::{BundleError, Hash};

/// Format version that this crate writes, and the highest that it reads.
pub const FORMAT_VERSION: u32 = 1;

pub(crate) const HEADER_LEN: usize = 128;
pub(crate) const SIGNED: u64 = 1;
/// Public key (32 bytes) and signature (64).
pub(crate) const SIGNATURE_LEN: u64 = 96;
const MARK: [u8; 8] = *b"\x89TRTC\r\n\x1a";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub producer: String,
    pub file_len: u64,
    pub manifest_offset: u64,
    pub manifest_len: u64,
    pub manifest_hash: Hash,
    pub flags: u64,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        let producer = &self.producer.as_bytes()[..self.producer.floor_char_boundary(32)];
        put(0, &MARK);
        put(8, &FORMAT_VERSION.to_le_bytes());
        put(12, &FORMAT_VERSION.to_le_bytes());
        put(16, producer);
        put(48, &self.file_len.to_le_bytes());
        put(56, &self.manifest_offset.to_le_bytes());
        put(64, &self.manifest_len.to_le_bytes());
        put(72, self.manifest_hash.as_bytes());
        put(104, &self.flags.to_le_bytes());
        let check = Hash::of(&bytes[..112]);
        bytes[112..].copy_from_slice(&check.as_bytes()[..16]);
        bytes
    }

    /// Reads the header of a file of `file_len` bytes that begins with `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Header, BundleError> {
        if !bytes.starts_with(&MARK) {
            let text_mode = bytes.starts_with(b"\x89TRTC\n\x1a") || bytes.starts_with(b"\x89TRTC\r\r\n");
            return Err(if text_mode { BundleError::TextMode } else { BundleError::NotABundle });
        }
        let actual = bytes.len() as u64;
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(BundleError::Length { expected: HEADER_LEN as u64, actual });
        };
        let producer = text(&bytes[16..48]);
        let needs = u32::from_le_bytes(array(bytes, 12));
        if needs > FORMAT_VERSION {
            return Err(BundleError::TooNew { producer, needs, known: FORMAT_VERSION });
        }
        if Hash::of(&bytes[..112]).as_bytes()[..16] != bytes[112..] {
            return Err(BundleError::Damaged("the header does not match its hash".into()));
        }
        let header = Header {
            producer,
            file_len: u64::from_le_bytes(array(bytes, 48)),
            manifest_offset: u64::from_le_bytes(array(bytes, 56)),
            manifest_len: u64::from_le_bytes(array(bytes, 64)),
            manifest_hash: Hash::from_bytes(array(bytes, 72)),
            flags: u64::from_le_bytes(array(bytes, 104)),
        };
        if header.file_len != actual {
            return Err(BundleError::Length { expected: header.file_len, actual });
        }
        let tail = if header.flags & SIGNED != 0 { SIGNATURE_LEN } else { 0 };
        let end =
            header.manifest_offset.checked_add(header.manifest_len).and_then(|end| end.checked_add(tail));
        if header.manifest_offset < HEADER_LEN as u64 || end != Some(actual) {
            return Err(BundleError::Damaged("the manifest does not lie at the end of the file".into()));
        }
        Ok(header)
    }
}

fn array<const N: usize>(bytes: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// Printable text of a field filled up with zeros; hostile bytes must not reach a terminal as they are.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    let text: String =
        String::from_utf8_lossy(&field[..end]).chars().filter(|letter| !letter.is_control()).collect();
    if text.is_empty() { "an unknown program".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::{FORMAT_VERSION, HEADER_LEN, Header};
    use crate::{BundleError, Hash};

    fn header() -> Header {
        Header {
            producer: "trtc 0.1.0".into(),
            file_len: HEADER_LEN as u64,
            manifest_offset: HEADER_LEN as u64,
            manifest_len: 0,
            manifest_hash: Hash::of(b""),
            flags: 0,
        }
    }

    #[test]
    fn round_trips() {
        assert_eq!(Header::decode(&header().encode()).unwrap(), header());
        let long = Header { producer: "é".repeat(40), ..header() };
        assert_eq!(Header::decode(&long.encode()).unwrap().producer, "é".repeat(16));
    }

    #[test]
    fn mismatches_read_well() {
        let good = header().encode();
        let said = |bytes: &[u8]| Header::decode(bytes).unwrap_err().to_string();
        assert!(said(b"PK\x03\x04").contains("not a bundle"));
        assert!(said(b"").contains("not a bundle"));
        assert!(said(&good[..100]).contains("cut short"));
        assert!(said(&[&good[..], b"x"].concat()).contains("appended"));
        assert!(said(b"\x89TRTC\n\x1a").contains("text mode"));
        let mut newer = good;
        newer[12..16].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        newer[50] = 7; // What follows may mean anything in a later version.
        assert!(matches!(Header::decode(&newer), Err(BundleError::TooNew { needs: 2, .. })));
        assert!(said(&newer).contains("trtc 0.1.0"));
        let mut flipped = good;
        flipped[60] ^= 1;
        assert!(said(&flipped).contains("header"));
    }
}

//! Ed25519 signatures: over the header, which holds the manifest's hash, which holds every other.

use crate::{BundleError, header::HEADER_LEN};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

/// What is signed: never the same bytes as a signature made for another purpose.
fn message(header: &[u8; HEADER_LEN]) -> Vec<u8> {
    [&b"trtc bundle\0"[..], header].concat()
}

/// Public key and signature, as they stand at the end of the file.
pub(crate) fn block(header: &[u8; HEADER_LEN], key: &SigningKey) -> Vec<u8> {
    let signature = key.sign(&message(header));
    [&key.verifying_key().to_bytes()[..], &signature.to_bytes()].concat()
}

/// Checks that `block` was made with the private part of `key`.
pub(crate) fn verify(header: &[u8; HEADER_LEN], block: &[u8], key: &VerifyingKey) -> Result<(), BundleError> {
    let (Some(public), Some(signature)) = (block.first_chunk::<32>(), block.last_chunk::<64>()) else {
        return Err(BundleError::Signature("it is cut short"));
    };
    if *public != key.to_bytes() {
        return Err(BundleError::Signature("the bundle was signed with another key"));
    }
    key.verify_strict(&message(header), &Signature::from_bytes(signature))
        .map_err(|_| BundleError::Signature("it does not fit the bundle"))
}

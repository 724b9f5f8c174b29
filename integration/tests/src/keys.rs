//! Keys that bitstreams are signed with.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// The key pair of this number, always the same.
///
/// # Panics
/// Never: any 32 bytes are a seed.
pub fn key_pair(number: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[number; 32]).expect("32 bytes")
}

/// A public key as OpenSSL writes it, and operators name it in settings.
pub fn pem(pair: &Ed25519KeyPair) -> String {
    let mut der = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00".to_vec();
    der.extend(pair.public_key().as_ref());
    let text = BASE64_STANDARD.encode(der);
    format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
}

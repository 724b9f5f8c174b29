//! What identifies a state of a resource, and a resource among all that had its name.

use std::fmt::Display;

use snic_domain::Digest;

use crate::protocol::ControlError;

/// A short digest of what identifies a state of a resource.
pub(crate) fn etag(parts: &[&dyn Display]) -> String {
    let text = parts.iter().map(|part| part.to_string()).collect::<Vec<_>>().join("/");
    let [a, b, ..] = Digest::of(text.as_bytes()).words();
    format!("{a:08x}{b:08x}")
}

/// Rejects a change of something that changed since the caller read it.
pub(crate) fn check_etag(
    resource: impl ToString,
    read: Option<&str>,
    now: String,
) -> Result<(), ControlError> {
    match read {
        Some(read) if read != now => {
            Err(ControlError::EtagMismatch { resource: resource.to_string(), etag: now })
        }
        _ => Ok(()),
    }
}

/// A UUID made from a text (version 8).
pub(crate) fn uuid(text: &str) -> String {
    let [a, b, c, d, ..] = Digest::of(text.as_bytes()).words();
    let (b, c) = (b & 0xFFFF_0FFF | 0x8000, c & 0x3FFF_FFFF | 0x8000_0000);
    let (b, b_low) = (b >> 16, b & 0xFFFF);
    let (c, c_low) = (c >> 16, c & 0xFFFF);
    format!("{a:08x}-{b:04x}-{b_low:04x}-{c:04x}-{c_low:04x}{d:08x}")
}

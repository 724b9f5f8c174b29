//! An object in which an image is kept: its name, what may go wrong with it, and its pieces. A file of a folder and an object
//! of a bucket have the same names.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::str::FromStr;
use std::time::SystemTime;

use bytes::Bytes;
use snic_domain::Digest;
use tokio_stream::Stream;
use uuid::Uuid;

/// Prefix of the names of all objects: a folder in the folder, or in the bucket.
pub(crate) const FOLDER: &str = "bitstreams";

/// Name of an object. Nothing else that is stored beside them is read or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectName {
    Image(Digest),
    /// A small object that a check of the store writes.
    Probe(Uuid),
    /// A file that a writer has not finished yet, or never will because it died.
    Unfinished(Uuid),
}

impl ObjectName {
    /// A probe's name that no other check uses.
    pub fn new_probe() -> Self {
        Self::Probe(Uuid::now_v7())
    }

    /// A temporary name that no other writer uses, on no machine.
    pub fn new_unfinished() -> Self {
        Self::Unfinished(Uuid::now_v7())
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(digest) => digest.fmt(f),
            Self::Probe(id) => write!(f, "check-{id}"),
            Self::Unfinished(id) => write!(f, "unfinished-{id}"),
        }
    }
}

/// Error of a name that this program never gives.
#[derive(Debug)]
pub(crate) struct ForeignName;

impl FromStr for ObjectName {
    type Err = ForeignName;

    fn from_str(text: &str) -> Result<Self, ForeignName> {
        let id = |text| Uuid::try_parse(text).map_err(|_| ForeignName);
        let name = if let Some(rest) = text.strip_prefix("check-") {
            Self::Probe(id(rest)?)
        } else if let Some(rest) = text.strip_prefix("unfinished-") {
            Self::Unfinished(id(rest)?)
        } else {
            Self::Image(text.parse().map_err(|_| ForeignName)?)
        };
        // Digests and UUIDs have other spellings, such as capital letters. An object would be looked for under its
        // usual name, which is another file.
        if name.to_string() == text { Ok(name) } else { Err(ForeignName) }
    }
}

/// Meaning of an error of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    NotFound,
    PermissionDenied,
    /// Credentials are missing or cannot be used.
    #[cfg(feature = "s3")]
    Unauthenticated,
    Other,
}

/// Error of an operation on objects.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct ObjectError {
    pub kind: ErrorKind,
    text: String,
}

impl ObjectError {
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl From<ObjectError> for io::Error {
    fn from(error: ObjectError) -> Self {
        let kind = match error.kind {
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            #[cfg(feature = "s3")]
            ErrorKind::Unauthenticated => io::ErrorKind::PermissionDenied,
            ErrorKind::Other => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// An object in a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListedObject {
    pub name: ObjectName,
    pub stored_at: SystemTime,
}

/// Pieces of an object, as they are read.
pub(crate) type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, ObjectError>> + Send>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_that_this_program_gives_are_objects() {
        let digest = Digest::of(b"bits").to_string();
        let names = [
            ObjectName::Image(Digest::of(b"")),
            ObjectName::new_probe(),
            ObjectName::new_unfinished(),
        ];
        for name in names {
            assert_eq!(name.to_string().parse::<ObjectName>().unwrap(), name);
        }
        let id = "0190163d-8694-739b-aea5-966c26f8ad91";
        for foreign in [
            String::new(),
            "README".into(),
            digest.to_uppercase(),
            format!("{digest}#1"),
            format!("../{digest}"),
            format!("{digest}/"),
            digest[1..].to_owned(),
            "check-1".into(),
            format!("check-{}", id.to_uppercase()),
            format!("unfinished-{}", id.replace('-', "")),
            format!("unfinished-{{{id}}}"),
        ] {
            assert!(foreign.parse::<ObjectName>().is_err(), "{foreign:?}");
        }
    }
}

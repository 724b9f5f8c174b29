//! Configurations of NTs: typed by a schema for each NT type, validated, versioned.
//!
//! A configuration is a JSON object. The schema is data, not code: whoever stores configurations
//! (a controller, a client) checks them with the same rules and the same messages, without the NT.
//! After the schema has accepted the document, serde turns it into the NT's own struct, so an NT
//! never sees a value out of range. Secrets go in and never come out: what can be read back holds
//! their digest. NTs in hardware, which read no JSON, get words whose form follows from the schema (`words.rs`).

mod non_ip;
mod schema;
mod value;
mod words;

pub(crate) use non_ip::NonIp;
pub(crate) use schema::NON_IP;
pub use schema::{Field, Kind, Schema};
pub(crate) use schema::{SHOWN_SECRET, shown_secret};
pub use value::{InvalidValue, IpPrefix, Mac, PortRange, Secret};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longest configuration: the region's configuration window.
pub const CONFIGURATION_BYTES_MAX: usize = 64 << 10;

/// Why a configuration is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfiguration {
    /// Written for another version of the NT type.
    #[error("configuration version {found} of {nt_type} is unknown; known is {known}")]
    UnknownVersion {
        /// The NT type.
        nt_type: &'static str,
        /// Version that was given.
        found: u16,
        /// Version that is known.
        known: u16,
    },
    /// Longer than [`CONFIGURATION_BYTES_MAX`]; with its length in bytes.
    #[error("the configuration has {0} bytes; at most {CONFIGURATION_BYTES_MAX} are allowed")]
    TooLong(usize),
    #[error("the configuration is not a JSON document: {0}")]
    NotJson(String),
    /// A field is missing, unknown, or has a value that is not allowed.
    #[error("{field}: {value} is not allowed; allowed: {allowed}")]
    Field {
        /// The field, as a path such as `rules[3].source`.
        field: String,
        /// Its value, except for secrets.
        value: String,
        allowed: String,
    },
}

impl InvalidConfiguration {
    /// An error about one field.
    pub fn field(
        field: impl Into<String>,
        value: impl ToString,
        allowed: impl Into<String>,
    ) -> Self {
        Self::Field { field: field.into(), value: value.to_string(), allowed: allowed.into() }
    }
}

/// A document that the schema has accepted.
#[derive(Clone, PartialEq)]
pub struct Configuration {
    schema: &'static Schema,
    document: Value,
}

impl Configuration {
    /// The NT's own struct.
    ///
    /// # Errors
    /// The struct accepts less than the schema.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, InvalidConfiguration> {
        T::deserialize(&self.document).map_err(|error| {
            InvalidConfiguration::field(self.schema.nt_type, "the document", error.to_string())
        })
    }

    /// The document with digests in place of secrets.
    pub fn redacted(&self) -> Value {
        self.schema.redact(&self.document)
    }
}

impl std::fmt::Debug for Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Configuration({}: {})", self.schema.nt_type, self.redacted())
    }
}

//! Configuration of an NT of a DAG.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Digest, NodeId, NtTypeId};

/// The configuration of an NT: a JSON object. What may be in it is the NT type's matter; it may hold
/// secrets, so it is never printed.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct NtConfiguration(Arc<str>);

impl NtConfiguration {
    /// Takes the text of a JSON object that was checked.
    pub fn new(json: &str) -> Self {
        Self(json.into())
    }

    /// The text, for those who check it, store it or hand it to a card.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no bytes; one that was checked has.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for NtConfiguration {
    fn from(json: String) -> Self {
        Self(json.into())
    }
}

impl From<NtConfiguration> for String {
    fn from(configuration: NtConfiguration) -> Self {
        configuration.0.as_ref().to_owned()
    }
}

/// Length and digest: what is in it may be a secret.
impl fmt::Debug for NtConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = Digest::of(self.0.as_bytes());
        write!(f, "NtConfiguration({} bytes, sha256:{digest})", self.0.len())
    }
}

/// A task that passes packets on unchanged: its card works only as configurations and modules say, and it has neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleTask {
    pub node: NodeId,
    /// Its NT type.
    pub nt: NtTypeId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_stored_as_text_and_never_printed() {
        let configuration = NtConfiguration::new(r#"{"key":"beef"}"#);
        let stored = serde_json::to_string(&configuration).expect("a text");
        assert_eq!(stored, r#""{\"key\":\"beef\"}""#);
        assert_eq!(serde_json::from_str::<NtConfiguration>(&stored).expect("it"), configuration);
        let shown = format!("{configuration:?}");
        assert!(
            shown.starts_with("NtConfiguration(14 bytes") && !shown.contains("beef"),
            "{shown}"
        );
    }
}

//! The W3C header `traceparent`.
//!
//! Programs that export no spans still start a trace with each call, so that it has an id in traces and in the audit
//! log. Whether it is sampled, the server decides as it is configured: `tracestate` tells it that nobody has. If the
//! environment variable `TRACEPARENT` contains a context, the program continues that trace with all of its calls.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::LazyLock;

use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

/// Name of the header, and in upper case of the environment variable.
pub const NAME: &str = "traceparent";

/// Name of the header with what several systems add.
pub const STATE_NAME: &str = "tracestate";
/// State of a trace for which nobody has decided whether it is sampled.
pub const UNDECIDED: &str = "snic=undecided";

/// The trace that this program was told to continue.
static GIVEN: LazyLock<Option<String>> =
    LazyLock::new(|| std::env::var(NAME.to_uppercase()).ok().filter(|text| is_valid(text)));

/// The context that this program was told to continue, if one.
pub fn given() -> Option<&'static str> {
    GIVEN.as_deref()
}

/// Adds the headers to a call, unless it has a trace.
pub fn add(metadata: &mut MetadataMap) {
    if metadata.contains_key(NAME) {
        return;
    }
    let parsed = |text: &str| text.parse::<MetadataValue<Ascii>>().ok();
    if let Some(given) = given().and_then(parsed) {
        metadata.insert(NAME, given);
    } else if let Some(value) = parsed(&fresh()) {
        metadata.insert(NAME, value);
        metadata.insert(STATE_NAME, MetadataValue::from_static(UNDECIDED));
    }
}

/// A new context with unique ids, which need not be hard to guess, that is not sampled so far.
pub fn fresh() -> String {
    let random = || RandomState::new().build_hasher().finish();
    // An id must not be zero.
    format!("00-{:016x}{:016x}-{:016x}-00", random(), random() | 1, random() | 1)
}

/// Whether a text has the form `00-<32>-<16>-<2>` in hexadecimal with non-zero ids.
fn is_valid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths = parts.iter().map(|part| part.len());
    let hexadecimal = |part: &&str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    lengths.eq([2, 32, 16, 2])
        && parts.iter().all(hexadecimal)
        && parts[0] == "00"
        && parts[1..3].iter().all(|id| id.bytes().any(|b| b != b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_context_is_valid_and_unique() {
        let (one, two) = (fresh(), fresh());
        assert!(is_valid(&one) && is_valid(&two), "{one} {two}");
        assert_ne!(one, two);
    }

    #[test]
    fn invalid_contexts_are_rejected() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_valid(good));
        let zero = good.replace("00f067aa0ba902b7", "0000000000000000");
        let upper = good.replace("4bf9", "4BF9");
        let version = good.replacen("00-", "01-", 1);
        for wrong in ["", "x", &good[1..], &zero, &upper, &version, &format!("{good}-00")] {
            assert!(!is_valid(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_call_keeps_its_own_header() {
        let mut metadata = MetadataMap::new();
        add(&mut metadata);
        let first = metadata.get(NAME).cloned().expect("added");
        assert!(is_valid(first.to_str().expect("text")));
        metadata.insert(NAME, "own".parse().expect("text"));
        add(&mut metadata);
        assert_eq!(metadata.get_all(NAME).iter().count(), 1);
        let mut other = MetadataMap::new();
        add(&mut other);
        assert_ne!(other.get(NAME), Some(&first), "each call is a trace of its own");
        assert_eq!(other.get(STATE_NAME).map(|value| value.as_bytes()), Some(UNDECIDED.as_bytes()));
        assert_eq!(metadata.get(NAME).map(|value| value.as_bytes()), Some(&b"own"[..]));
    }
}

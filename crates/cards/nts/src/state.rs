//! Saved state: a header that says what it is, and the records of the NT.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of one NT's saved state: what the save area of a card gives one NT.
pub const STATE_BYTES_MAX: usize = 16 << 20;

/// Why saved state cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidState {
    /// Longer than [`STATE_BYTES_MAX`]; with its length in bytes.
    #[error("the state has {0} bytes; at most {STATE_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// State of another NT type, or no state at all.
    #[error("the state is not one of NT type {expected}: its header is missing or names another")]
    NotOfType {
        /// The type that was to restore it.
        expected: &'static str,
    },
    /// Written by other software.
    #[error("the state has version {found}; version {known} is known: restart the NT without it")]
    UnknownVersion {
        found: u16,
        /// The version that this program writes.
        known: u16,
    },
    /// Truncated or damaged.
    #[error("the state is damaged: {0}")]
    Damaged(String),
    /// It does not fit the configuration.
    #[error("{entries} entries of state do not fit: the configuration allows {allowed}")]
    DoesNotFit {
        /// Entries of the state.
        entries: usize,
        /// Entries that the configuration allows.
        allowed: usize,
    },
}

/// Appends `records` behind a header with the NT's type and version.
pub(crate) fn write<T: Serialize>(
    nt_type: &'static str,
    version: u16,
    records: &T,
    out: &mut Vec<u8>,
) {
    let before = out.len();
    let framed = (nt_type, version, records);
    let taken = std::mem::take(out);
    *out = postcard::to_extend(&framed, taken).expect("records of an NT have known lengths");
    debug_assert!(out.len() - before <= STATE_BYTES_MAX, "tables are bounded below the save area");
}

/// Reads what [`write()`] wrote.
pub(crate) fn read<T: DeserializeOwned>(
    nt_type: &'static str,
    known: u16,
    bytes: &[u8],
) -> Result<T, InvalidState> {
    if bytes.len() > STATE_BYTES_MAX {
        return Err(InvalidState::TooLong(bytes.len()));
    }
    let header: Result<((&str, u16), &[u8]), _> = postcard::take_from_bytes(bytes);
    let Ok(((found_type, found), records)) = header else {
        return Err(InvalidState::NotOfType { expected: nt_type });
    };
    if found_type != nt_type {
        return Err(InvalidState::NotOfType { expected: nt_type });
    }
    if found != known {
        return Err(InvalidState::UnknownVersion { found, known });
    }
    let damaged = |what: &str| InvalidState::Damaged(what.to_owned());
    match postcard::take_from_bytes(records) {
        Ok((records, [])) => Ok(records),
        Ok((_, rest)) => Err(damaged(&format!("{} bytes too many", rest.len()))),
        Err(error) => Err(damaged(&error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_states_of_the_same_type_and_version_are_read() {
        let mut bytes = Vec::new();
        write("nat", 3, &vec![7_u32, 300], &mut bytes);
        assert_eq!(read::<Vec<u32>>("nat", 3, &bytes), Ok(vec![7, 300]));
        let other = read::<Vec<u32>>("firewall", 3, &bytes);
        assert_eq!(other, Err(InvalidState::NotOfType { expected: "firewall" }));
        let older = read::<Vec<u32>>("nat", 4, &bytes);
        assert_eq!(older, Err(InvalidState::UnknownVersion { found: 3, known: 4 }));
        for cut in 0..bytes.len() {
            assert!(read::<Vec<u32>>("nat", 3, &bytes[..cut]).is_err(), "{cut}");
        }
        bytes.push(0);
        assert_eq!(
            read::<Vec<u32>>("nat", 3, &bytes).unwrap_err().to_string(),
            "the state is damaged: 1 bytes too many"
        );
    }

    #[test]
    fn a_length_that_lies_takes_no_memory() {
        let mut bytes = Vec::new();
        write("nat", 1, &(u64::MAX), &mut bytes);
        assert!(read::<Vec<u64>>("nat", 1, &bytes).is_err());
    }
}

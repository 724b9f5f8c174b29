//! Where records are in etcd.
//!
//! ```text
//!  PREFIX/head                        owner, sequence, generation, staged: each transaction writes it
//!  PREFIX/records/GENERATION/KEY      the records
//!  PREFIX/staged/NUMBER/KEY           a batch that is too large for one transaction
//! ```
//!
//! Numbers have 16 hexadecimal digits, so that the order of keys is theirs.

use snic_ports::store::StoreError;

/// The one record through which all others are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// Owner that opened the store last, and alone may write.
    pub(super) owner: String,
    /// Number of transactions.
    pub(super) sequence: u64,
    /// Generation of the records that count.
    pub(super) generation: u64,
    /// The staged batch that counts besides, and is being carried over.
    pub(super) staged: Option<u64>,
}

impl Head {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { owner, sequence, generation, staged } = self;
        let staged = staged.map_or("-".to_owned(), |number| number.to_string());
        format!("1 {owner} {sequence} {generation} {staged}").into_bytes()
    }

    /// The inverse; `None` for what no version of this program wrote.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let words: Vec<&str> = std::str::from_utf8(bytes).ok()?.split(' ').collect();
        let ["1", owner, sequence, generation, staged] = words[..] else { return None };
        let staged = match staged {
            "-" => None,
            number => Some(number.parse().ok()?),
        };
        let (sequence, generation) = (sequence.parse().ok()?, generation.parse().ok()?);
        Some(Self { owner: owner.to_owned(), sequence, generation, staged })
    }
}

/// The keys below a prefix.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    prefix: String,
}

impl Layout {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.trim_end_matches('/').to_owned() }
    }

    pub(super) fn head(&self) -> String {
        format!("{}/head", self.prefix)
    }

    pub(super) fn all_records(&self) -> String {
        format!("{}/records/", self.prefix)
    }

    pub(super) fn records(&self, generation: u64) -> String {
        format!("{}/records/{generation:016x}/", self.prefix)
    }

    /// The first key behind the records of a generation.
    pub(super) fn behind_records(&self, generation: u64) -> String {
        format!("{}/records/{generation:016x}0", self.prefix)
    }

    pub(super) fn all_staged(&self) -> String {
        format!("{}/staged/", self.prefix)
    }

    pub(super) fn staged(&self, number: u64) -> String {
        format!("{}/staged/{number:016x}/", self.prefix)
    }

    /// The head as it was read.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`].
    pub(super) fn decode_head(&self, bytes: &[u8]) -> Result<Head, StoreError> {
        Head::decode(bytes).ok_or_else(|| self.damaged(format!("its head is {}", shown(bytes))))
    }

    pub(super) fn damaged(&self, reason: String) -> StoreError {
        StoreError::Damaged { path: format!("etcd:{}", self.prefix), reason }
    }
}

fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(80)];
    format!("\"{}\"", cut.escape_ascii())
}

/// A staged change: what becomes of a record.
pub(super) fn encode_staged(value: Option<&[u8]>) -> Vec<u8> {
    match value {
        Some(value) => [b"+", value].concat(),
        None => b"-".to_vec(),
    }
}

pub(super) fn decode_staged(bytes: &[u8]) -> Option<Option<Vec<u8>>> {
    match bytes.split_first()? {
        (b'+', value) => Some(Some(value.to_vec())),
        (b'-', []) => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_head_reads_back(
            sequence: u64, generation: u64, staged: Option<u64>, owner in "[0-9a-f-]{1,36}",
        ) {
            let head = Head { owner, sequence, generation, staged };
            prop_assert_eq!(Head::decode(&head.encode()), Some(head));
        }

        #[test]
        fn a_staged_change_reads_back(value: Option<Vec<u8>>) {
            let staged = encode_staged(value.as_deref());
            prop_assert_eq!(decode_staged(&staged), Some(value));
        }
    }

    #[test]
    fn what_nobody_wrote_is_damage_that_names_the_place() {
        let layout = Layout::new("/snic/v1/store/");
        for bytes in [&b""[..], b"2 a 1 1 -", b"1 a 1 1", b"1 a x 1 -", b"1 a 1 1 - 1", b"\xff"] {
            let error = layout.decode_head(bytes).unwrap_err().to_string();
            assert!(error.contains("/snic/v1/store") && error.contains("its head"), "{error}");
        }
        assert_eq!(decode_staged(b"-x"), None);
        assert_eq!(decode_staged(b""), None);
    }
}

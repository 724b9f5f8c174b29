//! Keys of NT types, for comparisons in the search.

use snic_domain::{Digest, NtTypeId};

/// An NT type as 64 bits of the SHA-256 digest of its id: the same in every catalogue, so a ledger and
/// a catalogue need not agree on a numbering. To collide with another tenant's NT, a tenant would have to
/// find an id by 2^64 attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NtKey(u64);

impl NtKey {
    pub(crate) fn of(id: &NtTypeId) -> Self {
        let words = Digest::of(id.as_str().as_bytes()).words();
        Self(u64::from(words[0]) << 32 | u64::from(words[1]))
    }

    /// One bit of 64, for a fast negative membership test.
    pub(crate) const fn bit(self) -> u64 {
        1 << (self.0 & 63)
    }
}

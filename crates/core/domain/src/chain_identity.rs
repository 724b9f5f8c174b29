//! Report of a region about the chain in it.
//!
//! A bitstream cannot contain its own digest, so a region cannot prove by it what was loaded. What a build
//! flow can place is a small ROM behind the registers of the region's wrapper: the codes of the NTs, and a
//! number that the flow derives from everything that goes into the build before it starts. The upload
//! declares both, its signature binds them to the digest of the bytes, and after each load the region has
//! to report what was declared.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use crate::limits::CHAIN_SLOTS_MAX;
use crate::{NtCode, NtTypeId};

/// Identity of a chain's build: 128 bits. Printed and parsed as 32 lower-case hexadecimal digits.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct ChainIdentity([u32; 4]);

/// A text that is not a valid identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the identity of a chain: expected 32 hexadecimal digits, not all zero")]
pub struct InvalidChainIdentity(pub String);

impl ChainIdentity {
    /// From the words of the registers, the most significant first. Zeros are what a region without a
    /// ROM reads as.
    pub const fn from_words(words: [u32; 4]) -> Self {
        Self(words)
    }

    /// The words of the registers, the most significant first.
    pub const fn words(self) -> [u32; 4] {
        self.0
    }

    /// Identity of a build of which nothing but its NTs is known: the first 16 bytes of the SHA-256 digest of
    /// `snic-chain-v1` and the codes of the NTs, the most significant byte first.
    pub fn of_nts<'a>(nts: impl IntoIterator<Item = &'a NtTypeId>) -> Self {
        Self::of_codes(nts.into_iter().map(NtTypeId::code))
    }

    /// The same from the NTs' codes.
    pub fn of_codes(codes: impl IntoIterator<Item = NtCode>) -> Self {
        let mut hash = sha2::Sha256::new_with_prefix(b"snic-chain-v1");
        for code in codes {
            hash.update(code.0.to_be_bytes());
        }
        let bytes = hash.finalize();
        Self(std::array::from_fn(|i| {
            let word = &bytes[i * 4..i * 4 + 4];
            u32::from_be_bytes([word[0], word[1], word[2], word[3]])
        }))
    }
}

impl fmt::Display for ChainIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|word| write!(f, "{word:08x}"))
    }
}

impl FromStr for ChainIdentity {
    type Err = InvalidChainIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidChainIdentity> {
        let invalid = || InvalidChainIdentity(text.chars().take(80).collect());
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let mut words = [0; 4];
        for (i, word) in words.iter_mut().enumerate() {
            *word = u32::from_str_radix(&text[i * 8..i * 8 + 8], 16).map_err(|_| invalid())?;
        }
        if words == [0; 4] { Err(invalid()) } else { Ok(Self(words)) }
    }
}

impl TryFrom<String> for ChainIdentity {
    type Error = InvalidChainIdentity;

    fn try_from(text: String) -> Result<Self, InvalidChainIdentity> {
        text.parse()
    }
}

impl From<ChainIdentity> for String {
    fn from(identity: ChainIdentity) -> Self {
        identity.to_string()
    }
}

/// Report of a region's ROM, as read or as required.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReportedChain {
    /// The NT of each slot, in the order packets pass; zero behind the last.
    pub nts: [NtCode; CHAIN_SLOTS_MAX],
    /// Identity of the build.
    pub identity: ChainIdentity,
}

/// A region reports another chain than it has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChainMismatch {
    /// Another NT, or one more or fewer.
    #[error(
        "the region reports another NT in slot {slot} than the bitstream declares; build the bitstream \
         with the declared NTs, or declare those that it has"
    )]
    Nt {
        /// The first slot that differs, from 0.
        slot: usize,
    },
    /// The same NTs of another build.
    #[error(
        "the region reports the declared NTs, but another build of them: its identity is not the \
         declared one"
    )]
    Identity,
}

impl ReportedChain {
    /// Report of a chain of these NTs; NTs beyond the eighth have no slot.
    pub fn of(nts: &[NtTypeId], identity: ChainIdentity) -> Self {
        let code = |slot: usize| nts.get(slot).map(NtTypeId::code).unwrap_or_default();
        Self { nts: std::array::from_fn(code), identity }
    }

    /// Whether this report is what was declared.
    ///
    /// # Errors
    /// First difference.
    pub fn check(&self, declared: &Self) -> Result<(), ChainMismatch> {
        let mut slots = self.nts.iter().zip(&declared.nts);
        match slots.position(|(found, declared)| found != declared) {
            Some(slot) => Err(ChainMismatch::Nt { slot }),
            None if self.identity != declared.identity => Err(ChainMismatch::Identity),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nts(ids: &[&str]) -> Vec<NtTypeId> {
        ids.iter().map(|id| id.parse().expect("a label")).collect()
    }

    #[test]
    fn the_identity_of_nts_is_fixed() {
        // `printf 'snic-chain-v1\x98\x99\xf1\xfe' | sha256sum`, where 9899f1fe is the code of aes.
        let identity = ChainIdentity::of_nts(&nts(&["aes"]));
        assert_eq!(identity.to_string(), "b98e5f164eda0dc84bf1e369296d29de");
        assert_eq!(identity.to_string().parse(), Ok(identity));
        assert_eq!(ChainIdentity::from_words(identity.words()), identity);
        assert_ne!(
            ChainIdentity::of_nts(&nts(&["a", "b"])),
            ChainIdentity::of_nts(&nts(&["b", "a"]))
        );
    }

    #[test]
    fn texts_that_are_no_identity_are_refused() {
        for text in ["", "12", &"0".repeat(32), &"g".repeat(32), &"1".repeat(33), "é"] {
            assert!(text.parse::<ChainIdentity>().is_err(), "{text}");
        }
        assert_eq!("00000000000000000000000000000001".parse(), Ok(ChainIdentity([0, 0, 0, 1])));
        let json: Result<ChainIdentity, _> = serde_json::from_str("\"7\"");
        assert!(json.is_err());
    }

    #[test]
    fn a_report_is_the_declared_one_or_says_what_differs() {
        let identity = ChainIdentity([1, 2, 3, 4]);
        let declared = ReportedChain::of(&nts(&["firewall", "aes"]), identity);
        assert_eq!(declared.check(&declared), Ok(()));
        let differs = |ids: &[&str]| ReportedChain::of(&nts(ids), identity).check(&declared);
        assert_eq!(differs(&["nat", "aes"]), Err(ChainMismatch::Nt { slot: 0 }));
        assert_eq!(differs(&["firewall"]), Err(ChainMismatch::Nt { slot: 1 }));
        assert_eq!(differs(&["firewall", "aes", "aes"]), Err(ChainMismatch::Nt { slot: 2 }));
        let other = ReportedChain { identity: ChainIdentity([1, 2, 3, 5]), ..declared };
        assert_eq!(other.check(&declared), Err(ChainMismatch::Identity));
        assert_eq!(ReportedChain::default().check(&declared), Err(ChainMismatch::Nt { slot: 0 }));
    }
}

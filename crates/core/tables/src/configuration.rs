//! The configurations of a DAG's NTs on their way to a card.
//!
//! One piece for a DAG: for each NT its number, the NT type's name and the JSON object, each with its length
//! in front, all words little endian. Its tag is the first word of its SHA-256 and stands in the DAG's row,
//! so that tables that were read back say which configurations the card holds.

use std::fmt;
use std::sync::Arc;

use snic_domain::limits::{DAG_CONFIGURATION_BYTES_MAX, DAG_NODES_MAX};
use snic_domain::{DagSpec, DagUid, Digest, NtNumber, NtProgram, NtTypeId};

pub use crate::nt_entry::NtEntry;
use crate::programs;

/// Bytes in front of an NT's name: its number, and two lengths.
const HEAD_BYTES: usize = 12;
/// Longest piece: the longest configurations, and for each NT a head, a name and the line of a program.
const BYTES_MAX: usize = DAG_CONFIGURATION_BYTES_MAX + DAG_NODES_MAX * 2 * (HEAD_BYTES + 256);

/// The configurations of a DAG's NTs.
#[derive(Clone, PartialEq, Eq)]
pub struct DagConfiguration {
    /// UID of the DAG.
    pub uid: DagUid,
    bytes: Arc<[u8]>,
}

/// Invalid bytes of configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid configurations of a DAG: {0}")]
pub struct InvalidConfigurations(&'static str);

impl DagConfiguration {
    /// Those of a DAG's nodes; `None` where none has one.
    pub fn of(uid: DagUid, spec: &DagSpec, number: impl Fn(&NtTypeId) -> NtNumber) -> Option<Self> {
        let mut bytes = Vec::new();
        for node in &spec.nodes {
            let Some(configuration) = &node.configuration else { continue };
            let (nt_type, json) = (node.nt.as_str(), configuration.expose());
            write(&mut bytes, &NtEntry { number: number(&node.nt), nt_type, json });
        }
        (!bytes.is_empty()).then(|| Self { uid, bytes: bytes.into() })
    }

    /// The same with how a DAG's programs are started, in front; without any, as it was.
    pub fn of_programs(uid: DagUid, rest: Option<Self>, programs: &[NtProgram]) -> Option<Self> {
        if programs.is_empty() {
            return rest;
        }
        let (mut bytes, lines) = (Vec::new(), programs::lines(programs));
        write(&mut bytes, &NtEntry { number: programs::PROGRAMS, nt_type: "", json: &lines });
        bytes.extend(rest.iter().flat_map(|rest| rest.bytes.iter()));
        Some(Self { uid, bytes: bytes.into() })
    }

    /// The bytes that the card gets.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The tag in the DAG's row.
    pub fn tag(&self) -> u32 {
        tag(&self.bytes)
    }
}

fn write(bytes: &mut Vec<u8>, entry: &NtEntry<'_>) {
    let NtEntry { number, nt_type, json } = *entry;
    // Both are far shorter than 4 GiB: `Dag::new` has checked them.
    let words = [number.0, nt_type.len() as u32, json.len() as u32];
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(nt_type.as_bytes());
    bytes.extend(json.as_bytes());
}

/// The tag of such bytes; never zero.
pub fn tag(bytes: &[u8]) -> u32 {
    Digest::of(bytes).words()[0].max(1)
}

/// The NTs of such bytes.
///
/// # Errors
/// The bytes are cut, too long, or something else.
pub fn entries(bytes: &[u8]) -> Result<Vec<NtEntry<'_>>, InvalidConfigurations> {
    if bytes.len() > BYTES_MAX {
        return Err(InvalidConfigurations("they are too long"));
    }
    let (mut entries, mut left) = (Vec::new(), bytes);
    while !left.is_empty() {
        let cut = InvalidConfigurations("they are cut");
        let (head, rest) = left.split_at_checked(HEAD_BYTES).ok_or(cut)?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[4 * at + byte]));
        let (name, rest) = rest.split_at_checked(word(1) as usize).ok_or(cut)?;
        let (json, rest) = rest.split_at_checked(word(2) as usize).ok_or(cut)?;
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| InvalidConfigurations("no text"));
        entries.push(NtEntry {
            number: NtNumber(word(0)),
            nt_type: text(name)?,
            json: text(json)?,
        });
        left = rest;
    }
    Ok(entries)
}

/// DAG and length only: there may be secrets in it.
impl fmt::Debug for DagConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (uid, bytes, tag) = (self.uid, self.bytes.len(), self.tag());
        write!(f, "DagConfiguration({uid:?}, {bytes} bytes, tag {tag:#010x})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::{Bandwidth, NtConfiguration};

    use super::*;

    fn spec(configurations: &[Option<&str>]) -> DagSpec {
        let nts = ["nat", "firewall", "acme.filter"].map(|nt| NtTypeId::new(nt).expect("a label"));
        let mut spec = DagSpec::chain(&nts, Bandwidth::from_gbps(1));
        for (node, json) in spec.nodes.iter_mut().zip(configurations) {
            node.configuration = json.map(NtConfiguration::new);
        }
        spec
    }

    fn uid() -> DagUid {
        DagUid::new(3, 7).expect("it fits")
    }

    #[test]
    fn written_configurations_are_read_back_and_an_empty_one_is_none() {
        let number = |nt: &NtTypeId| NtNumber(nt.as_str().len() as u32);
        assert_eq!(DagConfiguration::of(uid(), &spec(&[None, None, None]), number), None);
        let both = spec(&[None, Some("{}"), Some("{\"k\":\"é\"}")]);
        let both = DagConfiguration::of(uid(), &both, number);
        let both = both.expect("two have one");
        let read = entries(both.bytes()).expect("as written");
        let read: Vec<_> = read.iter().map(|e| (e.number.0, e.nt_type, e.json)).collect();
        let filter = (11, "acme.filter", "{\"k\":\"é\"}");
        assert_eq!(read, [(8, "firewall", "{}"), filter]);
        let other = spec(&[None, Some("{ }"), None]);
        let other = DagConfiguration::of(uid(), &other, number).expect("one");
        assert_ne!(both.tag(), other.tag());
        assert!(!format!("{both:?}").contains("{\"k"), "{both:?}");
        for cut in 1..both.bytes().len() {
            let firsts = entries(&both.bytes()[..cut]);
            assert!(firsts.is_err() || firsts.is_ok_and(|entries| entries.len() == 1), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = entries(&bytes);
        }
    }
}

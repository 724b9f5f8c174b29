//! Header rules: the treatment of a flow by a whole chain, as one change of headers.
//!
//! The steps of a flow (`flows`) say what each NT does with further packets. Where none of them needs more of a packet than its
//! [`FlowKey`], the steps together are a function of the key alone: the key in front of the chain becomes the key behind it. A
//! program that knows no NTs, such as one in the kernel, can do that: compare the key, write the other one, and correct the
//! checksums by what the difference of the two adds to them.

use snic_nts::wire::Layout;
use snic_nts::{FlowKey, wire};

/// Offset of the checksum in an IPv4 header.
const IPV4_CHECKSUM: usize = 10;
/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: usize = 16;
/// Offset of the checksum in a UDP header.
const UDP_CHECKSUM: usize = 6;

/// The treatment of a flow's packets by a whole chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderRule {
    before: FlowKey,
    after: FlowKey,
    is_back: bool,
}

impl HeaderRule {
    /// A rule that turns packets with one key into packets with another one. `is_back`: they leave by the port that they
    /// came in by. `None` where the keys differ in more than stations, addresses and ports.
    pub fn new(before: FlowKey, after: FlowKey, is_back: bool) -> Option<Self> {
        let shape = |key: &FlowKey| (key.tags(), key.is_ipv4(), key.protocol());
        (shape(&before) == shape(&after)).then_some(Self { before, after, is_back })
    }

    /// Key of the packets that it is for.
    pub const fn before(&self) -> &FlowKey {
        &self.before
    }

    /// Key of the packets that leave.
    pub const fn after(&self) -> &FlowKey {
        &self.after
    }

    /// Whether packets leave by the port that they came in by.
    pub const fn is_back(&self) -> bool {
        self.is_back
    }

    /// Treats a frame; says whether it is one of the flow. Others stay as they are.
    pub fn apply(&self, frame: &mut [u8]) -> bool {
        let Some((key, layout)) = FlowKey::of(frame).filter(|(key, _)| *key == self.before) else {
            return false;
        };
        let after = &self.after;
        frame[..after.stations().len()].copy_from_slice(after.stations());
        let addresses = added(key.addresses(), after.addresses());
        let ports = added(key.ports(), after.ports());
        // What changes nothing is left as it is: a checksum of 0 is not made one of 0xFFFF.
        if (key.addresses(), key.ports()) != (after.addresses(), after.ports()) {
            if layout.is_ipv4() {
                correct(frame, layout.network + IPV4_CHECKSUM, addresses);
            }
            correct_transport(frame, &layout, addresses + ports);
        }
        let end = layout.transport;
        frame[end - after.addresses().len()..end].copy_from_slice(after.addresses());
        frame[end..end + after.ports().len()].copy_from_slice(after.ports());
        true
    }
}

/// The sum that a replacement of words adds to one over them, in ones' complement (RFC 1624, equation 3).
fn added(before: &[u8], after: &[u8]) -> u64 {
    let words = |bytes: &[u8], mask: u16| -> u64 {
        let words = bytes.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]]));
        words.map(|word| u64::from(word ^ mask)).sum()
    };
    words(before, u16::MAX) + words(after, 0)
}

/// Corrects a checksum by what was added to the sum over its words.
fn correct(frame: &mut [u8], at: usize, added: u64) {
    let mut sum = u64::from(!u16::from_be_bytes([frame[at], frame[at + 1]])) + added;
    while sum > u64::from(u16::MAX) {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    frame[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Corrects the checksum of TCP or UDP. A UDP checksum of 0 says that there is none (RFC 768).
fn correct_transport(frame: &mut [u8], layout: &Layout, added: u64) {
    if layout.protocol == wire::protocol::TCP {
        return correct(frame, layout.transport + TCP_CHECKSUM, added);
    }
    let at = layout.transport + UDP_CHECKSUM;
    if frame[at..at + 2] != [0, 0] {
        correct(frame, at, added);
        if frame[at..at + 2] == [0, 0] {
            frame[at..at + 2].fill(0xFF);
        }
    }
}

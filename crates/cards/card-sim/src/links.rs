//! Links to other cards, as whoever connects cards sees them: frames that go out and come in.
//!
//! The two cards of a link need not trust each other. What a frame says of itself is looked up: the card that serves a guest has
//! a row for it ([`snic_tables::DagRow`], `guest`), and the home card knows which of its packets are away.

use std::sync::Arc;

use snic_domain::Timestamp;
use snic_tables::DropCause;

/// Bytes of a descriptor on a link: what [`LinkDescriptor`] has, a kind, and a checksum.
pub const LINK_DESCRIPTOR_BYTES: u32 = 32;
/// Bytes of a frame that has no packet behind its descriptor: the smallest of Ethernet.
pub const LINK_NOTICE_BYTES: u32 = 64;

/// Descriptor in front of a packet on a link. The other end of the link is the home card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkDescriptor {
    /// UID of the packet's DAG on its home card.
    pub home_uid: u32,
    /// The tenant's number.
    pub tenant: u16,
    /// The stage that the packet is in at home.
    pub stage: u16,
    /// Table version with which the packet began at home.
    pub version: u32,
    /// Row of the other card's DAG table.
    pub entry: u16,
    /// Number by which the home card knows the packet when it comes back.
    pub token: u64,
}

/// Meaning of a frame on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMessage {
    /// A packet goes to the card with its chain.
    Packet,
    /// It is through the chain, and comes back.
    Back {
        /// Whether an NT sends it back to where it came from.
        turned: bool,
    },
    /// It was dropped there.
    Ended(DropCause),
}

/// Frame on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkFrame {
    pub descriptor: LinkDescriptor,
    pub message: LinkMessage,
    /// Length of the packet; zero where the frame has none.
    pub bytes: u32,
    /// Its bytes, where packets have bytes.
    pub payload: Arc<[u8]>,
}

impl LinkFrame {
    /// Bytes of the whole frame on the link.
    pub const fn wire_bytes(&self) -> u32 {
        match self.message {
            LinkMessage::Ended(_) => LINK_NOTICE_BYTES,
            LinkMessage::Packet | LinkMessage::Back { .. } => LINK_DESCRIPTOR_BYTES + self.bytes,
        }
    }
}

/// Frame that left a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentFrame {
    pub link: u8,
    /// When its last bit was out.
    pub at: Timestamp,
    pub frame: LinkFrame,
}

/// Counts of a link since power-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounters {
    pub frames_out: u64,
    /// Bytes of the frames that went out.
    pub bytes_out: u64,
    pub frames_in: u64,
    /// Packets that came in for no guest.
    pub refused: u64,
    /// Answers for no packet that is away.
    pub stray: u64,
    /// Bytes of packets that wait for the link or are away.
    pub away: u64,
}

//! The port that shows packets on their way through a card.
//!
//! ```text
//!   port ─► Arrived ─► Admitted ─► Scheduled ─► Entered ─► Passed (each NT) ─► Left
//!            token bucket    scheduler    credits     └── Made (another packet)   └ or Dropped
//! ```
//!
//! Only cards that handle packets in software have it.

use serde::{Deserialize, Serialize};
use snic_domain::{DagUid, NtTypeId, Timestamp};
use snic_tables::DropCause;

/// Progress of a packet on its way through the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PacketStep {
    /// It was classified as its DAG's. Where it is over the DAG's rate, it waits at the token bucket.
    Arrived,
    /// An NT made it while another packet passed.
    Made,
    /// The token bucket let it pass to the scheduler.
    Admitted,
    /// The scheduler's pass is over: it needs credits of this region.
    Scheduled {
        /// The region's number.
        region: u8,
    },
    /// It holds credits, and crosses to this region's port.
    Entered {
        /// The region's number.
        region: u8,
    },
    /// It has passed an NT.
    Passed {
        /// The region's number.
        region: u8,
        /// The NT's place in the region.
        slot: u8,
    },
    /// It leaves the card.
    Left,
    /// It is dropped.
    Dropped(#[serde(with = "cause")] DropCause),
}

/// A drop cause between processes: its place among all.
mod cause {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use snic_tables::DropCause;

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
    pub(super) fn serialize<S: Serializer>(cause: &DropCause, to: S) -> Result<S::Ok, S::Error> {
        let at = DropCause::ALL.iter().position(|known| known == cause);
        // There are thirteen.
        to.serialize_u8(at.map_or(u8::MAX, |at| at as u8))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<DropCause, D::Error> {
        let at = u8::deserialize(from)?;
        let known = DropCause::ALL.get(usize::from(at)).copied();
        known.ok_or_else(|| D::Error::custom(format_args!("no drop cause has the number {at}")))
    }
}

/// A packet was seen somewhere on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenPacket {
    /// When, by the host's clock.
    pub at: Timestamp,
    /// Tells the packet from all others of its card.
    pub packet: u64,
    pub step: PacketStep,
    /// Its length in bytes.
    pub length: u32,
    /// Its first bytes, as many as were asked for.
    pub bytes: Vec<u8>,
}

/// Packets seen since the last time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenPackets {
    /// In the order of time.
    pub seen: Vec<SeenPacket>,
    /// Sightings that were dropped because nobody fetched the ones before.
    pub lost: u64,
}

/// Why packets cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The card has its maximum of watches.
    #[error("the card has {most} packet watches, its maximum: end one of them")]
    TooMany { most: u32 },
    /// Nobody fetched for too long, or the card was switched off.
    #[error("the watch has ended: the card was switched off, or nobody fetched for ten seconds")]
    Ended,
    /// The card is lost; in words.
    #[error("{0}")]
    Lost(String),
}

/// Traffic of a card's port since the card was switched on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortTraffic {
    /// Its name, as in the settings.
    pub name: String,
    /// The virtual function that it belongs to; `None` for the port to the network.
    pub function: Option<u16>,
    /// Way in which frames cross between the card and the system, in a few words.
    pub method: String,
    /// Frames that came in.
    pub received: u64,
    /// Bytes that came in.
    pub received_bytes: u64,
    /// Frames that went out.
    pub sent: u64,
    /// Bytes that went out.
    pub sent_bytes: u64,
    /// Frames that came and are lost because the machine did not keep up: no buffer was free, or the port's queue was
    /// full. A frame that the kernel merged counts once, as it was in the queue.
    pub too_slow: u64,
    /// Frames that the system did not take: the device is down or its queue full.
    pub not_taken: u64,
    /// Frames that are longer than any may be.
    pub too_long: u64,
    /// Control frames of the link, such as PAUSE and BPDUs, that came or were to leave: no port relays them.
    pub control: u64,
    /// Frames whose source is no station's address, not one that the function may use, or another function's.
    pub wrong_source: u64,
    /// Frames of a VLAN that the function does not have, that came or were to leave.
    pub wrong_vlan: u64,
    /// Broadcast and multicast frames over the rate that the function may send.
    pub over_group_rate: u64,
}

/// Packets of a DAG that an NT dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NtDrops {
    pub uid: DagUid,
    /// The NT's type.
    pub nt_type: NtTypeId,
    /// The name of the reason.
    pub reason: String,
    pub packets: u64,
}

/// Part of a card's flow table that is a DAG's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowTableUse {
    pub uid: DagUid,
    /// Flows whose packets are treated by rules.
    pub flows: u32,
    /// Flows of those whose packets pass by a fast path.
    pub fast_flows: u32,
    /// Flows that lost their place to flows of tenants with fewer, or to newer ones of its own tenant, since the card has
    /// known the DAG.
    pub evicted: u64,
}

/// Counts of a card in software that no register has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SoftCounts {
    /// Traffic of its ports.
    pub ports: Vec<PortTraffic>,
    /// Why NTs dropped packets, since each was configured for its DAG; reasons without packets are left out. As many
    /// as the card has configured NTs, for each some of a few tens of reasons.
    pub nt_drops: Vec<NtDrops>,
    /// Use of the flow table, at most one for each row of a DAG; DAGs without flows are left out.
    pub flows: Vec<FlowTableUse>,
}

/// A card whose packets can be seen.
pub trait PacketWindow: Send + Sync {
    /// Reads the traffic of its ports, and what its NTs dropped. It may wait for the card, not for packets.
    ///
    /// # Errors
    /// [`WatchError::Lost`].
    fn counts(&self) -> Result<SoftCounts, WatchError>;

    /// Begins to watch a DAG's packets, with the first `bytes` of each. It may wait for the card.
    ///
    /// # Errors
    /// [`WatchError`].
    fn watch(&self, uid: DagUid, bytes: u32) -> Result<Box<dyn PacketWatch>, WatchError>;
}

/// A watch of a DAG's packets; it ends when it is dropped.
pub trait PacketWatch: Send {
    /// Fetches the packets seen since the last time; nothing, where nothing was. It may wait for the card, not for
    /// packets.
    ///
    /// # Errors
    /// [`WatchError::Ended`] or [`WatchError::Lost`].
    fn fetch(&mut self) -> Result<SeenPackets, WatchError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_crosses_between_processes() {
        let dropped = DropCause::ALL.map(PacketStep::Dropped);
        let others = [
            PacketStep::Arrived,
            PacketStep::Made,
            PacketStep::Admitted,
            PacketStep::Scheduled { region: 1 },
            PacketStep::Entered { region: 2 },
            PacketStep::Passed { region: 3, slot: 4 },
            PacketStep::Left,
        ];
        for step in dropped.into_iter().chain(others) {
            let bytes = postcard::to_stdvec(&step).expect("encodes");
            assert_eq!(postcard::from_bytes(&bytes), Ok(step));
        }
        let mut unknown =
            postcard::to_stdvec(&PacketStep::Dropped(DropCause::ByNt)).expect("encodes");
        *unknown.last_mut().expect("has a number") = 200;
        assert!(postcard::from_bytes::<PacketStep>(&unknown).is_err());
    }
}

//! Fates of single packets, for tests and for people who want to know.
//!
//! A digest of all records is always kept; the records themselves only where asked for, and only so
//! many.

use snic_domain::DagUid;
use snic_tables::DropCause;

/// End of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketOutcome {
    /// Its first beat went out.
    Served,
    /// It was dropped.
    Dropped(DropCause),
}

/// One packet, from the first beat to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRecord {
    /// Number of the source that sent it, in the order they were attached.
    pub source: u32,
    /// Number of the packet at its source, from zero.
    pub sequence: u32,
    /// Its DAG; zero where it was not classified.
    pub uid: DagUid,
    /// Number of bytes.
    pub bytes: u32,
    /// The table version it began with; zero where it never got that far.
    pub version: u32,
    /// The cycle of its first beat.
    pub arrived: u64,
    /// The cycle in which it ended.
    pub ended: u64,
    /// End of the packet.
    pub outcome: PacketOutcome,
}

impl PacketRecord {
    /// Time that it was on the card, in cycles.
    pub const fn latency(&self) -> u64 {
        self.ended - self.arrived
    }

    /// All of it, for the digest.
    pub(crate) const fn words(&self) -> [u64; 3] {
        let outcome = match self.outcome {
            PacketOutcome::Served => 0,
            PacketOutcome::Dropped(cause) => 1 + cause as u64,
        };
        let who = (self.source as u64) << 32 | self.sequence as u64;
        let what = (self.uid.raw() as u64) << 32 | (self.bytes as u64) << 8 | outcome;
        // Times are far under 2^48; the version moves by one and meets no time.
        let when =
            self.ended ^ self.arrived.rotate_left(24) ^ (self.version as u64).rotate_left(48);
        [who, what, when]
    }
}

/// Records, as far as there is room for them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    records: Vec<PacketRecord>,
    room: usize,
}

impl Trace {
    /// Keeps the next `room` records.
    pub(crate) fn keep(&mut self, room: usize) {
        self.room = room;
    }

    #[inline]
    pub(crate) fn push(&mut self, record: PacketRecord) {
        if self.room > 0 {
            self.room -= 1;
            self.records.push(record);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<PacketRecord> {
        std::mem::take(&mut self.records)
    }
}

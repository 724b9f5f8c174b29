//! One unit of an offload: a queue, and one packet after the other.

use std::collections::VecDeque;

use super::{Design, Offload};

/// A packet as units see it: its place, and its bytes.
pub(super) type PlacedPacket = (u32, u32);

/// Work of a unit.
#[derive(Debug, Clone, Copy)]
struct Work {
    bytes: u64,
    begins: u64,
    ends: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Unit {
    queue: VecDeque<PlacedPacket>,
    queued_bytes: u64,
    /// Promised, and still on the way.
    coming: (usize, u64),
    work: Option<Work>,
    /// Packets that are done and wait for the arbiter.
    pub(super) done: VecDeque<PlacedPacket>,
}

impl Unit {
    /// Bytes it has not taken in: what the balancer goes by.
    pub(super) fn load(&self, now: u64) -> u64 {
        let rest = self.work.map_or(0, |work| {
            let left = work.ends.saturating_sub(now);
            work.bytes * left / (work.ends - work.begins).max(1)
        });
        self.queued_bytes + self.coming.1 + rest
    }

    /// Packets in its buffer, the one it works on included.
    pub(super) fn packets(&self) -> usize {
        self.queue.len() + self.coming.0 + usize::from(self.work.is_some())
    }

    /// A packet is on its way here.
    pub(super) fn expect(&mut self, bytes: u32) {
        self.coming.0 += 1;
        self.coming.1 += u64::from(bytes);
    }

    /// It is here.
    pub(super) fn arrive(&mut self, packet: PlacedPacket) {
        self.coming.0 -= 1;
        self.coming.1 -= u64::from(packet.1);
        self.queued_bytes += u64::from(packet.1);
        self.queue.push_back(packet);
    }

    /// Takes the next packet, if it is free; says until when.
    pub(super) fn begin(
        &mut self,
        now: u64,
        cycles: impl Fn(u32) -> u64,
    ) -> Option<(PlacedPacket, u64)> {
        if self.work.is_some() {
            return None;
        }
        let packet = self.queue.pop_front()?;
        self.queued_bytes -= u64::from(packet.1);
        let ends = now + cycles(packet.1);
        self.work = Some(Work { bytes: u64::from(packet.1), begins: now, ends });
        Some((packet, ends))
    }

    /// It is done with a packet, which now waits for the arbiter.
    pub(super) fn end(&mut self, packet: PlacedPacket) {
        self.work = None;
        self.done.push_back(packet);
    }

    /// Nothing is in it.
    pub(super) fn is_idle(&self) -> bool {
        self.packets() == 0 && self.done.is_empty()
    }
}

/// Cycles of the data path that a unit needs for a packet.
pub(super) fn cycles(design: &Design, offload: &Offload, bytes: u32) -> u64 {
    let bytes = if offload.header_only { bytes.min(design.width_bits / 8) } else { bytes };
    let own = (u64::from(bytes) * 8).div_ceil(u64::from(offload.width_bits));
    let own = u128::from(own) * u128::from(design.clock_hz);
    let path = own.div_ceil(u128::from(offload.clock_hz));
    u64::try_from(path).unwrap_or(u64::MAX).saturating_add(offload.delay_cycles).max(1)
}

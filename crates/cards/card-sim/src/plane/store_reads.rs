//! Reads of the packet store: so many beats in a cycle, for all regions and the egress together.
//!
//! The store lies in banks of memory blocks, each with one read port of a beat, so a region reads at the full width of its own port only
//! while few others do. A packet is read whole in each pass through a region whose DAG reads payloads, with one beat in any other,
//! and whole once more when it goes out. As many beats are written, by the ingress and behind the regions, through the other port of
//! each block: who counts the reads has counted the writes.
//!
//! Promised packets are read first. One that is overtaken keeps the time that it was given, and a later one beyond its promise
//! waits in its stead: as many beats are read, at the same times. So that packets beyond their promises hold no credits while they wait for
//! the store, none of them comes in while reads wait.

use std::num::NonZeroU32;

use super::Plane;
use crate::time::{Meter, Rate};

/// The reads of a card whose store has so many ports.
#[derive(Debug)]
pub(super) struct StoreReads {
    promised: Meter,
    all: Meter,
}

impl StoreReads {
    /// With so many beats in a cycle.
    pub(super) fn new(beats: NonZeroU32) -> Self {
        let meter = Meter::new(Rate::per_cycles(beats, NonZeroU32::MIN));
        Self { promised: meter, all: meter }
    }

    /// Reads so many beats from `now` on; says when it begins.
    #[inline]
    fn read(&mut self, now: u64, beats: u64, is_promised: bool) -> u64 {
        let after_all = self.all.serve(now, beats).start;
        if is_promised { self.promised.serve(now, beats).start } else { after_all }
    }
}

impl Plane {
    /// From when on no packet waits for the store, whatever it claims.
    pub(super) fn store_free_at(&self) -> u64 {
        self.store_reads.as_ref().map_or(0, |reads| reads.all.free_at())
    }

    /// The cycle from which the packet store gives the beats of a packet.
    #[inline]
    pub(super) fn read_store(&mut self, beats: u32, is_promised: bool) -> u64 {
        let now = self.now;
        self.store_reads.as_mut().map_or(now, |reads| reads.read(now, beats.into(), is_promised))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(beats: u32) -> StoreReads {
        StoreReads::new(NonZeroU32::new(beats).expect("not zero"))
    }

    #[test]
    fn so_many_beats_are_read_in_a_cycle() {
        let mut four = reads(4);
        let starts: Vec<u64> = (0..5).map(|_| four.read(10, 24, false)).collect();
        assert_eq!(starts, [10, 16, 22, 28, 34]);
        let starts: Vec<u64> = (0..9).map(|_| four.read(100, 1, false)).collect();
        assert_eq!(
            starts,
            [100, 101, 101, 101, 101, 102, 102, 102, 102],
            "a beat begins when the one before has been read"
        );
        assert_eq!(four.read(200, 24, false), 200, "what was not used is lost");
    }

    #[test]
    fn promised_packets_wait_for_no_other_and_who_comes_after_makes_up_for_it() {
        let mut one = reads(1);
        let beyond: Vec<u64> = (0..3).map(|_| one.read(0, 10, false)).collect();
        assert_eq!(beyond, [0, 10, 20]);
        let promised: Vec<u64> = (0..3).map(|_| one.read(5, 10, true)).collect();
        assert_eq!(promised, [5, 15, 25]);
        assert_eq!(one.read(5, 10, false), 60);
    }
}

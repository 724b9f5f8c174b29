//! Latency of single packets, as a card measures it.
//!
//! A card samples one packet in 2^n of each DAG. A sampled packet has a record with the time of each part of its way; the
//! parts sum up to the whole. Quantiles are the host's matter, for it has the memory for them: a histogram for each DAG and
//! part would take far more of a card than its packet store. The largest latency of all packets is a register.

use snic_domain::limits::{CHAIN_SLOTS_MAX, REGIONS_MAX};

use crate::registers::{LATENCY_EXPONENT_MAX, LATENCY_RECORD};

/// Words of a record.
const WORDS: usize = LATENCY_RECORD as usize / 4;
/// Words before the times in NTs: UID, total, parts of the way outside of NTs.
const HEAD: usize = 2 + PathPart::ALL.len();
/// NTs of a path with times of their own. What a path has beyond them counts in the last.
pub const SAMPLED_NTS_MAX: usize = WORDS - HEAD;
/// Longest time in an NT that a record can say, in cycles: 67 ms at 250 MHz.
const NT_CYCLES_MAX: u32 = (1 << 24) - 1;

const _: () = assert!(REGIONS_MAX <= 1 << 5 && CHAIN_SLOTS_MAX <= 1 << 3, "both are in 8 bits");

/// A part of a packet's way through a card, outside of NTs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathPart {
    /// Waiting for the ingress port, where the card holds the sender back, and at the token bucket of its DAG.
    Ingress,
    /// Logic of the shell, which takes the same time for each packet: parser, passes of the scheduler, header.
    Pipeline,
    /// Waiting for an entry of the synchronisation buffer, before branches.
    SyncEntry,
    /// Waiting for credits of NTs.
    Credits,
    /// Waiting for the port of a region.
    Port,
    /// Waiting for the egress port.
    Egress,
}

impl PathPart {
    /// All parts, in the order of a record.
    pub const ALL: [Self; 6] =
        [Self::Ingress, Self::Pipeline, Self::SyncEntry, Self::Credits, Self::Port, Self::Egress];
}

/// Time of a packet in one NT: its pipeline, and waiting for it and for on-board memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NtTime {
    /// Region of the NT. On a card with processors, region and slot are one number: that of the program in its DAG.
    pub region: u8,
    pub slot: u8,
    pub cycles: u32,
}

/// Record of a sampled packet that went out: [`LATENCY_RECORD`] says how a card has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencySample([u32; WORDS]);

impl LatencySample {
    /// A packet of the DAG with this UID. Times that no record can say are cut to the longest that it can.
    pub fn new(uid: u32, parts: [u64; PathPart::ALL.len()], nts: &[NtTime]) -> Self {
        let mut words = [0; WORDS];
        words[0] = uid;
        let short = |cycles: u64| u32::try_from(cycles).unwrap_or(u32::MAX);
        for (word, cycles) in words[2..HEAD].iter_mut().zip(parts) {
            *word = short(cycles);
        }
        let mut total: u64 = words[2..HEAD].iter().map(|cycles| u64::from(*cycles)).sum();
        for (at, nt) in nts.iter().enumerate() {
            let word = &mut words[HEAD + at.min(SAMPLED_NTS_MAX - 1)];
            let cycles = (*word & NT_CYCLES_MAX).saturating_add(nt.cycles).min(NT_CYCLES_MAX);
            total += u64::from(cycles - (*word & NT_CYCLES_MAX));
            *word = u32::from(nt.region) << 27 | u32::from(nt.slot) << 24 | cycles;
        }
        words[1] = short(total);
        Self(words)
    }

    /// The record in these words.
    pub const fn from_words(words: [u32; WORDS]) -> Self {
        Self(words)
    }

    /// Words of the record, in their order.
    pub const fn words(&self) -> &[u32; WORDS] {
        &self.0
    }

    /// UID of the packet's DAG.
    pub const fn uid(&self) -> u32 {
        self.0[0]
    }

    /// All of its time on the card, in cycles.
    pub const fn total(&self) -> u32 {
        self.0[1]
    }

    /// Time of one part, in cycles.
    pub const fn part(&self, part: PathPart) -> u32 {
        self.0[2 + part as usize]
    }

    /// Times in NTs, in the order in which it passed them. Of branches: those of the one that came back last.
    pub fn nts(&self) -> impl Iterator<Item = NtTime> {
        self.0[HEAD..].iter().filter(|word| **word != 0).map(|word| NtTime {
            region: (word >> 27) as u8,
            slot: (word >> 24 & 7) as u8,
            cycles: word & NT_CYCLES_MAX,
        })
    }
}

/// Whether a card samples a DAG's packet, counted from zero, where it samples one in 2^`exponent`.
///
/// One of each 2^n packets that follow each other is, so a rate of samples is exact; its place among them differs from
/// one group to the next, so that traffic in bursts of 2^n packets is not always met at the same place.
pub const fn is_sampled(packet: u64, exponent: u32) -> bool {
    let bits = if exponent > LATENCY_EXPONENT_MAX { LATENCY_EXPONENT_MAX } else { exponent };
    let group = (packet >> bits) as u16;
    // Odd, with bits well spread (the golden ratio times 2^16).
    let place = group.wrapping_mul(40_503) as u32 >> (16 - bits);
    packet & ((1 << bits) - 1) == place as u64
}

/// Latencies that a host read in one sample of the counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LatencyReading {
    /// Records since the sample before, the oldest first.
    pub samples: Vec<LatencySample>,
    /// Records that were overwritten, or left out because there were too many for one sample.
    pub missed: u64,
    /// Largest latency by the row of the DAG, in cycles, in the window of the card's clock that ended last. Empty but in the
    /// first sample behind a window's end.
    pub maxima: Vec<(u16, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_of_each_group_is_sampled_and_not_always_at_the_same_place() {
        for exponent in [0, 1, 4, 7, LATENCY_EXPONENT_MAX, 40] {
            let bits = exponent.min(LATENCY_EXPONENT_MAX);
            let mut places = Vec::new();
            for group in 0..if bits > 7 { 2 } else { 100 } {
                let first = group << bits;
                let of_group: Vec<u64> =
                    (first..first + (1 << bits)).filter(|at| is_sampled(*at, exponent)).collect();
                assert_eq!(of_group.len(), 1, "group {group} of 2^{bits}");
                places.push(of_group[0] - first);
            }
            places.sort_unstable();
            places.dedup();
            assert!(!(4..=7).contains(&bits) || places.len() >= 16, "{bits}: {places:?}");
        }
    }

    #[test]
    fn a_record_says_what_it_was_made_of() {
        let nt = |region, slot, cycles| NtTime { region, slot, cycles };
        let nts = [nt(31, 7, 100), nt(0, 0, 5)];
        let sample = LatencySample::new(9, [1, 2, 3, 4, 5, 6], &nts);
        assert_eq!((sample.uid(), sample.total()), (9, 126));
        assert_eq!(PathPart::ALL.map(|part| sample.part(part)), [1, 2, 3, 4, 5, 6]);
        assert_eq!(sample.nts().collect::<Vec<_>>(), nts);
        assert_eq!(LatencySample::from_words(*sample.words()), sample);
    }

    #[test]
    fn what_a_record_cannot_say_is_cut_and_the_sum_stays_the_sum() {
        let nts = vec![NtTime { region: 1, slot: 2, cycles: u32::MAX / 2 }; 30];
        let sample = LatencySample::new(1, [u64::MAX, 0, 0, 0, 0, 0], &nts[..1]);
        assert_eq!((sample.total(), sample.part(PathPart::Ingress)), (u32::MAX, u32::MAX));
        let sample = LatencySample::new(1, [0; 6], &nts);
        assert_eq!(sample.nts().count(), SAMPLED_NTS_MAX);
        assert_eq!(sample.nts().map(|nt| u64::from(nt.cycles)).sum::<u64>(), sample.total().into());
    }
}

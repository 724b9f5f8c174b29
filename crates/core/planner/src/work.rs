//! Cost of a DAG's packets in resources that count packets and not only bits: the ports of regions, the
//! credits of NTs, ingress and egress. All follow from the card's profile and from the DAG's packet sizes.
//!
//! ```text
//! a pass through a region     max(beats + descriptor, pace of the scheduler) cycles of its port
//! an NT on the way            rate of packets × round trip of the chain in the region, in credits (Little)
//! ingress, egress             max(bits at the port's rate, beats), as bits of the port's rate
//! an NT                       rate of packets, where its type has a limit
//! packet store                rate of cells × time on an unloaded card (Little), in bytes
//! scheduler                   rate of packets × branches of all stages, in look-ups
//! reads of the packet store   rate of packets × (beats × branches of all stages, and all beats at the egress), in beats
//! on-board memory             what the NTs move for a packet, and for each of its bytes, in bytes
//! synchronisation buffer      rate of packets × time of all stages that have branches (Little), in entries
//! ```
//!
//! A packet has one beat in a region where no NT of its DAG reads payloads, else those of its bytes. The round
//! trip is from where a packet enters the region to where the scheduler has the credit of its last NT again. It
//! counts for all NTs of the chain, since a packet reserves all of its credits before it enters (SuperNIC, 4.2).
//!
//! Amounts are rounded down to thousandths of a credit or an entry, to bytes, and to packets, look-ups and cycles per second. So the parts
//! of a DAG that fit together fit one after the other, too.

use std::num::NonZeroU32;

use snic_domain::limits::{PACKET_BYTES_MAX, SYNC_ROWS};
use snic_domain::{Bandwidth, CardProfile, Dag, DagSpec, NtType, PacketSizes, RegionPass, Traffic};

use crate::PlanCatalogue;
use crate::catalogue::ChainSlot;
use crate::memory_rate::MemoryUse;
use crate::stay::{PacketOccupancy, Transit};

/// Part of a port that may be reserved, in thousandths: of the ingress, of the egress, of each
/// region's, of the on-board memory's, and of the scheduler's look-ups. A port that is used to 100 % never drains the queue of a burst, so that all later
/// packets wait.
const PORT_PERMILLE: u64 = 960;
/// Part of a slot's credits that may be reserved, in thousandths of a credit for each credit; the
/// rest is for packets that wait before an NT.
const CREDIT_PERMILLE: u64 = 800;
/// Sixteenths of the packet store that promises may take. A third of it is for packets at token buckets, a sixth
/// for those beyond promises, and packets of a burst are accepted only while a quarter is free; so a quarter is
/// left, and a part of that is for packets that wait.
const STORE_SIXTEENTHS: u64 = 3;
/// Part of the synchronisation buffer that may be reserved, in thousandths of an entry for each entry; the rest
/// is for packets whose branches wait.
const SYNC_PERMILLE: u64 = 800;
/// Programmed credits for each reserved one, since packets do not arrive evenly.
const CREDITS_MARGIN: u64 = 2;

/// Cycles per second of a region's port that may be reserved.
pub(crate) fn port_max(profile: &CardProfile) -> u64 {
    if profile.region_pass.is_some() { promised(profile.clock_hz) } else { u64::MAX }
}

/// Bandwidth of the ingress or the egress that may be reserved.
pub(crate) fn line_max(profile: &CardProfile, port: Bandwidth) -> Bandwidth {
    let promised = Bandwidth::from_bps(promised(port.get()));
    if profile.region_pass.is_some() { promised } else { port }
}

/// The part of a port's capacity that may be reserved.
fn promised(capacity: u64) -> u64 {
    ratio(capacity, PORT_PERMILLE, 1_000)
}

/// Thousandths of a credit that may be reserved in one slot.
pub(crate) fn credits_max(profile: &CardProfile) -> u64 {
    let credits = profile.region_pass.map(|pass| u64::from(pass.credits_max) * CREDIT_PERMILLE);
    credits.unwrap_or(u64::MAX)
}

/// Bytes of the packet store that may be reserved.
pub(crate) fn store_max(profile: &CardProfile) -> u64 {
    let part = ratio(profile.packet_store.get(), STORE_SIXTEENTHS, 16);
    if profile.region_pass.is_some() { part } else { u64::MAX }
}

/// Thousandths of an entry of the synchronisation buffer that may be reserved.
pub(crate) fn sync_max(profile: &CardProfile) -> u64 {
    if profile.region_pass.is_some() { SYNC_ROWS as u64 * SYNC_PERMILLE } else { u64::MAX }
}

/// Bytes per second of the on-board memory that may be reserved.
pub(crate) fn memory_rate_max(profile: &CardProfile) -> u64 {
    profile.memory_bytes_per_second.map_or(u64::MAX, |rate| promised(rate.get()))
}

/// Beats per second of the packet store's reads that may be reserved.
pub(crate) fn reads_max(profile: &CardProfile) -> u64 {
    let beats = |each: NonZeroU32| promised(profile.clock_hz.saturating_mul(each.get().into()));
    profile.packet_store_beats_per_cycle.map_or(u64::MAX, beats)
}

/// Look-ups per second of the scheduler that may be reserved.
pub(crate) fn lookups_max(profile: &CardProfile) -> u64 {
    let lookups = |each: NonZeroU32| promised(profile.clock_hz.saturating_mul(each.get().into()));
    profile.scheduler_lookups_per_cycle.map_or(u64::MAX, lookups)
}

/// Credits to be programmed for a slot of which `taken` thousandths of a credit are reserved: twice that, and what
/// comes while the NT takes in one packet of the largest size, so that the NT is not idle while packets wait for
/// credits; at least the card's initial credits, and at most what the card has.
///
/// Reserved is packet rate × round trip, so the packets that come in a time are at most `taken` × time / least round
/// trip: that of a packet without payload which meets nobody.
pub(crate) fn credits_of(profile: &CardProfile, slot: &ChainSlot, taken: u64) -> u8 {
    let initial = profile.credits_initial;
    let Some(pass) = profile.region_pass else { return initial };
    let least =
        u64::from(pass.descriptor_beats) + 1 + slot.latency.get() + pass.credit_return.get();
    let largest = u64::from(PACKET_BYTES_MAX) * 8;
    let behind = swallow(largest, profile.clock_hz, (slot.bandwidth_max, slot.packets_max));
    let trips = CREDITS_MARGIN.saturating_mul(least).saturating_add(behind);
    let wanted = ratio_up(taken, trips, least.saturating_mul(1_000));
    u8::try_from(wanted).unwrap_or(u8::MAX).max(initial).min(pass.credits_max.max(initial))
}

/// Cycles in which an NT of this bandwidth and these packets per second takes in one packet of so many bits.
fn swallow(bits: u64, clock_hz: u64, (bandwidth, packets): (Bandwidth, u64)) -> u64 {
    let by_bits = ratio_up(bits, clock_hz, bandwidth.get().max(1));
    let by_packets = if packets == u64::MAX { 0 } else { clock_hz.div_ceil(packets.max(1)) };
    by_bits.max(by_packets)
}

/// The way through one region: what its NTs take together, and the slowest of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathDemand {
    pub(crate) latency: u64,
    pub(crate) slowest: Bandwidth,
    /// Fewest packets per second that one of them takes.
    pub(crate) packets: u64,
}

impl PathDemand {
    pub(crate) const NONE: Self =
        Self { latency: 0, slowest: Bandwidth::from_bps(u64::MAX), packets: u64::MAX };

    /// Through one NT.
    pub(crate) fn of(nt: &NtType) -> Self {
        let packets = nt.packet_capacity();
        Self { latency: nt.latency.get(), slowest: nt.bandwidth_max, packets }
    }

    /// And then another part.
    pub(crate) fn then(self, next: Self) -> Self {
        let latency = self.latency.saturating_add(next.latency);
        let (slowest, packets) = (self.slowest.min(next.slowest), self.packets.min(next.packets));
        Self { latency, slowest, packets }
    }

    /// Through these one after the other.
    pub(crate) fn through(ways: impl Iterator<Item = Self>) -> Self {
        ways.fold(Self::NONE, Self::then)
    }
}

/// The costs of a DAG's packets on one card, for one round of their mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    packets: u64,
    bits: u64,
    clock_hz: u64,
    /// `None`: the ports and credits of regions are not counted.
    pass: Option<PassWork>,
    /// Whether the packets are counted that NTs take.
    counts_nts: bool,
    ingress_bits: u64,
    egress_bits: u64,
}

/// Part of a card's ports that one bit of a DAG takes, in 2^-20 bits, rounded up: more than one where its packets waste
/// part of a beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitCost {
    /// Part of the ingress.
    pub ingress: u32,
    /// Part of the egress.
    pub egress: u32,
    /// Part of a region's port, for each pass, in units of [`BitCost::port_capacity`]; none where only bandwidth
    /// is counted.
    pub port: u32,
}

impl BitCost {
    /// Cost of a DAG on a card with this profile. NTs that the catalogue does not know count as reading headers only.
    pub fn of(profile: &CardProfile, spec: &DagSpec, catalogue: &PlanCatalogue) -> Self {
        let work = Work::of_spec(profile, spec, catalogue);
        let cost =
            |up: u64, down: u64| u32::try_from(ratio_up(up, 1 << 20, down)).unwrap_or(u32::MAX);
        let port = work.pass.map_or(0, |pass| {
            let bits = pass.parts.saturating_mul(u64::from(profile.width_bits));
            cost(bits, work.bits.saturating_mul(pass.parts_of_cycle))
        });
        let (ingress, egress) =
            (cost(work.ingress_bits, work.bits), cost(work.egress_bits, work.bits));
        Self { ingress, egress, port }
    }

    /// Bits per second that the port of a region passes in full beats.
    pub fn port_capacity(profile: &CardProfile) -> u64 {
        profile.clock_hz.saturating_mul(profile.width_bits.into())
    }
}

/// The costs of passes through regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PassWork {
    /// Parts of a cycle that one round of the mix takes of a port.
    parts: u64,
    /// Number of parts of a cycle.
    parts_of_cycle: u64,
    /// Cycles of the largest packet at the port, and of a credit's way back.
    around: u64,
    /// Bits of the largest packet.
    largest: u64,
    /// Bits of the cells that one round of the mix takes of the packet store.
    cells: u64,
    /// Beats of the packet store that one round of the mix reads in a pass through a region, and at the egress.
    reads: u64,
    reads_out: u64,
}

impl Work {
    /// The costs of a DAG's packets; NTs that the catalogue does not know count as reading headers only.
    pub(crate) fn of(profile: &CardProfile, dag: &Dag, catalogue: &PlanCatalogue) -> Self {
        Self::of_spec(profile, dag.spec(), catalogue)
    }

    /// The same of packets of these sizes; `payload` says whether an NT reads payloads.
    pub(crate) fn with(profile: &CardProfile, sizes: &PacketSizes, payload: bool) -> Self {
        let (packets, bits) = (sizes.packets().max(1), sizes.bits().max(1));
        let beat = u64::from(profile.width_bits / 8).max(1);
        let beats = |bytes: u32| u64::from(bytes).div_ceil(beat);
        let clock_hz = profile.clock_hz.max(1);
        let pass = profile.region_pass.map(|pass| {
            let RegionPass { descriptor_beats, packets, cycles, .. } = pass;
            let crossing =
                |bytes| u64::from(descriptor_beats) + if payload { beats(bytes) } else { 1 };
            let (scale, pace) = (u64::from(packets.get()), u64::from(cycles.get()));
            PassWork {
                parts: sizes.sum(|bytes| (crossing(bytes) * scale).max(pace)),
                parts_of_cycle: scale,
                around: crossing(sizes.largest()) + pass.credit_return.get(),
                largest: u64::from(sizes.largest()) * 8,
                cells: sizes.sum(|bytes| beats(bytes) * beat * 8),
                reads: sizes.sum(|bytes| if payload { beats(bytes) } else { 1 }),
                reads_out: sizes.sum(beats),
            }
        });
        // Bits that fit in the time a packet takes at a port.
        let line = |port: Bandwidth| {
            sizes.sum(|bytes| {
                let least = u128::from(beats(bytes)) * u128::from(port.get());
                let least = u64::try_from(least / u128::from(clock_hz)).unwrap_or(u64::MAX);
                least.max(u64::from(bytes) * 8)
            })
        };
        let counts = pass.is_some();
        let ingress_bits = if counts { line(profile.ingress) } else { bits };
        let egress_bits = if counts { line(profile.egress) } else { bits };
        Self { packets, bits, clock_hz, pass, counts_nts: true, ingress_bits, egress_bits }
    }

    /// The same for a DAG as it was stored.
    fn of_spec(profile: &CardProfile, spec: &DagSpec, catalogue: &PlanCatalogue) -> Self {
        let payload =
            spec.nodes.iter().any(|node| catalogue.nt(&node.nt).is_some_and(reads_payload));
        Self::with(profile, &spec.packet_sizes, payload)
    }

    /// Whether packets are counted at ports and credits of regions, and not only bandwidth.
    pub(crate) const fn counts_packets(&self) -> bool {
        self.pass.is_some()
    }

    /// The same where only what NTs serve is counted.
    pub(crate) const fn nts_only(self) -> Self {
        Self { pass: None, ..self }
    }

    /// The same where only the bandwidth of NTs is counted.
    pub(crate) const fn bits_only(self) -> Self {
        Self { pass: None, counts_nts: false, ..self }
    }

    /// Packets per second at a bandwidth, rounded down.
    pub(crate) fn packets(&self, bandwidth: Bandwidth) -> u64 {
        ratio(bandwidth.get(), self.packets, self.bits)
    }

    /// The bandwidth in kbit/s with which an NT takes at most so many packets per second; `u64::MAX` without a limit.
    pub(crate) fn packets_kbps(&self, left: u64) -> u64 {
        if left == u64::MAX || !self.counts_nts {
            return u64::MAX;
        }
        ratio(left, self.bits, self.packets.saturating_mul(1_000))
    }

    /// Bandwidth of an NT of which so much is left, in kbit/s and in packets per second; in kbit/s.
    pub(crate) fn nt_kbps(&self, kbps: u64, packets: u64) -> u64 {
        kbps.min(self.packets_kbps(packets))
    }

    /// Part of the ingress that a bandwidth takes.
    pub(crate) fn ingress(&self, bandwidth: Bandwidth) -> Bandwidth {
        Bandwidth::from_bps(ratio(bandwidth.get(), self.ingress_bits, self.bits))
    }

    /// Part of the egress that a bandwidth takes.
    pub(crate) fn egress(&self, bandwidth: Bandwidth) -> Bandwidth {
        Bandwidth::from_bps(ratio(bandwidth.get(), self.egress_bits, self.bits))
    }

    /// Part of the port of a region that a bandwidth takes in one pass, in cycles per second.
    pub(crate) fn port(&self, bandwidth: Bandwidth) -> u64 {
        let pass = |pass: PassWork| {
            ratio(bandwidth.get(), pass.parts, self.bits.saturating_mul(pass.parts_of_cycle))
        };
        self.pass.map_or(0, pass)
    }

    /// The bandwidth in kbit/s that passes a port of which this many cycles per second are left.
    pub(crate) fn port_kbps(&self, left: u64) -> u64 {
        let pass = |pass: PassWork| {
            let parts = pass.parts.saturating_mul(1_000);
            ratio(left, self.bits.saturating_mul(pass.parts_of_cycle), parts)
        };
        self.pass.map_or(u64::MAX, pass)
    }

    /// Time that a packet holds its credits on its way through a region, in cycles: over the port, through all
    /// NTs, until the slowest has taken it in, and the credit's way back.
    pub(crate) fn round_trip(&self, way: PathDemand) -> u64 {
        let Some(pass) = self.pass else { return 0 };
        let swallow = swallow(pass.largest, self.clock_hz, (way.slowest, way.packets));
        pass.around.saturating_add(way.latency).saturating_add(swallow)
    }

    /// Part of the credits of each NT that a bandwidth takes on a way with this round trip, in thousandths of one.
    pub(crate) fn credits(&self, bandwidth: Bandwidth, round_trip: u64) -> u64 {
        let (up, down) = self.credit_ratio(round_trip);
        u64::try_from(u128::from(bandwidth.get()) * up / down).unwrap_or(u64::MAX)
    }

    /// The part of `kbps` for which this many thousandths of a credit suffice.
    pub(crate) fn within_credits(&self, kbps: u64, left: u64, round_trip: u64) -> u64 {
        if self.pass.is_none() {
            return kbps;
        }
        let (up, down) = self.credit_ratio(round_trip);
        let up = up * 1_000;
        if u128::from(kbps) * up <= u128::from(left) * down {
            return kbps;
        }
        u64::try_from(u128::from(left) * down / up.max(1)).unwrap_or(u64::MAX)
    }

    /// Part of the packet store, of its reads, of the synchronisation buffer and of the scheduler's look-ups that a bandwidth takes,
    /// with packets that are this long on the card.
    pub(crate) fn stay(&self, bandwidth: Bandwidth, transit: Transit) -> PacketOccupancy {
        let Some(pass) = self.pass else { return PacketOccupancy::default() };
        let cells = u128::from(bandwidth.get()) * u128::from(pass.cells) / 8;
        let down = u128::from(self.bits) * u128::from(self.clock_hz);
        let store = cells.saturating_mul(transit.latency.into()) / down;
        let store = u64::try_from(store).unwrap_or(u64::MAX);
        let lookups = self.packets.saturating_mul(transit.lookups);
        // A look-up is followed by a pass.
        let reads = pass.reads.saturating_mul(transit.lookups).saturating_add(pass.reads_out);
        PacketOccupancy {
            store,
            reads: ratio(bandwidth.get(), reads, self.bits),
            sync: self.credits(bandwidth, transit.forked),
            lookups: ratio(bandwidth.get(), lookups, self.bits),
        }
    }

    /// Bytes per second that a bandwidth moves in on-board memory.
    pub(crate) fn memory_rate(&self, bandwidth: Bandwidth, of: MemoryUse) -> u64 {
        let packets = self.packets.saturating_mul(of.packet);
        let bytes = (self.bits / 8).saturating_mul(of.byte);
        ratio(bandwidth.get(), packets.saturating_add(bytes), self.bits)
    }

    /// Thousandths of a credit for each bit/s, as a ratio.
    fn credit_ratio(&self, round_trip: u64) -> (u128, u128) {
        let up = u128::from(self.packets) * u128::from(round_trip) * 1_000;
        (up, u128::from(self.bits) * u128::from(self.clock_hz))
    }
}

/// Whether an NT reads payloads, and not headers only.
pub(crate) fn reads_payload(nt: &NtType) -> bool {
    nt.traffic == Traffic::Payload
}

/// `amount × up / down`, rounded down.
fn ratio(amount: u64, up: u64, down: u64) -> u64 {
    // Nearly all products fit 64 bits, whose division takes a fraction of the time.
    if let Some(product) = amount.checked_mul(up) {
        return product / down.max(1);
    }
    let product = u128::from(amount) * u128::from(up);
    u64::try_from(product / u128::from(down.max(1))).unwrap_or(u64::MAX)
}

/// The same, rounded up.
fn ratio_up(amount: u64, up: u64, down: u64) -> u64 {
    let product = u128::from(amount) * u128::from(up);
    u64::try_from(product.div_ceil(u128::from(down.max(1)))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::{ByteSize, Cycles};

    use super::*;
    use crate::ledger::tests::profile;
    use crate::nt_key::NtKey;

    fn work(sizes: PacketSizes, payload: bool) -> Work {
        Work::with(&profile(), &sizes, payload)
    }

    fn gbps(n: u64) -> Bandwidth {
        Bandwidth::from_gbps(n)
    }

    /// SuperNIC, Fig. 7: 51 Gbit/s of 64 B, 99 of 128 B with enough credits, 116 of 1,024 B, each within what
    /// the figure's test allows.
    #[test]
    fn a_port_passes_what_figure_7_shows() {
        for (bytes, published) in
            [(64, 51.0), (128, 99.0), (256, 108.0), (512, 113.0), (1_024, 116.0)]
        {
            let most = work(PacketSizes::only(bytes), true).port_kbps(250_000_000) as f64 / 1e6;
            assert!((most / published - 1.0).abs() < 0.15, "{bytes} B: {most}, not {published}");
        }
    }

    #[test]
    fn a_pass_costs_beats_or_the_schedulers_pace() {
        let small = work(PacketSizes::only(64), true);
        assert_eq!(small.port(gbps(10)), 48_828_125, "19.53 million packets, 2.5 cycles each");
        let large = work(PacketSizes::only(1_500), true);
        assert_eq!(large.port(gbps(12)), 25_000_000, "a million packets of 24 beats and one");
        let headers = work(PacketSizes::only(1_500), false);
        assert_eq!(headers.port(gbps(12)), 2_500_000, "headers only: the pace");
        assert_eq!(large.nts_only().port(gbps(12)), 0);
    }

    #[test]
    fn credits_are_packets_under_way() {
        let large = work(PacketSizes::only(1_500), true);
        let nts = [(100, gbps(100)), (42, gbps(30))];
        let way = PathDemand::through(nts.into_iter().map(|(latency, slowest)| PathDemand {
            latency,
            slowest,
            ..PathDemand::NONE
        }));
        // 25 over the port, 142, 12,000 bits at 30 Gbit/s in 100 cycles, 3 back.
        assert_eq!(large.round_trip(way), 270);
        assert_eq!(large.credits(gbps(12), 270), 1_080, "a million packets in 1.08 µs");
        assert_eq!(large.within_credits(12_000_000, 1_080, 270), 12_000_000);
        assert_eq!(large.within_credits(12_000_001, 1_080, 270), 12_000_000);
    }

    #[test]
    fn credits_are_programmed_between_the_cards_limits() {
        let card = profile();
        let pass = card.region_pass.expect("it counts packets");
        let least = u64::from(pass.descriptor_beats) + 1 + pass.credit_return.get();
        let slot = |latency, bandwidth_max| ChainSlot {
            key: NtKey::of(&"aes".parse().expect("a label")),
            bandwidth_max,
            packets_max: u64::MAX,
            latency: Cycles::new(latency),
            memory: ByteSize::ZERO,
        };
        // It takes in the largest packet, 73,728 bits, as fast as its packets are under way.
        let fast = slot(74 - least, Bandwidth::from_bps(73_728 * card.clock_hz / 74));
        let programmed =
            [0, 2_600, 2_667, 20_500, 101_600].map(|taken| credits_of(&card, &fast, taken));
        assert_eq!(programmed, [8, 8, 9, 62, 127]);
        // One credit of 64 cycles: two, and 16 that come in the 1,024 cycles of the largest packet.
        let slow = slot(64 - least, Bandwidth::from_bps(73_728 * card.clock_hz / 1_024));
        assert_eq!(credits_of(&card, &slow, 1_000), 18);
        let none = CardProfile { region_pass: None, ..card };
        assert_eq!(credits_of(&none, &fast, 50_000), 8, "as the card starts");
    }

    #[test]
    fn one_bit_costs_what_many_do() {
        let (card, catalogue) = (profile(), PlanCatalogue::default());
        let cost = |bytes| {
            let mut spec = DagSpec::chain(&[], gbps(10));
            spec.packet_sizes = PacketSizes::only(bytes);
            BitCost::of(&card, &spec, &catalogue)
        };
        let one = 1 << 20;
        // 2.5 cycles of 512 bits for a packet of 512.
        assert_eq!(cost(64), BitCost { ingress: one, egress: one, port: one * 5 / 2 });
        // Headers only: 2.5 cycles for 12,000 bits.
        assert_eq!(cost(1_500).port, (one * 5 * 512 / 2).div_ceil(12_000));
        assert_eq!(BitCost::port_capacity(&card), 128_000_000_000);
        assert_eq!(cost(65).ingress, (800 * one).div_ceil(520));
    }

    #[test]
    fn packets_that_waste_beats_take_more_of_the_ingress() {
        let even = work(PacketSizes::only(64), true);
        assert_eq!(even.ingress(gbps(10)), gbps(10));
        // 65 bytes take two beats, 8 ns, in which 100 Gbit/s are 800 bits and not 520.
        let odd = work(PacketSizes::only(65), true);
        assert_eq!(odd.ingress(gbps(13)), gbps(20));
    }

    proptest! {
        /// The bandwidth that passes a port with so much left is the most that takes no more.
        #[test]
        fn a_port_is_filled_to_the_last_kilobit(
            bytes in 64u32..9_000, payload in any::<bool>(), left in 0u64..250_000_000,
        ) {
            let work = work(PacketSizes::only(bytes), payload);
            let most = work.port_kbps(left);
            // Half cycles of a packet: a beat for the descriptor and those of its bytes, at least five.
            let beats = if payload { bytes.div_ceil(64) } else { 1 };
            let halves = u128::from((2 * (1 + beats)).max(5));
            let fits = |kbps: u64| {
                u128::from(kbps) * 1_000 * halves <= u128::from(left) * u128::from(bytes) * 16
            };
            prop_assert!(fits(most) && !fits(most + 1), "{most} kbit/s");
            prop_assert!(work.port(Bandwidth::from_bps(most * 1_000)) <= left);
        }

        /// The same of credits; and where they suffice for all, nothing is taken off.
        #[test]
        fn credits_are_used_to_the_last_kilobit(
            bytes in 64u32..9_000, left in 0u64..101_600, latency in 0u64..2_000, kbps in 1u64..100_000_000,
        ) {
            let work = work(PacketSizes::only(bytes), true);
            let round = work.round_trip(PathDemand { latency, slowest: gbps(10), ..PathDemand::NONE });
            let takes = |kbps: u64| work.credits(Bandwidth::from_bps(kbps * 1_000), round);
            let within = work.within_credits(kbps, left, round);
            prop_assert!(within <= kbps && takes(within) <= left);
            if within < kbps {
                let exact = u128::from(within + 1) * 1_000 * u128::from(round) * 1_000;
                let available = u128::from(left) * 250_000_000 * u128::from(bytes) * 8;
                prop_assert!(exact > available, "one kbit/s more fits as well");
            }
            prop_assert_eq!(work.nts_only().within_credits(kbps, left, round), kbps);
        }

        #[test]
        fn ratios_do_not_overflow(amount: u64, up: u64, down: u64) {
            let exact = u128::from(amount) * u128::from(up) / u128::from(down.max(1));
            let most = u128::from(u64::MAX);
            prop_assert_eq!(u128::from(ratio(amount, up, down)), exact.min(most));
            let rest = u128::from(amount) * u128::from(up) % u128::from(down.max(1));
            let above = exact.saturating_add(u128::from(rest > 0));
            prop_assert_eq!(u128::from(ratio_up(amount, up, down)), above.min(most));
        }
    }

    /// 4 % of ports and lines and a fifth of the credits are never promised; where packets are not counted, all of
    /// a line is, and no port ends.
    #[test]
    fn a_part_of_every_port_is_kept_free() {
        let card = profile();
        assert_eq!(port_max(&card), 240_000_000);
        assert_eq!(line_max(&card, gbps(100)), gbps(96));
        let credits = card.region_pass.map(|pass| u64::from(pass.credits_max));
        assert_eq!(Some(credits_max(&card)), credits.map(|all| all * 800));
        let plain = CardProfile { region_pass: None, ..card };
        assert_eq!((port_max(&plain), credits_max(&plain)), (u64::MAX, u64::MAX));
        assert_eq!(line_max(&plain, gbps(100)), gbps(100));
    }

    #[test]
    fn a_way_is_as_slow_as_its_slowest_nt() {
        let of =
            |latency, slowest| PathDemand { latency, slowest: gbps(slowest), ..PathDemand::NONE };
        let all = PathDemand::through([of(3, 40), of(5, 10), of(7, 20)].into_iter());
        assert_eq!((all.latency, all.slowest), (15, gbps(10)));
        let none = PathDemand::through(std::iter::empty());
        assert_eq!((none.latency, none.slowest.get()), (0, u64::MAX));
        assert_eq!(of(u64::MAX, 1).then(of(1, 1)).latency, u64::MAX, "not around");
        let plain = work(PacketSizes::only(64), true).nts_only();
        assert_eq!(plain.round_trip(all), 0, "where packets are not counted");
    }
}

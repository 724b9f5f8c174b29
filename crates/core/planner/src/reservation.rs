//! Resources that a DAG takes of a card, as a value that a ledger holds and releases.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use snic_domain::limits::{CHAIN_ROWS, DAG_ROWS, INSTANCE_ROWS, SPARE_ROWS_PART, STAGE_ROWS};
use snic_domain::{
    Bandwidth, ByteSize, CardProfile, Dag, Instance, Mapping, MemoryTraffic, NodeId, NtType,
    RegionId, Slot,
};

use crate::PlanCatalogue;
use crate::form::PassCost;
use crate::memory::allocated_memory;
use crate::memory_rate::MemoryUse;
use crate::processor_use::ProcessorUse;
use crate::stay::{PacketOccupancy, Transit};
use crate::work::{PathDemand, Work};

/// Rows of the card's tables, in rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRows {
    /// Rows of the DAG table.
    pub dags: u32,
    /// Rows of the stage table.
    pub stages: u32,
    /// Rows of the virtual-chain table.
    pub chains: u32,
    /// Rows of the instance table.
    pub instances: u32,
}

/// Rows of a table that DAGs are admitted into.
const fn without_spare(rows: usize) -> u32 {
    (rows - rows / SPARE_ROWS_PART) as u32
}

impl TableRows {
    /// The rows of a card (`snic_domain::limits`) that may be promised; the others are for moves.
    pub const CARD: Self = Self {
        dags: DAG_ROWS as u32,
        stages: without_spare(STAGE_ROWS),
        chains: without_spare(CHAIN_ROWS),
        instances: without_spare(INSTANCE_ROWS),
    };

    /// No limit: for measuring how planning scales beyond a card's tables.
    pub const UNLIMITED: Self =
        Self { dags: u32::MAX, stages: u32::MAX, chains: u32::MAX, instances: u32::MAX };

    /// The rows that `mapping` takes.
    pub fn of(mapping: &Mapping) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            dags: 1,
            stages: count(mapping.stages.len()),
            chains: count(mapping.chains().count()),
            instances: count(mapping.instances().count()),
        }
    }

    pub(crate) fn zip(self, other: Self, f: impl Fn(u32, u32) -> u32) -> Self {
        Self {
            dags: f(self.dags, other.dags),
            stages: f(self.stages, other.stages),
            chains: f(self.chains, other.chains),
            instances: f(self.instances, other.instances),
        }
    }

    /// Name of each table, and the rows of `self` and of `other`.
    pub(crate) const fn beside(self, other: Self) -> [(&'static str, u32, u32); 4] {
        [
            ("DAG", self.dags, other.dags),
            ("stage", self.stages, other.stages),
            ("virtual-chain", self.chains, other.chains),
            ("instance", self.instances, other.instances),
        ]
    }

    /// Whether each table has them, with these rows left.
    pub(crate) fn fits(self, left: Self) -> bool {
        self.beside(left).iter().all(|(_, needed, left)| needed <= left)
    }
}

/// Bandwidth, packets, credits and memory that a DAG takes of one NT instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotShare {
    pub(crate) region: RegionId,
    pub(crate) slot: Slot,
    pub(crate) bandwidth: Bandwidth,
    /// In packets per second.
    #[serde(default)]
    pub(crate) packets: u64,
    pub(crate) memory: ByteSize,
    /// In thousandths of one.
    pub(crate) credits: u64,
}

impl SlotShare {
    const fn place(&self) -> (RegionId, Slot) {
        (self.region, self.slot)
    }
}

/// Part of one region's port that a DAG takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortShare {
    pub(crate) region: RegionId,
    /// In cycles per second.
    pub(crate) cycles: u64,
}

/// Resources that a DAG takes: bandwidth, packets, credits and memory by region and slot, ports by region, ingress,
/// egress, packet store, synchronisation buffer, look-ups, bandwidth of the on-board memory, table rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Shares by region and slot, each once.
    pub(crate) shares: SmallVec<[SlotShare; 8]>,
    /// Shares of ports by region, each once.
    pub(crate) ports: SmallVec<[PortShare; 4]>,
    /// The DAG's own.
    pub(crate) bandwidth: Bandwidth,
    pub(crate) ingress: Bandwidth,
    pub(crate) egress: Bandwidth,
    /// Bytes of the packet store.
    pub(crate) store: u64,
    /// Reads of the packet store, in beats per second.
    #[serde(default)]
    pub(crate) reads: u64,
    /// Thousandths of an entry of the synchronisation buffer.
    pub(crate) sync: u64,
    /// Look-ups of the scheduler per second.
    #[serde(default)]
    pub(crate) lookups: u64,
    /// Bytes of the on-board memory per second.
    #[serde(default)]
    pub(crate) memory_rate: u64,
    pub(crate) rows: TableRows,
    /// Part of the card's processors.
    pub(crate) programs: ProcessorUse,
}

impl Reservation {
    /// The resources that `mapping` takes for `dag` of a card with this profile. NTs that the catalogue does not
    /// know count as using no memory and no time; a ledger counts memory by the contents of its regions.
    pub fn of(
        mapping: &Mapping,
        dag: &Dag,
        catalogue: &PlanCatalogue,
        profile: &CardProfile,
    ) -> Self {
        let mut sum = ReservationSum::new(Work::of(profile, dag, catalogue));
        let mut transit = Transit::new(PassCost::of(profile));
        for stage in &mapping.stages {
            let latencies = stage.branches.iter().map(|chain| {
                let nts = chain.nodes.iter().map(|node| nt_of(node, dag, catalogue));
                let costs = nts.map(|nt| nt.map_or(NtCost::NONE, NtCost::of));
                sum.add(&chain.instances, costs)
            });
            transit.stage(latencies);
        }
        let stay = sum.work.stay(dag.bandwidth(), transit);
        let programs = ProcessorUse::of(mapping, dag, profile);
        Self { programs, ..sum.finish(dag.bandwidth(), stay, TableRows::of(mapping)) }
    }

    /// The elementwise maximum of both. Held during an update, it covers the old and the new mapping,
    /// whichever bank of the tables is active.
    pub fn max(&self, other: &Self) -> Self {
        let mut shares = self.shares.clone();
        for share in &other.shares {
            match shares.binary_search_by_key(&share.place(), SlotShare::place) {
                Ok(at) => {
                    shares[at].bandwidth = shares[at].bandwidth.max(share.bandwidth);
                    shares[at].packets = shares[at].packets.max(share.packets);
                    shares[at].memory = shares[at].memory.max(share.memory);
                    shares[at].credits = shares[at].credits.max(share.credits);
                }
                Err(at) => shares.insert(at, *share),
            }
        }
        let mut ports = self.ports.clone();
        for port in &other.ports {
            match ports.binary_search_by_key(&port.region, |port| port.region) {
                Ok(at) => ports[at].cycles = ports[at].cycles.max(port.cycles),
                Err(at) => ports.insert(at, *port),
            }
        }
        Self {
            shares,
            ports,
            bandwidth: self.bandwidth.max(other.bandwidth),
            ingress: self.ingress.max(other.ingress),
            egress: self.egress.max(other.egress),
            store: self.store.max(other.store),
            reads: self.reads.max(other.reads),
            sync: self.sync.max(other.sync),
            lookups: self.lookups.max(other.lookups),
            memory_rate: self.memory_rate.max(other.memory_rate),
            rows: self.rows.zip(other.rows, u32::max),
            programs: self.programs.max(other.programs),
        }
    }

    /// The regions with reservations, in ascending order, each once.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> {
        self.shares
            .iter()
            .enumerate()
            .filter(|(i, share)| *i == 0 || self.shares[i - 1].region != share.region)
            .map(|(_, share)| share.region)
    }

    /// Part of a region's port that it takes, in cycles per second.
    pub(crate) fn port(&self, region: RegionId) -> u64 {
        let at = self.ports.binary_search_by_key(&region, |port| port.region);
        at.map_or(0, |at| self.ports[at].cycles)
    }

    /// Part of a slot's credits that it takes, in thousandths of one.
    pub(crate) fn credits(&self, region: RegionId, slot: Slot) -> u64 {
        let at = self.shares.binary_search_by_key(&(region, slot), SlotShare::place);
        at.map_or(0, |at| self.shares[at].credits)
    }

    /// Packets per second that it takes of an NT.
    pub(crate) fn packets(&self, region: RegionId, slot: Slot) -> u64 {
        let at = self.shares.binary_search_by_key(&(region, slot), SlotShare::place);
        at.map_or(0, |at| self.shares[at].packets)
    }

    /// Bandwidth by region and slot, each place once.
    pub fn bandwidths(&self) -> impl Iterator<Item = (RegionId, Slot, Bandwidth)> {
        self.shares.iter().map(|share| (share.region, share.slot, share.bandwidth))
    }

    /// The DAG's bandwidth.
    pub const fn bandwidth(&self) -> Bandwidth {
        self.bandwidth
    }

    /// Bandwidth at the ingress: more than the DAG's where its packets waste part of a beat.
    pub const fn ingress(&self) -> Bandwidth {
        self.ingress
    }

    /// Bandwidth at the egress, in the same way.
    pub const fn egress(&self) -> Bandwidth {
        self.egress
    }

    /// Part of the packet store that its packets take while they are on the card, in bytes.
    pub const fn store(&self) -> u64 {
        self.store
    }

    /// Beats of the packet store that are read per second, for its passes through regions and for the egress.
    pub const fn store_reads(&self) -> u64 {
        self.reads
    }

    /// Entries of the synchronisation buffer, in thousandths of one.
    pub const fn sync_entries(&self) -> u64 {
        self.sync
    }

    /// Look-ups of the scheduler per second: one for each branch of each stage that its packets pass.
    pub const fn lookups(&self) -> u64 {
        self.lookups
    }

    /// Bytes per second that its NTs move in on-board memory.
    pub const fn memory_rate(&self) -> u64 {
        self.memory_rate
    }

    /// On-board memory of all NT instances that it uses, in whole pages. DAGs and instances of one tenant share the
    /// memory of an NT, so a ledger may count less.
    pub fn memory(&self) -> ByteSize {
        self.shares.iter().map(|share| share.memory).sum()
    }

    /// Rows of the card's tables.
    pub const fn rows(&self) -> TableRows {
        self.rows
    }
}

/// Cost of one instance of an NT for a DAG.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NtCost {
    pub(crate) way: PathDemand,
    /// In whole pages.
    pub(crate) memory: ByteSize,
    pub(crate) memory_traffic: MemoryTraffic,
}

impl NtCost {
    /// Cost of an NT that is not known.
    const NONE: Self = Self {
        way: PathDemand::NONE,
        memory: ByteSize::ZERO,
        memory_traffic: MemoryTraffic { bytes_per_packet: 0, bytes_per_packet_byte: 0 },
    };

    pub(crate) fn of(nt: &NtType) -> Self {
        let memory_traffic = nt.memory_traffic;
        Self { way: PathDemand::of(nt), memory: allocated_memory(nt), memory_traffic }
    }
}

/// Sums up what the parts of a mapping take.
pub(crate) struct ReservationSum {
    work: Work,
    shares: SmallVec<[SlotShare; 8]>,
    ports: SmallVec<[PortShare; 4]>,
    memory_use: MemoryUse,
}

impl ReservationSum {
    pub(crate) fn new(work: Work) -> Self {
        let (shares, ports) = (SmallVec::new(), SmallVec::new());
        Self { work, shares, ports, memory_use: MemoryUse::default() }
    }

    /// Adds a virtual chain; `nts` are those of its nodes, in order. Returns their latency in cycles.
    pub(crate) fn add(
        &mut self,
        instances: &[Instance],
        nts: impl Iterator<Item = NtCost> + Clone,
    ) -> u64 {
        let work = &self.work;
        let way = PathDemand::through(nts.clone().map(|nt| nt.way));
        let round_trip = work.round_trip(way);
        self.memory_use =
            nts.clone().map(|nt| nt.memory_traffic).fold(self.memory_use, MemoryUse::plus);
        for instance in instances {
            let (region, bandwidth) = (instance.region, instance.bandwidth);
            let (packets, credits) = (work.packets(bandwidth), work.credits(bandwidth, round_trip));
            self.ports.push(PortShare { region, cycles: work.port(bandwidth) });
            for (nt, slot) in nts.clone().zip(&instance.slots) {
                let (slot, memory) = (*slot, nt.memory);
                self.shares.push(SlotShare { region, slot, bandwidth, packets, memory, credits });
            }
        }
        way.latency
    }

    /// The sum, each place once.
    pub(crate) fn finish(
        self,
        bandwidth: Bandwidth,
        stay: PacketOccupancy,
        rows: TableRows,
    ) -> Reservation {
        let Self { work, mut shares, mut ports, memory_use } = self;
        shares.sort_by_key(SlotShare::place);
        shares.dedup_by(|next, sum| {
            let same = next.place() == sum.place();
            if same {
                sum.bandwidth += next.bandwidth;
                sum.packets = sum.packets.saturating_add(next.packets);
                sum.credits = sum.credits.saturating_add(next.credits);
            }
            same
        });
        ports.sort_by_key(|port| port.region);
        ports.dedup_by(|next, sum| {
            let same = next.region == sum.region;
            sum.cycles = sum.cycles.saturating_add(if same { next.cycles } else { 0 });
            same
        });
        let (ingress, egress) = (work.ingress(bandwidth), work.egress(bandwidth));
        let PacketOccupancy { store, reads, sync, lookups } = stay;
        let memory_rate = work.memory_rate(bandwidth, memory_use);
        let programs = ProcessorUse::default();
        Reservation {
            shares,
            ports,
            bandwidth,
            ingress,
            egress,
            store,
            reads,
            sync,
            lookups,
            memory_rate,
            rows,
            programs,
        }
    }
}

fn nt_of<'a>(node: &NodeId, dag: &Dag, catalogue: &'a PlanCatalogue) -> Option<&'a NtType> {
    let node = dag.nodes().iter().find(|n| n.id == *node)?;
    catalogue.nt(&node.nt)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{card, gbps, shares};

    /// Region, slot, Gbit/s, MiB and thousandths of a credit of each place; Gbit/s of all.
    type Numbers = (BTreeMap<(u8, u8), (u64, u64, u64)>, u64, [u32; 4]);

    fn reservation((places, gbit, rows): &Numbers) -> Reservation {
        let share =
            |((region, slot), (gbit, mib, credits)): (&(u8, u8), &(u64, u64, u64))| SlotShare {
                region: RegionId(*region),
                slot: Slot(*slot),
                bandwidth: gbps(*gbit),
                packets: gbit + credits,
                memory: ByteSize::from_mib(*mib),
                credits: *credits,
            };
        let ports: BTreeMap<u8, u64> =
            places.iter().map(|((r, _), (gbit, ..))| (*r, *gbit)).collect();
        let port = |(region, cycles)| PortShare { region: RegionId(region), cycles };
        let [dags, stages, chains, instances] = *rows;
        Reservation {
            shares: places.iter().map(share).collect(),
            ports: ports.into_iter().map(port).collect(),
            bandwidth: gbps(*gbit),
            ingress: gbps(gbit + 1),
            egress: gbps(gbit + 2),
            store: gbit + 3,
            sync: gbit + 4,
            lookups: gbit + 5,
            memory_rate: gbit + 6,
            reads: gbit + 7,
            rows: TableRows { dags, stages, chains, instances },
            programs: ProcessorUse::default(),
        }
    }

    fn numbers() -> impl Strategy<Value = Numbers> {
        let place = ((0u8..3, 0u8..3), (0u64..9, 0u64..9, 0u64..9));
        let rows = prop::array::uniform4(0u32..9);
        (prop::collection::btree_map(place.0, place.1, 0..7), 0u64..9, rows)
    }

    proptest! {
        /// The elementwise maximum as a map computes it; an entry of one side alone stays.
        #[test]
        fn the_maximum_is_that_of_every_number(one in numbers(), two in numbers()) {
            let max = reservation(&one).max(&reservation(&two));
            let of = |numbers: &Numbers, at| numbers.0.get(&at).copied().unwrap_or_default();
            let places: BTreeMap<_, _> = one.0.iter().chain(&two.0).collect();
            prop_assert_eq!(max.shares.len(), places.len());
            for (share, (region, slot)) in max.shares.iter().zip(places.keys()) {
                let (a, b) = (of(&one, (*region, *slot)), of(&two, (*region, *slot)));
                prop_assert_eq!(share.place(), (RegionId(*region), Slot(*slot)), "in order");
                prop_assert_eq!(share.bandwidth, gbps(a.0.max(b.0)));
                prop_assert_eq!(share.memory, ByteSize::from_mib(a.1.max(b.1)));
                prop_assert_eq!(max.credits(share.region, share.slot), a.2.max(b.2));
                let packets = max.packets(share.region, share.slot);
                prop_assert_eq!(packets, (a.0 + a.2).max(b.0 + b.2));
            }
            for region in (0..4).map(RegionId) {
                let [a, b] = [&one, &two].map(|numbers| reservation(numbers).port(region));
                prop_assert_eq!(max.port(region), a.max(b));
            }
            let gbit = one.1.max(two.1);
            let whole = (max.bandwidth(), max.ingress(), max.egress());
            prop_assert_eq!(whole, (gbps(gbit), gbps(gbit + 1), gbps(gbit + 2)));
            prop_assert_eq!((max.store(), max.sync_entries()), (gbit + 3, gbit + 4));
            prop_assert_eq!((max.lookups(), max.memory_rate()), (gbit + 5, gbit + 6));
            prop_assert_eq!(max.store_reads(), gbit + 7);
            let rows: Vec<u32> = one.2.iter().zip(two.2).map(|(a, b)| *a.max(&b)).collect();
            let found: Vec<u32> = max.rows().beside(TableRows::CARD).map(|row| row.1).into();
            prop_assert_eq!(found, rows);
        }

        #[test]
        fn regions_and_memory_are_those_of_the_shares(one in numbers()) {
            let made = reservation(&one);
            let mut regions: Vec<u8> = one.0.keys().map(|(region, _)| *region).collect();
            regions.dedup();
            prop_assert_eq!(made.regions().map(|region| region.0).collect::<Vec<_>>(), regions);
            let memory = one.0.values().map(|(_, mib, _)| mib).sum();
            prop_assert_eq!(made.memory(), ByteSize::from_mib(memory));
        }
    }

    /// Two instances through one region, and one of them through another: places and ports once each.
    #[test]
    fn instances_of_a_region_add_up() {
        let sizes = snic_domain::PacketSizes::only(64);
        let mut sum = ReservationSum::new(Work::with(&card(2), &sizes, true));
        let instance = |region, slots: &[u8], gbit| Instance {
            region: RegionId(region),
            bitstream: snic_domain::BitstreamId::new("x").expect("a test id"),
            slots: slots.iter().map(|slot| Slot(*slot)).collect(),
            bandwidth: gbps(gbit),
        };
        let nt = crate::fixtures::nt("a", 10);
        let costs = [NtCost::of(&nt), NtCost::NONE];
        sum.add(&[instance(1, &[0, 2], 4), instance(0, &[1, 3], 2)], costs.into_iter());
        sum.add(&[instance(1, &[2], 3)], costs.into_iter().take(1));
        let made = sum.finish(gbps(6), PacketOccupancy::default(), TableRows::default());
        let bandwidths: Vec<_> = made.bandwidths().map(|(r, s, b)| (r.0, s.0, b)).collect();
        let expected = [(0, 1, 2), (0, 3, 2), (1, 0, 4), (1, 2, 7)];
        assert_eq!(bandwidths, expected.map(|(r, s, n)| (r, s, gbps(n))));
        let two = Work::with(&card(2), &sizes, true).port(gbps(2));
        assert_eq!((made.port(RegionId(0)), made.port(RegionId(2))), (two, 0));
        let expected = [4, 3].map(|n| Work::with(&card(2), &sizes, true).port(gbps(n)));
        assert_eq!(made.port(RegionId(1)), expected.iter().sum::<u64>());
        let credits = |slot| made.credits(RegionId(1), Slot(slot));
        assert!(credits(2) > credits(0) && credits(0) > 0 && credits(1) == 0);
        let packets = |slot| made.packets(RegionId(1), Slot(slot));
        // 4 and 3 Gbit/s of 512 bits.
        assert_eq!([0, 1, 2].map(packets), [7_812_500, 0, 7_812_500 + 5_859_375]);
    }

    #[test]
    fn rows_are_told_with_their_tables() {
        let shares = shares(&[(0, 0, 1)]);
        assert_eq!(shares.rows(), TableRows::default());
        let names = TableRows::CARD.beside(TableRows::UNLIMITED).map(|(name, _, _)| name);
        assert_eq!(names, ["DAG", "stage", "virtual-chain", "instance"]);
        let sizes = TableRows::CARD.beside(TableRows::UNLIMITED).map(|(_, rows, _)| rows as usize);
        assert_eq!(sizes, [DAG_ROWS, STAGE_ROWS - 16, CHAIN_ROWS - 4, INSTANCE_ROWS - 8]);
    }
}

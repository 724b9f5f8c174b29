//! A request with the values that planning needs often.

use smallvec::SmallVec;
use snic_domain::{
    Bandwidth, Cycles, Dag, Infeasible, Node, NodeId, NtTypeId, RegionId, Resource, Shortage, Slot,
    TenantId,
};

use crate::catalogue::PlanCatalogue;
use crate::effort::Effort;
use crate::form::{Graph, PassCost};
use crate::ledger::Ledger;
use crate::memory_rate::MemoryUse;
use crate::nt_key::NtKey;
use crate::order::Order;
use crate::request::PlanRequest;
use crate::reservation::{NtCost, Reservation, TableRows};
use crate::stay::{PacketOccupancy, Transit};
use crate::work::{PathDemand, Work, port_max, reads_payload};

pub(crate) const fn kbps(bandwidth: Bandwidth) -> u64 {
    bandwidth.get() / Bandwidth::GRANULARITY.get()
}

pub(crate) const fn from_kbps(kbps: u64) -> Bandwidth {
    Bandwidth::from_bps(kbps.saturating_mul(Bandwidth::GRANULARITY.get()))
}

/// An NT that the tenant may not use. The text is the same whether it exists or not.
pub(crate) fn unknown_nt(node: &Node) -> Shortage {
    Shortage {
        resource: Resource::Bitstreams,
        required: 1,
        available: 0,
        nodes: vec![node.id.clone()],
        detail: format!("NT type {} does not exist or is not visible to the tenant", node.nt),
    }
}

/// Needs of all nodes of one NT together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NtTotal {
    pub(crate) key: NtKey,
    pub(crate) kbps: u64,
    /// The first of these nodes, as an index.
    pub(crate) first: usize,
}

/// A request with the values that planning needs often.
#[derive(Debug, Clone)]
pub(crate) struct Job<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) catalogue: &'a PlanCatalogue,
    pub(crate) request: &'a PlanRequest<'a>,
    /// The NT of each node.
    pub(crate) keys: SmallVec<[NtKey; 8]>,
    /// The bits of all keys.
    pub(crate) mask: u64,
    pub(crate) kbps: u64,
    /// Cost of its packets.
    pub(crate) work: Work,
    /// Cost of one instance of each node's NT.
    pub(crate) nts: SmallVec<[NtCost; 8]>,
    /// Needs of all nodes of an NT together, each NT once.
    pub(crate) totals: SmallVec<[NtTotal; 8]>,
    /// Bandwidth of the DAG that the port of an otherwise unused region passes, in kbit/s.
    port_kbps_max: u64,
    /// On-board memory that it adds to what its tenant has on the card, in bytes, whole pages.
    pub(crate) memory: u64,
    /// Bytes per second that its NTs move in that memory.
    pub(crate) memory_rate: u64,
    /// Order in which the terms of a score are compared.
    pub(crate) order: Order,
    /// Work that may still be done for it.
    pub(crate) effort: &'a Effort,
    /// Rows left in the tables, including those that the DAG holds.
    pub(crate) rows_left: TableRows,
    pub(crate) held: Option<&'a Reservation>,
}

impl<'a> Job<'a> {
    /// Rejects NTs that the tenant may not use; the error does not tell whether they exist.
    pub(crate) fn new(
        ledger: &'a Ledger,
        catalogue: &'a PlanCatalogue,
        request: &'a PlanRequest<'a>,
        effort: &'a Effort,
    ) -> Result<Self, Infeasible> {
        let tenant = &request.name.tenant;
        let (mut keys, mut nts) = (SmallVec::new(), SmallVec::new());
        let mut payload = false;
        let mut unknown = Vec::new();
        for node in request.dag.nodes() {
            match catalogue.usable_nt(&node.nt, tenant) {
                Some(known) => {
                    keys.push(known.key);
                    nts.push(NtCost::of(&known.nt));
                    payload |= reads_payload(&known.nt);
                }
                None => unknown.push(unknown_nt(node)),
            }
        }
        if !unknown.is_empty() {
            return Err(Infeasible { shortages: unknown });
        }
        let held = ledger.held(request.name);
        let own = held.map(Reservation::rows).unwrap_or_default();
        let profile = ledger.profile();
        let kbps = kbps(request.dag.bandwidth());
        let work = Work::with(profile, &request.dag.spec().packet_sizes, payload);
        let spaces = keys.iter().copied().zip(nts.iter().map(|nt: &NtCost| nt.memory));
        let memory = ledger.memory_cost(tenant, spaces);
        let moves = nts.iter().map(|nt| nt.memory_traffic);
        let memory_use = moves.fold(MemoryUse::default(), MemoryUse::plus);
        Ok(Self {
            ledger,
            catalogue,
            request,
            mask: keys.iter().fold(0, |mask, key: &NtKey| mask | key.bit()),
            totals: totals(&keys, kbps),
            keys,
            kbps,
            work,
            nts,
            port_kbps_max: work.port_kbps(port_max(profile)),
            memory: memory.get(),
            memory_rate: work.memory_rate(request.dag.bandwidth(), memory_use),
            order: ledger.order(),
            effort,
            rows_left: ledger.rows_residual().zip(own, u32::saturating_add),
            held,
        })
    }

    /// The same, where of an NT only bandwidth is counted.
    pub(crate) fn bits_only(&self) -> Self {
        Self { work: self.work.bits_only(), ..self.nts_only(self.effort) }
    }

    /// The same, where only what NTs serve is counted.
    pub(crate) fn nts_only(&self, effort: &'a Effort) -> Self {
        let work = self.work.nts_only();
        let port_kbps_max = work.port_kbps(port_max(self.ledger.profile()));
        Self { work, port_kbps_max, effort, ..self.clone() }
    }

    pub(crate) const fn tenant(&self) -> &'a TenantId {
        &self.request.name.tenant
    }

    pub(crate) const fn dag(&self) -> &'a Dag {
        self.request.dag
    }

    /// Bandwidth that the DAG itself holds on an NT instance.
    pub(crate) fn own(&self, region: RegionId, slot: Slot) -> Bandwidth {
        let Some(held) = self.held else { return Bandwidth::ZERO };
        held.shares
            .binary_search_by_key(&(region, slot), |share| (share.region, share.slot))
            .map_or(Bandwidth::ZERO, |at| held.shares[at].bandwidth)
    }

    /// Packets per second that the DAG itself holds of an NT instance.
    pub(crate) fn own_packets(&self, region: RegionId, slot: Slot) -> u64 {
        self.held.map_or(0, |held| held.packets(region, slot))
    }

    /// Rest of an NT instance for the DAG, in kbit/s of it: of its bandwidth, and of the packets that it takes.
    pub(crate) fn nt_kbps(&self, region: RegionId, slot: Slot) -> u64 {
        let bandwidth = self.ledger.residual(region, slot) + self.own(region, slot);
        let packets = self.ledger.packets_left(region, slot, self.own_packets(region, slot));
        self.work.nt_kbps(kbps(bandwidth), packets)
    }

    /// Rest of a region's port for the DAG, in kbit/s of it.
    pub(crate) fn port_kbps(&self, region: RegionId) -> u64 {
        self.work.port_kbps(self.ledger.port_left(region, self.own_port(region)))
    }

    /// The same of a region that the plan loads.
    pub(crate) const fn port_kbps_max(&self) -> u64 {
        self.port_kbps_max
    }

    /// Part of a region's port that the DAG itself holds, in cycles per second.
    pub(crate) fn own_port(&self, region: RegionId) -> u64 {
        self.held.map_or(0, |held| held.port(region))
    }

    /// The same of the credits of a slot, in thousandths of one.
    pub(crate) fn own_credits(&self, region: RegionId, slot: Slot) -> u64 {
        self.held.map_or(0, |held| held.credits(region, slot))
    }

    /// Time that its packets hold credits on their way through these NTs, which are of its nodes, in cycles.
    pub(crate) fn round_trip(&self, keys: &[NtKey]) -> u64 {
        if !self.work.counts_packets() {
            return 0;
        }
        let node = |key: &NtKey| self.keys.iter().position(|other| other == key);
        let ways = keys.iter().filter_map(|key| Some(self.nts[node(key)?].way));
        self.work.round_trip(PathDemand::through(ways))
    }

    pub(crate) fn own_ingress(&self) -> Bandwidth {
        self.held.map(Reservation::ingress).unwrap_or_default()
    }

    pub(crate) fn own_egress(&self) -> Bandwidth {
        self.held.map(Reservation::egress).unwrap_or_default()
    }

    pub(crate) fn previous_uses(&self, region: RegionId) -> bool {
        self.request.previous.is_some_and(|mapping| mapping.uses(region))
    }

    pub(crate) fn node_ids(&self, nodes: &[u8]) -> Vec<NodeId> {
        nodes.iter().map(|n| self.dag().nodes()[usize::from(*n)].id.clone()).collect()
    }

    pub(crate) fn nt_ids(&self, nodes: &[u8]) -> Vec<NtTypeId> {
        nodes.iter().map(|n| self.dag().nodes()[usize::from(*n)].nt.clone()).collect()
    }

    /// Latency of a node's NT, in cycles.
    pub(crate) fn latency(&self, node: usize) -> u64 {
        self.nts[node].way.latency
    }

    pub(crate) fn graph(&self) -> Graph {
        Graph::new(self.dag(), |node| Cycles::new(self.latency(node)))
    }

    pub(crate) const fn cost(&self) -> PassCost {
        PassCost::of(self.ledger.profile())
    }
}

/// Needs of all nodes of each NT together.
fn totals(keys: &[NtKey], kbps: u64) -> SmallVec<[NtTotal; 8]> {
    let mut totals: SmallVec<[NtTotal; 8]> = SmallVec::new();
    for (first, key) in keys.iter().enumerate() {
        match totals.iter_mut().find(|total| total.key == *key) {
            Some(total) => total.kbps = total.kbps.saturating_add(kbps),
            None => totals.push(NtTotal { key: *key, kbps, first }),
        }
    }
    totals
}

impl Job<'_> {
    /// Whether packet store, its reads, synchronisation buffer and look-ups suffice for what the DAG takes of them.
    pub(crate) fn has_room(&self, stay: PacketOccupancy) -> bool {
        stay.fits(self.stay_left())
    }

    /// Rest of them, including what the DAG holds.
    pub(crate) fn stay_left(&self) -> PacketOccupancy {
        let held = self.held.map_or_else(PacketOccupancy::default, |held| PacketOccupancy {
            store: held.store,
            reads: held.reads,
            sync: held.sync,
            lookups: held.lookups,
        });
        PacketOccupancy {
            store: self.ledger.store_left(held.store),
            reads: self.ledger.reads_left(held.reads),
            sync: self.ledger.sync_left(held.sync),
            lookups: self.ledger.lookups_left(held.lookups),
        }
    }

    /// Part of them that the DAG takes if its packets are this long on the card.
    pub(crate) fn stay(&self, transit: Transit) -> PacketOccupancy {
        self.work.stay(self.dag().bandwidth(), transit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_whole_kilobits_rounded_down() {
        let of = |bps| kbps(Bandwidth::from_bps(bps));
        assert_eq!([of(0), of(999), of(1_000), of(1_999)], [0, 0, 1, 1]);
        assert_eq!(from_kbps(7), Bandwidth::from_bps(7_000));
        assert_eq!(from_kbps(u64::MAX), Bandwidth::from_bps(u64::MAX), "not around");
    }
}

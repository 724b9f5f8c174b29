//! Rest of each resource that a DAG holds on its card.

use snic_domain::{DagName, Headroom, RegionId, Resource, Slot};

use crate::Ledger;

/// A DAG's part of one resource at one place.
#[derive(Debug, Clone, Copy)]
struct ResourcePart {
    place: Option<(RegionId, Option<Slot>)>,
    held: u64,
    left: u64,
}

impl ResourcePart {
    /// Whether less is left here than there, in proportion to what the DAG holds.
    fn is_tighter_than(&self, other: &Self) -> bool {
        u128::from(self.left) * u128::from(other.held)
            < u128::from(other.left) * u128::from(self.held)
    }
}

/// The tightest of the places where the DAG holds anything; of equals the first.
fn tightest(parts: impl Iterator<Item = ResourcePart>) -> Option<ResourcePart> {
    let held = parts.filter(|part| part.held > 0);
    held.reduce(|best, part| if part.is_tighter_than(&best) { part } else { best })
}

impl Ledger {
    /// Rest of each resource that a DAG holds, where it is tightest in proportion to what it holds;
    /// resources that it does not hold are left out. Time O(shares of the DAG + users of its regions).
    pub fn headroom(&self, dag: &DagName) -> Vec<Headroom> {
        let Some(own) = self.held(dag) else { return Vec::new() };
        let card = |held: u64, left: u64| [ResourcePart { place: None, held, left }].into_iter();
        let slot = |region, slot, held, left| {
            let place = Some((region, Some(slot)));
            ResourcePart { place, held, left }
        };
        let nts = own.shares.iter().map(|share| {
            let left = self.residual(share.region, share.slot).get();
            slot(share.region, share.slot, share.bandwidth.get(), left)
        });
        let packets = own.shares.iter().filter_map(|share| {
            let left = self.packets_left(share.region, share.slot, 0);
            let is_limited = left < u64::MAX;
            is_limited.then(|| slot(share.region, share.slot, share.packets, left))
        });
        let ports = own.ports.iter().map(|port| {
            let left = self.port_left(port.region, 0);
            ResourcePart { place: Some((port.region, None)), held: port.cycles, left }
        });
        let credits = own.shares.iter().map(|share| {
            let left = self.credits_left(share.region, share.slot, 0);
            slot(share.region, share.slot, share.credits, left)
        });
        let counted = |left: &u64| *left < u64::MAX;
        let reads = Some(self.reads_left(0)).filter(counted);
        let reads = reads.map(|left| card(own.store_reads(), left));
        let lookups = Some(self.lookups_left(0)).filter(counted);
        let lookups = lookups.map(|left| card(own.lookups(), left));
        let memory_rate = Some(self.memory_rate_left(0)).filter(counted);
        let memory_rate = memory_rate.map(|left| card(own.memory_rate(), left));
        let rows = own.rows().beside(self.rows_residual()).into_iter();
        let rows = rows.map(|(_, held, left)| ResourcePart {
            place: None,
            held: held.into(),
            left: left.into(),
        });
        let (ingress, egress) = (self.ingress_residual().get(), self.egress_residual().get());
        let found = [
            (Resource::IngressBandwidth, tightest(card(own.ingress().get(), ingress))),
            (Resource::EgressBandwidth, tightest(card(own.egress().get(), egress))),
            (Resource::NtBandwidth, tightest(nts)),
            (Resource::NtPackets, tightest(packets)),
            (Resource::RegionPort, tightest(ports)),
            (Resource::Credits, tightest(credits)),
            (Resource::PacketStore, tightest(card(own.store(), self.store_left(0)))),
            (Resource::StoreReads, tightest(reads.into_iter().flatten())),
            (Resource::SyncEntries, tightest(card(own.sync_entries(), self.sync_left(0)))),
            (
                Resource::Memory,
                tightest(card(self.memory_of(own).get(), self.memory_residual().get())),
            ),
            (Resource::MemoryBandwidth, tightest(memory_rate.into_iter().flatten())),
            (Resource::SchedulerLookups, tightest(lookups.into_iter().flatten())),
            (Resource::TableRows, tightest(rows)),
        ];
        let entry = |(resource, part): (Resource, Option<ResourcePart>)| {
            let ResourcePart { place, held, left } = part?;
            let nt = place
                .and_then(|(region, slot)| self.content(region)?.nts.get(slot?.index()).cloned());
            let region = place.map(|(region, _)| region);
            let of_others =
                region.is_some_and(|region| self.users(region).any(|u| u.tenant != dag.tenant));
            Some(Headroom { resource, region, nt, held, available: left, of_others })
        };
        let processors = self.processor_headroom(own).into_iter().flatten();
        let processors = processors.map(|(resource, held, left)| {
            let part = ResourcePart { place: None, held, left };
            (resource, Some(part))
        });
        found.into_iter().chain(processors).filter_map(entry).collect()
    }
}

//! Rest of what packets take of a card besides bits: what is left for promises, and whether a reservation fits it.

use snic_domain::{CardProfile, RegionId, Resource, Slot};

use super::Ledger;
use crate::refusal::Overbooked;
use crate::{Reservation, work};

/// A resource of the card, what a reservation takes of it, and what there is.
type Total = (Resource, fn(&Reservation) -> u64, u64);

/// Rest of a maximum for a DAG that holds `own` of it. If the resource is overbooked, the
/// DAG may keep what it holds.
fn left(max: u64, taken_by_others: u64, own: u64) -> u64 {
    max.saturating_sub(taken_by_others).max(own)
}

impl Ledger {
    /// Takes over from a profile of the same card what its memory moves, how many beats its packet store gives and how many look-ups
    /// its scheduler makes. What was promised before stays, even where it is more; nothing is added to it then.
    pub fn set_limits(&mut self, profile: &CardProfile) {
        let limits = |of: &CardProfile| {
            let each_cycle = (of.scheduler_lookups_per_cycle, of.packet_store_beats_per_cycle);
            (of.memory_bytes_per_second, each_cycle)
        };
        if limits(&self.profile) == limits(profile) {
            return;
        }
        let own = &mut self.profile;
        own.memory_bytes_per_second = profile.memory_bytes_per_second;
        own.scheduler_lookups_per_cycle = profile.scheduler_lookups_per_cycle;
        own.packet_store_beats_per_cycle = profile.packet_store_beats_per_cycle;
        self.restored.extend(self.held.keys().map(|name| name.as_ref().clone()));
        self.changes.increment();
    }

    /// Packets per second of the NT in a slot that `own`, a reservation of the ledger, may use; `u64::MAX` where the NT
    /// has no such limit.
    pub(crate) fn packets_left(&self, region: RegionId, slot: Slot, own: u64) -> u64 {
        let entry = self.regions.get(region.index());
        let max = entry.and_then(|entry| entry.chain_slot(slot)).map(|slot| slot.packets_max);
        let taken = entry.and_then(|entry| entry.slots.get(slot.index())).map_or(0, |s| s.packets);
        match max {
            None | Some(u64::MAX) => u64::MAX,
            Some(max) => left(max, taken.saturating_sub(own), own),
        }
    }

    /// Part of a region's port that `own`, a reservation of the ledger, may use, in cycles per second.
    pub(crate) fn port_left(&self, region: RegionId, own: u64) -> u64 {
        let taken = self.regions.get(region.index()).map_or(0, |entry| entry.port);
        left(work::port_max(&self.profile), taken.saturating_sub(own), own)
    }

    /// The same of the credits of a slot, in thousandths of one.
    pub(crate) fn credits_left(&self, region: RegionId, slot: Slot, own: u64) -> u64 {
        let entry = self.regions.get(region.index());
        let taken = entry.and_then(|entry| entry.slots.get(slot.index())).map_or(0, |s| s.credits);
        left(work::credits_max(&self.profile), taken.saturating_sub(own), own)
    }

    /// Part of the packet store that `own`, a reservation of the ledger, may use, in bytes.
    pub(crate) fn store_left(&self, own: u64) -> u64 {
        left(work::store_max(&self.profile), self.totals.store.saturating_sub(own), own)
    }

    /// The same of its reads, in beats per second; `u64::MAX` where they are not counted.
    pub(crate) fn reads_left(&self, own: u64) -> u64 {
        match work::reads_max(&self.profile) {
            u64::MAX => u64::MAX,
            max => left(max, self.totals.reads.saturating_sub(own), own),
        }
    }

    /// The same of the synchronisation buffer, in thousandths of an entry.
    pub(crate) fn sync_left(&self, own: u64) -> u64 {
        left(work::sync_max(&self.profile), self.totals.sync.saturating_sub(own), own)
    }

    /// The same of the scheduler's look-ups, in look-ups per second; `u64::MAX` where they are not counted.
    pub(crate) fn lookups_left(&self, own: u64) -> u64 {
        match work::lookups_max(&self.profile) {
            u64::MAX => u64::MAX,
            max => left(max, self.totals.lookups.saturating_sub(own), own),
        }
    }

    /// The same of the on-board memory's bandwidth, in bytes per second; `u64::MAX` where it is not counted.
    pub(crate) fn memory_rate_left(&self, own: u64) -> u64 {
        match work::memory_rate_max(&self.profile) {
            u64::MAX => u64::MAX,
            max => left(max, self.totals.memory_rate.saturating_sub(own), own),
        }
    }

    /// Checks that a reservation fits packets of NTs, ports and credits beside all others; `own` may be kept.
    pub(super) fn admit_passes(
        &self,
        reservation: &Reservation,
        own: Option<&Reservation>,
    ) -> Result<(), Overbooked> {
        let short = |resource, (region, slot), required, available| {
            let region = Some(region);
            let short = Overbooked { resource, region, slot, required, available };
            if required > available { Err(short) } else { Ok(()) }
        };
        for port in &reservation.ports {
            let own = own.map_or(0, |own| own.port(port.region));
            let left = self.port_left(port.region, 0).max(own);
            short(Resource::RegionPort, (port.region, None), port.cycles, left)?;
        }
        for share in &reservation.shares {
            let place = (share.region, Some(share.slot));
            let kept = own.map_or(0, |own| own.packets(share.region, share.slot));
            let left = self.packets_left(share.region, share.slot, 0).max(kept);
            short(Resource::NtPackets, place, share.packets, left)?;
            let own = own.map_or(0, |own| own.credits(share.region, share.slot));
            let left = self.credits_left(share.region, share.slot, 0).max(own);
            short(Resource::Credits, place, share.credits, left)?;
        }
        Ok(())
    }

    /// The same for what packets take of the whole card, whichever regions they pass.
    pub(super) fn admit_totals(
        &self,
        reservation: &Reservation,
        own: Option<&Reservation>,
    ) -> Result<(), Overbooked> {
        let kept = |of: fn(&Reservation) -> u64| own.map_or(0, of);
        let totals: [Total; 5] = [
            (Resource::PacketStore, Reservation::store, self.store_left(0)),
            (Resource::StoreReads, Reservation::store_reads, self.reads_left(0)),
            (Resource::SyncEntries, Reservation::sync_entries, self.sync_left(0)),
            (Resource::SchedulerLookups, Reservation::lookups, self.lookups_left(0)),
            (Resource::MemoryBandwidth, Reservation::memory_rate, self.memory_rate_left(0)),
        ];
        for (resource, of, left) in totals {
            let (required, available) = (of(reservation), left.max(kept(of)));
            if required > available {
                return Err(Overbooked { resource, region: None, slot: None, required, available });
            }
        }
        Ok(())
    }
}

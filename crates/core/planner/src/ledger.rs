//! The ledger of one card: the content of each region, and the reservations of all DAGs.
//!
//! It is the only mutable state of planning. [`Ledger::hold`] enforces that the reservations of a
//! resource never exceed its maximum; a correct plan never violates this. The exception are
//! reservations older than the rule that counts a resource: [`Ledger::restore`] accepts them, and
//! nothing is added where they exceed the maximum. Memory: O(regions × slots + shares of all DAGs).
//! Holding and releasing take O(shares of the DAG × log DAGs), reading a residual O(1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use snic_domain::limits::{CHAIN_SLOTS_MAX, PAGE_ROWS, PAGE_SIZE, REGIONS_MAX};
use snic_domain::{
    Bandwidth, Bitstream, ByteSize, CardId, CardProfile, DagName, RegionId, Resource, Slot,
    TenantId,
};

use crate::catalogue::{ChainSlot, PhysicalChain};
use crate::changes::ChangeCounter;
use crate::memory::Memory;
use crate::nt_key::NtKey;
use crate::processor_use::ProcessorUse;
use crate::refusal::{ContentMismatch, Overbooked};
use crate::region::{RegionCondition, RegionEntry};
use crate::reservation::SlotShare;
use crate::totals::Totals;
use crate::work;
use crate::{Objective, PlanCatalogue, Reservation, TableRows};

mod residuals;

/// The ledger of one card: the content of each region, and the reservations of all DAGs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    card: CardId,
    profile: CardProfile,
    rows_max: TableRows,
    /// Objective that plans on this card save first.
    objective: Objective,
    regions: Vec<RegionEntry>,
    totals: Totals,
    memory: Memory,
    held: BTreeMap<Arc<DagName>, Reservation>,
    /// DAGs whose reservations were restored and did not all fit the maxima at the time.
    restored: BTreeSet<DagName>,
    changes: ChangeCounter,
}

impl Ledger {
    /// The ledger of an empty card: every region usable, no content, no reservations. Regions beyond
    /// [`REGIONS_MAX`] are ignored, since the card's tables cannot address them.
    pub fn new(card: CardId, profile: CardProfile) -> Self {
        Self::with_rows(card, profile, TableRows::CARD)
    }

    /// The same with tables of another size.
    pub fn with_rows(card: CardId, profile: CardProfile, rows_max: TableRows) -> Self {
        let regions = vec![RegionEntry::default(); profile.regions.len().min(REGIONS_MAX)];
        let (totals, held, changes) =
            (Totals::default(), BTreeMap::new(), ChangeCounter::default());
        let (memory, restored) = (Memory::default(), BTreeSet::new());
        let objective = Objective::default();
        Self {
            card,
            profile,
            rows_max,
            objective,
            regions,
            totals,
            memory,
            held,
            restored,
            changes,
        }
    }

    /// Says what plans on this card save first.
    pub fn set_objective(&mut self, objective: Objective) {
        if self.objective != objective {
            self.objective = objective;
            self.changes.increment();
        }
    }

    /// Objective that plans on this card save first.
    pub const fn objective(&self) -> Objective {
        self.objective
    }

    pub const fn card(&self) -> &CardId {
        &self.card
    }

    /// The profile of the card.
    pub const fn profile(&self) -> &CardProfile {
        &self.profile
    }

    /// Number of changes so far. While it and the catalogue are the same, so is the result of every plan.
    pub const fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Sets the desired content of a region. It must fit the reservations: in every reserved slot the same
    /// NT with at least the reserved bandwidth.
    ///
    /// # Errors
    ///
    /// [`ContentMismatch`] if the card has no such region, or if a reservation needs an NT, its memory or a
    /// bandwidth that the new content does not have. Nothing has changed then.
    pub fn set_content(
        &mut self,
        region: RegionId,
        content: Option<&Bitstream>,
        catalogue: &PlanCatalogue,
    ) -> Result<(), ContentMismatch> {
        let regions = self.regions.len();
        let Some(entry) = self.regions.get_mut(region.index()) else {
            return Err(ContentMismatch::NoSuchRegion { region, regions });
        };
        if let Some(of) = content.filter(|bitstream| !bitstream.fits_region(region)) {
            return Err(ContentMismatch::OtherRegion { region, bitstream: of.id.clone() });
        }
        let chain = content.map(|bitstream| catalogue.chain(bitstream));
        let new = |slot: usize| chain.as_ref().and_then(|chain| chain.slots.get(slot));
        let misfit = (0u8..).zip(&entry.slots).find(|(slot, used)| {
            let old = entry.chain_slot(Slot(*slot));
            used.dags > 0
                && !new(usize::from(*slot)).zip(old).is_some_and(|(new, old)| {
                    new.key == old.key
                        && new.memory == old.memory
                        && new.bandwidth_max >= used.bandwidth
                        && new.packets_max >= used.packets
                })
        });
        if let Some((slot, _)) = misfit {
            let bitstream = content.map(|bitstream| bitstream.id.clone());
            let dags = entry.users.len();
            return Err(ContentMismatch::InUse { region, bitstream, slot: Slot(slot), dags });
        }
        entry.content = chain;
        self.changes.increment();
        Ok(())
    }

    /// The desired content of a region.
    pub fn content(&self, region: RegionId) -> Option<&Bitstream> {
        self.chain(region).map(|chain| &chain.bitstream)
    }

    /// Sets whether new chains may be placed in a region. A region that the card does not have is ignored.
    pub fn set_condition(&mut self, region: RegionId, condition: RegionCondition) {
        if let Some(entry) = self.regions.get_mut(region.index()) {
            entry.condition = condition;
            self.changes.increment();
        }
    }

    /// Whether new chains may be placed in a region; `Unknown` if the card does not have it.
    pub fn condition(&self, region: RegionId) -> RegionCondition {
        self.regions.get(region.index()).map_or(RegionCondition::Unknown, |entry| entry.condition)
    }

    /// Sets whether a region must keep its content: it may be shared but not reloaded. A region that the
    /// card does not have is ignored.
    pub fn set_kept(&mut self, region: RegionId, kept: bool) {
        if let Some(entry) = self.regions.get_mut(region.index())
            && std::mem::replace(&mut entry.kept, kept) != kept
        {
            self.changes.increment();
        }
    }

    /// Whether a region must keep its content.
    pub fn is_kept(&self, region: RegionId) -> bool {
        self.regions.get(region.index()).is_some_and(|entry| entry.kept)
    }

    /// Whether a region may be reloaded: no DAG uses it, and it need not keep its content.
    pub fn is_replaceable(&self, region: RegionId) -> bool {
        self.regions.get(region.index()).is_none_or(RegionEntry::is_replaceable)
    }

    /// Reserves for `dag`, in place of what it held before. No sum ever exceeds its maximum.
    ///
    /// # Errors
    ///
    /// [`Overbooked`] with the first resource that is short. Nothing has changed then: `dag` still holds
    /// what it held before.
    pub fn hold(&mut self, dag: &DagName, reservation: Reservation) -> Result<(), Overbooked> {
        self.changes.increment();
        let before = self.take(dag);
        let own = before.as_ref().map(|(_, old)| old).filter(|_| self.restored.contains(dag));
        if let Err(overbooked) = self.admit(&dag.tenant, &reservation, own) {
            if let Some((name, old)) = before {
                self.put(name, old);
            }
            return Err(overbooked);
        }
        if own.is_some() && self.admit(&dag.tenant, &reservation, None).is_ok() {
            self.restored.remove(dag);
        }
        let name = before.map_or_else(|| Arc::new(dag.clone()), |(name, _)| name);
        self.put(name, reservation);
        Ok(())
    }

    /// Restores a reservation that was made earlier, even where packets of NTs, ports, credits, ingress, egress, packet store,
    /// synchronisation buffer, look-ups or bandwidth of memory are short of it: it may be older than the rule that counts them. Returns whether
    /// some maximum is exceeded then.
    ///
    /// # Errors
    ///
    /// [`Overbooked`] where an NT's bandwidth, memory or table rows are short. Nothing has changed then.
    pub fn restore(&mut self, dag: &DagName, reservation: Reservation) -> Result<bool, Overbooked> {
        let fits = self.hold(dag, reservation.clone());
        match fits {
            Err(short) if !short.resource.is_counted_late() => return Err(short),
            Err(_) => {}
            Ok(()) => {
                // A later restore may overbook what both use.
                self.restored.insert(dag.clone());
                return Ok(false);
            }
        }
        let before = self.take(dag);
        // As its own, so that it may keep what it holds of resources that are counted late.
        if let Err(short) = self.admit(&dag.tenant, &reservation, Some(&reservation)) {
            if let Some((name, old)) = before {
                self.put(name, old);
            }
            return Err(short);
        }
        self.restored.insert(dag.clone());
        self.put(Arc::new(dag.clone()), reservation);
        Ok(true)
    }

    /// Whether reservations exceed the port, the credits or the packets of NTs of a region, because some are older than
    /// the rule that counts these.
    pub fn is_overcommitted(&self, region: RegionId) -> bool {
        self.regions.get(region.index()).is_some_and(|entry| {
            let credits = work::credits_max(&self.profile);
            let nts = entry.content.iter().flat_map(|chain| &chain.slots);
            entry.port > work::port_max(&self.profile)
                || entry.slots.iter().any(|slot| slot.credits > credits)
                || entry.slots.iter().zip(nts).any(|(slot, nt)| slot.packets > nt.packets_max)
        })
    }

    /// Releases the reservation of `dag` and returns it.
    pub fn release(&mut self, dag: &DagName) -> Option<Reservation> {
        self.changes.increment();
        self.restored.remove(dag);
        self.take(dag).map(|(_, reservation)| reservation)
    }

    /// The reservation of `dag`.
    pub fn held(&self, dag: &DagName) -> Option<&Reservation> {
        self.held.get(dag)
    }

    /// All reservations, by DAG.
    pub fn reservations(&self) -> impl Iterator<Item = (&DagName, &Reservation)> {
        self.held.iter().map(|(name, reservation)| (name.as_ref(), reservation))
    }

    /// The DAGs with a reservation in a region, by name.
    pub fn users(&self, region: RegionId) -> impl Iterator<Item = &DagName> {
        self.regions
            .get(region.index())
            .into_iter()
            .flat_map(|entry| &entry.users)
            .map(AsRef::as_ref)
    }

    /// Whether no DAG has a reservation in a region.
    pub fn is_unused(&self, region: RegionId) -> bool {
        self.regions.get(region.index()).is_none_or(|entry| entry.users.is_empty())
    }

    /// Bandwidth reserved on the NT in a slot.
    pub fn reserved(&self, region: RegionId, slot: Slot) -> Bandwidth {
        self.regions
            .get(region.index())
            .and_then(|entry| entry.slots.get(slot.index()))
            .map_or(Bandwidth::ZERO, |slot| slot.bandwidth)
    }

    /// Bandwidth left on the NT in a slot; zero if there is none.
    pub fn residual(&self, region: RegionId, slot: Slot) -> Bandwidth {
        let max = self.regions.get(region.index()).map(|entry| entry.bandwidth_max(slot));
        max.unwrap_or_default().saturating_sub(self.reserved(region, slot))
    }

    /// Cycles per second that are promised of the port of a region.
    pub fn port_reserved(&self, region: RegionId) -> u64 {
        self.regions.get(region.index()).map_or(0, |entry| entry.port)
    }

    /// Credits to be programmed for the NTs of a region: what the reservations in it need, with
    /// room for packets that do not arrive evenly. Slots without an NT have none.
    pub fn credits(&self, region: RegionId) -> [u8; CHAIN_SLOTS_MAX] {
        let mut credits = [0; CHAIN_SLOTS_MAX];
        let Some(entry) = self.regions.get(region.index()) else { return credits };
        let nts = entry.content.iter().flat_map(|chain| &chain.slots);
        for ((credits, taken), nt) in credits.iter_mut().zip(&entry.slots).zip(nts) {
            *credits = work::credits_of(&self.profile, nt, taken.credits);
        }
        credits
    }

    /// Promised part of the ingress.
    pub const fn ingress_reserved(&self) -> Bandwidth {
        self.totals.ingress
    }

    /// Bandwidth left at the ingress for promises.
    pub fn ingress_residual(&self) -> Bandwidth {
        work::line_max(&self.profile, self.profile.ingress).saturating_sub(self.totals.ingress)
    }

    /// Bandwidth left at the egress for promises.
    pub fn egress_residual(&self) -> Bandwidth {
        work::line_max(&self.profile, self.profile.egress).saturating_sub(self.totals.egress)
    }

    /// Rest of the on-board memory: of the card's whole pages, or of the page table's rows
    /// where those are fewer.
    pub fn memory_residual(&self) -> ByteSize {
        self.memory_max().saturating_sub(self.memory.total())
    }

    /// The on-board memory that is allocated for a tenant: each NT once, in whole pages. Time O(its NTs).
    pub fn allocated(&self, tenant: &TenantId) -> ByteSize {
        self.memory.of(tenant)
    }

    /// Rows left in the tables.
    pub fn rows_residual(&self) -> TableRows {
        self.rows_max.zip(self.totals.rows, u32::saturating_sub)
    }

    /// Processors that programs hold on the card.
    pub(crate) const fn processors_used(&self) -> ProcessorUse {
        self.totals.programs
    }

    /// Rows that the card has.
    pub(crate) const fn rows_max(&self) -> TableRows {
        self.rows_max
    }

    /// Promised look-ups of the scheduler, in look-ups per second.
    pub(crate) const fn lookups_taken(&self) -> u64 {
        self.totals.lookups
    }

    /// Promised reads of the packet store, in beats per second.
    pub(crate) const fn reads_taken(&self) -> u64 {
        self.totals.reads
    }

    /// Promised part of the ports of all regions together, in cycles per second.
    pub(crate) fn ports_taken(&self) -> u64 {
        self.regions.iter().fold(0, |sum, entry| sum.saturating_add(entry.port))
    }

    /// Checks all invariants by recomputation: sums, users and tenants follow from the reservations, and no
    /// sum exceeds its maximum. Time O(shares of all DAGs × log DAGs).
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold, as text. This is a bug, never a consequence of input.
    pub fn check(&self) -> Result<(), String> {
        let mut again = Self {
            regions: vec![RegionEntry::default(); self.regions.len()],
            totals: Totals::default(),
            memory: Memory::default(),
            held: BTreeMap::new(),
            ..self.clone()
        };
        for (entry, old) in again.regions.iter_mut().zip(&self.regions) {
            entry.content.clone_from(&old.content);
            (entry.condition, entry.kept) = (old.condition, old.kept);
        }
        let (restored, admitted): (Vec<_>, Vec<_>) =
            self.held.iter().partition(|(name, _)| self.restored.contains(name.as_ref()));
        for (name, reservation) in restored {
            again.put(Arc::clone(name), reservation.clone());
        }
        for (name, reservation) in admitted {
            again
                .admit(&name.tenant, reservation, None)
                .map_err(|overbooked| format!("{name}: {overbooked}"))?;
            again.put(Arc::clone(name), reservation.clone());
        }
        for (region, (old, new)) in self.regions.iter().zip(&again.regions).enumerate() {
            if old != new {
                return Err(format!(
                    "region {region} is recorded as {old:?}, but its reservations give {new:?}"
                ));
            }
        }
        if self.totals != again.totals {
            return Err(format!("totals are {:?}, should be {:?}", self.totals, again.totals));
        }
        if self.memory != again.memory {
            return Err(format!("memory is {:?}, should be {:?}", self.memory, again.memory));
        }
        Ok(())
    }

    /// All regions, by id.
    pub(crate) fn entries(&self) -> &[RegionEntry] {
        &self.regions
    }

    pub(crate) fn region_count(&self) -> usize {
        self.regions.len()
    }

    pub(crate) fn chain(&self, region: RegionId) -> Option<&PhysicalChain> {
        self.regions.get(region.index()).and_then(RegionEntry::chain)
    }

    /// Memory that `nts` add to that of a tenant, each NT once.
    pub(crate) fn memory_cost(
        &self,
        tenant: &TenantId,
        nts: impl Iterator<Item = (NtKey, ByteSize)>,
    ) -> ByteSize {
        let new: BTreeMap<NtKey, ByteSize> =
            nts.filter(|(nt, _)| !self.memory.has(tenant, *nt)).collect();
        new.into_values().sum()
    }

    /// Whether a tenant's memory for an NT is allocated already.
    pub(crate) fn has_memory(&self, tenant: &TenantId, nt: NtKey) -> bool {
        self.memory.has(tenant, nt)
    }

    /// The NTs of a reservation's shares with the memory of each, in whole pages.
    fn nts_of(&self, reservation: &Reservation) -> impl Iterator<Item = (NtKey, ByteSize)> {
        let slot = move |share: &SlotShare| -> Option<&ChainSlot> {
            self.regions.get(share.region.index())?.chain_slot(share.slot)
        };
        reservation.shares.iter().filter_map(slot).map(|nt| (nt.key, nt.memory))
    }

    /// The memory that a reservation uses, each NT once: DAGs of its tenant may use it, too.
    pub(crate) fn memory_of(&self, reservation: &Reservation) -> ByteSize {
        self.nts_of(reservation).collect::<BTreeMap<_, _>>().into_values().sum()
    }

    fn memory_max(&self) -> ByteSize {
        let pages = (self.profile.memory.get() / PAGE_SIZE.get()).min(PAGE_ROWS as u64);
        ByteSize::from_bytes(pages * PAGE_SIZE.get())
    }

    /// Checks that `reservation` fits beside all others; of what was counted late, `own` may be kept.
    fn admit(
        &self,
        tenant: &TenantId,
        reservation: &Reservation,
        own: Option<&Reservation>,
    ) -> Result<(), Overbooked> {
        for share in &reservation.shares {
            let (required, available) = (share.bandwidth, self.residual(share.region, share.slot));
            let exists = self
                .regions
                .get(share.region.index())
                .is_some_and(|entry| entry.chain_slot(share.slot).is_some());
            if required > available || !exists {
                return Err(Overbooked {
                    resource: Resource::NtBandwidth,
                    region: Some(share.region),
                    slot: Some(share.slot),
                    required: required.get(),
                    available: available.get(),
                });
            }
        }
        self.admit_passes(reservation, own)?;
        let check_total = |resource, required: u64, available: u64| {
            let none = Overbooked { resource, region: None, slot: None, required, available };
            if required > available { Err(none) } else { Ok(()) }
        };
        let kept = own.map_or((Bandwidth::ZERO, Bandwidth::ZERO), |own| (own.ingress, own.egress));
        let ingress = self.ingress_residual().max(kept.0);
        let egress = self.egress_residual().max(kept.1);
        check_total(Resource::IngressBandwidth, reservation.ingress.get(), ingress.get())?;
        check_total(Resource::EgressBandwidth, reservation.egress.get(), egress.get())?;
        self.admit_totals(reservation, own)?;
        let memory = self.memory_cost(tenant, self.nts_of(reservation));
        check_total(Resource::Memory, memory.get(), self.memory_residual().get())?;
        for (_, required, available) in reservation.rows.beside(self.rows_residual()) {
            check_total(Resource::TableRows, required.into(), available.into())?;
        }
        let short = self.processors_short(reservation);
        short.map_or(Ok(()), |(resource, required, left)| check_total(resource, required, left))
    }

    fn put(&mut self, name: Arc<DagName>, reservation: Reservation) {
        for share in &reservation.shares {
            let entry = &mut self.regions[share.region.index()];
            if let Some(nt) = entry.chain_slot(share.slot) {
                self.memory.take(&name.tenant, nt.key, nt.memory);
            }
            let slot = &mut entry.slots[share.slot.index()];
            slot.bandwidth += share.bandwidth;
            slot.packets = slot.packets.saturating_add(share.packets);
            slot.credits = slot.credits.saturating_add(share.credits);
            slot.dags += 1;
        }
        for region in reservation.regions() {
            self.regions[region.index()].users.insert(Arc::clone(&name));
        }
        for port in &reservation.ports {
            let entry = &mut self.regions[port.region.index()];
            entry.port = entry.port.saturating_add(port.cycles);
        }
        self.totals.add(&reservation);
        self.held.insert(name, reservation);
    }

    fn take(&mut self, dag: &DagName) -> Option<(Arc<DagName>, Reservation)> {
        let (name, reservation) = self.held.remove_entry(dag)?;
        for share in &reservation.shares {
            let entry = &mut self.regions[share.region.index()];
            if let Some(nt) = entry.chain_slot(share.slot) {
                self.memory.give_back(&name.tenant, nt.key);
            }
            let slot = &mut entry.slots[share.slot.index()];
            slot.bandwidth = slot.bandwidth - share.bandwidth;
            slot.packets = slot.packets.saturating_sub(share.packets);
            slot.credits = slot.credits.saturating_sub(share.credits);
            slot.dags -= 1;
        }
        for region in reservation.regions() {
            self.regions[region.index()].users.remove(&name);
        }
        for port in &reservation.ports {
            let entry = &mut self.regions[port.region.index()];
            entry.port = entry.port.saturating_sub(port.cycles);
        }
        self.totals.subtract(&reservation);
        Some((name, reservation))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use snic_domain::{CardModel, Cycles, DagId, RegionKind, RegionProfile, SaveArea};

    use super::*;

    pub(crate) fn profile() -> CardProfile {
        CardProfile {
            model: CardModel::new("sim").expect("a test id"),
            part: "xcvu9p".into(),
            idcode: 0,
            clock_hz: 250_000_000,
            width_bits: 512,
            ingress: Bandwidth::from_gbps(100),
            egress: Bandwidth::from_gbps(100),
            memory: ByteSize::from_mib(64),
            memory_bytes_per_second: None,
            packet_store: ByteSize::from_mib(4),
            configuration_bytes_per_second: 800_000_000,
            scheduler_pass: Cycles::new(16),
            scheduler_lookups_per_cycle: None,
            packet_store_beats_per_cycle: None,
            core: Cycles::new(49),
            credits_initial: 8,
            region_pass: Some(snic_domain::RegionPass::SUPERNIC),
            save_area: SaveArea::default(),
            regions: vec![RegionProfile {
                kind: RegionKind::KnownNt,
                area: snic_domain::Area::default(),
                bitstream_max: ByteSize::from_mib(1),
            }],
            processors: Vec::new(),
            links: None,
        }
    }

    fn ledger() -> Ledger {
        Ledger::new(CardId::new("card0").expect("a test id"), profile())
    }

    type Tamper = fn(&mut Ledger);

    /// `check` must notice every sum of the ledger that is wrong by one.
    #[test]
    fn check_notices_whichever_sum_is_wrong() {
        let name = DagName {
            tenant: TenantId::new("acme").expect("a test id"),
            dag: DagId::new("web").expect("a test id"),
        };
        let tampered: [(&str, Tamper); 18] = [
            ("ingress", |l| l.totals.ingress += Bandwidth::from_bps(1)),
            ("egress", |l| l.totals.egress += Bandwidth::from_bps(1)),
            ("memory", |l| l.memory.add_to_total(ByteSize::from_bytes(1))),
            ("packet store", |l| l.totals.store += 1),
            ("reads of the packet store", |l| l.totals.reads += 1),
            ("synchronisation buffer", |l| l.totals.sync += 1),
            ("look-ups", |l| l.totals.lookups += 1),
            ("memory bandwidth", |l| l.totals.memory_rate += 1),
            ("DAG rows", |l| l.totals.rows.dags += 1),
            ("stage rows", |l| l.totals.rows.stages += 1),
            ("chain rows", |l| l.totals.rows.chains += 1),
            ("instance rows", |l| l.totals.rows.instances += 1),
            ("bandwidth", |l| l.regions[0].slots[1].bandwidth += Bandwidth::from_bps(1)),
            ("packets", |l| l.regions[0].slots[1].packets += 1),
            ("port", |l| l.regions[0].port += 1),
            ("credits", |l| l.regions[0].slots[1].credits += 1),
            ("DAGs of a slot", |l| l.regions[0].slots[1].dags += 1),
            ("memory of a tenant", |l| {
                let tenant = TenantId::new("globex").expect("a test id");
                let nt = NtKey::of(&snic_domain::NtTypeId::new("nat").expect("a test id"));
                l.memory.take(&tenant, nt, ByteSize::from_mib(2));
            }),
        ];
        for (what, tamper) in tampered {
            let mut ledger = ledger();
            ledger.hold(&name, Reservation::default()).expect("it asks for nothing");
            assert_eq!(ledger.check(), Ok(()));
            tamper(&mut ledger);
            assert!(ledger.check().is_err(), "{what}");
        }
    }
}

//! One card's book-keeping: what each region is to hold, and who has reserved what.
//!
//! The only mutable state of planning, and the place where "the sum of what is admitted through an
//! NT never exceeds its maximum" is enforced: [`Ledger::hold`] refuses what a plan should never ask.
//! State: O(regions × slots + shares of all DAGs). Holding and releasing cost O(shares of the DAG ×
//! log DAGs); reading a residual costs O(1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snic_domain::limits::{CHAIN_SLOTS_MAX, PAGE_ROWS, PAGE_SIZE, REGIONS_MAX};
use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, ByteSize, CardId, CardProfile, DagName, RegionId, Resource,
    Slot, TenantId,
};

use crate::catalogue::{Chain, ChainSlot};
use crate::changes::Changes;
use crate::reservation::Share;
use crate::{Catalogue, Reservation, TableRows};

/// Whether new chains may be placed in a region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionCondition {
    /// They may.
    #[default]
    Usable,
    /// Nothing new; what is there stays.
    Cordoned,
    /// Nothing may be planned there: it failed.
    Faulty,
    /// Nothing may be planned there: what it holds is not known.
    Unknown,
}

/// A reservation that would pass a maximum. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{resource} overbooked{}: {required} {} needed, {available} {} left", place(.region, .slot), .resource.unit(), .resource.unit())]
pub struct Overbooked {
    /// What would be overbooked.
    pub resource: Resource,
    /// Where, if it is an NT's.
    pub region: Option<RegionId>,
    /// Where, if it is an NT's.
    pub slot: Option<Slot>,
    /// What was to be held, in the resource's unit.
    pub required: u64,
    /// What was left without what the DAG held before.
    pub available: u64,
}

fn place(region: &Option<RegionId>, slot: &Option<Slot>) -> String {
    match (region, slot) {
        (Some(region), Some(slot)) => format!(" in region {region}, slot {}", slot.0),
        _ => String::new(),
    }
}

/// Why a region's content cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The card has no such region.
    #[error("the card has no region {region}; its last is {}", .regions.saturating_sub(1))]
    NoSuchRegion {
        /// The region.
        region: RegionId,
        /// How many there are.
        regions: usize,
    },
    /// DAGs have reservations that the new content does not serve; release them first.
    #[error(
        "region {region} cannot become {}: slot {} is reserved for another NT or for more than \
         the new one serves; release the {dags} DAGs that use the region first",
        .bitstream.as_ref().map_or("empty", BitstreamId::as_str), .slot.0
    )]
    InUse {
        /// The region.
        region: RegionId,
        /// What it should hold.
        bitstream: Option<BitstreamId>,
        /// The first slot that does not fit.
        slot: Slot,
        /// How many DAGs use the region.
        dags: usize,
    },
}

/// What is reserved of one NT instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SlotUse {
    bandwidth: Bandwidth,
    /// How many DAGs of each tenant use it: memory is each tenant's own.
    tenants: BTreeMap<TenantId, u32>,
}

/// One region's page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RegionPage {
    condition: RegionCondition,
    kept: bool,
    content: Option<Arc<Chain>>,
    slots: [SlotUse; CHAIN_SLOTS_MAX],
    users: BTreeSet<Arc<DagName>>,
}

impl RegionPage {
    fn chain_slot(&self, slot: Slot) -> Option<&ChainSlot> {
        self.content.as_ref().and_then(|chain| chain.slots.get(slot.index()))
    }

    fn bandwidth_max(&self, slot: Slot) -> Bandwidth {
        self.chain_slot(slot).map_or(Bandwidth::ZERO, |slot| slot.bandwidth_max)
    }

    fn memory(&self, slot: Slot) -> ByteSize {
        self.chain_slot(slot).map_or(ByteSize::ZERO, |slot| slot.memory)
    }
}

/// What is reserved of the card as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Totals {
    ingress: Bandwidth,
    egress: Bandwidth,
    memory: ByteSize,
    rows: TableRows,
}

/// One card's book-keeping: what each region is to hold and who has reserved what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    card: CardId,
    profile: CardProfile,
    rows_max: TableRows,
    regions: Vec<RegionPage>,
    totals: Totals,
    held: BTreeMap<Arc<DagName>, Reservation>,
    changes: Changes,
}

impl Ledger {
    /// An empty card: every region usable, nothing loaded, nothing reserved. Regions beyond
    /// [`REGIONS_MAX`] do not exist for it: the card's tables could not name them.
    pub fn new(card: CardId, profile: CardProfile) -> Self {
        Self::with_rows(card, profile, TableRows::CARD)
    }

    /// The same with tables of another size.
    pub fn with_rows(card: CardId, profile: CardProfile, rows_max: TableRows) -> Self {
        let regions = vec![RegionPage::default(); profile.regions.len().min(REGIONS_MAX)];
        let (totals, held, changes) = (Totals::default(), BTreeMap::new(), Changes::default());
        Self { card, profile, rows_max, regions, totals, held, changes }
    }

    /// The card.
    pub const fn card(&self) -> &CardId {
        &self.card
    }

    /// What the card offers.
    pub const fn profile(&self) -> &CardProfile {
        &self.profile
    }

    /// How often something changed in it: while that is the same, so is the answer of every search
    /// in it, the catalogue being the same.
    pub const fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Notes what a region is (to be) loaded with. Reservations must fit the new content: the same
    /// NT in every slot that is reserved, with as large a maximum as is reserved.
    ///
    /// # Errors
    ///
    /// [`Unfit`] where the card has no such region, or where a reservation in it needs an NT, its
    /// memory or a bandwidth that the new content does not have. Nothing is changed then.
    pub fn set_content(
        &mut self,
        region: RegionId,
        content: Option<&Bitstream>,
        catalogue: &Catalogue,
    ) -> Result<(), Unfit> {
        let regions = self.regions.len();
        let Some(page) = self.regions.get_mut(region.index()) else {
            return Err(Unfit::NoSuchRegion { region, regions });
        };
        let chain = content.map(|bitstream| catalogue.chain(bitstream));
        let new = |slot: usize| chain.as_ref().and_then(|chain| chain.slots.get(slot));
        let misfit = (0u8..).zip(&page.slots).find(|(slot, used)| {
            let old = page.chain_slot(Slot(*slot));
            !used.tenants.is_empty()
                && !new(usize::from(*slot)).zip(old).is_some_and(|(new, old)| {
                    new.key == old.key
                        && new.memory == old.memory
                        && new.bandwidth_max >= used.bandwidth
                })
        });
        if let Some((slot, _)) = misfit {
            let bitstream = content.map(|bitstream| bitstream.id.clone());
            let dags = page.users.len();
            return Err(Unfit::InUse { region, bitstream, slot: Slot(slot), dags });
        }
        page.content = chain;
        self.changes.count();
        Ok(())
    }

    /// What a region is (to be) loaded with.
    pub fn content(&self, region: RegionId) -> Option<&Bitstream> {
        self.chain(region).map(|chain| &chain.bitstream)
    }

    /// Notes whether new chains may be placed in a region; a region that the card has not is
    /// ignored.
    pub fn set_condition(&mut self, region: RegionId, condition: RegionCondition) {
        if let Some(page) = self.regions.get_mut(region.index()) {
            page.condition = condition;
            self.changes.count();
        }
    }

    /// Whether new chains may be placed in a region; `Unknown` for one that the card has not.
    pub fn condition(&self, region: RegionId) -> RegionCondition {
        self.regions.get(region.index()).map_or(RegionCondition::Unknown, |page| page.condition)
    }

    /// Notes that a region must keep what it is loaded with: it may be shared, and not loaded with
    /// anything else. A region that the card has not is ignored.
    pub fn set_kept(&mut self, region: RegionId, kept: bool) {
        if let Some(page) = self.regions.get_mut(region.index())
            && std::mem::replace(&mut page.kept, kept) != kept
        {
            self.changes.count();
        }
    }

    /// Whether a region must keep what it is loaded with.
    pub fn is_kept(&self, region: RegionId) -> bool {
        self.regions.get(region.index()).is_some_and(|page| page.kept)
    }

    /// Whether a region may be loaded with something else: nobody uses it, and nothing says that it
    /// must keep what it holds.
    pub fn is_replaceable(&self, region: RegionId) -> bool {
        self.is_unused(region) && !self.is_kept(region)
    }

    /// Reserves for `dag`, in place of what it held before. No sum ever passes a maximum: on an
    /// error nothing has changed.
    ///
    /// # Errors
    ///
    /// [`Overbooked`] names the first resource that is short. What `dag` held before is still held
    /// then.
    pub fn hold(&mut self, dag: &DagName, reservation: Reservation) -> Result<(), Overbooked> {
        self.changes.count();
        let before = self.take(dag);
        if let Err(overbooked) = self.admit(&dag.tenant, &reservation) {
            if let Some((name, old)) = before {
                self.put(name, old);
            }
            return Err(overbooked);
        }
        let name = before.map_or_else(|| Arc::new(dag.clone()), |(name, _)| name);
        self.put(name, reservation);
        Ok(())
    }

    /// Frees what `dag` holds, and returns it.
    pub fn release(&mut self, dag: &DagName) -> Option<Reservation> {
        self.changes.count();
        self.take(dag).map(|(_, reservation)| reservation)
    }

    /// What `dag` holds.
    pub fn held(&self, dag: &DagName) -> Option<&Reservation> {
        self.held.get(dag)
    }

    /// All that is held, by DAG.
    pub fn reservations(&self) -> impl Iterator<Item = (&DagName, &Reservation)> {
        self.held.iter().map(|(name, reservation)| (name.as_ref(), reservation))
    }

    /// The DAGs with a reservation in a region, by name.
    pub fn users(&self, region: RegionId) -> impl Iterator<Item = &DagName> {
        self.regions.get(region.index()).into_iter().flat_map(|page| &page.users).map(AsRef::as_ref)
    }

    /// Whether no DAG has a reservation in a region.
    pub fn is_unused(&self, region: RegionId) -> bool {
        self.regions.get(region.index()).is_none_or(|page| page.users.is_empty())
    }

    /// What is reserved of the NT in a slot.
    pub fn reserved(&self, region: RegionId, slot: Slot) -> Bandwidth {
        self.regions
            .get(region.index())
            .and_then(|page| page.slots.get(slot.index()))
            .map_or(Bandwidth::ZERO, |slot| slot.bandwidth)
    }

    /// What is left of the NT in a slot; zero where there is none.
    pub fn residual(&self, region: RegionId, slot: Slot) -> Bandwidth {
        let max = self.regions.get(region.index()).map(|page| page.bandwidth_max(slot));
        max.unwrap_or_default().saturating_sub(self.reserved(region, slot))
    }

    /// What is left of the ingress.
    pub fn ingress_residual(&self) -> Bandwidth {
        self.profile.ingress.saturating_sub(self.totals.ingress)
    }

    /// What is left of the egress.
    pub fn egress_residual(&self) -> Bandwidth {
        self.profile.egress.saturating_sub(self.totals.egress)
    }

    /// What is left of the on-board memory: of the card's whole pages, or of the page table's rows
    /// where those are fewer.
    pub fn memory_residual(&self) -> ByteSize {
        self.memory_max().saturating_sub(self.totals.memory)
    }

    /// What is left of the tables.
    pub fn rows_residual(&self) -> TableRows {
        self.rows_max.zip(self.totals.rows, u32::saturating_sub)
    }

    /// Every invariant, recomputed from scratch: sums, users and tenants follow from what is held,
    /// and no sum passes its maximum. Time O(shares of all DAGs × log DAGs).
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold, in words: a bug, never a consequence of input.
    pub fn check(&self) -> Result<(), String> {
        let mut again = Self {
            regions: vec![RegionPage::default(); self.regions.len()],
            totals: Totals::default(),
            held: BTreeMap::new(),
            ..self.clone()
        };
        for (page, old) in again.regions.iter_mut().zip(&self.regions) {
            page.content.clone_from(&old.content);
            (page.condition, page.kept) = (old.condition, old.kept);
        }
        for (name, reservation) in &self.held {
            again
                .admit(&name.tenant, reservation)
                .map_err(|overbooked| format!("{name}: {overbooked}"))?;
            again.put(Arc::clone(name), reservation.clone());
        }
        for (region, (old, new)) in self.regions.iter().zip(&again.regions).enumerate() {
            if old != new {
                return Err(format!("region {region} is booked as {old:?}, but holds {new:?}"));
            }
        }
        if self.totals != again.totals {
            return Err(format!("totals are {:?}, should be {:?}", self.totals, again.totals));
        }
        Ok(())
    }

    pub(crate) fn region_count(&self) -> usize {
        self.regions.len()
    }

    pub(crate) fn chain(&self, region: RegionId) -> Option<&Chain> {
        self.regions.get(region.index()).and_then(|page| page.content.as_deref())
    }

    /// Whether `tenant` has paid the memory of an NT instance already.
    pub(crate) fn is_memory_paid(&self, region: RegionId, slot: Slot, tenant: &TenantId) -> bool {
        self.regions
            .get(region.index())
            .and_then(|page| page.slots.get(slot.index()))
            .is_some_and(|slot| slot.tenants.contains_key(tenant))
    }

    fn memory_max(&self) -> ByteSize {
        let pages = (self.profile.memory.get() / PAGE_SIZE.get()).min(PAGE_ROWS as u64);
        ByteSize::from_bytes(pages * PAGE_SIZE.get())
    }

    /// Whether `reservation` fits beside what is held.
    fn admit(&self, tenant: &TenantId, reservation: &Reservation) -> Result<(), Overbooked> {
        for share in &reservation.shares {
            let (required, available) = (share.bandwidth, self.residual(share.region, share.slot));
            let exists = self
                .regions
                .get(share.region.index())
                .is_some_and(|page| page.chain_slot(share.slot).is_some());
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
        let whole = |resource, required: u64, available: u64| {
            let none = Overbooked { resource, region: None, slot: None, required, available };
            if required > available { Err(none) } else { Ok(()) }
        };
        let (ingress, egress) = (self.ingress_residual(), self.egress_residual());
        whole(Resource::IngressBandwidth, reservation.ingress.get(), ingress.get())?;
        whole(Resource::EgressBandwidth, reservation.egress.get(), egress.get())?;
        let memory: ByteSize =
            reservation.shares.iter().map(|share| self.memory_cost(share, tenant)).sum();
        whole(Resource::Memory, memory.get(), self.memory_residual().get())?;
        for (_, required, available) in reservation.rows.beside(self.rows_residual()) {
            whole(Resource::TableRows, required.into(), available.into())?;
        }
        Ok(())
    }

    /// What one more DAG of `tenant` on a slot adds.
    fn memory_cost(&self, share: &Share, tenant: &TenantId) -> ByteSize {
        if self.is_memory_paid(share.region, share.slot, tenant) {
            return ByteSize::ZERO;
        }
        self.regions
            .get(share.region.index())
            .map_or(ByteSize::ZERO, |page| page.memory(share.slot))
    }

    fn put(&mut self, name: Arc<DagName>, reservation: Reservation) {
        for share in &reservation.shares {
            self.totals.memory += self.memory_cost(share, &name.tenant);
            let page = &mut self.regions[share.region.index()];
            let slot = &mut page.slots[share.slot.index()];
            slot.bandwidth += share.bandwidth;
            match slot.tenants.get_mut(&name.tenant) {
                Some(dags) => *dags += 1,
                None => drop(slot.tenants.insert(name.tenant.clone(), 1)),
            }
            page.users.insert(Arc::clone(&name));
        }
        self.totals.ingress += reservation.ingress;
        self.totals.egress += reservation.egress;
        self.totals.rows = self.totals.rows.zip(reservation.rows, u32::saturating_add);
        self.held.insert(name, reservation);
    }

    fn take(&mut self, dag: &DagName) -> Option<(Arc<DagName>, Reservation)> {
        let (name, reservation) = self.held.remove_entry(dag)?;
        for share in &reservation.shares {
            let page = &mut self.regions[share.region.index()];
            let slot = &mut page.slots[share.slot.index()];
            slot.bandwidth = slot.bandwidth - share.bandwidth;
            if let Some(dags) = slot.tenants.get_mut(&name.tenant) {
                *dags -= 1;
                if *dags == 0 {
                    slot.tenants.remove(&name.tenant);
                }
            }
            page.users.remove(&name);
            self.totals.memory = self.totals.memory - self.memory_cost(share, &name.tenant);
        }
        self.totals.ingress = self.totals.ingress - reservation.ingress;
        self.totals.egress = self.totals.egress - reservation.egress;
        self.totals.rows = self.totals.rows.zip(reservation.rows, u32::saturating_sub);
        Some((name, reservation))
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{CardModel, Cycles, DagId, RegionKind, RegionProfile, SaveArea};

    use super::*;

    fn ledger() -> Ledger {
        let profile = CardProfile {
            model: CardModel::new("sim").expect("a test id"),
            part: "xcvu9p".into(),
            idcode: 0,
            clock_hz: 250_000_000,
            width_bits: 512,
            ingress: Bandwidth::from_gbps(100),
            egress: Bandwidth::from_gbps(100),
            memory: ByteSize::from_mib(64),
            packet_store: ByteSize::from_mib(4),
            configuration_bytes_per_second: 800_000_000,
            scheduler_pass: Cycles::new(16),
            core: Cycles::new(49),
            credits_initial: 8,
            save_area: SaveArea::default(),
            regions: vec![RegionProfile {
                kind: RegionKind::KnownNt,
                area: snic_domain::Area::default(),
                bitstream_max: ByteSize::from_mib(1),
            }],
        };
        Ledger::new(CardId::new("card0").expect("a test id"), profile)
    }

    type Tamper = fn(&mut Ledger);

    /// Every sum that the ledger keeps beside what is held: wrong by one, and `check` must see it.
    #[test]
    fn check_notices_whichever_sum_is_wrong() {
        let name = DagName {
            tenant: TenantId::new("acme").expect("a test id"),
            dag: DagId::new("web").expect("a test id"),
        };
        let tampered: [(&str, Tamper); 9] = [
            ("ingress", |l| l.totals.ingress += Bandwidth::from_bps(1)),
            ("egress", |l| l.totals.egress += Bandwidth::from_bps(1)),
            ("memory", |l| l.totals.memory += ByteSize::from_bytes(1)),
            ("DAG rows", |l| l.totals.rows.dags += 1),
            ("stage rows", |l| l.totals.rows.stages += 1),
            ("chain rows", |l| l.totals.rows.chains += 1),
            ("instance rows", |l| l.totals.rows.instances += 1),
            ("bandwidth", |l| l.regions[0].slots[1].bandwidth += Bandwidth::from_bps(1)),
            ("tenants", |l| {
                let tenant = TenantId::new("globex").expect("a test id");
                l.regions[0].slots[1].tenants.insert(tenant, 1);
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

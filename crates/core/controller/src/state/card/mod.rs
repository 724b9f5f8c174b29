//! One card: desired and observed content of each region, active and target tables,
//! and the steps under way.
//!
//! ```text
//!                 appeared                 read back
//! Absent ────────────────────► Adopting ────────────► Ready
//!   ▲ ▲                           │  ▲                  │
//!   │ └────────── lost ───────────┘  └── unknown ───────┤
//!   └──────────────────── lost ─────────────────────────┘
//! ```

mod booking;
mod cards;
mod contents;
mod contexts;
mod pages;
mod regions;
mod stalls;
mod tables;

use std::collections::BTreeSet;
use std::sync::Arc;

use snic_domain::{
    BitstreamId, CardId, CardProfile, Cycles, DagName, DagUid, Digest, Mapping, OperationId,
    RegionId, RegionState, ReportedChain, Timestamp,
};
use snic_planner::{Ledger, Objective};
use snic_tables::{
    CardCommand, CardCounters, CardSnapshot, ClassifierRow, GuardRow, ProgramFailure,
    RateLimiterRow, RowKey, Table, Ticket, UnconfiguredNt,
};

use crate::decide::rows::{DagColumns, RowPool};
use crate::protocol::{CardLoss, ControllerSettings};
use crate::state::device_health::DeviceHealth;
use crate::store::records::{CardRecord, Placement, Record, regions_of};
use crate::store::tx::Tx;

pub(crate) use booking::Booking;
pub(crate) use cards::Cards;
pub(crate) use contents::Environment;
pub use contexts::StateFigures;
pub(crate) use contexts::{ContextCommand, Contexts, SaveSlotConflict};
pub(crate) use pages::{PageNeed, Pages, PagesInUse, SpaceKey};
pub(crate) use regions::{LoadEnded, Loading, ObservedContent, Region, Regions};
pub(crate) use tables::{CommitEnd, Committed, TableStep, Tables};

/// Whether the card can be spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// It does not answer, for this reason.
    Absent(String),
    /// It was asked what it holds.
    Adopting(Ticket),
    /// Its content is known.
    Ready,
}

/// Whether a card is the one that was known under its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    Same,
    /// It is, and its save area, or the limits that all of its regions share, are others than they were.
    OtherLimits,
    /// It has another profile: DAGs were planned for another card.
    Other,
}

/// Whether a loss is news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossKind {
    /// It answered before, or was not tried.
    Now,
    /// It did not answer before either.
    StillLost,
}

/// Result of asking a card for its content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AdoptionOutcome {
    /// It was asked again since.
    Stale,
    /// It is another card than its profile says, for this reason.
    Wrong(String),
    /// Its content is known.
    Ready,
}

#[derive(Debug)]
pub(crate) struct CardMachine {
    id: CardId,
    profile: CardProfile,
    connection: ConnectionState,
    /// Since when it does not answer; kept until it has said what it holds.
    loss: Option<CardLoss>,
    ledger: Ledger,
    regions: Regions,
    rows: RowPool,
    /// The spaces of tenants' NTs in its memory.
    pages: Pages,
    tables: Tables,
    /// Contexts of its chains.
    contexts: Contexts,
    /// An NT without a configuration or a module passes packets on unchanged, as it said then.
    passes_through: bool,
    /// Ports of its functions keep to their rows, as it said then.
    guards: bool,
    /// As last read.
    counters: CardCounters,
    /// Its device; what it says is known again soon after a restart, and not stored.
    device: DeviceHealth,
}

/// Health and content.
impl CardMachine {
    pub fn new(id: CardId, profile: CardProfile, objective: Objective) -> Self {
        let tables = Tables::default();
        let mut ledger = Ledger::new(id.clone(), profile.clone());
        ledger.set_objective(objective);
        Self {
            ledger,
            regions: Regions::new(profile.regions.len()),
            connection: ConnectionState::Absent("it was not opened yet".into()),
            loss: None,
            rows: RowPool::new(),
            pages: Pages::of(&profile, tables.active()),
            tables,
            contexts: Contexts::new(id.clone()),
            passes_through: false,
            guards: false,
            counters: CardCounters::default(),
            device: DeviceHealth::default(),
            profile,
            id,
        }
    }

    pub const fn profile(&self) -> &CardProfile {
        &self.profile
    }

    /// Whether promises on it are of packets, too: its profile says what they cost.
    pub const fn counts_packets(&self) -> bool {
        self.profile.region_pass.is_some()
    }

    pub const fn connection(&self) -> &ConnectionState {
        &self.connection
    }

    /// Whether ports of its functions keep to their rows.
    pub const fn guards(&self) -> bool {
        self.guards
    }

    /// Whether an NT without a configuration, and without a module in its image, passes packets on unchanged.
    pub const fn passes_through(&self) -> bool {
        self.passes_through
    }

    /// Whether its NTs take configurations; known when the card is ready.
    pub const fn configures(&self) -> bool {
        self.tables.configuration_way().is_some()
    }

    /// Whether what it holds is known.
    pub const fn is_ready(&self) -> bool {
        matches!(self.connection, ConnectionState::Ready)
    }

    /// Sets the objective that its plans save first.
    pub fn set_objective(&mut self, objective: Objective) {
        self.ledger.set_objective(objective);
    }

    /// Reservations on it.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The table rows that are free.
    pub const fn rows(&self) -> &RowPool {
        &self.rows
    }

    pub const fn regions(&self) -> &Regions {
        &self.regions
    }

    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    pub const fn pages(&self) -> &Pages {
        &self.pages
    }

    pub const fn contexts(&self) -> &Contexts {
        &self.contexts
    }

    /// Its counters, as last read.
    pub const fn counters(&self) -> &CardCounters {
        &self.counters
    }

    pub const fn device(&self) -> &DeviceHealth {
        &self.device
    }

    pub fn region(&self, region: RegionId) -> Option<&Region> {
        self.regions.get(region)
    }

    pub fn region_ids(&self) -> impl Iterator<Item = RegionId> + use<> {
        self.regions.ids()
    }

    /// State of a region, in one word.
    pub fn region_state(&self, region: RegionId) -> RegionState {
        self.regions.state(region, self.ledger.is_unused(region))
    }

    /// Whether every region of a placement holds what it needs.
    pub fn is_loaded(&self, placement: &Placement) -> bool {
        placement.mapping.instances().all(|instance| {
            self.region(instance.region).is_some_and(|region| {
                region.is_loaded() && region.bitstream() == Some(&instance.bitstream)
            })
        })
    }

    /// Number of a placement's regions that hold the desired content.
    pub fn count_loaded(&self, placement: &Placement) -> usize {
        let regions = regions_of(placement).into_iter();
        regions.filter(|region| self.region(*region).is_some_and(Region::is_loaded)).count()
    }

    /// Latency of a packet that waits nowhere, where its NTs take `nts`: the core, and another pass for
    /// each further stage.
    pub fn latency(&self, mapping: &Mapping, nts: Cycles) -> Cycles {
        let passes = mapping.stages.len().saturating_sub(1) as u64;
        let passes = Cycles::new(self.profile.scheduler_pass.get().saturating_mul(passes));
        self.profile.core + passes + nts
    }

    /// Whether any row of a DAG, its pages' rows included, may differ from what the card has.
    pub fn differs(&self, name: &DagName, keys: impl Iterator<Item = RowKey>) -> bool {
        self.tables.differs(keys.chain(self.pages.rows_of(name)))
    }

    /// When a wait of this card ends.
    pub fn next_wake_up(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.is_ready() {
            return None;
        }
        let contexts = self.contexts.next_deadline();
        let times = self.regions.deadlines().chain(self.tables.next_deadline()).chain(contexts);
        times.filter(|&at| at > now).min()
    }

    /// Every invariant that concerns this card alone, recomputed from scratch; says which is broken.
    pub fn check(&self) -> Result<(), String> {
        self.ledger.check().map_err(|broken| broken.to_string())?;
        self.tables.check()?;
        for (region, entry) in self.regions.iter() {
            let content = self.ledger.content(region).map(|content| &content.id);
            if content != entry.bitstream() {
                return Err(format!(
                    "region {region}: the ledger says {content:?}, the record {:?}",
                    entry.bitstream()
                ));
            }
            if entry.fault().is_some() && !self.ledger.is_unused(region) {
                return Err(format!("region {region} is faulty and in use"));
            }
        }
        self.pages.check(self.tables.target())?;
        self.contexts.check(self.profile.save_area)
    }
}

impl CardMachine {
    /// Whether a card that was opened under this id is this one.
    pub fn identify(&self, profile: &CardProfile) -> Identity {
        // The save area is no part of any plan, and what was planned before the limits were known stays as it is.
        let planned_for = CardProfile {
            save_area: profile.save_area,
            memory_bytes_per_second: profile.memory_bytes_per_second,
            scheduler_lookups_per_cycle: profile.scheduler_lookups_per_cycle,
            packet_store_beats_per_cycle: profile.packet_store_beats_per_cycle,
            ..self.profile.clone()
        };
        match planned_for == *profile {
            false => Identity::Other,
            true if self.profile == *profile => Identity::Same,
            true => Identity::OtherLimits,
        }
    }

    /// A card that was never seen before, stored.
    pub fn first_seen(tx: &mut Tx, id: CardId, profile: CardProfile, objective: Objective) -> Self {
        tx.put(Record::Card(id.clone(), CardRecord { profile: profile.clone() }));
        Self::new(id, profile, objective)
    }

    /// Its save area, or the limits that all of its regions share, are others than they were.
    pub fn set_limits(&mut self, tx: &mut Tx, profile: CardProfile) {
        self.profile = profile.clone();
        self.ledger.set_limits(&profile);
        tx.put(Record::Card(self.id.clone(), CardRecord { profile }));
    }

    /// Asks it what it holds; until it answers nothing else is asked.
    pub fn read_back(
        &mut self,
        tx: &mut Tx,
        ticket: Ticket,
        known: Arc<[(Digest, ReportedChain)]>,
    ) {
        self.forget();
        self.connection = ConnectionState::Adopting(ticket);
        tx.card(self.id.clone(), CardCommand::ReadBack { ticket, known });
    }

    /// It does not answer; says whether that is news.
    pub fn lose(&mut self, now: Timestamp, reason: String) -> LossKind {
        self.forget();
        self.connection = ConnectionState::Absent(reason);
        match &self.loss {
            Some(_) => LossKind::StillLost,
            None => {
                self.loss = Some(CardLoss { since: now, attempts: 0 });
                LossKind::Now
            }
        }
    }

    /// It was tried to open it, in vain.
    pub const fn count_attempt(&mut self) {
        if let Some(loss) = &mut self.loss {
            loss.attempts = loss.attempts.saturating_add(1);
        }
    }

    /// Ends its loss, if it was lost: its content is known.
    pub const fn take_loss(&mut self) -> Option<CardLoss> {
        self.loss.take()
    }

    /// Since when it does not answer.
    pub const fn loss(&self) -> Option<CardLoss> {
        self.loss
    }

    /// Forgets what was known of it and what was under way.
    fn forget(&mut self) {
        self.tables.forget();
        self.regions.forget();
        self.contexts.forget();
    }

    /// It said what it holds: the target tables begin empty, and contents and contexts are as they
    /// are. What should be in the tables is written next, then [`CardMachine::compare_tables`] is due.
    /// `is_known` is as for [`Regions::adopt`].
    pub fn adopt(
        &mut self,
        ticket: Ticket,
        snapshot: &CardSnapshot,
        is_known: impl Fn(Digest, &ReportedChain) -> bool,
    ) -> AdoptionOutcome {
        if self.connection != ConnectionState::Adopting(ticket) {
            return AdoptionOutcome::Stale;
        }
        if snapshot.idcode != self.profile.idcode || snapshot.regions.len() != self.regions.len() {
            return AdoptionOutcome::Wrong(format!(
                "the card has IDCODE {:#010x} and {} regions; its profile says {:#010x} and {}",
                snapshot.idcode,
                snapshot.regions.len(),
                self.profile.idcode,
                self.regions.len()
            ));
        }
        self.connection = ConnectionState::Ready;
        self.passes_through = snapshot.passes_through;
        self.guards = snapshot.guards;
        let tables = snapshot.tables.clone();
        self.tables.adopt(snapshot.version, tables, snapshot.configures);
        self.regions.adopt(&snapshot.regions, is_known);
        self.contexts.adopt(snapshot.boot_id);
        AdoptionOutcome::Ready
    }

    /// It said its counters; gives those before.
    pub fn count(&mut self, counters: CardCounters) -> CardCounters {
        std::mem::replace(&mut self.counters, counters)
    }
}

/// Desired content of its tables.
impl CardMachine {
    /// A DAG gets the pages that it needs, and gives those back that it does not need any more.
    ///
    /// # Errors
    /// Pages are not free yet; nothing has changed then, and [`CardMachine::take_waiting`] tells of
    /// the DAG when it is time to try again.
    pub fn hold_pages(
        &mut self,
        name: &DagName,
        needs: &BTreeSet<PageNeed>,
    ) -> Result<(), PagesInUse> {
        self.pages.hold(&mut self.tables, name, needs)
    }

    /// A DAG needs no pages any more.
    pub fn release_pages(&mut self, name: &DagName) {
        self.pages.release_spaces(&mut self.tables, name, &BTreeSet::new());
    }

    /// A commit is done: the DAGs that wait for pages which may be free now.
    pub fn take_waiting(&mut self) -> BTreeSet<DagName> {
        self.pages.take_waiting()
    }

    /// The rows of a DAG's placement are to be in the tables.
    pub fn put_dag(&mut self, name: &DagName, columns: &DagColumns, placement: &Placement) {
        self.tables.put_dag(name, columns, placement);
    }

    /// The rows of a DAG's placement are not to be in the tables.
    pub fn clear_dag(&mut self, name: &DagName, uid: DagUid, placement: &Placement) {
        self.tables.clear_dag(name, uid, placement);
    }

    /// A DAG has to be told of with the next commit, though its rows may be as they were.
    pub fn touch(&mut self, name: &DagName) {
        self.tables.touch(name);
    }

    /// Sets a DAG's desired token bucket.
    pub fn put_bucket(&mut self, row: u16, bucket: &RateLimiterRow) {
        self.tables.put(row, bucket);
    }

    /// A rule of the classifier is to be in the tables.
    pub fn put_rule(&mut self, row: u16, rule: &ClassifierRow) {
        self.tables.put(row, rule);
    }

    /// A row of the classifier is to be empty.
    pub fn clear_rule(&mut self, row: u16) {
        self.tables.clear([RowKey { table: Table::Classifier, row }]);
    }

    /// The port of a function is to keep to these limits.
    pub fn put_guard(&mut self, function: u16, guard: &GuardRow) {
        self.tables.put(function, guard);
    }

    /// The port of a function is to have no limits.
    pub fn clear_guard(&mut self, function: u16) {
        self.tables.clear([RowKey { table: Table::Guard, row: function }]);
    }

    /// An operation ends when the card has no row any more that the target has not.
    pub fn wait_for_removal(&mut self, operation: OperationId) {
        self.tables.wait_for_removal(operation);
    }

    /// After [`CardMachine::adopt`]: the pages that the card's tables name are taken up as they are.
    pub fn adopt_pages(&mut self) {
        self.pages = Pages::of(&self.profile, self.tables.active());
    }

    /// After [`CardMachine::adopt`]: nothing that is right already is written again.
    pub fn compare_tables(&mut self) {
        self.tables.compare();
    }

    /// NTs of a DAG in these regions and slots did not take its configuration, as is known from before the card was read back.
    pub fn lacks_configuration(&mut self, dag: (&DagName, DagUid), at: BTreeSet<(u8, u8)>) {
        self.tables.lacks(dag, at);
    }

    /// Begins a commit of all that differs, if none is under way and it is time for it. `serial_of`
    /// says which placement of a DAG the target has.
    pub fn begin_commit(
        &mut self,
        now: Timestamp,
        new_ticket: impl FnOnce() -> Ticket,
        serial_of: impl Fn(&DagName) -> Option<u64>,
    ) -> TableStep {
        self.tables.begin(now, new_ticket, serial_of)
    }

    /// It answered to a commit.
    pub fn commit_ended(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        result: Result<(u32, Vec<UnconfiguredNt>), ProgramFailure>,
        settings: &ControllerSettings,
    ) -> CommitEnd {
        self.tables.ended(now, ticket, result, |failures| settings.wait(failures))
    }
}

/// Contexts of its chains.
impl CardMachine {
    /// The contexts of its chains: a machine with private fields, so only its verbs change it. They are not
    /// repeated here, for each would only pass its arguments on; `residency` is their only caller after
    /// recovery, and calls [`CardMachine::refresh_kept`] after it.
    pub const fn contexts_mut(&mut self) -> &mut Contexts {
        &mut self.contexts
    }

    /// Tells the ledger whether a region must stay what it is, for what is kept in it has nowhere to
    /// go; says whether it need not any more.
    pub fn refresh_kept(
        &mut self,
        region: RegionId,
        length_of: impl Fn(&BitstreamId) -> u32,
    ) -> Retention {
        let kept = self.contexts.must_stay(region, self.profile.save_area, length_of);
        let before = self.ledger.is_kept(region);
        self.ledger.set_kept(region, kept);
        if before && !kept { Retention::NoMore } else { Retention::AsBefore }
    }

    /// Forgets what was to be erased in regions that hold something else by now.
    pub fn forget_obsolete_erases(&mut self, tx: &mut Tx) {
        self.contexts.forget_obsolete_erases(tx, &self.regions);
    }

    /// Has the wrapper of a region do something with a context.
    pub fn begin_step(
        &mut self,
        tx: &mut Tx,
        ticket: Ticket,
        region: RegionId,
        command: ContextCommand,
    ) {
        let order = self.contexts.begin(ticket, region, command);
        tx.card(self.id.clone(), CardCommand::State { ticket, region, order });
    }
}

/// Whether a region must stay what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retention {
    /// It must and did not, or nothing has changed.
    AsBefore,
    /// It need not any more: it may be planned with again.
    NoMore,
}

#[cfg(test)]
mod tests {
    use snic_tables::{RegionSnapshot, RegionStatus, TableImage};

    use super::*;
    use crate::fixtures::profile;

    #[test]
    fn only_the_answer_to_the_last_question_counts() {
        let mut card = CardMachine::new(
            CardId::new("card0").expect("a label"),
            profile(1),
            Objective::default(),
        );
        let (status, chain) = (RegionStatus::Empty, ReportedChain::default());
        let region = RegionSnapshot { status, decoupled: false, was_decoupled: false, chain };
        let snapshot = CardSnapshot {
            boot_id: 1,
            idcode: card.profile().idcode,
            version: 0,
            tables: TableImage::default(),
            regions: vec![region],
            configures: None,
            passes_through: false,
            guards: true,
        };
        for ticket in [1, 2] {
            card.read_back(&mut Tx::default(), Ticket(ticket), Arc::default());
        }
        let mut adopt = |ticket| card.adopt(Ticket(ticket), &snapshot, |_, _| true);
        assert_eq!(adopt(1), AdoptionOutcome::Stale, "it was asked again since");
        assert_eq!(adopt(2), AdoptionOutcome::Ready);
        assert_eq!(adopt(2), AdoptionOutcome::Stale, "it was answered");
    }
}

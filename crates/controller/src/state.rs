//! The state, and the one door to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use snic_domain::limits::DAG_ROWS;
use snic_domain::{
    BitstreamId, CardId, DagName, DagUid, NtTypeId, OperationId, RegionId, RuleId, TenantId,
    Timestamp,
};
use snic_planner::Catalogue;
use snic_tables::Ticket;

use crate::bindings::Bindings;
use crate::card::CardState;
use crate::consolidation::Consolidating;
use crate::dags::DagEntry;
use crate::log::Log;
use crate::protocol::{Event, LogKind, OperationRecord, Reply, Settings, TenantUsage};
use crate::records::{
    BitstreamRecord, Maintenance, Meta, NtRecord, RequestRecord, RuleRecord, TenantRecord, key,
};
use crate::refused::RefusedDags;
use crate::roles::RoleLoad;
use crate::tx::{About, Tx};

/// Which rows of the DAG table are free, and how often each was given out.
#[derive(Debug, Clone)]
pub(crate) struct Uids {
    pub incarnations: Vec<u32>,
    pub free: BTreeSet<u16>,
}

impl Uids {
    pub fn new() -> Self {
        let rows = u16::try_from(DAG_ROWS).unwrap_or(u16::MAX);
        Self { incarnations: vec![0; DAG_ROWS], free: (0..rows).collect() }
    }

    /// The UID that the next DAG gets, if a row is free.
    pub fn peek(&self) -> Option<DagUid> {
        let row = *self.free.first()?;
        let next = self.incarnations[usize::from(row)] + 1;
        DagUid::new(row, next).or_else(|| DagUid::new(row, 1))
    }

    pub fn take(&mut self, uid: DagUid) {
        self.free.remove(&uid.row());
        self.incarnations[usize::from(uid.row())] = uid.incarnation();
    }

    pub fn give(&mut self, uid: DagUid) {
        self.free.insert(uid.row());
    }
}

/// The control plane of one daemon: all tenants, all cards.
///
/// One thread owns it. [`Controller::handle`] takes an event and says what is to be done;
/// queries read what callers see.
#[derive(Debug)]
pub struct Controller {
    pub(crate) settings: Settings,
    pub(crate) now: Timestamp,
    pub(crate) meta: Meta,
    /// Whether a store has it: what is derived from its secret must not change with a restart.
    pub(crate) meta_stored: bool,
    /// While nothing new is taken in.
    pub(crate) maintenance: Option<Maintenance>,
    pub(crate) tenants: BTreeMap<TenantId, TenantRecord>,
    /// What each tenant uses; without an entry nothing.
    pub(crate) usage: BTreeMap<TenantId, TenantUsage>,
    pub(crate) nts: BTreeMap<NtTypeId, NtRecord>,
    pub(crate) bitstreams: BTreeMap<BitstreamId, BitstreamRecord>,
    /// The same as `nts` and `bitstreams`, as the planner wants them.
    pub(crate) catalogue: Catalogue,
    pub(crate) dags: BTreeMap<DagName, DagEntry>,
    pub(crate) cards: BTreeMap<CardId, CardState>,
    /// Why cards that were never seen are not there.
    pub(crate) absent: BTreeMap<CardId, String>,
    pub(crate) rules: BTreeMap<RuleId, RuleRecord>,
    pub(crate) bindings: Bindings,
    pub(crate) operations: BTreeMap<OperationId, OperationRecord>,
    /// The drains that have not ended.
    /// Without a region, of all of the card.
    pub(crate) drains: BTreeMap<OperationId, (CardId, Option<RegionId>)>,
    /// The consolidations that have not ended.
    pub(crate) consolidations: BTreeMap<OperationId, Consolidating>,
    /// When the next consolidation begins on its own.
    pub(crate) consolidate_at: Option<Timestamp>,
    /// The loads of roles that have not ended.
    pub(crate) roles: BTreeMap<OperationId, RoleLoad>,
    /// DAGs that were refused lately.
    pub(crate) refused: RefusedDags,
    /// Operations that ended, the oldest first.
    pub(crate) ended: VecDeque<OperationId>,
    pub(crate) requests: BTreeMap<(String, String), RequestRecord>,
    /// Requests by age, the oldest first.
    pub(crate) requests_by_age: VecDeque<(String, String)>,
    pub(crate) uids: Uids,
    /// DAGs whose rows or status may have to change.
    pub(crate) dirty_dags: BTreeSet<DagName>,
    /// Regions that may have lost their last user.
    pub(crate) maybe_unused: BTreeSet<(CardId, RegionId)>,
    /// DAGs without a place, to be tried again when something was freed.
    pub(crate) unscheduled: BTreeSet<DagName>,
    /// Whether something was freed since they were tried.
    pub(crate) capacity_freed: bool,
    /// In which regions loads of a bitstream were given up since one last succeeded.
    pub(crate) load_suspects: BTreeMap<BitstreamId, BTreeSet<(CardId, RegionId)>>,
    pub(crate) next_ticket: u64,
    /// What was decided, and why.
    pub(crate) log: Log,
    /// When counters were last asked for.
    pub(crate) sampled: Timestamp,
    /// Policies that take effect at the next edge of an epoch.
    pub(crate) next_settings: Option<Settings>,
}

impl Controller {
    /// Takes an event; says what it leads to, for an [`crate::Outbox`]. `now` never goes backwards.
    pub fn handle(&mut self, event: Event, now: Timestamp) -> Tx {
        self.now = self.now.max(now);
        let mut tx = Tx::at(self.now);
        let mut reply = None;
        match event {
            Event::Request { call, request } => {
                reply = Some((call, self.request(&mut tx, *request)));
            }
            Event::CardAppeared { card, profile } => self.card_appeared(&mut tx, card, *profile),
            Event::CardAbsent { card, reason } => self.card_absent(&mut tx, card, reason),
            Event::Card { card, report } => self.card_reported(&mut tx, &card, report),
            Event::Tick => {}
            Event::Sample => self.sample(&mut tx),
            Event::Settings(settings) => self.settings_arrived(*settings),
            Event::SettingsRefused { reason } => {
                tx.note(LogKind::PoliciesRefused, About::default(), reason);
            }
        }
        self.reconcile(&mut tx);
        while self.step_bindings(&mut tx) {
            self.reconcile(&mut tx);
        }
        if let Some((call, result)) = reply {
            let result = result.map(|reply| self.up_to_date(reply));
            tx.reply(call, result);
        }
        self.forget_old(&mut tx);
        self.forget_old_bindings(&mut tx);
        if !self.meta_stored && !tx.writes().is_empty() {
            self.meta_stored = true;
            tx.put(key::META.to_owned(), &self.meta);
        }
        if cfg!(debug_assertions)
            && let Err(broken) = self.check()
        {
            panic!("an invariant of the controller is broken: {broken}");
        }
        self.log.keep(&mut tx);
        tx
    }

    /// A reply that was made before the next steps were taken, as it is after them.
    fn up_to_date(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Operation(view) => match self.operations.get(&view.record.id) {
                Some(record) => Reply::Operation(self.operation_view(record)),
                None => Reply::Operation(view),
            },
            Reply::Binding(view) => match self.binding_view(&view.record.spec.vm) {
                Some(now) => Reply::Binding(Box::new(now)),
                None => Reply::Binding(view),
            },
            other => other,
        }
    }

    /// When [`Event::Tick`] is needed next, if nothing else happens before.
    pub fn next_wake_up(&self) -> Option<Timestamp> {
        let cards = self.cards.values().filter_map(|card| card.next_wake_up(self.now));
        cards.chain(self.bindings.next_alarm()).chain(self.consolidate_at).min()
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }
}

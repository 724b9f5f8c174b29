//! The state, and the one door to it.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::limits::DAG_ROWS;
use snic_domain::{BitstreamId, CardId, DagName, DagUid, OperationId, RegionId, Timestamp};
use snic_tables::Ticket;

use crate::bindings::Bindings;
use crate::card::CardState;
use crate::consolidation::Consolidating;
use crate::dags::DagEntry;
use crate::log::Log;
use crate::machines::Progress;
use crate::operations::Operations;
use crate::protocol::{Event, LogKind, Reply, Settings};
use crate::records::Maintenance;
use crate::refused::RefusedDags;
use crate::registry::Registry;
use crate::requests::Requests;
use crate::rules::Rules;
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
    /// Drawn when the store was made: what must not be guessed is derived from it.
    pub(crate) secret: u64,
    /// While nothing new is taken in.
    pub(crate) maintenance: Option<Maintenance>,
    pub(crate) registry: Registry,
    pub(crate) dags: BTreeMap<DagName, DagEntry>,
    pub(crate) cards: BTreeMap<CardId, CardState>,
    /// Why cards that were never seen are not there.
    pub(crate) absent: BTreeMap<CardId, String>,
    pub(crate) rules: Rules,
    pub(crate) bindings: Bindings,
    pub(crate) operations: Operations,
    /// The consolidations that have not ended.
    pub(crate) consolidations: BTreeMap<OperationId, Consolidating>,
    /// When the next consolidation begins on its own.
    pub(crate) consolidate_at: Option<Timestamp>,
    /// DAGs that were refused lately.
    pub(crate) refused: RefusedDags,
    pub(crate) requests: Requests,
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
        while self.step_bindings(&mut tx) == Progress::Made {
            self.reconcile(&mut tx);
        }
        if let Some((call, result)) = reply {
            let result = result.map(|reply| self.up_to_date(reply));
            tx.reply(call, result);
        }
        self.forget_old(&mut tx);
        self.forget_old_bindings(&mut tx);
        self.operations.store_meta_once(&mut tx);
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
